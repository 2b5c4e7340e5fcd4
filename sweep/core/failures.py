"""Failures: what kinds there are, and what an exit, a failed start or a spent budget makes of a trial."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sweep.core.messages import CloneTrial, Exit, ExitKind, PauseTrial, ResizeTrial
from sweep.core.nesting import escalated_request
from sweep.core.trial import Cause, CheckpointRef, Escalation, Status, Trial, cloned, evolve
from sweep.errors import ResourceError

if TYPE_CHECKING:
    from sweep.core.plan import Plan
    from sweep.core.resources import Node, Resources


CLASSES = {
    "user": "the trial's own code raised",
    "killed": "a signal ended it, or it left without a word",
    "timeout": "it ran for trial_timeout_s and did not end when it was asked to",
    "hung": "it reported nothing for report_timeout_s",
    "out_of_memory": "the machine's memory or a device's was exhausted",
    "nan": "its metric was NaN, and nan='error' was asked for",
    "start": "it ended before its code began",
    "lost": "what supervised it is gone",
    "node_lost": "its node, or the agent there, is gone",
}
RETRIED = tuple(name for name in CLASSES if name not in ("timeout", "nan"))
"""What is started again unless something else is asked for: the same trial would run as long, and diverge, again."""

_LOSSES = ("start", "lost", "node_lost")

# Exceptions that say in any framework that memory is used up: Python's, PyTorch's.
_MEMORY_ERRORS = frozenset({"MemoryError", "OutOfMemoryError"})
# JAX and TensorFlow say it in the text of an error that may mean anything else.
_MEMORY_TEXTS = ("RESOURCE_EXHAUSTED", "CUDA out of memory", "DefaultCPUAllocator: can't allocate memory")

_NUMBERS = re.compile(r"\d+(?:\.\d+)?")
DISOBEYED = " and did not stop when it was asked to"


def without_numbers(reason: str) -> str:
    """Return a reason with N for each number: failures for which it is the same are alike."""
    return _NUMBERS.sub("N", reason)


def class_of(ended: Exit, *, has_begun: bool) -> str:
    """Return the kind of failure that an exit is, "" for one that is none.

    Args:
        has_begun: the attempt got as far as the user's code.
    """
    match ended.kind:
        case ExitKind.FINISHED | ExitKind.NEEDS_MORE:
            return ""
        case ExitKind.LOST:
            return "lost"
        case ExitKind.NODE_LOST:
            return "node_lost"
        case ExitKind.DAMAGED:
            return "start"
        case _ if not has_begun:
            return "start"
        case ExitKind.FAILED if _is_short_of_memory(ended):
            return "out_of_memory"
        case ExitKind.FAILED:
            return "user"
        case ExitKind.TIMEOUT | ExitKind.HUNG | ExitKind.OUT_OF_MEMORY as kind:
            return kind.value.lower()
        case _:
            return "killed"


def _is_short_of_memory(ended: Exit) -> bool:
    return ended.class_name.rpartition(".")[2] in _MEMORY_ERRORS or any(text in ended.error for text in _MEMORY_TEXTS)


def after_exit(trial: Trial, ended: Exit, plan: Plan, now: float) -> tuple[Status, Trial]:
    """Return where a trial goes whose running attempt ended so, and the trial with everything else that follows.

    A trial whose error was decided is in ERROR, however it ends, unless `retry_on` names what it did. What finished by
    itself is TERMINATED, whatever else had been decided meanwhile. Otherwise a STOPPING trial goes where it was going,
    except that a pause without a committed save becomes PENDING, that raising while it was to stop counts as a
    failure unless it was to end anyway, and that one which had to be killed because it ran for too long has failed. One
    whose checkpoint proved damaged is started again from another, and one whose `fit()` needs more than it holds with
    that; neither is a failure. Everything else is a failure or a loss, and is started again while `max_failures`,
    `max_losses`, `max_node_losses` and `retry_on` allow.
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
    failure = class_of(ended, has_begun=trial.status is not Status.STARTING)
    why = ended.error or ended.kind.value.lower().replace("_", " ")
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
        reason = f"starts again from {where}: {ended.error}"
        return Status.PENDING, evolve(trial, reason=reason, cause=Cause.DAMAGED)
    if ended.needs is not None:
        return _with_more(trial, ended, ended.needs, plan)
    if failure in _LOSSES:
        return _lost(trial, failure, why, plan)
    return _failed(trial, failure, why, plan)


def _lost(trial: Trial, failure: str, why: str, plan: Plan) -> tuple[Status, Trial]:
    """Count a fault of the infrastructure; those of nodes by themselves: machines that are taken away and given back
    say nothing of the trial, but one that takes each of its nodes down must come to an end."""
    if failure == "node_lost":
        number, limit = trial.node_losses + 1, plan.max_node_losses
        trial = evolve(trial, node_losses=number)
    else:
        number, limit = trial.losses + 1, plan.max_losses
        trial = evolve(trial, losses=number)
    trial = evolve(trial, failure=failure, reason=f"starts again after: {why}", cause=Cause.RETRY)
    if 0 <= limit < number or failure not in plan.retry_on:
        times = f" {number} times" if number > 1 else ""
        return Status.ERROR, evolve(trial, reason=f"lost{' its node' * (failure == 'node_lost')}{times}: {why}")
    return Status.PENDING, trial


