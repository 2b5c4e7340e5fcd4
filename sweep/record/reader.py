"""Read `sweep.db` of a running, crashed or finished experiment, without running any of its code."""

from __future__ import annotations

import base64
import os
import re
import shlex
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from searchers.errors import nearest
from sweep.core.ranking import Objectives, objectives_of
from sweep.core.results import AUTO_FILLED, TrialResult, flatten
from sweep.core.trial import CheckpointRef, Status, shown_status
from sweep.errors import ConfigError, ExperimentError, NoExperimentError
from sweep.record.access import understood
from sweep.record.columns import reports_of
from sweep.record.driver import Driver, find_driver
from sweep.record.encoding import decode, decode_metrics
from sweep.record.layout import ExperimentLayout
from sweep.record.rows import ResultRow, Snapshot, Timeline, TrialRow, last_exit, trainable_name
from sweep.record.schema import last_event, last_seq, version_of
from sweep.record.seals import check_last, check_state
from sweep.storage.fetch import has_checkpoint, open_all_for_reading, open_storage_for_reading
from sweep.storage.location import parse_storage
from sweep.storage.shared import open_record

_TUNE_STATE = re.compile(r"experiment_state-.*\.json")
_REPORT = "seq, trial_id, attempt, at, wall, checkpoint, metrics"
_NUMBERS = {f'{{"$float":"{name}"}}': float(name) for name in ("nan", "inf", "-inf")}  # as they are recorded


