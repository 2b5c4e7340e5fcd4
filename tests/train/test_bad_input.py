"""Bad input of trainers gets one clear error before anything starts: no directory is made, no engine, no process."""

from __future__ import annotations

import functools

import pytest

import sweep
from sweep.engines.local.engine import LocalEngine
from sweep.errors import ConfigError, ResourceError, TrainableError
from sweep.train import DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig
from sweep.train.jax import JaxConfig, JaxTrainer
from sweep.train.tensorflow import DistributedTrainableCreator as TensorflowCreator
from sweep.train.tensorflow import TensorflowTrainer
from sweep.train.torch import DistributedTrainableCreator, TorchConfig, TorchTrainer

A100 = sweep.Device("GPU-a", type="NVIDIA A100-SXM4-80GB", labels=("A100", "A100-80G"))


def loop(config):
    raise AssertionError("nothing may start")


def takes_nothing():
    raise AssertionError("nothing may start")


def takes_two(config, data):
    raise AssertionError("nothing may start")


async def waits(config):
    raise AssertionError("nothing may start")


@pytest.fixture(autouse=True)
def nothing_starts(tmp_path, monkeypatch):
    """Two nodes with two A100 each; after the test nothing has been written, and no engine was made."""

    def refuse(*given, **named):
        raise AssertionError("an engine was made")

    monkeypatch.setattr(LocalEngine, "__init__", refuse)
    monkeypatch.setenv("SWEEP_STORAGE", str(tmp_path / "storage"))
    devices = (A100, sweep.Device("GPU-b", type=A100.type, labels=A100.labels))
    sweep.init(nodes=[sweep.Node(name, cpus=8, devices=devices) for name in ("one", "two")])
    yield
    sweep.shutdown()
    assert not (tmp_path / "storage").exists()


USE_GPUS = [{"num_workers": 1}, {"num_workers": 1, "use_gpus": True}]


