"""What the golden experiments run. Their pickles name what stands here: rename and remove nothing."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import sweep
from sweep import CheckpointConfig, FailureConfig, RunConfig, TuneConfig, Tuner
from sweep.record.reader import ExperimentReader
from sweep.schedulers import ASHAScheduler
from sweep.train import DataParallelTrainer, ScalingConfig

KILL = "GOLDEN_DRIVER"  # its process id: trial 3 kills it at its third step
STEPS = 4
TOKEN = "GOLDEN_TOKEN"


class Ballast:
    """A value of a config that JSON cannot say."""

    def __init__(self, weight: int) -> None:
        self.weight = weight

    def __repr__(self) -> str:
        return f"Ballast({self.weight})"


class GoldenError(Exception):
    """What trial 2 raises."""


def double(spec: Any) -> Any:
    return spec.config.x * 2


def double_in_group(spec: Any) -> Any:
    return spec.config.train_loop_config.x * 2


def _step(config: dict[str, Any], step: int) -> dict[str, Any]:
    """Return what is reported at a step; of trial 2 the second raises, of trial 3 the third kills the driver."""
    if config["case"] == "raises" and step == 2:
        raise GoldenError("trial 2 raises", Ballast(2))
    if config["case"] == "killed" and step == 3 and KILL in os.environ:
        trial = Path(sweep.get_context().get_trial_dir())
        while len(ExperimentReader(trial.parent).checkpoints(trial.name)) < 2:  # what a class saves comes later
            time.sleep(0.01)
        os.kill(int(os.environ[KILL]), signal.SIGKILL)
        time.sleep(60)  # its supervisor notices
    return {"loss": config["level"] / step, "step": step, "x": config["x"], "token": os.environ.get(TOKEN, "")}


def train(config: dict[str, Any]) -> None:
    """Report and save at each step."""
    start, found = 0, sweep.get_checkpoint()
    if found is not None:
        with found.as_directory() as directory:
            start = int(Path(directory, "step").read_text())
    for step in range(start + 1, STEPS + 1):
        metrics = _step(config, step)
        with sweep.checkpoint_dir() as directory:
            Path(directory, "step").write_text(str(step))
            Path(directory, "inner").mkdir()
            Path(directory, "inner", "weights").write_bytes(bytes([step]) * 100)
        sweep.report(metrics, started_at=start, hostname="golden", pid=1)


def train_in_group(config: dict[str, Any]) -> None:
    """Report and save at each step, as each of two workers; the first does what becomes of the trial."""
    context = sweep.get_context()
    start, found = 0, sweep.get_checkpoint()
    if found is not None:
        with found.as_directory() as directory:
            start = int(Path(directory, "step").read_text())
    for step in range(start + 1, STEPS + 1):
        is_first = context.get_world_rank() == 0
        metrics = _step(config, step) if is_first else {"loss": 0.0}
        with sweep.checkpoint_dir() as directory:
            Path(directory, "step" if is_first else "other").write_text(str(step))
        sweep.report(metrics, started_at=start, hostname="golden", pid=1)


class Train(sweep.Trainable):
    """The same as a class; what it saves is a dict."""

    def setup(self, config: dict[str, Any]) -> None:
        self.started_at = self.at = 0

    def step(self) -> dict[str, Any]:
        self.at += 1
        return {**_step(self.config, self.at), "started_at": self.started_at, "hostname": "golden", "pid": 1}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"at": self.at, "ballast": Ballast(self.at)}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        assert checkpoint["ballast"].weight == checkpoint["at"]
        self.started_at = self.at = checkpoint["at"]


LEVELS = {"finishes": 4.0, "stopped": 9.0, "raises": 3.0, "killed": 2.0, "late": 1.0}


def level(spec: Any) -> float:
    return LEVELS[spec.config.case]


def level_in_group(spec: Any) -> float:
    return LEVELS[spec.config.train_loop_config.case]


def tuner(trainable: Any, name: str, storage: str) -> Tuner:
    is_class = isinstance(trainable, type)
    is_group = isinstance(trainable, DataParallelTrainer)
    space = {
        # each says what becomes of it before the driver is killed; the last never begins
        "case": sweep.grid_search(["finishes", "stopped", "raises", "killed", "late"]),
        "level": sweep.sample_from(level_in_group if is_group else level),
        "x": sweep.loguniform(0.1, 10.0),
        "doubled": sweep.sample_from(double_in_group if is_group else double),
        "ballast": Ballast(7),
    }
    return Tuner(
        trainable,
        param_space={"train_loop_config": space} if is_group else space,
        tune_config=TuneConfig(
            metric="loss",
            mode="min",
            max_concurrent_trials=1,
            search_alg=None,
            scheduler=ASHAScheduler(max_t=STEPS, grace_period=1, reduction_factor=2),
            seed=11,
        ),
        run_config=RunConfig(
            name=name,
            storage_path=storage,
            stop={"training_iteration": STEPS},
            failure_config=FailureConfig(max_failures=0),
            checkpoint_config=CheckpointConfig(num_to_keep=2, checkpoint_frequency=1 if is_class else 0),
            runtime_env={"env_vars": {TOKEN: "not-a-secret"}},
            verbose=0,
        ),
    )


def first(name: str, storage: str) -> None:
    """Run an experiment up to the step that kills this process."""
    os.environ[KILL] = str(os.getpid())
    tuner(trainable(name), name, storage).fit()


def trainable(name: str) -> Any:
    if name == "trainer":
        return DataParallelTrainer(train_in_group, scaling_config=ScalingConfig(num_workers=2))
    return {"function": train, "class": Train}[name]
