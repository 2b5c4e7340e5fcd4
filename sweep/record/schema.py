"""The tables of `sweep.db`, version by version, and how to open it for reading.

Events are the truth: append-only, numbered 1, 2, 3 ... without a gap, one row per fact, with the commands that it
caused. A report is a row of `report`, every other event one of `fact`; whoever opens the file reads both as `event`,
and the reports with all that was filled in as `result`. `trial` is what readers want and what a resume loads. `at` is
seconds of driving, `wall` UTC epoch seconds. JSON texts are those of `sweep.record.encoding`.

    meta    key -> JSON: name, prefix, created, version, python, trainable {name, kind}, import_path (`file.py:function`
            where it can be found again), metric, mode (metrics, modes: of several objectives), space (for people),
            domains (the space, by `searchers.space.to_json`), searcher, scheduler, constraints (metric -> the most that
            it may be), num_samples, num_repeats, num_trials, resources_per_trial, seed, storage_path, resume_command,
            are_log_files_complete, log_to_file, space_keys, variables (flattened config paths that vary; null:
            unknown), command, machine {host, system, cpu}, versions (of imports)
    fact    kind is the class name of a message of `sweep.core.messages` (Suggested, Started, Exited ...); `data` its
            other fields
    report  number: of the attempt's reports; trial: its number; metrics: what the trial reported. What was filled in
            stands in columns (`time_this_iter_s` and `time_total_s` as JSON has them) and in `host`; where it does not
            follow the usual form, `metrics` has all of it and `this_s` is null. effect: what it did to its trial, bits:
            1 it was judged, 2 it is the best so far
    trial   one row per trial, its latest state; last_result and best_result are numbers of reports; those that wait
            come in the order of their tickets (since version 2); failure: class of the failure that its last attempt
            was; ran_s, running_since: seconds of driving (since version 3); grown: [what the trial itself asked for,
            whether `resources` are what another one needed], null where it holds what it asked for (since version 4);
            node_losses: how often in a row its node was gone (since version 5). as_of: number of the event up to which
            the row holds; reports of a running trial that came later are added by whoever reads (`sweep.record.tail`)
    label   the names that trial_name_creator gave
    tally   one row. checksum: over the rows of meta, label, host and trial, whatever page they are on; last: number of
            the last event when this row was written; progress: up to which event the reports are in all rows of `trial`

Since version 6 events are stored once, and each row has a checksum: see `sweep.record.seals`. Before, reports were rows
of both tables `event` and `result`. Since version 7 `tally` has the checksum; before, it counted rows.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sweep.errors import ExperimentError

APPLICATION_ID = 0x53575031  # "SWP1"
VERSION = 7
SEALED = 6  # since this version events are stored once, and rows have checksums

_TRIAL = """
CREATE TABLE trial (
    trial_id TEXT PRIMARY KEY,
    number INTEGER NOT NULL UNIQUE,
    status TEXT NOT NULL,
    reason TEXT NOT NULL,
    config TEXT NOT NULL,
    resources TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    losses INTEGER NOT NULL,
    next_status TEXT,
    pending TEXT,
    placement TEXT,
    checkpoint TEXT,
    started_from TEXT,
    count INTEGER NOT NULL,
    judged_to INTEGER NOT NULL,
    is_saved INTEGER NOT NULL,
    is_by_person INTEGER NOT NULL,
    last_result INTEGER,
    best_result INTEGER,
    ticket INTEGER NOT NULL,
    failure TEXT NOT NULL,
    ran_s REAL NOT NULL,
    running_since REAL,
    grown TEXT,
    node_losses INTEGER NOT NULL,
    as_of INTEGER NOT NULL,
    seal INTEGER NOT NULL
) WITHOUT ROWID;
"""

_EVENTS = """
CREATE TABLE fact (
    seq INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    wall REAL NOT NULL,
    kind TEXT NOT NULL,
    trial_id TEXT,
    attempt INTEGER,
    data TEXT,
    commands TEXT,
    chain INTEGER NOT NULL
);
CREATE TABLE host (id INTEGER PRIMARY KEY, hostname TEXT NOT NULL, node_ip TEXT, seal INTEGER NOT NULL);
CREATE TABLE report (
    seq INTEGER PRIMARY KEY,
    trial INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    number INTEGER NOT NULL,
    at REAL NOT NULL,
    wall REAL NOT NULL,
    metrics TEXT NOT NULL,
    checkpoint TEXT,
    verdict TEXT,
    commands TEXT,
    iteration INTEGER,
    timestamp INTEGER,
    pid INTEGER,
    host INTEGER,
    this_s TEXT,
    total_s TEXT,
    since_s TEXT,
    done INTEGER,
    effect INTEGER NOT NULL,
    chain INTEGER NOT NULL
);
"""

# The metrics of a report with all that was filled in, in its order: r is of `report`, t of `trial`, h of `host`.
FILLED = """CASE WHEN r.this_s IS NULL THEN r.metrics ELSE
    substr(r.metrics, 1, length(r.metrics) - 1) || CASE r.metrics WHEN '{}' THEN '' ELSE ',' END
    || '"timestamp":' || r.timestamp || ',"time_this_iter_s":' || r.this_s || ',"pid":' || r.pid
    || ',"hostname":' || json_quote(h.hostname)
    || CASE WHEN h.node_ip IS NULL THEN '' ELSE ',"node_ip":' || json_quote(h.node_ip) END
    || ',"training_iteration":' || r.iteration || ',"time_total_s":' || r.total_s
    || ',"trial_id":"' || t.trial_id || '","time_since_restore":' || coalesce(r.since_s, r.total_s)
    || ',"iterations_since_restore":' || r.number
    || CASE WHEN r.done IS NULL THEN '' ELSE ',"done":false' END || '}' END"""

_VIEWS = f"""
CREATE VIEW result AS
    SELECT r.seq, t.trial_id, r.attempt, r.at, r.wall, r.checkpoint, {FILLED} AS metrics
    FROM report r JOIN trial t ON t.number = r.trial LEFT JOIN host h ON h.id = r.host;
