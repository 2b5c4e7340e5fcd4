"""The record as version 5 of its format had it: rows without checksums, which tests may change as they like."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from sweep.record.layout import MARK

SCHEMA_5 = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE event (
    seq INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    wall REAL NOT NULL,
    kind TEXT NOT NULL,
    trial_id TEXT,
    attempt INTEGER,
    data TEXT,
    commands TEXT
);
CREATE TABLE trial (
    trial_id TEXT PRIMARY KEY,
    number INTEGER NOT NULL UNIQUE,
    status TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    config TEXT NOT NULL,
    resources TEXT NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0,
    losses INTEGER NOT NULL DEFAULT 0,
    next_status TEXT,
    pending TEXT,
    placement TEXT,
    checkpoint TEXT,
    started_from TEXT,
    count INTEGER NOT NULL DEFAULT 0,
    judged_to INTEGER NOT NULL DEFAULT 0,
    is_saved INTEGER NOT NULL DEFAULT 0,
    is_by_person INTEGER NOT NULL DEFAULT 0,
    last_result INTEGER,
    best_result INTEGER,
    ticket INTEGER NOT NULL DEFAULT 0,
    failure TEXT NOT NULL DEFAULT '',
    ran_s REAL NOT NULL DEFAULT 0,
    running_since REAL,
    grown TEXT,
    node_losses INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE result (
    seq INTEGER PRIMARY KEY,
    trial_id TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    at REAL NOT NULL,
    wall REAL NOT NULL,
    checkpoint TEXT,
    metrics TEXT NOT NULL
);
"""
LABELS_5 = "CREATE TABLE IF NOT EXISTS label (trial_id TEXT PRIMARY KEY, name TEXT NOT NULL) WITHOUT ROWID"


def as_version_5(database: Path) -> None:
    """Turn a record of today into one of version 5 that says the same; one of an older version stays as it is."""
    with closing(sqlite3.connect(database)) as db:
        if db.execute("PRAGMA user_version").fetchone()[0] < 6:
            return
    database.with_suffix(MARK).unlink(missing_ok=True)
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=DELETE")
        db.execute("BEGIN")
        made = {}
        for table in ("meta", "label", "event", "trial", "result"):
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            kept = [name for name in columns if name not in ("seal", "as_of") and (table, name) != ("event", "metrics")]
            made[table] = kept, db.execute(f"SELECT {', '.join(kept)} FROM {table}").fetchall()
        for kind in ("view", "table"):
            for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = ?", (kind,)).fetchall():
                db.execute(f"DROP {kind} {name}")
        for statement in f"{SCHEMA_5};{LABELS_5}".split(";"):
            db.execute(statement)
        for table, (kept, rows) in made.items():
            marks = ", ".join("?" * len(kept))
            db.executemany(f"INSERT INTO {table} ({', '.join(kept)}) VALUES ({marks})", rows)
        db.execute("PRAGMA user_version=5")
        db.execute("COMMIT")


def connect(database: Path) -> sqlite3.Connection:
    """Return a connection to a record that is of version 5 from now on."""
    as_version_5(database)
    return sqlite3.connect(database)
