"""What the callbacks for gradient boosting share: a report after each round, and when the model comes with it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from sweep.checks import refuse, whole
from sweep.integration.reporting import MetricChoice, Metrics, is_first_rank, report_with

__all__ = ["RoundReports"]

Postprocess = Callable[[dict[str, Any]], dict[str, Any]]


class RoundReports:
    """Report each round of a booster, and store the model in a file that the library itself reads.

    Args:
        metrics: None for all; a name such as `eval-logloss`; several names; or a dict from the name to report to that
            of the library.
        filename: of the model within the reported checkpoint; its ending chooses the format.
        frequency: rounds from one checkpoint to the next; 0 for none on the way.
        checkpoint_at_end: store the model after the last round, unless it was stored with it.
        results_postprocessing_fn: is given the metrics and returns those to report.

    Raises:
        ConfigError: a negative frequency, a postprocessing that cannot be called, `metrics` of another form.
    """

    def __init__(
        self,
        metrics: Metrics,
        filename: str,
        frequency: int,
        checkpoint_at_end: bool,
        results_postprocessing_fn: Postprocess | None,
    ) -> None:
        whole("frequency", frequency, expected="a number of rounds, or 0 for no checkpoints")
        if results_postprocessing_fn is not None and not callable(results_postprocessing_fn):
            refuse(
                "results_postprocessing_fn",
                results_postprocessing_fn,
                "a function of the dict of metrics that returns such a dict",
            )
        self.filename = filename
        self.frequency = frequency
        self.checkpoint_at_end = checkpoint_at_end
        self._choice = MetricChoice(metrics, is_complete=True)
        self._postprocess = results_postprocessing_fn

    def is_due(self, num_rounds: int) -> bool:
        """Return whether the model is stored after this many rounds."""
        return self.frequency > 0 and num_rounds % self.frequency == 0

    def report(self, found: Mapping[str, Any], model: Any = None) -> None:
        """Report what was found, with the model when there is one; in a group rank 0 stores it.

        Raises:
            UserCodeError: a chosen metric is not among those found.
        """
        metrics = self._choice.of(found)
        if self._postprocess is not None:
            metrics = self._postprocess(metrics)
        if model is None or not is_first_rank():
            report_with(metrics)
        else:
            report_with(metrics, lambda directory: model.save_model(os.path.join(directory, self.filename)))
