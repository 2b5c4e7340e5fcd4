"""How large a training group is: `ScalingConfig`, checked when it is made, and the bundles that a trial asks for."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any

from searchers.errors import nearest
from searchers.space import Domain, Float
from searchers.variants import has_domains
from sweep.accelerators import inventory
from sweep.accelerators.gpu_types import check_type
from sweep.accelerators.tpu import CHIP_COUNTS, SlicePlan, parse_generation, plan_slices
from sweep.checks import is_number, is_whole, resource
from sweep.core.resources import STRATEGIES, Bundle, Resources, parse_bytes, parse_resources
from sweep.errors import ResourceError, refuse_unknown

__all__ = ["ScalingConfig"]

Undecided = Domain | dict[str, list[Any]]
"""What a search space may hold instead of a value: a domain, or a `grid_search`."""


@refuse_unknown(
    {
        "elastic_resize_monitor_interval_s": "It is called resize_every_s.",
        "min_workers": "Write num_workers=(least, most).",
        "max_workers": "Write num_workers=(least, most).",
        "num_cpus_per_worker": "Write resources_per_worker={'CPU': ...}.",
        "num_gpus_per_worker": "Write use_gpu=True, or resources_per_worker={'GPU': ...} for another number than one.",
        "bundle_label_selector": "Nodes have no labels; leave it out.",
    }
)
@dataclass(frozen=True, repr=False)
class ScalingConfig:
    """Say how many workers a training group has and what each of them holds, in Ray Train's words.

    All problems are found when it is made; those of its fields are listed in one error. Every field may hold a domain
    or a `grid_search` instead of a value, also inside `resources_per_worker`; then only what is decided is checked, and
    the rest when a trial's values are known (`merged`).

    Attributes:
        num_workers: processes of the group, at least 1; or the least and the most: then it has as many as there is room
            for, and goes on from its last checkpoint with more or fewer when that changes.
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
        resize_every_s: seconds, at least 0, that a group with a range of workers runs before it is resized; one whose
            nodes have gone does not wait for them.

    Raises:
        ResourceError: what is wrong, one line for each problem.
    """

    num_workers: int | tuple[int, int] | Undecided = 1
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
    resize_every_s: float | Undecided = 60.0

    def __post_init__(self) -> None:
        self._settle()
        head = self.trainer_resources
        if head is not None and not has_domains({"": head}):
            text = f"trainer_resources={head!r} is deprecated: no worker of the group uses it. Leave it out."
            warnings.warn(text, DeprecationWarning, stacklevel=4)
        if not self.is_open and (plan := self.slice_plan) is not None:
            for text in plan.warnings:
                warnings.warn(text, stacklevel=4)

    @property
    def is_open(self) -> bool:
        """Whether something in it is still to be decided by a search."""
        return has_domains(self._fields())

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
        given = self._decided()
        if not given["use_tpu"] or given["topology"] is None:
            return None
        return plan_slices(
            given["topology"],
            given["accelerator_type"],
            given["num_workers"],
            tpu_per_worker=(given["resources_per_worker"] or {}).get("TPU"),
            chips_per_host=given["chips_per_host"],
        )

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
        """What the whole group holds, by name: `CPU`, `GPU`, `TPU`, `memory` in bytes, custom names; no zeros. Of a
        range of workers the least count."""
        given = self._decided()
        totals = {name: amount * _range(given["num_workers"])[0] for name, amount in self._amounts().items()}
        for name, amount in _nonzero(given["trainer_resources"]).items():
            totals[name] = totals.get(name, 0.0) + amount
        return totals

    def to_resources(self, *, distinct_devices: bool = False, shared_devices: bool = False) -> Resources:
        """Return a trial's request: the head's bundle if there is one, then a bundle for each worker.

        Workers on TPU slices carry how many fill one. A single worker on a slice of one host lies wherever its chips
        are free. Workers that leave chips of their hosts unused are spread over the hosts, whatever the strategy:
        packed, two would share a host. Of a range of workers it is the least.

        Args:
            distinct_devices: no two workers may share a GPU.
            shared_devices: workers with at most half a GPU are to share one, unless they are to be spread over nodes.
        """
        given, head, plan = self._decided(), self.head, self.slice_plan
        least, most = _range(given["num_workers"])
        workers = (self.resources_of_worker,) * least
        bundles = workers if head is None else (head, *workers)
        strategy = given["placement_strategy"]
        if plan is None or plan.num_workers == plan.hosts_per_slice == 1:
            is_sharing = most > 1 and 0 < workers[0].gpu <= 0.5 and strategy in ("PACK", "STRICT_PACK")
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
        """Return a config in which the fields of `overrides` win, each as a whole; it warns of nothing.

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
        return new

    def __repr__(self) -> str:
        return f"ScalingConfig({', '.join(f'{name}={value!r}' for name, value in self._changed().items())})"

    def _settle(self) -> None:
        """Check every field, and keep plain values of our own, so that they cannot be changed later."""
        given = self._fields()
        problems = [*_problems(given), *_contradictions(given)]
        if not problems and not self.is_open:
            problems = _said(lambda: self.resources_of_worker).splitlines()
        if problems:
            raise ResourceError(_listed(problems))
        for name, value in self._fields().items():
            object.__setattr__(self, name, _copy(value))

    def _fields(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _changed(self) -> dict[str, Any]:
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) != field.default}

    def _decided(self) -> dict[str, Any]:
        given = self._fields()
        undecided = [name for name, value in given.items() if has_domains({"": value})]
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


