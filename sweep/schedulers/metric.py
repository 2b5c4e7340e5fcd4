"""What schedulers that judge by a metric share: their checks, and reading time and score from a result."""

from __future__ import annotations

import math
from typing import Any

from sweep.core.results import Result, score
from sweep.core.values import as_float
from sweep.errors import ConfigError
from sweep.schedulers.base import Scheduler

__all__ = ["MetricScheduler", "check_number"]


def check_number(name: str, value: Any, *, least: float, is_least_allowed: bool = True) -> None:
    """Refuse what is no finite number of at least (or above) `least`.

    Raises:
        ConfigError: it is not; the message names it.
    """
    number = None if isinstance(value, bool) else as_float(value)
    if number is None or not math.isfinite(number) or value < least or (value == least and not is_least_allowed):
        bound = f"of at least {least:g}" if is_least_allowed else f"above {least:g}"
        raise ConfigError(f"{name} is {value!r}; expected a finite number {bound}.")


class MetricScheduler(Scheduler):
    """Judge trials by `metric` at the progress that `time_attr` counts; subclasses say what follows.

    Attributes:
        notices: what the user should be told, each once, oldest first.
    """

    def __init__(self, time_attr: str, metric: str | None, mode: str | None) -> None:
        if mode is not None and mode not in ("min", "max"):
            raise ConfigError(f"mode is {mode!r}; expected 'min' or 'max'.")
        if not isinstance(time_attr, str) or not time_attr:
            raise ConfigError(
                f"time_attr is {time_attr!r}; expected the name of a result that counts progress, such as "
                "'training_iteration' or 'time_total_s'."
            )
        if metric is not None and not isinstance(metric, str):
            raise ConfigError(f"metric is {metric!r}; {type(self).__name__} judges by one metric, given by name.")
        self.time_attr = time_attr
        self.metric, self.mode = metric, mode
        self.notices: list[str] = []
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

    def _read(self, result: Result) -> tuple[float, float] | None:
        """Return (time, score) of a result, a larger score being better and NaN the worst; None if either is missing.

        A time that is NaN, or no number that a float holds, is missing: nothing can be decided at an unknown time.
        """
        time, value = as_float(result.get(self.time_attr)), result.get(self.metric or "")
        if value is None or time is None or math.isnan(time):
            return None
        return time, score(value, self.mode or "max")

    def _shown(self, value: float) -> str:
        """Return a score as the user reported it, for reasons and logs."""
        return f"{value if self.mode == 'max' else -value:.4g}" if math.isfinite(value) else "nan"

    def _tell_once(self, notice: str) -> None:
        if notice not in self.notices:
            self.notices.append(notice)
