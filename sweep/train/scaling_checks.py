"""What can be wrong with the fields of a `ScalingConfig`, as far as they are decided: one line for each problem."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from searchers.space import Domain
from searchers.variants import has_domains
from sweep.accelerators import inventory
from sweep.accelerators.gpu_types import check_type
from sweep.accelerators.tpu import CHIP_COUNTS, parse_generation, plan_slices
from sweep.checks import is_number, is_whole
from sweep.core.resources import STRATEGIES, parse_bytes
from sweep.errors import ResourceError, nearest

__all__ = ["VISIBILITIES", "gpu_type", "is_open", "problems_of"]

VISIBILITIES = ("share", "isolate")
_DEVICES = (("GPU", "use_gpu"), ("TPU", "use_tpu"))


def is_open(value: Any) -> bool:
    """Whether a value holds something that a search decides."""
    return has_domains({"": value})


def problems_of(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for everything that is wrong with the fields that are decided."""
    decided = {name: value for name, value in given.items() if not is_open(value)}
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
    if visibility is not None and not (isinstance(visibility, str) and visibility in VISIBILITIES):
        yield f"unknown gpu_visibility {visibility!r}. {nearest(str(visibility).lower(), VISIBILITIES)}"
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
    elif is_whole(value) and value == 0:
        yield "num_workers is 0; expected at least 1: no group runs inside the driver. Use num_workers=1."
    elif not is_whole(value) or value < 0:
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
        right = _spelling(name)
        if right != name:
            yield f"unknown resource {name!r} in {field}; did you mean {right!r}?"
        elif name.lower().startswith("accelerator_type"):
            yield f"{field} has {name!r}; expected amounts. Write accelerator_type='A100' beside it, not inside."
        elif name == "custom_resources":
            yield f"{field} has 'custom_resources'; expected amounts. Write its names beside CPU and GPU."
        elif not is_open(value):
            yield from _amount_problem(field, name, value)


def _spelling(name: str) -> str:
    """Return the name of a resource that means something as it is spelled here: `CPU` for `num_cpus`."""
    if known := re.fullmatch(r"(?:num_)?(cpu|gpu|tpu)s?", name.lower()):
        return known[1].upper()
    return "memory" if name.lower() in ("mem", "memory") else name


def _amount_problem(field: str, name: str, value: Any) -> Iterator[str]:
    found = f"{field} has {name}={value!r}"
    if name == "memory":
        if _refusal(parse_bytes, value):
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
    is_tpu = not _refusal(parse_generation, text)
    wanted = [flags.get(flag) for _, flag in _DEVICES]
    if wanted == [False, False]:
        flag = "use_tpu" if is_tpu else "use_gpu"
        yield f"accelerator_type is {text!r} and the workers have no devices; set {flag}=True."
    elif wanted == [True, False] and is_tpu:
        yield f"accelerator_type is {text!r}, which is a TPU, and use_gpu is True; set use_tpu=True in its place."
    elif wanted in ([True, False], [False, True]):
        problem = _refusal(gpu_type if wanted[0] else parse_generation, text)
        if problem:
            yield problem


def _refusal(check: Callable[[str], Any], text: str) -> str:
    try:
        check(text)
    except ResourceError as error:
        return str(error)
    return ""


def gpu_type(text: str) -> str:
    """Return a type of GPU that is known, or that a device of the inventory has.

    Raises:
        ResourceError: neither.
    """
    try:
        return check_type(text)
    except ResourceError:  # looked at only now: to list the devices may take a while
        return check_type(text, [device for node in inventory.available() for device in node.devices])


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


def _count(decided: Mapping[str, Any]) -> int:
    """Return the decided number of workers; 0 where it is open or none."""
    value = decided.get("num_workers", 0)
    return max(int(value), 0) if is_whole(value) else 0


def _is_amount(value: Any) -> bool:
    return is_number(value) and bool(value >= 0)


def _is_wanted(value: Any) -> bool:
    """Whether an amount is, or may turn out to be, more than nothing; what is no amount is another problem's."""
    if isinstance(value, str):
        return bool(_refusal(parse_bytes, value)) or parse_bytes(value) > 0
    return not _is_amount(value) or value > 0


def _is_undecided(resources: Any, name: str) -> bool:
    return is_open(resources.get(name) if isinstance(resources, Mapping) and name in resources else resources)


def _number(resources: Any, name: str) -> Any:
    """Return a decided amount of a dict, None where there is none or it is no amount."""
    value = resources.get(name) if isinstance(resources, Mapping) else None
    return value if _is_amount(value) else None
