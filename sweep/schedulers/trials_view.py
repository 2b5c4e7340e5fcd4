"""What the functions that give out resources may see of a sweep: the machines, and the trials as they are now."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from typing import final

from sweep.core.resources import Node, Resources
from sweep.core.trial import Trial
from sweep.errors import refuse_unknown


@refuse_unknown()
@final
class TrialsView:
    """What an allocation function may see of a sweep; in Tune this argument is called `controller`.

    Attributes:
        nodes: the machines there are.
        base_resources: the request that all trials began with; None before the first trial.
    """

    def __init__(self) -> None:
        self.nodes: tuple[Node, ...] = ()
        self.base_resources: Resources | None = None
        self._trials: Mapping[str, Trial] = {}
        self._live: list[tuple[int, str]] = []  # numbers and ids, sorted
        self._live_ids: set[str] = set()
        self._leaving: dict[str, None] = {}  # ended, and may hold their resources still

    @property
    def num_live(self) -> int:
        """How many trials have not ended: they run, wait or are paused."""
        return len(self._live)

    @property
    def total_resources(self) -> dict[str, float]:
        """What all machines have, under Tune's names: `CPU`, `GPU`, `TPU`, `memory` and custom ones."""
        total: dict[str, float] = {}
        for node in self.nodes:
            amounts = {"CPU": node.cpus, "GPU": node.amount("gpu"), "TPU": node.amount("tpu"), "memory": node.memory}
            for name, amount in (amounts | dict(node.custom)).items():
                total[name] = total.get(name, 0.0) + amount
        return {name: amount for name, amount in total.items() if amount}

    def get_trials(self) -> list[Trial]:
        """Return all trials, in the order they were made."""
        return list(self._trials.values())

    def get_live_trials(self) -> list[Trial]:
        """Return the trials that have not ended, by number."""
        return [self._trials[trial_id] for _, trial_id in self._live if trial_id in self._trials]

    def get_trial(self, trial_id: str) -> Trial | None:
        """Return one trial; None if there is none of that id."""
        return self._trials.get(trial_id)

    @property
    def live_ids(self) -> list[str]:
        """Ids of the trials that have not ended, by number."""
        return [trial_id for _, trial_id in self._live]

    def rank(self, trial: Trial) -> int:
        """Return how many live trials have a smaller number."""
        return bisect.bisect_left(self._live, (trial.number, trial.id))

    def get_leaving_trials(self) -> list[Trial]:
        """Return the trials that have ended and whose resources are not given back yet."""
        found = [self._trials[trial_id] for trial_id in self._leaving if trial_id in self._trials]
        leaving = [trial for trial in found if trial.is_ended and trial.placement is not None]
        self._leaving = {trial.id: None for trial in leaving}
        return leaving

    def see(self, trials: Mapping[str, Trial]) -> None:
        """Take the trials as they are now; for the scheduler."""
        self._trials = trials

    def add(self, trial: Trial) -> None:
        """Count a trial as live; for the scheduler."""
        if trial.id not in self._live_ids:
            self._live_ids.add(trial.id)
            bisect.insort(self._live, (trial.number, trial.id))

    def remove(self, trial: Trial) -> None:
        """Count a trial as ended; for the scheduler."""
        if trial.id in self._live_ids:
            self._live_ids.discard(trial.id)
            del self._live[self.rank(trial)]
        if trial.placement is not None:
            self._leaving[trial.id] = None