CREATE VIEW event AS
    SELECT seq, at, wall, kind, trial_id, attempt, data, commands, NULL AS metrics FROM fact
    UNION ALL
    SELECT r.seq, r.at, r.wall, 'Reported', t.trial_id, r.attempt,
        CASE WHEN r.checkpoint IS NULL AND r.verdict IS NULL THEN CAST(r.number AS TEXT)
        ELSE json_array(r.number, r.checkpoint, coalesce(r.verdict, '')) END,
        r.commands, {FILLED}
    FROM report r JOIN trial t ON t.number = r.trial LEFT JOIN host h ON h.id = r.host;
"""

_OTHERS = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, seal INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE label (trial_id TEXT PRIMARY KEY, name TEXT NOT NULL, seal INTEGER NOT NULL) WITHOUT ROWID;
"""
_TALLY = """
CREATE TABLE tally (
    id INTEGER PRIMARY KEY,
    checksum INTEGER NOT NULL,
    last INTEGER NOT NULL,
    progress INTEGER NOT NULL,
    seal INTEGER NOT NULL
);
"""

SCHEMA = _OTHERS + _TALLY + _TRIAL + _EVENTS + _VIEWS

# What brings a file of version n to version n + 1; the first run that continues such an experiment does it, and then
# gives all rows their checksums.
UPGRADES = {
    1: "ALTER TABLE trial ADD COLUMN ticket INTEGER NOT NULL DEFAULT 0;",
    2: "ALTER TABLE trial ADD COLUMN failure TEXT NOT NULL DEFAULT '';"
    " ALTER TABLE trial ADD COLUMN ran_s REAL NOT NULL DEFAULT 0;"
    " ALTER TABLE trial ADD COLUMN running_since REAL;",
    3: "ALTER TABLE trial ADD COLUMN grown TEXT;",
    4: "ALTER TABLE trial ADD COLUMN node_losses INTEGER NOT NULL DEFAULT 0;",
    5: f"""
CREATE TABLE IF NOT EXISTS label (trial_id TEXT PRIMARY KEY, name TEXT NOT NULL) WITHOUT ROWID;
ALTER TABLE event RENAME TO old_event;
ALTER TABLE result RENAME TO old_result;
ALTER TABLE trial RENAME TO old_trial;
ALTER TABLE meta RENAME TO old_meta;
ALTER TABLE label RENAME TO old_label;
{SCHEMA}
INSERT INTO meta SELECT key, value, 0 FROM old_meta;
INSERT INTO label SELECT trial_id, name, 0 FROM old_label;
INSERT INTO trial SELECT trial_id, number, status, reason, config, resources, attempt, failures, losses, next_status,
    pending, placement, checkpoint, started_from, count, judged_to, is_saved, is_by_person, last_result, best_result,
    ticket, failure, ran_s, running_since, grown, node_losses,
    (SELECT coalesce(max(seq), 0) FROM old_event), 0 FROM old_trial;
INSERT INTO report SELECT r.seq, t.number, r.attempt,
    CASE json_type(e.data) WHEN 'array' THEN json_extract(e.data, '$[0]') ELSE coalesce(CAST(e.data AS INTEGER), 0) END,
    e.at, e.wall, r.metrics, r.checkpoint,
    CASE json_type(e.data) WHEN 'array' THEN nullif(json_extract(e.data, '$[2]'), '') END, e.commands,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0
    FROM old_result r JOIN old_event e ON e.seq = r.seq JOIN old_trial t ON t.trial_id = r.trial_id ORDER BY r.seq;
INSERT INTO fact SELECT seq, at, wall, kind, trial_id, attempt, data, commands, 0 FROM old_event
    WHERE seq NOT IN (SELECT seq FROM report) ORDER BY seq;
DROP TABLE old_event;
DROP TABLE old_result;
DROP TABLE old_trial;
DROP TABLE old_meta;
DROP TABLE old_label;
""",
    6: f"DROP TABLE tally; {_TALLY}",
}


def version_of(connection: sqlite3.Connection) -> int:
    """Return the version of a record's format."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def last_seq(connection: sqlite3.Connection) -> int:
    """Return the number of the last event; 0 before the first."""
    tables = ("fact", "report") if version_of(connection) >= SEALED else ("event",)
    found = (connection.execute(f"SELECT max(seq) FROM {table}").fetchone()[0] for table in tables)
    return max((seq or 0 for seq in found), default=0)


def last_event(connection: sqlite3.Connection) -> tuple[int, float, float] | None:
    """Return number, `at` and `wall` of the last event; None before the first."""
    found: tuple[int, float, float] | None = connection.execute(
        "SELECT seq, at, wall FROM event WHERE seq = ?", (last_seq(connection),)
    ).fetchone()
    return found


def check_version(connection: sqlite3.Connection, database: Path) -> int:
    """Return the version of a file; refuse one that is no `sweep.db`, is damaged, or is of a newer version."""
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        version = version_of(connection)
        (num_columns,) = connection.execute("SELECT count(*) FROM pragma_table_info('tally')").fetchone()
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
    if num_columns != (0 if version < SEALED else 7 if version == SEALED else 5):
        raise ExperimentError(f"{database} is damaged: it says that it has format {version}, and it has not.")
    return version
