"""Limits and classes of failures, as a user meets them: real processes that hang, run on, use up memory, diverge."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

import sweep
from sweep.cli.main import sweep as cli
from sweep.errors import ConfigError
from sweep.record.facts import read_facts

pytestmark = pytest.mark.usefixtures("own_storage")


@pytest.fixture
def own_storage(tmp_path, monkeypatch):
    monkeypatch.setenv("SWEEP_STORAGE", str(tmp_path / "results"))


def run(trainable, **arguments):
    arguments = {"verbose": 0, "raise_on_failed_trial": False, "name": "limits", **arguments}
    return sweep.run(trainable, **arguments)


def kinds(analysis):
    """Return the kinds of all exits, in order."""
    events = read_facts(Path(analysis.experiment_path) / "sweep.db")
    return [told.event.exit.kind.value for told in events if type(told.event).__name__ == "Exited"]


def only(analysis, kind=None):
    """Return the only trial of an analysis, which has failed in this way, and its output."""
    (trial,) = analysis.trials
    if kind is not None:
        assert (trial.status, kinds(analysis)) == ("ERROR", [kind])
        assert list(analysis.results_df["failure"]) == [kind.lower()]
    return trial, (Path(trial.path) / "output.log").read_text()


def for_ever():
    threading.Event().wait()


# --- a trial as a whole ----------------------------------------------------------------------------------------------


def test_a_silent_trial_is_killed_when_its_time_is_up():
    analysis = run(lambda config: for_ever(), trial_timeout_s=0.3)
    trial, _ = only(analysis, "TIMEOUT")
    assert "has run for trial_timeout_s=0.3 s and did not stop when it was asked to" in str(trial.error)
    assert list(analysis.results_df["error_class"]) == ["TIMEOUT"]


def test_a_trial_that_reports_keeps_its_results_when_its_time_is_up():
    def train(config):
        step = 0
        while True:
            step += 1
            sweep.report(loss=1.0 / step)
            time.sleep(0.01)

    analysis = run(train, trial_timeout_s=timedelta(seconds=0.3), metric="loss", mode="min")
    (trial,) = analysis.trials
    assert (trial.status, trial.reason) == ("TERMINATED", "has run for trial_timeout_s=0.3 s")
    assert analysis.best_result["loss"] < 1
    assert analysis.results_df["failure"].isna().all()


def test_the_time_counts_over_attempts_and_a_failure_does_not_give_it_again(tmp_path):
    def train(config):
        with open(tmp_path / "starts", "a") as file:
            file.write("x")
        time.sleep(0.2)
        raise RuntimeError("again")

    analysis = run(train, trial_timeout_s=0.5, max_failures=-1)
    (trial,) = analysis.trials
    assert trial.status in ("ERROR", "TERMINATED")
    assert "trial_timeout_s=0.5" in trial.reason
    assert len((tmp_path / "starts").read_text()) == 3


def test_trial_time_of_a_spec_file_ends_a_silent_trial(tmp_path):
    def call(*arguments):
        result = CliRunner().invoke(cli, arguments, standalone_mode=False)
        assert result.exception is None, result.output
        return result.output

    (tmp_path / "silent.py").write_text("import time\n\n\ndef train(config):\n    time.sleep(600)\n")
    (tmp_path / "spec.yaml").write_text(
        "program: silent.py:train\nname: spec\nparameters: {x: {value: 1}}\nrun_cap: 1\n"
        "budget: {trial_time: 0.3s}\nfailures: {retry_on: [killed], out_of_memory: retry_alone, nan: error}\n"
    )
    call("run", str(tmp_path / "spec.yaml"), "-q")
    (row,) = json.loads(call("why", "spec", "--format", "json"))
    assert (row["state"], row["failure"]) == ("failed", "timeout")
    assert "timeout" in call("trials", "spec")


# --- a report --------------------------------------------------------------------------------------------------------


def test_a_trial_that_hangs_is_killed_and_the_stacks_of_all_its_processes_are_in_its_log():
    def where_it_hangs():
        for_ever()

    def train(config):
        ready, is_ready = os.pipe()
        if os.fork() == 0:
            in_a_child(is_ready)
        subprocess.Popen(["sleep", "600"])
        os.read(ready, 1)
        sweep.report(loss=1.0)
        where_it_hangs()

    def in_a_child(is_ready):
        os.write(is_ready, b"x")
        for_ever()

    trial, log = only(run(train, report_timeout_s=1, metric="loss", mode="min"), "HUNG")
    assert "no report within report_timeout_s=1; what its processes do is in output.log" in str(trial.error)
    assert "in where_it_hangs" in log
    assert "in in_a_child" in log
    assert "(sleep): " in log


def test_a_stopped_process_is_named():
    def train(config):
        sweep.report(loss=1.0)
        os.kill(os.getpid(), signal.SIGSTOP)
        for_ever()

    trial, _ = only(run(train, report_timeout_s=0.3), "HUNG")
    assert "is stopped (SIGSTOP)" in str(trial.error)


@pytest.mark.slow
@pytest.mark.parametrize("reuse_actors", [False, True])
def test_a_trial_that_reports_often_enough_is_left_alone(reuse_actors):
    def train(config):
        for step in range(6):
            time.sleep(0.1)
            sweep.report(step=step)
        if config["x"] == 1:
            for_ever()

    space = {"x": sweep.grid_search([0, 1, 2])}
    analysis = run(train, config=space, report_timeout_s=0.5, reuse_actors=reuse_actors)
    assert [trial.status for trial in analysis.trials] == ["TERMINATED", "ERROR", "TERMINATED"]


@pytest.mark.parametrize("spelling", ["report_timeout_s", pytest.param("hang_timeout_s", marks=pytest.mark.slow)])
def test_a_class_trainable_that_hangs_is_killed_with_either_spelling(spelling):
    class Hanging(sweep.Trainable):
        def step(self):
            for_ever()

    tuner = sweep.Tuner(
        Hanging,
        run_config=sweep.RunConfig(
            name="limits", verbose=0, failure_config=sweep.FailureConfig(max_failures=1, **{spelling: 0.3})
        ),
    )
    (result,) = tuner.fit()
    assert "report_timeout_s=0.3" in str(result.error)


# --- classes ---------------------------------------------------------------------------------------------------------


def test_what_is_not_to_be_tried_again_is_not(tmp_path):
    def train(config):
        with open(tmp_path / config["how"], "a") as file:
            file.write("x")
        if config["how"] == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise MemoryError("too big") if config["how"] == "memory" else ValueError("bad")

    failures = sweep.FailureConfig(max_failures=2, retry_on=["killed"])
    analysis = run(train, config={"how": sweep.grid_search(["killed", "memory", "user"])}, failure_config=failures)
    tries = {path.name: len(path.read_text()) for path in tmp_path.iterdir() if path.is_file()}
    assert tries == {"killed": 3, "memory": 1, "user": 1}
    assert list(analysis.results_df["failure"]) == ["killed", "out_of_memory", "user"]


def test_a_trial_out_of_memory_is_tried_again_alone(tmp_path):
    def train(config):
        with open(tmp_path / "course", "a") as file:
            file.write(f"+{config['x']} ")
        sweep.report(a=1)
        if config["x"] == 0 and len((tmp_path / "course").read_text().split("+0")) == 2:
            raise MemoryError
        time.sleep(0.1)
        with open(tmp_path / "course", "a") as file:
            file.write(f"-{config['x']} ")

    sweep.init(num_cpus=3)
    try:
        analysis = run(
            train,
            config={"x": sweep.grid_search([0, 1, 2, 3])},
            failure_config=sweep.FailureConfig(out_of_memory="retry_alone"),
        )
    finally:
        sweep.shutdown()
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 4
    course = (tmp_path / "course").read_text().split()
    again = course.index("+0", 1) if course[0] == "+0" else course.index("+0", course.index("+0") + 1)
    assert course[again + 1] == "-0"  # nobody began or ended beside it
    assert sum(what[0] == "+" for what in course[:again]) - sum(what[0] == "-" for what in course[:again]) == 1


def test_nan_can_be_an_error_and_the_end_summary_names_the_class(capsys):
    def train(config):
        sweep.report(loss=1.0)
        sweep.report(loss=float("nan") if config["x"] else 0.5)
        sweep.report(loss=0.1)

    given = {"failure_config": sweep.FailureConfig(nan="error"), "metric": "loss", "mode": "min", "verbose": 1}
    analysis = run(train, config={"x": sweep.grid_search([0, 1])}, **given)
    assert [trial.status for trial in analysis.trials] == ["TERMINATED", "ERROR"]
    assert analysis.trials[1].error is not None
    assert list(analysis.results_df["failure"].fillna("")) == ["", "nan"]
    assert analysis.results_df["training_iteration"].tolist() == [3, 2]
    assert "   nan · trials 00001" in capsys.readouterr().out


@pytest.mark.slow
def test_limits_survive_a_restart(tmp_path):
    code = """
