"""`run`, `run_experiments`, `Experiment`, `Tuner` and their configs: what arguments mean, and which are refused."""

from __future__ import annotations

import importlib
import inspect
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import stubs

import sweep
from sweep import (
    CheckpointConfig,
    ExperimentAnalysis,
    FailureConfig,
    ResumeConfig,
    RunConfig,
    SyncConfig,
    TuneConfig,
    Tuner,
    tune,
)
from sweep.errors import (
    ConfigError,
    ResourceError,
    SweepError,
    TrainableError,
    TrialsFailed,
    UnknownNameError,
    UserCodeError,
)
from sweep.launch.spec import ResumeMode, RunSpec
from sweep.record.reader import ExperimentReader
from sweep.train import DataParallelTrainer, ScalingConfig
from sweep.worker.environment import CALLER_VARIABLE as CALLER


def half(config: dict[str, Any]) -> None:
    sweep.report(loss=config.get("x", 1) / 2, env=config.get("env", ""))


def fails(config: dict[str, Any]) -> None:
    if config["x"] == 1:
        raise KeyError("no such thing")
    sweep.report(loss=1.0)


def options(tmp_path: Path, **more: Any) -> dict[str, Any]:
    return {"storage_path": tmp_path, "verbose": 0, "engine": "inline", **more}


# --- what is run ---


def test_a_registered_name_runs_what_it_stands_for_and_names_the_experiment(tmp_path: Path) -> None:
    sweep.register_trainable("halver", half)
    analysis = sweep.run("halver", config={"x": 4}, metric="loss", mode="min", **options(tmp_path))
    assert analysis.best_result is not None
    assert analysis.best_result["loss"] == 2
    assert os.path.basename(analysis.experiment_path).startswith("halver_")


def test_a_name_that_was_not_registered_is_refused_with_the_nearest() -> None:
    sweep.register_trainable("resnet", half)
    with pytest.raises(UnknownNameError, match=r"Unknown trainable: 'resnt'\. Did you mean 'resnet'"):
        sweep.run("resnt")


@pytest.mark.parametrize(("name", "what"), [("", half), (3, half), ("n", 3), ("n", None)])
def test_only_a_name_and_a_callable_can_be_registered(name: Any, what: Any) -> None:
    with pytest.raises(TrainableError, match="register_trainable"):
        sweep.register_trainable(name, what)


def test_an_experiment_is_run_with_its_own_arguments_and_those_of_run(tmp_path: Path) -> None:
    experiment = sweep.Experiment("mine", half, config={"x": sweep.grid_search([2, 8])}, storage_path=tmp_path)
    analysis = sweep.run(experiment, metric="loss", mode="max", verbose=0, engine="inline")
    assert analysis.best_config == {"x": 8}
    assert analysis.experiment_path == str(tmp_path / "mine")


def test_an_argument_given_by_run_and_by_the_experiment_is_refused(tmp_path: Path) -> None:
    experiment = sweep.Experiment("twice", half, config={"x": 1})
    with pytest.raises(ConfigError, match=r"config was given twice: by run\(\) and by the experiment 'twice'"):
        sweep.run(experiment, config={"x": 2}, **options(tmp_path))


def test_a_typing_error_beside_an_experiment_is_not_swallowed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no parameter 'metrik'"):
        sweep.run(sweep.Experiment("typo", half), metrik="loss", **options(tmp_path))


def test_a_list_of_one_is_that_one_and_of_several_is_refused(tmp_path: Path) -> None:
    one = sweep.Experiment("one", half, storage_path=tmp_path)
    assert len(sweep.run([one], verbose=0, engine="inline").trials) == 1
    with pytest.raises(ConfigError, match=r"a list of 2 experiments.*run_experiments"):
        sweep.run([one, one])


def test_run_experiments_runs_all_and_returns_their_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEP_STORAGE", str(tmp_path))
    specs = {
        "a": {"run": half, "config": {"x": sweep.grid_search([2, 4])}},
        "b": {"run": half, "env": "CartPole", "num_samples": 2},
    }
    trials = sweep.run_experiments(specs, verbose=0)
    assert [trial.last_result["loss"] for trial in trials] == [1, 2, 0.5, 0.5]
    assert [trial.config for trial in trials[2:]] == [{"env": "CartPole"}] * 2
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


