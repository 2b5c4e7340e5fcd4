"""Attempts that wait because the kernel refuses processes or descriptors: as many run at once as it allows.

    refused ──> the line ──an attempt has ended, or the alarm──> the first is placed

There is one alarm, whatever waits, and its pause doubles while everything is refused.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter

from sweep.engines.local.supervisors import Attempt
from sweep.engines.loop import Loop
from sweep.worker.limits import describe_shortage

_FIRST_S = 0.1
_MOST_S = 5.0
_IDLE_S = 1.0  # the most while nothing runs: no trial is there from which another would take a process


@dataclass(eq=False)
class Backpressure:
    """The queue of attempts that the kernel refused.

    Attributes:
        place: gives an attempt a slot; raises OSError when the kernel refuses, or the engine says so later.
        make_room: gives up what is held for attempts to come.
        num_placed: how many attempts have a slot.
        explain: says why an attempt waits.
        notice: called once, with a line that says what is short.
    """

    loop: Loop
    place: Callable[[Attempt], None]
    make_room: Callable[[], None]
    num_placed: Callable[[], int]
    explain: Callable[[Attempt, str], None]
    notice: Callable[[str], None]

    _line: list[Attempt] = field(default_factory=list, init=False)
    _is_alarm_set: bool = field(default=False, init=False)
    _pause_s: float = field(default=_FIRST_S, init=False)
    _was_refused: bool = field(default=False, init=False)  # since the last alarm
    _shortage: str = field(default="", init=False)
    _noticed: set[str] = field(default_factory=set, init=False)

    def admit(self, attempt: Attempt) -> None:
        """Place an attempt, or have it wait behind those that wait already."""
        if self._line:
            insort(self._line, attempt, key=attrgetter("number"))
            self._tell(attempt, f"waits for {self._shortage}")
        else:
            self._try(attempt)

    def refuse(self, attempt: Attempt, error: OSError) -> None:
        """An attempt that was placed, or was to be, waits: the kernel refuses what it needs."""
        self._was_refused = True
        self._shortage = describe_shortage(error)
        insort(self._line, attempt, key=attrgetter("number"))
        self.make_room()
        if not attempt.refusal:
            self._tell(attempt, f"waits for {self._shortage}")
        self._set_alarm()

    def forget(self, attempt: Attempt) -> None:
        """An attempt is over; that it waits is fine."""
        if attempt in self._line:
            self._line.remove(attempt)

    def on_room(self) -> None:
        """An attempt that had a slot is over: the first that waits may have what it held."""
        if self._line:
            self._try(self._line.pop(0))

    def _try(self, attempt: Attempt) -> None:
        try:
            self.place(attempt)
        except OSError as error:
            self.refuse(attempt, error)

    def _set_alarm(self) -> None:
        if not self._is_alarm_set:
            self._is_alarm_set = True
            self.loop.alarm(self._pause_s, self._on_alarm)

    def _on_alarm(self) -> None:
        self._is_alarm_set = False
        most_s = _MOST_S if self.num_placed() else _IDLE_S
        self._pause_s = min(2 * self._pause_s, most_s) if self._was_refused else _FIRST_S
        self._was_refused = False
        if self._line:
            self._say()
            self.on_room()
            self._set_alarm()  # also where none is left: it may be refused yet

    def _say(self) -> None:
        """Show at each waiting attempt how many run; notify the user once, of none when that has lasted for a while."""
        number = self.num_placed()
        told = f"at most {number} at once" if number else "cannot start"
        for attempt in self._line:
            self._tell(attempt, f"{told}: {self._shortage}")
        if (number or self._pause_s >= _IDLE_S) and self._shortage not in self._noticed:
            self._noticed.add(self._shortage)
            trials = "1 trial runs" if number == 1 else f"{number} trials run"
            told = f"at most {trials} at once" if number else "no trial can be started"
            then = "others wait" if number else "it is tried again"
            self.notice(f"{told}: the kernel allows no more {self._shortage}; {then}")

    def _tell(self, attempt: Attempt, text: str) -> None:
        if attempt.refusal != text:
            attempt.refusal = text
            self.explain(attempt, text)
