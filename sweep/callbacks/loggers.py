"""Loggers: the base of those that users write, and what has log files written, which `sweep/logs/` does."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from sweep.callbacks.base import FilesCallback, in_either_form
from sweep.core.results import AUTO_FILLED, TrialResult, flatten
from sweep.core.trial import Trial
from sweep.core.values import as_float, printed
from sweep.errors import ConfigError, refuse_unknown

_FLUSH_S = 1.0
_PICTURES = {3: "add_image", 4: "add_images", 5: "add_video"}  # by the number of dimensions


def _forwarding(method: str, **more: Any) -> Any:
    def hook(self: Any, trial: Trial) -> None:
        getattr(self, method)(trial, **more)

    return hook


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

    on_trial_start = _forwarding("log_trial_start")
    on_trial_restore = _forwarding("log_trial_restore")
    on_trial_save = _forwarding("log_trial_save")
    on_trial_pause = _forwarding("log_trial_pause")
    on_trial_complete = _forwarding("log_trial_end", failed=False)
    on_trial_error = _forwarding("log_trial_end", failed=True)

    def on_trial_result(self, trial: Trial, result: TrialResult) -> None:
        if not isinstance(result, TrialResult):  # an override in Tune's form handed on what it was given: a dict
            result = TrialResult({name: value for name, value in result.items() if name != "config"})
        iteration = result.get("training_iteration")
        self.log_trial_result(iteration if isinstance(iteration, int) else trial.count, trial, result)


class JsonLoggerCallback(LoggerCallback):
    """Have `result.json` written, one JSON object per line and report, with the config, and `params.json`.

    NaN and infinities are written as `NaN` and `Infinity`, as Python and Tune do; other objects as their text.
    """


class CSVLoggerCallback(LoggerCallback):
    """Have `progress.csv` written: one row per report, keys flattened with `/`, without the config.

    A key that appears later adds a column: the file is rewritten with it, and earlier rows are empty there.
    """


@refuse_unknown()
class TBXLoggerCallback(LoggerCallback):
    """Have TensorBoard events written with tensorboardX, one run per trial directory; the hyperparameters at its end.

    Numbers become scalars named by their flattened key, lists and arrays of one or two dimensions histograms, arrays of
    three, four and five dimensions an image, images and a video (left out when Pillow or moviepy is missing). The step
    is `timesteps_total` if reported, else `training_iteration`. After a crash the last seconds may be missing.

    Raises:
        ConfigError: tensorboardX is not installed.
    """

    def __init__(self) -> None:
        self._make = required("tensorboardX", "TBXLoggerCallback").SummaryWriter
        self._writers: dict[str, Any] = {}

    def log_trial_result(self, iteration: int, trial: Trial, result: TrialResult) -> None:
        writer, step = self._writer(trial), step_of(result, trial.count)
        for name, value in flatten(result).items():
            if name not in AUTO_FILLED:
                _add(writer, name, value, step)

    def log_trial_pause(self, trial: Trial) -> None:
        """Close the file of a trial, which may go on in another one."""
        if (writer := self._writers.pop(trial.id, None)) is not None:
            writer.close()

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """Add the hyperparameters beside the last report, and close the file."""
        reported = flatten(trial.last_result or {}).items()
        numbers = {name: value for name, value in reported if as_float(value) is not None and name not in AUTO_FILLED}
        values = {
            name: value if isinstance(value, str) or as_float(value) is not None else printed(value)
            for name, value in flatten(trial.config).items()
        }
        if numbers and values:
            file_writer = self._writer(trial).file_writer
            for summary in importlib.import_module("tensorboardX.summary").hparams(values, numbers):
                file_writer.add_summary(summary)
        self.log_trial_pause(trial)

    def on_experiment_end(self, trials: Sequence[Trial]) -> None:
        """Close all files."""
        for writer in self._writers.values():
            writer.close()

    def _writer(self, trial: Trial) -> Any:
        if trial.id not in self._writers:
            self._writers[trial.id] = self._make(str(self.layout.trial(trial.id)), flush_secs=_FLUSH_S)
        return self._writers[trial.id]


def _add(writer: Any, name: str, value: Any, step: int) -> None:
    import numpy as np

    if (number := number_of(value)) is not None:
        writer.add_scalar(name, number, global_step=step)
    elif isinstance(value, (list, tuple, np.ndarray)) and len(value):
        try:
            array = np.asarray(value)
            if array.dtype.kind in "biuf":
                getattr(writer, _PICTURES.get(array.ndim, "add_histogram"))(name, array, global_step=step)
        except Exception:  # pictures need Pillow, videos moviepy, histograms something finite: else they are left out
            return


def required(module: str, what: str, package: str = "") -> Any:
    """Return a module that `what` needs, or raise a ConfigError that says what to install."""
    if importlib.util.find_spec(module) is None:
        raise ConfigError(f"{what} needs {module}, which is not installed. Run: pip install {package or module}")
    return importlib.import_module(module)


def number_of(value: Any) -> float | None:
    """Return a number, also one of numpy, or a bool as a float; None for what is none, and where it is too large."""
    import numpy as np

    return as_float(value.item() if isinstance(value, np.generic) else value)


def step_of(result: Mapping[str, Any], count: int) -> int:
    """Return the first of a report's `timesteps_total`, iteration and number that can be a step of a chart: 64 bits."""
    for name in ("timesteps_total", "training_iteration"):
        number = as_float(result.get(name))
        if number and abs(number) < 2**63:  # neither 0 nor NaN
            return int(number)
    return count
