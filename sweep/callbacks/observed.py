"""A trial as callbacks see it: the core's frozen value with paths, and the names that Tune's users know."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sweep.core.naming import evaluated_params, experiment_tag
from sweep.core.resources import Resources
from sweep.core.results import Result
from sweep.core.trial import Status, Trial
from sweep.record.checkpoints import Checkpoint

__all__ = ["MOST_SECONDS", "ExperimentInfo", "ObservedTrial", "plain_result"]

_SHOWN = {Status.STARTING: Status.PENDING, Status.STOPPING: Status.RUNNING}


@dataclass(frozen=True)
class ExperimentInfo:
    """What observers know of the experiment besides the trials themselves.

    Attributes:
        root: its directory, absolute.
        trainable_name: shown before the trials' ids.
        variables: flattened config paths that vary among trials; None: unknown, so all of them may.
        name_of: returns the name that the user gives to a trial, or an empty text; None: no names are given.
        max_failures: failures a trial may have and still be started again; -1: unlimited.
    """

    root: str = ""
    trainable_name: str = "trial"
    variables: tuple[str, ...] | None = ()
    name_of: Callable[[Trial], str] | None = None
    max_failures: int = 0


class ObservedTrial:
    """One trial as it was when something happened to it; read-only.

    Besides what is listed here it has every attribute of `sweep.core.trial.Trial`: `number`, `attempt`, `count`,
    `placement`, `reason` and others. Two of them are equal when they are of the same trial, so they serve as keys of
    dicts; `str(trial)` is the trial's name.
    """

    __slots__ = ("_about", "_trial")

    def __init__(self, trial: Trial, about: ExperimentInfo) -> None:
        self._trial = trial
        self._about = about

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trial, name)

    def __reduce__(self) -> Any:
        about = self._about  # the naming function may be anything; the name is all that is needed
        name = str(self)
        return _restored, (self._trial, about.root, about.trainable_name, about.variables, name, about.max_failures)

    def __str__(self) -> str:
        name_of = self._about.name_of
        given = name_of(self._trial) if name_of is not None else ""
        return given or f"{self._about.trainable_name}_{self._trial.id}"

    def __repr__(self) -> str:
        return f"<trial {self} {self.status}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObservedTrial) and other._trial.id == self._trial.id

    def __hash__(self) -> int:
        return hash(self._trial.id)

    @property
    def id(self) -> str:
        """The trial's id, for instance `a1b2c_00042`."""
        return self._trial.id

    @property
    def trial_id(self) -> str:
        """The same as `id`."""
        return self._trial.id

    @property
    def trainable_name(self) -> str:
        """The name of the function or class."""
        return self._about.trainable_name

    @property
    def custom_trial_name(self) -> str | None:
        """The name that `trial_name_creator` gave; None: none."""
        name_of = self._about.name_of
        return (name_of(self._trial) or None) if name_of is not None else None

    @property
    def status(self) -> Status:
        """PENDING, RUNNING, PAUSED, TERMINATED or ERROR; equal to that text."""
        status = self._trial.status
        return _SHOWN.get(status, status)

    @property
    def config(self) -> Mapping[str, Any]:
        """The decided config."""
        return self._trial.config

    @property
    def evaluated_params(self) -> dict[str, Any]:
        """The values that vary among trials, by flattened path."""
        return evaluated_params(self._trial.config, self._about.variables)

    @property
    def experiment_tag(self) -> str:
        """`<number>_<name=value,...>` of what varies."""
        return experiment_tag(self._trial.number, self._trial.config, self._about.variables)

    @property
    def last_result(self) -> Result:
        """The last report; empty before the first."""
        return self._trial.last_result if self._trial.last_result is not None else Result({})

    @property
    def local_path(self) -> str:
        """The trial's directory, absolute."""
        return f"{self._about.root}/{self._trial.id}"

    @property
    def path(self) -> str:
        """The same as `local_path`."""
        return self.local_path

    @property
    def logdir(self) -> str:
        """The same as `local_path`."""
        return self.local_path

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The latest checkpoint, or None."""
        ref = self._trial.checkpoint
        return Checkpoint(os.path.join(self._about.root, ref.path)) if ref is not None else None

    @property
    def num_failures(self) -> int:
        """Failures so far."""
        return self._trial.failures

    @property
    def max_failures(self) -> int:
        """Failures that it may have and still be started again; -1: unlimited."""
        return self._about.max_failures

    @property
    def error_file(self) -> str | None:
        """The file with the tracebacks of its failures; None before the first."""
        return f"{self.local_path}/error.txt" if self._trial.failures or self._trial.status is Status.ERROR else None

    @property
    def placement_group_factory(self) -> Resources:
        """What it asks for."""
        return self._trial.resources

    def is_finished(self) -> bool:
        """Whether it is TERMINATED or in ERROR."""
        return self._trial.is_ended

    def get_error(self) -> str | None:
        """Return why it is in ERROR; None otherwise."""
        return self._trial.reason if self._trial.status is Status.ERROR else None


def _restored(
    trial: Trial, root: str, trainable_name: str, variables: tuple[str, ...] | None, name: str, max_failures: int
) -> ObservedTrial:
    return ObservedTrial(trial, ExperimentInfo(root, trainable_name, variables, lambda _: name, max_failures))


MOST_SECONDS = 1e11  # since 1970 that have a date; what a trial reports may be anything


def plain_result(trial: ObservedTrial, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report as Tune's callbacks get it: a dict with `config`, `experiment_tag`, `date` and the others."""
    plain = {**result, "trial_id": trial.id, "config": dict(trial.config), "experiment_tag": trial.experiment_tag}
    plain.setdefault("done", False)
    plain.setdefault("node_ip", "127.0.0.1")
    stamp = plain.get("timestamp")
    if "date" not in plain and isinstance(stamp, (int, float)) and 0 <= stamp < MOST_SECONDS:
        plain["date"] = f"{datetime.fromtimestamp(stamp):%Y-%m-%d_%H-%M-%S}"
    return plain
