"""Scripts of Ray Tune and Ray Train find their names in `sweep` when `ray` is replaced by `sweep`."""

from __future__ import annotations

import copy
import importlib
import inspect
import json
import pickle
import pydoc
import re
import rlcompleter
import subprocess
import sys
from pathlib import Path

import cloudpickle
import pytest

import sweep
from sweep import tune
from sweep.paths import OTHER_PATHS, home_of, submodules_of
from sweep.refusals import NOT_HERE

# As the pages of Tune and Train, old and new, import: statement -> what the last name is.
IMPORTS = {
    "from sweep import tune; it = tune.Tuner": "sweep.tune.running.Tuner",
    "import sweep; it = sweep.tune.run": "sweep.tune.running.run",
    "import sweep as ray; it = ray.tune.Tuner": "sweep.tune.running.Tuner",
    "import sweep as ray; it = ray.tune.utils.wait_for_gpu": "sweep.worker.gpu_memory.wait_for_gpu",
    "import sweep as ray; it = ray.train.report": "sweep.worker.session.report",
    "import sweep as ray; it = ray.air.session.report": "sweep.worker.session.report",
    "import sweep as ray; it = ray.init": "sweep.accelerators.inventory.init",
    "import sweep as ray; it = ray.available_resources": "sweep.accelerators.inventory.available_resources",
    "import sweep.cloudpickle as it": "cloudpickle",
    "from sweep import cloudpickle as it": "cloudpickle",
    "import sweep as ray; it = ray.cloudpickle.loads": "cloudpickle.loads",
    "import sweep as ray; it = ray.get_gpu_ids": "sweep.air.session.get_gpu_ids",
    "import sweep as tune; it = tune.Tuner": "sweep.launch.tuner.Tuner",
    "import sweep.tune as tune; it = tune.TuneConfig": "sweep.core.config.TuneConfig",
    "from sweep.tune import *; it = Tuner": "sweep.tune.running.Tuner",
    "from sweep.tune import Analysis as it": "sweep.results.analysis.ExperimentAnalysis",
    "from sweep.tune import TuneContext as it": "sweep.worker.context.Context",
    "from sweep.tune.error import TuneError as it": "searchers.errors.SweepError",
    "from sweep.tune.experiment import Trial as it": "sweep.callbacks.observed.ObservedTrial",
    "from sweep.tune.experiment.trial import Trial as it": "sweep.callbacks.observed.ObservedTrial",
    "from sweep.tune.trial import Trial as it": "sweep.callbacks.observed.ObservedTrial",
    "from sweep.train import WorkerGroupError as it": "sweep.errors.TrialsFailed",
    "from sweep.train.v2.api.exceptions import WorkerGroupError as it": "sweep.errors.TrialsFailed",
    "from sweep.tune.schedulers import ASHAScheduler as it": "sweep.schedulers.asha.AsyncHyperBandScheduler",
    "from sweep.tune.schedulers import TrialScheduler as it": "sweep.schedulers.base.Scheduler",
    "from sweep.tune.schedulers import *; it = HyperBandScheduler": "sweep.schedulers.hyperband.HyperBandScheduler",
    "from sweep.tune.schedulers.async_hyperband import ASHAScheduler as it": (
        "sweep.schedulers.asha.AsyncHyperBandScheduler"
    ),
    "from sweep.tune.schedulers.trial_scheduler import TrialScheduler as it": "sweep.schedulers.base.Scheduler",
    "from sweep import tune; it = tune.schedulers.ASHAScheduler": "sweep.schedulers.asha.AsyncHyperBandScheduler",
    "from sweep import tune; it = tune.schedulers.pb2.PB2": "sweep.schedulers.pb2.PB2",
    "from sweep.tune.search.bohb import TuneBOHB as it": "searchers.bohb_search.BOHBSearch",
    "import sweep.tune.search.optuna as o; it = o.OptunaSearch": "searchers.optuna_search.OptunaSearch",
    "from sweep.tune.suggest.bohb import TuneBOHB as it": "searchers.bohb_search.BOHBSearch",
    "from sweep import tune; it = tune.suggest.ConcurrencyLimiter": "searchers.wrapper.ConcurrencyLimiter",
    "from sweep import tune; it = tune.search.optuna.OptunaSearch": "searchers.optuna_search.OptunaSearch",
    "from sweep.tune.stopper import EarlyStopping as it": "sweep.core.stoppers.ExperimentPlateauStopper",
    "from sweep import train; it = train.ScalingConfig": "sweep.train.scaling.ScalingConfig",
    "from sweep import train; it = train.torch.TorchTrainer": "sweep.train.torch.TorchTrainer",
    "from sweep.train import TrainContext as it": "sweep.worker.context.Context",
    "from sweep.train.base_trainer import TrainingFailedError as it": "sweep.errors.TrialsFailed",
    "from sweep.train.context import TrainContext as it": "sweep.worker.context.Context",
    "from sweep.air import session; it = session.get_checkpoint": "sweep.worker.session.get_checkpoint",
}
# from MODULE import NAME: where the same NAME is.
FROM = """
    sweep.cloudpickle: dumps -> cloudpickle
    sweep.tune: CLIReporter -> sweep.display.reporters
    sweep.tune: Checkpoint -> sweep.checkpoints.store
    sweep.tune: PlacementGroupFactory -> sweep.core.resources
    sweep.tune: Stopper -> sweep.core.stoppers
    sweep.tune: Trainable -> sweep.worker.trainable
    sweep.tune: grid_search -> searchers.space
    sweep.tune.tune: run -> sweep.tune.running
    sweep.tune.tuner: Tuner -> sweep.tune.running
    sweep.tune.tune_config: TuneConfig -> sweep.core.config
    sweep.tune.result_grid: ResultGrid -> sweep.results.analysis
    sweep.tune.analysis: ExperimentAnalysis -> sweep.results.analysis
    sweep.tune.callback: Callback -> sweep.callbacks.base
    sweep.tune.context: get_context -> sweep.worker.session
    sweep.tune.experiment: Experiment -> sweep.tune.experiment
    sweep.tune.progress_reporter: CLIReporter -> sweep.display.reporters
    sweep.tune.registry: register_trainable -> sweep.launch.registry
    sweep.tune.resources: Resources -> sweep.core.resources
    sweep.tune.session: report -> sweep.worker.session
    sweep.tune.syncer: SyncConfig -> sweep.core.config
    sweep.tune.trainable: Trainable -> sweep.worker.trainable
    sweep.tune.trainable.util: with_parameters -> sweep.worker.parameters
    sweep.tune.execution.placement_groups: PlacementGroupFactory -> sweep.core.resources
    sweep.tune.utils.placement_groups: PlacementGroupFactory -> sweep.core.resources
    sweep.tune.utils: wait_for_gpu -> sweep.worker.gpu_memory
    sweep.tune.utils.util: wait_for_gpu -> sweep.worker.gpu_memory
    sweep.tune.utils: flatten_dict unflatten_list_dict -> sweep.tune.utils
    sweep.tune.utils.util: unflatten_list_dict -> sweep.tune.utils
    sweep.tune.schedulers: AsyncHyperBandScheduler -> sweep.schedulers.asha
    sweep.tune.schedulers: PopulationBasedTraining -> sweep.schedulers.pbt
    sweep.tune.schedulers: create_scheduler -> sweep.schedulers
    sweep.tune.schedulers.hb_bohb: HyperBandForBOHB -> sweep.schedulers.hyperband
    sweep.tune.schedulers.hyperband: HyperBandScheduler -> sweep.schedulers.hyperband
    sweep.tune.schedulers.median_stopping_rule: MedianStoppingRule -> sweep.schedulers.median
    sweep.tune.schedulers.pb2: PB2 -> sweep.schedulers.pb2
    sweep.tune.schedulers.pbt: PopulationBasedTrainingReplay -> sweep.schedulers.pbt_replay
    sweep.tune.schedulers.resource_changing_scheduler: DistributeResources -> sweep.schedulers.distribute
    sweep.tune.search: ConcurrencyLimiter -> searchers.wrapper
    sweep.tune.search.basic_variant: BasicVariantGenerator -> searchers.grid
    sweep.tune.search.bayesopt: BayesOptSearch -> searchers.bayesopt_search
    sweep.tune.search.concurrency_limiter: ConcurrencyLimiter -> searchers.wrapper
    sweep.tune.search.hyperopt: HyperOptSearch -> searchers.hyperopt_search
    sweep.tune.search.optuna: OptunaSearch -> searchers.optuna_search
    sweep.tune.search.optuna.optuna_search: OptunaSearch -> searchers.optuna_search
    sweep.tune.search.repeater: Repeater -> searchers.wrapper
    sweep.tune.search.sample: Domain loguniform -> searchers.space
    sweep.tune.search.searcher: Searcher -> searchers.base
    sweep.tune.search.variant_generator: format_vars -> sweep.core.literals
    sweep.tune.sample: Categorical -> searchers.space
    sweep.tune.suggest: ConcurrencyLimiter Repeater -> searchers.wrapper
    sweep.tune.suggest.bayesopt: BayesOptSearch -> searchers.bayesopt_search
    sweep.tune.suggest.hyperopt: HyperOptSearch -> searchers.hyperopt_search
    sweep.tune.suggest.optuna: OptunaSearch -> searchers.optuna_search
    sweep.tune.suggest.suggestion: Searcher -> searchers.base
    sweep.tune.stopper: MaximumIterationStopper -> sweep.core.stoppers
    sweep.tune.stopper.trial_plateau: TrialPlateauStopper -> sweep.core.stoppers
    sweep.tune.logger: LoggerCallback TBXLoggerCallback -> sweep.callbacks.loggers
    sweep.tune.logger: pretty_print -> sweep.tune.utils
    sweep.tune.logger.csv: CSVLoggerCallback -> sweep.callbacks.loggers
    sweep.tune.integration.torch: DistributedTrainableCreator -> sweep.train.torch
    sweep.tune.integration.tensorflow: DistributedTrainableCreator -> sweep.train.tensorflow
    sweep.tune.integration.horovod: DistributedTrainableCreator -> sweep.integration.horovod
    sweep.tune.integration.ray_train: TuneReportCallback -> sweep.train.fit
    sweep.tune.integration.wandb: WandbLoggerCallback -> sweep.callbacks.wandb
    sweep.tune.integration.mlflow: setup_mlflow -> sweep.callbacks.mlflow
    sweep.air.integrations.wandb: setup_wandb -> sweep.callbacks.wandb
    sweep.air.integrations.mlflow: MLflowLoggerCallback -> sweep.callbacks.mlflow
    sweep.train: ScalingConfig -> sweep.train.scaling
    sweep.train: SyncConfig -> sweep.core.config
    sweep.train.data_parallel_trainer: DataParallelTrainer -> sweep.train.trainer
    sweep.train.horovod: HorovodTrainer -> sweep.train.horovod
    sweep.train.jax: JaxTrainer -> sweep.train.jax
    sweep.train.tensorflow: TensorflowTrainer -> sweep.train.tensorflow
    sweep.train.torch.torch_trainer: TorchTrainer -> sweep.train.torch
    sweep.train.torch: TorchConfig -> sweep.train.torch
    sweep.train.v2.api.config: RunConfig -> sweep.core.config
    sweep.train.v2.api.data_parallel_trainer: DataParallelTrainer -> sweep.train.trainer
    sweep.train.v2.jax: JaxTrainer -> sweep.train.jax
    sweep.train.v2.torch.torch_trainer: TorchTrainer -> sweep.train.torch
    sweep.air: RunConfig -> sweep.core.config
    sweep.air.checkpoint: Checkpoint -> sweep.checkpoints.store
    sweep.air.config: ScalingConfig -> sweep.train.scaling
    sweep.air.result: Result -> sweep.results.views
    sweep.config: RunConfig TuneConfig FailureConfig CheckpointConfig SyncConfig ResumeConfig -> sweep.core.config
    sweep.dicts: deep_update flatten_dict merge_dicts unflatten_dict unflattened_lookup -> sweep.tune.utils
    sweep.experiment: Experiment -> sweep.tune.experiment
    sweep.logger: CSVLoggerCallback JsonLoggerCallback LoggerCallback TBXLoggerCallback -> sweep.callbacks.loggers
    sweep.search: ConcurrencyLimiter Repeater -> searchers.wrapper
    sweep.search: create_searcher -> searchers.registry
    sweep.search.basic_variant: BasicVariantGenerator -> searchers.grid
    sweep.search.concurrency_limiter: ConcurrencyLimiter -> searchers.wrapper
    sweep.search.optuna: OptunaSearch -> searchers.optuna_search
    sweep.search.space: uniform choice -> searchers.space
    sweep.search.variant_generator: grid_search -> searchers.space
    sweep.stopper: CombinedStopper MaximumIterationStopper TimeoutStopper TrialPlateauStopper -> sweep.core.stoppers
    sweep.tuner: Tuner -> sweep.launch.tuner
"""
for row in FROM.strip().splitlines():
    path, names, home = re.split(": | -> ", row.strip())
    IMPORTS |= {f"from {path} import {name} as it": f"{home}.{name}" for name in names.split()}


