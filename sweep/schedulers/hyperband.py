"""HyperBand: synchronous successive halving; the trials of a bracket wait for each other, then the best go on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import cycle
from typing import Any, final

from sweep import checks
from sweep.core.messages import Decision, PauseTrial, ResumeTrial, StopTrial
from sweep.core.results import TrialResult
from sweep.core.trial import Cause, Status, Trial
from sweep.errors import refuse_unknown
from sweep.schedulers.base import MetricScheduler

Levels = list[tuple[int, int]]
"""Of one bracket: how many trials run to which milestone."""


def bracket_milestones(max_t: float, reduction_factor: float) -> list[Levels]:
    """Return per bracket, from the one of the fewest trials to that of the most, the successive (trials, milestone).

    `bracket_milestones(9, 3)` is `[[(3, 9)], [(5, 3), (2, 9)], [(9, 1), (3, 3), (1, 9)]]`: of nine trials the best
    three go on from 1, and the best one from 3. Milestones are whole numbers, so the last one may lie below `max_t`.
    """
    # Fractions, because the floating-point power of Tune would round a whole number of trials up for some arguments.
    eta, most = Fraction(reduction_factor), Fraction(max_t)
    num_brackets = round(math.log(max_t) / math.log(reduction_factor)) + 1
    brackets = []
    for s in range(num_brackets):
        number = math.ceil(Fraction(num_brackets, s + 1) * eta**s)
        milestone = int(most / eta**s)
        if milestone == 0:
            continue  # less than one unit of time: nothing could be compared
        levels = [(number, milestone)]
        for _ in range(s):
            number = math.ceil(number / eta)
            # a factor below 2 alone would leave a small milestone where it is
            milestone = min(max(int(milestone * eta), milestone + 1), int(most))
            if milestone > levels[-1][1]:
                levels.append((number, milestone))
        brackets.append(levels)
    return brackets


@dataclass(slots=True)
class _Member:
    """What a bracket knows of one of its trials."""

    scores: list[float] = field(default_factory=list)  # per milestone reached, of the first result at or after it
    paused_in: int = 0  # the attempt that was asked to pause; 0: none


class _Bracket:
    """Trials that are compared with each other at one milestone after another."""

    def __init__(self, levels: Levels) -> None:
        self.levels = levels
        self.level = 0  # index of the milestone that they run towards, or wait at
        self.is_halved = False  # it moved to another level, and those that need not wait any more are not resumed yet
        self.num_taken = 0  # places; failures before the first milestone give theirs back
        self.is_closed = False  # no more trials come in: it is full, or there will be no more
        self.members: dict[str, _Member] = {}

    @property
    def milestone(self) -> int:
        return self.levels[self.level][1]

    @property
    def is_at_last_level(self) -> bool:
        return self.level == len(self.levels) - 1

    @property
    def waiting(self) -> list[str]:
        """The trials that reached the milestone, the oldest first; at the last one none waits."""
        if self.is_at_last_level:
            return []
        return [trial_id for trial_id, member in self.members.items() if len(member.scores) > self.level]

    @property
    def is_everybody_waiting(self) -> bool:
        return 0 < len(self.members) == len(self.waiting)


@refuse_unknown()
class HyperBandScheduler(MetricScheduler):
    """Let the trials of a bracket run to a milestone, wait for each other there, and let the best 1/eta go on.

    Brackets hold few trials that run long, or many that are cut down early; a new trial fills the current bracket, then
    the next. `bracket_milestones` lists them. A trial that waits is paused: it is saved and holds no resources. So
    trials should save checkpoints; one that never saved cannot be paused, runs on while its bracket waits, and is
    judged by what it had reported at the milestone.

    Args:
        time_attr: result key that counts progress, in the unit of `max_t`.
        metric, mode: what is judged; from the run unless given here.
        max_t: the longest that a trial may run, at least 1.
        reduction_factor: eta, above 1; of a bracket about one in eta goes on from each milestone.
        stop_last_trials: whether a trial ends at the last milestone of its bracket; otherwise it runs on to
            its own end.

    Raises:
        ConfigError: an argument is no such number.

    Source: Li et al. 2018, arXiv:1603.06560, algorithm 1. Departures: brackets are filled small to large, as in Tune;
    where Tune halves as soon as all trials that happen to have begun are at the milestone, a bracket waits until it is
    full, or until nothing else is left to run (it is then halved as it is). A trial ends at its last milestone at once,
    not when the slowest of its bracket gets there. NaN is the worst score. A trial that fails before its first
    milestone gives its place to another.
    """

    _is_largest_first = False  # whether new trials fill the bracket of the most trials first, or that of the fewest

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: float = 81,
        reduction_factor: float = 3,
        stop_last_trials: bool = True,
    ) -> None:
        super().__init__(time_attr, metric, mode)
        checks.number("max_t", max_t, least=1)
        checks.number("reduction_factor", reduction_factor, above=1)
        self.max_t, self.reduction_factor = max_t, reduction_factor
        self.num_stopped = 0
        self._stop_last = stop_last_trials
        brackets = bracket_milestones(max_t, reduction_factor)
        if self._is_largest_first:
            self.milestones = tuple(float(milestone) for _, milestone in brackets[-1])
        self.first_judgement = ("its first milestone", brackets[-1][0][1])
        self._plans: Iterator[Levels] = cycle(brackets[::-1] if self._is_largest_first else brackets)
        self._filling = _Bracket(next(self._plans))
        self._brackets = [self._filling]  # those that are being filled or still have trials
        self._of: dict[str, _Bracket] = {}
        self._known: set[str] = set()

    def on_trial_add(self, trial: Trial) -> None:
        """Give a new trial its place; one that the user lets run again gets a new one when it reports."""
        if trial.id not in self._known:
            self._join(trial.id)

    def on_result(self, trial: Trial, result: TrialResult, trials: Mapping[str, Trial]) -> Sequence[Decision]:
        read = self._read(result)
        if read is None:
            return ()
        time, score = read
        bracket = self._of.get(trial.id) or self._join(trial.id)
        member = bracket.members[trial.id]
        decisions = self._catch_up(trial, bracket)
        if trial.id not in bracket.members:
            return decisions
        reached = sum(time >= milestone for _, milestone in bracket.levels)
        member.scores += [score] * (reached - len(member.scores))
        if self._stop_last and len(member.scores) == len(bracket.levels):
            why = f"reached the last milestone of its bracket: {self.time_attr}={time:g}"
            stop = StopTrial(trial.id, why, Cause.REACHED)
            return [*decisions, stop, *self._leave(trial.id, bracket)]
        decisions += self._advance(bracket)
        if trial.id in bracket.members and not bracket.is_at_last_level and len(member.scores) > bracket.level:
            member.paused_in = trial.attempt
            decisions.append(PauseTrial(trial.id, f"waits for its bracket at {self.time_attr}={bracket.milestone}"))
        return decisions

    def on_trial_end(self, trial: Trial) -> Sequence[Decision]:
        bracket = self._of.get(trial.id)
        if bracket is None:
            return ()
        decisions = self._catch_up(trial, bracket)
        if trial.id not in bracket.members:
            return decisions
        if trial.status is Status.ERROR and not bracket.is_closed and not bracket.members[trial.id].scores:
            bracket.num_taken -= 1
        return decisions + self._leave(trial.id, bracket)

    def on_refused(self, trial: Trial, decision: Decision) -> Sequence[Decision]:
        if isinstance(decision, PauseTrial):
            self._note(
                "HyperBand cannot pause a trial that never saved a checkpoint; such trials run on while their bracket "
                "waits, which costs time but changes no comparison. Report a checkpoint at the milestones."
            )
        return ()

    def on_idle(self, trials: Mapping[str, Trial]) -> Sequence[Decision]:
        """Halve every bracket that waits for trials that will not come; resume those paused for other reasons."""
        rest = {decision.trial_id: decision for decision in super().on_idle(trials)}
        decisions: list[Decision] = []
        for bracket in list(self._brackets):
            while any(trial_id in rest for trial_id in bracket.waiting):
                some = self._close(bracket)
                decisions += some
                if any(decision.trial_id in rest for decision in some):
                    break
        named = {decision.trial_id for decision in decisions}
        named.update(trial_id for bracket in self._brackets for trial_id in bracket.waiting)
        return decisions + [decision for trial_id, decision in rest.items() if trial_id not in named]

    def _join(self, trial_id: str) -> _Bracket:
        if self._filling.is_closed:
            self._filling = _Bracket(next(self._plans))
            self._brackets.append(self._filling)
        self._known.add(trial_id)
        self._of[trial_id] = bracket = self._filling
        bracket.members[trial_id] = _Member()
        bracket.num_taken += 1
        bracket.is_closed = bracket.num_taken >= bracket.levels[0][0]
        return bracket

    def _leave(self, trial_id: str, bracket: _Bracket) -> list[Decision]:
        """Drop a trial that ended; the others may have waited for it alone."""
        del self._of[trial_id]
        del bracket.members[trial_id]
        return self._advance(bracket)

    def _catch_up(self, trial: Trial, bracket: _Bracket) -> list[Decision]:
        """Close a bracket if `on_idle` resumed a trial of it: the record does not repeat that after a restart."""
        is_resumed = 0 < bracket.members[trial.id].paused_in < trial.attempt
        if is_resumed and not bracket.is_closed and bracket.is_everybody_waiting:
            return self._close(bracket)
        return []

    def _close(self, bracket: _Bracket) -> list[Decision]:
        """Let no more trials in, and compare those that wait now."""
        bracket.is_closed = True
        return self._halve(bracket) + self._advance(bracket)

    def _advance(self, bracket: _Bracket) -> list[Decision]:
        """Halve a bracket as often as all its trials wait, then let those go on that need not wait any more."""
        decisions: list[Decision] = []
        while bracket.is_closed and bracket.is_everybody_waiting:
            decisions += self._halve(bracket)
        if bracket.is_halved:
            bracket.is_halved = False
            for trial_id, member in bracket.members.items():
                if member.paused_in and (bracket.is_at_last_level or len(member.scores) <= bracket.level):
                    member.paused_in = 0
                    decisions.append(ResumeTrial(trial_id))
        if bracket.is_closed and not bracket.members and bracket in self._brackets:
            self._brackets.remove(bracket)
        return decisions

    def _halve(self, bracket: _Bracket) -> list[Decision]:
        """Move a bracket to its next level, without those that wait and are not among the best.

        A trial that has not reached the milestone (the user may have paused it) stays in, uncompared.
        """
        level, keep = bracket.level, bracket.levels[bracket.level + 1][0]
        ranking = sorted(bracket.waiting, key=lambda trial_id: -bracket.members[trial_id].scores[level])
        decisions: list[Decision] = []
        for trial_id in ranking[keep:]:
            score = bracket.members.pop(trial_id).scores[level]
            del self._of[trial_id]
            why = f"stopped early: {self._shown(score)} at {bracket.milestone} is not among the best {keep}"
            decisions.append(StopTrial(trial_id, why))
        self.num_stopped += len(decisions)
        best = {trial_id: bracket.members.pop(trial_id) for trial_id in ranking[:keep]}
        bracket.members = {**best, **bracket.members}  # the best are resumed first
        bracket.level += 1
        bracket.is_halved = True
        return decisions

    def state(self) -> Any:
        """Return per bracket with trials its level, whether it is closed, and its trials' scores; for replay checks."""
        return [
            (b.level, b.is_closed, b.num_taken, {trial_id: list(m.scores) for trial_id, m in sorted(b.members.items())})
            for b in self._brackets
        ]

    def debug_string(self) -> str:
        lines = [f"Using HyperBand: num_stopped={self.num_stopped}"]
        for b in self._brackets:
            size, milestone = b.levels[b.level]
            lines.append(f"Bracket of {size} at {milestone}: {len(b.waiting)} of {len(b.members)} wait")
        return "\n".join(lines)


@final
class HyperBandForBOHB(HyperBandScheduler):
    """Let many trials run briefly and the best of them longer, largest bracket first, for a searcher such as BOHB.

    A trial is paused at each milestone until its bracket is full and all of it is there; then the best 1/eta go on. So
    the results of the small budgets are known before further configs are suggested. When nothing runs and no more
    trials come, the brackets that wait are halved as they are. Trials should save checkpoints: one that never saved
    cannot be paused and runs on while its bracket waits.

    The arguments are those of `HyperBandScheduler`.

    Attributes:
        milestones: the budgets that a searcher should compare results at, the smallest first: the milestones of the
            largest bracket. Where rounding makes those of another bracket a little larger, they belong to the same
            budget, so that one model has the results of both.

    Raises:
        ConfigError: an argument is no such number.

    Source: Falkner, Klein, Hutter 2018, arXiv:1807.01774, algorithm 1 and section 4; Li et al. 2018, arXiv:1603.06560,
    algorithm 1. Departures: those of `HyperBandScheduler`, but for the order of the brackets, which is that of the
    paper. While the last trials of a bracket are on their way to a milestone, free resources begin the next bracket.
    """

    _is_largest_first = True
