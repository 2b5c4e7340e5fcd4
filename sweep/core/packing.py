"""Packing: which trial gets which part of the machine; a gang whole or not at all. Shares of devices live only here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field

from sweep.core.resources import Bundle, BundlePlacement, Node, Placement, Resources, format_bytes

__all__ = ["Holder", "Packer"]

# Amounts are counted in billionths, as integers and rounded down: 0.1 + 0.2 must leave room for 0.7, and six sixths
# must fit.
_UNIT = 1_000_000_000
# How many placements of single bundles may be tried before a gang counts as "does not fit now".
_SEARCH_LIMIT = 5_000

Holder = tuple[str, int]  # trial id and attempt


def _units(amount: float) -> int:
    return math.floor(amount * _UNIT + 1e-3)


@dataclass(slots=True)
class _Free:
    """What is left of one node."""

    node: Node
    cpu: int
    memory: int
    custom: dict[str, int]
    devices: dict[str, dict[str, int]] = field(default_factory=dict)  # kind -> device id -> free units

    @classmethod
    def of(cls, node: Node) -> _Free:
        devices: dict[str, dict[str, int]] = {}
        for device in node.devices:
            devices.setdefault(device.kind, {})[device.id] = _UNIT
        return cls(node, _units(node.cpus), node.memory, {k: _units(v) for k, v in node.custom.items()}, devices)

    def whole(self, kind: str) -> int:
        """Number of devices of a kind that nobody holds a part of."""
        return sum(1 for free in self.devices.get(kind, {}).values() if free == _UNIT)

    def ways(self, bundle: Bundle, used: Set[tuple[str, str]], distinct: bool) -> Iterator[BundlePlacement]:
        """Yield the ways in which one bundle fits here now, best first; a way is for `hold`.

        `used` names the (node, device) pairs that the same gang holds: other devices are preferred, or demanded.
        """
        if (bundle.cpu and _units(bundle.cpu) > self.cpu) or bundle.memory > max(self.memory, 0):
            return
        for name, amount in bundle.custom:
            if _units(amount) > self.custom.get(name, 0):
                return
        if not bundle.gpu and not bundle.tpu:
            yield BundlePlacement(self.node.id)
            return
        tpus = self._whole("tpu", bundle.tpu)
        if tpus is None:
            return
        if bundle.gpu >= 1 or not bundle.gpu:
            gpus = self._whole("gpu", bundle.gpu)
            if gpus is not None:
                yield BundlePlacement(self.node.id, (*gpus, *tpus))
            return
        for device in self._with_room(bundle.gpu, used, distinct):
            yield BundlePlacement(self.node.id, ((device, bundle.gpu), *tpus))

    def give(self, bundle: Bundle, placement: BundlePlacement) -> None:
        """Put one bundle back; devices that the node no longer has are forgotten."""
        self._add(bundle, placement, +1)

    def hold(self, bundle: Bundle, placement: BundlePlacement) -> None:
        """Take what a way names; also below zero: a node may have shrunk under its trials."""
        self._add(bundle, placement, -1)

    def _whole(self, kind: str, number: float) -> list[tuple[str, float]] | None:
        """Return the first `number` idle devices of a kind, or None if there are not so many."""
        idle = [device for device, units in self.devices.get(kind, {}).items() if units == _UNIT]
        return [(device, 1.0) for device in idle[: int(number)]] if len(idle) >= number else None

    def _with_room(self, share: float, used: Set[tuple[str, str]], distinct: bool) -> list[str]:
        """Return the GPUs with room for a share: those that the gang does not use first, then the fullest; of idle
        devices, which are alike, only the first."""
        need, has_idle = _units(share), False
        found: list[tuple[bool, int, str]] = []
        for device, units in self.devices.get("gpu", {}).items():
            is_used = (self.node.id, device) in used
            if units < need or (is_used and distinct) or (units == _UNIT and has_idle):
                continue
            has_idle = has_idle or units == _UNIT
            found.append((is_used, units, device))
        return [device for _, _, device in sorted(found, key=lambda item: item[:2])]

    def _add(self, bundle: Bundle, placement: BundlePlacement, sign: int) -> None:
        self.cpu += sign * _units(bundle.cpu)
        self.memory += sign * bundle.memory
        for name, amount in bundle.custom:
            self.custom[name] = self.custom.get(name, 0) + sign * _units(amount)
        for device, share in placement.devices:
            for units in self.devices.values():
                if device in units:
                    units[device] += sign * _units(share)


class Packer:
    """Keep account of what every trial holds, and place whole requests.

    Placement searches first-fit in an order that depends on the request's strategy, with bounded backtracking, so a
    gang that fits an idle machine is always placed when the machine is idle.
    """

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._nodes: dict[str, _Free] = {}
        self._held: dict[Holder, tuple[Resources, Placement]] = {}
        self._full: set[Resources] = set()  # requests known not to fit until something is given back
        self._ever: dict[Resources, bool] = {}
        self.set_nodes(nodes)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The inventory."""
        return tuple(free.node for free in self._nodes.values())

    @property
    def holders(self) -> Sequence[Holder]:
        """Who holds something."""
        return list(self._held)

    def set_nodes(self, nodes: Iterable[Node]) -> None:
        """Take a new inventory; what is held stays held where its node still exists."""
        self._nodes = {node.id: _Free.of(node) for node in nodes}
        for resources, placement in self._held.values():
            for bundle, place in zip(resources.bundles, placement.bundles, strict=True):
                if place.node in self._nodes:
                    self._nodes[place.node].hold(bundle, place)
        self._full.clear()
        self._ever.clear()

    def place(self, resources: Resources, holder: Holder) -> Placement | None:
        """Reserve room for one trial, or return None if it does not fit now.

        Whole GPUs come from the node with the fewest free ones that suffice, so that large gaps stay large; a share
        below 1 goes to the fullest device that still has room, but on other devices than the rest of its gang where
        that is possible. Nothing is reserved when None is returned.

        Args:
            holder: trial id and attempt; what `release` will be given.
        """
        if resources in self._full:
            return None
        placement = _search(resources, self._nodes)
        if placement is None:
            self._full.add(resources)
            return None
        self._held[holder] = (resources, placement)
        return placement

    def fits_now(self, resources: Resources) -> bool:
        """Whether `place` would succeed now."""
        if resources in self._full:
            return False
        placement = _search(resources, self._nodes)
        if placement is None:
            self._full.add(resources)
            return False
        for bundle, place in zip(resources.bundles, placement.bundles, strict=True):
            self._nodes[place.node].give(bundle, place)
        return True

    def release(self, holder: Holder) -> bool:
        """Give back what `holder` holds; False if it holds nothing. A node that is gone gets nothing back."""
        held = self._held.pop(holder, None)
        if held is None:
            return False
        resources, placement = held
        for bundle, place in zip(resources.bundles, placement.bundles, strict=True):
            if place.node in self._nodes:
                self._nodes[place.node].give(bundle, place)
        self._full.clear()
        return True

    def could_ever_fit(self, resources: Resources) -> bool:
        """Whether the request fits the idle inventory."""
        if resources not in self._ever:
            idle = {node_id: _Free.of(free.node) for node_id, free in self._nodes.items()}
            self._ever[resources] = _search(resources, idle) is not None
        return self._ever[resources]

    def why_never(self, resources: Resources) -> str:
        """Return why the request can never fit, with the arithmetic, and what to do."""
        nodes = self.nodes
        largest = " and ".join(
            text for bundle in dict.fromkeys(resources.bundles) for text in [_too_large(bundle, nodes)] if text
        )
        if not nodes:
            problem = "there is no node to run on"
        elif largest:
            problem = largest
        else:
            short = [
                f"{name}={_show(name, need)} in all, there are {_show(name, have)}"
                for name, need, have in _sums(resources, nodes)
                if need > have
            ]
            problem = (
                f"it needs {' and '.join(short)}"
                if short
                else f"its bundles cannot be laid out on {_count(len(nodes), 'node')} by {resources.strategy}"
            )
        return (
            f"a trial asks for {resources}; {problem}. "
            "Lower resources_per_trial, or declare a larger machine with sweep.init(num_cpus=..., num_gpus=...)."
        )

    def why_not(self, resources: Resources) -> str:
        """Return what the request waits for now and who holds it, in one line."""
        if not self.could_ever_fit(resources):
            return self.why_never(resources)
        parts = []
        for name, need, have in _sums(resources, self.nodes):
            held = sum(_amount(held.total, name) for held, _ in self._held.values())
            if need > have - held + 1e-9:
                holders = [trial for (trial, _), (held, _) in self._held.items() if _amount(held.total, name)]
                shown = ", ".join(trial.rpartition("_")[2] for trial in holders[:4])
                more = f" and {len(holders) - 4} more" if len(holders) > 4 else ""
                free = max(have - held, 0.0)
                parts.append(f"waits for {name}={_show(name, need)}; {_show(name, free)} of {_show(name, have)} free")
                if shown:
                    parts[-1] += f", the rest held by {shown}{more}"
        return "; ".join(parts) or f"waits for {resources} in one piece; what is free is scattered"

    def used(self) -> dict[str, tuple[float, float]]:
        """Return per resource (held, total) over all nodes; for displays."""
        totals: dict[str, tuple[float, float]] = {}
        for name in ("cpu", "gpu", "tpu", "memory"):
            have = sum(_has(node, name) for node in self.nodes)
            if have:
                totals[name] = (sum(_amount(held.total, name) for held, _ in self._held.values()), have)
        return totals


