"""The inventory of GPUs: a driver's library that is made up, CUDA's and AMD's lists, and what types are called."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from killed import fork

from sweep.accelerators import nvml
from sweep.accelerators.amd import find_amd, look_at_amd
from sweep.accelerators.gpu import count, detect, look, look_at_nvidia
from sweep.accelerators.gpu_types import KNOWN_TYPES, check_type, labels_of
from sweep.accelerators.nvml import Gpu, Instance, open_library
from sweep.core.resources import Device
from sweep.errors import ResourceError

MIB, GIB = 1 << 20, 1 << 30


class NVMLError(Exception):
    """The root of the library's errors."""


class NVMLError_LibraryNotFound(NVMLError):
    """What the library raises on a machine without a driver."""


class NVMLLibraryMismatchError(Exception):
    """What it raises where the driver is too old for a function; not an NVMLError."""


@dataclass
class FakeGpu:
    """A GPU, or an instance of one.

    Attributes:
        used: bytes, or one value per reading, of which the last stays.
        reserved: bytes of the driver, which the first version of the memory call counts as used.
        processes: (pid, bytes or None).
        instances: in MIG mode; None stands for a gap in their numbering.
        is_lost: it has an index and answers nothing.
        pci: domain, bus and device, None: it does not tell.
    """

    uuid: str
    name: str = "NVIDIA A100-SXM4-40GB"
    total: int = 40 * GIB
    used: int | list[int] = 0
    reserved: int = 0
    processes: list[tuple[int, int | None]] = field(default_factory=list)
    graphics: list[tuple[int, int | None]] = field(default_factory=list)
    instances: list[FakeGpu | None] | None = None
    numbers: tuple[int, int] = (0, 0)
    is_lost: bool = False
    pci: tuple[int, int, int] | None = None

    def read(self) -> int:
        if isinstance(self.used, int):
            return self.used
        return self.used.pop(0) if len(self.used) > 1 else self.used[0]


class FakeNvml(ModuleType):
    """The functions of `pynvml` that are used, over GPUs that are made up."""

    NVMLError = NVMLError
    NVMLLibraryMismatchError = NVMLLibraryMismatchError
    nvmlMemory_v2 = 33554472

    def __init__(self, *gpus: FakeGpu, init_error: Exception | None = None, is_old: bool = False) -> None:
        super().__init__("pynvml")
        self.gpus, self.init_error, self.is_old = list(gpus), init_error, is_old
        self.num_inits = self.num_open = 0

    def nvmlInit(self) -> None:
        self.num_inits += 1
        if self.init_error is not None:
            raise self.init_error
        self.num_open += 1

    def nvmlShutdown(self) -> None:
        self.num_open -= 1

    def nvmlDeviceGetCount(self) -> int:
        if self.num_open <= 0:
            raise NVMLError("Uninitialized")
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        if self.gpus[index].is_lost:
            raise NVMLError("GPU is lost")
        return self.gpus[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeGpu:
        every = [part for device in self.gpus for part in (device, *(device.instances or ())) if part is not None]
        for device in every:
            if device.uuid == uuid and not device.is_lost:
                return device
        raise NVMLError("Not Found")

    def nvmlDeviceGetPciInfo(self, handle: FakeGpu) -> Any:
        if handle.pci is None:
            raise NVMLError("Not Supported")
        domain, bus, device = handle.pci
        return SimpleNamespace(domain=domain, bus=bus, device=device)

    def nvmlDeviceGetUUID(self, handle: FakeGpu) -> str:
        return handle.uuid

    def nvmlDeviceGetName(self, handle: FakeGpu) -> str:
        return handle.name

    def nvmlDeviceGetMemoryInfo(self, handle: FakeGpu, version: int | None = None) -> Any:
        if handle.total == 0:
            raise NVMLError("Not Supported")
        if version is not None and self.is_old:
            raise NVMLError("Function Not Found")
        used = handle.read()
        return SimpleNamespace(total=handle.total, used=used + (handle.reserved if version is None else 0))

    def nvmlDeviceGetMigMode(self, handle: FakeGpu) -> list[int]:
        if handle.name == "Tesla T4":
            raise NVMLError("Not Supported")
        return [int(handle.instances is not None)] * 2

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: FakeGpu) -> int:
        return len(handle.instances or ())

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: FakeGpu, index: int) -> FakeGpu:
        assert handle.instances is not None
        instance = handle.instances[index]
        if instance is None:
            raise NVMLError("Not Found")
        return instance

    def nvmlDeviceGetGpuInstanceId(self, handle: FakeGpu) -> int:
        return handle.numbers[0]

    def nvmlDeviceGetComputeInstanceId(self, handle: FakeGpu) -> int:
        return handle.numbers[1]

    def nvmlDeviceGetComputeRunningProcesses(self, handle: FakeGpu) -> list[Any]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in handle.processes]

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: FakeGpu) -> list[Any]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in handle.graphics]


