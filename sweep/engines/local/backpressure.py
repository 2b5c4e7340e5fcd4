"""Attempts that wait because the kernel refuses processes or descriptors: as many run at once as it allows.

    refused ──> the line ──an attempt has ended──> the first is placed
                   └───────the alarm─────────────> one more is tried; two, four, ... as long as none is refused

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
_MOST_AT_ONCE = 64
_SETTLED = 3  # alarms in a row at which nothing runs, before the user is notified


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
    _at_once: int = field(default=1, init=False)
    _was_refused: bool = field(default=False, init=False)  # since the last alarm
    _shortage: str = field(default="", init=False)
    _text: str = field(default="", init=False)
    _noticed: set[tuple[str, bool]] = field(default_factory=set, init=False)
    _num_idle_alarms: int = field(default=0, init=False)  # in a row at which nothing ran

    def admit(self, attempt: Attempt) -> None:
        """Place an attempt, or have it wait behind those that wait already."""
        if self._line:
            insort(self._line, attempt, key=attrgetter("token"))
            self._tell(attempt)
        else:
            self._try(attempt)

    def refuse(self, attempt: Attempt, error: OSError) -> None:
        """An attempt that was placed, or was to be, waits: the kernel refuses what it needs."""
        self._was_refused = True
        self._shortage = describe_shortage(error)
        insort(self._line, attempt, key=attrgetter("token"))
        self.make_room()
        self._tell(attempt)
        self._set_alarm()

    def forget(self, attempt: Attempt) -> None:
        """An attempt is over; that it waits is fine."""
        if attempt in self._line:
            self._line.remove(attempt)

    def on_room(self) -> None:
        """An attempt that had a slot is over: the first that waits may have what it held."""
        if self._line:
            self._try(self._line.pop(0))

    def _try(self, attempt: Attempt) -> bool:
        try:
            self.place(attempt)
        except OSError as error:
            self.refuse(attempt, error)
            return False
        return True

    def _set_alarm(self) -> None:
        if not self._is_alarm_set:
            self._is_alarm_set = True
            self.loop.alarm(self._pause_s, self._on_alarm)

    def _on_alarm(self) -> None:
        self._is_alarm_set = False
        if self._was_refused:
            most_s = _MOST_S if self.num_placed() else _IDLE_S
            self._pause_s, self._at_once = min(2 * self._pause_s, most_s), 1
        else:
            self._pause_s, self._at_once = _FIRST_S, min(2 * self._at_once, _MOST_AT_ONCE)
        self._was_refused = False
        if not self._line:
            self._text = ""
            return
        self._say()
        for attempt in self._line[: self._at_once]:
            self._line.remove(attempt)
            if not self._try(attempt):
                break
        self._set_alarm()  # also where none is left: they may be refused yet

    def _say(self) -> None:
        """Show at each waiting attempt how many run; notify the user once, as soon as that is settled."""
        number = self.num_placed()
        self._num_idle_alarms = 0 if number else self._num_idle_alarms + 1
        self._text = f"at most {number} at once: {self._shortage}" if number else f"cannot start: {self._shortage}"
        for attempt in self._line:
            self._tell(attempt)
        is_settled = number > 0 or self._num_idle_alarms >= _SETTLED
        if (self._shortage, number > 0) in self._noticed or not is_settled:
            return
        self._noticed.add((self._shortage, number > 0))
        if number:
            trials = "trial runs" if number == 1 else "trials run"
            self.notice(f"at most {number} {trials} at once: the kernel allows no more {self._shortage}; others wait")
        else:
            self.notice(f"no trial can be started: the kernel allows no more {self._shortage}; it is tried again")

    def _tell(self, attempt: Attempt) -> None:
        text = self._text or f"waits for {self._shortage}"
        if attempt.refusal != text:
            attempt.refusal = text
            self.explain(attempt, text)
