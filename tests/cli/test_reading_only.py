"""Commands that read write nothing beside the record, and work where nothing can be written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from mounts import with_mounts

import sweep
from sweep import CheckpointConfig, ExperimentAnalysis, Result, RunConfig, TuneConfig, Tuner
from sweep.cli.main import COMMANDS, _run
from sweep.record.reader import ExperimentReader

ROOT = Path(__file__).parents[2]
ASKING = {"stop", "cancel", "pause", "retry", "enqueue", "edit"}  # a sweep that runs
WRITING = {"run", "agent", "plan", "new", "resume", "confirm", "migrate", "note", "doctor", "import", "rm"} | ASKING
SERVING = {"dashboard", "watch", "mcp"}  # until Ctrl-C: their own tests see that they leave everything as it was
READING: dict[str, list[list[str]]] = {
    "ls": [["ls"], ["ls", "one"]],
    "trials": [["trials", "one"], ["trials", "one", "--format", "json"]],
    "nodes": [["nodes", "one"]],
    "best": [["best", "one"], ["best", "one", "--scope", "all"], ["best", "one", "--require", "loss<9"]],
    "show": [["show", "one"], ["show", "one", "0"]],
    "logs": [["logs", "one", "0"]],
    "why": [["why", "one"]],
    "html": [["html", "one"]],
    "compare": [["compare", "one", "two"]],
    "export": [["export", "one", "-o", "one.csv"]],
    "replay": [["replay", "one"], ["replay", "one", "--trial", "0"], ["replay", "one", "--verify"]],
    "simulate": [["simulate", "one", "--scheduler", "asha"]],
    "schema": [["schema"], ["schema", "trials"]],
    "completion": [["completion", "zsh"]],
}
LINES = [line for lines in READING.values() for line in lines]


class Saves(sweep.Trainable):
    def step(self):
        return {"loss": self.config["x"] / (self.iteration + 1)}

    def save_checkpoint(self, checkpoint_dir):
        return {"x": 1}

    def load_checkpoint(self, checkpoint):
        pass


class Copy(sweep.Callback):
    """Copies the experiment while it is driven, as what a killed driver would leave."""

    def __init__(self, to: Path) -> None:
        self.to = to

    def on_trial_complete(self, trial):
        if not self.to.exists():
            shutil.copytree(self.source, self.to)

    def setup(self, *, experiment_dir, plan, num_trials, **info):
        self.source = experiment_dir


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where one sweep lies that has ended, and a copy of it as it was while it ran."""
    root = tmp_path_factory.mktemp("made")
    tuner = Tuner(
        Saves,
        param_space={"x": sweep.grid_search([1.0, 2.0])},
        tune_config=TuneConfig(metric="loss", mode="min", max_concurrent_trials=1),
        run_config=RunConfig(
            name="one",
            storage_path=str(root / "ended"),
            stop={"training_iteration": 3},
            callbacks=[Copy(root / "killed" / "one")],
            checkpoint_config=CheckpointConfig(checkpoint_frequency=1),
            verbose=0,
        ),
    )
    tuner.fit()
    names = set(os.listdir(root / "killed" / "one"))
    assert {"sweep.db", "sweep.db-wal", "sweep.db-shm"} <= names
    for state in ("ended", "killed"):
        shutil.copytree(root / state / "one", root / state / "two")
    return root


def as_ended(made: Path, to: Path) -> None:
    shutil.copytree(made / "ended", to)


def as_killed(made: Path, to: Path) -> None:
    shutil.copytree(made / "killed", to)


def without_index(made: Path, to: Path) -> None:
    shutil.copytree(made / "killed", to)
    (to / "one" / "sweep.db-shm").unlink()


def without_log(made: Path, to: Path) -> None:
    """As copied by somebody who took `sweep.db` alone: an older state, here one whose log was folded in before."""
    shutil.copytree(made / "ended", to)
    (to / "one" / "sweep.db-wal").touch()


STATES: list[Callable[[Path, Path], None]] = [as_ended, as_killed, without_index, without_log]


OFTEN = (as_killed, without_log)  # the others with the slow tests


@pytest.fixture(
    params=[pytest.param(state, marks=() if state in OFTEN else pytest.mark.slow) for state in STATES],
    ids=[state.__name__ for state in STATES],
)
def storage(request: pytest.FixtureRequest, made: Path, tmp_path: Path) -> Path:
    request.param(made, tmp_path / "storage")
    return tmp_path / "storage"


