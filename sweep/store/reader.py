"""Read `sweep.db` of a running, crashed or finished experiment, without running any of its code."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from searchers.errors import nearest
from sweep.core.resources import Placement, Resources
from sweep.core.results import AUTO_FILLED, flatten
from sweep.core.trial import CheckpointRef, Status, shown_status
from sweep.errors import ConfigError, ExperimentError
from sweep.store.encoding import decode
from sweep.store.layout import ExperimentLayout, storage_root
from sweep.store.schema import open_for_reading

__all__ = ["ExperimentReader", "ResultRow", "Timeline", "TrialRow", "find_experiment", "list_experiments"]

_UNENDED = ("PENDING", "RUNNING", "PAUSED")


@dataclass(frozen=True)
class TrialRow:
    """One row of the trial table with its last result; JSON is decoded when it is asked for.

    Attributes:
        status: as users see it: PENDING, RUNNING, PAUSED, TERMINATED or ERROR.
        reason: why it waits, or why it ended.
        count: reports so far.
        last_seq, best_seq: keys of its last and best result; None before the first.
    """

    trial_id: str
    number: int
    status: str
    reason: str
    attempt: int
    failures: int
    losses: int
    count: int
    last_seq: int | None
    best_seq: int | None
    config_text: str = field(repr=False)
    resources_text: str = field(repr=False)
    placement_text: str | None = field(repr=False)
    checkpoint_text: str | None = field(repr=False)
    last_text: str | None = field(repr=False)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The decided config, shared by all who ask: for reading only."""
        return self.fresh_config()

    @cached_property
    def last_metrics(self) -> dict[str, Any] | None:
        """The last report as filled in, without the config; None before the first. Shared: for reading only."""
        return self.fresh_metrics()

    def fresh_config(self) -> dict[str, Any]:
        """Return the config as an object of its own, for users to change; what was stored as a pickle prints like the
        value but is not loaded."""
        config = decode(self.config_text)
        return config if isinstance(config, dict) else {}

    def fresh_metrics(self) -> dict[str, Any] | None:
        """Return `last_metrics` as an object of its own."""
        return None if self.last_text is None else decode(self.last_text)

    @cached_property
    def resources(self) -> Resources:
        """What the trial asks for."""
        return Resources.from_json(json.loads(self.resources_text))

    @cached_property
    def placement(self) -> Placement | None:
        """What the trial holds now, or None."""
        data = None if self.placement_text is None else json.loads(self.placement_text)
        return None if data is None else Placement.from_json(data)

    @cached_property
    def checkpoint(self) -> CheckpointRef | None:
        """Its latest checkpoint, or None."""
        return checkpoint_ref(self.checkpoint_text)

    @property
    def is_ended(self) -> bool:
        """Whether it is TERMINATED or ERROR."""
        return self.status not in _UNENDED


