"""What a dead driver has left is ended by the next one of the same user, and nothing else is."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from census import census

from sweep.engines.local import orphans
from sweep.engines.local.orphans import end_orphans, find_orphans
from sweep.record.lock import DriverLock
from sweep.worker.nested import is_dead, process_mark


def dead_driver() -> str:
    """Return the mark of a process that is gone."""
    process = subprocess.Popen(["sleep", "1000"])
    mark = process_mark(process.pid)
    process.kill()
    process.wait()
    return mark


class World:
    """An experiment whose driver died with its lock, and processes that bear marks.

    There is no lock file, so that a sweep of somebody else on this machine lets them live.
    """

    def __init__(self, directory: Path) -> None:
        self.root = directory / "killed"
        self.root.mkdir()
        self.own = directory / "own"
        self.own.mkdir()
        self.mark = dead_driver()
        self.dead = {self.root: self.mark}
        self.notices: list[str] = []
        self._processes: list[subprocess.Popen[bytes]] = []

    def leave(
        self, mark: str = "", *, root: Path | None = None, before: tuple[str, ...] = ()
    ) -> subprocess.Popen[bytes]:
        """Start what a trial might have left, and return it."""
        environ = {"SWEEP_DRIVER": mark or self.mark, "SWEEP_EXPERIMENT": str(root or self.root)}
        code = "import time; print(flush=True); time.sleep(1000)"
        process = subprocess.Popen(
            [*before, sys.executable, "-c", code],
            env={**environ, "PATH": os.environ["PATH"]},
            start_new_session=True,
            stdout=subprocess.PIPE,
        )
        self._processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"  # it is that program by now
        return process

    def end(self, own: Path | None = None, own_dead: str = "") -> list[int]:
        return end_orphans(own or self.own, own_dead, lambda lock: self.dead.get(lock.parent, ""), self.notices.append)

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.close()


def test_what_a_dead_driver_has_left_is_ended_and_said_once(world):
    left = [world.leave() for _ in range(2)]
    assert sorted(world.end()) == sorted(process.pid for process in left)
    assert [process.wait(10) for process in left] == [-signal.SIGKILL] * 2
    (notice,) = world.notices
    assert notice.startswith("ended 2 processes that trials of killed drivers had left running: ")
    assert all(f"[{process.pid}]" in notice for process in left)
    assert world.end() == []


def test_what_a_dead_driver_has_left_is_found_and_not_ended_where_it_is_only_looked_for(world):
    left = world.leave()
    assert find_orphans(lambda lock: world.dead.get(lock.parent, "")) == {left.pid: str(world.root)}
    assert find_orphans(lambda lock: "") == {}
    assert left.poll() is None


def test_what_the_own_experiment_had_left_is_known_by_the_lock_that_was_taken_over(world):
    world.dead.clear()  # to everybody else it is held
    left = [world.leave() for _ in range(2)]
    assert world.end() == []
    assert sorted(world.end(world.root, world.mark)) == sorted(process.pid for process in left)


def test_the_own_experiment_is_known_by_whatever_path(world):
    world.dead.clear()
    (world.own / "link").symlink_to(world.root)
    left = world.leave()
    lock = DriverLock(world.root / "driver.lock", "holds it")
    assert world.end(world.own / "link", world.mark) == [left.pid]
    lock.release()


def test_what_is_started_meanwhile_by_what_is_ended_is_ended_too(world, monkeypatch):
    first = world.leave()
    pids = orphans._pids
    later: list[subprocess.Popen[bytes]] = []

    def looks():
        found = pids()
        if not later:
            later.append(world.leave())
        return found

    monkeypatch.setattr(orphans, "_pids", looks)
    assert sorted(world.end()) == sorted([first.pid, later[0].pid])


def with_part(mark: str, index: int, value: str) -> str:
    parts = mark.split(".")
    parts[index] = value
    return ".".join(parts)


@pytest.mark.parametrize(
    "change",
    [
        lambda world: {"mark": process_mark(os.getpid())},  # its driver lives
        lambda world: {"mark": with_part(world.mark, 2, "00000000")},  # before the machine was started again
        lambda world: {"mark": with_part(world.mark, 3, "1")},  # in a container: who knows what the number is there
        lambda world: {"mark": world.mark.rpartition(".")[0]},  # of an earlier version
        lambda world: {"mark": dead_driver()},  # of another driver than the one that died with the lock
        lambda world: {"mark": "nonsense"},
        lambda world: {"root": world.root.parent / "other"},  # whose lock is held or not there
    ],
    ids=["lives", "boot", "namespace", "old", "other", "nonsense", "experiment"],
)
def test_whatever_is_not_sure_is_left_alone(world, change):
    left = world.leave(**change(world))
    assert world.end() == []
    assert left.poll() is None
    assert world.notices == []


def test_a_sweep_that_is_driven_in_a_leftover_spares_its_own_kind(world, monkeypatch):
    left = world.leave()
    monkeypatch.setenv("SWEEP_DRIVER", world.mark)
    assert world.end() == []
    assert left.poll() is None


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root, to become another user")
def test_another_users_process_is_left_alone(world):
    left = world.leave(before=("setpriv", "--reuid=54322", "--clear-groups", "--inh-caps=+dac_override",
                               "--ambient-caps=+dac_override"))  # fmt: skip
    assert world.end() == []
    assert left.poll() is None


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root, for a PID namespace")
def test_what_runs_in_another_namespace_is_left_alone(world):
    left = world.leave(before=("unshare", "--pid", "--fork", "--kill-child"))
    # unshare itself is of this namespace, and it is ended; what it has started is of another.
    children = Path(f"/proc/{left.pid}/task/{left.pid}/children").read_text().split()
    assert world.end() == [left.pid]
    assert len(children) == 1


def test_the_signal_goes_only_to_what_was_looked_at(world, monkeypatch):
    """A number that is given away between the look and the signal: the pidfd is of the process that is gone."""
    gone = subprocess.Popen(["sleep", "1000"])
    left = world.leave()
    real = os.pidfd_open
    stale = real(gone.pid)
    gone.kill()
    gone.wait()
    monkeypatch.setattr(os, "pidfd_open", lambda pid: os.dup(stale) if pid == left.pid else real(pid))
    assert world.end() == []
    assert left.poll() is None
    os.close(stale)


def test_a_mark_of_a_living_process_is_not_dead():
    assert not is_dead(process_mark(os.getpid()))
    assert is_dead(dead_driver())


# --- whole sweeps, in a PID namespace --------------------------------------------------------------------------------

SCRIPT = """
import os, subprocess, sys, time
import sweep

