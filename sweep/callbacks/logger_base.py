"""What loggers share: the hooks by the names that Tune gives them, numbers and steps of a report, missing packages."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any

from sweep.callbacks.base import FilesCallback, in_either_form
from sweep.core.results import TrialResult
from sweep.core.trial import Trial
from sweep.core.values import as_float
from sweep.errors import ConfigError


@in_either_form
class LoggerCallback(FilesCallback):
    """Write down what happens to trials: override the `log_trial_...` methods that are wanted."""

    def log_trial_start(self, trial: Trial) -> None:
        """An attempt was started."""

    def log_trial_restore(self, trial: Trial) -> None:
        """An attempt was started from a checkpoint."""

    def log_trial_save(self, trial: Trial) -> None:
        """A checkpoint is committed."""

    def log_trial_result(self, iteration: int, trial: Trial, result: TrialResult) -> None:
        """A report is committed; `iteration` is its training iteration."""

    def log_trial_pause(self, trial: Trial) -> None:
        """The trial is PAUSED: what is kept for it should be dropped, it may never come back."""

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """The trial has ended: what is kept for it must be dropped."""

    def on_trial_start(self, trial: Trial) -> None:
        self.log_trial_start(trial)

    def on_trial_restore(self, trial: Trial) -> None:
        self.log_trial_restore(trial)

    def on_trial_save(self, trial: Trial) -> None:
        self.log_trial_save(trial)

    def on_trial_result(self, trial: Trial, result: TrialResult) -> None:
        if not isinstance(result, TrialResult):  # an override in Tune's form handed on what it was given: a dict
            result = TrialResult({name: value for name, value in result.items() if name != "config"})
        iteration = result.get("training_iteration")
        self.log_trial_result(iteration if isinstance(iteration, int) else trial.count, trial, result)

    def on_trial_pause(self, trial: Trial) -> None:
        self.log_trial_pause(trial)

    def on_trial_complete(self, trial: Trial) -> None:
        self.log_trial_end(trial, failed=False)

    def on_trial_error(self, trial: Trial) -> None:
        self.log_trial_end(trial, failed=True)


def required(module: str, what: str, package: str = "") -> Any:
    """Return a module that `what` needs.

    Args:
        package: what to install for it; empty: of the same name.

    Raises:
        ConfigError: it is not installed.
    """
    if importlib.util.find_spec(module) is None:
        raise ConfigError(f"{what} needs {module}, which is not installed. Run: pip install {package or module}")
    return importlib.import_module(module)


def number_of(value: Any) -> float | None:
    """Return a number, also one of numpy, or a bool as a float; None for what is none, and where it is too large."""
    import numpy as np

    return as_float(value.item() if isinstance(value, np.generic) else value)


def step_of(result: Mapping[str, Any], iteration: int, count: int) -> int:
    """Return what charts put a report at: the first of its `timesteps_total`, its iteration and its number that can be
    a step, which is at most 64 bits long."""
    for value in (result.get("timesteps_total"), iteration):
        number = as_float(value)
        if number and abs(number) < 2**63:  # neither 0 nor NaN
            return int(number)
    return count
