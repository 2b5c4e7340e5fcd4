"""Write a `sweep.db` by hand, row by row, for tests of what reads it."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from record_5 import SCHEMA_5

from sweep.core.ranking import replaces
from sweep.core.results import fill
from sweep.record.checkpoints import discard
from sweep.record.encoding import encode
from sweep.record.journal import Journal
from sweep.record.schema import APPLICATION_ID

T0 = 1_700_000_000.0


class MadeExperiment:
    """An experiment directory whose record the test fills; `commit` makes it visible to readers."""

    def __init__(self, root: Path, name: str = "made", **meta: Any) -> None:
        self.root = root / name
        self.root.mkdir(parents=True)
        self.db = sqlite3.connect(self.root / "sweep.db", isolation_level=None)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=OFF")
        self.db.execute(f"PRAGMA application_id={APPLICATION_ID}")
        self.db.execute("PRAGMA user_version=5")
        self.db.executescript(SCHEMA_5)
        self.db.execute("BEGIN")
        self.seq = 0
        self.meta = {"name": name, "prefix": "abcde", "metric": "loss", "mode": "min", "created": T0} | meta
        self.num_trials = 0
        self.counts: dict[str, int] = {}
        self.best: dict[str, Any] = {}
        for key, value in self.meta.items():
            self.db.execute("INSERT INTO meta VALUES (?, ?)", (key, encode(value)))

    def event(
        self, kind: str, trial_id: str | None = None, data: Any = None, at: float = 0.0, commands: Any = None
    ) -> int:
        self.seq += 1
        texts = [None if value is None else json.dumps(value) for value in (data, commands)]
        self.db.execute(
            "INSERT INTO event VALUES (?, ?, ?, ?, ?, 1, ?, ?)", (self.seq, at, T0 + at, kind, trial_id, *texts)
        )
        return self.seq

    def discard(self, path: str, *, at: float = 2.5) -> None:
        """Delete a checkpoint, as a driver does: the record says so first."""
        self.event("Tick", at=at, commands=[["Discard", path]])
        self.commit()
        discard(self.root / path)

    def trial(self, config: dict[str, Any], *, at: float = 0.0, resources: Any = None, reason: str = "") -> str:
        trial_id = f"abcde_{self.num_trials:05d}"
        self.event("Suggested", trial_id, at=at)
        self.db.execute(
            "INSERT INTO trial (trial_id, number, status, config, resources, reason) VALUES (?, ?, 'PENDING', ?, ?, ?)",
            (trial_id, self.num_trials, encode(config), encode(resources or {"bundles": [{"cpu": 1}]}), reason),
        )
        self.num_trials += 1
        return trial_id

    def set(self, trial_id: str, **columns: Any) -> None:
        names = ", ".join(f"{name} = ?" for name in columns)
        self.db.execute(f"UPDATE trial SET {names} WHERE trial_id = ?", (*columns.values(), trial_id))

    def start(self, trial_id: str, *, at: float = 1.0, attempt: int = 1, placement: Any = None) -> None:
        self.event("Started", trial_id, 4242, at)
        self.set(trial_id, status="RUNNING", attempt=attempt, placement=encode(placement or [["local", []]]))

    def report(
        self,
        trial_id: str,
        metrics: dict[str, Any],
        *,
        at: float = 2.0,
        checkpoint: str | None = None,
        attempt: int = 1,
    ) -> int:
        seq = self.event("Reported", trial_id, {"seq": 1}, at)
        count = self.counts[trial_id] = self.counts.get(trial_id, 0) + 1
        values = fill(
            {"timestamp": int(T0 + at), "time_this_iter_s": 0.5} | metrics,
            trial_id=trial_id,
            count=count,
            since_restore=count,
            time_before_s=0.5 * (count - 1),
            restored_s=0.0,
        )
        self.db.execute(
            "INSERT INTO result VALUES (?, ?, ?, ?, ?, ?, ?)",
            (seq, trial_id, attempt, at, T0 + at, checkpoint, encode(values)),
        )
        self.set(trial_id, last_result=seq, count=count)
        metric = self.meta.get("metric")
        if isinstance(metric, str) and metric in values:
            best = self.best.get(trial_id)
            if best is None or replaces(values[metric], best, str(self.meta["mode"])):
                self.best[trial_id] = values[metric]
                self.set(trial_id, best_result=seq)
        if checkpoint is not None:
            (self.root / checkpoint).mkdir(parents=True, exist_ok=True)
            self.set(trial_id, checkpoint=json.dumps([checkpoint, count, count, 0.5 * count]))
        return seq

    def end(self, trial_id: str, *, at: float = 3.0, kind: str = "FINISHED", reason: str = "", **exit: Any) -> None:
        self.event("Exited", trial_id, {"exit": {"kind": kind, **exit}}, at)
        status = "TERMINATED" if kind in ("FINISHED", "STOPPED") else "ERROR"
        self.set(trial_id, status=status, reason=reason, placement=None)

    def upgrade(self) -> Path:
        """Make what is written so far a record of today's format; no more can be written."""
        root = self.close()
        Journal(root / "sweep.db").close()
        return root

    def commit(self) -> Path:
        self.db.execute("COMMIT")
        self.db.execute("BEGIN")
        return self.root

    def close(self) -> Path:
        self.db.execute("COMMIT")
        self.db.close()
        return self.root