def _search(resources: Resources, nodes: dict[str, _Free]) -> Placement | None:
    """Place all bundles (and keep them placed), or none and return None."""
    bundles = resources.bundles
    if len(bundles) == 1:
        for free in _ordered(bundles[0], nodes.values(), resources.strategy, ()):
            for way in free.ways(bundles[0], frozenset(), False):
                free.hold(bundles[0], way)
                return Placement((way,))
        return None
    if resources.strategy in ("PACK", "STRICT_PACK"):
        for free in _ordered(resources.total, nodes.values(), "PACK", ()):
            placement = _backtrack(resources, {free.node.id: free})
            if placement is not None:
                return placement
        if resources.strategy == "STRICT_PACK":
            return None
    return _backtrack(resources, nodes)


def _backtrack(resources: Resources, nodes: dict[str, _Free]) -> Placement | None:
    """Search depth first over bundles (largest first), nodes and devices, at most `_SEARCH_LIMIT` steps."""
    bundles = resources.bundles
    order = sorted(range(len(bundles)), key=lambda i: _size(bundles[i]), reverse=True)
    placed: dict[int, BundlePlacement] = {}
    tries = 0

    def descend(depth: int, used: Set[tuple[str, str]], on: tuple[str, ...]) -> bool:
        nonlocal tries
        if depth == len(order):
            return True
        index = order[depth]
        bundle = bundles[index]
        for free in _ordered(bundle, nodes.values(), resources.strategy, on):
            node_id = free.node.id
            if resources.strategy == "STRICT_SPREAD" and node_id in on:
                continue
            for way in free.ways(bundle, used, resources.distinct_devices):
                tries += 1
                if tries > _SEARCH_LIMIT:
                    return False
                free.hold(bundle, way)
                placed[index] = way
                if descend(depth + 1, used | {(node_id, device) for device, _ in way.devices}, (*on, node_id)):
                    return True
                free.give(bundle, way)
                del placed[index]
        return False

    if descend(0, frozenset(), ()):
        return Placement(tuple(placed[i] for i in range(len(bundles))))
    return None


