"""The tables of `sweep.db`: what is stored of a sweep, and which records this version reads.

Events are the truth: append-only, numbered 1, 2, 3 ... without a gap, one row per fact, with the commands that it
caused. `trial` has the latest state of each trial: what readers want and what a resume loads. JSON texts are those of
`sweep.record.codec`; `crc` is a checksum: see `sweep.record.seals`.

    meta    key -> JSON: name, prefix, created, version, python, trainable {name, kind}, import_path (`file.py:function`
            where it can be found again), metric, mode (metrics, modes: of several objectives), space (for people),
            domains (the space, by `searchers.space.to_json`), searcher, scheduler, constraints (metric -> the most that
            it may be), num_samples, num_repeats, num_trials, resources_per_trial, seed, storage_path, resume_command,
            are_log_files_complete, log_to_file, space_keys, variables (flattened config paths that vary; null:
            unknown), command, machine {host, system, cpu}, versions (of imports)
    event   trial_id: null where it concerns no single trial
    trial   config: number of the event that gave the trial its config; null where none did yet: `state` has it
    tally   one row: number and checksum of the last event, and a checksum over all rows of `meta` and `trial`

Whoever opens the file with SQLite reads what happened as `events`, reports with all that was filled in as `result`, and
trials with their configs as `trials`.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from sweep.errors import ExperimentError

APPLICATION_ID = 0x53575031  # "SWP1"
VERSION = 1

SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE event (
    seq INTEGER PRIMARY KEY,
    trial_id TEXT,
    data TEXT NOT NULL,
    crc INTEGER NOT NULL
);
CREATE TABLE trial (
    number INTEGER PRIMARY KEY,
    trial_id TEXT NOT NULL,
    status TEXT NOT NULL,
    config INTEGER,
    state TEXT NOT NULL,
    crc INTEGER NOT NULL
);
CREATE TABLE tally (
    id INTEGER PRIMARY KEY,
    last INTEGER NOT NULL,
    chain INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    crc INTEGER NOT NULL
);
CREATE VIEW events AS
    SELECT seq, trial_id, json_extract(data, '$.kind') AS kind, json_extract(data, '$.at') AS at,
        json_extract(data, '$.wall') AS wall, json_extract(data, '$.attempt') AS attempt,
        json_extract(data, '$.commands') AS commands, data
    FROM event;
CREATE VIEW result AS
    SELECT seq, trial_id, attempt, at, wall, json_extract(data, '$.checkpoint') AS checkpoint,
        CASE WHEN json_type(data, '$.filled') IS NULL THEN json_extract(data, '$.metrics')
        ELSE json_patch(json_extract(data, '$.metrics'), json_object(
            'timestamp', coalesce(json_extract(data, '$.filled[0]'), CAST(wall AS INTEGER)),
            'time_this_iter_s', json_extract(data, '$.filled[1]'),
            'pid', json_extract(data, '$.filled[2]'),
            'hostname', json_extract(data, '$.filled[3]'),
            'node_ip', json_extract(data, '$.filled[8]'),
            'training_iteration', json_extract(data, '$.filled[4]'),
            'time_total_s', json_extract(data, '$.filled[5]'),
            'trial_id', trial_id,
            'time_since_restore', coalesce(json_extract(data, '$.filled[6]'), json_extract(data, '$.filled[5]')),
            'iterations_since_restore', coalesce(json_extract(data, '$.filled[7]'), json_extract(data, '$.seq')),
            'done', json('false')
        )) END AS metrics
    FROM events WHERE kind = 'Reported' AND json_type(data, '$.metrics') IS NOT NULL;
CREATE VIEW trials AS
    SELECT t.number, t.trial_id, t.status, coalesce(json_extract(t.state, '$.reason'), '') AS reason,
        coalesce(json_extract(e.data, '$.config'), json_extract(t.state, '$.config'), (
            SELECT json_extract(value, '$[4]') FROM json_each(e.data, '$.commands')
            WHERE json_extract(value, '$[0]') = 'Start' AND json_extract(value, '$[1]') = t.trial_id
        )) AS config,
        json_extract(t.state, '$.resources') AS resources,
        coalesce(json_extract(t.state, '$.attempt'), 0) AS attempt,
        coalesce(json_extract(t.state, '$.failures'), 0) AS failures,
        coalesce(json_extract(t.state, '$.count'), 0) AS count,
        json_extract(t.state, '$.checkpoint[0]') AS checkpoint,
        json_extract(t.state, '$.last_result') AS last_result,
        json_extract(t.state, '$.best_result') AS best_result
    FROM trial t LEFT JOIN event e ON e.seq = t.config;
"""


def last_seq(connection: sqlite3.Connection) -> int:
    """Return the number of the last event; 0 before the first."""
    (seq,) = connection.execute("SELECT max(seq) FROM event").fetchone()
    return seq or 0


def last_event(connection: sqlite3.Connection) -> tuple[int, float, float] | None:
    """Return number, `at` and `wall` of the last event; None before the first."""
    row = connection.execute("SELECT seq, data FROM event ORDER BY seq DESC LIMIT 1").fetchone()
    if row is None:
        return None
    data = json.loads(row[1])
    return row[0], data["at"], data["wall"]


def check_version(connection: sqlite3.Connection, database: Path) -> None:
    """Refuse a file that is no `sweep.db`, is damaged, or is of another version.

    Raises:
        ExperimentError: says so.
    """
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        is_former = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'report' OR sql LIKE ?", (_FORMER,))
        has_former_tables = is_former.fetchone() is not None
    except sqlite3.DatabaseError as error:
        raise ExperimentError(
            f"{database} cannot be read: {error}. Restore it from a copy; nothing was changed."
        ) from error
    if application != APPLICATION_ID:
        raise ExperimentError(f"{database} is not a sweep.db (application id {application:#x}).")
    if has_former_tables:
        raise ExperimentError(
            f"{database} was written by a development version of sweep and cannot be read; run the sweep again, or "
            "read it with the version that wrote it."
        )
    if version != VERSION:
        raise ExperimentError(
            f"{database} has format {version}; this version of sweep knows {VERSION}. Install a newer sweep-engine."
        )


_FORMER = "CREATE TABLE event%kind TEXT NOT NULL%"  # before events were one text each
