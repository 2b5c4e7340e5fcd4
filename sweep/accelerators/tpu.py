"""TPU slices as arithmetic: generations, topologies, hosts and workers; and the variables that show chips to a process.

    slice      chips that are linked with each other and rented in one piece; its topology is its shape: 4x4
    host       one machine of a slice, one node of the inventory: a v6e slice of 4x4 has 4 hosts of 4 chips
    worker     one process of a training group; normally it has all chips of one host

Nothing here reads a machine: that is `sweep.accelerators.tpu_host`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from searchers.errors import nearest
from sweep.checks import is_whole
from sweep.errors import ResourceError

CHIP_COUNTS = (1, 2, 4, 8)
"""How many chips one process can have: libtpu knows no other shapes inside a host."""

_MEGASCALE_PORT = 8081
# Chips of a process -> how they lie inside the host. The last is only for a host whose size is not known.
_BOUNDS = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1", 8: "2,4,1"}


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation of TPUs.

    Attributes:
        name: for instance `v6e`.
        type: what `accelerator_type` and the devices of the inventory call it, `TPU-V6E`.
        num_dimensions: of its topologies, 2 or 3.
        cores_per_chip: what the number of a pod type counts for each chip: `v4-8` has 4 chips, `v6e-8` has 8.
        host_sizes: how many chips its hosts may have.
        topologies: of the slices that are rented out, smallest first.
    """

    name: str
    type: str
    num_dimensions: int
    cores_per_chip: int
    host_sizes: tuple[int, ...]
    topologies: tuple[str, ...] = field(repr=False)

    def __str__(self) -> str:
        return self.name

    @property
    def labels(self) -> tuple[str, ...]:
        """The accelerator types that its chips answer to, its `type` first."""
        return tuple(dict.fromkeys((self.type, f"TPU-{self.name.upper()}", self.name)))


def _cuboids(*largest: int) -> tuple[str, ...]:
    """Return the topologies of three dimensions, each a multiple of 4, up to `largest`, smallest first."""
    x, y, z = (range(4, most + 1, 4) for most in largest)
    shapes = [(i, j, k) for i in x for j in y for k in z]
    return tuple("x".join(map(str, shape)) for shape in sorted(shapes, key=lambda shape: (math.prod(shape), shape)))


_V2 = ("2x2", "4x4", "4x8", "8x8", "8x16", "16x16")
_EFFICIENT = ("1x1", "2x2", "2x4", "2x8", "4x4", "4x8", "8x8", "8x16", "16x16")
_SMALL_CUBOIDS = ("2x2x1", "2x2x2", "2x2x4", "2x4x4")
_V7X = (*_SMALL_CUBOIDS, "4x4x4", "4x4x8", "4x8x8", "8x8x8", "8x8x16", "8x16x16")

GENERATIONS: Mapping[str, Generation] = {
    generation.name: generation
    for generation in (
        Generation("v2", "TPU-V2", 2, 2, (4,), _V2),
        Generation("v3", "TPU-V3", 2, 2, (4,), (*_V2, "16x32", "32x32")),
        Generation("v4", "TPU-V4", 3, 2, (4,), (*_SMALL_CUBOIDS, *_cuboids(12, 12, 16))),
        Generation("v5p", "TPU-V5P", 3, 2, (4,), (*_SMALL_CUBOIDS, *_cuboids(16, 16, 24))),
        Generation("v5e", "TPU-V5LITEPOD", 2, 1, (1, 4, 8), _EFFICIENT),
        Generation("v6e", "TPU-V6E", 2, 1, (1, 4, 8), _EFFICIENT),
        Generation("v7x", "TPU-V7X", 3, 2, (4,), _V7X),
    )
}
"""Every generation by its name."""

# What else people and machines call them, without `tpu`, `-`, `_` and blanks: Google's marketing, jax's `device_kind`.
_ALIASES = {
    "v5litepod": "v5e",
    "v5lite": "v5e",
    "v6lite": "v6e",
    "trillium": "v6e",
    "v7": "v7x",
    "ironwood": "v7x",
}


