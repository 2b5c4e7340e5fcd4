"""What the file system does to a sweep that runs: its directory is deleted or moved, its disk is full."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mounts import with_mounts
from orphans import MARK, wait_until_gone

import sweep
from sweep.errors import RecordError

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the process model is tested on Linux")

SCRIPT = """
import json, os, sys, tempfile, time
import numpy
import sweep
from lanes_programs import Climbs

SAVING = {"stop": {"training_iteration": 3}, "checkpoint_config": sweep.CheckpointConfig(checkpoint_frequency=1)}

def silent(config):
    print("here", flush=True)
    time.sleep(1000)

def saves(config):
    for step in range(1, 4):
        with tempfile.TemporaryDirectory() as directory:
            with open(directory + "/model", "wb") as file:
                file.write(bytes(400_000))
            sweep.report(step=step, checkpoint=sweep.Checkpoint(directory))

def files(config):
    with tempfile.TemporaryDirectory() as directory:
        for number in range(40):
            open(f"{directory}/{number}", "w").close()
        sweep.report(step=1, checkpoint=sweep.Checkpoint(directory))

class Saves(sweep.Trainable):
    def step(self):
        return {"loss": 1.0}
    def save_checkpoint(self, checkpoint_dir):
        with open(checkpoint_dir + "/model", "wb") as file:
            file.write(bytes(400_000))
    def load_checkpoint(self, checkpoint):
        pass

class Lanes(Climbs):
    num_lanes = 2
    def init(self, key, config):
        return {**super().init(key, {"x": 0.5}), "at": 0.5, "model": numpy.zeros(50_000)}
    def step(self, state, config, batch, key, index):
        return {**state}, {"loss": 1.0}

def prints(config):
    for step in range(1, 41):
        print("x" * 20_000)
        sweep.report(step=step)

FULL = os.path.join(os.path.dirname(__file__), "full")

def counts(config):
    for step in range(1, 41):
        while step == 5 and not os.path.exists(FULL):
            time.sleep(0.01)
        sweep.report(step=step)

def reports(config):
    print("here", flush=True)
    while True:
        sweep.report(step=1)

class Fill(sweep.Callback):
    is_done = False

    def on_trial_result(self, trial, result):
        if result["training_iteration"] == 3 and not Fill.is_done:
            Fill.is_done = True
            fill(0)
            open(FULL, "w").close()

def fill(left):
    with open("/mnt/filler", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            file.truncate(file.tell() - left)

def run(which, **more):
    options = {"num_samples": 2, "name": "one", "storage_path": "/mnt/st", "nodes": [sweep.Node(cpus=2)], "verbose": 0}
    options |= {"raise_on_failed_trial": False, "on_interrupt": "return"}
    analysis = sweep.run(globals()[which], **(options | more))
    found = [[trial.status, trial.last_result.get("training_iteration")] for trial in analysis.trials]
    failures = sum(row.failures for row in analysis._reader.trials())
    print(json.dumps([found, failures]), flush=True)
    return analysis
"""


class Started:
    """Programs that a test has started; nothing of them is left when it ends."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.mark = uuid.uuid4().hex
        self.running: list[subprocess.Popen[str]] = []

    def start(self, command: list[str]) -> subprocess.Popen[str]:
        env = {**os.environ, MARK: self.mark, "PYTHONPATH": f"{ROOT}:{ROOT}/tests:{self.directory}"}
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, cwd=self.directory, env=env, stdout=pipe, stderr=pipe, text=True)
        self.running.append(process)
        return process

    def start_on_small_disk(self, lines: str, options: str = "size=3m") -> subprocess.Popen[str]:
        """Run these lines after the script, with 3 MiB at /mnt that nobody else sees."""
        program = f"from script import *\n{lines}"
        return self.start(with_mounts([f"mount -t tmpfs -o {options} tmpfs /mnt"], [sys.executable, "-c", program]))


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    (tmp_path / "script.py").write_text(SCRIPT)
    made = Started(tmp_path)
    yield made
    for process in made.running:
        if process.poll() is None:
            process.kill()
        process.communicate()
    assert wait_until_gone(made.mark) == {}


def until(process: subprocess.Popen[str], words: str) -> str:
    """Read what a process says on standard error up to a line with these words, and return that."""
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if words in line:
            return line
    raise AssertionError(f"nothing of {words!r}:\n{''.join(seen)}")


# --- a directory that is gone ---


def delete(root: Path) -> None:
    while root.exists():  # trials write into it meanwhile
        shutil.rmtree(root, ignore_errors=True)


