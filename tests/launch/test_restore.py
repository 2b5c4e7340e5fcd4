"""`Tuner.restore`: an experiment brought back from its directory, in a fresh process, after a kill, after a move."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sweep
from sweep import ResultGrid, RunConfig, TuneConfig, Tuner
from sweep.errors import ConfigError, ExperimentError, SweepError
from sweep.record.saved_spec import pack_saved_spec, read_saved_spec, write_saved_spec

WORK = """
import contextlib
import json
import os
import time
import sweep
from sweep import RunConfig, TuneConfig, Tuner

def train(config):
    checkpoint = sweep.get_checkpoint()
    start = 0
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            start = int(open(os.path.join(directory, "step")).read())
    for step in range(start + 1, 6):
        own = sweep.get_context().get_trial_dir() + "/next"
        os.makedirs(own, exist_ok=True)
        open(own + "/step", "w").write(str(step))
        if step == 4 and "TO_BE_KILLED" in os.environ:
            time.sleep(60)  # its driver is killed meanwhile
        sweep.report(
            {"loss": config["x"] / step, "double": config["double"], "started_at": start},
            checkpoint=sweep.Checkpoint.from_directory(own),
        )

class Say(sweep.Callback):
    def on_trial_result(self, trial, result):
        if result["training_iteration"] == 3:
            print("THIRD", flush=True)
            os.read(0, 1)  # until somebody kills this process

def first():
    tuner = Tuner(
        train,
        param_space={"x": sweep.uniform(1, 2), "double": sweep.sample_from(lambda spec: spec.config.x * 2)},
        tune_config=TuneConfig(metric="loss", mode="min", num_samples=3, max_concurrent_trials=1, seed=7),
        run_config=RunConfig(name="killed", storage_path="results", callbacks=[Say()], verbose=0),
    )
    tuner.fit()
