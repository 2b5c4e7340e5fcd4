"""What trials ask for and what machines have: requests, inventories and placements, as plain values."""

from __future__ import annotations

import difflib
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from typing import Any

from sweep import checks
from sweep.errors import ResourceError, refuse_unknown

# Amounts are counted in billionths, as integers and rounded down: 0.1 + 0.2 must leave room for 0.7, and six sixths
# must fit.
UNIT = 1_000_000_000
LANE = "lane"  # the resource of which a trial asks for one that shares its process with others
LOCAL = "local"  # the node that a machine is where no others are declared
STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")

# The shapes in which libtpu shows a part of a host to one process.
_CHIP_COUNTS = (0, 1, 2, 4, 8)
# Ray's spelling: the type is a part of a resource's name, and the amount means nothing.
_TYPE_PREFIX = "accelerator_type:"


@refuse_unknown()
@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator: `id` is unique on its node, `visible` is what the visible-devices variable must hold for it."""

    id: str
    kind: str = "gpu"  # "gpu" or "tpu"
    type: str = ""  # for instance "NVIDIA A100-SXM4-40GB"; empty when unknown
    memory: int = 0  # bytes; 0 when unknown
    visible: str = ""  # index or uuid as the parent's environment names it; empty: the same as `id`
    labels: tuple[str, ...] = ()  # accelerator types that it answers to, for instance ("A100", "A100-40G")
    vendor: str = ""  # "nvidia", "amd" or "google"; empty: nvidia's rules for a GPU, google's for a TPU chip

    @property
    def names(self) -> frozenset[str]:
        """The types that it answers to, as `plain_type` writes them."""
        return _plain_types((self.type, *self.labels))


@lru_cache(maxsize=1024)
def _plain_types(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(plain_type(name) for name in names if name)


@refuse_unknown()
@dataclass(frozen=True, slots=True)
class Node:
    """One machine as declared or detected.

    Attributes:
        cpus: schedulable CPUs; may be fractional.
        memory: schedulable bytes; 0 when memory is not accounted for.
        custom: other countable things by name.
        slice: the TPU slice that it is a host of, hosts of one slice in the order of their worker ids; empty: none but
            its own.
        gpu_note: why it has no more GPUs, in words, for error messages; empty: that was declared, or is not remarkable.
        address: at which the other nodes reach it, IPv4, such as `10.0.0.5`; empty: it is the driver's machine, and so
            are all others.
    """

    id: str = LOCAL
    cpus: float = 1.0
    memory: int = 0
    devices: tuple[Device, ...] = ()
    custom: Mapping[str, float] = field(default_factory=dict)
    slice: str = ""
    gpu_note: str = field(default="", compare=False)
    address: str = ""

    @property
    def slice_key(self) -> tuple[bool, str]:
        """What the hosts of one TPU slice have in common, and no other nodes."""
        return (True, self.slice) if self.slice else (False, self.id)

    def amount(self, name: str, accelerator_type: str = "") -> float:
        """Return how much there is of `cpu`, `gpu`, `tpu`, `memory` or a custom name, of devices those of a type."""
        match name:
            case "cpu":
                return self.cpus
            case "gpu" | "tpu":
                wanted = plain_type(accelerator_type)
                return float(sum(d.kind == name and (not wanted or wanted in d.names) for d in self.devices))
            case "memory":
                return float(self.memory)
            case _:
                return self.custom.get(name, 0.0)


@dataclass(frozen=True, slots=True)
class Bundle:
    """One part of a request that must lie on one node.

    Attributes:
        cpu: number of CPUs, any fraction, >= 0.
        gpu: whole number of GPUs, or a share in (0, 1) of one.
        tpu: number of TPU chips, adjacent ones of one host: 0, 1, 2, 4 or 8.
        memory: bytes.
        custom: (name, amount) pairs, sorted by name.
        accelerator_type: only devices with this type or label will do, whatever its case; empty: any.

    Raises:
        ResourceError: an amount that is negative, no number or nothing that can be given out; a type of no device.
    """

    cpu: float = 0.0
    gpu: float = 0.0
    tpu: float = 0.0
    memory: int = 0
    custom: tuple[tuple[str, float], ...] = ()
    accelerator_type: str = ""

    def __post_init__(self) -> None:
        four = (("cpu", self.cpu), ("gpu", self.gpu), ("tpu", self.tpu), ("memory", self.memory))
        for name, amount in (*four, *self.custom):
            if isinstance(amount, bool) or not isinstance(amount, (int, float)) or not 0 <= amount < math.inf:
                raise ResourceError(f"a trial asks for {name}={amount!r}; expected a number of at least 0.")
        if self.gpu > 1 and self.gpu != int(self.gpu):
            raise ResourceError(
                f"a trial asks for gpu={self.gpu:g}; expected a whole number, "
                "or a share between 0 and 1 of a single GPU."
            )
        if self.tpu not in _CHIP_COUNTS:
            raise ResourceError(
                f"a trial asks for tpu={self.tpu:g}; TPU chips are given out by 1, 2, 4 or 8, found {self.tpu:g}. A "
                "trial that needs more asks for several bundles."
            )
        if not isinstance(self.accelerator_type, str):
            raise ResourceError(
                f"a trial asks for accelerator_type={self.accelerator_type!r}; expected a text such as 'A100'."
            )
        if self.accelerator_type and not (self.gpu or self.tpu):
            raise ResourceError(
                f"a trial asks for accelerator_type={self.accelerator_type!r} without gpu or tpu; expected devices to "
                "be of that type. Add gpu=1, or leave accelerator_type out."
            )

    @property
    def amounts(self) -> dict[str, float]:
        """How much it asks for of `cpu`, `gpu`, `tpu`, `memory` and custom names; what it does not need is left out."""
        four = {"cpu": self.cpu, "gpu": self.gpu, "tpu": self.tpu, "memory": self.memory}
        return {name: amount for name, amount in (*four.items(), *self.custom) if amount}

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all is asked for."""
        return not self.amounts

    def type_of(self, name: str) -> str:
        """Return the accelerator type that it wants of `gpu` or `tpu`; nothing else has one."""
        return self.accelerator_type if name in ("gpu", "tpu") else ""

    def amount(self, name: str) -> float:
        """Return how much it asks for of `cpu`, `gpu`, `tpu`, `memory` or a custom name."""
        return self.amounts.get(name, 0.0)

    def __str__(self) -> str:
        parts = []
        for name, amount in self.amounts.items():
            of_type = self.type_of(name)
            parts.append(f"{name}={format_amount(name, amount)}{f' ({of_type})' if of_type else ''}")
        return " ".join(parts) or "nothing"


