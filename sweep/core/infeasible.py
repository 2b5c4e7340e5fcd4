"""Why a request can never be granted: which amount, type, slice or layout is missing, in words, and what to do."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sweep.core.resources import Bundle, Node, Resources, format_amount, format_request, list_devices, plain_type

CanHold = Callable[[Resources, Sequence[Node]], bool]
"""Whether some nodes hold a request when they are idle."""

_MOST_NAMED = 4


class _Words(NamedTuple):
    """What is said of the nodes: how a sentence begins that says what one of them has, or all; what to do."""

    one: str
    all: str
    more: str = ""  # instead of what one machine advises


_ONE = _Words("this machine has", "this machine has")
_SEVERAL = _Words("the largest node has", "the nodes have")
_SOME_AWAY = _Words(
    "the largest node there is, or that may come, has",
    "the nodes there are, or that may come, have",
    "give the cluster nodes that do",
)


def why_never(
    resources: Resources,
    nodes: Sequence[Node],
    can_hold: CanHold,
    *,
    of_workers: bool = False,
    is_some_away: bool = False,
) -> str:
    """Return why a request that these nodes never hold is not granted, with the arithmetic, and what to do.

    Args:
        of_workers: it is what a ScalingConfig comes to.
        is_some_away: some of the nodes are not there now.
    """
    words = _SOME_AWAY if is_some_away else _ONE if len(nodes) == 1 else _SEVERAL
    lower = "num_workers or resources_per_worker" if of_workers else "resources_per_trial"
    machine = words.more or "declare a larger machine with sweep.init(num_cpus=..., num_gpus=...)"
    advice = f"Lower {lower}, or {machine}"
    if not nodes:
        problem = "there is no node to run on"
    elif problem := _unknown_types(resources, nodes, words):
        declare = "num_gpus=..., gpu_type=..." if resources.total.gpu else "num_tpus=..., tpu_type=..."
        devices = words.more or f"declare such devices with sweep.init({declare})"
        advice = f"Ask for another accelerator_type, or {devices}"
    elif problem := _too_large(resources, nodes, words):
        pass
    elif problem := _lack_of_slices(resources, nodes, can_hold):
        hosts = words.more or "declare the hosts of a slice with sweep.init(nodes=[Node(..., slice=...)])"
        advice = f"Lower num_workers, or {hosts}"
    else:
        problem = _lack_of_devices(resources, nodes, words) or _lack_in_all(resources, nodes, words)
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
        or bool(nodes and _lack_of_devices(resources, nodes, _SEVERAL))
    )


def _unknown_types(resources: Resources, nodes: Sequence[Node], words: _Words) -> str:
    """Say which types no device has, and what there is instead."""
    parts = []
    for bundle in resources.bundles:
        for name, need in (("gpu", bundle.gpu), ("tpu", bundle.tpu)):
            of_type = bundle.accelerator_type
            if need and of_type and not any(node.amount(name, of_type) for node in nodes):
                there = list_devices(nodes, name, of_type)
                parts.append(f"it needs {format_request(name, need, of_type)}; {words.all} {there}")
    return " and ".join(dict.fromkeys(parts))


def _too_large(resources: Resources, nodes: Sequence[Node], words: _Words) -> str:
    """Say which amounts of single bundles exceed every node."""
    parts = []
    for bundle in resources.bundles:
        for name, need in bundle.amounts.items():
            of_type = bundle.type_of(name)
            best = max(node.amount(name, of_type) for node in nodes)
            if need > best:
                asked = format_request(name, need, of_type)
                parts.append(f"{asked} is more than {words.one}: {format_amount(name, best)}")
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


def _lack_of_devices(resources: Resources, nodes: Sequence[Node], words: _Words) -> str:
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
            has = words.one if resources.strategy == "STRICT_PACK" else words.all
            return f"{workers} each need {need} devices of their own; {has} {have}"
    return ""


def _lack_in_all(resources: Resources, nodes: Sequence[Node], words: _Words) -> str:
    """Say what is missing in all, or that the strategy is at fault."""
    short = []
    coming = ", with those that may come" if words is _SOME_AWAY else ""
    for name, of_type, need in resources.needs():
        have = sum(node.amount(name, of_type) for node in nodes)
        if need > have:
            short.append(f"{format_request(name, need, of_type)} in all, there are {format_amount(name, have)}{coming}")
    if short:
        return f"it needs {' and '.join(short)}"
    number = f"{_count(len(nodes), 'node')}{coming and coming + ','}"
    return f"its bundles cannot be laid out on {number} by {resources.strategy}"


def why_absent(resources: Resources, nodes: Sequence[Node], away: Sequence[Node], can_hold: CanHold) -> str:
    """Return which nodes a request waits for that those which are there never hold, but all of them together.

    Where one node more is enough, it is any of these; otherwise as few as suffice are named, the first ones.
    """
    kinds = tuple(dict.fromkeys((name, of_type) for name, of_type, _ in resources.needs()))

    def shown(node: Node) -> str:
        amounts = [(name, node.amount(name, of_type), of_type) for name, of_type in kinds]
        has = ", ".join(format_request(*amount) for amount in amounts if amount[1])
        return f"{node.id!r} ({has})" if has else f"{node.id!r}"

    enough = [node for node in away if can_hold(resources, [*nodes, node])]
    needed = enough or list(away)
    for node in () if enough else reversed(away):
        if can_hold(resources, [*nodes, *(other for other in needed if other is not node)]):
            needed.remove(node)
    names = _listed([shown(node) for node in needed], "or" if enough else "and")
    number = "node" if enough else "nodes"
    are = "is" if len(needed) == 1 else "are"
    return f"waits for {number} {names}, which {are} not available now" + ("" if nodes else "; there is no node at all")


def _listed(names: Sequence[str], joint: str) -> str:
    shown = [*names[:_MOST_NAMED], *([f"{len(names) - _MOST_NAMED} more"] if len(names) > _MOST_NAMED else [])]
    return f"{', '.join(shown[:-1])} {joint} {shown[-1]}" if len(shown) > 1 else shown[0]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
