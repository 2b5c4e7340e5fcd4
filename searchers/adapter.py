"""Searchers of others: a sampler of Optuna, or any object with `suggest` and `on_trial_complete`, as a `Searcher`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from searchers.base import EXHAUSTED, NOT_NOW, Config, Names, Searcher, Signal
from searchers.errors import SearchError
from searchers.keywords import refuse_unknown, taken_by
from searchers.optuna_search import OptunaSearch
from searchers.space import Domain, is_same
from searchers.variants import fresh, grid_values, has_domains, merge, walk

_FINISHED = "FINISHED"
"""What Tune's searchers return when nothing more will come."""


@refuse_unknown()
def as_searcher(given: Any) -> Searcher:
    """Return `given` as a searcher.

    Args:
        given: a searcher, which is returned itself; a sampler of Optuna, as an object or a class; an object with
            `suggest(trial_id)` and `on_trial_complete(trial_id, result, error)`, such as one written for Tune; or a
            class of one of these that needs no arguments.

    Raises:
        SearchError: it is none of these; the message names what is missing.
    """
    if isinstance(given, Searcher):
        return given
    if isinstance(given, type):
        if _is_sampler(given):
            return OptunaSearch(sampler=given)
        if not _missing(given):
            try:
                return as_searcher(given())
            except TypeError as error:
                what = f"{given.__name__} is a class and could not be called: {error}"
                raise SearchError(f"{what}. Pass an object.") from error
    elif _is_sampler(type(given)):
        return OptunaSearch(sampler=given)
    elif not _missing(given):
        return ForeignSearcher(given)
    advice = "Pass a searcher such as OptunaSearch(), a sampler of Optuna, or a name such as 'tpe'."
    raise SearchError(f"{given!r:.100} is no searcher: it has no method {_missing(given)}. {advice}")