def _with_more(trial: Trial, ended: Exit, wanted: Resources, plan: Plan) -> tuple[Status, Trial]:
    """Let a trial ask for what the group of its `fit()` needs; a failure, where it held just that."""
    try:
        needed = escalated_request(trial, wanted, is_unasked=plan.is_unasked)
    except ResourceError as error:
        return _failed(trial, "user", str(error), plan, is_final=True)
    if needed == trial.resources and not (trial.escalation is not None and trial.escalation.is_guess):
        return _failed(trial, "user", ended.error, plan, is_final=True)
    pending = None if isinstance(trial.pending, ResizeTrial) else trial.pending
    reason = f"starts again with more: its fit() needs {wanted}"
    changes = {"resources": needed, "escalation": Escalation(trial.asked), "pending": pending}
    return Status.PENDING, evolve(trial, **changes, reason=reason, cause=Cause.RETRY)


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
    trial = evolve(trial, reason=f"starts again{alone} after: {why}", cause=Cause.RETRY)
    if failure == "timeout":
        trial = evolve(trial, ran_s=0.0)  # each retry has the whole time again
    return Status.PENDING, evolve(trial, resources=replace(trial.resources, alone=True)) if is_alone_next else trial


def wants_save(trial: Trial, plan: Plan) -> bool:
    """Whether a STOPPING trial is to store a checkpoint on demand before it ends."""
    if not plan.can_save_on_demand or trial.is_saved:
        return False
    if trial.next_status is Status.TERMINATED:
        return plan.checkpoint_at_end
    return trial.next_status is Status.PAUSED or isinstance(trial.pending, ResizeTrial)


def take_away(trials: Iterable[Trial], nodes: Iterable[Node]) -> list[ResizeTrial]:
    """Have trials end at their next checkpoint, and wait again, that run on nodes which are about to leave: those that
    the inventory lacks though nothing was lost there."""
    there = {node.id for node in nodes}
    held = [(trial, trial.placement.bundles) for trial in trials if trial.is_held and trial.placement is not None]
    away = [trial for trial, bundles in held if any(bundle.node not in there for bundle in bundles)]
    return [ResizeTrial(t.id, t.resources) for t in away if not isinstance(t.pending, (PauseTrial, ResizeTrial))]


def was_put_off(trial: Trial, plan: Plan, now: float) -> bool:
    """Whether the time budget of an earlier run ended a trial before it began, and there is time for it now."""
    has_time = plan.time_budget_s is None or now < plan.time_budget_s
    is_unbegun = trial.status is Status.TERMINATED and not trial.attempt
    return has_time and is_unbegun and trial.cause is Cause.BUDGET


def was_lost(trial: Trial, plan: Plan) -> bool:
    """Whether a trial is in ERROR only because what supervised it, or its node, was gone too often; another run of the
    driver starts it again."""
    is_ours = trial.failure in _LOSSES and bool(trial.losses or trial.node_losses)  # not a request that never fits
    return trial.status is Status.ERROR and is_ours and trial.failure in plan.retry_on


def put_back(trial: Trial, reason: str, could_fit: Callable[[Resources], bool]) -> Trial:
    """Return a trial as it waits again, with what waited for its exit: another config, or another request that could
    fit."""
    changes: dict[str, Any] = {"status": Status.PENDING, "next_status": None, "reason": reason}
    match trial.pending:
        case CloneTrial(_, _, config, checkpoint):
            changes |= cloned(config, checkpoint)
        case ResizeTrial(_, resources):
            changes["pending"] = None
            if could_fit(resources):
                changes["resources"] = resources
    if not isinstance(trial.pending, PauseTrial):
        changes["is_by_person"] = False  # the pause that a person wanted did not come to be
    changes["count"] = (changes.get("checkpoint") or trial.checkpoint or CheckpointRef("")).count
    return evolve(trial, **changes)


def grace_s(trial: Trial, plan: Plan, *, save: bool, is_hurried: bool) -> float:
    """Return how long a trial that is told to end may take.

    Args:
        save: it stores a checkpoint before.
        is_hurried: a person has interrupted the sweep.
    """
    grace = plan.save_grace_s if save else plan.stop_grace_s
    if trial.failure == "timeout" and plan.trial_timeout_s is not None:
        grace = min(grace, plan.trial_timeout_s)
    return min(grace, plan.interrupt_grace_s) if is_hurried else grace


def unbegun(trial: Trial) -> Trial:
    """Return a trial whose attempt was not begun after all, as it was before."""
    return evolve(trial, attempt=trial.attempt - 1, placement=None, started_from=None)
