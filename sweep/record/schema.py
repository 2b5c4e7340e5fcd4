"""The tables of `sweep.db`, version by version, and how to open it for reading.

`event` is the truth: append-only, one row per fact, with the commands that it caused. `trial` and `result` are what
readers want and what a resume loads; they are written in the same transactions. `event.at` and `result.at` are
seconds of driving; `wall` is UTC epoch seconds. JSON texts are those of `sweep.record.encoding`.

    meta    key -> JSON: name, prefix, created, version, python, trainable {name, kind}, import_path (`file.py:function`
            where it can be found again), metric, mode (metrics, modes: of several objectives), space, searcher,
            scheduler, constraints (metric -> the most that it may be), num_samples, num_trials, resources_per_trial,
            seed, storage_path, resume_command, are_log_files_complete, log_to_file, space_keys, variables (flattened
            config paths that vary; null: unknown), command, machine {host, system, cpu}, versions (of imports)
    event   kind is the class name of a message of `sweep.core.messages` (Suggested, Started, Reported ...); `data` its
            other fields; the metrics of a Reported are only in `result` (same seq)
    trial   one row per trial, its latest state; last_result and best_result are `result.seq`; those that wait come in
            the order of their tickets (since version 2); failure: class of the failure that its last attempt was;
            ran_s, running_since: seconds of driving (since version 3); grown: [what the trial itself asked for, whether
            `resources` are what another one needed], null where it holds what it asked for (since version 4);
            node_losses: how often in a row its node was gone (since version 5)
    result  one row per report, `metrics` as filled in (training_iteration, time_total_s, timestamp ...), without config
    label   only with trial_name_creator: the names it gave
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sweep.errors import ExperimentError, NoExperimentError
from sweep.record.opening import Reading, connect_for_reading

__all__ = ["APPLICATION_ID", "LABELS", "SCHEMA", "UPGRADES", "VERSION", "check_version", "open_for_reading"]

APPLICATION_ID = 0x53575031  # "SWP1"
VERSION = 5

SCHEMA = """
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

# What brings a file of version n to version n + 1; the first run that continues such an experiment does it.
UPGRADES = {
    1: "ALTER TABLE trial ADD COLUMN ticket INTEGER NOT NULL DEFAULT 0;",
    2: "ALTER TABLE trial ADD COLUMN failure TEXT NOT NULL DEFAULT '';"
    " ALTER TABLE trial ADD COLUMN ran_s REAL NOT NULL DEFAULT 0;"
    " ALTER TABLE trial ADD COLUMN running_since REAL;",
    3: "ALTER TABLE trial ADD COLUMN grown TEXT;",
    4: "ALTER TABLE trial ADD COLUMN node_losses INTEGER NOT NULL DEFAULT 0;",
}

LABELS = "CREATE TABLE IF NOT EXISTS label (trial_id TEXT PRIMARY KEY, name TEXT NOT NULL) WITHOUT ROWID"


def open_for_reading(database: Path) -> Reading:
    """Return a connection to a `sweep.db` that writes nothing, not even beside it; also while its driver writes.

    Raises:
        ExperimentError: there is none, it is damaged, or a newer version of this package wrote it.
    """
    if not database.is_file():
        raise NoExperimentError(
            f"there is no experiment at {database.parent}: no {database.name} in it. See `sweep ls`."
        )
    connection = connect_for_reading(database)
    check_version(connection, database)
    return connection


def check_version(connection: sqlite3.Connection, database: Path) -> int:
    """Return the version of a file; refuse one that is no `sweep.db`, is damaged, or is of a newer version."""
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.DatabaseError as error:
        raise ExperimentError(
            f"{database} cannot be read: {error}. Restore it from a copy; nothing was changed."
        ) from error
    if application != APPLICATION_ID:
        raise ExperimentError(f"{database} is not a sweep.db (application id {application:#x}).")
    if version > VERSION:
        raise ExperimentError(
            f"{database} has format {version}; this version of sweep knows {VERSION}. Install a newer sweep-engine."
        )
    return int(version)