@pytest.fixture
def install(monkeypatch):
    """Give a function that installs a library; afterwards nobody remembers having it open."""

    def put(library: ModuleType | None) -> Any:
        monkeypatch.setitem(sys.modules, "pynvml", library)
        monkeypatch.setattr(nvml, "_opened", None)
        return library

    return put


def shown(devices):
    """Return what identifies a device and what a child is told."""
    return [(device.id, device.visible) for device in devices]


@pytest.mark.parametrize(
    ("library", "why"),
    [
        (None, "NVIDIA's driver cannot be asked without nvidia-ml-py (pip install nvidia-ml-py)"),
        (FakeNvml(init_error=NVMLError_LibraryNotFound()), "NVIDIA's driver library, libnvidia-ml.so.1, is not here"),
        (
            FakeNvml(init_error=NVMLError("Driver/library version mismatch")),
            "NVIDIA's driver library refuses: Driver/library version mismatch",
        ),
        (FakeNvml(), "the driver of NVIDIA lists none"),
    ],
)
def test_no_library_no_driver_and_no_gpu_are_no_error_and_it_is_known_which_it_is(install, library, why, tmp_path):
    install(library)
    assert detect({}, sysfs=tmp_path, dev=tmp_path) == ()
    assert look({}, sysfs=tmp_path, dev=tmp_path).why == f"no GPU was found: {why}, and there is none of AMD"


def test_a_gpu_is_known_by_uuid_name_memory_types_and_index(install, tmp_path):
    library = install(FakeNvml(FakeGpu("GPU-a", "Tesla T4", 15109 * MIB)))
    expected = Device("GPU-a", "gpu", "Tesla T4", 15109 * MIB, "0", ("T4", "T4-16G"), "nvidia")
    assert detect({}, sysfs=tmp_path) == (expected,)
    assert (library.num_inits, library.num_open) == (1, 0)


def test_a_library_that_lacks_a_function_finds_the_gpus_all_the_same(install, tmp_path):
    class Older(FakeNvml):
        nvmlDeviceGetMigMode = None

    install(Older(FakeGpu("GPU-a", total=0)))
    assert detect({}, sysfs=tmp_path) == (
        Device("GPU-a", "gpu", "NVIDIA A100-SXM4-40GB", 0, "0", ("A100", "A100-40G"), "nvidia"),
    )


T4, A100 = "Tesla T4", "NVIDIA A100-SXM4-40GB"
PCI_ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
MIG = FakeGpu(
    "GPU-m",
    instances=[
        FakeGpu("MIG-1", "NVIDIA A100-SXM4-40GB MIG 3g.20gb", 20 * GIB, numbers=(1, 0)),
        None,
        FakeGpu("MIG-2", "NVIDIA A100-SXM4-40GB MIG 3g.20gb", 20 * GIB, numbers=(2, 0)),
    ],
)


