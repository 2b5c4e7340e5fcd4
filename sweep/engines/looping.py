"""What engines have in common that wait with one loop: their clock, and how events are collected into batches."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Sequence

from sweep.core.messages import Event, Tick
from sweep.engines.base import Engine
from sweep.engines.loop import Loop

_GATHERS = 4  # looks at what arrived meanwhile, before a batch is handed out


class LoopEngine(Engine):
    """An engine all of which happens on the thread that calls `next_events`; only `post` may be called elsewhere.

    What its loop calls puts events into `_events`.
    """

    def __init__(self, start_at: float) -> None:
        """Begin the clock at so many seconds of driving."""
        self._start_at = start_at
        self._began = time.monotonic()
        self._events: list[Event] = []
        self._loop = Loop()
        self.waker = self._loop.waker

    @abstractmethod
    def _turn(self, timeout_s: float | None) -> None:
        """Wait once, at most so long, and take in what is there."""

    def now(self) -> float:
        return self._start_at + time.monotonic() - self._began

    def next_events(self, deadline: float | None) -> Sequence[Event]:
        """Wait until something happened, and return all that did; `[Tick()]` at the deadline."""
        while True:
            timeout = 0.0 if self._events else None if deadline is None else max(0.0, deadline - self.now())
            self._turn(timeout)
            if self._events:
                self._gather()
                events, self._events = self._events, []
                return events
            if deadline is not None and self.now() >= deadline:
                return [Tick()]

    def _gather(self) -> None:
        """Take in what arrived meanwhile, without waiting: the more events share a commit, the less each costs."""
        for _ in range(_GATHERS):
            before = len(self._events)
            self._turn(0.0)
            if len(self._events) == before:
                return

    def post(self, event: Event) -> None:
        self._loop.post(event)
