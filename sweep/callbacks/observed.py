"""A trial as callbacks and users' naming functions see it: the frozen trial, under the names that Tune's users know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sweep.core.results import NODE_IP, TrialResult, date_of
from sweep.core.trial import Status, Trial, shown_status
from sweep.record.layout import ERROR_FILE
from sweep.record.reader import ExperimentReader
from sweep.results.trials import ExperimentInfo, ShownTrial
from sweep.results.winners import metric_analysis


class ObservedTrial(ShownTrial):
    """One trial as it was when something happened to it.

    Two of them are equal when they are of the same trial, so they serve as keys of dicts.
    """

    __slots__ = ()
    _facts: Trial

    def __reduce__(self) -> Any:
        about = replace(self._about, name_of=None)  # which may be any function: the name is all that is needed
        return _restored, (self._facts, about, self.custom_trial_name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObservedTrial) and other._facts.id == self._facts.id

    def __hash__(self) -> int:
        return hash(self._facts.id)

    @property
    def status(self) -> Status:
        """PENDING, RUNNING, PAUSED, TERMINATED or ERROR; equal to that text."""
        return Status(shown_status(self._facts.status))

    @property
    def config(self) -> Mapping[str, Any]:
        """The decided config."""
        return self._facts.config

    @property
    def last_result(self) -> TrialResult:
        """The last report; empty before the first."""
        return self._facts.last_result or TrialResult({})

    @property
    def metric_analysis(self) -> dict[str, dict[str, float]]:
        """For each number that it has reported, by its flattened name: max, min, avg, last, last-5-avg and last-10-avg.

        Read from the record, which may already know of later reports than the one that a callback is called for.
        """
        return metric_analysis(ExperimentReader(self._about.root), self.trial_id)

    @property
    def error_file(self) -> str | None:
        """The file with the tracebacks of its failures; None before the first."""
        has_failed = self._facts.failures or self._facts.status is Status.ERROR
        return f"{self.path}/{ERROR_FILE}" if has_failed else None

    def get_error(self) -> str | None:
        """Return why it is in ERROR; None otherwise."""
        return self._facts.reason if self._facts.status is Status.ERROR else None


def _restored(trial: Trial, about: ExperimentInfo, name: str | None) -> ObservedTrial:
    return ObservedTrial(trial, replace(about, name_of=lambda _: name or ""))


def plain_result(trial: ObservedTrial, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report as Tune's callbacks get it: a dict with `config`, `experiment_tag`, `date` and the others."""
    plain = {**result, "trial_id": trial.id, "config": dict(trial.config), "experiment_tag": trial.experiment_tag}
    plain.setdefault("done", False)
    plain.setdefault("node_ip", NODE_IP)
    date = date_of(plain.get("timestamp"))
    return plain if date is None else {"date": date} | plain