def _ordered(bundle: Bundle, nodes: Iterable[_Free], strategy: str, on: tuple[str, ...]) -> Iterator[_Free]:
    """Yield nodes, best first: for packing the tightest (used ones first), for spreading the emptiest unused ones."""
    nodes = list(nodes)
    if len(nodes) == 1:
        return iter(nodes)
    if strategy in ("SPREAD", "STRICT_SPREAD"):
        return iter(sorted(nodes, key=lambda f: (on.count(f.node.id), -f.whole("gpu"), -f.cpu)))
    if bundle.gpu or bundle.tpu:
        kind = "gpu" if bundle.gpu else "tpu"
        return iter(sorted(nodes, key=lambda f: (f.node.id not in on, f.whole(kind), f.cpu)))
    # A request without devices keeps away from nodes whose devices somebody may still want.
    return iter(sorted(nodes, key=lambda f: (f.node.id not in on, f.whole("gpu") + f.whole("tpu"), f.cpu)))


def _size(bundle: Bundle) -> tuple[float, float, float, float, float]:
    return (bundle.gpu, bundle.tpu, bundle.cpu, float(bundle.memory), sum(amount for _, amount in bundle.custom))


def _amount(bundle: Bundle, name: str) -> float:
    match name:
        case "cpu":
            return bundle.cpu
        case "gpu":
            return bundle.gpu
        case "tpu":
            return bundle.tpu
        case "memory":
            return float(bundle.memory)
        case _:
            return dict(bundle.custom).get(name, 0.0)


def _has(node: Node, name: str) -> float:
    match name:
        case "cpu":
            return node.cpus
        case "gpu" | "tpu":
            return float(sum(1 for device in node.devices if device.kind == name))
        case "memory":
            return float(node.memory)
        case _:
            return node.custom.get(name, 0.0)


def _sums(resources: Resources, nodes: Sequence[Node]) -> Iterator[tuple[str, float, float]]:
    """Yield (name, needed in all, there in all) for everything the request names."""
    total = resources.total
    for name in ("cpu", "gpu", "tpu", "memory", *(name for name, _ in total.custom)):
        need = _amount(total, name)
        if need:
            yield name, need, sum(_has(node, name) for node in nodes)


def _too_large(bundle: Bundle, nodes: Sequence[Node]) -> str:
    """Say which amounts of a bundle exceed every node."""
    parts = []
    for name in ("cpu", "gpu", "tpu", "memory", *(name for name, _ in bundle.custom)):
        need = _amount(bundle, name)
        best = max((_has(node, name) for node in nodes), default=0.0)
        if need > best:
            where = "this machine has" if len(nodes) == 1 else "the largest node has"
            parts.append(f"{name}={_show(name, need)} is more than {where}: {_show(name, best)}")
    return " and ".join(parts)


def _show(name: str, amount: float) -> str:
    return format_bytes(int(amount)) if name == "memory" else f"{amount:g}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
