"""Bad input gets one clear error before the first trial: what was found, what was expected, what to do."""

from __future__ import annotations

import ctypes
import datetime
import io
import os
import re
import shutil
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import sweep
from sweep import Checkpoint
from sweep.errors import (
    CheckpointError,
    ConfigError,
    ExperimentError,
    MetricError,
    ResourceError,
    SearchError,
    SpaceError,
    TrainableError,
    UnknownNameError,
)
from sweep.launch.build import build_policies
from sweep.launch.spec import RunSpec
from sweep.record.lock import DriverLock
from sweep.record.reader import ExperimentReader
from sweep.schedulers import Scheduler


def train(config):
    sweep.report(loss=config.get("x", 0.0))


@pytest.fixture(autouse=True)
def _inventory(tmp_path, monkeypatch):
    monkeypatch.setenv("SWEEP_STORAGE", str(tmp_path))
    sweep.init(num_cpus=2, num_gpus=0)
    yield
    sweep.shutdown()


def run(trainable=train, **arguments):
    arguments.setdefault("verbose", 0)
    return sweep.run(trainable, **arguments)


def nothing_was_started(root: Path) -> bool:
    return not any(root.iterdir())


UNIFORM = sweep.uniform(0, 1)
OF_LOSS = {"metric": "loss", "mode": "min"}
REFUSED = [
    # resources
    ({"resources_per_trial": {"cpu": 1, "gpu": 4}}, r"gpu=4.*this machine has: 0.*Lower resources_per_trial"),
    (
        {"resources_per_trial": sweep.PlacementGroupFactory([{"CPU": 1}] * 3)},
        r"3 x \(cpu=1\).*needs cpu=3 in all, there are 2",
    ),
    ({"resources_per_trial": {"cpus": 1}}, r"did you mean 'cpu'"),
    ({"resources_per_trial": {"cpu": -1}}, r"cpu=-1.*at least 0"),
    ({"resources_per_trial": {"gpu": 1.5}}, r"gpu=1\.5.*whole number"),
    ({"resources_per_trial": {"cpu": 0}}, r"nothing at all"),
    ({"resources_per_trial": {"cpu": "two"}}, r"expected a number"),
    ({"resources_per_trial": {"memory": "4 elephants"}}, r"'4G'"),
    ({"resources_per_trial": 7}, r"expected a dict"),
    ({"trainable": sweep.with_resources(train, {"cpu": 1}), "resources_per_trial": {"cpu": 2}}, "twice"),
    ({"nodes": [sweep.Node("a"), sweep.Node("a")]}, "nodes has two with the id 'a'"),
    (
        {"nodes": [sweep.Node("a", devices=(sweep.Device("0"), sweep.Device("0")))]},
        "the node 'a' has two devices with the id '0'",
    ),
    # names
    ({"num_sample": 3}, r"no parameter 'num_sample'. Did you mean 'num_samples'\?"),
    ({"search_alg": "optna"}, r"'optna'.*Did you mean 'optuna'\?.*random"),
    ({"scheduler": "ahsa", **OF_LOSS}, r"'ahsa'.*Did you mean 'asha'\?.*fifo"),
    ({"search_alg": 3}, "search_alg is 3"),
    ({"engine": "locl"}, r"engine is 'locl'.*Did you mean 'local'"),
    # metric, mode and space
    *(({"metric": "loss", "mode": mode}, "expected 'min' or 'max'") for mode in ("minimize", "MAX", "", 1)),
    ({"metric": "loss"}, "needs a mode"),
    ({"scheduler": "asha"}, "needs a metric"),
    ({"scheduler": sweep.ASHAScheduler(metric="other", mode="min"), **OF_LOSS}, "in one place"),
    ({"search_alg": sweep.RandomSearch(metric="other", mode="min"), **OF_LOSS}, "in one place"),
    ({"config": {"x": UNIFORM}, "search_alg": sweep.OptunaSearch({"x": UNIFORM}), **OF_LOSS}, "in one place"),
    ({"config": {"x": sweep.grid_search([1, 2])}, "search_alg": "optuna", **OF_LOSS}, "grid"),
    # numbers and words
    ({"checkpoint_config": sweep.CheckpointConfig(checkpoint_frequency=2)}, "class trainables"),
    *(({"num_samples": value}, "num_samples is") for value in (0, 2.5, True)),
    ({"max_concurrent_trials": -1}, "max_concurrent_trials is -1"),
    *(({"time_budget_s": value}, "time_budget_s is") for value in (0, "1h")),
    ({"seed": -1}, "seed is -1"),
    *(({"stop": {"loss": value}}, "expected a number") for value in ("low", None)),
    ({"stop": {"eval": {"loss": 1}}}, "as a path"),
    ({"stop": 3}, "stop is 3"),
    *(({"resume": value}, "resume is") for value in ("MAYBE", "REMOTE", "PROMPT")),
    ({"resume": "AUTO+EROR"}, "expected True, False"),
    ({"max_failures": -2}, "max_failures is -2"),
    ({"fail_fast": True, "max_failures": 2}, "choose one"),
    ({"fail_fast": "loudly"}, "fail_fast is"),
    ({"config": [1, 2]}, "config is"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=[str(given)[:50] for given, _ in REFUSED])
def test_senseless_numbers_and_words_are_refused(tmp_path, arguments, message):
    with pytest.raises((ConfigError, ResourceError, UnknownNameError, SearchError), match=message):
        run(**arguments)
    assert nothing_was_started(tmp_path)


def test_more_gpus_than_the_parents_list_holds_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-8a5b0001,GPU-8a5b0002,cpu")  # two, or on a machine with GPUs none
    words = (
        r"num_gpus is 3 and this process may use . GPUs: CUDA_VISIBLE_DEVICES='.*' ends at '.*Lower num_gpus or change"
    )
    with pytest.raises(ResourceError, match=words):
        sweep.init(num_gpus=3)
    assert sweep.cluster_resources().get("GPU", 0) == 0
    assert nothing_was_started(tmp_path)


def test_a_metric_that_is_never_reported_ends_the_sweep_after_three_trials(tmp_path):
    with pytest.raises(MetricError, match=r"3 trials reported loss; expected the metric 'los'. Did you mean 'loss'\?"):
        run(metric="los", mode="max", num_samples=20, name="m", max_concurrent_trials=1)
    assert sum(1 for _ in ExperimentReader(tmp_path / "m").trials()) < 10
    analysis = run(metric="loss", mode="max", num_samples=4, name="m", resume=True)  # nothing was lost
    assert [trial.status for trial in analysis.trials[:4]] == ["TERMINATED"] * 4


def mixed(config):
    match config["kind"]:
        case "silent":
            return
        case "other":
            sweep.report(accuracy=1.0)
        case "text":
            sweep.report(loss="0.3")
        case "good":
            sweep.report(loss=0.5)


MIXED = {"kind": sweep.grid_search(["good", "silent", "other", "text"])}


def test_the_metric_is_judged_per_trial_and_a_text_is_the_error_of_its_trial_alone(tmp_path):
    with pytest.warns(UserWarning, match="m: 2 x never reported the metric 'loss'   trials 00001 00002"):
        analysis = run(
            mixed, config=MIXED, metric="loss", mode="min", name="m", max_failures=5, raise_on_failed_trial=False
        )
    rows = [(trial.status, trial.reason) for trial in analysis.trials]
    assert rows == [
        ("TERMINATED", ""),
        ("TERMINATED", "reported nothing; expected the metric 'loss'"),
        ("TERMINATED", "never reported the metric 'loss'"),
        ("ERROR", "the metric 'loss' is '0.3', a str; expected a number"),
    ]
    assert "the metric 'loss' is '0.3'" in str(analysis.trials[3].error)
    assert [trial.num_failures for trial in analysis.trials] == [0, 0, 0, 1]
    assert analysis.best_config == {"kind": "good"}
    assert sweep.replay(tmp_path / "m").is_same


def test_a_value_that_is_no_number_text_list_or_dict_is_stored_as_a_list_or_a_text(tmp_path, capfd):
    def train(config):
        for _ in range(2):
            sweep.report(loss=0.5, small=np.arange(3), large=np.zeros((10, 10)), when=datetime.date(2026, 1, 2))

    analysis = run(train, metric="loss", mode="min", name="m", engine="inline")
    found = analysis.trials[0].last_result
    assert (found["small"], found["when"]) == ([0, 1, 2], "2026-01-02")
    assert found["large"] == "numpy.ndarray of shape (10, 10) and dtype float64"
    told = "sweep: 'large' was reported as numpy.ndarray of shape (10, 10) and dtype float64, stored as a text; this is"
    assert capfd.readouterr().err.count(told) == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("loss", 10**400),
        ("training_iteration", 10**400),
        ("training_iteration", "three"),
        ("time_total_s", 10**5000),
        ("timesteps_total", {"a": 1}),
        ("accuracy", "high"),
        ("epoch", [1]),
    ],
    ids=lambda value: "",
)
def test_what_the_sweep_reads_must_be_a_number_and_else_its_trial_alone_is_in_error(key, value):
    def train(config):
        sweep.report({"loss": 0.5, "accuracy": 0.1, "epoch": 1, key: value if config["x"] else 1})
        sweep.report(loss=0.5, accuracy=0.1, epoch=2)

    analysis = run(
        train,
        config={"x": sweep.grid_search([0, 1, 0])},
        metric="loss",
        mode="min",
        stop={"accuracy": 0.9},
        scheduler=sweep.ASHAScheduler(time_attr="epoch", max_t=5),
        engine="inline",
        max_failures=3,
        raise_on_failed_trial=False,
    )
    assert [trial.status for trial in analysis.trials] == ["TERMINATED", "ERROR", "TERMINATED"]
    assert analysis.trials[1].num_failures == 1
    assert re.match(rf"the (metric|reported) '{key}' is .{{3,120}}; expected a number", analysis.trials[1].reason)


