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

from sweep.core.packing import Packer
from sweep.core.resources import STRATEGIES, Bundle, BundlePlacement, Device, Node, Placement, Resources

Held = dict[tuple[str, int], tuple[Resources, Placement]]

# --- inventories and requests ----------------------------------------------------------------------------------------

GPUS = [
    ("NVIDIA A100-SXM4-40GB", ("A100", "A100-40G")),
    ("NVIDIA A100-SXM4-80GB", ("A100", "A100-80G")),
    ("H100", ()),
    ("", ()),
]
GPU_TYPES = ["", "", "A100", "a100-40g", "H100", "nvidia a100-sxm4-80gb"]
TPUS = [("TPU-V6E", ("TPU-V6E",)), ("TPU-V5P", ("TPU-V5P",))]
TPU_TYPES = ["", "", "TPU-V6E", "tpu-v5p"]


@st.composite
def node_lists(draw, largest=4, most_gpus=3, chips=(0, 1, 2, 4, 8, 3, 6)):
    nodes = []
    for number in range(draw(st.integers(1, largest))):
        kinds = draw(st.lists(st.sampled_from(GPUS), max_size=most_gpus))
        gpus = [Device(f"g{i}", "gpu", type_, labels=labels) for i, (type_, labels) in enumerate(kinds)]
        type_, labels = draw(st.sampled_from(TPUS))
        tpus = [Device(f"tpu{i}", "tpu", type_, labels=labels) for i in range(draw(st.sampled_from(chips)))]
        cpus, memory = draw(st.sampled_from([0.5, 1, 2, 4, 8])), draw(st.sampled_from([0, 4]))
        custom = draw(st.sampled_from([{}, {"slot": 2.0}]))
        slice_ = draw(st.sampled_from(["", "s", "t"]))
        nodes.append(Node(f"n{number}", cpus, memory, (*gpus, *tpus), custom, slice_))
    return nodes


@st.composite
def bundles(draw):
    kind = draw(st.sampled_from(["none", "gpu", "gpu", "tpu", "tpu", "both"]))
    gpu = draw(st.sampled_from([0.25, 0.5, 1, 1, 2])) if kind in ("gpu", "both") else 0
    tpu = draw(st.sampled_from([1, 1, 2, 4, 8])) if kind in ("tpu", "both") else 0
    types = {"gpu": GPU_TYPES, "tpu": TPU_TYPES}.get(kind, [""])
    return Bundle(
        cpu=draw(st.sampled_from([0, 0.25, 0.5, 1, 2])),
        gpu=gpu,
        tpu=tpu,
        memory=draw(st.sampled_from([0, 0, 0, 1, 3])),
        custom=draw(st.sampled_from([(), (), (), (("slot", 1.0),)])),
        accelerator_type=draw(st.sampled_from(types)),
    )


@st.composite
def requests(draw, largest=4):
    chosen = draw(st.lists(bundles(), min_size=1, max_size=largest))
    if draw(st.booleans()):
        chosen = [draw(st.sampled_from(chosen)) for _ in chosen]  # equal bundles are what groups have
    if all(bundle.is_empty for bundle in chosen):
        chosen[0] = Bundle(cpu=0.25)
    number = sum(1 for bundle in chosen if bundle.tpu)
    per_slice = draw(st.sampled_from([0, *(k for k in range(1, number + 1) if number % k == 0)]))
    distinct, shared = draw(st.sampled_from([(False, False), (True, False), (False, True)]))
    strategy, alone = draw(st.sampled_from(STRATEGIES)), draw(st.sampled_from([False, False, False, True]))
    return Resources(tuple(chosen), strategy, distinct, per_slice, alone=alone, shared_devices=shared)


@st.composite
def slice_node_lists(draw):
    """Hosts of TPU slices, in any order, and perhaps a node without chips."""
    nodes = []
    for number in range(draw(st.integers(2, 4))):
        chips = [Device(f"tpu{i}", "tpu", "TPU-V6E") for i in range(draw(st.sampled_from([2, 4, 4, 4])))]
        gpus = [Device(f"g{i}") for i in range(draw(st.sampled_from([0, 0, 1])))]
        slice_ = draw(st.sampled_from(["", "s", "s", "t", "t"]))
        nodes.append(Node(f"h{number}", draw(st.sampled_from([1, 2, 4])), devices=(*gpus, *chips), slice=slice_))
    if draw(st.booleans()):
        nodes.insert(draw(st.integers(0, len(nodes))), Node("plain", draw(st.sampled_from([1, 4]))))
    return nodes


