"""What a start, an exit (rule 14), a clone and a retry make of a trial, as pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sweep.core.failures import class_of
from sweep.core.messages import Exit, ExitKind, ResizeTrial
from sweep.core.plan import Plan
from sweep.core.resources import Placement
from sweep.core.trial import CheckpointRef, Status, Trial, evolve

__all__ = [
    "DISOBEYED",
    "after_exit",
    "begun",
    "budget_spent",
    "cloned",
    "fell_back",
    "revived",
    "time_is_up",
    "wants_save",
    "was_put_off",
]

_BUDGET = "the time budget of"
_FALLS_BACK = "starts again from "
DISOBEYED = " and did not stop when it was asked to"


def begun(trial: Trial, placement: Placement) -> Trial:
    """Return a trial at the beginning of its next attempt."""
    ref = trial.checkpoint
    return evolve(
        trial,
        status=Status.STARTING,
        attempt=trial.attempt + 1,
        placement=placement,
        started_from=ref,
        count=ref.count if ref else 0,
        is_saved=False,
        reason="",
        failure="",
    )


def revived(trial: Trial, *, from_scratch: bool) -> Trial:
    """Return a trial that had ended and is started again, from its checkpoint or from nothing, with a clean slate."""
    trial = evolve(trial, status=Status.PENDING, reason="", failures=0, losses=0, failure="", ran_s=0.0)
    if not from_scratch:
        return trial
    return evolve(trial, checkpoint=None, count=0, judged_to=0, last_result=None, best_result=None)


def after_exit(trial: Trial, ended: Exit, plan: Plan, now: float) -> tuple[Status, Trial]:
    """Return where a trial goes whose running attempt ended so, and the trial with everything else that follows.

    A trial whose error was decided is in ERROR, however it ends, unless `retry_on` names what it did. What finished by
    itself is TERMINATED, whatever else had been decided meanwhile. Otherwise a STOPPING trial goes where it was going,
    except that a pause without a committed save becomes PENDING, that raising while it was told to stop counts as a
    failure unless it was to end anyway, and that one which had to be killed because it ran for too long has failed. One
    whose checkpoint proved damaged is started again from another, which is no failure.
    Everything else is a failure or a loss, and is started again while `max_failures`, `max_losses` and `retry_on`
    allow.
    """
    decided, started_from = trial.failure, trial.started_from
    trial = evolve(trial, ran_s=trial.running_s(now), running_since=None, started_from=None, failure="")
    if trial.next_status is Status.ERROR:
        decided = decided or "user"
        return _failed(trial, decided, trial.reason, plan, is_final=decided != "nan")
    if ended.kind is ExitKind.FINISHED:
        return Status.TERMINATED, trial if trial.next_status is Status.TERMINATED else evolve(trial, reason="")
    if ended.kind is ExitKind.HUNG and decided == "timeout":  # both limits at once; it did not stop, either
        ended = replace(ended, kind=ExitKind.TIMEOUT, error=trial.reason + DISOBEYED)
    failure, why = class_of(ended, has_begun=trial.status is not Status.STARTING), _why(ended)
    if trial.status is Status.STOPPING and failure != "timeout":
        to = trial.next_status or Status.TERMINATED
        if to is Status.PAUSED and not trial.is_saved:
            to = Status.PENDING
        if ended.kind is not ExitKind.FAILED or to is Status.TERMINATED:
            return to, trial
        status, failed = _failed(trial, failure, why, plan)
        return (status, failed) if status is Status.ERROR else (to, evolve(failed, reason=trial.reason))
    if ended.kind is ExitKind.DAMAGED and started_from is not None:
        where = trial.checkpoint.path if trial.checkpoint is not None else "the beginning"
        return Status.PENDING, evolve(trial, reason=f"{_FALLS_BACK}{where}: {ended.error}")
    if failure in ("start", "lost"):
        losses = trial.losses + 1
        trial = evolve(trial, losses=losses, failure=failure, reason=f"starts again after: {why}")
        if losses > plan.max_losses or failure not in plan.retry_on:
            times = f" {losses} times" if losses > 1 else ""
            return Status.ERROR, evolve(trial, reason=f"lost{times}: {why}")
        return Status.PENDING, trial
    return _failed(trial, failure, why, plan)


def _failed(trial: Trial, failure: str, why: str, plan: Plan, *, is_final: bool = False) -> tuple[Status, Trial]:
    """Count a failure, and start the trial again if the plan allows."""
    failures = trial.failures + 1
    trial = evolve(trial, failures=failures, failure=failure, reason=why)
    is_too_many = 0 <= plan.max_failures < failures
    is_alone_next = failure == "out_of_memory" and plan.out_of_memory == "retry_alone" and not trial.resources.alone
    if failure == "out_of_memory":
        is_final = is_final or plan.out_of_memory == "fail"
        is_too_many = is_too_many and not is_alone_next  # it is the trial's company that is tried for
    if is_final or is_too_many or failure not in plan.retry_on:
        return Status.ERROR, trial
    alone = ", alone," if is_alone_next else ""
    trial = evolve(trial, reason=f"starts again{alone} after: {why}")
    if failure == "timeout":
        trial = evolve(trial, ran_s=0.0)  # who may try again has all the time again
    return Status.PENDING, evolve(trial, resources=replace(trial.resources, alone=True)) if is_alone_next else trial


def fell_back(trial: Trial) -> bool:
    """Whether a trial waits because the checkpoint that it was started from proved damaged."""
    return trial.reason.startswith(_FALLS_BACK)


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


def _why(ended: Exit) -> str:
    return ended.error or ended.kind.value.lower().replace("_", " ")


def time_is_up(plan: Plan) -> str:
    """Return the reason with which a trial ends that has run for as long as it may."""
    return f"has run for trial_timeout_s={plan.trial_timeout_s:g} s"


def budget_spent(budget_s: float) -> str:
    """Return the reason with which trials end when the time budget is over."""
    return f"{_BUDGET} {budget_s:g} s is spent"


def was_put_off(trial: Trial, plan: Plan, now: float) -> bool:
    """Whether the time budget of an earlier run ended a trial before it began, and there is time for it now."""
    has_time = plan.time_budget_s is None or now < plan.time_budget_s
    is_unbegun = trial.status is Status.TERMINATED and not trial.attempt
    return has_time and is_unbegun and trial.reason.startswith(_BUDGET)
