"""Bring a sweep back from its record: load the trials, re-tell scheduler and searcher, find what was lost."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from searchers.base import Searcher
from sweep.core import messages as m
from sweep.core.history import History
from sweep.core.plan import Plan
from sweep.core.reports import fault, reference, worth
from sweep.core.resources import Resources
from sweep.core.results import TrialResult
from sweep.core.retention import Kept, without
from sweep.core.stoppers import reached
from sweep.core.trial import Status, Trial
from sweep.record.checksums import check_state, check_structure, checked_events
from sweep.record.codec import metrics_of, request_of, unpacked
from sweep.record.db import last_event, open_for_reading, read_meta, understood
from sweep.record.encoding import decode, untag
from sweep.record.facts import END, plan_and_requests, read_facts
from sweep.record.layout import CHECKPOINT_PATTERN, checked_checkpoint, checked_trial_id
from sweep.record.stored import StoredCheckpoints, saved_before

if TYPE_CHECKING:
    from sweep.schedulers.base import Scheduler


@dataclass
class Loaded:
    """What a record says, ready for `Sweep`.

    Attributes:
        kept: per trial the checkpoints that exist, oldest first.
        strays: checkpoint directories that nothing refers to, relative to the experiment.
        strangers: directories of trials that the record does not know.
        seq: number of the last event. at: seconds of driving so far.
        plan: of the last run; None when nothing was recorded yet.
        missing: checkpoints that trials refer to and that are not there.
        lost: all that were stored, not discarded, and are not there.
        asked: what persons have asked for, but for interrupts.
        meta: what is recorded of the experiment as a whole.
    """

    trials: list[Trial] = field(default_factory=list)
    kept: dict[str, list[Kept]] = field(default_factory=dict)
    strays: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)
    lost: tuple[str, ...] = ()
    asked: tuple[m.Asked, ...] = ()
    seq: int = 0
    at: float = 0.0
    plan: Plan | None = None
    meta: dict[str, Any] = field(default_factory=dict)


def load(database: Path, *, root: Path | None = None) -> Loaded:
    """Read the trials and checkpoints of an experiment whose driver is gone; pickled values of configs are loaded.

    Args:
        root: directory of the experiment; None: in which its record lies.

    Raises:
        ExperimentError: there is no such experiment, or it is damaged.
    """
    root = database.parent if root is None else root
    with closing(open_for_reading(database)) as db, understood(database):
        check_structure(db, database)
        check_state(db, database)
        loaded = Loaded(meta=read_meta(db))
        loaded.seq, loaded.at, _ = last_event(db) or (0, 0.0, 0.0)
        loaded.plan, loaded.asked = plan_and_requests(db)
        loaded.trials = list(read_trials(db, database, trust=True))
        stored = StoredCheckpoints()
        stored.follow(db)
        existing = _existing(root, loaded.trials)
        # what was discarded, and not deleted yet, is over
        loaded.kept = _kept(db, loaded.plan or Plan(), existing & stored.kept, END)
        loaded.lost = tuple(sorted(stored.kept - existing))
        wanted = {item.ref.path for items in loaded.kept.values() for item in items}
        for i, trial in enumerate(loaded.trials):
            if trial.checkpoint is not None and trial.checkpoint.path not in existing and not trial.is_ended:
                loaded.missing.append(trial.checkpoint.path)
                loaded.trials[i] = without(loaded.lost, trial, loaded.kept)
        loaded.strays = sorted(
            existing - wanted - {trial.checkpoint.path for trial in loaded.trials if trial.checkpoint}
        )
        loaded.strangers = _strangers(root, str(loaded.meta.get("prefix")), {trial.id for trial in loaded.trials})
        return loaded


def read_trials(db: sqlite3.Connection, database: Path, *, trust: bool) -> Iterator[Trial]:
    """Give the trials of a record as the core has them, ordered by number; see `load`."""
    rows = db.execute("SELECT trial_id, status, config, state FROM trial ORDER BY number").fetchall()
    states = [(*row, json.loads(text)) for *row, text in rows]
    seqs = (state.get(name) for *_, state in states for name in ("last_result", "best_result"))
    events = checked_events(db, database, filter(None, seqs))
    for trial_id, status, config, state in states:
        fields = unpacked(Trial, untag(state, trust=trust))
        for name in ("last_result", "best_result"):
            if (seq := fields.get(name)) is not None:
                fields[name] = TrialResult(metrics_of(json.loads(events[seq][1]), trial_id) or {}, seq)
        trial = Trial(checked_trial_id(trial_id), decode(config, trust=trust), status=Status(status), **fields)
        pending = trial.pending.checkpoint if isinstance(trial.pending, m.CloneTrial) else None
        for ref in (trial.checkpoint, trial.started_from, pending):
            if ref is not None:
                checked_checkpoint(ref.path)
        yield trial


def _existing(root: Path, trials: Iterable[Trial]) -> set[str]:
    """Return the checkpoint directories on disk, and what writers left half-done, relative to the experiment."""
    found = set()
    for trial in trials:
        with suppress(FileNotFoundError, NotADirectoryError):
            names = os.listdir(root / trial.id)
            found |= {f"{trial.id}/{name}" for name in names if name[:4] == "tmp-" or CHECKPOINT_PATTERN.match(name)}
    return found


def _strangers(root: Path, prefix: str, known: Collection[str]) -> list[str]:
    """Return the directories of trials of the record's last moments, which were lost by a power cut, or never
    published. Their numbers will be given to others."""
    found = [path for path in root.iterdir() if re.fullmatch(rf"{re.escape(prefix)}_\d{{5,}}", path.name)]
    return sorted(path.name for path in found if path.name not in known and path.is_dir() and not path.is_symlink())


def kept_before(database: Path, plan: Plan, existing: set[str], before: int) -> dict[str, list[Kept]]:
    """Return per trial those of the `existing` checkpoints that were committed before event `before`, oldest first."""
    with closing(open_for_reading(database)) as db, understood(database):
        return _kept(db, plan, existing, before)


def _kept(db: sqlite3.Connection, plan: Plan, existing: set[str], before: int) -> dict[str, list[Kept]]:
    kept: dict[str, list[Kept]] = {}
    for trial_id, path, metrics in saved_before(db, before):
        if path in existing:
            result, match = TrialResult(metrics), CHECKPOINT_PATTERN.search(path)
            then = Trial(trial_id, {}, Resources(), count=int(match[1]) if match else 0)
            kept.setdefault(trial_id, []).append(Kept(reference(then, path, result), worth(result, plan)))
    return kept


def retell(
    database: Path,
    scheduler: Scheduler,
    searcher: Searcher,
    judge: Callable[[str, TrialResult], m.Verdict] | None = None,
    *,
    before: int = END,
) -> None:
    """Tell the record again to new objects, in order, with the trials as they were at each event; answers are ignored.

    Reports are read only where somebody learns from them: a plain random search resumes without.

    Args:
        before: number of the first event that is not fact.
    """
    is_learning = searcher.is_adaptive or searcher.hears_results or judge is not None or not scheduler.is_stateless
    history = History()
    view = MappingProxyType(history.trials)
    for fact in read_facts(database, before=before, with_results=is_learning):
        history.happened(fact)
        match fact.event:
            case m.Reported(trial_id) if fact.metrics is not None and fact.is_judged:
                trial = history.trials[trial_id]
                result = TrialResult(fact.metrics, fact.seq)
                if judge is not None:
                    judge(trial_id, result)
                if searcher.hears_results:
                    searcher.on_trial_result(trial_id, result)
                is_over = fact.event.verdict or result.get("done") is True or reached(history.plan.stop, result)
                if not scheduler.is_stateless and not is_over and not fault(history.plan, result, fact.metrics)[0]:
                    scheduler.on_result(trial, result, view)
            case m.Suggested(trial_id, config, _, state) if isinstance(config, Mapping):
                searcher.retell(trial_id, dict(config), state)
                scheduler.on_trial_add(history.trials[trial_id])
            case m.Started(trial_id):
                searcher.on_unpause(trial_id)
            case m.Asked() as event:
                searcher.on_request(request_of(event))
            case m.NodesChanged(nodes):
                scheduler.on_nodes_changed(nodes)
        for hook, trial in history.followed(fact):
            if hook is m.Hook.PAUSE:
                searcher.on_pause(trial.id)
            elif trial.is_ended:
                is_error = hook is m.Hook.ERROR
                searcher.on_trial_complete(trial.id, None if is_error else trial.last_result, error=is_error)
                scheduler.on_trial_end(trial)
