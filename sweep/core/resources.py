"""What trials ask for and what machines have: requests, inventories and placements, as plain values."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sweep.errors import ResourceError

__all__ = [
    "STRATEGIES",
    "Bundle",
    "BundlePlacement",
    "Device",
    "Node",
    "Placement",
    "PlacementGroupFactory",
    "Resources",
    "parse_bytes",
    "parse_resources",
]

STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator: `id` is unique on its node, `visible` is what the visible-devices variable must hold for it."""

    id: str
    kind: str = "gpu"  # "gpu" or "tpu"
    type: str = ""  # for instance "H100"; empty when unknown
    memory: int = 0  # bytes; 0 when unknown
    visible: str = ""  # index or uuid as the parent's environment names it; empty: the same as `id`


@dataclass(frozen=True, slots=True)
class Node:
    """One machine as declared or detected.

    Attributes:
        cpus: schedulable CPUs; may be fractional.
        memory: schedulable bytes; 0 when memory is not accounted for.
        custom: other countable things by name.
    """

    id: str = "local"
    cpus: float = 1.0
    memory: int = 0
    devices: tuple[Device, ...] = ()
    custom: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bundle:
    """One part of a request that must lie on one node.

    Attributes:
        cpu: number of CPUs, any fraction, >= 0.
        gpu: whole number of GPUs, or a share in (0, 1) of one.
        tpu: whole number of TPU chips.
        memory: bytes.
        custom: (name, amount) pairs, sorted by name.
    """

    cpu: float = 0.0
    gpu: float = 0.0
    tpu: float = 0.0
    memory: int = 0
    custom: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        for name, amount in (
            ("cpu", self.cpu),
            ("gpu", self.gpu),
            ("tpu", self.tpu),
            ("memory", self.memory),
            *self.custom,
        ):
            if (
                isinstance(amount, bool)
                or not isinstance(amount, (int, float))
                or not math.isfinite(amount)
                or amount < 0
            ):
                raise ResourceError(f"a trial asks for {name}={amount!r}; expected a number of at least 0.")
        if self.gpu > 1 and self.gpu != int(self.gpu):
            raise ResourceError(
                f"a trial asks for gpu={self.gpu:g}; expected a whole number, or a share between 0 and 1 of a "
                f"single GPU."
            )
        if self.tpu != int(self.tpu):
            raise ResourceError(f"a trial asks for tpu={self.tpu:g}; TPU chips are given out whole.")

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all is asked for."""
        return not (self.cpu or self.gpu or self.tpu or self.memory or any(amount for _, amount in self.custom))

    def __str__(self) -> str:
        parts = [
            f"{name}={amount:g}" for name, amount in (("cpu", self.cpu), ("gpu", self.gpu), ("tpu", self.tpu)) if amount
        ]
        if self.memory:
            parts.append(f"memory={format_bytes(self.memory)}")
        parts += [f"{name}={amount:g}" for name, amount in self.custom if amount]
        return " ".join(parts) or "nothing"


@dataclass(frozen=True)
class Resources:
    """A trial's whole request: bundles, admitted together or not at all.

    Attributes:
        bundles: in order; the first is the trial's own process, the others are for what it launches.
        strategy: PACK (few nodes), SPREAD (many), STRICT_PACK (one node), STRICT_SPREAD (one node per bundle).
        distinct_devices: bundles never share one device (wanted anyway where it is possible).
    """

    bundles: tuple[Bundle, ...] = (Bundle(cpu=1.0),)
    strategy: str = "PACK"
    distinct_devices: bool = False

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ResourceError(
                f"unknown placement strategy {self.strategy!r}; expected one of {', '.join(STRATEGIES)}."
            )
        if not self.bundles or all(bundle.is_empty for bundle in self.bundles):
            raise ResourceError(
                "a trial asks for nothing at all; nothing would limit how many run at once. "
                "Ask for a share, for instance resources_per_trial={'cpu': 0.1}."
            )

    @cached_property
    def _hash(self) -> int:
        return hash((self.bundles, self.strategy, self.distinct_devices))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def total(self) -> Bundle:
        """The sum over all bundles; its `gpu` may be fractional above 1, so it is not a valid bundle to place."""
        custom: dict[str, float] = {}
        for bundle in self.bundles:
            for name, amount in bundle.custom:
                custom[name] = custom.get(name, 0.0) + amount
        total = object.__new__(Bundle)
        for name, value in (
            ("cpu", sum(b.cpu for b in self.bundles)),
            ("gpu", sum(b.gpu for b in self.bundles)),
            ("tpu", sum(b.tpu for b in self.bundles)),
            ("memory", sum(b.memory for b in self.bundles)),
            ("custom", tuple(sorted(custom.items()))),
        ):
            object.__setattr__(total, name, value)
        return total

    def __str__(self) -> str:
        if len(self.bundles) == 1:
            return str(self.bundles[0])
        counts: dict[Bundle, int] = {}
        for bundle in self.bundles:
            counts[bundle] = counts.get(bundle, 0) + 1
        return " + ".join(f"{n} x ({b})" if n > 1 else f"({b})" for b, n in counts.items()) + f" {self.strategy}"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` reads them back."""
        bundles = [
            {k: v for k, v in (("cpu", b.cpu), ("gpu", b.gpu), ("tpu", b.tpu), ("memory", b.memory)) if v}
            | dict(b.custom)
            for b in self.bundles
        ]
        data: dict[str, Any] = {"bundles": bundles}
        if self.strategy != "PACK":
            data["strategy"] = self.strategy
        if self.distinct_devices:
            data["distinct_devices"] = True
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Resources:
        """Read what `to_json` wrote."""
        return cls(
            tuple(_bundle(bundle, default_cpu=0.0) for bundle in data["bundles"]),
            data.get("strategy", "PACK"),
            data.get("distinct_devices", False),
        )


