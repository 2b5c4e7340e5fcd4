"""How a sweep comes to its end before its time: what the user requested, and what went wrong, as displays show it."""

from __future__ import annotations

import math
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from sweep.callbacks.base import Callback
from sweep.core.trial import Trial
from sweep.display.formats import rough_duration
from sweep.errors import ConfigError, MetricError

_MAX_NAMED = 3


class Ending:
    """Whether a sweep is being stopped, and until when that may take.

    `hear` is called by a signal handler, which may have interrupted anything: it assigns, and takes no lock.

    Args:
        grace_s: how long trials may take to end after the first Ctrl-C before they are killed.
        can_kill: trials are processes; False: they run in this one, and end at their next report.
    """

    def __init__(
        self, grace_s: float = 30.0, *, can_kill: bool = True, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.times = 0  # that the user pressed Ctrl-C, or sent a signal that means the same
        self.signal: int = signal.SIGINT  # the first of them
        self.error: BaseException | None = None  # what the sweep failed with
        self._can_kill = can_kill
        self._grace_s = grace_s
        self._clock = clock
        self._asked_at = 0.0

    def hear(self, times: int, number: int = signal.SIGINT) -> None:
        """Take the first, second ... request to end, by the signal `number`."""
        if times == 1:
            self._asked_at = self._clock()
            self.signal = number
        self.times = times

    @property
    def is_interrupted(self) -> bool:
        """Whether the user requested it."""
        return self.times > 0 or isinstance(self.error, KeyboardInterrupt)

    @property
    def word(self) -> str:
        """How the sweep ended."""
        return "interrupted after" if self.is_interrupted else "failed after" if self.error else "ended after"

    @property
    def can_resume(self) -> bool:
        """Whether the same call, or one that is mended elsewhere than in its arguments, can continue."""
        return not isinstance(self.error, (ConfigError, MetricError))

    def until(self) -> str:
        """Return how long it may still take, and what a further Ctrl-C does; empty: it is not being ended."""
        if not self.times:
            return ""
        if not self._can_kill:
            return "STOPPING  trials end at their next report; the third ^C ends everything at once"
        if self.times > 1:
            return "KILLING  what still runs; one more ^C ends the driver at once"
        left = self._grace_s - (self._clock() - self._asked_at)
        if left <= 0:
            return "STOPPING  the time is over: what still runs is killed"
        return f"STOPPING  in {rough_duration(math.ceil(left))} what still runs is killed; ^C again kills it now"

    def offer(self) -> str:
        """Return what one more request does, for a button; empty: nothing, or more than a button should."""
        if not self.times:
            return "■ Stop, to be resumed"
        return "■ Stopping … click again to kill what still runs" if self.times == 1 and self._can_kill else ""


def waited_for(trials: Sequence[Trial], *, can_save_on_demand: bool) -> str:
    """Return which trials a sweep that is being stopped waits for, and what they have to do."""
    if not trials:
        return "no trial runs any more"
    names = " ".join(f"{trial.number:05d}" for trial in trials[:_MAX_NAMED])
    more = f" and {len(trials) - _MAX_NAMED} more" if len(trials) > _MAX_NAMED else ""
    is_saved = can_save_on_demand or all(trial.checkpoint is not None for trial in trials)
    return f"waiting for {names}{more} to {'save and end' if is_saved else 'end at the next report'}"


class EndingNotice(Callback):
    """Say on standard error, once per Ctrl-C, what it does; for displays that do not."""

    def __init__(self, ending: Ending, *, can_save_on_demand: bool) -> None:
        self._ending = ending
        self._can_save = can_save_on_demand
        self._said = 0

    def on_step(self, trials: Mapping[str, Trial], now: float, changed: Sequence[str]) -> None:
        """Look whether Ctrl-C was pressed."""
        if self._ending.times != self._said:
            self._said = self._ending.times
            waited = waited_for([one for one in trials.values() if one.is_held], can_save_on_demand=self._can_save)
            print(f"sweep: {self._ending.until()}; {waited}", file=sys.stderr, flush=True)
