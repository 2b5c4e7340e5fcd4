"""What `sweep.init` makes of the parent's list of devices, of a driver that is made up, and of declared nodes."""

from __future__ import annotations

import os

import pytest
from accelerators.test_gpu import FakeGpu, FakeNvml, NVMLError_LibraryNotFound, install

import sweep
from sweep.accelerators import cuda, inventory
from sweep.errors import ConfigError, ResourceError

__all__ = ["install"]

NO_DRIVER = "NVIDIA's driver library, libnvidia-ml.so.1, is not here"
EIGHT = [FakeGpu(f"GPU-{number}a") for number in range(8)]


@pytest.fixture(autouse=True)
def machine(install, monkeypatch):
    """Return a function that makes a machine: its GPUs as its driver lists them, or None, and its device files."""
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(inventory.gpu, "find_amd", lambda sysfs: ())

    def has(gpus=None, *, files=0, listed=None):
        install(FakeNvml(*gpus) if gpus is not None else FakeNvml(init_error=NVMLError_LibraryNotFound()))
        monkeypatch.setattr(cuda, "count_files", lambda dev: files)
        if listed is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)

    has()
    yield has
    sweep.shutdown()


def names(**arguments):
    """Declare an inventory and return its devices by id and by what a child is told."""
    (node,) = sweep.init(**arguments)
    return [(device.id, device.visible or device.id) for device in node.devices]


def sees(config):
    """Report what a trial is shown."""
    return {name: os.environ.get(f"{name}_VISIBLE_DEVICES", "unset") for name in ("CUDA", "HIP", "ROCR")}


def refusal(**arguments):
    """Return what a declaration is refused with."""
    before = inventory.available()
    with pytest.raises(ResourceError) as raised:
        sweep.init(**arguments)
    assert inventory.available() == before
    return str(raised.value)


@pytest.mark.parametrize("gpus", [None, EIGHT])
def test_of_the_parents_list_the_first_are_taken_and_never_others(machine, gpus):
    machine(gpus, listed="4,5")
    ids = ["4", "5"] if gpus is None else ["GPU-4a", "GPU-5a"]
    assert sweep.cluster_resources()["GPU"] == 2
    assert names() == names(num_gpus=2) == list(zip(ids, ["4", "5"], strict=True))
    assert names(num_gpus=1) == [(ids[0], "4")]
    assert names(num_gpus=0) == []


@pytest.mark.parametrize(
    ("gpus", "files", "listed", "allowed", "why"),
    [
        (None, 0, "4,5", "2 GPUs", f"CUDA_VISIBLE_DEVICES='4,5' names no others, and {NO_DRIVER}"),
        (EIGHT, 8, "4,5", "2 GPUs", "CUDA_VISIBLE_DEVICES='4,5' names no others"),
        (EIGHT, 8, "4,9,5", "1 GPU", "CUDA_VISIBLE_DEVICES='4,9,5' ends at '9', which names no GPU here"),
        (EIGHT, 8, "4,4", "0 GPUs", "CUDA_VISIBLE_DEVICES='4,4' names GPU-4a twice, which hides all"),
        (EIGHT, 8, "", "0 GPUs", "CUDA_VISIBLE_DEVICES is empty"),
        (None, 2, "NoDevFiles", "0 GPUs", "CUDA_VISIBLE_DEVICES='NoDevFiles' ends at 'NoDevFiles', which names"),
        ([], 0, "4", "0 GPUs", "CUDA_VISIBLE_DEVICES='4' names no GPU here: the driver of NVIDIA lists none"),
    ],
)
def test_more_than_the_list_holds_is_refused_with_the_cause(machine, gpus, files, listed, allowed, why):
    machine(gpus, files=files, listed=listed)
    text = refusal(num_gpus=3)
    assert text.startswith(f"sweep.init: num_gpus is 3 and this process may use {allowed}: {why}")
    assert text.endswith("change CUDA_VISIBLE_DEVICES; gpu_ids=[...] or nodes=[...] declare other devices.")


@pytest.mark.parametrize("listed", ["", " ", "-1", "NoDevFiles"])
def test_where_there_is_no_gpu_at_all_an_empty_list_leaves_room_for_gpus_on_paper(machine, listed):
    machine(listed=listed)
    assert names(num_gpus=2) == [("0", "0"), ("1", "1")]


def test_without_a_list_gpus_on_paper_have_names_of_no_real_one(machine):
    machine([FakeGpu("GPU-a"), FakeGpu("GPU-b")])
    assert names(num_gpus=3) == [("GPU-a", "0"), ("GPU-b", "1"), ("2", "2")]
    machine([FakeGpu("GPU-a", is_lost=True), FakeGpu("GPU-b")])
    assert names(num_gpus=2) == [("GPU-b", "GPU-b"), ("2", "2")]


@pytest.mark.parametrize("listed", ["4,5", ""])
@pytest.mark.parametrize("gpus", [None, EIGHT])
def test_named_ids_and_nodes_count_instead_of_the_list(machine, gpus, listed):
    machine(gpus, listed=listed)
    assert [shown for _, shown in names(gpu_ids=["6", "7"])] == ["6", "7"]
    assert inventory.notices() == (
        f"sweep.init(gpu_ids=...) names 6, 7, which CUDA_VISIBLE_DEVICES={listed!r} does not; gpu_ids counts",
    )
    node = sweep.Node("n", 1, devices=(sweep.Device("7"),))
    assert sweep.init(nodes=[node]) == (node,)
    assert inventory.notices() == ()


