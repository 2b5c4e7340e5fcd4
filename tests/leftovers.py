"""What a test has left when it is over: processes, sockets and threads of this one, temporary files.

A process is the test's if it was started with the test's mark in its environment, or has something open below the
test's directories, as an agent has that Ray or Slurm has started. What fixtures of a wider scope keep is neither.
"""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from fsspec.asyn import get_loop
from orphans import marked

from sweep.engines.local.fork_server_client import end_cached

VARIABLE = "SWEEP_TEST_OF"
LIMIT_S = 60.0  # far more than any of it takes to end
_OF_OTHERS = ("tmp", "checkpoint_", "ray")  # how names begin of what killed trials leave, and Ray


def nothing_left(own: Path, temporary: Path, *, counts_open: bool = True, limit_s: float = LIMIT_S) -> Iterator[None]:
    """Run a test between two steps of this generator, and fail if something is left of it.

    Args:
        own: the test's own directory.
        temporary: an empty one, in which it and its processes make their temporary files.
        counts_open: whether this process must have as many sockets and pipes open as before.
    """
    get_loop()  # of fsspec, which every process has that used it once
    threads, before = set(threading.enumerate()), open_files()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(temporary))
        patch.setenv("TMPDIR", str(temporary))
        patch.setattr(tempfile, "tempdir", None)  # so that it is read anew
        yield
    end_cached()  # which is kept for the next run

    def left() -> list[str]:
        gc.collect()  # a socket that nobody refers to is open until then
        found = [f"process {pid}: {line}" for pid, line in processes(str(temporary), own).items()]
        found += [f"thread {one.name}" for one in set(threading.enumerate()) - threads if one.name.startswith("sweep-")]
        found += [f"file {path}" for path in temporary.iterdir() if not path.name.startswith(_OF_OTHERS)]
        if counts_open:
            found += [f"{number} open of this process: {kind}" for kind, number in (open_files() - before).items()]
        return found

    give_up = time.monotonic() + limit_s
    while (found := left()) and time.monotonic() < give_up:
        time.sleep(0.02)
    assert not found, "left by the test:\n" + "\n".join(found)


def processes(mark: str, root: Path) -> dict[int, str]:
    """Return pid -> command line of the other processes that bear the mark or have a file below `root` open."""
    found = marked(mark, VARIABLE)
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it ended just now, or is another user's
            if int(name) not in found and any(
                os.readlink(f"/proc/{name}/fd/{one}").startswith(f"{root}/") for one in os.listdir(f"/proc/{name}/fd")
            ):
                found[int(name)] = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    found.pop(os.getpid(), None)
    return found


def open_files() -> Counter[str]:
    """Return what this process has open, sockets and pipes as such."""
    found: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of this very look
            found[os.readlink(f"/proc/self/fd/{name}").partition(":")[0]] += 1
    return found
