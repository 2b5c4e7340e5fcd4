"""The experiment that a page is about."""

from __future__ import annotations

from typing import Any

from sweep.core.ranking import Objectives, shown_objectives
from sweep.errors import ConfigError
from sweep.record.reader import ExperimentReader
from sweep.record.rows import TrialRow
from sweep.results.winners import Best, best_by_last, objectives_front


class Subject:
    """The experiment that a page is about, and by what its trials are compared: its own metric and mode, or others."""

    def __init__(self, reader: ExperimentReader, metric: str | None = None, mode: str | None = None) -> None:
        self.reader = reader
        self.objectives: Objectives = () if metric else reader.objectives
        self.metric = metric or reader.metric
        modes: dict[str, str | None] = dict(reader.objectives) or {reader.metric or "": reader.mode}
        self.mode = mode or modes.get(self.metric or "") or reader.mode
        if metric and self.mode not in ("min", "max"):
            raise ConfigError(
                f"the metric is {metric!r} and the mode {self.mode!r}; expected mode='min' or 'max' as well, on the "
                "command line --goal minimize or maximize."
            )

    @property
    def objective(self) -> str:
        """By what trials are compared, for people; empty: nothing."""
        return shown_objectives(self.objectives) or (f"{self.metric} ({self.mode})" if self.metric else "")

    def best(self) -> Best | None:
        """Return the best trial by last reports; None: none is, or there are several objectives."""
        return None if self.objectives else best_by_last(self.reader, self.metric, self.mode)

    def front(self) -> list[tuple[TrialRow, dict[str, Any]]]:
        """Return the Pareto set of several objectives."""
        return objectives_front(self.reader) if self.objectives else []
