"""HyperBandForBOHB: HyperBand that begins with many short trials, from which a model-based searcher can learn."""

from __future__ import annotations

from typing import final

from sweep.schedulers.hyperband import HyperBandScheduler


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
