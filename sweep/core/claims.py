"""What other sweeps of the machine hold, and what they wait for before this one: as plain values, and in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sweep.core.resources import UNIT, Node, format_request, name_device, plain_type

Part = tuple[str, str, str, int]  # node, name, device or its type, how much


@dataclass(frozen=True, slots=True)
class Claim:
    """What one other sweep of the machine keeps from this one.

    Amounts count as the packer counts them: memory in bytes, everything else in billionths.

    Attributes:
        experiment, pid: of its driver.
        held: (node, name, device id, amount) that its trials hold; there is no device but of `gpu` and `tpu`.
        wants: (node, name, accelerator type, amount) of the request for which it has waited longer than this sweep, on
            each node that it may lie on; of `gpu` and `tpu` the number of devices.
    """

    experiment: str
    pid: int
    held: tuple[Part, ...] = ()
    wants: tuple[Part, ...] = ()

    def __str__(self) -> str:
        return f"experiment {self.experiment!r} (pid {self.pid})"


def of_others(claims: Sequence[Claim], nodes: Iterable[Node], name: str, of_type: str = "") -> str:
    """Return who holds what of something, for people: `GPU 0 is held by experiment 'digits' (pid 123)`."""
    wanted, unit = plain_type(of_type), 1 if name in ("gpu", "tpu", "memory") else UNIT
    devices = {
        (node.id, device.id): f"{name.upper()} {name_device(node.id, device.visible or device.id)}"
        for node in nodes
        for device in node.devices
        if device.kind == name and (not wanted or wanted in device.names)
    }
    texts = []
    for claim in claims:
        held = [
            (f"{share / UNIT:g} of " if share < UNIT else "") + devices[node, device]
            for node, _, device, share in claim.held
            if (node, device) in devices
        ]
        if amount := sum(amount for _, what, device, amount in claim.held if what == name and not device):
            held = [format_request(name, amount / unit)]
        if held:
            texts.append(f"{' and '.join(held)} {'is' if len(held) == 1 else 'are'} held by {claim}")
        asked = [(of_type, amount) for _, what, of_type, amount in claim.wants if what == name]
        for of_type, amount in asked[:1]:
            texts.append(f"{claim} has waited longer for {format_request(name, amount / unit, of_type)}")
    return "; ".join(texts[:3])
