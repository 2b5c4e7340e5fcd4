"""HyperBandForBOHB: HyperBand that begins with many short trials, from which a model-based searcher can learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from sweep.errors import refuse_unknown
from sweep.schedulers.hyperband import BracketScheduler, Levels, bracket_milestones

__all__ = ["HyperBandForBOHB"]


@refuse_unknown()
@final
class HyperBandForBOHB(BracketScheduler):
    """Let many trials run briefly and the best of them longer, largest bracket first, for a searcher such as BOHB.

    A trial is paused at each milestone until its bracket is full and all of it is there; then the best 1/eta go on. So
    the results of the small budgets are known before further configs are suggested. When nothing runs and no more
    trials come, the brackets that wait are halved as they are. Trials should save checkpoints: one that never saved
    cannot be paused and runs on while its bracket waits.

    Args:
        time_attr: result key that counts progress, in the unit of `max_t`.
        metric, mode: what is judged; from the run unless given here.
        max_t: the longest that a trial may run, at least 1.
        reduction_factor: eta, above 1; of a bracket about one in eta goes on from each milestone.
        stop_last_trials: whether a trial ends at the last milestone of its bracket; otherwise it then runs to its own
            end.

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

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: float = 81,
        reduction_factor: float = 3,
        stop_last_trials: bool = True,
    ) -> None:
        super().__init__(time_attr, metric, mode, max_t, reduction_factor, stop_last_trials)
        largest = bracket_milestones(max_t, reduction_factor)[-1]
        self.milestones: Sequence[float] = tuple(float(milestone) for _, milestone in largest)

    def _in_order(self, brackets: list[Levels]) -> list[Levels]:
        return brackets[::-1]
