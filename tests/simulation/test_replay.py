"""Replaying a record: real runs come out as recorded, and what does not is named."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from every_policy import SCHEDULERS, SEARCHERS, world_of

import sweep
from searchers import BOHBSearch
from sweep.cli.main import sweep as command
from sweep.errors import ExperimentError
from sweep.simulation.rerun import rerun

SPACE = {"x": sweep.uniform(0, 1), "lr": sweep.loguniform(1e-4, 1e-1)}


class Climbs(sweep.Trainable):
    """Falls towards its x; saves when asked."""

    def setup(self, config: dict[str, Any]) -> None:
        self.x, self.done = config["x"], 0

    def step(self) -> dict[str, Any]:
        self.done += 1
        return {"loss": self.x + 1 / self.done, "done": self.done >= 9}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "done").write_text(str(self.done))

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        self.done = int(Path(checkpoint_dir, "done").read_text())


def run(storage: Path, **arguments: Any) -> Path:
    given = {"config": SPACE, "num_samples": 8, "metric": "loss", "mode": "min", "seed": 1, "engine": "inline"}
    analysis = sweep.run(Climbs, name="made", storage_path=str(storage), verbose=0, **{**given, **arguments})
    return Path(analysis.experiment_path)


@pytest.mark.parametrize(
    "arguments",
    [
        {"scheduler": "asha", "search_alg": "tpe"},
        {"scheduler": sweep.HyperBandScheduler(max_t=9), "search_alg": "qmc", "num_samples": 10},
        {"scheduler": sweep.MedianStoppingRule("training_iteration", grace_period=1), "max_concurrent_trials": 2},
        {"search_alg": sweep.Repeater(sweep.OptunaSearch(), repeat=2), "stop": lambda trial_id, result: result["x"]},
    ],
    ids=["asha and tpe", "hyperband and qmc", "median and a limit", "repeated, with a stop function that fails"],
)
def test_a_run_comes_out_as_recorded(tmp_path: Path, arguments: dict[str, Any]) -> None:
    try:
        run(tmp_path, **arguments)
    except sweep.errors.UserCodeError:
        assert callable(arguments["stop"])
    found = sweep.replay(tmp_path / "made")
    assert found.differences == []
    assert found.is_same
    assert found.num_runs == 1
    assert found.num_events > 5
    assert found.num_suggestions >= 1


def test_several_runs_of_processes_come_out_as_recorded(tmp_path: Path) -> None:
    mutations = {"lr": sweep.loguniform(1e-4, 1e-1)}
    arguments: dict[str, Any] = {
        "scheduler": sweep.PopulationBasedTraining(
            time_attr="training_iteration", perturbation_interval=2, hyperparam_mutations=mutations
        ),
        "engine": "local",
        "nodes": [sweep.Node(cpus=2)],
    }
    run(tmp_path, **arguments, num_samples=3)
    arguments["scheduler"] = sweep.PopulationBasedTraining(
        time_attr="training_iteration", perturbation_interval=2, hyperparam_mutations=mutations
    )
    root = run(tmp_path, **arguments, num_samples=5, resume=True)
    found = sweep.replay(root)
    assert found.differences == []
    assert found.num_runs == 2


class Sized(Climbs):
    """Reports another objective, too; a function of its config alone."""

    def step(self) -> dict[str, Any]:
        return super().step() | {"size": self.config["layers"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheduler", "searcher"),
    [(name, "variants") for name in SCHEDULERS] + [(name, other) for name in ("asha", "bohb") for other in SEARCHERS],
)
def test_processes_under_every_policy_come_out_as_recorded(tmp_path: Path, scheduler: str, searcher: str) -> None:
    space, num_samples = world_of(searcher)
    search_alg = SEARCHERS[searcher]()
    is_of_two = scheduler == "moasha"  # it is told of both objectives by itself
    analysis = sweep.run(
        Sized,
        config=space,
        num_samples=num_samples,
        search_alg=search_alg,
        scheduler=SCHEDULERS[scheduler](),
        metric=None if is_of_two else "loss",
        mode=None if is_of_two else "min",
        seed=1,
        nodes=[sweep.Node(cpus=4)],
        reuse_actors=True,
        storage_path=str(tmp_path),
        name="made",
        verbose=0,
    )
    assert {trial.status for trial in analysis.trials} == {"TERMINATED"}
    root = Path(analysis.experiment_path)
    found = sweep.replay(root)
    assert found.differences == []
    assert found.num_events > 20
    assert rerun(root).difference is None


def test_a_searcher_that_does_not_count_paused_trials_decides_again_as_it_did(tmp_path: Path) -> None:
    root = run(tmp_path, search_alg=BOHBSearch(max_concurrent=2), scheduler=sweep.HyperBandForBOHB(max_t=9))
    assert rerun(root, trainable=Climbs).difference is None


def changed(root: Path, change: Callable[[sqlite3.Connection], None]) -> None:
    db = sqlite3.connect(root / "sweep.db")
    change(db)
    db.commit()
    db.close()


def test_what_comes_out_differently_is_named(tmp_path: Path) -> None:
    root = run(tmp_path, scheduler="asha")

    def lie(db: sqlite3.Connection) -> None:
        seq, commands = db.execute("SELECT seq, commands FROM event WHERE commands LIKE '%\"Stop\"%'").fetchone()
        rows = [row for row in json.loads(commands) if row[0] != "Stop"]
        db.execute("UPDATE event SET commands = ? WHERE seq = ?", (json.dumps(rows), seq))
        (trial,) = db.execute("SELECT trial_id FROM event WHERE kind = 'Suggested' LIMIT 1").fetchone()
        db.execute(
            "UPDATE event SET data = replace(data, '\"x\"', '\"y\"') WHERE kind = 'Suggested' AND trial_id = ?",
            (trial,),
        )

    changed(root, lie)
    found = sweep.replay(root)
    assert not found.is_same
    assert found.num_differences == len(found.differences) == 2
    asked, stopped = found.differences
    assert asked.what.startswith("the searcher was asked for ")
    assert set(asked.then) == {"y", "lr"}
    assert set(asked.now) == {"x", "lr"}
    assert stopped.what.startswith("Reported ")
    assert [row[0] for row in stopped.now] == [row[0] for row in stopped.then] + ["Stop"]
    assert str(stopped).startswith(f"event {stopped.seq}, Reported ")


def test_another_searcher_or_scheduler_is_compared_when_it_is_given(tmp_path: Path) -> None:
    root = run(tmp_path, scheduler="asha")
    assert not sweep.replay(root, scheduler="fifo").is_same
    assert sweep.replay(root, scheduler=sweep.ASHAScheduler(), config=SPACE).is_same


def test_what_is_not_in_the_directory_must_be_given(tmp_path: Path) -> None:
    root = run(tmp_path, config={"x": 0.5})
    assert sweep.replay(root).is_same
    with pytest.raises(ExperimentError, match="was run with a space of x, and what is known here has lr, x"):
        sweep.replay(root, config=SPACE)
    (root / "tuner.pkl").unlink()
    with pytest.raises(ExperimentError, match=r"has no tuner.pkl"):
        sweep.replay(root)
    with pytest.raises(ExperimentError, match="there is no experiment"):
        sweep.replay(tmp_path / "nowhere")


def call(root: Path, *arguments: str) -> Any:
    return CliRunner().invoke(command, [*arguments, "--storage", str(root.parent)])


def test_the_command_shows_facts_and_decides_again(tmp_path: Path) -> None:
    root = run(tmp_path, scheduler="asha")
    shown = call(root, "replay", "made").output.splitlines()
    assert "PlanChanged" in shown[0]
    assert any("Suggested    00003  x=" in line for line in shown)
    assert any("Reported     00000  #1 loss=" in line for line in shown)
    assert any("Exited       00000  FINISHED" in line or "Exited       00000  STOPPED" in line for line in shown)
    only = call(root, "replay", "made", "--trial", "3").output.splitlines()
    assert 0 < len(only) < len(shown)
    assert all("00003" in line for line in only)
    verified = call(root, "replay", "made", "--verify")
    assert verified.exit_code == 0
    assert verified.output.endswith(" 8 suggestions that followed: all as recorded\n")

    changed(root, lambda db: db.execute("UPDATE event SET commands = '[]' WHERE kind = 'Exited'") and None)
    verified = call(root, "replay", "made", "--verify")
    assert verified.exception is None or isinstance(verified.exception, SystemExit)
    assert "8 came out differently\n  event " in verified.output
