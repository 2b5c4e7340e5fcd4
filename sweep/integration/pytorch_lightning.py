"""Report from Lightning: callbacks for its Trainer, and what its Trainer needs in a training group.

Works with `lightning.pytorch` and with `pytorch_lightning`. Where both are installed, the one that the program has
imported counts, or both: import this module after it.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sweep.errors import ConfigError, refuse_unknown
from sweep.integration.reporting import (
    MetricChoice,
    Metrics,
    chosen_hooks,
    hooks_of,
    override_hooks,
    report_with,
    require,
)
from sweep.worker.session import get_context

__all__ = [
    "RayDDPStrategy",
    "RayLightningEnvironment",
    "RayTrainReportCallback",
    "TuneReportCallback",
    "TuneReportCheckpointCallback",
    "prepare_trainer",
]

_NAMES = ("lightning.pytorch", "pytorch_lightning")
_NO_REPORT_IN = (
    "on_exception",
    "on_load_checkpoint",
    "on_sanity_check_end",
    "on_sanity_check_start",
    "on_save_checkpoint",
)

_found = [sys.modules[name] for name in _NAMES if hasattr(sys.modules.get(name), "Callback")]
_lightning = (_found or require(_NAMES, library="lightning"))[0]
if TYPE_CHECKING:
    _Callback = object
    _DDPStrategy = object
    _Environment = object
else:
    # A program may have imported both, which share no class: what is made here then is an instance of both.
    _Callback = type("_Callback", tuple(module.Callback for module in _found or [_lightning]), {})
    _DDPStrategy = importlib.import_module(f"{_lightning.__name__}.strategies").DDPStrategy
    _Environment = importlib.import_module(f"{_lightning.__name__}.plugins.environments").LightningEnvironment

HOOKS = hooks_of(_Callback, but=_NO_REPORT_IN)


@refuse_unknown()
class TuneReportCheckpointCallback(_Callback):
    """Report what Lightning has logged, each time with a checkpoint of the trainer.

    The check of the validation before training is not reported. In a group all ranks report, as they must.

    Args:
        metrics: None for everything logged; a name; several names; or a dict from the name to report to Lightning's.
        filename: of the checkpoint within the reported directory, for `Trainer.fit(ckpt_path=...)` and
            `LightningModule.load_from_checkpoint`.
        save_checkpoints: False reports metrics only.
        on: one or several of Lightning's hooks, without `on_`.

    Raises:
        ConfigError: an unknown hook, or `metrics` of another form; at the start of the training, when Lightning trains
            with another number of processes than the trial has.
    """

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str = "checkpoint",
        save_checkpoints: bool = True,
        on: str | Sequence[str] = "validation_end",
    ) -> None:
        super().__init__()
        self._choice = MetricChoice(metrics)
        self._filename = filename
        self._save_checkpoints = save_checkpoints
        self._on = chosen_hooks(on, HOOKS, argument="on")

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Check that the trial's processes are those that train."""
        _require_own_processes(trainer)

    def _measured(self, trainer: Any) -> dict[str, Any]:
        return dict(trainer.callback_metrics)

    def _handle(self, hook: str, trainer: Any, *_: Any, **__: Any) -> None:
        if hook not in self._on or trainer.sanity_checking:
            return
        metrics = self._choice.of(self._measured(trainer))
        if self._save_checkpoints:
            # On all ranks: a model in shards is saved by all of them. Of DDP, rank 0 alone writes a file.
            report_with(metrics, lambda directory: trainer.save_checkpoint(os.path.join(directory, self._filename)))
        elif metrics:
            report_with(metrics)


override_hooks(TuneReportCheckpointCallback, HOOKS, TuneReportCheckpointCallback._handle)


@refuse_unknown()
class TuneReportCallback(TuneReportCheckpointCallback):
    """Report what Lightning has logged, without checkpoints; arguments as of `TuneReportCheckpointCallback`."""

    def __init__(self, metrics: Metrics = None, on: str | Sequence[str] = "validation_end") -> None:
        super().__init__(metrics=metrics, save_checkpoints=False, on=on)


class RayTrainReportCallback(TuneReportCheckpointCallback):
    """Report everything logged, with `epoch`, `step` and a checkpoint, at the end of each training epoch.

    Attributes:
        CHECKPOINT_NAME: the file within the reported checkpoint.
    """

    CHECKPOINT_NAME = "checkpoint.ckpt"

    def __init__(self) -> None:
        super().__init__(filename=self.CHECKPOINT_NAME, on="train_epoch_end")

    def _measured(self, trainer: Any) -> dict[str, Any]:
        return {**trainer.callback_metrics, "epoch": trainer.current_epoch, "step": trainer.global_step}


class RayDDPStrategy(_DDPStrategy):
    """DDP among the ranks of the trial's group, each on its own device: `Trainer(strategy=RayDDPStrategy(), ...)`.

    Takes the arguments of Lightning's `DDPStrategy`.
    """

    @property
    def root_device(self) -> Any:
        """The device of this rank."""
        from sweep.train.torch import get_device

        return get_device()

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        """Which part of the data this rank has."""
        return {"num_replicas": get_context().get_world_size(), "rank": get_context().get_world_rank()}


class RayLightningEnvironment(_Environment):
    """Tell Lightning which rank of how many this process is: `Trainer(plugins=[RayLightningEnvironment()], ...)`."""

    @property
    def creates_processes_externally(self) -> bool:
        """Whether the processes are there already; they are."""
        return True

    def world_size(self) -> int:
        """Return the number of ranks."""
        return get_context().get_world_size()

    def global_rank(self) -> int:
        """Return the rank of this process."""
        return get_context().get_world_rank()

    def local_rank(self) -> int:
        """Return the rank among those of the same node."""
        return get_context().get_local_rank()

    def node_rank(self) -> int:
        """Return the number of the node."""
        return get_context().get_node_rank()

    def set_world_size(self, size: int) -> None:
        """Ignore what Lightning computes from `devices` and `num_nodes`: the group has its size."""

    def set_global_rank(self, rank: int) -> None:
        """Likewise."""

    def teardown(self) -> None:
        """Leave the variables of the group as they are."""


def prepare_trainer(trainer: Any) -> Any:
    """Return the trainer after a check that it trains with the processes of the trial.

    Raises:
        ConfigError: it trains with another number of processes.
    """
    _require_own_processes(trainer)
    return trainer


def _require_own_processes(trainer: Any) -> None:
    """Refuse a trainer that starts processes of its own, and ranks that would train each for itself."""
    # A process that Lightning has started has the variable of its trial, and no session.
    is_foreign = get_context().get_trial_id() is None
    if is_foreign and not os.environ.get("SWEEP_TRIAL"):
        return
    wanted, size = trainer.world_size, get_context().get_world_size()
    if wanted == size:
        return
    if size > 1:
        advice = (
            "Pass strategy=RayDDPStrategy(), plugins=[RayLightningEnvironment()], devices='auto' to the Trainer "
            "(from sweep.integration.pytorch_lightning)."
        )
    else:
        advice = (
            "Pass devices=1 to the Trainer, or run the trial as a group: sweep.train.torch.TorchTrainer with "
            f"ScalingConfig(num_workers={wanted})."
        )
    raise ConfigError(
        f"Lightning trains with {wanted} processes, and the trial has {size}: reports of the others would be lost. "
        + advice
    )
