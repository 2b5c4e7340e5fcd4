"""What users of the Python API rely on, with real processes."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import pytest
from recorded import most_at_once

import sweep
from sweep.errors import ExperimentError, TrialsFailed
from sweep.record.facts import read_facts


@pytest.fixture(autouse=True)
def _inventory(tmp_path, monkeypatch):
    monkeypatch.setenv("SWEEP_STORAGE", str(tmp_path))
    sweep.init(num_cpus=2, num_gpus=0)
    yield
    sweep.shutdown()


def run(trainable, **arguments):
    arguments.setdefault("verbose", 0)
    return sweep.run(trainable, **arguments)


def quadratic(config):
    for step in range(3):
        sweep.report(loss=(config["x"] - 3) ** 2 + 1 / (step + 1))


SEARCH = {"config": {"x": sweep.uniform(0, 10)}, "metric": "loss", "mode": "min"}


def statuses(analysis):
    return [trial.status for trial in analysis.trials]


# --- the first minutes ---------------------------------------------------------------------------------------------


def test_the_one_liner_works_as_typed(tmp_path):
    code = (
        "import sweep; r = sweep.run(lambda c: sweep.report(loss=(c['x']-3)**2), config={'x': sweep.uniform(0, 10)}, "
        "num_samples=50, metric='loss', mode='min', verbose=0); print(r.best_config)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    (x,) = re.fullmatch(r"\{'x': ([\d.]+)\}\n", ended.stdout).groups()
    assert abs(float(x) - 3) < 1.5


def test_verbose_0_prints_nothing_at_all(capfd):
    run(quadratic, **SEARCH, num_samples=3)
    assert capfd.readouterr() == ("", "")


def test_the_tuner_gives_a_result_grid():
    tuner = sweep.Tuner(
        quadratic,
        param_space={"x": sweep.grid_search([1.0, 3.0, 5.0])},
        tune_config=sweep.TuneConfig(metric="loss", mode="min"),
        run_config=sweep.RunConfig(name="tuned", verbose=0),
    )
    grid = tuner.fit()
    assert grid.get_best_result().config == {"x": 3.0}
    assert grid.get_best_result().metrics["training_iteration"] == 3
    assert list(grid.get_dataframe()["config/x"]) == [1.0, 3.0, 5.0]
    assert tuner.get_results() is grid


def test_results_are_filled_in_as_in_tune():
    result = run(quadratic, config={"x": 3.0}).trials[0].last_result
    assert result["training_iteration"] == 3
    assert result["iterations_since_restore"] == 3
    assert result["time_total_s"] >= result["time_this_iter_s"] >= 0
    assert result["pid"] not in (0, os.getpid())
    assert abs(result["timestamp"] - time.time()) < 60
    assert result["trial_id"].endswith("_00000")


def test_what_a_function_returns_or_yields_is_a_report():
    def generate(config):
        yield {"loss": 2}
        yield {"loss": 1}

    returned = run(lambda config: {"loss": 5}).trials[0]
    assert returned.last_result["loss"] == 5
    assert run(lambda config: 7).trials[0].last_result["_metric"] == 7
    assert run(generate).trials[0].last_result["training_iteration"] == 2


def test_loggers_write_the_files_that_tune_users_expect(tmp_path):
    analysis = run(quadratic, config={"x": 1.0, "net": {"width": 3}}, name="logged")
    directory = tmp_path / "logged" / analysis.trials[0].trial_id
    assert json.loads((directory / "params.json").read_text()) == {"x": 1.0, "net": {"width": 3}}
    lines = [json.loads(line) for line in (directory / "result.json").read_text().splitlines()]
    assert [line["training_iteration"] for line in lines] == [1, 2, 3]
    assert (directory / "progress.csv").read_text().count("\n") == 4
    assert (directory / "output.log").exists()


# --- spaces and resources ------------------------------------------------------------------------------------------


def test_nested_spaces_grids_and_dependent_values():
    def check(config):
        assert config["net"]["double"] == 2 * config["net"]["width"]
        sweep.report(loss=config["net"]["width"])

    analysis = run(
        check,
        config={
            "net": {"width": sweep.randint(1, 100), "double": sweep.sample_from(lambda c: c["net"]["width"] * 2)},
            "kind": sweep.grid_search(["a", "b"]),
        },
        num_samples=3,
    )
    assert [trial.config["kind"] for trial in analysis.trials] == ["a", "b"] * 3
    assert all(trial.status == "TERMINATED" for trial in analysis.trials)


def test_resources_may_depend_on_the_config(tmp_path):
    analysis = run(
        lambda config: sweep.report(cpus=sweep.get_context().get_trial_resources().bundles[0].cpu),
        config={"n": sweep.grid_search([0.5, 1, 2])},
        resources_per_trial=lambda config: {"cpu": config["n"]},
    )
    assert [trial.last_result["cpus"] for trial in analysis.trials] == [0.5, 1, 2]


def test_every_searcher_by_name(tmp_path):
    for name in ("random", "tpe", "cmaes", "qmc", "optuna"):
        analysis = run(quadratic, **SEARCH, num_samples=4, search_alg=name)
        assert len({trial.config["x"] for trial in analysis.trials}) == 4


def test_a_seed_gives_the_same_configs():
    def configs():
        return [trial.config for trial in run(quadratic, **SEARCH, num_samples=4, seed=5).trials]

    assert configs() == configs()


def test_the_limit_on_concurrent_trials_holds_for_every_searcher(tmp_path):
    sweep.init(num_cpus=8)
    for name in ("random", "tpe"):
        run(quadratic, **SEARCH, num_samples=8, search_alg=name, max_concurrent_trials=3, name=name)
        assert most_at_once(tmp_path / name) <= 3


# --- trials that misbehave -----------------------------------------------------------------------------------------


def misbehave(config):
    match config["kind"]:
        case "raises":
            raise ValueError("lr must be positive")
        case "exits":
            os._exit(0)
        case "sys.exit":
            sys.exit(3)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            import faulthandler

            faulthandler.disable()
            faulthandler._sigsegv()
        case "prints":
            for _ in range(100_000):
                print("x" * 1000)
    sweep.report(loss=math.nan if config["kind"] == "nan" else 1.0)


# What becomes of those that fail, in words of their errors.
FAIL = {"raises": "ValueError: lr must be positive", "exits": "without returning", "sys.exit": ""}
FAIL |= {"killed": "SIGKILL", "segfault": "SIGSEGV"}


def test_misbehaving_trials_never_take_the_sweep_down(tmp_path):
    space = {"kind": sweep.grid_search([*FAIL, "nan", "prints", "good"])}
    given = {"metric": "loss", "mode": "min", "raise_on_failed_trial": False, "name": "bad"}
    analysis = run(misbehave, config=space, **given)
    trials = {trial.config["kind"]: trial for trial in analysis.trials}
    assert {kind for kind, trial in trials.items() if trial.status == "ERROR"} == FAIL.keys()
    assert [kind for kind, said in FAIL.items() if said not in str(trials[kind].error)] == []
    assert "raise ValueError" in trials["raises"].error.traceback
    assert math.isnan(trials["nan"].last_result["loss"])
    assert analysis.best_config["kind"] in ("prints", "good")
    assert (tmp_path / "bad" / trials["prints"].trial_id / "output.log").stat().st_size < 80_000_000


def test_what_a_trial_says_steers_no_terminal(tmp_path, capsys):
    from sweep.cli.main import main

    def train(config):
        sweep.report(loss=1)
        raise RuntimeError("odd \x1b[2J\x9b2J\u202e text\nsecond line")

    with pytest.raises(TrialsFailed) as caught:
        run(train, name="odd", engine="inline", trial_name_creator=lambda _: "a\x1b[1mb")
    shown = "".join(traceback.format_exception(caught.value))
    assert "odd \\x1b[2J\\x9b2J\\u202e text\nsecond line" in shown
    (trial,) = sweep.ExperimentAnalysis(tmp_path / "odd").trials
    (result,) = sweep.ResultGrid(sweep.ExperimentAnalysis(tmp_path / "odd"))
    for line in (["replay", "odd"], ["why", "odd"], ["show", "odd", "0"], ["trials", "odd"]):
        with pytest.raises(SystemExit):
            main([*line, "--storage", str(tmp_path)])
    for text in (shown, str(trial), repr(trial), str(result), repr(result), str(trial.error), capsys.readouterr().out):
        assert not set(text) & set("\x1b\x9b\u202e")


def test_failed_trials_raise_at_the_end_unless_told_otherwise():
    def sometimes(config):
        if config["x"] == 2:
            raise RuntimeError("no luck")
        sweep.report(loss=config["x"])

    space = {"x": sweep.grid_search([1, 2, 3])}
    with pytest.raises(TrialsFailed, match=r"1 of 3 trials failed(.|\n)*RuntimeError: no luck") as caught:
        run(sometimes, config=space)
    assert caught.value.analysis is sweep.last_analysis()
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [frame.name for frame in frames if "/sweep/" in frame.filename] == ["run"]  # how it came there says nothing
    for analysis in (caught.value.analysis, run(sometimes, config=space, raise_on_failed_trial=False)):
        assert statuses(analysis) == ["TERMINATED", "ERROR", "TERMINATED"]


def test_trials_that_fail_alike_end_the_sweep_which_goes_on_when_it_is_mended(tmp_path, capfd):
    flag = tmp_path / "mended"

    def broken(config):
        if not flag.exists():
            raise KeyError("lr")
        sweep.report(loss=config["x"])

    given = {"config": {"x": sweep.grid_search(list(range(30)))}, "name": "alike", "max_concurrent_trials": 2}
    with pytest.raises(TrialsFailed, match=r"the first [5-8] trials all failed alike, .*: KeyError: 'lr'\n") as caught:
        run(broken, **given, verbose=1)
    assert isinstance(caught.value.__cause__.__cause__, KeyError)
    failed = sum(trial.status == "ERROR" for trial in caught.value.analysis.trials)
    assert 5 <= failed < 10  # two run at a time, at most
    assert f"finished 0 · stopped early 0 · failed {failed}\n" in capfd.readouterr().out
    analysis = run(broken, resume=True, raise_on_failed_trial=False, **given)
    assert re.search("sweep: the first [5-8] trials all failed alike", capfd.readouterr().err)
    assert 10 <= sum(trial.status == "ERROR" for trial in analysis.trials) < 20
    flag.touch()
    analysis = run(broken, resume="AUTO+ERRORED", **given)
    assert statuses(analysis) == ["TERMINATED"] * 30


def test_a_failed_trial_is_retried_from_its_checkpoint():
    def flaky(config):
        checkpoint = sweep.get_checkpoint()
        first = 1 if checkpoint is None else int((Path(checkpoint.path) / "step").read_text()) + 1
        for step in range(first, 5):
            with tempfile.TemporaryDirectory() as directory:
                (Path(directory) / "step").write_text(str(step))
                sweep.report(step=step, first=first, checkpoint=sweep.Checkpoint.from_directory(directory))
            if step == 2 and checkpoint is None:
                raise RuntimeError("once")

    trial = run(flaky, max_failures=1).trials[0]
    assert trial.status == "TERMINATED"
    assert trial.last_result["first"] == 3
    assert trial.last_result["training_iteration"] == 4
    assert trial.last_result["iterations_since_restore"] == 2


def test_fail_fast_ends_the_sweep(tmp_path):
    def fails(config):
        raise RuntimeError("at once")

    with pytest.raises(TrialsFailed):
        run(fails, num_samples=50, fail_fast=True, name="fast")
    trials = sweep.ExperimentAnalysis(tmp_path / "fast").trials
    assert sum(trial.status == "ERROR" for trial in trials) <= 2


def test_a_broken_callback_harms_nobody(capfd):
    class Broken(sweep.Callback):
        def on_trial_result(self, trial, result):
            raise KeyError("oops")

    analysis = run(quadratic, config={"x": 1.0}, num_samples=4, callbacks=[Broken()])
    assert set(statuses(analysis)) == {"TERMINATED"}


# --- stopping ------------------------------------------------------------------------------------------------------


def endless(config):
    step = 0
    while True:
        step += 1
        sweep.report(step=step, loss=1.0, is_even=step % 2 == 0)


def test_stop_by_criterion_function_stopper_and_list():
    for stop, last in (
        ({"step": 5}, 5),
        (lambda trial_id, result: result["step"] >= 4, 4),
        (sweep.MaximumIterationStopper(3), 3),
        ({"is_even": True}, 2),
        ({"is_even": False}, 1),
        ([sweep.MaximumIterationStopper(30), sweep.FunctionStopper(lambda i, r: r["step"] >= 2)], 2),
    ):
        assert run(endless, stop=stop).trials[0].last_result["step"] == last


def test_a_stoppers_stop_all_ends_the_sweep():
    class Enough(sweep.Stopper):
        seen = 0

        def __call__(self, trial_id, result):
            self.seen += 1
            return False

        def stop_all(self):
            return self.seen >= 7

    analysis = run(endless, num_samples=100, stop=Enough())
    assert set(statuses(analysis)) == {"TERMINATED"}
    assert sum(bool(trial.last_result) for trial in analysis.trials) <= 4


def test_a_time_budget_ends_the_sweep_and_keeps_results():
    analysis = run(endless, num_samples=-1, time_budget_s=1.5, max_concurrent_trials=2)
    assert set(statuses(analysis)) == {"TERMINATED"}
    assert analysis.trials[0].last_result["step"] > 3


def test_asha_stops_bad_trials_early():
    def train(config):
        for step in range(1, 28):
            sweep.report(score=config["x"] * step)

    scheduler = sweep.ASHAScheduler(max_t=27, reduction_factor=3)
    given = {"config": {"x": sweep.uniform(0, 1)}, "num_samples": 20, "metric": "score", "mode": "max", "seed": 1}
    analysis = run(train, **given, scheduler=scheduler)
    steps = [trial.last_result["training_iteration"] for trial in analysis.trials]
    assert (min(steps), max(steps)) == (1, 27)
    assert analysis.get_best_trial("score", "max", scope="all").last_result["training_iteration"] == 27


# --- resume --------------------------------------------------------------------------------------------------------


def test_a_finished_sweep_is_extended_and_the_difference_is_printed(tmp_path, capfd):
    first = run(quadratic, **SEARCH, num_samples=3, name="more")
    configs = [trial.config for trial in first.trials]
    capfd.readouterr()
    given = {"resume": True, "stop": {"training_iteration": 2}, "verbose": 1}
    second = run(quadratic, **SEARCH, num_samples=5, name="more", **given)
    printed = "".join(capfd.readouterr())
    assert "num_trials 3 -> 5" in printed
    assert "stop {} -> {'training_iteration': 2}" in printed
    assert [trial.config for trial in second.trials][:3] == configs
    assert [trial.last_result["training_iteration"] for trial in second.trials] == [3, 3, 3, 2, 2]


def test_errored_trials_are_continued_or_restarted_on_request(tmp_path):
    marker = tmp_path / "fixed"

    def sometimes(config):
        if config["x"] == 2 and not marker.exists():
            raise RuntimeError("not yet")
        sweep.report(loss=config["x"])

    given = {"config": {"x": sweep.grid_search([1, 2])}, "name": "again", "raise_on_failed_trial": False}
    run(sometimes, **given)
    assert statuses(run(sometimes, **given, resume=True)) == ["TERMINATED", "ERROR"]
    marker.touch()
    assert statuses(run(sometimes, **given, resume="AUTO+ERRORED")) == ["TERMINATED", "TERMINATED"]
    caused = [row for told in read_facts(tmp_path / "again" / "sweep.db") for row in told.caused or ()]
    assert [row[2] for row in caused if row[0] == "Start"] == [1, 1, 2]


SLOW = """
import sweep, sys, time
def train(config):
    for step in range(200):
        time.sleep(0.02)
        sweep.report(step=step)