def _gpu_type(text: Any) -> str:
    """Return a type of GPU that is known, or that a device of the inventory has."""
    if not isinstance(text, str):
        resource.refuse("accelerator_type", text, "a text such as 'A100' or 'TPU-V6E'")
    try:
        return check_type(text)
    except ResourceError:  # looked at only now: to list the devices may take a while
        return check_type(text, [device for node in inventory.available() for device in node.devices])


def _copy(value: Any) -> Any:
    """Return plain Python values, containers copied; whatever else there is stays itself."""
    if isinstance(value, Mapping):
        return {key: _copy(inner) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_copy(inner) for inner in value)
    if is_whole(value):
        return int(value)
    return float(value) if is_number(value, is_finite=False) else value


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


def _listed(problems: list[str]) -> str:
    if len(problems) == 1:
        return f"ScalingConfig: {problems[0]}"
    return "\n- ".join([f"ScalingConfig has {len(problems)} problems:", *problems])


_DEVICES = (("GPU", "use_gpu"), ("TPU", "use_tpu"))


def _range(workers: Any) -> tuple[int, int]:
    """Return the least and the most of a checked number of workers."""
    least, most = workers if isinstance(workers, (tuple, list)) else (workers, workers)
    return least, most


def _workers(name: str, value: Any) -> None:
    expected = "a whole number of at least 1, or the least and the most, such as (2, 8)"
    ends = value if isinstance(value, (tuple, list)) and len(value) == 2 else (value, value)
    if not all(is_whole(end) and end >= 1 for end in ends) or ends[0] > ends[1]:
        resource.refuse(name, value, expected)


def _flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        resource.refuse(name, value, "True or False", "How many each worker has goes into resources_per_worker.")


def _none(name: str, value: Any) -> None:
    if value is not None:
        hint = "Choose devices by accelerator_type, or nodes by a custom resource that only they have."
        resource.refuse(name, value, "None: nodes have no labels", hint)


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "num_workers": _workers,
    "use_gpu": _flag,
    "use_tpu": _flag,
    "placement_strategy": lambda name, value: resource.one_of(name, value, STRATEGIES),
    "label_selector": _none,
    "resize_every_s": lambda name, value: resource.number(name, value, least=0, expected="seconds, at least 0"),
    "gpu_visibility": lambda name, value: value is None or resource.one_of(name, value, ("share", "isolate")),
}


def _said(check: Callable[[], Any]) -> str:
    """Return what a check refuses; empty: nothing."""
    try:
        check()
    except ResourceError as error:
        return str(error)
    return ""