@st.composite
def slice_requests(draw):
    """Groups of workers that fill slices: mostly alike, perhaps behind a head that has no chips."""
    size, gpu = draw(st.sampled_from([2, 2, 4])), draw(st.sampled_from([0, 0, 0, 0.5]))
    workers = [Bundle(cpu=draw(st.sampled_from([0, 1])), gpu=gpu, tpu=size)] * draw(st.integers(1, 4))
    if draw(st.integers(0, 3)) == 0:
        workers[draw(st.integers(0, len(workers) - 1))] = Bundle(cpu=draw(st.sampled_from([0, 2])), tpu=2)
    per_slice = draw(st.sampled_from([k for k in (1, 2, 3, 4) if len(workers) % k == 0]))
    heads = [(), (), (Bundle(cpu=1),), (Bundle(cpu=4),), (Bundle(cpu=1), Bundle(cpu=2)), (Bundle(cpu=1, gpu=0.5),)]
    head = draw(st.sampled_from(heads))
    strategy = draw(st.sampled_from([*STRATEGIES, "PACK", "SPREAD"]))
    return Resources((*head, *workers), strategy, draw(st.booleans()), per_slice)


@st.composite
def gpu_node_lists(draw):
    """Machines with GPUs of few types and enough of everything else."""
    nodes = []
    for number in range(draw(st.integers(1, 3))):
        kinds = draw(st.lists(st.sampled_from(GPUS[:3]), min_size=1, max_size=3))
        gpus = [Device(f"g{i}", "gpu", type_, labels=labels) for i, (type_, labels) in enumerate(kinds)]
        nodes.append(Node(f"n{number}", 8, devices=tuple(gpus)))
    return nodes


@st.composite
def gpu_requests(draw):
    """Groups of workers with GPUs: mostly alike, of one type or of several."""
    kinds = draw(
        st.lists(st.tuples(st.sampled_from([0.25, 0.5, 0.5, 1, 2]), st.sampled_from(GPU_TYPES)), min_size=1, max_size=2)
    )
    chosen = [draw(st.sampled_from(kinds)) for _ in range(draw(st.integers(1, 4)))]
    workers = [Bundle(gpu=gpu, accelerator_type=type_) for gpu, type_ in chosen]
    return Resources(tuple(workers), draw(st.sampled_from(STRATEGIES)), draw(st.booleans()))


def scripts(gangs, most):
    """Gangs to place one after the other, each with the number of what is released before, if there are so many."""
    return st.lists(st.tuples(gangs, st.integers(0, 6)), max_size=most)


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


@settings(max_examples=200, deadline=None)
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


@settings(max_examples=100, deadline=None)
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


@settings(max_examples=200, deadline=None)
@given(idle_worlds)
def test_a_gang_fits_an_idle_inventory_exactly_when_some_choice_of_devices_works(world):
    nodes, resources = world
    assert Packer(nodes).could_ever_fit(resources) is fits_by_trying_everything(Left(nodes), resources)


busy_worlds = st.one_of(
    st.tuples(small, scripts(requests(largest=2), 4), requests(largest=3)),
    st.tuples(slice_node_lists(), scripts(slice_requests(), 3), slice_requests()),
    st.tuples(gpu_node_lists(), scripts(gpu_requests(), 4), gpu_requests()),
)


@settings(max_examples=200, deadline=None)
@given(busy_worlds)
def test_a_gang_fits_beside_others_exactly_when_some_choice_of_devices_works(world):
    nodes, script, resources = world
    packer, left = Packer(nodes), Left(nodes)
    for request, placement in play(packer, nodes, script).values():
        left.hold(request, placement)
    assert packer.fits_now(resources) is fits_by_trying_everything(left, resources)