@pytest.mark.parametrize(
    ("experiments", "message"),
    [
        ({"a": {"run": half, "confg": {}}}, r"no parameter 'confg'\. Did you mean 'config'"),
        ({"a": {"config": {}}}, "has nothing to run"),
        ({"a": 3}, "expected a dict"),
        ([half], r"expected sweep\.Experiment objects"),
        ([sweep.Experiment("a", half), sweep.Experiment("a", half)], "two experiments are called 'a'"),
    ],
)
def test_what_is_no_experiment_is_refused_before_any_is_run(experiments: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sweep.run_experiments(experiments)


MISTAKES: list[tuple[dict[str, Any], type[Exception]]] = [
    ({"run": "nowhere"}, UnknownNameError),
    ({"run": 3}, TrainableError),
    ({"run": lambda: 1}, TrainableError),
    ({"stop": {"loss": "low"}}, ConfigError),
    ({"stop": 3}, ConfigError),
    ({"num_samples": 0}, ConfigError),
    ({"time_budget_s": -1}, ConfigError),
    ({"max_failures": -2}, ConfigError),
    ({"config": [1]}, ConfigError),
    ({"resources_per_trial": {"cpus": 1}}, ResourceError),
    ({"resources_per_trial": {"cpu": -1}}, ResourceError),
    ({"checkpoint_config": CheckpointConfig(checkpoint_frequency=2)}, ConfigError),
    ({"log_to_file": 3}, ConfigError),
    ({"restore": "/nowhere"}, ConfigError),
    ({"name": "a/b"}, ConfigError),
    ({"trial_name_creator": "x"}, ConfigError),
]


@pytest.mark.parametrize(
    ("given", "error"), MISTAKES, ids=[str([*given]) + str(i) for i, (given, _) in enumerate(MISTAKES)]
)
def test_an_experiment_checks_all_that_run_would_refuse(
    tmp_path: Path, given: dict[str, Any], error: type[Exception]
) -> None:
    wrong = {"name": "e", "run": half, **given}
    with pytest.raises(error) as at_once:
        sweep.Experiment(**wrong)
    with pytest.raises(error) as later:
        sweep.run(wrong.pop("run"), **{**options(tmp_path), **wrong})
    assert str(at_once.value) == str(later.value)
    assert not list(tmp_path.iterdir())


def test_an_experiment_tells_others_only_how_much_and_how_long() -> None:
    experiment = sweep.Experiment("e", half, stop={"loss": 1}, num_samples=3, config={"x": 1})
    assert experiment.public_spec == {"stop": {"loss": 1}, "num_samples": 3, "time_budget_s": None}


# --- parameters ---


def test_all_parameters_of_tunes_run_are_known_or_explained() -> None:
    tunes = """
        run_or_experiment name metric mode stop time_budget_s config resources_per_trial num_samples storage_path
        storage_filesystem search_alg scheduler checkpoint_config verbose progress_reporter log_to_file
        trial_name_creator trial_dirname_creator sync_config max_failures fail_fast restore resume resume_config
        reuse_actors raise_on_failed_trial callbacks max_concurrent_trials
    """.split()
    assert set(tunes) <= set(inspect.signature(sweep.run).parameters)
    for former in ("export_formats", "loggers", "queue_trials", "trial_executor", "server_port"):
        with pytest.raises(ConfigError, match=rf"run has no parameter '{former}'\. [A-Z]"):
            sweep.run(half, **{former: None})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"keep_checkpoints_num": 2}, CheckpointConfig(num_to_keep=2)),
        (
            {"keep_checkpoints_num": 1, "checkpoint_score_attr": "min-loss"},
            CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="loss", checkpoint_score_order="min"),
        ),
        ({"checkpoint_score_attr": "acc"}, CheckpointConfig(checkpoint_score_attribute="acc")),
        (
            {"checkpoint_freq": 3, "checkpoint_at_end": True},
            CheckpointConfig(checkpoint_frequency=3, checkpoint_at_end=True),
        ),
    ],
)
def test_deprecated_checkpoint_parameters_still_count(given: dict[str, Any], expected: CheckpointConfig) -> None:
    with pytest.warns(DeprecationWarning, match="CheckpointConfig"):
        assert RunSpec.of(half, given).checkpoints == expected


