"""Records that tests have changed by SQL: with the checksums that they would have, had a driver written them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sweep.record.checksums import Totals, crc_of, linked, total
from sweep.record.layout import MARK


def seal(db: sqlite3.Connection) -> None:
    """Give all rows their checksums."""
    crcs = []
    for table, columns in (("meta", "key, value"), ("trial", "number, trial_id, status, config, state")):
        for row in db.execute(f"SELECT {columns} FROM {table}").fetchall():
            crcs.append(crc_of(row))
            db.execute(f"UPDATE {table} SET crc = ? WHERE {columns.partition(',')[0]} = ?", (crcs[-1], row[0]))
    last = chain = 0
    rows = []
    for last, owner, data in db.execute("SELECT seq, trial_id, data FROM event ORDER BY seq").fetchall():
        chain = linked(last, owner, data, chain)
        rows.append((chain, last))
    db.executemany("UPDATE event SET crc = ? WHERE seq = ?", rows)
    Totals(last, chain, total(crcs)).write(db)


@contextmanager
def changed(database: Path) -> Iterator[sqlite3.Connection]:
    """Give a connection to a record that nobody drives; what is done by it looks as if it had been recorded so."""
    database.with_suffix(MARK).unlink(missing_ok=True)
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=DELETE")
        db.execute("BEGIN")
        yield db
        seal(db)
        db.execute("COMMIT")
