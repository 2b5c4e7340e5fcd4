"""Searchers over a library that keeps no state: for each suggestion it is told the whole history of the search."""

from __future__ import annotations

import copy
import math
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Literal, Protocol

import numpy as np

from searchers.base import Config, Searcher, Signal, keyed_rng
from searchers.errors import SearchError, SpaceError, nearest
from searchers.random_search import check_seed
from searchers.space import Categorical, Domain, Float, Function, Integer, Normal, Quantized, is_same
from searchers.variants import (
    Path,
    check_points,
    check_space,
    fixed_domains,
    fresh,
    has_domains,
    merge,
    path_name,
    refuse_grids,
    resolve,
    unflatten,
)

__all__ = ["DomainSpace", "HistorySearch", "NamedSpace", "Tried", "Values", "base_and_q", "load", "quietly"]

Values = dict[str, Any]
"""The parameters of one config by name; of a choice the index of its option."""


@contextmanager
def quietly() -> Iterator[None]:
    """Keep a library's warnings from the user, who can do nothing about them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def load(module: str, package: str, who: str) -> Any:
    """Return a module of an optional package.

    Raises:
        SearchError: it is not installed, or cannot be imported.
    """
    try:
        with quietly():
            return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise SearchError(f"{who} cannot import {package}, which misses {error.name!r}: {error}") from error
        raise SearchError(f"{who} needs the package {package}: pip install {package}") from error


# --- spaces of named parameters --------------------------------------------------------------------------------------


class NamedSpace(Protocol):
    """What a search needs of its space."""

    def config(self, values: Values, fixed: Any, rng: np.random.Generator) -> tuple[Config, Values]:
        """Return the config of `values`, and the values of all its parameters; `rng` draws those not given."""

    def fix(self, point: Mapping[str, Any]) -> tuple[Values, Any]:
        """Return the values that `point` gives, and what else `config` must know of it, as its `fixed`."""


class DomainSpace:
    """A nested dict of domains as named parameters.

    A domain is named by its path, `net/width`. Those within option 1 of the choice `model` are `model/1/lr`, and exist
    only when that option is chosen.

    Args:
        who: the searcher, for messages.

    Attributes:
        space: as it was given.
        parameters: the domains by name, in the order of their sorted paths.

    Raises:
        SpaceError: the space holds a grid, two parameters of one name, or a range that is infinite.
    """

    def __init__(self, space: Mapping[str, Any], who: str) -> None:
        refuse_grids(check_space(space), who)
        self.space = space
        self.parameters: dict[str, Domain] = {}
        for path, domain in fixed_domains(space):
            name = path_name(path)
            if name in self.parameters:
                raise SpaceError(f"two parameters of the space are called {name!r}; rename one.")
            if isinstance(domain, Float) and not _is_bounded(domain):
                raise SpaceError(f"{name} is {domain!r}; expected a range with two finite bounds.")
            self.parameters[name] = domain

    def config(self, values: Values, fixed: Any, rng: np.random.Generator) -> tuple[Config, Values]:
        used: Values = {} if fixed is None else dict(values)

        def decide(path: Path, domain: Domain) -> Any:
            name = path_name(path)
            if name in values:
                value = values[name]
            else:
                value = domain.draw_index(rng) if isinstance(domain, Categorical) else domain.draw(rng)
            if name in self.parameters:
                used[name] = value
            return value

        return resolve(self.space if fixed is None else fixed, decide), used

    def fix(self, point: Mapping[str, Any]) -> tuple[Values, Any]:
        nested: Config = {}
        for key, value in point.items():
            is_name = isinstance(key, str) and "/" in key and key not in self.space
            nested = merge(nested, unflatten({key: value}) if is_name else {key: value})
        values: Values = {}
        return values, self._fix(self.space, nested, (), values)

    def _fix(self, node: Any, value: Any, path: Path, values: Values) -> Any:
        """Return `node` with `value` in it; what is a parameter goes to `values` too."""
        if isinstance(node, Categorical):
            return self._fix_choice(node, value, path, values)
        if isinstance(node, Domain) and not isinstance(node, Function):
            if not node.is_valid(value):
                raise SpaceError(
                    f"the point sets {path_name(path)} to {value!r}; expected a value of {node.domain_str}."
                )
            values[path_name(path)] = node.cast(value)
            return values[path_name(path)]
        if isinstance(node, Mapping) and isinstance(value, Mapping):
            filled = dict(node)
            for key, one in value.items():
                if key not in node:
                    known = nearest(str(key), map(str, node))
                    raise SpaceError(
                        f"the point names {'/'.join(map(str, (*path, key)))!r}, which the space does not have. {known}"
                    )
                filled[key] = self._fix(node[key], one, (*path, key), values)
            return filled
        if isinstance(node, (list, tuple)) and has_domains(node):
            if not isinstance(value, (list, tuple)) or len(value) != len(node):
                raise SpaceError(f"the point sets {path_name(path)} to {value!r}; expected {len(node)} values.")
            items = [self._fix(a, b, (*path, i), values) for i, (a, b) in enumerate(zip(node, value, strict=True))]
            return items if isinstance(node, list) else tuple(items)
        if isinstance(node, Mapping) and has_domains(node):
            raise SpaceError(f"the point sets {path_name(path)} to {value!r}; expected a dict of its keys.")
        return fresh(value)

    def _fix_choice(self, node: Categorical, value: Any, path: Path, values: Values) -> Categorical:
        index = next((i for i, option in enumerate(node.categories) if _fits(option, value)), None)
        if index is None:
            raise SpaceError(f"the point sets {path_name(path)} to {value!r}, which is not among {node.domain_str}.")
        values[path_name(path)] = index
        filled = copy.copy(node)
        filled.categories = list(node.categories)
        filled.categories[index] = self._fix(node.categories[index], value, (*path, index), values)
        return filled


def base_and_q(domain: Float | Integer) -> tuple[Any, float | None]:
    """Return how a number's values are distributed before rounding, and to multiples of what they are rounded."""
    sampler = domain.get_sampler()
    return (sampler.sampler, sampler.q) if isinstance(sampler, Quantized) else (sampler, None)