def test_checkpoint_settings_given_in_both_forms_are_refused() -> None:
    with pytest.raises(ConfigError, match="keep_checkpoints_num and checkpoint_config were both given"):
        sweep.run(half, keep_checkpoints_num=2, checkpoint_config=CheckpointConfig())


def where_it_runs(config: dict[str, Any]) -> None:
    sweep.report(worker=os.getpid())


def test_local_mode_runs_everything_in_this_process_until_shutdown(tmp_path: Path) -> None:
    def pids(name: str, **more: Any) -> list[bool]:
        trainable = where_it_runs
        analysis = sweep.run(trainable, num_samples=2, name=name, storage_path=tmp_path, verbose=0, **more)
        return [trial.last_result["worker"] == os.getpid() for trial in analysis.trials]

    run_config = RunConfig(name="tuner", storage_path=tmp_path, verbose=0)
    try:
        sweep.init(num_cpus=2, num_gpus=0, local_mode=True)
        assert pids("inline") == [True, True]
        assert pids("asked", engine="local") == [False, False]
        assert Tuner(where_it_runs, run_config=run_config).fit()[0].metrics["worker"] == os.getpid()
        sweep.init(num_cpus=2, num_gpus=0)
        assert pids("still") == [True, True]
        sweep.init(num_cpus=2, num_gpus=0, local_mode=False)
        assert pids("no_more") == [False, False]
        sweep.init(num_cpus=2, num_gpus=0, local_mode=True)
    finally:
        sweep.shutdown()
    again = Tuner.restore(tmp_path / "tuner", where_it_runs, tune_config=TuneConfig(num_samples=2))
    assert again.fit()[1].metrics["worker"] != os.getpid()  # what is restored follows the declaration of its own time


OF_LOCAL_DIR: list[Callable[[Path], Any]] = [
    lambda place: sweep.run(half, local_dir=str(place), name="e", verbose=0, engine="inline"),
    lambda place: sweep.Tuner(half, run_config=RunConfig(local_dir=str(place), name="e", verbose=0)).fit(),
    lambda place: sweep.run(sweep.Experiment("e", half, local_dir=place), verbose=0, engine="inline"),
    lambda place: sweep.run_experiments({"e": {"run": half, "local_dir": str(place)}}, verbose=0),
    lambda place: sweep.Tuner(half, run_config=RunConfig(local_dir=place, storage_path=str(place), name="e")).fit(),
]


@pytest.mark.parametrize("start", OF_LOCAL_DIR)
def test_local_dir_is_the_former_name_of_storage_path(tmp_path: Path, start: Callable[[Path], Any]) -> None:
    with pytest.warns(DeprecationWarning, match=r"local_dir is called storage_path now") as warned:
        start(tmp_path / "here")
    assert [one.filename for one in warned] == [__file__]
    assert ExperimentAnalysis(tmp_path / "here" / "e").trials[0].status == "TERMINATED"


def test_a_config_object_with_to_dict_is_a_space(tmp_path: Path) -> None:
    class Space:
        def to_dict(self) -> dict[str, Any]:
            return {"x": 6}

    analysis = sweep.run(half, config=Space(), **options(tmp_path))  # type: ignore[arg-type]
    assert analysis.trials[0].config == {"x": 6}


def test_the_callers_config_is_not_changed(tmp_path: Path) -> None:
    space = {"x": sweep.uniform(0, 1), "nested": {"y": [1, 2]}}
    before = dict(space)
    sweep.run(half, config=space, num_samples=2, **options(tmp_path))
    assert space == before
    assert space["nested"] == {"y": [1, 2]}


