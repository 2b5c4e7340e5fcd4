"""Report from LightGBM: callbacks for `lightgbm.train` and `LGBMClassifier().fit(callbacks=[...])`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sweep.checkpoints.store import Checkpoint
from sweep.errors import refuse_unknown
from sweep.integration.reporting import BoosterReports, Metrics, Postprocess, checkpoint_file, require

__all__ = ["RayTrainReportCallback", "TuneReportCallback", "TuneReportCheckpointCallback"]

(_lightgbm,) = require(["lightgbm"], library="lightgbm")


class TuneReportCheckpointCallback(BoosterReports):
    """Report the metrics of each boosting round as `<data>-<metric>`, such as `valid_0-auc`, and store the booster.

    With `lightgbm.cv` the metrics are `<data>-<metric>-mean` and `-stdv`, and nothing is stored. Early stopping ends
    the training before the last round, and without a word to callbacks: give a `frequency` when you use it.

    Takes the arguments of `BoosterReports`.

    Attributes:
        CHECKPOINT_NAME: the default of `filename`.
        order: when LightGBM calls it among other callbacks: before early stopping, which is 30.

    Raises:
        ConfigError: a negative frequency, or `metrics` of another form.
        UserCodeError: at the first round, when a chosen metric is not measured.
    """

    CHECKPOINT_NAME = "model.txt"
    order = 20
    before_iteration = False

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME) -> Any:
        """Return the `lightgbm.Booster` of a checkpoint.

        Raises:
            CheckpointError: there is no such file.
        """
        return _lightgbm.Booster(model_file=checkpoint_file(checkpoint, filename))

    def __call__(self, env: Any) -> None:
        """Report one round."""
        is_last = env.iteration == env.end_iteration - 1
        is_stored = isinstance(env.model, _lightgbm.Booster) and (
            self._is_due(env.iteration - env.begin_iteration + 1) or (is_last and self._checkpoint_at_end)
        )
        self._report(_flat(env.evaluation_result_list or ()), env.model if is_stored else None)


@refuse_unknown()
class TuneReportCallback(TuneReportCheckpointCallback):
    """Report the metrics of each boosting round, without checkpoints."""

    def __init__(self, metrics: Metrics = None, results_postprocessing_fn: Postprocess | None = None) -> None:
        super().__init__(metrics, checkpoint_at_end=False, results_postprocessing_fn=results_postprocessing_fn)


RayTrainReportCallback = TuneReportCheckpointCallback


def _flat(entries: Iterable[Any]) -> dict[str, Any]:
    """Return the value of each metric by its flat name."""
    found = {}
    for data, metric, value, _, *deviation in entries:
        if deviation:  # of cross validation
            found[f"{data}-{metric}-mean"], found[f"{data}-{metric}-stdv"] = value, deviation[0]
        else:
            found[f"{data}-{metric}"] = value
    return found
