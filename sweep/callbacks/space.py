"""Say that trials wait for room on a full disk: to everybody, because nothing else may happen until somebody acts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from sweep.callbacks.base import Callback
from sweep.core.trial import Trial

__all__ = ["SpaceNotice"]

_SAY_S = 60.0


class SpaceNotice(Callback):
    """Say which trial waits for room, at most once a minute.

    Args:
        warn: is told, in one line.
    """

    def __init__(self, warn: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._warn = warn
        self._clock = clock
        self._not_before = float("-inf")

    def on_step(self, trials: Mapping[str, Trial], now: float, changed: Sequence[str]) -> None:
        """Look at what has changed."""
        short = [trial for name in changed if (trial := trials[name]).reason and trial.waits_for_space]
        if not short or self._clock() < self._not_before:
            return
        self._not_before = self._clock() + _SAY_S
        self._warn(f"trial {short[0].number:05d} {short[0].reason}. Free some space and it goes on; Ctrl-C ends it")
