"""Files on their way between a node and remote storage: on threads, while what has to follow waits for its turn."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

_FIRST_PAUSE_S = 1.0  # after a failure; it doubles
_LAST_PAUSE_S = 30.0


@dataclass(slots=True)
class _Step:
    """What follows, and the work on a thread before it; None: there is none."""

    then: Callable[[], None]
    work: Callable[[], object] | None = None


@dataclass(slots=True)
class _Line:
    """The steps of one key, the first of which is under way."""

    steps: deque[_Step] = field(default_factory=deque)
    is_hurried: bool = False


class Transfers:
    """Steps in order for each key; those of different keys do not wait for each other.

    Work that fails is tried again until it works or all is closed.
    """

    def __init__(self, wake: Callable[[], None], say: Callable[[str], None], where: str) -> None:
        """Make it.

        Args:
            wake: called on any thread when `settle` has something to do.
            say: called on the thread of `settle`, with lines for the user.
            where: the storage, for people.
        """
        self._wake = wake
        self._say = say
        self._where = where
        self._lines: dict[Hashable, _Line] = {}
        self._ended: deque[tuple[Hashable, _Step]] = deque()  # of threads
        self._said: deque[str] = deque()
        self._is_failing = False
        self._is_closed = threading.Event()

    def add(self, key: Hashable, then: Callable[[], None], work: Callable[[], object] | None = None) -> None:
        """Call `then` after all former steps of the key, and after `work`, which is done on a thread."""
        if work is None and key not in self._lines:
            then()
            return
        line = self._lines.setdefault(key, _Line())
        line.steps.append(_Step(then, work))
        if len(line.steps) == 1:
            self._begin(key, line)

    def hurry(self, key: Hashable) -> None:
        """Do not wait for the work that is under way for a key, nor for any that is to follow."""
        line = self._lines.get(key)
        if line is not None:
            line.is_hurried = True
            self._go_on(key, line)

    def settle(self) -> None:
        """Do what follows the work that is done."""
        while self._said:
            self._say(self._said.popleft())
        while self._ended:
            key, step = self._ended.popleft()
            line = self._lines.get(key)
            if line is not None and line.steps[0] is step:
                self._finish_first(line)
                self._go_on(key, line)

    def close(self) -> None:
        """Give up what is under way."""
        self._is_closed.set()
        self._lines.clear()

    def _go_on(self, key: Hashable, line: _Line) -> None:
        while line.steps and (line.is_hurried or line.steps[0].work is None):
            self._finish_first(line)
        if line.steps:
            self._begin(key, line)
        elif self._lines.get(key) is line:
            del self._lines[key]

    def _finish_first(self, line: _Line) -> None:
        line.steps[0].then()  # may add steps, which follow
        line.steps.popleft()

    def _begin(self, key: Hashable, line: _Line) -> None:
        step = line.steps[0]
        threading.Thread(target=self._work, args=(key, step), name="sweep-transfer", daemon=True).start()

    def _work(self, key: Hashable, step: _Step) -> None:
        assert step.work is not None
        pause_s = _FIRST_PAUSE_S
        while not self._is_closed.is_set():
            try:
                step.work()
                break
            except Exception as error:  # whatever the package behind the file system raises: it is tried again
                if not self._is_failing:
                    self._is_failing = True
                    self._tell(
                        f"{self._where} cannot be reached ({type(error).__name__}: {error}); it is tried again, and "
                        "trials wait for it"
                    )
            self._is_closed.wait(pause_s)
            pause_s = min(2 * pause_s, _LAST_PAUSE_S)
        else:
            return
        if self._is_failing:
            self._is_failing = False
            self._tell(f"{self._where} can be reached again")
        self._ended.append((key, step))
        self._wake()

    def _tell(self, text: str) -> None:
        self._said.append(text)
        self._wake()
