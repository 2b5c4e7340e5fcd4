"""A trial: one configuration being evaluated, as a frozen value, and the table of what may follow what."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sweep.core.resources import Placement, Resources

if TYPE_CHECKING:
    from sweep.core.messages import Decision
    from sweep.core.results import TrialResult


class Status(StrEnum):
    """Where a trial is in its life."""

    PENDING = "PENDING"  # has a config, waits for its resources
    STARTING = "STARTING"  # resources granted, its process is being made
    RUNNING = "RUNNING"  # the user's code may run
    STOPPING = "STOPPING"  # is to end; its process may still be there
    PAUSED = "PAUSED"  # saved, holds nothing, may be resumed
    TERMINATED = "TERMINATED"  # ended as it should, or was stopped
    ERROR = "ERROR"  # ended by its own fault or because it could not run


class Cause(StrEnum):
    """Why a trial waits or has ended, where something depends on it; people read its `reason`."""

    NONE = ""
    EARLY = "early"  # a scheduler ended it before its time
    REACHED = "reached"  # it went as far as `stop` or its scheduler lets trials go
    BUDGET = "budget"  # the sweep's time was up
    RETRY = "retry"  # it starts again
    DAMAGED = "damaged"  # it starts again, because the checkpoint that it was started from is damaged
    RESOURCES = "resources"  # it waits for what others hold
    SILENT = "silent"  # it went all its way and never reported the metric
    SPACE = "space"  # it cannot write: the disk is full


HELD = frozenset({Status.STARTING, Status.RUNNING, Status.STOPPING})
ENDED = frozenset({Status.TERMINATED, Status.ERROR})

# docs/explanation/life-of-a-trial.md draws this table; a test compares the two.
LEGAL: Mapping[Status, frozenset[Status]] = {
    Status.PENDING: frozenset({Status.STARTING, Status.TERMINATED, Status.ERROR}),
    Status.STARTING: frozenset({Status.RUNNING, Status.STOPPING, Status.PENDING, Status.ERROR}),
    Status.RUNNING: frozenset({Status.STOPPING, Status.TERMINATED, Status.PENDING, Status.ERROR}),
    Status.STOPPING: frozenset({Status.PENDING, Status.PAUSED, Status.TERMINATED, Status.ERROR}),
    Status.PAUSED: frozenset({Status.PENDING, Status.TERMINATED, Status.ERROR}),
    Status.TERMINATED: frozenset({Status.PENDING}),  # only when the user asks for a retry
    Status.ERROR: frozenset({Status.PENDING}),
}


STATES = ("running", "paused", "waiting", "finished", "stopped early", "failed")
"""Where a trial is, in the one word that people are shown."""

_STATES = {"PENDING": "waiting", "PAUSED": "paused", "TERMINATED": "finished", "ERROR": "failed"}


def number_of(trial_id: str) -> int:
    """Return the number of a trial in its sweep, from 0."""
    return int(trial_id.rpartition("_")[2])


class _Facts(Protocol):
    @property
    def status(self) -> str: ...
    @property
    def cause(self) -> str: ...
    @property
    def placement(self) -> Placement | None: ...


def shown_state(trial: _Facts) -> str:
    """Return where a trial is, one of `STATES`; one that holds resources is running, if its process only starts."""
    if trial.status == "TERMINATED" and trial.cause == Cause.EARLY:
        return "stopped early"
    state = _STATES.get(trial.status, "running")
    return "running" if state == "waiting" and trial.placement is not None else state


def shown_status(status: Status) -> str:
    """Return the status as Tune has it: STARTING shows as PENDING, STOPPING as RUNNING."""
    return {Status.STARTING: "PENDING", Status.STOPPING: "RUNNING"}.get(status, status.value)


class Outcome(NamedTuple):
    """How user code ended, or a rank of a group, or the whole group; `kind` is the name of an `ExitKind`, `needs` a
    request as JSON values."""

    kind: str
    error: str = ""
    traceback: str = ""
    class_name: str = ""
    pickled: bytes = b""
    needs: Any = None

    @property
    def is_good(self) -> bool:
        """Whether it returned, or unwound because it was asked to stop."""
        return self.kind in ("FINISHED", "STOPPED")


@dataclass(frozen=True, slots=True)
class CheckpointRef:
    """Where a checkpoint lies and when it was taken.

    Attributes:
        path: directory, relative to the experiment's directory.
        count: how many reports the trial had made when it was taken, that of the same call included.
        training_iteration: as the user counts it.
        time_total_s: seconds of training it contains.
    """

    path: str
    count: int = 0
    training_iteration: int = 0
    time_total_s: float = 0.0

    @property
    def owner(self) -> str:
        """Id of the trial that saved it."""
        return self.path.partition("/")[0]

    @property
    def name(self) -> str:
        """Name of the directory, such as `checkpoint_000003`."""
        return self.path.rstrip("/").rpartition("/")[2]

    def to_json(self) -> list[Any]:
        """Return plain JSON values; `parse` reads them back."""
        return [self.path, self.count, self.training_iteration, self.time_total_s]

    @classmethod
    def parse(cls, value: str | Sequence[Any] | None) -> CheckpointRef | None:
        """Return the checkpoint that a record names: by a path alone, or by what `to_json` gave, also as JSON text."""
        if isinstance(value, str) and (value[:1] in ("[", '"') or value == "null"):
            value = json.loads(value)
        if not value:
            return None
        return cls(value) if isinstance(value, str) else cls(*value)


class Escalation(NamedTuple):
    """Where the request of a trial comes from that has a `fit()` inside, when that asks for more than the trial did.

    Attributes:
        asked: what the trial itself asks for.
        is_guess: its request is what the `fit()` of another trial came to; its own was not called yet.
    """

    asked: Resources
    is_guess: bool = False


class Trial(NamedTuple):
    """One configuration being evaluated: what it is, where it is in its life, and what is known of it so far.

    Attributes:
        next_status: where a STOPPING trial goes once its exit is a fact.
        pending: a pause, resize or save that waits for the trial's next report, or the clone that a STOPPING trial
            becomes when it has exited.
        attempt: starts so far; events of older attempts are dropped.
        placement: what it holds, from `Start` until `Released`.
        checkpoint: the latest; where the next attempt continues.
        started_from: the checkpoint that the running attempt was started from.
        count: reports so far, counted from the checkpoint's count at each start.
        judged_to: reports up to this count were judged; a repeat after a restart is recorded, not judged again.
        failures: faults of its own. losses: faults of the infrastructure. node_losses: how often its node was gone.
        is_saved: while STOPPING towards PAUSED: the save that the pause needs is committed.
        is_by_person: the user paused it; only the user resumes it.
        reason: why it waits, or why it ended; shown to the user. cause: the same for the program.
        ticket: its place among those that wait, or its last one: smaller is earlier.
        failure: which kind of failure its last attempt was, one of `core.failures.CLASSES`; empty: none.
        ran_s: seconds that its former attempts ran, from `Started` on. running_since: when the running one started.
        escalation: how `resources` came to be more than it asked for; None: they are what it asked for.
    """

    id: str
    config: Mapping[str, Any]
    resources: Resources
    status: Status = Status.PENDING
    next_status: Status | None = None
    pending: Decision | None = None
    attempt: int = 0
    placement: Placement | None = None
    checkpoint: CheckpointRef | None = None
    started_from: CheckpointRef | None = None
    count: int = 0  # type: ignore[assignment]  # hides tuple.count, which a trial does not need
    judged_to: int = 0
    last_result: TrialResult | None = None
    best_result: TrialResult | None = None
    failures: int = 0
    losses: int = 0
    is_saved: bool = False
    is_by_person: bool = False
    reason: str = ""
    ticket: int = 0
    failure: str = ""
    ran_s: float = 0.0
    running_since: float | None = None
    escalation: Escalation | None = None
    node_losses: int = 0
    cause: Cause = Cause.NONE

    @property
    def number(self) -> int:
        """The trial's number in its sweep, from 0."""
        return number_of(self.id)

    @property
    def asked(self) -> Resources:
        """What it was given to ask for, before a `fit()` in it, or in another, needed more."""
        return self.resources if self.escalation is None else self.escalation.asked

    def running_s(self, now: float) -> float:
        """Return the seconds that it has run so far, in all its attempts."""
        return self.ran_s + (now - self.running_since if self.running_since is not None else 0.0)

    @property
    def is_held(self) -> bool:
        """Whether a process of it may exist."""
        return self.status in HELD

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for resources; one that still holds its own is about to start again."""
        return self.status is Status.PENDING and self.placement is None

    @property
    def is_ended(self) -> bool:
        """Whether it is TERMINATED or ERROR."""
        return self.status in ENDED

    @property
    def waits_for_space(self) -> bool:
        """Whether its process waits for room on a full disk: it can neither go on nor save."""
        return self.cause is Cause.SPACE and self.is_held

    def asking(self, request: Resources | None) -> Trial:
        """Return it with another request, if it goes on; None: with its own."""
        if request is None or self.is_ended:
            return self
        return evolve(self, resources=replace(request, alone=self.resources.alone), escalation=None)

    def ended(self, status: Status, reason: str) -> Trial:
        """Return it at its end, TERMINATED or ERROR."""
        failure = self.failure or ("user" if self.attempt else "start") if status is Status.ERROR else ""
        changes = {"next_status": None, "pending": None, "is_by_person": False}
        return evolve(self, status=status, reason=reason, failure=failure, **changes)


_INDEX = {name: i for i, name in enumerate(Trial._fields)}
_new = tuple.__new__


def evolve(trial: Trial, **changes: Any) -> Trial:
    """Return a copy of `trial` with some fields changed, in about a microsecond, because every report passes here.

    With another reason comes the cause that is given with it, or none.
    """
    if "reason" in changes and "cause" not in changes and changes["reason"] != trial.reason:
        changes["cause"] = Cause.NONE
    values: list[Any] = list(trial)
    for name, value in changes.items():
        values[_INDEX[name]] = value
    return _new(Trial, values)


def begun(trial: Trial, placement: Placement | None) -> Trial:
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
    clean = {"failures": 0, "losses": 0, "node_losses": 0, "failure": "", "ran_s": 0.0}
    trial = evolve(trial, status=Status.PENDING, reason="", **clean)
    trial = evolve(trial, resources=trial.asked, escalation=None)
    if not from_scratch:
        return trial
    return evolve(trial, checkpoint=None, count=0, judged_to=0, last_result=None, best_result=None)


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
