"""Read `sweep.db` of a running, crashed or finished experiment, without running any of its code."""

from __future__ import annotations

import json
import os
import re
import shlex
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from searchers.errors import nearest
from sweep.core.history import Fact, History
from sweep.core.messages import Exit
from sweep.core.plan import Plan
from sweep.core.ranking import Objectives, objectives_of
from sweep.core.results import AUTO_FILLED, TrialResult, flatten
from sweep.core.trial import CheckpointRef, Status, shown_status
from sweep.errors import ConfigError, ExperimentError, NoExperimentError
from sweep.record.checksums import check_state, checked_events, end_of
from sweep.record.db import last_event, read_meta, understood
from sweep.record.facts import END, Report, edits, last_exit, plan_and_requests, read_facts, read_reports, reports_of
from sweep.record.layout import ExperimentLayout
from sweep.record.lock import Driver, find_driver
from sweep.record.rows import Snapshot, TrialRow
from sweep.record.stored import saved_before
from sweep.storage.fetch import existing_checkpoints, open_all_for_reading, open_storage_for_reading
from sweep.storage.location import parse_storage
from sweep.storage.shared import open_record

_MOST_NAMED = 20
_TUNE_STATE = re.compile(r"experiment_state-.*\.json")


class ExperimentReader:
    """Read one experiment, also while its driver writes; every call sees what is committed by then.

    No connection is kept open, so a reader can be pickled, shared by threads and left lying around.

    Args:
        directory: of the experiment, or a file of it such as `sweep.db`.
        trust: load the objects that configs and reports hold (functions, classes, whatever JSON cannot say). This runs
            code from the experiment: only for one's own.

    Attributes:
        is_trusted: `trust`, or this process made the experiment; not so in another that the reader is pickled for.

    Raises:
        ExperimentError: there is no experiment, it is damaged, or a newer version wrote it.
    """

    def __init__(self, directory: str | os.PathLike[str], *, trust: bool = False) -> None:
        root = Path(directory).expanduser().absolute()
        if root.name == "sweep.db" or _TUNE_STATE.fullmatch(root.name):
            root = root.parent
        self.layout = ExperimentLayout(root)
        self.is_trusted = self._trust = trust
        self._snapshot: Snapshot | None = None
        self._history: History | None = None
        if not self.layout.database.is_file():
            raise NoExperimentError(what_is_there(root))
        with self.connect(with_events=False):
            pass

    def __repr__(self) -> str:
        return f"ExperimentReader({str(self.root)!r})"

    def claim(self) -> None:
        """Say that this process made the experiment, so that it is trusted here."""
        self.is_trusted = True
        self._snapshot = None  # its rows were made for somebody else's

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"is_trusted": self._trust, "_snapshot": None, "_history": None}

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
        try:
            with understood(self.layout.database):
                yield connection
        except ExperimentError:
            if not connection.was_changed():
                raise
        finally:
            connection.close()
        if connection.was_changed():
            raise ExperimentError(
                f"{self.layout.database} was changed while it was read: its sweep goes on. Repeat it."
            )

    @property
    def meta(self) -> Mapping[str, Any]:
        """What is recorded of the experiment as a whole; keys as in `sweep.record.db`."""
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
            seq, _ = end_of(connection)
            known = self._snapshot
            if known is not None and known.seq == seq:
                return known
            database = self.layout.database
            check_state(connection, database)
            meta = read_meta(connection)
            rows = connection.execute("SELECT trial_id, number, status, config, state FROM trial ORDER BY number")
            found = [(*row, json.loads(text)) for *row, text in rows]
            last = filter(None, (state.get("last_result") for *_, state in found))
            reports = reports_of(checked_events(connection, database, last))
            trials = tuple(
                TrialRow.of(
                    state,
                    trial_id=trial_id,
                    number=number,
                    status=shown_status(Status(status)),
                    config_text=config,
                    last_report=reports.get(trial_id),
                    is_trusted=self.is_trusted,
                    meta=meta,
                )
                for trial_id, number, status, config, state in found
            )
        self._snapshot = Snapshot(seq, meta, trials)
        return self._snapshot

    def last_event(self) -> tuple[int, float, float] | None:
        """Return number, `at` (seconds of driving) and `wall` (UTC epoch seconds) of the last event, or None."""
        with self.connect(with_events=False) as connection:
            return last_event(connection)

    def driven_s(self) -> float:
        """Return the seconds for which the sweep was driven so far."""
        found = self.last_event()
        return 0.0 if found is None else found[1]

    def plan(self) -> Plan:
        """Return what was asked of the sweep, as of its last start."""
        with self.connect() as connection:
            return plan_and_requests(connection)[0] or Plan()

    def edits(self) -> dict[str, Any]:
        """Return the arguments of `sweep.run` that persons have changed since the last start."""
        with self.connect() as connection:
            return edits(connection)

    def requests_done(self) -> set[str]:
        """Return the ids of the requests by persons that were carried out."""
        with self.connect() as connection:
            return {json.loads(event.detail)["id"] for event in plan_and_requests(connection)[1]}

    def driver(self) -> Driver | None:
        """Return the driver that runs the sweep, or ran it last; None when it is not known."""
        return find_driver(self.layout.lock)

    def state(self) -> str:
        """Return where the sweep as a whole is.

        `running`: it is driven. `crashed`: trials ran or started when its driver died. `stopped`: no driver runs it,
        and it can be resumed. `ended`: all its trials have ended. `unknown`: its driver was on another machine.
        """
        trials, driver = self.trials(), self.driver()
        if driver is not None and driver.is_alive:
            return "running"
        if trials and all(trial.is_ended for trial in trials):
            return "ended"
        if driver is not None and driver.is_alive is None:
            return "unknown"
        return "crashed" if any(trial.state == "running" for trial in trials) else "stopped"

    def state_hint(self) -> str:
        """Say in one sentence that no driver runs the sweep and how it goes on; empty when it runs or has ended."""
        driver, name = self.driver(), self.name
        who = "" if driver is None else f" (pid {driver.pid} on {driver.host or 'this machine'})"
        command = str(self.meta.get("resume_command") or f"sweep resume {shlex.quote(self.root.name)}")
        again = f"{f'`{command}`' if command.startswith('sweep') else command} goes on."
        hints = {
            "crashed": f"no driver runs {name}: running is what trials were when it died{who}; {again}",
            "stopped": f"no driver runs {name} now; {again}",
            "unknown": f"{name} was driven on another machine{who}; whether it still is cannot be seen from here.",
        }
        return hints.get(self.state(), "")

    def refuse_imported(self) -> None:
        """Raise ExperimentError where the experiment was imported from another tool, so that nothing can go on."""
        if isinstance(origin := self.meta.get("imported"), Mapping):
            raise ExperimentError(
                f"{self.name} was imported ({origin.get('tool')}, {origin.get('source')}): its trials ran elsewhere, "
                f"so nothing goes on. Begin another sweep that learns from it: warm_start={str(self.root)!r}."
            )

    def trials(self) -> tuple[TrialRow, ...]:
        """Return all trials, ordered by number."""
        return self.snapshot().trials

    def trial(self, text: str | int) -> TrialRow:
        """Return the trial that `text` names: its id, or its number alone (`42`, `00042`).

        Raises:
            ConfigError: there is none.
        """
        snapshot, wanted = self.snapshot(), str(text).strip()
        number = int(wanted) if wanted.isascii() and wanted.isdigit() else None
        found = snapshot.by_id.get(wanted) or next((row for row in snapshot.trials if row.number == number), None)
        if found is not None:
            return found
        known = "it has no trials yet"
        if snapshot.trials:
            first, last = snapshot.trials[0], snapshot.trials[-1]
            known = f"expected an id such as {first.trial_id}, or a number from {first.number} to {last.number}"
        raise ConfigError(f"no trial {wanted!r} in {self.name}; {known}. See `sweep trials {shlex.quote(self.name)}`.")

    def facts(self, **which: Any) -> Iterator[Fact]:
        """Give the recorded facts, as `read_facts` does, but no pickle is loaded."""
        with self.connect() as connection:
            yield from read_facts(connection, trust=False, **which)

    def history(self) -> History:
        """Return what became of the trials, but for their reports; for reading only, made once per state of the
        record."""
        with self.connect() as connection:
            seq, _ = end_of(connection)
            if self._history is None or self._history.seq != seq:
                self._history = History.of(read_facts(connection, trust=False, with_results=False))
                self._history.seq = seq  # what is last may be a report
            return self._history

    def events(self) -> list[tuple[Any, ...]]:
        """Return each event as it is recorded: its number, `at`, `wall`, kind, trial id, attempt, and as JSON texts
        what else it says, but for metrics and pickles, and what it caused."""
        with self.connect() as connection:
            return connection.execute(
                "SELECT seq, at, wall, kind, trial_id, attempt, nullif(json_remove(data, '$.kind', '$.at', '$.wall',"
                " '$.attempt', '$.commands', '$.metrics', '$.filled', '$.exit.pickled'), '{}'), commands"
                " FROM events ORDER BY seq"
            ).fetchall()

    def last_exit(self, trial_id: str) -> Exit | None:
        """Return how the trial's last attempt ended; None as of `sweep.record.facts.last_exit`."""
        with self.connect() as connection:
            return last_exit(connection, trial_id)

    def results(self, trial_id: str | None = None) -> Iterator[Report]:
        """Give the reports of one trial, or of all, in the order in which they were committed."""
        with self.connect() as connection:
            yield from read_reports(connection, trial_ids=None if trial_id is None else {trial_id})

    def reports_at(self, seqs: Mapping[str, int]) -> dict[str, Report]:
        """Return one chosen report per trial: `seqs` maps trial id to `result.seq`."""
        with self.connect(with_events=False) as connection:
            return reports_of(checked_events(connection, self.layout.database, seqs.values()))

    def values(self, metric: str, trial_id: str | None = None) -> Iterator[tuple[str, int, float]]:
        """Give (trial id, `result.seq`, value) of every report that has a number under `metric`, oldest first.

        Args:
            metric: a key, or a path such as `eval/acc`; booleans count as 0 and 1, NaN and infinities are given too.
            trial_id: only of this one.
        """
        for report in self.results(trial_id):
            if isinstance(number := report.get(metric), (int, float)):
                yield report.trial_id, report.seq, +number  # of booleans 0 and 1

    def last_values(self, metric: str) -> dict[str, float]:
        """Return by trial the number under `metric` in its last report; trials without one are left out."""
        found = {row.trial_id: TrialResult(row.last_metrics or {}).get(metric) for row in self.trials()}
        return {trial_id: +number for trial_id, number in found.items() if isinstance(number, (int, float))}

    def metric_names(self) -> list[str]:
        """Return the names of the numbers in the trials' last reports, for error messages."""
        found = (item for trial in self.trials() for item in flatten(trial.last_metrics or {}).items())
        numbers = (key for key, value in found if key not in AUTO_FILLED and isinstance(value, (int, float)))
        return list(dict.fromkeys(numbers))

    def checkpoints(self, trial_id: str) -> list[tuple[CheckpointRef, dict[str, Any]]]:
        """Return the checkpoints of a trial that still exist, oldest first, each with the metrics it was taken at."""
        row = self.snapshot().by_id[trial_id]
        with self.connect() as connection:
            saved = saved_before(connection, END, trial_id)
            found = {path: (CheckpointRef(path), metrics) for _, path, metrics in saved}
        if row.checkpoint is not None:
            found.setdefault(row.checkpoint.path, (row.checkpoint, row.last_metrics or {}))
        return [found[path] for path in existing_checkpoints(self.root, found)]


