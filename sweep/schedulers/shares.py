"""How much of a machine each of several trials may have: from what they began with upwards, in equal units."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import final

from sweep.core.messages import ResizeTrial
from sweep.core.packing import Packer, units_of
from sweep.core.resources import Bundle, Node, Resources, parse_resources, plain_type
from sweep.core.trial import HELD, Status, Trial
from sweep.errors import ConfigError, ResourceError
from sweep.schedulers.trials_view import TrialsView

__all__ = ["Shares"]

# So many sums of base and units in a row may be no request (of TPU chips only 1, 2, 4 and 8 are) before there is none.
_MAX_GAP = 16
_SLACK = 1e-6  # six sixths must fit


@final
class Shares:
    """Know to which requests a trial may grow, and how far each may when so many live."""

    def __init__(
        self,
        add_bundles: bool,
        increase_by: Mapping[str, float] | None,
        increase_by_times: int,
        reserve_resources: Mapping[str, float] | None,
    ) -> None:
        if isinstance(increase_by_times, bool) or not isinstance(increase_by_times, int):
            raise ConfigError(f"increase_by_times is {increase_by_times!r}; expected a whole number, -1 for no limit.")
        self._add_bundles = bool(add_bundles)
        self._unit = _amounts_given("increase_by", increase_by)
        self._most = increase_by_times if increase_by_times >= 1 else None
        self._reserve = dict(_amounts(_amounts_given("reserve_resources", reserve_resources)))
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
        found = self._equal.get(number)
        if found is None:
            found = self._equal[number] = self._find_equal(number)
        return found

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
        room = _Room(view, trial)
        for level in range(target, max(current, 0), -1):
            if room.has(self._ladder[level], self._reserve):
                return self._ladder[level]
        return None if current >= 0 else self._ladder.base

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
            if amount > now.get(name, 0):
                left = self._budget.get(name, 0) - number * now.get(name, 0)
                count = min(count, left // (amount - now.get(name, 0)))
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
        custom = dict(bundle.custom)
        for name, amount in unit.custom:
            custom[name] = custom.get(name, 0.0) + times * amount
        bundle = Bundle(
            bundle.cpu + times * unit.cpu,
            bundle.gpu + times * unit.gpu,
            bundle.tpu + times * unit.tpu,
            bundle.memory + times * unit.memory,
            tuple(sorted(custom.items())),
            bundle.accelerator_type or unit.accelerator_type,
        )
        return (bundle,)


class _Part:
    """What is free of one machine."""

    def __init__(self, node: Node) -> None:
        self.amounts = {"cpu": node.cpus, "memory": float(node.memory), **node.custom}
        self.devices = dict.fromkeys([device.id for device in node.devices], 1.0)
        self._node = node

    def copy(self) -> _Part:
        other = _Part(self._node)
        other.amounts, other.devices = dict(self.amounts), dict(self.devices)
        return other

    def find(self, bundle: Bundle) -> list[tuple[str, float]] | None:
        """Return the devices that a bundle may have, and how much of each; None if it does not fit."""
        for name, amount in _amounts(bundle):
            if name not in ("gpu", "tpu") and self.amounts.get(name, 0.0) < amount - _SLACK:
                return None
        found: list[tuple[str, float]] = []
        for kind, amount in (("gpu", bundle.gpu), ("tpu", bundle.tpu)):
            number, share = (1, amount) if amount < 1 else (int(amount), 1.0)
            wanted = plain_type(bundle.type_of(kind))
            fitting = [
                device.id
                for device in self._node.devices
                if device.kind == kind
                and (not wanted or wanted in device.names)
                and self.devices[device.id] >= share - _SLACK
            ]
            if amount and len(fitting) < number:
                return None
            fitting.sort(key=lambda device: self.devices[device])  # the fullest first
            found += [(device, share) for device in fitting[:number]] if amount else []
        return found

    def take(self, bundle: Bundle, devices: Iterable[tuple[str, float]]) -> None:
        for name, amount in _amounts(bundle):
            if name not in ("gpu", "tpu"):
                self.amounts[name] = self.amounts.get(name, 0.0) - amount
        for device, share in devices:
            self.devices[device] = self.devices.get(device, 0.0) - share

    def left(self, name: str) -> float:
        if name in ("gpu", "tpu"):
            return sum(self.devices[device.id] for device in self._node.devices if device.kind == name)
        return self.amounts.get(name, 0.0)


class _Room:
    """What is free on every machine for one trial: its own part counts as free, what others wait for as taken.

    Blocks of TPU chips and strategies are not looked at: those are the packer's.
    """

    def __init__(self, view: TrialsView, trial: Trial) -> None:
        self._parts = {node.id: _Part(node) for node in view.nodes}
        waiting: list[Resources] = []
        for other in (*view.get_live_trials(), *view.get_leaving_trials()):
            if other.id == trial.id or other.status is Status.PAUSED:
                continue
            placement = other.placement
            if isinstance(other.pending, ResizeTrial):
                waiting.append(other.pending.resources)
            elif placement is None or not (other.status in HELD or other.is_ended):
                waiting.append(other.resources)
            elif len(placement.bundles) == len(other.resources.bundles):
                for bundle, place in zip(other.resources.bundles, placement.bundles, strict=True):
                    if place.node in self._parts:
                        self._parts[place.node].take(bundle, place.devices)
        self._is_enough = [self._put(self._parts.values(), request) for request in waiting].count(False) == 0

    def has(self, resources: Resources, reserve: Mapping[str, float]) -> bool:
        """Whether a request fits now, and leaves what is reserved."""
        parts = [part.copy() for part in self._parts.values()]
        if not self._is_enough or not self._put(parts, resources):
            return False
        return all(sum(part.left(name) for part in parts) >= amount - _SLACK for name, amount in reserve.items())

    @staticmethod
    def _put(parts: Iterable[_Part], resources: Resources) -> bool:
        """Take room for a request where the least is left; False: some bundle of it has none."""
        parts = list(parts)
        is_complete = True
        for bundle in resources.bundles:
            fitting = [(part, devices) for part in parts if (devices := part.find(bundle)) is not None]
            if not fitting:
                is_complete = False
                continue
            part, devices = min(fitting, key=lambda pair: [pair[0].left(name) for name, _ in _amounts(bundle)])
            part.take(bundle, devices)
        return is_complete


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
        raise ConfigError(f"{name} is {given!r:.100}; expected amounts such as {{'CPU': 1}}.")
    try:
        (bundle,) = parse_resources(given).bundles
    except ResourceError as error:
        raise ConfigError(f"{name} is {dict(given)}; expected amounts such as {{'CPU': 1}}: {error}") from error
    return bundle


def _amounts(bundle: Bundle | None) -> list[tuple[str, float]]:
    """Return (name, amount) of all that a bundle asks for."""
    if bundle is None:
        return []
    four = (("cpu", bundle.cpu), ("gpu", bundle.gpu), ("tpu", bundle.tpu), ("memory", float(bundle.memory)))
    return [(name, amount) for name, amount in (*four, *bundle.custom) if amount]


def _units(resources: Resources) -> dict[str, int]:
    """Return what a request asks for in all, in the units of the packer."""
    total: dict[str, int] = {}
    for bundle in resources.bundles:
        for name, amount in _amounts(bundle):
            total[name] = total.get(name, 0) + units_of(amount)
    return total
