"""The lock of an experiment: who holds it, who died with it, who let go."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess

import pytest

from sweep.errors import ExperimentError
from sweep.record.lock import DriverLock, find_driver, mark_of_dead_driver


def die_with(lock: DriverLock) -> None:
    """Let go as the kernel does it for a process that was killed."""
    os.close(lock.fd)
    lock.fd = -1


@pytest.fixture
def path(tmp_path):
    return tmp_path / "driver.lock"


def test_who_died_with_the_lock_is_known_to_others_and_to_the_next(path):
    die_with(DriverLock(path, "7.8.boot.1"))
    assert mark_of_dead_driver(path) == "7.8.boot.1"
    lock = DriverLock(path, "9.9.boot.1")
    assert lock.dead == "7.8.boot.1"
    assert mark_of_dead_driver(path) == ""  # it is held
    die_with(lock)
    assert mark_of_dead_driver(path) == "9.9.boot.1"


def test_what_the_dead_driver_has_left_is_taken_over_before_the_next_one_is_noted(path):
    die_with(DriverLock(path, "7.8.boot.1"))
    taken = []

    def is_killed(dead):
        taken.append(dead)
        raise KeyboardInterrupt

    for _ in range(2):  # it was not done, so it is left to the next
        with pytest.raises(KeyboardInterrupt):
            DriverLock(path, "9.9.boot.1", take_over=is_killed)
    DriverLock(path, "9.9.boot.1", take_over=taken.append).release()
    DriverLock(path, "9.9.boot.1", take_over=taken.append).release()
    assert taken == ["7.8.boot.1"] * 3


def test_what_holds_the_lock_of_a_dead_driver_for_too_long_is_ended(path, monkeypatch):
    monkeypatch.setattr("sweep.record.lock._ORPHANS_S", 0.0)
    held = DriverLock(path, "7.8.boot.1")
    gone = subprocess.Popen(["true"])
    gone.wait()
    held._write(pid=gone.pid)
    taken = []

    def end(dead):
        taken.append(dead)
        if held.fd >= 0:
            die_with(held)  # a fork server that was stopped

    with pytest.raises(ExperimentError, match="processes left by pid"):
        DriverLock(path, "9.9.boot.1", take_over=taken.append)
    DriverLock(path, "9.9.boot.1", take_over=end).release()
    assert taken == ["7.8.boot.1"] * 3


def test_who_only_looks_after_the_files_keeps_what_was_noted(path):
    die_with(DriverLock(path, "7.8.boot.1"))
    lock = DriverLock(path)
    assert mark_of_dead_driver(path) == ""
    lock.release()
    assert mark_of_dead_driver(path) == "7.8.boot.1"
    DriverLock(path, "9.9.boot.1").release()  # who let go did not die with it
    DriverLock(path).release()
    assert mark_of_dead_driver(path) == ""


@pytest.mark.parametrize("content", [None, "", "{", "[]", "{}", '{"pid": "x"}', '{"pid": null}'])
def test_what_says_nothing_names_nobody(path, content):
    if content is not None:
        path.write_text(content)
    assert mark_of_dead_driver(path) == ""
    assert find_driver(path) is None


def test_who_looks_for_a_moment_keeps_no_driver_from_starting(path, monkeypatch):
    path.write_text(json.dumps({"pid": os.getpid()}))  # of a sweep that has ended in a process that goes on
    looking = os.open(path, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    monkeypatch.setattr("sweep.record.lock.time.sleep", lambda seconds: fcntl.flock(looking, fcntl.LOCK_UN))
    DriverLock(path).release()
    os.close(looking)


def test_a_driver_that_lives_is_named(path):
    lock = DriverLock(path, "1.2.boot.1")
    with pytest.raises(ExperimentError, match=f"in use by another driver .pid {os.getpid()}, started "):
        DriverLock(path, "3.4.boot.1")
    lock.release()
