"""Share a machine out among the trials that run on it: what `ResourceChangingScheduler` may ask for new requests."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count, takewhile
from typing import TYPE_CHECKING, Any, final

from sweep import checks
from sweep.core.messages import ResizeTrial
from sweep.core.packing import Packer
from sweep.core.resources import Bundle, Node, Resources, parse_resources, units_of
from sweep.core.results import TrialResult, score
from sweep.core.trial import HELD, Status, Trial
from sweep.errors import ConfigError, ResourceError, refuse_unknown

if TYPE_CHECKING:
    from sweep.schedulers.base import Scheduler

# So many sums of base and units in a row may be no request (of TPU chips only 1, 2, 4 and 8 are) before there is none.
_MAX_GAP = 16


@refuse_unknown()
@final
class TrialsView:
    """What an allocation function may see of a sweep; in Tune this argument is called `controller`.

    Attributes:
        nodes: the machines there are.
        base_resources: the request that all trials began with; None before the first trial.
    """

    def __init__(self) -> None:
        self.nodes: tuple[Node, ...] = ()
        self.base_resources: Resources | None = None
        self._trials: Mapping[str, Trial] = {}
        self._live: dict[str, int] = {}  # their numbers

    @property
    def num_live(self) -> int:
        """How many trials have not ended: they run, wait or are paused."""
        return len(self._live)

    @property
    def total_resources(self) -> dict[str, float]:
        """What all machines have, under Tune's names: `CPU`, `GPU`, `TPU`, `memory` and custom ones."""
        total: dict[str, float] = {}
        for node in self.nodes:
            amounts = {"CPU": node.cpus, "GPU": node.amount("gpu"), "TPU": node.amount("tpu"), "memory": node.memory}
            for name, amount in (amounts | dict(node.custom)).items():
                total[name] = total.get(name, 0.0) + amount
        return {name: amount for name, amount in total.items() if amount}

    def get_trials(self) -> list[Trial]:
        """Return all trials, in the order they were made."""
        return list(self._trials.values())

    def get_live_trials(self) -> list[Trial]:
        """Return the trials that have not ended, by number."""
        return [self._trials[trial_id] for trial_id in self.live_ids if trial_id in self._trials]

    def get_trial(self, trial_id: str) -> Trial | None:
        """Return one trial; None if there is none of that id."""
        return self._trials.get(trial_id)

    @property
    def live_ids(self) -> list[str]:
        """Ids of the trials that have not ended, by number."""
        return sorted(self._live, key=self._live.__getitem__)

    def rank(self, trial: Trial) -> int:
        """Return how many live trials have a smaller number."""
        return sum(number < trial.number for number in self._live.values())

    def see(self, trials: Mapping[str, Trial]) -> None:
        """Take the trials as they are now; for the scheduler."""
        self._trials = trials

    def add(self, trial: Trial) -> None:
        """Count a trial as live; for the scheduler."""
        self._live[trial.id] = trial.number

    def remove(self, trial: Trial) -> None:
        """Count a trial as ended; for the scheduler."""
        self._live.pop(trial.id, None)