def test_a_repr_shows_only_what_differs_from_the_default() -> None:
    assert repr(TuneConfig(num_samples=3, metric="loss")) == "TuneConfig(metric='loss', num_samples=3)"
    assert repr(RunConfig()) == "RunConfig()"
    assert repr(SyncConfig(sync_period=10)) == "SyncConfig(sync_period=10)"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FailureConfig(max_failures=1, fail_fast=True), "choose one"),
        (lambda: FailureConfig(fail_fast="later"), "expected True, False or 'raise'"),  # type: ignore[arg-type]
        (lambda: FailureConfig(max_failures=-2), "-1 for no limit"),
        (lambda: CheckpointConfig(num_to_keep=0), "at least 1"),
        (lambda: CheckpointConfig(checkpoint_score_order="up"), "'min' or 'max'"),
        (lambda: CheckpointConfig(checkpoint_frequency=-1), "at least 0"),
        (lambda: SyncConfig(sync_period=0), "above 0"),
        (lambda: ResumeConfig(finished="restart"), "expected 'skip'"),
        (lambda: ResumeConfig(unfinished="restart"), "expected 'resume' or 'skip'"),
        (lambda: RunConfig(local_dir="x", storage_path="y"), "storage_path='y' and local_dir='x' were both given"),
        (lambda: sweep.Experiment("e", half, local_dir="x", storage_path="y"), "were both given"),
        (lambda: RunSpec.of(half, {"local_dir": "x", "storage_path": "y"}), "were both given"),
    ],
)
def test_a_config_refuses_what_makes_no_sense(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_fail_fast_may_be_written_in_any_case() -> None:
    assert FailureConfig(fail_fast="RAISE").fail_fast == "RAISE"


# --- names ---


def test_a_trial_may_be_given_a_name_and_its_directory_a_second_one(tmp_path: Path) -> None:
    seen = []

    def name(trial: Any) -> str:
        seen.append((trial.trial_id, trial.trainable_name, trial.config["x"], trial.experiment_tag))
        return f"half-{trial.config['x']}"

    def named(config: dict[str, Any]) -> None:
        sweep.report(loss=config["x"], called=sweep.get_context().get_trial_name())

    analysis = sweep.run(
        named,
        config={"x": sweep.grid_search([1, 2])},
        trial_name_creator=name,
        trial_dirname_creator=lambda trial: f"run_{trial.config['x']}",
        name="named",
        **options(tmp_path),
    )
    assert [str(trial) for trial in analysis.trials] == ["half-1", "half-2"]
    assert [trial.last_result["called"] for trial in analysis.trials] == ["half-1", "half-2"]
    assert [entry[1:] for entry in seen] == [("named", 1, "0_x=1"), ("named", 2, "1_x=2")]
    for trial, link in zip(analysis.trials, ("run_1", "run_2"), strict=True):
        assert os.readlink(tmp_path / "named" / link) == trial.trial_id


def test_creators_that_fail_cost_the_names_only(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    analysis = sweep.run(
        half,
        config={"x": sweep.grid_search([1, 2])},
        trial_name_creator=lambda trial: 3,  # type: ignore[arg-type, return-value]
        trial_dirname_creator=lambda trial: "a/b",
        **options(tmp_path, verbose=1),
    )
    said = "".join(capfd.readouterr())
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 2
    assert said.count("trial_name_creator failed") == 1
    assert said.count("it returned 'a/b', which cannot name a directory") == 1


@pytest.mark.parametrize("name", ["lr=0.1,(ü: run 2) 日本語", "b;c:d+e@f", "x" * 200])
@pytest.mark.parametrize("storage", ["", "memory://odd names/ü"])
def test_an_experiment_may_be_called_as_people_write(
    name: str, storage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "cache"))
    given = {
        "name": name,
        "metric": "loss",
        "mode": "min",
        **options(tmp_path),
        **({"storage_path": storage} if storage else {}),
    }
    sweep.run(half, **given)
    again = sweep.run(half, num_samples=2, resume=True, **given)
    assert [trial.last_result["loss"] for trial in again.trials] == [0.5, 0.5]
    place = f"{storage or tmp_path}/{name}"
    assert len(sweep.ExperimentAnalysis(place).trials) == 2
    assert len(Tuner.restore(place, half, tune_config=TuneConfig(num_samples=3)).fit()) == 3
    with pytest.raises(SweepError, match="there already is an experiment"):
        sweep.run(half, **given)


def test_commands_that_are_shown_quote_the_name(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sweep\n\n\ndef train(config):\n    sweep.report(loss=1)\n")
    given = {"name": "a b=(1)", "storage_path": tmp_path / "c d", "import_path": f"{script}:train"}
    analysis = sweep.run(half, **options(tmp_path, **given))
    meta = ExperimentReader(Path(analysis.experiment_path)).meta
    assert shlex.split(meta["resume_command"]) == ["sweep", "resume", "a b=(1)", "--storage", f"{tmp_path}/c d"]


def test_names_of_trials_that_no_file_system_takes_are_made_to_fit(tmp_path: Path) -> None:
    def run(**more: Any) -> ExperimentAnalysis:
        return sweep.run(
            half,
            config={"x": sweep.grid_search([1, 2])},
            trial_name_creator=lambda trial: f"a\x1b[31m\0{trial.config['x']}",
            trial_dirname_creator=lambda trial: "\0ü," * 80 + f"x={trial.config['x']}",
            name="odd",
            **options(tmp_path, **more),
        )

    assert [str(trial) for trial in run().trials] == ["a_[31m_1", "a_[31m_2"]
    links = sorted(path for path in (tmp_path / "odd").iterdir() if path.is_symlink())
    assert [link.name[:4] for link in links] == ["_ü,_"] * 2
    assert [len(link.name.encode()) for link in links] == [240] * 2
    run(resume=True)
    assert sorted(path for path in (tmp_path / "odd").iterdir() if path.is_symlink()) == links


def test_a_creator_that_is_no_function_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="trial_name_creator is 'x'; expected a function"):
        sweep.run(half, trial_name_creator="x", **options(tmp_path))  # type: ignore[arg-type]


def test_trials_whose_directories_get_one_name_are_told_apart(tmp_path: Path) -> None:
    sweep.run(half, num_samples=2, trial_dirname_creator=lambda trial: "same", name="s", **options(tmp_path))
    links = sorted(name for name in os.listdir(tmp_path / "s") if os.path.islink(tmp_path / "s" / name))
    assert links == ["same", "same_00001"]


# --- where a trial starts, and where it runs ---


def test_restore_starts_every_trial_from_one_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "value").write_text("41")

    def go_on(config: dict[str, Any]) -> None:
        checkpoint = sweep.get_checkpoint()
        assert checkpoint is not None
        with checkpoint.as_directory() as directory:
            sweep.report(value=int(Path(directory, "value").read_text()) + config["x"])

    config = {"x": sweep.grid_search([1, 2])}
    for engine in ("inline", "local"):
        analysis = sweep.run(go_on, config=config, restore=tmp_path / "first", **options(tmp_path, engine=engine))
        assert [trial.last_result["value"] for trial in analysis.trials] == [42, 43]