@refuse_unknown()
@dataclass(frozen=True)
class Resources:
    """A trial's whole request: bundles, admitted together or not at all.

    Attributes:
        bundles: in order; the first is the trial's own process, the others are for what it launches.
        strategy: PACK (few nodes), SPREAD (many), STRICT_PACK (one node), STRICT_SPREAD (one node per bundle).
        distinct_devices: bundles never share one device (wanted anyway where it is possible).
        alone: nothing else runs on its nodes meanwhile.
        bundles_per_slice: the bundles that ask for TPU chips, in order, fill whole TPU slices, so many to each; 0: they
            may lie anywhere.
        shared_devices: the contrary of distinct ones is wanted: shares of a GPU lie on one device where it has room for
            all, otherwise on as few as possible.

    Raises:
        ResourceError: an unknown strategy, a request of nothing, bundles that do not fill whole slices, devices that
            are both distinct and shared.
    """

    bundles: tuple[Bundle, ...] = (Bundle(cpu=1.0),)
    strategy: str = "PACK"
    distinct_devices: bool = False
    bundles_per_slice: int = 0
    alone: bool = field(default=False, kw_only=True)
    shared_devices: bool = field(default=False, kw_only=True)

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
        if self.distinct_devices and self.shared_devices:
            raise ResourceError("distinct_devices and shared_devices are both True; expected one of them at most.")
        expected = "a whole number, 0 for no slices"
        per_slice = checks.resource.whole("bundles_per_slice", self.bundles_per_slice, expected=expected)
        object.__setattr__(self, "bundles_per_slice", per_slice)
        number = sum(1 for bundle in self.bundles if bundle.tpu) if per_slice else 0
        if per_slice and (not number or number % per_slice):
            raise ResourceError(
                f"bundles_per_slice is {per_slice} and the bundles with tpu are {number}; expected a multiple of "
                f"{per_slice}, for whole slices. Change the number of bundles with tpu, or bundles_per_slice."
            )

    @cached_property
    def _hash(self) -> int:
        shape = self.strategy, self.distinct_devices, self.bundles_per_slice, self.alone, self.shared_devices
        return hash((self.bundles, *shape))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def slice_runs(self) -> tuple[tuple[int, ...], ...]:
        """The positions of the bundles of each TPU slice, in order; empty where bundles may lie anywhere."""
        per_slice = self.bundles_per_slice
        chips = [position for position, bundle in enumerate(self.bundles) if bundle.tpu] if per_slice else []
        return tuple(tuple(chips[start : start + per_slice]) for start in range(0, len(chips), per_slice or 1))

    @cached_property
    def counts(self) -> Mapping[Bundle, int]:
        """How many of each bundle it asks for."""
        return Counter(self.bundles)

    @cached_property
    def uniform(self) -> tuple[Bundle, int] | None:
        """The bundle that it asks for several times, or once, and how often; None where bundles differ by more than
        that some ask for nothing, or where they depend on each other."""
        if self.distinct_devices or self.bundles_per_slice:
            return None
        asking = {bundle: number for bundle, number in self.counts.items() if not bundle.is_empty}
        is_each_apart = self.strategy == "STRICT_SPREAD" and len(self.counts) > 1
        return next(iter(asking.items())) if len(asking) == 1 and not is_each_apart else None

    @property
    def required_resources(self) -> dict[str, float]:
        """The sum over all bundles under Tune's names: `CPU`, `GPU`, `TPU`, `memory` and custom ones."""
        amounts = self.total.amounts
        return {name.upper() if name in ("cpu", "gpu", "tpu") else name: amount for name, amount in amounts.items()}

    @property
    def head_cpus(self) -> float:
        """CPUs of the first bundle: the trial's own process."""
        return self.bundles[0].cpu

    @property
    def head_bundle_is_empty(self) -> bool:
        """Whether the first bundle asks for nothing: the trial's own process only waits for what it launches."""
        return self.bundles[0].is_empty

    @cached_property
    def total(self) -> Bundle:
        """The sum over all bundles; its `gpu` may be fractional above 1, so it is not a valid bundle to place."""
        sums: dict[str, float] = {}
        for bundle in self.bundles:
            for name, amount in bundle.amounts.items():
                sums[name] = sums.get(name, 0) + amount
        values: dict[str, Any] = {name: sums.pop(name, 0) for name in ("cpu", "gpu", "tpu", "memory")}
        values |= {"custom": tuple(sorted(sums.items())), "accelerator_type": ""}
        total = object.__new__(Bundle)
        for name, value in values.items():
            object.__setattr__(total, name, value)
        return total

    def needs(self) -> Iterator[tuple[str, str, float]]:
        """Yield (name, type, amount over all bundles) for everything that is asked for.

        Devices of a type count under that type, and once more under an empty one where others are asked for too.
        """
        for name, amount in self.total.amounts.items():
            typed: dict[str, list[Bundle]] = {}
            for bundle in self.bundles:
                if bundle.amount(name):
                    typed.setdefault(plain_type(bundle.type_of(name)), []).append(bundle)
            if len(typed) > 1 or "" in typed:
                yield name, "", amount
            for wanted, bundles in typed.items():
                if wanted:
                    yield name, bundles[0].accelerator_type, sum(bundle.amount(name) for bundle in bundles)

    def __str__(self) -> str:
        if len(self.bundles) == 1:
            return str(self.bundles[0])
        counts = Counter(self.bundles)
        return " + ".join(f"{n} x ({b})" if n > 1 else f"({b})" for b, n in counts.items()) + f" {self.strategy}"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` reads them back. What has its default is left out."""
        bundles = [
            b.amounts | ({"accelerator_type": b.accelerator_type} if b.accelerator_type else {}) for b in self.bundles
        ]
        others = {
            one.name: getattr(self, one.name) for one in fields(self)[1:] if getattr(self, one.name) != one.default
        }
        return {"bundles": bundles, **others}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Resources:
        """Read what `to_json` wrote."""
        others = {name: value for name, value in data.items() if name != "bundles"}
        return cls(tuple(_bundle(bundle) for bundle in data["bundles"]), **others)


@refuse_unknown()
def PlacementGroupFactory(bundles: Sequence[Mapping[str, Any]], strategy: str = "PACK") -> Resources:
    """Return a request of several bundles, under the name that Tune's users know.

    Args:
        bundles: dicts of `CPU`, `GPU`, `TPU`, `memory` (bytes), `accelerator_type` (a text) and custom names; the first
            is for the trial's own process and may be empty.
        strategy: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD.

    Raises:
        ResourceError: no bundle at all, only an empty first one, an unknown strategy, a negative amount.
    """
    if not bundles:
        raise ResourceError("PlacementGroupFactory needs at least one bundle, for instance [{'CPU': 1}].")
    return Resources(tuple(_bundle(bundle) for bundle in bundles), strategy)


def units_of(amount: float) -> int:
    """Return an amount as it is counted: in billionths."""
    return math.floor(amount * UNIT + 1e-3)


def name_device(node: str, device: str) -> str:
    """Return a device for people: its id, and before it the node, but for the one that every machine is by itself."""
    return device if node == LOCAL else f"{node}:{device}"


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
        """Ids of all devices held, in order; on several nodes an id may stand for a device of each."""
        return tuple(device for _, device in self.placed_devices)

    @property
    def placed_devices(self) -> tuple[tuple[str, str], ...]:
        """All devices held as (node, id), each once, in order: what a device is known by."""
        return tuple(dict.fromkeys((bundle.node, device) for bundle in self.bundles for device, _ in bundle.devices))

    @property
    def device_names(self) -> tuple[str, ...]:
        """All devices held, for people."""
        return tuple(name_device(node, device) for node, device in self.placed_devices)

    def to_json(self) -> list[Any]:
        """Return plain JSON values; `from_json` reads them back."""
        return [[b.node, [list(d) for d in b.devices]] for b in self.bundles]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> Placement:
        """Read what `to_json` wrote."""
        return cls(tuple(BundlePlacement(node, tuple((d, s) for d, s in devices)) for node, devices in data))


@lru_cache(maxsize=1024)
def bare_bundle(node: str) -> BundlePlacement:
    """Return the place of a bundle without devices on a node: one object for all trials there."""
    return BundlePlacement(node)


@lru_cache(maxsize=1024)
def bare_placement(node: str) -> Placement:
    """Return what a trial got whose only bundle has no devices: one object for all trials of a node."""
    return Placement((bare_bundle(node),))


_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def parse_bytes(value: int | float | str) -> int:
    """Return a number of bytes from a number or a text such as `"4G"`, `"512MiB"`, `"1.5 gb"`.

    Raises:
        ResourceError: not a number of bytes.
    """
    if isinstance(value, str):
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([kmgt]?i?)b?\s*", value.lower())
        if match is not None and match[2] != "i":
            return int(float(match[1]) * _UNITS[match[2]])
    elif checks.is_number(value) and value >= 0:
        return int(value)
    raise ResourceError(f"memory={value!r} is no amount of memory; expected bytes or a text such as '4G' or '512MiB'.")


def format_bytes(value: int) -> str:
    """Return bytes for people: `1.5GiB`."""
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.3g}{unit}"
        amount /= 1024
    return f"{amount:.4g}TiB"


def plain_type(accelerator_type: str) -> str:
    """Return an accelerator type as types are compared: in lower case."""
    return accelerator_type.strip().lower()


def format_amount(name: str, amount: float) -> str:
    """Return how much of something there is, for people: `2`, or `1.5GiB` of memory."""
    return format_bytes(int(amount)) if name == "memory" else f"{amount:g}"


def format_request(name: str, amount: float, accelerator_type: str = "") -> str:
    """Return what is asked for, for people: `gpu=2 of type A100`, `memory=1.5GiB`."""
    of_type = f" of type {accelerator_type}" if accelerator_type else ""
    return f"{name}={format_amount(name, amount)}{of_type}"


def list_devices(nodes: Iterable[Node], kind: str, accelerator_type: str) -> str:
    """Return how many devices of a kind there are by type, for people, what is most like `accelerator_type` first:
    `2 x A100-80G, 6 x L4`."""

    def likeness(name: str) -> float:
        return difflib.SequenceMatcher(None, plain_type(accelerator_type), plain_type(name)).ratio()

    devices = [device for node in nodes for device in node.devices if device.kind == kind]
    counts = Counter(max(device.labels or (device.type,), key=likeness) for device in devices)
    shown = sorted(counts, key=likeness, reverse=True)
    return ", ".join(f"{counts[name]} x {name or 'an unknown type'}" for name in shown) or f"no {kind}"


def parse_resources(request: Any) -> Resources:
    """Return the request that a user meant.

    Args:
        request: None (1 CPU), a dict with `cpu`, `gpu`, `tpu`, `memory`, custom names at top level or under
            `custom_resources` (a dict without `cpu` asks for 0 CPUs, as in Tune), `Resources`, or a `ScalingConfig`.
            The type of its devices is `accelerator_type` with a text, or Ray's `{"accelerator_type:A100": 0.001}`.

    Raises:
        ResourceError: anything else, a negative or non-numeric amount, a request of nothing.
    """
    if request is None:
        return Resources()
    if isinstance(request, Resources):
        return request
    if isinstance(request, Mapping):
        return Resources((_bundle(request),)) if request else Resources()
    if callable(factory := getattr(request, "as_placement_group_factory", None)):
        return parse_resources(factory())
    raise ResourceError(
        f"resources_per_trial is {request!r}; expected a dict such as {{'cpu': 2, 'gpu': 1}}, a PlacementGroupFactory, "
        "or a function of the config that returns one of them."
    )


# What people write for the names that exist.
_MISSPELT = {
    "cpus": "cpu",
    "gpus": "gpu",
    "tpus": "tpu",
    "num_cpus": "cpu",
    "num_gpus": "gpu",
    "num_tpus": "tpu",
    "mem": "memory",
}


def _bundle(request: Mapping[str, Any]) -> Bundle:
    amounts: dict[str, Any] = {}
    types: list[str] = []
    for key, value in request.items():
        if key == "custom_resources":
            if not isinstance(value, Mapping):
                raise ResourceError(f"custom_resources is {value!r}; expected a dict of names and amounts.")
            types += [name for key, amount in value.items() if _is_type(key) for name in _type_of(key, amount)]
            amounts.update((key, amount) for key, amount in value.items() if not _is_type(key))
            continue
        if not isinstance(key, str):
            raise ResourceError(f"a resource is named {key!r}; expected a text such as 'cpu'.")
        if _is_type(key):
            types += _type_of(key, value)
            continue
        if key in ("extra_cpu", "extra_gpu", "extra_memory"):
            raise ResourceError(
                f"{key} was for what a trial launches; give it a bundle of its own: "
                "PlacementGroupFactory([{'CPU': 1}, {'CPU': 2}])."
            )
        name = key.lower() if key.lower() in ("cpu", "gpu", "tpu", "memory") else key
        if name in _MISSPELT:
            raise ResourceError(f"unknown resource {key!r} in resources_per_trial; did you mean {_MISSPELT[name]!r}?")
        if name in amounts:
            raise ResourceError(f"resource {name!r} is given twice, in upper and lower case.")
        amounts[name] = value
    distinct = list({name.lower(): name for name in types}.values())
    if len(distinct) > 1:
        raise ResourceError(
            f"a trial asks for devices of the types {' and '.join(distinct)} in one bundle; expected one "
            "accelerator_type. Ask for the other devices in a bundle of their own."
        )
    memory = parse_bytes(amounts.pop("memory", 0))
    for name, value in amounts.items():
        if not checks.is_number(value, is_finite=False):
            is_word = isinstance(value, str) and re.fullmatch(r"[-+\s\d.,e]*", value) is None
            hint = " Only accelerator_type takes a text." if is_word else ""
            raise ResourceError(f"a trial asks for {name}={value!r}; expected a number of at least 0.{hint}")
    cpu, gpu, tpu = (float(amounts.pop(name, 0.0)) for name in ("cpu", "gpu", "tpu"))
    custom = tuple(sorted((name, float(amount)) for name, amount in amounts.items() if amount))
    return Bundle(cpu, gpu, tpu, memory, custom, distinct[0] if distinct else "")


def _is_type(key: Any) -> bool:
    """Whether an entry of a request names the type of its devices, instead of an amount."""
    return isinstance(key, str) and (key.lower() == "accelerator_type" or key.lower().startswith(_TYPE_PREFIX))


def _type_of(key: str, value: Any) -> list[str]:
    """Return the accelerator type that one entry of a request names; none where it leaves it open."""
    if ":" not in key:
        if value is None:
            return []
        if not isinstance(value, str):
            raise ResourceError(f"a trial asks for {key}={value!r}; expected a text such as 'A100'.")
        return [value.strip()] if value.strip() else []
    name = key.partition(":")[2].strip()
    if not name:
        raise ResourceError(f"resource {key!r} names no type; expected for instance 'accelerator_type:A100'.")
    if not checks.is_number(value, is_finite=False) or not value >= 0:
        raise ResourceError(f"a trial asks for {key}={value!r}; expected a small number such as 0.001.")
    return [name] if value else []
