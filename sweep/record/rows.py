"""What a reader of `sweep.db` gives: trials, reports, when things happened; JSON is decoded when it is asked for."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sweep.core.naming import experiment_tag
from sweep.core.resources import Placement, Resources
from sweep.core.trial import CheckpointRef, Grown, shown_state
from sweep.record.encoding import decode, decode_metrics
from sweep.record.records import decode_grown

_ENDED = ("TERMINATED", "ERROR")


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
    grown_text: str | None = field(default=None, repr=False)
    node_losses: int = 0
    name: str = ""
    is_trusted: bool = field(default=False, repr=False, compare=False)
    meta: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def id(self) -> str:
        """The same as `trial_id`, as live trials have it."""
        return self.trial_id

    @cached_property
    def config(self) -> dict[str, Any]:
        """The decided config, shared by all callers: for reading only. What was stored as a pickle is not loaded."""
        return _a_dict(decode(self.config_text))

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
        return _a_dict(self._decoded(self.config_text))

    def fresh_metrics(self) -> dict[str, Any] | None:
        """Return `last_metrics` as an object of its own, pickles treated as by `fresh_config`."""
        return None if self.last_text is None else self._decoded(self.last_text, decode_metrics)

    def _decoded(self, text: str, by: Callable[..., Any] = decode) -> Any:
        try:
            return by(text, trust=self.is_trusted)
        except Exception:  # the user's own class: renamed, moved, or of a file that is gone
            return by(text)

    @cached_property
    def resources(self) -> Resources:
        """What the trial asks for."""
        return Resources.from_json(json.loads(self.resources_text))

    @cached_property
    def grown(self) -> Grown | None:
        """How it came to ask for more than it was given; None: it asks for that."""
        return decode_grown(self.grown_text)

    @cached_property
    def placement(self) -> Placement | None:
        """What the trial holds now, or None."""
        data = None if self.placement_text is None else json.loads(self.placement_text)
        return None if data is None else Placement.from_json(data)

    @cached_property
    def checkpoint(self) -> CheckpointRef | None:
        """Its latest checkpoint, or None."""
        return CheckpointRef.parse(self.checkpoint_text)

    @cached_property
    def last_checkpoint(self) -> CheckpointRef | None:
        """The checkpoint that came with its last report, or None."""
        return CheckpointRef.parse(self.last_checkpoint_text)

    @cached_property
    def experiment_tag(self) -> str:
        """Its number and the values that vary among trials."""
        return experiment_tag(self.number, self.config, variables_of(self.meta))

    @property
    def trainable_name(self) -> str:
        """Name of the function or class; `trial` when it is not recorded."""
        return trainable_name(self.meta)

    @property
    def trial_name(self) -> str:
        """What `trial_name_creator` called it, else `<trainable>_<trial id>`."""
        return self.name or f"{self.trainable_name}_{self.trial_id}"

    @cached_property
    def state(self) -> str:
        """Where it is, one of `sweep.core.trial.STATES`."""
        return shown_state(self)

    @property
    def was_stopped_early(self) -> bool:
        """Whether a scheduler ended it before it was through."""
        return self.state == "stopped early"

    @property
    def is_ended(self) -> bool:
        """Whether it is TERMINATED or ERROR."""
        return self.status in _ENDED


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


def last_exit(connection: sqlite3.Connection, trial_id: str) -> dict[str, Any]:
    """Return how the trial's last attempt ended (kind, error, traceback, class_name, signal); {} if none did, or if its
    `fit()` needed more: what became of that is in the trial's reason."""
    row = connection.execute(
        "SELECT json_remove(json_extract(data, '$.exit'), '$.pickled') FROM event"
        " WHERE kind = 'Exited' AND trial_id = ? ORDER BY seq DESC LIMIT 1",
        (trial_id,),
    ).fetchone()
    ended = dict(json.loads(row[0])) if row is not None and row[0] is not None else {}
    return {} if ended.get("kind") == "NEEDS_MORE" else ended


def trainable_name(meta: Mapping[str, Any]) -> str:
    """Return the name of the function or class that an experiment runs; `trial` when it is not recorded."""
    trainable = meta.get("trainable")
    return str((trainable.get("name") if isinstance(trainable, Mapping) else trainable) or "trial")


def variables_of(meta: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the flattened config paths that vary among the trials of an experiment; None: unknown, so all may."""
    found = meta.get("variables")
    return tuple(found) if isinstance(found, (list, tuple)) else None


def _a_dict(config: Any) -> dict[str, Any]:
    return config if isinstance(config, dict) else {}
