"""What happened to trials and when, by the recorded facts: waited, started, ran, paused, was tried again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sweep.core.history import Attempt, History
from sweep.core.messages import ClaimsChanged, Exited, ExitKind, NodesChanged, Released
from sweep.core.resources import LANE, LOCAL, name_device
from sweep.core.trial import Status, number_of
from sweep.record.facts import read_facts
from sweep.record.reader import ExperimentReader
from sweep.record.rows import TrialRow

_NO_FAULTS = (ExitKind.FINISHED, ExitKind.STOPPED, ExitKind.NEEDS_MORE)


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a trial's life, or of an attempt: `kind` is waiting, starting, running, paused or failed; times in
    seconds of driving."""

    number: int
    kind: str
    begin: float
    end: float
    text: str


def held_until(attempt: Attempt, now: float) -> float:
    """Return when the place of an attempt could be granted again; `now` while it could not."""
    return now if attempt.released is None else attempt.released.at


def nodes_of(attempt: Attempt) -> tuple[str, ...]:
    """Return the nodes that an attempt had a part of, in the order of its bundles; none where that is unknown."""
    bundles = () if attempt.placement is None else attempt.placement.bundles
    return tuple(dict.fromkeys(bundle.node for bundle in bundles))


def last_nodes(reader: ExperimentReader) -> dict[str, str]:
    """Return by trial the nodes of its last attempt; nothing where the sweep has had one node only, or was
    imported."""
    with reader.connect(with_events=False) as connection:  # what is read of one machine is not to take longer for this
        changes = [fact.event for fact in read_facts(connection, kinds=(NodesChanged,), trust=False)]
    known = {node.id for event in changes if isinstance(event, NodesChanged) for node in event.nodes}
    attempts = reader.history().attempts if len(known) > 1 and not reader.meta.get("imported") else ()
    return {attempt.trial_id: ", ".join(nodes_of(attempt)) for attempt in attempts}


def is_lane(attempt: Attempt) -> bool:
    """Whether it shared a process with others."""
    return LANE in attempt.resources.total.amounts


def places_of(attempt: Attempt) -> tuple[str, ...]:
    """Return what an attempt held: devices, or nodes where it held no device; of a lane its process."""
    if attempt.placement is None:
        return ("?",)
    if is_lane(attempt):
        return (f"process {attempt.pid or '?'} lane",)
    found: dict[str, None] = {}
    for bundle in attempt.placement.bundles:
        names = [name_device(bundle.node, device) for device, _ in bundle.devices]
        found.update(dict.fromkeys(names or [f"CPUs of {bundle.node}" if bundle.node != LOCAL else "CPUs"]))
    devices = [name for name in found if not name.startswith("CPUs")]
    return tuple(devices or found)


def is_failed(attempt: Attempt) -> bool:
    """Whether an attempt ended otherwise than it was meant to."""
    return attempt.is_lost or (attempt.exit is not None and attempt.exit.kind not in _NO_FAULTS)


def phases_of(attempt: Attempt, now: float) -> Iterator[Span]:
    """Give the start of an attempt, and the run that followed; what still goes on ends at `now`."""
    number, granted = number_of(attempt.trial_id), attempt.granted.at
    started = None if attempt.started is None else attempt.started.at
    end = now if attempt.exited is None else attempt.exited.at
    has_failed = is_failed(attempt)
    on = "" if (nodes := nodes_of(attempt)) in ((), (LOCAL,)) else f" on {', '.join(nodes)}"
    text = f"attempt {attempt.number}{on} {outcome(attempt)}".strip()
    if started is None or (has_failed and started == end):  # so that the failure is seen
        failure = Span(number, "failed", granted, end, text)
        yield failure if has_failed else Span(number, "starting", granted, end, attempt.waits)
        return
    yield Span(number, "starting", granted, started, attempt.waits)
    yield Span(number, "failed" if has_failed else "running", started, end, text)


def outcome(attempt: Attempt) -> str:
    """Return how an attempt ended, and why; empty: it runs."""
    if attempt.exit is None:
        return "its driver ended" if attempt.is_lost else ""
    kind, error = attempt.exit.kind.value, attempt.exit.error[:300]
    return f"{kind}: {error}" if error else kind


def _cause(attempt: Attempt) -> str:
    """Return what made room for an attempt, for people; empty: there was room."""
    match attempt.cause:
        case Released(trial_id) | Exited(trial_id) if trial_id != attempt.trial_id:
            return f"until trial {number_of(trial_id):05d} gave back what it held"
        case ClaimsChanged():
            return "until another sweep of the machine gave something back"
        case NodesChanged():
            return "until there were more resources"
    return ""


def spans_of(history: History, rows: Sequence[TrialRow], now: float) -> Iterator[Span]:
    """Give the stretches of some trials, each trial's in order; what still goes on ends at `now`."""
    of: dict[str, list[Attempt]] = {}
    for attempt in history.attempts:
        of.setdefault(attempt.trial_id, []).append(attempt)
    for row in rows:
        created = history.created.get(row.trial_id)
        before, kind = None if created is None else created.at, "waiting"
        for attempt in of.get(row.trial_id, ()):
            if before is not None and attempt.granted.at > before:
                yield Span(row.number, kind, before, attempt.granted.at, _cause(attempt) if kind == "waiting" else "")
            for phase in phases_of(attempt, now):
                kind = phase.kind
                yield phase
            goes_on = attempt.exited is not None and attempt.after in (Status.PENDING, Status.PAUSED)
            before = attempt.exited.at if attempt.exited is not None and goes_on else None
            kind = "paused" if attempt.after is Status.PAUSED else "waiting"
        if before is not None and (not row.is_ended or row.trial_id not in of):  # it was ended before it began
            yield Span(row.number, "paused" if row.status == "PAUSED" else kind, before, now, row.reason)
