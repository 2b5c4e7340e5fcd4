"""Report from Hugging Face Transformers: a callback for its Trainer, and a check of the Trainer in a training group."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from sweep.errors import ConfigError, refuse_unknown
from sweep.integration.reporting import MetricChoice, Metrics, is_first_rank, report_with, require
from sweep.worker.session import get_context

__all__ = ["RayTrainReportCallback", "TuneReportCallback", "prepare_trainer"]

(_transformers,) = require(["transformers"], library="transformers")
if TYPE_CHECKING:
    _TrainerCallback = object
else:
    _TrainerCallback = _transformers.TrainerCallback


@refuse_unknown()
class TuneReportCallback(_TrainerCallback):
    """Report what the Trainer has logged at each evaluation and each save, with the checkpoint that was saved.

    An evaluation and a save at the same step make one report; with `save_strategy="best"` two, because the Trainer
    decides after the evaluation. Steps after the last report are reported at the end. In a group all ranks report, and
    rank 0 attaches the checkpoint, so `output_dir` must be the same in all of them.

    A relative `output_dir` is taken to lie in the trial's directory: in the working directory, which all trials share,
    they would overwrite each other's checkpoints.

    Args:
        metrics: None for everything logged so far; a name such as `eval_loss`; several names; or a dict from the name
            to report to the Trainer's.

    Attributes:
        CHECKPOINT_NAME: the directory within the reported checkpoint: what `Trainer.train(resume_from_checkpoint=...)`
            and `from_pretrained` take.

    Raises:
        ConfigError: `metrics` of another form; at the start of the training, when the Trainer trains with another
            number of processes than the trial has.
    """

    CHECKPOINT_NAME = "checkpoint"

    def __init__(self, metrics: Metrics = None) -> None:
        self._choice = MetricChoice(metrics)
        self._logged: dict[str, Any] = {}
        self._reported_step = -1

    def on_train_begin(self, args: Any, state: Any, control: Any, **kw: Any) -> None:
        """Check that the trial's processes are those that train, and give the trial an output directory of its own."""
        _require_own_processes(args)
        home = get_context().get_trial_dir()
        if home is not None and args.output_dir:
            args.output_dir = os.path.join(home, args.output_dir)  # an absolute one stays

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kw: Any) -> None:
        """Remember what is logged."""
        if logs:
            self._logged.update(logs)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kw: Any) -> None:
        """Report, unless a save follows at once."""
        if not control.should_save:
            self._report(state)

    def on_save(self, args: Any, state: Any, control: Any, **kw: Any) -> None:
        """Report, with the checkpoint that was saved."""
        if args.world_size > 1:
            args.distributed_state.wait_for_everyone()  # the other ranks write files into it too
        self._report(state, _saved(args.output_dir, state.global_step))

    def on_train_end(self, args: Any, state: Any, control: Any, **kw: Any) -> None:
        """Report the steps that were not reported yet."""
        if state.global_step > self._reported_step:
            self._report(state)

    def _report(self, state: Any, saved: str | None = None) -> None:
        found = {"epoch": state.epoch, "step": state.global_step, **self._logged}
        metrics = self._choice.of(found)
        self._reported_step = state.global_step
        if saved is not None and is_first_rank():
            # A link, which is followed when the checkpoint is stored: large models are copied once.
            report_with(metrics, lambda directory: os.symlink(saved, os.path.join(directory, self.CHECKPOINT_NAME)))
        elif saved is not None or metrics:
            report_with(metrics)


RayTrainReportCallback = TuneReportCallback


def prepare_trainer(trainer: Any) -> Any:
    """Return the trainer after a check that it trains with the processes of the trial.

    Raises:
        ConfigError: it is no `transformers.Trainer`, or trains with another number of processes.
    """
    if not isinstance(trainer, _transformers.Trainer):
        raise ConfigError(f"prepare_trainer was given {type(trainer).__name__}; expected a transformers.Trainer.")
    _require_own_processes(trainer.args)
    return trainer


def _saved(output_dir: str, step: int) -> str | None:
    """Return the checkpoint of this step, else the latest, else None: a callback of the user's may have removed it."""
    path = os.path.abspath(os.path.join(output_dir, f"checkpoint-{step}"))
    if os.path.isdir(path):
        return path
    latest = _transformers.trainer_utils.get_last_checkpoint(output_dir) if os.path.isdir(output_dir) else None
    return os.path.abspath(latest) if latest else None


def _require_own_processes(args: Any) -> None:
    context = get_context()
    if context.get_trial_id() is None or args.world_size == context.get_world_size():
        return
    raise ConfigError(
        f"the Trainer trains with {args.world_size} processes, and the trial has {context.get_world_size()}. Build "
        "TrainingArguments within the train loop of sweep.train.torch.TorchTrainer, whose ScalingConfig(num_workers=N) "
        "says how many there are; without GPUs with TrainingArguments(use_cpu=True)."
    )
