"""Experiments of other tools as experiments of ours."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

import sweep
from searchers import loguniform
from sweep import ExperimentAnalysis
from sweep.core.history import History
from sweep.errors import ConfigError, ExperimentError
from sweep.foreign.record import record_foreign
from sweep.foreign.sources import Foreign, ForeignTrial
from sweep.record.facts import read_facts
from sweep.record.journal import Journal
from sweep.record.reader import ExperimentReader, list_experiments
from sweep.requests.attached import Attached
from sweep.simulation.curves import Curves
from sweep.simulation.replay import replay
from sweep.simulation.virtual import simulate

T0 = 1_700_000_000.0


def trial(lr: float, start: float, *losses: float, error: str = "", is_pruned: bool = False) -> ForeignTrial:
    reports = [(2.0, {"loss": loss}) for loss in losses]
    return ForeignTrial({"lr": lr}, T0 + start, reports, 1.0, error, is_pruned, name=f"run-{lr}")


TRIALS = [
    trial(0.3, 100.0, 3.0, is_pruned=True),  # after a pause in which nothing ran
    trial(0.1, 0.0, 2.0, 1.0),
    trial(0.2, 0.0, 5.0, error="ValueError: boom"),
    trial(0.4, 4.0, 4.0, 0.5),
    trial(0.5, 100.0),
    trial(0.6, 103.0, float("nan")),  # when the place of 0.3 comes free
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    foreign = Foreign("Optuna", "digits", TRIALS, "loss", "min", {"lr": loguniform(0.01, 1.0)})
    return record_foreign(foreign, "study.db", name=None, storage=str(tmp_path))


def test_the_record_has_the_trials_with_their_states_values_and_times(root: Path, tmp_path: Path) -> None:
    reader, analysis = ExperimentReader(root), ExperimentAnalysis(root)
    assert [path.name for path in tmp_path.iterdir()] == ["digits"]
    assert (reader.state(), reader.name, reader.metric, reader.mode) == ("ended", "digits", "loss", "min")
    assert [(row.trial_name, row.state, row.count) for row in reader.trials()] == [
        ("run-0.1", "finished", 2),
        ("run-0.2", "failed", 1),
        ("run-0.4", "finished", 2),
        ("run-0.3", "stopped early", 1),
        ("run-0.5", "finished", 0),
        ("run-0.6", "finished", 1),
    ]
    frame = analysis.dataframe(full=True)
    assert [time.timestamp() - T0 for time in frame["start_time"]] == [0.0, 0.0, 4.0, 100.0, 100.0, 103.0]
    assert [time.timestamp() - T0 for time in frame["end_time"]] == [5.0, 3.0, 9.0, 103.0, 101.0, 106.0]
    assert frame["error"].dropna().tolist() == ["ValueError: boom"]
    assert frame["wait_s"].max() < 1e-5
    assert analysis.best_config == {"lr": 0.4}
    assert len(History.of(read_facts(reader.layout.database)).attempts) == 6
    imported = reader.meta["imported"]
    assert (imported["tool"], imported["source"]) == ("Optuna", "study.db")


def test_it_has_as_many_places_as_ever_ran_at_a_time(root: Path) -> None:
    (*_, nodes) = (fact.event.nodes for fact in read_facts(root / "sweep.db") if hasattr(fact.event, "nodes"))
    assert len(nodes) == 2


def test_it_can_be_decided_again_and_simulated_and_be_learned_from(root: Path, tmp_path: Path) -> None:
    found = replay(root)
    assert found.is_same, found.difference
    simulated = simulate(Curves.from_experiment(root))
    assert simulated.best_trial is not None
    assert simulated.best_trial.config == {"lr": 0.4}
    given = {"config": {"lr": loguniform(0.01, 1.0)}, "metric": "loss", "mode": "min", "search_alg": "tpe"}
    more = sweep.run(
        lambda config: sweep.report(loss=config["lr"]),
        **given,
        warm_start=str(root),
        engine="inline",
        num_samples=1,
        verbose=0,
        name="more",
        storage_path=tmp_path,
    )
    assert len(more.trials) == 1


def test_it_cannot_go_on(root: Path, tmp_path: Path) -> None:
    said = "digits was imported .Optuna, study.db.: .* warm_start="
    with pytest.raises(ExperimentError, match=said):
        sweep.run(lambda config: None, name="digits", storage_path=tmp_path, resume=True, verbose=0)
    for verb in ("retry", "resume"):
        with pytest.raises(ExperimentError, match=said):
            Attached(ExperimentReader(root)).ask(verb)
    assert not (root / "requests").exists()


def test_what_cannot_be_recorded_leaves_nothing(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = Foreign("W&B", "digits", TRIALS)
    with pytest.raises(ExperimentError, match="holds digits: give another"):
        record_foreign(foreign, "runs.csv", name=None, storage=str(tmp_path))
    with pytest.raises(ConfigError, match="no trial that ever began"):
        record_foreign(foreign._replace(trials=[]), "runs.csv", name="none", storage=str(tmp_path))
    monkeypatch.setattr("sweep.foreign.record.drive", no_space)
    with pytest.raises(ExperimentError, match=r"cannot hold it, and has none of it: .*No space"):
        record_foreign(foreign, "runs.csv", name="broken", storage=str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["digits"]


def test_an_import_does_not_wait_for_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Journal, "_transaction", refuse)
    with pytest.raises(ExperimentError, match="and has none of it: database or disk is full"):
        record_foreign(Foreign("W&B", "runs", TRIALS), "runs.csv", name=None, storage=str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_import_leaves_is_no_sweep(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root, tmp_path / ".importing-abcde")
    assert [path.name for path in list_experiments(tmp_path)] == ["digits"]


def no_space(*given: object, **named: object) -> None:
    raise OSError(28, "No space left on device")


def test_many_that_failed_alike_and_no_metric_at_all_are_recorded(tmp_path: Path) -> None:
    trials = [trial(number / 10, number, error="failed in W&B") for number in range(12)]
    root = record_foreign(Foreign("W&B", "runs", trials), "runs.csv", name="mine", storage=str(tmp_path))
    reader = ExperimentReader(root)
    assert (reader.root.name, reader.metric, len(reader.trials())) == ("mine", None, 12)
    assert {row.state for row in reader.trials()} == {"failed"}
    assert replay(root).is_same
