"""What `stop=` means: values of results, a stopper of the user's own, seconds; and its verdict on a result."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sweep import checks
from sweep.core.messages import Verdict
from sweep.core.results import TrialResult
from sweep.core.stoppers import FunctionStopper, Stopper, TimeoutStopper, combine
from sweep.errors import ConfigError


@dataclass(frozen=True, slots=True)
class StopRules:
    """What ends a trial, or the sweep."""

    # A trial ends at that value or above, or where it is True or False at the same; the core compares.
    criteria: Mapping[str, float] = field(default_factory=dict)
    stopper: Stopper | None = None  # the user's own; asked for each result that is judged
    budget_s: float = math.inf  # of the sweep

    @classmethod
    def parse(cls, stop: Any) -> StopRules:
        """Return what `stop=` means in any of its forms."""
        if stop is None:
            return cls()
        if isinstance(stop, Mapping):
            criteria = {key: bool(value) if isinstance(value, np.bool_) else value for key, value in stop.items()}
            for key, value in criteria.items():
                where = f"stop={{{key!r}: {value!r}}}: "
                if isinstance(value, Mapping):
                    raise ConfigError(f"{where}write nested keys as a path, such as 'eval/accuracy'.")
                if not isinstance(value, bool) and not checks.is_number(value, is_finite=False):
                    raise ConfigError(f"{where}expected a number; a trial ends at that value or above.")
            return cls(criteria)
        is_list = isinstance(stop, (list, tuple))
        stoppers: list[Stopper] = []
        budget = math.inf
        for item in stop if is_list else [stop]:
            if isinstance(item, Stopper):
                budget = min(budget, math.inf if item.budget_s is None else item.budget_s)
                stoppers += [] if isinstance(item, TimeoutStopper) else [item]
            elif callable(item) and not hasattr(item, "stop_all") and not is_list:
                stoppers.append(FunctionStopper(item))
            else:
                what = "a dict, a function (trial_id, result) -> bool, a Stopper, or a list of Stoppers"
                checks.refuse("stop", item, what)
        return cls(stopper=combine(stoppers), budget_s=budget)

    @property
    def judge(self) -> Callable[[str, TrialResult], Verdict] | None:
        """The stopper's verdict on a result; None where there is none to be asked."""
        stopper = self.stopper
        if stopper is None:
            return None

        def judge(trial_id: str, result: TrialResult) -> Verdict:
            is_over = stopper(trial_id, result)
            return Verdict.STOP_ALL if stopper.stop_all() else Verdict.STOP if is_over else Verdict.NONE

        return judge
