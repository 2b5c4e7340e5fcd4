"""Trials that report nothing for too long: what their processes are doing goes to their logs, then they are killed."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sweep.engines.loop import Loop
from sweep.engines.processes import ask_for_stacks, descendants
from sweep.engines.slots import Attempt

_TURN_S = 0.05  # for a process to begin to write its stacks: two that wrote at once could not be read
_TURNS_S = 2.0  # for all of them, one after the other
_WRITING_S = 1.0  # for the last


@dataclass(eq=False)
class Silences:
    """Watch attempts that owe a report; those that wait for an answer, or say what they wait for, owe none.

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
        host = attempt.slot.pid if attempt.slot is not None else 0
        able, stopped = _describe(host, log) if host else ([], [])
        who = f"process {stopped[0]} is stopped (SIGSTOP); " if stopped else ""
        reason = f"no report within report_timeout_s={self.limit_s:g}; {who}what its processes do is in {log.name}"
        give_up = time.monotonic() + _TURNS_S

        def ask(size: int) -> None:
            """Have the next process write, once the one before is done; `size`: of the log at the last look."""
            is_late, now = time.monotonic() > give_up, _size_of(log)
            if now != size and not is_late:
                self.loop.alarm(_TURN_S, lambda: ask(now))
                return
            for pid in able[:] if is_late else able[:1]:
                ask_for_stacks(pid)
                able.remove(pid)
            if able:
                self.loop.alarm(_TURN_S, lambda: ask(now))
            else:
                self.loop.alarm(_WRITING_S, lambda: self.kill(attempt, reason))

        ask(_size_of(log))


def _size_of(file: Path) -> int:
    with contextlib.suppress(OSError):
        return file.stat().st_size
    return 0


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
