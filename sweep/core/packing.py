"""Packing: which trial gets which part of the machine; a gang whole or not at all. Shares of devices live only here."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from sweep.core.capacity import Account, Capacity, Free, Look, Need, OneNode, Types, Used, accelerator_of
from sweep.core.claims import Claim, of_others
from sweep.core.infeasible import why_absent, why_never
from sweep.core.resources import (
    UNIT,
    Bundle,
    BundlePlacement,
    Node,
    Placement,
    Resources,
    bare_placement,
    format_amount,
    format_request,
    plain_type,
    units_of,
)

# How many placements of single bundles may be tried before a gang counts as "does not fit now".
_SEARCH_LIMIT = 5_000

Holder = tuple[str, int]  # trial id and attempt
_OnNode = tuple[Free, str, str, int]  # a `Part` of a node
_T = TypeVar("_T")


class Packer:
    """Keep account of what every trial holds, and place whole requests.

    Placement searches first-fit in an order that depends on the request's strategy, with bounded backtracking, so a
    gang that fits an idle machine is always placed when the machine is idle.

    Args:
        away: nodes that are not there now and may come: nothing is placed on them, but what they could hold, alone or
            together with those that are there, is not refused.

    Attributes:
        num_changes: how often what fits may have changed.
    """

    def __init__(self, nodes: Iterable[Node] = (), away: Iterable[Node] = ()) -> None:
        self._nodes: dict[str, Free] = {}
        self._away: tuple[Node, ...] = ()
        self._held: dict[Holder, tuple[Resources, Placement]] = {}
        self._account = Account(self._held)
        self._notes: dict[Holder, str] = {}
        self._exclusive: dict[str, Holder] = {}  # node -> its only holder
        self._full: set[Resources] = set()  # requests known not to fit until something is given back
        self._found: dict[Resources, Placement] = {}  # where requests fit, until anything changes hands
        self._ever: dict[Resources, bool] = {}
        self._absent: dict[Resources, str] = {}
        self.num_changes = 0
        self._whys: dict[Resources, str] = {}  # as long as nothing changes hands
        self._alone: tuple[int, dict[Resources, bool]] = (0, {})  # likewise: what would fit if there were no others
        self._others: tuple[Claim, ...] = ()
        self._gone: list[_OnNode] = []  # what they hold
        self.set_nodes(nodes, away)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The inventory."""
        return tuple(free.node for free in self._nodes.values())

    @property
    def away(self) -> tuple[Node, ...]:
        """The nodes that are not there now and may come."""
        return self._away

    @property
    def holders(self) -> Sequence[Holder]:
        """Who holds something."""
        return list(self._held)

    def set_nodes(self, nodes: Iterable[Node], away: Iterable[Node] = ()) -> None:
        """Take a new inventory; what is held stays held where its node still exists."""
        self._nodes = Free.of(nodes)
        self._away = tuple(node for node in away if node.id not in self._nodes)
        self._capacity = Capacity(self._nodes, self._exclusive)
        self._withhold()
        for resources, placement in self._held.values():
            self._add(resources, placement, -1)
        self._account.set_nodes(self.nodes)
        for known in (self._full, self._ever, self._absent):
            known.clear()
        self._changed()

    @property
    def others(self) -> tuple[Claim, ...]:
        """What other sweeps of the machine keep from this one."""
        return self._others

    def set_others(self, claims: Iterable[Claim]) -> None:
        """Take what other sweeps keep from this one, in place of what was known of them."""
        _shift(self._gone, +1)
        self._others = tuple(claims)
        self._withhold()
        self._capacity.keep((), None)  # others may now be where something was kept
        self._full.clear()
        self._changed()

    def _withhold(self) -> None:
        """Take away what other sweeps hold of nodes that are there."""
        self._gone = [
            (free, name, device, amount)
            for claim in self._others
            for node, name, device, amount in claim.held
            if (free := self._nodes.get(node)) is not None and (not device or device in free.devices.get(name, ()))
        ]
        _shift(self._gone, -1)

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
        if placement is not None:
            self._enter(resources, placement, holder)
        return placement

    def hold(self, resources: Resources, placement: Placement, holder: Holder) -> None:
        """Count as taken what a trial holds already."""
        self._add(resources, placement, -1)
        self._enter(resources, placement, holder)

    def _enter(self, resources: Resources, placement: Placement, holder: Holder) -> None:
        self._held[holder] = (resources, placement)
        self._account.add(holder)
        if resources.alone:
            self._exclusive.update(dict.fromkeys([place.node for place in placement.bundles], holder))
        self._changed()

    def fits_now(self, resources: Resources) -> bool:
        """Whether `place` would succeed now."""
        if resources in self._found:
            return True
        if resources in self._full:
            return False
        uniform = None if resources.strategy == "STRICT_PACK" else resources.uniform
        if uniform is not None and len(resources.bundles) < _SEARCH_LIMIT:
            self._capacity.tidy()
            may_hold = self._capacity.may_hold
            if self._unpromised(may_hold, *uniform, resources) if self._others else may_hold(*uniform, resources):
                return True
            self._full.add(resources)
            return False
        placement = self._find(resources)
        if placement is not None:
            self._add(resources, placement, +1)
            self._found[resources] = placement
        return placement is not None

    def _find(self, resources: Resources) -> Placement | None:
        """Take room for a request, or note that there is none."""
        if resources in self._full:
            return None
        placement = self._found.get(resources)
        if placement is not None:
            self._add(resources, placement, -1)
            return placement
        self._capacity.tidy()
        capacity = self._capacity
        placement = self._unpromised(search, resources, capacity) if self._others else search(resources, capacity)
        if placement is None:
            self._full.add(resources)
        return placement

    def _unpromised(self, look: Callable[..., _T], *arguments: Any) -> _T:
        """Look at what no other sweep has waited for longer."""
        kept: list[_OnNode] = []
        for node, name, of_type, amount in [want for claim in self._others for want in claim.wants]:
            free = self._nodes.get(node)
            if free is not None:
                parts = [(free, *part) for part in free.promised(name, of_type, amount)]
                _shift(parts, -1)  # what one has waited for is not promised to the next
                kept += parts
        found = look(*arguments)
        _shift(kept, +1)
        return found

    def waits_for_others(self, resources: Resources) -> bool:
        """Whether a request does not fit now and would, if there were no other sweeps on the machine."""
        if not self._others or self.fits_now(resources):
            return False
        if self._alone[0] != self.num_changes:
            self._alone = (self.num_changes, {})
        known = self._alone[1]
        if resources not in known:
            _shift(self._gone, +1)
            placement = search(resources, self._capacity)
            if placement is not None:
                self._add(resources, placement, +1)
            _shift(self._gone, -1)
            known[resources] = placement is not None
        return known[resources]

    def _changed(self) -> None:
        """Forget what is known only until something changes hands."""
        self.num_changes += 1
        self._found.clear()
        self._whys.clear()

    def keep_room(self, resources: Resources | None) -> bool:
        """Keep nodes for a request that fits nowhere now, so that no other is placed on them: the emptiest that hold it
        when they are idle. They are kept until another request is named, or None.

        Returns whether others may be placed meanwhile: there are several nodes.
        """
        capacity = self._capacity
        if resources is not None and (len(self._nodes) == 1 or resources.alone):
            resources = None
        if resources == capacity.kept_for:
            return resources is not None
        names: set[str] = set()
        if resources is not None:
            beside = _emptiest(resources, capacity, self._idle_beside_others) if self._gone else set()
            names = beside or _emptiest(resources, capacity, Capacity.of) or set(self._nodes)
        capacity.keep(names, resources)
        self._full.clear()
        self._changed()
        return resources is not None

    def _idle_beside_others(self, nodes: Iterable[Node]) -> Capacity:
        """Return the capacity of nodes on which nothing lies but what other sweeps hold."""
        capacity = Capacity.of(nodes)
        for free, name, device, units in self._gone:
            if free.node.id in capacity.nodes:
                capacity.nodes[free.node.id].shift(name, device, -units)
        return capacity

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
        self._account.remove(holder)
        resources, placement = held
        self._add(resources, placement, +1)
        if resources.alone:
            for node in [node for node, other in self._exclusive.items() if other == holder]:
                del self._exclusive[node]
        self._full.clear()
        self._changed()
        return True

    def could_ever_fit(self, resources: Resources) -> bool:
        """Whether the request fits the idle inventory, with the nodes that may come."""
        if resources not in self._ever:
            self._ever[resources] = _can_hold(resources, (*self.nodes, *self._away))
        return self._ever[resources]

    def absence(self, resources: Resources) -> str:
        """Return which nodes that are not there now the request waits for, in one line; empty: it fits without them, or
        not even with them."""
        if not self._away:
            return ""
        if resources not in self._absent:
            waits = self.could_ever_fit(resources) and not _can_hold(resources, self.nodes)
            self._absent[resources] = why_absent(resources, self.nodes, self._away, _can_hold) if waits else ""
        return self._absent[resources]

    def why_never(self, resources: Resources, *, of_workers: bool = False) -> str:
        """Return why the request can never fit, with the arithmetic, and what to do; `of_workers`: it is, but for the
        trial's own process, what a ScalingConfig comes to."""
        nodes, is_some_away = (*self.nodes, *self._away), bool(self._away)
        return why_never(resources, nodes, _can_hold, of_workers=of_workers, is_some_away=is_some_away)

    def explain(self, holder: Holder, why: str) -> None:
        """Note why a trial still holds something, for `why_not`."""
        if holder in self._held:
            self._notes[holder] = f" ({why})" if why else ""
            self._whys.clear()

    def why_not(self, resources: Resources) -> str:
        """Return what the request waits for now and which trials hold it, in one line."""
        if resources not in self._whys:
            self._whys[resources] = self._why_not(resources)
        return self._whys[resources]

    def _why_not(self, resources: Resources) -> str:
        if not self.could_ever_fit(resources):
            return self.why_never(resources)
        if absent := self.absence(resources):
            return absent
        if resources.alone and not self.waits_for_others(resources):
            return "waits until nothing else runs on its node, to run alone after it ran out of memory"
        parts = []
        for name, of_type, need in resources.needs():
            have = self._account.there(name, of_type)
            own, holders = self._account.taken(name, of_type)
            held = own + self._held_by_others(name, of_type)
            is_promised = any(want[1] == name for claim in self._others for want in claim.wants)
            if need > have - held + 1e-9 or is_promised:
                shared = {free.node.id: free.node for free, *_ in self._gone}
                others = of_others(self._others, shared.values(), name, of_type)
                first = itertools.islice(holders, 4)
                shown = ", ".join(holder[0].rpartition("_")[2] + self._notes.get(holder, "") for holder in first)
                more = f" and {len(holders) - 4} more" if len(holders) > 4 else ""
                free = max(have - held, 0.0)
                there = f"{format_amount(name, free)} of {format_amount(name, have)} free"
                parts.append(f"waits for {format_request(name, need, of_type)}; {there}")
                if shown:
                    parts[-1] += f", {'some' if others else 'the rest'} held by {shown}{more}"
                if others:
                    parts[-1] += f"; {others}"
        if not parts and self._exclusive:
            by = ", ".join(sorted({holder[0].rpartition("_")[2] for holder in self._exclusive.values()}))
            return f"waits for {by}, which runs alone after it ran out of memory"
        return "; ".join(parts) or f"waits for {resources} in one piece; what is free is scattered"

    def _held_by_others(self, name: str, of_type: str) -> float:
        """Return how much of something is not there for this sweep, as `Node.amount` counts."""
        wanted = plain_type(of_type)
        parts = [(free, device, units) for free, what, device, units in self._gone if what == name]
        units = sum([units for free, device, units in parts if not wanted or wanted in free.names[device]])
        return units / (1 if name == "memory" else UNIT)

    def used(self) -> dict[str, tuple[float, float]]:
        """Return per resource (held, total) over all nodes; for displays."""
        names = [name for name in ("cpu", "gpu", "tpu", "memory") if self._account.there(name)]
        return {name: (self._account.taken(name)[0], self._account.there(name)) for name in names}


