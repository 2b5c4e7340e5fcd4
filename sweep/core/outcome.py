"""What becomes of a trial when an attempt has ended: rule 14, and what a clone takes over, as pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweep.core.messages import Exit, ExitKind, ResizeTrial
from sweep.core.plan import Plan
from sweep.core.trial import CheckpointRef, Status, Trial

__all__ = ["after_exit", "budget_spent", "cloned", "wants_save", "was_put_off"]

_BUDGET = "the time budget of"

# Faults of the trial itself; a LOST attempt, and one that never got as far as `Started`, is the infrastructure's.
_FAILURES = frozenset(
    {ExitKind.FAILED, ExitKind.KILLED, ExitKind.TIMEOUT, ExitKind.OUT_OF_MEMORY, ExitKind.HUNG, ExitKind.STOPPED}
)


def after_exit(trial: Trial, ended: Exit, plan: Plan) -> tuple[Status, str, int, int]:
    """Return (status, reason, failures, losses) of a trial whose running attempt ended so.

    A trial whose error was decided is in ERROR, however it ends. What finished by itself is TERMINATED, whatever else
    had been decided meanwhile. Otherwise a STOPPING trial goes where it
    was going, except that a pause without a committed save becomes PENDING, and that raising while it was told to stop
    counts as a failure unless it was to end anyway. Everything else is a failure or a loss, and is started again while
    `max_failures` and `max_losses` allow.
    """
    failures, losses = trial.failures, trial.losses
    if trial.next_status is Status.ERROR:
        return Status.ERROR, trial.reason, failures + 1, losses
    if ended.kind is ExitKind.FINISHED:
        reason = trial.reason if trial.next_status is Status.TERMINATED else ""
        return Status.TERMINATED, reason, failures, losses
    if trial.status is Status.STOPPING:
        to = trial.next_status or Status.TERMINATED
        if to is Status.PAUSED and not trial.is_saved:
            to = Status.PENDING
        if ended.kind is not ExitKind.FAILED or to is Status.TERMINATED:
            return to, trial.reason, failures, losses
        failures += 1
        if _is_too_many(failures, plan):
            return Status.ERROR, _why(ended), failures, losses
        return to, trial.reason, failures, losses
    if trial.status is Status.STARTING or ended.kind not in _FAILURES:
        losses += 1
        if losses > plan.max_losses:
            return Status.ERROR, f"lost {losses} times: {_why(ended)}", failures, losses
    else:
        failures += 1
        if _is_too_many(failures, plan):
            return Status.ERROR, _why(ended), failures, losses
    return Status.PENDING, f"starts again after: {_why(ended)}", failures, losses


def cloned(config: Mapping[str, Any], checkpoint: CheckpointRef | None) -> dict[str, Any]:
    """Return the changes of a trial that continues from another's checkpoint."""
    assert checkpoint is not None
    return {
        "config": config,
        "checkpoint": checkpoint,
        "count": checkpoint.count,
        "judged_to": checkpoint.count,
        "pending": None,
    }


def wants_save(trial: Trial, plan: Plan) -> bool:
    """Whether a STOPPING trial is to store a checkpoint on demand before it ends."""
    if not plan.can_save_on_demand or trial.is_saved:
        return False
    if trial.next_status is Status.TERMINATED:
        return plan.checkpoint_at_end
    return trial.next_status is Status.PAUSED or isinstance(trial.pending, ResizeTrial)


def _is_too_many(failures: int, plan: Plan) -> bool:
    return 0 <= plan.max_failures < failures


def _why(ended: Exit) -> str:
    return ended.error or ended.kind.value.lower().replace("_", " ")


def budget_spent(budget_s: float) -> str:
    """Return the reason with which trials end when the time budget is over."""
    return f"{_BUDGET} {budget_s:g} s is spent"


def was_put_off(trial: Trial, plan: Plan, now: float) -> bool:
    """Whether the time budget of an earlier run ended a trial before it began, and there is time for it now."""
    has_time = plan.time_budget_s is None or now < plan.time_budget_s
    is_unbegun = trial.status is Status.TERMINATED and not trial.attempt
    return has_time and is_unbegun and trial.reason.startswith(_BUDGET)