@pytest.mark.parametrize(
    ("scaling", "words"),
    [
        ({"resources_per_worker": {"GPU": 1}}, "has GPU=1 and use_gpu is False; set use_gpu=True"),
        ({"num_worker": 2}, "unknown field 'num_worker'. Did you mean 'num_workers'"),
        ({"num_workers": sweep.grid_search([2, 0])}, "num_workers is 0; expected a whole number of at least 1"),
        ({"num_workers": sweep.uniform(1, 4)}, "num_workers is .*, which draws fractions.* Use randint"),
        ({"num_workers": sweep.quniform(1, 4, 1)}, "num_workers is .*, which draws fractions"),
        ({"num_workers": sweep.randint(1, 4), "placement_strategy": "PAK"}, "Did you mean 'PACK'"),
        (sweep.grid_search(USE_GPUS), "unknown field 'use_gpus'. Did you mean 'use_gpu'"),
        (sweep.choice(USE_GPUS), "unknown field 'use_gpus'"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_scaling_in_the_config_that_makes_no_sense_is_refused(scaling, words):
    with pytest.raises(ResourceError, match=words):
        sweep.run(TorchTrainer(loop), config={"scaling_config": scaling}, verbose=0)


@pytest.mark.parametrize(
    ("scaling", "words"),
    [
        ({"use_gpu": True, "resources_per_worker": {"GPU": 3}}, "gpu=3 is more than the largest node has: 2"),
        ({"resources_per_worker": {"CPU": 9}}, "cpu=9 is more than the largest node has: 8"),
        ({"num_workers": 5, "use_gpu": True}, r"5 x \(gpu=1\) PACK; .*gpu=5 in all, there are 4"),
        ({"num_workers": 3, "use_gpu": True, "placement_strategy": "STRICT_PACK"}, r"3 x \(gpu=1\) STRICT_PACK"),
        ({"num_workers": 3, "placement_strategy": "STRICT_SPREAD"}, r"3 x \(cpu=1\) STRICT_SPREAD"),
        ({"use_gpu": True, "accelerator_type": "H100"}, "gpu=1 of type H100; the nodes have 4 x A100"),
        ({"num_workers": sweep.grid_search([20, 30])}, r"20 x \(cpu=1\)"),
        ({"num_workers": sweep.choice([30, 20])}, r"20 x \(cpu=1\)"),
    ],
    ids=str,
)
def test_a_group_that_no_inventory_could_hold_is_refused_with_the_arithmetic(scaling, words):
    trainer = DataParallelTrainer(loop, scaling_config=ScalingConfig(**scaling))
    with pytest.raises(ResourceError, match=words):
        sweep.run(trainer, verbose=0)
    with pytest.raises(ResourceError, match=words):
        sweep.Tuner(trainer, run_config=RunConfig(verbose=0)).fit()


@pytest.mark.parametrize("backend", ["nccl", "cpu:gloo,cuda:nccl"])
def test_nccl_is_refused_where_workers_would_share_a_gpu(backend):
    sweep.init(num_cpus=8, num_gpus=1)
    scaling = ScalingConfig(num_workers=2, use_gpu=True, resources_per_worker={"GPU": 0.5})
    trainer = TorchTrainer(loop, scaling_config=scaling, torch_config=TorchConfig(backend=backend))
    with pytest.raises(ResourceError, match=r"2 workers with gpu=0\.5 each need 2 devices of their own; .* has 1"):
        sweep.run(trainer, verbose=0)


def test_resources_are_given_by_the_scaling_config_only():
    with pytest.raises(ResourceError, match="resources were given twice"):
        sweep.run(TorchTrainer(loop), resources_per_trial={"cpu": 2}, verbose=0)
    with pytest.raises(ResourceError, match="resources were given twice"):
        sweep.Tuner(TorchTrainer(loop), resources_per_trial={"cpu": 2}).fit()
    with pytest.raises(ResourceError, match="are those of its ScalingConfig; leave out with_resources"):
        sweep.run(TorchTrainer(sweep.with_resources(loop, {"cpu": 2})), verbose=0)
    with pytest.raises(ResourceError, match="are those of its ScalingConfig; leave out with_resources"):
        sweep.run(DistributedTrainableCreator(sweep.with_resources(loop, {"cpu": 2})), verbose=0)
    with pytest.raises(TrainableError, match="with_resources was given"):
        sweep.with_resources(TorchTrainer(loop), {"cpu": 2})


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"lr": 0.1}, r"the key 'lr'; hyperparameters belong under 'train_loop_config': .*\{'lr': \.\.\.\}"),
        ({"lr": sweep.uniform(0, 1)}, "the key 'lr'; hyperparameters belong under 'train_loop_config'"),
        ({"train_loop_confg": {}}, "the key 'train_loop_confg'.* Did you mean 'train_loop_config'"),
        ({"scaling": {"num_workers": 2}}, "the key 'scaling'.* Did you mean 'scaling_config'"),
        ({"run_config": RunConfig()}, "the key 'run_config'"),
        ({7: 1}, "the key 7"),
        ({"train_loop_config": 3}, "train_loop_config is 3; expected a dict, whose values may be search domains"),
        ({"train_loop_config": sweep.choice([{"lr": 1}])}, "train_loop_config is .*; expected a dict"),
        ({"train_loop_config": sweep.grid_search([{"lr": 1}])}, "train_loop_config is .*; expected a dict"),
        ({"scaling_config": 4}, "scaling_config is 4; expected a ScalingConfig, or a dict of its fields"),
        ([("lr", 0.1)], "expected a dict"),
    ],
    ids=str,
)
def test_the_config_of_a_trainer_has_two_keys(config, words):
    with pytest.raises(ConfigError, match=words):
        sweep.run(TorchTrainer(loop), config=config, verbose=0)
    with pytest.raises(ConfigError, match=words):
        sweep.Tuner(TorchTrainer(loop), param_space=config).fit()


