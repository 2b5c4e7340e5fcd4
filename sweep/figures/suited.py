"""Which figures have something to show of an experiment: decided without drawing any."""

from __future__ import annotations

import math

from sweep.core.ranking import rankable
from sweep.core.results import TrialResult
from sweep.errors import ConfigError
from sweep.figures.importance import LEAST
from sweep.figures.parameters import parameters
from sweep.figures.population import SCHEDULERS
from sweep.figures.trials import Field, chosen_metric, spread
from sweep.record.reader import ExperimentReader

_LOOKED_AT = 500  # trials, for whether a parameter varies


def suited_figures(reader: ExperimentReader, defaults: tuple[str | None, str | None]) -> list[str]:
    """Return the names, in the order of a page."""
    rows = reader.trials()
    found = []
    try:
        field = Field(reader, chosen_metric(reader, defaults, None, None))
    except ConfigError:
        field = Field(reader, None)
    if field.ranked:
        found.append("history")
    if field.ranked or _had_numbers(field):
        found.append("curves")
    if _has_front(reader):
        found.append("pareto")
    if field.ranked and any(row.config for row in rows):
        valued = [row for row in rows if row.number in field.ranked]
        shown, _ = parameters(reader, spread(valued, _LOOKED_AT), None, most=1000)
        if shown:
            found.append("parallel")
        if len(valued) >= LEAST and any(not one.is_constant for one in shown):
            found.append("importance")
        if shown:
            found.append("slice")
    if field.ranked and any(row.was_stopped_early for row in rows):
        found.append("rungs")
    if reader.meta.get("scheduler") in SCHEDULERS and any(row.last_seq is not None for row in rows):
        found.append("population")
    if rows:
        found.append("timeline")
    return found


def _had_numbers(field: Field) -> bool:
    """Whether trials whose last values are none, such as NaN, have reported others before."""
    if field.chosen is None:
        return False
    best = {row.trial_id: row.best_seq for row in field.rows if row.best_seq is not None}
    few = dict(list(best.items())[:_LOOKED_AT])
    reports = field.reader.metrics_at(few).values()
    return any(rankable(TrialResult(metrics).get(field.chosen.metric)) is not None for metrics in reports)


def _has_front(reader: ExperimentReader) -> bool:
    names = [name for name, mode in reader.objectives if mode != "obs"][:3]
    if len(names) < 2:
        return False
    having = [
        {trial_id for trial_id, _, value in reader.values(name, last_only=True) if math.isfinite(value)}
        for name in names
    ]
    return bool(set.intersection(*having))