import os, signal, sys, time, sweep

def train(config):
    if not os.path.exists(os.environ["MARK"]):
        time.sleep(0.4)
        open(os.environ["MARK"], "w").close()
        os.kill(int(os.environ["DRIVER"]), signal.SIGKILL)
    time.sleep(600)

os.environ |= {"DRIVER": str(os.getpid()), "MARK": sys.argv[1]}
sweep.run(train, name="killed", trial_timeout_s=1.0, resume="AUTO", verbose=0, raise_on_failed_trial=False)
"""
    (tmp_path / "script.py").write_text(code)
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "mark")]
    assert subprocess.run(command, timeout=60).returncode == -signal.SIGKILL
    assert subprocess.run(command, timeout=60).returncode == 0
    analysis = sweep.ExperimentAnalysis(tmp_path / "results" / "killed")
    assert list(analysis.results_df["failure"]) == ["timeout"]
    at = [told for told in read_facts(tmp_path / "results" / "killed" / "sweep.db") if told.caused]
    assert any(row[0] == "Kill" and row[-1] == "TIMEOUT" for told in at for row in told.caused)


# --- what is refused -------------------------------------------------------------------------------------------------


SECONDS = "is .*expected seconds above 0, or None for no limit"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        *(({"trial_timeout_s": value}, SECONDS) for value in (0, -1, True, "1h", float("nan"), float("inf"))),
        *(({name: timedelta(0)}, f"{name} {SECONDS}") for name in ("report_timeout_s", "hang_timeout_s")),
        ({"retry_on": ["kiled"]}, "retry_on is 'kiled'; expected 'user', 'killed'.*Did you mean 'killed'"),
        ({"retry_on": [ValueError]}, "retry_on is <class 'ValueError'>; expected"),
        ({"retry_on": 3}, "retry_on is 3; expected"),
        ({"out_of_memory": "alone"}, "out_of_memory is 'alone'; expected 'retry', 'retry_alone' or 'fail'"),
        ({"nan": "raise"}, "nan is 'raise'; expected 'record' or 'error'"),
        ({"report_timeout_s": 1, "hang_timeout_s": 2}, "two spellings of one limit"),
        ({"timeout": 1}, "Say trial_timeout_s"),
    ],
)
def test_what_makes_no_sense_is_refused_and_a_single_class_may_be_named_alone(given, said):
    with pytest.raises((ConfigError, TypeError), match=f"(?i){said}"):
        sweep.FailureConfig(**given)
    assert sweep.FailureConfig(retry_on="lost").retry_on == ("lost",)


def test_the_same_is_not_said_twice_with_different_values():
    with pytest.raises(ConfigError, match="max_failures=2 and failure_config, which says 1, were both given"):
        run(lambda config: None, max_failures=2, failure_config=sweep.FailureConfig(max_failures=1))
    with pytest.raises(ConfigError, match="failure_config is 3; expected"):
        run(lambda config: None, failure_config=3)
