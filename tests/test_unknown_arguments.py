"""Whatever is public refuses an unknown keyword in one way: who, the word, what was probably meant."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

import sweep
import sweep.integration
from searchers.hyperopt_search import HyperOptSearch
from sweep.errors import ConfigError, SearchError, UnknownNameError
from sweep.schedulers import SCHEDULERS
from sweep.train.jax import JaxConfig

MODULES = ["sweep", "searchers", "sweep.train", "sweep.schedulers", "sweep.logger", "sweep.stopper", "sweep.train.jax"]
# What takes any keyword: it is a metric, an object, an argument of what is built, or one of another library.
TAKES_ALL = {
    *("report", "with_parameters", "create_scheduler", "create_searcher", "setup_wandb", "WandbLoggerCallback"),
    *("RayDDPStrategy", "RayLightningEnvironment"),
}
# What takes no arguments at all, but is not ours to call wrongly in a sentence; and values that are made by us alone.
BY_PYTHON = {
    *("available_resources", "get_gpu_ids", "TrainContext"),
    *("cluster_resources", "get_checkpoint", "get_context", "get_trial_dir", "get_trial_id", "get_trial_name"),
    *("get_trial_resources", "is_initialized", "is_session_enabled", "last_analysis", "shutdown", "checkpoint_dir"),
    *("prepare_trainer", "RayTrainReportCallback"),
    *("as_searcher", "derived_seed", "keyed_rng", "pareto_front", "Signal", "Config"),
}


def public() -> Iterator[tuple[str, Any]]:
    names = [
        *MODULES,
        *(f"sweep.integration.{found.name}" for found in pkgutil.iter_modules(sweep.integration.__path__)),
    ]
    names.remove("sweep.integration.reporting")  # not for users: what the others share
    seen: set[int] = set()
    for name in names:
        try:
            module = importlib.import_module(name)
        except ImportError:  # a library that is not installed here
            continue
        own = [word for word, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__]
        for word in getattr(module, "__all__", [word for word in own if not word.startswith("_")]):
            thing = getattr(module, word)
            is_error = inspect.isclass(thing) and issubclass(thing, BaseException)
            if callable(thing) and id(thing) not in seen and not is_error and not inspect.isabstract(thing):
                seen.add(id(thing))
                takes_nothing = inspect.isclass(thing) and thing.__init__ is object.__init__
                if word not in TAKES_ALL | BY_PYTHON and not takes_nothing:
                    yield f"{name}.{word}", thing


PUBLIC = dict(public())


def refusal(call: Any, **keywords: Any) -> str:
    with pytest.raises(TypeError) as caught:
        call(**keywords)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, (ConfigError, SearchError)), type(caught.value)
    return str(caught.value)


def test_there_is_something_to_ask():
    assert len(PUBLIC) > 70
    assert {"sweep.run", "sweep.ASHAScheduler", "sweep.RunConfig", "sweep.RandomSearch"} <= PUBLIC.keys()


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_everything_public_refuses_an_unknown_keyword_and_names_the_nearest(name):
    thing = PUBLIC[name]
    word = "definitely_not_a_parameter"
    own = "sweep.init" if name == "sweep.init" else thing.__name__
    said = refusal(thing, **{word: 1})
    assert said.startswith(f"{own} has no parameter '{word}'. ")
    parameters = [
        parameter.name
        for parameter in inspect.signature(thing).parameters.values()
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    for parameter in parameters:
        assert parameter in said.partition("Known: ")[2], said
        typo = f"{parameter}z" if len(parameter) > 1 else f"{parameter}{parameter}"
        said_of_typo = refusal(thing, **{typo: 1})
        assert said_of_typo.startswith(f"{own} has no parameter '{typo}'. Did you mean '{parameter}'?"), said_of_typo
    if not parameters:
        assert said.endswith("It takes none.")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("n_trials", "Optuna's n_trials is num_samples here."),
        ("direction", "Optuna's direction is mode here: 'min' or 'max'."),
        ("directions", "Optuna's directions is mode here: a list of 'min' and 'max'."),
        ("objective", "The function is the first argument: run(train, ...). The key that it reports is metric=."),
        ("func", "The function is the first argument: run(train, ...). The key that it reports is metric=."),
        ("timeout", "Optuna's timeout is time_budget_s here: in seconds."),
        ("n_jobs", "Optuna's n_jobs is max_concurrent_trials here: None: as many as fit."),
        ("study_name", "Optuna's study_name is name here: the experiment's directory."),
        ("storage", "Optuna's storage is storage_path here: a directory, or a URI such as s3://bucket/sweeps."),
        ("sampler", "Optuna's sampler is search_alg here: a searcher, or a name such as 'tpe'."),
        ("pruner", "Optuna's pruner is scheduler here: a scheduler, or a name such as 'asha'."),
        ("load_if_exists", "Optuna's load_if_exists is resume here: resume=True, with the same name."),
        ("count", "W&B's count is num_samples here."),
        ("method", "W&B's method is search_alg here"),
        ("max_evals", "Hyperopt's max_evals is num_samples here."),
        ("n_iter", "scikit-learn's n_iter is num_samples here."),
        ("params", "Hydra's params is config here"),
        ("run_config", "run() takes its fields themselves, or use sweep.Tuner(train, run_config=...)."),
    ],
)
def test_the_words_of_optuna_and_others_name_our_parameter(word, said):
    assert refusal(sweep.run, **{word: 1}, run_or_experiment=print).startswith(f"run has no parameter '{word}'. {said}")


@pytest.mark.parametrize(
    ("call", "keyword", "said"),
    [
        (HyperOptSearch, "max_concurrent", "Give max_concurrent_trials to run() or to TuneConfig."),
        (sweep.TuneConfig, "n_trials", "Optuna's n_trials is num_samples here."),
        (sweep.TuneConfig, "stop", "It is a field of RunConfig: run_config=sweep.RunConfig(stop=...)."),
        (sweep.TuneConfig, "config", "It is an argument of Tuner itself, called param_space there"),
        (sweep.RunConfig, "study_name", "Optuna's study_name is name here: the experiment's directory."),
        (sweep.RunConfig, "num_samples", "It is a field of TuneConfig: tune_config=sweep.TuneConfig(num_samples=...)."),
        (sweep.RunConfig, "max_failures", "It is a field of FailureConfig: failure_config=sweep.FailureConfig("),
        (sweep.RunConfig, "logging_config", "What a worker prints is kept in its trial's directory"),
        (sweep.FailureConfig, "controller_failure_limit", "The driver is no process of its own that could fail alone;"),
        (sweep.CheckpointConfig, "_checkpoint_keep_all_ranks", "The files of all ranks are kept, in one checkpoint;"),
        (sweep.CheckpointConfig, "_checkpoint_upload_from_workers", "Workers write into the trial's directory"),
        (sweep.train.ScalingConfig, "elastic_resize_monitor_interval_s", "It is called resize_every_s."),
        (sweep.train.ScalingConfig, "num_gpus_per_worker", "Write use_gpu=True, or resources_per_worker={'GPU': ...}"),
        (sweep.SyncConfig, "syncer", "Leave it out: nothing is copied from a local storage_path."),
        (JaxConfig, "use_tpu", "It is a field of ScalingConfig: scaling_config=ScalingConfig(use_tpu=True)."),
        (sweep.Tuner, "num_samples", "It is a field of TuneConfig: tune_config=sweep.TuneConfig(num_samples=...)."),
        (sweep.Tuner, "num_sample", "Did you mean 'num_samples'? It is a field of TuneConfig: tune_config="),
        (sweep.Tuner, "n_trials", "Optuna's n_trials is num_samples here. It is a field of TuneConfig: tune_config="),
        (sweep.Tuner, "config", "It is called param_space."),
        (sweep.train.DataParallelTrainer, "dataset_config", "Load the data inside the train loop"),
        (sweep.uniform, "low", "Optuna's low is lower here."),
        (sweep.choice, "choices", "Optuna's choices is categories here."),
        (sweep.OptunaSearch, "direction", "Optuna's direction is mode here: 'min' or 'max'."),
        (
            sweep.init,
            "redis_address",
            "Give the address of a cluster of Ray: sweep.init(engine='ray', address='HOST:PORT').",
        ),
    ],
)
def test_fields_of_newer_ray_and_of_another_config_say_what_to_do(call, keyword, said):
    assert f" has no parameter '{keyword}'. {said}" in refusal(call, **{keyword: 1})


@pytest.mark.parametrize(
    ("scheduler", "said"),
    [
        ("pbt_replay", r"'pbt_replay' needs policy_file, .*sweep\.PopulationBasedTrainingReplay\(.*pbt_policy_<trial>"),
        ("PBT_Replay", r"sweep with scheduler=sweep\.PopulationBasedTraining\(\.\.\.\) writes such a file"),
        ("pbt", r"'pbt' needs hyperparam_mutations or custom_explore_fn, .*PopulationBasedTraining\(hyperparam_mut"),
        ("pb2", r"'pb2' needs hyperparam_bounds, .*scheduler=sweep\.PB2\(hyperparam_bounds="),
        ("moasha", r"judges by two objectives or more"),
    ],
)
def test_a_scheduler_that_a_name_alone_cannot_build_says_what_it_needs(scheduler, said, tmp_path):
    with pytest.raises(ConfigError, match=said):
        sweep.run(print, scheduler=scheduler, metric="loss", mode="min", verbose=0, storage_path=tmp_path)
    assert not list(tmp_path.iterdir())


def test_every_other_name_of_a_scheduler_builds_one():
    for name in SCHEDULERS.keys() - {"pbt", "pb2", "pbt_replay"}:
        assert isinstance(sweep.create_scheduler(name), sweep.Scheduler)
    with pytest.raises(UnknownNameError):
        sweep.create_scheduler("nothing")


def test_a_scheduler_and_a_searcher_by_name_refuse_keywords_as_their_constructors_do():
    assert refusal(lambda **given: sweep.create_scheduler("asha", **given), max_tt=1).startswith(
        "AsyncHyperBandScheduler has no parameter 'max_tt'. Did you mean 'max_t'?"
    )
    assert refusal(lambda **given: sweep.create_searcher("tpe", **given), sampler="gp").startswith(
        "the searcher 'tpe' has no parameter 'sampler'. "
    )
