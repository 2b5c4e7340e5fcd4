"""Why a request can never be granted: which amount, type, slice or layout is missing, in words, and what to do."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from sweep.core.resources import Bundle, Node, Resources, format_amount, format_request, list_devices, plain_type

__all__ = ["CanHold", "why_never"]

CanHold = Callable[[Resources, Sequence[Node]], bool]
"""Whether some nodes hold a request when they are idle."""


def why_never(resources: Resources, nodes: Sequence[Node], can_hold: CanHold, *, of_workers: bool = False) -> str:
    """Return why a request that these nodes never hold is not granted, with the arithmetic, and what to do."""
    lower = "num_workers or resources_per_worker" if of_workers else "resources_per_trial"
    advice = f"Lower {lower}, or declare a larger machine with sweep.init(num_cpus=..., num_gpus=...)"
    if not nodes:
        problem = "there is no node to run on"
    elif problem := _unknown_types(resources, nodes):
        declare = "num_gpus=..., gpu_type=..." if resources.total.gpu else "num_tpus=..., tpu_type=..."
        advice = f"Ask for another accelerator_type, or declare such devices with sweep.init({declare})"
    elif problem := _too_large(resources, nodes):
        pass
    elif problem := _lack_of_slices(resources, nodes, can_hold):
        advice = "Lower num_workers, or declare the hosts of a slice with sweep.init(nodes=[Node(..., slice=...)])"
    else:
        problem = _lack_of_devices(resources, nodes) or _lack_in_all(resources, nodes)
    notes = dict.fromkeys(node.gpu_note for node in nodes if node.gpu_note)
    because = "".join(f" {note[0].upper()}{note[1:]}." for note in notes) if _lacks_gpus(resources, nodes) else ""
    return f"a trial asks for {resources}; {problem}.{because} {advice}."


def _lacks_gpus(resources: Resources, nodes: Sequence[Node]) -> bool:
    """Whether there are too few GPUs in all, on every node, of a type, or for shares on devices of their own."""

    def have(of_type: str) -> list[float]:
        return [node.amount("gpu", of_type) for node in nodes]

    return (
        any(bundle.gpu > max(have(bundle.accelerator_type), default=0.0) for bundle in resources.bundles)
        or any(name == "gpu" and need > sum(have(of_type)) for name, of_type, need in resources.needs())
        or bool(nodes and _lack_of_devices(resources, nodes))
    )


def _unknown_types(resources: Resources, nodes: Sequence[Node]) -> str:
    """Say which types no device has, and what there is instead."""
    parts = []
    has = "this machine has" if len(nodes) == 1 else "the nodes have"
    for bundle in resources.bundles:
        for name, need in (("gpu", bundle.gpu), ("tpu", bundle.tpu)):
            of_type = bundle.accelerator_type
            if need and of_type and not any(node.amount(name, of_type) for node in nodes):
                there = list_devices(nodes, name, of_type)
                parts.append(f"it needs {format_request(name, need, of_type)}; {has} {there}")
    return " and ".join(dict.fromkeys(parts))


def _too_large(resources: Resources, nodes: Sequence[Node]) -> str:
    """Say which amounts of single bundles exceed every node."""
    parts = []
    has = "this machine has" if len(nodes) == 1 else "the largest node has"
    for bundle in resources.bundles:
        for name, need in bundle.amounts.items():
            of_type = bundle.type_of(name)
            best = max(node.amount(name, of_type) for node in nodes)
            if need > best:
                parts.append(f"{format_request(name, need, of_type)} is more than {has}: {format_amount(name, best)}")
    return " and ".join(dict.fromkeys(parts))


def _lack_of_slices(resources: Resources, nodes: Sequence[Node], can_hold: CanHold) -> str:
    """Say which TPU slices are missing, looking at chips alone."""
    slices: dict[tuple[bool, str], list[Node]] = {}
    for node in nodes:
        if node.amount("tpu"):
            slices.setdefault(node.slice_key, []).append(node)
    chips = [Bundle(tpu=b.tpu, accelerator_type=b.accelerator_type if b.tpu else "") for b in resources.bundles]
    runs = Counter(tuple([chips[index] for index in run]) for run in resources.slice_runs)
    for run, number in runs.items():
        request = Resources(run, resources.strategy, bundles_per_slice=len(run))
        fitting = sum(can_hold(request, hosts) for hosts in slices.values())
        if fitting < number:
            num_hosts, text = _slice_for(request, int(max(node.amount("tpu") for node in nodes)))
            needed = f"a slice {text} is needed" if number == 1 else f"{number} slices {text} are needed"
            if fitting:
                return f"{needed}; there {'is' if fitting == 1 else 'are'} {fitting}"
            largest = max(slices.values(), key=len)
            total = sum(node.amount("tpu") for node in largest)
            chips_there = f" with {total:g} chips" if len(largest) >= num_hosts else ""
            return f"{needed}; the largest slice here has {_count(len(largest), 'host')}{chips_there}"
    return ""


def _slice_for(request: Resources, chips_per_host: int) -> tuple[int, str]:
    """Return how many hosts the slice of one run of bundles needs, and that slice in words."""
    number, size, of_type = len(request.bundles), request.bundles[0].tpu, request.bundles[0].accelerator_type
    if any(bundle.tpu != size for bundle in request.bundles):
        return 1, f"with {format_request('tpu', request.total.tpu, of_type)} in all"
    on_one = {"STRICT_SPREAD": 1, "STRICT_PACK": number}.get(request.strategy, min(number, int(chips_per_host // size)))
    num_hosts = math.ceil(number / on_one)
    asked = format_request("tpu", size * on_one, of_type)
    return num_hosts, f"of {_count(num_hosts, 'host')} with {asked}{' each' if num_hosts > 1 else ''}"


def _lack_of_devices(resources: Resources, nodes: Sequence[Node]) -> str:
    """Say how many GPUs are missing for shares that must not lie on one device."""
    sharing = [bundle for bundle in resources.bundles if bundle.gpu] if resources.distinct_devices else []
    for of_type in (*dict.fromkeys(bundle.accelerator_type for bundle in sharing if bundle.accelerator_type), ""):
        asking = [
            bundle for bundle in sharing if not of_type or plain_type(bundle.accelerator_type) == plain_type(of_type)
        ]
        need = sum(math.ceil(bundle.gpu) for bundle in asking)
        there = [int(node.amount("gpu", of_type)) for node in nodes]
        have = max(there) if resources.strategy == "STRICT_PACK" else sum(there)
        if need > have and any(bundle.gpu < 1 for bundle in asking):
            groups = Counter(format_request("gpu", bundle.gpu, bundle.accelerator_type) for bundle in asking)
            workers = " and ".join(f"{_count(number, 'worker')} with {text}" for text, number in groups.items())
            many = "the largest node has" if resources.strategy == "STRICT_PACK" else "the nodes have"
            has = "this machine has" if len(nodes) == 1 else many
            return f"{workers} each need {need} devices of their own; {has} {have}"
    return ""


def _lack_in_all(resources: Resources, nodes: Sequence[Node]) -> str:
    """Say what is missing in all, or that the strategy is at fault."""
    short = []
    for name, of_type, need in resources.needs():
        have = sum(node.amount(name, of_type) for node in nodes)
        if need > have:
            short.append(f"{format_request(name, need, of_type)} in all, there are {format_amount(name, have)}")
    if short:
        return f"it needs {' and '.join(short)}"
    return f"its bundles cannot be laid out on {_count(len(nodes), 'node')} by {resources.strategy}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
