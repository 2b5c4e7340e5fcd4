"""Who holds how much of what, kept as it changes: asking costs the same with one trial as with thousands."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sweep.core.resources import Node, Placement, Resources, plain_type

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