def test_a_config_is_refused_for_a_loop_that_takes_none():
    with pytest.raises(TrainableError, match=r"takes_nothing\(\) takes none. Expected `def takes_nothing\(config\)`"):
        sweep.run(TorchTrainer(takes_nothing), config={"train_loop_config": {"lr": 1}}, verbose=0)
    with pytest.raises(TrainableError, match=r"takes_nothing\(\) takes none"):
        sweep.run(DistributedTrainableCreator(takes_nothing), config={"lr": 1}, verbose=0)


def test_fit_is_refused_where_something_is_to_be_searched():
    words = "config holds search domains; use sweep.run"
    with pytest.raises(ConfigError, match=words):
        TorchTrainer(loop, train_loop_config={"net": {"lr": sweep.uniform(0, 1)}}).fit()
    with pytest.raises(ConfigError, match=words):
        TorchTrainer(loop, train_loop_config={"lr": sweep.grid_search([1, 2])}).fit()
    with pytest.raises(ConfigError, match=words):
        JaxTrainer(loop, scaling_config=ScalingConfig(num_workers=sweep.grid_search([1, 2]))).fit()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: TorchTrainer(takes_two),
            r"takes_two\(config, data\) cannot be called with one config.*with_parameters",
        ),
        (lambda: TorchTrainer(lambda a, b: None), r"`def lambda\(config\)` or a function without arguments"),
        (lambda: TorchTrainer(functools.partial(takes_two)), "the train loop takes_two.* cannot be called"),
        (
            lambda: TorchTrainer(takes_nothing, train_loop_config={"lr": 1}),
            r"takes_nothing\(\) cannot be called with one config; .* because a train_loop_config was given",
        ),
        (lambda: TorchTrainer(waits), "the train loop waits is asynchronous; expected a plain function"),
        (lambda: TorchTrainer(None), "train_loop_per_worker is None; expected a function of a config"),
        (lambda: TorchTrainer(dict), "train_loop_per_worker is <class 'dict'>; expected a function"),
        (lambda: TorchTrainer(sweep.Trainable), "expected a function of a config"),
        (lambda: TorchTrainer(TorchTrainer(loop)), "expected a function of a config"),
        (lambda: JaxTrainer("loop"), "train_loop_per_worker is 'loop'; expected a function"),
        (lambda: DistributedTrainableCreator(takes_two), r"takes_two\(config, data\) cannot be called"),
        (lambda: TensorflowCreator(TorchTrainer), "expected a function of a config"),
    ],
)
def test_a_train_loop_is_a_function_of_one_config_or_of_nothing(make, words):
    with pytest.raises(TrainableError, match=words):
        make()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: TorchTrainer(loop, datasets={"train": [1]}),
            "TorchTrainer has no parameter 'datasets'. Load the data",
        ),
        (lambda: TorchTrainer(loop, scaling_cfg=2), "no parameter 'scaling_cfg'. Did you mean 'scaling_config'"),
        (lambda: JaxTrainer(loop, jax_cfg=2), "no parameter 'jax_cfg'. Did you mean 'jax_config'"),
        (
            lambda: TorchTrainer(loop, scaling_config={"num_workers": 2}),
            "scaling_config is .*; expected a ScalingConfig",
        ),
        (lambda: TorchTrainer(loop, run_config={"name": "a"}), "run_config is .*; expected a RunConfig"),
        (lambda: TorchTrainer(loop, run_config=sweep.TuneConfig()), "run_config is .*; expected a RunConfig"),
        (lambda: TorchTrainer(loop, train_loop_config=[1]), r"train_loop_config is \[1\]; expected a dict"),
        (
            lambda: TorchTrainer(loop, resume_from_checkpoint="x"),
            "resume_from_checkpoint is 'x'; expected a Checkpoint",
        ),
        (lambda: TorchTrainer(loop, torch_config="nccl"), "torch_config is 'nccl'; expected a TorchConfig"),
        (lambda: JaxTrainer(loop, jax_config=TorchConfig()), r"jax_config is TorchConfig\(.*; expected a JaxConfig"),
        (lambda: DataParallelTrainer(loop, backend_config="nccl"), "backend_config is 'nccl'; expected a TorchConfig"),
        (lambda: TensorflowTrainer(loop, backend_config=3), "TensorflowTrainer: backend_config is 3"),
        (lambda: DistributedTrainableCreator(loop, num_workers=4, num_workers_per_host=2), "num_workers_per_host is 2"),
        (lambda: DistributedTrainableCreator(loop, backend="ncl"), "Did you mean 'nccl'"),
    ],
)
def test_an_argument_of_a_trainer_that_is_wrong_is_named_with_what_was_expected(make, words):
    with pytest.raises(ConfigError, match=words):
        make()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"backend": "ncl"}, "backend is 'ncl'; expected 'nccl', 'gloo', or None.* Did you mean 'nccl'"),
        ({"backend": "NCCL"}, "backend is 'NCCL'.* Did you mean 'nccl'"),
        ({"backend": "cpu:gloo,cuda:ncl"}, "backend is 'cpu:gloo,cuda:ncl'"),
        ({"backend": ""}, "backend is ''"),
        ({"backend": 3}, "backend is 3"),
        ({"init_method": "file"}, "init_method is 'file'; expected 'env' or 'tcp'"),
        ({"timeout_s": 0}, "timeout_s is 0; expected seconds above 0"),
        ({"timeout_s": "30m"}, "timeout_s is '30m'"),
        ({"timeout_s": True}, "timeout_s is True"),
    ],
    ids=str,
)
def test_a_torch_config_that_makes_no_sense_is_refused(arguments, words):
    with pytest.raises(ConfigError, match=words):
        TorchConfig(**arguments)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (JaxConfig, "initialization_timeout_s"),
        (JaxConfig, "heartbeat_timeout_s"),
        (JaxConfig, "shutdown_timeout_s"),
        (FailureConfig, "hang_timeout_s"),
    ],
)
@pytest.mark.parametrize("value", [0, -1, "30", True, float("inf"), float("nan")])
def test_a_timeout_is_a_number_of_seconds(config, name, value):
    with pytest.raises(ConfigError, match=f"{name} is {value!r}; expected seconds above 0"):
        config(**{name: value})


