"""What is read of other tools, from what they really write."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import optuna
import pytest

from searchers import qrandint, quniform, randint, uniform
from sweep.errors import ConfigError
from sweep.foreign.sources import Foreign, read_foreign

RUNS = """\
"Name","Agent","State","Notes","User","Tags","Created","Runtime","Sweep","batch_size","lr","model.depth","use_amp","best_epoch","eval/acc","val_loss"
"sun-3","","finished","-","me","","2025-11-13T09:48:11.000Z","9910","1wf","8","0.0001","3","true","7","0.91","0.32"
"sea-2","","crashed","-","me","a, b","2025-11-13T09:34:15.000Z","5902","1wf","16","0.001","2","false","2","0.5","0.9"
"hill-1","","failed","-","me","","2025-11-13T07:42:37.000Z","5691","1wf","8","0.01","2","false","","",""
"run-5","","running","-","me","","","","1wf","8","0.0004","","true","1","0.12","NaN"
"""


def read(
    source: Path | str,
    metric: tuple[str, ...] = (),
    mode: str | None = None,
    parameters: tuple[str, ...] = (),
    study: str | None = None,
) -> Foreign:
    return read_foreign(str(source), metric, mode, parameters, study)


def a_study(storage: Any, name: str = "digits") -> optuna.Study:
    def objective(trial: optuna.Trial) -> float:
        lr = trial.suggest_float("lr", 1e-5, 1e-1, log=True)
        trial.suggest_int("net/width", 8, 64, step=8)
        trial.set_user_attr("size", 3)
        if trial.suggest_categorical("act", ["relu", None]) is None:
            trial.suggest_float("drop", 0.0, 0.5)
        for step in range(3):
            trial.report(lr + 1 / (step + 1), step)
            if trial.number == 1:
                raise optuna.TrialPruned
        if trial.number == 2:
            raise ValueError("oops")
        return lr

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(storage=storage, study_name=name, sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(objective, n_trials=4, catch=(ValueError,))
    study.enqueue_trial({"lr": 0.01})
    return study


@pytest.mark.slow
def test_a_study_comes_with_its_values_its_states_its_times_and_its_space(tmp_path: Path) -> None:
    study = a_study(f"sqlite:///{tmp_path}/study.db")
    found = read(tmp_path / "study.db")
    assert (found.tool, found.name, found.metric, found.mode) == ("Optuna", "digits", "value", "min")
    assert read(f"sqlite:///{tmp_path}/study.db").trials == found.trials
    assert len(found.trials) == 4, "what was only enqueued is left out"
    assert [trial.start for trial in found.trials] == [
        trial.datetime_start.timestamp() for trial in study.trials[:4] if trial.datetime_start
    ]
    first, pruned, failed, _ = found.trials
    lr = study.trials[0].params["lr"]
    assert [report for _, report in first.reports] == [
        {"value": lr + 1, "training_iteration": 0},
        {"value": lr + 1 / 2, "training_iteration": 1},
        {"value": lr + 1 / 3, "training_iteration": 2},
        {"value": lr, "training_iteration": 3, "size": 3},
    ]
    assert first.config["net"] == {"width": study.trials[0].params["net/width"]}
    assert (pruned.is_pruned, len(pruned.reports), failed.error) == (True, 1, "it failed in Optuna")
    assert {name: str(domain) for name, domain in found.space.items()} == {
        "lr": "Float(1e-05, 0.1).LogUniform()",
        "net": f"{{'width': {found.space['net']['width']!r}}}",
        "act": "Categorical['relu', None].Uniform()",
        "drop": "Float(0.0, 0.5).Uniform()",
    }


def test_a_journal_and_one_of_several_studies_are_read_and_several_objectives(tmp_path: Path) -> None:
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "journal"))
    storage = optuna.storages.JournalStorage(backend)
    a_study(storage)
    assert len(read(tmp_path / "journal", ("loss",)).trials) == 4
    both = optuna.create_study(storage=storage, study_name="both", directions=["minimize", "maximize"])
    both.optimize(lambda trial: (trial.suggest_int("x", 1, 3), 2.0), n_trials=2)
    with pytest.raises(ConfigError, match=r"no study ''\. Known: .*both.*--study"):
        read(tmp_path / "journal")
    found = read(tmp_path / "journal", study="both")
    assert (found.metric, found.mode) == (["value_0", "value_1"], ["min", "max"])
    assert [report["value_1"] for trial in found.trials for _, report in trial.reports] == [2.0, 2.0]
    with pytest.raises(ConfigError, match="has 2 objectives, and --metric names loss"):
        read(tmp_path / "journal", ("loss",), study="both")


def test_a_storage_that_is_broken_is_refused_in_one_line(tmp_path: Path) -> None:
    (path := tmp_path / "journal").write_text('{"op_code": 4}\n')
    for source in (path, "nothing://at.all"):
        with pytest.raises(ConfigError, match="cannot be opened") as caught:
            read(source)
        assert caught.value.__cause__ is None


def test_steps_that_begin_at_the_lower_bound_are_left_out_of_the_space_where_ours_would_be_other_values(
    tmp_path: Path,
) -> None:
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "journal"))
    study = optuna.create_study(storage=optuna.storages.JournalStorage(backend))
    asked: dict[str, optuna.distributions.BaseDistribution] = {
        "odd": optuna.distributions.IntDistribution(1, 9, step=2),
        "even": optuna.distributions.IntDistribution(2, 8, step=2),
        "half": optuna.distributions.FloatDistribution(0.5, 0.8, step=0.3),
        "third": optuna.distributions.FloatDistribution(0.3, 0.9, step=0.3),
    }
    params = {"odd": 3, "even": 4, "half": 0.8, "third": 0.6}
    study.add_trial(optuna.create_trial(params=params, distributions=asked, value=1.0))
    assert {name: str(domain) for name, domain in read(tmp_path / "journal").space.items()} == {
        "odd": str(randint(1, 10)),
        "even": str(qrandint(2, 8, 2)),
        "half": str(uniform(0.5, 0.8)),
        "third": str(quniform(0.3, 0.9, 0.3)),
    }


def test_an_export_of_runs_is_split_where_the_order_of_its_columns_begins_anew(tmp_path: Path) -> None:
    (path := tmp_path / "runs.csv").write_text(RUNS)
    found = read(path, ("val_loss",), "min")
    assert (found.tool, found.name, found.metric, found.mode) == ("W&B", "runs", "val_loss", "min")
    sun, sea, hill, running = found.trials
    assert sun.config == {"batch_size": 8, "lr": 0.0001, "model": {"depth": 3}, "use_amp": True}
    assert sun.reports == [(9910.0, {"best_epoch": 7, "eval/acc": 0.91, "val_loss": 0.32})]
    assert (sun.name, sun.error, sun.start - hill.start) == ("sun-3", "", 7534.0)
    assert (sea.error, hill.error, hill.reports, hill.rest_s) == ("crashed in W&B", "failed in W&B", [], 5691.0)
    assert (running.error, running.start) == ("it had not ended when it was imported", path.stat().st_mtime)
    named = read(path, ("lr",), "min", parameters=("batch_size",))
    assert named.trials[0].config == {"batch_size": 8}
    assert named.trials[0].reports[0][1]["lr"] == 0.0001


@pytest.mark.parametrize(
    ("metric", "mode", "parameters", "problem"),
    [
        (("val_loss",), None, (), "--metric and --goal name one of best_epoch, eval/acc, val_loss"),
        (("lr",), "min", (), "--metric and --goal name one of"),
        (("los",), "min", (), "no column 'los'. Did you mean 'val_loss'"),
        ((), None, ("lrr",), "no column 'lrr'. Did you mean 'lr'"),
    ],
)
def test_an_export_that_does_not_say_enough_is_refused(
    metric: tuple[str, ...], mode: str | None, parameters: tuple[str, ...], problem: str, tmp_path: Path
) -> None:
    (path := tmp_path / "runs.csv").write_text(RUNS)
    with pytest.raises(ConfigError, match=problem):
        read(path, metric, mode, parameters)


def test_an_export_whose_columns_people_chose_says_which_are_parameters_and_its_runs_follow_each_other(
    tmp_path: Path,
) -> None:
    path = tmp_path / "chosen.csv"
    path.write_text("Name,lr,depth,acc,_wandb,val_loss\na,0.1,3,0.7,null,0.5\nb,0.2,4,0.8,null,0.4\n")
    with pytest.raises(ConfigError, match=r"give --parameters A,B,\.\.\. of lr, depth, acc, _wandb, val_loss"):
        read(path)
    first, second = read(path, ("val_loss",), "min", parameters=("lr", "depth")).trials
    assert (first.config, first.reports[0][1]) == (
        {"lr": 0.1, "depth": 3},
        {"acc": 0.7, "_wandb": None, "val_loss": 0.5},
    )
    assert (first.error, second.error, first.start) == ("", "", path.stat().st_mtime)
    assert first.start < second.start < first.start + 1, "else there would be a node for each"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "has no runs"),
        (b"Name,State,lr,acc\n", "has no runs"),
        ("Name,State,lr,acc\nM\xfcller,finished,0.1,1\n".encode("latin1"), "no CSV file in UTF-8"),
        (b"Name,State,lr,acc\nx,finished,0.1," + b"y" * 200_000, "no CSV file in UTF-8, or was cut"),
    ],
)
def test_a_file_that_is_no_export_is_refused_in_one_line(content: bytes, problem: str, tmp_path: Path) -> None:
    (path := tmp_path / "runs.csv").write_bytes(content)
    with pytest.raises(ConfigError, match=problem) as caught:
        read(path)
    assert caught.value.__cause__ is None


def test_a_run_whose_line_was_cut_is_taken_for_one_that_had_not_ended(tmp_path: Path) -> None:
    (path := tmp_path / "runs.csv").write_text("Name,State,lr,acc\nx,finished,0.1,1\ny\n")
    assert [trial.error for trial in read(path).trials] == ["", "it had not ended when it was imported"]


def ray_experiment(root: Path) -> Path:
    """Write what Ray 2 does: an error, a trial cut in the middle of a line, one that never began."""
    trials = []
    for number, status in enumerate(["TERMINATED", "ERROR", "RUNNING", "PENDING"]):
        name = f"train_{number}"
        facts = {"trial_id": f"ab_{number:05d}", "status": status, "relative_logdir": name, "config": {"lr": "pickle"}}
        known = {"start_time": None if status == "PENDING" else 1000.0 + number, "last_result_time": 1010.0}
        trials.append([json.dumps(facts), json.dumps(known)])
        if status == "PENDING":
            continue
        (root / name).mkdir(parents=True)
        (root / name / "params.json").write_text(json.dumps({"lr": number / 10, "f": "<function f>"}))
        report = {"loss": 1.5, "eval": {"acc": 0.5}, "training_iteration": 7, "time_this_iter_s": 2.0, "pid": 3}
        more = {"trial_id": "x", "config": {"lr": 1}, "done": True, "time_total_s": 2.0, "date": "2026"}
        lines = json.dumps(report | more) + "\n"
        (root / name / "result.json").write_text(lines + (lines[:20] if status == "RUNNING" else ""))
    (root / "train_1" / "error.txt").write_text("Failure # 1\nTraceback\nValueError: boom\n")
    content = {"trial_data": trials, "runner_data": {"_metric": "loss"}, "stats": {}}
    (root / "experiment_state-2026-11-26_23-48-27.json").write_text(json.dumps(content))
    return root


def test_an_experiment_of_ray_comes_with_its_reports_and_errors_and_no_pickle(tmp_path: Path) -> None:
    root = ray_experiment(tmp_path / "train")
    found = read(root, mode="min")
    assert (found.tool, found.name, found.metric, found.mode) == ("Ray Tune", "train", "loss", "min")
    own = {"loss": 1.5, "eval": {"acc": 0.5}, "training_iteration": 7, "pid": 3}
    assert [trial.reports for trial in found.trials] == [[(2.0, own)]] * 3
    errors = ["", "ValueError: boom", "it had not ended when it was imported"]
    assert [(trial.config["lr"], trial.error, trial.rest_s) for trial in found.trials] == [
        (number / 10, error, 8.0 - number) for number, error in enumerate(errors)
    ]
    with pytest.raises(ConfigError, match="which way loss is better"):
        read(root)
    (root / "experiment_state-2026-11-26_23-48-28.json").write_text('{"trial_data": [[')
    with pytest.raises(ConfigError, match="was cut"):
        read(root, mode="min")


def test_what_is_none_of_the_three_is_refused_and_nothing_is_made_or_changed(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"a": 1}')
    (tmp_path / "directory").mkdir()
    with sqlite3.connect(tmp_path / "other.db") as db:
        db.execute("CREATE TABLE mine (x)")
    before = (tmp_path / "other.db").read_bytes()
    for name in ("other.json", "directory", "other.db", "nothing", "nothing.csv", f"sqlite:///{tmp_path}/nothing.db"):
        with pytest.raises(ConfigError, match="nothing that can be imported"):
            read(name if "://" in name else tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["directory", "other.db", "other.json"]
    assert (tmp_path / "other.db").read_bytes() == before
