"""When to ask the searcher, for which trial, and what to make of "not now"."""

from __future__ import annotations

import bisect
from collections.abc import Collection

_REASK_S = 1.0
_MAX_FAILURES = 3
_PATIENCE_S = 60.0  # how long nothing may run while the searcher says "not now"


class Suggestions:
    """Keep account of the questions to the searcher.

    After "not now" it is asked one question at a time, when there is news (an exit, a release, a request of the user,
    other nodes), and at the latest a second later. Reports are no news: there are too many of them, and a second later
    will do.

    Attributes:
        is_exhausted: it has said that nothing more will come.
        is_put_off: its last answer was "not now".
        reask_at: when to ask again at the latest; None: not because of time.
    """

    def __init__(self) -> None:
        self.is_exhausted = False
        self.is_put_off = False
        self.reask_at: float | None = None
        self._outstanding: set[int] = set()
        self._again: list[int] = []  # numbers of trials whose question was not answered with a config, in order
        self._next = 0
        self._failures = 0
        self._has_news = False
        self._idle_since: float | None = None

    @property
    def num_outstanding(self) -> int:
        """Questions that are not answered yet."""
        return len(self._outstanding)

    @property
    def must_wait(self) -> bool:
        """Whether the last answer was "not now" and nothing has happened since."""
        return self.is_put_off and (bool(self._outstanding) or not self._has_news)

    def open(self, used: Collection[int]) -> None:
        """Begin a run of the driver: `used` are the numbers of trials that exist."""
        self.is_exhausted = False
        self._next = max(used, default=-1) + 1
        self._again = [number for number in range(self._next) if number not in used]

    def next_number(self) -> int:
        """Return the number of the trial to ask for now; it is outstanding from here on."""
        if self._again:
            number = self._again.pop(0)
        else:
            number = self._next
            self._next += 1
        self._outstanding.add(number)
        self.reask_at = None
        return number

    def take(self, number: int) -> bool:
        """Note that an answer came; False if the question is not outstanding."""
        if number not in self._outstanding:
            return False
        self._outstanding.discard(number)
        return True

    def answered(self) -> None:
        """The answer was a config."""
        self._failures = 0
        self.is_put_off = False
        self.reask_at = None
        self._idle_since = None

    def put_off(self, number: int, now: float) -> None:
        """The answer was "not now"."""
        bisect.insort(self._again, number)
        self._failures = 0
        self.is_put_off = True
        self._has_news = False
        self.reask_at = now + _REASK_S
        if self._idle_since is None:
            self._idle_since = now

    def failed(self, number: int) -> bool:
        """The answer was an error; True if it is one too many in a row."""
        bisect.insort(self._again, number)
        self._failures += 1
        self.is_put_off = False
        return self._failures >= _MAX_FAILURES

    def exhausted(self) -> None:
        """The answer was "nothing more"."""
        self.is_exhausted = True
        self._again.clear()

    def hear_news(self) -> None:
        """Something happened after which "not now" may no longer be the answer."""
        self._has_news = True

    def is_due(self, now: float) -> bool:
        """Whether it is time to ask again; the time is then used up."""
        if self.reask_at is None or now < self.reask_at:
            return False
        self.reask_at = None
        self._has_news = True
        return True

    def something_runs(self, now: float) -> None:
        """Note that the searcher need not be the reason for waiting."""
        if self._idle_since is not None:
            self._idle_since = now

    def overdue_s(self, now: float) -> float | None:
        """Return for how many seconds nothing ran because of "not now", when that is too long; else None."""
        if self._idle_since is None or now - self._idle_since < _PATIENCE_S:
            return None
        return now - self._idle_since
