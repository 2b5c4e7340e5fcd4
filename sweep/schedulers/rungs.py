"""What the schedulers of the ASHA family share: where rungs lie, and ladders on which trials pause until promoted."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from numbers import Real
from typing import Any

import numpy as np

from sweep.core.messages import Decision, PauseTrial, ResumeTrial, StopTrial
from sweep.core.trial import Status, Trial
from sweep.core.values import as_float
from sweep.errors import ConfigError

__all__ = [
    "CANNOT_PAUSE",
    "PromotionLadder",
    "PromotionRung",
    "check_brackets",
    "clear_out",
    "draw_ladder",
    "place_rungs",
    "signed",
]

CANNOT_PAUSE = (
    "a trial that never saved a checkpoint cannot wait to be promoted; such trials run on, and are stopped at the next "
    "rung where they are not among the best. Report a checkpoint at the rungs."
)


def place_rungs(
    grace_period: float, max_t: float, reduction_factor: float, rungs: Sequence[float] | None = None
) -> tuple[float, ...]:
    """Return the milestones, lowest first: `grace_period * reduction_factor**k` up to `max_t`, or those of `rungs`.

    `place_rungs(1, 100, 4)` is `(1, 4, 16, 64)`.

    Raises:
        ConfigError: one of the numbers is out of its range, or `rungs` do not increase.
    """
    if not isinstance(reduction_factor, (int, float)) or not 1 < reduction_factor < math.inf:
        raise ConfigError(f"reduction_factor is {reduction_factor!r}; expected a number above 1, usually 3 or 4.")
    if rungs is not None:
        return _given_rungs(rungs)
    for name, value in (("max_t", max_t), ("grace_period", grace_period)):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise ConfigError(f"{name} is {value!r}; expected a finite number above 0.")
    if max_t < grace_period:
        raise ConfigError(f"max_t={max_t:g} is below grace_period={grace_period:g}; no trial could ever be judged.")
    milestones = []
    milestone = grace_period
    while milestone <= max_t:  # exact comparisons: a logarithm would lose the top rung for some arguments
        milestones.append(milestone)
        milestone *= reduction_factor
    return tuple(milestones)


def _given_rungs(rungs: Sequence[float]) -> tuple[float, ...]:
    if isinstance(rungs, (str, bytes, Mapping)) or not isinstance(rungs, Iterable):
        raise ConfigError(f"rungs is {rungs!r:.100}; expected a list of increasing numbers, such as [1, 3, 9, 27].")
    given = tuple(rungs)
    are_numbers = all(isinstance(r, Real) and not isinstance(r, bool) and 0 < r < math.inf for r in given)
    if not given or not are_numbers or any(high <= low for low, high in pairwise(given)):
        raise ConfigError(
            f"rungs is {list(given)!r:.100}; expected finite numbers above 0, each larger than the one before, "
            "such as [1, 3, 9, 27]."
        )
    return given


def check_brackets(brackets: Any) -> None:
    """Refuse what is no whole number of at least 1.

    Raises:
        ConfigError: it is not.
    """
    if isinstance(brackets, bool) or not isinstance(brackets, int) or brackets < 1:
        raise ConfigError(f"brackets is {brackets!r}; expected a whole number of at least 1.")


def draw_ladder(sizes: Sequence[int], seed: int, number: int) -> int:
    """Return which of several ladders trial `number` climbs: at random, weighted by exp(number of rungs)."""
    rungs = np.array(sizes, dtype=float)
    weights = np.exp(rungs - rungs.max())
    generator = np.random.default_rng(np.random.SeedSequence([seed, number]))
    return int(generator.choice(len(weights), p=weights / weights.sum()))


def signed(value: Any, mode: str) -> float:
    """Return a metric so that larger is better; NaN for whatever is no number."""
    number = as_float(value)
    if number is None:
        return math.nan
    return number if mode == "max" else -number


class PromotionRung:
    """The scores of one milestone, and which of them are among the best 1/eta.

    Two heaps meet at the border between the best and the rest, so that a new score costs O(log n).

    Attributes:
        scores: of every trial that got here, in order of arrival; NaN counts in their number and is never promoted.
        promoted: those that went on from here.
    """

    def __init__(self, milestone: float, eta: float) -> None:
        self.milestone = milestone
        self.scores: dict[str, float] = {}
        self.promoted: set[str] = set()
        self._eta = eta
        self._best: list[tuple[float, int, str]] = []  # the worst of them first
        self._rest: list[tuple[float, int, str]] = []  # the best of them first; scores negated

    @property
    def num_best(self) -> int:
        """How many of those that got here may go on: floor(n/eta)."""
        return int(len(self.scores) / self._eta)

    def record(self, trial_id: str, score: float) -> list[str]:
        """Keep a trial's score; returns who is among the best now and was not just before, promoted or not.

        Of equal scores the earlier one is better.
        """
        order = len(self.scores)
        self.scores[trial_id] = score
        entered = []
        if score == score:
            least = (score, -order, trial_id)
            if self._best and least > self._best[0]:
                entered.append(trial_id)
                least = heapq.heapreplace(self._best, least)
            heapq.heappush(self._rest, (-least[0], -least[1], least[2]))
        while len(self._best) < self.num_best and self._rest:
            worth, order, best_id = heapq.heappop(self._rest)
            heapq.heappush(self._best, (-worth, -order, best_id))
            entered.append(best_id)
        return entered

    def best(self) -> list[str]:
        """Return the best floor(n/eta), the best first."""
        return [trial_id for _, _, trial_id in sorted(self._best, reverse=True)]

    def places(self) -> Callable[[str], int]:
        """Return a function from a trial to its place among all here, 1 being the best; equal scores share one."""
        ordered = sorted(score for score in self.scores.values() if score == score)

        def place(trial_id: str) -> int:
            score = self.scores[trial_id]
            return len(ordered) - bisect_right(ordered, score) + 1 if score == score else len(ordered) + 1

        return place


class _Climber:
    """Where a trial is on its ladder.

    Attributes:
        level: index of the highest rung that it got to; -1: none.
        is_waiting: it got there and was not promoted since.
        told_in: the attempt that was last told to pause; 0: none.
    """

    __slots__ = ("is_waiting", "level", "told_in")

    def __init__(self) -> None:
        self.level = -1
        self.is_waiting = False
        self.told_in = 0


class PromotionLadder:
    """Rungs at which trials pause until they are among the best 1/eta of those that got there.

    Everything follows from `record` and `leave`, which are called for what is on record, so a ladder that is told the
    same again is the same. Nobody but a newcomer or one that it pushes over the border can become promotable, so each
    score is looked at when it arrives and never again.

    Args:
        milestones: lowest first. eta: above 1.
        num_open: from so many rungs, counted from the lowest, trials are promoted; None: from all.
    """

    def __init__(self, milestones: Sequence[float], eta: float, *, num_open: int | None = None) -> None:
        self.milestones = tuple(milestones)
        self.rungs = [PromotionRung(milestone, eta) for milestone in self.milestones]
        self.num_open = len(self.rungs) if num_open is None else num_open
        self._climbers: dict[str, _Climber] = {}

    def level(self, trial_id: str) -> int:
        """Return the index of the highest rung that a trial got to; -1: none."""
        climber = self._climbers.get(trial_id)
        return climber.level if climber is not None else -1

    def is_waiting(self, trial_id: str) -> bool:
        """Whether a trial is at a rung that it was not promoted from."""
        climber = self._climbers.get(trial_id)
        return climber is not None and climber.is_waiting

    def record(self, trial_id: str, time: float, score: float, *, is_ended: bool = False) -> list[str] | None:
        """Record a score at the highest rung that `time` reaches; None if the trial had got there before.

        Returns who is promoted, from whatever rung; the trial itself may be among them.
        """
        level = bisect_right(self.milestones, time) - 1
        climber = self._climbers.get(trial_id)
        if climber is None:
            climber = self._climbers[trial_id] = _Climber()
        if level <= climber.level:
            return None
        climber.level = level
        climber.is_waiting = not is_ended
        best = self.rungs[level].record(trial_id, score)
        return self._promote(level, best) if level < self.num_open else []

    def open_next(self) -> list[str]:
        """Promote from one rung more; returns who is promoted."""
        level = self.num_open
        self.num_open += 1
        return self._promote(level, self.rungs[level].best())

    def _promote(self, level: int, best: Sequence[str]) -> list[str]:
        rung, promoted = self.rungs[level], []
        for trial_id in best:
            climber = self._climbers[trial_id]
            if climber.is_waiting and climber.level == level:  # not promoted yet, nor ended, nor further up
                climber.is_waiting = False
                rung.promoted.add(trial_id)
                promoted.append(trial_id)
        return promoted

    def leave(self, trial_id: str, read: tuple[float, float] | None = None) -> list[Decision]:
        """Never promote a trial any more: it has ended. Its scores stay, and its last one may let another go on.

        Args:
            read: time and score of its last result, if it has one.
        """
        promoted = self.record(trial_id, *read, is_ended=True) if read is not None else None
        climber = self._climbers.get(trial_id)
        if climber is not None:
            climber.is_waiting = False
        return [ResumeTrial(other) for other in promoted or ()]

    def answer(self, trial: Trial, promoted: Sequence[str], shown: str) -> list[Decision]:
        """Return what follows from a record: others go on, and the trial itself goes on, pauses or stops.

        A trial that ran on after it was told to pause, and has no checkpoint still, cannot be paused: it stops.

        Args:
            shown: metric and value, for reasons.
        """
        decisions: list[Decision] = [ResumeTrial(trial_id) for trial_id in promoted if trial_id != trial.id]
        climber = self._climbers[trial.id]
        if not climber.is_waiting:
            return decisions
        rung = self.rungs[climber.level]
        where = f"{shown} at {rung.milestone:g}"
        if climber.told_in == trial.attempt and trial.checkpoint is None:
            why = f"stopped early: {where} is not among the best {rung.num_best} of {len(rung.scores)}"
            return [*decisions, StopTrial(trial.id, why)]
        climber.told_in = trial.attempt
        why = f"waits to be promoted: {where} is not among the best {rung.num_best} of {len(rung.scores)}"
        return [*decisions, PauseTrial(trial.id, why)]

    def state(self) -> list[Any]:
        """Return per rung, the highest first: milestone, scores, who was promoted, who waits; NaN as None."""
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
        """Return one line for logs: per rung how many got there and how many went on, the highest first."""
        parts = [f"Iter {r.milestone:.3f}: {len(r.promoted)} of {len(r.scores)} promoted" for r in reversed(self.rungs)]
        return "Bracket: " + " | ".join(parts)


def clear_out(ladders: Sequence[PromotionLadder], trials: Mapping[str, Trial]) -> list[Decision]:
    """Decide when nothing runs: stop the half of the waiting trials that is furthest from a promotion.

    The lowest rungs go first, there the worst scores: they cost the least to get again. Half, and not all: nothing may
    run only because the paused trials have used up a limit on concurrent ones, and then the best of them should be
    there when others come. Who is paused for another reason goes on.
    """
    decisions: list[Decision] = []
    waiting: list[tuple[int, float, str, str]] = []
    places = [[rung.places() for rung in ladder.rungs] for ladder in ladders]
    for trial in trials.values():
        if trial.status is not Status.PAUSED or trial.is_by_person:
            continue
        for ladder, place_at in zip(ladders, places, strict=True):
            if ladder.is_waiting(trial.id):
                level = ladder.level(trial.id)
                rung, place = ladder.rungs[level], place_at[level](trial.id)
                why = (
                    f"never promoted: place {place} of {len(rung.scores)} at {rung.milestone:g}, "
                    f"where the best {rung.num_best} went on"
                )
                if level >= ladder.num_open:
                    why = f"not needed beyond {rung.milestone:g}: the ranking did not change there"
                waiting.append((level, -place / len(rung.scores), trial.id, why))
                break
        else:
            decisions.append(ResumeTrial(trial.id))
    waiting.sort()
    furthest = waiting[: math.ceil(len(waiting) / 2)]
    return decisions + [StopTrial(trial_id, why) for _, _, trial_id, why in furthest]