def PlacementGroupFactory(bundles: Sequence[Mapping[str, float]], strategy: str = "PACK") -> Resources:
    """Return a request of several bundles, under the name that Tune's users know.

    Args:
        bundles: dicts of `CPU`, `GPU`, `memory` (bytes) and custom names; the first is for the trial's own process
            and may be empty.
        strategy: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD.

    Raises:
        ResourceError: no bundle at all, only an empty first one, an unknown strategy, a negative amount.
    """
    if not bundles:
        raise ResourceError("PlacementGroupFactory needs at least one bundle, for instance [{'CPU': 1}].")
    return Resources(tuple(_bundle(bundle, default_cpu=0.0) for bundle in bundles), strategy)


@dataclass(frozen=True, slots=True)
class BundlePlacement:
    """Where one bundle lies: its node, and per device the share in (0, 1] it holds."""

    node: str
    devices: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Placement:
    """What a trial got: one entry per bundle of its request, in the same order."""

    bundles: tuple[BundlePlacement, ...]

    @property
    def devices(self) -> tuple[str, ...]:
        """Ids of all devices held, each once, in order."""
        return tuple(dict.fromkeys(device for bundle in self.bundles for device, _ in bundle.devices))

    def to_json(self) -> list[Any]:
        """Return plain JSON values; `from_json` reads them back."""
        return [[b.node, [list(d) for d in b.devices]] for b in self.bundles]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> Placement:
        """Read what `to_json` wrote."""
        return cls(tuple(BundlePlacement(node, tuple((d, s) for d, s in devices)) for node, devices in data))


_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def parse_bytes(value: int | float | str) -> int:
    """Return a number of bytes from a number or a text such as `"4G"`, `"512MiB"`, `"1.5 gb"`.

    Raises:
        ResourceError: not a number of bytes.
    """
    if isinstance(value, str):
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([kmgt]?i?)b?\s*", value.lower())
        if match is None or match[2] == "i":
            raise ResourceError(
                f"memory={value!r} is no amount of memory; expected bytes or a text such as '4G' or '512MiB'."
            )
        return int(float(match[1]) * _UNITS[match[2]])
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise ResourceError(
            f"memory={value!r} is no amount of memory; expected bytes or a text such as '4G' or '512MiB'."
        )
    return int(value)


def format_bytes(value: int) -> str:
    """Return bytes for people: `1.5GiB`."""
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.3g}{unit}"
        amount /= 1024
    return f"{amount:.4g}TiB"


def parse_resources(request: Any) -> Resources:
    """Return the request that a user meant.

    Args:
        request: None (1 CPU), a dict with `cpu`, `gpu`, `tpu`, `memory`, custom names at top level or under
            `custom_resources` (a dict without `cpu` asks for 0 CPUs, as in Tune), or `Resources`.

    Raises:
        ResourceError: anything else, a negative or non-numeric amount, a request of nothing.
    """
    if request is None:
        return Resources()
    if isinstance(request, Resources):
        return request
    if isinstance(request, Mapping):
        if not request:
            return Resources()
        return Resources((_bundle(request, default_cpu=0.0),))
    raise ResourceError(
        f"resources_per_trial is {request!r}; expected a dict such as {{'cpu': 2, 'gpu': 1}}, a PlacementGroupFactory, "
        "or a function of the config that returns one of them."
    )


def _bundle(request: Mapping[str, Any], default_cpu: float) -> Bundle:
    amounts: dict[str, Any] = {}
    for key, value in request.items():
        if key == "custom_resources":
            if not isinstance(value, Mapping):
                raise ResourceError(f"custom_resources is {value!r}; expected a dict of names and amounts.")
            amounts.update(value)
            continue
        if not isinstance(key, str):
            raise ResourceError(f"a resource is named {key!r}; expected a text such as 'cpu'.")
        name = key.lower() if key.lower() in ("cpu", "gpu", "tpu", "memory") else key
        if name in ("cpus", "gpus", "tpus", "num_cpus", "num_gpus", "mem"):
            right = {
                "cpus": "cpu",
                "gpus": "gpu",
                "tpus": "tpu",
                "num_cpus": "cpu",
                "num_gpus": "gpu",
                "mem": "memory",
            }[name]
            raise ResourceError(f"unknown resource {key!r} in resources_per_trial; did you mean {right!r}?")
        if name in amounts:
            raise ResourceError(f"resource {name!r} is given twice, in upper and lower case.")
        amounts[name] = value
    for name, value in amounts.items():
        if name != "memory" and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise ResourceError(f"a trial asks for {name}={value!r}; expected a number of at least 0.")
    cpu = amounts.pop("cpu", default_cpu)
    gpu = amounts.pop("gpu", 0.0)
    tpu = amounts.pop("tpu", 0.0)
    memory = parse_bytes(amounts.pop("memory", 0))
    return Bundle(
        float(cpu), float(gpu), float(tpu), memory, tuple(sorted((k, float(v)) for k, v in amounts.items() if v))
    )
