"""The host's own decisions, without a driver: what it does when the kernel refuses, and whom a late kill hits."""

from __future__ import annotations

import errno
import os
import pickle
import socket

import pytest

from sweep.engines.host import BUSY, EXIT, KILL, START, Host


@pytest.fixture
def wired(tmp_path):
    """A host in this process with the driver's end of its life socket, and what it would have forked."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(10)
    pidfd = os.pidfd_open(os.getpid())
    host = Host(theirs, pidfd, is_reusing=False)
    yield host, ours
    host._drop_control(None)
    os.close(pidfd)
    ours.close()
    theirs.close()


def start_message(token=1):
    """Return the message that starts an attempt."""
    return (START, token, (), 0, False)


def test_a_fork_that_the_kernel_refuses_is_said_once_and_tried_again(wired, monkeypatch):
    host, driver = wired
    answers = [OSError(errno.EAGAIN, "Resource temporarily unavailable")] * 3

    def fork(data, kept, idle, control):
        if answers:
            raise answers.pop()
        return os.getpid()  # any process that lives

    monkeypatch.setattr(host, "_fork", fork)
    read, write = os.pipe()
    os.close(write)
    host._start(start_message(), read, 0)
    first_pause = host._timeout_ms()
    for _ in range(3):
        host._on_timeout()
    driver.settimeout(0)
    assert pickle.loads(driver.recv(1000))[:2] == (BUSY, 1)
    with pytest.raises(BlockingIOError):
        driver.recv(1000)
    assert first_pause is not None
    assert host._waiting is None
    assert host._born == 1
    os.close(host._pidfd)


def test_a_kill_for_a_start_that_still_waits_for_the_kernel_ends_it(wired, monkeypatch):
    host, driver = wired

    def refuse(data, kept, idle, control):
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(host, "_fork", refuse)
    read, write = os.pipe()
    os.close(write)
    host._start(start_message(), read, 0)
    driver.recv(1000)
    driver.send(pickle.dumps((KILL, 1)))
    host._on_message()
    assert pickle.loads(driver.recv(1000))[:2] == (EXIT, 1)
    assert host._waiting is None


@pytest.mark.parametrize(
    ("is_reusing", "trimmed"),
    [(False, {"born/out", "born/err"}), (True, {"now/out", "now/err"})],
)
def test_each_file_of_the_output_is_trimmed_also_where_a_reused_worker_writes_by_now(
    wired, monkeypatch, tmp_path, is_reusing, trimmed
):
    host, _ = wired
    for name in ("born/out", "born/err", "now/out", "now/err"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * 5000)
    host._is_reusing, host._log_limit, host._worker = is_reusing, 1000, 4242
    host._logs = (str(tmp_path / "born" / "out"), str(tmp_path / "born" / "err"))
    monkeypatch.setattr(os, "readlink", lambda path: str(tmp_path / "now" / "out"))
    host._trim_log(is_final=True)
    small = {str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*") if path.stat().st_size <= 1000}
    assert small == trimmed


def test_a_late_kill_for_an_attempt_that_ended_does_not_hit_its_successor(wired, monkeypatch):
    host, driver = wired
    killed = []
    monkeypatch.setattr(host, "_kill_worker", lambda **_: killed.append(True))
    host._worker, host._done = os.getpid(), 7
    driver.send(pickle.dumps((KILL, 7)))
    host._on_message()
    assert killed == []
    driver.send(pickle.dumps((KILL, 8)))
    host._on_message()
    assert killed == [True]