if __name__ == "__main__":
    sweep.run(train, num_samples=4, name="slow", storage_path=sys.argv[1], resume=True, nodes=[sweep.Node(cpus=2)],
              verbose=int(sys.argv[2]), stop={"step": int(sys.argv[3])})
"""


def slow_driver(tmp_path, *arguments):
    script = tmp_path / "slow.py"
    script.write_text(SLOW)
    command = [sys.executable, "-u", str(script), str(tmp_path), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path)


def wait_for_reports(experiment: Path) -> None:
    give_up = time.monotonic() + 20
    while time.monotonic() < give_up:
        if (experiment / "sweep.db").exists():
            try:
                if any(trial.last_result for trial in sweep.ExperimentAnalysis(experiment).trials):
                    return
            except ExperimentError:
                pass  # its tables are not there yet
        time.sleep(0.02)
    raise AssertionError("no report came")


def test_ctrl_c_leaves_a_resumable_sweep_and_says_how_to_go_on(tmp_path):
    driver = slow_driver(tmp_path, 1, 150)
    wait_for_reports(tmp_path / "slow")
    driver.send_signal(signal.SIGINT)
    output, _ = driver.communicate(timeout=20)
    assert driver.returncode == -signal.SIGINT, output
    assert "name='slow', resume=True" in output
    assert "Traceback" not in output
    statuses = [trial.status for trial in sweep.ExperimentAnalysis(tmp_path / "slow").trials]
    assert set(statuses) <= {"PENDING", "TERMINATED"}
    assert "PENDING" in statuses
    again = slow_driver(tmp_path, 0, 3)
    output, _ = again.communicate(timeout=30)
    assert again.returncode == 0, output
    trials = sweep.ExperimentAnalysis(tmp_path / "slow").trials
    assert [trial.status for trial in trials] == ["TERMINATED"] * 4


# --- other ways to run ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({"reuse_actors": True}, id="warm"),
        pytest.param({"start_method": "spawn"}, marks=pytest.mark.slow, id="spawn"),
        pytest.param({"engine": "inline"}, id="inline"),
    ],
)
def test_other_ways_to_run_give_the_same(how):
    def found(**how):
        analysis = run(quadratic, **SEARCH, num_samples=4, seed=5, **how)
        return [(trial.config, trial.last_result["loss"]) for trial in analysis.trials]

    assert found(**how) == found()


BREAKS = """
import sweep
def train(config):
    secret = 41
    breakpoint()
    sweep.report(loss=secret)
