"""How often something happens: over the last minute, and over the few last times where they take longer."""

from __future__ import annotations

from collections import deque

_WINDOW_S = 60.0
_MIN_EVENTS = 20  # the window grows to hold so many: long trials end in bursts, with minutes between
_MIN_TO_TELL = 5
_TOGETHER_S = 0.5  # what is so near is one entry: a minute of 1,000 trials/s takes 120 of them


class Rate:
    """Count events per second: of the last minute, or of the last 20 where those take longer; of the time since the
    beginning where that is shorter."""

    def __init__(self) -> None:
        self.total = 0
        self._began: float | None = None
        self._since = 0.0  # all events after this are held
        self._held = 0
        self._entries: deque[tuple[float, int]] = deque()  # when the first of them happened, how many

    def begin(self, now: float) -> None:
        """Begin to count, unless that has happened."""
        if self._began is None:
            self._began = self._since = now

    def add(self, now: float) -> None:
        """Count one event."""
        self.begin(now)
        self.total += 1
        self._held += 1
        if self._entries and now - self._entries[-1][0] < _TOGETHER_S:
            self._entries[-1] = (self._entries[-1][0], self._entries[-1][1] + 1)
        else:
            self._entries.append((now, 1))
        self._forget(now)

    def per_second(self, now: float) -> float | None:
        """Return events per second; None while fewer than five say nothing, in the first minute, and without any."""
        if self._began is None or not self.total or now <= self._began:
            return None
        if self.total < _MIN_TO_TELL and now - self._began < _WINDOW_S:
            return None
        self._forget(now)
        is_full = self._entries[0][0] > now - _WINDOW_S and self._held >= _MIN_EVENTS
        return self._held / (now - (max(self._since, now - _WINDOW_S) if is_full else self._since))

    def _forget(self, now: float) -> None:
        entries = self._entries
        while entries[0][0] <= now - _WINDOW_S and self._held - entries[0][1] >= _MIN_EVENTS:
            self._since, count = entries.popleft()
            self._held -= count
