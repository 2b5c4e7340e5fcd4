"""How large a training group is: `ScalingConfig`, checked when it is made, and the bundles that a trial asks for."""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any

from searchers.space import Domain
from sweep.accelerators import gpu, inventory
from sweep.accelerators.tpu import CHIP_COUNTS, SlicePlan, parse_generation, plan_slices
from sweep.core.resources import STRATEGIES, Bundle, Resources, parse_bytes
from sweep.errors import ResourceError, nearest, refuse_unknown

__all__ = ["GPU_VISIBILITIES", "ScalingConfig"]

GPU_VISIBILITIES = ("share", "isolate")

Undecided = Domain | dict[str, list[Any]]
"""What a search space may hold instead of a value: a domain, or a `grid_search`."""

_DEVICES = (("GPU", "use_gpu"), ("TPU", "use_tpu"))
# What people write for the names that mean something, in small letters.
_SPELLINGS = {
    "cpu": "CPU",
    "cpus": "CPU",
    "num_cpus": "CPU",
    "gpu": "GPU",
    "gpus": "GPU",
    "num_gpus": "GPU",
    "tpu": "TPU",
    "tpus": "TPU",
    "num_tpus": "TPU",
    "memory": "memory",
    "mem": "memory",
}

_Note = tuple[str, type[Warning]]