def test_an_import_of_the_guides_gives_the_thing_itself():
    assert len(IMPORTS) > 150
    for statement, home in IMPORTS.items():
        found: dict[str, object] = {}
        exec(statement, found)
        module, _, name = home.rpartition(".")
        itself = getattr(importlib.import_module(module), name) if module else importlib.import_module(name)
        assert found["it"] is itself, statement


def test_imports_need_nothing_to_be_imported_before():
    code = "\n".join(f"exec({statement!r}, {{}})" for statement in IMPORTS)
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)


def test_the_fields_of_results_are_those_that_results_have():
    from sweep.tune.result import DEFAULT_METRIC, TRAINING_ITERATION

    assert (TRAINING_ITERATION, DEFAULT_METRIC) == ("training_iteration", "_metric")
    assert tune.result.TIME_TOTAL_S == "time_total_s"


# Statements of the guides -> what the refusal says, beside the name.
REFUSED = {
    "import sweep.tune.search.ax": r"sweep\.tune\.search\.ax does not exist: use search_alg=",
    "from sweep.tune.search.nevergrad import NevergradSearch": "Searcher around that library",
    "from sweep.tune.search import hebo": "use search_alg=",
    "from sweep.tune.suggest.zoopt import ZOOptSearch": r"sweep\.tune\.suggest\.zoopt does not exist: use search_alg=",
    "from sweep.search.ax import AxSearch": "use search_alg=",
    "from sweep.tune.search import SearchGenerator": "asked for configs",
    "from sweep.tune import run_sklearn": "cross_val_score",
    "from sweep.tune import register_env": "RLlib",
    "from sweep.tune import durable": "URI as storage_path",
    "from sweep.tune import track": r"sweep\.report",
    "from sweep.tune.logger import UnifiedLogger": "callbacks=",
    "from sweep.tune.logger.aim import AimLoggerCallback": "write a sweep.Callback",
    "from sweep.tune.integration.docker import DockerSyncer": "takes a URI",
    "from sweep.tune.integration.mxnet import DistributedTrainableCreator": "DataParallelTrainer",
    "from sweep.tune.trial_runner import TrialRunner": "Tune's own engine",
    "from sweep.tune.utils import validate_save_restore": "can be shipped",
    "from sweep.tune.schedulers import ASHASchedulr": "Did you mean 'ASHAScheduler'",
    "import sweep.tune.shedulers": "Did you mean 'schedulers'",
    "import sweep.data": "no Ray Data",
    "import sweep.rllib": "no RLlib",
    "from sweep import remote": "no tasks, actors",
    "from sweep import put": "with_parameters",
    "from sweep.util.placement_group import placement_group": "no tasks, actors",
    "from sweep.util import ActorPool": "no tasks, actors",
    "from sweep.util.joblib import register_ray": r"sweep\.util\.joblib does not exist: leave out register_ray\(\)",
    "from sweep.train.batch_predictor import BatchPredictor": "load the model from",
    "from sweep.train.torch import TorchPredictor": "load the model from",
    "from sweep.tune.integration.wandb import wandb_mixin": r"call setup_wandb\(config\)",
    "from sweep.train.torch import TorchCheckpoint": "checkpoint=Checkpoint.from_directory",
    "from sweep.tune.integration.pytorch_lightning import TuneCallback": "derive from TuneReportCallback",
    "from sweep.train import Trainer": "TorchTrainer",
    "from sweep.train import get_dataset_shard": "each worker its part",
    "from sweep.train.base_trainer import BaseTrainer": "DataParallelTrainer",
    "from sweep.train.huggingface import TransformersTrainer": "own Trainer in a TorchTrainer",
    "from sweep.train.lightning import LightningTrainer": "TorchTrainer the train loop",
    "from sweep.train.torch import prepare_optimizer": r"torch\.amp",
    "from sweep.train.xgboost import XGBoostTrainer": "RayTrainReportCallback",
    "from sweep.air.integrations.comet import CometLoggerCallback": "write a sweep.Callback",
}