def _shift(parts: Iterable[_OnNode], sign: int) -> None:
    """Add parts of nodes to what is free there (+1), or take them away (-1)."""
    for free, name, device, units in parts:
        free.shift(name, device, sign * units)


def _can_hold(resources: Resources, nodes: Iterable[Node]) -> bool:
    """Whether some nodes hold a request when they are idle."""
    return search(resources, Capacity.of(nodes)) is not None


def search(resources: Resources, capacity: Capacity) -> Placement | None:
    """Place all bundles (and keep them placed), or none and return None."""
    if len(resources.bundles) == 1:
        (bundle,) = resources.bundles
        for free in capacity.best(bundle, resources):
            for way in free.ways(bundle, frozenset(), False):
                free.add(bundle, way, -1)
                return Placement((way,)) if way.devices else bare_placement(way.node)
        return None
    if len(capacity.nodes) > 1 and not _may_hold(resources, capacity):
        return None
    if resources.strategy in ("PACK", "STRICT_PACK"):
        nodes = capacity.whole_gang(resources, _look_at_one)
        for free in nodes:
            placement = _Layout(resources, OneNode(free)).find()
            if placement is not None:
                return placement
            nodes.drop(free)
        if resources.strategy == "STRICT_PACK" or len(capacity.nodes) == 1:
            return None
    return _Layout(resources, capacity).find()


