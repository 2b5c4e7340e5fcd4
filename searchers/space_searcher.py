"""The base of searchers that are built with a space or take that of the run: space, seed, points and their count."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from searchers import checks
from searchers.base import Config, Names, Searcher
from searchers.errors import SearchError
from searchers.variants import check_points, fresh, has_domains, merge


class SpaceSearcher(Searcher):
    """Search the space of the constructor, or else that of the run, whose constants then go into each config.

    Suggestions are numbered, and drawn under the seed of the constructor, or else of the run. A subclass implements
    `_take_space`, which is called once, when the space is known, and counts the suggestions that it answers.
    """

    def __init__(
        self,
        space: Any,
        metric: Names,
        mode: Names,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None,
        seed: int | None,
        seed_name: str = "seed",
    ) -> None:
        super().__init__(metric, mode)
        self._own_seed = checks.seed(seed_name, seed)
        self._run_seed = 0
        self._points = check_points(points_to_evaluate)
        self._has_own_space = space is not None
        self._space: Any = None  # as the subclass reads it
        self._fixed: Mapping[str, Any] = {}  # constants of the run, beside a space of our own
        self._count = 0

    @abstractmethod
    def _take_space(self, space: Any) -> None:
        """Read the space, after a check that it can be searched and holds the points."""

    @property
    def _seed(self) -> int:
        return self._run_seed if self._own_seed is None else self._own_seed

    def _take_run(self, config: Mapping[str, Any], num_samples: int | None, seed: int) -> bool:
        """Take space and seed; constants of the run's space are added to the configs of one given here."""
        if self.is_adaptive:
            self._check_goal()
        self._run_seed = checks.seed("seed", seed) or 0
        if not self._has_own_space:
            self._take_space(config)
        elif has_domains(config):
            return False
        else:
            self._fixed = fresh(config)
        return True

    def get_state(self) -> Mapping[str, Any]:
        return {"count": self._count, "seed": self._seed}

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._count, self._own_seed = int(state["count"]), int(state["seed"])

    def _take_goal(self, state: Mapping[str, Any], *, has_begun: bool) -> None:
        """Take metric and mode of another search, which must not differ from those that are known here."""
        if has_begun:
            who = type(self).__name__
            raise SearchError(f"this search has begun; restore into a new {who}, before its first suggestion.")
        for name in ("metric", "mode"):
            if getattr(self, name) is not None and checks.listed(getattr(self, name)) != checks.listed(state[name]):
                raise SearchError(
                    f"the state is of metric={state['metric']!r} and mode={state['mode']!r}, this search is for "
                    f"metric={self.metric!r} and mode={self.mode!r}; they must be the same."
                )
        self.metric, self.mode = self.metric or state["metric"], self.mode or state["mode"]

    def _check_goal(self) -> None:
        if self.metric is None or self.mode is None:
            given = f"{type(self).__name__} has metric={self.metric!r} and mode={self.mode!r}"
            raise SearchError(f"{given}; it needs both, for instance metric='loss', mode='min'.")

    def _known_space(self) -> Any:
        if self._space is None:
            advice = "pass space= or call set_search_properties(metric, mode, config)"
            raise SearchError(f"{type(self).__name__} has no space to search; {advice}.")
        return self._space

    def _with_constants(self, config: Mapping[str, Any]) -> Config:
        """Return a config of the space as a new one with the constants of the run."""
        return merge(self._fixed, config)

    def _without_constants(self, config: Mapping[str, Any]) -> Config:
        return {key: value for key, value in config.items() if key not in self._fixed}
