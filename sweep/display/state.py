"""What a display knows of a sweep: the trials by state, the best one, the expected end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import nsmallest
from statistics import fmean
from typing import Any

from searchers.pareto import pareto_front
from sweep.core.failures import without_numbers
from sweep.core.plan import Plan
from sweep.core.ranking import Objectives, beats, best_of, rankable
from sweep.core.resources import Node
from sweep.core.results import TRIAL_INDEX, TrialResult, flatten
from sweep.core.trial import STATES, Status, Trial, shown_state
from sweep.display.formats import clean

ENDED = ("finished", "stopped early", "failed")
_MIN_ENDS = 5  # of trials of unknown length, before something is said of their pace


@dataclass(frozen=True, slots=True)
class BestTrial:
    """A trial and the report by which it is best; `step` is that report's."""

    value: float
    trial: Trial
    step: Any


class ViewState:
    """Keep what a display shows, from the trials that changed.

    Of several objectives no single trial is best, and `front` has the Pareto set. The scheduler ends a trial at
    `max_iterations`; `num_repeats` trials in a row are of one suggestion and count by their mean.
    """

    def __init__(
        self,
        plan: Plan,
        num_trials: int | None,
        nodes: Sequence[Node] = (),
        objectives: Objectives = (),
        *,
        max_iterations: float | None = None,
        num_repeats: int = 1,
    ) -> None:
        self.replan(plan, num_trials)
        self.nodes = tuple(nodes)
        self.objectives = objectives
        self.trials: dict[int, Trial] = {}  # by number
        self.by_state: dict[str, dict[int, Trial]] = {state: {} for state in STATES}  # in the order they came there
        self.varying: dict[str, None] = {}  # names of the parameters that differ between trials
        self.last_report_at: float | None = None
        limits = [rankable(plan.stop.get("training_iteration")), max_iterations]  # where all trials end at the latest
        self.limit = min((float(limit) for limit in limits if limit is not None and limit > 0), default=None)
        self._num_repeats, self._is_repeated = num_repeats, num_repeats > 1
        self._first_config: dict[str, Any] = {}
        self._begun_at: float | None = None
        self._done_before = 0.0  # by earlier runs of the driver

    def replan(self, plan: Plan, num_trials: int | None) -> None:
        """Take what is asked for, at first or anew."""
        self.plan = plan
        self.num_trials = num_trials if num_trials is None or num_trials >= 0 else None

    def update(self, now: float, trial: Trial) -> bool:
        """Take a trial as it is `now` (seconds of driving); return whether it came into another state."""
        number, state, result = trial.number, shown_state(trial), trial.last_result
        last = self.trials.get(number)
        before = None if last is None else shown_state(last)
        if self._begun_at is None:
            self._begun_at = now
        if last is None:
            self._meet(trial)
        self.trials[number] = self.by_state[state][number] = trial
        for name in ("best", "front"):
            self.__dict__.pop(name, None)
        if result is not None and (last is None or result is not last.last_result):
            self.last_report_at = now
        if state != before and before is not None:
            del self.by_state[before][number]
        return state != (before or "waiting")

    def restart(self, trials: Iterable[Trial]) -> None:
        """Take trials of earlier runs of the driver: they count, but are no news and say nothing about speed."""
        for trial in trials:
            self.update(0.0, trial)
        self._begun_at = self.last_report_at = None
        self._done_before = self._done()

    # --- which is best ---

    @property
    def metrics(self) -> list[str]:
        """What trials are compared by: the metric, or all objectives."""
        return [name for name, _ in self.objectives] or [*filter(None, [self.plan.metric])]

    @cached_property
    def best(self) -> BestTrial | None:
        """The best trial by the last reports, the first of equals; None: none, or several objectives."""
        if self.objectives:
            return None
        metric, values = self.plan.metric, dict[int, Any]()
        for number, trial in sorted(self.trials.items()):
            if trial.last_result is not None:
                values[number] = trial.last_result.get(metric)
        if self._is_repeated:  # repeats count together, by their mean
            groups: dict[int, list[float]] = defaultdict(list)
            for number, value in values.items():
                if rankable(value) is not None:
                    groups[self._first_of(self.trials[number])].append(value)
            values = {first: fmean(some) for first, some in groups.items()}
        found = best_of(values.items(), self.plan.mode)
        if found is None:
            return None
        trial = self.trials[found[0]]
        return BestTrial(found[1], trial, _step(trial.last_result))

    @property
    def better_earlier(self) -> BestTrial | None:
        """The best report of all, where it is better than that of `best`; None where trials are repeated."""
        trials, mode, best = [trial for _, trial in sorted(self.trials.items())], self.plan.mode, self.best
        if self.objectives or self._is_repeated:
            return None
        reports = [(trial, result) for trial in trials for result in (trial.best_result, trial.last_result)]
        found = best_of(((one, self._value(one[1])) for one in reports), mode)
        if found is None or (best is not None and not beats(found[1], best.value, mode)):
            return None
        (trial, result), value = found
        return BestTrial(value, trial, _step(result))

    @cached_property
    def front(self) -> list[tuple[int, list[Any]]]:
        """The Pareto set of several objectives by the trials' last reports: (number, values), ordered by number."""
        if not self.objectives:
            return []
        results = [(number, trial.last_result) for number, trial in sorted(self.trials.items())]
        points = [
            (number, [result.get(metric) for metric, _ in self.objectives])
            for number, result in results
            if result is not None
        ]
        best = pareto_front([values for _, values in points], [mode for _, mode in self.objectives])
        return [points[i] for i in best]

    def first_ended(self, count: int) -> list[Trial]:
        """Return those that have ended, the best first: of several objectives the Pareto set."""
        front, sign = dict(self.front), -1 if self.plan.mode == "max" else 1

        def place(of: tuple[int, Trial]) -> tuple[bool, bool, float]:
            value = self._value(of[1].last_result)
            return of[0] not in front, value is None, sign * (value or 0)

        ended = (of for state in ENDED for of in self.by_state[state].items())
        return [trial for _, trial in nsmallest(count, ended, key=place)]

    def _value(self, result: TrialResult | None) -> float | None:
        return None if result is None else rankable(result.get(self.plan.metric))

    def _first_of(self, trial: Trial) -> int:
        """Return the number of the first trial that repeats the same suggestion; mostly that is its own."""
        return trial.number - int(trial.config.get(TRIAL_INDEX, trial.number % self._num_repeats))

    # --- how it is, and how far ---

    @property
    def num_ended(self) -> int:
        """How many trials are TERMINATED or in ERROR."""
        return sum(len(self.by_state[state]) for state in ENDED)

    @property
    def retries(self) -> int:
        """How often trials were started again after a failure."""
        return sum(trial.failures - (trial.status is Status.ERROR) for trial in self.trials.values())

    @property
    def failures(self) -> dict[str, list[Trial]]:
        """The trials that failed, alike ones together under the message of the first, most of them first."""
        groups: dict[str, list[Trial]] = {}
        for trial in self.by_state["failed"].values():
            groups.setdefault(without_numbers(failure_of(trial)), []).append(trial)
        return {failure_of(some[0]): some for some in sorted(groups.values(), key=len, reverse=True)}

    def eta(self, now: float) -> float | None:
        """Return the expected seconds to the end, if the work goes on at its mean pace so far; None while too little is
        done to tell, or without a number of trials."""
        done = self._done()
        new = done - self._done_before
        if self.num_trials is None or self._begun_at is None or new < (_MIN_ENDS if self.limit is None else 1):
            return None
        left = self.num_trials - done
        return (now - self._begun_at) * left / new if left > 0 else None

    def part_done(self) -> float:
        """Return how much of all trials is done, from 0 to 1; 0 without a number of trials."""
        return min(1.0, self._done() / self.num_trials) if self.num_trials else 0.0

    def _done(self) -> float:
        """Return how many trials' worth of work is done: those that run count by their iterations where it is known how
        many they have."""
        if self.limit is None:
            return self.num_ended
        begun = [one.last_result for state in STATES if state not in ENDED for one in self.by_state[state].values()]
        steps = (rankable(_step(result)) or 0.0 for result in begun)
        return self.num_ended + sum(min(1.0, max(0.0, step) / self.limit) for step in steps)

    def _meet(self, trial: Trial) -> None:
        self._is_repeated = self._is_repeated or TRIAL_INDEX in trial.config
        config = flatten(trial.config)
        first = self._first_config = self._first_config or config
        for name, value in config.items():
            if name not in self.varying and not (name in first and _equal(first[name], value)):
                self.varying[name] = None

    def varying_pairs(self, trial: Trial) -> dict[str, Any]:
        """Return those of a trial's parameters that differ between trials, flattened; all of them while none does."""
        flat = flatten(trial.config)
        return {name: flat[name] for name in self.varying if name in flat} or flat


def _step(result: TrialResult | None) -> Any:
    return None if result is None else result.get("training_iteration")


def _equal(a: Any, b: Any) -> bool:
    try:
        return a is b or bool(a == b)
    except Exception:  # the user's own __eq__, or an array's
        return False


def failure_of(trial: Trial) -> str:
    """Return why a trial failed, on one line."""
    return clean(trial.reason.partition("\n")[0]) or "failed"
