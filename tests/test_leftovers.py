"""What a test of a cluster may leave: each kind is seen and named, and what goes away by itself is waited for."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest
from leftovers import VARIABLE, nothing_left


@contextlib.contextmanager
def sleeping(*, stdout=None, **environ):
    process = subprocess.Popen(["sleep", "99"], stdout=stdout, env={**os.environ, **environ})
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def opened(directory: Path):
    """Start a process without a mark that holds a file of the test."""
    with (directory / "lock").open("w") as file, sleeping(stdout=file, **{VARIABLE: ""}):
        file.close()
        yield


@contextlib.contextmanager
def written(directory: Path):
    yield tempfile.mkdtemp(prefix="sweep-")


@contextlib.contextmanager
def listening(directory: Path):
    is_over = threading.Event()
    thread = threading.Thread(target=is_over.wait, name="sweep-listener")
    thread.start()
    yield
    is_over.set()
    thread.join()


KINDS = [
    ("process .*sleep 99", lambda directory: sleeping()),
    ("process .*sleep 99", opened),
    ("1 open of this process: socket", lambda directory: contextlib.closing(socket.create_server(("127.0.0.1", 0)))),
    ("file .*/sweep-", written),
    ("thread sweep-listener", listening),
]


@pytest.fixture
def begun(tmp_path_factory, request):
    """Return a test's own directory and the steps around that test, of which the first is done."""
    own = tmp_path_factory.mktemp("own")
    limit_s = 0.0 if "said" in request.fixturenames else 10.0  # what is to be found does not go away
    steps = nothing_left(own, tmp_path_factory.mktemp("temporary"), limit_s=limit_s)
    next(steps)
    return own, steps


@pytest.mark.parametrize(("said", "leave"), KINDS)
def test_what_is_left_is_named(begun, said, leave):
    own, steps = begun
    with leave(own), pytest.raises(AssertionError, match=said):
        next(steps)


def test_what_ends_by_itself_and_what_trials_leave_that_are_killed_is_not(begun):
    _, steps = begun
    tempfile.mkdtemp()
    thread = threading.Timer(0.3, lambda: None)
    thread.name = "sweep-late"
    thread.start()
    assert next(steps, "over") == "over"
