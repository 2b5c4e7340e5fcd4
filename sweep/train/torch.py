"""Torch groups: `TorchTrainer`, `TorchConfig`, and what a train loop calls."""

from __future__ import annotations

import datetime
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from searchers.errors import nearest
from sweep.checks import one_of
from sweep.errors import ConfigError, refuse_unknown
from sweep.train.creator import CreatorOptions, create
from sweep.train.trainer import NOT_OF_TRAINERS, Backend, DataParallelTrainer, TrainerOptions
from sweep.worker.wire import Rank

if TYPE_CHECKING:
    from sweep.train.torch_prepare import (
        enable_reproducibility,
        get_device,
        get_devices,
        prepare_data_loader,
        prepare_model,
    )

__all__ = [
    "DistributedTrainableCreator",
    "TorchConfig",
    "TorchTrainer",
    "enable_reproducibility",
    "get_device",
    "get_devices",
    "prepare_data_loader",
    "prepare_model",
]

# These need torch, which takes seconds to import: a script that only builds trainers does without.
_LATE = ("enable_reproducibility", "get_device", "get_devices", "prepare_data_loader", "prepare_model")
_BACKENDS = ("gloo", "nccl", "mpi", "ucc", "xccl", "hccl")


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module("sweep.train.torch_prepare"), name)
    globals()[name] = value
    return value


def _libraries(backend: str) -> list[str]:
    """Return what a backend names, without the kinds of devices: gloo and nccl for `cpu:gloo,cuda:nccl`."""
    return [part.rpartition(":")[2] for part in backend.split(",")]


_stores: list[Any] = []  # rank 0 serves the store of its group for as long as the process lives


@refuse_unknown()
@dataclass(frozen=True)
class TorchConfig(Backend):
    """How the workers of a torch group talk to each other.

    Attributes:
        backend: "nccl", "gloo", or one for each kind of device, such as "cpu:gloo,cuda:nccl". None: nccl with GPUs;
            gloo without. Workers that hold at most half a GPU each are put on one GPU then, which NCCL refuses: they
            talk by gloo, and a notice says so. With nccl each has a GPU of its own, or the run is refused.
        timeout_s: a collective that takes longer fails.
        init_method: "env" or "tcp"; both meet at a store that rank 0 serves: on 127.0.0.1, or on its node's
            address where the workers are on several nodes.

    Raises:
        ConfigError: one of them is wrong.
    """

    framework: ClassVar[str] = "torch"
    visibility: ClassVar[str] = "share"
    # Beside torch itself, what the first wrapped model of a process would import.
    modules: ClassVar[tuple[str, ...]] = ("torch", "torch.distributed", "sweep.train.torch_prepare")

    backend: str | None = None
    timeout_s: float = 1800.0
    init_method: str = "env"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("TorchConfig: init_method", self.init_method, ("env", "tcp"))
        if self.backend is None:
            return
        for name in _libraries(self.backend) if isinstance(self.backend, str) else [self.backend]:
            if name not in _BACKENDS:
                raise ConfigError(
                    f"TorchConfig: backend is {self.backend!r}; expected 'nccl', 'gloo', or None to choose by the "
                    f"devices. {nearest(str(name).lower(), _BACKENDS)}"
                )

    @property
    def name(self) -> str:
        """The backend that the user chose; empty: by the devices."""
        return self.backend or ""

    @property
    def sharing(self) -> str:
        """Workers with shares may be put on one GPU with gloo, chosen or not; never with NCCL."""
        if "nccl" in self.name:
            return "refuse"
        return "share" if not self.name or set(_libraries(self.name)) == {"gloo"} else ""

    @property
    def sharing_notice(self) -> str:
        """What to say when workers share GPUs and no backend was chosen."""
        if self.name:
            return ""
        return (
            "no backend was chosen and NCCL refuses that, so they talk by gloo. TorchConfig(backend='nccl') gives each "
            "a GPU of its own, TorchConfig(backend='gloo') says that this is meant"
        )

    def start(self, rank: Rank) -> None:
        """Join the process group, over a store whose port no other process can have taken."""
        import torch

        dist: Any = torch.distributed
        timeout = datetime.timedelta(seconds=self.timeout_s)
        if rank.devices and torch.cuda.is_available():
            torch.cuda.set_device(rank.devices[0])
        backend = self._backend(rank)
        if rank.port == 0:  # one process, without a supervisor
            if dist.is_initialized():  # by an earlier trial of this process, which raised or was stopped
                dist.destroy_process_group()
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, timeout=timeout)
            return
        store = dist.TCPStore(
            rank.address,
            rank.port,
            rank.size,
            is_master=rank.listener >= 0,
            timeout=timeout,
            wait_for_workers=False,
            master_listen_fd=rank.listener if rank.listener >= 0 else None,
        )
        _stores.append(store)
        dist.init_process_group(backend, store=store, rank=rank.rank, world_size=rank.size, timeout=timeout)
        # Gloo's ranks connect in their own time: the loop of one that is ready may close what another still connects.
        store.set(f"sweep/joined/{rank.rank}", "")
        store.wait([f"sweep/joined/{one}" for one in range(rank.size)])

    def _backend(self, rank: Rank) -> str:
        import torch

        if self.backend:
            return self.backend
        if not rank.devices:
            return "gloo"
        reason = ""
        if rank.backend == "gloo":
            reason = "workers of this group share a GPU, which NCCL refuses"
        elif not (torch.cuda.is_available() and torch.distributed.is_nccl_available()):
            reason = "torch finds no usable CUDA device here"
        if reason and rank.rank == 0:
            print(f"sweep: {reason}: the workers talk by gloo", flush=True)
        return "gloo" if reason else "nccl"

    def finish(self) -> None:
        """Leave the process group; rank 0 goes on serving the store until all have."""
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()


@refuse_unknown(NOT_OF_TRAINERS, also=TrainerOptions.__annotations__)
class TorchTrainer(DataParallelTrainer):
    """Run a torch train loop in several workers, joined in a process group before the loop begins.

    Args:
        torch_config: how they talk.
        options: as of `DataParallelTrainer`.
    """

    _default_backend = TorchConfig()
    _backend_argument = "torch_config"

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        torch_config: TorchConfig | None = None,
        **options: Unpack[TrainerOptions],
    ) -> None:
        super().__init__(train_loop_per_worker, backend_config=torch_config, **options)


@refuse_unknown(also=CreatorOptions.__annotations__)
def DistributedTrainableCreator(
    func: Callable[..., Any],
    *,
    backend: str | None = None,
    timeout_s: float = 1800.0,
    **options: Unpack[CreatorOptions],
) -> DataParallelTrainer:
    """Return a trainable that runs `func(config)` in several torch workers, under the name of Tune's first releases.

    The whole config of a trial is the function's. A function that also takes `checkpoint_dir` is given the directory to
    continue from, or None.

    Args:
        backend, timeout_s: as in `TorchConfig`.
        options: `num_workers` (1), `num_cpus_per_worker` (1), `use_gpu`, `num_gpus_per_worker`, and
            `num_workers_per_host`: all of them for one machine, 1 for a machine each.

    Raises:
        ConfigError, ResourceError, TrainableError: an argument is wrong.
    """
    return create(TorchTrainer, func, torch_config=TorchConfig(backend, timeout_s), **options)
