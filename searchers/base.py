"""What a searcher is: it proposes configs and learns from results; it knows nothing of processes or time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from searchers import checks, state_file, warm_start
from searchers.errors import SearchError, SearchExhausted, SearchWaits
from searchers.keywords import refuse_unknown

if TYPE_CHECKING:
    import numpy as np

Mode = Literal["min", "max"]

Config = dict[str, Any]

Names = str | Sequence[str] | None
"""A metric or a mode, lists of them for several objectives, None while it is not known."""


class Signal(Enum):
    """What `suggest` may answer instead of a config."""

    NOT_NOW = "not_now"
    EXHAUSTED = "exhausted"


NOT_NOW: Final = Signal.NOT_NOW
EXHAUSTED: Final = Signal.EXHAUSTED


BY_PERSON: Final = {"enqueued": True}
"""The state of a suggestion that a person has made."""


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

    The life of a searcher: built by the user, given metric, mode, space and seed once by `set_search_properties`,
    then asked and told until it is exhausted or the run ends. After a restart a *new* object built with the
    same arguments is told the record again, in order: `retell` in place of each `suggest`, and every result. A searcher
    whose randomness is keyed by its own count of answered suggestions (`keyed_rng`) then continues exactly where
    it was.

    Attributes:
        is_adaptive: True when a suggestion depends on earlier results: it is then asked exactly when a trial could
            start. False: configs may be asked ahead, up to 64.
        metric, mode: what is optimised; lists of equal length for several objectives. In such a list the mode "obs"
            stands for a metric that is only watched.
        num_repeats: how many trials in a row are of one suggestion and count by their mean.
        FINISHED: the same as `EXHAUSTED`, under the name that searchers written for Tune return.
    """

    FINISHED: ClassVar[Signal] = Signal.EXHAUSTED

    is_adaptive: bool = True
    num_repeats: int = 1
    # In the class too, for a subclass that calls no `__init__` of ours.
    _num_asked: int = 0
    _asked: dict[str, tuple[int, dict[str, Any] | None]] | None = None  # number of results and the last, while open
    _metric: Names = None
    _mode: Names = None

    def __init__(self, metric: Names = None, mode: Names = None) -> None:
        checks.metric_and_mode(metric, mode)
        self._metric = metric
        self._mode = mode

    @property
    def metric(self) -> Names:
        """The metric that is optimised, a list of them for several objectives, None while it is not known."""
        return self._metric

    @metric.setter
    def metric(self, metric: Names) -> None:
        self._metric = metric

    @property
    def mode(self) -> Names:
        """`min` or `max`, one for each metric; None while it is not known."""
        return self._mode

    @mode.setter
    def mode(self, mode: Names) -> None:
        self._mode = mode

    @refuse_unknown({"space": "It is called config."}, who="set_search_properties", also=("stop", "time_budget_s"))
    def set_search_properties(
        self,
        metric: Names,
        mode: Names,
        config: Mapping[str, Any],
        *,
        num_samples: int | None = None,
        seed: int = 0,
        **spec: Any,
    ) -> bool:
        """Take what the run knows and the constructor of this object was not given.

        Args:
            config: the run's search space; empty when the run has none.
            num_samples: how many samples the run asks for; None when unlimited.
            seed: of the run; used unless this object has its own.
            spec: what else Tune says of a run, `stop` and `time_budget_s`; plays no part.

        Returns:
            False when the space, metric or mode collides with one given to the constructor: the run is then refused.

        Raises:
            SpaceError: the space cannot be searched, or a point does not fit it.
            SearchError: an argument is wrong, or a library is missing.
        """
        checks.metric_and_mode(metric, mode)
        for name, given in (("metric", metric), ("mode", mode)):
            if given is not None:
                if getattr(self, name) not in (None, given):
                    return False
                setattr(self, name, given)
        return self._take_run(config, num_samples, seed)

    def _take_run(self, config: Mapping[str, Any], num_samples: int | None, seed: int) -> bool:
        """Take the rest of what `set_search_properties` was given; False when the space collides."""
        return True

    def num_trials(self, num_samples: int | None) -> int | None:
        """Return how many trials `num_samples` samples make at most (a grid multiplies them); None: unlimited."""
        return num_samples

    def on_request(self, request: Mapping[str, Any]) -> None:  # noqa: B027 - optional hook
        """Hear what a person asks of the run: `config`, to be tried next; `num_samples` or `max_concurrent`, anew."""

    @property
    def hears_results(self) -> bool:
        """Whether intermediate results are used; if not, a restart need not read them."""
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

        Once per trial, and once more for each time that the user has an ended trial started again.
        """

    def on_pause(self, trial_id: str) -> None:  # noqa: B027 - optional hook
        """Hear that a trial is paused: it was saved and holds nothing, and may go on later."""

    def on_unpause(self, trial_id: str) -> None:  # noqa: B027 - optional hook
        """Hear that a trial runs, for the first time or again."""

    def set_budgets(self, milestones: Sequence[float]) -> None:  # noqa: B027 - optional hook
        """Take the progress at which the scheduler compares trials; called before the first suggestion."""

    def observe(self, config: Config, result: Mapping[str, Any]) -> None:
        """Learn from a point that this searcher did not propose (warm start).

        Raises:
            SearchError: this searcher cannot learn from such points, or does not know its metric or space yet.
            SpaceError: `config` is no point of the space.
        """
        raise SearchError(f"{type(self).__name__} cannot learn from points it did not propose.")

    def get_state(self) -> Mapping[str, Any]:
        """Return as JSON values what this searcher has learned, for `set_state` of a new one; open trials are left out.

        Raises:
            SearchError: this searcher has no such state; one of your own needs `get_state` and `set_state`.
        """
        advice = "A run that is continued with resume=True needs neither"
        raise SearchError(f"{type(self).__name__} cannot be saved: it has no get_state and set_state. {advice}.")

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `get_state` of another object returned: behind its last suggestion, with its seed.

        The space is no part of a state; it must be that of the other search, or hold its points.

        Raises:
            SearchError: this searcher has no such state, has begun, or the other one had another metric or mode.
            SpaceError: the space does not hold one of the points; some searchers say so when they are next asked.
        """
        raise SearchError(f"{type(self).__name__} cannot be restored: it has no get_state and set_state.")

    # --- a loop of your own ---

    def ask(self) -> tuple[str, Config]:
        """Return a new trial's id and its config; for a loop of your own, without a sweep.

        Asked and told one by one, a searcher suggests what it does in a sweep with the same seed that runs one trial at
        a time. Any number of trials may be open. What a sweep would tell of itself is given to the constructor, or to
        `set_search_properties`. Ids are counted: "00000", "00001" ...

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
        asked, who = self._open_trials(), type(self).__name__
        trial_id = f"{self._num_asked:05d}"
        answer = answer_of(self.suggest(trial_id))
        if answer is EXHAUSTED:
            raise SearchExhausted(f"{who} has nothing more to suggest after {self._num_asked} trials.")
        if answer is NOT_NOW:
            raise SearchWaits(f"{who} suggests nothing more while {len(asked)} trials are open; tell it of one.")
        if not isinstance(answer, dict):
            raise SearchError(f"{who}.suggest({trial_id!r}) returned {answer!r:.100}; expected a dict.")
        self._num_asked += 1
        asked[trial_id] = (0, None)
        return trial_id, answer

    def tell(
        self,
        trial_id: str,
        result: Mapping[str, Any] | None = None,
        *,
        is_done: bool = True,
        error: bool = False,
    ) -> None:
        """Say what came of a trial that `ask` returned.

        Args:
            result: metrics, which may be nested. `training_iteration` is counted unless it is given. None with
                `is_done`: the trial ends with its last result, if any.
            is_done: False for an intermediate result: the trial goes on.
            error: the trial failed; its results count no more.

        Raises:
            SearchError: no such trial is open.
        """
        open_trials = self._open_trials()
        if trial_id not in open_trials:
            known = ", ".join(sorted(open_trials)[:10]) or "none"
            raise SearchError(f"no trial {trial_id!r} is open; those that were asked for and not ended: {known}.")
        number, last = open_trials[trial_id]
        if result is not None:
            if not isinstance(result, Mapping):
                raise SearchError(f"result is {result!r:.100}; expected a dict of metrics such as {{'loss': 0.5}}.")
            last = {"training_iteration": number + 1} | warm_start.flat(result)
            open_trials[trial_id] = (number + 1, last)
            self.on_trial_result(trial_id, dict(last))
        if is_done or error:
            del open_trials[trial_id]
            self.on_trial_complete(trial_id, None if error else last, error)

    def _open_trials(self) -> dict[str, tuple[int, dict[str, Any] | None]]:
        if self._asked is None:
            self._asked = {}
        return self._asked

    # --- functions over a searcher ---

    add_evaluated_point = warm_start.add_evaluated_point
    add_evaluated_trials = warm_start.add_evaluated_trials
    observe_all = warm_start.observe_all
    save = state_file.save
    restore = state_file.restore
    save_to_dir = state_file.save_to_dir
    restore_from_dir = state_file.restore_from_dir
