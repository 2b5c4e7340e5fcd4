"""What the schedulers of the ASHA family share: rungs, ladders of them, and which trial climbs which ladder."""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from sweep import checks
from sweep.core.messages import Decision, PauseTrial, ResumeTrial, StopTrial
from sweep.core.results import TrialResult, signed
from sweep.core.trial import Cause, Status, Trial
from sweep.errors import ConfigError
from sweep.schedulers.base import MetricScheduler

_CANNOT_PAUSE = (
    "a trial that never saved a checkpoint cannot wait to be promoted; such trials run on, and are stopped at the next "
    "rung where they are not among the best. Report a checkpoint at the rungs."
)


def place_rungs(
    grace_period: float, max_t: float, reduction_factor: float, rungs: Sequence[float] | None = None
) -> tuple[float, ...]:
    """Return the milestones, lowest first: `grace_period * reduction_factor**k` up to `max_t`, or those of `rungs`.

    `place_rungs(1, 100, 4)` is `(1, 4, 16, 64)`. A number out of its range is a ConfigError.
    """
    checks.number("reduction_factor", reduction_factor, above=1, hint="It is usually 3 or 4.")
    if rungs is not None:
        given = tuple(rungs) if isinstance(rungs, Iterable) and not isinstance(rungs, (str, Mapping)) else ()
        if not given or not all(map(checks.is_number, given)) or any(b <= a for a, b in pairwise((0, *given))):
            checks.refuse("rungs", rungs, "a list of increasing numbers above 0, such as [1, 3, 9, 27]")
        return given
    checks.number("max_t", max_t, above=0)
    checks.number("grace_period", grace_period, above=0)
    if max_t < grace_period:
        raise ConfigError(f"max_t={max_t:g} is below grace_period={grace_period:g}; no trial could ever be judged.")
    milestones = []
    milestone = grace_period
    while milestone <= max_t:  # exact comparisons: a logarithm would lose the top rung for some arguments
        milestones.append(milestone)
        milestone *= reduction_factor
    return tuple(milestones)


class StoppingLadder:
    """Rungs at which trials are stopped unless they are among the best of those before them.

    The `judge` of a rung keeps what a trial reported and returns what that fell short of, None if it is good enough.
    """

    def __init__(self, milestones: Sequence[float], make_rung: Callable[[], Any]) -> None:
        self.milestones = tuple(milestones)
        self._rungs: list[tuple[float, Any, set[str]]] = [(m, make_rung(), set()) for m in reversed(self.milestones)]

    def level(self, trial_id: str) -> int:
        return -1

    def is_waiting(self, trial_id: str) -> bool:
        return False

    def judge(self, trial_id: str, time: float, point: Any) -> tuple[float, float] | None:
        """Record a result at the highest rung that `time` reaches, unless the trial was judged there before.

        Returns the milestone and what the trial fell short of there; None when it may go on.
        """
        for milestone, rung, seen in self._rungs:
            if time >= milestone:
                if trial_id in seen:
                    return None
                seen.add(trial_id)
                missed = rung.judge(point)
                return None if missed is None else (milestone, missed)
        return None

    def leave(self, trial_id: str, read: tuple[float, Any] | None = None) -> list[Decision]:
        """Record the last result of a trial that has ended: others are compared with it."""
        if read is not None:
            self.judge(trial_id, *read)
        return []

    def state(self) -> list[Any]:
        return [(milestone, sorted(seen), rung.state()) for milestone, rung, seen in self._rungs]

    def describe(self) -> str:
        return "Bracket: " + " | ".join(f"Iter {milestone:.3f}: {rung}" for milestone, rung, _ in self._rungs)


class PromotionRung:
    """The scores of one milestone, and which of them are among the best 1/eta."""

    def __init__(self, milestone: float, eta: float) -> None:
        self.milestone = milestone
        self.scores: dict[str, float] = {}  # in order of arrival; NaN counts in their number and is never promoted
        self.promoted: set[str] = set()  # those that went on from here
        self._eta = eta
        self.ranked: list[tuple[float, int, str]] = []  # the best first: score, negated, order of arrival, id

    @property
    def num_best(self) -> int:
        """How many of those that got here may go on: floor(n/eta)."""
        return int(len(self.scores) / self._eta)

    def add(self, trial_id: str, score: float) -> None:
        """Keep a trial's score; of equal scores the earlier one is better."""
        if score == score:
            insort(self.ranked, (-score, len(self.scores), trial_id))
        self.scores[trial_id] = score

    def place(self, trial_id: str) -> int:
        """Return the place of a trial among all here, 1 being the best; equal scores share one, NaN has the last."""
        score = self.scores[trial_id]
        return (bisect_left(self.ranked, (-score,)) if score == score else len(self.ranked)) + 1


