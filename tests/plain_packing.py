"""The packer that looks at all nodes for every placement: what `sweep.core.packing` has to agree with, and slow.

It is kept as it was before there was an index, but for what it is asked in tests.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from sweep.core.resources import (
    Bundle,
    BundlePlacement,
    Node,
    Placement,
    Resources,
    format_amount,
    format_request,
    plain_type,
)

__all__ = ["Packer"]

# Amounts are counted in billionths, as integers and rounded down: 0.1 + 0.2 must leave room for 0.7, and six sixths
# must fit.
_UNIT = 1_000_000_000
# How many placements of single bundles may be tried before a gang counts as "does not fit now".
_SEARCH_LIMIT = 5_000
# How many TPU chips make a block; each larger one consists of two of the smaller.
_BLOCKS = (1, 2, 4, 8)

Holder = tuple[str, int]  # trial id and attempt
_Shares = tuple[tuple[str, float], ...]  # devices of one node, and how much of each
_Used = Set[tuple[str, str]]  # (node, device) pairs
_Types = frozenset[str]  # accelerator types in lower case
_ANY: _Types = frozenset()


def units_of(amount: float) -> int:
    return math.floor(amount * _UNIT + 1e-3)


def _wanted(bundle: Bundle) -> str:
    """Return the type that a bundle's devices must have, in its plain form; empty: any."""
    return plain_type(bundle.accelerator_type) if bundle.accelerator_type else ""


