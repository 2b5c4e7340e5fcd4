"""Read `sweep.db` of a running, crashed or finished experiment, without running any of its code."""

from __future__ import annotations

import base64
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from searchers.errors import nearest
from sweep.core.ranking import Objectives, objectives_of
from sweep.core.resources import Placement, Resources
from sweep.core.results import AUTO_FILLED, Result, flatten
from sweep.core.trial import CheckpointRef, Status, shown_status
from sweep.errors import ConfigError, ExperimentError, NoExperimentError
from sweep.record.encoding import decode, decode_metrics
from sweep.record.filled import tag_of
from sweep.record.layout import ExperimentLayout
from sweep.record.presence import Driver, find_driver
from sweep.record.remote import has_checkpoint, open_all_for_reading, open_storage_for_reading
from sweep.record.schema import open_for_reading
from sweep.record.storage import parse_storage

__all__ = [
    "ExperimentReader",
    "ResultRow",
    "Timeline",
    "TrialRow",
    "find_experiment",
    "list_experiments",
    "what_is_there",
]

_UNENDED = ("PENDING", "RUNNING", "PAUSED")
_TUNE_STATE = re.compile(r"experiment_state-.*\.json")


@dataclass(frozen=True)
class TrialRow:
    """One row of the trial table with its last result; JSON is decoded when it is asked for.

    Attributes:
        status: as users see it: PENDING, RUNNING, PAUSED, TERMINATED or ERROR.
        reason: why it waits, or why it ended.
        failure: which kind of failure its last attempt was, one of `sweep.core.failures.CLASSES`; empty: none.
        count: reports so far.
        last_seq, best_seq: keys of its last and best result; None before the first.
        last_wall: when its last report was committed, in UTC epoch seconds.
        name: what `trial_name_creator` called it; empty: nothing.
        is_trusted: whether `fresh_config` and `fresh_metrics` load what was stored as a pickle.
        meta: of the experiment, shared by all its rows.
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
    last_checkpoint_text: str | None = field(default=None, repr=False)
    last_wall: float | None = field(default=None, repr=False)
    failure: str = ""
    name: str = ""
    is_trusted: bool = field(default=False, repr=False)
    meta: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The decided config, shared by all who ask: for reading only. What was stored as a pickle is not loaded."""
        config = decode(self.config_text)
        return config if isinstance(config, dict) else {}

    @cached_property
    def last_metrics(self) -> dict[str, Any] | None:
        """The last report as filled in, without the config; None before the first. Shared: for reading only. What was
        stored as a pickle is not loaded."""
        return None if self.last_text is None else decode_metrics(self.last_text)

    def fresh_config(self) -> dict[str, Any]:
        """Return the config as an object of its own, for users to change.

        What was stored as a pickle is loaded when the reader trusts the experiment; otherwise, and where its code is
        gone, something stands for it that prints like the value.
        """
        config = self._decoded(self.config_text)
        return config if isinstance(config, dict) else {}

    def fresh_metrics(self) -> dict[str, Any] | None:
        """Return `last_metrics` as an object of its own, pickles treated as by `fresh_config`."""
        return None if self.last_text is None else self._decoded(self.last_text, decode_metrics)

    def _decoded(self, text: str, by: Callable[..., Any] = decode) -> Any:
        if self.is_trusted:
            try:
                return by(text, trust=True)
            except Exception:  # the user's own class: renamed, moved, or of a file that is gone
                return by(text)
        return by(text)

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

    @cached_property
    def last_checkpoint(self) -> CheckpointRef | None:
        """The checkpoint that came with its last report, or None."""
        return checkpoint_ref(self.last_checkpoint_text)

    @cached_property
    def experiment_tag(self) -> str:
        """Its number and the values that vary among trials."""
        return tag_of(self.number, self.config, self.meta.get("variables"))

    @property
    def trainable_name(self) -> str:
        """Name of the function or class; `trial` when it is not recorded."""
        return _trainable_name(self.meta)

    @property
    def trial_name(self) -> str:
        """What `trial_name_creator` called it, else `<trainable>_<trial id>`."""
        return self.name or f"{self.trainable_name}_{self.trial_id}"

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
        directory: of the experiment, or a file of it such as `sweep.db`.
        trust: load the objects that configs and reports hold (functions, classes, whatever JSON cannot say). This runs
            code from the experiment: only for one's own.

    Attributes:
        is_own: this process made the experiment: the exceptions of its trials are loaded. Not so in another process.

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
        with self.connect():
            pass

    def __repr__(self) -> str:
        return f"ExperimentReader({str(self.root)!r})"

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
    def connect(self) -> Iterator[sqlite3.Connection]:
        """Give a read-only connection inside one transaction: all its queries see the same state.

        Raises:
            ExperimentError: the file is gone or damaged, or its sweep was continued just now.
        """
        connection = open_for_reading(self.layout.database)
        problem: sqlite3.DatabaseError | None = None
        try:
            connection.execute("BEGIN")
            yield connection
        except sqlite3.DatabaseError as error:
            problem = error
        finally:
            connection.close()
        if connection.was_changed():
            raise ExperimentError(
                f"{self.layout.database} was changed while it was read: its sweep goes on. Repeat it."
            )
        if problem is not None:
            raise ExperimentError(f"{self.layout.database} cannot be read: {problem}.") from problem

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
        with self.connect() as connection:
            (seq,) = connection.execute("SELECT coalesce(max(seq), 0) FROM event").fetchone()
            known = self._snapshot
            if known is not None and known.seq == seq:
                return known
            meta = {key: decode(value) for key, value in connection.execute("SELECT key, value FROM meta")}
            has_names = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'label'").fetchone() is not None
            names = dict(connection.execute("SELECT trial_id, name FROM label")) if has_names else {}
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            failure = "t.failure" if version > 2 else "''"
            rows = connection.execute(
                "SELECT t.trial_id, t.number, t.status, t.reason, t.attempt, t.failures, t.losses, t.count,"
                " t.last_result, t.best_result, t.config, t.resources, t.placement, t.checkpoint, r.metrics,"
                f" r.checkpoint, r.wall, {failure}"
                " FROM trial t LEFT JOIN result r ON r.seq = t.last_result ORDER BY t.number"
            )
            shown = {status.value: shown_status(status) for status in Status}
            trials = tuple(
                TrialRow(*(*row[:2], shown.get(row[2], row[2]), *row[3:], names.get(row[0], ""), self.trust, meta))
                for row in rows
            )
        self._snapshot = Snapshot(seq, meta, trials)
        return self._snapshot

    @property
    def trainable_name(self) -> str:
        """Name of the function or class; `trial` when it is not recorded."""
        return _trainable_name(self.meta)

    def plan(self) -> Mapping[str, Any]:
        """Return what was asked of the sweep, as of its last start: fields of `sweep.core.plan.Plan`."""
        with self.connect() as connection:
            row = connection.execute(
                "SELECT data FROM event WHERE kind = 'PlanChanged' ORDER BY seq DESC LIMIT 1"
            ).fetchone()
        plan = None if row is None or row[0] is None else decode(row[0])
        return plan if isinstance(plan, Mapping) else {}

    def driver(self) -> Driver | None:
        """Return who drives the sweep, or drove it last; None when that is not known."""
        return find_driver(self.layout.lock)

    def state(self) -> str:
        """Return where the sweep as a whole is.

        `running`: it is driven. `crashed`: trials were running when its driver died. `stopped`: nobody drives it, and
        it can go on. `ended`: all its trials have ended. `unknown`: its driver was on another machine.
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
        command = str(self.meta.get("resume_command") or f"sweep resume {self.root.name}")
        again = f"{f'`{command}`' if command.startswith('sweep') else command} goes on"
        if state == "crashed":
            return f"no driver runs {self.name}: RUNNING is what trials were when it died{who}; {again}."
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
                "SELECT kind, trial_id, wall, CASE kind WHEN 'Started' THEN data END"
                f" FROM event WHERE kind IN ('Suggested', 'Started') AND {which} ORDER BY seq",
                values,
            ):
                if kind == "Suggested":
                    created[owner] = wall
                else:
                    started.setdefault(owner, wall)
                    pids[owner] = int(pid) if pid and pid.isdigit() else 0
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
        with self.connect() as connection:
            row = connection.execute(
                "SELECT json_extract(data, '$.exit.pickled') FROM event"
                " WHERE kind = 'Exited' AND trial_id = ? ORDER BY seq DESC LIMIT 1",
                (trial_id,),
            ).fetchone()
        return base64.b64decode(row[0]) if row is not None and row[0] else b""

    def results(self, trial_id: str | None = None) -> Iterator[ResultRow]:
        """Give the reports of one trial, or of all, in the order in which they were committed."""
        where, values = ("", ()) if trial_id is None else (" WHERE trial_id = ?", (trial_id,))
        with self.connect() as connection:
            for seq, owner, attempt, at, wall, checkpoint, metrics in connection.execute(
                f"SELECT seq, trial_id, attempt, at, wall, checkpoint, metrics FROM result{where} ORDER BY seq", values
            ):
                yield ResultRow(seq, owner, attempt, at, wall, checkpoint_ref(checkpoint), decode_metrics(metrics))

    def reports_at(self, seqs: Mapping[str, int]) -> dict[str, ResultRow]:
        """Return one chosen report per trial: `seqs` maps trial id to `result.seq`."""
        found: dict[str, ResultRow] = {}
        with self.connect() as connection:
            for trial_id, seq in seqs.items():
                row = connection.execute(
                    "SELECT attempt, at, wall, checkpoint, metrics FROM result WHERE seq = ?", (seq,)
                ).fetchone()
                if row is not None:
                    attempt, at, wall, checkpoint, metrics = row
                    found[trial_id] = ResultRow(
                        seq, trial_id, attempt, at, wall, checkpoint_ref(checkpoint), decode_metrics(metrics)
                    )
        return found

    def metrics_at(self, seqs: Mapping[str, int]) -> dict[str, dict[str, Any]]:
        """Return the metrics of one chosen report per trial: `seqs` maps trial id to `result.seq`."""
        return {trial_id: row.metrics for trial_id, row in self.reports_at(seqs).items()}

    def values(
        self, metric: str, *, last_only: bool = False, trial_id: str | None = None
    ) -> Iterator[tuple[str, int, float]]:
        """Give (trial id, `result.seq`, value) of every report that has a number under `metric`, oldest first.

        Args:
            metric: a key, or a path such as `eval/acc`; booleans count as 0 and 1, NaN and infinities are given too.
            last_only: only the last report of each trial, ordered by the trial's number.
            trial_id: only of this one.
        """
        which, chosen = ("", ()) if trial_id is None else (" WHERE r.trial_id = ?", (trial_id,))
        source = (
            f"trial t JOIN result r ON r.seq = t.last_result{which} ORDER BY t.number"
            if last_only
            else f"result r{which} ORDER BY seq"
        )
        if '"' in metric or "\\" in metric or not metric:  # no JSON path says these
            with self.connect() as connection:
                for owner, seq, text in connection.execute(
                    f"SELECT r.trial_id, r.seq, r.metrics FROM {source}", chosen
                ):
                    number = _number(Result(decode_metrics(text)).get(metric))
                    if number is not None:
                        yield owner, seq, number
            return
        nested = "$" + "".join(f'."{part}"' for part in metric.split("/"))
        with self.connect() as connection:
            for owner, seq, value in connection.execute(
                "SELECT r.trial_id, r.seq, coalesce(json_extract(r.metrics, ?), json_extract(r.metrics, ?))"
                f" FROM {source}",
                (f'$."{metric}"', nested, *chosen),
            ):
                number = _number(value)
                if number is not None:
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
        found: dict[str, tuple[CheckpointRef, dict[str, Any]]] = {}
        with self.connect() as connection:
            saved = connection.execute(
                "SELECT seq, json_extract(data, '$[1]') FROM event WHERE kind = 'Saved' AND trial_id = ? ORDER BY seq",
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
        return [pair for path, pair in found.items() if has_checkpoint(self.root, path)]


def _trainable_name(meta: Mapping[str, Any]) -> str:
    trainable = meta.get("trainable")
    return str((trainable.get("name") if isinstance(trainable, Mapping) else trainable) or "trial")


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