def test_a_metric_that_is_reported_later_is_allowed_when_not_strict():
    def late(config):
        sweep.report(warming_up=1)
        sweep.report(loss=1.0)

    analysis = run(late, metric="loss", mode="min", strict_metric=False)
    assert analysis.best_result["loss"] == 1.0


def test_a_mode_alone_asks_for_no_metric():
    analysis = run(lambda config: sweep.report(score=config["x"]), config={"x": sweep.grid_search([1, 2])}, mode="max")
    assert analysis.get_best_config(metric="score", mode="max") == {"x": 2}
    with pytest.raises(MetricError, match="expected the metric '_metric'"):
        run(lambda config: sweep.report(score=1), mode="max", scheduler="asha")


def test_an_unpicklable_trainable_names_the_captured_variable(tmp_path):
    lock = threading.Lock()

    def locked(config):
        with lock:
            sweep.report(loss=1)

    with pytest.raises(TrainableError, match="lock"):
        run(locked)
    assert nothing_was_started(tmp_path)


class Model:
    def __init__(self):
        self.name, self.lock = "m", threading.Lock()


@pytest.mark.parametrize(
    ("space", "where"),
    [
        ({"lr": 0.1, "model": {"lock": threading.Lock()}}, r"config\['model'\]\['lock'\] is a _thread\.lock"),
        ({"rows": (row for row in [1, 2])}, r"config\['rows'\] is a generator"),
        ({"data": {"file": io.TextIOWrapper(io.BytesIO())}}, r"config\['data'\]\['file'\] is a _io\.TextIOWrapper"),
        ({"log": [1, sys.stderr]}, r"config\['log'\]\[1\] is a "),
        ({"m": sweep.choice(["a", threading.Lock()])}, r"config\['m'\]\.categories\[1\] is a _thread\.lock"),
        ({"m": sweep.grid_search([{"k": threading.Lock()}])}, r"config\['m'\].*\[0\]\['k'\] is a _thread\.lock"),
        ({"m": Model()}, r"config\['m'\]\.lock is a _thread\.lock"),
    ],
)
@pytest.mark.parametrize(
    "start",
    [
        lambda space: run(config=space),
        lambda space: run(config=space, engine="inline"),
        lambda space: sweep.Tuner(train, param_space=space).fit(),
    ],
)
def test_a_config_that_cannot_be_pickled_names_the_key(tmp_path, space, where, start):
    with pytest.raises(ConfigError, match=where):
        start(space)
    assert nothing_was_started(tmp_path)


