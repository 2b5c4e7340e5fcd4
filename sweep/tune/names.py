"""The table of names that lie elsewhere: former modules of ours, what Tune calls things, and what is not here at all.

`sweep.tune.formerly` reads it. A name of Tune is found in `sweep` where Tune has it in `ray`.
"""

from __future__ import annotations

__all__ = ["NOT_HERE", "NOW", "ROOMS", "TUNE"]

NOW = {
    "sweep.arguments": "sweep.launch.spec",
    "sweep.callbacks.block": "sweep.display.renderer",
    "sweep.callbacks.board": "sweep.display.state",
    "sweep.callbacks.ending": "sweep.display.ending",
    "sweep.callbacks.formats": "sweep.display.formats",
    "sweep.callbacks.front": "sweep.display.front",
    "sweep.callbacks.policy": "sweep.scribe.policies",
    "sweep.callbacks.progress": "sweep.display.progress",
    "sweep.callbacks.rate": "sweep.display.rate",
    "sweep.callbacks.reporters": "sweep.display.reporters",
    "sweep.callbacks.space": "sweep.callbacks.watch",
    "sweep.callbacks.table": "sweep.display.table",
    "sweep.cli.order": "sweep.cli.arguments",
    "sweep.config": "sweep.core.config",
    "sweep.core.asking": "sweep.core.suggestions",
    "sweep.core.consulting": "sweep.core.scheduler_guard",
    "sweep.core.lineup": "sweep.core.pending_queue",
    "sweep.core.outcome": "sweep.core.failures",
    "sweep.core.shortage": "sweep.core.infeasible",
    "sweep.curves": "sweep.simulation.curves",
    "sweep.dicts": "sweep.tune.dicts",
    "sweep.drive": "sweep.launch.drive",
    "sweep.engines.reactor": "sweep.engines.loop",
    "sweep.engines.tree": "sweep.engines.processes",
    "sweep.experiment": "sweep.tune.experiments",
    "sweep.importing": "sweep.record.importing",
    "sweep.interrupt": "sweep.launch.interrupt",
    "sweep.inventory": "sweep.accelerators.inventory",
    "sweep.launch.config": "sweep.core.config",
    "sweep.launch.inventory": "sweep.accelerators.inventory",
    "sweep.logger": "sweep.tune.logger",
    "sweep.names": "sweep.launch.trial_names",
    "sweep.policies": "sweep.launch.policies",
    "sweep.private": "sweep.record.files",
    "sweep.recipe": "sweep.record.saved_spec",
    "sweep.record.filled": "sweep.record.derived_fields",
    "sweep.record.presence": "sweep.record.driver",
    "sweep.record.recipe": "sweep.record.saved_spec",
    "sweep.registry": "sweep.launch.registry",
    "sweep.replaying": "sweep.simulation.replay",
    "sweep.rerunning": "sweep.simulation.replay",
    "sweep.schedulers.bandit": "sweep.schedulers.gaussian_process",
    "sweep.schedulers.judging": "sweep.schedulers.base",
    "sweep.schedulers.policy": "sweep.schedulers.pbt_policy",
    "sweep.search": "searchers",
    "sweep.search.basic_variant": "searchers.grid",
    "sweep.search.bayesopt": "searchers.bayesopt_search",
    "sweep.search.concurrency_limiter": "searchers.limiter",
    "sweep.search.hyperopt": "searchers.hyperopt_search",
    "sweep.search.optuna": "searchers.optuna_search",
    "sweep.search.searcher": "searchers.base",
    "sweep.search.variant_generator": "searchers.variants",
    "sweep.settings": "sweep.launch.settings",
    "sweep.simulation.rerun": "sweep.simulation.replay",
    "sweep.stopper": "sweep.tune.stopper",
    "sweep.store": "sweep.record",
    "sweep.store.analysis": "sweep.results.analysis",
    "sweep.store.frames": "sweep.results.frames",
    "sweep.store.notebook": "sweep.results.notebook",
    "sweep.store.results": "sweep.results.views",
    "sweep.store.winners": "sweep.results.winners",
    "sweep.tuner": "sweep.launch.tuner",
    "sweep.worker.horovod_environment": "sweep.worker.group_environment",
    "sweep.worker.odd": "sweep.worker.metrics",
    "sweep.worker.control": "sweep.worker.channel",
}
"""Former name of a module of ours -> where it is: the same module."""