"""

AGAIN = """
import sys, work
from sweep import ExperimentAnalysis, RunConfig, Tuner
path = "results/killed"
before = ExperimentAnalysis(path)
assert [trial.status for trial in before.trials][0] != "TERMINATED", before.trials
assert before.get_best_config("loss", "min")["x"] > 1
assert Tuner.can_restore(path)
tuner = Tuner.restore(path, work.train, run_config=RunConfig(callbacks=[], verbose=0))
assert len(tuner.get_results()) == len(before.trials)
grid = tuner.fit()
assert [result.metrics["training_iteration"] for result in grid] == [5, 5, 5]
assert grid[0].metrics["started_at"] >= 2, grid[0].metrics
assert [result.config["double"] == result.config["x"] * 2 for result in grid] == [True] * 3
print("RESTORED", grid.get_best_result().config["x"])
"""


def test_a_killed_sweep_is_read_and_restored_in_a_fresh_process(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(WORK)
    (tmp_path / "again.py").write_text(AGAIN)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    first = subprocess.Popen(
        [sys.executable, "-c", "import work; work.first()"],
        cwd=tmp_path,
        env={**environment, "TO_BE_KILLED": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert first.stdout is not None
    assert first.stdout.readline() == "THIRD\n"
    first.send_signal(signal.SIGKILL)
    first.wait()
    first.stdout.close()
    assert first.stdin is not None
    first.stdin.close()
    shutil.move(tmp_path / "results", tmp_path / "moved")
    (tmp_path / "results").symlink_to("moved")
    again = subprocess.run(
        [sys.executable, "again.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert again.returncode == 0, again.stderr
    assert again.stdout.startswith("RESTORED 1.")


def job(config: dict[str, Any]) -> None:
    marker = config.get("marker")
    if marker and not os.path.exists(marker):
        raise RuntimeError("not yet")
    sweep.report(loss=config["x"])


def other(config: dict[str, Any]) -> None:
    sweep.report(loss=0)


def fit(tmp_path: Path, *, is_mended: bool = True, space: dict[str, Any] | None = None) -> ResultGrid:
    """Run two trials, which fail until they are mended."""
    if is_mended:
        (tmp_path / "marker").touch()
    return Tuner(
        job,
        param_space={"x": sweep.grid_search([1, 2]), "marker": str(tmp_path / "marker")} | (space or {}),
        tune_config=TuneConfig(metric="loss", mode="min"),
        run_config=RunConfig(name="e", storage_path=tmp_path, verbose=0),
    ).fit()


@pytest.mark.parametrize(
    ("how", "status", "attempt"),
    [({}, "ERROR", 1), ({"resume_errored": True}, "TERMINATED", 2), ({"restart_errored": True}, "TERMINATED", 2)],
)
def test_failed_trials_go_on_only_when_asked(how: dict[str, bool], status: str, attempt: int, tmp_path: Path) -> None:
    assert fit(tmp_path, is_mended=False).num_errors == 2
    (tmp_path / "marker").touch()
    fit_again = Tuner.restore(tmp_path / "e", job, **how).fit()
    trials = sweep.ExperimentAnalysis(fit_again.experiment_path).trials
    assert [(trial.status, trial.attempt) for trial in trials] == [(status, attempt)] * 2


def test_a_restored_sweep_can_be_given_more_samples(tmp_path: Path) -> None:
    assert len(fit(tmp_path)) == 2
    grid = Tuner.restore(tmp_path / "e", job, tune_config=TuneConfig(num_samples=2)).fit()
    assert [result.config["x"] for result in grid] == [1, 2, 1, 2]


def test_the_results_are_there_before_the_restored_tuner_runs(tmp_path: Path) -> None:
    fit(tmp_path)
    assert Tuner.restore(str(tmp_path / "e") + "/", job).get_results().get_best_result().config["x"] == 1
    with pytest.raises(SweepError, match=r"call fit\(\) first"):
        Tuner(job).get_results()


def test_a_tuner_wants_the_trainable_that_was_run(tmp_path: Path) -> None:
    fit(tmp_path)
    with pytest.raises(ConfigError, match=r"run with the trainable 'job', and 'other' was given"):
        Tuner.restore(tmp_path / "e", other)
    with pytest.raises(ConfigError, match=r"needs the trainable: Tuner\.restore\(path, trainable=job\)"):
        Tuner.restore(tmp_path / "e")
    with pytest.raises(ConfigError, match="can do only one"):
        Tuner.restore(tmp_path / "e", job, resume_errored=True, restart_errored=True)


def test_a_space_given_again_must_have_the_same_keys(tmp_path: Path) -> None:
    fit(tmp_path, space={"deep": {"a": 1}})
    with pytest.raises(ConfigError, match="another space: deep/a, marker, y is in one of the two only"):
        Tuner.restore(tmp_path / "e", job, param_space={"x": 1, "y": 2})
    same = {"x": sweep.grid_search([1, 2]), "deep": {"a": 1}, "marker": str(tmp_path / "marker")}
    assert len(Tuner.restore(tmp_path / "e", job, param_space=same).fit()) == 2


def test_what_is_no_experiment_cannot_be_restored(tmp_path: Path) -> None:
    assert not Tuner.can_restore(tmp_path)
    assert not Tuner.can_restore(tmp_path / "nothing")
    with pytest.raises(ExperimentError, match="there is no experiment"):
        Tuner.restore(tmp_path / "nothing", job)


def test_without_the_saved_spec_a_restore_says_how_to_go_on(tmp_path: Path) -> None:
    fit(tmp_path)
    (tmp_path / "e" / "tuner.pkl").write_bytes(b"torn")
    with pytest.raises(ExperimentError, match=r"tuner.pkl cannot be read.*resume=True"):
        Tuner.restore(tmp_path / "e", job)
    (tmp_path / "e" / "tuner.pkl").unlink()
    assert not Tuner.can_restore(tmp_path / "e")
    with pytest.raises(ExperimentError, match=r"has no tuner.pkl.*resume=True"):
        Tuner.restore(tmp_path / "e", job)


def test_what_cannot_be_pickled_is_named_and_can_be_given_again(tmp_path: Path) -> None:
    class Stubborn(sweep.Callback):
        def __reduce__(self) -> Any:
            raise TypeError("no")

    running = RunConfig(name="e", storage_path=tmp_path, verbose=0, callbacks=[Stubborn()])
    Tuner(job, param_space={"x": 1}, run_config=running).fit()
    with pytest.raises(ExperimentError, match=r"again: callbacks \(run_config=\.\.\.\): it could not be pickled"):
        Tuner.restore(tmp_path / "e", job)
    tuner = Tuner.restore(tmp_path / "e", job, run_config=RunConfig(callbacks=[sweep.Callback()]))
    assert len(tuner.fit()) == 1


def test_a_reporter_comes_back_with_its_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reporter = sweep.CLIReporter(metric_columns={"loss": "the loss"})
    running = RunConfig(name="e", storage_path=tmp_path, progress_reporter=reporter)
    Tuner(job, param_space={"x": 1}, run_config=running).fit()
    sweep.run(job, config={"x": 1}, name="again", storage_path=tmp_path, progress_reporter=reporter)  # it has shown one
    for name in ("e", "again"):
        capsys.readouterr()
        Tuner.restore(tmp_path / name, job, tune_config=TuneConfig(num_samples=2)).fit()
        assert "the loss" in capsys.readouterr().out


def test_a_sweep_of_run_can_be_restored_too(tmp_path: Path) -> None:
    given = {"config": {"x": sweep.uniform(0, 1)}, "num_samples": 2, "name": "r", "engine": "inline", "verbose": 0}
    sweep.run(job, **given, storage_path=tmp_path)
    grid = Tuner.restore(tmp_path / "r", job, tune_config=TuneConfig(num_samples=3)).fit()
    assert len(grid) == 3


def test_a_saved_spec_comes_back_part_by_part(tmp_path: Path) -> None:
    lock = __import__("threading").Lock()
    write_saved_spec(tmp_path, pack_saved_spec({"config": {"f": lambda: 3}, "callbacks": [lock]}))
    arguments, lost = read_saved_spec(tmp_path)
    assert arguments["config"]["f"]() == 3
    assert lost == {"callbacks": "it could not be pickled"}
    assert os.listdir(tmp_path) == ["tuner.pkl"]
