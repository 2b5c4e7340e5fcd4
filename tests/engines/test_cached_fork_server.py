"""The fork server that is kept between runs: it is used again where a new one would be the same, and leaves nothing."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cached_trainables import end_the_supervisor, files_of, marked, meet, train, use
from census import census
from conformance.processes import Watch

import sweep
from sweep.core.messages import Ask, Asked
from sweep.engines.base import EngineContext
from sweep.engines.local import fork_server_client, orphans
from sweep.engines.local.engine import LocalEngine
from sweep.engines.local.fork_server import are_files_older
from sweep.engines.local.fork_server_client import ForkServerClient, key_of
from sweep.engines.local.orphans import end_orphans
from sweep.engines.local.processes import await_ready
from sweep.errors import ResourceError
from sweep.record.lock import DriverLock
from sweep.worker.nested import process_mark
from sweep.worker.trainable import prepare

GRAIN_NS = 25_000_000  # after which a file counts as changed before


@pytest.fixture(autouse=True)
def _none_before_or_after():
    fork_server_client.end_cached()
    yield
    fork_server_client.end_cached()


@pytest.fixture
def run(tmp_path):
    """Return a function that runs a sweep of one trial, and returns what that has reported."""
    names = iter(["one", "a_second_one_whose_name_is_longer", "three", "four", "five"])

    def run_once(trainable: Callable[[Any], None] = train, **more: Any) -> dict[str, Any]:
        more = {"name": next(names), "storage_path": str(tmp_path), "verbose": 0, **more}
        (trial,) = sweep.run(trainable, **more).trials
        return {**trial.last_result, "directory": str(tmp_path / more["name"]), "logdir": trial.logdir}

    return run_once


# --- the next run ----------------------------------------------------------------------------------------------------


def test_the_next_run_is_forked_from_the_same_process_and_is_a_run_of_its_own(run, tmp_path):
    first = run()
    fork_server = first["fork_server"]
    assert not [path for path in files_of(fork_server) if path.startswith(str(tmp_path))]
    assert marked(fork_server) == ""
    assert not Path(f"/proc/{fork_server}/task/{fork_server}/children").read_text()
    DriverLock(tmp_path / "one" / "driver.lock", "it is free").release()
    second = run(preload=["wave"])
    assert second["fork_server"] == fork_server
    assert second["supervisor"] != first["supervisor"]
    assert first["directory"] != second["directory"]
    for found in (first, second):
        directory = found["directory"]
        assert found["own"] == found["of_child"] == found["of_fork_server"] == directory
        assert f"{directory}/driver.lock" in found["files"]
        assert f"{directory}/code/fork-server.log" in found["files"]
        assert f"printed in {directory}\n" in Path(found["logdir"], "output.log").read_text()
    assert not [path for path in second["files"] if path.startswith(first["directory"])]
    assert [first["is_loaded"], second["is_loaded"]] == [False, True]
    assert run()["fork_server"] != fork_server  # which has a module that this one does not need


def test_runs_at_a_time_have_one_each(tmp_path, run):
    found = []
    paths = [str(tmp_path / name) for name in ("left", "right")]
    threads = [
        threading.Thread(target=lambda config=config: found.append(run(meet, config=config)))
        for config in ({"own": paths[0], "other": paths[1]}, {"own": paths[1], "other": paths[0]})
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    fork_servers = {one["fork_server"] for one in found}
    assert len(fork_servers) == 2
    assert run(meet, config={"own": paths[0], "other": paths[1]})["fork_server"] in fork_servers


def test_a_run_takes_the_one_that_was_started_before_the_driver_was_ready(run, monkeypatch):
    made = []

    class Counted(ForkServerClient):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(self.pid)

    monkeypatch.setattr(fork_server_client, "ForkServerClient", Counted)
    assert [run()["fork_server"]] == made


def test_modules_are_imported_while_the_driver_gets_ready_and_may_be_edited_meanwhile(run, tmp_path, monkeypatch):
    path = tmp_path / "helper_of_kept.py"
    monkeypatch.syspath_prepend(str(tmp_path))
    path.write_text("VALUE = 1\n")
    fork_server_client.prepare(dict(os.environ), ["helper_of_kept", "wave"])
    (early,) = fork_server_client._cached
    assert await_ready([early.packets.socket.fileno()], None)  # it says that it imports the first
    path.touch()
    found = run(preload=["helper_of_kept", "wave"])
    assert (found["fork_server"], found["is_loaded"]) == (early.pid, True)


def test_a_run_that_is_refused_leaves_none(run):
    with pytest.raises(ResourceError):
        run(resources_per_trial={"cpu": 1e6})
    assert not fork_server_client._cached


# --- what makes a new one --------------------------------------------------------------------------------------------


def let_pass(path: Path) -> None:
    """Wait until what was written to a file counts as written before now."""
    while time.time_ns() < path.stat().st_ctime_ns + GRAIN_NS:
        time.sleep(0.001)


def test_a_module_that_was_edited_is_imported_anew(run, tmp_path, monkeypatch):
    path = tmp_path / "helper_of_kept.py"
    monkeypatch.syspath_prepend(str(tmp_path))
    path.write_text("VALUE = 1\n")
    let_pass(path)
    one, two = (run(use, preload=["helper_of_kept"]) for _ in range(2))
    path.write_text("VALUE = 22\n")
    three = run(use, preload=["helper_of_kept"])
    assert [found["value"] for found in (one, two, three)] == [1, 1, 22]
    assert one["fork_server"] == two["fork_server"] != three["fork_server"]


def test_a_file_that_has_changed_since_is_another_also_where_an_older_one_replaced_it(tmp_path, monkeypatch):
    path, other = tmp_path / "helper_of_kept.py", tmp_path / "other.py"
    path.write_text("VALUE = 1\n")
    other.write_text("VALUE = 2\n")
    os.utime(other, (1.0, 1.0))
    module = type(sys)("helper_of_kept")
    module.__file__ = str(path)
    monkeypatch.setattr(sys, "modules", {"helper_of_kept": module, "of_nothing": type(sys)("of_nothing")})
    monkeypatch.setattr(sys, "path", [])
    changed = path.stat().st_ctime_ns
    assert not are_files_older(changed)
    assert are_files_older(changed + GRAIN_NS)
    let_pass(other)
    other.replace(path)
    assert not are_files_older(changed + GRAIN_NS)


def test_where_the_clock_is_late_files_of_the_future_end_no_new_fork_server(run, tmp_path, monkeypatch):
    late = "import time\ntime.time_ns = lambda told=time.time_ns: told() - 10**14\n"
    (tmp_path / "sitecustomize.py").write_text(late)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert run()["training_iteration"] == 1
    assert run()["training_iteration"] == 1


@pytest.mark.parametrize("what", ["environ", "cwd", "umask", "limit", "path", "signals", "nothing"])
def test_whatever_a_process_inherits_counts(what, tmp_path, monkeypatch):
    core, umask = resource.getrlimit(resource.RLIMIT_CORE), os.umask(0o022)

    def key() -> object:
        return key_of(os.environ)

    before = key()
    try:
        match what:
            case "environ":
                monkeypatch.setenv("MINE", "here")
            case "cwd":
                monkeypatch.chdir(tmp_path)
            case "umask":
                os.umask(0o027)
            case "limit":
                resource.setrlimit(resource.RLIMIT_CORE, (0 if core[0] else 4096, core[1]))
            case "path":
                monkeypatch.syspath_prepend(str(tmp_path))
            case "signals":
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
        assert (key() == before) == (what == "nothing")
    finally:
        os.umask(umask)
        resource.setrlimit(resource.RLIMIT_CORE, core)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR2})


def test_one_that_could_not_import_a_module_is_not_kept(run):
    run(preload=["no_such_module_of_kept"])
    assert not fork_server_client._cached


def test_one_whose_host_has_died_is_not_kept(run, tmp_path):
    run(end_the_supervisor, config={"path": str(tmp_path / "ended")})
    assert not fork_server_client._cached


@pytest.mark.parametrize("ask", [None, Ask.INTERRUPT])
def test_one_of_a_run_that_was_interrupted_is_not_kept(tmp_path, ask):
    nodes = [sweep.Node(cpus=1)]
    engine = LocalEngine(EngineContext(directory=tmp_path / "run", trainable=prepare(train), nodes=nodes))

    def loop() -> None:
        if ask is not None:
            engine.post(Asked(ask))
            assert engine.next_events(None) == [Asked(ask)]

    engine.run_loop(loop)
    engine.close()
    assert bool(fork_server_client._cached) != (ask is not None)


# --- its end ---------------------------------------------------------------------------------------------------------


def test_shutdown_ends_it(run):
    watch = Watch([run()["fork_server"]])
    sweep.shutdown()
    assert watch.left() == []
    assert not fork_server_client._cached


def test_one_that_has_waited_for_too_long_has_ended_by_itself(run, monkeypatch):
    monkeypatch.setattr(fork_server_client, "_REST_S", 0.01)
    fork_server = run()["fork_server"]
    assert Watch([fork_server]).left() == []
    assert run()["fork_server"] != fork_server


def test_one_that_does_not_answer_is_replaced(run, monkeypatch):
    monkeypatch.setattr(fork_server_client, "_ANSWER_S", 0.05)
    fork_server = run()["fork_server"]
    watch = Watch([fork_server])
    os.kill(fork_server, signal.SIGSTOP)
    assert run()["fork_server"] != fork_server
    assert watch.left() == []


@pytest.mark.filterwarnings("ignore:os.fork")  # JAX, which an earlier test may have imported here, says it of any fork
def test_a_process_that_the_driver_forks_neither_has_it_nor_ends_it(run):
    fork_server = run()["fork_server"]
    pid = os.fork()
    if pid == 0:
        fork_server_client.end_cached()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert run()["fork_server"] == fork_server


def test_the_hunt_for_what_dead_drivers_left_spares_it(run, tmp_path, monkeypatch):
    fork_server = run()["fork_server"]
    (tmp_path / "own").mkdir()
    monkeypatch.setattr(orphans, "is_dead", lambda mark: True)  # even then: it bears the mark of no experiment
    assert end_orphans(tmp_path / "own", "", lambda lock: process_mark(os.getpid()), print) == []
    (cached,) = fork_server_client._cached
    assert cached.pid == fork_server
    assert cached.is_alive


SCRIPT = f"""
import os, sys, time
import sweep
sys.path.append({str(Path(__file__).parents[1])!r})
from cached_trainables import train

def run():
    return sweep.run(train, verbose=0).trials[0].last_result["fork_server"]

if __name__ == "__main__":
    BODY
"""


def test_it_ends_with_its_driver_that_is_killed(tmp_path):
    body = "os.kill(run(), 0); open('ready', 'w').close(); time.sleep(1000)"
    (tmp_path / "script.py").write_text(SCRIPT.replace("BODY", body))
    found = census(tmp_path, sys.executable, "script.py", kill_when=tmp_path / "ready")
    assert (found.code, found.left, found.err) == (-signal.SIGKILL, (), "")
