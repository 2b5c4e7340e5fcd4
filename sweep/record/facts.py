"""The one reader of the recorded facts: what happened, in order, and what followed from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.core.messages import Event
from sweep.record.access import open_for_reading, understood
from sweep.record.encoding import decode, decode_metrics
from sweep.record.records import decode_event
from sweep.record.schema import SEALED, version_of

END = 2**63 - 1  # no event has this number


@dataclass(frozen=True, slots=True)
class Fact:
    """One row of the record: an event, what it caused (None: the usual), and the metrics as filled in."""

    seq: int
    at: float
    event: Event
    caused: list[list[Any]] | None
    metrics: dict[str, Any] | None


def read_facts(
    database: Path, *, trust: bool = True, with_results: bool = True, before: int | None = None
) -> Iterator[Fact]:
    """Yield the whole record in order.

    Args:
        before: number of the first event that is left out.
        trust: load config values that were stored as pickles.
        with_results: everything; otherwise only what a searcher hears that listens to no intermediate results: its
            suggestions and the ends of trials; and the machines there were.
    """
    with closing(open_for_reading(database)) as db, understood(database):
        if with_results:
            with_metrics = "event"
            if version_of(db) < SEALED:
                with_metrics = "(SELECT * FROM event LEFT JOIN (SELECT seq, metrics FROM result) USING (seq))"
            query = (
                "SELECT seq, at, kind, trial_id, attempt, data, commands, metrics"
                f" FROM {with_metrics} WHERE seq < ? ORDER BY seq"
            )
        else:
            query = (
                "SELECT seq, at, kind, trial_id, attempt,"
                " CASE WHEN kind IN ('Suggested', 'NodesChanged') THEN data END, commands, NULL"
                " FROM event WHERE seq < ? AND (kind IN ('Suggested', 'NodesChanged')"
                " OR commands LIKE '%\"trial_complete\"%' OR commands LIKE '%\"trial_error\"%') ORDER BY seq"
            )
        for seq, at, kind, trial_id, attempt, data, commands, metrics in db.execute(
            query, (END if before is None else before,)
        ):
            values = decode_metrics(metrics) if metrics is not None else None
            if not with_results and kind not in ("Suggested", "NodesChanged"):
                kind, data = "Tick", None  # only what it caused matters
            event = decode_event(kind, trial_id, attempt, data, values or {}, trust=trust)
            yield Fact(seq, at, event, decode(commands) if commands is not None else None, values)