def _emptiest(resources: Resources, capacity: Capacity, idle: Callable[[Iterable[Node]], Capacity]) -> set[str]:
    """Return the nodes, of the emptiest ones, on which a request is to lie when they are idle; none: nowhere."""
    number = len(resources.bundles) if resources.strategy == "STRICT_SPREAD" else 1
    while True:
        nodes = [free.node for free in itertools.islice(capacity.emptiest(resources), number)]
        found = search(resources, idle(nodes)) if nodes else None
        if found is not None:
            return {place.node for place in found.bundles}
        if len(nodes) < number:
            return set()
        number *= 2


def _may_hold(resources: Resources, capacity: Capacity) -> bool:
    """Whether there is enough in all, and for each kind of bundle alone: a search would be in vain otherwise."""
    if not _is_enough(resources, capacity.left(resources)):
        return False
    return all(capacity.may_hold(bundle, number, resources) for bundle, number in resources.counts.items())


def _look_at_one(resources: Resources) -> Look:
    """Return what says whether a whole gang may be packed on one node, and what such nodes are ranked by: the tightest
    first, but before a node that would scatter shares that are to lie together, one that does not."""
    shares = sorted([units_of(bundle.gpu) for bundle in resources.bundles if 0 < bundle.gpu < 1], reverse=True)
    fewest = _count_used(shares, [UNIT] * len(shares))
    needs, total = [(Need(bundle), number) for bundle, number in resources.counts.items()], Need(resources.total)

    def look(free: Free) -> tuple[int, tuple[Any, ...]]:
        for need, number in needs:
            if free.room(need) < number:
                return 0, ()
        if not _is_enough(resources, free.left()):
            return 0, ()
        rank = free.rank(total, False)
        if resources.shared_devices:
            units = sorted(free.devices.get("gpu", {}).values(), reverse=True)
            rank = (_count_used(shares, units) > fewest, *rank)
        return 1, rank

    return look


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