def _problems(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with each field by itself, as far as it is decided."""
    for name, check in _CHECKS.items():
        value = given[name]
        if isinstance(value, Float) and name == "num_workers":
            yield f"num_workers is {value!r}, which draws fractions. Use randint, choice or grid_search."
        elif not has_domains({"": value}) and (text := _said(lambda: check(name, value))):  # noqa: B023 - called here
            yield text
    for name in ("resources_per_worker", "trainer_resources"):
        amounts = given[name]
        if isinstance(amounts, Mapping):
            yield from (f"{name}: {text}" for one in amounts.items() if (text := _said(lambda: _check_amount(*one))))  # noqa: B023
        elif amounts is not None and not isinstance(amounts, Domain):
            yield f"{name} is {amounts!r}; expected a dict such as {{'CPU': 2, 'GPU': 1}}."


def _check_amount(name: Any, value: Any) -> None:
    """Refuse a name that means something in another spelling, and what is no amount."""
    known = re.fullmatch(r"(?:num_)?(cpu|gpu|tpu|mem)(?:s|ory)?", str(name).lower())
    right = known[1].upper().replace("MEM", "memory") if known else name
    if right != name:
        raise ResourceError(f"unknown resource {name!r}; did you mean {right!r}?")
    if str(name).lower().startswith(("accelerator_type", "custom_resources")):
        raise ResourceError(f"{name!r} is no amount; accelerator_type is a field of its own, custom names stand here.")
    if has_domains({"": value}) or name == "grid_search":
        return
    if name == "TPU" and is_number(value) and value not in (0, *CHIP_COUNTS):
        resource.refuse(name, value, "1, 2, 4 or 8: a process can have no other number of the chips of a host")
    parse_resources({"-": 1, name: value})  # beside something: a request of nothing is refused


def _contradictions(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield how fields disagree that are decided."""
    use = {flag: given[flag] for _, flag in _DEVICES}
    workers, chips_per_host = given["num_workers"], given["chips_per_host"]
    amounts = given["resources_per_worker"] if isinstance(given["resources_per_worker"], Mapping) else {}
    head = given["trainer_resources"] if isinstance(given["trainer_resources"], Mapping) else {}
    if all(wanted is True for wanted in use.values()):
        yield "use_gpu and use_tpu are both True; expected one of them. Leave the other out."
    for name, flag in _DEVICES:
        amount: Any = amounts.get(name)
        if use[flag] is False and is_number(amount) and amount > 0:
            yield f"resources_per_worker has {name}={amount:g} and {flag} is False; set {flag}=True."
        if use[flag] is True and amount == 0:
            yield f"{flag} is True and resources_per_worker has {name}=0; expected more than 0. Leave one of them out."
    if head.get("TPU"):
        yield "trainer_resources has TPU; expected no chips: they belong to the workers. Leave TPU out."
    if amounts and use == {"use_gpu": False, "use_tpu": False} and not any(map(_is_wanted, amounts.values())):
        yield "resources_per_worker asks for nothing; expected an amount above 0, for instance {'CPU': 0.1}."
    if isinstance(workers, (tuple, list)):
        if use["use_tpu"] is True:
            yield f"num_workers is {workers!r} and use_tpu is True; expected one number: workers fill whole slices."
        if head:
            yield f"num_workers is {workers!r} and there are trainer_resources; leave them out: no worker uses them."
    if use["use_tpu"] is True and is_whole(workers) and workers > 1:
        for name, example in (("topology", "4x4"), ("accelerator_type", "TPU-V6E")):
            if given[name] is None:
                yield f"several TPU workers lie on whole slices, and there is no {name}; set it, such as {example!r}."
    if use["use_tpu"] is True and given["topology"] is None and chips_per_host is not None:
        yield f"chips_per_host is {chips_per_host!r}, and there is no topology; set topology, or leave it out."
    for name in ("topology", "chips_per_host"):
        if use["use_tpu"] is False and given[name] is not None:
            yield f"{name} is {given[name]!r} and use_tpu is False; set use_tpu=True, or leave {name} out."
    kind = given["accelerator_type"]
    flag = "use_gpu" if _said(lambda: parse_generation(kind)) else "use_tpu"
    if kind is not None and use["use_tpu"] is False and use[flag] is False:
        yield f"accelerator_type is {kind!r} and the workers have no such devices; set {flag}=True."


def _is_wanted(amount: Any) -> bool:
    """Whether an amount is, or may turn out to be, more than nothing."""
    return (parse_bytes(amount) if isinstance(amount, str) and not _said(lambda: parse_bytes(amount)) else amount) != 0
