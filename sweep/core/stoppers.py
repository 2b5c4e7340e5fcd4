"""Stoppers: rules on results that end a trial, or the whole sweep."""

from __future__ import annotations

import bisect
import math
import time
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any

import numpy as np

from sweep import checks
from sweep.core.results import signed
from sweep.core.values import as_float
from sweep.errors import ConfigError, refuse_unknown


def reached(stop: Mapping[str, float], result: Mapping[str, Any]) -> str:
    """Return the first criterion of a `stop` dict that a result has reached (value >= bound), as text; "" if none.

    As in Tune the comparison is always >=, also for a loss, and NaN reaches nothing. A bound that is True or False is
    reached by an equal value.
    """
    for key, bound in stop.items():
        value = as_float(result.get(key))
        if value is None:
            continue
        if isinstance(bound, bool):
            if value == bound:
                return f"reported {key}={bound}"
        elif value >= bound:
            return f"reached {key}={value:g} (stop at {bound:g})"
    return ""


class Stopper(ABC):
    """A rule on results: called with every judged result; True ends that trial.

    A stopper gets results in the order they were recorded; after a restart a new object gets them again. NaN, and
    whatever is no number, counts as worst: it never makes the rules of this module stop anything.

    Attributes:
        budget_s: seconds of driving after which the sweep is to end, whether or not there are results; None: no limit.
    """

    budget_s: float | None = None

    @abstractmethod
    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        """Whether the trial should end now."""

    def stop_all(self) -> bool:
        """Whether the whole sweep should end now; asked after every result."""
        return False


def _deviation(values: Iterable[float]) -> float:
    """Return the standard deviation; infinite unless all values are finite, for then nothing has settled."""
    numbers = list(values)
    return float(np.std(numbers)) if all(map(math.isfinite, numbers)) else math.inf


class NoopStopper(Stopper):
    """Never stops anything."""

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        return False


@refuse_unknown()
class FunctionStopper(Stopper):
    """Wrap a function `(trial_id, result) -> bool`."""

    def __init__(self, function: Callable[[str, Mapping[str, Any]], bool]) -> None:
        if not callable(function):
            raise ConfigError(f"FunctionStopper takes a function (trial_id, result) -> bool, not {function!r}.")
        self._function = function

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        return bool(self._function(trial_id, result))


@refuse_unknown()
class CombinedStopper(Stopper):
    """Stop when any of several stoppers says so; every one of them gets every result."""

    def __init__(self, *stoppers: Stopper) -> None:
        for stopper in stoppers:
            if not isinstance(stopper, Stopper):
                raise ConfigError(
                    f"CombinedStopper takes stoppers, not {stopper!r:.100}. Wrap a function: FunctionStopper(function)."
                )
        self._stoppers = stoppers
        self.budget_s = min((one.budget_s for one in stoppers if one.budget_s is not None), default=None)

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        answers = [stopper(trial_id, result) for stopper in self._stoppers]
        return any(answers)

    def stop_all(self) -> bool:
        answers = [stopper.stop_all() for stopper in self._stoppers]
        return any(answers)


@refuse_unknown()
class MaximumIterationStopper(Stopper):
    """Stop each trial after its `max_iter`-th result; results are counted, whatever iteration the user reports."""

    def __init__(self, max_iter: int) -> None:
        self._max_iter = checks.whole("max_iter", max_iter, least=1)
        self._seen: dict[str, int] = defaultdict(int)

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        self._seen[trial_id] += 1
        return self._seen[trial_id] >= self._max_iter


@refuse_unknown()
class TimeoutStopper(Stopper):
    """End the sweep after `timeout` seconds of driving (a number or a timedelta); the same as `time_budget_s`.

    Asked by a stopper of your own, `stop_all` counts from its first call, in seconds of this process.
    """

    def __init__(self, timeout: float | timedelta) -> None:
        self.seconds = self.budget_s = checks.number("timeout", checks.seconds("timeout", timeout))
        self._began: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_began": None}  # another process has another clock

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        now = time.monotonic()
        self._began = now if self._began is None else self._began
        return now - self._began >= self.seconds


@refuse_unknown()
class TrialPlateauStopper(Stopper):
    """Stop a trial whose metric no longer moves.

    After `grace_period` results a trial ends when the standard deviation of its last `num_results` values is below
    `std`; with `metric_threshold` only once the value is on the good side of it (`mode` says which side that is).
    Values that are NaN or infinite have not settled, wherever they stay.
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
        if metric_threshold is not None:
            checks.number("metric_threshold", metric_threshold, is_finite=False)
        length = checks.whole("num_results", num_results, least=1)
        self._metric, self._std, self._mode = metric, checks.number("std", std, above=0), mode
        self._grace = checks.whole("grace_period", grace_period)
        self._threshold = metric_threshold
        self._seen: dict[str, int] = defaultdict(int)
        self._window: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=length))

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        value = result.get(self._metric)
        if value is None:
            return False
        value = signed(value, "max")
        self._seen[trial_id] += 1
        window = self._window[trial_id]
        window.append(value)
        if self._seen[trial_id] < self._grace or len(window) < (window.maxlen or 0):
            return False
        if self._threshold is not None:
            is_good = value < self._threshold if self._mode == "min" else value > self._threshold
            if not is_good:
                return False
        return _deviation(window) < self._std


@refuse_unknown()
class ExperimentPlateauStopper(Stopper):
    """End the sweep when its best values no longer move.

    The `top` best values over all results are kept; once there are that many and their standard deviation stayed at or
    below `std` for `patience` consecutive results (at least one), everything ends.
    """

    def __init__(self, metric: str, std: float = 0.001, top: int = 10, mode: str = "min", patience: int = 0) -> None:
        self._metric, self._std = metric, checks.number("std", std, above=0)
        self._top, self._patience = checks.whole("top", top, least=2), checks.whole("patience", patience)
        self._mode = checks.mode(mode)
        self._best: list[float] = []  # negated scores
        self._quiet = 0

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        value = signed(result.get(self._metric), self._mode)
        if not math.isnan(value):  # NaN is never among the best
            bisect.insort(self._best, -value)
            del self._best[self._top :]
        has_settled = len(self._best) == self._top and _deviation(self._best) <= self._std
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
