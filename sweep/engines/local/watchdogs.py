"""What is watched while trials run: those that report nothing for too long, those that do nothing at all, and the
machine's memory."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from sweep.core.messages import ExitKind, Kill
from sweep.core.resources import format_bytes
from sweep.engines.local.processes import ask_for_stacks, descendants
from sweep.engines.local.supervisors import Attempt
from sweep.engines.loop import Loop
from sweep.record.proc import stat_of

_TURN_S = 0.1  # for a process to write its stacks: two that wrote at once could not be read
_TURNS_S = 2.0  # for all of them, one after the other
_WRITING_S = 1.0  # for the last


@dataclass(eq=False)
class ReportWatchdog:
    """Watch attempts that owe a report: what the processes of one that is late are doing goes to its log, then it is
    killed. Those that wait for an answer, or say what they wait for, owe none.

    Attributes:
        limit_s: how long a report may take; None: nothing is watched.
        log_of: returns the file with the output of an attempt.
        kill: is given an attempt and the reason.
    """

    limit_s: float | None
    loop: Loop
    log_of: Callable[[Attempt], Path]
    kill: Callable[[Attempt, str], None]
    _since: dict[Attempt, float] = field(default_factory=dict, init=False)
    _is_looking: bool = field(default=False, init=False)

    def watch(self, attempt: Attempt) -> None:
        """From now on the attempt owes a report."""
        if self.limit_s is None:
            return
        self._since.pop(attempt, None)  # the latest come last
        self._since[attempt] = time.monotonic()
        if not self._is_looking:
            self._is_looking = True
            self.loop.alarm(self.limit_s, self._look)

    def rest(self, attempt: Attempt) -> None:
        """It owes none: it has made one, waits for something that is not its own, or is over."""
        self._since.pop(attempt, None)

    def _look(self) -> None:
        assert self.limit_s is not None
        now = time.monotonic()
        while self._since:
            attempt, since = next(iter(self._since.items()))
            if since + self.limit_s > now:
                self.loop.alarm(since + self.limit_s - now, self._look)
                return
            del self._since[attempt]
            self._give_up(attempt)
        self._is_looking = False

    def _give_up(self, attempt: Attempt) -> None:
        log = self.log_of(attempt)
        supervisor = attempt.slot.pid if attempt.slot is not None else 0
        able, stopped = _describe(supervisor, log) if supervisor else ([], [])
        who = f"process {stopped[0]} is stopped (SIGSTOP); " if stopped else ""
        reason = f"no report within report_timeout_s={self.limit_s:g}; {who}what its processes do is in {log.name}"
        turn_s = min(_TURN_S, _TURNS_S / max(1, len(able)))
        for number, pid in enumerate(able):
            self.loop.alarm(number * turn_s, partial(ask_for_stacks, pid))
        self.loop.alarm(len(able) * turn_s + _WRITING_S, lambda: self.kill(attempt, reason))


def _describe(root: int, log: Path) -> tuple[list[int], list[int]]:
    """Write into `log` what the descendants of a process are; return those that can tell their stacks, and those that
    are stopped.

    Python processes of this package can. Of others `log` gets what the kernel tells of them.
    """
    lines, stopped, able = ["--- no report for too long: the stacks of its processes"], [], []
    for pid in descendants(root):
        about = _about(pid)
        if about is None:
            continue
        name, state, can_tell, waits_in = about
        if state == "T":
            stopped.append(pid)
        how = "" if can_tell else f", in {waits_in}" if waits_in not in ("", "0") else ""
        lines.append(f"--- process {pid} ({name}): {_STATES.get(state, state)}{how}")
        if can_tell:
            able.append(pid)
    with contextlib.suppress(OSError), open(log, "a", encoding="utf-8", errors="replace") as file:
        file.write("\n".join([*lines, ""]))
    return able, stopped


_STATES = {"R": "runs", "S": "waits", "D": "waits for a device", "T": "is stopped", "t": "is traced", "Z": "has ended"}


def _about(pid: int) -> tuple[str, str, bool, str] | None:
    """Return command, state, whether it writes its stacks on request, and what it waits in; None: gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            fields = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    except OSError:
        return None
    waits_in = ""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/wchan", encoding="utf-8") as file:
        waits_in = file.read()
    caught = int(fields.get("SigCgt", "0"), 16)
    can_tell = bool(caught >> (signal.SIGUSR1 - 1) & 1)
    return fields.get("Name", "?"), fields.get("State", "?")[:1], can_tell, waits_in


HANG_S = 60.0
_IDLE_SHARE = 0.01  # of one processor: a thread that looks for something now and then is no progress
_LOOKS = 6  # while something becomes a hang
_TICKS_PER_S = 100  # what /proc counts in, whatever the kernel's own rate


