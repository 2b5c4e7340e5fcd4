"""TPU chips of a machine that is described by files, and its identity from a server that is none of Google's."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

import pytest

from sweep.accelerators import tpu_host
from sweep.accelerators.tpu_host import TpuHost, ask_metadata_server, describe, detect
from sweep.core.resources import Device

V6E = ("0x1ae0", "0x006f", "0x006f")
NETWORK_CARD = ("0x1ae0", "0x0042", "0x0058")  # Google's too, and no chip
GPU = ("0x10de", "0x2330", "0x16c1")
CHIP_FILES = ("vfio/vfio", "vfio/0", "vfio/1", "vfio/2", "vfio/3")


class Fetch:
    """A metadata server in this process: answers from a dict, remembers what it was asked, may be broken."""

    def __init__(self, error: Exception | None = None, **answers: str) -> None:
        self.asked: list[str] = []
        self._answers = {key.replace("_", "-"): answer for key, answer in answers.items()}
        self._error = error

    def __call__(self, key: str) -> str | None:
        self.asked.append(key)
        if self._error is not None:
            raise self._error
        return self._answers.get(key)


@pytest.fixture
def machine(tmp_path):
    """Return a function that lays out a machine: its PCI devices as (vendor, device, subsystem), its device files."""

    def make(*devices, files=CHIP_FILES):
        for number, (vendor, device, subsystem) in enumerate(devices):
            directory = tmp_path / "sys/bus/pci/devices" / f"0000:{number:02x}:00.0"
            directory.mkdir(parents=True)
            (directory / "vendor").write_text(f"{vendor}\n")
            (directory / "device").write_text(f"{device}\n")
            (directory / "subsystem_device").write_text(f"{subsystem}\n")
        for name in files:
            (tmp_path / "dev" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "dev" / name).touch()
        return tmp_path

    return make


def types_of(devices):
    return [(device.id, device.visible, device.type) for device in devices]


def test_chips_are_counted_on_the_pci_bus_among_other_devices(machine):
    root = machine(NETWORK_CARD, V6E, GPU, V6E)
    labels = ("TPU-V6E", "v6e")
    assert detect(root, {}) == (
        Device("tpu0", "tpu", "TPU-V6E", visible="0", labels=labels, vendor="google"),
        Device("tpu1", "tpu", "TPU-V6E", visible="1", labels=labels, vendor="google"),
    )


@pytest.mark.parametrize(
    ("device", "subsystem", "type_"),
    [
        ("0x0027", "0x004e", "TPU-V2"),
        ("0x0027", "0x004f", "TPU-V3"),
        ("0x005e", "0x0000", "TPU-V4"),
        ("0x0063", "0x0000", "TPU-V5LITEPOD"),
        ("0x006f", "0x0000", "TPU-V6E"),
        ("0x0076", "0x0000", "TPU-V7X"),
    ],
)
def test_the_pci_device_tells_the_generation(machine, device, subsystem, type_):
    root = machine(*[("0x1ae0", device, subsystem)] * 2)
    assert types_of(detect(root, {})) == [(f"tpu{i}", str(i), type_) for i in range(2)]


@pytest.mark.parametrize(
    ("devices", "files", "number"),
    [
        *[([V6E] * 4, files, 4) for files in (("accel0",), ("accel/accel0",), ("vfio/vfio", "vfio/17"))],
        *[([V6E] * 2, files, 0) for files in ((), ("vfio/vfio",), ("null", "nvidia0"), ("accelerate",))],
        # a GPU that is handed to a virtual machine has a file in `/dev/vfio`
        *[(devices, CHIP_FILES, 0) for devices in ([], [GPU], [("0x1ae0", "0x0001", "0x0000")])],
    ],
)
def test_chips_are_those_of_the_bus_if_there_is_any_device_file_of_one(machine, devices, files, number):
    assert len(detect(machine(*devices, files=files), {"TPU_ACCELERATOR_TYPE": "v6e-4"})) == number


def test_a_device_that_cannot_be_read_is_passed_over_and_a_machine_may_have_no_bus(machine, tmp_path):
    assert detect(tmp_path / "missing", {}) == ()
    root = machine(V6E, V6E)
    (root / "sys/bus/pci/devices/0000:00:00.0/device").unlink()
    (root / "sys/bus/pci/devices/0000:09:00.0").mkdir()
    assert len(detect(root, {})) == 1


@pytest.mark.parametrize(
    ("parent", "expected"), [("2,3", ["2", "3"]), ("3,1", ["3", "1"]), ("", []), ("1,7,x,2", ["1", "2"])]
)
@pytest.mark.parametrize("variable", ["TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES"])
def test_only_the_chips_that_this_process_may_see_are_found(machine, variable, parent, expected):
    found = detect(machine(V6E, V6E, V6E, V6E), {variable: parent})
    assert types_of(found) == [(f"tpu{token}", token, "TPU-V6E") for token in expected]


def test_the_environment_of_this_process_is_the_default(machine, monkeypatch):
    monkeypatch.setenv("TPU_VISIBLE_CHIPS", "1")
    monkeypatch.setenv("TPU_SKIP_MDS_QUERY", "1")
    monkeypatch.setenv("TPU_NAME", "mine")
    root = machine(V6E, V6E)
    assert types_of(detect(root)) == [("tpu1", "1", "TPU-V6E")]
    assert describe(root).slice_name == "mine"


GKE = {
    "TPU_WORKER_ID": "2",
    "TPU_WORKER_HOSTNAMES": "a,b, c ,d",
    "TPU_NAME": "slice-7",
    "TPU_ACCELERATOR_TYPE": "v6e-16",
    "TPU_TOPOLOGY": "4X4",
}
TPU_ENV = "ACCELERATOR_TYPE: 'v4-16'\nWORKER_ID: '1'\nTOPOLOGY: '2x2x2'\nCHIPS_PER_HOST_BOUNDS: '2,2,1'\n"
SERVER = {
    "agent_worker_number": "1",
    "instance_id": "t1v-n-5",
    "accelerator_type": "v4-16",
    "tpu_env": TPU_ENV,
    "worker_network_endpoints": "x:1:10.0.0.1,y:2:10.0.0.2",
}
ALL_KEYS = ["agent-worker-number", "tpu-env", "instance-id", "accelerator-type", "worker-network-endpoints"]


@pytest.mark.parametrize(
    ("device", "files", "environ", "expected"),
    [
        (V6E, CHIP_FILES, GKE, TpuHost(2, "slice-7", "4x4", "v6e-16", ("a", "b", "c", "d"))),  # which says everything
        *((*machine, {"TPU_WORKER_ID": "0"}, TpuHost(worker_id=0)) for machine in ((GPU, CHIP_FILES), (V6E, ()))),
        *((V6E, CHIP_FILES, {"TPU_SKIP_MDS_QUERY": value}, TpuHost()) for value in ("1", "true", "0", "")),
    ],
)
def test_nobody_is_asked_where_all_is_known_or_there_is_no_chip_or_the_user_forbids_it(
    machine, device, files, environ, expected
):
    fetch = Fetch(**SERVER)
    assert describe(machine(device, files=files), environ, fetch) == expected
    assert fetch.asked == []


@pytest.mark.parametrize("error", [TimeoutError("late"), ConnectionRefusedError(), RuntimeError("a bug"), ValueError()])
def test_after_a_failure_everything_is_unknown_and_nothing_more_is_asked(machine, error):
    fetch = Fetch(error)
    assert describe(machine(V6E), {"TPU_NAME": "mine"}, fetch) == TpuHost(slice_name="mine")
    assert fetch.asked == ALL_KEYS[:1]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        *[({"agent_worker_number": text}, TpuHost(worker_id=number)) for text, number in ((" 3 ", 3), ("-1", None))],
        *[({"agent_worker_number": text}, TpuHost()) for text in ("", "x")],
        *[({"tpu_env": text}, TpuHost(topology="4x4")) for text in ("TOPOLOGY: '4X4'", 'A: "b"\nTOPOLOGY: "4x4"\n')],
        ({"tpu_env": "OTHER_TOPOLOGY: '2x4'"}, TpuHost()),
        ({"worker_network_endpoints": "host-a, host-b"}, TpuHost(hostnames=("host-a", "host-b"))),
    ],
)
def test_answers_are_read_as_the_server_writes_them(machine, answers, expected):
    assert describe(machine(V6E), {}, Fetch(**answers)) == expected


@contextmanager
def server(*answers: bytes | None) -> Iterator[tuple[str, list[bytes]]]:
    """Serve one connection for each answer (None: take it and never answer); give the address and what was asked."""
    listener = socket.create_server(("127.0.0.1", 0))
    asked: list[bytes] = []
    kept: list[socket.socket] = []

    def serve() -> None:
        for answer in answers:
            connection, _ = listener.accept()
            connection.settimeout(30)
            kept.append(connection)
            asked.append(connection.recv(1 << 16))
            if answer is not None:
                with suppress(OSError):  # the client may have heard enough
                    connection.sendall(answer)
                    connection.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}", asked
        thread.join(30)
    finally:
        listener.close()
        for connection in kept:
            connection.close()


def response(body: str, *, status: str = "200 OK", flavor: str = "Metadata-Flavor: Google\r\n") -> bytes:
    return f"HTTP/1.0 {status}\r\nContent-Type: text/plain\r\n{flavor}\r\n{body}".encode()


def test_an_attribute_is_asked_for_in_the_words_of_the_metadata_server():
    with server(response("v6e-16\n")) as (address, asked):
        assert ask_metadata_server("accelerator-type", address=address, limit_s=30) == "v6e-16"
    (request,) = asked
    with server(response("not found", status="404 Not Found")) as (address, _):
        assert ask_metadata_server("tpu-env", address=address, limit_s=30) is None
    head, *fields = request.decode().split("\r\n")
    assert head == "GET /computeMetadata/v1/instance/attributes/accelerator-type HTTP/1.1"
    assert "Metadata-Flavor: Google" in fields


@pytest.mark.parametrize(
    "answer",
    [
        response("v6e-16", flavor=""),
        response("v6e-16", flavor="Metadata-Flavor: Other\r\n"),
        response("oops", status="500 Internal Server Error"),
        response("", status="302 Found"),
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"",
    ],
)
def test_somebody_who_is_no_metadata_server_is_not_believed(answer):
    with server(answer) as (address, _), pytest.raises(ConnectionError, match="is no metadata server"):
        ask_metadata_server("accelerator-type", address=address, limit_s=30)


def test_a_server_that_never_answers_leaves_the_identity_unknown_after_one_request(machine):
    with server(None) as (address, asked):
        fetch = partial(ask_metadata_server, address=address, limit_s=0.05)
        assert describe(machine(V6E), {"TPU_WORKER_ID": "0"}, fetch) == TpuHost(worker_id=0)
    assert len(asked) == 1


def test_each_attribute_is_asked_for_once_in_the_life_of_a_process(machine, monkeypatch):
    fetch, addresses = Fetch(**SERVER), []

    def ask(key: str, *, address: str) -> str | None:
        addresses.append(address)
        return fetch(key)

    monkeypatch.setattr(tpu_host, "ask_metadata_server", ask)
    root, environ = machine(V6E), {"GCE_METADATA_IP": "asked-once.invalid"}
    found = [describe(root, environ) for _ in range(2)]
    assert found == [TpuHost(1, "t1v-n-5", "2x2x2", "v4-16", ("10.0.0.1", "10.0.0.2"))] * 2
    assert fetch.asked == ALL_KEYS
    assert set(addresses) == {"asked-once.invalid"}