@pytest.mark.parametrize(("statement", "says"), REFUSED.items(), ids=list(REFUSED))
def test_what_does_not_exist_is_refused_with_what_to_use(statement, says):
    with pytest.raises(ModuleNotFoundError, match=says):
        exec(statement, {})


@pytest.mark.parametrize(
    ("expression", "says"),
    {
        "sweep.remote": "concurrent.futures",
        "sweep.get": "with_parameters",
        "sweep.put": "with_parameters",
        "sweep.wait": "no tasks, actors",
        "sweep.data": "no Ray Data",
        "sweep.nodes": "no cluster",
        "tune.search.ax": "use search_alg=",
        "tune.suggest.skopt": "use search_alg=",
        "tune.run_sklearn": "cross_val_score",
        "tune.schedulers.ASHASchedulr": "Did you mean 'ASHAScheduler'",
        "tune.schedulers.X": r"dir\(sweep\.tune\.schedulers\) lists",
        "tune.integration.mxnet": "DataParallelTrainer",
        "sweep.train.world_rank": r"get_context\(\)",
        "sweep.train.DataConfig": "no Ray Data",
        "sweep.air.session.get_dataset_shard": "no Ray Data",
    }.items(),
)
def test_an_attribute_that_does_not_exist_is_refused_with_what_to_use(expression, says):
    with pytest.raises(AttributeError, match=says):
        eval(expression, {"sweep": sweep, "tune": tune})