@dataclass(slots=True)
class _Climber:
    """Where a trial is on its ladder."""

    level: int = -1  # index of the highest rung that it got to; -1: none
    is_waiting: bool = False  # it got there and was not promoted since
    paused_in: int = 0  # the attempt that was last asked to pause; 0: none


class PromotionLadder:
    """Rungs at which trials pause until they are among the best 1/eta of those that got there.

    Everything follows from `record` and `leave`, so a ladder that gets the same record again is the same. Trials are
    promoted from `num_open` rungs, counted from the lowest; None: from all.
    """

    def __init__(self, milestones: Sequence[float], eta: float, *, num_open: int | None = None) -> None:
        self.milestones = tuple(milestones)
        self.rungs = [PromotionRung(milestone, eta) for milestone in self.milestones]
        self.num_open = len(self.rungs) if num_open is None else num_open
        self._climbers: dict[str, _Climber] = defaultdict(_Climber)

    def level(self, trial_id: str) -> int:
        return self._climbers[trial_id].level

    def is_waiting(self, trial_id: str) -> bool:
        return self._climbers[trial_id].is_waiting

    def record(self, trial_id: str, time: float, score: float, *, is_ended: bool = False) -> list[str] | None:
        """Record a score at the highest rung that `time` reaches; None if the trial had got there before.

        Returns those that are promoted, from whatever rung; the trial itself may be among them.
        """
        level = bisect_right(self.milestones, time) - 1
        climber = self._climbers[trial_id]
        if level <= climber.level:
            return None
        climber.level, climber.is_waiting = level, not is_ended
        self.rungs[level].add(trial_id, score)
        return self._promote(level) if level < self.num_open else []

    def open_next(self) -> list[str]:
        """Promote from one rung more; returns those that are promoted."""
        self.num_open += 1
        return self._promote(self.num_open - 1)

    def _promote(self, level: int) -> list[str]:
        rung = self.rungs[level]
        best = [trial_id for _, _, trial_id in rung.ranked[: rung.num_best]]
        promoted = [one for one in best if self.is_waiting(one) and self.level(one) == level]
        rung.promoted.update(promoted)
        for trial_id in promoted:
            self._climbers[trial_id].is_waiting = False
        return promoted

    def leave(self, trial_id: str, read: tuple[float, float] | None = None) -> list[Decision]:
        """Never promote a trial any more: it has ended. Its scores stay, and its last one may let another go on."""
        promoted = self.record(trial_id, *read, is_ended=True) if read is not None else None
        self._climbers[trial_id].is_waiting = False
        return [ResumeTrial(other) for other in promoted or ()]

    def answer(self, trial: Trial, promoted: Sequence[str], shown: str) -> list[Decision]:
        """Return what follows from a record: others go on, and the trial itself goes on, pauses or stops.

        A trial that ran on after it was asked to pause, and has no checkpoint still, cannot be paused: it stops.
        """
        decisions: list[Decision] = [ResumeTrial(trial_id) for trial_id in promoted if trial_id != trial.id]
        climber = self._climbers[trial.id]
        if not climber.is_waiting:
            return decisions
        rung = self.rungs[climber.level]
        why = f"{shown} at {rung.milestone:g} is not among the best {rung.num_best} of {len(rung.scores)}"
        if climber.paused_in == trial.attempt and trial.checkpoint is None:
            return [*decisions, StopTrial(trial.id, f"stopped early: {why}")]
        climber.paused_in = trial.attempt
        return [*decisions, PauseTrial(trial.id, f"waits to be promoted: {why}")]

    def state(self) -> list[Any]:
        """Return per rung, the highest first: milestone, scores (NaN as None), trials promoted, trials waiting."""
        return [
            (
                rung.milestone,
                {trial_id: score if score == score else None for trial_id, score in rung.scores.items()},
                sorted(rung.promoted),
                sorted(i for i in rung.scores if self.is_waiting(i) and self.level(i) == level),
            )
            for level, rung in reversed(list(enumerate(self.rungs)))
        ]

    def describe(self) -> str:
        parts = [f"Iter {r.milestone:.3f}: {len(r.promoted)} of {len(r.scores)} promoted" for r in reversed(self.rungs)]
        return "Bracket: " + " | ".join(parts)


Ladder = StoppingLadder | PromotionLadder