def _is_enough(resources: Resources, left: Sequence[int]) -> bool:
    """Whether there is in all what a gang needs in all: a quick check, without which a search would be in vain.

    Args:
        left: as `Free.left` returns it.
    """
    total, lost = resources.total, len(resources.bundles)  # rounding down takes less than a unit from each bundle
    if total.cpu * UNIT - lost > left[0]:
        return False
    for kind, need, units, number in (("gpu", total.gpu, left[1], left[2]), ("tpu", total.tpu, left[3], left[4])):
        if need:
            own = sum([math.ceil(b.amount(kind)) for b in resources.bundles]) if resources.distinct_devices else 0
            if need * UNIT - lost > units or own > number:
                return False
    return True


class _Layout:
    """One search for room for a whole gang: depth first over bundles (largest first), nodes and devices, at most
    `_SEARCH_LIMIT` steps; what it finds it holds."""

    def __init__(self, resources: Resources, capacity: Capacity | OneNode) -> None:
        self._resources = resources
        shares = [units_of(bundle.gpu) for bundle in resources.bundles if 0 < bundle.gpu < 1]
        self._together = sum(shares) if resources.shared_devices else 0
        self._bundles = resources.bundles
        self._capacity, self._nodes = capacity, capacity.nodes
        self._types: Types = frozenset(accelerator_of(bundle) for bundle in self._bundles) - {""}
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
            is_found = self._descend(self._by_size(everything), self._capacity, frozenset(), ())
        return Placement(tuple([self._placed[index] for index in everything])) if is_found else None

    def _by_size(self, indices: Iterable[int]) -> list[int]:
        return sorted(indices, key=lambda index: _size(self._bundles[index]), reverse=True)

    def _descend(
        self,
        order: Sequence[int],
        capacity: Capacity | OneNode,
        used: Used,
        on: tuple[str, ...],
        finish: Callable[[Used, tuple[str, ...]], bool] | None = None,
        depth: int = 0,
    ) -> bool:
        """Place the bundles of `order` from `depth` on, so that `finish` succeeds after the last; else place none."""
        if depth == len(order):
            return finish is None or finish(used, on)
        index, strategy = order[depth], self._resources.strategy
        bundle = self._bundles[index]
        failed: list[tuple[Bundle, BundlePlacement]] = []
        try:
            for free in capacity.best(bundle, self._resources, on):
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
                    if self._descend(order, capacity, now_used, (*on, way.node), finish, depth + 1):
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
        if self._descend(others, self._capacity, used, tuple([way.node for way in ways])):
            return True
        for index in list(self._placed):
            self._give(index)
        self._tries = 0
        return self._descend(others, self._capacity, frozenset(), (), self._fill_slices)

    def _fill_slices(self, used: Used, on: tuple[str, ...]) -> bool:
        """Place each run of bundles on a slice of its own, the smallest that will do; or place none."""
        by_slice: dict[tuple[bool, str], list[Free]] = {}
        hosts, num_open = self._capacity.with_chips(self._resources, on)
        for free in hosts:
            by_slice.setdefault(free.node.slice_key, []).append(free)
        slices = sorted(by_slice.values(), key=lambda hosts: sum(free.whole("tpu") for free in hosts))
        self._tries += num_open
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

    def _counts(self, run: Sequence[int], hosts: Sequence[Free], used: Used, on: tuple[str, ...]) -> list[int]:
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

    def _fitting(self, free: Free, run: Sequence[int], used: Used) -> int:
        """Return how many bundles from the beginning of a run fit on one host."""
        key = (free.node.id, tuple([self._bundles[index] for index in run]))
        if key not in self._room:
            self._room[key] = 0
            while self._room[key] < len(run) and self._put(free, run[: self._room[key] + 1], used):
                self._room[key] += 1
                for index in run[: self._room[key]]:
                    self._give(index)
        return self._room[key]

    def _put(self, free: Free, run: Sequence[int], used: Used) -> bool:
        """Place some bundles on one host, of equal ones the first on the first chips; or place none."""
        tries, self._tries = self._tries, 0  # of this small search
        is_put = self._descend(self._by_size(run), OneNode(free), used, ())
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


def _size(bundle: Bundle) -> tuple[float, ...]:
    """Return what is placed first: what needs most devices, and of equals those that not every device will do for."""
    custom = sum(amount for _, amount in bundle.custom)
    return (bundle.gpu, bundle.tpu, bool(bundle.accelerator_type), bundle.cpu, float(bundle.memory), custom)
