"""Waiting for room on a full disk: when it is tried again, what is said, how it ends; and prints that wait."""

from __future__ import annotations

import errno
import io
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweep.record.space import free_bytes, lacks_space, tree_bytes
from sweep.worker import disk_wait as module
from sweep.worker.disk_wait import DiskWait, PatientFile, is_full, open_streams
from sweep.worker.session import StopRequested

MIB = 1 << 20


def full(path: object = None) -> OSError:
    return OSError(errno.ENOSPC, "No space left on device", path)


class World:
    """A clock that runs while somebody waits, and a disk that gets more room at given times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, free: int | None, later: dict[float, int | None]) -> None:
        self.now = 100.0
        self.began = self.now
        self.free = free
        self.later = later
        self.said: list[str] = []
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(module, "free_bytes", lambda directory: self.free)

    def hear(self, seconds: float) -> None:
        self.now += seconds
        for at, free in self.later.items():
            if self.now - self.began >= at:
                self.free = free

    def room(self) -> DiskWait:
        return DiskWait("/x/trial", self.said.append, self.hear)

    def waited(self, room: DiskWait, needed: int) -> float:
        before = self.now
        room.wait("a checkpoint", needed)
        return round(self.now - before, 3)


def test_it_goes_on_as_soon_as_there_is_room_and_says_why_it_waited_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_S", 60.0)
    monkeypatch.setattr(module, "_LAST_S", 60.0)
    world = World(monkeypatch, 0, {7.0: MIB, 20.0: 4 * MIB})
    room = world.room()
    assert 20.0 <= world.waited(room, 3 * MIB) < 21.0
    room.close()
    room.close()
    assert world.said == ["waits for disk space: a checkpoint of 3MiB does not fit into /x/trial, 0B free", ""]


@pytest.mark.parametrize(
    ("total", "left", "said"), [(500, 3, "3 inodes free"), (500, 400, "1MiB free"), (0, 0, "1MiB")]
)
def test_where_inodes_are_used_up_it_says_so(monkeypatch: pytest.MonkeyPatch, total: int, left: int, said: str) -> None:
    found = SimpleNamespace(f_files=total, f_favail=left, f_bavail=256, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda directory: found)
    world = World(monkeypatch, MIB, {})
    world.waited(world.room(), 1000)
    assert f"B does not fit into /x/trial, {said}" in world.said[0]


@pytest.mark.parametrize("free", [None, 100 * MIB], ids=["nobody knows", "a quota"])
def test_where_the_room_says_nothing_it_is_tried_more_and_more_seldom(
    monkeypatch: pytest.MonkeyPatch, free: int | None
) -> None:
    world = World(monkeypatch, free, {})
    room = world.room()
    waits = [world.waited(room, MIB) for _ in range(8)]
    assert waits[0] < 1.0
    assert 7.0 <= waits[-1] < 11.0


def test_a_stop_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    World(monkeypatch, 0, {})

    def stopped(seconds: float) -> None:
        raise StopRequested

    said: list[str] = []
    with pytest.raises(StopRequested):
        DiskWait("/x", said.append, stopped).wait("a checkpoint", 1)


@pytest.mark.parametrize(("free", "expected"), [(4096, True), (2 * MIB, False), (None, False)])
def test_a_disk_without_room_may_be_why_a_library_failed(
    monkeypatch: pytest.MonkeyPatch, free: Any, expected: bool
) -> None:
    World(monkeypatch, free, {})
    assert is_full("/x") is expected


def nested(*errors: BaseException) -> BaseException:
    try:
        for number, one in enumerate(errors[1:]):
            one.__cause__ = errors[number]
        raise errors[-1]
    except BaseException as error:
        return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (full(), True),
        (full("/x/trial/file"), True),
        (full("/elsewhere/file"), False),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), True),
        (OSError(errno.EACCES, "Permission denied"), False),
        (nested(full(), RuntimeError("cannot save")), True),
        (shutil.Error([("a", "b", "[Errno 28] No space left on device: 'b'")]), True),
        (shutil.Error([("a", "b", "[Errno 13] Permission denied: 'b'")]), False),
        (ValueError("28"), False),
    ],
    ids=repr,
)
def test_which_errors_say_that_a_disk_is_full(error: BaseException, expected: bool) -> None:
    assert lacks_space(error, "/x/trial") is expected


def test_how_much_there_is_and_how_much_is_free(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_bytes(b"x" * 1000)
    (tmp_path / "a" / "nothing").symlink_to(tmp_path / "gone")
    assert tree_bytes(tmp_path) == 1000
    assert (free_bytes(tmp_path) or 0) > 0
    assert free_bytes(tmp_path / "gone") is None


def write_through(path: Path, room: Callable[[], Any]) -> io.TextIOWrapper:
    """Return a text file whose first two writes find the disk full."""
    fails = [True, True]

    class Full(io.FileIO):
        def write(self, data: Any) -> int:
            if fails and fails.pop():
                raise full()
            return super().write(data)

    class Patient(PatientFile, Full):
        pass

    raw = Patient(str(path), "w")
    raw.room_of = room
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8")


def test_a_print_on_a_full_disk_waits_and_nothing_is_lost(tmp_path: Path) -> None:
    waited: list[str] = []

    class Waits:
        def wait(self, what: str) -> None:
            waited.append(what)

        def close(self) -> None:
            waited.append("over")

    stream = write_through(tmp_path / "out", Waits)
    print("a line", file=stream, flush=True)
    stream.close()
    assert (tmp_path / "out").read_text() == "a line\n"
    assert waited == ["what it printed", "what it printed", "over"]


def test_a_print_on_a_full_disk_when_no_trial_runs_is_dropped(tmp_path: Path) -> None:
    stream = write_through(tmp_path / "out", lambda: None)
    print("the traceback of a trial that failed", file=stream, flush=True)
    stream.close()
    assert (tmp_path / "out").read_text() == ""


def test_streams_are_made_anew_of_the_same_kind_and_others_are_left_and_put_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, number in (("stdout", 1), ("stderr", 2)):
        plain = io.TextIOWrapper(
            io.BufferedWriter(io.FileIO(number, "w", closefd=False)),
            encoding="latin-1",
            errors="backslashreplace",
            line_buffering=name == "stderr",
        )
        monkeypatch.setattr(sys, name, plain)
        monkeypatch.setattr(sys, f"__{name}__", plain)
    first: dict[str, Any] = {}
    for _ in range(2):
        open_streams(first, lambda: None)
        out, err = sys.stdout, sys.stderr
        assert isinstance(out, io.TextIOWrapper)
        assert (out.encoding, out.errors, out.line_buffering) == ("latin-1", "backslashreplace", False)
        assert err.line_buffering  # type: ignore[attr-defined]
        assert (out.fileno(), err.fileno(), out.name) == (1, 2, "<stdout>")
        out.close()  # as a trial may
    theirs = io.StringIO()
    first["stdout"] = theirs
    open_streams(first, lambda: None)
    assert sys.stdout is theirs
