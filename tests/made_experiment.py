"""Write a `sweep.db` by hand, event by event, for tests of what reads it."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from sealed import seal

from sweep.checkpoints.store import discard, persist
from sweep.core.messages import Reported
from sweep.core.ranking import replaces
from sweep.core.results import fill
from sweep.core.trial import number_of
from sweep.record.codec import encode_event
from sweep.record.encoding import encode
from sweep.record.journal import create

T0 = 1_700_000_000.0
_ATTEMPTS = ("Started", "Saved", "Exited", "Released", "Declined")
_FIELD = {"Started": "pid", "Waiting": "reason", "PlanChanged": "plan"}  # what `data` is of an event
_JSON = ("placement", "checkpoint", "started_from", "pending", "resources")


class MadeExperiment:
    """An experiment directory whose record the test fills; `commit` makes it visible to readers."""

    def __init__(self, root: Path, name: str = "made", **meta: Any) -> None:
        self.root = root / name
        self.root.mkdir(parents=True)
        create(self.root / "sweep.db")
        self.db = sqlite3.connect(self.root / "sweep.db", isolation_level=None)
        self.db.execute("PRAGMA synchronous=OFF")
        self.events: list[tuple[str | None, dict[str, Any]]] = []
        self.meta = {"name": name, "prefix": "abcde", "metric": "loss", "mode": "min", "created": T0} | meta
        self.trials: dict[str, dict[str, Any]] = {}
        self.counts: dict[str, int] = {}
        self.best: dict[str, Any] = {}

    @property
    def seq(self) -> int:
        """Number of the last event."""
        return len(self.events)

    @property
    def num_trials(self) -> int:
        return len(self.trials)

    def event(
        self,
        kind: str,
        trial_id: str | None = None,
        data: Any = None,
        at: float = 0.0,
        commands: Any = None,
        *,
        attempt: int = 1,
    ) -> int:
        """Add an event.

        Args:
            data: its fields; of some kinds just the one that matters.
        """
        event = {"kind": kind, "at": at, "wall": T0 + at}
        if kind in _ATTEMPTS:
            event["attempt"] = attempt
        if kind in _FIELD and data is not None:
            data = {_FIELD[kind]: data}
        if kind == "Saved":
            data = dict(zip(("seq", "checkpoint"), data, strict=True))
        event |= data if isinstance(data, dict) else {}
        if commands is not None:
            event["commands"] = commands
        self.events.append((trial_id, event))
        return self.seq

    def change(self, seq: int, **fields: Any) -> None:
        """Change fields of an event."""
        self.events[seq - 1][1].update(fields)

    def discard(self, path: str, *, at: float = 2.5) -> None:
        """Delete a checkpoint, as a driver does: the record says so first."""
        self.event("Tick", at=at, commands=[["Discard", path]])
        self.commit()
        discard(self.root / path)

    def trial(self, config: dict[str, Any], *, at: float = 0.0, resources: Any = None, reason: str = "") -> str:
        trial_id = f"abcde_{self.num_trials:05d}"
        plain = json.loads(encode(config))
        seq = self.event("Suggested", trial_id, {"config": plain}, at=at)
        resources = resources or {"bundles": [{"cpu": 1}]}
        state = {"place": seq, "config": plain, "status": "PENDING", "resources": resources}
        self.trials[trial_id] = state | ({"reason": reason} if reason else {})
        return trial_id

    def set(self, trial_id: str, **fields: Any) -> None:
        """Change what is recorded of a trial; None takes a field away, and values may be JSON texts."""
        for name, value in fields.items():
            if name in (*_JSON, "config") and isinstance(value, str):
                value = json.loads(value)
            if value is None:
                self.trials[trial_id].pop(name, None)
            else:
                self.trials[trial_id][name] = value
            if name == "config":
                self.change(self.trials[trial_id]["place"], config=value)

    def start(self, trial_id: str, *, at: float = 1.0, attempt: int = 1, placement: Any = None) -> None:
        self.event("Started", trial_id, 4242, at, attempt=attempt)
        self.set(trial_id, status="RUNNING", attempt=attempt, placement=placement or [["local", []]])

    def report(
        self,
        trial_id: str,
        metrics: dict[str, Any],
        *,
        at: float = 2.0,
        checkpoint: str | None = None,
        attempt: int = 1,
    ) -> int:
        count = self.counts[trial_id] = self.counts.get(trial_id, 0) + 1
        values = fill(
            {"timestamp": int(T0 + at), "time_this_iter_s": 0.5} | metrics,
            trial_id=trial_id,
            count=count,
            since_restore=count,
            time_before_s=0.5 * (count - 1),
            restored_s=0.0,
        )
        text = encode_event(Reported(trial_id, attempt, 1, {}, checkpoint), at, T0 + at, None, values)
        self.events.append((trial_id, json.loads(text)))
        self.set(trial_id, last_result=self.seq, count=count)
        metric = self.meta.get("metric")
        if isinstance(metric, str) and metric in values:
            best = self.best.get(trial_id)
            if best is None or replaces(values[metric], best, str(self.meta["mode"])):
                self.best[trial_id] = values[metric]
                self.set(trial_id, best_result=self.seq)
        if checkpoint is not None:
            (self.root / checkpoint).mkdir(parents=True, exist_ok=True)
            self.set(trial_id, checkpoint=[checkpoint, count, count, 0.5 * count])
        return self.seq

    def save(self, trial_id: str, number: int, *, at: float = 2.0, **files: str) -> str:
        """Store and commit a checkpoint of these files, `model` among them; returns its path in the experiment."""
        path = f"{trial_id}/checkpoint_{number:06d}"
        source = self.root / "tmp-source"
        for name, text in {"model": f"{trial_id} {number}", **files}.items():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_text(text)
        persist(source, self.root / path, is_source_spent=True)
        self.report(trial_id, {"loss": 1.0}, checkpoint=path, at=at)
        self.commit()
        return path

    def end(self, trial_id: str, *, at: float = 3.0, kind: str = "FINISHED", reason: str = "", **exit: Any) -> None:
        if "pickled" in exit:
            exit["pickled"] = {"$bytes": exit["pickled"]}
        self.event("Exited", trial_id, {"exit": {"kind": kind, **exit}}, at)
        status = "TERMINATED" if kind in ("FINISHED", "STOPPED") else "ERROR"
        cause = "early" if reason.startswith(("stopped early", "never promoted", "not needed")) else None
        cause = "reached" if reason.startswith("reached ") else cause
        self.set(trial_id, status=status, reason=reason, cause=cause, placement=None)

    def commit(self) -> Path:
        self.db.execute("BEGIN IMMEDIATE")
        for table in ("meta", "event", "trial"):
            self.db.execute(f"DELETE FROM {table}")
        self.db.executemany(
            "INSERT INTO meta VALUES (?, ?, 0)", [(key, encode(value)) for key, value in self.meta.items()]
        )
        texts = [(seq, owner, _text(event)) for seq, (owner, event) in enumerate(self.events, start=1)]
        self.db.executemany("INSERT INTO event VALUES (?, ?, ?, 0)", texts)
        for trial_id, state in self.trials.items():
            rest = {name: value for name, value in state.items() if name not in ("config", "place", "status")}
            row = number_of(trial_id), trial_id, state["status"], json.dumps(state["config"]), encode(rest)
            self.db.execute("INSERT INTO trial VALUES (?, ?, ?, ?, ?, 0)", row)
        seal(self.db)
        self.db.execute("COMMIT")
        return self.root

    def close(self) -> Path:
        self.commit()
        self.db.close()
        return self.root


def _text(event: dict[str, Any]) -> str:
    return json.dumps(event, separators=(",", ":"))