def parse_generation(text: str | Generation) -> Generation:
    """Return the generation that `text` names, in any of the usual spellings and any case; a generation stays itself.

    `TPU-V6E`, `v6e`, `tpu6e`; `TPU-V5LITEPOD`, `v5litepod`, `v5e`; `TPU-V7X`, `TPU7X`; the values of GKE's node label
    (`tpu-v5-lite-podslice`) and jax's `device_kind` (`TPU v6 lite`).

    Raises:
        ResourceError: none of them; the nearest is named. A pod type such as `v6e-16` is none: it names a slice.
    """
    if isinstance(text, Generation):
        return text
    if not isinstance(text, str):
        raise ResourceError(f"accelerator_type is {text!r}; expected a text such as 'TPU-V6E'.")
    found = _generation(text)
    if found is not None:
        return found
    head, _, tail = text.strip().rpartition("-")
    slice_of = _generation(head) if tail.isdecimal() else None
    if slice_of is not None:
        shapes = [
            shape for shape in slice_of.topologies if _num_chips(shape) * slice_of.cores_per_chip == int(tail)
        ] or slice_of.topologies[:1]
        raise ResourceError(
            f"accelerator_type {text!r} names a whole slice; expected a generation. Write "
            f"accelerator_type={slice_of.type!r} and give the slice's shape, for instance topology={shapes[-1]!r}."
        )
    raise ResourceError(f"unknown TPU type {text!r}. {nearest(_simple(text), GENERATIONS)}")


def _generation(text: str) -> Generation | None:
    name = _simple(text)
    return GENERATIONS.get(_ALIASES.get(name, name))


def _simple(text: str) -> str:
    """Return a generation's name without decoration: `TPU-V6E` and `tpu-v6e-slice` are both `v6e`."""
    simple = re.sub(r"[\s_-]", "", text.lower()).removeprefix("tpu")
    simple = re.sub(r"(podslice|slice|device)$", "", simple)
    return f"v{simple}" if simple[:1].isdecimal() else simple


def parse_topology(text: str, generation: Generation | str) -> tuple[int, ...]:
    """Return the dimensions of a slice, in chips: `(4, 4)` for `"4x4"`.

    Args:
        generation: what `parse_generation` returned, or takes.

    Raises:
        ResourceError: no topology, too many or too few dimensions for the generation, or none of its topologies; those
            nearest to it are listed.
    """
    generation = parse_generation(generation)
    example = generation.topologies[min(2, len(generation.topologies) - 1)]
    match = re.fullmatch(r"\s*\d+(\s*[x×]\s*\d+)+\s*", text.lower()) if isinstance(text, str) else None
    if match is None:
        raise ResourceError(f"topology is {text!r}; expected numbers with x between them, such as {example!r}.")
    dimensions = tuple(int(number) for number in re.findall(r"\d+", match[0]))
    if len(dimensions) != generation.num_dimensions:
        raise ResourceError(
            f"topology {text!r} has {len(dimensions)} dimensions; {generation} has slices of "
            f"{generation.num_dimensions}, such as {example!r}."
        )
    if "x".join(map(str, dimensions)) not in generation.topologies:
        raise ResourceError(
            f"topology {text!r} is no slice of {generation}; the nearest ones are "
            f"{', '.join(_nearest_topologies(dimensions, generation))}."
        )
    return dimensions


def _nearest_topologies(dimensions: tuple[int, ...], generation: Generation) -> list[str]:
    """Return four topologies: the same numbers in another order first, then those of the nearest number of chips."""
    chips = max(math.prod(dimensions), 1)

    def distance(topology: str) -> tuple[bool, float]:
        is_other = sorted(topology.split("x"), key=int) != [str(number) for number in sorted(dimensions)]
        return is_other, abs(math.log2(_num_chips(topology) / chips))

    return sorted(generation.topologies, key=distance)[:4]


def _num_chips(topology: str) -> int:
    return math.prod(int(number) for number in topology.split("x"))


