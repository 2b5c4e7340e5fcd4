"""FIFO: every trial runs to its own end, in the order it was suggested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from sweep.core.messages import Decision
from sweep.core.results import TrialResult
from sweep.core.trial import Trial
from sweep.schedulers.base import Scheduler


@final
class FIFOScheduler(Scheduler):
    """Let every trial run to its own end: no early stopping."""

    is_stateless = True

    def on_result(self, trial: Trial, result: TrialResult, trials: Mapping[str, Trial]) -> Sequence[Decision]:
        return ()
