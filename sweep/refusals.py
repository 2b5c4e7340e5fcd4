"""What Ray and other libraries have under a name that does not exist here: why not, and what to use."""

from __future__ import annotations

_SEARCHERS = "use search_alg='tpe', 'gp', 'cmaes' or OptunaSearch, or put a sweep.search.Searcher around that library."
_TRIALS = (
    "there are no tasks, actors or objects of a cluster here. Have sweep.run or sweep.Tuner run a function many times, "
    "each in a process of its own; for tasks of your own take concurrent.futures."
)
_OBJECTS = (
    "there is no object store here. sweep.with_parameters(train, data=...) stores a large object once and hands it to "
    "every trial."
)
_LOADING = "load the data inside the train loop, each worker its part: get_context().get_world_rank() says which."
_DATA = f"there is no Ray Data here; {_LOADING}"
_CLUSTER = "there is no cluster here, but one machine: `sweep ls` and `sweep why` show what runs and what holds what."
_RLLIB = "there is no RLlib here; make the environment inside the trainable."
_JOBLIB = "leave out register_ray() and parallel_backend('ray'): joblib runs its jobs on this machine without them."
_CALLBACK = "write a sweep.Callback that tells it, or pass callbacks=[WandbLoggerCallback()] or MLflowLoggerCallback()."
_LOGGERS = "loggers are callbacks now: pass callbacks=[...] with a class derived from sweep.tune.logger.LoggerCallback."
_ENGINE = "it is a part of Tune's own engine. Callbacks, searchers and schedulers are told what happens in sweep's."
_GENERATOR = "the engine makes the trials: derive from sweep.tune.search.Searcher, which is asked for configs."
_CHECKPOINTS = "call report(metrics, checkpoint=Checkpoint.from_directory(path)), and get_checkpoint() to go on."
_SHIPPED = "each run checks at its start that the trainable can be shipped, and says what in it cannot."
_SKLEARN = "fit the estimator inside the trainable and report its score, cross_val_score(...).mean() for instance."
_GROUP = "use TorchTrainer, TensorflowTrainer, JaxTrainer or DataParallelTrainer of sweep.train, with a ScalingConfig."
_HUGGING = "run transformers' own Trainer in a TorchTrainer, with the callback of sweep.train.huggingface.transformers."
_RANKS = "call it on the context: sweep.train.get_context()."
_STUDY = (
    "call sweep.run(function, config=space, num_samples=...): it draws configs; the function gets one, and reports."
)
_PRUNED = "call sweep.report(loss=...) in each epoch: the scheduler, such as scheduler='asha', stops the trial there."
_SPACE = (
    "a space holds what is to be drawn: config={'lr': sweep.loguniform(1e-4, 1e-1)}; the function reads config['lr']."
)
_NO_PARALLEL_FRAMEWORK = "give a TorchTrainer the train loop, and the strategy of the library itself."


def _each(text: str, *places: str) -> dict[str, str]:
    """Return the text for each of the names: `module: names`, or a name with its dots."""
    return {
        f"{home}.{name}" if names else home: text
        for home, _, names in (place.partition(": ") for place in places)
        for name in names.split() or [""]
    }