@pytest.mark.parametrize(
    ("gpus", "environ", "expected"),
    [
        ([FakeGpu("GPU-a"), FakeGpu("GPU-b")], {}, [("GPU-a", "0"), ("GPU-b", "1")]),
        ([FakeGpu("GPU-a"), FakeGpu("GPU-b", T4)], {}, [("GPU-a", "GPU-a"), ("GPU-b", "GPU-b")]),
        ([FakeGpu("GPU-a"), MIG], {}, [("GPU-a", "GPU-a"), ("MIG-1", "MIG-1"), ("MIG-2", "MIG-2")]),
        ([MIG], {}, [("MIG-1", "MIG-1"), ("MIG-2", "MIG-2")]),
        ([FakeGpu("GPU-m", instances=[])], {}, []),
        ([FakeGpu("GPU-a", is_lost=True), FakeGpu("GPU-b")], {}, [("GPU-b", "GPU-b")]),
        ([FakeGpu("GPU-a")], {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, [("GPU-a", "0")]),
        ([FakeGpu("GPU-a")], {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, [("GPU-a", "GPU-a")]),
        ([FakeGpu("GPU-a"), FakeGpu("GPU-b", T4)], {"CUDA_VISIBLE_DEVICES": "1", **PCI_ORDER}, [("GPU-b", "1")]),
        (
            [FakeGpu("GPU-a", is_lost=True), FakeGpu("GPU-b")],
            {"CUDA_VISIBLE_DEVICES": "1,0", **PCI_ORDER},
            [("GPU-b", "1")],
        ),
    ],
)
def test_a_child_is_told_an_index_where_that_is_safe_and_else_the_uuid(install, gpus, environ, expected, tmp_path):
    install(FakeNvml(*gpus))
    assert shown(detect(environ, sysfs=tmp_path)) == expected


def test_an_instance_has_a_type_of_its_own_and_its_own_memory(install, tmp_path):
    install(FakeNvml(MIG))
    first, _ = detect({}, sysfs=tmp_path)
    assert (first.type, first.memory) == ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", 20 * GIB)
    assert first.labels == ("A100", "A100-MIG-3g.20gb")


FOUR = [Gpu(Device(identity)) for identity in ("GPU-aa1", "GPU-aa2", "GPU-b", "GPU-c")]
CUT = [
    Gpu(Device("GPU-whole")),
    Gpu(Device("GPU-cut"), (Instance(Device("MIG-1"), 7, 0), Instance(Device("MIG-2"), 8, 1))),
    Gpu(Device("GPU-bare"), ()),
    Gpu(Device("GPU-old"), (Instance(Device("MIG-GPU-old/3/0"), 3, 0),)),
]


@pytest.mark.parametrize(
    ("found", "parent", "expected"),
    [
        (FOUR, "2,0", [("GPU-b", "2"), ("GPU-aa1", "0")]),
        (FOUR, " 1 , 3 ", [("GPU-aa2", "1"), ("GPU-c", "3")]),
        (FOUR, "1,4,0", [("GPU-aa2", "1")]),
        (FOUR, "1,,0", [("GPU-aa2", "1")]),
        (FOUR, "0,1,0", []),
        (FOUR, "0,GPU-aa1", []),
        (FOUR, "0,-1,0", [("GPU-aa1", "0")]),
        (FOUR, "1gpu,+2", [("GPU-aa2", "1"), ("GPU-b", "2")]),
        (FOUR, "GPU-b", [("GPU-b", "GPU-b")]),
        (FOUR, "GPU-aa", []),
        (FOUR, "3,GPU-b", [("GPU-c", "3"), ("GPU-b", "GPU-b")]),
        (FOUR, "GPU-b,GPU-x,0", [("GPU-b", "GPU-b")]),
        (FOUR, "gpu-b", []),
        (FOUR, "MIG-GPU-b/1/0", []),
        (CUT, "MIG-2,MIG-1", [("MIG-2", "MIG-2"), ("MIG-1", "MIG-1")]),
        (CUT, "MIG-GPU-cut/8/1", [("MIG-2", "MIG-GPU-cut/8/1")]),
        (CUT, "MIG-GPU-cut/8/0", []),
        (CUT, "MIG-GPU-whole/0/0", []),
        (CUT, "MIG-GPU-old/3/0", [("MIG-GPU-old/3/0", "MIG-GPU-old/3/0")]),
        (CUT, "MIG-2,MIG-GPU-cut/8/1", []),
        (CUT, "MIG-", []),
        (CUT, "1", [("MIG-1", "MIG-1")]),
        (CUT, "GPU-cut", [("MIG-1", "MIG-1")]),
        (CUT, "0,2,1", [("GPU-whole", "0")]),
        (CUT, "GPU-bare", []),
    ],
)
def test_the_parents_list_is_read_as_cuda_reads_it(found, parent, expected):
    environ = {"CUDA_VISIBLE_DEVICES": parent, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert shown(look_at_nvidia(found, environ).devices) == expected


SILENT = FakeNvml(init_error=NVMLError_LibraryNotFound())
NO_DRIVER = "NVIDIA's driver library, libnvidia-ml.so.1, is not here"


def files(root, *names):
    """Return a directory of device files."""
    for name in names:
        (root / name).touch()
    return root


@pytest.mark.parametrize(
    ("vendor", "variable", "because"),
    [("nvidia", "CUDA_VISIBLE_DEVICES", NO_DRIVER), ("amd", "HIP_VISIBLE_DEVICES", "the kernel shows no GPU of AMD")],
)
def test_a_list_is_taken_at_its_word_and_that_is_said(install, tmp_path, vendor, variable, because):
    install(SILENT)
    seen = look({variable: "4,5"}, sysfs=tmp_path, dev=tmp_path)
    assert seen.devices == tuple(Device(name, "gpu", visible=name, vendor=vendor) for name in ("4", "5"))
    said = f"{variable}='4,5' is taken at its word, because {because}: types and memory are unknown"
    assert (seen.is_blank, seen.notices) == (False, (said,))
    assert detect({variable: "4,5"}, sysfs=tmp_path, dev=tmp_path, trust=False) == ()


def test_device_files_are_counted_and_that_is_said(install, tmp_path):
    install(SILENT)
    dev = files(tmp_path, "nvidia0", "nvidia1", "nvidia12", "nvidiactl", "nvidia-uvm", "nvidia1x")
    seen = look({}, sysfs=tmp_path, dev=dev)
    assert shown(seen.devices) == [("0", "0"), ("1", "1"), ("2", "2")]
    assert {device.vendor for device in seen.devices} == {"nvidia"}
    said = f"3 GPUs were counted by the files {dev}/nvidia*, because {NO_DRIVER}: types and memory are unknown"
    assert (seen.why, seen.notices) == (said, (said,))


@pytest.mark.parametrize("library", [FakeNvml(), FakeNvml(FakeGpu("GPU-a"))])
def test_a_driver_that_answers_is_believed_more_than_device_files(install, library, tmp_path):
    install(library)
    seen = look({}, sysfs=tmp_path, dev=files(tmp_path, "nvidia0", "nvidia1"))
    assert len(seen.devices) == len(library.gpus)
    assert seen.notices == ()


def test_gpus_that_are_hidden_are_counted_all_the_same(install, monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    install(FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b")))
    assert count(sysfs=tmp_path, dev=tmp_path) == 2
    install(SILENT)
    assert count(sysfs=tmp_path, dev=tmp_path) == 0
    assert count(sysfs=tmp_path, dev=files(tmp_path, "nvidia0")) == 1
    write_node(tmp_path, 1, **AMD, unique_id=1, drm_render_minor=128)
    write_node(tmp_path, 2, **AMD, unique_id=2, drm_render_minor=129)
    assert count(sysfs=tmp_path, dev=tmp_path) == 2


# An L4 on the first place of the bus, an A100 on the second: by default CUDA counts the A100 first.
SLOW = FakeGpu("GPU-00000000-0000-0000-0000-0000000000aa", "NVIDIA L4")
FAST = FakeGpu("GPU-00000000-0000-0000-0000-0000000000bb", A100)
HEX = {"slow": "aa".rjust(32, "0"), "fast": "bb".rjust(32, "0")}


def test_the_places_on_the_bus_are_the_indices_whatever_the_library_counts_by(install, tmp_path):
    first, second = FakeGpu("GPU-a", pci=(0, 0x41, 0)), FakeGpu("GPU-b", pci=(0, 0x1A, 0))
    install(FakeNvml(first, second))
    assert shown(detect({"CUDA_VISIBLE_DEVICES": "0"}, sysfs=tmp_path)) == [("GPU-b", "0")]
    assert shown(detect({}, sysfs=tmp_path)) == [("GPU-b", "0"), ("GPU-a", "1")]
    install(FakeNvml(first, FakeGpu("GPU-b")))  # one does not tell its place: the library's order is the best there is
    assert shown(detect({}, sysfs=tmp_path)) == [("GPU-a", "0"), ("GPU-b", "1")]


@pytest.mark.parametrize(
    ("parent", "answer", "expected", "why"),
    [
        ("0", ["fast"], [FAST], "names no others"),
        ("1,0", ["slow", "fast"], [SLOW, FAST], "names no others"),
        ("0,7,1", ["fast"], [FAST], "ends at '7', as CUDA itself reads it"),
        ("0,0", [], [], "ends at '0', as CUDA itself reads it"),
    ],
)
def test_among_gpus_of_several_types_an_index_means_what_it_means_to_cuda(
    install, parent, answer, expected, why, tmp_path
):
    install(FakeNvml(SLOW, FAST))
    asked = []

    def ask_cuda(visible, order):
        asked.append((visible, order))
        return [HEX[name] for name in answer]

    seen = look({"CUDA_VISIBLE_DEVICES": parent}, sysfs=tmp_path, ask_cuda=ask_cuda)
    # A child is told UUIDs: what an index means depends on who reads it.
    assert shown(seen.devices) == [(device.uuid, device.uuid) for device in expected]
    assert [device.type for device in seen.devices] == [device.name for device in expected]
    assert seen.why == f"CUDA_VISIBLE_DEVICES={parent!r} {why}"
    assert asked == [(parent, None)]


def test_an_index_of_a_gpu_in_mig_mode_means_the_instance_that_cuda_shows(install, tmp_path):
    part = FakeGpu("MIG-00000000-0000-0000-0000-0000000000cc", "NVIDIA A100-SXM4-40GB MIG 3g.20gb")
    install(FakeNvml(FAST, FakeGpu("GPU-m", instances=[part])))
    seen = look({"CUDA_VISIBLE_DEVICES": "1"}, sysfs=tmp_path, ask_cuda=lambda *_: ["cc".rjust(32, "0")])
    assert shown(seen.devices) == [(part.uuid, part.uuid)]


def test_where_cuda_does_not_answer_an_index_stays_a_name_of_which_nothing_is_known(install, tmp_path):
    install(FakeNvml(SLOW, FAST))
    environ = {"CUDA_VISIBLE_DEVICES": f"1,{SLOW.uuid},5"}
    seen = look(environ, sysfs=tmp_path, ask_cuda=lambda visible, order: None)
    assert shown(seen.devices) == [("1", "1"), (SLOW.uuid, SLOW.uuid)]
    assert [device.type for device in seen.devices] == ["", "NVIDIA L4"]
    assert seen.why.endswith("ends at '5', which names no GPU here")
    (said,) = seen.notices
    assert "is not known: they are of several types and CUDA could not be asked" in said
    assert "Set CUDA_DEVICE_ORDER=PCI_BUS_ID as well, or write the UUIDs" in said


def test_a_forked_child_opens_the_library_for_itself(install):
    library = install(FakeNvml(FakeGpu("GPU-a")))
    open_library()
    reader, writer = os.pipe()
    child = fork()
    if child == 0:
        open_library()
        open_library()
        os.write(writer, b"%d" % library.num_inits)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        assert pipe.read() == "2"
    os.waitpid(child, 0)
    assert library.num_inits == 1


def write_node(root, number, *, banks=(), product=None, **properties):
    """Write what the kernel shows of a compute node: a CPU without `simd_count`, a GPU with it."""
    node = root / f"class/kfd/kfd/topology/nodes/{number}"
    node.mkdir(parents=True)
    (node / "properties").write_text("".join(f"{name} {value}\n" for name, value in properties.items()))
    for index, (kind, size) in enumerate(banks):
        bank = node / f"mem_banks/{index}"
        bank.mkdir(parents=True)
        (bank / "properties").write_text(f"heap_type {kind}\nsize_in_bytes {size}\nflags 0\n")
    if product is not None:
        card = root / f"class/drm/renderD{properties['drm_render_minor']}/device"
        card.mkdir(parents=True)
        (card / "product_name").write_text(product + "\n")


AMD = {"vendor_id": 4098, "simd_count": 304}


def test_amd_gpus_are_read_from_the_kernels_nodes_in_the_order_of_their_numbers(tmp_path):
    write_node(tmp_path, 0, cpu_cores_count=64, simd_count=0, vendor_id=4098)
    write_node(
        tmp_path,
        10,
        **AMD,
        unique_id=0xAB,
        drm_render_minor=136,
        device_id=0x74A1,
        banks=[(1, 192 * GIB), (4, GIB)],
        product="AMD Instinct MI300X OAM",
    )
    write_node(tmp_path, 2, **AMD, unique_id=0xFEDCBA9876543210, drm_render_minor=128, device_id=0x740F)
    write_node(tmp_path, 3, vendor_id=4318, simd_count=8)
    assert find_amd(tmp_path) == (
        Device("GPU-fedcba9876543210", "gpu", "AMD Instinct MI210", 0, "0", ("MI210", "AMD-Instinct-MI210"), "amd"),
        Device(
            "GPU-00000000000000ab",
            "gpu",
            "AMD Instinct MI300X OAM",
            192 * GIB,
            "1",
            ("MI300X", "MI300X-192G", "AMD-Instinct-MI300X", "AMD-Instinct-MI300X-OAM"),
            "amd",
        ),
    )


@pytest.mark.parametrize(
    ("properties", "product", "identity", "name"),
    [
        ({"unique_id": 1}, "Instinct MI100", "GPU-0000000000000001", "AMD Instinct MI100"),
        ({"location_id": 0x0308, "domain": 1}, "", "AMD-0001:03:01.0", "AMD gfx000"),
        ({"gfx_target_version": 90402}, None, "AMD-0000:00:00.0", "AMD gfx942"),
        ({"gfx_target_version": 90010}, None, "AMD-0000:00:00.0", "AMD gfx90a"),
        ({"device_id": 0x740C}, None, "AMD-0000:00:00.0", "AMD Instinct MI250X/MI250"),
    ],
)
def test_an_amd_gpu_without_a_number_or_a_product_name_has_the_next_best(tmp_path, properties, product, identity, name):
    write_node(tmp_path, 1, **AMD, **properties, drm_render_minor=128, product=product)
    (device,) = find_amd(tmp_path)
    assert (device.id, device.type) == (identity, name)


def test_parts_of_one_amd_gpu_have_different_ids_and_one_that_may_not_be_opened_is_left_out(tmp_path):
    for number, unique_id in enumerate((5, 1, 5), start=1):
        write_node(tmp_path, number, **AMD, unique_id=unique_id)
    properties = tmp_path / "class/kfd/kfd/topology/nodes/2/properties"
    properties.unlink()
    properties.mkdir()  # cannot be read, whoever asks
    assert shown(find_amd(tmp_path)) == [("GPU-0000000000000005", "0"), ("GPU-0000000000000005/3", "1")]


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        (
            {"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"},
            "HIP_VISIBLE_DEVICES='0' and CUDA_VISIBLE_DEVICES='1' differ",
        ),
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES='' differ"),
        ({"ROCR_VISIBLE_DEVICES": "0"}, "Use HIP_VISIBLE_DEVICES instead"),
        ({"ROCR_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "0"}, "Use HIP_VISIBLE_DEVICES instead"),
    ],
)
def test_lists_of_amd_that_contradict_each_other_are_refused_where_there_are_such(install, tmp_path, environ, says):
    install(None)
    with pytest.raises(ResourceError, match=says):
        look_at_amd((Device("GPU-1", vendor="amd"),), environ)
    assert detect(environ, sysfs=tmp_path, trust=False) == ()


AMDS = tuple(Device(f"GPU-{n}f", visible=str(n), vendor="amd") for n in range(4))


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, [("GPU-0f", "0"), ("GPU-1f", "1"), ("GPU-2f", "2"), ("GPU-3f", "3")]),
        ({"HIP_VISIBLE_DEVICES": "3,1"}, [("GPU-3f", "3"), ("GPU-1f", "1")]),
        ({"CUDA_VISIBLE_DEVICES": "2"}, [("GPU-2f", "2")]),
        ({"HIP_VISIBLE_DEVICES": "0,1", "CUDA_VISIBLE_DEVICES": "0, 1"}, [("GPU-0f", "0"), ("GPU-1f", "1")]),
        ({"HIP_VISIBLE_DEVICES": "GPU-2,7,0"}, [("GPU-2f", "GPU-2")]),
        ({"HIP_VISIBLE_DEVICES": "GPU-"}, []),
        ({"HIP_VISIBLE_DEVICES": "1,1"}, []),
        ({"HIP_VISIBLE_DEVICES": ""}, []),
        ({"HIP_VISIBLE_DEVICES": "1", "ROCR_VISIBLE_DEVICES": "3,GPU-2"}, [("GPU-2f", "1")]),
        ({"HIP_VISIBLE_DEVICES": "2", "ROCR_VISIBLE_DEVICES": "3,2"}, []),
        ({"ROCR_VISIBLE_DEVICES": ""}, []),
    ],
)
def test_the_lists_of_amd_leave_what_they_name(environ, expected):
    assert shown(look_at_amd(AMDS, environ).devices) == expected


def test_a_machine_without_nvidia_has_amds_gpus(install, tmp_path):
    install(FakeNvml(init_error=NVMLError_LibraryNotFound()))
    write_node(tmp_path, 1, **AMD, unique_id=1)
    write_node(tmp_path, 2, **AMD, unique_id=2)
    assert shown(detect({"HIP_VISIBLE_DEVICES": "1"}, sysfs=tmp_path)) == [("GPU-0000000000000002", "1")]
    assert detect({"CUDA_VISIBLE_DEVICES": ""}, sysfs=tmp_path) == ()


def test_nvidias_gpus_count_where_there_are_both(install, tmp_path):
    install(FakeNvml(FakeGpu("GPU-a")))
    write_node(tmp_path, 1, **AMD, unique_id=1)
    assert shown(detect({}, sysfs=tmp_path)) == [("GPU-a", "0")]
    assert detect({"CUDA_VISIBLE_DEVICES": "-1"}, sysfs=tmp_path) == ()


@pytest.mark.parametrize(
    ("name", "mebibytes", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", 81559, ("H100", "H100-80G")),
        ("NVIDIA H20-3e", 143771, ("H20", "H20-141G")),
        ("NVIDIA GeForce RTX 3090 Ti", 24564, ("RTX3090Ti", "RTX3090Ti-24G")),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16376, ("RTX4090Laptop", "RTX4090Laptop-16G")),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, ("RTXPRO6000", "RTXPRO6000-96G")),
        ("TITAN RTX", 24217, ("TITANRTX", "TITANRTX-24G")),
        ("GRID T4-8Q", 8192, ("T4", "T4-8G")),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 4864, ("A100", "A100-MIG-1g.5gb")),
        (
            "AMD Instinct MI300X OAM",
            196592,
            ("MI300X", "MI300X-192G", "AMD-Instinct-MI300X", "AMD-Instinct-MI300X-OAM"),
        ),
        (
            "AMD Instinct MI250X/MI250",
            65520,
            ("MI250X", "MI250", "MI250X-64G", "AMD-Instinct-MI250X", "AMD-Instinct-MI250X-MI250"),
        ),
        # without an amount of memory, that of the name counts, but for superchips, which name their CPU's
        ("NVIDIA GH200 480GB", 0, ("GH200",)),
        # nobody knows these
        ("NVIDIA X900 Turbo", 22 * 1024, ("X900Turbo", "X900Turbo-22G")),
        ("Graphics Device", 0, ("GraphicsDevice",)),
        ("", 0, ()),
        ("(?)", 1024, ()),
    ],
)
def test_types_are_named_without_vendor_and_form_and_by_their_memory(name, mebibytes, expected):
    assert labels_of(name, mebibytes * MIB) == expected


