"""The grid of a space crossed with random draws, `num_samples` times: what a run uses by default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from searchers import checks
from searchers.base import NOT_NOW, Config, Signal
from searchers.keywords import refuse_unknown
from searchers.random_search import NumberedSearch
from searchers.space import RandomState


@refuse_unknown()
class GridSearch(NumberedSearch):
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

    Raises:
        SpaceError: the space makes no sense, or a point names a key it does not have.
        SearchError: another argument is wrong.

    Example:
        >>> from searchers import GridSearch, grid_search
        >>> search = GridSearch({"a": grid_search([1, 2]), "b": grid_search(["x", "y"])})
        >>> [search.suggest(str(n)) for n in range(3)]
        [{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'x'}, {'a': 1, 'b': 'y'}]
    """

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
    ) -> None:
        super().__init__(space, metric, mode, points_to_evaluate, seed, are_draws_constant=bool(constant_grid_search))
        self._max_concurrent = checks.whole("max_concurrent", max_concurrent, hint="0 means no limit.")

    def suggest(self, trial_id: str) -> Config | Signal:
        is_full = self._max_concurrent and len(self._open) >= self._max_concurrent
        return NOT_NOW if is_full and trial_id not in self._open else super().suggest(trial_id)


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
        super().__init__(
            seed=_seed_from(random_state),
            points_to_evaluate=points_to_evaluate,
            max_concurrent=max_concurrent,
            constant_grid_search=constant_grid_search,
        )


def _seed_from(random_state: Any) -> int | None:
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**32))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(0, 2**32, dtype=np.uint64))
    return checks.seed("random_state", random_state)