@dataclass(eq=False)
class StartWatchdog:
    """Say once what may be the reason where a trial does nothing: a lock that a thread held when it was forked.

    A trial that computes is busy, however late its first report comes.

    Attributes:
        hang_s: how long a trial may do nothing before its first report.
        attempts: those that there are.
        say: called with one line.
    """

    hang_s: float
    loop: Loop
    attempts: Mapping[Any, Attempt]
    say: Callable[[str], None]
    _num_threads: int = field(default=0, init=False)
    _modules: Sequence[str] = field(default=(), init=False)
    _seen: dict[int, tuple[float, float]] = field(default_factory=dict, init=False)  # token -> what was used, and when

    def begin(self, num_threads: int, modules: Sequence[str]) -> None:
        """Look from now on, once the imports of `modules` have started threads where workers are forked."""
        if num_threads > 0 and not self._num_threads:
            self._num_threads, self._modules = num_threads, modules
            self._look()

    def _look(self) -> None:
        silent = {
            one.token: one
            for one in self.attempts.values()
            if one.link is not None and one.slot is not None and one.slot.pid and not one.has_reported
        }
        supervisors = {token: one.slot.pid for token, one in silent.items() if one.slot is not None}
        token = self.idle({token: processor_s(pid) for token, pid in supervisors.items()}, time.monotonic())
        if token is None:
            self.loop.alarm(self.hang_s / _LOOKS, self._look)
            return
        self.say(
            f"trial {silent[token].trial.number:05d} has neither reported nor computed for {self.hang_s:g} s, and "
            f"importing {', '.join(self._modules)} in advance started threads ({self._num_threads}), whose locks it "
            "may wait for; if it hangs, use start_method='spawn'"
        )

    def idle(self, used_s: Mapping[int, float], now: float) -> int | None:
        """Return the token of an attempt that has used no processor for too long; None: there is none.

        Args:
            used_s: the processor time of those that have not reported yet, by token.
        """
        seen, self._seen = self._seen, {}
        for token, used in used_s.items():
            before, since = seen.get(token, (used, now))
            if abs(used - before) > _IDLE_SHARE * (now - since):
                before, since = used, now
            elif now - since >= self.hang_s:
                return token
            self._seen[token] = before, since
        return None


def processor_s(pid: int) -> float:
    """Return the seconds that a process and its descendants have computed; those that ended are not counted."""
    ticks = 0
    for one in (pid, *descendants(pid)):
        with contextlib.suppress(OSError):
            fields = stat_of(one)
            ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS_PER_S


_LOOK_S = 0.25
_SETTLE_S = 1.0  # for the memory of what was killed to come back
_LEAST_SHARE = 0.05  # of the machine's memory: ending what holds less would not help

_CGROUPS = (
    ("memory.max", "memory.current", "inactive_file"),  # version 2
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
)


class MemoryGuard:
    """Looks at the machine's memory while attempts run, and ends the largest when it is nearly full.

    Ray watches the memory of its nodes, too, and ends whole workers when it is short: on a node that is full it would
    end the agent, and all trials there with it.
    """

    def __init__(
        self,
        limit: float,
        loop: Loop,
        attempts: Mapping[tuple[str, int], Attempt],
        kill: Callable[[Attempt, Kill], None],
        read: Callable[[], tuple[int, int]] | None = None,
    ) -> None:
        """Begin to look.

        Args:
            limit: part of the memory above which an attempt is ended, in (0, 1).
            attempts: those that there are.
            kill: ends one.
            read: returns the bytes in use and those that there are; None: as the kernel tells.
        """
        self._limit = limit
        self._loop = loop
        self._attempts = attempts
        self._kill = kill
        self._read = read or memory_in_use
        loop.alarm(_LOOK_S, self._look)

    def _look(self) -> None:
        used, total = self._read()
        is_over = total > 0 and used > self._limit * total and self._end_largest(used, total)
        self._loop.alarm(_SETTLE_S if is_over else _LOOK_S, self._look)

    def _end_largest(self, used: int, total: int) -> bool:
        """End the attempt that holds most; whether there was one worth it."""
        sizes = [(resident_bytes(one.pids), one) for one in self._attempts.values() if one.kill is None and one.pids]
        size, attempt = max(sizes, key=lambda item: item[0], default=(0, None))
        if attempt is None or size < _LEAST_SHARE * total:
            return False
        reason = (
            f"the machine had {format_bytes(used)} of {format_bytes(total)} in use, and this trial held more than "
            f"the others, {format_bytes(size)}. Run fewer trials at a time (max_concurrent_trials), or ask for memory "
            "in resources_per_trial"
        )
        self._kill(attempt, Kill(*attempt.key, reason, ExitKind.OUT_OF_MEMORY))
        return True


def resident_bytes(pids: Iterable[int]) -> int:
    """Return the memory that some processes and their descendants hold; what they share counts for each."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = 0
    for pid in pids:
        for one in (pid, *descendants(pid)):
            with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
                total += page * int(Path(f"/proc/{one}/statm").read_text().split()[1])
    return total


def memory_in_use(root: str | Path = "/") -> tuple[int, int]:
    """Return how many bytes of memory are in use and how many there are, of a container those of its own limit."""
    lines = (Path(root, "proc/meminfo").read_text()).splitlines()
    facts = {name: int(rest.split()[0]) << 10 for name, _, rest in (line.partition(":") for line in lines)}
    total = facts["MemTotal"]
    used = total - facts.get("MemAvailable", facts.get("MemFree", 0))
    for limit_name, used_name, cache_name in _CGROUPS:
        place = Path(root, "sys/fs/cgroup")
        with contextlib.suppress(OSError, ValueError):  # no container, no limit ("max"), or the other version
            limit = int((place / limit_name).read_text())
            if limit < total:
                held = int((place / used_name).read_text())
                stat = (place / used_name).parent / "memory.stat"
                cached = dict(line.split() for line in stat.read_text().splitlines()).get(cache_name, "0")
                return held - int(cached), limit
    return used, total