@refuse_unknown(
    {
        "elastic_resize_monitor_interval_s": "A group keeps its size: num_workers is one number; leave it out.",
        "min_workers": "A group keeps its size: num_workers is one number.",
        "max_workers": "A group keeps its size: num_workers is one number.",
        "num_cpus_per_worker": "Write resources_per_worker={'CPU': ...}.",
        "num_gpus_per_worker": "Write use_gpu=True, or resources_per_worker={'GPU': ...} for another number than one.",
        "bundle_label_selector": "Nodes have no labels; leave it out.",
    }
)
@dataclass(frozen=True, eq=False, repr=False)
class ScalingConfig:
    """Say how many workers a training group has and what each of them holds, in Ray Train's words.

    All problems are found when it is made, and listed in one error. Every field may hold a domain or a `grid_search`
    instead of a value, also inside `resources_per_worker`; then only what is decided is checked, and the rest when a
    trial's values are known (`merged`).

    Attributes:
        num_workers: processes of the group, at least 1.
        use_gpu: each worker has a GPU, or as many as `resources_per_worker` says.
        use_tpu: each worker has TPU chips: with a `topology` all those of one host, otherwise one, or as many as
            `resources_per_worker` says (1, 2, 4 or 8).
        topology: of the TPU slice, for instance "4x4"; needed for several TPU workers. The number of workers must
            fill whole slices, see `sweep.accelerators.tpu.plan_slices`.
        accelerator_type: only GPUs of this type ("A100"), or the generation of the TPU ("TPU-V6E").
        resources_per_worker: amounts by name: `CPU`, `GPU`, `TPU`, `memory` (bytes, or a text such as "4G") and custom
            ones. Shares of a GPU are below 1. None: one CPU; with a topology one CPU and the chips of a host; otherwise
            with GPUs or TPUs one of them and no CPU.
        placement_strategy: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD.
        trainer_resources: deprecated; a bundle of the group that belongs to no worker.
        label_selector: refused: nodes have no labels.
        chips_per_host: TPU chips of one host where the usual number is not meant: a v6e slice of 2x4 is one host of 8
            chips, or two of 4.
        gpu_visibility: "share": workers of one node see each other's GPUs; "isolate": they see their own only; None: as
            the trainer prefers.

    Raises:
        ResourceError: what is wrong, one line for each problem.
    """

    num_workers: int | Undecided = 1
    use_gpu: bool | Undecided = False
    _: KW_ONLY
    use_tpu: bool | Undecided = False
    topology: str | Undecided | None = None
    accelerator_type: str | Undecided | None = None
    resources_per_worker: Mapping[str, Any] | Domain | None = None
    placement_strategy: str | Undecided = "PACK"
    trainer_resources: Mapping[str, Any] | Domain | None = None
    label_selector: Any = None
    chips_per_host: int | Undecided | None = None
    gpu_visibility: str | Undecided | None = None

    def __post_init__(self) -> None:
        self._settle()
        for text, category in self._notes():
            warnings.warn(text, category, stacklevel=4)

    # --- what it says ------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether something in it is still to be decided by a search."""
        return any(_is_open(value) for value in self._fields().values())

    @property
    def resources_of_worker(self) -> Bundle:
        """What each worker holds."""
        return _bundle(self._amounts(), self._type())

    @property
    def head(self) -> Bundle | None:
        """What the group holds besides its workers; None: nothing."""
        amounts = _nonzero(self._decided()["trainer_resources"])
        return _bundle(amounts) if amounts else None

    @property
    def slice_plan(self) -> SlicePlan | None:
        """How the workers lie on TPU slices; None without a topology."""
        return _plan(self._decided())

    @property
    def num_cpus_per_worker(self) -> float:
        """CPUs that each worker holds."""
        return self.resources_of_worker.cpu

    @property
    def num_gpus_per_worker(self) -> float:
        """GPUs that each worker holds, or its share of one."""
        return self.resources_of_worker.gpu

    @property
    def num_tpus_per_worker(self) -> float:
        """TPU chips that each worker holds."""
        return self.resources_of_worker.tpu

    @property
    def total_resources(self) -> dict[str, float]:
        """What the whole group holds, by name: `CPU`, `GPU`, `TPU`, `memory` in bytes, custom names; no zeros."""
        given = self._decided()
        totals = {name: amount * given["num_workers"] for name, amount in self._amounts().items()}
        for name, amount in _nonzero(given["trainer_resources"]).items():
            totals[name] = totals.get(name, 0.0) + amount
        return totals

    def to_resources(self, *, distinct_devices: bool = False, shared_devices: bool = False) -> Resources:
        """Return a trial's request: the head's bundle if there is one, then a bundle for each worker.

        Workers on TPU slices carry how many fill one. A single worker on a slice of one host lies wherever its chips
        are free. Workers that leave chips of their hosts unused are spread over the hosts, whatever the strategy:
        packed, two would share a host.

        Args:
            distinct_devices: no two workers may share a GPU.
            shared_devices: workers with at most half a GPU are to share one, unless they are to be spread over nodes.
        """
        given, head, plan = self._decided(), self.head, self.slice_plan
        workers = (self.resources_of_worker,) * given["num_workers"]
        bundles = workers if head is None else (head, *workers)
        strategy = given["placement_strategy"]
        if plan is None or plan.num_workers == plan.hosts_per_slice == 1:
            is_sharing = given["num_workers"] > 1 and 0 < workers[0].gpu <= 0.5 and strategy in ("PACK", "STRICT_PACK")
            return Resources(bundles, strategy, distinct_devices, shared_devices=shared_devices and is_sharing)
        if plan.workers_per_slice * plan.tpu_per_worker < plan.chips and strategy != "STRICT_SPREAD":
            strategy = "STRICT_SPREAD" if head is None else "SPREAD"  # a head may lie on one of the hosts
        return Resources(bundles, strategy, distinct_devices, plan.workers_per_slice)

    def as_placement_group_factory(self) -> Resources:
        """Return a trial's request, under the name that Ray's users know."""
        return self.to_resources()

    def to_config(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, for a trial's config; domains stay as they are."""
        return {name: _copy(value) for name, value in self._changed().items()}

    def merged(self, overrides: Mapping[str, Any] | ScalingConfig | None) -> ScalingConfig:
        """Return a config in which the fields of `overrides` win, each as a whole.

        Args:
            overrides: fields by name, or another config, of which those count that differ from their defaults.

        Raises:
            ResourceError: an unknown field, or what is wrong with the result.
        """
        if overrides is None:
            return self
        if isinstance(overrides, ScalingConfig):
            changes = overrides.to_config()
        elif isinstance(overrides, Mapping):
            changes = dict(overrides)
        else:
            raise ResourceError(
                f"scaling_config is {overrides!r}; expected a ScalingConfig, or a dict of its fields such as "
                "{'num_workers': 4}."
            )
        known = self._fields()
        unknown = [f"unknown field {name!r}. {nearest(str(name), known)}" for name in changes if name not in known]
        if unknown:
            raise ResourceError(_listed(unknown))
        new = object.__new__(type(self))
        for name, value in (known | changes).items():
            object.__setattr__(new, name, value)
        new._settle()
        told = self._notes()
        for text, category in new._notes():
            if (text, category) not in told:  # once for each config that a user writes, not once for each trial
                warnings.warn(text, category, stacklevel=2)
        return new

    # --- as a value --------------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ScalingConfig):
            return NotImplemented
        return bool(_key(self._fields()) == _key(other._fields()))

    def __hash__(self) -> int:
        return hash(_key(self._fields()))

    def __repr__(self) -> str:
        return f"ScalingConfig({', '.join(f'{name}={value!r}' for name, value in self._changed().items())})"

    # --- inside ------------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Check every field, and keep plain values of our own, so that nobody can change them later."""
        problems = list(_problems(self._fields()))
        if problems:
            raise ResourceError(_listed(problems))
        for name, value in self._fields().items():
            object.__setattr__(self, name, _copy(value))

    def _notes(self) -> list[_Note]:
        """Return what the user should be told about a config that is right."""
        given = self._fields()
        notes: list[_Note] = []
        plan = None if any(_is_open(given[name]) for name in _PLANNED) else _plan(given)
        if plan is not None:
            notes += [(text, UserWarning) for text in plan.warnings]
        head = given["trainer_resources"]
        if head is not None and not _is_open(head):
            text = f"trainer_resources={head!r} is deprecated: a group needs no process besides its workers, "
            if _nonzero(head):
                text += "and this is held for the group without a worker that uses it. Leave it out to have more room."
            else:
                text += "so that this is the default. Leave it out."
            notes.append((text, DeprecationWarning))
        return notes

    def _fields(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _changed(self) -> dict[str, Any]:
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) != field.default}

    def _decided(self) -> dict[str, Any]:
        given = self._fields()
        undecided = [name for name, value in given.items() if _is_open(value)]
        if undecided:
            raise ResourceError(
                f"{', '.join(undecided)} of {self!r} is to be searched; expected values. Use `merged` with those of a "
                "trial's config."
            )
        return given

    def _amounts(self) -> dict[str, float]:
        """Return what each worker holds by name, without zeros, Ray's rules applied."""
        given = self._decided()
        amounts, plan = _nonzero(given["resources_per_worker"]), self.slice_plan
        if not given["resources_per_worker"] and (plan is not None or not (given["use_gpu"] or given["use_tpu"])):
            amounts["CPU"] = 1.0
        if given["use_gpu"]:
            amounts.setdefault("GPU", 1.0)
        if given["use_tpu"]:
            amounts.setdefault("TPU", float(plan.tpu_per_worker) if plan is not None else 1.0)
        return {name: amounts[name] for name in sorted(amounts, key=_place)}

    def _type(self) -> str:
        given = self._decided()
        text = given["accelerator_type"]
        if text is None:
            return ""
        return parse_generation(text).type if given["use_tpu"] else _gpu_type(text)


