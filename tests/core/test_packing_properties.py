"""Packing of gangs on random inventories: typed GPUs, blocks of TPU chips and slices, checked by counting and by trying
everything."""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st
from packing_worlds import (
    gpu_node_lists,
    gpu_requests,
    node_lists,
    requests,
    scripts,
    slice_node_lists,
    slice_requests,
)

from sweep.core.packing import Packer
from sweep.core.resources import Bundle, BundlePlacement, Device, Node, Placement, Resources

Held = dict[tuple[str, int], tuple[Resources, Placement]]

# --- what a placement must be ----------------------------------------------------------------------------------------


def answers_to(device: Device, wanted: str) -> bool:
    return not wanted or wanted.lower() in [name.lower() for name in (device.type, *device.labels)]


def is_block(chips: list[str], node: Node) -> bool:
    """Whether chips are adjacent and begin at a multiple of their number, in the order of the node's chips."""
    order = [device.id for device in node.devices if device.kind == "tpu"]
    start = order.index(chips[0])
    return start % len(chips) == 0 and chips == order[start : start + len(chips)]


def check_bundle(bundle: Bundle, place: BundlePlacement, node: Node) -> None:
    """A bundle has exactly the devices that it asks for, of its type, chips in one block."""
    devices = {device.id: device for device in node.devices}
    gpus = [(devices[name], share) for name, share in place.devices if devices[name].kind == "gpu"]
    chips = [(devices[name], share) for name, share in place.devices if devices[name].kind == "tpu"]
    assert len(gpus) + len(chips) == len(place.devices) == len(dict(place.devices))
    if bundle.gpu < 1:
        assert [share for _, share in gpus] == [bundle.gpu] * bool(bundle.gpu)
    else:
        assert [share for _, share in gpus] == [1.0] * int(bundle.gpu)
    assert [share for _, share in chips] == [1.0] * int(bundle.tpu)
    assert all(answers_to(device, bundle.accelerator_type) for device, _ in (*gpus, *chips))
    if chips:
        assert is_block([device.id for device, _ in chips], node)


def faults(resources: Resources, placement: Placement, nodes: list[Node]) -> list[str]:
    """Return what is wrong with how the bundles of a gang, or the first of them, lie to each other."""
    order = [node.id for node in nodes]
    slices = {node.id: node.slice or ("alone", node.id) for node in nodes}
    on = [place.node for place in placement.bundles]
    devices = [(place.node, device) for place in placement.bundles for device, _ in place.devices]
    with_chips = [node for node, bundle in zip(on, resources.bundles, strict=False) if bundle.tpu]
    k = resources.bundles_per_slice
    runs = [with_chips[start : start + k] for start in range(0, len(with_chips), k)] if k else []
    wrong = {
        "not on one node": resources.strategy == "STRICT_PACK" and len(set(on)) > 1,
        "twice on one node": resources.strategy == "STRICT_SPREAD" and len(set(on)) < len(on),
        "a device is shared": resources.distinct_devices and len(set(devices)) < len(devices),
        "a run on several slices": any(len({slices[node] for node in run}) > 1 for run in runs),
        "two runs on one slice": len({slices[run[0]] for run in runs}) < len(runs),
        "hosts not in order": any(order.index(a) > order.index(b) for run in runs for a, b in itertools.pairwise(run)),
    }
    return [fault for fault, is_so in wrong.items() if is_so]


def check_gang(resources: Resources, placement: Placement, nodes: list[Node]) -> None:
    """A gang is whole, and lies as its strategy, its devices and its slices demand."""
    by_id = {node.id: node for node in nodes}
    assert len(placement.bundles) == len(resources.bundles)
    for bundle, place in zip(resources.bundles, placement.bundles, strict=True):
        check_bundle(bundle, place, by_id[place.node])
    assert faults(resources, placement, nodes) == []


