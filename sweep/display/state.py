"""What a display knows of a sweep: counters, the trials that run, the best one, the expected end."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from searchers.pareto import pareto_front
from sweep.core.expected import is_silent
from sweep.core.failures import without_numbers
from sweep.core.plan import Plan
from sweep.core.ranking import Objectives, Ranking, beats, rankable
from sweep.core.resources import Node
from sweep.core.results import TRIAL_INDEX, TrialResult, flatten
from sweep.core.trial import STATES, Status, Trial, shown_state
from sweep.display.formats import clean
from sweep.display.pace import MIN_ENDS, Pace

_ENDED = ("finished", "stopped early", "failed")
_TREND_LENGTH = 8
_MIN_PART = 0.04  # of one trial: before that nothing is said of the end
_MAX_LAST = 40


@dataclass(slots=True)
class Live:
    """A trial that has a process: since when (seconds of driving), its last reported values, and when they came."""

    trial: Trial
    since: float
    trend: deque[float] = field(default_factory=lambda: deque(maxlen=_TREND_LENGTH))
    last: TrialResult | None = None
    reported_at: float | None = None

    def left_s(self, limit: float, now: float) -> float:
        """Return the seconds until it comes to an iteration, at its own pace; 0: that is not known."""
        iterations = _iterations(self.last)
        taken = None if self.last is None else rankable(self.last.get("time_total_s"))
        if self.reported_at is None or not iterations or not taken:
            return 0.0
        return (limit - iterations) * taken / iterations - (now - self.reported_at)


@dataclass(frozen=True, slots=True)
class BestTrial:
    """A trial and the report by which it is best; `step` is that report's."""

    value: float
    trial: Trial
    step: Any


@dataclass(frozen=True, slots=True)
class Change:
    """A trial came into another state, one of `sweep.core.trial.STATES`; a new one that waits is no news."""

    state: str
    trial: Trial
    ran_s: float = 0.0