def test_trials_run_where_the_caller_is_unless_asked_otherwise(tmp_path: Path) -> None:
    def where(config: dict[str, Any]) -> None:
        sweep.report(cwd=os.getcwd(), own=sweep.get_context().get_trial_dir())

    usual = sweep.run(where, **options(tmp_path, engine="local")).trials[0].last_result
    assert usual["cwd"] == os.getcwd()
    moved = sweep.run(where, chdir_to_trial_dir=True, **options(tmp_path, engine="local")).trials[0].last_result
    assert moved["cwd"] == moved["own"]


def reads(config: dict[str, Any]) -> None:
    where = {"cwd": os.getcwd(), "own": sweep.get_context().get_trial_dir(), "caller": os.environ[CALLER]}
    sweep.report(where | {"text": Path(os.environ[CALLER], "data", "words.txt").read_text()})


def through_run(trainable: Any, storage: Path, **more: Any) -> dict[str, Any]:
    return dict(tune.run(trainable, storage_path=storage, verbose=0, **more).trials[0].last_result)


def through_tuner(trainable: Any, storage: Path, **more: Any) -> dict[str, Any]:
    given = {"tune_config": TuneConfig(**more), "run_config": RunConfig(storage_path=storage, verbose=0)}
    return dict(tune.Tuner(trainable, **given).fit()[0].metrics)


def through_experiments(trainable: Any, storage: Path) -> dict[str, Any]:
    one = sweep.Experiment("one", trainable, storage_path=storage)
    return dict(tune.run_experiments(one, verbose=0)[0].last_result)


def through_a_group(trainable: Any, storage: Path) -> dict[str, Any]:
    return through_tuner(DataParallelTrainer(trainable, scaling_config=ScalingConfig(num_workers=2)), storage)