def check_amounts(held: Held, nodes: list[Node]) -> None:
    """All that is held is there."""
    used: Counter = Counter()
    for resources, placement in held.values():
        for bundle, place in zip(resources.bundles, placement.bundles, strict=True):
            used[place.node, "cpu"] += Fraction(bundle.cpu)
            used[place.node, "memory"] += bundle.memory
            for name, amount in bundle.custom:
                used[place.node, name] += Fraction(amount)
            for device, share in place.devices:
                used[place.node, "device", device] += Fraction(share)
    there: dict = {}
    for node in nodes:
        there |= {(node.id, "cpu"): node.cpus, (node.id, "memory"): node.memory}
        there |= {(node.id, name): amount for name, amount in node.custom.items()}
        there |= {(node.id, "device", device.id): 1 for device in node.devices}
    for key, amount in used.items():
        assert amount <= there.get(key, 0), key
    on = {holder: {place.node for place in placement.bundles} for holder, (_, placement) in held.items()}
    for holder, (resources, _) in held.items():
        assert not resources.alone or not any(on[holder] & on[other] for other in held if other != holder)


def play(packer: Packer, nodes: list[Node], script: list[tuple[Resources, int]]) -> Held:
    """Place the requests of a script one after the other, with a release before some; check each placement."""
    held: Held = {}
    for number, (resources, act) in enumerate(script):
        if act < len(held):
            holder = list(held)[act]
            assert packer.release(holder)
            del held[holder]
        before = copy.deepcopy(packer._nodes)
        fits = packer.fits_now(resources)
        assert packer._nodes == before, "a look takes nothing"
        placement = packer.place(resources, (f"t_{number}", 1))
        assert fits is (placement is not None)
        if placement is None:
            assert packer._nodes == before, "a gang is not split"
            continue
        assert packer.could_ever_fit(resources)
        held[f"t_{number}", 1] = (resources, placement)
        check_gang(resources, placement, nodes)
        check_amounts(held, nodes)
    return held


worlds = st.one_of(
    st.tuples(node_lists(), scripts(requests(), 10)),
    st.tuples(slice_node_lists(), scripts(slice_requests(), 8)),
    st.tuples(gpu_node_lists(), scripts(gpu_requests(), 8)),
)


@settings(max_examples=60, deadline=None)
@given(worlds)
def test_gangs_hold_what_they_ask_for_and_nothing_is_given_out_twice(world):
    nodes, script = world
    packer = Packer(nodes)
    for holder in play(packer, nodes, script):
        assert packer.release(holder)
    assert packer._nodes == Packer(nodes)._nodes
    assert packer.holders == []
    for number, (resources, _) in enumerate(script):
        placement = packer.place(resources, (f"again_{number}", 1))
        assert packer.could_ever_fit(resources) is (placement is not None)
        packer.release((f"again_{number}", 1))


@settings(max_examples=60, deadline=None)
@given(worlds, requests() | slice_requests() | gpu_requests())
def test_what_does_not_fit_is_explained(world, resources):
    nodes, script = world
    packer = Packer(nodes)
    play(packer, nodes, script)
    text = packer.why_not(resources)
    if packer.could_ever_fit(resources):
        assert text.startswith("waits until nothing else runs" if resources.alone else "waits for ")
    else:
        assert text == packer.why_never(resources)
        assert text.startswith(f"a trial asks for {resources}; ")
        assert text.endswith(".")


# --- everything is tried ---------------------------------------------------------------------------------------------