# --- values that are decided or not ----------------------------------------------------------------------------------


def _is_open(value: Any) -> bool:
    """Whether a value holds something that a search decides."""
    if isinstance(value, Domain):
        return True
    if isinstance(value, Mapping):
        return set(value) == {"grid_search"} or any(_is_open(inner) for inner in value.values())
    return isinstance(value, (list, tuple)) and any(_is_open(inner) for inner in value)


def _copy(value: Any) -> Any:
    """Return plain Python values, containers copied; whatever else there is stays itself."""
    if isinstance(value, Mapping):
        return {key: _copy(inner) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_copy(inner) for inner in value)
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, numbers.Real) and not isinstance(value, (bool, int)):
        return float(value)
    return value


def _key(value: Any) -> Any:
    """Return something hashable that is equal for equal values, domains by what they are made of."""
    if isinstance(value, Domain):
        return type(value), _key(vars(value))
    if isinstance(value, Mapping):
        return frozenset((name, _key(inner)) for name, inner in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(map(_key, value))
    try:
        hash(value)
    except TypeError:  # an option of a domain that nothing is known of
        return repr(value)
    return isinstance(value, bool), value


def _nonzero(resources: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the amounts of a checked dict as numbers, memory in bytes, without zeros."""
    amounts = {
        name: float(parse_bytes(value) if name == "memory" else value) for name, value in (resources or {}).items()
    }
    return {name: amount for name, amount in amounts.items() if amount}


def _place(name: str) -> tuple[int, str]:
    known = ("CPU", "GPU", "TPU", "memory")
    return (known.index(name) if name in known else len(known)), name


def _bundle(amounts: Mapping[str, float], accelerator_type: str = "") -> Bundle:
    rest = dict(amounts)
    return Bundle(
        cpu=rest.pop("CPU", 0.0),
        gpu=rest.pop("GPU", 0.0),
        tpu=rest.pop("TPU", 0.0),
        memory=int(rest.pop("memory", 0)),
        custom=tuple(sorted(rest.items())),
        accelerator_type=accelerator_type,
    )


_PLANNED = ("use_tpu", "topology", "accelerator_type", "num_workers", "resources_per_worker", "chips_per_host")


def _plan(given: Mapping[str, Any]) -> SlicePlan | None:
    if not given["use_tpu"] or given["topology"] is None:
        return None
    return plan_slices(
        given["topology"],
        given["accelerator_type"],
        given["num_workers"],
        tpu_per_worker=(given["resources_per_worker"] or {}).get("TPU"),
        chips_per_host=given["chips_per_host"],
    )


# --- what can be wrong -----------------------------------------------------------------------------------------------


def _listed(problems: list[str]) -> str:
    if len(problems) == 1:
        return f"ScalingConfig: {problems[0]}"
    return "\n- ".join([f"ScalingConfig has {len(problems)} problems:", *problems])


def _problems(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for everything that is wrong with the fields that are decided."""
    decided = {name: value for name, value in given.items() if not _is_open(value)}
    if "num_workers" in decided:
        yield from _worker_problems(decided["num_workers"])
    flags = {name: decided[name] for _, name in _DEVICES if name in decided}
    for name, value in flags.items():
        if not isinstance(value, bool):
            yield (
                f"{name} is {value!r}; expected True or False. How many each worker has goes into resources_per_worker."
            )
    if all(flags.get(name) is True for _, name in _DEVICES):
        yield "use_gpu and use_tpu are both True; expected one of them. Leave the other out."
    for name in ("resources_per_worker", "trainer_resources"):
        yield from _amount_problems(name, given[name])
    yield from _device_problems(given["resources_per_worker"], flags)
    if _number(given["trainer_resources"], "TPU"):
        yield "trainer_resources has TPU; expected no chips: they belong to the workers. Leave TPU out."
    strategy = decided.get("placement_strategy", "PACK")
    if not isinstance(strategy, str) or strategy not in STRATEGIES:
        yield f"unknown placement_strategy {strategy!r}. {nearest(str(strategy).upper(), STRATEGIES)}"
    if decided.get("label_selector") is not None:
        yield (
            f"label_selector is {decided['label_selector']!r}; expected None: nodes have no labels. Choose devices by "
            "accelerator_type, or nodes by a custom resource that only they have."
        )
    visibility = decided.get("gpu_visibility")
    if visibility is not None and not (isinstance(visibility, str) and visibility in GPU_VISIBILITIES):
        yield f"unknown gpu_visibility {visibility!r}. {nearest(str(visibility).lower(), GPU_VISIBILITIES)}"
    types = list(_type_problems(decided, flags))
    yield from types
    yield from _topology_problems(decided, flags)
    if flags.get("use_tpu") is True and decided.get("topology") is not None and not types:
        yield from _slice_problems(given, decided)


def _worker_problems(value: Any) -> Iterator[str]:
    if isinstance(value, (tuple, list)):
        yield (
            f"num_workers is {value!r}; expected one whole number: a group keeps its size, elastic ones are not built. "
            "Write the largest that always fits, or let a search try several with grid_search."
        )
    elif _is_count(value) and value == 0:
        yield "num_workers is 0; expected at least 1: no group runs inside the driver. Use num_workers=1."
    elif not _is_count(value) or value < 0:
        hint = f" Write {value:.0f}." if isinstance(value, float) and value >= 1 and value.is_integer() else ""
        yield f"num_workers is {value!r}; expected a whole number of at least 1.{hint}"


def _amount_problems(field: str, resources: Any) -> Iterator[str]:
    """Yield what is wrong with the names and amounts of a dict, each by itself."""
    if resources is None or isinstance(resources, Domain):
        return
    if not isinstance(resources, Mapping):
        yield f"{field} is {resources!r}; expected a dict such as {{'CPU': 2, 'GPU': 1}}."
        return
    if set(resources) == {"grid_search"}:
        return
    for name, value in resources.items():
        if not isinstance(name, str):
            yield f"{field} has the name {name!r}; expected a text such as 'CPU'."
            continue
        right = _SPELLINGS.get(name.lower(), name)
        if right != name:
            yield f"unknown resource {name!r} in {field}; did you mean {right!r}?"
        elif name.lower().startswith("accelerator_type"):
            yield f"{field} has {name!r}; expected amounts. Write accelerator_type='A100' beside it, not inside."
        elif name == "custom_resources":
            yield f"{field} has 'custom_resources'; expected amounts. Write its names beside CPU and GPU."
        elif not _is_open(value):
            yield from _amount_problem(field, name, value)


def _amount_problem(field: str, name: str, value: Any) -> Iterator[str]:
    found = f"{field} has {name}={value!r}"
    if name == "memory":
        try:
            parse_bytes(value)
        except ResourceError:
            yield f"{found}; expected bytes of at least 0, or a text such as '4G' or '512MiB'."
    elif not _is_amount(value):
        yield f"{found}; expected a number of at least 0."
    elif name == "GPU" and value > 1 and value != int(value):
        yield f"{found}; expected a whole number, or a share between 0 and 1 of a single GPU."
    elif name == "TPU" and value not in (0, *CHIP_COUNTS):
        yield f"{found}; expected 1, 2, 4 or 8: a process can have no other number of the chips of a host."


def _device_problems(resources: Any, flags: Mapping[str, Any]) -> Iterator[str]:
    """Yield contradictions between the amounts of devices and the flags that ask for them."""
    for name, flag in _DEVICES:
        amount, wanted = _number(resources, name), flags.get(flag)
        if amount is not None and amount > 0 and wanted is False:
            yield f"resources_per_worker has {name}={amount:g} and {flag} is False; set {flag}=True."
        elif amount == 0 and wanted is True:
            yield (
                f"{flag} is True and resources_per_worker has {name}=0; expected more than 0. Leave {name} out of "
                f"resources_per_worker, or {flag} out."
            )
    is_nothing = isinstance(resources, Mapping) and resources and not any(map(_is_wanted, resources.values()))
    if is_nothing and all(flags.get(flag) is False for _, flag in _DEVICES):
        yield (
            "resources_per_worker asks for nothing, so that nothing would limit how many groups run at once; expected "
            "an amount above 0. Ask for a share, for instance {'CPU': 0.1}."
        )


def _type_problems(decided: Mapping[str, Any], flags: Mapping[str, Any]) -> Iterator[str]:
    text = decided.get("accelerator_type")
    if text is None:
        return
    if not isinstance(text, str):
        yield f"accelerator_type is {text!r}; expected a text such as 'A100' or 'TPU-V6E'."
        return
    is_tpu = _is_tpu_type(text)
    wanted = [flags.get(flag) for _, flag in _DEVICES]
    if wanted == [False, False]:
        flag = "use_tpu" if is_tpu else "use_gpu"
        yield f"accelerator_type is {text!r} and the workers have no devices; set {flag}=True."
    elif wanted == [True, False] and is_tpu:
        yield f"accelerator_type is {text!r}, which is a TPU, and use_gpu is True; set use_tpu=True in its place."
    elif wanted in ([True, False], [False, True]):
        try:
            if wanted[0]:
                _gpu_type(text)
            else:
                parse_generation(text)
        except ResourceError as error:
            yield str(error)


def _gpu_type(text: str) -> str:
    """Return a type of GPU that is known, or that a device of the inventory has.

    Raises:
        ResourceError: neither.
    """
    try:
        return gpu.check_type(text)
    except ResourceError:  # looked at only now: to list the devices may take a while
        return gpu.check_type(text, [device for node in inventory.available() for device in node.devices])


def _topology_problems(decided: Mapping[str, Any], flags: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a TPU group lacks, and what is there without a TPU."""
    wanted, workers = flags.get("use_tpu"), _count(decided)
    for name, example in (("topology", "'4x4'"), ("accelerator_type", "'TPU-V6E'")):
        if wanted is True and workers > 1 and name in decided and decided[name] is None:
            yield (
                f"num_workers is {workers} with use_tpu, and there is no {name}; several TPU workers lie on whole "
                f"slices. Set {name}, for instance {name}={example}."
            )
    topology, chips_per_host = decided.get("topology"), decided.get("chips_per_host")
    for name, value in (("topology", topology), ("chips_per_host", chips_per_host)):
        if value is not None and wanted is False:
            yield f"{name} is {value!r} and use_tpu is False; set use_tpu=True, or leave {name} out."
    if wanted is True and topology is not None and decided.get("accelerator_type", "") is None and workers <= 1:
        yield (
            f"topology is {topology!r}, and there is no accelerator_type; expected the generation too. Set it, for "
            "instance accelerator_type='TPU-V6E'."
        )
    if wanted is True and chips_per_host is not None and "topology" in decided and topology is None:
        yield f"chips_per_host is {chips_per_host!r}, and there is no topology; set topology, or leave it out."


def _slice_problems(given: Mapping[str, Any], decided: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a TPU slice and with how the workers lie on it, as far as that is decided."""
    if not isinstance(decided.get("accelerator_type"), str):
        return
    resources, workers = given["resources_per_worker"], _count(decided)
    chips = _number(resources, "TPU")
    is_host_known = "chips_per_host" in decided
    is_all_known = is_host_known and workers > 0 and not _is_undecided(resources, "TPU")
    try:
        plan = plan_slices(
            decided["topology"],
            decided["accelerator_type"],
            workers if is_all_known else None,
            tpu_per_worker=int(chips) if is_host_known and chips in CHIP_COUNTS else None,
            chips_per_host=decided.get("chips_per_host"),
        )
    except ResourceError as error:
        yield from str(error).split("\n")
        return
    hosts, strategy = plan.hosts_per_slice * plan.num_slices, decided.get("placement_strategy")
    if not is_all_known:
        return
    if strategy == "STRICT_PACK" and hosts > 1:
        yield (
            f"placement_strategy is 'STRICT_PACK', which is all workers on one node, and they need {hosts} hosts; "
            "expected another one. Leave it out."
        )
    elif strategy == "STRICT_SPREAD" and plan.workers_per_slice > plan.hosts_per_slice:
        yield (
            "placement_strategy is 'STRICT_SPREAD', which is each worker on a node of its own, and a host has "
            f"{plan.workers_per_slice // plan.hosts_per_slice} workers; expected another one. Leave it out."
        )


def _is_count(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _count(decided: Mapping[str, Any]) -> int:
    """Return the decided number of workers; 0 where it is open or none."""
    value = decided.get("num_workers")
    return max(int(value), 0) if _is_count(value) and value is not None else 0


def _is_amount(value: Any) -> bool:
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and value >= 0


def _is_wanted(value: Any) -> bool:
    """Whether an amount is, or may turn out to be, more than nothing; what is no amount is another problem's."""
    if isinstance(value, str):
        try:
            value = parse_bytes(value)
        except ResourceError:
            return True
    return not _is_amount(value) or value > 0


def _is_undecided(resources: Any, name: str) -> bool:
    return _is_open(resources.get(name) if isinstance(resources, Mapping) and name in resources else resources)


def _number(resources: Any, name: str) -> Any:
    """Return a decided amount of a dict, None where there is none or it is no amount."""
    value = resources.get(name) if isinstance(resources, Mapping) else None
    return value if _is_amount(value) else None


def _is_tpu_type(text: str) -> bool:
    try:
        parse_generation(text)
    except ResourceError:
        return False
    return True
