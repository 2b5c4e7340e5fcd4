"""What schedulers that judge by a metric share: their arguments, and reading time and score from a result."""

from __future__ import annotations

import math

from sweep import checks
from sweep.core.results import TrialResult, score
from sweep.core.values import as_float
from sweep.errors import ConfigError
from sweep.schedulers.base import Scheduler


class MetricScheduler(Scheduler):
    """Judge trials by `metric` at the progress that `time_attr` counts; subclasses say what follows."""

    def __init__(self, time_attr: str, metric: str | None, mode: str | None) -> None:
        if mode is not None:
            checks.mode(mode)
        if metric is not None and not isinstance(metric, str):
            raise ConfigError(f"metric is {metric!r}; {type(self).__name__} judges by one metric, given by name.")
        if not isinstance(time_attr, str) or not time_attr:
            expected = "the name of a result that counts progress, such as 'training_iteration' or 'time_total_s'"
            checks.refuse("time_attr", time_attr, expected)
        self.time_attr = time_attr
        self.metric, self.mode = metric, mode
        self._seed = 0

    def set_search_properties(self, metric: str | None, mode: str | None, *, seed: int = 0) -> None:
        """Take metric, mode and seed from the run; what was given to the constructor may be repeated there.

        Raises:
            ConfigError: another metric or mode was given here, or no metric at all.
        """
        super().set_search_properties(
            None if metric is not None and metric == self.metric else metric,
            None if mode is not None and mode == self.mode else mode,
            seed=seed,
        )
        if self.metric is None:
            raise ConfigError(f"{type(self).__name__} needs a metric to judge by: pass metric= and mode= to the run.")
        self.mode = self.mode or "max"
        self._seed = seed

    def _time(self, result: TrialResult) -> float | None:
        """Return the progress of a trial; None where it is NaN or no number: nothing is decided at an unknown time."""
        time = as_float(result.get(self.time_attr))
        return None if time is None or math.isnan(time) else time

    def _read(self, result: TrialResult) -> tuple[float, float] | None:
        """Return (time, score), a larger score being better and NaN the worst; None if either is missing."""
        time, value = self._time(result), result.get(self.metric or "")
        return None if time is None or value is None else (time, score(value, self.mode or "max"))

    def _number(self, value: float) -> str:
        """Return a score as the user reported it, for reasons; "nan" for the worst of all."""
        return f"{value if self.mode == 'max' else -value:.4g}" if math.isfinite(value) else "nan"

    def _shown(self, value: float) -> str:
        """Return the metric with a score."""
        return f"{self.metric}={self._number(value)}"
