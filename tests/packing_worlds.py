"""Inventories and requests for tests of packing, as hypothesis draws them."""

from __future__ import annotations

from hypothesis import strategies as st

from sweep.core.resources import STRATEGIES, Bundle, Device, Node, Resources

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
