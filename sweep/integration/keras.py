"""Report from Keras 3: callbacks for `model.fit`, with any backend."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sweep.checkpoints.store import Checkpoint
from sweep.checks import whole
from sweep.errors import refuse_unknown
from sweep.integration.reporting import (
    MetricChoice,
    Metrics,
    checkpoint_file,
    chosen_hooks,
    hooks_of,
    is_first_rank,
    override_hooks,
    report_with,
    require,
)

__all__ = ["HOOKS", "ReportCheckpointCallback", "TuneReportCallback", "TuneReportCheckpointCallback"]

(_keras,) = require(["keras"], library="keras")
if TYPE_CHECKING:

    class _Callback:
        model: Any
else:
    _Callback = _keras.callbacks.Callback

HOOKS = hooks_of(_Callback, but=["on_batch"])
_SUFFIXES = (".keras", ".h5")


@refuse_unknown()
class ReportCheckpointCallback(_Callback):
    """Report what Keras has measured, and store the whole model as `model.keras`.

    A hook that is chosen for both makes one report with a checkpoint, and so does one that is chosen for checkpoints
    only: a checkpoint always comes with metrics. In a group all ranks report, and rank 0 stores the model.

    Args:
        checkpoint_on: one or several of Keras's hooks, without `on_`, at which the model is stored; an empty list:
            at none.
        report_metrics_on: likewise, at which metrics are reported.
        metrics: None for everything that Keras hands to the hook; a name; several names; or a dict from the name to
            report to Keras's.

    Attributes:
        CHECKPOINT_NAME: the file within the reported checkpoint.

    Raises:
        ConfigError: an unknown hook, or `metrics` of another form.
    """

    CHECKPOINT_NAME = "model.keras"

    def __init__(
        self,
        checkpoint_on: str | Sequence[str] = "epoch_end",
        report_metrics_on: str | Sequence[str] = "epoch_end",
        metrics: Metrics = None,
    ) -> None:
        super().__init__()
        self._checkpoint_on = chosen_hooks(checkpoint_on, HOOKS, argument="checkpoint_on")
        self._report_on = chosen_hooks(report_metrics_on, HOOKS, argument="report_metrics_on")
        self._choice = MetricChoice(metrics)
        self._filename = self.CHECKPOINT_NAME
        self._frequency = 1
        self._num_calls = 0

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME, **load: Any) -> Any:
        """Return the model of a checkpoint, compiled as it was.

        Args:
            load: passed on to `keras.models.load_model`, for instance `custom_objects`.

        Raises:
            CheckpointError: there is no such file.
        """
        return _keras.models.load_model(checkpoint_file(checkpoint, filename), **load)

    def _handle(self, hook: str, *arguments: Any, logs: Mapping[str, Any] | None = None) -> None:
        # Keras calls on_epoch_end(epoch, logs) and on_train_end(logs).
        if logs is None and arguments and not isinstance(arguments[-1], int):
            logs = arguments[-1]
        is_saved = hook in self._checkpoint_on
        if is_saved:
            self._num_calls += 1
            is_saved = self._num_calls % self._frequency == 0
        if not is_saved and hook not in self._report_on:
            return
        metrics = self._choice.of(logs or {})
        if is_saved:
            report_with(metrics, self._save if is_first_rank() else None)
        elif metrics:
            report_with(metrics)

    def _save(self, directory: str) -> None:
        self.model.save(os.path.join(directory, self._filename))


override_hooks(ReportCheckpointCallback, HOOKS, ReportCheckpointCallback._handle)


@refuse_unknown()
class TuneReportCheckpointCallback(ReportCheckpointCallback):
    """Report what Keras has measured, and store the whole model at every `frequency`-th of these reports.

    Args:
        metrics: as of `ReportCheckpointCallback`.
        filename: of the model within the reported checkpoint; without `.keras` or `.h5` at its end `.keras` is added.
        frequency: 1 stores the model with every report, 2 with every second, ...
        on: one or several of Keras's hooks, without `on_`.

    Raises:
        ConfigError: an unknown hook, `metrics` of another form, a frequency below 1.
    """

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str = ReportCheckpointCallback.CHECKPOINT_NAME,
        frequency: int = 1,
        on: str | Sequence[str] = "epoch_end",
    ) -> None:
        super().__init__(checkpoint_on=on, report_metrics_on=on, metrics=metrics)
        whole("frequency", frequency, least=1, expected="1 to store with every report, or more")
        self._filename = filename if filename.endswith(_SUFFIXES) else f"{filename}.keras"
        self._frequency = frequency


@refuse_unknown()
class TuneReportCallback(ReportCheckpointCallback):
    """Report what Keras has measured, without checkpoints; arguments as of `TuneReportCheckpointCallback`."""

    def __init__(self, metrics: Metrics = None, on: str | Sequence[str] = "epoch_end") -> None:
        super().__init__(checkpoint_on=[], report_metrics_on=on, metrics=metrics)
