"""MOASHA: asynchronous successive halving for several objectives; stops trials that are far from the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, final

from sweep.core.messages import Decision, StopTrial
from sweep.core.results import Result
from sweep.core.trial import Trial
from sweep.core.values import as_float
from sweep.errors import ConfigError, refuse_unknown
from sweep.schedulers.base import Scheduler
from sweep.schedulers.nondominated import ParetoOrder
from sweep.schedulers.rungs import check_brackets, draw_ladder, place_rungs, signed

__all__ = ["MOASHAScheduler"]

Names = str | Sequence[str] | None


class _Bracket:
    """Rungs, highest first, at which trials are stopped."""

    def __init__(self, milestones: Sequence[float], eta: float) -> None:
        self.rungs = [(milestone, ParetoOrder(eta)) for milestone in reversed(milestones)]
        self.seen: list[set[str]] = [set() for _ in self.rungs]

    def judge(self, trial_id: str, time: float, point: tuple[float, ...]) -> tuple[float, int] | None:
        """Record a result at the highest rung reached; returns (milestone, number there) if it is not good enough."""
        for (milestone, order), seen in zip(self.rungs, self.seen, strict=True):
            if time >= milestone:
                if trial_id in seen:
                    return None
                seen.add(trial_id)
                return None if order.add(point) else (milestone, order.num)
        return None


@refuse_unknown()
@final
class MOASHAScheduler(Scheduler):
    """Stop a trial at a rung unless it is among the best 1/eta by several objectives at once.

    Rungs lie as those of ASHA. A trial that arrives at one is put into an order with all that got there before: first
    those that no other dominates (is at least as good in all objectives and better in one), then those that only these
    dominate, and so on. Those of one front are taken in the order of an epsilon net: the best by the first objective,
    then always the one farthest from all taken before, so that trials from all over a front go on and not only those
    from one end. A trial before which more than a share of 1/eta of all stands is stopped. Who comes first continues.

    Args:
        time_attr: result key that counts progress, in the unit of `max_t`.
        metric: names of the objectives, two or more, such as `["error", "latency_s"]`; from the run unless given here.
        mode: "min" or "max" for each, or one for all.
        max_t: a trial that gets there is stopped (unless `stop_last_trials` is False).
        grace_period: progress before anything is stopped; the lowest rung.
        reduction_factor: eta; a rung keeps about one in eta.
        brackets: ladders that begin at ever higher rungs; a trial is put into one at random, as by ASHA.
        stop_last_trials: whether `max_t` ends a trial.
        rungs: where the rungs lie, instead; the last one then takes the place of `max_t`.

    Attributes:
        metrics, modes: one per objective. metric, mode: the first of them.

    Raises:
        ConfigError: fewer than two objectives, as many modes as there are not metrics, or what ASHA refuses.

    Source: Schmucker et al. 2021, arXiv:2106.12639, with the epsilon net that it finds best, as a stopping rule.
    Departures: distances on a front are those of objectives scaled by their range there, so that units do not matter;
    the net begins at the best by the first objective, not at a random point; of a front with more than 32 points,
    32 stand for all. A trial with a NaN in any objective is stopped at its rung, and counts as one that got there.
    """

    is_multi_objective = True

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: Sequence[str] | None = None,
        mode: str | Sequence[str] | None = None,
        max_t: float = 100,
        grace_period: float = 1,
        reduction_factor: float = 4,
        brackets: int = 1,
        stop_last_trials: bool = True,
        *,
        rungs: Sequence[float] | None = None,
    ) -> None:
        milestones = place_rungs(grace_period, max_t, reduction_factor, rungs)
        check_brackets(brackets)
        if not isinstance(time_attr, str) or not time_attr:
            raise ConfigError(f"time_attr is {time_attr!r}; expected the name of a result that counts progress.")
        self.time_attr = time_attr
        self.metrics: tuple[str, ...] = ()
        self.modes: tuple[str, ...] = ()
        self._given_mode = mode
        if metric is not None:
            self._set(metric, mode)
        elif mode is not None:
            _modes(mode, 1 if isinstance(mode, str) else len(mode))
        self.max_t = max_t if rungs is None else milestones[-1]
        self.grace_period, self.reduction_factor = milestones[0], reduction_factor
        self.num_stopped = 0
        self._stop_last = stop_last_trials
        self._seed = 0
        starts = [milestones[s:] for s in range(min(brackets, len(milestones)))]
        self._brackets = [_Bracket(some, reduction_factor) for some in starts]
        self._drawn: dict[str, int] = {}

    def set_search_properties(self, metric: Names, mode: Names, *, seed: int = 0) -> None:
        """Take objectives, modes and seed from the run; what was given to the constructor may be repeated there.

        Raises:
            ConfigError: others were given here, or fewer than two in all.
        """
        self._seed = seed
        given = (metric,) if isinstance(metric, str) else tuple(metric or ())
        if not self.metrics:
            if len(given) < 2:
                raise ConfigError(
                    f"MOASHAScheduler judges by two objectives or more, and was told {list(given)!r}. Pass "
                    'metric=["error", "latency_s"], mode=["min", "min"]; for one objective use ASHAScheduler.'
                )
            self._set(given, mode if mode is not None else self._given_mode)
            return
        # a run that knows the first objective only repeats that one
        modes = None if mode is None else _modes(mode, len(given) or len(self.metrics))
        if given not in ((), self.metrics, self.metrics[:1]) or (modes and modes != self.modes[: len(modes)]):
            raise ConfigError(
                f"the run judges by {list(given)!r}, {mode!r}, and MOASHAScheduler was told "
                f"{list(self.metrics)!r}, {list(self.modes)!r}; give them in one place, best to the run."
            )

    def _set(self, metric: Names, mode: Names) -> None:
        if isinstance(metric, str) or metric is None or not all(isinstance(name, str) and name for name in metric):
            raise ConfigError(
                f"metric is {metric!r}; MOASHAScheduler expects a list of names, such as ['error', 'latency_s']. "
                "For one objective use ASHAScheduler."
            )
        if len(metric) < 2 or len(set(metric)) < len(metric):
            raise ConfigError(f"metric is {list(metric)!r}; MOASHAScheduler expects two different names or more.")
        self.metrics = tuple(metric)
        self.modes = _modes(mode if mode is not None else "max", len(self.metrics))
        self.metric, self.mode = self.metrics[0], self.modes[0]

    def on_trial_add(self, trial: Trial) -> None:
        self._bracket(trial)

    def _bracket(self, trial: Trial) -> _Bracket:
        """Return the trial's bracket, always the same for the same trial and seed."""
        if len(self._brackets) == 1:
            return self._brackets[0]
        if trial.id not in self._drawn:
            sizes = [len(bracket.rungs) for bracket in self._brackets]
            self._drawn[trial.id] = draw_ladder(sizes, self._seed, trial.number)
        return self._brackets[self._drawn[trial.id]]

    def _read(self, result: Result) -> tuple[float, tuple[float, ...]] | None:
        """Return (time, scores), larger scores being better; None if the time or one of the objectives is missing."""
        time = as_float(result.get(self.time_attr))
        values = [result.get(name) for name in self.metrics]
        if time is None or math.isnan(time) or any(value is None for value in values):
            return None
        return time, tuple(signed(value, mode) for value, mode in zip(values, self.modes, strict=True))

    def on_result(self, trial: Trial, result: Result, trials: Mapping[str, Trial]) -> Sequence[Decision]:
        read = self._read(result)
        if read is None:
            return ()
        time, point = read
        if time >= self.max_t and self._stop_last:
            return [StopTrial(trial.id, f"reached max_t: {self.time_attr}={time:g}")]
        missed = self._bracket(trial).judge(trial.id, time, point)
        if missed is None:
            return ()
        self.num_stopped += 1
        milestone, number = missed
        shown = ", ".join(f"{name}={result[name]:.4g}" for name in self.metrics if _is_number(result[name]))
        share = f"the best 1/{self.reduction_factor:g} of {number}"
        return [StopTrial(trial.id, f"stopped early: {shown or 'no number'} at {milestone:g} is not among {share}")]

    def on_trial_end(self, trial: Trial) -> Sequence[Decision]:
        read = self._read(trial.last_result) if trial.last_result is not None else None
        if read is not None:
            self._bracket(trial).judge(trial.id, *read)
        return ()

    def state(self) -> Any:
        """Return per bracket and rung, the highest first: milestone, who was seen, the fronts; for replay checks."""
        return [
            [
                (milestone, sorted(seen), order.fronts())
                for (milestone, order), seen in zip(b.rungs, b.seen, strict=True)
            ]
            for b in self._brackets
        ]

    def debug_string(self) -> str:
        """Return how many were stopped, and how many got to each rung, for logs."""
        lines = [f"Using MOASHA: num_stopped={self.num_stopped}"]
        for bracket in self._brackets:
            lines.append("Bracket: " + " | ".join(f"Iter {m:.3f}: {order.num}" for m, order in bracket.rungs))
        return "\n".join(lines)


def _modes(mode: Names, number: int) -> tuple[str, ...]:
    """Return one mode per objective.

    Raises:
        ConfigError: one is neither "min" nor "max", or there are too few or too many.
    """
    modes = (mode,) * number if isinstance(mode, str) else tuple(mode or ())
    if len(modes) != number or any(one not in ("min", "max") for one in modes):
        raise ConfigError(f"mode is {mode!r}; expected 'min' or 'max', or a list of {number} of them.")
    return modes


def _is_number(value: Any) -> bool:
    return signed(value, "max") == signed(value, "max")
