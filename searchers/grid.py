"""Suggest the configs of a space by their numbers: grids crossed, the rest drawn at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from searchers import checks
from searchers.base import EXHAUSTED, NOT_NOW, Config, Signal
from searchers.keywords import refuse_unknown
from searchers.space import RandomState, as_generator
from searchers.space_searcher import SpaceSearcher
from searchers.variants import Variants, refuse_grids


@refuse_unknown()
class GridSearch(SpaceSearcher):
    """Try every point of the grid, and draw what is random anew for each; repeat that `num_samples` times.

    A space without a grid is drawn from at random; one without anything random is tried point by point. Suggestion n
    depends on the space, the points, the seed and n alone and is computed directly, so a grid may be as large as one
    likes, and a larger `num_samples` changes no earlier suggestion. The grid variable whose path sorts first varies
    fastest. Without `num_samples` it never ends.

    Args:
        space: nested dict of domains, grids and constants; None: that of the run.
        seed: int of at least 0; None: the seed of the run.
        points_to_evaluate: (partial) configs to try first. Each takes the place of one sample and fixes what it
            names; a grid variable it names is not crossed.
        max_concurrent: how many trials may be open at a time; 0: no limit.
        constant_grid_search: draw random values once per sample and keep them over the grid.
        max_trials: configs at most, however many the grid and the samples make; 0: no limit.

    Raises:
        SpaceError: the space makes no sense, or a point names a key it does not have.
        SearchError: another argument is wrong.

    Example:
        >>> from searchers import GridSearch, grid_search
        >>> search = GridSearch({"a": grid_search([1, 2]), "b": grid_search(["x", "y"])})
        >>> [search.suggest(str(n)) for n in range(3)]
        [{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'x'}, {'a': 1, 'b': 'y'}]
    """

    # Config n depends on (seed, n) alone, so a restart needs the count of answered suggestions and nothing else.
    is_adaptive = False

    def __init__(
        self,
        space: Mapping[str, Any] | None = None,
        metric: str | Sequence[str] | None = None,
        mode: str | Sequence[str] | None = None,
        *,
        seed: int | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        max_concurrent: int = 0,
        constant_grid_search: bool = False,
        max_trials: int = 0,
    ) -> None:
        super().__init__(space, metric, mode, points_to_evaluate, seed)
        self._max_trials = checks.whole("max_trials", max_trials, hint="0 means no limit.")
        self._max_concurrent = checks.whole("max_concurrent", max_concurrent, hint="0 means no limit.")
        self._are_draws_constant = bool(constant_grid_search)
        self._num_samples: int | None = None
        self._num_before = 0  # configs that were suggested by the search that this one goes on from
        self._open: dict[str, Config] = {}
        if space is not None:
            self._take_space(space)

    def _take_space(self, space: Any) -> None:
        self._space = Variants(space, self._points, is_constant=self._are_draws_constant)

    def _take_run(self, config: Mapping[str, Any], num_samples: int | None, seed: int) -> bool:
        expected = "a whole number of at least 0, or None for no limit"
        self._num_samples = None if num_samples is None else checks.whole("num_samples", num_samples, expected=expected)
        return super()._take_run(config, num_samples, seed)

    def num_trials(self, num_samples: int | None) -> int | None:
        """Return how many configs that many samples are; before a space is known, the samples themselves.

        A given point is one sample, of which only what is left of the grid is tried. Points are never cut off. After
        `set_state` these are samples behind those of the search that this one goes on from.
        """
        most = self._max_trials or None
        if self._space is None or num_samples is None:
            return most if num_samples is None else num_samples
        count: int = self._space.count(self._space.sample_of(self._num_before) + num_samples)
        return min(count - self._num_before, most or count)

    def on_request(self, request: Mapping[str, Any]) -> None:
        """Take a larger number of samples; that fewer are made is seen to by the run."""
        if self._num_samples is not None:
            self._num_samples = max(self._num_samples, request.get("num_samples", 0))

    def suggest(self, trial_id: str) -> Config | Signal:
        variants = self._known_space()
        if trial_id in self._open:
            return self._with_constants(self._open[trial_id])
        if self._max_concurrent and len(self._open) >= self._max_concurrent:
            return NOT_NOW
        limit = self.num_trials(self._num_samples)
        if limit is not None and self._count - self._num_before >= limit:
            return EXHAUSTED
        config = self._open[trial_id] = variants.config(self._count, self._seed)
        self._count += 1
        return self._with_constants(config)

    def retell(self, trial_id: str, config: Config, state: Mapping[str, Any] | None) -> None:
        self._open[trial_id] = self._without_constants(config)
        self._count += 1

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        self._open.pop(trial_id, None)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on behind the last config of another search of the same space: none comes twice."""
        super().set_state(state)
        self._num_before = self._count
        self._open.clear()


@refuse_unknown()
class BasicVariantGenerator(GridSearch):
    """`GridSearch` with the arguments it has in Tune, in their order.

    Args:
        random_state: seed, numpy Generator or RandomState (one number is drawn from it); None: the seed of the run.
    """

    def __init__(
        self,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        max_concurrent: int = 0,
        constant_grid_search: bool = False,
        random_state: RandomState = None,
    ) -> None:
        if isinstance(random_state, (np.random.Generator, np.random.RandomState)):
            random_state = int(as_generator(random_state).integers(2**32))
        super().__init__(
            seed=checks.seed("random_state", random_state),
            points_to_evaluate=points_to_evaluate,
            max_concurrent=max_concurrent,
            constant_grid_search=constant_grid_search,
        )


@refuse_unknown()
class RandomSearch(GridSearch):
    """Draw every config independently of all others.

    Suggestion n depends on the space, the seed and n alone. A run that gave `num_samples` gets that many.

    Args:
        space: nested dict of domains and constants; None: that of the run. `grid_search` is refused.
        seed: int of at least 0; None: the seed of the run.
        points_to_evaluate: (partial) configs to suggest first; what they leave open is drawn. Each counts as a sample.

    Raises:
        SpaceError: the space makes no sense or holds a grid, or a point names a key it does not have.

    Example:
        >>> from searchers import RandomSearch, uniform
        >>> search = RandomSearch({"x": uniform(0, 1)}, metric="loss", mode="min", seed=1)
        >>> 0 <= search.suggest("a")["x"] < 1
        True
    """

    def __init__(
        self,
        space: Mapping[str, Any] | None = None,
        metric: str | Sequence[str] | None = None,
        mode: str | Sequence[str] | None = None,
        seed: int | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__(space, metric, mode, seed=seed, points_to_evaluate=points_to_evaluate)

    def _take_space(self, space: Any) -> None:
        super()._take_space(space)
        refuse_grids(space, "RandomSearch")