def in_itself():
    space = {"x": sweep.uniform(0, 1), "inner": [1]}
    space["inner"].append(space)
    return space


class Adding(Scheduler):
    def __init__(self, answer):
        self.answer = answer

    def on_result(self, trial, result, trials):
        return ()

    def complete_config(self, config, number):
        return self.answer(config)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"config": in_itself()}, r"config\['inner'\] holds itself, or is nested some hundred deep"),
        ({"config": {"x": 1}, "scheduler": Adding(lambda config: in_itself())}, r"config\['inner'\] holds itself"),
        ({"scheduler": Adding(lambda config: 5)}, "the scheduler Adding answered complete_config with 5; expected the"),
        ({"scheduler": Adding(lambda config: None)}, "answered complete_config with None; expected the trial's config"),
        ({"scheduler": Adding(lambda config: 1 / 0)}, "the scheduler Adding failed: ZeroDivisionError"),
        ({"callbacks": [sweep.Callback]}, r"callbacks\[0\] is <class .*; expected an object of it, Callback\(\)"),
        (
            {"callbacks": [sweep.Callback(), print]},
            r"callbacks\[1\] is <.*print>; expected an object of a class derived",
        ),
        (
            {"callbacks": ["wandb"]},
            r"callbacks\[0\] is 'wandb'; expected an object of a class derived from sweep.Callb",
        ),
        ({"callbacks": "wandb"}, r"callbacks is 'wandb'; expected a list of objects, such as \[Wandb"),
        ({"callbacks": sweep.Callback()}, r"callbacks is <.*>; expected a list of objects, such as \[Wandb"),
        ({"progress_reporter": 5}, "progress_reporter is 5; expected a reporter such as sweep.CLIReporter"),
        ({"progress_reporter": sweep.CLIReporter}, "progress_reporter is <class .*; expected a reporter such as"),
    ],
)
def test_what_has_no_end_or_is_no_config_or_no_reporter_is_refused_in_one_sentence(tmp_path, arguments, message):
    with pytest.raises(sweep.SweepError, match=message):
        run(engine="inline", **arguments)


