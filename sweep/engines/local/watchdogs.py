"""What is watched while trials run: who reports nothing for too long, who does nothing at all, and the memory."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path

from sweep.accelerators.host import memory_of_groups
from sweep.core.messages import ExitKind, Kill
from sweep.core.resources import format_bytes
from sweep.engines.local.processes import ask_for_stacks, descendants
from sweep.engines.local.supervisors import Attempt
from sweep.engines.loop import Loop
from sweep.record.proc import read, stat_of

HANG_S = 60.0
_IDLE_SHARE = 0.01  # of one processor: a thread that looks for something now and then is no progress
_WRITING_S = 0.1  # for a process to write its stacks: two at once could not be read
_LAST_WORDS_S = 1.0
_LOOK_S = 0.5  # at the memory: that of what was killed is back by then
_LEAST_SHARE = 0.05  # of the machine's memory: ending what holds less would not help


@dataclass(eq=False)
class Watchdogs:
    """Looks at the attempts of an engine. `memory_limit` is a part of the machine's memory, in (0, 1): above it the
    largest attempt is ended, because Ray would end the agent of the node, and with that all trials there."""

    loop: Loop
    attempts: Mapping[tuple[str, int], Attempt]
    kill: Callable[[Attempt, Kill], None]
    say: Callable[[str], None] = print
    log_of: Callable[[Attempt], Path] = lambda attempt: Path(os.devnull)
    report_s: float | None = None
    hang_s: float = HANG_S
    memory_limit: float | None = None

    def __post_init__(self) -> None:
        self._due: dict[Attempt, float] = {}  # the next report; the first comes first
        self._used_s: dict[Attempt, float] = {}  # processor time at the last look
        self._threads = ""  # that imports have started
        if self.report_s is not None:
            self.loop.alarm(self.report_s, partial(self._look_at_reports, self.report_s))
        if self.memory_limit is not None:
            self.loop.alarm(_LOOK_S, partial(self._look_at_memory, self.memory_limit))

    def watch(self, attempt: Attempt) -> None:
        """From now on the attempt owes a report."""
        self.rest(attempt)
        if self.report_s is not None:
            self._due[attempt] = time.monotonic() + self.report_s

    def rest(self, attempt: Attempt) -> None:
        """It owes none: it has made one, waits for something that is not its own, or is over."""
        self._due.pop(attempt, None)

    def _look_at_reports(self, limit_s: float) -> None:
        now = time.monotonic()
        for attempt in [attempt for attempt, due in self._due.items() if due <= now]:
            self.rest(attempt)
            self._give_up(attempt, f"no report within report_timeout_s={limit_s:g}")
        next_due = next(iter(self._due.values()), now + limit_s)
        self.loop.alarm(next_due - now, partial(self._look_at_reports, limit_s))

    def _give_up(self, attempt: Attempt, why: str) -> None:
        """Have the processes of this package write their stacks; of others the log gets what the kernel tells."""
        log, after_s = self.log_of(attempt), 0.0
        lines = ["--- no report for too long: the stacks of its processes"]
        for pid in descendants(attempt.slot.pid) if attempt.slot is not None else ():
            with contextlib.suppress(OSError):  # it is gone
                status = read(f"/proc/{pid}/status").decode(errors="replace").splitlines()
                fields = dict(line.partition(":\t")[::2] for line in status)
                where = read(f"/proc/{pid}/wchan").decode()
                lines.append(f"--- process {pid} ({fields['Name']}): {fields['State']}, in {where}")
                if fields["State"].startswith("T"):
                    why += f"; process {pid} is stopped (SIGSTOP)"
                if int(fields["SigCgt"], 16) >> (signal.SIGUSR1 - 1) & 1:
                    self.loop.alarm(after_s, partial(ask_for_stacks, pid))
                    after_s += _WRITING_S
        with contextlib.suppress(OSError), open(log, "a", encoding="utf-8", errors="replace") as file:
            file.write("\n".join([*lines, ""]))
        kill = Kill(*attempt.key, f"{why}; what its processes do is in {log.name}", ExitKind.HUNG)
        self.loop.alarm(after_s + _LAST_WORDS_S, lambda: self.kill(attempt, kill))

    def begin(self, num_threads: int, modules: Iterable[str]) -> None:
        """Say once of an attempt that it does nothing before its first report, where the imports of `modules` have
        started threads: one may have held a lock when a worker was forked."""
        if num_threads > 0 and not self._threads:
            self._threads = f"importing {', '.join(modules)} in advance started threads ({num_threads})"
            self._look_at_starts()

    def _look_at_starts(self) -> None:
        before, self._used_s = self._used_s, {}
        for one in self.attempts.values():
            if one.link is None or one.slot is None or one.has_reported:
                continue
            used_s = self._used_s[one] = processor_s(one.slot.pid)
            if abs(used_s - before.get(one, -self.hang_s)) < _IDLE_SHARE * self.hang_s:
                self.say(
                    f"trial {one.trial.number:05d} has neither reported nor computed for {self.hang_s:g} s, and "
                    f"{self._threads}, whose locks it may wait for; if it hangs, use start_method='spawn'"
                )
                return
        self.loop.alarm(self.hang_s, self._look_at_starts)

    def _look_at_memory(self, limit: float) -> None:
        """End the attempt that holds most where the memory is nearly full, if that helps."""
        used, total = memory_in_use()
        candidates = [one for one in self.attempts.values() if one.kill is None] if used > limit * total else []
        sizes = [(resident_bytes(one.pids), one) for one in candidates]
        size, attempt = max(sizes, key=itemgetter(0), default=(0, None))
        if attempt is not None and size >= _LEAST_SHARE * total:
            reason = (
                f"the machine had {format_bytes(used)} of {format_bytes(total)} in use, and this trial held more "
                f"than the others, {format_bytes(size)}. Run fewer trials at a time (max_concurrent_trials), or "
                "ask for memory in resources_per_trial"
            )
            self.kill(attempt, Kill(*attempt.key, reason, ExitKind.OUT_OF_MEMORY))
        self.loop.alarm(_LOOK_S, partial(self._look_at_memory, limit))


def processor_s(pid: int) -> float:
    """Return the seconds that a process and its descendants have computed; those that ended are not counted."""
    return _sum_over_trees([pid], lambda one: sum(map(int, stat_of(one)[11:13]))) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pids: Iterable[int]) -> int:
    """Return the memory that some processes and their descendants hold; what they share counts for each."""
    pages = _sum_over_trees(pids, lambda one: int(read(f"/proc/{one}/statm").split()[1]))
    return pages * os.sysconf("SC_PAGE_SIZE")


def _sum_over_trees(pids: Iterable[int], measure: Callable[[int], int]) -> int:
    found = 0
    for pid in [one for root in pids for one in (root, *descendants(root))]:
        with contextlib.suppress(OSError):  # it is gone
            found += measure(pid)
    return found


def memory_in_use(root: Path = Path("/")) -> tuple[int, int]:
    """Return how many bytes of memory are in use and how many may be: of the machine, or of that control group of this
    process which is nearest to its limit."""
    facts = dict(line.split()[:2] for line in (root / "proc/meminfo").read_text().splitlines())
    total, available = (int(facts[name]) << 10 for name in ("MemTotal:", "MemAvailable:"))
    return max([(total - available, total), *memory_of_groups(root)], key=lambda one: one[0] / one[1])
