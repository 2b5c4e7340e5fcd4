"""A report in the light of its trial: its result, its checkpoint reference, whether it is the best so far."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sweep.core.messages import Reported
from sweep.core.plan import Plan
from sweep.core.ranking import replaces
from sweep.core.results import TrialResult, fill, score
from sweep.core.trial import CheckpointRef, Trial
from sweep.core.values import as_float, summed


def auto_filled(trial: Trial, event: Reported) -> dict[str, Any]:
    """Return the metrics of a report with the auto-filled ones; `trial` as it was before the report."""
    restored = trial.started_from.time_total_s if trial.started_from is not None else 0.0
    last = trial.last_result
    before = None if event.seq <= 1 or last is None else as_float(last.get("time_total_s"))
    metrics = event.metrics
    if "timesteps_this_iter" in metrics or "episodes_this_iter" in metrics:
        metrics = {**metrics, **_totals(metrics, last)}
    return fill(
        metrics,
        trial_id=trial.id,
        count=trial.count + 1,
        since_restore=event.seq,
        time_before_s=restored if before is None else before,
        restored_s=restored,
    )


def _totals(metrics: Mapping[str, Any], last: TrialResult | None) -> dict[str, float]:
    """Return the sums of what reports call `timesteps_this_iter` and `episodes_this_iter`, where they do."""
    found: dict[str, float] = {}
    for one, total in (("timesteps_this_iter", "timesteps_total"), ("episodes_this_iter", "episodes_total")):
        value, before = metrics.get(one), 0 if last is None else last.get(total, 0)
        if total not in metrics and isinstance(value, (int, float)) and isinstance(before, (int, float)):
            found[total] = summed(before, value)
    return found


def reference(trial: Trial, path: str, result: TrialResult | None) -> CheckpointRef:
    """Return the reference to a checkpoint that was stored with `result`; `trial` as it is after the report."""
    values: Mapping[str, Any] = {} if result is None else result
    iteration = as_float(values.get("training_iteration"))
    is_count = iteration is not None and math.isfinite(iteration)
    return CheckpointRef(
        path,
        trial.count,
        int(values["training_iteration"]) if is_count else trial.count,
        as_float(values.get("time_total_s")) or 0.0,
    )


def worth(result: TrialResult | None, plan: Plan) -> float:
    """Return how good a checkpoint that was stored with `result` is, larger is better; 0 where they are kept by age."""
    if not plan.checkpoint_score:
        return 0.0
    return score(result.get(plan.checkpoint_score) if result is not None else None, plan.checkpoint_mode)


def improves(trial: Trial, result: TrialResult, plan: Plan) -> bool:
    """Whether a result has the metric and beats the trial's best so far; infinities do not beat a finite one."""
    value = result.get(plan.metric)
    if value is None:
        return False
    return trial.best_result is None or replaces(value, trial.best_result.get(plan.metric), plan.mode)