@dataclass(slots=True)
class _Free:
    """What is left of one node."""

    node: Node
    cpu: int
    memory: int
    custom: dict[str, int]
    devices: dict[str, dict[str, int]] = field(default_factory=dict)  # kind -> device id -> free units
    names: dict[str, frozenset[str]] = field(default_factory=dict)  # device id -> what it answers to
    num_hosts: int = 1  # of its TPU slice

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> dict[str, _Free]:
        """Return idle nodes by their ids."""
        nodes = list(nodes)
        hosts = Counter(node.slice_key for node in nodes)
        idle: dict[str, _Free] = {}
        for node in nodes:
            devices: dict[str, dict[str, int]] = {}
            for device in node.devices:
                devices.setdefault(device.kind, {})[device.id] = _UNIT
            custom = {name: units_of(amount) for name, amount in node.custom.items()}
            names = {device.id: device.names for device in node.devices}
            idle[node.id] = cls(node, units_of(node.cpus), node.memory, custom, devices, names, hosts[node.slice_key])
        return idle

    def whole(self, kind: str, wanted: str = "") -> int:
        """Number of devices of a kind, and of a type, that are wholly free."""
        if wanted:
            return len(self._idle(kind, wanted))
        return list(self.devices[kind].values()).count(_UNIT) if kind in self.devices else 0

    def gap(self, bundle: Bundle) -> tuple[int, ...]:
        """Return how much is free around the best block for a bundle's TPU chips: a smaller one breaks less."""
        if bundle.tpu not in _BLOCKS:  # a sum over bundles: no single block
            return ()
        blocks = self._blocks(int(bundle.tpu), _wanted(bundle))
        return min((around for around, _ in blocks), default=(2 * _BLOCKS[-1],))

    def ways(
        self, bundle: Bundle, used: _Used, distinct: bool, types: _Types = _ANY, together: int = 0
    ) -> Iterator[BundlePlacement]:
        """Yield the ways in which one bundle fits here now, best first; a way is for `add`.

        Args:
            used: what the same gang holds: other devices are preferred, or demanded if `distinct`.
            types: those that the same gang names. Devices that answer to the same ones of them are alike: of ways that
                differ by such devices only the best is yielded.
            together: units of all shares of the gang, which are to lie on as few devices as possible; 0: better apart.
        """
        if (bundle.cpu and units_of(bundle.cpu) > self.cpu) or (bundle.memory and bundle.memory > self.memory):
            return
        for name, amount in bundle.custom:
            if units_of(amount) > self.custom.get(name, 0):
                return
        if not bundle.gpu and not bundle.tpu:
            yield BundlePlacement(self.node.id)
            return
        for gpus in self._gpus(bundle, used, distinct, types, together):
            for chips in self._chips(bundle, types):
                yield BundlePlacement(self.node.id, gpus + chips)

    def _idle(self, kind: str, wanted: str) -> list[str]:
        idle = [device for device, units in self.devices.get(kind, {}).items() if units == _UNIT]
        return [device for device in idle if wanted in self.names[device]] if wanted else idle

    def _gpus(self, bundle: Bundle, used: _Used, distinct: bool, types: _Types, together: int) -> Iterator[_Shares]:
        if not bundle.gpu:
            yield ()
        elif bundle.gpu < 1:
            for device in self._with_room(bundle, used, distinct, types, together):
                yield ((device, bundle.gpu),)
        else:
            for devices in self._whole(int(bundle.gpu), self._idle("gpu", _wanted(bundle)), types):
                yield tuple([(device, 1.0) for device in devices])

    def _whole(self, number: int, idle: list[str], types: _Types) -> Iterator[list[str]]:
        """Yield `number` of some idle GPUs: the first ones, then the other mixtures of types."""
        if len(idle) >= number:
            yield idle[:number]
        alike: dict[frozenset[str], list[str]] = {}
        for device in idle if types else ():
            alike.setdefault(self.names[device] & types, []).append(device)
        for mixture in _mixtures([len(devices) for devices in alike.values()], number) if alike else ():
            taken = [devices[:count] for devices, count in zip(alike.values(), mixture, strict=True)]
            chosen = {device for devices in taken for device in devices}
            if chosen != set(idle[:number]):
                yield [device for device in idle if device in chosen]

    def _with_room(self, bundle: Bundle, used: _Used, distinct: bool, types: _Types, together: int) -> list[str]:
        """Return the GPUs with room for a share: those that the gang does not use first, then the fullest; or, for
        shares that are to lie together, those that it uses first, then those with room for most of them, the fullest of
        these. Of idle devices that are alike only the first."""
        need, wanted = units_of(bundle.gpu), _wanted(bundle)
        seen: set[frozenset[str]] = set()
        found: list[tuple[tuple[bool, int, int], str]] = []
        for device, units in self.devices.get("gpu", {}).items():
            is_used = (self.node.id, device) in used
            if units < need or (is_used and distinct) or (wanted and wanted not in self.names[device]):
                continue
            if units == _UNIT:
                kind = self.names[device] & types if types else _ANY
                if kind in seen:
                    continue
                seen.add(kind)
            rank = (not is_used, max(0, together - units), units) if together else (is_used, 0, units)
            found.append((rank, device))
        return [device for _, device in sorted(found, key=lambda item: item[0])]

    def _chips(self, bundle: Bundle, types: _Types) -> Iterator[_Shares]:
        """Yield blocks of TPU chips: the one that breaks the least, and the others only where chips are not alike."""
        if not bundle.tpu:
            yield ()
            return
        blocks = sorted(self._blocks(int(bundle.tpu), _wanted(bundle)), key=lambda block: block[0])
        if types and len({self.names[chip] & types for chip in self.devices.get("tpu", {})}) > 1:
            yield from (block for _, block in blocks)
        elif blocks:
            yield blocks[0][1]

    def _blocks(self, count: int, wanted: str) -> Iterator[tuple[tuple[int, ...], _Shares]]:
        """Yield the free aligned blocks of `count` adjacent chips, each behind how many chips are free in the larger
        blocks around it: the smallest number first fills what is broken already."""
        chips = self.devices.get("tpu", {})
        names = list(chips)
        free = [units == _UNIT for units in chips.values()]
        for start in range(0, len(names) - count + 1, count):
            block = names[start : start + count]
            if all(free[start : start + count]) and (not wanted or all(wanted in self.names[chip] for chip in block)):
                around = [sum(free[start // size * size :][:size]) for size in _BLOCKS if size > count]
                yield tuple(around), tuple([(chip, 1.0) for chip in block])

    def add(self, bundle: Bundle, placement: BundlePlacement, sign: int) -> None:
        """Put one bundle back (+1), or take what a way names (-1), also below zero: a node may have shrunk under its
        trials, and devices that it no longer has are forgotten."""
        self.cpu += sign * units_of(bundle.cpu)
        self.memory += sign * bundle.memory
        for name, amount in bundle.custom:
            self.custom[name] = self.custom.get(name, 0) + sign * units_of(amount)
        for device, share in placement.devices:
            for units in self.devices.values():
                if device in units:
                    units[device] += sign * units_of(share)


def _mixtures(sizes: Sequence[int], number: int) -> Iterator[tuple[int, ...]]:
    """Yield how many to take of each group to take `number` in all, as many of the first ones as possible first."""
    if not sizes:
        if not number:
            yield ()
        return
    for count in range(min(sizes[0], number), -1, -1):
        for rest in _mixtures(sizes[1:], number - count):
            yield (count, *rest)


class Packer:
    """Keep account of what every trial holds, and place whole requests.

    Placement searches first-fit in an order that depends on the request's strategy, with bounded backtracking, so a
    gang that fits an idle machine is always placed when the machine is idle.
    """

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._nodes: dict[str, _Free] = {}
        self._held: dict[Holder, tuple[Resources, Placement]] = {}
        self._notes: dict[Holder, str] = {}
        self._exclusive: dict[str, Holder] = {}  # node -> its only holder
        self._full: set[Resources] = set()  # requests known not to fit until something is given back
        self._ever: dict[Resources, bool] = {}
        self._whys: dict[Resources, str] = {}  # as long as nothing changes hands
        self.set_nodes(nodes)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The inventory."""
        return tuple(free.node for free in self._nodes.values())

    def set_nodes(self, nodes: Iterable[Node]) -> None:
        """Take a new inventory; what is held stays held where its node still exists."""
        self._nodes = _Free.of(nodes)
        for resources, placement in self._held.values():
            self._add(resources, placement, -1)
        self._full.clear()
        self._ever.clear()
        self._whys.clear()

    def place(self, resources: Resources, holder: Holder) -> Placement | None:
        """Reserve room for one trial, or return None if it does not fit now.

        Whole GPUs come from the node with the fewest free ones that suffice, so that large gaps stay large; a share
        below 1 goes to the fullest device that still has room, but on other devices than the rest of its gang where
        that is possible, or, if the gang is to share devices, on the same ones. TPU chips are given out in aligned
        blocks of adjacent ones, from what is partly used first.
        Nothing is reserved when None is returned.

        Args:
            holder: trial id and attempt; what `release` will be given.
        """
        placement = self._find(resources)
        if placement is None:
            return None
        self._held[holder] = (resources, placement)
        if resources.alone:
            self._exclusive.update(dict.fromkeys([place.node for place in placement.bundles], holder))
        self._whys.clear()
        return placement

    def fits_now(self, resources: Resources) -> bool:
        """Whether `place` would succeed now."""
        placement = self._find(resources)
        if placement is not None:
            self._add(resources, placement, +1)
        return placement is not None

    def _find(self, resources: Resources) -> Placement | None:
        """Take room for a request, or note that there is none."""
        placement = None if resources in self._full else _search(resources, self._open(resources))
        if placement is None:
            self._full.add(resources)
        return placement

    def hold(self, resources: Resources, placement: Placement, holder: Holder) -> None:
        """Count as taken what a trial holds already."""
        self._held[holder] = (resources, placement)
        self._add(resources, placement, -1)

    def _add(self, resources: Resources, placement: Placement, sign: int) -> None:
        """Give back (+1) or take (-1) what a placement names; a node that is gone gets nothing back."""
        for bundle, place in zip(resources.bundles, placement.bundles, strict=True):
            if place.node in self._nodes:
                self._nodes[place.node].add(bundle, place, sign)

    def release(self, holder: Holder) -> bool:
        """Give back what `holder` holds; False if it holds nothing. A node that is gone gets nothing back."""
        held = self._held.pop(holder, None)
        self._notes.pop(holder, None)
        if held is None:
            return False
        resources, placement = held
        self._add(resources, placement, +1)
        if resources.alone:
            self._exclusive = {node: other for node, other in self._exclusive.items() if other != holder}
        self._full.clear()
        self._whys.clear()
        return True

    def _open(self, resources: Resources) -> dict[str, _Free]:
        """Return the nodes that a request may lie on now: not those held exclusively; empty ones if it is exclusive."""
        if resources.alone:
            taken = {place.node for _, placement in self._held.values() for place in placement.bundles}
            return {name: free for name, free in self._nodes.items() if name not in taken}
        if self._exclusive:
            return {name: free for name, free in self._nodes.items() if name not in self._exclusive}
        return self._nodes

    def could_ever_fit(self, resources: Resources) -> bool:
        """Whether the request fits the idle inventory."""
        if resources not in self._ever:
            self._ever[resources] = _search(resources, _Free.of(self.nodes)) is not None
        return self._ever[resources]

    def why_not(self, resources: Resources) -> str:
        """Return what the request waits for now and which trials hold it, in one line."""
        if resources not in self._whys:
            self._whys[resources] = self._why_not(resources)
        return self._whys[resources]

    def _why_not(self, resources: Resources) -> str:
        if not self.could_ever_fit(resources):
            return "never"
        if resources.alone:
            return "waits until nothing else runs on its node, to run alone after it ran out of memory"
        parts = []
        for name, of_type, need in resources.needs():
            have = sum(node.amount(name, of_type) for node in self.nodes)
            amounts = {holder: self._held_by(holder, name, of_type) for holder in self._held}
            held = sum(amounts.values())
            if need > have - held + 1e-9:
                holders = [holder for holder, amount in amounts.items() if amount]
                shown = ", ".join(holder[0].rpartition("_")[2] + self._notes.get(holder, "") for holder in holders[:4])
                more = f" and {len(holders) - 4} more" if len(holders) > 4 else ""
                free = max(have - held, 0.0)
                there = f"{format_amount(name, free)} of {format_amount(name, have)} free"
                parts.append(f"waits for {format_request(name, need, of_type)}; {there}")
                if shown:
                    parts[-1] += f", the rest held by {shown}{more}"
        if not parts and self._exclusive:
            by = ", ".join(sorted({holder[0].rpartition("_")[2] for holder in self._exclusive.values()}))
            return f"waits for {by}, which runs alone after it ran out of memory"
        return "; ".join(parts) or f"waits for {resources} in one piece; what is free is scattered"

    def _held_by(self, holder: Holder, name: str, of_type: str) -> float:
        """Return how much of something a holder has, of devices only those of a type where one is given."""
        resources, placement = self._held[holder]
        if not of_type:
            return resources.total.amount(name)
        wanted = plain_type(of_type)
        devices = {(n.id, d.id) for n in self.nodes for d in n.devices if d.kind == name and wanted in d.names}
        return sum(
            [share for place in placement.bundles for device, share in place.devices if (place.node, device) in devices]
        )


def _search(resources: Resources, nodes: dict[str, _Free]) -> Placement | None:
    """Place all bundles (and keep them placed), or none and return None."""
    if len(resources.bundles) == 1:
        (bundle,) = resources.bundles
        for free in _ordered(bundle, nodes.values(), resources.strategy, ()):
            for way in free.ways(bundle, frozenset(), False):
                free.add(bundle, way, -1)
                return Placement((way,))
        return None
    if len(nodes) > 1 and not _is_enough(resources, nodes.values()):
        return None
    if resources.strategy in ("PACK", "STRICT_PACK"):
        for free in _in_order(resources, nodes.values()):
            placement = _Layout(resources, {free.node.id: free}).find() if _is_enough(resources, (free,)) else None
            if placement is not None:
                return placement
        if resources.strategy == "STRICT_PACK":
            return None
    return _Layout(resources, nodes).find()


def _in_order(resources: Resources, nodes: Iterable[_Free]) -> list[_Free]:
    """Return the nodes on which a whole gang may be packed, best first: the tightest, but before a node that would
    scatter shares that are to lie together, one that does not."""
    ordered = _ordered(resources.total, nodes, "PACK", ())
    if not resources.shared_devices or len(ordered) == 1:
        return ordered
    shares = sorted([units_of(bundle.gpu) for bundle in resources.bundles if 0 < bundle.gpu < 1], reverse=True)
    fewest = _count_used(shares, [_UNIT] * len(shares))
    return sorted(
        ordered,
        key=lambda free: _count_used(shares, sorted(free.devices.get("gpu", {}).values(), reverse=True)) > fewest,
    )


def _count_used(shares: Sequence[int], left: Sequence[int]) -> int:
    """Return on how many devices shares come to lie if each goes to the first with room for it; without room: on one of
    its own."""
    left, used = list(left), set()
    for number, share in enumerate(shares):
        place = next((index for index, units in enumerate(left) if units >= share), -1 - number)
        used.add(place)
        if place >= 0:
            left[place] -= share
    return len(used)


def _is_enough(resources: Resources, nodes: Collection[_Free]) -> bool:
    """Whether nodes have in all what a gang needs in all: a quick check, without which a search would be in vain."""
    total, lost = resources.total, len(resources.bundles)  # rounding down takes less than a unit from each bundle
    if total.cpu * _UNIT - lost > sum([max(free.cpu, 0) for free in nodes]):
        return False
    for kind, need in (("gpu", total.gpu), ("tpu", total.tpu)):
        if need:
            left = [units for free in nodes for units in free.devices.get(kind, {}).values() if units > 0]
            own = sum([math.ceil(b.amount(kind)) for b in resources.bundles]) if resources.distinct_devices else 0
            if need * _UNIT - lost > sum(left) or own > len(left):
                return False
    return True


class _Layout:
    """One search for room for a whole gang: depth first over bundles (largest first), nodes and devices, at most
    `_SEARCH_LIMIT` steps; what it finds it holds."""

    def __init__(self, resources: Resources, nodes: dict[str, _Free]) -> None:
        self._resources = resources
        shares = [units_of(bundle.gpu) for bundle in resources.bundles if 0 < bundle.gpu < 1]
        self._together = sum(shares) if resources.shared_devices else 0
        self._bundles = resources.bundles
        self._nodes = nodes
        self._types: _Types = frozenset(_wanted(bundle) for bundle in self._bundles) - {""}
        self._placed: dict[int, BundlePlacement] = {}
        self._barred: set[tuple[Bundle, BundlePlacement]] = set()  # what cannot be a part of any solution
        self._room: dict[tuple[str, tuple[Bundle, ...]], int] = {}  # how many of some bundles fit on a node
        self._tries = 0

    def find(self) -> Placement | None:
        """Hold room for all bundles and return it, or hold nothing and return None."""
        everything = range(len(self._bundles))
        if self._resources.bundles_per_slice:
            is_found = self._find_with_slices()
        else:
            is_found = self._descend(self._by_size(everything), self._nodes, frozenset(), ())
        return Placement(tuple([self._placed[index] for index in everything])) if is_found else None

    def _by_size(self, indices: Iterable[int]) -> list[int]:
        return sorted(indices, key=lambda index: _size(self._bundles[index]), reverse=True)

    def _descend(
        self,
        order: Sequence[int],
        nodes: dict[str, _Free],
        used: _Used,
        on: tuple[str, ...],
        finish: Callable[[_Used, tuple[str, ...]], bool] | None = None,
        depth: int = 0,
    ) -> bool:
        """Place the bundles of `order` from `depth` on, so that `finish` succeeds after the last; else place none."""
        if depth == len(order):
            return finish is None or finish(used, on)
        index, strategy = order[depth], self._resources.strategy
        bundle = self._bundles[index]
        failed: list[tuple[Bundle, BundlePlacement]] = []
        try:
            for free in _ordered(bundle, nodes.values(), strategy, on):
                if strategy == "STRICT_SPREAD" and free.node.id in on:
                    continue
                for way in free.ways(bundle, used, self._resources.distinct_devices, self._types, self._together):
                    if self._barred and (bundle, way) in self._barred:
                        continue
                    self._tries += 1
                    if self._tries > _SEARCH_LIMIT:
                        return False
                    free.add(bundle, way, -1)
                    self._placed[index] = way
                    now_used = used | {(way.node, device) for device, _ in way.devices} if way.devices else used
                    if self._descend(order, nodes, now_used, (*on, way.node), finish, depth + 1):
                        return True
                    self._give(index)
                    # Equal bundles could change places: what failed for this one need not be tried for the next.
                    failed.append((bundle, way))
                    self._barred.add((bundle, way))
            return False
        finally:
            self._barred.difference_update(failed)

    def _give(self, index: int) -> None:
        way = self._placed.pop(index)
        self._nodes[way.node].add(self._bundles[index], way, +1)

    # --- TPU slices --------------------------------------------------------------------------------------------------

    def _find_with_slices(self) -> bool:
        """Fill the slices and then place the other bundles, near them if the strategy packs; where the slices took what
        the others need, the others go first."""
        others = self._by_size(index for index, bundle in enumerate(self._bundles) if not bundle.tpu)
        if not self._fill_slices(frozenset(), ()):
            return False
        ways = [self._placed[index] for run in self._resources.slice_runs for index in run]
        used = {(way.node, device) for way in ways for device, _ in way.devices}
        if self._descend(others, self._nodes, used, tuple([way.node for way in ways])):
            return True
        for index in list(self._placed):
            self._give(index)
        self._tries = 0
        return self._descend(others, self._nodes, frozenset(), (), self._fill_slices)

    def _fill_slices(self, used: _Used, on: tuple[str, ...]) -> bool:
        """Place each run of bundles on a slice of its own, the smallest that will do; or place none."""
        by_slice: dict[tuple[bool, str], list[_Free]] = {}
        for free in self._nodes.values():
            if free.whole("tpu"):
                by_slice.setdefault(free.node.slice_key, []).append(free)
        slices = sorted(by_slice.values(), key=lambda hosts: sum(free.whole("tpu") for free in hosts))
        self._tries += len(self._nodes)
        self._room.clear()
        # A run touches no slice but its own, so where it can lie is found out for each run alone, and once for equals.
        runs = self._resources.slice_runs
        kinds = [tuple([self._bundles[index] for index in run]) for run in runs]
        options = {
            kind: {n: counts for n, hosts in enumerate(slices) if (counts := self._counts(run, hosts, used, on))}
            for kind, run in dict(zip(kinds, runs, strict=True)).items()
        }
        chosen = _match([list(options[kind]) for kind in kinds])
        if chosen is None:
            return False
        for kind, run, number in zip(kinds, runs, chosen, strict=True):
            start = 0
            for free, count in zip(slices[number], options[kind][number], strict=True):
                self._put(free, run[start : start + count], used)
                start += count
        return True

    def _counts(self, run: Sequence[int], hosts: Sequence[_Free], used: _Used, on: tuple[str, ...]) -> list[int]:
        """Return how many bundles of a run to put on each host of a slice, in order; empty if there is too little room.

        Dynamic programming over the hosts: of what the earlier ones hold only the number of bundles matters. Packing
        looks for few hosts, spreading for equal numbers; of what is equal in that the early hosts are better.
        """
        strategy, fewest = self._resources.strategy, min(self._bundles[index].tpu for index in run)
        most = [int(free.whole("tpu") // fewest) for free in hosts]
        best: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}  # bundles so far -> cost, minus how many on each
        for number, free in enumerate(hosts):
            following: dict[int, tuple[int, tuple[int, ...]]] = {}
            before, later = on.count(free.node.id), sum(most[number + 1 :])
            for start, (cost, counts) in best.items():
                window = run[start : start + most[number]]
                if strategy == "STRICT_SPREAD":
                    window = window[: 1 - min(before, 1)]
                for count in range(max(0, len(run) - start - later), self._fitting(free, window, used) + 1):
                    price = int(count > 0 and not before) if "PACK" in strategy else count * (2 * before + count)
                    candidate = (cost + price, (*counts, -count))
                    following[start + count] = min(candidate, following.get(start + count, candidate))
            best = following
        return [-count for count in best[len(run)][1]] if len(run) in best else []

    def _fitting(self, free: _Free, run: Sequence[int], used: _Used) -> int:
        """Return how many bundles from the beginning of a run fit on one host."""
        key = (free.node.id, tuple([self._bundles[index] for index in run]))
        if key not in self._room:
            self._room[key] = 0
            while self._room[key] < len(run) and self._put(free, run[: self._room[key] + 1], used):
                self._room[key] += 1
                for index in run[: self._room[key]]:
                    self._give(index)
        return self._room[key]

    def _put(self, free: _Free, run: Sequence[int], used: _Used) -> bool:
        """Place some bundles on one host, of equal ones the first on the first chips; or place none."""
        tries, self._tries = self._tries, 0  # of this small search
        is_put = self._descend(self._by_size(run), {free.node.id: free}, used, ())
        self._tries = tries
        if is_put:
            position = {chip: place for place, chip in enumerate(free.devices["tpu"])}
            for bundle in dict.fromkeys(self._bundles[index] for index in run):
                equal = [index for index in run if self._bundles[index] == bundle]
                ways = [self._placed[index] for index in equal]
                ways.sort(key=lambda way: [position[device] for device, _ in way.devices if device in position])
                self._placed.update(zip(equal, ways, strict=True))
        return is_put


def _match(options: Sequence[Sequence[int]]) -> list[int] | None:
    """Return for each run an option that no other run gets, early ones where possible; None if there is no way. (A
    maximum matching by augmenting paths.)"""
    taken: dict[int, int] = {}

    def take(run: int, tried: set[int]) -> bool:
        free = next((option for option in options[run] if option not in taken), None)
        if free is not None:
            taken[free] = run
            return True
        for option in options[run]:
            if option not in tried:
                tried.add(option)
                if take(taken[option], tried):
                    taken[option] = run
                    return True
        return False

    if not all(take(run, set()) for run in range(len(options))):
        return None
    by_run = {run: option for option, run in taken.items()}
    return [by_run[run] for run in range(len(options))]


def _ordered(bundle: Bundle, nodes: Iterable[_Free], strategy: str, on: tuple[str, ...]) -> list[_Free]:
    """Return nodes, best first: for packing the tightest (used ones first), for spreading the emptiest unused ones."""
    nodes = list(nodes)
    if len(nodes) == 1:
        return nodes
    wanted = _wanted(bundle)

    def rank(free: _Free) -> tuple[Any, ...]:
        if strategy in ("SPREAD", "STRICT_SPREAD"):
            kind = "tpu" if bundle.tpu and not bundle.gpu else "gpu"
            return on.count(free.node.id), -free.whole(kind, wanted), -free.cpu
        is_new = free.node.id not in on
        if bundle.gpu:
            return is_new, free.whole("gpu", wanted), free.cpu
        if bundle.tpu:
            return is_new, free.gap(bundle), free.num_hosts, free.whole("tpu", wanted), free.cpu
        # A request without devices keeps away from nodes whose devices others may still need.
        return is_new, free.whole("gpu") + free.whole("tpu"), free.cpu

    return sorted(nodes, key=rank)


def _size(bundle: Bundle) -> tuple[float, ...]:
    """Return what is placed first: what needs most devices, and of equals those that not every device will do for."""
    custom = sum(amount for _, amount in bundle.custom)
    return (bundle.gpu, bundle.tpu, bool(bundle.accelerator_type), bundle.cpu, float(bundle.memory), custom)
