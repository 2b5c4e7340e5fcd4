"""Trials whose `fit()` needs more than they asked for: as scripts for Ray Tune and Ray Train are written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

import sweep
from sweep.cli.main import sweep as command
from sweep.errors import ExperimentError
from sweep.record.facts import read_facts
from sweep.record.reader import ExperimentReader
from sweep.train import DataParallelTrainer, RunConfig, ScalingConfig, TuneReportCallback

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the process model is tested on Linux")


def loop(config):
    for step in range(2):
        sweep.report(loss=config["x"] * (step + 1), size=sweep.get_context().get_world_size())


def fit(config, num_workers=2, **arguments):
    scaling = ScalingConfig(num_workers=num_workers)
    return DataParallelTrainer(loop, train_loop_config=config, scaling_config=scaling, **arguments).fit()


def held() -> float:
    return sum(bundle.cpu for bundle in sweep.get_context().get_trial_resources().bundles)


def trial(config):
    result = fit(config)
    sweep.report(loss=result.metrics["loss"], cpus=held())


class Counts(sweep.Callback):
    def __init__(self):
        self.results, self.recoveries = [], 0

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.results.append((trial.config["x"], result.get("before"), result.get("loss")))

    def on_trial_recover(self, iteration, trials, trial, **info):
        self.recoveries += 1


@pytest.fixture
def run(tmp_path):
    def start(trainable, **arguments):
        given = {"nodes": [sweep.Node(cpus=4)], "raise_on_failed_trial": False, "name": "grown", **arguments}
        return sweep.run(trainable, storage_path=tmp_path, verbose=0, **given)

    return start


def last(analysis, key):
    return [one.last_result.get(key) for one in analysis.trials]


def test_six_trials_of_two_workers_each_finish_on_four_cpus(run, tmp_path):
    analysis = run(trial, config={"x": sweep.grid_search([1, 2, 3, 4, 5, 6])}, metric="loss", mode="min")
    assert last(analysis, "loss") == [2, 4, 6, 8, 10, 12]
    assert last(analysis, "cpus") == [2.0] * 6  # nothing was asked for, so its own process counts for nothing
    rows = ExperimentReader(analysis.experiment_path).trials()
    assert [(row.failures, row.losses, row.status) for row in rows] == [(0, 0, "TERMINATED")] * 6
    assert max(row.attempt for row in rows) == 2
    assert rows[-1].attempt == 1  # what the first came to need was asked for from the start
    verified = CliRunner().invoke(command, ["replay", "grown", "--verify", "--storage", str(tmp_path)])
    assert "all as recorded" in verified.output, verified.output


def test_what_was_asked_for_is_for_the_trials_own_process(run):
    analysis = run(trial, config={"x": 1}, resources_per_trial={"cpu": 1})
    assert last(analysis, "cpus") == [3.0]


def test_what_is_reported_before_the_fit_is_told_once_and_nothing_recovers(run):
    def before(config):
        sweep.report(before=1)
        trial(config)

    counts = Counts()
    analysis = run(before, config={"x": 1}, callbacks=[counts])
    assert counts.results == [(1, 1, None), (1, None, 2)]
    assert counts.recoveries == 0
    assert analysis.trials[0].last_result["training_iteration"] == 2


def swallow_exception(config):
    try:
        fit(config)
    except Exception:
        sweep.report(loss=-1)
    sweep.report(loss=1, cpus=held())


def swallow_everything(config):
    try:
        fit(config)
    except:  # noqa: E722
        print("swallowed")
    sweep.report(loss=1, cpus=held())


def leave(config):
    try:
        fit(config)
    except BaseException:
        sys.exit(1)
    sweep.report(loss=1, cpus=held())


def stumble(config):
    result = None
    try:
        result = fit(config)
    except BaseException as error:
        print(type(error))
    sweep.report(loss=1, cpus=result.metrics["size"])


@pytest.mark.parametrize(
    "function",
    [swallow_everything, *(pytest.param(one, marks=pytest.mark.slow) for one in (swallow_exception, leave, stumble))],
)
def test_a_script_cannot_swallow_it(run, function):
    analysis = run(function, config={"x": 1})
    assert last(analysis, "loss") == [1]
    assert last(analysis, "cpus") == [2.0]
    assert [row.attempt for row in ExperimentReader(analysis.experiment_path).trials()] == [2]


def test_a_size_from_the_config_is_that_of_each_trial(run):
    def sized(config):
        fit(config, config["n"])
        sweep.report(cpus=held())

    sizes = [3, 2, 1, 4, 2]
    analysis = run(sized, config={"x": 1, "n": sweep.grid_search(sizes)})
    assert last(analysis, "cpus") == sizes


def test_a_trial_may_fit_more_than_once(run):
    def twice(config):
        first, second = fit(config), fit(config, 3)
        sweep.report(first=first.metrics["size"], second=second.metrics["size"], third=fit(config).metrics["size"])

    analysis = run(twice, config={"x": sweep.grid_search([1, 2])})
    assert [last(analysis, name) for name in ("first", "second", "third")] == [[2, 2], [3, 3], [2, 2]]


def test_what_can_never_fit_ends_the_trial_with_the_arithmetic(run):
    def huge(config):
        try:
            fit(config, 9)
        except Exception:
            sweep.report(loss=0)

    analysis = run(huge, config={"x": 1})
    assert analysis.trials[0].status == "ERROR"
    assert "9 x (cpu=1) PACK; it needs cpu=9 in all, there are 4" in analysis.trials[0].reason
    assert str(analysis.trials[0].error) == analysis.trials[0].reason
    assert list(analysis.results_df["error"]) == [analysis.trials[0].reason]
    assert "Lower num_workers" in analysis.trials[0].reason


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"start_method": "spawn"}, marks=pytest.mark.slow, id="spawned"),
        pytest.param({"reuse_actors": True}, id="reused"),
    ],
)
def test_every_kind_of_worker_goes_back_and_comes_again(run, options):
    analysis = run(trial, config={"x": sweep.grid_search([1, 2])}, max_concurrent_trials=1, **options)
    assert last(analysis, "loss") == [2, 4]


class Steps(sweep.Trainable):
    def setup(self, config):
        self.config = config

    def step(self):
        result = fit(self.config)
        return {"loss": result.metrics["loss"], "done": True}


def test_a_class_fits_in_a_step(run):
    assert last(run(Steps, config={"x": sweep.grid_search([1, 2])}), "loss") == [2, 4]


def test_the_command_line_says_why(run, tmp_path):
    run(trial, config={"x": 1})
    shown = CliRunner().invoke(command, ["why", "grown", "--storage", str(tmp_path)]).output
    assert "(nothing) + 2 x (cpu=1) PACK" in shown
    assert "(asks for what its fit() needs; it was given cpu=1)" in shown


@pytest.mark.slow
def test_a_driver_that_is_killed_while_trials_wait_for_more_goes_on(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import os, sys
            import sweep
            from train.test_escalated_trials import trial

            class Killer(sweep.Callback):
                starts = 0

                def on_trial_start(self, iteration, trials, trial, **info):
                    Killer.starts += 1
                    if Killer.starts == 3 and sys.argv[1] == "die":  # two have started; one comes again
                        os.kill(os.getpid(), {int(signal.SIGKILL)})

            if __name__ == "__main__":
                analysis = sweep.run(
                    trial, config={{"x": sweep.grid_search([1, 2])}}, nodes=[sweep.Node(cpus=2)], verbose=0,
                    name="grown", storage_path={str(tmp_path)!r}, callbacks=[Killer()], resume="auto",
                )
            """
        )
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    died = subprocess.run([sys.executable, script, "die"], env=environment, cwd=tmp_path, capture_output=True)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    asks = [row.escalation for row in ExperimentReader(tmp_path / "grown").trials()]
    assert any(grown is not None for grown in asks)
    again = subprocess.run([sys.executable, script, "go"], env=environment, cwd=tmp_path, capture_output=True)
    assert again.returncode == 0, again.stderr.decode()
    rows = ExperimentReader(tmp_path / "grown").trials()
    assert [(row.status, row.last_metrics["loss"], row.failures) for row in rows] == [
        ("TERMINATED", 2, 0),
        ("TERMINATED", 4, 0),
    ]
    kinds = [fact.event.exit.kind for fact in read_facts(tmp_path / "grown/sweep.db") if hasattr(fact.event, "exit")]
    assert "NEEDS_MORE" in kinds