def test_an_unknown_key_of_the_runtime_env_of_all_trials_is_refused():
    with pytest.raises(ConfigError, match=r"'env_var'.* Did you mean 'env_vars'"):
        sweep.init(runtime_env={"env_var": {}})
    with pytest.raises(ConfigError, match="runtime_env and worker_runtime_env are the same"):
        RunConfig(runtime_env={}, worker_runtime_env={})


@pytest.mark.parametrize(
    ("trainable", "words"),
    [
        (TorchTrainer, "TorchTrainer is the class of a trainer; expected an object"),
        (DataParallelTrainer, "DataParallelTrainer is the class of a trainer"),
        (ScalingConfig(num_workers=2), r"the trainable is ScalingConfig\(num_workers=2\) of type ScalingConfig"),
        (TorchConfig(), "the trainable is TorchConfig"),
        ({"train": TorchTrainer(loop)}, "of type dict; expected a function"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_a_trainer_object_is_no_trainable(trainable, words):
    with pytest.raises(TrainableError, match=words):
        sweep.run(trainable, verbose=0)
    with pytest.raises(TrainableError, match=words):
        sweep.Tuner(trainable).fit()


def test_checkpoint_options_of_classes_are_refused_for_trainers():
    with pytest.raises(ConfigError, match="class trainables"):
        sweep.run(TorchTrainer(loop), checkpoint_config=sweep.CheckpointConfig(checkpoint_frequency=2), verbose=0)
