"""For the whole suite: signals as a terminal gives them; and the longest files begin first, because files are given to
the processes one by one, and the last should be a short one."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# Of a suite that was started by nohup every child would ignore a hang-up, and of one in the background of a script
# Ctrl-C, those that are tested with them, too.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
# Of each process that imports numpy a thread of OpenBLAS would otherwise keep a CPU busy for 0.1 s, waiting for work.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

CLUSTERS = {"agents", "ray", "slurm"}  # marks of tests that start some
LONGEST = (
    "test_docs.py",
    "test_scripts.py",
    "test_api.py",
    "test_group_runs.py",
    "test_local.py",
    "test_rank_environment.py",
    "test_group.py",
    "test_resume.py",
    "test_kill.py",
    "simulation/test_resumed_in_virtual_time.py",
    "simulation/test_virtual.py",
    "test_wild_worlds.py",
    "test_optuna_search.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONGEST)))


@pytest.fixture(scope="session", autouse=True)
def _claims_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each process of the suite keeps its own claims: its sweeps see each other, and wait for none of another's."""
    os.environ["SWEEP_CLAIMS"] = str(tmp_path_factory.mktemp("claims"))


@pytest.fixture(scope="module", autouse=True)
def _path_of_before() -> Iterator[None]:
    """Commands put the directory of a script on `sys.path`, as they may; a `train.py` there would hide the tests'."""
    before = list(sys.path)
    yield
    sys.path[:] = before


@pytest.fixture(scope="session", autouse=True)
def _cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What tests work on of remote storage lies with their other files: what an earlier run left is not found."""
    os.environ["SWEEP_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def _nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """What starts clusters takes everything away again; Ray's client leaves sockets of its own open."""
    marks = CLUSTERS & {mark.name for mark in request.node.iter_markers()}
    if not marks:
        yield
        return
    from leftovers import nothing_left

    own = request.getfixturevalue("tmp_path")
    # Not below the test's own: the names of Ray's sockets would be longer than the kernel allows.
    with tempfile.TemporaryDirectory(prefix="left-", ignore_cleanup_errors=True) as temporary:
        yield from nothing_left(own, Path(temporary), counts_open="ray" not in marks)
