"""Stoppers: rules on results that end a trial, or the whole sweep."""

from __future__ import annotations

import bisect
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from numbers import Real
from typing import Any

import numpy as np

from sweep.errors import ConfigError

__all__ = [
    "CombinedStopper",
    "ExperimentPlateauStopper",
    "FunctionStopper",
    "MaximumIterationStopper",
    "NoopStopper",
    "Stopper",
    "TimeoutStopper",
    "TrialPlateauStopper",
    "reached",
]


def reached(stop: Mapping[str, float], result: Mapping[str, Any]) -> str:
    """Return the first criterion of a `stop` dict that a result has reached (value >= bound), as text; "" if none.

    As in Tune the comparison is always >=, also for a loss, and NaN reaches nothing.
    """
    for key, bound in stop.items():
        value = result.get(key)
        if isinstance(value, Real) and float(value) >= bound:
            return f"reached {key}={float(value):g} (stop at {bound:g})"
    return ""


class Stopper(ABC):
    """A rule on results: called with every judged result; True ends that trial.

    A stopper hears results in the order they were recorded; after a restart a new object hears them again.
    """

    @abstractmethod
    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        """Whether the trial should end now."""

    def stop_all(self) -> bool:
        """Whether the whole sweep should end now; asked after every result."""
        return False


class NoopStopper(Stopper):
    """Never stops anything."""

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        return False


class FunctionStopper(Stopper):
    """Wrap a function `(trial_id, result) -> bool`."""

    def __init__(self, function: Callable[[str, Mapping[str, Any]], bool]) -> None:
        if not callable(function):
            raise ConfigError(f"FunctionStopper takes a function (trial_id, result) -> bool, not {function!r}.")
        self._function = function

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        return bool(self._function(trial_id, result))


class CombinedStopper(Stopper):
    """Stop when any of several stoppers says so; every one of them hears every result."""

    def __init__(self, *stoppers: Stopper) -> None:
        self._stoppers = stoppers

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        answers = [stopper(trial_id, result) for stopper in self._stoppers]
        return any(answers)

    def stop_all(self) -> bool:
        return any(stopper.stop_all() for stopper in self._stoppers)


class MaximumIterationStopper(Stopper):
    """Stop each trial after its `max_iter`-th result; results are counted, whatever iteration the user reports."""

    def __init__(self, max_iter: int) -> None:
        if isinstance(max_iter, bool) or not isinstance(max_iter, int) or max_iter < 1:
            raise ConfigError(f"max_iter is {max_iter!r}; expected a whole number of at least 1.")
        self._max_iter = max_iter
        self._seen: dict[str, int] = defaultdict(int)

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        self._seen[trial_id] += 1
        return self._seen[trial_id] >= self._max_iter


class TimeoutStopper(Stopper):
    """End the sweep after `timeout` seconds of driving (a number or a timedelta); the same as `time_budget_s`."""

    def __init__(self, timeout: float | timedelta) -> None:
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or seconds <= 0:
            raise ConfigError(f"timeout is {timeout!r}; expected seconds above 0 or a timedelta.")
        self.seconds = float(seconds)

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        return False


class TrialPlateauStopper(Stopper):
    """Stop a trial whose metric no longer moves.

    After `grace_period` results a trial ends when the standard deviation of its last `num_results` values is below
    `std`; with `metric_threshold` only once the value is on the good side of it (`mode` says which side that is).
    """

    def __init__(
        self,
        metric: str,
        std: float = 0.01,
        num_results: int = 4,
        grace_period: int = 4,
        metric_threshold: float | None = None,
        mode: str | None = None,
    ) -> None:
        if metric_threshold is not None and mode not in ("min", "max"):
            raise ConfigError(f"metric_threshold needs mode='min' or 'max', found mode={mode!r}.")
        self._metric, self._std, self._grace, self._mode = metric, std, grace_period, mode
        self._threshold = metric_threshold
        self._seen: dict[str, int] = defaultdict(int)
        self._window: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=num_results))

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        value = result.get(self._metric)
        if value is None:
            return False
        self._seen[trial_id] += 1
        window = self._window[trial_id]
        window.append(float(value))
        if self._seen[trial_id] < self._grace or len(window) < (window.maxlen or 0):
            return False
        if self._threshold is not None:
            is_good = value < self._threshold if self._mode == "min" else value > self._threshold
            if not is_good:
                return False
        return bool(np.std(window) < self._std)


class ExperimentPlateauStopper(Stopper):
    """End the sweep when its best values no longer move.

    The `top` best values over all results are kept; once there are that many and their standard deviation stayed at or
    below `std` for `patience` consecutive results (at least one), everything ends.
    """

    def __init__(self, metric: str, std: float = 0.001, top: int = 10, mode: str = "min", patience: int = 0) -> None:
        if mode not in ("min", "max"):
            raise ConfigError(f"mode is {mode!r}; expected 'min' or 'max'.")
        if isinstance(top, bool) or not isinstance(top, int) or top <= 1:
            raise ConfigError(f"top is {top!r}; expected a whole number above 1.")
        if isinstance(patience, bool) or not isinstance(patience, int) or patience < 0:
            raise ConfigError(f"patience is {patience!r}; expected a whole number of at least 0.")
        if not isinstance(std, (int, float)) or std <= 0:
            raise ConfigError(f"std is {std!r}; expected a number above 0.")
        self._metric, self._std, self._top, self._patience = metric, std, top, patience
        self._sign = 1.0 if mode == "min" else -1.0
        self._best: list[float] = []
        self._quiet = 0

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        value = result.get(self._metric)
        if value is not None and value == value:  # NaN is never among the best
            bisect.insort(self._best, self._sign * float(value))
            del self._best[self._top :]
        has_settled = len(self._best) == self._top and float(np.std(self._best)) <= self._std
        self._quiet = self._quiet + 1 if has_settled else 0
        return self.stop_all()

    def stop_all(self) -> bool:
        return self._quiet >= max(self._patience, 1)


def combine(stoppers: Iterable[Stopper]) -> Stopper | None:
    """Return one stopper for several, None for none."""
    found = list(stoppers)
    if not found:
        return None
    return found[0] if len(found) == 1 else CombinedStopper(*found)
