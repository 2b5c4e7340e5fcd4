"""What a searcher is: it proposes configs and learns from results; it knows nothing of processes or time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, final

from searchers.alone import OpenTrials
from searchers.errors import SearchError, SearchExhausted, SearchWaits, UnknownNameError
from searchers.keywords import refuse_unknown
from searchers.state_file import newest_state, read_state, state_path, write_state
from searchers.warm_start import Learned, learn, points_of

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "EXHAUSTED",
    "NOT_NOW",
    "Config",
    "Mode",
    "Searcher",
    "Signal",
    "answer_of",
    "check_metric_and_mode",
    "derived_seed",
    "keyed_rng",
]

Config = dict[str, Any]
Mode = Literal["min", "max"]


class Signal(Enum):
    """What `suggest` may answer instead of a config."""

    NOT_NOW = "not_now"
    EXHAUSTED = "exhausted"


NOT_NOW: Final = Signal.NOT_NOW
EXHAUSTED: Final = Signal.EXHAUSTED


def answer_of(suggestion: Config | Signal | None) -> Config | Signal:
    """Return what a `suggest` answered, with None as `NOT_NOW`: searchers written for Tune say it that way."""
    return NOT_NOW if suggestion is None else suggestion


def keyed_rng(seed: int, draw: int) -> np.random.Generator:
    """Return the generator of draw number `draw` (0, 1, ...) under `seed`: equal arguments, equal numbers, whatever
    was drawn before. This is what makes a resumed search continue as if it had never stopped."""
    import numpy as np  # the values in this file are needed where numpy is not

    return np.random.default_rng(np.random.SeedSequence([seed, draw]))


def derived_seed(seed: int, draw: int) -> int:
    """Return a 32-bit seed for draw number `draw`, for libraries that take a number rather than a generator."""
    import numpy as np

    return int(np.random.SeedSequence([seed, draw]).generate_state(1)[0])


@refuse_unknown()
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
        metric, mode: what is optimised; lists of equal length for several objectives. In such a list the mode "obs"
            stands for a metric that is only watched.
        FINISHED: the same as `EXHAUSTED`, under the name that searchers written for Tune return.
    """

    FINISHED: ClassVar[Signal] = Signal.EXHAUSTED

    is_adaptive: bool = True
    _alone: OpenTrials | None = None
    _metric: str | Sequence[str] | None = None  # in the class too, for a subclass that calls no `__init__` of ours
    _mode: str | Sequence[str] | None = None

    def __init__(self, metric: str | Sequence[str] | None = None, mode: str | Sequence[str] | None = None) -> None:
        check_metric_and_mode(metric, mode)
        self._metric = metric
        self._mode = mode

    @property
    def metric(self) -> str | Sequence[str] | None:
        """The metric that is optimised, a list of them for several objectives, None while it is not known."""
        return self._metric

    @metric.setter
    def metric(self, metric: str | Sequence[str] | None) -> None:
        self._metric = metric

    @property
    def mode(self) -> str | Sequence[str] | None:
        """`min` or `max`, one for each metric; None while it is not known."""
        return self._mode

    @mode.setter
    def mode(self, mode: str | Sequence[str] | None) -> None:
        self._mode = mode

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

        A second call with the `trial_id` of an answered suggestion returns the same config. None means `NOT_NOW`.
        """

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Take the number of suggestions that may be open at a time; True if this searcher sees to it by itself.

        `ConcurrencyLimiter` then only passes on what it is asked and told.
        """
        return False

    @property
    def best_concurrency(self) -> int | None:
        """How many trials at a time this search uses well; None: as many as there are.

        With more, suggestions are made from fewer results than the method expects. Nothing is limited by it.
        """
        return None

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

    def on_pause(self, trial_id: str) -> None:  # noqa: B027 - optional hook
        """Hear that a trial is paused: it was saved and holds nothing, and may go on later."""

    def on_unpause(self, trial_id: str) -> None:  # noqa: B027 - optional hook
        """Hear that a trial runs, for the first time or again."""

    def set_budgets(self, milestones: Sequence[float]) -> None:  # noqa: B027 - optional hook
        """Take the progress at which the scheduler compares trials; told before the first suggestion."""

    def observe(self, config: Config, result: Mapping[str, Any]) -> None:
        """Learn from a point that this searcher did not propose (warm start).

        Raises:
            SearchError: this searcher cannot learn from such points.
        """
        raise SearchError(f"{type(self).__name__} cannot learn from points it did not propose.")

    # --- without a sweep ---

    @final
    def ask(self) -> tuple[str, Config]:
        """Return a new trial's id and its config; for a loop of your own, without a sweep.

        Asked and told one by one, a searcher suggests what it does in a sweep with the same seed that runs one trial
        at a time. Any number of trials may be open. What a sweep would tell of itself is given to the constructor, or
        to `set_search_properties`. Ids are counted: "00000", "00001" ...

        Raises:
            SearchExhausted: nothing more will be suggested.
            SearchWaits: nothing is suggested before an open trial ends.
            SearchError: space, metric or mode are not known.

        Example:
            >>> from searchers import OptunaSearch, uniform
            >>> search = OptunaSearch({"x": uniform(-10, 10)}, metric="loss", mode="min", seed=0)
            >>> for _ in range(30):
            ...     trial_id, config = search.ask()
            ...     search.tell(trial_id, {"loss": (config["x"] - 3) ** 2})
            >>> search.study.best_value < 0.5
            True
        """
        if self._alone is None:
            self._alone = OpenTrials()
        alone, who = self._alone, type(self).__name__
        answer = answer_of(self.suggest(alone.next_id))
        if answer is EXHAUSTED:
            raise SearchExhausted(f"{who} has nothing more to suggest after {alone.num_asked} trials.")
        if answer is NOT_NOW:
            raise SearchWaits(f"{who} suggests nothing more while {alone.num_open} trials are open; tell it of one.")
        if not isinstance(answer, dict):
            raise SearchError(f"{who}.suggest({alone.next_id!r}) returned {answer!r:.100}; expected a dict.")
        trial_id = alone.next_id
        alone.begin()
        return trial_id, answer

    @final
    def tell(
        self, trial_id: str, result: Mapping[str, Any] | None = None, *, is_done: bool = True, error: bool = False
    ) -> None:
        """Say what came of a trial that `ask` returned.

        Args:
            result: metrics, which may be nested. `training_iteration` is counted unless it is given. None with
                `is_done`: the trial ends with the last result that was told, if any.
            is_done: False for an intermediate result: the trial goes on.
            error: the trial failed; its results count no more.

        Raises:
            SearchError: no such trial is open.
        """
        if self._alone is None:
            self._alone = OpenTrials()
        self._alone.tell(self, trial_id, result, is_done, error)

    # --- warm start: what was learned elsewhere, and what is to be learned from again ---

    def add_evaluated_point(
        self,
        parameters: Config,
        value: Any,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: Sequence[float] | None = None,
    ) -> None:
        """Learn from one point that was evaluated elsewhere; `observe` in the words of Tune.

        Args:
            value: of the metric; for several objectives a sequence with one for each. Plays no part after `error`.
            error, pruned: how the trial ended instead of with `value`; a searcher without use for such a point is not
                told of it.
            intermediate_values: plays no part; the values that count are the final ones.

        Raises:
            SearchError: this searcher cannot learn from such points, or the metric is not known yet.
        """
        metrics = _listed(self.metric)
        if not metrics:
            raise SearchError(f"{type(self).__name__} does not know its metric yet; pass metric= and mode= to it.")
        if error or pruned:
            return
        values = list(value) if isinstance(value, (list, tuple)) else [value]
        if len(values) != len(metrics):
            raise SearchError(f"value is {value!r}; expected {len(metrics)} numbers, one for each of {metrics}.")
        self.observe(parameters, dict(zip(metrics, values, strict=True)))

    def add_evaluated_trials(self, trials: Any, metric: str | None = None) -> int:
        """Learn from the trials of another sweep; returns from how many.

        Failed trials and those without the metric teach nothing. Those outside the space are left out with a warning
        that counts them. A trial that was stopped early counts with its last value, as it does within a sweep.

        Args:
            trials: an analysis or a grid of results (anything with `trials`, or that can be iterated), or one trial.
                Of each trial `config` and `last_result` (else `metrics`) are read.
            metric: the result key that holds the value there; None: this searcher's own metric.

        Raises:
            SpaceError: none of them lies in the space.
            SearchError: as `observe_all`, or something without a config is among them.
        """
        metrics = _listed(self.metric)
        if metric is not None and len(metrics) > 1:
            raise SearchError(f"metric is {metric!r}, but this search has several: {metrics}; leave it out.")
        renamed = {metrics[0]: metric} if metric is not None and metrics else None
        return self.observe_all(points_of(trials, renamed)).num_learned

    def observe_all(self, points: Iterable[tuple[Mapping[str, Any], Mapping[str, Any] | None]]) -> Learned:
        """Learn from pairs of a config and its result, in their order; `observe` for many, some of which do not fit.

        Returns:
            How many taught something, lay outside the space (said in a warning, with the first reason), or had no
            number for the metric.

        Raises:
            SpaceError: there are points with the metric, and none lies in the space.
            SearchError: this searcher cannot learn from such points, or its metric or space is not known yet.
        """
        metrics, modes = _listed(self.metric), _listed(self.mode)
        if not metrics:
            raise SearchError(f"{type(self).__name__} does not know its metric yet; pass metric= and mode= to it.")
        watched = {name for name, mode in zip(metrics, modes, strict=False) if mode == "obs"}
        return learn(self, points, [name for name in metrics if name not in watched])

    def get_state(self) -> Mapping[str, Any]:
        """Return as JSON values what this searcher has learned, for `set_state` of a new one; open trials are left out.

        Raises:
            SearchError: this searcher has no such state; one of your own needs `get_state` and `set_state`.
        """
        raise SearchError(
            f"{type(self).__name__} cannot be saved: it has no get_state and set_state. A run that is continued with "
            "resume=True needs neither, it tells the searcher everything again."
        )

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `get_state` of another object returned.

        Raises:
            SearchError: this searcher has no such state, or that is none of its own.
        """
        raise SearchError(f"{type(self).__name__} cannot be restored: it has no get_state and set_state.")

    def save(self, checkpoint_path: Any) -> None:
        """Write what was learned to a file, replacing it as a whole; `restore` of a new searcher reads it."""
        write_state(checkpoint_path, type(self).__name__, self.get_state())

    def restore(self, checkpoint_path: Any) -> None:
        """Go on from a file that `save` wrote; the space is not in it, and is given to the constructor or the run.

        Raises:
            SearchError: there is no such file, it is none of `save`, or another kind of searcher wrote it.
        """
        self.set_state(read_state(checkpoint_path, type(self).__name__))

    def save_to_dir(self, checkpoint_dir: Any, session_str: str = "default") -> None:
        """Write what was learned to `searcher-state-<session_str>.json` in a directory."""
        self.save(state_path(checkpoint_dir, session_str))

    def restore_from_dir(self, checkpoint_dir: Any) -> None:
        """Go on from the file of `save_to_dir` in a directory whose name sorts last.

        Raises:
            SearchError: there is none, or as `restore`.
        """
        self.restore(newest_state(checkpoint_dir))


def check_metric_and_mode(metric: Any, mode: Any) -> None:
    """Refuse a `mode` that is not min or max (in a list also obs), and lists of unequal length."""
    modes = _listed(mode)
    known = ("min", "max") if isinstance(mode, str) else ("min", "max", "obs")
    for one in modes:
        if one not in known:
            raise UnknownNameError(
                f"mode is {one!r}; expected 'min' or 'max'. Say mode='min' for a loss, 'max' for a score."
            )
    if modes and all(one == "obs" for one in modes):
        raise SearchError(f"mode is {mode!r}: all metrics are only watched; optimise at least one, by 'min' or 'max'.")
    if metric is not None and not isinstance(metric, str) and mode is not None and len(list(metric)) != len(modes):
        raise SearchError(f"{len(list(metric))} metrics but {len(modes)} modes; give one mode for each metric.")


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(value)
