"""What the sweep takes (events: facts), what it returns (commands) and what schedulers answer (decisions)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from searchers.base import Signal
from sweep.core.claims import Claim
from sweep.core.resources import Node, Resources
from sweep.core.results import TrialResult
from sweep.core.trial import Cause, CheckpointRef, Trial

# --- facts ---------------------------------------------------------------------------------------------------------


class ExitKind(StrEnum):
    """How an attempt ended."""

    FINISHED = "FINISHED"  # the user's code returned
    STOPPED = "STOPPED"  # it obeyed a Stop
    FAILED = "FAILED"  # it raised
    KILLED = "KILLED"  # a signal, or it exited without a word
    TIMEOUT = "TIMEOUT"  # it was killed because it ran for too long
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    HUNG = "HUNG"  # it was killed because it reported nothing for too long
    LOST = "LOST"  # the infrastructure's fault: what supervised it is gone
    NODE_LOST = "NODE_LOST"  # its node, or the agent there, is gone
    DAMAGED = "DAMAGED"  # the checkpoint that it was started from is; none of its code has run
    NEEDS_MORE = "NEEDS_MORE"  # a fit() in it asked for more than the trial holds


@dataclass(frozen=True, slots=True)
class Exit:
    """How an attempt ended and what is known of why.

    Attributes:
        error: one line for people, for instance `ValueError: lr must be positive`.
        traceback: the user's frames, as text.
        class_name: of the user's exception.
        pickled: the user's exception as cloudpickle bytes, when that was possible.
        signal: number of the signal that ended it, 0 if none.
        peak_rss_bytes: largest resident memory of the worker, 0 when unknown.
        needs: what the group of its fit() asks for, where that was more than the trial holds.
    """

    kind: ExitKind
    error: str = ""
    traceback: str = ""
    class_name: str = ""
    pickled: bytes = b""
    signal: int = 0
    peak_rss_bytes: int = 0
    needs: Resources | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The searcher could not answer: its error, in one line."""

    error: str


class Verdict(StrEnum):
    """What the user's stop functions said of a result; computed at the edge."""

    NONE = ""
    STOP = "stop"
    STOP_ALL = "stop_all"


class Ask(StrEnum):
    """What the user may ask of a running sweep."""

    DRAIN = "drain"  # what runs finishes, nothing new starts; of a trial: it ends at its next report
    INTERRUPT = "interrupt"  # save and stop; resumable
    CANCEL = "cancel"  # end now, for good
    PAUSE = "pause"  # what can be saved is, and nothing starts until RESUME
    RESUME = "resume"
    RETRY = "retry"
    EDIT = "edit"  # go on with another plan
    ENQUEUE = "enqueue"  # try a config that a person gives next


@dataclass(frozen=True, slots=True)
class Suggested:
    """The searcher's answer for `trial_id`; `resources` were computed from the config at the edge."""

    trial_id: str
    config: Mapping[str, Any] | Signal | Failed
    resources: Resources | None = None
    state: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """The attempt's process runs and is about to enter the user's code."""

    trial_id: str
    attempt: int
    pid: int = 0


@dataclass(frozen=True, slots=True)
class Reported:
    """One report; `seq` counts the reports of this attempt from 1 and is repeated in the answer.

    `metrics` hold the user's values plus what the worker filled in: `timestamp` (epoch seconds) and `time_this_iter_s`.
    `checkpoint` is the directory stored with this report, relative to the experiment, or None.
    """

    trial_id: str
    attempt: int
    seq: int
    metrics: Mapping[str, Any]
    checkpoint: str | None = None
    verdict: Verdict = Verdict.NONE

    def __reduce__(self) -> tuple[Any, ...]:  # a dataclass's own way takes twice as long; agents send nothing so often
        report = (self.trial_id, self.attempt, self.seq, self.metrics, self.checkpoint)
        return Reported, (*report, self.verdict) if self.verdict else report


@dataclass(frozen=True, slots=True)
class Saved:
    """A class trainable stored a checkpoint on demand; `seq` is that of the report whose answer asked for it."""

    trial_id: str
    attempt: int
    seq: int
    checkpoint: str


@dataclass(frozen=True, slots=True)
class Exited:
    """Every process of the attempt is gone."""

    trial_id: str
    attempt: int
    exit: Exit


@dataclass(frozen=True, slots=True)
class Released:
    """The attempt's devices are clean; its placement may be granted again."""

    trial_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Declined:
    """The attempt was not begun: another sweep of the machine had claimed a part of its place a moment before."""

    trial_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """The engine says why a start takes long."""

    trial_id: str
    reason: str
    cause: Cause = Cause.NONE