@pytest.mark.parametrize("way", [through_run, through_tuner, through_experiments, through_a_group])
def test_what_is_called_through_tune_runs_its_trials_in_their_own_directories(
    way: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "words.txt").write_text("hello")
    monkeypatch.chdir(tmp_path)
    found = way(reads, tmp_path / "results")
    assert (found["cwd"], found["caller"], found["text"]) == (found["own"], str(tmp_path), "hello")


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, id="fork"),
        pytest.param({"start_method": "spawn"}, marks=pytest.mark.slow, id="spawn"),
        pytest.param({"engine": "inline"}, id="inline"),
    ],
)
def test_a_module_beside_the_script_is_imported_where_the_caller_is(more: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text(
        "import os\n\nDATA = os.path.abspath('data')\n\n\ndef get():\n    return DATA\n"
    )
    script = tmp_path / "script.py"
    script.write_text(
        "import os\nimport beside\nfrom sweep import tune\n\n\n"
        "def train(config):\n    tune.report({'data': beside.get(), 'cwd': os.getcwd()})\n\n\n"
        f"trial = tune.run(train, verbose=0, **{more!r}).trials[0]\n"
        "assert trial.last_result['data'] == os.path.abspath('data'), trial.last_result\n"
        "assert trial.last_result['cwd'] == trial.path, trial.last_result\n"
    )
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, check=True, timeout=60)


