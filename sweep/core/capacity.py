"""What is left of the machines: per node, and per kind of request the nodes that have room; who holds how much.

The cost of a placement must not grow with nodes that cannot take it. So the first search for a kind of request looks at
all nodes and puts those with room on a *shelf*, in the order in which they are to be tried; from then on only nodes of
which something was taken, or to which something was given back, are looked at again.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from sweep.core.resources import (
    UNIT,
    Bundle,
    BundlePlacement,
    Node,
    Placement,
    Resources,
    bare_bundle,
    plain_type,
    units_of,
)

# How many TPU chips make a block; each larger one consists of two of the smaller.
BLOCKS = (1, 2, 4, 8)
# How many kinds of requests have a shelf; each costs something with every placement.
_MOST_SHELVES = 128

_Shares = tuple[tuple[str, float], ...]  # devices of one node, and how much of each
Used = Set[tuple[str, str]]  # (node, device) pairs
Part = tuple[str, str, int]  # of a node: what of, the device if it is of one, and how many units; for `Free.shift`
Types = frozenset[str]  # accelerator types in lower case
ANY: Types = frozenset()
_ALONE, _KEPT = 1, 2  # of a view: a request that is to be alone, and the one that nodes are kept for
_MANY = 1 << 60  # more than there is room for, of what needs nothing


def accelerator_of(bundle: Bundle) -> str:
    """Return the type that a bundle's devices must have, in its plain form; empty: any."""
    return plain_type(bundle.accelerator_type) if bundle.accelerator_type else ""


class Need:
    """What one bundle asks for, counted as nodes count it."""

    __slots__ = ("bundle", "cpu", "gpus", "has_cpu", "has_share", "others", "share", "wanted")

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.has_cpu, self.cpu = bool(bundle.cpu), units_of(bundle.cpu)
        self.has_share = 0 < bundle.gpu < 1
        self.share, self.gpus = units_of(bundle.gpu) if self.has_share else 0, int(bundle.gpu)
        self.others = bool(bundle.memory or bundle.custom or bundle.tpu)
        self.wanted = accelerator_of(bundle)