class RungScheduler(MetricScheduler):
    """Judge trials when they get to rungs; a subclass gives a function from milestones to a ladder, and says what
    follows. The other arguments are those of `ASHAScheduler`."""

    def __init__(
        self,
        time_attr: str,
        metric: str | None,
        mode: str | None,
        max_t: float,
        grace_period: float,
        reduction_factor: float,
        stop_last_trials: bool,
        rungs: Sequence[float] | None,
        *,
        ladder: Callable[[Sequence[float]], Ladder],
        brackets: int = 1,
    ) -> None:
        super().__init__(time_attr, metric, mode)
        milestones = place_rungs(grace_period, max_t, reduction_factor, rungs)
        checks.whole("brackets", brackets, least=1)
        self.max_t = max_t if rungs is None else milestones[-1]
        self.grace_period, self.reduction_factor = milestones[0], reduction_factor
        self.first_judgement = ("grace_period" if rungs is None else "rungs[0]", milestones[0])
        self.num_stopped = 0
        self._stop_last = stop_last_trials
        self._ladders: list[Any] = [ladder(milestones[start:]) for start in range(min(brackets, len(milestones)))]
        self._num_finished = 0

    @abstractmethod
    def _judge(self, trial: Trial, time: float, point: Any, result: TrialResult) -> Sequence[Decision]:
        """Answer to a result below `max_t`, or to any if that ends no trial."""

    def _ladder(self, trial: Trial) -> Any:
        """Return the ladder that a trial climbs: at random, weighted by exp(number of rungs), and always the same for
        the same trial and seed."""
        if len(self._ladders) == 1:
            return self._ladders[0]
        weights = np.exp([len(ladder.milestones) - len(self._ladders[0].milestones) for ladder in self._ladders])
        generator = np.random.default_rng(np.random.SeedSequence([self._seed, trial.number]))
        return self._ladders[generator.choice(len(weights), p=weights / weights.sum())]

    def _read(self, result: TrialResult) -> tuple[float, Any] | None:
        """Return (time, score), a larger score being better; NaN is kept, because it counts where it arrives."""
        time, value = self._time(result), result.get(self.metric or "")
        return None if time is None or value is None else (time, signed(value, self.mode or "max"))

    def _number(self, value: float) -> str:
        return f"{value if self.mode == 'max' else -value:.4g}"

    def on_result(self, trial: Trial, result: TrialResult, trials: Mapping[str, Trial]) -> Sequence[Decision]:
        read = self._read(result)
        if read is None:
            return ()
        time, point = read
        if time >= self.max_t and self._stop_last:
            self._num_finished += 1
            return [StopTrial(trial.id, f"reached max_t: {self.time_attr}={time:g}", Cause.REACHED)]
        decisions = self._judge(trial, time, point, result)
        self.num_stopped += sum(isinstance(decision, StopTrial) for decision in decisions)
        return decisions

    def on_trial_end(self, trial: Trial) -> Sequence[Decision]:
        read = self._read(trial.last_result) if trial.last_result is not None else None
        decisions: list[Decision] = self._ladder(trial).leave(trial.id, read)
        return decisions

    def on_refused(self, trial: Trial, decision: Decision) -> Sequence[Decision]:
        is_waiting = self._ladder(trial).is_waiting(trial.id)
        if is_waiting and isinstance(decision, PauseTrial) and trial.checkpoint is None:
            self._note(_CANNOT_PAUSE)
        return ()

    def choose(self, startable: Sequence[Trial]) -> Trial | None:
        """Prefer a promoted trial, from the highest rung; otherwise the oldest."""
        return max(startable, key=lambda trial: self._ladder(trial).level(trial.id))

    def on_idle(self, trials: Mapping[str, Trial]) -> Sequence[Decision]:
        """Stop the half of the waiting trials that is furthest from a promotion; others that are paused go on.

        The lowest rungs go first, there the worst scores. Half, and not all: where paused trials have used up a limit
        on concurrent ones, the best of them should be there when others come.
        """
        decisions: list[Decision] = []
        waiting: list[tuple[int, float, str, str]] = []
        for trial in trials.values():
            if trial.status is not Status.PAUSED or trial.is_by_person:
                continue
            ladder = self._ladder(trial)
            if not ladder.is_waiting(trial.id):
                decisions.append(ResumeTrial(trial.id))
                continue
            level = ladder.level(trial.id)
            rung = ladder.rungs[level]
            place, of, at = rung.place(trial.id), len(rung.scores), f"{rung.milestone:g}"
            why = f"never promoted: place {place} of {of} at {at}, where the best {rung.num_best} went on"
            if level >= ladder.num_open:
                why = f"not needed beyond {at}: the ranking did not change there"
            waiting.append((level, -place / of, trial.id, why))
        furthest = sorted(waiting)[: math.ceil(len(waiting) / 2)]
        self.num_stopped += len(furthest)
        return decisions + [StopTrial(trial_id, why) for _, _, trial_id, why in furthest]

    def state(self) -> Any:
        """Return per ladder what its rungs hold, the highest first."""
        return [ladder.state() for ladder in self._ladders]

    def debug_string(self) -> str:
        head = f"Using {type(self).__name__.removesuffix('Scheduler')}: num_stopped={self.num_stopped}"
        return "\n".join([head, *(ladder.describe() for ladder in self._ladders)])
