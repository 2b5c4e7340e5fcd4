"""Sweeps as files, beside each other, from elsewhere and gone: `sweep export`, `compare`, `import` and `rm`."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import optuna
import pandas as pd
import pytest
from click.testing import CliRunner, Result
from made_experiment import MadeExperiment

import sweep
from sweep.cli.main import _run
from sweep.cli.main import sweep as command
from sweep.errors import ConfigError, ExperimentError
from sweep.record.lock import DriverLock
from sweep.record.reader import ExperimentReader
from sweep.simulation.replay import replay


def a_sweep(storage: Path, name: str, *lrs: float, metric: str = "loss") -> MadeExperiment:
    made = MadeExperiment(storage, name, metric=metric, seed=len(lrs))
    for number, lr in enumerate(lrs):
        trial = made.trial({"lr": lr, "net": {"act": "relu"}})
        made.start(trial, at=number * 10.0 + 1)
        made.report(trial, {metric: lr + 1, "acc": 0.25}, at=number * 10.0 + 2)
        made.report(trial, {metric: lr, "acc": 0.5}, at=number * 10.0 + 3)
        made.end(trial, at=number * 10.0 + 4)
    made.commit()
    return made


def call(storage: Path, *arguments: str, typed: str | None = None) -> Result:
    return CliRunner().invoke(command, [*arguments, "--storage", str(storage)], input=typed)


def printed(storage: Path, *arguments: str) -> Any:
    found = call(storage, *arguments, "--json")
    assert found.exit_code == 0, (found.stderr, found.exception)
    return json.loads(found.stdout)


# --- export ----------------------------------------------------------------------------------------------------------


def test_each_style_has_the_columns_of_its_tool(tmp_path: Path) -> None:
    made = a_sweep(tmp_path, "digits", 0.3, 0.1, 0.2)
    made.close()
    frames = {}
    for style in ("sweep", "ray", "optuna", "wandb"):
        facts = printed(tmp_path, "export", "digits", "-o", f"{tmp_path}/{style}.csv", "--style", style)
        frames[style] = pd.read_csv(facts["path"])
        assert frames[style].shape == (facts["rows"], facts["columns"])
    analysis = sweep.ExperimentAnalysis(made.root)
    assert list(frames["sweep"]) == list(analysis.dataframe(full=True))
    assert list(frames["ray"])[:6] == ["loss", "acc", "timestamp", "checkpoint_dir_name", "done", "training_iteration"]
    theirs = analysis.to_optuna().trials_dataframe().rename(columns={"value_loss": "value"})
    assert set(frames["optuna"]) - set(theirs) == {"params_lr", "params_net/act"}, "this record has no space"
    for name in ("number", "value", "user_attrs_acc", "state"):
        assert frames["optuna"][name].tolist() == theirs[name].tolist()
    assert list(frames["wandb"]) == [
        *("Name", "ID", "State", "Notes", "User", "Tags", "Created", "Runtime", "Sweep"),
        *("lr", "net.act", "acc", "loss"),
    ]
    assert frames["wandb"]["Created"].tolist()[0] == "2023-11-14T22:13:21.000Z"
    assert frames["wandb"]["State"].tolist() == ["finished"] * 3


def test_several_objectives_are_values_with_their_names_as_in_optuna(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path, "both", metric="err", metrics=["err", "acc"], modes=["min", "max"])
    trial = made.trial({"x": 1})
    made.start(trial)
    made.report(trial, {"err": 0.5, "acc": 0.75})
    made.end(trial)
    made.close()
    frame = sweep.ExperimentAnalysis(made.root).dataframe(style="optuna")
    theirs = sweep.ExperimentAnalysis(made.root).to_optuna().trials_dataframe()
    assert list(frame)[:3] == list(theirs)[:3] == ["number", "values_err", "values_acc"]
    assert frame[["values_err", "values_acc", "state"]].values.tolist() == [[0.5, 0.75, "COMPLETE"]]


def test_every_report_is_exported_and_json_holds_what_is_missing_as_null(tmp_path: Path) -> None:
    made = a_sweep(tmp_path, "digits", 0.3, 0.1)
    made.start(made.trial({"lr": 5.0}))
    made.close()
    assert printed(tmp_path, "export", "digits", "-o", f"{tmp_path}/h.json", "--history")["rows"] == 4
    rows = json.loads((tmp_path / "h.json").read_text())
    assert [(row["number"], row["step"], row["loss"]) for row in rows] == [
        (0, 1, 1.3),
        (0, 2, 0.3),
        (1, 1, 1.1),
        (1, 2, 0.1),
    ]
    call(tmp_path, "export", "digits", "-o", f"{tmp_path}/t.json")
    assert [row["loss"] for row in json.loads((tmp_path / "t.json").read_text())] == [0.3, 0.1, None]
    call(tmp_path, "export", "digits", "-o", f"{tmp_path}/t.pkl")
    assert pd.read_pickle(tmp_path / "t.pkl")["start_time"].dt.year.tolist() == [2023, 2023, 2023]


def test_an_export_that_cannot_be_is_refused(tmp_path: Path) -> None:
    a_sweep(tmp_path, "digits", 0.3).close()
    for arguments, problem in (
        (["-o", "a.xls"], "no kind of file"),
        (["-o", f"{tmp_path}/none/a.csv"], "cannot be written"),
        (["-o", "a.csv", "--history", "--style", "ray"], "leave --style"),
    ):
        found = call(tmp_path, "export", "digits", *arguments)
        assert isinstance(found.exception, ConfigError)
        assert problem in str(found.exception)


# --- compare ---------------------------------------------------------------------------------------------------------


def test_sweeps_are_compared_by_winner_progress_and_difference(tmp_path: Path) -> None:
    a_sweep(tmp_path, "before", 0.4, 0.3, 0.2, 0.1).close()
    a_sweep(tmp_path, "after", 0.35, 0.05).close()
    found = printed(tmp_path, "compare", "before", "after")
    stands = [(one["name"], one["best"], one["winner"], one["config"]["lr"]) for one in found["experiments"]]
    assert stands == [("before", 0.1, "00003", 0.1), ("after", 0.05, "00001", 0.05)]
    assert found["progress"] == [
        {"trials": 1, "best": {"before": 0.4, "after": 0.35}},
        {"trials": 2, "best": {"before": 0.3, "after": 0.05}},
        {"seconds": 3.25, "best": {"before": 0.4, "after": 0.35}},
        {"seconds": 6.5, "best": {"before": 0.4, "after": 0.35}},
        {"seconds": 9.75, "best": {"before": 0.4, "after": 0.35}},
        {"seconds": 13.0, "best": {"before": 0.3, "after": 0.05}},
    ]
    assert found["differences"] == {
        "seed": {"before": "4", "after": "2"},
        "winner: lr": {"before": 0.1, "after": 0.05},
    }
    assert found["note"] is None
    shown = call(tmp_path, "compare", "before", "after").stdout
    assert [line.split() for line in shown.splitlines() if line.startswith(("2 trials", "winner: lr"))] == [
        ["2", "trials", "0.3", "0.05"],
        ["winner:", "lr", "0.1", "0.05"],
    ]


def test_values_of_different_metrics_are_not_compared(tmp_path: Path) -> None:
    a_sweep(tmp_path, "before", 0.4, 0.1).close()
    a_sweep(tmp_path, "after", 0.3, metric="error").close()
    found = printed(tmp_path, "compare", "before", "after")
    assert found["progress"] == []
    assert "before by loss (min), after by error (min)" in found["note"]
    chosen = printed(tmp_path, "compare", "before", "after", "--metric", "acc", "--goal", "maximize")
    assert (chosen["note"], chosen["experiments"][0]["best"]) == (None, 0.5)
    assert "not judged by the same" in call(tmp_path, "compare", "before", "after").stderr
    alone = call(tmp_path, "compare", "before", "before")
    assert isinstance(alone.exception, ConfigError)


def test_sweeps_of_one_name_from_two_places_are_told_apart(tmp_path: Path) -> None:
    one, other = a_sweep(tmp_path / "x", "digits", 0.4).close(), a_sweep(tmp_path / "y", "digits", 0.3).close()
    names = [one["name"] for one in printed(tmp_path, "compare", str(one), str(other))["experiments"]]
    assert names == [str(one), str(other)]


# --- import ----------------------------------------------------------------------------------------------------------


def test_an_export_for_wandb_can_be_imported_again(tmp_path: Path) -> None:
    a_sweep(tmp_path, "digits", 0.3, 0.1, 0.2).close()
    call(tmp_path, "export", "digits", "-o", f"{tmp_path}/runs.csv", "--style", "wandb")
    found = printed(tmp_path, "import", f"{tmp_path}/runs.csv", "--metric", "loss", "--goal", "minimize")
    assert found == {
        "experiment": "runs",
        "tool": "W&B",
        "path": str(tmp_path / "runs"),
        "trials": 3,
        "parameters": ["lr", "net"],
        "metric": "loss",
    }
    both = [sweep.ExperimentAnalysis(tmp_path / name) for name in ("digits", "runs")]
    for name in ("loss", "acc", "config/lr", "config/net/act", "state"):
        before, after = (one.dataframe()[name].tolist() for one in both)
        assert before == after
    said = call(tmp_path, "import", f"{tmp_path}/runs.csv", "--name", "again").stdout
    assert said == "again: 3 trials of W&B (3 finished)\nparameters: lr, net; optimised: not known\n"


def test_an_imported_sweep_is_looked_at_as_any_other_and_not_resumed(tmp_path: Path, capsys: Any) -> None:
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(tmp_path / "journal")))
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(storage=storage, study_name="digits", direction="maximize")
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=5)
    where = ["--storage", str(tmp_path)]
    assert _run(["import", str(tmp_path / "journal"), "--metric", "acc", *where]) == 0
    for line in (["ls"], ["trials", "digits"], ["best", "digits"], ["show", "digits"], ["why", "digits", "0"]):
        assert _run([*line, *where]) == 0, line
    assert _run(["replay", "digits", "--verify", *where]) == 0
    assert _run(["simulate", "digits", "--scheduler", "asha", *where]) == 0
    capsys.readouterr()
    for line in (["resume", "digits"], ["enqueue", "digits", "x=1"], ["edit", "digits", "--trials", "9"]):
        assert _run([*line, *where]) == 2
        assert "digits was imported (Optuna" in capsys.readouterr().err
    assert _run(["best", "digits", "--json", *where]) == 0
    assert json.loads(capsys.readouterr().out)[0]["acc"] == study.best_value


# --- rm --------------------------------------------------------------------------------------------------------------


def saved(storage: Path) -> MadeExperiment:
    made = MadeExperiment(storage, "digits")
    for lr in (0.2, 0.1):
        trial = made.trial({"lr": lr})
        made.start(trial)
        made.save(trial, 1)
        made.save(trial, 2)
        made.report(trial, {"loss": lr})
        made.end(trial)
    made.commit()
    return made


def test_it_says_what_is_deleted_and_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path).close()
    found = call(tmp_path, "rm", "digits", typed="y\n")
    assert "nobody can be asked here" in str(found.exception), "it is no terminal"
    monkeypatch.setattr("sweep.cli.collection.sweeps.sys.stdin", Terminal("n\ny\n"))
    assert call(tmp_path, "rm", "digits").exit_code == 1
    assert (tmp_path / "digits" / "sweep.db").exists()
    files = sum(path.is_file() for path in (tmp_path / "digits").rglob("*"))
    facts = printed(tmp_path, "rm", "digits", str(tmp_path / "digits"), "--yes")
    assert [(one["state"], one["checkpoints"], one["files"]) for one in facts] == [("ended", 4, files)]
    assert os.listdir(tmp_path) == []


def test_a_sweep_is_deleted_from_within_its_own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(saved(tmp_path).close())
    assert call(Path(".."), "rm", "digits", "--yes").exit_code == 0
    assert os.listdir(tmp_path) == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_only_checkpoints_are_deleted_and_those_of_the_best_are_kept(tmp_path: Path) -> None:
    made = saved(tmp_path)
    made.close()
    reader = ExperimentReader(made.root)
    before = [row.last_metrics for row in reader.trials()]
    assert printed(tmp_path, "rm", "digits", "--checkpoints", "--keep-best", "--yes")[0]["checkpoints"] == 2
    assert [len(reader.checkpoints(row.trial_id)) for row in reader.trials()] == [0, 2]
    assert printed(tmp_path, "rm", "digits", "--checkpoints", "--yes")[0]["checkpoints"] == 2
    assert [len(reader.checkpoints(row.trial_id)) for row in reader.trials()] == [0, 0]
    assert [row.last_metrics for row in reader.trials()] == before


def test_what_runs_or_is_none_or_lies_elsewhere_is_not_deleted(tmp_path: Path) -> None:
    root = saved(tmp_path).close()
    (tmp_path / "plain").mkdir()
    (tmp_path / "link").symlink_to(root)
    for name, problem in (("plain", "no experiment 'plain'"), ("link", "is a link to"), ("memory://x/y", "elsewhere")):
        found = call(tmp_path, "rm", "digits", name, "--yes")
        assert isinstance(found.exception, (ConfigError, ExperimentError))
        assert problem in str(found.exception)
    lock = DriverLock(root / "driver.lock", "mark")
    try:
        for more in ([], ["--checkpoints"]):
            found = call(tmp_path, "rm", "digits", "--yes", *more)
            assert "runs, or may" in str(found.exception)
    finally:
        lock.release()
    assert len(list(root.rglob("checkpoint_*"))) == 4
    assert "--keep-best belongs to" in str(call(tmp_path, "rm", "digits", "--keep-best", "--yes").exception)


def test_a_link_out_of_a_sweep_is_deleted_and_not_what_it_leads_to(tmp_path: Path) -> None:
    root = saved(tmp_path).close()
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "data").touch()
    trial = next(path for path in root.iterdir() if path.is_dir())
    (trial / "checkpoint_000009").symlink_to(tmp_path / "precious")
    call(tmp_path, "rm", "digits", "--checkpoints", "--yes")
    assert not (trial / "checkpoint_000009").is_symlink()
    call(tmp_path, "rm", "digits", "--yes")
    assert [path.name for path in tmp_path.rglob("*")] == ["precious", "data"]


SCRIPT = """
import os, sweep, tempfile, time