ROOMS = {
    "sweep.search.": "searchers.",
    "sweep.store.": "sweep.record.",
    "sweep.tune.suggest.": "sweep.tune.search.",
}
"""What a module was in -> where it is, for those that `NOW` and `TUNE` do not name."""

_FUNCTIONS = """
    choice grid_search lograndint loguniform qlograndint qloguniform qrandint qrandn quniform randint randn sample_from
    uniform
"""
_STOPPERS = """
    CombinedStopper ExperimentPlateauStopper FunctionStopper MaximumIterationStopper NoopStopper Stopper
    TimeoutStopper TrialPlateauStopper
"""
_CONFIGS = "CheckpointConfig FailureConfig RunConfig ScalingConfig"
_TORCH = """
    TorchConfig TorchTrainer enable_reproducibility get_device get_devices prepare_data_loader prepare_model
"""
_TREES = "RayTrainReportCallback TuneReportCallback TuneReportCheckpointCallback"

TUNE = {
    "sweep.air": f"sweep.train: Checkpoint Result {_CONFIGS}",
    "sweep.air.checkpoint": "sweep.train: Checkpoint",
    "sweep.air.config": f"sweep.train: {_CONFIGS}",
    "sweep.air.constants": "sweep.tune.result_fields: *",
    "sweep.air.integrations": "",
    "sweep.air.integrations.keras": "sweep.integration.keras: ReportCheckpointCallback",
    "sweep.air.integrations.mlflow": "sweep.integration.mlflow: *",
    "sweep.air.integrations.wandb": "sweep.integration.wandb: *",
    "sweep.air.result": "sweep.train: Result",
    "sweep.air.session": "sweep.tune.session_functions: *",
    "sweep.cloudpickle": "cloudpickle",
    "sweep.train.base_trainer": "sweep.train: TrainingFailedError",
    "sweep.train.context": "sweep.train: TrainContext get_context",
    "sweep.train.data_parallel_trainer": "sweep.train: DataParallelTrainer",
    "sweep.train.huggingface": "",
    "sweep.train.huggingface.transformers": "sweep.integration.transformers: RayTrainReportCallback prepare_trainer",
    "sweep.train.lightgbm": "sweep.integration.lightgbm: RayTrainReportCallback",
    "sweep.train.lightning": """
        sweep.integration.pytorch_lightning: RayDDPStrategy RayLightningEnvironment RayTrainReportCallback
        prepare_trainer
    """,
    "sweep.train.session": "sweep.tune.session_functions: *",
    "sweep.train.tensorflow.config": "sweep.train.tensorflow: TensorflowConfig",
    "sweep.train.tensorflow.keras": "sweep.integration.keras: ReportCheckpointCallback",
    "sweep.train.tensorflow.tensorflow_trainer": "sweep.train.tensorflow: TensorflowTrainer",
    "sweep.train.torch.config": "sweep.train.torch: TorchConfig",
    "sweep.train.torch.torch_trainer": "sweep.train.torch: TorchTrainer",
    "sweep.train.v2": "",
    "sweep.train.v2.api": "",
    "sweep.train.v2.api.config": f"sweep.train: {_CONFIGS}",
    "sweep.train.v2.api.context": "sweep.train: TrainContext",
    "sweep.train.v2.api.data_parallel_trainer": "sweep.train: DataParallelTrainer",
    "sweep.train.v2.api.exceptions": "sweep.train: TrainingFailedError WorkerGroupError",
    "sweep.train.v2.api.result": "sweep.train: Result",
    "sweep.train.v2.api.train_fn_utils": "sweep.train: get_checkpoint get_context report",
    "sweep.train.v2.jax": "sweep.train.jax: JaxConfig JaxTrainer",
    "sweep.train.v2.tensorflow": "sweep.train.tensorflow: TensorflowConfig TensorflowTrainer",
    "sweep.train.v2.torch": f"sweep.train.torch: {_TORCH}",
    "sweep.train.v2.torch.torch_trainer": "sweep.train.torch: TorchTrainer",
    "sweep.train.xgboost": "sweep.integration.xgboost: RayTrainReportCallback",
    "sweep.tune": """
        sweep: *
        sweep.tune.running: Tuner run run_experiments
        sweep.results.analysis: Analysis=ExperimentAnalysis
        sweep.worker.context: TuneContext=Context
    """,
    "sweep.tune.analysis": "sweep.results.analysis: Analysis=ExperimentAnalysis ExperimentAnalysis",
    "sweep.tune.analysis.experiment_analysis": """
        sweep.results.analysis: Analysis=ExperimentAnalysis ExperimentAnalysis
    """,
    "sweep.tune.callback": "sweep: Callback",
    "sweep.tune.context": """
        sweep.worker.context: TuneContext=Context
        sweep.worker.session: get_context
    """,
    "sweep.tune.error": "sweep: TuneError",
    "sweep.tune.execution": "",
    "sweep.tune.execution.placement_groups": """
        sweep.core.resources: PlacementGroupFactory resource_dict_to_pg_factory=parse_resources
    """,
    "sweep.tune.experiment": """
        sweep: Experiment
        sweep.callbacks.observed: Trial=ObservedTrial
    """,
    "sweep.tune.experiment.experiment": "sweep: Experiment",
    "sweep.tune.experiment.trial": "sweep.callbacks.observed: Trial=ObservedTrial",
    "sweep.tune.integration": "",
    "sweep.tune.integration.horovod": "sweep.integration.horovod: *",
    "sweep.tune.integration.keras": """
        sweep.integration.keras: ReportCheckpointCallback TuneReportCallback TuneReportCheckpointCallback
    """,
    "sweep.tune.integration.lightgbm": f"sweep.integration.lightgbm: {_TREES}",
    "sweep.tune.integration.mlflow": "sweep.integration.mlflow: *",
    "sweep.tune.integration.pytorch_lightning": """
        sweep.integration.pytorch_lightning: TuneReportCallback TuneReportCheckpointCallback
    """,
    "sweep.tune.integration.ray_train": "sweep.train: TuneReportCallback",
    "sweep.tune.integration.tensorflow": "sweep.train.tensorflow: DistributedTrainableCreator",
    "sweep.tune.integration.torch": "sweep.train.torch: DistributedTrainableCreator",
    "sweep.tune.integration.wandb": "sweep.integration.wandb: *",
    "sweep.tune.integration.xgboost": f"sweep.integration.xgboost: {_TREES}",
    "sweep.tune.logger": """
        sweep.callbacks.loggers: CSVLoggerCallback JsonLoggerCallback TBXLoggerCallback
        sweep.callbacks.logger_base: LoggerCallback
        sweep.callbacks.loggers: TensorBoardLoggerCallback=TBXLoggerCallback
        sweep.tune.dicts: pretty_print
    """,
    "sweep.tune.logger.csv": "sweep.callbacks.loggers: CSVLoggerCallback",
    "sweep.tune.logger.json": "sweep.callbacks.loggers: JsonLoggerCallback",
    "sweep.tune.logger.logger": """
        sweep.callbacks.logger_base: LoggerCallback
        sweep.tune.dicts: pretty_print
    """,
    "sweep.tune.logger.mlflow": "sweep.integration.mlflow: MLflowLoggerCallback",
    "sweep.tune.logger.tensorboardx": "sweep.callbacks.loggers: TBXLoggerCallback",
    "sweep.tune.logger.wandb": "sweep.integration.wandb: WandbLoggerCallback",
    "sweep.tune.progress_reporter": "sweep: CLIReporter JupyterNotebookReporter ProgressReporter",
    "sweep.tune.registry": "sweep: register_trainable",
    "sweep.tune.resources": "sweep: Resources",
    "sweep.tune.result": "sweep.tune.result_fields: *",
    "sweep.tune.result_grid": "sweep: ResultGrid",
    "sweep.tune.sample": "sweep.tune.search.sample",
    "sweep.tune.schedulers": """
        sweep.schedulers: * TrialScheduler=Scheduler
    """,
    "sweep.tune.schedulers.async_hyperband": "sweep.schedulers: ASHAScheduler AsyncHyperBandScheduler",
    "sweep.tune.schedulers.hb_bohb": "sweep.schedulers: HyperBandForBOHB",
    "sweep.tune.schedulers.hyperband": "sweep.schedulers: HyperBandScheduler",
    "sweep.tune.schedulers.median_stopping_rule": "sweep.schedulers: MedianStoppingRule",
    "sweep.tune.schedulers.pb2": "sweep.schedulers: PB2",
    "sweep.tune.schedulers.pbt": "sweep.schedulers: PopulationBasedTraining PopulationBasedTrainingReplay",
    "sweep.tune.schedulers.resource_changing_scheduler": """
        sweep.schedulers: DistributeResources DistributeResourcesToTopJob ResourceChangingScheduler
    """,
    "sweep.tune.schedulers.trial_scheduler": "sweep.schedulers: FIFOScheduler TrialScheduler=Scheduler",
    "sweep.tune.search": "searchers: *",
    "sweep.tune.search.basic_variant": "searchers: BasicVariantGenerator",
    "sweep.tune.search.bayesopt": "searchers: BayesOptSearch",
    "sweep.tune.search.bayesopt.bayesopt_search": "searchers: BayesOptSearch",
    "sweep.tune.search.bohb": "searchers: BOHBSearch TuneBOHB",
    "sweep.tune.search.bohb.bohb_search": "searchers: BOHBSearch TuneBOHB",
    "sweep.tune.search.concurrency_limiter": "searchers: ConcurrencyLimiter",
    "sweep.tune.search.hyperopt": "searchers: HyperOptSearch",
    "sweep.tune.search.hyperopt.hyperopt_search": "searchers: HyperOptSearch",
    "sweep.tune.search.optuna": "searchers: OptunaSearch",
    "sweep.tune.search.optuna.optuna_search": "searchers: OptunaSearch",
    "sweep.tune.search.repeater": "searchers.repeater: TRIAL_INDEX Repeater",
    "sweep.tune.search.sample": f"""
        searchers.sample: Categorical Domain Float Function Integer LogUniform Normal Quantized Uniform
        searchers: {_FUNCTIONS}
    """,
    "sweep.tune.search.searcher": "searchers: ConcurrencyLimiter Searcher",
    "sweep.tune.search.suggestion": "searchers: ConcurrencyLimiter Searcher",
    "sweep.tune.search.variant_generator": """
        searchers: grid_search
        sweep.core.naming: format_vars
    """,
    "sweep.tune.session": "sweep.tune.session_functions: *",
    "sweep.tune.stopper": f"sweep: {_STOPPERS} EarlyStopping=ExperimentPlateauStopper",
    "sweep.tune.stopper.experiment_plateau": "sweep: ExperimentPlateauStopper",
    "sweep.tune.stopper.function_stopper": "sweep: FunctionStopper",
    "sweep.tune.stopper.maximum_iteration": "sweep: MaximumIterationStopper",
    "sweep.tune.stopper.noop": "sweep: NoopStopper",
    "sweep.tune.stopper.stopper": "sweep: CombinedStopper Stopper",
    "sweep.tune.stopper.timeout": "sweep: TimeoutStopper",
    "sweep.tune.stopper.trial_plateau": "sweep: TrialPlateauStopper",
    "sweep.tune.suggest": "sweep.tune.search",
    "sweep.tune.syncer": "sweep: SyncConfig",
    "sweep.tune.trainable": "sweep: Trainable with_parameters with_resources",
    "sweep.tune.trainable.session": "sweep.tune.session_functions: *",
    "sweep.tune.trainable.trainable": "sweep: Trainable",
    "sweep.tune.trainable.util": "sweep: with_parameters with_resources",
    "sweep.tune.trial": "sweep.callbacks.observed: Trial=ObservedTrial",
    "sweep.tune.tune": "sweep.tune.running: run run_experiments",
    "sweep.tune.tune_config": "sweep: ResumeConfig TuneConfig",
    "sweep.tune.tuner": "sweep.tune.running: Tuner",
    "sweep.util": "",
    "sweep.tune.utils": """
        sweep.tune.dicts: deep_update flatten_dict merge_dicts unflatten_dict unflatten_list_dict
        sweep.tune.dicts: unflattened_lookup
        sweep: wait_for_gpu
    """,
    "sweep.tune.utils.placement_groups": "sweep: PlacementGroupFactory",
    "sweep.tune.utils.util": """
        sweep.tune.dicts: deep_update flatten_dict merge_dicts unflatten_dict unflatten_list_dict
        sweep.tune.dicts: unflattened_lookup
        sweep: wait_for_gpu
    """,
}
"""A module of Ray's -> where its names are: lines `module: names`, with `theirs=ours` where they differ, and `*` for
all public ones. Without a colon: it is that module itself."""

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
"""A name of Ray's that does not exist here -> why, and what to use."""