@pytest.mark.parametrize("trainable", [3, None, lambda: None, lambda a, b: None, dict])
def test_a_trainable_that_cannot_be_called_with_a_config_is_refused(tmp_path, trainable):
    with pytest.raises(TrainableError):
        run(trainable)
    assert nothing_was_started(tmp_path)


@pytest.mark.parametrize(
    ("domain", "bounds"),
    [("uniform", (1, 0)), ("loguniform", (0, 1)), ("loguniform", (-1, 1)), ("randint", (5, 5)), ("choice", ([],))],
)
def test_a_space_with_inverted_or_non_positive_log_bounds_is_refused_where_it_is_written(domain, bounds):
    with pytest.raises(SpaceError):
        getattr(sweep, domain)(*bounds)


def _says_from_dict(config):
    sweep.report(loss=1.0, checkpoint=sweep.train.Checkpoint.from_dict({"step": 1}))


def _says_from_dict_inside(config):
    def save():
        return Checkpoint.from_dict({"step": 1})

    sweep.report(loss=1.0, checkpoint=save())


@pytest.mark.parametrize("trainable", [_says_from_dict, _says_from_dict_inside])
def test_a_checkpoint_from_a_dict_is_refused_once_before_the_search(tmp_path, trainable):
    with pytest.raises(CheckpointError, match=r"Checkpoint.from_dict is gone: .*call Checkpoint.from_directory"):
        sweep.run(trainable, config={}, num_samples=3, verbose=0)
    assert nothing_was_started(tmp_path)


@pytest.mark.parametrize(
    ("given", "rest"),
    [
        ({"metric": "loss"}, {"mode": "min"}),
        ({"metric": "loss"}, {"metric": "loss", "mode": "min"}),
        ({"mode": "min"}, {"metric": "loss"}),
    ],
)
@pytest.mark.parametrize(
    "make", [lambda kw: {"scheduler": sweep.ASHAScheduler(**kw)}, lambda kw: {"search_alg": sweep.OptunaSearch(**kw)}]
)
def test_one_of_metric_and_mode_is_completed_by_that_of_the_scheduler_or_the_searcher(make, given, rest):
    spec = RunSpec.of(print, {"config": {"x": sweep.uniform(0, 1)}, **given, **make(rest)})
    assert (spec.metric, spec.mode) == ("loss", "min")
    policies = build_policies(spec, 0)
    assert (policies.metric, policies.mode) == ("loss", "min")


def test_the_mode_for_another_metric_does_not_count():
    with pytest.raises(ConfigError, match="needs a mode"):
        RunSpec.of(print, {"metric": "loss", "scheduler": sweep.ASHAScheduler(metric="acc", mode="max")})


def test_an_unwritable_directory_is_refused(tmp_path):
    file = tmp_path / "file"
    file.write_text("in the way")
    with pytest.raises(ExperimentError, match=r"cannot be written.*storage_path"):
        run(storage_path=file / "below")
    if os.geteuid() == 0:
        with pytest.raises(ExperimentError, match="cannot be written"):
            run(storage_path="/proc/sweep")


