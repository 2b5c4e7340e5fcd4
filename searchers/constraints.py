"""What a config must keep beside being good: constraints, read off its result."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from searchers import checks
from searchers.errors import SearchError

Limits = str | Sequence[str] | Mapping[str, float] | Callable[[Mapping[str, Any]], float | Sequence[float]]
"""Metrics that must be at most 0, metrics with the most that each may be, or a function of the result."""


class Constraints:
    """Say by how much a result violates each constraint.

    Args:
        limits: a metric's name or several (feasible: at most 0), a dict of names and the largest feasible values, or a
            function that is given a result and returns a number or a sequence of numbers (feasible: at most 0), always
            of the same length.

    Raises:
        SearchError: `limits` is none of these.
    """

    def __init__(self, limits: Any) -> None:
        self._function: Callable[[Mapping[str, Any]], Any] | None = None
        self._most: dict[str, float] = {}
        self._num: int | None = None
        self._has_warned = False
        if isinstance(limits, str):
            self._most = {limits: 0.0}
        elif isinstance(limits, Mapping):
            self._most = {name: checks.number(f"constraints[{name!r}]", most) for name, most in limits.items()}
        elif isinstance(limits, (list, tuple)):
            self._most = dict.fromkeys(limits, 0.0)
        elif callable(limits):
            self._function = limits
        if self._function is None and not (self._most and all(isinstance(name, str) for name in self._most)):
            raise SearchError(
                f"constraints is {limits!r:.200}; expected names of metrics that must be at most 0, a dict such as "
                "{'latency_ms': 50}, or a function of the result that returns numbers."
            )

    @property
    def limits(self) -> dict[str, float]:
        """The most that each metric may be; empty where a function says it."""
        return dict(self._most)

    def violations(self, result: Mapping[str, Any]) -> list[float] | None:
        """Return one finite number for each constraint, above 0 where it is violated; None if they cannot be computed.

        That is so where a metric is missing, NaN or infinite, where the function raises, and where it returns another
        number of values than before. What the function did wrong is said in a warning, once.
        """
        if self._function is None:
            return _finite([checks.as_number(result.get(name)) - most for name, most in self._most.items()])
        try:
            returned = self._function(result)
            values = [float(one) for one in (returned if hasattr(returned, "__iter__") else [returned])]
        except Exception as error:  # the user's function may raise anything; a sweep of days must not end by it
            self._warn(f"raised {type(error).__name__}: {error}")
            return None
        if self._num is None and values:
            self._num = len(values)
        if len(values) != self._num:
            self._warn(f"returned {len(values)} values; expected {self._num or 'at least 1'}, each time as many")
            return None
        return _finite(values)

    def _warn(self, what: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(f"the function of constraints {what}. Such a trial counts as infeasible.", stacklevel=4)


def _finite(values: list[float]) -> list[float] | None:
    return values if all(map(math.isfinite, values)) else None
