"""What a callback is: an observer that is called after the fact; it cannot change the course."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sweep.checkpoints.store import Checkpoint
from sweep.core.results import TrialResult
from sweep.core.trial import Trial
from sweep.record.layout import ExperimentLayout

_K = TypeVar("_K", bound=type)
_GIVEN = ("trial", "result", "checkpoint")


def in_either_form(kind: _K) -> _K:
    """Let an override in Tune's form call the hooks of a class as it would there: `super().on_trial_result(iteration,
    trials, trial, result, **info)`."""

    def either(hook: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(hook)  # by whose signature it is called
        def called(self: Any, *given: Any, **named: Any) -> None:
            ours = given[2:] if len(given) > 2 or "trial" in named else given
            hook(self, *ours, **{name: value for name, value in named.items() if name in _GIVEN})

        return called

    for name, hook in list(vars(kind).items()):
        if name.startswith(("on_trial_", "on_checkpoint")):
            setattr(kind, name, either(hook))
    return kind


@in_either_form
class Callback:
    """Observe a sweep. Override the hooks that you need; all hooks of one sweep run on one thread, in order.

    `trial` is an `ObservedTrial`: the trial as it was at that moment, with `trial_id`, `config`, `status`,
    `last_result`, `checkpoint`, `path` and others. Each hook may also be written in Tune's form, with any of the
    keywords `iteration`, `trials`, `trial`, `result` and `checkpoint`, and `**info`: `on_trial_result(self, iteration,
    trials, trial, result, **info)`; its `result` is a plain dict with the config. In both forms `trial.last_result` is
    the new result already.

    For a trial that reports with a checkpoint the order is `setup`, `on_trial_start`, then per report
    `on_trial_result`, `on_checkpoint`, `on_trial_save`, then `on_trial_complete` (or `on_trial_error`; or
    `on_trial_recover` and `on_trial_start` again), at last `on_experiment_end`.

    Log files (`result.json` and others) say what had happened by then when a trial has saved, paused, failed or ended,
    and at the end; in `on_trial_result` they may be behind.

    A hook that raises is shown once and its callback is switched off after three errors; the sweep goes on.
    """

    def setup(self, *, experiment_dir: str, plan: Any, num_trials: int | None, **info: Any) -> None:
        """Hear once, before everything else, where the experiment lies and what was asked for.

        Only the keywords that an override names are passed, all of them with `**info`: besides these `stop`,
        `num_samples`, `total_num_samples`, `name`, `searcher`, `scheduler`, `seed`, `nodes`, `objectives` ((metric,
        mode) of each of several) and `is_resumed`.
        """

    def on_trial_start(self, trial: Trial) -> None:
        """An attempt was started."""

    def on_trial_result(self, trial: Trial, result: TrialResult) -> None:
        """A report is committed."""

    def on_checkpoint(self, trial: Trial, checkpoint: Checkpoint) -> None:
        """A checkpoint is committed; it may be read while the trial's `num_to_keep` keeps it."""

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

    def on_step_begin(self, iteration: int, trials: Sequence[Trial], **info: Any) -> None:
        """The hooks of one batch of events follow."""

    def on_step_end(self, iteration: int, trials: Sequence[Trial], **info: Any) -> None:
        """The hooks of one batch of events have been called."""

    def get_state(self) -> Any:
        """Return what is to be remembered when the sweep is resumed; asked every 10 seconds and at the end."""
        return None

    def set_state(self, state: Any) -> None:
        """Take what `get_state` of the run before returned; called after `setup`."""

    def on_experiment_end(self, trials: Sequence[Trial]) -> None:
        """The sweep is over, also when interrupted; flush and close."""


class FilesCallback(Callback):
    """A callback that reads or writes files of the experiment.

    Attributes:
        layout: where they lie; set by `setup`.
    """

    layout: ExperimentLayout

    def setup(self, *, experiment_dir: str, plan: Any, num_trials: int | None, **info: Any) -> None:
        """Take the experiment's directory."""
        self.layout = ExperimentLayout(Path(experiment_dir))


def overriding(callbacks: Sequence[Callback], hook: str) -> list[Callback]:
    """Return those whose class has a hook of its own."""
    return [one for one in callbacks if getattr(type(one), hook, None) is not getattr(Callback, hook)]
