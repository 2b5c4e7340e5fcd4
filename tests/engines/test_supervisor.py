"""The supervisor's own decisions, without a driver: what it does when the kernel refuses."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from sweep.engines.local.supervisor import Supervisor
from sweep.worker import wire
from sweep.worker.channel import Packets


@pytest.fixture
def wired(tmp_path):
    """A supervisor in this process with the driver's end of its life socket, and what it would have forked."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(10)
    pidfd = os.pidfd_open(os.getpid())
    supervisor = Supervisor(theirs, pidfd, wire.Begin("", (), False))
    yield supervisor, ours
    supervisor._drop_control()
    os.close(pidfd)
    ours.close()
    theirs.close()


def refuse(data, kept, control=-1):
    raise OSError(errno.EAGAIN, "Resource temporarily unavailable")


@pytest.mark.parametrize("is_reusing", [False, True])
def test_a_fork_that_the_kernel_refuses_is_told_the_driver_and_leaves_no_descriptor(wired, monkeypatch, is_reusing):
    supervisor, driver = wired
    monkeypatch.setattr(supervisor, "_fork", refuse)
    supervisor._is_reusing = is_reusing
    read, write = os.pipe()
    os.close(write)
    before = len(os.listdir("/proc/self/fd"))
    supervisor._start(wire.StartWorker((), 0, False), read)
    assert Packets(driver).receive()[0] == wire.Refused(errno.EAGAIN)
    assert len(os.listdir("/proc/self/fd")) == before - 1  # the trial's socket, and nothing is open besides
    assert supervisor._timeout_s() is None  # it does not try again by itself


@pytest.mark.parametrize(
    ("message", "num_sent"),
    [(wire.StartWorker((), 0, False), 0), (wire.StartGroup(), 0), (wire.StartGroup(), 2)],
    ids=["its_socket", "all_of_a_group", "a_port_of_a_group"],
)
def test_a_start_whose_descriptors_found_no_room_here_is_refused(wired, message, num_sent):
    """The kernel drops descriptors silently where the receiver may open no more."""
    supervisor, driver = wired
    pairs = [os.pipe() for _ in range(num_sent)]
    before = set(os.listdir("/proc/self/fd"))
    socket.send_fds(driver, [b"\3\0" + wire.encode(message)], [read for read, _ in pairs])
    supervisor._on_message()
    assert Packets(driver).receive()[0] == wire.Refused(errno.EMFILE)
    assert set(os.listdir("/proc/self/fd")) == before  # those that came are closed
    for pair in pairs:
        for descriptor in pair:
            os.close(descriptor)


def test_a_group_whose_ranks_the_kernel_refuses_is_told_the_driver(wired, monkeypatch, tmp_path):
    supervisor, driver = wired
    monkeypatch.setattr(supervisor, "_fork", refuse)
    monkeypatch.setattr("sweep.engines.local.supervisor.end_descendants", lambda: 0)
    ours, theirs = socket.socketpair()
    values = dict.fromkeys(wire.Job._fields, "") | {"directory": str(tmp_path), "trial_id": "x", "variables": {}}
    group = wire.GroupJob(wire.Job(**values), (wire.RankJob(wire.Rank(0, 1), {}, 1),))
    ours.sendall(wire.frame(group))
    Packets(driver).send(wire.StartGroup(), [theirs.fileno()])
    theirs.close()
    supervisor._on_message()
    (only,) = supervisor._groups
    only.handle({descriptor: 1 for descriptor, _ in only.descriptors()})
    assert only.is_over
    supervisor._on_group_over(only)
    assert Packets(driver).receive()[0] == wire.Refused(errno.EAGAIN)
    assert supervisor._groups == []
    ours.close()


@pytest.mark.parametrize(
    ("is_reusing", "trimmed"),
    [(False, {"born/out", "born/err"}), (True, {"now/out", "now/err"})],
)
def test_each_file_of_the_output_is_trimmed_also_where_a_reused_worker_writes_by_now(
    wired, monkeypatch, tmp_path, is_reusing, trimmed
):
    supervisor, _ = wired
    for name in ("born/out", "born/err", "now/out", "now/err"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * 5000)
    supervisor._is_reusing, supervisor._log_limit, supervisor._worker = is_reusing, 1000, 4242
    supervisor._logs = (str(tmp_path / "born" / "out"), str(tmp_path / "born" / "err"))
    monkeypatch.setattr(os, "readlink", lambda path: str(tmp_path / "now" / "out"))
    supervisor._trim_log()
    small = {str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*") if path.stat().st_size <= 1000}
    assert small == trimmed
