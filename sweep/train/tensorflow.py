"""TensorFlow groups: `TensorflowTrainer`, and the creator under the name of Tune's first releases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

from sweep.errors import refuse_unknown
from sweep.train.creator import CreatorOptions, create
from sweep.train.trainer import Backend, DataParallelTrainer

__all__ = ["DistributedTrainableCreator", "TensorflowConfig", "TensorflowTrainer"]


@refuse_unknown()
@dataclass(frozen=True)
class TensorflowConfig(Backend):
    """How the workers of a TensorFlow group find each other: `TF_CONFIG` names a port for each of them, on
    127.0.0.1 or, where they are on several nodes, on the address of its node.

    The train loop makes its own `tf.distribute.MultiWorkerMirroredStrategy()`, first of all. TensorFlow's servers
    listen on all interfaces of the machine, which nothing outside of them can change.
    """

    framework: ClassVar[str] = "tensorflow"


class TensorflowTrainer(DataParallelTrainer):
    """Run a TensorFlow train loop in several workers that know each other by `TF_CONFIG`."""

    _default_backend = TensorflowConfig()


@refuse_unknown(also=CreatorOptions.__annotations__)
def DistributedTrainableCreator(func: Callable[..., Any], **options: Unpack[CreatorOptions]) -> DataParallelTrainer:
    """Return a trainable that runs `func(config)` in several TensorFlow workers, 2 unless `num_workers` says otherwise.

    Args:
        options: as in the one for torch.

    Raises:
        ConfigError, ResourceError, TrainableError: an argument is wrong.
    """
    options.setdefault("num_workers", 2)
    return create(TensorflowTrainer, func, **options)