class ExperimentReader:
    """Read one experiment, also while its driver writes; every call sees what is committed by then.

    No connection is kept open, so a reader can be pickled, shared by threads and left lying around.

    Args:
        directory: of the experiment, or a file of it such as `sweep.db`.
        trust: load the objects that configs and reports hold (functions, classes, whatever JSON cannot say). This runs
            code from the experiment: only for one's own.

    Attributes:
        is_own: this process made the experiment: objects in configs and reports, and the exceptions of its trials, are
            loaded as if it were trusted. Not so in another process.

    Raises:
        ExperimentError: there is no experiment, it is damaged, or a newer version wrote it.
    """

    def __init__(self, directory: str | os.PathLike[str], *, trust: bool = False) -> None:
        root = Path(directory).expanduser().absolute()
        if root.name == "sweep.db" or _TUNE_STATE.fullmatch(root.name):
            root = root.parent
        self.layout = ExperimentLayout(root)
        self.trust = trust
        self.is_own = False
        self._snapshot: Snapshot | None = None
        if not self.layout.database.is_file():
            raise NoExperimentError(what_is_there(root))
        with self.connect(with_events=False):
            pass

    def __repr__(self) -> str:
        return f"ExperimentReader({str(self.root)!r})"

    def claim(self) -> None:
        """Say that this process made the experiment: `is_own`."""
        self.is_own = True
        self._snapshot = None  # its rows were made for somebody else's

    def __getstate__(self) -> dict[str, Any]:
        return {"layout": self.layout, "trust": self.trust, "is_own": False, "_snapshot": None}

    @property
    def root(self) -> Path:
        """Directory of the experiment."""
        return self.layout.root

    @property
    def name(self) -> str:
        """The experiment's name."""
        return str(self.meta.get("name") or self.root.name)

    @contextmanager
    def connect(self, *, with_events: bool = True) -> Iterator[sqlite3.Connection]:
        """Give a read-only connection inside one transaction: all its queries see the same state.

        Args:
            with_events: events will be read, so they are checked; each once in a process.

        Raises:
            ExperimentError: the file is gone or damaged, or its sweep was continued just now.
        """
        connection = open_record(self.root, with_events=with_events)
        problem: ExperimentError | None = None
        try:
            with understood(self.layout.database):
                yield connection
        except ExperimentError as error:
            problem = error
        finally:
            connection.close()
        if connection.was_changed():
            raise ExperimentError(
                f"{self.layout.database} was changed while it was read: its sweep goes on. Repeat it."
            )
        if problem is not None:
            raise problem

    @property
    def meta(self) -> Mapping[str, Any]:
        """What is recorded of the experiment as a whole; keys as in `sweep.record.schema`."""
        return self.snapshot().meta

    @property
    def metric(self) -> str | None:
        """The metric that was optimised (the first of several), or None."""
        return _first(self.meta.get("metric"))

    @property
    def mode(self) -> str | None:
        """`min`, `max`, or None."""
        return _first(self.meta.get("mode"))

    @property
    def objectives(self) -> Objectives:
        """The metric and the mode of each of several objectives; empty when there is one, or none."""
        return objectives_of(self.meta.get("metrics"), self.meta.get("modes") or self.mode)

    def snapshot(self) -> Snapshot:
        """Return all trials; the work is done once per state of the record."""
        with self.connect(with_events=False) as connection:
            seq = last_seq(connection)
            known = self._snapshot
            if known is not None and known.seq == seq:
                return known
            version = version_of(connection)
            check_state(connection, self.layout.database)
            check_last(connection, self.layout.database)
            meta = {key: decode(value) for key, value in connection.execute("SELECT key, value FROM meta")}
            has_names = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'label'").fetchone() is not None
            names = dict(connection.execute("SELECT trial_id, name FROM label")) if has_names else {}
            failure = "t.failure" if version > 2 else "''"
            grown = "t.grown" if version > 3 else "NULL"
            node_losses = "t.node_losses" if version > 4 else "0"
            reports = reports_of(connection)
            rows = connection.execute(
                "SELECT t.trial_id, t.number, t.status, t.reason, t.attempt, t.failures, t.losses, t.count,"
                f" t.last_result, t.best_result, t.config, t.resources, t.placement, t.checkpoint, {reports.metrics},"
                f" r.checkpoint, r.wall, {failure}, {grown}, {node_losses}"
                f" FROM trial t LEFT JOIN {reports.last} ORDER BY t.number"
            )
            shown = {status.value: shown_status(status) for status in Status}
            is_trusted = self.trust or self.is_own
            trials = tuple(
                TrialRow(*(*row[:2], shown.get(row[2], row[2]), *row[3:], names.get(row[0], ""), is_trusted, meta))
                for row in rows
            )
        self._snapshot = Snapshot(seq, meta, trials)
        return self._snapshot

    def last_event(self) -> tuple[int, float, float] | None:
        """Return number, `at` (seconds of driving) and `wall` (UTC epoch seconds) of the last event, or None."""
        with self.connect(with_events=False) as connection:
            return last_event(connection)

    @property
    def trainable_name(self) -> str:
        """Name of the function or class; `trial` when it is not recorded."""
        return trainable_name(self.meta)

    def plan(self) -> Mapping[str, Any]:
        """Return what was asked of the sweep, as of its last start: fields of `sweep.core.plan.Plan`."""
        (found,) = self._one("SELECT data FROM event WHERE kind = 'PlanChanged' ORDER BY seq DESC LIMIT 1") or (None,)
        plan = None if found is None else decode(found)
        return plan if isinstance(plan, Mapping) else {}

    def driver(self) -> Driver | None:
        """Return the driver that runs the sweep, or ran it last; None when it is not known."""
        return find_driver(self.layout.lock)

    def state(self) -> str:
        """Return where the sweep as a whole is.

        `running`: it is driven. `crashed`: trials were running when its driver died. `stopped`: no driver runs it,
        and it can be resumed. `ended`: all its trials have ended. `unknown`: its driver was on another machine.
        """
        trials = self.trials()
        driver = self.driver()
        if driver is not None and driver.is_alive:
            return "running"
        if trials and all(trial.is_ended for trial in trials):
            return "ended"
        if driver is not None and driver.is_alive is None:
            return "unknown"
        return "crashed" if any(trial.status == "RUNNING" for trial in trials) else "stopped"

    def state_hint(self) -> str:
        """Say in one sentence that no driver runs the sweep and how it goes on; empty when it runs or has ended."""
        state, driver = self.state(), self.driver()
        who = "" if driver is None else f" (pid {driver.pid} on {driver.host or 'this machine'})"
        command = str(self.meta.get("resume_command") or f"sweep resume {shlex.quote(self.root.name)}")
        again = f"{f'`{command}`' if command.startswith('sweep') else command} goes on"
        if state == "crashed":
            return f"no driver runs {self.name}: running is what trials were when it died{who}; {again}."
        if state == "stopped":
            return f"no driver runs {self.name} now; {again}."
        if state == "unknown":
            return f"{self.name} was driven on another machine{who}; whether it still is cannot be seen from here."
        return ""

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
            f"from {snapshot.trials[0].number} to {snapshot.trials[-1].number}. See `sweep trials "
            f"{shlex.quote(self.name)}`."
        )

    def timelines(self, trial_id: str | None = None) -> dict[str, Timeline]:
        """Return when each trial, or only the named one, was created, started and left, by trial id."""
        which, values = ("trial_id IS NOT NULL", ()) if trial_id is None else ("trial_id = ?", (trial_id,))
        found: dict[str, dict[str, Any]] = {}
        with self.connect() as connection:
            for kind, owner, wall, pid in connection.execute(
                "SELECT kind, trial_id, wall, CASE kind WHEN 'Started' THEN data END"
                f" FROM event WHERE kind IN ('Suggested', 'Started') AND {which} ORDER BY seq",
                values,
            ):
                times = found.setdefault(owner, {})
                if kind == "Suggested":
                    times["created"] = wall
                else:
                    times.setdefault("started", wall)
                    times["pid"] = int(pid) if pid and pid.isdigit() else 0
            for owner, wall, peak, kind, error, class_name, signal in connection.execute(
                "SELECT trial_id, wall, json_extract(data, '$.exit.peak_rss_bytes'), json_extract(data, '$.exit.kind'),"
                " json_extract(data, '$.exit.error'), json_extract(data, '$.exit.class_name'),"
                " json_extract(data, '$.exit.signal')"
                f" FROM event WHERE kind = 'Exited' AND {which} ORDER BY seq",
                values,
            ):
                times = found.setdefault(owner, {})
                times["peak_rss_bytes"] = max(times.get("peak_rss_bytes", 0), peak or 0)
                is_back = kind == "NEEDS_MORE"  # to the queue: what became of that is in the trial's reason
                times |= {"exited": wall, "exit_kind": kind or "", "error": "" if is_back else error or ""}
                times |= {"class_name": class_name or "", "signal": signal or 0}
        return {owner: Timeline(**times) for owner, times in found.items()}

    def last_exit(self, trial_id: str) -> dict[str, Any]:
        """Return how the trial's last attempt ended, as `sweep.record.rows.last_exit`."""
        with self.connect() as connection:
            return last_exit(connection, trial_id)

    def damage(self) -> dict[str, str]:
        """Return by trial what was wrong with the last checkpoint that it could not be started from."""
        with self.connect() as connection:
            return dict(
                connection.execute(
                    "SELECT trial_id, json_extract(data, '$.exit.error') FROM event WHERE kind = 'Exited'"
                    """ AND data LIKE '%"DAMAGED"%' AND json_extract(data, '$.exit.kind') = 'DAMAGED' ORDER BY seq"""
                )
            )

    def pickled_error(self, trial_id: str) -> bytes:
        """Return the exception that ended the trial's last attempt as it was pickled; empty when it was not kept."""
        found = self._one(
            "SELECT json_extract(data, '$.exit.pickled') FROM event"
            " WHERE kind = 'Exited' AND trial_id = ? ORDER BY seq DESC LIMIT 1",
            trial_id,
        )
        return base64.b64decode(found[0]) if found and found[0] else b""

    def results(self, trial_id: str | None = None) -> Iterator[ResultRow]:
        """Give the reports of one trial, or of all, in the order in which they were committed."""
        where, values = ("", ()) if trial_id is None else (" WHERE trial_id = ?", (trial_id,))
        with self.connect() as connection:
            yield from map(_report, connection.execute(f"SELECT {_REPORT} FROM result{where} ORDER BY seq", values))

    def reports_at(self, seqs: Mapping[str, int]) -> dict[str, ResultRow]:
        """Return one chosen report per trial: `seqs` maps trial id to `result.seq`."""
        with self.connect() as connection:
            rows = (
                connection.execute(f"SELECT {_REPORT} FROM result WHERE seq = ?", (seq,)).fetchone()
                for seq in seqs.values()
            )
            return {row[1]: _report(row) for row in rows if row is not None}

    def metrics_at(self, seqs: Mapping[str, int]) -> dict[str, dict[str, Any]]:
        """Return the metrics of `reports_at`."""
        return {trial_id: row.metrics for trial_id, row in self.reports_at(seqs).items()}

    def values(
        self,
        metric: str,
        *,
        last_only: bool = False,
        trial_id: str | Collection[str] | None = None,
        since: int = 0,
    ) -> Iterator[tuple[str, int, float]]:
        """Give (trial id, `result.seq`, value) of every report that has a number under `metric`, oldest first.

        Args:
            metric: a key, or a path such as `eval/acc`; booleans count as 0 and 1, NaN and infinities are given too.
            last_only: only the last report of each trial, ordered by the trial's number.
            trial_id: only of this one, or of these.
            since: only with a `result.seq` above.
        """
        names = () if trial_id is None else (trial_id,) if isinstance(trial_id, str) else tuple(trial_id)
        with self.connect(with_events=not last_only) as connection:
            if last_only:
                check_last(connection, self.layout.database)
            reports = reports_of(connection)
            value = reports.number(metric)
            which = "" if trial_id is None else f" AND {reports.trial_id} IN ({', '.join('?' * len(names))})"
            source, order = (f"trial t JOIN {reports.last}", "t.number") if last_only else (reports.all, "r.seq")
            for owner, seq, found in connection.execute(
                f"SELECT {reports.trial_id}, r.seq, {value or reports.metrics} FROM {source}"
                f" WHERE r.seq > ?{which} ORDER BY {order}",
                (since, *names),
            ):
                number = found if value is not None else TrialResult(decode_metrics(found)).get(metric)
                if isinstance(number, str):
                    number = _NUMBERS.get(number)
                if isinstance(number, (int, float)):
                    yield owner, seq, number

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
        with self.connect() as connection:
            saved = connection.execute(
                "SELECT seq, json_extract(data, '$[1]') FROM event WHERE kind = 'Saved' AND trial_id = ?", (trial_id,)
            ).fetchall()
        marks: list[tuple[int, CheckpointRef | None, dict[str, Any] | None]]
        marks = [(seq, CheckpointRef.parse(path), None) for seq, path in saved]
        marks += [(row.seq, row.checkpoint, row.metrics) for row in self.results(trial_id)]
        marks.sort(key=lambda mark: mark[0])
        latest = self.snapshot().by_id[trial_id].checkpoint
        found: dict[str, tuple[CheckpointRef, dict[str, Any]]] = {}
        metrics: dict[str, Any] = {}
        for _, ref, reported in marks:
            metrics = metrics if reported is None else reported
            if ref is not None:
                found.pop(ref.path, None)
                found[ref.path] = (ref, metrics)
        if latest is not None:
            found.setdefault(latest.path, (latest, metrics))
        return [pair for path, pair in found.items() if has_checkpoint(self.root, path)]

    def _one(self, query: str, *values: Any) -> tuple[Any, ...] | None:
        with self.connect() as connection:
            row: tuple[Any, ...] | None = connection.execute(query, values).fetchone()
        return row


