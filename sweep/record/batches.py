"""What a commit writes: the rows of a batch of events, with their checksums, and what is remembered of them after."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sweep.core.messages import Changes, Command, Event, Reported
from sweep.core.trial import Trial
from sweep.record.compact import compact
from sweep.record.encoding import encode
from sweep.record.records import command_texts, encode_event, encode_grown, encode_pending
from sweep.record.schema import last_seq
from sweep.record.seals import fact_text, linked, report_text, seal_of, time_text, total

Row = tuple[Any, ...]

_JUDGED, _BEST = 1, 2  # bits of `report.effect`

INSERT_FACT = "INSERT INTO fact VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
INSERT_REPORT = f"INSERT INTO report VALUES ({', '.join('?' * 20)})"
INSERT_HOST = "INSERT INTO host VALUES (?, ?, ?, ?)"
INSERT_TRIAL = f"INSERT OR REPLACE INTO trial VALUES ({', '.join('?' * 28)})"
UPDATE_TRIAL = (
    "UPDATE trial SET status=?, reason=?, config=?, resources=?, attempt=?, failures=?, losses=?, next_status=?,"
    " pending=?, placement=?, checkpoint=?, started_from=?, count=?, judged_to=?, is_saved=?, is_by_person=?,"
    " last_result=?, best_result=?, ticket=?, failure=?, ran_s=?, running_since=?, grown=?, node_losses=?, as_of=?,"
    " seal=? WHERE trial_id=?"
)
INSERT_LABEL = "INSERT OR REPLACE INTO label VALUES (?, ?, ?)"
SET_TALLY = "INSERT OR REPLACE INTO tally VALUES (?, ?, ?, ?, ?)"


class Tally(NamedTuple):
    """The table `tally`; see `sweep.record.schema`."""

    checksum: int = 0
    last: int = 0
    progress: int = 0

    def row(self) -> tuple[int, ...]:
        """Return the row of the table."""
        return (1, *self, seal_of((1, *self)))


@dataclass
class Batch:
    """The rows that a commit writes, and where the record is then."""

    seq: int
    fact_chain: int
    report_chain: int
    tally: Tally
    facts: list[Any] = field(default_factory=list)
    reports: list[Any] = field(default_factory=list)
    hosts: list[Any] = field(default_factory=list)
    new: list[Any] = field(default_factory=list)
    changed: list[Any] = field(default_factory=list)
    labels: list[Any] = field(default_factory=list)
    trials: Mapping[str, Trial] = field(default_factory=dict)
    lagging: dict[str, Trial] = field(default_factory=dict)  # whose rows will be behind

    def write(self, db: sqlite3.Connection, before: Tally) -> None:
        """Write it; within a transaction."""
        db.executemany(INSERT_FACT, self.facts)
        if self.reports:
            db.executemany(INSERT_REPORT, self.reports)
        if self.hosts:
            db.executemany(INSERT_HOST, self.hosts)
        if self.new:
            db.executemany(INSERT_TRIAL, self.new)
        if self.changed:
            db.executemany(UPDATE_TRIAL, self.changed)
        if self.labels:
            db.executemany(INSERT_LABEL, self.labels)
        if self.tally != before:
            db.execute(SET_TALLY, self.tally.row())


class Batches:
    """Make the batches of one record, in order.

    Args:
        db: the record; with its tables.
        name_of: returns the name that the user gives to a trial, or an empty text; None: nobody gives any.

    Attributes:
        seq: number of the last event. tally: as it is recorded.
    """

    def __init__(self, db: sqlite3.Connection, name_of: Callable[[Trial], str] | None) -> None:
        self._db = db
        self._name_of = name_of
        self.seq = last_seq(db)
        self._fact_chain, self._report_chain = (
            (db.execute(f"SELECT chain FROM {table} ORDER BY seq DESC LIMIT 1").fetchone() or (0,))[0]
            for table in ("fact", "report")
        )
        found = db.execute("SELECT checksum, last, progress FROM tally").fetchone()
        self.tally = Tally(*(found or ()))
        self._hosts = {(name, ip): key for key, name, ip in db.execute("SELECT id, hostname, node_ip FROM host")}
        self._known: dict[str, int] = dict(db.execute("SELECT trial_id, seal FROM trial"))
        self._written: dict[str, Trial] = {}  # trials that have not ended, as the record has them
        self._texts: dict[str, tuple[Any, str, Any, str]] = {}  # of those: config and resources, each with its text
        self._lagging: dict[str, Trial] = {}  # those whose rows are behind

    def make(
        self,
        events: Sequence[Event],
        commands: Sequence[Sequence[Command]],
        changes: Changes,
        now: float,
        wall: float,
        *,
        with_progress: bool,
    ) -> Batch:
        """Return what a batch of events writes; nothing is remembered before `written`.

        Args:
            now: seconds of driving. wall: UTC epoch seconds.
            with_progress: bring the rows of all trials up to date.
        """
        batch = Batch(self.seq, self._fact_chain, self._report_chain, self.tally, trials=changes.trials)
        times = f"{time_text(now)}|{time_text(wall)}"
        results = {result[0]: result for result in changes.results}
        for event, caused in zip(events, commands, strict=True):
            batch.seq += 1
            texts = command_texts(event, caused)
            result = results.get(batch.seq)
            if result is not None and type(event) is Reported:
                row = self._report(batch, event, result[-1], texts)
                batch.report_chain = linked(report_text(batch.seq, times, row), batch.report_chain)
                batch.reports.append((batch.seq, *row[:3], now, wall, *row[3:], batch.report_chain))
            else:  # also a report of an attempt that is gone
                kind, trial_id, attempt, data = encode_event(event)
                fact = kind, trial_id, attempt, data, texts
                batch.fact_chain = linked(fact_text(batch.seq, times, fact), batch.fact_chain)
                batch.facts.append((batch.seq, now, wall, *fact, batch.fact_chain))
        self._trials(batch, Counter(result[1] for result in changes.results), with_progress)
        new = (row[-1] for rows in (batch.hosts, batch.labels, batch.new) for row in rows)
        changed = (row[-2] for row in batch.changed)
        checksum = total((*new, *changed), (self._known[row[-1]] for row in batch.changed), self.tally.checksum)
        if with_progress:
            batch.tally = Tally(checksum, batch.seq, batch.seq)
        elif batch.facts or checksum != self.tally.checksum:  # of what follows, only reports may be lost unnoticed
            batch.tally = self.tally._replace(checksum=checksum, last=batch.seq)
        return batch

    def catch_up(self) -> Batch | None:
        """Return what brings the rows of all trials up to date; None: they are."""
        if not self._lagging:
            return None
        return self.make((), (), Changes(), 0.0, 0.0, with_progress=True)

    def written(self, batch: Batch) -> None:
        """Take note that a batch is in the record."""
        self.seq, self.tally = batch.seq, batch.tally
        self._fact_chain, self._report_chain = batch.fact_chain, batch.report_chain
        for key, hostname, node_ip, _ in batch.hosts:
            self._hosts[hostname, node_ip] = key
        self._known |= {row[0]: row[-1] for row in batch.new} | {row[-1]: row[-2] for row in batch.changed}
        for trial in batch.trials.values():
            if trial.is_ended:
                self._written.pop(trial.id, None)
                self._texts.pop(trial.id, None)
            else:
                self._written[trial.id] = trial
        self._lagging = batch.lagging

    # --- events ------------------------------------------------------------------------------------------------------

    def _report(self, batch: Batch, event: Reported, metrics: Mapping[str, Any], commands: str | None) -> Row:
        """Return the row of a report, without seq, at, wall and chain."""
        text, host, iteration, timestamp, pid, this_s, total_s, since_s, done = compact(metrics, event.seq)
        trial, effect = batch.trials[event.trial_id], 0
        old = self._written.get(event.trial_id)
        if old is None or trial.judged_to != old.judged_to:
            effect = _JUDGED
        if trial.best_result is not None and trial.best_result.seq == batch.seq:
            effect |= _BEST
        head = trial.number, event.attempt, event.seq, text, event.checkpoint, event.verdict.value or None, commands
        key = None if host is None else self._host(batch, *host)
        return *head, iteration, timestamp, pid, key, this_s, total_s, since_s, done, effect

    def _host(self, batch: Batch, hostname: str, node_ip: str | None) -> int:
        """Return the key of a host, new or known."""
        key: int | None = self._hosts.get((hostname, node_ip))
        if key is not None:
            return key
        for key, *names, _ in batch.hosts:
            if names == [hostname, node_ip]:
                return key
        row = len(self._hosts) + len(batch.hosts) + 1, hostname, node_ip
        batch.hosts.append((*row, seal_of(row)))
        return row[0]

    # --- trials ------------------------------------------------------------------------------------------------------

    def _trials(self, batch: Batch, reports: Mapping[str, int], with_progress: bool) -> None:
        """Make the rows of changed trials; what only a report changed can wait."""
        behind = dict(self._lagging)
        for trial in batch.trials.values():
            old = self._written.get(trial.id)
            if old is not None and reports.get(trial.id) == 1 and _differs_in_progress_only(old, trial):
                behind[trial.id] = trial
                continue
            behind.pop(trial.id, None)
            row = self._row(trial, batch.seq)
            if trial.id in self._known:
                batch.changed.append(_as_update(row))
                continue
            batch.new.append(row)
            if self._name_of is not None and (name := self._name_of(trial)):
                batch.labels.append((trial.id, name, seal_of((trial.id, name))))
        if with_progress:
            batch.changed += [_as_update(self._row(trial, batch.seq)) for trial in behind.values()]
        else:
            batch.lagging = behind

    def _row(self, trial: Trial, as_of: int) -> Row:
        config, resources = self._texts_of(trial)
        row = (
            trial.id,
            trial.number,
            trial.status.value,
            trial.reason,
            config,
            resources,
            trial.attempt,
            trial.failures,
            trial.losses,
            trial.next_status.value if trial.next_status is not None else None,
            encode_pending(trial.pending) if trial.pending is not None else None,
            encode(trial.placement.to_json()) if trial.placement is not None else None,
            encode(trial.checkpoint.to_json()) if trial.checkpoint is not None else None,
            encode(trial.started_from.to_json()) if trial.started_from is not None else None,
            trial.count,
            trial.judged_to,
            int(trial.is_saved),
            int(trial.is_by_person),
            trial.last_result.seq if trial.last_result is not None else None,
            trial.best_result.seq if trial.best_result is not None else None,
            trial.ticket,
            trial.failure,
            float(trial.ran_s),
            float(trial.running_since) if trial.running_since is not None else None,
            encode_grown(trial.grown),
            trial.node_losses,
            as_of,
        )
        return *row, seal_of(row)

    def _texts_of(self, trial: Trial) -> tuple[str, str]:
        """Return config and resources as they are recorded; each is made once."""
        known = self._texts.get(trial.id)
        if known is not None and known[0] is trial.config and known[2] is trial.resources:
            return known[1], known[3]
        if known is None and trial.is_ended and trial.id in self._known:  # of an earlier run, and as it was there
            found: tuple[str, str] = self._db.execute(
                "SELECT config, resources FROM trial WHERE trial_id = ?", (trial.id,)
            ).fetchone()
            return found
        texts = encode(dict(trial.config)), encode(trial.resources.to_json())
        self._texts[trial.id] = trial.config, texts[0], trial.resources, texts[1]
        return texts


def _as_update(row: Row) -> Row:
    """Return the row as the arguments of `UPDATE_TRIAL`."""
    return *row[2:], row[0]


def _differs_in_progress_only(old: Trial, new: Trial) -> bool:
    return (
        old.status is new.status
        and old.reason == new.reason
        and old.attempt == new.attempt
        and old.pending is new.pending
        and old.placement is new.placement
        and old.checkpoint is new.checkpoint
        and old.config is new.config
        and old.resources is new.resources
        and old.started_from is new.started_from
        and old.next_status is new.next_status
        and old.failures == new.failures
        and old.is_saved == new.is_saved
        and old.is_by_person == new.is_by_person
        and old.ticket == new.ticket
        and old.failure == new.failure
        and old.running_since == new.running_since
    )