def test_what_ray_never_had_is_missing_in_python_s_own_words():
    with pytest.raises(AttributeError, match=r"module 'sweep' has no attribute 'nothing'"):
        _ = sweep.nothing
    with pytest.raises(AttributeError, match=r"sweep\.train\.nothing does not exist\."):
        _ = sweep.train.nothing
    with pytest.raises(AttributeError, match=r"module 'sweep\.tune\.search' has no attribute '_nothing'"):
        _ = tune.search._nothing


def test_no_refusal_hides_something_that_exists():
    for name in NOT_HERE:
        module, _, last = name.rpartition(".")
        parent = importlib.import_module(module)
        assert last not in dir(parent), name
        assert not hasattr(parent, last), name
        with pytest.raises(ModuleNotFoundError, match=f"{re.escape(name)} does not exist: "):
            importlib.import_module(name)


def modules_of_ray():
    files = (path.relative_to(ROOT).with_suffix("") for room in ("air", "tune") for path in (ROOT / room).rglob("*.py"))
    paths = {f"sweep.{'.'.join(file.parts)}".removesuffix(".__init__") for file in files}
    return sorted((paths | OTHER_PATHS.keys()) - {"sweep.cloudpickle", "sweep.search.space"})  # which list themselves


ROOT = Path(sweep.__file__).parent
OF_RAY = modules_of_ray()