GONE: dict[str, Callable[[Path], object]] = {
    "st/one was deleted": delete,
    "st/two": lambda root: root.rename(root.parent / "two"),
    "sweep.db was deleted or replaced": lambda root: (root / "sweep.db").unlink(),
    "code was deleted or replaced": lambda root: shutil.rmtree(root / "code"),
    "driver.lock was deleted or replaced": lambda root: (root / "driver.lock").unlink(),
}


@pytest.mark.parametrize("which", ["silent", pytest.param("reports", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "said",
    [pytest.param(said, marks=() if said == "st/one was deleted" else pytest.mark.slow) for said in GONE],
)
def test_a_sweep_whose_directory_is_gone_ends_with_all_its_processes_and_one_message(
    started: Started, tmp_path: Path, which: str, said: str
) -> None:
    """Also when no trial ever reports."""
    options = ["--trials", "2", "--cpus", "0.5", "--storage", "st", "--name", "one", "--quiet"]
    process = started.start([sys.executable, "-m", "sweep.cli.main", "run", "script.py:" + which, *options])
    root = tmp_path / "st" / "one"
    while not any("here" in path.read_text() for path in root.glob("*/output.log")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    GONE[said](root)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    (line,) = err.splitlines()
    assert line.startswith("error: ")
    assert f"{said} while its sweep ran" in line
    assert out == ""
    assert wait_until_gone(started.mark) == {}
    assert root.exists() == (not said.startswith("st/")), list(root.rglob("*"))  # nothing makes it anew
    if said.startswith(("code", "driver")):
        assert {trial.failures for trial in sweep.ExperimentAnalysis(root).trials} == {0}
    if said == "st/two":
        # What trials made of it is not in the record: none of them failed.
        moved = sweep.ExperimentAnalysis(root.parent / "two")
        assert {trial.status for trial in moved.trials} <= {"RUNNING", "PENDING"}


def test_a_sweep_in_this_process_ends_when_its_directory_is_deleted(tmp_path: Path) -> None:
    def train(config: dict[str, object]) -> None:
        shutil.rmtree(tmp_path / "one")
        while True:
            sweep.report(loss=1.0)

    with pytest.raises(RecordError, match="was deleted while its sweep ran"):
        sweep.run(train, name="one", storage_path=tmp_path, engine="inline", verbose=0)


# --- a full disk ---


def make_room(process: subprocess.Popen[str]) -> None:
    os.unlink(f"/proc/{process.pid}/root/mnt/filler")


def assert_all_ended(process: subprocess.Popen[str], steps: int | None = None) -> str:
    """See that both trials end, after this many steps, and without a failure; return what else was said."""
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    trials, failures = json.loads(out.splitlines()[-1])
    assert [status for status, _ in trials] == ["TERMINATED"] * 2
    assert steps is None or [count for _, count in trials] == [steps] * 2
    assert failures == 0
    return err


@pytest.mark.parametrize(
    ("which", "more"),
    [
        ("saves", ""),
        pytest.param("Saves", ", **SAVING", marks=pytest.mark.slow),
        pytest.param("Lanes", ", **SAVING", marks=pytest.mark.slow),
        ("saves", ", engine='inline'"),
    ],
    ids=["a function", "a class", "lanes", "in one process"],
)
def test_a_trial_waits_for_room_and_goes_on_by_itself_without_a_failure(
    started: Started, which: str, more: str
) -> None:
    process = started.start_on_small_disk(f"fill(700_000); run({which!r}{more})")
    line = until(process, "waits for disk space")
    assert "does not fit into /mnt/st/one" in line
    assert line.endswith("Free some space and it goes on; Ctrl-C ends it\n")
    make_room(process)
    assert_all_ended(process)


# Two nodes that share only the bucket; the directory of the second one lies on the small disk.
NODES = """
sys.path.append(TESTS)
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from agent_processes import AgentProcesses

class Apart(AgentProcesses):
    def summon(self, node, invitation):
        cache = {"one": os.path.abspath("cache"), "two": "/mnt/cache"}[node]
        self._environ = {**os.environ, "SWEEP_SHARED_STORAGE": "0", "SWEEP_CACHE": cache}
        super().summon(node, invitation)

os.makedirs("bucket")
bucket = DirFileSystem(os.path.abspath("bucket"), LocalFileSystem())
nodes = Apart([sweep.Node("one", cpus=1), sweep.Node("two", cpus=1)])
fill(700_000)
run("saves", engine=nodes, nodes=None, storage_path="b", storage_filesystem=bucket)
"""


@pytest.mark.agents
def test_the_full_disk_of_a_node_is_named_with_the_node_and_what_runs_there_waits(started: Started) -> None:
    process = started.start_on_small_disk(NODES.replace("TESTS", repr(str(ROOT / "tests"))))
    line = until(process, "waits for disk space")
    assert " on two waits for disk space: a checkpoint of 391KiB does not fit into /mnt/cache" in line
    make_room(process)
    assert_all_ended(process, steps=3)


@pytest.mark.slow
def test_a_disk_without_inodes_is_no_disk_without_bytes(started: Started) -> None:
    process = started.start_on_small_disk(
        "os.mkdir('/mnt/filler')\nfor n in range(440): open(f'/mnt/filler/{n}', 'w').close()\nrun('files')",
        "size=20m,nr_inodes=500",
    )
    line = until(process, "waits for disk space")
    assert "inodes free, and each file takes one (df -i)" in line
    assert "MiB free" not in line
    shutil.rmtree(f"/proc/{process.pid}/root/mnt/filler")
    assert_all_ended(process)


@pytest.mark.parametrize(
    ("lines", "waits", "said"),
    [
        # what a trial prints: the record waits or the trial, whichever comes first
        pytest.param("fill(300_000); run('prints')", "Free some space and it goes on", "", marks=pytest.mark.slow),
        (
            "run('counts', callbacks=[Fill()])",
            "sweep.db cannot be written",
            "sweep.db can be written again: the sweep goes on",
        ),
    ],
    ids=["prints", "record"],
)
def test_what_waited_for_room_goes_on_by_itself(started: Started, lines: str, waits: str, said: str) -> None:
    process = started.start_on_small_disk(lines)
    until(process, waits)
    make_room(process)
    heard = assert_all_ended(process, steps=40)
    assert said in heard
    assert "Traceback" not in heard
    assert "switched off" not in heard


def test_log_files_are_whole_when_there_is_room_again(started: Started) -> None:
    """What could not be written is said once, and written later."""
    process = started.start_on_small_disk(
        "from sweep.logs import writer; writer._PERIOD_S = 0.01\n"
        "analysis = run('counts', callbacks=[Fill()], verbose=1)\n"
        "for trial in analysis.trials:\n"
        "    lines = [json.loads(line) for line in open(trial.path + '/result.json')]\n"
        "    rows = open(trial.path + '/progress.csv').read().splitlines()\n"
        "    assert [line['step'] for line in lines] == list(range(1, 41)), lines\n"
        "    assert len(rows) == 41, rows"
    )
    assert process.stdout is not None
    said = []
    while "sweep.db cannot be written" not in (line := process.stdout.readline()):
        said.append(line)
        assert line, said
    make_room(process)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "".join([*said, out]).count("log files in /mnt/st/one cannot be written (No space left") <= 1
    assert "Traceback" not in out + err


@pytest.mark.parametrize(
    ("engine", "number"),
    [
        ("local", signal.SIGINT),
        pytest.param("local", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("inline", signal.SIGINT, marks=pytest.mark.slow),
        ("inline", signal.SIGTERM),
        pytest.param("lanes", signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_a_wait_of_trials_for_room_ends_with_the_first_signal(
    started: Started, number: signal.Signals, engine: str
) -> None:
    which, more = ("Lanes", ", **SAVING") if engine == "lanes" else ("saves", "")
    process = started.start_on_small_disk(
        f"fill(700_000); run({which!r}, engine={engine!r}{more}); os.unlink('/mnt/filler')\n"
        f"run({which!r}, resume=True{more})"
    )
    until(process, "waits for disk space")
    process.send_signal(number)
    assert_all_ended(process)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_wait_of_the_record_for_room_ends_with_the_first_signal_and_nothing_is_lost(
    started: Started, number: signal.Signals
) -> None:
    process = started.start_on_small_disk(
        "run('counts', callbacks=[Fill()]); print('first', flush=True)\n"
        "os.unlink('/mnt/filler'); run('counts', resume=True)"
    )
    line = until(process, "sweep.db cannot be written")
    assert "database or disk is full" in line  # said at verbose=0, too
    process.send_signal(number)
    assert process.stdout is not None
    (first, failures), words = json.loads(process.stdout.readline()), process.stdout.readline()
    assert words == "first\n"
    assert {status for status, _ in first} <= {"RUNNING", "PENDING"}
    assert failures == 0
    said = assert_all_ended(process, steps=40)
    assert "until the sweep was interrupted" in said
    assert "Traceback" not in said