sweep.run(train, engine="inline", verbose=0)
"""


def test_the_inline_engine_runs_user_code_in_this_process_so_that_pdb_works(tmp_path):
    (tmp_path / "script.py").write_text(BREAKS)
    command = [sys.executable, "script.py"]
    typed = "p secret + 1\nc\n"
    ended = subprocess.run(command, input=typed, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "42" in ended.stdout


def test_class_trainables_save_restore_and_clean_up(tmp_path):
    class Counter(sweep.Trainable):
        def setup(self, config):
            self.value = 0

        def step(self):
            self.value += self.config["by"]
            if self.value == 4 and self.training_iteration < 3 and not (tmp_path / "failed").exists():
                (tmp_path / "failed").touch()
                raise RuntimeError("once")
            return {"value": self.value, "done": self.value >= 8}

        def save_checkpoint(self, checkpoint_dir):
            return {"value": self.value}

        def load_checkpoint(self, checkpoint):
            self.value = checkpoint["value"]

        def cleanup(self):
            (tmp_path / "cleaned").touch()

    analysis = run(
        Counter,
        config={"by": 2},
        max_failures=1,
        checkpoint_config=sweep.CheckpointConfig(checkpoint_frequency=1, num_to_keep=2),
        name="class",
    )
    trial = analysis.trials[0]
    assert trial.last_result["value"] == 8
    assert trial.last_result["training_iteration"] == 4
    assert (tmp_path / "cleaned").exists()
    kept = sorted(p.name for p in (tmp_path / "class" / trial.trial_id).glob("checkpoint_*"))
    assert len(kept) == 2


def test_environment_variables_and_shared_objects_reach_trials():
    import numpy as np

    data = np.arange(1_000_000, dtype=np.float64)

    def train(config, data):
        sweep.report(total=float(data.sum()), flag=os.environ["FLAG"])

    analysis = run(sweep.with_parameters(train, data=data), env={"FLAG": "on"}, num_samples=2)
    for trial in analysis.trials:
        assert trial.last_result["total"] == data.sum()
        assert trial.last_result["flag"] == "on"