@dataclass(frozen=True, slots=True)
class SlicePlan:
    """How the workers of a group lie on TPU slices; the workers of one slice are contiguous in rank.

    Attributes:
        chips: of one slice.
        hosts_per_slice: each of `chips_per_host` chips.
        workers_per_slice: as many for each host.
        num_slices: of the group.
        tpu_per_worker: chips that each worker holds.
        warnings: what the user should know: chips that stay unused.
    """

    generation: Generation
    topology: str
    chips: int
    chips_per_host: int
    hosts_per_slice: int
    workers_per_slice: int
    num_slices: int
    tpu_per_worker: int
    warnings: tuple[str, ...] = ()

    @property
    def pod_type(self) -> str:
        """The name under which such a slice is rented: `v6e-16` for 16 chips, `v4-8` for 4 chips of 2 cores."""
        name = self.generation.type.removeprefix("TPU-").lower()
        return f"{name}-{self.chips * self.generation.cores_per_chip}"

    @property
    def num_workers(self) -> int:
        """Workers of the whole group."""
        return self.workers_per_slice * self.num_slices


def plan_slices(
    topology: str,
    accelerator_type: str,
    num_workers: int | None,
    *,
    tpu_per_worker: int | None = None,
    chips_per_host: int | None = None,
) -> SlicePlan:
    """Return how many slices, hosts and chips `num_workers` workers need.

    Without `tpu_per_worker` each worker has all chips of one host. With fewer there are two readings. Workers fill
    every host where `num_workers` is a multiple of what fills a slice (chips / `tpu_per_worker`). Otherwise there is
    one worker on each host, whose other chips stay unused, with a warning: on a v6e of 4x4 (4 hosts of 4 chips) 8
    workers of 2 chips fill one slice, and 4 workers of 2 chips lie on 4 hosts.

    Args:
        num_workers: of the whole group; a multiple of the workers of one slice. None: those that fill one slice.
        tpu_per_worker: 1, 2, 4 or 8, at most the chips of a host, so that no worker straddles two hosts.
        chips_per_host: where the usual number is not meant. It is 4; v5e and v6e slices of up to 8 chips are one host,
            but a 2x4 is also rented as two hosts of 4.

    Raises:
        ResourceError: an unknown generation or topology; otherwise all that is wrong, one line each.
    """
    generation = parse_generation(accelerator_type)
    dimensions = parse_topology(topology, generation)
    chips, shape = math.prod(dimensions), "x".join(map(str, dimensions))
    what = f"a {generation} slice of {shape}"
    problems: list[str] = []

    def chosen(given: Any, usual: int, known: Sequence[int], found: str, why: str) -> int:
        if given is None or (given in known and not isinstance(given, bool)):
            return int(given or usual)
        problems.append(f"{found}; expected {_either(known)}{why}")
        return usual

    # Small slices of v5e and v6e are one host, all others hosts of 4.
    per_host = chosen(
        chips_per_host,
        chips if chips in generation.host_sizes else 4,
        [size for size in generation.host_sizes if chips % size == 0],
        f"chips_per_host is {chips_per_host!r}",
        f" for {what} ({_count(chips, 'chip')}).",
    )
    per_worker = chosen(
        tpu_per_worker,
        per_host,
        [number for number in CHIP_COUNTS if number <= per_host],
        f"a worker asks for {tpu_per_worker!r} TPU chips",
        f": a host of {what} has {_count(per_host, 'chip')}, and a worker lies on one host.",
    )
    hosts, full = chips // per_host, chips // per_worker
    num_workers = full if num_workers is None else num_workers
    if not is_whole(num_workers) or num_workers < 1:
        problems.append(f"num_workers is {num_workers!r}; expected a whole number of at least 1.")
    elif not problems and num_workers % hosts:
        problems.append(
            f"num_workers is {num_workers}; {what} has {_count(hosts, 'host')} of {_count(per_host, 'chip')}, so "
            f"expected a multiple of {hosts}: {hosts}, {2 * hosts}, {3 * hosts} ..."
        )
    if problems:
        raise ResourceError("\n".join(problems))
    workers = full if num_workers % full == 0 else hosts
    return SlicePlan(
        generation=generation,
        topology=shape,
        chips=chips,
        chips_per_host=per_host,
        hosts_per_slice=hosts,
        workers_per_slice=workers,
        num_slices=num_workers // workers,
        tpu_per_worker=per_worker,
        warnings=() if workers == full else (_unused(num_workers, per_worker, per_host, chips, full),),
    )


