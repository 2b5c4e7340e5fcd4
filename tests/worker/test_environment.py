"""The environment of a trial, rule by rule."""

from __future__ import annotations

import pytest

from sweep.core.resources import Bundle, BundlePlacement, Device, Node, Placement, Resources
from sweep.worker.environment import (
    attempt_variables,
    device_variables,
    held_devices,
    num_threads,
    thread_variables,
    trial_seed,
)

GPUS = Node("n", devices=(Device("GPU-a", visible="4"), Device("GPU-b", visible="5"), Device("GPU-c")))
PLAIN = Node("n")
AMD = Node("n", devices=(Device("a", visible="0", vendor="amd"),))
# What a process without a GPU is told, so that it can never touch one.
NONE = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}
BY_INDEX = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
TPUS = Node("n", devices=tuple(Device(str(i), kind="tpu") for i in range(4)))


def held(*devices):
    """Return a placement of one bundle."""
    return Placement((BundlePlacement("n", tuple((device, 1.0) for device in devices)),))


def shared(device, share):
    """Return a placement of a part of one device."""
    return Placement((BundlePlacement("n", ((device, share),)),))


@pytest.mark.parametrize(
    ("placement", "node", "environ", "expected"),
    [
        (held(), PLAIN, {}, NONE),
        (held(), GPUS, {}, NONE),
        (None, GPUS, {}, NONE),
        (None, PLAIN, {}, NONE),
        (held(), PLAIN, {"CUDA_VISIBLE_DEVICES": "0"}, NONE),
        (held(), PLAIN, {"HIP_VISIBLE_DEVICES": "0"}, NONE),
        (held(), PLAIN, {"SWEEP_KEEP_VISIBLE_DEVICES": "1"}, {}),
        (held("GPU-a"), GPUS, {}, {"CUDA_VISIBLE_DEVICES": "4", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
        (held("GPU-a"), GPUS, {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, {"CUDA_VISIBLE_DEVICES": "4"}),
        (held("GPU-b", "GPU-a"), GPUS, {"CUDA_VISIBLE_DEVICES": "4,5"}, {"CUDA_VISIBLE_DEVICES": "5,4"}),
        (held("GPU-c"), GPUS, {}, {"CUDA_VISIBLE_DEVICES": "GPU-c"}),
        (
            held("GPU-a"),
            GPUS,
            {"HIP_VISIBLE_DEVICES": "4,5", "CUDA_VISIBLE_DEVICES": "4,5"},
            {"CUDA_VISIBLE_DEVICES": "4", "HIP_VISIBLE_DEVICES": "4"},
        ),
        (held("a"), AMD, {}, {"HIP_VISIBLE_DEVICES": "0"}),
        (held(), AMD, {}, NONE),
        (held("GPU-a"), GPUS, {"HIP_VISIBLE_DEVICES": ""}, {"CUDA_VISIBLE_DEVICES": "4", **BY_INDEX}),
        (shared("GPU-c", 0.5), GPUS, {}, {"CUDA_VISIBLE_DEVICES": "GPU-c", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.45"}),
        (shared("GPU-c", 0.5), GPUS, {"XLA_CLIENT_MEM_FRACTION": ".3"}, {"CUDA_VISIBLE_DEVICES": "GPU-c"}),
        (held("GPU-a"), GPUS, {"SWEEP_KEEP_VISIBLE_DEVICES": "1"}, {}),
        (
            held("1"),
            TPUS,
            {},
            {**NONE, "TPU_VISIBLE_CHIPS": "1", "TPU_CHIPS_PER_HOST_BOUNDS": "1,1,1", "TPU_HOST_BOUNDS": "1,1,1"},
        ),
        (
            held("0", "1", "2", "3"),
            TPUS,
            {},
            {**NONE, "TPU_VISIBLE_CHIPS": None, "TPU_CHIPS_PER_HOST_BOUNDS": None, "TPU_HOST_BOUNDS": None},
        ),
        (held(), TPUS, {}, {**NONE, "TPU_VISIBLE_CHIPS": ""}),
    ],
)
def test_a_process_is_shown_the_devices_of_its_placement_and_no_others(placement, node, environ, expected):
    assert device_variables(placement, [node], environ) == expected


def test_two_bundles_on_one_device_show_it_once():
    placement = Placement((BundlePlacement("n", (("GPU-a", 0.5),)), BundlePlacement("n", (("GPU-a", 0.5),))))
    assert device_variables(placement, [GPUS], {"CUDA_VISIBLE_DEVICES": "4,5"}) == {"CUDA_VISIBLE_DEVICES": "4"}


def test_devices_of_two_nodes_with_the_same_id_are_two_and_their_common_name_is_shown_once():
    nodes = [Node(name, devices=(Device("0", visible=visible),)) for name, visible in (("m", "4"), ("n", "5"))]
    bundles = [BundlePlacement("m", (("0", 1.0),)), BundlePlacement("n", (("0", 1.0),))]
    assert held_devices(bundles, nodes) == (Device("0", visible="4"), Device("0", visible="5"))
    placement = Placement(tuple(bundles))
    assert device_variables(placement, nodes, {})["CUDA_VISIBLE_DEVICES"] == "4,5"
    same = [Node(name, devices=(Device("0"),)) for name in ("m", "n")]
    assert device_variables(placement, same, {})["CUDA_VISIBLE_DEVICES"] == "0"  # "0,0" would hide all


@pytest.mark.parametrize(
    ("cpu", "environ", "expected"),
    [
        (1.0, {}, 1),
        (4.0, {}, 4),
        (2.7, {}, 2),
        (0.25, {}, 1),
        (4.0, {"OMP_NUM_THREADS": "3"}, 3),
        (4.0, {"OMP_NUM_THREADS": "nonsense"}, 4),
    ],
)
def test_threads_come_from_the_request_unless_the_user_has_exported_a_number(cpu, environ, expected):
    assert num_threads(Resources((Bundle(cpu=cpu),)), environ) == expected


def test_thread_variables_keep_what_the_user_has_exported():
    variables = thread_variables(2, {"MKL_NUM_THREADS": "7"})
    assert variables["MKL_NUM_THREADS"] == "7"
    assert variables["OMP_NUM_THREADS"] == "2"


def test_an_attempt_bears_its_markers():
    variables = attempt_variables(
        experiment="/exp",
        driver="7.123.beef",
        trial_id="abcde_00001",
        attempt=2,
        resources=Resources(),
        placement=None,
        nodes=[PLAIN],
        environ={},
    )
    markers = {name: variables[name] for name in ("SWEEP_EXPERIMENT", "SWEEP_DRIVER", "SWEEP_TRIAL", "SWEEP_ATTEMPT")}
    assert list(markers.values()) == ["/exp", "7.123.beef", "abcde_00001", "2"]


def test_seeds_depend_on_the_sweeps_seed_and_the_trials_number_only():
    assert trial_seed(1, "abcde_00007") == trial_seed(1, "fffff_00007")
    assert len({trial_seed(s, f"abcde_{n:05d}") for s in range(3) for n in range(100)}) == 300