def test_an_experiment_that_cannot_be_written_is_read_and_not_continued(tmp_path):
    run(name="one")
    (tmp_path / "one" / "driver.lock").unlink()
    (tmp_path / "one" / "driver.lock").mkdir()  # what nobody can open for writing, not even root
    before = sorted(os.listdir(tmp_path / "one"))
    with pytest.raises(ExperimentError, match=r"cannot be written: Is a directory\. A sweep is continued.*copy"):
        run(name="one", resume=True)
    assert sorted(os.listdir(tmp_path / "one")) == before
    assert len(sweep.ExperimentAnalysis(tmp_path / "one").trials) == 1


def test_an_existing_name_is_refused_with_resuming_another_name_and_the_call_that_deletes_it(tmp_path):
    run(name="ta.ken")
    before = (tmp_path / "ta.ken" / "sweep.db").read_bytes()
    with pytest.raises(
        ExperimentError, match=r"already is an experiment 'ta.ken'.*resume=True.*another name="
    ) as error:
        run(name="ta.ken")
    with pytest.raises(
        ExperimentError, match=r"Continue it with sweep.Tuner.restore\(.*ta.ken', train\).fit\(\), give"
    ):
        sweep.Tuner(train, run_config=sweep.RunConfig(name="ta.ken", storage_path=tmp_path)).fit()
    assert (tmp_path / "ta.ken" / "sweep.db").read_bytes() == before
    call = f"shutil.rmtree({str(tmp_path / 'ta.ken')!r})"
    assert call in str(error.value)
    exec(call, {"shutil": shutil})  # what it says to call does what it says
    run(name="ta.ken")


def test_nobody_is_told_to_delete_a_sweep_that_runs(tmp_path):
    run(name="taken")
    lock = DriverLock(tmp_path / "taken" / "driver.lock", "another driver's")
    with pytest.raises(ExperimentError, match=rf"'taken' in .*A driver runs it now \(pid {os.getpid()}\)") as error:
        run(name="taken")
    lock.release()
    assert "rmtree" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../evil", "it has a '/'.* storage_path='.../..', name='evil'"),
        ("a/b", "it has a '/'.* storage_path='.../a', name='b'"),
        ("", "expected letters"),
        (".hidden", "such as 'hidden'"),
        ("-x", "such as 'x'"),
        ("line\nbreak", "such as 'line_break'"),
        ("*?[a]", "such as '_a_'"),
        ("ends ", "such as 'ends'"),
        ("ü" * 120, "in UTF-8"),
        (3, "expected letters"),
    ],
)
def test_a_name_that_is_no_directory_name_is_refused(tmp_path, name, why):
    with pytest.raises(ConfigError, match=f"cannot name a directory.*{why}"):
        run(name=name)
    assert nothing_was_started(tmp_path)


def test_a_sweep_inside_a_trial_is_refused_with_the_reason():
    def nested(config):
        try:
            sweep.run(train)
        except ExperimentError as error:
            sweep.report(said=str(error))

    analysis = run(nested)
    assert "inside trial" in analysis.trials[0].last_result["said"]


def test_what_is_nearly_right_is_answered_with_what_is():
    with pytest.raises(SpaceError, match=r"choice\(1, 2, 3\): expected one list of values: choice\(\[1, 2, 3\]\)\."):
        sweep.choice(1, 2, 3)
    with pytest.raises(
        SpaceError, match=r"grid_search\('a', 'b'\): expected one list .* grid_search\(\['a', 'b'\]\)\."
    ):
        sweep.grid_search("a", "b")
    with pytest.raises(AttributeError, match=r"no attribute 'unifrom'. Did you mean 'uniform'\?"):
        _ = sweep.unifrom  # type: ignore[attr-defined]
    with pytest.raises(
        TrainableError, match=r"called as two\(config\): missing .*'data'. Give it by sweep.with_parameters\(two, "
    ):
        run(two)
    with pytest.raises(TrainableError, match=r"captures `matrix\.handle`, a ctypes.c_void_p, which cannot be shipped"):
        run(lambda config: matrix)


def two(config, data):
    """Take more than a config."""


class Matrix:
    """Refers to memory of a library's own, as an xgboost.DMatrix does."""

    def __init__(self):
        self.handle = ctypes.c_void_p(5)


matrix = Matrix()