@pytest.mark.parametrize("way", [through_run, through_tuner])
@pytest.mark.parametrize("switch", ["argument", "variable", "init"])
def test_trials_of_tune_stay_with_the_caller_where_that_is_said(
    way: Callable[..., dict[str, Any]], switch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def where(config: dict[str, Any]) -> None:
        sweep.report(cwd=os.getcwd())

    more = {"chdir_to_trial_dir": False} if switch == "argument" else {}
    if switch == "variable":
        monkeypatch.setenv("RAY_CHDIR_TO_TRIAL_DIR", "0")
    if switch == "init":
        sweep.init(runtime_env={"env_vars": {"RAY_CHDIR_TO_TRIAL_DIR": "0"}})
    try:
        assert way(where, tmp_path, **more)["cwd"] == os.getcwd()
    finally:
        sweep.shutdown()


@pytest.mark.parametrize(
    "load",
    [lambda: Path("data/words.txt").read_text(), lambda: importlib.import_module("numpy").load("data/words.txt")],
)
def test_a_file_that_is_only_where_the_caller_is_is_named(
    load: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(config: dict[str, Any]) -> None:
        load()

    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "words.txt").write_text("hello")
    monkeypatch.chdir(tmp_path)
    error = tune.run(train, storage_path=tmp_path, verbose=0, raise_on_failed_trial=False).trials[0].error
    assert f"data/words.txt is in {tmp_path}, and this trial runs in its own directory, as in Tune. Write " in str(
        error
    )


def checkpointing(where: str) -> Callable[[dict[str, Any]], None]:
    def train(config: dict[str, Any]) -> None:
        place = where.format(id=sweep.get_context().get_trial_id())
        os.makedirs(place, exist_ok=True)
        Path(place, "model.txt").write_text(str(config["x"]))
        sweep.report({"x": config["x"]}, checkpoint=sweep.Checkpoint.from_directory(place))

    return train


def saved(analysis: ExperimentAnalysis) -> list[tuple[Any, str]]:
    found = [(trial.config["x"], trial.checkpoint) for trial in analysis.trials]
    return [(x, Path(checkpoint.path, "model.txt").read_text()) for x, checkpoint in found]


@pytest.mark.parametrize(
    ("where", "more"),
    [
        ("my_model", {"chdir_to_trial_dir": True}),
        ("my_model", {"max_concurrent_trials": 1}),
        ("my_model", {"resources_per_trial": {"cpu": 2}}),
        ("model_{id}", {}),
    ],
)
def test_a_checkpoint_under_a_relative_path_is_its_trials_own(
    where: str, more: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    more = {"config": {"x": sweep.grid_search([1, 2, 3])}, "nodes": [sweep.Node("one", 3)], **more}
    found = saved(sweep.run(checkpointing(where), **options(tmp_path, engine="local", **more)))
    assert found == [(1, "1"), (2, "2"), (3, "3")]


def test_a_relative_checkpoint_that_trials_may_share_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    more = {"config": {"x": sweep.grid_search([1, 2])}, "nodes": [sweep.Node("one", 2)]}
    with pytest.raises(TrialsFailed, match=r"the checkpoint 'my_model' lies in .*, where several trials may write it"):
        sweep.run(checkpointing("my_model"), **options(tmp_path, engine="local", **more))


def test_what_a_trial_prints_goes_to_the_files_that_were_named(tmp_path: Path) -> None:
    import sys

    def talks(config: dict[str, Any]) -> None:
        print("out")
        print("err", file=sys.stderr)

    both = sweep.run(talks, log_to_file=True, **options(tmp_path, engine="local")).trials[0]
    assert "out\n" in Path(both.path, "stdout").read_text()
    assert "err\n" in Path(both.path, "stderr").read_text()
    assert not Path(both.path, "output.log").exists()
    one = Tuner(talks, run_config=RunConfig(storage_path=tmp_path, log_to_file="all.txt", verbose=0)).fit()[0]
    assert {"out", "err"} <= set(Path(one.path, "all.txt").read_text().split())


# --- failures ---


def test_raise_gives_the_trials_own_exception(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="no such thing"):
        sweep.run(fails, config={"x": 1}, fail_fast="raise", **options(tmp_path, engine="local"))


def test_a_tuner_does_not_raise_for_failed_trials_but_lists_them(tmp_path: Path) -> None:
    grid = Tuner(
        fails,
        param_space={"x": sweep.grid_search([1, 2])},
        run_config=RunConfig(storage_path=tmp_path, verbose=0),
    ).fit()
    assert (grid.num_errors, grid.num_terminated) == (1, 1)
    assert isinstance(grid.errors[0].__cause__, KeyError)


def test_a_stop_function_that_raises_ends_the_sweep_and_loses_nothing(tmp_path: Path) -> None:
    def stop(trial_id: str, result: Any) -> bool:
        return bool(result["nothing"])

    with pytest.raises(UserCodeError, match="the stop function failed on a result of trial") as caught:
        sweep.run(half, stop=stop, name="stops", **options(tmp_path))
    assert isinstance(caught.value.__cause__, KeyError)
    assert sweep.ExperimentAnalysis(tmp_path / "stops").trials[0].last_result["loss"] == 0.5
    analysis = sweep.run(half, name="stops", resume=True, **options(tmp_path))
    assert analysis.trials[0].status == "TERMINATED"


# --- the environment ---


@pytest.mark.parametrize("name", ["SWEEP_DISABLE_STRICT_METRIC_CHECKING", "TUNE_DISABLE_STRICT_METRIC_CHECKING"])
def test_the_metric_check_can_be_switched_off(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    analysis = sweep.run(half, metric="accuracy", mode="max", **options(tmp_path))
    assert analysis.trials[0].status == "TERMINATED"


def test_the_default_loggers_can_be_switched_off_under_tunes_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    trial = sweep.run(half, **options(tmp_path, engine="local")).trials[0]
    assert not Path(trial.path, "result.json").exists()


def test_how_long_a_trial_may_take_to_end_can_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sweep.launch.spec import stop_grace_s

    assert stop_grace_s() == 5.0
    monkeypatch.setenv("TUNE_FORCE_TRIAL_CLEANUP_S", "600")
    assert stop_grace_s() == 600.0
    monkeypatch.setenv("SWEEP_FORCE_TRIAL_CLEANUP_S", "soon")
    with pytest.raises(ConfigError, match="SWEEP_FORCE_TRIAL_CLEANUP_S is 'soon'; expected seconds"):
        sweep.run(half, **options(tmp_path))


def test_sigusr1_ends_a_sweep_as_ctrl_c_does(tmp_path: Path) -> None:
    def endless(config: dict[str, Any]) -> None:
        while True:
            sweep.report(x=1)

    class Signals(sweep.Callback):
        def on_trial_result(self, trial: Any, result: Any) -> None:
            if result["training_iteration"] == 3:
                os.kill(os.getpid(), signal.SIGUSR1)

    given = {"callbacks": [Signals()], "name": "usr1", "on_interrupt": "return", **options(tmp_path, engine="local")}
    analysis = sweep.run(endless, **given)
    assert analysis.interrupted
    assert analysis is sweep.last_analysis()
    assert analysis.trials[0].status == "PENDING"
    assert analysis.trials[0].last_result["training_iteration"] >= 3


def test_a_sweep_can_be_run_off_the_main_thread(tmp_path: Path) -> None:
    found = []
    thread = threading.Thread(target=lambda: found.append(sweep.run(half, **options(tmp_path, engine="local"))))
    thread.start()
    thread.join()
    assert found[0].trials[0].status == "TERMINATED"


def test_gpus_that_no_trial_asks_for_are_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    nodes = [sweep.Node("here", cpus=2, devices=(sweep.Device("gpu0"), sweep.Device("gpu1")))]
    sweep.run(half, nodes=nodes, **options(tmp_path, verbose=1))
    assert "2 GPUs are here and trials ask for none: they will not see any" in capfd.readouterr().err
    sweep.run(half, nodes=nodes, resources_per_trial={"cpu": 1, "gpu": 1}, **options(tmp_path, verbose=1))
    assert "GPUs are here" not in capfd.readouterr().err


# --- resuming ---


@pytest.mark.parametrize(
    ("resume", "config", "expected"),
    [
        (True, None, ResumeMode(True)),
        ("AUTO", ResumeConfig(errored="RESUME"), ResumeMode(True, "continue")),
        (
            "AUTO",
            ResumeConfig(errored=ResumeConfig.ResumeType.RESTART, unfinished="skip"),
            ResumeMode(True, "restart", False),
        ),
        (None, ResumeConfig(), ResumeMode(False)),
        ("AUTO+ERRORED", None, ResumeMode(True, "continue")),
        ("AUTO+ERRORED_ONLY", None, ResumeMode(True, "continue", False)),
        ("AUTO+RESTART_ERRORED", None, ResumeMode(True, "restart")),
        ("AUTO+RESTART_ERRORED_ONLY", None, ResumeMode(True, "restart", False)),
    ],
)
def test_what_resume_and_resume_config_mean(resume: Any, config: ResumeConfig | None, expected: ResumeMode) -> None:
    assert ResumeMode.parse(resume, config) == expected


def test_resume_suffixes_and_resume_config_together_are_refused() -> None:
    with pytest.raises(ConfigError, match="both say which trials go on"):
        sweep.run(half, resume="AUTO+ERRORED", resume_config=ResumeConfig())
    with pytest.raises(ConfigError, match=r"expected a sweep\.ResumeConfig"):
        sweep.run(half, resume=True, resume_config={"errored": "resume"})  # type: ignore[arg-type]


@pytest.mark.parametrize("shadow", ["searchers.py", "searchers/__init__.py", "searchers/mine.py"])
def test_a_file_that_hides_the_package_of_searchers_is_named(tmp_path, shadow):
    (tmp_path / shadow).parent.mkdir(exist_ok=True)
    (tmp_path / shadow).write_text("")
    (tmp_path / "script.py").write_text("import sweep\nprint(sweep.run)\n")
    said = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True)
    if shadow == "searchers/mine.py":  # no package: the one that is installed comes first
        assert said.returncode == 0, said.stderr
        return
    last = said.stderr.splitlines()[-1]
    assert last == f"ImportError: {tmp_path / shadow} hides the package 'searchers', which belongs to sweep. Rename it."


# --- the table of names ---


def test_the_stubs_say_what_the_tables_of_names_say() -> None:
    written = {path: path.read_text(encoding="utf-8") for path in stubs.written_stubs()}
    assert written == stubs.all_stubs(), "write them again: python tests/stubs.py"


def test_every_name_of_the_table_is_there() -> None:
    for name in sweep.__all__:
        assert getattr(sweep, name) is not None


def test_the_parameters_of_run_and_the_fields_of_the_configs_agree() -> None:
    parameters = set(inspect.signature(sweep.run).parameters)
    assert set(TuneConfig.__dataclass_fields__) <= parameters
    own = {"failure_config", "local_dir", "runtime_env", "worker_runtime_env"}
    assert set(RunConfig.__dataclass_fields__) - own <= parameters