NOT_HERE = {
    **_each(
        _TRIALS,
        "sweep: remote wait method kill cancel actor get_actor ObjectRef ObjectID get_runtime_context",
        "sweep.util: ActorPool get_current_placement_group placement_group placement_group_table",
        "sweep.util: actor_pool as_completed collective dask iter list_named_actors metrics multiprocessing queue",
        "sweep.util: inspect_serializability remove_placement_group scheduling_strategies spark state",
        "sweep: workflow serve",
    ),
    **_each(_OBJECTS, "sweep: get put", "sweep.tune.utils.pin_in_object_store", "sweep.tune.utils.get_pinned_object"),
    **_each(_DATA, "sweep.data", "sweep.train: get_dataset_shard DataConfig TRAIN_DATASET_KEY"),
    **_each(_DATA, "sweep.air: DataBatchType DatasetConfig", "sweep.air.config.DatasetConfig", "sweep.air.data"),
    **_each(_DATA, "sweep.air.session.get_dataset_shard", "sweep.train.session.get_dataset_shard"),
    **_each(_CLUSTER, "sweep: nodes timeline autoscaler cluster_utils dashboard job_submission state"),
    **_each(_RLLIB, "sweep.rllib", "sweep.tune.register_env", "sweep.tune.registry.register_env", "sweep.register_env"),
    **_each(_RLLIB, "sweep.train.rl"),
    **_each(_JOBLIB, "sweep.util: joblib register_ray"),
    # --- Optuna, Weights & Biases, hyperopt
    **_each(_STUDY, "sweep: create_study load_study Study optimize agent sweep fmin"),
    **_each(_PRUNED, "sweep: TrialPruned should_prune"),
    **_each(_SPACE, "sweep: suggest_float suggest_int suggest_categorical"),
    # --- ray itself
    "sweep.exceptions": "the errors of a sweep are in sweep.errors; all of them are sweep.TuneError.",
    # --- ray.tune
    **_each(_SEARCHERS, "sweep.tune.search: ax dragonfly flaml hebo nevergrad sigopt skopt vizier zoopt"),
    **_each(
        _GENERATOR,
        "sweep.tune.search: SearchAlgorithm SearchGenerator search_algorithm search_generator search_alg",
        "sweep.tune.search.search_algorithm",
    ),
    **_each(_SKLEARN, "sweep.tune: run_sklearn sklearn TuneSearchCV TuneGridSearchCV", "sweep.train.sklearn"),
    **_each(
        _CHECKPOINTS, "sweep.train: save_checkpoint load_checkpoint", "sweep.tune: save_checkpoint load_checkpoint"
    ),
    **_each(_SHIPPED, "sweep.tune.utils: diagnose_serialization validate_save_restore serialization trainable"),
    **_each(_LOGGERS, "sweep.tune.logger: Logger UnifiedLogger NoopLogger JsonLogger CSVLogger TBXLogger"),
    **_each(_LOGGERS, "sweep.tune.logger: DEFAULT_LOGGERS LegacyLoggerCallback", "sweep.tune.logger.logger.Logger"),
    **_each(
        _CALLBACK,
        "sweep.tune.logger: aim comet AimLoggerCallback CometLoggerCallback",
        "sweep.tune.integration.comet",
        "sweep.air.integrations.comet",
        "sweep.air.CometLoggerCallback",
    ),
    **_each(
        _ENGINE,
        "sweep.tune: trial_runner trial_executor ray_trial_executor function_runner checkpoint_manager sync_client",
        "sweep.tune: config_parser web_server cluster_info impl automl",
        "sweep.tune.execution: trial_runner tune_controller ray_trial_executor experiment_state checkpoint_manager",
        "sweep.tune.trainable: function_trainable metadata FunctionTrainable wrap_function",
        "sweep.tune.registry: get_trainable_cls _global_registry is_function_trainable",
        "sweep.tune.utils: warn_if_slow UtilMonitor mock callback log resource_updater file_transfer date_str",
        "sweep.tune.syncer: Syncer SyncerCallback",
    ),
    **_each(
        "machines are reached by an engine; files go to storage_path='s3://...', which takes a URI.",
        "sweep.tune.integration: docker kubernetes",
    ),
    "sweep.tune.examples": "examples are in the directory examples/ of sweep's repository.",
    **_each(
        "use the command `sweep`: `sweep ls`, `sweep trials`, `sweep best`, `sweep show`.",
        "sweep.tune: commands scripts",
    ),
    "sweep.tune.integration.mxnet": _GROUP,
    **_each(
        "give run, or RunConfig, a URI as storage_path; then every checkpoint is there.",
        "sweep.tune: durable durable_trainable DurableTrainable",
    ),
    "sweep.tune.function": "pass the function itself.",
    "sweep.tune.track": "call sweep.report(metrics) instead of track.log(**metrics), and drop its import and init.",
    "sweep.tune.result.DEFAULT_RESULTS_DIR": "results go to ./sweep_results, or to storage_path=.",
    **_each(
        "pass DistributeResources() or DistributeResourcesToTopJob() to it.",
        "sweep.tune.schedulers.resource_changing_scheduler: evenly_distribute_cpus_gpus",
        "sweep.tune.schedulers.resource_changing_scheduler: evenly_distribute_cpus_gpus_distributed",
    ),
    "sweep.tune.schedulers.SyncMedianStoppingRule": "use MedianStoppingRule, which stops trials one by one.",
    # --- ray.train
    **_each(_GROUP, "sweep.train: Trainer BackendConfig backend mosaic collective gbdt_trainer"),
    **_each(_GROUP, "sweep.train.base_trainer.BaseTrainer", "sweep.train: BaseTrainer TrainingIterator"),
    **_each(
        "call the library's own train in the function of a trial, with the RayTrainReportCallback of this module.",
        "sweep.train.xgboost: XGBoostTrainer XGBoostConfig XGBoostCheckpoint",
        "sweep.train.lightgbm: LightGBMTrainer LightGBMConfig LightGBMCheckpoint",
    ),
    **_each(_HUGGING, "sweep.train.huggingface: HuggingFaceTrainer TransformersTrainer AccelerateTrainer accelerate"),
    **_each(_HUGGING, "sweep.train.huggingface: HuggingFaceCheckpoint TransformersCheckpoint"),
    **_each(
        _NO_PARALLEL_FRAMEWORK,
        "sweep.train.lightning: LightningTrainer LightningConfigBuilder LightningCheckpoint",
        "sweep.train.lightning: RayFSDPStrategy RayDeepSpeedStrategy",
    ),
    **_each(_RANKS, "sweep.train: world_rank local_rank world_size get_world_rank get_local_rank get_world_size"),
    **_each(
        "a sweep.Callback of the run is told every report and every failure.",
        "sweep.train: UserCallback",
        "sweep.train.v2.api: callback",
    ),
    "sweep.train.torch.xla": "TPU chips are for JAX here: use sweep.train.jax.JaxTrainer.",
    **_each(
        "call setup_wandb(config) or setup_mlflow(config) in the trainable, or pass the logger in callbacks=[...].",
        "sweep.tune.integration.wandb: wandb_mixin WandbTrainableMixin WandbLogger",
        "sweep.tune.integration.mlflow: mlflow_mixin MLflowTrainableMixin MLflowLogger",
    ),
    **_each(_CHECKPOINTS, "sweep.train.torch: TorchCheckpoint"),
    **_each(
        "load the model from result.get_best_checkpoint(...), and call it on the data yourself.",
        "sweep.train: batch_predictor predictor",
        "sweep.train.torch: TorchPredictor torch_predictor",
    ),
    "sweep.tune.integration.pytorch_lightning.TuneCallback": "derive from TuneReportCallback of this module.",
    "sweep.train.LoggingConfig": "leave it out: the output of each worker is in a file of its own.",
    "sweep.train.MLflowLoggerCallback": "import it from sweep.integration.mlflow.",
    **_each(
        "validate inside the train loop, and report what came of it.",
        "sweep.train: ValidationConfig ValidationFn ValidationTaskConfig",
    ),
    **_each(
        "the Result of fit() has best_checkpoints and get_best_checkpoint().",
        "sweep.train: get_all_reported_checkpoints ReportedCheckpoint ReportedCheckpointStatus",
        "sweep.train: CheckpointUploadMode CheckpointConsistencyMode",
        "sweep.train.v2.api.train_fn_utils: get_all_reported_checkpoints",
    ),
    **_each("catch sweep.train.TrainingFailedError.", "sweep.train: ControllerError"),
    **_each("use torch.amp and torch.optim themselves.", "sweep.train.torch: accelerate prepare_optimizer backward"),
}
"""A name with its dots -> why it does not exist here, and what to use."""
