"""Waiting for the memory of GPUs, and taking only a share of it."""

from __future__ import annotations

import logging
import os
import sys
import time
from types import SimpleNamespace

import pytest
from accelerators.test_gpu import GIB, FakeGpu, FakeNvml, NVMLError_LibraryNotFound, install

from sweep.errors import ResourceError, SweepError
from sweep.worker.gpu_memory import limit_gpu_memory, wait_for_gpu

__all__ = ["install"]  # a fixture

FULL, FREE = 20 * GIB, 0


@pytest.fixture(autouse=True)
def naps(monkeypatch):
    """Collect what would be slept; nothing is hidden from this process unless the test says so."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    return slept


@pytest.fixture
def machine(install):
    """A machine of three GPUs: free, full, full with this process in it."""
    return install(
        FakeNvml(
            FakeGpu("GPU-a0", used=FREE),
            FakeGpu("GPU-b1", used=FULL, processes=[(4_194_305, FULL)]),
            FakeGpu("GPU-b2", used=FULL, processes=[(os.getpid(), None)]),
        )
    )


def is_free(gpu_id):
    """Whether one look finds that GPU free."""
    try:
        return wait_for_gpu(gpu_id, retry=1)
    except RuntimeError:
        return False


@pytest.mark.parametrize(
    ("visible", "gpu_id", "expected"),
    [
        (None, 0, True),
        (None, "0", True),
        (None, 1, False),
        (None, " 1 ", False),
        (None, "GPU-a0", True),
        (None, "GPU-a", True),
        (None, "GPU-b2", False),
        (None, None, False),
        ("0", None, True),
        ("1,0", 0, False),  # a position in the list, not on the machine
        ("1,0", 1, True),
        ("1,0", "1", True),
        ("GPU-b1,GPU-a0", "GPU-a", True),
    ],
)
def test_a_gpu_is_named_by_its_position_in_what_is_visible_or_by_uuid_and_none_means_all(
    machine, monkeypatch, visible, gpu_id, expected
):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert is_free(gpu_id) is expected


def test_an_instance_is_named_like_a_gpu(install, monkeypatch):
    part = FakeGpu("MIG-77aa", used=0, total=5 * GIB)
    install(FakeNvml(FakeGpu("GPU-m", used=FULL, instances=[part])))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-77aa")
    assert wait_for_gpu(retry=1)
    assert wait_for_gpu("MIG-77", retry=1)
    assert wait_for_gpu(0, retry=1)


@pytest.mark.parametrize(
    ("gpu_id", "says"),
    [
        (3, "gpu_id=3 is none of the GPUs that this process sees: 0: GPU-a0, 1: GPU-b1, 2: GPU-b2."),
        (-1, "gpu_id=-1 is none of the"),
        ("12", "gpu_id=12 is none of the"),
        ("GPU-c", "gpu_id='GPU-c' is none of the"),
        ("a0", "gpu_id='a0' is none of the"),
        ("GPU-b", "gpu_id='GPU-b' names several of the GPUs that this process sees: 0: GPU-a0, 1: GPU-b1, 2: GPU-b2."),
        ("", "gpu_id is ''; expected None, a position such as 0, or a UUID"),
        (True, "gpu_id is True; expected None"),
        (0.0, "gpu_id is 0.0; expected None"),
        ([0], r"gpu_id is [0]; expected None"),
    ],
)
def test_what_names_no_gpu_is_refused_with_those_that_there_are(machine, gpu_id, says):
    with pytest.raises(ValueError) as caught:
        wait_for_gpu(gpu_id)
    assert isinstance(caught.value, SweepError)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("visible", "says"),
    [("", "sees no GPU with CUDA_VISIBLE_DEVICES=''"), ("7", "sees no GPU with CUDA_VISIBLE_DEVICES='7'")],
)
def test_no_gpu_at_all_is_an_error_of_both_kinds(machine, monkeypatch, visible, says):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(RuntimeError, match=r"^No GPU ids found: ") as caught:
        wait_for_gpu()
    assert isinstance(caught.value, ResourceError)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("library", "words"),
    [
        (None, "does not answer: NVIDIA's driver cannot be asked without nvidia-ml-py .pip install nvidia-ml-py."),
        (FakeNvml(init_error=NVMLError_LibraryNotFound()), "does not answer: NVIDIA's driver library, libnvidia-ml.so"),
    ],
)
def test_without_the_library_it_is_said_what_to_install(install, library, words):
    install(library)
    with pytest.raises(RuntimeError, match=words) as caught:
        wait_for_gpu()
    assert isinstance(caught.value, SweepError)


def test_memory_that_drops_is_waited_for(install, naps):
    install(FakeNvml(FakeGpu("GPU-a", used=[0, FULL, FULL, 10 * GIB, 0])))  # the first is read by the inventory
    assert wait_for_gpu(delay_s=2) is True
    assert naps == [2, 2, 2]


def test_all_gpus_must_be_free_at_the_same_look(install, naps):
    install(FakeNvml(FakeGpu("GPU-a", used=[0, FULL, 0, FULL, 0]), FakeGpu("GPU-b", used=[0, FULL, FULL, 0, 0])))
    assert wait_for_gpu() is True
    assert naps == [5, 5, 5]


@pytest.mark.parametrize(("target", "is_enough"), [(0.5, True), (0.49, False), (1, True), (0, False)])
def test_the_target_is_a_part_of_the_memory(install, target, is_enough):
    install(FakeNvml(FakeGpu("GPU-a", used=20 * GIB)))
    if is_enough:
        assert wait_for_gpu(target_util=target, retry=1)
    else:
        with pytest.raises(RuntimeError, match="GPU memory was not freed"):
            wait_for_gpu(target_util=target, retry=1)


def test_memory_that_is_not_freed_is_an_error_with_device_amount_and_holders_and_no_last_sleep(machine, naps):
    with pytest.raises(RuntimeError) as caught:
        wait_for_gpu(1, retry=3, delay_s=0.5)
    assert str(caught.value) == (
        "GPU memory was not freed: GPU-b1 still holds 20GiB of 40GiB, pid 4194305 20GiB, after 3 looks in 1s; "
        "expected at most 1% in use."
    )
    assert isinstance(caught.value, SweepError)
    assert not isinstance(caught.value, ValueError)
    assert naps == [0.5, 0.5]


def test_the_defaults_are_those_of_tune(machine, naps):
    with pytest.raises(RuntimeError, match=r"after 20 looks in 95s; expected at most 1% in use\."):
        wait_for_gpu(1)
    assert naps == [5] * 19


def test_memory_that_this_process_holds_itself_is_pointed_out(machine):
    with pytest.raises(RuntimeError, match="This process holds some itself: call wait_for_gpu before it uses the GPU"):
        wait_for_gpu(2, retry=1)


def test_a_gpu_that_does_not_tell_its_memory_is_not_free(install):
    install(FakeNvml(FakeGpu("GPU-a", total=0)))
    with pytest.raises(RuntimeError, match="not freed: GPU-a does not tell its memory, after 1 looks"):
        wait_for_gpu(retry=1)


def test_the_first_look_in_vain_is_said_aloud(install, caplog):
    install(FakeNvml(FakeGpu("GPU-a", used=[0, FULL, FULL, 0])))
    with caplog.at_level(logging.INFO, logger="sweep.worker.gpu_memory"):
        wait_for_gpu()
    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.INFO]
    assert "GPU-a still holds 20GiB of 40GiB, of no process" in caplog.messages[0]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"target_util": 5}, "target_util is 5; expected a part of it in [0, 1]"),
        ({"target_util": -0.1}, "target_util is -0.1"),
        ({"target_util": float("nan")}, "target_util is nan"),
        ({"retry": 0}, "retry is 0; expected a whole number of looks, at least 1"),
        ({"retry": 1.5}, "retry is 1.5"),
        ({"retry": True}, "retry is True"),
        ({"delay_s": -1}, "delay_s is -1; expected seconds, at least 0"),
        ({"delay_s": float("inf")}, "delay_s is inf"),
    ],
)
def test_numbers_out_of_range_are_refused(machine, arguments, says):
    with pytest.raises(ValueError) as caught:
        wait_for_gpu(0, **arguments)
    assert isinstance(caught.value, SweepError)
    assert says in str(caught.value)


def test_the_limit_that_has_no_meaning_is_accepted_with_a_warning(machine):
    with pytest.warns(DeprecationWarning, match="use target_util") as caught:
        assert wait_for_gpu(0, gpu_memory_limit=0.1)
    assert caught[0].filename == __file__


@pytest.fixture
def torch(monkeypatch):
    """A torch that notes the calls; `calls.is_available` says whether it sees a GPU."""
    fake = SimpleNamespace(calls=[], has_gpu=True)
    fake.cuda = SimpleNamespace(
        is_available=lambda: fake.has_gpu,
        set_per_process_memory_fraction=lambda fraction, device=None: fake.calls.append((fraction, device)),
    )
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


@pytest.mark.parametrize(
    ("fraction", "device", "calls"),
    [
        (0.5, None, [(0.5, None)]),
        (0.25, 1, [(0.25, 1)]),
        (0.25, "cuda:1", [(0.25, "cuda:1")]),
        (1, None, []),
        (1.0, 0, []),
    ],
)
def test_a_share_is_told_to_torch_and_a_whole_gpu_is_not(torch, fraction, device, calls):
    assert limit_gpu_memory(fraction, device) is bool(calls)
    torch.has_gpu = False
    assert limit_gpu_memory(fraction, device) is False
    assert torch.calls == calls


@pytest.mark.parametrize("fraction", [0, -0.5, 1.5, float("nan"), "0.5", True, None])
def test_a_share_that_is_none_is_refused(torch, fraction):
    with pytest.raises(ValueError, match="expected a number above 0 and at most 1"):
        limit_gpu_memory(fraction)
    assert torch.calls == []