def train(config):
    found = sweep.get_checkpoint()
    start = int(open(os.path.join(found.to_directory(), "step")).read()) if found else 0
    for step in range(start + 1, 6):
        with tempfile.TemporaryDirectory() as directory:
            open(os.path.join(directory, "step"), "w").write(str(step))
            sweep.report(loss=1 / step, start=start, checkpoint=sweep.Checkpoint(directory))
        while step == 3 and os.path.exists(os.environ["WAIT"]):
            time.sleep(0.05)
"""


@pytest.mark.slow
def test_a_killed_sweep_without_its_checkpoints_begins_anew_and_its_record_holds(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "wait").touch()
    start = [sys.executable, "-m", "sweep.cli.main"]
    run = [*start, "run", "train.py:train", "x=1", "--trials", "1", "--minimize", "loss", "--name", "digits", "-q"]
    environ = {**os.environ, "WAIT": str(tmp_path / "wait")}
    driver = subprocess.Popen(run, cwd=tmp_path, env=environ)
    root = tmp_path / "sweep_results" / "digits"
    until = time.monotonic() + 60
    while len(list(root.glob("*/checkpoint_000003"))) < 1:
        assert time.monotonic() < until
        time.sleep(0.05)
    refused = call(root.parent, "rm", "digits", "--checkpoints", "--yes")
    assert "runs, or may" in str(refused.exception)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    assert printed(root.parent, "rm", "digits", "--checkpoints", "--yes")[0]["checkpoints"] == 3
    (tmp_path / "wait").unlink()
    subprocess.run([*start, "resume", "digits", "-q"], cwd=tmp_path, env=environ, check=True)
    (trial,) = ExperimentReader(root).trials()
    assert trial.last_metrics is not None
    assert (trial.state, trial.attempt, trial.last_metrics["start"]) == ("finished", 2, 0)
    assert replay(root).is_same
