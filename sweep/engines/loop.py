"""Waiting for many descriptors, alarms and posted events at once: one epoll, on one thread."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import select
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence

from sweep.core.messages import Event, Tick
from sweep.engines.base import Engine


class Loop:
    """Calls what was registered for descriptors that are ready and for alarms that are due.

    Each descriptor is registered once. Only `post` may be called from a signal handler or another thread.

    Attributes:
        waker: descriptor of which any byte that is written ends the waiting, for `signal.set_wakeup_fd`.
    """

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._readers: dict[int, Callable[[], None]] = {}
        self._writers: dict[int, Callable[[], None]] = {}
        self._alarms: list[tuple[float, int, Callable[[], None]]] = []
        self._alarm_numbers = itertools.count()
        self._posted: deque[Event] = deque()
        self._wake, self.waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._is_closed = False
        self.listen(self._wake, self._on_wake)

    def listen(self, descriptor: int, reader: Callable[[], None]) -> None:
        """Call `reader` whenever the descriptor can be read."""
        self._poll.register(descriptor, select.EPOLLIN)
        self._readers[descriptor] = reader

    def ignore(self, descriptor: int) -> None:
        """Forget a descriptor, before it is closed; one that is not known is fine."""
        if self._readers.pop(descriptor, None) is not None:
            self._writers.pop(descriptor, None)
            self._poll.unregister(descriptor)

    def await_writable(self, descriptor: int, writer: Callable[[], None] | None) -> None:
        """Call `writer` whenever a known descriptor takes more; None: not any more."""
        if descriptor not in self._readers:
            return
        if writer is not None:
            self._writers[descriptor] = writer
        else:
            self._writers.pop(descriptor, None)
        self._poll.modify(descriptor, select.EPOLLIN | (select.EPOLLOUT if writer is not None else 0))

    def alarm(self, after_s: float, action: Callable[[], None]) -> None:
        """Call `action` once, after so many seconds."""
        heapq.heappush(self._alarms, (time.monotonic() + after_s, next(self._alarm_numbers), action))

    def post(self, event: Event) -> None:
        """Keep an event for `take_posted` and wake the waiting thread."""
        self._posted.append(event)
        if not self._is_closed:
            with contextlib.suppress(BlockingIOError):  # full: it wakes anyway
                os.write(self.waker, b"\0")

    def take_posted(self) -> list[Event]:
        """Return the posted events, oldest first."""
        events = []
        while self._posted:
            events.append(self._posted.popleft())
        return events

    def run_once(self, timeout_s: float | None) -> None:
        """Wait until something is ready, an alarm is due or the time is over, and make the calls."""
        if self._alarms:
            until_alarm = max(0.0, self._alarms[0][0] - time.monotonic())
            timeout_s = until_alarm if timeout_s is None else min(timeout_s, until_alarm)
        for descriptor, mask in self._poll.poll(timeout_s):
            if mask & select.EPOLLOUT and descriptor in self._writers:
                self._writers[descriptor]()
            reader = self._readers.get(descriptor)  # an earlier one of this round may have ended it
            if reader is not None and mask & ~select.EPOLLOUT:
                reader()
        if self._alarms:
            now = time.monotonic()
            while self._alarms and self._alarms[0][0] <= now:
                heapq.heappop(self._alarms)[2]()

    def close(self) -> None:
        """Release the descriptors of its own."""
        self._is_closed = True
        self._readers.clear()
        self._writers.clear()
        self._poll.close()
        os.close(self._wake)
        os.close(self.waker)

    def _on_wake(self) -> None:
        os.read(self._wake, 1 << 16)


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
        return round(self._start_at + time.monotonic() - self._began, 6)

    def next_events(self, deadline: float | None) -> Sequence[Event]:
        """Wait until something happened, and return all that did; `[Tick()]` at the deadline."""
        while True:
            timeout = 0.0 if self._events else None if deadline is None else max(0.0, deadline - self.now())
            self._turn(timeout)
            if self._events:
                self._gather()
                events = self._events.copy()
                self._events.clear()
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
