"""What the `DistributedTrainableCreator` functions of the frameworks have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict, TypeVar

from sweep.errors import ConfigError
from sweep.train.scaling import ScalingConfig
from sweep.train.trainer import Backend, DataParallelTrainer

__all__ = ["CreatorOptions", "create"]

T = TypeVar("T", bound=DataParallelTrainer)


class CreatorOptions(TypedDict, total=False):
    """What all of them take."""

    use_gpu: bool
    num_workers: int
    num_cpus_per_worker: float
    num_gpus_per_worker: float | None
    num_workers_per_host: int | None


def create(
    trainer: Callable[..., T],
    func: Callable[..., Any],
    *,
    use_gpu: bool = False,
    num_workers: int = 1,
    num_cpus_per_worker: float = 1,
    num_gpus_per_worker: float | None = None,
    num_workers_per_host: int | None = None,
    **config: Backend,
) -> T:
    """Return a trainer for which the whole config of a trial is the loop's; `config` is its backend's, by name."""
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
    made = trainer(func, scaling_config=scaling, **config)
    made._is_flat = True
    return made