def test_a_module_of_ray_lists_its_names_and_its_modules():
    assert len(OF_RAY) > 100
    for name in OF_RAY:
        module = importlib.import_module(name)
        assert module is sys.modules[name], name
        assert module.__name__ == home_of(name)
        if name not in ("sweep.config", "sweep.tuner", "sweep.tune.integration.horovod"):  # ours at another path
            assert set(dir(module)) >= {*submodules_of(module.__name__), *getattr(module, "__all__", ())}, name
        for below in submodules_of(module.__name__):
            assert getattr(module, below) is importlib.import_module(f"{name}.{below}"), (name, below)


def test_what_was_never_there_is_not_found():
    for name in ("sweep.nothing", "sweep.search.nothing", "sweep.train.nothing"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(name)


def test_everything_that_sweep_has_is_in_tune_and_is_the_same():
    names = [name for name in sweep.__all__ if name not in sweep._MODULES and name != "__version__"]
    assert len(names) > 80
    others = [name for name in names if getattr(tune, name) is not getattr(sweep, name)]
    assert others == ["Tuner", "run", "run_experiments"]
    assert issubclass(tune.Tuner, sweep.Tuner)
    assert inspect.signature(tune.run) == inspect.signature(sweep.run)
    assert set(tune.__all__) - set(names) == {"Analysis", "TuneContext"}


def test_what_tunes_run_returns_has_all_columns_of_tunes_dataframes(tmp_path, monkeypatch):
    monkeypatch.setenv("SWEEP_STORAGE", str(tmp_path))
    common = {"config": {"x": 1}, "engine": "inline", "verbose": 0}
    own, theirs = (run(lambda config: {"loss": config["x"]}, **common) for run in (sweep.run, tune.run))
    assert {"done", "logdir", "pid"} <= set(theirs.dataframe().columns)
    assert {"done", "logdir", "pid"} <= set(own.get_dataframe().columns)
    assert list(own.dataframe().columns) == list(theirs.dataframe(full=False).columns)
    assert "done" not in own.dataframe().columns
    assert cloudpickle.loads(cloudpickle.dumps(tune.run)) is tune.run


def test_a_warning_of_tunes_run_names_the_line_that_calls_it(tmp_path):
    with pytest.warns(DeprecationWarning, match="keep_checkpoints_num") as caught:
        tune.run(
            lambda config: {"loss": 1}, keep_checkpoints_num=1, engine="inline", verbose=0, storage_path=str(tmp_path)
        )
    assert [warning.filename for warning in caught if "keep_checkpoints" in str(warning.message)] == [__file__]


def test_modules_and_classes_are_what_tools_expect():
    assert "class Tuner" in pydoc.render_doc(tune, renderer=pydoc.plaintext)
    assert "class OptunaSearch" in pydoc.render_doc(tune.search.optuna, renderer=pydoc.plaintext)
    assert ("Tuner", tune.Tuner) in inspect.getmembers(tune, inspect.isclass)
    assert inspect.getmodule(tune.Tuner).__name__ == "sweep.tune.running"
    config = tune.tune_config.TuneConfig(metric="loss", mode="min")
    assert pickle.loads(pickle.dumps(config)) == copy.deepcopy(config) == config
    for module in (tune, tune.schedulers, tune.search.optuna, tune.suggest):
        assert cloudpickle.loads(cloudpickle.dumps(module)) is module


def test_names_are_completed():
    completer = rlcompleter.Completer({"tune": tune})
    assert completer.complete("tune.schedulers.ASHA", 0) == "tune.schedulers.ASHAScheduler("
    assert completer.complete("tune.search.opt", 0) == "tune.search.optuna"


def test_a_pickle_that_names_a_module_of_tune_is_read_in_a_new_process():
    data = cloudpickle.dumps(tune.search.optuna)
    code = f"import pickle; print(pickle.loads({data!r}).__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "sweep.tune.search.optuna"


@pytest.mark.parametrize(
    ("statement", "loaded"),
    {
        "import sweep": set(),
        "from sweep import tune": {"sweep.tune"},
        "import sweep.tune.search.optuna, sweep.tune.schedulers.pb2, sweep.air": {
            *("sweep.air", "sweep.tune", "sweep.tune.schedulers", "sweep.tune.schedulers.pb2"),
            *("sweep.tune.search", "sweep.tune.search.optuna"),
        },
    }.items(),
)
def test_an_import_loads_the_table_of_names_and_nothing_more(statement, loaded):
    code = f"{statement}\nimport sys\nprint(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    modules = done.stdout.split()
    table = {"sweep", "sweep.paths", "sweep.refusals"}
    assert {name for name in modules if name.partition(".")[0] in ("sweep", "searchers")} == table | loaded
    assert not {"numpy", "optuna", "pandas", "difflib", "importlib.abc"} & set(modules)


# --- what Ray itself offers to a trial


def test_the_gpus_of_a_trial_go_by_the_names_of_the_variable(monkeypatch, tmp_path):
    assert sweep.get_gpu_ids() == []
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SWEEP_STORAGE", str(tmp_path))

    def train(config):
        tune.report({"gpus": len(sweep.get_gpu_ids()), "first": sweep.get_gpu_ids()[0]})

    sweep.init(num_cpus=2, num_gpus=2)
    try:
        assert sweep.available_resources() == sweep.cluster_resources()
        analysis = tune.run(train, resources_per_trial={"cpu": 1, "gpu": 2}, verbose=0)
    finally:
        sweep.shutdown()
    (result,) = (trial.last_result for trial in analysis.trials)
    assert (result["gpus"], result["first"]) == (2, 0)


def test_a_worker_that_sees_the_gpus_of_its_group_has_its_own(monkeypatch, tmp_path):
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SWEEP_STORAGE", str(tmp_path))

    def loop(config):
        session = sweep.air.session
        own = {"gpus": sweep.get_gpu_ids(), "name": session.get_experiment_name(), "size": session.get_world_size()}
        ranks = [session.get_world_rank(), session.get_local_rank(), session.get_node_rank()]
        (tmp_path / f"rank{ranks[0]}").write_text(json.dumps([own, ranks, session.get_local_world_size()]))

    sweep.init(num_cpus=2, num_gpus=4)
    try:
        scaling = sweep.air.ScalingConfig(
            num_workers=2, use_gpu=True, resources_per_worker={"GPU": 2}, gpu_visibility="share"
        )
        trainer = sweep.train.DataParallelTrainer(
            loop, scaling_config=scaling, run_config=sweep.air.RunConfig(name="own", verbose=0)
        )
        trainer.fit()
    finally:
        sweep.shutdown()
    assert [json.loads((tmp_path / f"rank{rank}").read_text()) for rank in (0, 1)] == [
        [{"gpus": gpus, "name": "own", "size": 2}, [rank, rank, 0], 2] for rank, gpus in enumerate(([0, 1], [2, 3]))
    ]
