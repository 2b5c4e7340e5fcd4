"""What Ray and other libraries have under a name that does not exist here: why not, and what to use."""

from __future__ import annotations

import re

# A reason, and below it the names that it is for: whole, or last parts behind the place of several.
_TABLE = """
- there are no tasks, actors or objects of a cluster here. Have sweep.run or sweep.Tuner run a function many times,
  each in a process of its own; for tasks of your own take concurrent.futures.
    sweep: remote wait method kill cancel actor get_actor ObjectRef ObjectID get_runtime_context workflow serve
    sweep.util: ActorPool get_current_placement_group placement_group placement_group_table actor_pool as_completed
      collective dask iter list_named_actors metrics multiprocessing queue inspect_serializability
      remove_placement_group scheduling_strategies spark state
- there is no object store here. sweep.with_parameters(train, data=...) stores a large object once and hands it to
  every trial.
    sweep: get put
    sweep.tune.utils: pin_in_object_store get_pinned_object
- there is no Ray Data here; load the data inside the train loop, each worker its part: get_context().get_world_rank()
  says which.
    sweep.data sweep.air.config.DatasetConfig sweep.air.session.get_dataset_shard
      sweep.train.session.get_dataset_shard
    sweep.train: get_dataset_shard DataConfig TRAIN_DATASET_KEY
    sweep.air: DataBatchType DatasetConfig data
- there is no cluster here, but one machine: `sweep ls` and `sweep why` show what runs and what holds what.
    sweep: nodes timeline autoscaler cluster_utils dashboard job_submission state
- there is no RLlib here; make the environment inside the trainable.
    sweep.tune.register_env sweep.tune.registry.register_env sweep.train.rl
    sweep: rllib register_env
- leave out register_ray() and parallel_backend('ray'): joblib runs its jobs on this machine without them.
    sweep.util: joblib register_ray
- call sweep.run(function, config=space, num_samples=...): it draws configs; the function gets one, and reports.
    sweep: create_study load_study Study optimize agent sweep fmin
- call sweep.report(loss=...) in each epoch: the scheduler, such as scheduler='asha', stops the trial there.
    sweep: TrialPruned should_prune
- a space holds what is to be drawn: config={'lr': sweep.loguniform(1e-4, 1e-1)}; the function reads config['lr'].
    sweep: suggest_float suggest_int suggest_categorical
- the errors of a sweep are in sweep.errors; all of them are sweep.TuneError.
    sweep.exceptions
- use search_alg='tpe', 'gp', 'cmaes' or OptunaSearch, or put a sweep.search.Searcher around that library.
    sweep.tune.search: ax dragonfly flaml hebo nevergrad sigopt skopt vizier zoopt
- the engine makes the trials: derive from sweep.tune.search.Searcher, which is asked for configs.
    sweep.tune.search: SearchAlgorithm SearchGenerator search_algorithm search_generator search_alg
- fit the estimator inside the trainable and report its score, cross_val_score(...).mean() for instance.
    sweep.train.sklearn
    sweep.tune: run_sklearn sklearn TuneSearchCV TuneGridSearchCV
- call report(metrics, checkpoint=Checkpoint.from_directory(path)), and get_checkpoint() to go on.
    sweep.train.torch.TorchCheckpoint
    sweep.train: save_checkpoint load_checkpoint
    sweep.tune: save_checkpoint load_checkpoint
- each run checks at its start that the trainable can be shipped, and says what in it cannot.
    sweep.tune.utils: diagnose_serialization validate_save_restore serialization trainable
- loggers are callbacks now: pass callbacks=[...] with a class derived from sweep.tune.logger.LoggerCallback.
    sweep.tune.logger.logger.Logger
    sweep.tune.logger: Logger UnifiedLogger NoopLogger JsonLogger CSVLogger TBXLogger DEFAULT_LOGGERS
      LegacyLoggerCallback
- write a sweep.Callback that tells it, or pass callbacks=[WandbLoggerCallback()] or MLflowLoggerCallback().
    sweep.tune.integration.comet sweep.air.integrations.comet sweep.air.CometLoggerCallback
    sweep.tune.logger: aim comet AimLoggerCallback CometLoggerCallback
- it is a part of Tune's own engine. Callbacks, searchers and schedulers are told what happens in sweep's.
    sweep.tune: trial_runner trial_executor ray_trial_executor function_runner
    sweep.tune.execution: trial_runner tune_controller ray_trial_executor
    sweep.tune.trainable: function_trainable metadata FunctionTrainable wrap_function
    sweep.tune.syncer: Syncer SyncerCallback
- write the model in save_checkpoint() or cleanup(), or call export_model() by hand.
    sweep.tune.experiment.ExportFormat
- machines are reached by an engine; files go to storage_path='s3://...', which takes a URI.
    sweep.tune.integration: docker kubernetes
- use TorchTrainer, TensorflowTrainer, JaxTrainer or DataParallelTrainer of sweep.train, with a ScalingConfig.
    sweep.tune.integration.mxnet sweep.train.base_trainer.BaseTrainer
    sweep.train: Trainer BackendConfig backend mosaic collective gbdt_trainer BaseTrainer TrainingIterator
- give run, or RunConfig, a URI as storage_path; then every checkpoint is there.
    sweep.tune: durable durable_trainable DurableTrainable
- call sweep.report(metrics) instead of track.log(**metrics), and drop its import and init.
    sweep.tune.track
- results go to ./sweep_results, or to storage_path=.
    sweep.tune.result.DEFAULT_RESULTS_DIR
- pass DistributeResources() or DistributeResourcesToTopJob() to it.
    sweep.tune.schedulers.resource_changing_scheduler: evenly_distribute_cpus_gpus
      evenly_distribute_cpus_gpus_distributed
- call the library's own train in the function of a trial, with the RayTrainReportCallback of this module.
    sweep.train.xgboost: XGBoostTrainer XGBoostConfig XGBoostCheckpoint
    sweep.train.lightgbm: LightGBMTrainer LightGBMConfig LightGBMCheckpoint
- run transformers' own Trainer in a TorchTrainer, with the callback of sweep.train.huggingface.transformers.
    sweep.train.huggingface: HuggingFaceTrainer TransformersTrainer AccelerateTrainer accelerate HuggingFaceCheckpoint
      TransformersCheckpoint
- give a TorchTrainer the train loop, and the strategy of the library itself.
    sweep.train.lightning: LightningTrainer LightningConfigBuilder LightningCheckpoint RayFSDPStrategy
      RayDeepSpeedStrategy
- call it on the context: sweep.train.get_context().
    sweep.train: world_rank local_rank world_size get_world_rank get_local_rank get_world_size
- TPU chips are for JAX here: use sweep.train.jax.JaxTrainer.
    sweep.train.torch.xla
- call setup_wandb(config) or setup_mlflow(config) in the trainable, or pass the logger in callbacks=[...].
    sweep.tune.integration.wandb: wandb_mixin WandbTrainableMixin WandbLogger
    sweep.tune.integration.mlflow: mlflow_mixin MLflowTrainableMixin MLflowLogger
- load the model from result.get_best_checkpoint(...), and call it on the data yourself.
    sweep.train: batch_predictor predictor
    sweep.train.torch: TorchPredictor torch_predictor
- derive from TuneReportCallback of this module.
    sweep.tune.integration.pytorch_lightning.TuneCallback
- the Result of fit() has best_checkpoints and get_best_checkpoint().
    sweep.train.v2.api.train_fn_utils.get_all_reported_checkpoints
    sweep.train: get_all_reported_checkpoints ReportedCheckpoint ReportedCheckpointStatus CheckpointUploadMode
      CheckpointConsistencyMode
- use torch.amp and torch.optim themselves.
    sweep.train.torch: accelerate prepare_optimizer backward
"""


def _names() -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in _TABLE.split("\n- ")[1:]:
        why, *places = re.split(r"\n    (?=\w)", entry)
        for place in places:
            home, is_home, names = place.rpartition(":")
            found |= {f"{home}{'.' * bool(is_home)}{name}": " ".join(why.split()) for name in names.split()}
    return found


NOT_HERE = _names()
"""A name with its dots -> why it does not exist here, and what to use."""
