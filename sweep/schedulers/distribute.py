"""Share a machine out among the trials that run on it: what `ResourceChangingScheduler` may ask for new requests."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from sweep import checks
from sweep.core.messages import ResizeTrial
from sweep.core.packing import Packer
from sweep.core.resources import Bundle, Node, Placement, Resources, parse_resources, units_of
from sweep.core.results import TrialResult, score
from sweep.core.trial import HELD, Status, Trial
from sweep.errors import ConfigError, ResourceError, refuse_unknown
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
        self._shares = _Shares(add_bundles, increase_by, increase_by_times, reserve_resources)

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


# --- how much each of several trials may have: from what they began with upwards, in equal units ----------------------

# So many sums of base and units in a row may be no request (of TPU chips only 1, 2, 4 and 8 are) before there is none.
_MAX_GAP = 16


class _Shares:
    """Know to which requests a trial may grow, and how far each may when so many live."""

    def __init__(
        self,
        add_bundles: bool,
        increase_by: Mapping[str, float] | None,
        increase_by_times: int,
        reserve_resources: Mapping[str, float] | None,
    ) -> None:
        expected = "a whole number, -1 for no limit"
        increase_by_times = checks.whole("increase_by_times", increase_by_times, least=None, expected=expected)
        self._add_bundles = bool(add_bundles)
        self._unit = _amounts_given("increase_by", increase_by)
        self._most = increase_by_times if increase_by_times >= 1 else None
        reserve = _amounts_given("reserve_resources", reserve_resources)
        self._reserve = reserve.amounts if reserve is not None else {}
        self._nodes: tuple[Node, ...] = ()
        self._base: Resources | None = None
        self._ladder = _Ladder(Resources(), Bundle(cpu=1.0), False, 0)
        self._budget: dict[str, int] = {}  # what may be given out in all, in the units of the packer
        self._equal: dict[int, tuple[int, int]] = {}
        self._for_one: dict[int, int] = {}

    def check(self, base: Resources) -> None:
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
        if self._make_ladder(base).at(1) is None:
            raise ConfigError(
                f"trials ask for {base} and can grow by no number of {self._unit_for(base)}: GPUs are given out as a "
                "share below 1 or as whole ones, TPU chips by 1, 2, 4 or 8. Pass another increase_by."
            )

    def see(self, nodes: tuple[Node, ...], base: Resources) -> None:
        """Take the machines and the request that trials began with; nothing is computed anew while they stay."""
        if nodes is self._nodes and base is self._base:
            return
        self._nodes, self._base = nodes, base
        if base is not self._ladder.base:
            self._ladder = self._make_ladder(base)
        self._equal, self._for_one = {}, {}
        names = {name for node in nodes for name in ("cpu", "gpu", "tpu", "memory", *node.custom)}
        self._budget = {
            name: units_of(sum(node.amount(name) for node in nodes)) - units_of(self._reserve.get(name, 0.0))
            for name in names
        }

    def equal(self, number: int) -> tuple[int, int]:
        """Return the level that all of so many trials may have, and how many of them may have one more."""
        if number not in self._equal:
            self._equal[number] = self._find_equal(number)
        return self._equal[number]

    def for_one(self, number: int) -> int:
        """Return the level that one of so many trials may have when the others have the lowest."""
        if number not in self._for_one:
            base = self._ladder.base
            most = self._highest(lambda level: self._is_within([(level, 1), (base, number - 1)]))
            self._for_one[number] = _last(most, lambda k: self._fits([self._ladder[k], *[base] * (number - 1)]))
        return self._for_one[number]

    def step(self, view: TrialsView, trial: Trial, target: int) -> Resources | None:
        """Return what a trial should ask for to get to a level: less at once, more only as far as there is room now."""
        promised = trial.pending.resources if isinstance(trial.pending, ResizeTrial) else trial.resources
        current = self._ladder.index_of(promised)
        if target <= current:
            return self._ladder[target]
        packer, taken = Packer(view.nodes), _claims(view, trial)
        for other, request, placement in taken:
            if placement is not None:
                packer.hold(request, placement, (other, 1))
        waiting = [(other, request) for other, request, placement in taken if placement is None]
        if all(packer.place(request, (other, 1)) is not None for other, request in waiting):
            for level in range(target, max(current, 0), -1):
                request = self._ladder[level]
                if self._leaves_reserve([request, *(one for _, one, _ in taken)]) and packer.fits_now(request):
                    return request
        return None if current >= 0 else self._ladder.base

    def _leaves_reserve(self, requests: Sequence[Resources]) -> bool:
        need = [_units(request) for request in requests] if self._reserve else []
        return all(sum(one.get(name, 0) for one in need) <= self._budget.get(name, 0) for name in self._reserve)

    def _find_equal(self, number: int) -> tuple[int, int]:
        most = self._highest(lambda level: self._is_within([(level, number)]))
        low = _last(most, lambda k: self._fits([self._ladder[k]] * number))
        higher = self._ladder.at(low + 1)
        if higher is None or most < 0:
            return low, 0
        lower = self._ladder[low]
        if low == 0 and not self._fits([lower] * number):
            return 0, 0
        now, then = _units(lower), _units(higher)
        count = number - 1
        for name, amount in then.items():
            before = now.get(name, 0)
            if amount > before:
                count = min(count, (self._budget.get(name, 0) - number * before) // (amount - before))
        return low, _last(count, lambda m: self._fits([*[higher] * m, *[lower] * (number - m)]))

    def _highest(self, is_within: Callable[[Resources], bool]) -> int:
        """Return the highest level that is within what there is in all; -1: not even the lowest."""
        level = -1
        while (request := self._ladder.at(level + 1)) is not None and is_within(request):
            level += 1
        return level

    def _is_within(self, requests: Iterable[tuple[Resources, int]]) -> bool:
        need: dict[str, int] = {}
        for request, number in requests:
            for name, amount in _units(request).items():
                need[name] = need.get(name, 0) + number * amount
        return all(amount <= self._budget.get(name, 0) for name, amount in need.items())

    def _fits(self, requests: Sequence[Resources]) -> bool:
        """Whether all these lie on the idle machines at once, every bundle on one of them."""
        packer = Packer(self._nodes)
        return all(packer.place(request, (str(n), 1)) is not None for n, request in enumerate(requests))

    def _make_ladder(self, base: Resources) -> _Ladder:
        return _Ladder(base, self._unit_for(base), self._add_bundles, self._most)

    def _unit_for(self, base: Resources) -> Bundle:
        if self._unit is not None:
            return self._unit
        last = base.bundles[-1]
        if self._add_bundles:
            return last
        return Bundle(gpu=1.0) if last.gpu else Bundle(tpu=1.0) if last.tpu else Bundle(cpu=1.0)


class _Ladder:
    """The requests that a trial may come to: the base, then ever more units on top of it, as far as they are legal."""

    def __init__(self, base: Resources, unit: Bundle, add_bundles: bool, most: int | None) -> None:
        self.base = base
        self._unit, self._add_bundles, self._most = unit, add_bundles, most
        self._steps = [base]
        self._index = {base: 0}
        self._times = 0  # units in the last step

    def __getitem__(self, level: int) -> Resources:
        return self._steps[level]

    def at(self, level: int) -> Resources | None:
        """Return the request of a level; None: there are not as many."""
        while level >= len(self._steps):
            following = self._next()
            if following is None:
                return None
            self._index[following] = len(self._steps)
            self._steps.append(following)
        return self._steps[level]

    def index_of(self, resources: Resources) -> int:
        """Return the level of a request; -1: it has none."""
        wanted = _units(resources) if resources not in self._index else {}
        level = 0
        while resources not in self._index:
            step = self.at(level)
            if step is None or any(amount > wanted.get(name, 0) for name, amount in _units(step).items()):
                return -1
            level += 1
        return self._index[resources]

    def _next(self) -> Resources | None:
        for times in range(self._times + 1, self._times + _MAX_GAP + 1):
            if self._most is not None and times > self._most:
                return None
            try:
                bundles = self._bundles(times)
            except ResourceError:  # a share of more than one GPU, or three TPU chips
                continue
            self._times = times
            return dataclasses.replace(self.base, bundles=bundles)
        return None

    def _bundles(self, times: int) -> tuple[Bundle, ...]:
        unit = self._unit
        if self._add_bundles:
            return (*self.base.bundles, *(unit,) * times)
        (bundle,) = self.base.bundles
        amounts: dict[str, Any] = bundle.amounts
        for name, amount in unit.amounts.items():
            amounts[name] = amounts.get(name, 0.0) + times * amount
        of_type = bundle.accelerator_type or unit.accelerator_type
        return parse_resources(amounts | {"accelerator_type": of_type}).bundles


def _claims(view: TrialsView, trial: Trial) -> list[tuple[str, Resources, Placement | None]]:
    """Return which other trials have a claim, to what, and where if they hold it already: others wait for it."""
    claims: list[tuple[str, Resources, Placement | None]] = []
    for other in (*view.get_live_trials(), *view.get_leaving_trials()):
        if other.id == trial.id or other.status is Status.PAUSED:
            continue
        placement = other.placement
        if isinstance(other.pending, ResizeTrial):
            claims.append((other.id, other.pending.resources, None))
        elif placement is None or not (other.status in HELD or other.is_ended):
            claims.append((other.id, other.resources, None))
        elif len(placement.bundles) == len(other.resources.bundles):
            claims.append((other.id, other.resources, placement))
    return claims


def _last(most: int, is_good: Callable[[int], bool]) -> int:
    """Return the largest number up to `most` that is good, where all smaller ones are too; 0 if none is."""
    if most <= 0 or is_good(most):
        return max(most, 0)
    low, high = 0, most  # 0 counts as good, `high` is not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_good(middle) else (low, middle)
    return low


def _amounts_given(name: str, given: Mapping[str, float] | None) -> Bundle | None:
    """Return the amounts of an argument; None: nothing was given."""
    if given is None or given == {}:
        return None
    if not isinstance(given, Mapping):
        checks.refuse(name, given, "amounts such as {'CPU': 1}")
    try:
        (bundle,) = parse_resources(given).bundles
    except ResourceError as error:
        raise ConfigError(f"{name} is {dict(given)}; expected amounts such as {{'CPU': 1}}: {error}") from error
    return bundle


def _units(resources: Resources) -> dict[str, int]:
    """Return what a request asks for in all, in the units of the packer."""
    total: dict[str, int] = {}
    for bundle in resources.bundles:
        for name, amount in bundle.amounts.items():
            total[name] = total.get(name, 0) + units_of(amount)
    return total
