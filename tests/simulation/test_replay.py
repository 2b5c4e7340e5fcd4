"""Replaying a record: real runs come out as recorded, and what does not is named."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from every_policy import SCHEDULERS, SEARCHERS, world_of
from sealed import changed

import sweep
from searchers import BOHBSearch, ConcurrencyLimiter
from searchers.base import NOT_NOW
from sweep.cli.main import sweep as command
from sweep.core.messages import Ask, Asked, Event, Suggested
from sweep.engines.simulator import Point, Simulator
from sweep.errors import ExperimentError
from sweep.record.facts import read_facts
from sweep.record.resume import retell
from sweep.schedulers.fifo import FIFOScheduler
from sweep.simulation.replay import rerun

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


def run(storage: Path, trainable: Any = Climbs, **arguments: Any) -> Path:
    given: dict[str, Any] = {"config": SPACE, "num_samples": 8, "metric": "loss", "mode": "min", "seed": 1}
    given |= {"name": "made", "engine": "inline", "verbose": 0, "raise_on_failed_trial": False}
    return Path(sweep.run(trainable, storage_path=str(storage), **{**given, **arguments}).experiment_path)


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
    for num_samples, resume in ((3, False), (5, True)):
        scheduler = sweep.PopulationBasedTraining(
            time_attr="training_iteration",
            perturbation_interval=2,
            hyperparam_mutations={"lr": sweep.loguniform(1e-4, 1e-1)},
        )
        machine = [sweep.Node(cpus=2)]
        run(tmp_path, scheduler=scheduler, engine="local", nodes=machine, num_samples=num_samples, resume=resume)
    found = sweep.replay(tmp_path / "made")
    assert found.differences == []
    assert found.num_runs == 2


class Sized(Climbs):
    """Reports another objective, too; a function of its config alone."""

    def step(self) -> dict[str, Any]:
        return super().step() | {"size": self.config["layers"]}


@pytest.mark.parametrize(
    ("scheduler", "searcher"),
    [
        *((name, "variants") for name in ("hyperband", "median", "pb2")),
        *(pytest.param(name, "variants", marks=pytest.mark.slow) for name in SCHEDULERS),
        *(pytest.param(name, other, marks=pytest.mark.slow) for name in ("asha", "bohb") for other in SEARCHERS),
    ],
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


def test_a_searcher_that_does_not_count_paused_trials_is_told_of_them_by_a_resume(tmp_path: Path) -> None:
    root = run(tmp_path, search_alg=BOHBSearch(), max_concurrent_trials=2, scheduler=sweep.HyperBandForBOHB(max_t=9))
    facts = list(read_facts(root / "sweep.db"))
    answers = [f for f in facts if isinstance(f.event, Suggested) and isinstance(f.event.config, Mapping)]
    third = answers[2]  # two are alive, and it was suggested: they are paused
    pauses = [f.seq for f in facts if any(row[:2] == ["Notify", "trial_pause"] for row in f.caused or ())]
    assert pauses[0] < third.seq
    for before, is_heard in ((pauses[0], False), (third.seq, True)):
        searcher = ConcurrencyLimiter(BOHBSearch(), 2)
        assert searcher.set_search_properties("loss", "min", SPACE, num_samples=8, seed=1)
        retell(root / "sweep.db", FIFOScheduler(), searcher, before=before)
        answer = searcher.suggest(third.event.trial_id)
        assert answer == (dict(third.event.config) if is_heard else NOT_NOW)


class Hangs(Climbs):
    """Takes too long over its third step if its x is large."""

    def step(self) -> dict[str, Any]:
        if self.config["x"] > 0.5 and self.done == 2:
            time.sleep(60)
        return super().step()


def test_trials_that_were_killed_are_killed_again(tmp_path: Path) -> None:
    analysis = sweep.run(
        Hangs,
        config={"x": sweep.grid_search([0.1, 0.9])},
        metric="loss",
        mode="min",
        storage_path=str(tmp_path),
        verbose=0,
        trial_timeout_s=1,
        raise_on_failed_trial=False,
        nodes=[sweep.Node(cpus=2)],
    )
    assert [trial.status for trial in analysis.trials] == ["TERMINATED", "ERROR"]
    found = rerun(analysis.experiment_path)
    assert found.difference is None
    assert found.num_runs == 1


class Drained(Simulator):
    """Somebody asks for no more trials after the first reports."""

    has_asked = False

    def next_events(self, deadline: float | None) -> Sequence[Event]:
        if self.now() == 2.0 and not self.has_asked:
            self.has_asked = True
            self.post(Asked(Ask.DRAIN))
        return super().next_events(deadline)


def test_what_somebody_asked_for_is_asked_again(tmp_path: Path) -> None:
    machine = [sweep.Node(cpus=1)]
    curve = [Point(1.0, {"loss": 1 / (step + 1)}) for step in range(3)]
    root = run(tmp_path, engine=Drained(lambda config, done: iter(curve), machine), nodes=machine)
    assert any(isinstance(fact.event, Asked) for fact in read_facts(root / "sweep.db"))
    found = rerun(root)
    assert found.difference is None
    assert found.seconds == 3.0


def test_what_comes_out_differently_is_named(tmp_path: Path) -> None:
    root = run(tmp_path, scheduler="asha")
    with changed(root / "sweep.db") as db:
        seq, commands = db.execute("SELECT seq, commands FROM events WHERE commands LIKE '%\"Stop\"%'").fetchone()
        rows = [row for row in json.loads(commands) if row[0] != "Stop"]
        change = "UPDATE event SET data = json_set(data, '$.commands', json(?)) WHERE seq = ?"
        db.execute(change, (json.dumps(rows), seq))
        (first,) = db.execute("SELECT min(seq) FROM events WHERE kind = 'Suggested'").fetchone()
        db.execute(f"UPDATE event SET data = replace(data, '\"x\"', '\"y\"') WHERE seq = {first}")
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
    as_json = [json.loads(line) for line in call(root, "replay", "made", "--json").output.splitlines()]
    assert len(as_json) == len(shown)
    assert as_json[0].keys() == {"at", "fact", "trial", "about", "commands"}
    assert json.loads(call(root, "replay", "made", "--verify", "--json").stdout)["is_same"] is True
    verified = call(root, "replay", "made", "--verify")
    assert verified.exit_code == 0
    assert verified.output.endswith(" 8 suggestions that followed: all as recorded\n")

    with changed(root / "sweep.db") as db:
        db.execute(
            "UPDATE event SET data = json_set(data, '$.commands', json('[]')) WHERE data LIKE '{\"kind\":\"Exited\"%'"
        )
    verified = call(root, "replay", "made", "--verify")
    assert verified.exception is None or isinstance(verified.exception, SystemExit)
    assert "8 came out differently\n  event " in verified.output
