"""Independent random draws from a space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from searchers.base import EXHAUSTED, Config, Searcher, Signal
from searchers.errors import SearchError
from searchers.keywords import refuse_unknown
from searchers.variants import Variants, check_points, fresh, has_domains, merge, refuse_grids

__all__ = ["Drawn", "RandomSearch", "check_seed"]


def check_seed(name: str, seed: Any) -> int | None:
    """Return `seed` if it is None or an int of at least 0.

    Raises:
        SearchError: it is anything else.
    """
    if seed is None or (isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0):
        return seed
    raise SearchError(f"{name} is {seed!r}; expected an int of at least 0, or None for the seed of the run.")


class Drawn:
    """The part that searchers without a model share: numbered configs of a space, and which trial has which.

    Draw n depends on (seed, n) alone, so a restart needs the count of answered suggestions and nothing else. Kept per
    trial, until it completes: its number; the config too if a function computed parts of it, because such a function
    may answer differently the second time.

    Args:
        space: None until the run tells its own.
        is_constant: random values are drawn once per sample and kept over the grid.
        refuses_grids: name of the searcher that cannot cross grids; None: grids are crossed.
    """

    def __init__(
        self,
        space: Mapping[str, Any] | None,
        points: Any,
        seed: int | None,
        *,
        is_constant: bool = False,
        refuses_grids: str | None = None,
    ) -> None:
        self.points: Sequence[Mapping[str, Any]] = check_points(points)
        self.live: dict[str, tuple[int, Config | None]] = {}
        self.num_samples: int | None = None
        self._is_constant = is_constant
        self._refuses_grids = refuses_grids
        self._seed = seed
        self._run_seed = 0
        self._count = 0
        self._restored = 0  # how many configs were suggested by the search that this one goes on from
        self._own_space = space
        self._fixed: Mapping[str, Any] = {}
        self._variants = None if space is None else self._variants_of(space)

    def take(self, space: Mapping[str, Any], num_samples: int | None, seed: int) -> bool:
        """Take what the run knows; False when both it and the constructor gave a space to search."""
        if self._own_space is None:
            self._variants = self._variants_of(space)
        elif has_domains(space):
            return False
        else:
            self._fixed = fresh(space)
        if num_samples is not None and (
            isinstance(num_samples, bool) or not isinstance(num_samples, int) or num_samples < 0
        ):
            raise SearchError(f"num_samples is {num_samples!r}; expected an int of at least 0, or None for no limit.")
        self.num_samples = num_samples
        checked = check_seed("seed", seed)
        self._run_seed = 0 if checked is None else checked
        return True

    def num_trials(self, num_samples: int | None) -> int | None:
        """Return how many configs that many samples are; before a space is known, the samples themselves.

        After `set_state` these are samples behind those of the search that this one goes on from.
        """
        if self._variants is None or num_samples is None:
            return num_samples
        before = self._variants.sample_of(self._restored)
        count = self._variants.count(before + num_samples)
        return None if count is None else count - self._restored

    def suggest(self, trial_id: str, who: str) -> Config | Signal:
        """Return the next config, the same as before for a trial that has one, or EXHAUSTED."""
        if self._variants is None:
            raise SearchError(
                f"{who} has no space to search; pass space= or call set_search_properties(metric, mode, space)."
            )
        if trial_id in self.live:
            number, config = self.live[trial_id]
            return self._config(self._variants, number) if config is None else fresh(config)
        limit = self.num_trials(self.num_samples)
        if limit is not None and self._count - self._restored >= limit:
            return EXHAUSTED
        config = self._config(self._variants, self._count)
        self.live[trial_id] = (self._count, fresh(config) if self._variants.has_functions else None)
        self._count += 1
        return config

    def retell(self, trial_id: str, config: Config) -> None:
        """Count a suggestion that was answered with `config`; nothing is drawn."""
        self.live[trial_id] = (self._count, fresh(config))
        self._count += 1

    def get_state(self) -> Mapping[str, Any]:
        """Return how many configs were suggested, and under which seed."""
        return {"count": self._count, "seed": self._run_seed if self._seed is None else self._seed}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on behind the last config of another search, with its seed."""
        self._count = self._restored = int(state["count"])
        self._seed = int(state["seed"])
        self.live.clear()

    def complete(self, trial_id: str) -> None:
        """Forget a trial."""
        self.live.pop(trial_id, None)

    def _config(self, variants: Variants, number: int) -> Config:
        config = variants.config(number, self._run_seed if self._seed is None else self._seed)
        return merge(self._fixed, config) if self._fixed else config

    def _variants_of(self, space: Mapping[str, Any]) -> Variants:
        variants = Variants(space, self.points, is_constant=self._is_constant)
        if self._refuses_grids is not None:
            refuse_grids(space, self._refuses_grids)
        return variants


@refuse_unknown()
class RandomSearch(Searcher):
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

    is_adaptive = False

    def __init__(
        self,
        space: Mapping[str, Any] | None = None,
        metric: str | Sequence[str] | None = None,
        mode: str | Sequence[str] | None = None,
        seed: int | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__(metric, mode)
        self._drawn = Drawn(space, points_to_evaluate, check_seed("seed", seed), refuses_grids="RandomSearch")

    def set_search_properties(
        self,
        metric: str | Sequence[str] | None,
        mode: str | Sequence[str] | None,
        space: Mapping[str, Any],
        *,
        num_samples: int | None = None,
        seed: int = 0,
    ) -> bool:
        return super().set_search_properties(metric, mode, space) and self._drawn.take(space, num_samples, seed)

    def num_trials(self, num_samples: int | None) -> int | None:
        """Return `num_samples`, or the number of given points if that is larger."""
        return self._drawn.num_trials(num_samples)

    def suggest(self, trial_id: str) -> Config | Signal:
        return self._drawn.suggest(trial_id, "RandomSearch")

    def retell(self, trial_id: str, config: Config, state: Mapping[str, Any] | None) -> None:
        self._drawn.retell(trial_id, config)

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        self._drawn.complete(trial_id)

    def get_state(self) -> Mapping[str, Any]:
        return self._drawn.get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on behind the last config of another search of the same space: none comes twice."""
        self._drawn.set_state(state)