def train(config):
    if not os.path.exists("has_left"):
        os.mkdir("has_left")
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
        if os.fork() == 0:
            os.setsid()
            time.sleep(1000)
            os._exit(0)
        open("ready", "w").close()
        time.sleep(1000)
    sweep.report(x=1)

if __name__ == "__main__":
    if sys.argv[2:] == ["resume, killed"]:
        from sweep.record.lock import DriverLock
        write = DriverLock._write
        def die(*args, **more):
            write(*args, **more)
            os.kill(os.getpid(), 9)
        DriverLock._write = die
    sweep.run(train, name=sys.argv[1], storage_path="store", num_samples=1, nodes=[sweep.Node(cpus=1)],
              resume=len(sys.argv) > 2, **eval(os.environ.get("OPTIONS", "{}")))
"""

# Kills the driver, its fork server and its supervisors at once, and has the next driver come.
PLAY = """
import os, signal, subprocess, sys, time
from pathlib import Path

def children(pid):
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

def all_but_us():
    own = {1, os.getpid()}
    return {int(one.name) for one in Path("/proc").iterdir() if one.name.isdigit()} - own

first, second = eval(sys.argv[1]), eval(sys.argv[2])
driver = subprocess.Popen(first)
while not os.path.exists("ready"):
    time.sleep(0.01)
os.remove("ready")
fork_servers = children(driver.pid)
supervisors = [supervisor for fork_server in fork_servers for supervisor in children(fork_server)]
for pid in (driver.pid, *fork_servers, *supervisors):
    os.kill(pid, signal.SIGSTOP)
for pid in (driver.pid, *fork_servers, *supervisors):
    os.kill(pid, signal.SIGKILL)
driver.wait()
give_up = time.monotonic() + 10
def left():
    found = []
    for pid in all_but_us():
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                found.append(pid)
        except OSError:
            pass
    return found
while len(left()) > 2 and time.monotonic() < give_up:
    time.sleep(0.01)
print("left before", len(left()), flush=True)
for command in second:
    subprocess.run(command, check=False)
print("left after", len(left()), flush=True)
"""


@pytest.mark.parametrize(
    "options",
    [
        pytest.param("{}", id="forkserver"),
        pytest.param("{'start_method': 'spawn'}", marks=pytest.mark.slow, id="spawn"),
    ],
)
@pytest.mark.parametrize(
    "how", ["resume", *(pytest.param(how, marks=pytest.mark.slow) for how in ("another", "resume, killed"))]
)
def test_daemons_of_a_driver_that_was_killed_with_its_helpers_are_ended_by_the_next(tmp_path, how, options):
    (tmp_path / "script.py").write_text(SCRIPT)
    first = [sys.executable, "script.py", "one"]
    second = [[sys.executable, "script.py", *(["two"] if how == "another" else ["one", how])]]
    if how == "resume, killed":  # as soon as it holds the lock, and knows of nothing
        second.append([sys.executable, "script.py", "one", "resume"])
    found = census(tmp_path, sys.executable, "-c", PLAY, repr(first), repr(second), OPTIONS=options)
    assert "left before 2\n" in found.out, found
    assert "left after 0\n" in found.out, found
    if how == "resume, killed":
        return
    (notice,) = [line for line in found.err.splitlines() if "had left running" in line]
    assert notice.startswith("sweep: ended 2 processes that trials of killed drivers had left running: ")
    assert "sleep 1000 [" in notice


@pytest.mark.slow
def test_the_command_line_ends_them_too_when_it_resumes(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "sweep.cli.main"]
    first = [*command, "run", "script.py:train", "x=choice(1,2)", "--trials", "1", "--name", "one"]
    second = [*command, "resume", "one"]
    found = census(tmp_path, sys.executable, "-c", PLAY, repr(first), repr([second]))
    assert "left before 2\n" in found.out, found
    assert found.err.count(" of one") >= 1, found