def _first(value: Any) -> str | None:
    if isinstance(value, (list, tuple)):
        value = value[0] if value else None
    return value if isinstance(value, str) and value else None


def what_is_there(root: Path) -> str:
    """Say why `root` is no experiment, and which directory was meant."""
    held = sorted(path.parent.name for path in root.glob("*/sweep.db"))
    if not root.exists():
        what = "no such directory. See `sweep ls`."
    elif ExperimentLayout(root.parent).database.is_file():
        what = f"it is inside one. Give {root.parent}, or Result.from_path({str(root)!r}) for one trial."
    elif not root.is_dir():
        what = "a file. Give the directory that holds sweep.db."
    elif held:
        more = f" and {len(held) - 5} more" if len(held) > 5 else ""
        what = f"it holds experiments: {', '.join(held[:5])}{more}. Give the directory of one."
    elif any(_TUNE_STATE.fullmatch(path.name) for path in root.iterdir()):
        what = "it was written by Ray Tune, whose experiments are read with Ray."
    else:
        what = "no sweep.db in it, nor one directory below. See `sweep ls`."
    return f"there is no experiment at {root}: {what}"


def list_experiments(storage: str | os.PathLike[str] | None = None) -> list[Path]:
    """Return the experiment directories in a storage, sorted by name; none if it does not exist.

    Args:
        storage: a directory, or a URI whose experiments are brought here first; None: `$SWEEP_STORAGE`, else
            `./sweep_results`.
    """
    root = open_all_for_reading(storage)
    if not root.is_dir():
        return []
    named = (path for path in root.iterdir() if not path.name.startswith("."))  # what is not whole yet begins so
    return sorted(path for path in named if ExperimentLayout(path).database.is_file())


