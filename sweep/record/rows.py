"""What a reader of `sweep.db` gives: trials, reports, when things happened; JSON is decoded when it is asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sweep.core.naming import experiment_tag
from sweep.core.resources import Placement, Resources
from sweep.core.trial import CheckpointRef, Escalation, shown_state
from sweep.record.codec import config_of, metrics_of, request_of, unpack_trial
from sweep.record.encoding import untag
from sweep.record.facts import Report

_ENDED = ("TERMINATED", "ERROR")


@dataclass(frozen=True)
class TrialRow:
    """One trial as it is recorded, with its last result; JSON is decoded when it is asked for.

    Attributes:
        status: as users see it: PENDING, RUNNING, PAUSED, TERMINATED or ERROR.
        recorded: what else is recorded of it, as `sweep.record.codec.pack_trial` has it.
        is_trusted: whether `fresh_config` and `fresh_metrics` load what was stored as a pickle.
        meta: of the experiment, shared by all its rows.
    """

    trial_id: str
    number: int
    status: str
    recorded: Mapping[str, Any] = field(repr=False)
    config_event: str = field(repr=False)
    last_event: str | None = field(default=None, repr=False)
    is_trusted: bool = field(default=False, repr=False, compare=False)
    meta: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def reason(self) -> str:
        """Why it waits, or why it ended."""
        return str(self.recorded.get("reason", ""))

    @property
    def cause(self) -> str:
        """The same for the program, one of `sweep.core.trial.Cause`."""
        return str(self.recorded.get("cause", ""))

    @property
    def attempt(self) -> int:
        """Starts so far."""
        return int(self.recorded.get("attempt", 0))

    @property
    def failures(self) -> int:
        """Faults of its own."""
        return int(self.recorded.get("failures", 0))

    @property
    def losses(self) -> int:
        """Faults of the infrastructure."""
        return int(self.recorded.get("losses", 0))

    @property
    def node_losses(self) -> int:
        """How often in a row its node was gone."""
        return int(self.recorded.get("node_losses", 0))

    @property
    def count(self) -> int:
        """Reports so far."""
        return int(self.recorded.get("count", 0))

    @property
    def failure(self) -> str:
        """Which kind of failure its last attempt was, one of `sweep.core.failures.CLASSES`; empty: none."""
        return str(self.recorded.get("failure", ""))

    @property
    def name(self) -> str:
        """What `trial_name_creator` called it; empty: nothing."""
        return str(self.recorded.get("name", ""))

    @property
    def last_seq(self) -> int | None:
        """Number of its last result; None before the first."""
        return self.recorded.get("last_result")

    @property
    def best_seq(self) -> int | None:
        """Number of its best result; None before the first."""
        return self.recorded.get("best_result")

    @property
    def id(self) -> str:
        """The same as `trial_id`, as live trials have it."""
        return self.trial_id

    @cached_property
    def _config(self) -> Any:
        return config_of(json.loads(self.config_event), self.trial_id)

    @cached_property
    def last_report(self) -> Report | None:
        """Its last report; None before the first."""
        return (
            None if self.last_event is None else Report(self.last_seq or 0, self.trial_id, json.loads(self.last_event))
        )

    @property
    def config_text(self) -> str:
        """The decided config as JSON text."""
        return json.dumps(self._config, separators=(",", ":"), ensure_ascii=False)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The decided config, shared by all callers: for reading only. What was stored as a pickle is not loaded."""
        return _a_dict(untag(self._config))

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
        return _a_dict(self._fresh(lambda trust: untag(self._config, trust=trust)))

    def fresh_metrics(self) -> dict[str, Any] | None:
        """Return `last_metrics` as an object of its own, pickles treated as by `fresh_config`."""
        if self.last_event is None:
            return None
        data = json.loads(self.last_event)
        found: dict[str, Any] | None = self._fresh(lambda trust: metrics_of(data, self.trial_id, trust=trust))
        return found

    def _fresh(self, read: Callable[[bool], Any]) -> Any:
        try:
            return read(self.is_trusted)
        except Exception:  # the user's own class: renamed, moved, or of a file that is gone
            return read(False)

    @cached_property
    def resources(self) -> Resources:
        """What the trial asks for."""
        return request_of(json.dumps(self.recorded["resources"]))

    @cached_property
    def escalation(self) -> Escalation | None:
        """How it came to ask for more than it was given; None: it asks for that."""
        found: Escalation | None = self._field("escalation")
        return found

    @cached_property
    def placement(self) -> Placement | None:
        """What the trial holds now, or None."""
        found: Placement | None = self._field("placement")
        return found

    @cached_property
    def checkpoint(self) -> CheckpointRef | None:
        """Its latest checkpoint, or None."""
        found: CheckpointRef | None = self._field("checkpoint")
        return found

    def _field(self, name: str) -> Any:
        return unpack_trial({name: self.recorded[name]})[name] if name in self.recorded else None

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