def _report(row: tuple[Any, ...]) -> ResultRow:
    seq, trial_id, attempt, at, wall, checkpoint, metrics = row
    return ResultRow(seq, trial_id, attempt, at, wall, CheckpointRef.parse(checkpoint), decode_metrics(metrics))


def _first(value: Any) -> str | None:
    if isinstance(value, (list, tuple)):
        value = value[0] if value else None
    return value if isinstance(value, str) and value else None


def what_is_there(root: Path) -> str:
    """Say why `root` is no experiment, and which directory was meant."""
    start = f"there is no experiment at {root}: "
    if not root.exists():
        return f"{start}no such directory. See `sweep ls`."
    if ExperimentLayout(root.parent).database.is_file():
        return f"{start}it is inside one. Give {root.parent}, or Result.from_path({str(root)!r}) for one trial."
    if not root.is_dir():
        return f"{start}a file. Give the directory that holds sweep.db."
    held = sorted(path.parent.name for path in root.glob("*/sweep.db"))
    if held:
        more = f" and {len(held) - 5} more" if len(held) > 5 else ""
        return f"{start}it holds experiments: {', '.join(held[:5])}{more}. Give the directory of one."
    if any(_TUNE_STATE.fullmatch(path.name) for path in root.iterdir()):
        return f"{start}it was written by Ray Tune, whose experiments are read with Ray."
    return f"{start}no sweep.db in it, nor one directory below. See `sweep ls`."