class Left:
    """What is left of some nodes, by another account than the packer's."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.amounts: Counter = Counter()
        for node in nodes:
            self.amounts[node.id, "cpu"] = Fraction(node.cpus)
            self.amounts[node.id, "memory"] = Fraction(node.memory)
            self.amounts.update({(node.id, name): Fraction(amount) for name, amount in node.custom.items()})
            self.amounts.update({(node.id, "device", device.id): Fraction(1) for device in node.devices})
        self.taken: set[str] = set()  # nodes that somebody is on, and those that somebody has alone
        self.closed: set[str] = set()

    def hold(self, resources: Resources, placement: Placement) -> None:
        for bundle, place in zip(resources.bundles, placement.bundles, strict=True):
            self.take(bundle, place)
            self.taken.add(place.node)
            if resources.alone:
                self.closed.add(place.node)

    def nodes_for(self, resources: Resources) -> list[Node]:
        return [node for node in self.nodes if node.id not in (self.taken if resources.alone else self.closed)]

    def take(self, bundle: Bundle, place: BundlePlacement, sign: int = 1) -> None:
        self.amounts[place.node, "cpu"] -= sign * Fraction(bundle.cpu)
        self.amounts[place.node, "memory"] -= sign * bundle.memory
        for name, amount in bundle.custom:
            self.amounts[place.node, name] -= sign * Fraction(amount)
        for device, share in place.devices:
            self.amounts[place.node, "device", device] -= sign * Fraction(share)

    def ways(self, bundle: Bundle, node: Node) -> Iterator[BundlePlacement]:
        """Yield every choice of devices of a node for a bundle."""
        needs = {"cpu": bundle.cpu, "memory": bundle.memory, **dict(bundle.custom)}
        if any(self.amounts[node.id, name] < Fraction(amount) for name, amount in needs.items()):
            return
        fitting = [device for device in node.devices if answers_to(device, bundle.accelerator_type)]
        share = bundle.gpu if bundle.gpu < 1 else 1.0
        gpus = [d.id for d in fitting if d.kind == "gpu" and self.amounts[node.id, "device", d.id] >= Fraction(share)]
        chips = [d.id for d in fitting if d.kind == "tpu" and self.amounts[node.id, "device", d.id] == 1]
        number = 0 if not bundle.gpu else max(1, int(bundle.gpu))
        for some in itertools.combinations(gpus, number):
            for block in itertools.combinations(chips, int(bundle.tpu)):
                if not block or is_block(list(block), node):
                    devices = (*((device, share) for device in some), *((device, 1.0) for device in block))
                    yield BundlePlacement(node.id, devices)


def fits_by_trying_everything(left: Left, resources: Resources) -> bool:
    """Whether some choice of nodes and devices for all bundles is a placement."""

    def descend(chosen: tuple[BundlePlacement, ...]) -> bool:
        if faults(resources, Placement(chosen), left.nodes):
            return False
        if len(chosen) == len(resources.bundles):
            return True
        bundle = resources.bundles[len(chosen)]
        for node in left.nodes_for(resources):
            for way in left.ways(bundle, node):
                left.take(bundle, way)
                is_found = descend((*chosen, way))
                left.take(bundle, way, -1)
                if is_found:
                    return True
        return False

    return descend(())


small = node_lists(largest=3, most_gpus=2, chips=(0, 1, 2, 3, 4))
idle_worlds = st.one_of(
    st.tuples(small, requests(largest=3)),
    st.tuples(slice_node_lists(), slice_requests()),
    st.tuples(gpu_node_lists(), gpu_requests()),
)


@settings(max_examples=60, deadline=None)
@given(idle_worlds)
def test_a_gang_fits_an_idle_inventory_exactly_when_some_choice_of_devices_works(world):
    nodes, resources = world
    assert Packer(nodes).could_ever_fit(resources) is fits_by_trying_everything(Left(nodes), resources)


busy_worlds = st.one_of(
    st.tuples(small, scripts(requests(largest=2), 4), requests(largest=3)),
    st.tuples(slice_node_lists(), scripts(slice_requests(), 3), slice_requests()),
    st.tuples(gpu_node_lists(), scripts(gpu_requests(), 4), gpu_requests()),
)


@settings(max_examples=60, deadline=None)
@given(busy_worlds)
def test_a_gang_fits_beside_others_exactly_when_some_choice_of_devices_works(world):
    nodes, script, resources = world
    packer, left = Packer(nodes), Left(nodes)
    for request, placement in play(packer, nodes, script).values():
        left.hold(request, placement)
    assert packer.fits_now(resources) is fits_by_trying_everything(left, resources)
