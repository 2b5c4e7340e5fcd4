"""What a display knows of a sweep: the trials by state, the best one, the expected end."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from searchers.pareto import pareto_front
from sweep.core.failures import without_numbers
from sweep.core.plan import Plan
from sweep.core.ranking import Objectives, Ranking, beats, rankable
from sweep.core.resources import Node
from sweep.core.results import TRIAL_INDEX, TrialResult, flatten
from sweep.core.trial import STATES, Status, Trial, shown_state
from sweep.display.formats import clean

ENDED = ("finished", "stopped early", "failed")
_TREND_LENGTH = 8
_MIN_PART = 0.04  # of one trial: before that nothing is said of the end
_MIN_ENDS, _MAX_ENDS = 5, 50  # of trials, for how often they end
_MAX_LAST = 40


@dataclass(frozen=True, slots=True)
class BestTrial:
    """A trial and the report by which it is best; `step` is that report's."""

    value: float
    trial: Trial
    step: Any


@dataclass(frozen=True, slots=True)
class Change:
    """A trial came into another state, one of `sweep.core.trial.STATES`, `at` so many seconds of driving."""

    state: str
    trial: Trial
    at: float


class ViewState:
    """Keep what a display shows, from the trials that changed; no call looks at all trials.

    Args:
        num_trials: how many there will be; None when unlimited.
        nodes: the inventory.
        objectives: where there are several; then no single trial is best, and `front` has the Pareto set.
        max_iterations: where the scheduler ends a trial; None: nowhere.
        num_repeats: how many trials in a row are of one suggestion and count by their mean.
        can_stop_early: something may end trials before that.

    Attributes:
        trials: all, by number. by_state: the same by state, in the order in which they came there.
        trends: the last values of trials that run, by number.
        varying: names of the parameters that differ between trials, in order.
        limit: the iteration at which every trial ends at the latest; None: unknown.
        best_ever: the best report of all; `best` is by the trials' last ones.
    """

    def __init__(
        self,
        plan: Plan,
        num_trials: int | None,
        nodes: Sequence[Node] = (),
        objectives: Objectives = (),
        *,
        max_iterations: float | None = None,
        can_stop_early: bool = False,
        num_repeats: int = 1,
    ) -> None:
        self.plan = plan
        self.num_trials = num_trials if num_trials is None or num_trials >= 0 else None
        self.nodes = tuple(nodes)
        self.objectives = objectives
        self.trials: dict[int, Trial] = {}
        self.by_state: dict[str, dict[int, Trial]] = {state: {} for state in STATES}
        self.trends: dict[int, deque[float]] = {}
        self.varying: dict[str, None] = {}
        self.retries = 0
        self.best_ever: BestTrial | None = None
        self.last_failures: deque[Trial] = deque(maxlen=3)
        self.last_report_at: float | None = None
        self._ranking = Ranking(plan.mode)
        self._num_repeats = num_repeats
        self._repeats: dict[int, dict[int, float | None]] = {}  # by the first of them: the last value of each
        self._front: list[tuple[int, list[Any]]] | None = None  # until an objective of a trial changes
        self._first_config: dict[str, Any] = {}
        self._begun_at: float | None = None
        self._done_before = 0.0  # by earlier runs of the driver
        self._ends: deque[float] = deque(maxlen=_MAX_ENDS + 1)  # the beginning or an end, then all ends after it
        stop = rankable(plan.stop.get("training_iteration"))
        limits = [float(limit) for limit in (stop, max_iterations) if limit is not None and limit > 0]
        self.limit = min(limits) if limits else None
        self._can_stop_early = can_stop_early
        self._last_ended: deque[Trial] = deque(maxlen=_MAX_LAST)

    @property
    def best(self) -> BestTrial | None:
        """The best trial by the last reports, the first of equals; None: none, or several objectives."""
        found = self._ranking.best()
        if found is None:
            return None
        trial = self.trials[found[0]]
        return BestTrial(found[1], trial, (trial.last_result or TrialResult({})).get("training_iteration"))

    @property
    def better_earlier(self) -> BestTrial | None:
        """The best report of all, where it is better than that of `best`."""
        ever, best = self.best_ever, self.best
        if ever is None or (best is not None and not beats(ever.value, best.value, self.plan.mode)):
            return None
        return ever

    @property
    def front(self) -> list[tuple[int, list[Any]]]:
        """The Pareto set of several objectives by the trials' last reports: (number, values), ordered by number."""
        if not self.objectives:
            return []
        if self._front is None:
            trials = sorted(self.trials.items())
            points = [(number, self._point(trial)) for number, trial in trials if trial.last_result is not None]
            best = pareto_front([values for _, values in points], [mode for _, mode in self.objectives])
            self._front = [points[i] for i in best]
        return self._front

    @property
    def metrics(self) -> list[str]:
        """What trials are compared by: the metric, or all objectives."""
        return [name for name, _ in self.objectives] or [*filter(None, [self.plan.metric])]

    @property
    def num_ended(self) -> int:
        """How many trials are TERMINATED or in ERROR."""
        return sum(len(self.by_state[state]) for state in ENDED)

    def update(self, now: float, trial: Trial) -> Change | None:
        """Take a trial as it is `now` (seconds of driving); return what became of it, None when its state is the
        same, or when it is new and waits."""
        number, state = trial.number, shown_state(trial)
        last = self.trials.get(number)
        before = None if last is None else shown_state(last)
        if self._begun_at is None:
            self._begun_at = now
            self._ends.append(now)
        if last is None:
            self._meet(trial)
        self.retries += max(0, _retries(trial) - (0 if last is None else _retries(last)))
        self.trials[number] = self.by_state[state][number] = trial
        if trial.last_result is not (None if last is None else last.last_result):
            self._report(trial, now)
        if state == before:
            return None
        if before is not None:
            del self.by_state[before][number]
        if state != "running":
            self.trends.pop(number, None)
        if state in ENDED:
            self._ends.append(now)
            self._last_ended.append(trial)
        if state == "failed":
            self.last_failures.append(trial)
        return None if state == "waiting" and before is None else Change(state, trial, now)

    def restart(self, trials: Iterable[Trial]) -> None:
        """Take trials of earlier runs of the driver: they count, but are no news and say nothing about speed."""
        for trial in trials:
            self.update(0.0, trial)
        self._begun_at = None
        self._ends.clear()
        self._done_before = self._done()
        self.last_failures.clear()
        self.last_report_at = None

    @property
    def failures(self) -> dict[str, list[Trial]]:
        """The trials that failed, alike ones together under the message of the first, most of them first."""
        groups: dict[str, list[Trial]] = {}
        for trial in self.by_state["failed"].values():
            groups.setdefault(without_numbers(failure_of(trial)), []).append(trial)
        return {failure_of(some[0]): some for some in sorted(groups.values(), key=len, reverse=True)}

    def states(self) -> dict[int, str]:
        """Return the states of the trials that curves are drawn of, by number: those that run or are paused, the last
        ones that ended, and the best."""
        best = self.best
        shown = [*self.by_state["running"].values(), *self.by_state["paused"].values(), *self._last_ended]
        numbers = [trial.number for trial in shown] + ([] if best is None else [best.trial.number])
        return {number: shown_state(self.trials[number]) for number in numbers}

    def first_ended(self, count: int) -> list[Trial]:
        """Return those that have ended: the best first (of several objectives the Pareto set), then the last ones."""
        ranked = [number for number, _ in self.front] or self._ranking.first(count + len(self.by_state["running"]))
        last = [trial.number for trial in reversed(self._last_ended)]
        return [self.trials[n] for n in dict.fromkeys((*ranked, *last)) if self.trials[n].is_ended][:count]

    def used(self) -> dict[str, tuple[float, float]]:
        """Return (allocated, total) of cpu, gpu, tpu and memory (bytes), those that there are any of."""
        kinds = Counter(device.kind for node in self.nodes for device in node.devices)
        totals = {
            "cpu": sum(node.cpus for node in self.nodes),
            "gpu": kinds["gpu"],
            "tpu": kinds["tpu"],
            "memory": sum(node.memory for node in self.nodes),
        }
        held = [one.resources.total for one in self.by_state["running"].values() if one.placement is not None]
        return {
            name: (float(sum(getattr(one, name) for one in held)), float(total))
            for name, total in totals.items()
            if total
        }

    def rate(self, now: float) -> float | None:
        """Return trials ended per second, by the last 50 that did; None while they are too few to tell."""
        count = len(self._ends) - 1
        return count / (now - self._ends[0]) if count >= _MIN_ENDS and now > self._ends[0] else None

    def eta(self, now: float) -> float | None:
        """Return the expected seconds to the end; None while too little is known, or without a number of trials.

        Where all trials end at the same iteration the work goes on at its mean pace so far; else trials go on to end as
        often as they do now.
        """
        if self.num_trials is None or self.num_ended >= self.num_trials:
            return None
        if self.limit is None or self._can_stop_early:
            rate = self.rate(now)
            return None if rate is None else (self.num_trials - self.num_ended) / rate
        done = self._done()
        new = done - self._done_before
        if self._begun_at is None or new < _MIN_PART:
            return None
        return (now - self._begun_at) * (self.num_trials - done) / new

    def part_done(self) -> float | None:
        """Return how much of all trials is done, from 0 to 1: those that run count by their iterations where it is
        known how many they have; None without a number of trials."""
        return min(1.0, self._done() / self.num_trials) if self.num_trials else None

    def _done(self) -> float:
        """Return how many trials' worth of work is done."""
        if self.limit is None:
            return self.num_ended
        begun = [one.last_result for state in STATES if state not in ENDED for one in self.by_state[state].values()]
        return self.num_ended + sum(min(1.0, _iterations(result) / self.limit) for result in begun)

    def _meet(self, trial: Trial) -> None:
        config = flatten(trial.config)
        first = self._first_config = self._first_config or config
        for name, value in config.items():
            if name not in self.varying and not (name in first and _equal(first[name], value)):
                self.varying[name] = None

    def _point(self, trial: Trial) -> list[Any]:
        return [] if trial.last_result is None else [trial.last_result.get(metric) for metric, _ in self.objectives]

    def _report(self, trial: Trial, now: float) -> None:
        """Let a trial count by its last report, which is a new one or gone, and by its best one."""
        result, metric = trial.last_result, self.plan.metric
        if result is not None:
            self.last_report_at = now
        value = rankable(result.get(metric)) if result is not None and metric else None
        if value is not None:
            self.trends.setdefault(trial.number, deque(maxlen=_TREND_LENGTH)).append(value)
        if self.objectives:
            self._front = None
            return
        if self._num_repeats > 1 or TRIAL_INDEX in trial.config:  # repeats count together, by their mean
            first = trial.number - trial.config.get(TRIAL_INDEX, trial.number % self._num_repeats)
            some = self._repeats.setdefault(first, {})
            some[trial.number] = value
            values = [one for one in some.values() if one is not None]
            self._ranking.put(first, fmean(values) if values else None)
            return
        self._ranking.put(trial.number, value)
        for report in (trial.best_result, result):  # a report of a trial that is being stopped is not among its best
            value = None if report is None or not metric else rankable(report.get(metric))
            if report is None or value is None:
                continue
            ever, mode = self.best_ever, self.plan.mode
            if (
                ever is None
                or beats(value, ever.value, mode)
                or (value == ever.value and trial.number < ever.trial.number)
            ):
                self.best_ever = BestTrial(value, trial, report.get("training_iteration"))


def _iterations(result: TrialResult | None) -> float:
    value = None if result is None else rankable(result.get("training_iteration"))
    return max(0.0, value or 0.0)


def _retries(trial: Trial) -> int:
    """Return how often a trial was started again after a failure."""
    return trial.failures - (trial.status is Status.ERROR)


def _equal(a: Any, b: Any) -> bool:
    try:
        return a is b or bool(a == b)
    except Exception:  # the user's own __eq__, or an array's
        return False


def failure_of(trial: Trial) -> str:
    """Return why a trial failed, on one line."""
    return clean(trial.reason.partition("\n")[0]) or "failed"


def varying_pairs(view: ViewState, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of a config's parameters that differ between trials, flattened; all of them while none is known."""
    flat = flatten(config)
    return {name: flat[name] for name in view.varying if name in flat} or flat