@dataclass(slots=True)
class Free:
    """What is left of one node."""

    node: Node
    cpu: int
    memory: int
    custom: dict[str, int]
    devices: dict[str, dict[str, int]] = field(default_factory=dict)  # kind -> device id -> free units
    names: dict[str, frozenset[str]] = field(default_factory=dict)  # device id -> what it answers to
    num_hosts: int = 1  # of its TPU slice
    load: int = 0  # how many bundles lie on it
    idle: dict[str, int] = field(default_factory=dict, compare=False)  # kind -> devices wholly free, as far as counted
    position: int = field(default=0, compare=False)  # among all nodes
    watches: Sequence[set[int]] = field(default=(), compare=False, repr=False)  # what wants to hear of its changes

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> dict[str, Free]:
        """Return idle nodes by their ids."""
        nodes = list(nodes)
        hosts = Counter(node.slice_key for node in nodes)
        idle: dict[str, Free] = {}
        for node in nodes:
            devices: dict[str, dict[str, int]] = {}
            for device in node.devices:
                devices.setdefault(device.kind, {})[device.id] = UNIT
            custom = {name: units_of(amount) for name, amount in node.custom.items()}
            names = {device.id: device.names for device in node.devices}
            cpu, num_hosts = units_of(node.cpus), hosts[node.slice_key]
            idle[node.id] = cls(node, cpu, node.memory, custom, devices, names, num_hosts)
        return idle

    def whole(self, kind: str, wanted: str = "") -> int:
        """Number of devices of a kind, and of a type, that are wholly free."""
        if wanted:
            return len(self._idle(kind, wanted))
        number = self.idle.get(kind)
        if number is None:
            number = self.idle[kind] = list(self.devices.get(kind, {}).values()).count(UNIT)
        return number

    def room(self, need: Need) -> int:
        """Return how many of a bundle fit if nothing else does; 0 exactly where `ways` has none for it alone.

        Each one that is placed, in whichever way, leaves room for exactly one less.
        """
        most = _MANY
        if need.has_cpu:
            if need.cpu > self.cpu:
                return 0
            if need.cpu:
                most = self.cpu // need.cpu
        if need.others and not (most := min(most, self._room_for_others(need))):
            return 0
        if need.gpus:
            return min(most, self.whole("gpu", need.wanted) // need.gpus)
        if need.has_share:
            return min(most, self._room_for_shares(need.share, need.wanted))
        return most

    def _room_for_others(self, need: Need) -> int:
        """Return how often memory, custom resources and TPU chips suffice."""
        most, bundle = _MANY, need.bundle
        amounts = [(units_of(amount), self.custom.get(name, 0)) for name, amount in bundle.custom]
        for needed, have in [(bundle.memory, self.memory), *amounts] if bundle.memory else amounts:
            if needed > have:
                return 0
            if needed:
                most = min(most, have // needed)
        return min(most, sum(1 for _ in self._blocks(int(bundle.tpu), need.wanted))) if bundle.tpu else most

    def _room_for_shares(self, share: int, wanted: str) -> int:
        room = 0
        for device, units in self.devices.get("gpu", {}).items():
            if units >= share and (not wanted or wanted in self.names[device]):
                room += units // share if share else _MANY
        return room

    def left(self) -> tuple[int, ...]:
        """Return what is left in all: CPU, units of GPUs, GPUs with something left, units of TPU chips, such chips."""
        found = [max(self.cpu, 0)]
        for kind in ("gpu", "tpu"):
            units = [units for units in self.devices.get(kind, {}).values() if units > 0]
            found += [sum(units), len(units)]
        return tuple(found)

    def rank(self, need: Need, is_spread: bool) -> tuple[Any, ...]:
        """Return what nodes are tried by for a bundle, the least first: for packing the tightest, for spreading the
        emptiest."""
        bundle, wanted = need.bundle, need.wanted
        if is_spread:
            kind = "tpu" if bundle.tpu and not bundle.gpu else "gpu"
            return -self.whole(kind, wanted), -self.cpu
        if bundle.gpu:
            return self.whole("gpu", wanted), self.cpu
        if bundle.tpu:
            return self.gap(bundle), self.num_hosts, self.whole("tpu", wanted), self.cpu
        # A request without devices keeps away from nodes whose devices others may still need.
        return self.whole("gpu") + self.whole("tpu"), self.cpu

    def gap(self, bundle: Bundle) -> tuple[int, ...]:
        """Return how much is free around the best block for a bundle's TPU chips: a smaller one breaks less."""
        if bundle.tpu not in BLOCKS:  # a sum over bundles: no single block
            return ()
        blocks = self._blocks(int(bundle.tpu), accelerator_of(bundle))
        return min((around for around, _ in blocks), default=(2 * BLOCKS[-1],))

    def ways(
        self, bundle: Bundle, used: Used, distinct: bool, types: Types = ANY, together: int = 0
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
            yield bare_bundle(self.node.id)
            return
        for gpus in self._gpus(bundle, used, distinct, types, together):
            for chips in self._chips(bundle, types):
                yield BundlePlacement(self.node.id, gpus + chips)

    def _idle(self, kind: str, wanted: str) -> list[str]:
        idle = [device for device, units in self.devices.get(kind, {}).items() if units == UNIT]
        return [device for device in idle if wanted in self.names[device]] if wanted else idle

    def _gpus(self, bundle: Bundle, used: Used, distinct: bool, types: Types, together: int) -> Iterator[_Shares]:
        if not bundle.gpu:
            yield ()
        elif bundle.gpu < 1:
            for device in self._with_room(bundle, used, distinct, types, together):
                yield ((device, bundle.gpu),)
        else:
            for devices in self._whole(int(bundle.gpu), self._idle("gpu", accelerator_of(bundle)), types):
                yield tuple([(device, 1.0) for device in devices])

    def _whole(self, number: int, idle: list[str], types: Types) -> Iterator[list[str]]:
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

    def _with_room(self, bundle: Bundle, used: Used, distinct: bool, types: Types, together: int) -> list[str]:
        """Return the GPUs with room for a share: those that the gang does not use first, then the fullest; or, for
        shares that are to lie together, those that it uses first, then those with room for most of them, the fullest of
        these. Of idle devices that are alike only the first."""
        need, wanted = units_of(bundle.gpu), accelerator_of(bundle)
        seen: set[frozenset[str]] = set()
        found: list[tuple[tuple[bool, int, int], str]] = []
        for device, units in self.devices.get("gpu", {}).items():
            is_used = (self.node.id, device) in used
            if units < need or (is_used and distinct) or (wanted and wanted not in self.names[device]):
                continue
            if units == UNIT:
                kind = self.names[device] & types if types else ANY
                if kind in seen:
                    continue
                seen.add(kind)
            rank = (not is_used, max(0, together - units), units) if together else (is_used, 0, units)
            found.append((rank, device))
        return [device for _, device in sorted(found, key=lambda item: item[0])]

    def _chips(self, bundle: Bundle, types: Types) -> Iterator[_Shares]:
        """Yield blocks of TPU chips: the one that breaks the least, and the others only where chips are not alike."""
        if not bundle.tpu:
            yield ()
            return
        blocks = sorted(self._blocks(int(bundle.tpu), accelerator_of(bundle)), key=lambda block: block[0])
        if types and len({self.names[chip] & types for chip in self.devices.get("tpu", {})}) > 1:
            yield from (block for _, block in blocks)
        elif blocks:
            yield blocks[0][1]

    def _blocks(self, count: int, wanted: str) -> Iterator[tuple[tuple[int, ...], _Shares]]:
        """Yield the free aligned blocks of `count` adjacent chips, each behind how many chips are free in the larger
        blocks around it: the smallest number first fills what is broken already."""
        chips = self.devices.get("tpu", {})
        names = list(chips)
        free = [units == UNIT for units in chips.values()]
        for start in range(0, len(names) - count + 1, count):
            block = names[start : start + count]
            if all(free[start : start + count]) and (not wanted or all(wanted in self.names[chip] for chip in block)):
                around = [sum(free[start // size * size :][:size]) for size in BLOCKS if size > count]
                yield tuple(around), tuple([(chip, 1.0) for chip in block])

    def add(self, bundle: Bundle, placement: BundlePlacement, sign: int) -> None:
        """Put one bundle back (+1), or take what a way names (-1), also below zero: a node may have shrunk under its
        trials, and devices that it no longer has are forgotten."""
        for watch in self.watches:
            watch.add(self.position)
        self.load -= sign
        if placement.devices:
            self.idle.clear()
        self.cpu += sign * units_of(bundle.cpu)
        self.memory += sign * bundle.memory
        for name, amount in bundle.custom:
            self.custom[name] = self.custom.get(name, 0) + sign * units_of(amount)
        for device, share in placement.devices:
            for units in self.devices.values():
                if device in units:
                    units[device] += sign * units_of(share)

    def shift(self, name: str, device: str, units: int) -> None:
        """Add to what is free of a device, or of an amount where none is named."""
        for watch in self.watches:
            watch.add(self.position)
        if device:
            self.idle.clear()
            self.devices[name][device] += units
        elif name == "cpu":
            self.cpu += units
        elif name == "memory":
            self.memory += units
        else:
            self.custom[name] = self.custom.get(name, 0) + units

    def promised(self, name: str, of_type: str, amount: int) -> Iterator[Part]:
        """Yield what is free here and promised to a sweep that has waited longer: as much as it asks for. Of GPUs those
        that are freest, so that they become freer yet; of TPU chips all, because a block of them is needed."""
        if name not in ("gpu", "tpu"):
            yield name, "", amount
            return
        wanted = plain_type(of_type)
        free = {device: units for device, units in self.devices.get(name, {}).items() if units > 0}
        fitting = [device for device in free if not wanted or wanted in self.names[device]]
        fitting.sort(key=lambda device: -free[device])
        for device in fitting[: amount if name == "gpu" else len(fitting)]:
            yield name, device, free[device]


def _mixtures(sizes: Sequence[int], number: int) -> Iterator[tuple[int, ...]]:
    """Yield how many to take of each group to take `number` in all, as many of the first ones as possible first."""
    if not sizes:
        if not number:
            yield ()
        return
    for count in range(min(sizes[0], number), -1, -1):
        for rest in _mixtures(sizes[1:], number - count):
            yield (count, *rest)


Look = Callable[[Free], tuple[int, tuple[Any, ...]]]  # for how many there is room, and a rank


class Shelf:
    """The nodes that have room for something, best first; what changed since is looked at when they are asked for.

    Args:
        places: all nodes, by position.
        look: returns how many there is room for on a node, and what it is ranked by.
        need: of the bundle that it is for.

    Attributes:
        changed: positions of nodes that may have changed.
        total: the sum of what there is room for.
    """

    def __init__(self, places: Sequence[Free], look: Look, need: Need | None = None) -> None:
        self.changed = set(range(len(places)))
        self.total = 0
        self.need = need or Need(Bundle())
        self._places, self._look = places, look
        self._order: list[tuple[Any, ...]] = []  # (*rank, position) of those with room, sorted
        self._keys: list[tuple[Any, ...] | None] = [None] * len(places)
        self._rooms = [0] * len(places)

    def refresh(self) -> Shelf:
        """Look at what may have changed; returns itself."""
        if not self.changed:
            return self
        is_rebuilt = len(self.changed) > 64  # then sorting all costs less than as many insertions
        for position in self.changed:
            room, rank = self._look(self._places[position])
            self.total += room - self._rooms[position]
            self._rooms[position] = room
            key, old = ((*rank, position) if room else None), self._keys[position]
            if key != old:
                self._keys[position] = key
                if not is_rebuilt:
                    self._move(old, key)
        if is_rebuilt:
            self._order = sorted(key for key in self._keys if key is not None)
        self.changed.clear()
        return self

    def _move(self, old: tuple[Any, ...] | None, new: tuple[Any, ...] | None) -> None:
        if old is not None:
            del self._order[bisect_left(self._order, old)]
        if new is not None:
            insort(self._order, new)

    def __len__(self) -> int:
        return len(self.refresh()._order)

    def __iter__(self) -> Iterator[Free]:
        """Yield nodes, best first. What is taken from one must be given back to it before the next is asked for."""
        key: tuple[Any, ...] = ()
        while True:
            order = self.refresh()._order
            index = bisect_right(order, key)
            if index == len(order):
                return
            key = order[index]
            yield self._places[key[-1]]

    def drop(self, free: Free) -> None:
        """Take a node off until it changes, because it was tried in vain."""
        self._move(self._keys[free.position], None)
        self.total -= self._rooms[free.position]
        self._keys[free.position], self._rooms[free.position] = None, 0
        self.changed.discard(free.position)


class _Sum:
    """What is left in all of the nodes that are open."""

    def __init__(self, places: Sequence[Free], is_open: Callable[[Free], bool]) -> None:
        self.changed = set(range(len(places)))
        self._places, self._is_open = places, is_open
        self._parts: list[tuple[int, ...]] = [(0,) * 6] * len(places)
        self._left = [0] * 6

    def left(self) -> Sequence[int]:
        """Return what `Free.left` does, and behind it the number of nodes."""
        for position in self.changed:
            free = self._places[position]
            now, before = (*free.left(), 1) if self._is_open(free) else (0,) * 6, self._parts[position]
            if now != before:
                self._left = [a + b - c for a, b, c in zip(self._left, now, before, strict=True)]
                self._parts[position] = now
        self.changed.clear()
        return self._left


class OneNode:
    """One node as a capacity of its own, for a gang that is to lie there as a whole."""

    def __init__(self, free: Free) -> None:
        self.nodes = {free.node.id: free}
        self._free = free

    def best(self, bundle: Bundle, resources: Resources, on: Sequence[str] = ()) -> Iterator[Free]:
        yield self._free

    def with_chips(self, resources: Resources, on: Collection[str] = ()) -> tuple[list[Free], int]:
        return [self._free] if self._free.whole("tpu") else [], 1


class Capacity:
    """Nodes, and where on them something fits.

    Args:
        nodes: by their ids; they belong to this capacity from now on.
        closed: ids of nodes on which nothing else may be placed; `touch` says when that changes.

    Attributes:
        kept: ids of nodes on which nothing but `kept_for` may be placed.
    """

    def __init__(self, nodes: dict[str, Free], closed: Collection[str] = ()) -> None:
        self.nodes = nodes
        self.kept: frozenset[str] = frozenset()
        self.kept_for: Resources | None = None
        self._closed = closed
        self._places = list(nodes.values())
        self._shelves: dict[Any, Shelf] = {}
        self._sums: dict[int, _Sum] = {}
        self._watches: list[set[int]] = []
        for position, free in enumerate(self._places):
            free.position, free.watches = position, self._watches

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> Capacity:
        """Return the capacity of idle nodes."""
        return cls(Free.of(nodes))

    def touch(self, names: Iterable[str]) -> None:
        """Note that nodes were closed or opened."""
        for name in names:
            if name in self.nodes:
                for watch in self._watches:
                    watch.add(self.nodes[name].position)

    def tidy(self) -> None:
        """Forget the oldest shelves where there are too many; only between searches."""
        if len(self._shelves) > _MOST_SHELVES:
            for key in list(self._shelves)[: _MOST_SHELVES // 2]:
                watch = self._shelves.pop(key).changed
                self._watches[:] = [other for other in self._watches if other is not watch]

    def keep(self, names: Iterable[str], resources: Resources | None) -> None:
        """Keep some nodes, and no others, for a request."""
        before, self.kept, self.kept_for = self.kept, frozenset(names), resources
        self.touch(before ^ self.kept)

    def best(self, bundle: Bundle, resources: Resources, on: Sequence[str] = ()) -> Iterator[Free]:
        """Yield the nodes that may have room for a bundle, best first: for packing those that the gang is on, for
        spreading those that it is on least. What is taken from one must be given back before the next is asked for.

        Args:
            resources: the whole gang.
            on: the nodes that it is on, once for each bundle.
        """
        view, strategy = self._view(resources), resources.strategy
        if len(self._places) == 1:
            if on or self._is_open(self._places[0], view):
                yield self._places[0]
            return
        is_spread = strategy in ("SPREAD", "STRICT_SPREAD")
        shelf = self._shelf_of(bundle, is_spread, view)
        if not on:
            yield from shelf
            return
        own = [self.nodes[name] for name in dict.fromkeys(on)]
        if not is_spread:
            yield from sorted(own, key=lambda free: (free.rank(shelf.need, False), free.position))
        for free in shelf:
            if free.node.id not in on:
                yield free
        if strategy == "SPREAD":
            yield from sorted(
                own, key=lambda free: (on.count(free.node.id), free.rank(shelf.need, True), free.position)
            )

    def whole_gang(self, resources: Resources, look_for: Callable[[Resources], Look]) -> Shelf:
        """Return the nodes on which a whole gang may lie; `drop` what proved not to hold it."""
        view = self._view(resources)
        found = self._shelves.get((resources, view))
        if found is not None:
            return found
        look = look_for(resources)
        return self._shelf((resources, view), lambda free: look(free) if self._is_open(free, view) else (0, ()))

    def may_hold(self, bundle: Bundle, number: int, resources: Resources) -> bool:
        """Whether there is room for so many equal bundles of a gang, if it had nothing else."""
        if len(self._places) == 1:
            (free,) = self._places
            fits = number if resources.strategy != "STRICT_SPREAD" else 1 if number == 1 else _MANY
            return self._is_open(free, self._view(resources)) and free.room(Need(bundle)) >= fits
        shelf = self._shelf_of(bundle, "SPREAD" in resources.strategy, self._view(resources))
        return len(shelf) >= number if resources.strategy == "STRICT_SPREAD" else shelf.refresh().total >= number

    def emptiest(self, resources: Resources) -> Iterable[Free]:
        """Return the nodes that hold a bundle of a gang when they are idle, the emptiest first."""
        needs = [Need(bundle) for bundle in resources.counts if not bundle.is_empty]
        total, able = Need(resources.total), [False] * len(self._places)
        if ("emptiest", resources) not in self._shelves:
            able = [any(idle.room(need) for need in needs) for idle in Free.of(f.node for f in self._places).values()]

        def look(free: Free) -> tuple[int, tuple[Any, ...]]:
            is_it = able[free.position] and free.node.id not in self._closed
            return int(is_it), free.rank(total, True) if is_it else ()

        return self._shelf(("emptiest", resources), look)

    def with_chips(self, resources: Resources, on: Collection[str] = ()) -> tuple[list[Free], int]:
        """Return the nodes with idle TPU chips, in order, and the number of all nodes that are open.

        Args:
            on: the nodes that the gang is on already.
        """
        view = self._view(resources)

        def look(free: Free) -> tuple[int, tuple[Any, ...]]:
            return free.whole("tpu") if self._is_open(free, view) else 0, ()

        found, own = list(self._shelf(("chips", view), look)), []
        if resources.alone:  # what the gang itself is on is still open to it
            own = [self.nodes[name] for name in dict.fromkeys(on)]
            found = sorted([*found, *(free for free in own if free.whole("tpu"))], key=lambda free: free.position)
        return found, self.left(resources)[-1] + len(own)

    def left(self, resources: Resources) -> Sequence[int]:
        """Return what is left in all of what is open to a request, as `Free.left` does, and behind it the number of
        nodes."""
        view = self._view(resources)
        if view not in self._sums:
            self._sums[view] = _Sum(self._places, lambda free: self._is_open(free, view))
            self._watches.append(self._sums[view].changed)
        return self._sums[view].left()

    def _view(self, resources: Resources) -> int:
        """Which nodes are open to a request: those that nothing lies on, where it is to be alone, else those that are
        not closed; and those that are kept for it, or for others."""
        return resources.alone | (_KEPT if self.kept_for is not None and resources == self.kept_for else 0)

    def _is_open(self, free: Free, view: int) -> bool:
        name = free.node.id
        if free.load if view & _ALONE else name in self._closed:
            return False
        return view >= _KEPT or name not in self.kept

    def _shelf_of(self, bundle: Bundle, is_spread: bool, view: int) -> Shelf:
        found = self._shelves.get((bundle, is_spread, view))
        if found is not None:
            return found
        need = Need(bundle)

        def look(free: Free) -> tuple[int, tuple[Any, ...]]:
            room = free.room(need) if self._is_open(free, view) else 0
            return room, free.rank(need, is_spread) if room else ()

        return self._shelf((bundle, is_spread, view), look, need)

    def _shelf(self, key: Any, look: Look, need: Need | None = None) -> Shelf:
        shelf = self._shelves.get(key)
        if shelf is None:
            shelf = self._shelves[key] = Shelf(self._places, look, need)
            self._watches.append(shelf.changed)
        return shelf


_Holder = tuple[str, int]  # trial id and attempt


@dataclass(slots=True)
class _Held:
    """What is held of one thing."""

    devices: frozenset[tuple[str, str]] | None = None  # (node, id) of those that count; None: what is asked for does
    holders: dict[_Holder, float] = field(default_factory=dict)  # in the order in which they came
    counts: Counter[float] = field(default_factory=Counter)  # how many hold that much

    def add(self, name: str, holder: _Holder, resources: Resources, placement: Placement) -> None:
        if self.devices is None:
            amount = resources.total.amount(name)
        else:
            places = placement.bundles
            amount = sum([share for at in places for device, share in at.devices if (at.node, device) in self.devices])
        if amount:
            self.holders[holder] = amount
            self.counts[amount] += 1


class Account:
    """What trials hold of `cpu`, `gpu`, `tpu`, `memory`, custom names, and of devices of a type.

    A thing is counted from when it is first asked for. Amounts are summed by how many hold the same, so that ten times
    0.1 are 1.

    Args:
        held: what every holder asked for and got; `add` and `remove` say what changes in it.
    """

    def __init__(self, held: Mapping[_Holder, tuple[Resources, Placement]]) -> None:
        self._held = held
        self._nodes: tuple[Node, ...] = ()
        self._there: dict[tuple[str, str], float] = {}
        self._things: dict[tuple[str, str], _Held] = {}

    def set_nodes(self, nodes: Iterable[Node]) -> None:
        """Take a new inventory."""
        self._nodes = tuple(nodes)
        self._there.clear()
        self._things.clear()

    def add(self, holder: _Holder) -> None:
        """Count what a holder has from now on."""
        self.remove(holder)
        for (name, _), thing in self._things.items():
            thing.add(name, holder, *self._held[holder])

    def remove(self, holder: _Holder) -> None:
        """Count what a holder had no longer."""
        for thing in self._things.values():
            amount = thing.holders.pop(holder, 0.0)
            if amount:
                thing.counts[amount] -= 1
                if not thing.counts[amount]:
                    del thing.counts[amount]

    def there(self, name: str, of_type: str = "") -> float:
        """Return how much of something the nodes have, of devices only those of a type where one is given."""
        key = (name, plain_type(of_type))
        if key not in self._there:
            self._there[key] = sum(node.amount(name, of_type) for node in self._nodes)
        return self._there[key]

    def taken(self, name: str, of_type: str = "") -> tuple[float, Mapping[_Holder, float]]:
        """Return how much of something is held, and by whom, in the order in which they came."""
        key = (name, plain_type(of_type))
        thing = self._things.get(key)
        if thing is None:
            thing = self._things[key] = _Held(self._devices(*key) if key[1] else None)
            for holder, (resources, placement) in self._held.items():
                thing.add(name, holder, resources, placement)
        return math.fsum([amount * number for amount, number in thing.counts.items()]), thing.holders

    def _devices(self, kind: str, wanted: str) -> frozenset[tuple[str, str]]:
        return frozenset((n.id, d.id) for n in self._nodes for d in n.devices if d.kind == kind and wanted in d.names)