@dataclass(frozen=True, slots=True)
class Timeline:
    """When things happened to a trial (UTC epoch seconds, None: not yet) and how its last attempt ended.

    Attributes:
        peak_rss_bytes: the largest of all its attempts; 0 when unknown.
        exit_kind: a word of `ExitKind`; empty before the first exit.
    """

    created: float | None = None
    started: float | None = None
    exited: float | None = None
    pid: int = 0
    peak_rss_bytes: int = 0
    exit_kind: str = ""
    error: str = ""
    class_name: str = ""
    signal: int = 0


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One report: `at` in seconds of driving, `wall` in UTC epoch seconds, `metrics` as filled in, without config."""

    seq: int
    trial_id: str
    attempt: int
    at: float
    wall: float
    checkpoint: CheckpointRef | None
    metrics: dict[str, Any]


@dataclass(frozen=True)
class Snapshot:
    """The trials as of event number `seq`, ordered by number."""

    seq: int
    meta: Mapping[str, Any]
    trials: tuple[TrialRow, ...]

    @cached_property
    def by_id(self) -> dict[str, TrialRow]:
        """The same trials by id."""
        return {trial.trial_id: trial for trial in self.trials}


class ExperimentReader:
    """Read one experiment, also while its driver writes; every call sees what is committed by then.

    No connection is kept open, so a reader can be pickled, shared by threads and left lying around.

    Args:
        directory: of the experiment, or its `sweep.db`.

    Raises:
        ExperimentError: there is no experiment, it is damaged, or a newer version wrote it.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        root = Path(directory).expanduser().absolute()
        if root.name == "sweep.db":
            root = root.parent
        self.layout = ExperimentLayout(root)
        self._snapshot: Snapshot | None = None
        with self.connect():
            pass

    def __repr__(self) -> str:
        return f"ExperimentReader({str(self.root)!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {"layout": self.layout, "_snapshot": None}

    @property
    def root(self) -> Path:
        """Directory of the experiment."""
        return self.layout.root

    @property
    def name(self) -> str:
        """The experiment's name."""
        return str(self.meta.get("name") or self.root.name)

    @contextmanager
    def connect(self) -> Iterator[sqlite3.Connection]:
        """Give a read-only connection inside one transaction: all its queries see the same state.

        Raises:
            ExperimentError: the file is gone or damaged.
        """
        connection = open_for_reading(self.layout.database)
        try:
            connection.execute("BEGIN")
            yield connection
        except sqlite3.DatabaseError as error:
            raise ExperimentError(f"{self.layout.database} cannot be read: {error}.") from error
        finally:
            connection.close()

    @property
    def meta(self) -> Mapping[str, Any]:
        """What is recorded of the experiment as a whole; keys as in `sweep.store.schema`."""
        return self.snapshot().meta

    @property
    def metric(self) -> str | None:
        """The metric that was optimised (the first of several), or None."""
        return _first(self.meta.get("metric"))

    @property
    def mode(self) -> str | None:
        """`min`, `max`, or None."""
        return _first(self.meta.get("mode"))

    def snapshot(self) -> Snapshot:
        """Return all trials; the work is done once per state of the record."""
        with self.connect() as connection:
            (seq,) = connection.execute("SELECT coalesce(max(seq), 0) FROM event").fetchone()
            known = self._snapshot
            if known is not None and known.seq == seq:
                return known
            meta = {key: decode(value) for key, value in connection.execute("SELECT key, value FROM meta")}
            rows = connection.execute(
                "SELECT t.trial_id, t.number, t.status, t.reason, t.attempt, t.failures, t.losses, t.count,"
                " t.last_result, t.best_result, t.config, t.resources, t.placement, t.checkpoint, r.metrics"
                " FROM trial t LEFT JOIN result r ON r.seq = t.last_result ORDER BY t.number"
            )
            shown = {status.value: shown_status(status) for status in Status}
            trials = tuple(TrialRow(row[0], row[1], shown.get(row[2], row[2]), *row[3:]) for row in rows)
        self._snapshot = Snapshot(seq, meta, trials)
        return self._snapshot

    def trials(self) -> tuple[TrialRow, ...]:
        """Return all trials, ordered by number."""
        return self.snapshot().trials

    def trial(self, text: str | int) -> TrialRow:
        """Return the trial that `text` names: its id, or its number alone (`42`, `00042`).

        Raises:
            ConfigError: there is none.
        """
        snapshot = self.snapshot()
        found = snapshot.by_id.get(str(text))
        if found is not None:
            return found
        wanted = str(text).strip()
        if wanted.isascii() and wanted.isdigit():
            for trial in snapshot.trials:
                if trial.number == int(wanted):
                    return trial
        if not snapshot.trials:
            raise ConfigError(f"{self.name} has no trials yet, so there is no {wanted!r}.")
        raise ConfigError(
            f"no trial {wanted!r} in {self.name}; expected an id such as {snapshot.trials[0].trial_id}, or a number "
            f"from {snapshot.trials[0].number} to {snapshot.trials[-1].number}. See `sweep trials {self.name}`."
        )

    def timelines(self, trial_id: str | None = None) -> dict[str, Timeline]:
        """Return when each trial, or only the named one, was created, started and left, by trial id."""
        which, values = ("trial_id IS NOT NULL", ()) if trial_id is None else ("trial_id = ?", (trial_id,))
        created: dict[str, float] = {}
        started: dict[str, float] = {}
        pids: dict[str, int] = {}
        exits: dict[str, tuple[Any, ...]] = {}
        peaks: dict[str, int] = {}
        with self.connect() as connection:
            for kind, owner, wall, pid in connection.execute(
                "SELECT kind, trial_id, wall, CASE kind WHEN 'Started' THEN json_extract(data, '$.pid') END"
                f" FROM event WHERE kind IN ('Suggested', 'Started') AND {which} ORDER BY seq",
                values,
            ):
                if kind == "Suggested":
                    created[owner] = wall
                else:
                    started.setdefault(owner, wall)
                    pids[owner] = pid or 0
            for row in connection.execute(
                "SELECT trial_id, wall, json_extract(data, '$.exit.peak_rss_bytes'), json_extract(data, '$.exit.kind'),"
                " json_extract(data, '$.exit.error'), json_extract(data, '$.exit.class_name'),"
                " json_extract(data, '$.exit.signal')"
                f" FROM event WHERE kind = 'Exited' AND {which} ORDER BY seq",
                values,
            ):
                exits[row[0]] = row
                peaks[row[0]] = max(peaks.get(row[0], 0), row[2] or 0)
        found: dict[str, Timeline] = {}
        for owner in created.keys() | started.keys() | exits.keys():
            row = exits.get(owner, (owner, None, 0, "", "", "", 0))
            found[owner] = Timeline(
                created.get(owner),
                started.get(owner),
                row[1],
                pids.get(owner, 0),
                peaks.get(owner, 0),
                row[3] or "",
                row[4] or "",
                row[5] or "",
                row[6] or 0,
            )
        return found

    def last_exit(self, trial_id: str) -> dict[str, Any]:
        """Return how the trial's last attempt ended (kind, error, traceback, class_name, signal); {} if none did."""
        with self.connect() as connection:
            row = connection.execute(
                "SELECT json_remove(json_extract(data, '$.exit'), '$.pickled') FROM event"
                " WHERE kind = 'Exited' AND trial_id = ? ORDER BY seq DESC LIMIT 1",
                (trial_id,),
            ).fetchone()
        return {} if row is None or row[0] is None else dict(json.loads(row[0]))

    def results(self, trial_id: str | None = None) -> Iterator[ResultRow]:
        """Give the reports of one trial, or of all, in the order in which they were committed."""
        where, values = ("", ()) if trial_id is None else (" WHERE trial_id = ?", (trial_id,))
        with self.connect() as connection:
            for seq, owner, attempt, at, wall, checkpoint, metrics in connection.execute(
                f"SELECT seq, trial_id, attempt, at, wall, checkpoint, metrics FROM result{where} ORDER BY seq", values
            ):
                yield ResultRow(seq, owner, attempt, at, wall, checkpoint_ref(checkpoint), decode(metrics))

    def metrics_at(self, seqs: Mapping[str, int]) -> dict[str, dict[str, Any]]:
        """Return the metrics of one chosen report per trial: `seqs` maps trial id to `result.seq`."""
        with self.connect() as connection:
            found: dict[str, dict[str, Any]] = {}
            for trial_id, seq in seqs.items():
                row = connection.execute("SELECT metrics FROM result WHERE seq = ?", (seq,)).fetchone()
                if row is not None:
                    found[trial_id] = decode(row[0])
        return found

    def values(self, metric: str, *, last_only: bool = False) -> Iterator[tuple[str, int, float]]:
        """Give (trial id, `result.seq`, value) of every report that has a number under `metric`, oldest first.

        Args:
            metric: a key, or a path such as `eval/acc`; booleans count as 0 and 1, NaN and infinities are given too.
            last_only: only the last report of each trial, ordered by the trial's number.
        """
        source = (
            "trial t JOIN result r ON r.seq = t.last_result ORDER BY t.number" if last_only else "result r ORDER BY seq"
        )
        if '"' in metric or "\\" in metric or not metric:  # no JSON path says these
            with self.connect() as connection:
                for trial_id, seq, text in connection.execute(f"SELECT r.trial_id, r.seq, r.metrics FROM {source}"):
                    number = _number(decode(text).get(metric))
                    if number is not None:
                        yield trial_id, seq, number
            return
        nested = "$" + "".join(f'."{part}"' for part in metric.split("/"))
        with self.connect() as connection:
            for trial_id, seq, value in connection.execute(
                "SELECT r.trial_id, r.seq, coalesce(json_extract(r.metrics, ?), json_extract(r.metrics, ?))"
                f" FROM {source}",
                (f'$."{metric}"', nested),
            ):
                number = _number(value)
                if number is not None:
                    yield trial_id, seq, number

    def metric_names(self) -> list[str]:
        """Return the names of the numbers in the trials' last reports, for error messages."""
        names: dict[str, None] = {}
        for trial in self.trials():
            for key, value in flatten(trial.last_metrics or {}).items():
                if key not in AUTO_FILLED and isinstance(value, (int, float)):
                    names[key] = None
        return list(names)

    def checkpoints(self, trial_id: str) -> list[tuple[CheckpointRef, dict[str, Any]]]:
        """Return the checkpoints of a trial that still exist, oldest first, each with the metrics it was taken at."""
        found: dict[str, tuple[CheckpointRef, dict[str, Any]]] = {}
        with self.connect() as connection:
            saved = connection.execute(
                "SELECT seq, json_extract(data, '$.checkpoint') FROM event"
                " WHERE kind = 'Saved' AND trial_id = ? ORDER BY seq",
                (trial_id,),
            ).fetchall()
        pending = list(reversed(saved))
        metrics: dict[str, Any] = {}
        for row in self.results(trial_id):
            while pending and pending[-1][0] < row.seq:
                _keep(found, checkpoint_ref(pending.pop()[1]), metrics)
            metrics = row.metrics
            _keep(found, row.checkpoint, metrics)
        while pending:
            _keep(found, checkpoint_ref(pending.pop()[1]), metrics)
        latest = self.snapshot().by_id[trial_id].checkpoint
        if latest is not None and latest.path not in found:
            _keep(found, latest, metrics)
        return [pair for path, pair in found.items() if (self.root / path).is_dir()]