def _is_bounded(domain: Float) -> bool:
    return isinstance(base_and_q(domain)[0], Normal) or math.isfinite(domain.upper - domain.lower)


def _fits(option: Any, value: Any) -> bool:
    """Whether `value` may stand for `option` of a choice; of a dict it may leave keys out."""
    if isinstance(option, Categorical):
        return any(_fits(one, value) for one in option.categories)
    if isinstance(option, Domain):
        return option.is_valid(value)
    if isinstance(option, Mapping) and isinstance(value, Mapping):
        return value.keys() <= option.keys() and all(_fits(option[key], value[key]) for key in value)
    if isinstance(option, (list, tuple)) and isinstance(value, (list, tuple)):
        return len(option) == len(value) and all(map(_fits, option, value))
    return is_same(option, value)


# --- searchers that are told a history -------------------------------------------------------------------------------


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


class HistorySearch(Searcher):
    """Suggest from what was tried so far: the part that searchers on stateless libraries share.

    The library's model is built anew for each suggestion from the points in the order of their numbers and a seed
    derived from (seed, number). So nothing depends on the order in which trials end, and a search that is told its
    record again goes on as if it had never stopped. A subclass answers `_read` and `_propose`.
    """

    def __init__(
        self,
        space: Any,
        metric: str | None,
        mode: str | None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None,
        seed: int | None,
        seed_name: str,
    ) -> None:
        super().__init__(metric, mode)
        self._check_one_objective(metric, mode)
        self._seed = check_seed(seed_name, seed)
        self._run_seed = 0
        self._points = check_points(points_to_evaluate)
        self._own_space = space
        self._space: NamedSpace | None = None
        self._fixed: Mapping[str, Any] = {}
        self._count = 0
        self._past: list[Tried] = []  # ended
        self._open: dict[str, tuple[Tried, Config]] = {}

    def set_search_properties(
        self,
        metric: str | Sequence[str] | None,
        mode: str | Sequence[str] | None,
        space: Mapping[str, Any],
        *,
        num_samples: int | None = None,
        seed: int = 0,
    ) -> bool:
        """Take what the run knows; constants of the run's space are added to the configs of one given here.

        Raises:
            SpaceError: the library cannot search the space, or a point does not fit it.
            SearchError: the library is missing, or there are several metrics.
        """
        self._check_one_objective(metric, mode)
        if not super().set_search_properties(metric, mode, space):
            return False
        self._run_seed = check_seed("seed", seed) or 0
        if self._own_space is None:
            if space:
                self._take(space)
        elif has_domains(space):
            return False
        else:
            self._fixed = fresh(space)
        self._known_space()
        return True

    def suggest(self, trial_id: str) -> Config | Signal:
        if trial_id in self._open:
            return self._copy(trial_id)
        self._check_goal()
        space, number, fixed = self._known_space(), self._count, None
        values: Values | Signal
        if number < len(self._points):
            values, fixed = space.fix(self._points[number])
        else:
            values = self._propose(number)
        if isinstance(values, Signal):
            return values
        config, used = space.config(values, fixed, keyed_rng(self._used_seed, number))
        self._open[trial_id] = (Tried(number, used), config)
        self._count += 1
        return self._copy(trial_id)

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
        """Learn from a point that was evaluated elsewhere; without a finite metric it counts as a bad one.

        Raises:
            SpaceError: `config` is no point of the space.
        """
        self._check_goal()
        self._past.append(self._ended(Tried(None, self._values_of(config)), result, error=False))

    def get_state(self) -> Mapping[str, Any]:
        """Return the points that ended, and the number and seed of the next."""
        points = [[tried.number, tried.values, tried.loss, tried.end] for tried in self._past]
        seed, goal = self._used_seed, (self.metric, self.mode)
        return {"count": self._count, "seed": seed, "metric": goal[0], "mode": goal[1], "points": points}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Learn from the points of another search, and go on behind its last suggestion, with its seed.

        The space is not part of the state; it must be that of the other search.

        Raises:
            SearchError: suggestions were made already, or the other search had another metric or mode.
        """
        who = type(self).__name__
        if self._count or self._past:
            raise SearchError(f"this search has begun; restore into a new {who}, before its first suggestion.")
        if self.metric not in (None, state["metric"]) or self.mode not in (None, state["mode"]):
            raise SearchError(
                f"the state is of metric={state['metric']!r} and mode={state['mode']!r}, this search is for "
                f"metric={self.metric!r} and mode={self.mode!r}; they must be the same."
            )
        self.metric, self.mode = state["metric"], state["mode"]
        self._count, self._seed = int(state["count"]), int(state["seed"])
        self._past = [Tried(number, dict(values), loss, end) for number, values, loss, end in state["points"]]

    # --- for the subclass --------------------------------------------------------------------------------------------

    @abstractmethod
    def _read(self, space: Any) -> NamedSpace:
        """Return a space with its parameters, after a check that the library is there and can search it."""

    @abstractmethod
    def _propose(self, number: int) -> Values | Signal:
        """Return the values of suggestion `number`; those left out are drawn."""

    @property
    def _used_seed(self) -> int:
        return self._run_seed if self._seed is None else self._seed

    def _known_space(self) -> NamedSpace:
        if self._space is None:
            if self._own_space is None:
                who = type(self).__name__
                raise SearchError(
                    f"{who} has no space to search; pass space= or call set_search_properties(metric, mode, space)."
                )
            self._take(self._own_space)
        assert self._space is not None
        return self._space

    def _history(self) -> list[Tried]:
        """Return what was tried, points from elsewhere first, then by number."""
        tried = self._past + [one for one, _ in self._open.values()]
        return sorted(tried, key=lambda one: -1 if one.number is None else one.number)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _take(self, space: Any) -> None:
        taken = self._read(space)
        for point in self._points:
            taken.fix(point)
        self._space = taken

    def _values_of(self, config: Mapping[str, Any]) -> Values:
        """Return the values of a whole config.

        Raises:
            SpaceError: it is none of the space, or leaves a parameter out.
        """
        space = self._known_space()
        own = {key: value for key, value in config.items() if key not in self._fixed}
        values, fixed = space.fix(own)
        _, used = space.config(values, fixed, keyed_rng(0, 0))
        if left_out := used.keys() - values.keys():
            raise SpaceError(f"the point {own!r} leaves out {min(left_out)!r}; every parameter must be named.")
        return values

    def _check_one_objective(self, metric: Any, mode: Any) -> None:
        for name, value in (("metric", metric), ("mode", mode)):
            if value is not None and not isinstance(value, str):
                raise SearchError(
                    f"{name} is {value!r}; {type(self).__name__} has one objective. Use OptunaSearch for several."
                )

    def _check_goal(self) -> None:
        if self.metric is None or self.mode is None:
            raise SearchError(
                f"{type(self).__name__} has metric={self.metric!r} and mode={self.mode!r}; it needs both, for instance "
                "metric='loss', mode='min'."
            )

    def _ended(self, tried: Tried, result: Mapping[str, Any] | None, error: bool) -> Tried:
        if error:
            return replace(tried, end="error")
        try:
            value = float((result or {}).get(str(self.metric), math.nan))
        except (TypeError, ValueError, OverflowError):  # text, arrays, None, what is too large for a float
            value = math.nan
        if not math.isfinite(value):
            return replace(tried, end="bad")
        return replace(tried, loss=-value if self.mode == "max" else value, end="ok")

    def _copy(self, trial_id: str) -> Config:
        return merge(self._fixed, self._open[trial_id][1])