def list_experiments(storage: str | os.PathLike[str] | None = None) -> list[Path]:
    """Return the experiment directories in a storage, sorted by name; none if it does not exist.

    Args:
        storage: a directory, or a URI whose experiments are brought here first; None: `$SWEEP_STORAGE`, else
            `./sweep_results`.
    """
    root = open_all_for_reading(storage)
    if not root.is_dir():
        return []
    return sorted(path for path in root.iterdir() if ExperimentLayout(path).database.is_file())


def find_experiment(name: str, storage: str | os.PathLike[str] | None = None) -> ExperimentReader:
    """Return a reader of the experiment that `name` means: a name in the storage root, a path, or a URI.

    Raises:
        ExperimentError: there is none of that name; the message names the nearest.
    """
    if "://" in name:
        return ExperimentReader(open_storage_for_reading(name))
    home = parse_storage(storage)
    if home.is_remote and not Path(name).expanduser().is_dir():
        return ExperimentReader(open_storage_for_reading(home.describe(name)))
    root = home.local_root
    for path in (root / name, Path(name).expanduser()):
        directory = path.parent if path.name == "sweep.db" else path
        if ExperimentLayout(directory).database.is_file():
            return ExperimentReader(directory)
    place = Path(name).expanduser()
    if place.is_dir():
        raise NoExperimentError(what_is_there(place.absolute()))
    known = [path.name for path in list_experiments(storage)]
    if not known:
        raise NoExperimentError(
            f"no experiment {name!r}: {root} holds none. Say where they are with --storage or SWEEP_STORAGE."
        )
    shown = nearest(name, known) if len(known) <= 20 else _nearest_of_many(name, known)
    raise NoExperimentError(f"no experiment {name!r} in {root}. {shown}")


def _nearest_of_many(name: str, known: list[str]) -> str:
    match = re.match(r"Did you mean .*?\? ", nearest(name, known))
    return f"{match[0] if match else ''}It holds {len(known)}; see `sweep ls`."
