"""JAX groups: `JaxTrainer` and `JaxConfig`."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

from sweep.errors import refuse_unknown
from sweep.train.trainer import NOT_OF_TRAINERS, Backend, DataParallelTrainer, TrainerOptions
from sweep.worker.wire import Rank

__all__ = ["JaxConfig", "JaxTrainer"]


@refuse_unknown(
    {
        "use_tpu": "It is a field of ScalingConfig: scaling_config=ScalingConfig(use_tpu=True).",
        "use_gpu": "It is a field of ScalingConfig: scaling_config=ScalingConfig(use_gpu=True).",
    }
)
@dataclass(frozen=True)
class JaxConfig(Backend):
    """How the workers of a JAX group find each other: by JAX's own service, which rank 0 runs, on 127.0.0.1 or on
    its node's address where the workers are on several nodes.

    Several workers are joined by `jax.distributed.initialize` before the train loop begins; on CPUs their collectives
    are gloo's. `JAX_PLATFORMS` is tpu, cuda or cpu, by what the workers ask for, unless it is set.

    Attributes:
        initialization_timeout_s: for all to be there.
        heartbeat_timeout_s: after which a worker that died without a word is noticed by JAX itself.
        shutdown_timeout_s: for all to leave.

    Raises:
        ConfigError: one of them is no number of seconds above 0.
    """

    framework: ClassVar[str] = "jax"
    modules: ClassVar[tuple[str, ...]] = ("jax", "jax.numpy", "jax.experimental.multihost_utils")

    initialization_timeout_s: float = 120.0
    heartbeat_timeout_s: float = 30.0
    shutdown_timeout_s: float = 15.0

    def start(self, rank: Rank) -> None:
        """Join the group, before anything of JAX was used."""
        import jax

        # It would swallow SIGTERM; the sweep stops trials in its own way.
        update: Callable[[str, Any], None] = jax.config.update
        update("jax_enable_preemption_service", False)
        # JAX is loaded already and has read the variable that it was loaded with.
        platforms = os.environ.get("JAX_PLATFORMS")
        if platforms:
            update("jax_platforms", platforms)
        if rank.size == 1 and not rank.num_tpus:
            return
        address = f"{rank.address}:{rank.port}"
        jax.distributed.initialize(
            address,
            num_processes=rank.size,
            process_id=rank.rank,
            local_device_ids=list(rank.devices) or None,
            cluster_detection_method="deactivate",
            initialization_timeout=math.ceil(self.initialization_timeout_s),
            heartbeat_timeout_seconds=math.ceil(self.heartbeat_timeout_s),
            shutdown_timeout_seconds=math.ceil(self.shutdown_timeout_s),
            coordinator_bind_address=address if rank.rank == 0 else None,
        )

    def finish(self) -> None:
        """Leave the group, all together."""
        jax = sys.modules["jax"]
        if jax.distributed.is_initialized():
            jax.distributed.shutdown()


@refuse_unknown(NOT_OF_TRAINERS, also=TrainerOptions.__annotations__)
class JaxTrainer(DataParallelTrainer):
    """Run a JAX train loop in several workers, joined before the loop begins.

    Args:
        jax_config: how they find each other.
        options: as of `DataParallelTrainer`.
    """

    _default_backend = JaxConfig()
    _backend_argument = "jax_config"

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        jax_config: JaxConfig | None = None,
        **options: Unpack[TrainerOptions],
    ) -> None:
        super().__init__(train_loop_per_worker, backend_config=jax_config, **options)
