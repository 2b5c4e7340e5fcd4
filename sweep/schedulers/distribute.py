"""Share a machine out among the trials that run on it: what `ResourceChangingScheduler` may ask for new requests."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, final

from sweep import checks
from sweep.core.resources import Resources
from sweep.core.results import TrialResult, score
from sweep.core.trial import Trial
from sweep.errors import ConfigError, refuse_unknown
from sweep.schedulers.shares import Shares
from sweep.schedulers.trials_view import TrialsView

if TYPE_CHECKING:
    from sweep.schedulers.base import Scheduler


@refuse_unknown()
class _Distribution(ABC):
    """A function from a trial and its result to the request that the trial should have now."""

    def __init__(
        self,
        add_bundles: bool = False,
        increase_by: Mapping[str, float] | None = None,
        increase_by_times: int = -1,
        reserve_resources: Mapping[str, float] | None = None,
    ) -> None:
        self._shares = Shares(add_bundles, increase_by, increase_by_times, reserve_resources)

    def check(self, base: Resources) -> None:
        """Raise what is wrong with growing from this request.

        Raises:
            ConfigError: it has several bundles and only one could grow, or they are the workers of a group, or no unit
                can be added to it.
        """
        self._shares.check(base)

    def __call__(self, view: TrialsView, trial: Trial, result: TrialResult, scheduler: Scheduler) -> Resources | None:
        """Return the request that a trial should have now; None: the one it has."""
        if view.base_resources is None:
            return None
        self._shares.see(view.nodes, view.base_resources)
        return self._shares.step(view, trial, self._level(view, trial, scheduler))

    @abstractmethod
    def _level(self, view: TrialsView, trial: Trial, scheduler: Scheduler) -> int:
        """Return how many units a trial may have above the request that all began with."""


@final
class DistributeResources(_Distribution):
    """Give every trial that has not ended an equal part of the machines, never less than it began with.

    What is left over when all have the same goes in further units to the trials with the smallest numbers. A trial
    grows only into what is free now, so it never waits for others to shrink; it shrinks when trials have come and its
    part is smaller. While not all trials fit at their base request none gets more than that.

    Args:
        add_bundles: whether a trial grows by bundles, for trials that launch work into theirs; otherwise its single
            bundle grows.
        increase_by: one unit of growth, such as `{"CPU": 2}`; None: 1 GPU where the base has GPUs, 1 TPU chip where it
            has those, else 1 CPU. With `add_bundles` the last bundle of the base.
        increase_by_times: how many units a trial may get at most; below 1: no limit.
        reserve_resources: amounts that are never given out as growth, such as `{"CPU": 1}`, over all machines.

    Raises:
        ConfigError: an argument is none of that.
    """

    def _level(self, view: TrialsView, trial: Trial, scheduler: Scheduler) -> int:
        level, num_higher = self._shares.equal(view.num_live)
        return level + (num_higher > 0 and view.rank(trial) < num_higher)


@refuse_unknown()
@final
class DistributeResourcesToTopJob(_Distribution):
    """Give all that is free to the best trial, and the others what they began with.

    The best is the live trial whose last result is the best; with equal ones it is the one that has grown, else that
    with the smallest number. NaN, or no result, is never the best. When another one becomes the best, the one before
    shrinks at its next result, and the new one grows at its next result after that.

    Args:
        add_bundles, increase_by, increase_by_times, reserve_resources: as for `DistributeResources`.
        metric, mode: what is compared; those of the run unless given here.

    Raises:
        ConfigError: an argument is none of that.
    """

    def __init__(
        self,
        add_bundles: bool = False,
        increase_by: Mapping[str, float] | None = None,
        increase_by_times: int = -1,
        reserve_resources: Mapping[str, float] | None = None,
        metric: str | None = None,
        mode: str | None = None,
    ) -> None:
        if metric is not None and (not isinstance(metric, str) or not metric):
            checks.refuse("metric", metric, "the name of a result, or None for that of the run")
        if mode is not None:
            checks.mode(mode)
        super().__init__(add_bundles, increase_by, increase_by_times, reserve_resources)
        self.metric, self.mode = metric, mode

    def check_metric(self, metric: object) -> None:
        """Raise if there is nothing to compare trials by.

        Args:
            metric: of the run.

        Raises:
            ConfigError: there is no metric here and none in the run.
        """
        if self.metric is None and not isinstance(metric, str):  # with several objectives it is a list
            raise ConfigError(
                "DistributeResourcesToTopJob needs a metric to compare trials by: pass metric= and mode= to the run, "
                "or here where the run has several objectives."
            )

    def _level(self, view: TrialsView, trial: Trial, scheduler: Scheduler) -> int:
        level = self._shares.for_one(view.num_live)
        return level if level > 0 and self._leader(view, scheduler) == trial.id else 0

    def _leader(self, view: TrialsView, scheduler: Scheduler) -> str | None:
        """Return the id of the best live trial; looked for only while fewer trials live than the machines could run."""
        self.check_metric(scheduler.metric)
        metric = self.metric or scheduler.metric
        mode = self.mode or (scheduler.mode if isinstance(scheduler.mode, str) else None) or "max"
        best, best_id = (-math.inf, False), None
        for trial in view.get_live_trials():
            value = score(trial.last_result.get(metric or ""), mode) if trial.last_result is not None else -math.inf
            key = (value, trial.resources != view.base_resources)
            if value > -math.inf and key > best:
                best, best_id = key, trial.id
        return best_id