@pytest.mark.parametrize(
    ("gpus", "files", "listed", "because"),
    [
        (None, 0, None, f"No GPU was found: {NO_DRIVER}, and there is none of AMD."),
        ([], 0, None, "No GPU was found: the driver of NVIDIA lists none, and there is none of AMD."),
        (EIGHT, 8, "", "CUDA_VISIBLE_DEVICES is empty."),
        (EIGHT, 8, "4,9", "CUDA_VISIBLE_DEVICES='4,9' ends at '9', which names no GPU here."),
        (None, 2, None, f"2 GPUs were counted by the files /dev/nvidia*, because {NO_DRIVER}: types and memory are"),
    ],
)
def test_a_request_that_lacks_gpus_is_refused_with_the_cause(machine, tmp_path, gpus, files, listed, because):
    machine(gpus, files=files, listed=listed)
    for declare in (None, {"num_cpus": 2}):
        if declare is not None:
            sweep.init(**declare)
        with pytest.raises(ResourceError) as raised:
            sweep.run(sees, resources_per_trial={"gpu": 9}, storage_path=tmp_path, verbose=0)
        assert f"is more than this machine has: {len(inventory.available()[0].devices)}. {because}" in str(raised.value)


def test_trials_get_the_parents_own_gpus_and_never_more_of_them(machine, tmp_path):
    machine(EIGHT, listed="4,5")
    sweep.init(num_cpus=2, num_gpus=2)
    analysis = sweep.run(sees, resources_per_trial={"gpu": 2}, storage_path=tmp_path, verbose=0)
    assert analysis.trials[0].last_result["CUDA"] == "4,5"
    with pytest.raises(ResourceError, match=r"has: 2\. CUDA_VISIBLE_DEVICES='4,5' names no others\. Lower"):
        sweep.run(sees, resources_per_trial={"gpu": 3}, storage_path=tmp_path, verbose=0)


@pytest.mark.parametrize(
    ("files", "listed", "said"),
    [
        (2, None, "2 GPUs were counted by the files /dev/nvidia*, because NVIDIA's driver library"),
        (0, "4,5", "CUDA_VISIBLE_DEVICES='4,5' is taken at its word, because NVIDIA's driver library"),
        (0, None, None),
    ],
)
def test_a_run_says_how_gpus_were_found_without_a_driver(machine, tmp_path, capsys, files, listed, said):
    machine(files=files, listed=listed)
    for name in ("detected", "declared"):
        if name == "declared":
            sweep.init(num_gpus=files or 1)
        sweep.run(sees, engine="inline", storage_path=tmp_path, name=name, verbose=1)
        shown = capsys.readouterr().err
        assert (said in shown) if said else ("driver library" not in shown)


@pytest.mark.parametrize("engine", ["local", "inline"])
@pytest.mark.parametrize(("gpus", "listed"), [(None, None), (None, "4,5"), ([], None), (EIGHT[:1], None)])
def test_a_trial_that_asks_for_no_gpu_can_never_touch_one(machine, tmp_path, gpus, listed, engine):
    machine(gpus, listed=listed)
    analysis = sweep.run(sees, resources_per_trial={"cpu": 1}, engine=engine, storage_path=tmp_path, verbose=0)
    assert [analysis.trials[0].last_result[name] for name in ("CUDA", "HIP", "ROCR")] == ["", "", ""]


TWICE = sweep.Node("n", 1, devices=(sweep.Device("0"), sweep.Device("0")))


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([sweep.Node("n"), sweep.Node("n")], "nodes has two with the id 'n'; expected an id of its own for each."),
        ([TWICE], "the node 'n' has two devices with the id '0'; expected an id of its own for each. Devices of"),
        ([4], "nodes has 4; expected sweep.Node(...)."),
        (sweep.Node("n"), "nodes is Node(id='n'"),
        (2, "nodes is 2; expected a list of sweep.Node."),
    ],
)
def test_nodes_in_which_a_device_has_no_name_of_its_own_are_refused(nodes, words, tmp_path):
    with pytest.raises(ConfigError) as raised:
        sweep.init(nodes=nodes)
    assert words in str(raised.value)
    if isinstance(nodes, list):
        with pytest.raises(ConfigError) as raised:
            sweep.run(sees, nodes=nodes, storage_path=tmp_path, verbose=0)
        assert f"run: {words}" in str(raised.value)


def test_two_nodes_may_have_devices_of_the_same_id(tmp_path):
    nodes = [sweep.Node(name, 1, devices=(sweep.Device("GPU-0", visible="0"),)) for name in ("m", "n")]
    analysis = sweep.run(
        sees, num_samples=2, resources_per_trial={"gpu": 1}, nodes=nodes, storage_path=tmp_path, verbose=0
    )
    assert [trial.last_result["CUDA"] for trial in analysis.trials] == ["0", "0"]
