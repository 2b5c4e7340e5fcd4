"""What the `DistributedTrainableCreator` functions of the frameworks have in common."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from sweep.errors import ConfigError
from sweep.train.scaling import ScalingConfig
from sweep.train.trainer import Backend, DataParallelTrainer
from sweep.worker.parameters import call_problem, name_of, unwrap, with_parameters
from sweep.worker.session import get_checkpoint

__all__ = ["create", "loop_of"]

T = TypeVar("T", bound=DataParallelTrainer)


def loop_of(func: Callable[..., Any]) -> Callable[..., Any]:
    """Return a train loop of one config: `func`, given its `checkpoint_dir` when it has such a parameter."""
    inner, objects, resources = unwrap(func)
    if resources is not None:
        return func  # refused where the loop is taken
    try:
        parameters = inspect.signature(inner).parameters
    except (TypeError, ValueError):
        return func  # no function, or one that does not tell
    takes_directory = "checkpoint_dir" in parameters and "checkpoint_dir" not in objects
    if not takes_directory or call_problem(inner, {}, checkpoint_dir=None, **dict.fromkeys(objects)):
        return func
    loop = functools.partial(_with_directory, inner)
    vars(loop)["__name__"] = name_of(inner)  # what people see is the user's function
    return with_parameters(loop, **objects) if objects else loop


def _with_directory(func: Callable[..., Any], config: dict[str, Any], **objects: Any) -> Any:
    checkpoint = get_checkpoint()
    return func(config, checkpoint_dir=checkpoint.path if checkpoint is not None else None, **objects)


def create(
    trainer: Callable[..., T],
    func: Callable[..., Any],
    *,
    use_gpu: bool,
    num_workers: int,
    num_cpus_per_worker: float,
    num_gpus_per_worker: float | None,
    num_workers_per_host: int | None,
    **config: Backend,
) -> T:
    """Return a trainer for which the whole config of a trial is the loop's.

    Args:
        trainer: its class.
        config: how its workers find each other, under the name that the class has for it.

    Raises:
        ConfigError, ResourceError, TrainableError: an argument is wrong.
    """
    gpus = num_gpus_per_worker if num_gpus_per_worker is not None else float(use_gpu)
    if num_workers_per_host not in (None, 1, num_workers):
        raise ConfigError(
            f"num_workers_per_host is {num_workers_per_host!r}; expected {num_workers} (all workers on one machine), 1 "
            "(each on its own), or None (wherever they fit)."
        )
    strategies = {None: "PACK", 1: "STRICT_SPREAD", num_workers: "STRICT_PACK"}
    scaling = ScalingConfig(
        num_workers=num_workers,
        use_gpu=use_gpu or gpus > 0,
        resources_per_worker={"CPU": num_cpus_per_worker} | ({"GPU": gpus} if gpus else {}),
        placement_strategy=strategies[num_workers_per_host],
    )
    made = trainer(loop_of(func), scaling_config=scaling, **config)
    made._is_flat = True
    return made