@dataclass(frozen=True, slots=True)
class Asked:
    """The user asks for something; `trial_id` None means the whole sweep. `detail` is JSON, see `Plan.edited`."""

    what: Ask
    trial_id: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class NodesChanged:
    """The inventory, whole.

    `away` are nodes that are not there now and may come: they have left, or are added when they are needed. A trial
    that only they can hold waits for them.
    """

    nodes: tuple[Node, ...]
    away: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimsChanged:
    """What other sweeps of the machine keep from this one, whole, as far as this one has looked."""

    others: tuple[Claim, ...]


@dataclass(frozen=True, slots=True)
class PlanChanged:
    """What this run of the driver was asked to do: the first event of every run. `plan` is a `core.plan.Plan`."""

    plan: Any


@dataclass(frozen=True, slots=True)
class Tick:
    """Nothing but time."""


Event = (
    Suggested
    | Started
    | Reported
    | Saved
    | Exited
    | Released
    | Declined
    | Waiting
    | Asked
    | NodesChanged
    | ClaimsChanged
    | PlanChanged
    | Tick
)

# --- decisions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StopTrial:
    """End the trial for good."""

    trial_id: str
    reason: str = "stopped early"
    cause: Cause = Cause.EARLY


@dataclass(frozen=True, slots=True)
class PauseTrial:
    """Save it, end its process, keep it for later."""

    trial_id: str
    reason: str = "paused by the scheduler"


@dataclass(frozen=True, slots=True)
class ResumeTrial:
    """Let a paused trial wait for resources again."""

    trial_id: str


@dataclass(frozen=True, slots=True)
class SaveTrial:
    """Have it store a checkpoint and go on."""

    trial_id: str


@dataclass(frozen=True, slots=True)
class CloneTrial:
    """Continue the trial from another's checkpoint with a new config; the core binds `checkpoint` when it decides."""

    trial_id: str
    source_id: str
    config: Mapping[str, Any]
    checkpoint: CheckpointRef | None = None


@dataclass(frozen=True, slots=True)
class ResizeTrial:
    """Save it and start it again with other resources."""

    trial_id: str
    resources: Resources


Decision = StopTrial | PauseTrial | ResumeTrial | SaveTrial | CloneTrial | ResizeTrial

# --- commands ------------------------------------------------------------------------------------------------------


class Hook(StrEnum):
    """What searchers and callbacks are notified of; the names are those of Tune's callback hooks without `on_`."""

    START = "trial_start"
    RESULT = "trial_result"
    SAVE = "trial_save"
    RESTORE = "trial_restore"
    COMPLETE = "trial_complete"  # TERMINATED
    ERROR = "trial_error"  # ERROR
    RETRY = "trial_recover"  # failed or lost, will be started again
    PAUSE = "trial_pause"


@dataclass(frozen=True, slots=True)
class Suggest:
    """Ask the searcher for the config of `trial_id`."""

    trial_id: str


@dataclass(frozen=True, slots=True)
class Start:
    """Start an attempt: `trial` carries attempt, placement, config and the checkpoint to start from."""

    trial: Trial


@dataclass(frozen=True, slots=True)
class Continue:
    """Answer to report `seq`: go on."""

    trial_id: str
    attempt: int
    seq: int

    def __reduce__(self) -> tuple[Any, ...]:  # as `Reported` has it
        return Continue, (self.trial_id, self.attempt, self.seq)


@dataclass(frozen=True, slots=True)
class Save:
    """Answer to report `seq`: store a checkpoint (class trainables), then go on."""

    trial_id: str
    attempt: int
    seq: int


@dataclass(frozen=True, slots=True)
class Stop:
    """End the attempt. `seq` > 0: answer to that report; 0: at the next report, or by whatever polite means there is.

    `save`: a class trainable stores a checkpoint before it ends.
    """

    trial_id: str
    attempt: int
    seq: int = 0
    save: bool = False


@dataclass(frozen=True, slots=True)
class Kill:
    """End every process of the attempt now; `kind` is that of the exit that follows, if nothing was faster."""

    trial_id: str
    attempt: int
    reason: str = ""
    kind: ExitKind = ExitKind.KILLED


@dataclass(frozen=True, slots=True)
class Discard:
    """The checkpoint may be deleted: nothing refers to it any more."""

    checkpoint: CheckpointRef


@dataclass(frozen=True, slots=True)
class Notify:
    """Tell searcher and callbacks after the commit; `trial` is as it was at the event."""

    hook: Hook
    trial: Trial
    result: TrialResult | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    """End the sweep with this error, once what happened is committed."""

    error: Exception


Command = Suggest | Start | Continue | Save | Stop | Kill | Discard | Notify | Fail

# --- for the record ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Changes:
    """What a batch of events changed, for the record: trials as they are now, and by the numbers of the reports among
    the events the results that they became, with all that was filled in."""

    trials: dict[str, Trial] = field(default_factory=dict)
    results: dict[int, Mapping[str, Any]] = field(default_factory=dict)
