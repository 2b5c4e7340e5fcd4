"""The one reader of the recorded facts: what happened, in order, and what followed from it."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Generator
from contextlib import closing
from pathlib import Path

from sweep.core.history import Fact
from sweep.core.messages import Event
from sweep.record.access import open_for_reading, understood
from sweep.record.encoding import decode, decode_metrics
from sweep.record.records import decode_event
from sweep.record.schema import SEALED, version_of

END = 2**63 - 1  # no event has this number


def read_facts(
    source: Path | sqlite3.Connection,
    *,
    after: int = 0,
    before: int | None = None,
    trial_id: str | None = None,
    kinds: Collection[type[Event]] | None = None,
    trust: bool = True,
    with_arrays: bool = False,
    with_results: bool = True,
) -> Generator[Fact, None, None]:
    """Yield what is recorded, in order.

    Of a file everything is of one state and is checked. Of a connection the caller sees to both; its transaction lasts
    until the iterator is exhausted or closed.

    Args:
        source: a `sweep.db`, or an open connection to one.
        after: number of an event; only those after it.
        before: number of the first event that is left out.
        trial_id: only what happened to this trial.
        kinds: only events of these classes.
        trust: load config values that were stored as pickles.
        with_arrays: load of those only arrays of numpy, whose pickles run no code; where `trust` is false.
        with_results: everything; otherwise no reports that caused just what a report usually does, and the others
            without their metrics.
    """
    if isinstance(source, Path):
        with closing(open_for_reading(source)) as db, understood(source):
            yield from read_facts(
                db,
                after=after,
                before=before,
                trial_id=trial_id,
                kinds=kinds,
                trust=trust,
                with_arrays=with_arrays,
                with_results=with_results,
            )
        return
    where = "seq > ? AND seq < ?"
    values: list[int | str] = [after, END if before is None else before]
    if trial_id is not None:
        where, values = f"{where} AND trial_id = ?", [*values, trial_id]
    if kinds is not None:
        where, values = f"{where} AND kind IN ({', '.join('?' * len(kinds))})", [*values, *_names(kinds)]
    table, metrics = "event", "metrics" if with_results else "NULL"
    if not with_results:
        where += " AND (kind != 'Reported' OR commands IS NOT NULL)"
    elif version_of(source) < SEALED:
        table = "(SELECT * FROM event LEFT JOIN (SELECT seq, metrics FROM result) USING (seq))"
    for seq, at, wall, kind, owner, attempt, data, commands, text in source.execute(
        f"SELECT seq, at, wall, kind, trial_id, attempt, data, commands, {metrics} FROM {table}"
        f" WHERE {where} ORDER BY seq",
        values,
    ):
        found = None if text is None else decode_metrics(text)
        event = decode_event(kind, owner, attempt, data, found or {}, trust=trust, with_arrays=with_arrays)
        caused = None if commands is None else decode(commands, trust=trust, with_arrays=with_arrays)
        yield Fact(seq, at, wall, event, caused, found)


def _names(kinds: Collection[type[Event]]) -> list[str]:
    return [kind.__name__ for kind in kinds]