@refuse_unknown()
class _Distribution(ABC):
    """A function from a trial and its result to the request that the trial should have now.

    A trial has a level: so many units lie on top of the request that all began with.
    """

    def __init__(
        self,
        add_bundles: bool = False,
        increase_by: Mapping[str, float] | None = None,
        increase_by_times: int = -1,
        reserve_resources: Mapping[str, float] | None = None,
    ) -> None:
        expected = "a whole number, -1 for no limit"
        self._most = checks.whole("increase_by_times", increase_by_times, least=None, expected=expected)
        self._add_bundles = bool(add_bundles)
        self._unit = _amounts_given("increase_by", increase_by)
        self._reserve = _amounts_given("reserve_resources", reserve_resources)
        self._nodes: tuple[Node, ...] = ()
        self._levels: list[Resources] = []  # that fit on the nodes, the base first
        self._parts: dict[int, tuple[int, int]] = {}  # of so many live trials

    def check(self, base: Resources) -> None:
        """Refuse a request that cannot grow: of several bundles, of a group's workers, or one that no unit goes on."""
        if self._add_bundles and (base.distinct_devices or base.shared_devices or base.bundles_per_slice):
            raise ConfigError(
                f"trials ask for {base}, the workers of a training group; a group keeps its size, because its workers "
                "split one batch among them. Leave ResourceChangingScheduler out, or sweep over num_workers."
            )
        if not self._add_bundles and len(base.bundles) > 1:
            raise ConfigError(
                f"trials ask for {len(base.bundles)} bundles ({base}) and add_bundles is False; expected one bundle, "
                "which then grows. Pass add_bundles=True to let them grow by whole bundles."
            )
        if next(self._grown(base), None) is None:
            raise ConfigError(
                f"trials ask for {base} and can grow by no number of {self._unit_for(base)}: GPUs are given out as a "
                "share below 1 or as whole ones, TPU chips by 1, 2, 4 or 8. Pass another increase_by."
            )

    def __call__(self, view: TrialsView, trial: Trial, result: TrialResult, scheduler: Scheduler) -> Resources | None:
        """Return the request that a trial should have now; None: the one it has."""
        base = view.base_resources
        if base is None:
            return None
        if (self._levels[:1], self._nodes) != ([base], view.nodes):
            self._nodes, self._parts = view.nodes, {}
            self._levels = [base, *takewhile(Packer(view.nodes).could_ever_fit, self._grown(base))]
        if view.num_live not in self._parts:
            self._parts[view.num_live] = self._part_of(view.num_live)
        return self._step(view, trial, self._level(view, trial, scheduler, *self._parts[view.num_live]))

    @abstractmethod
    def _part_of(self, number: int) -> tuple[int, int]:
        """Return the level that a trial may have when so many live, and how many of them may have one more."""

    @abstractmethod
    def _level(self, view: TrialsView, trial: Trial, scheduler: Scheduler, level: int, num_higher: int) -> int:
        """Return the level of one trial, given what `_part_of` says."""

    def _step(self, view: TrialsView, trial: Trial, target: int) -> Resources | None:
        """Return what a trial should ask for to get to a level: less at once, more only as far as there is room now."""
        promised = _promised(trial)
        current = self._levels.index(promised) if promised in self._levels else -1
        if target <= current:
            return self._levels[target]
        packer = Packer(view.nodes)
        taken: list[Resources] = []
        waiting: list[Resources] = []
        for other in view.get_trials():
            placement, request = other.placement, _promised(other)
            is_gone = other.is_ended and placement is None
            if other.id == trial.id or other.status is Status.PAUSED or is_gone:
                continue
            taken.append(request)
            is_there = other.status in HELD or other.is_ended
            if placement is None or not is_there or isinstance(other.pending, ResizeTrial):
                waiting.append(request)
            elif len(placement.bundles) == len(request.bundles):
                packer.hold(request, placement, (other.id, 1))
        if all(packer.place(request, (str(n), 1)) is not None for n, request in enumerate(waiting)):
            for request in self._levels[target : max(current, 0) : -1]:
                if self._leaves_reserve([request, *taken]) and packer.fits_now(request):
                    return request
        return None if current >= 0 else self._levels[0]

    def _fits(self, requests: Sequence[Resources]) -> bool:
        """Whether all these lie on the idle machines at once, every bundle on one of them."""
        packer = Packer(self._nodes)
        return self._leaves_reserve(requests) and all(
            packer.place(request, (str(n), 1)) is not None for n, request in enumerate(requests)
        )

    def _leaves_reserve(self, requests: Sequence[Resources]) -> bool:
        for name, amount in (self._reserve.amounts if self._reserve is not None else {}).items():
            used = sum(units_of(bundle.amounts.get(name, 0.0)) for request in requests for bundle in request.bundles)
            if used > units_of(sum(node.amount(name) for node in self._nodes)) - units_of(amount):
                return False
        return True

    def _grown(self, base: Resources) -> Iterator[Resources]:
        """Yield the requests above the base: ever more units on top of it, as far as they are legal."""
        unit, gap = self._unit_for(base), 0
        for times in count(1):
            if gap == _MAX_GAP or 1 <= self._most < times:
                return
            try:
                bundles = self._bundles(base, unit, times)
            except ResourceError:  # a share of more than one GPU, or three TPU chips
                gap += 1
                continue
            gap = 0
            yield dataclasses.replace(base, bundles=bundles)

    def _bundles(self, base: Resources, unit: Bundle, times: int) -> tuple[Bundle, ...]:
        if self._add_bundles:
            return (*base.bundles, *(unit,) * times)
        (bundle,) = base.bundles
        amounts: dict[str, Any] = bundle.amounts
        for name, amount in unit.amounts.items():
            amounts[name] = amounts.get(name, 0.0) + times * amount
        of_type = bundle.accelerator_type or unit.accelerator_type
        return parse_resources(amounts | {"accelerator_type": of_type}).bundles

    def _unit_for(self, base: Resources) -> Bundle:
        if self._unit is not None:
            return self._unit
        last = base.bundles[-1]
        if self._add_bundles:
            return last
        return Bundle(gpu=1.0) if last.gpu else Bundle(tpu=1.0) if last.tpu else Bundle(cpu=1.0)


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

    def _part_of(self, number: int) -> tuple[int, int]:
        levels = self._levels
        level = _most(len(levels) - 1, lambda k: self._fits([levels[k]] * number))
        if level + 1 == len(levels) or not self._fits([levels[level]] * number):
            return level, 0
        lower, higher = levels[level : level + 2]
        return level, _most(number - 1, lambda m: self._fits([*[higher] * m, *[lower] * (number - m)]))

    def _level(self, view: TrialsView, trial: Trial, scheduler: Scheduler, level: int, num_higher: int) -> int:
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

    def _part_of(self, number: int) -> tuple[int, int]:
        base, *grown = self._levels
        return _most(len(grown), lambda k: self._fits([grown[k - 1], *[base] * (number - 1)])), 0

    def _level(self, view: TrialsView, trial: Trial, scheduler: Scheduler, level: int, num_higher: int) -> int:
        return level if level > 0 and self._leader(view, scheduler) == trial.id else 0

    def _leader(self, view: TrialsView, scheduler: Scheduler) -> str | None:
        """Return the id of the best live trial; None: none has reported a number."""
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


def _promised(trial: Trial) -> Resources:
    """Return what a trial has, or will have once it is saved."""
    return trial.pending.resources if isinstance(trial.pending, ResizeTrial) else trial.resources


def _most(number: int, is_good: Callable[[int], bool]) -> int:
    """Return the largest of 1 ... number that is good, where all smaller ones are too; 0 if none is."""
    return bisect_left(range(1, number + 1), True, key=lambda one: not is_good(one))


def _amounts_given(name: str, given: Mapping[str, float] | None) -> Bundle | None:
    """Return the amounts of an argument; None: nothing was given."""
    if not given:
        return None
    if not isinstance(given, Mapping):
        checks.refuse(name, given, "amounts such as {'CPU': 1}")
    try:
        (bundle,) = parse_resources(given).bundles
    except ResourceError as error:
        raise ConfigError(f"{name} is {dict(given)}; expected amounts such as {{'CPU': 1}}: {error}") from error
    return bundle
