"""CUDA's list where nobody can check its entries, and the question to CUDA itself, put to a library that is made up."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from sweep.accelerators.cuda import ask, take_at_its_word


@pytest.mark.parametrize(
    ("value", "number", "names", "why"),
    [
        ("4,5", None, ["4", "5"], "CUDA_VISIBLE_DEVICES='4,5' names no others"),
        ("+4,5gpu", None, ["4", "5"], None),
        ("4,-1,5", None, ["4"], "CUDA_VISIBLE_DEVICES='4,-1,5' ends at '-1', which names no GPU here"),
        ("4,,5", None, ["4"], "CUDA_VISIBLE_DEVICES='4,,5' ends at '', which names no GPU here"),
        ("0,2,1", 2, ["0"], "CUDA_VISIBLE_DEVICES='0,2,1' ends at '2', which names no GPU here"),
        ("GPU-8a5b,GPU-8a5c", None, ["GPU-8a5b", "GPU-8a5c"], None),
        ("MIG-8a5b,MIG-GPU-8a5b/1/0", None, ["MIG-8a5b", "MIG-GPU-8a5b/1/0"], None),
        ("GPU-,0", None, [], None),
        ("4,4", None, [], "CUDA_VISIBLE_DEVICES='4,4' names 4 twice, which hides all"),
        ("", None, [], "CUDA_VISIBLE_DEVICES is empty"),
    ],
)
def test_a_list_that_nobody_can_check_is_read_by_the_form_of_its_entries(value, number, names, why):
    seen = take_at_its_word("CUDA_VISIBLE_DEVICES", value, vendor="nvidia", number=number)
    assert [device.id for device in seen.devices] == names
    assert [device.visible for device in seen.devices] == names
    assert why is None or seen.why == why


CUDA = """
#include <stdlib.h>
#include <string.h>
int cuInit(unsigned flags) { return getenv("REFUSES") ? 100 : 0; }
int cuDeviceGetCount(int *count) { const char *list = getenv("CUDA_VISIBLE_DEVICES"); *count = list ? 1 : 2; return 0; }
int cuDeviceGet(int *device, int index) { *device = 40 + index; return 0; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    memset(uuid, getenv("CUDA_DEVICE_ORDER") ? 0xcc : 0xaa, 15);
    uuid[15] = device;
    return 0;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Return a CUDA of two GPUs, or of one where there is a list."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler makes a CUDA that is made up")
    directory = tmp_path_factory.mktemp("cuda")
    (directory / "cuda.c").write_text(CUDA)
    path = directory / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", path, directory / "cuda.c"], check=True)
    return str(path)


def test_cuda_is_asked_in_a_process_of_its_own_with_the_list_and_the_order(library, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "not this one")
    assert ask(None, None, library) == (15 * "aa" + "28", 15 * "aa" + "29")
    assert ask("1", None, library) == (15 * "aa" + "28",)
    assert ask("1", "FASTEST_FIRST", library) == (15 * "cc" + "28",)


def test_a_cuda_that_is_not_there_or_refuses_gives_no_answer(library, monkeypatch, tmp_path):
    assert ask("0", None, str(tmp_path / "libcuda.so.1")) is None
    monkeypatch.setenv("REFUSES", "1")
    assert ask("0,1", None, library) is None
