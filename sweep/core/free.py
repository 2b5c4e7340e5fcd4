"""What is left of one node: in which ways a bundle fits there now, and what taking and giving back leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field

from sweep.core.claims import Claim, withheld
from sweep.core.resources import UNIT, Bundle, BundlePlacement, Node, plain_type, units_of

__all__ = ["ANY", "Free", "Types", "Used", "wanted_type"]

# How many TPU chips make a block; each larger one consists of two of the smaller.
_BLOCKS = (1, 2, 4, 8)

_Shares = tuple[tuple[str, float], ...]  # devices of one node, and how much of each
Used = Set[tuple[str, str]]  # (node, device) pairs
Types = frozenset[str]  # accelerator types in lower case
ANY: Types = frozenset()


def wanted_type(bundle: Bundle) -> str:
    """Return the type that a bundle's devices must have, in its plain form; empty: any."""
    return plain_type(bundle.accelerator_type) if bundle.accelerator_type else ""


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
            idle[node.id] = cls(node, units_of(node.cpus), node.memory, custom, devices, names, hosts[node.slice_key])
        return idle

    def whole(self, kind: str, wanted: str = "") -> int:
        """Number of devices of a kind, and of a type, that are wholly free."""
        if wanted:
            return len(self._idle(kind, wanted))
        return list(self.devices[kind].values()).count(UNIT) if kind in self.devices else 0

    def gap(self, bundle: Bundle) -> tuple[int, ...]:
        """Return how much is free around the best block for a bundle's TPU chips: a smaller one breaks less."""
        if bundle.tpu not in _BLOCKS:  # a sum over bundles: no single block
            return ()
        blocks = self._blocks(int(bundle.tpu), wanted_type(bundle))
        return min((around for around, _ in blocks), default=(2 * _BLOCKS[-1],))

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
            yield BundlePlacement(self.node.id)
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
            for devices in self._whole(int(bundle.gpu), self._idle("gpu", wanted_type(bundle)), types):
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
        need, wanted = units_of(bundle.gpu), wanted_type(bundle)
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
        blocks = sorted(self._blocks(int(bundle.tpu), wanted_type(bundle)), key=lambda block: block[0])
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

    def withhold(self, claims: Sequence[Claim]) -> None:
        """Take away what other sweeps hold."""
        for name, amount in withheld(claims, self.node).items():
            self.shift(name, "", -amount)
        for claim in claims:
            for node, device, units in claim.devices:
                for kind, there in self.devices.items():
                    if node == self.node.id and device in there:
                        self.shift(kind, device, -units)

    def shift(self, name: str, device: str, units: int) -> None:
        """Add to what is free of a device, or of an amount where none is named."""
        if device:
            self.devices[name][device] += units
        elif name == "cpu":
            self.cpu += units
        elif name == "memory":
            self.memory += units
        else:
            self.custom[name] = self.custom.get(name, 0) + units

    def promised(self, name: str, of_type: str, amount: int) -> Iterator[tuple[str, str, int]]:
        """Yield (name, device, units) of what is free here and promised to a sweep that has waited longer: as much as
        it asks for. Of GPUs those that are freest, so that they become freer yet; of TPU chips all, because a block of
        them is needed."""
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