def test_every_known_type_is_spelled_as_it_is_detected():
    assert len(set(KNOWN_TYPES)) == len(KNOWN_TYPES)
    assert {"V100", "A100", "A100-40G", "A100-80G", "H100", "H200", "L40S", "RTX3090", "MI300X"} <= set(KNOWN_TYPES)
    assert [check_type(name) for name in KNOWN_TYPES] == list(KNOWN_TYPES)
    assert [labels_of(name)[0] for name in KNOWN_TYPES] == [name.partition("-")[0] for name in KNOWN_TYPES]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A100", "A100"),
        ("A100 80GB", "A100-80G"),
        ("A100-SXM4-80GB", "A100-80G"),
        ("Tesla V100", "V100"),
        ("RTX 3090", "RTX3090"),
        ("AMD-Instinct-MI300X-OAM", "MI300X"),
        ("AMD-Instinct-MI250X-MI250", "MI250X"),
        ("TPU-V6E", "TPU-V6E"),
    ],
)
def test_a_type_may_be_spelled_in_many_ways(text, expected):
    assert check_type(text) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a1000", "unknown accelerator type 'a1000'. Did you mean 'A100'?"),
        ("RTX 30900", "Did you mean 'RTX3090'?"),
        ("TPU", "unknown accelerator type 'TPU'."),
        ("", "accelerator_type is ''; expected a text"),
        (3090, "accelerator_type is 3090; expected a text"),
        (None, "accelerator_type is None; expected a text"),
    ],
)
def test_an_unknown_type_is_refused_with_the_nearest(text, says):
    with pytest.raises(ResourceError) as caught:
        check_type(text)
    assert says in str(caught.value)