class ViewState:
    """Keep what a display shows, from the trials that changed; no call looks at all trials.

    Per trial that has ended it keeps one word, and the trial itself.

    Args:
        num_trials: how many there will be; None when unlimited.
        nodes: the inventory.
        objectives: where there are several; then no single trial is best, and `front` has the Pareto set.
        max_iterations: where the scheduler ends a trial; None: nowhere.
        num_repeats: how many trials in a row are of one suggestion and count by their mean.
        can_stop_early: something may end trials before that.

    Attributes:
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
        self.counts = dict.fromkeys(STATES, 0)
        self.retries = 0
        self.live: dict[str, Live] = {}
        self.waiting: dict[str, Trial] = {}
        self.paused: dict[str, Trial] = {}
        self.objectives = objectives
        self.best_ever: BestTrial | None = None
        self.varying: dict[str, None] = {}  # names of the parameters that differ between trials, in order
        self.failed: dict[str, Trial] = {}
        self.last_failures: deque[Trial] = deque(maxlen=3)
        self.silent: set[int] = set()  # numbers of the trials that went all their way without the metric
        self.last_report_at: float | None = None
        self._ranking = Ranking(plan.mode)
        self._num_repeats = num_repeats
        self._repeats: dict[int, dict[int, Any]] = {}  # by the first of them: the last value of each
        self._points: dict[int, list[Any]] = {}  # the last values of several objectives, by trial
        self._front: list[tuple[int, list[Any]]] | None = None  # until one of those changes
        self._known: dict[int, tuple[str, Trial]] = {}  # by number: its state, and the trial as it is now
        self._holding: dict[str, Trial] = {}
        self._first_config: dict[str, Any] = {}
        self._pace = Pace()
        self._done_before = 0.0  # by earlier runs of the driver
        stop = rankable(plan.stop.get("training_iteration"))
        limits = [float(limit) for limit in (stop, max_iterations) if limit is not None and limit > 0]
        self.limit = min(limits) if limits else None
        self._can_stop_early = can_stop_early
        self._last_ended: deque[Trial] = deque(maxlen=_MAX_LAST)
        self._best_at_ends: deque[float] = deque(maxlen=11)

    @property
    def best(self) -> BestTrial | None:
        """The best trial by the last reports, the first of equals; None: none, or several objectives."""
        found = self._ranking.best()
        if found is None:
            return None
        number, value = found
        trial = self._known[number][1]
        return BestTrial(
            value, trial, None if trial.last_result is None else trial.last_result.get("training_iteration")
        )

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
        if self._front is None and self._points:
            points = sorted(self._points.items())
            best = pareto_front([values for _, values in points], [mode for _, mode in self.objectives])
            self._front = [points[i] for i in best]
        return self._front or []

    @property
    def metrics(self) -> list[str]:
        """What trials are compared by: the metric, or all objectives."""
        return [name for name, _ in self.objectives] or [*filter(None, [self.plan.metric])]

    @property
    def num_ended(self) -> int:
        """How many trials are TERMINATED or in ERROR."""
        return sum(self.counts[state] for state in _ENDED)

    def update(self, first: float, now: float, trial: Trial) -> Change | None:
        """Take a trial as it is `now`, which changed for the first time since the last call at `first` (seconds of
        driving); return what became of it, None when its state is the same."""
        state = shown_state(trial)
        self._pace.begin(first)
        before, last = self._known.get(trial.number, (None, None))
        self._known[trial.number] = (state, trial)
        if last is None:
            self._meet(trial)
        self.retries += max(0, _retries(trial) - (0 if last is None else _retries(last)))
        _keep(self._holding, trial, is_kept=trial.placement is not None)
        _keep(self.waiting, trial, is_kept=state == "waiting")
        _keep(self.paused, trial, is_kept=state == "paused")
        _keep(self.failed, trial, is_kept=state == "failed")
        self._rank(trial)
        live = self.live.get(trial.id)
        if live is None and (trial.is_held or (trial.is_ended and trial.attempt and before not in _ENDED)):
            live = self.live[trial.id] = Live(trial, first)
        if live is not None:
            live.trial = trial
            if trial.last_result is not None and trial.last_result is not live.last:
                self._report(live, trial.last_result, now)
        if state == before:
            return None
        if before is not None:
            self.counts[before] -= 1
        self.counts[state] += 1
        ran = 0.0
        if not trial.is_held and live is not None:
            ran = now - live.since
            del self.live[trial.id]
        if is_silent(trial, self.plan):
            self.silent.add(trial.number)
        else:
            self.silent.discard(trial.number)
        if state in _ENDED:
            self._end(trial, state, now)
        return None if state == "waiting" and before is None else Change(state, trial, ran)

    def restart(self, trials: Iterable[Trial]) -> None:
        """Take trials of earlier runs of the driver: they count, but are no news and say nothing about speed."""
        for trial in trials:
            self.update(0.0, 0.0, trial)
        self._pace = Pace()
        self._done_before = self._done()
        self._best_at_ends.clear()
        self.last_failures.clear()
        self.last_report_at = None

    @property
    def failures(self) -> dict[str, list[Trial]]:
        """The trials that failed, alike ones together under the message of the first, most of them first."""
        groups: dict[str, list[Trial]] = {}
        for trial in self.failed.values():
            groups.setdefault(without_numbers(failure_of(trial)), []).append(trial)
        return {failure_of(some[0]): some for some in sorted(groups.values(), key=len, reverse=True)}

    def states(self) -> dict[int, str]:
        """Return the states of the trials that curves are drawn of, by number: those that have a process or are
        paused, the last ones that ended, and the best."""
        best = self._ranking.best()
        last = [
            trial.number
            for trial in (*(one.trial for one in self.live.values()), *self.paused.values(), *self._last_ended)
        ]
        return {number: self._known[number][0] for number in [*last, *([] if best is None else [best[0]])]}

    def first_ended(self, count: int) -> list[Trial]:
        """Return those that have ended: the best first (of several objectives the Pareto set), then
        the last ones."""
        numbers = [number for number, _ in self.front] or self._ranking.first(count + len(self.live))
        ranked = (self._known[number] for number in numbers)
        last = (self._known[trial.number] for trial in reversed(self._last_ended))
        found = {trial.number: trial for state, trial in (*ranked, *last) if state in _ENDED}
        return [*found.values()][:count]

    def used(self) -> dict[str, tuple[float, float]]:
        """Return (allocated, total) of cpu, gpu, tpu and memory (bytes), those that there are any of."""
        kinds = Counter(device.kind for node in self.nodes for device in node.devices)
        totals = {
            "cpu": sum(node.cpus for node in self.nodes),
            "gpu": kinds["gpu"],
            "tpu": kinds["tpu"],
            "memory": sum(node.memory for node in self.nodes),
        }
        held = [trial.resources.total for trial in self._holding.values()]
        return {
            name: (float(sum(getattr(one, name) for one in held)), float(total))
            for name, total in totals.items()
            if total
        }

    def rate(self, now: float) -> float | None:
        """Return trials ended per second, over the last minute at least; None while they are too few to tell.

        Args:
            now: seconds of driving.
        """
        return self._pace.per_second(now)

    def eta(self, now: float) -> float | None:
        """Return the expected seconds to the end; None while too little is known, or without a number of trials.

        Where all trials end at the same iteration the work goes on at its mean pace so far, and the last trial at its
        own; else trials go on to end as often as they do now.
        """
        if self.num_trials is None or self.num_ended >= self.num_trials:
            return None
        if self.limit is None or self._can_stop_early:
            rate = self.rate(now) if self._pace.num_ended >= MIN_ENDS else None
            return None if rate is None else (self.num_trials - self.num_ended) / rate
        done = self._done()
        new = done - self._done_before
        if self._pace.began is None or new < _MIN_PART:
            return None
        shared = (now - self._pace.began) * (self.num_trials - done) / new
        return max([shared, *(one.left_s(self.limit, now) for one in self.live.values())])

    def part_done(self) -> float | None:
        """Return how much of all trials is done, from 0 to 1: those that run count by their iterations where it is
        known how many they have; None without a number of trials."""
        return min(1.0, self._done() / self.num_trials) if self.num_trials else None

    def _done(self) -> float:
        """Return how many trials' worth of work is done."""
        if self.limit is None:
            return self.num_ended
        begun = [one.trial.last_result for one in self.live.values()] + [one.last_result for one in self.unfinished()]
        return self.num_ended + sum(min(1.0, _iterations(result) / self.limit) for result in begun)

    def unfinished(self) -> Iterable[Trial]:
        """Give the trials that have not ended and have no process: those that wait or are paused."""
        yield from self.waiting.values()
        yield from self.paused.values()

    def improvement(self) -> tuple[float, int] | None:
        """Return the best value's change, as a fraction, and over how many ended trials, ten at most; None: unknown."""
        best = self.best
        if best is None or len(self._best_at_ends) < 2 or not self._best_at_ends[0]:
            return None
        change = (best.value - self._best_at_ends[0]) / abs(self._best_at_ends[0])
        return (change, len(self._best_at_ends) - 1) if math.isfinite(change) else None

    def _meet(self, trial: Trial) -> None:
        config = flatten(trial.config)
        if not self._first_config:
            self._first_config = config
            return
        first = self._first_config
        for name, value in config.items():
            if name not in self.varying and not (name in first and _equal(first[name], value)):
                self.varying[name] = None

    def _report(self, live: Live, result: TrialResult, now: float) -> None:
        live.last = result
        self.last_report_at = live.reported_at = now
        value = result.get(self.plan.metric) if self.plan.metric else None
        if isinstance(value, (int, float)):
            live.trend.append(float(value))

    def _rank(self, trial: Trial) -> None:
        """Let a trial count by its last report, and by its best one."""
        result = trial.last_result
        if self.objectives:
            point = None if result is None else [result.get(metric) for metric, _ in self.objectives]
            if point != self._points.get(trial.number):
                self._front = None
            if point is not None:
                self._points[trial.number] = point
            else:
                self._points.pop(trial.number, None)
            return
        metric = self.plan.metric
        if not metric:
            return
        value = None if result is None else rankable(result.get(metric))
        if self._num_repeats > 1 or TRIAL_INDEX in trial.config:  # repeats count together, by their mean
            first = trial.number - trial.config.get(TRIAL_INDEX, trial.number % self._num_repeats)
            some = self._repeats.setdefault(first, {})
            some[trial.number] = value
            values = [one for one in some.values() if one is not None]
            self._ranking.put(first, fmean(values) if values else None)
            return
        self._ranking.put(trial.number, value)
        for report in (trial.best_result, result):  # a report of a trial that is being stopped is not among its best
            value = None if report is None else rankable(report.get(metric))
            if report is None or value is None:
                continue
            ever, mode = self.best_ever, self.plan.mode
            if (
                ever is None
                or beats(value, ever.value, mode)
                or (value == ever.value and trial.number < ever.trial.number)
            ):
                self.best_ever = BestTrial(value, trial, report.get("training_iteration"))

    def _end(self, trial: Trial, state: str, now: float) -> None:
        self._pace.end(now)
        self._last_ended.append(trial)
        best = self.best
        if best is not None:
            self._best_at_ends.append(best.value)
        if state == "failed":
            self.last_failures.append(trial)


def _iterations(result: TrialResult | None) -> float:
    found = None if result is None else rankable(result.get("training_iteration"))
    return float(found) if found is not None and found > 0 else 0.0


def _retries(trial: Trial) -> int:
    """Return how often a trial was started again after a failure."""
    return trial.failures - (trial.status is Status.ERROR)


def _keep(trials: dict[str, Trial], trial: Trial, *, is_kept: bool) -> None:
    if is_kept:
        trials[trial.id] = trial
    else:
        trials.pop(trial.id, None)


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