def listing(root: Path) -> dict[str, tuple[int, int, int]]:
    """Return every file and directory below, with what changes when somebody writes."""
    found = {}
    for path in (root, *root.rglob("*")):
        state = path.stat()
        found[str(path.relative_to(root))] = (state.st_mtime_ns, state.st_size, state.st_ino)
    return found


def test_every_command_either_reads_or_is_there_to_write() -> None:
    assert READING.keys() | WRITING | SERVING == COMMANDS.keys()


def test_commands_and_python_that_read_leave_the_directory_as_it_was(
    storage: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEEP_STORAGE", str(storage))
    monkeypatch.chdir(storage.parent)
    before = listing(storage)
    for line in LINES:
        assert _run(line) == 0, (line, capsys.readouterr().err)
        assert listing(storage) == before, line
    assert read_all(storage / "one")[0] == "TERMINATED"
    assert listing(storage) == before


def read_all(root: Path) -> list[str]:
    """Look at everything that Python gives of an experiment; return the states of its trials."""
    analysis = ExperimentAnalysis(str(root), default_metric="loss", default_mode="min")
    assert len(analysis.dataframe()) == len(analysis.trials)
    assert analysis.best_config is not None
    checkpoint = analysis.get_best_checkpoint(analysis.get_best_trial())
    assert checkpoint is not None
    with checkpoint.as_directory() as directory:
        assert os.listdir(directory)
    shutil.rmtree(checkpoint.to_directory())
    assert analysis.history() is not None
    assert analysis.events() is not None
    grid = Tuner.restore(str(root), Saves).get_results()
    assert grid[0].metrics["loss"] == analysis.trials[0].last_result["loss"]
    assert len(grid) == len(analysis.trials)
    assert Result.from_path(grid[0].path).metrics["loss"] == grid[0].metrics["loss"]
    assert ExperimentReader(root).state() in ("ended", "crashed", "stopped", "running")
    return [trial.status for trial in analysis.trials]


INSIDE = """
import os, sys
from sweep.cli.main import _run
from test_reading_only import LINES, read_all
from pathlib import Path
from sweep.errors import ExperimentError
import sweep, test_reading_only

for storage in sys.argv[1:]:
    os.environ["SWEEP_STORAGE"] = storage
    for line in LINES:
        assert _run(line) == 0, (storage, line)
    assert read_all(Path(storage, "one"))[0] == "TERMINATED"
    for again in (
        lambda: sweep.run(test_reading_only.Saves, name="one", storage_path=storage, resume=True, verbose=0),
        lambda: sweep.Tuner.restore(f"{storage}/one", test_reading_only.Saves).fit(),
    ):
        try:
            again()
        except ExperimentError as error:
            assert "cannot be written" in str(error), error
            assert "copy" in str(error), error
        else:
            raise AssertionError("it went on where nothing can be written")
print("all well")
"""


@pytest.mark.slow
def test_everything_can_be_read_on_a_read_only_mount_and_nothing_resumed(made: Path, tmp_path: Path) -> None:
    mounts, places = [], []
    for state in STATES:
        place = tmp_path / state.__name__
        state(made, place)
        mounts += [f"mount --bind {place} {place}", f"mount -o remount,ro,bind {place}"]
        places.append(str(place))
    found = subprocess.run(
        with_mounts(mounts, [sys.executable, "-c", INSIDE, *places]),
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}:{Path(__file__).parent}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-4000:]
    assert found.stdout.endswith("all well\n")
    assert not [line for line in found.stderr.splitlines() if "Traceback" in line]


def test_the_latest_commit_of_a_living_driver_is_read(tmp_path: Path) -> None:
    seen: list[int] = []

    class Look(sweep.Callback):
        def on_trial_result(self, trial, result):
            seen.append(len(ExperimentAnalysis(tmp_path / "live").trial_dataframes[trial.id]))

    given = {"stop": {"training_iteration": 3}, "engine": "inline", "callbacks": [Look()], "verbose": 0}
    sweep.run(Saves, config={"x": 1.0}, name="live", storage_path=tmp_path, **given)
    assert seen[-1] == 3  # callbacks hear what is committed
    assert seen[0] >= 1