def _unused(num_workers: int, per_worker: int, per_host: int, chips: int, full: int) -> str:
    used = chips // per_host * per_worker
    workers = f"{_count(num_workers, 'worker')} with TPU={per_worker}{' each' if num_workers > 1 else ''}"
    return (
        f"{workers}: a host has {per_host} chips, so {chips - used} of the {chips} chips of every slice stay unused, "
        f"and the chips in use may not be linked as one slice. To use them all set TPU={per_host}, or num_workers to a "
        f"multiple of {full}."
    )


def _either(numbers: Sequence[int]) -> str:
    *first, last = map(str, numbers)
    return f"{', '.join(first)} or {last}" if first else last


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def chip_variables(chips: Sequence[str], chips_on_host: int, *, parent: str | None = None) -> dict[str, str | None]:
    """Return the variables that show a process exactly `chips` of its host; None means: remove it.

    | chips | TPU_VISIBLE_CHIPS | TPU_CHIPS_PER_HOST_BOUNDS | TPU_HOST_BOUNDS |
    | --- | --- | --- | --- |
    | all of the host | removed | removed | removed |
    | 1, 2, 4 | the list | 1,1,1 or 1,2,1 or 2,2,1 | 1,1,1 |
    | none, on a host that has some | empty | | |
    | any other number | the list | removed | removed |

    For the last row libtpu has no shape; what it says of that stands in the output of the process.

    Args:
        chips: as the parent's environment names them, each once; ascending numbers are what libtpu expects.
        chips_on_host: chips of the host in the inventory; 0 when unknown, then even all of them are listed.
        parent: `TPU_VISIBLE_CHIPS` of the process that starts this one. When it is set, the inventory is what it
            leaves, which need not be all of the host: for exactly those chips the parent's variables stay as they are.
    """
    if not chips:
        return {"TPU_VISIBLE_CHIPS": ""} if chips_on_host else {}
    names = sorted(chips, key=lambda name: (0, int(name), name) if name.isdecimal() else (1, 0, name))
    if parent is not None and set(names) == {name.strip() for name in parent.split(",")}:
        return {}
    if parent is None and len(names) == chips_on_host:
        return dict.fromkeys(("TPU_VISIBLE_CHIPS", "TPU_CHIPS_PER_HOST_BOUNDS", "TPU_HOST_BOUNDS"))
    bounds = _BOUNDS.get(len(names))
    return {
        "TPU_VISIBLE_CHIPS": ",".join(names),
        "TPU_CHIPS_PER_HOST_BOUNDS": bounds,
        "TPU_HOST_BOUNDS": None if bounds is None else "1,1,1",
    }


def slice_variables(*, slice_id: int, num_slices: int, coordinator: str) -> dict[str, str]:
    """Return the variables by which a worker knows its slice among several; none for a single slice.

    `slice_id` counts from 0 in the order of the ranks, and `coordinator` is the name or address of the host of rank 0.
    """
    if num_slices == 1:
        return {}
    return {
        "MEGASCALE_COORDINATOR_ADDRESS": coordinator,
        "MEGASCALE_PORT": str(_MEGASCALE_PORT),
        "MEGASCALE_NUM_SLICES": str(num_slices),
        "MEGASCALE_SLICE_ID": str(slice_id),
    }


def identity_variables(worker_id: int, hostnames: Sequence[str]) -> dict[str, str]:
    """Return the variables by which a process knows its host, the `worker_id`-th, among those of its slice."""
    return {"TPU_WORKER_ID": str(worker_id), "TPU_WORKER_HOSTNAMES": ",".join(hostnames)}
