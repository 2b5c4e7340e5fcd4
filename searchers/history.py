"""Searchers over a library that keeps no state: for each suggestion it gets the whole history of the search."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Literal

from searchers.base import Config, Signal, keyed_rng
from searchers.checks import as_number
from searchers.errors import SearchError, SpaceError
from searchers.named_space import DomainSpace, Values
from searchers.space_searcher import SpaceSearcher
from searchers.variants import fresh


def load(module: str, package: str, who: str) -> Any:
    """Return a module of an optional package, or raise a SearchError that says how to install it."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise SearchError(f"{who} cannot import {package}, which misses {error.name!r}: {error}") from error
        raise SearchError(f"{who} needs the package {package}: pip install {package}") from error


@dataclass(frozen=True)
class Tried:
    """One point that was suggested, or evaluated elsewhere.

    Attributes:
        number: of the suggestion; None for a point from elsewhere.
        loss: what is minimised (the metric, its sign turned for mode "max"); None unless `end` is "ok".
        end: "open" while the trial goes on, "bad" without a finite metric, "error" when it failed.
    """

    number: int | None
    values: Values
    loss: float | None = None
    end: Literal["open", "ok", "bad", "error"] = "open"


class HistorySearch(SpaceSearcher):
    """Suggest from what was tried so far: the part that searchers on stateless libraries share.

    The library's model is built anew for each suggestion from the points in the order of their numbers and a seed
    derived from (seed, number). So nothing depends on the order in which trials end, and a search that is given its
    record again goes on as if it had never stopped. A subclass answers `_read` and `_propose`.
    """

    def __init__(
        self,
        space: Any,
        metric: str | None,
        mode: str | None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None,
        seed: int | None,
        seed_name: str = "seed",
    ) -> None:
        super().__init__(space, metric, mode, points_to_evaluate, seed, seed_name)
        self._check_one_objective(metric, mode)
        self._own_space = space
        self._past: list[Tried] = []  # ended
        self._open: dict[str, tuple[Tried, Config]] = {}

    def _take_run(self, config: Mapping[str, Any], num_samples: int | None, seed: int) -> bool:
        self._check_one_objective(self.metric, self.mode)
        is_taken = super()._take_run(config, num_samples, seed)
        if is_taken:
            self._known_space()
        return is_taken

    def suggest(self, trial_id: str) -> Config | Signal:
        if trial_id in self._open:
            return self._with_constants(self._open[trial_id][1])
        self._check_goal()
        space, number, filled = self._known_space(), self._count, None
        values: Values | Signal
        if number < len(self._points):
            values, filled = space.fix(self._points[number])
        else:
            values = self._propose(number)
        if isinstance(values, Signal):
            return values
        config, used = space.config(values, filled, keyed_rng(self._seed, number))
        self._open[trial_id] = (Tried(number, used), config)
        self._count += 1
        return self._with_constants(config)

    def suggestion_state(self, trial_id: str) -> Mapping[str, Any] | None:
        """Return the values of the suggestion's parameters: a config does not tell which of equal options it has."""
        return {"values": dict(self._open[trial_id][0].values)} if trial_id in self._open else None

    def retell(self, trial_id: str, config: Config, state: Mapping[str, Any] | None) -> None:
        """Take a suggestion of before the restart as it was; nothing is sampled."""
        values = dict(state["values"]) if state is not None else self._values_of(config)
        self._open[trial_id] = (Tried(self._count, values), fresh(config))
        self._count += 1

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        tried, _ = self._open.pop(trial_id, (None, None))
        if tried is not None:
            self._past.append(self._ended(tried, result, error))

    def observe(self, config: Config, result: Mapping[str, Any]) -> None:
        """Learn from a point that was evaluated elsewhere; without a finite metric it counts as a bad one."""
        self._check_goal()
        self._past.append(self._ended(Tried(None, self._values_of(config)), result, error=False))

    def get_state(self) -> Mapping[str, Any]:
        """Return the points that ended, and the number and seed of the next."""
        points = [[tried.number, tried.values, tried.loss, tried.end] for tried in self._past]
        return {**super().get_state(), "metric": self.metric, "mode": self.mode, "points": points}

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._take_goal(state, has_begun=bool(self._count or self._past))
        super().set_state(state)
        self._past = [Tried(number, dict(values), loss, end) for number, values, loss, end in state["points"]]

    # --- for the subclass --------------------------------------------------------------------------------------------

    @abstractmethod
    def _read(self, space: Any) -> DomainSpace:
        """Return a space with its parameters, after a check that the library is there and can search it."""

    @abstractmethod
    def _propose(self, number: int) -> Values | Signal:
        """Return the values of suggestion `number`; those left out are drawn."""

    def _known_space(self) -> DomainSpace:
        if self._space is None and self._has_own_space:
            self._take_space(self._own_space)  # not before it is needed: the library is loaded for it
        space: DomainSpace = super()._known_space()
        return space

    def _history(self) -> list[Tried]:
        """Return what was tried, points from elsewhere first, then by number."""
        tried = self._past + [one for one, _ in self._open.values()]
        return sorted(tried, key=lambda one: -1 if one.number is None else one.number)

    def _take_space(self, space: Any) -> None:
        if self._has_own_space or space:
            taken = self._read(space)
            for point in self._points:
                taken.fix(point)
            self._space = taken

    def _values_of(self, config: Mapping[str, Any]) -> Values:
        """Return the values of a whole config, which may leave no parameter out."""
        space = self._known_space()
        own = self._without_constants(config)
        values, filled = space.fix(own)
        _, used = space.config(values, filled, keyed_rng(0, 0))
        if left_out := used.keys() - values.keys():
            raise SpaceError(f"the point {own!r} leaves out {min(left_out)!r}; every parameter must be named.")
        return values

    def _check_one_objective(self, metric: Any, mode: Any) -> None:
        for name, value in (("metric", metric), ("mode", mode)):
            if value is not None and not isinstance(value, str):
                raise SearchError(
                    f"{name} is {value!r}; {type(self).__name__} has one objective. Use OptunaSearch for several."
                )

    def _loss_of(self, result: Mapping[str, Any]) -> float:
        """Return what is minimised; NaN for what is no finite number."""
        loss = as_number(result.get(str(self.metric)))
        loss = -loss if self.mode == "max" else loss
        return loss if math.isfinite(loss) else math.nan

    def _ended(self, tried: Tried, result: Mapping[str, Any] | None, error: bool) -> Tried:
        if error:
            return replace(tried, end="error")
        loss = self._loss_of(result or {})
        return replace(tried, end="bad") if math.isnan(loss) else replace(tried, loss=loss, end="ok")