@refuse_unknown()
class ForeignSearcher(Searcher):
    """Ask and tell a searcher that knows nothing of this package.

    Of the object `suggest` and `on_trial_complete` are called, and where it has them `set_search_properties`,
    `on_trial_result`, `on_pause`, `on_unpause`, `set_max_concurrency`, `add_evaluated_point`, `save` and `restore`,
    each as Tune calls it. Its answer None means `NOT_NOW`; "FINISHED", or its own attribute FINISHED, means
    `EXHAUSTED`; constants of the run's space are added to its configs. After a restart a new object is asked for the
    recorded suggestions again: if it answers otherwise, a warning says so once, and it learns from results of configs
    it did not suggest.

    Args:
        searcher: the object; not a `Searcher`.

    Raises:
        SearchError: it lacks one of the two methods.
    """

    def __init__(self, searcher: Any) -> None:
        if missing := _missing(searcher):
            raise SearchError(f"{searcher!r:.100} has no method {missing}.")
        super().__init__(getattr(searcher, "metric", None), getattr(searcher, "mode", None))
        self.searcher = searcher
        self.is_adaptive = bool(getattr(searcher, "is_adaptive", True))
        self._who = type(searcher).__name__
        self._fixed: Mapping[str, Any] = {}
        self._open: dict[str, Config] = {}
        self._has_warned = False

    def set_search_properties(self, metric: Names, mode: Names, config: Mapping[str, Any], **told: Any) -> bool:
        """Tell the object what the run knows. It may refuse the space; a run without one needs no answer."""
        if not super().set_search_properties(metric, mode, config, **told):
            return False
        take = getattr(self.searcher, "set_search_properties", None)
        spec = {name: value for name, value in told.items() if name != "seed" and value is not None}
        has_taken = callable(take) and bool(take(metric, mode, dict(config), **taken_by(take, spec)))
        self._fixed = constants_of(config)
        return has_taken or not has_domains(config)

    @property
    def hears_results(self) -> bool:
        return self._has("on_trial_result")

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        return self._has("set_max_concurrency") and bool(self.searcher.set_max_concurrency(max_concurrent))

    def suggest(self, trial_id: str) -> Config | Signal:
        if trial_id not in self._open:
            answer = self._answer(trial_id)
            if isinstance(answer, Signal):
                return answer
            self._open[trial_id] = merge(self._fixed, fresh(answer))
        config: Config = fresh(self._open[trial_id])
        return config

    def retell(self, trial_id: str, config: Config, state: Mapping[str, Any] | None) -> None:
        answer = self._answer(trial_id)
        expected = answer if isinstance(answer, Signal) else merge(self._fixed, answer)
        if not is_same(expected, config) and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"after the restart {self._who} suggested {expected!r:.100} for trial {trial_id}, which has "
                f"{config!r:.100}. It goes on from results of configs that it did not suggest; give it a seed.",
                stacklevel=2,
            )
        self._open[trial_id] = fresh(config)

    def _tell(self, hook: str, trial_id: str, *more: Any) -> None:
        if trial_id in self._open and self._has(hook):
            getattr(self.searcher, hook)(trial_id, *more)

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        self._tell("on_trial_result", trial_id, dict(result))

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        if self._open.pop(trial_id, None) is not None:
            self.searcher.on_trial_complete(trial_id, None if result is None else dict(result), error)

    def on_pause(self, trial_id: str) -> None:
        self._tell("on_pause", trial_id)

    def on_unpause(self, trial_id: str) -> None:
        self._tell("on_unpause", trial_id)

    def observe(self, config: Config, result: Mapping[str, Any]) -> None:
        if not self._has("add_evaluated_point"):
            raise SearchError(f"{self._who} cannot learn from points it did not propose: no add_evaluated_point.")
        if not isinstance(self.metric, str) or self.metric not in result:
            raise SearchError(f"{self._who} learns of one metric, {self.metric!r}, which the result does not have.")
        own = {key: value for key, value in config.items() if key not in self._fixed}
        self.searcher.add_evaluated_point(own, result[self.metric])

    def save(self, checkpoint_path: Any) -> None:
        self._file("save", checkpoint_path)

    def restore(self, checkpoint_path: Any) -> None:
        self._file("restore", checkpoint_path)

    def _has(self, method: str) -> bool:
        return callable(getattr(self.searcher, method, None))

    def _file(self, name: str, path: Any) -> None:
        if not self._has(name):
            raise SearchError(f"{self._who} has no method {name}; a run that is continued with resume=True needs none.")
        getattr(self.searcher, name)(path)

    def _answer(self, trial_id: str) -> Mapping[str, Any] | Signal:
        answer = self.searcher.suggest(trial_id)
        if answer is None:
            return NOT_NOW
        if isinstance(answer, (Signal, Mapping)):
            return answer
        finished = getattr(self.searcher, "FINISHED", _FINISHED)
        if (isinstance(answer, str) and answer in (_FINISHED, finished)) or answer is finished:
            return EXHAUSTED
        expected = f"a dict, None (not now) or {_FINISHED!r} (nothing more)"
        raise SearchError(f"{self._who}.suggest({trial_id!r}) returned {answer!r:.100}; expected {expected}.")


def _missing(given: Any) -> str:
    """Return the methods that something lacks to be a searcher, in words."""
    needed = ("suggest(trial_id)", "on_trial_complete(trial_id, result, error)")
    missing = [name for name in needed if not callable(getattr(given, name.partition("(")[0], None))]
    return " and no method ".join(missing)


def _is_sampler(kind: type) -> bool:
    """Whether a class is a sampler of Optuna's; Optuna is not imported to find that it is not."""
    return any(one.__name__ == "BaseSampler" and one.__module__.partition(".")[0] == "optuna" for one in kind.__mro__)


# --- configs that are not ours: what they leave out, and what they leave undecided ------------------------------------


def constants_of(space: Mapping[str, Any]) -> Config:
    """Return the part of a space that holds no domain and no grid."""
    found: Config = {}
    for key, node in space.items():
        if not has_domains(node):
            found[key] = fresh(node)
        elif isinstance(node, Mapping) and grid_values(node) is None and (inner := constants_of(node)):
            found[key] = inner
    return found


def check_decided(config: Mapping[str, Any]) -> None:
    """Refuse a config that holds a domain which was never decided."""
    for path, leaf in walk(config):
        if isinstance(leaf, Domain) or grid_values(leaf) is not None:
            name = "/".join(map(str, path))
            raise SearchError(f"{name} was suggested as {leaf!r:.100}; expected a value of it, as sample() draws one.")
