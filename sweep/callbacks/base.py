"""What a callback is: an observer that is told after the fact; it cannot change the course."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sweep.core.results import Result
from sweep.core.trial import Trial

__all__ = ["Callback"]


class Callback:
    """Observe a sweep. Override what you want to hear; all hooks of one sweep run on one thread, in order.

    A hook that raises is shown once and its callback is switched off after three errors; the sweep goes on.
    """

    def setup(self, *, experiment_dir: str, plan: Any, num_trials: int | None, **info: Any) -> None:
        """Hear once, before everything else, where the experiment lies and what was asked for."""

    def on_trial_start(self, trial: Trial) -> None:
        """An attempt was started."""

    def on_trial_result(self, trial: Trial, result: Result) -> None:
        """A report is committed."""

    def on_trial_save(self, trial: Trial) -> None:
        """A checkpoint is committed: `trial.checkpoint`."""

    def on_trial_restore(self, trial: Trial) -> None:
        """An attempt was started from a checkpoint."""

    def on_trial_complete(self, trial: Trial) -> None:
        """The trial is TERMINATED."""

    def on_trial_error(self, trial: Trial) -> None:
        """The trial is in ERROR."""

    def on_trial_recover(self, trial: Trial) -> None:
        """The trial failed or was lost and will be started again."""

    def on_trial_pause(self, trial: Trial) -> None:
        """The trial is PAUSED."""

    def on_step(self, trials: Mapping[str, Trial], now: float, changed: Sequence[str]) -> None:
        """A batch of events was committed; `changed` names the trials that are not as they were.

        Called on the driver's own thread, so it must return at once; only displays need it.
        """

    def on_experiment_end(self, trials: Sequence[Trial]) -> None:
        """The sweep is over, also when interrupted; flush and close."""
