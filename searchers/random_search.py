"""Independent random draws from a space."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from searchers import checks
from searchers.base import EXHAUSTED, Config, Names, Signal
from searchers.keywords import refuse_unknown
from searchers.space_searcher import SpaceSearcher
from searchers.variants import Variants, fresh, refuse_grids


class NumberedSearch(SpaceSearcher):
    """Suggest the configs of a space by their numbers: the part that searchers without a model share.

    Config n depends on (seed, n) alone, so a restart needs the count of answered suggestions and nothing else. Kept per
    trial, until it completes: its number; the config too if a function computed parts of it, because such a function
    may answer differently the second time.
    """

    is_adaptive = False

    @abstractmethod
    def __init__(
        self,
        space: Mapping[str, Any] | None,
        metric: Names,
        mode: Names,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None,
        seed: int | None,
        *,
        are_draws_constant: bool = False,
    ) -> None:
        super().__init__(space, metric, mode, points_to_evaluate, seed)
        self._are_draws_constant = are_draws_constant
        self._num_samples: int | None = None
        self._num_before = 0  # configs that were suggested by the search that this one goes on from
        self._open: dict[str, tuple[int, Config | None]] = {}
        self._variants: Variants | None = None
        if space is not None:
            self._take_space(space)

    def _take_space(self, space: Any) -> None:
        self._variants = Variants(space, self._points, is_constant=self._are_draws_constant)

    def _take_run(self, config: Mapping[str, Any], num_samples: int | None, seed: int) -> bool:
        expected = "a whole number of at least 0, or None for no limit"
        self._num_samples = None if num_samples is None else checks.whole("num_samples", num_samples, expected=expected)
        return super()._take_run(config, num_samples, seed)

    def num_trials(self, num_samples: int | None) -> int | None:
        """Return how many configs that many samples are; before a space is known, the samples themselves.

        A given point is one sample, of which only what is left of the grid is tried. Points are never cut off. After
        `set_state` these are samples behind those of the search that this one goes on from.
        """
        if self._variants is None or num_samples is None:
            return num_samples
        return self._variants.count(self._variants.sample_of(self._num_before) + num_samples) - self._num_before

    def suggest(self, trial_id: str) -> Config | Signal:
        if self._variants is None:
            raise self._no_space()
        if trial_id in self._open:
            number, kept = self._open[trial_id]
            return self._config(self._variants, number) if kept is None else fresh(kept)
        limit = self.num_trials(self._num_samples)
        if limit is not None and self._count - self._num_before >= limit:
            return EXHAUSTED
        config = self._config(self._variants, self._count)
        self._open[trial_id] = (self._count, fresh(config) if self._variants.has_functions else None)
        self._count += 1
        return config

    def retell(self, trial_id: str, config: Config, state: Mapping[str, Any] | None) -> None:
        self._open[trial_id] = (self._count, fresh(config))
        self._count += 1

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        self._open.pop(trial_id, None)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on behind the last config of another search of the same space: none comes twice."""
        super().set_state(state)
        self._num_before = self._count
        self._open.clear()

    def _config(self, variants: Variants, number: int) -> Config:
        config = variants.config(number, self._seed)
        return self._with_constants(config) if self._fixed else config


@refuse_unknown()
class RandomSearch(NumberedSearch):
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
        super().__init__(space, metric, mode, points_to_evaluate, seed)

    def _take_space(self, space: Any) -> None:
        super()._take_space(space)
        refuse_grids(space, "RandomSearch")
