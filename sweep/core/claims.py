"""What other sweeps of the machine hold, and what they wait for before this one: as plain values, and in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sweep.core.resources import LOCAL, UNIT, Node, Resources, format_amount, format_request, plain_type, units_of

_MOST_NAMED = 3

Amount = tuple[str, str, int]  # node, name, how much


@dataclass(frozen=True, slots=True)
class Claim:
    """What one other sweep of the machine keeps from this one.

    Amounts count as the packer counts them: memory in bytes, everything else in billionths.

    Attributes:
        experiment, pid: of its driver.
        amounts: (node, name, amount) of `cpu`, `memory` and custom names that its trials hold.
        devices: (node, device id, share) that they hold.
        totals: (node, name, amount): how much there is in all of what it holds or wants, by its own inventory, where
            that is less than by this sweep's.
        wants: (node, name, accelerator type, amount) of the request for which it has waited longer than this sweep, on
            each node that it may lie on; of `gpu` and `tpu` the number of devices.
    """

    experiment: str
    pid: int
    amounts: tuple[Amount, ...] = ()
    devices: tuple[Amount, ...] = ()
    totals: tuple[Amount, ...] = ()
    wants: tuple[tuple[str, str, str, int], ...] = ()

    def __str__(self) -> str:
        return f"experiment {self.experiment!r} (pid {self.pid})"

    @property
    def nodes(self) -> tuple[str, ...]:
        """Ids of the nodes that it names."""
        amounts = [node for node, _, _ in (*self.amounts, *self.devices, *self.totals)]
        return tuple(dict.fromkeys([*amounts, *[node for node, _, _, _ in self.wants]]))


@dataclass(frozen=True, slots=True)
class Wanted:
    """Something could start here, were it not for other sweeps.

    Attributes:
        request: of the trial that waits longest for them; None: no trial waits yet, one would be asked for.
    """

    request: Resources | None = None


def withheld(claims: Iterable[Claim], node: Node) -> dict[str, int]:
    """Return how much of a node's amounts is not there for this sweep: what others hold, and where one of them counts
    less in all than this sweep does, that difference."""
    taken: dict[str, int] = {}
    lost: dict[str, int] = {}
    for claim in claims:
        for where, name, amount in claim.amounts:
            if where == node.id:
                taken[name] = taken.get(name, 0) + amount
        for where, name, total in claim.totals:
            if where == node.id:
                own = node.memory if name == "memory" else units_of(node.amount(name))
                lost[name] = max(lost.get(name, 0), own - total)
    return {name: taken.get(name, 0) + max(0, lost.get(name, 0)) for name in taken | lost}


def of_others(claims: Sequence[Claim], nodes: Sequence[Node], name: str, of_type: str = "") -> str:
    """Return who holds what of something, for people: `GPU 0 is held by experiment 'digits' (pid 123)`."""
    by_id = {node.id: node for node in nodes}
    texts = [
        text
        for claim in claims
        for text in _of_one(claim, [by_id[node] for node in claim.nodes if node in by_id], name, of_type)
    ]
    more = f"; so do {len(texts) - _MOST_NAMED} more" if len(texts) > _MOST_NAMED else ""
    return "; ".join(texts[:_MOST_NAMED]) + more


def _of_one(claim: Claim, nodes: Sequence[Node], name: str, of_type: str) -> Iterator[str]:
    if name in ("gpu", "tpu"):
        known = _devices(nodes, name, of_type)
        held = [
            (f"{share / UNIT:g} of " if share < UNIT else "") + known[node, device]
            for node, device, share in claim.devices
            if (node, device) in known
        ]
        if held:
            yield f"{' and '.join(held)} {'is' if len(held) == 1 else 'are'} held by {claim}"
    else:
        unit = 1 if name == "memory" else UNIT
        here = {node.id for node in nodes}
        amount = sum(amount for node, what, amount in claim.amounts if what == name and node in here) / unit
        if amount:
            yield f"{format_request(name, amount)} is held by {claim}"
        for node in nodes:
            for where, what, total in claim.totals:
                if (where, what) == (node.id, name) and total / unit < node.amount(name):
                    yield f"{claim} counts {format_amount(name, total / unit)} of it in all"
    asked = [row for row in claim.wants if row[1] == name]
    if asked:
        _, _, wanted, number = asked[0]
        amount = number if name in ("gpu", "tpu", "memory") else number / UNIT
        yield f"{claim} has waited longer for {format_request(name, amount, wanted)}"


def _devices(nodes: Sequence[Node], kind: str, of_type: str) -> dict[tuple[str, str], str]:
    """Return the devices of a kind and type, with their names for people."""
    wanted = plain_type(of_type)
    return {
        (node.id, device.id): f"{kind.upper()} {'' if node.id == LOCAL else f'{node.id}:'}{device.visible or device.id}"
        for node in nodes
        for device in node.devices
        if device.kind == kind and (not wanted or wanted in device.names)
    }
