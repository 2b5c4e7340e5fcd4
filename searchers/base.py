"""What a searcher is: it proposes configs and learns from results; it knows nothing of processes or time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal

from searchers.errors import SearchError

if TYPE_CHECKING:
    import numpy as np

__all__ = ["EXHAUSTED", "NOT_NOW", "Config", "Mode", "Searcher", "Signal", "derived_seed", "keyed_rng"]

Config = dict[str, Any]
Mode = Literal["min", "max"]


class Signal(Enum):
    """What `suggest` may answer instead of a config."""

    NOT_NOW = "not_now"
    EXHAUSTED = "exhausted"


NOT_NOW: Final = Signal.NOT_NOW
EXHAUSTED: Final = Signal.EXHAUSTED


def keyed_rng(seed: int, draw: int) -> np.random.Generator:
    """Return the generator of draw number `draw` (0, 1, ...) under `seed`: equal arguments, equal numbers, whatever
    was drawn before. This is what makes a resumed search continue as if it had never stopped."""
    import numpy as np  # the values in this file are needed where numpy is not

    return np.random.default_rng(np.random.SeedSequence([seed, draw]))


def derived_seed(seed: int, draw: int) -> int:
    """Return a 32-bit seed for draw number `draw`, for libraries that take a number rather than a generator."""
    import numpy as np

    return int(np.random.SeedSequence([seed, draw]).generate_state(1)[0])


class Searcher(ABC):
    """Propose configs (`suggest`) and learn from their results (`on_trial_complete`).

    The life of a searcher: built by the user, told metric, mode, space and seed once by `set_search_properties`,
    then asked and told until it is exhausted or nobody asks any more. After a restart a *new* object built with the
    same arguments is told the record again, in order: `retell` in place of each `suggest`, and every result. A searcher
    whose randomness is keyed by its own count of answered suggestions (`keyed_rng`) then continues exactly where
    it was.

    Attributes:
        is_adaptive: True when a suggestion depends on earlier results: it is then asked exactly when a trial could
            start. False: configs may be asked ahead, up to 64.
        metric, mode: what is optimised; lists of equal length for several objectives.
    """

    is_adaptive: bool = True

    def __init__(self, metric: str | Sequence[str] | None = None, mode: str | Sequence[str] | None = None) -> None:
        check_metric_and_mode(metric, mode)
        self.metric = metric
        self.mode = mode

    def set_search_properties(
        self,
        metric: str | Sequence[str] | None,
        mode: str | Sequence[str] | None,
        space: Mapping[str, Any],
        *,
        num_samples: int | None = None,
        seed: int = 0,
    ) -> bool:
        """Take what the run knows and this object was not told by its constructor.

        Args:
            space: the run's search space; empty when the run has none.
            num_samples: how many samples the run asks for; None when unlimited.
            seed: of the run; used unless this object has its own.

        Returns:
            False when the space, metric or mode collides with one given to the constructor: the run is then refused.
        """
        check_metric_and_mode(metric, mode)
        if metric is not None:
            if self.metric is not None and self.metric != metric:
                return False
            self.metric = metric
        if mode is not None:
            if self.mode is not None and self.mode != mode:
                return False
            self.mode = mode
        return True

    def num_trials(self, num_samples: int | None) -> int | None:
        """Return how many trials `num_samples` samples make at most (a grid multiplies them); None: unlimited."""
        return num_samples

    @property
    def hears_results(self) -> bool:
        """Whether anybody listens to intermediate results; if not, a restart need not read them."""
        return type(self).on_trial_result is not Searcher.on_trial_result

    @abstractmethod
    def suggest(self, trial_id: str) -> Config | Signal:
        """Return the config of a new trial, `NOT_NOW` (ask again later) or `EXHAUSTED` (nothing more will come).

        A second call with the `trial_id` of an answered suggestion returns the same config.
        """

    def suggestion_state(self, trial_id: str) -> Mapping[str, Any] | None:
        """Return what `retell` needs beyond the config to restore this suggestion (JSON values only), or None."""
        return None

    def retell(self, trial_id: str, config: Config, state: Mapping[str, Any] | None) -> None:
        """Take the place of a `suggest` that was answered with `config` before a restart.

        The default asks `suggest` and drops the answer, which is right for searchers that draw by count.
        """
        self.suggest(trial_id)

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:  # noqa: B027 - optional hook
        """Hear an intermediate result; keys of nested metrics are joined with `/`."""

    def on_trial_complete(  # noqa: B027 - optional hook
        self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False
    ) -> None:
        """Hear that a trial ended; `result` is its last one, None when it failed or never reported.

        Once per trial, and once more for each time that a person has an ended trial started again.
        """

    def observe(self, config: Config, result: Mapping[str, Any]) -> None:
        """Learn from a point that this searcher did not propose (warm start).

        Raises:
            SearchError: this searcher cannot learn from such points.
        """
        raise SearchError(f"{type(self).__name__} cannot learn from points it did not propose.")


def check_metric_and_mode(metric: Any, mode: Any) -> None:
    """Refuse a `mode` that is not min or max, and lists of unequal length."""
    modes = [] if mode is None else [mode] if isinstance(mode, str) else list(mode)
    for one in modes:
        if one not in ("min", "max"):
            raise SearchError(
                f"mode is {one!r}; expected 'min' or 'max'. Say mode='min' for a loss, 'max' for a score."
            )
    if metric is not None and not isinstance(metric, str) and mode is not None and len(list(metric)) != len(modes):
        raise SearchError(f"{len(list(metric))} metrics but {len(modes)} modes; give one mode for each metric.")
