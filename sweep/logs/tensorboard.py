"""TensorBoard's events of each trial, written by the package tensorboardX."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from sweep.callbacks.loggers import number_of, required, step_of
from sweep.core.results import AUTO_FILLED, flatten
from sweep.core.values import as_float, printed

_FLUSH_S = 1.0
_PICTURES = {3: "add_image", 4: "add_images", 5: "add_video"}  # by the number of dimensions


class Board:
    """Writes one run per trial directory."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._make = required("tensorboardX", "TBXLoggerCallback").SummaryWriter
        self._writers: dict[str, Any] = {}

    def report(self, trial_id: str, metrics: Mapping[str, Any], count: int) -> None:
        """Add what a trial reported, as its `count`-th report."""
        writer, step = self._writer(trial_id), step_of(metrics, count)
        for name, value in flatten(metrics).items():
            if name not in AUTO_FILLED:
                _add(writer, name, value, step)

    def end(self, trial_id: str, config: Mapping[str, Any], metrics: Mapping[str, Any]) -> None:
        """Add the hyperparameters of a trial that has ended, beside its last report, and close its file."""
        reported = {name: value for name, value in flatten(metrics).items() if name not in AUTO_FILLED}
        numbers = {name: value for name, value in reported.items() if as_float(value) is not None}
        values = {
            name: value if isinstance(value, str) or as_float(value) is not None else printed(value)
            for name, value in flatten(config).items()
        }
        if numbers and values:
            summaries = importlib.import_module("tensorboardX.summary")
            file_writer = self._writer(trial_id).file_writer
            for summary in summaries.hparams(hparam_dict=values, metric_dict=numbers):
                file_writer.add_summary(summary)
        self.close(trial_id)

    def close(self, trial_id: str) -> None:
        """Close the file of a trial, which may go on in another one."""
        if (writer := self._writers.pop(trial_id, None)) is not None:
            writer.close()

    def close_all(self) -> None:
        """Close all files."""
        for trial_id in list(self._writers):
            self.close(trial_id)

    def _writer(self, trial_id: str) -> Any:
        if trial_id not in self._writers:
            self._writers[trial_id] = self._make(f"{self._root}/{trial_id}", flush_secs=_FLUSH_S)
        return self._writers[trial_id]


def _add(writer: Any, name: str, value: Any, step: int) -> None:
    import numpy as np

    if (number := number_of(value)) is not None:
        writer.add_scalar(name, number, global_step=step)
    elif isinstance(value, (list, tuple, np.ndarray)) and len(value):
        try:
            array = np.asarray(value)
            if array.dtype.kind in "biuf":
                getattr(writer, _PICTURES.get(array.ndim, "add_histogram"))(name, array, global_step=step)
        except Exception:  # pictures need Pillow, videos moviepy, histograms something finite: else they are left out
            return
