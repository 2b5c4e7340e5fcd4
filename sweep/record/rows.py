"""What a reader of `sweep.db` gives: trials, reports, when things happened; JSON is decoded when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sweep.core.literals import experiment_tag
from sweep.core.resources import Placement, Resources
from sweep.core.trial import ENDED, CheckpointRef, Escalation, Trial, shown_state
from sweep.record.codec import metrics_of, unpacked
from sweep.record.encoding import decode
from sweep.record.facts import Report


@dataclass(frozen=True)
class TrialRow:
    """One trial as it is recorded, with its last result; configs and reports are decoded when they are asked for.

    Attributes:
        status: as users see it: PENDING, RUNNING, PAUSED, TERMINATED or ERROR.
        config_text: the decided config as JSON.
        resources, reason, cause, attempt, failures, losses, node_losses, count, failure, escalation, placement,
            checkpoint, is_by_person: as of `sweep.core.trial.Trial`.
        name: what `trial_name_creator` called it; empty: nothing.
        last_seq, best_seq: numbers of its last and its best result; None before the first.
        last_report: its last result; None before the first.
        is_trusted: whether `fresh_config` and `fresh_metrics` load what was stored as a pickle.
        meta: of the experiment, shared by all its rows.
    """

    trial_id: str
    number: int
    status: str
    config_text: str = field(repr=False)
    resources: Resources
    reason: str = ""
    cause: str = ""
    attempt: int = 0
    failures: int = 0
    losses: int = 0
    node_losses: int = 0
    count: int = 0
    failure: str = ""
    name: str = ""
    last_seq: int | None = None
    best_seq: int | None = None
    escalation: Escalation | None = None
    placement: Placement | None = None
    checkpoint: CheckpointRef | None = None
    is_by_person: bool = False
    last_report: Report | None = field(default=None, repr=False)
    is_trusted: bool = field(default=False, repr=False, compare=False)
    meta: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, state: Mapping[str, Any], **more: Any) -> TrialRow:
        """Return the row of a trial, of which the record says this besides."""
        known = {name: value for name, value in unpacked(Trial, state).items() if name in cls.__dataclass_fields__}
        last, best = state.get("last_result"), state.get("best_result")
        return cls(**known, last_seq=last, best_seq=best, name=state.get("name", ""), **more)

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
        return None if self.last_report is None else self.last_report.metrics

    def fresh_config(self) -> dict[str, Any]:
        """Return the config as an object of its own, for users to change.

        What was stored as a pickle is loaded when the reader trusts the experiment; otherwise, and where its code is
        gone, something stands for it that prints like the value.
        """
        return _a_dict(self._fresh(lambda trust: decode(self.config_text, trust=trust)))

    def fresh_metrics(self) -> dict[str, Any] | None:
        """Return `last_metrics` as an object of its own, pickles treated as by `fresh_config`."""
        data = {} if self.last_report is None else self.last_report.data
        found: dict[str, Any] | None = self._fresh(lambda trust: metrics_of(data, self.trial_id, trust=trust))
        return found

    def _fresh(self, read: Callable[[bool], Any]) -> Any:
        if self.is_trusted:
            with suppress(Exception):  # the user's own class: renamed, moved, or of a file that is gone
                return read(True)
        return read(False)

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
        return self.status in ENDED


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
