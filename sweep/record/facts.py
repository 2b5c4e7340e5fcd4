"""The one reader of the recorded facts: what happened, in order, and what followed from it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from sweep.core.history import Fact, History
from sweep.core.messages import Ask, Asked, Event, Exit, Exited, ExitKind, PlanChanged
from sweep.core.plan import Plan
from sweep.core.results import TrialResult
from sweep.core.trial import CheckpointRef
from sweep.record.codec import event_of, metrics_of, value_of
from sweep.record.db import open_for_reading, understood
from sweep.record.encoding import Trust, trust_in, untag

END = 2**63 - 1  # no event has this number
REPORT = '{"kind":"Reported"'  # how the text of a report begins


def events(
    db: sqlite3.Connection,
    patterns: Collection[str] = ("*",),
    *,
    after: int = 0,
    before: int = END,
    trial_ids: Collection[str] | None = None,
) -> Iterator[tuple[int, str | None, str]]:
    """Return number, trial and text of events, in order.

    Args:
        patterns: of SQLite's GLOB; only events whose text fits one of them.
        after, before: numbers of events. trial_ids: only what happened to these.
    """
    where = f"seq > ? AND seq < ? AND ({' OR '.join(['data GLOB ?'] * len(patterns))})"
    if trial_ids is not None:
        where = f"{where} AND trial_id IN ({', '.join('?' * len(trial_ids))})"
    values = (after, before, *patterns, *(trial_ids or ()))
    return db.execute(f"SELECT seq, trial_id, data FROM event WHERE {where} ORDER BY seq", values)


def read_facts(
    source: Path | sqlite3.Connection,
    *,
    after: int = 0,
    before: int = END,
    trial_id: str | None = None,
    kinds: Collection[type[Event]] | None = None,
    trust: Trust = True,
    with_results: bool = True,
) -> Generator[Fact, None, None]:
    """Yield what is recorded, in order. Of a file everything is of one state and is checked; of a connection the caller
    sees to both, and its transaction lasts until the iterator is exhausted or closed.

    Args:
        source: a `sweep.db`, or an open connection to one.
        after, before: numbers of events. trial_id: only what happened to this trial.
        kinds: only events of these classes.
        trust: load config values that were stored as pickles, as of `decode`.
        with_results: everything; otherwise no reports that caused just what a report usually does, and the others
            without their metrics.
    """
    patterns = ["*"] if kinds is None else [f'{{"kind":"{kind.__name__}"*' for kind in kinds]
    owners = None if trial_id is None else [trial_id]
    with ExitStack() as stack:
        if isinstance(source, Path):
            path, source = source, stack.enter_context(closing(open_for_reading(source)))
            stack.enter_context(understood(path))
        for seq, owner, text in events(source, patterns, after=after, before=before, trial_ids=owners):
            if not with_results and text.startswith(REPORT) and '"commands":' not in text:
                continue
            data, trusted = json.loads(text), trust_in(text, trust)
            commands = data.pop("commands", None)
            metrics = metrics_of(data, owner, trust=trust_in(text, False)) if with_results else None
            event = event_of(data, owner, metrics or {}, trust=trusted)
            caused = None if commands is None else untag(commands, trust=trusted)
            yield Fact(seq, data["at"], data["wall"], event, caused, metrics)


def plan_and_requests(db: sqlite3.Connection) -> tuple[Plan | None, tuple[Asked, ...]]:
    """Return what was asked of the sweep at its last start, and since (None: nothing was recorded yet); and all that
    persons have ever asked for, but for signals."""
    history, facts = History(), list(read_facts(db, kinds=[PlanChanged, Asked]))
    for fact in facts:
        history.happened(fact)
    asked = tuple(fact.event for fact in facts if isinstance(fact.event, Asked) and fact.event.detail)
    return (history.plan if facts else None), asked


def edits(db: sqlite3.Connection) -> dict[str, Any]:
    """Return the arguments of `sweep.run` that persons have changed since the last start."""
    changed: dict[str, Any] = {}
    for fact in read_facts(db, kinds=[PlanChanged, Asked]):
        match fact.event:
            case PlanChanged():
                changed.clear()
            case Asked(Ask.EDIT, _, detail):
                said = json.loads(detail)
                places = {"num_samples": said, "time_budget_s": said["plan"]}
                changed |= {name: place[name] for name, place in places.items() if name in place}
    return changed


@dataclass(frozen=True)
class Report:
    """A report as it is recorded; its metrics are read when they are asked for."""

    seq: int
    trial_id: str
    data: Mapping[str, Any] = field(repr=False)

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """What was reported and filled in, without the config; shared: for reading only."""
        return metrics_of(self.data, self.trial_id) or {}

    @property
    def attempt(self) -> int:
        """Which attempt of the trial made it."""
        return int(self.data["attempt"])

    @property
    def at(self) -> float:
        """When it was committed, in seconds of driving."""
        return float(self.data["at"])

    @property
    def wall(self) -> float:
        """When it was committed, in UTC epoch seconds."""
        return float(self.data["wall"])

    @property
    def checkpoint(self) -> CheckpointRef | None:
        """The checkpoint that came with it, or None."""
        return CheckpointRef.parse(self.data.get("checkpoint"))

    def get(self, metric: str) -> Any:
        """Return the value of a metric, a key or a path such as `eval/acc`; None: it has none."""
        value = value_of(self.data, metric)
        return value if type(value) in (float, int) else TrialResult(self.metrics).get(metric)


def reports_of(found: Mapping[int, tuple[str | None, str]]) -> dict[str, Report]:
    """Return reports, one of each trial, of what `checked_events` gives."""
    return {name: Report(seq, name, json.loads(text)) for seq, (name, text) in found.items() if name is not None}


def read_reports(
    db: sqlite3.Connection, *, trial_ids: Collection[str] | None = None, before: int = END
) -> Iterator[Report]:
    """Yield the results of a record, in order; the caller has them checked."""
    for seq, trial_id, text in events(db, [f"{REPORT}*"], before=before, trial_ids=trial_ids):
        data = json.loads(text)
        if trial_id is not None and "metrics" in data:
            yield Report(seq, trial_id, data)


def last_exit(source: Path | sqlite3.Connection, trial_id: str) -> Exit | None:
    """Return how the last attempt of a trial ended; None if none did, or if its `fit()` needed more: what became of
    that is in the trial's reason."""
    facts = read_facts(source, trial_id=trial_id, kinds=[Exited], trust=False)
    exits = [fact.event.exit for fact in facts if isinstance(fact.event, Exited)]
    return exits[-1] if exits and exits[-1].kind is not ExitKind.NEEDS_MORE else None
