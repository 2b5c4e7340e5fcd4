"""Files on their way from and to remote storage, on threads: what follows them waits until they are there."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable
from typing import NamedTuple

_FIRST_PAUSE_S = 1.0  # after a failure; it doubles
_LAST_PAUSE_S = 30.0


class _Step(NamedTuple):
    """What follows, and the work on a thread before it; None: there is none."""

    then: Callable[[], None]
    work: Callable[[], object] | None


class Transfers:
    """Steps in order for each key; those of different keys do not wait for each other.

    Work that fails is tried again until it works or all is closed. `wake` is called, on any thread, when `settle` has
    something to do; `say`, on the thread of `settle`, with lines for the user.
    """

    def __init__(self, wake: Callable[[], None], say: Callable[[str], None], where: str) -> None:
        self._wake = wake
        self._say = say
        self._where = where
        self._steps: dict[Hashable, deque[_Step]] = {}  # of each key; the first is under way
        self._ended: deque[tuple[Hashable, _Step]] = deque()  # of threads
        self._said: deque[str] = deque()
        self._is_failing = False
        self._is_closed = threading.Event()

    def add(self, key: Hashable, then: Callable[[], None], work: Callable[[], object] | None = None) -> None:
        """Call `then` after all former steps of the key, and after `work`, which is done on a thread."""
        if work is None and key not in self._steps:
            then()
            return
        steps = self._steps.setdefault(key, deque())
        steps.append(_Step(then, work))
        if len(steps) == 1:
            self._begin(key, steps[0])

    def hurry(self, key: Hashable) -> None:
        """Do not wait for the work that is under way for a key, nor for any that is to follow."""
        steps = self._steps.get(key, deque())
        while steps:
            self._finish_first(steps)
        self._steps.pop(key, None)

    def settle(self) -> None:
        """Do what follows the work that is done."""
        while self._said:
            self._say(self._said.popleft())
        while self._ended:
            key, step = self._ended.popleft()
            steps = self._steps.get(key)
            if not steps or steps[0] is not step:
                continue
            self._finish_first(steps)
            while steps and steps[0].work is None:
                self._finish_first(steps)
            if steps:
                self._begin(key, steps[0])
            else:
                self._steps.pop(key, None)

    def close(self) -> None:
        """Give up what is under way."""
        self._is_closed.set()
        self._steps.clear()

    @staticmethod
    def _finish_first(steps: deque[_Step]) -> None:
        steps[0].then()  # may add steps, which follow
        steps.popleft()

    def _begin(self, key: Hashable, step: _Step) -> None:
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