def _keep(
    found: dict[str, tuple[CheckpointRef, dict[str, Any]]], ref: CheckpointRef | None, metrics: dict[str, Any]
) -> None:
    if ref is not None:
        found.pop(ref.path, None)
        found[ref.path] = (ref, metrics)


def _first(value: Any) -> str | None:
    if isinstance(value, (list, tuple)):
        value = value[0] if value else None
    return value if isinstance(value, str) and value else None


def _number(value: Any) -> float | None:
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, str) and value.startswith('{"$float"'):
        return float(json.loads(value)["$float"])
    return None


def checkpoint_ref(text: str | None) -> CheckpointRef | None:
    """Return the checkpoint that a column of `sweep.db` names: a path, or the JSON list of a `CheckpointRef`."""
    if not text:
        return None
    if text[0] in '["':
        value = json.loads(text)
        return CheckpointRef(*value) if isinstance(value, list) else CheckpointRef(str(value))
    return None if text == "null" else CheckpointRef(text)


def list_experiments(storage: str | os.PathLike[str] | None = None) -> list[Path]:
    """Return the experiment directories in a storage root, sorted by name; none if the root does not exist."""
    root = storage_root(storage)
    if not root.is_dir():
        return []
    return sorted(path for path in root.iterdir() if ExperimentLayout(path).database.is_file())


def find_experiment(name: str, storage: str | os.PathLike[str] | None = None) -> ExperimentReader:
    """Return a reader of the experiment that `name` means: a path, or a name in the storage root.

    Raises:
        ExperimentError: there is none of that name; the message names the nearest.
    """
    root = storage_root(storage)
    for path in (root / name, Path(name).expanduser()):
        directory = path.parent if path.name == "sweep.db" else path
        if ExperimentLayout(directory).database.is_file():
            return ExperimentReader(directory)
    known = [path.name for path in list_experiments(storage)]
    if not known:
        raise ExperimentError(
            f"no experiment {name!r}: {root} holds none. Say where they are with --storage or SWEEP_STORAGE."
        )
    shown = nearest(name, known) if len(known) <= 20 else _nearest_of_many(name, known)
    raise ExperimentError(f"no experiment {name!r} in {root}. {shown}")


def _nearest_of_many(name: str, known: list[str]) -> str:
    match = re.match(r"Did you mean .*?\? ", nearest(name, known))
    return f"{match[0] if match else ''}It holds {len(known)}; see `sweep ls`."