def find_experiment(name: str, storage: str | os.PathLike[str] | None = None) -> ExperimentReader:
    """Return a reader of the experiment that `name` means: a name in the storage root, a path, or a URI.

    Raises:
        ExperimentError: there is none of that name; the message names the nearest.
    """
    if "://" in name:
        return ExperimentReader(open_storage_for_reading(name))
    home, place = parse_storage(storage), Path(name).expanduser()
    if home.remote is not None and not place.is_dir():
        return ExperimentReader(open_storage_for_reading(home.describe(name)))
    for path in (home.local_root / name, place):
        directory = path.parent if path.name == "sweep.db" else path
        if ExperimentLayout(directory).database.is_file():
            return ExperimentReader(directory)
    if place.is_dir():
        raise NoExperimentError(what_is_there(place.absolute()))
    known = [path.name for path in list_experiments(storage)]
    if not known:
        raise NoExperimentError(
            f"no experiment {name!r}: {home.local_root} holds none. Say where they are with --storage or SWEEP_STORAGE."
        )
    shown = nearest(name, known)
    if len(known) > _MOST_NAMED:
        shown = f"{shown.partition('Known: ')[0]}It holds {len(known)}; see `sweep ls`."
    raise NoExperimentError(f"no experiment {name!r} in {home.local_root}. {shown}")