@pytest.mark.parametrize("value", [{"loss": -1}, object()], ids=["dict", "object"])
def test_what_a_train_loop_returns_is_ignored(tmp_path, value):
    def returning():
        sweep.report(loss=1)
        return value

    config = RunConfig(verbose=0, storage_path=tmp_path)
    result = DataParallelTrainer(returning, scaling_config=ScalingConfig(num_workers=2), run_config=config).fit()
    assert result.metrics == {"loss": 1}
    assert len(result.metrics_dataframe) == 1


def test_a_second_fit_under_one_name_is_told_the_call_that_continues_the_first(tmp_path):
    running = RunConfig(name="once", verbose=0, storage_path=tmp_path)
    trainer = DataParallelTrainer(lambda: sweep.report(loss=1), run_config=running)
    trainer.fit()
    with pytest.raises(ExperimentError, match=r"Continue it with sweep.Tuner.restore\('.*once', trainable\)\.fit\(\)"):
        trainer.fit()
    assert len(sweep.Tuner.restore(tmp_path / "once", trainer).fit()) == 1


def test_a_trial_that_starts_again_gives_its_checkpoint_to_its_group(run, tmp_path):
    def counting(config):
        checkpoint = sweep.get_checkpoint()
        start = int(Path(checkpoint.path, "step").read_text()) if checkpoint is not None else 0
        for step in range(start, 4):
            with sweep.checkpoint_dir() as directory:
                Path(directory, "step").write_text(str(step + 1))
            sweep.report(step=step, start=start)

    def forwarding(config):
        scaling, forwards = ScalingConfig(num_workers=2), RunConfig(callbacks=[TuneReportCallback()])
        DataParallelTrainer(counting, scaling_config=scaling, run_config=forwards).fit()
        if not (tmp_path / "failed").exists():
            (tmp_path / "failed").touch()
            raise RuntimeError("after the group")
        DataParallelTrainer(counting, scaling_config=scaling, run_config=forwards).fit()  # another one, from nothing

    analysis = run(forwarding, max_failures=1)
    rows = [(row.metrics["step"], row.metrics["start"]) for row in ExperimentReader(analysis.experiment_path).results()]
    assert rows == [(0, 0), (1, 0), (2, 0), (3, 0), (0, 0), (1, 0), (2, 0), (3, 0)]
