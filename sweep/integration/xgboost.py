"""Report from XGBoost: callbacks for `xgboost.train` and `XGBClassifier(callbacks=[...])`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sweep.checkpoints.store import Checkpoint
from sweep.errors import refuse_unknown
from sweep.integration.reporting import BoosterReports, Metrics, Postprocess, checkpoint_file, require

__all__ = ["RayTrainReportCallback", "TuneReportCallback", "TuneReportCheckpointCallback"]

(_xgboost,) = require(["xgboost"], library="xgboost")
if TYPE_CHECKING:
    _TrainingCallback = object
else:
    _TrainingCallback = _xgboost.callback.TrainingCallback


class TuneReportCheckpointCallback(BoosterReports, _TrainingCallback):
    """Report the metrics of each boosting round as `<data>-<metric>`, such as `eval-logloss`, and store the booster.

    With `xgboost.cv` the metrics are `<data>-<metric>-mean` and `-std`, and nothing is stored. The checkpoint at the
    end is a report of its own, with the metrics of the last round once more: XGBoost does not say beforehand which
    round is the last.

    Takes the arguments of `BoosterReports`; a `filename` ends in `.json`, or in `.ubj` for the binary format.

    Attributes:
        CHECKPOINT_NAME: the default of `filename`.

    Raises:
        ConfigError: a negative frequency, or `metrics` of another form.
        UserCodeError: at the first round, when a chosen metric is not measured.
    """

    CHECKPOINT_NAME = "model.json"

    _last: Mapping[str, Any] = MappingProxyType({})
    _is_stored = False

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME) -> Any:
        """Return the `xgboost.Booster` of a checkpoint.

        Raises:
            CheckpointError: there is no such file.
        """
        booster = _xgboost.Booster()
        booster.load_model(checkpoint_file(checkpoint, filename))
        return booster

    def after_iteration(self, model: Any, epoch: int, evals_log: Mapping[str, Mapping[str, Any]]) -> bool:
        """Report; return False: training goes on."""
        self._last = _latest(evals_log)
        is_booster = isinstance(model, _xgboost.Booster)
        self._is_stored = is_booster and self._is_due(epoch + 1)
        self._report(self._last, model if self._is_stored else None)
        return False

    def after_training(self, model: Any) -> Any:
        """Report the checkpoint at the end; return the booster."""
        if self._checkpoint_at_end and not self._is_stored and isinstance(model, _xgboost.Booster):
            self._is_stored = True
            self._report(self._last, model)
        return model


@refuse_unknown()
class TuneReportCallback(TuneReportCheckpointCallback):
    """Report the metrics of each boosting round, without checkpoints."""

    def __init__(self, metrics: Metrics = None, results_postprocessing_fn: Postprocess | None = None) -> None:
        super().__init__(metrics, checkpoint_at_end=False, results_postprocessing_fn=results_postprocessing_fn)


RayTrainReportCallback = TuneReportCheckpointCallback


def _latest(evals_log: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the last value of each metric by its flat name."""
    found = {}
    for data, metrics in evals_log.items():
        for metric, values in metrics.items():
            value = values[-1]
            if isinstance(value, tuple):  # of cross validation
                found[f"{data}-{metric}-mean"], found[f"{data}-{metric}-std"] = value
            else:
                found[f"{data}-{metric}"] = value
    return found