def test_what_an_inventory_has_can_be_asked_for_by_label_and_by_name():
    devices = (
        Device("GPU-x", type="NVIDIA X900 Turbo", labels=("X900Turbo", "X900Turbo-22G")),
        Device("GPU-y", type="mine"),
    )
    assert check_type("x900turbo", devices) == "X900Turbo"
    assert check_type("X900 Turbo 22GB", devices) == "X900Turbo-22G"
    assert check_type("nvidia x900 turbo", devices) == "NVIDIA X900 Turbo"
    assert check_type("MINE", devices) == "mine"
    assert check_type("h100", devices) == "H100"
    with pytest.raises(ResourceError, match=r"This inventory has X900Turbo, X900Turbo-22G, NVIDIA X900 Turbo, mine\."):
        check_type("X901", devices)


@pytest.mark.parametrize(
    ("environ", "seen"),
    [
        ({"SLURM_JOB_GPUS": "2,3"}, ["2", "3"]),
        ({"SLURM_JOB_GPUS": "2,3", "SLURM_STEP_GPUS": "3"}, ["3"]),
        ({"SLURM_JOB_GPUS": "2,3", "CUDA_VISIBLE_DEVICES": "0"}, ["0"]),
        ({"SLURM_JOB_GPUS": "4,5,6,7"}, ["0", "1", "2", "3"]),  # those four, by their numbers inside the job
        ({"SLURM_JOB_GPUS": "a100:2"}, ["0", "1", "2", "3"]),
    ],
)
def test_a_batch_job_without_a_list_has_the_gpus_that_slurm_names(install, environ, seen):
    install(FakeNvml(*[FakeGpu(f"GPU-{number}") for number in range(4)]))
    assert [device.visible for device in detect(environ)] == seen


def test_what_a_batch_job_leaves_out_is_said_by_the_name_of_its_variable(install):
    install(FakeNvml(*[FakeGpu(f"GPU-{number}") for number in range(4)]))
    found = look({"SLURM_JOB_GPUS": "2,3"})
    assert (found.law, found.why) == ("SLURM_JOB_GPUS='2,3'", "SLURM_JOB_GPUS='2,3' names no others")
