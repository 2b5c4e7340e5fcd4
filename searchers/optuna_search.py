"""Search with Optuna's samplers: the space as distributions, suggestions by ask and tell, exact after a restart."""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from searchers.base import Config, Searcher, Signal, derived_seed
from searchers.errors import SearchError, SpaceError, UnknownNameError, nearest
from searchers.optuna_space import FunctionSpace, Space, space_of
from searchers.random_search import check_seed
from searchers.space import is_same
from searchers.variants import (
    check_points,
    fresh,
    has_domains,
    merge,
)

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.storages import BaseStorage
    from optuna.study import Study
    from optuna.trial import BaseTrial, FrozenTrial

    AnySpace = Mapping[str, Any] | Mapping[str, BaseDistribution] | Callable[[BaseTrial], Mapping[str, Any] | None]

__all__ = ["SAMPLERS", "OptunaSearch"]

SAMPLERS: Mapping[str, tuple[str, ...]] = {
    "tpe": (),
    "cmaes": ("cmaes",),
    "gp": ("scipy", "torch"),
    "qmc": ("scipy",),
    "nsgaii": (),
    "nsgaiii": (),
    "random": (),
}
"""Samplers by name, with the packages each needs beside Optuna."""

TRIAL_ID = "trial_id"
"""The user attribute of the study's trials that holds our trial id."""


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Optuna from logging and from announcing its experimental and future parts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        import optuna

        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        warnings.filterwarnings("ignore", "Choices for a categorical", UserWarning)  # said when it was built
        level = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        try:
            yield
        finally:
            optuna.logging.set_verbosity(level)


# --- the three forms of a space --------------------------------------------------------------------------------------


@dataclass
class _Open:
    """A suggestion whose trial has not completed."""

    number: int  # of the study's trial
    optuna_id: int
    config: Config
    state: dict[str, Any] = field(default_factory=dict)


class OptunaSearch(Searcher):
    """Suggest configs with one of Optuna's samplers.

    Sampler number n is built anew with a seed derived from (seed, n), and a suggestion's state records what the
    sampler wrote into the study; so a search that is told its record again goes on exactly as if it had never
    stopped. That holds for samplers chosen by name; an object of your own is used as it is.

    A trial that completes with its metric is COMPLETE in the study; with NaN or without the metric it is PRUNED, which
    the sampler "tpe" takes as worse than every number; after an error it is FAIL, which teaches nothing. Stopping
    trials early is the scheduler's business: the study's pruner does nothing.

    Args:
        space: nested dict of domains, dict of names and Optuna distributions, or a function of an Optuna trial that
            calls `trial.suggest_...` and may return a dict of constants. None: that of the run.
        metric, mode: what is optimised; two lists of equal length for several objectives (not with "cmaes"). Metrics
            whose mode is "obs" are left out.
        points_to_evaluate: (partial) configs to suggest first, nested or with names such as `model/lr`.
        sampler: "tpe", "cmaes", "gp", "qmc", "nsgaii", "nsgaiii", "random", or a sampler object of Optuna.
        seed: int of at least 0; None: the seed of the run. Refused with a sampler object, which has its own.
        evaluated_rewards: the metric of each of `points_to_evaluate` (one list each for several objectives): they are
            then learned from and not run.
        study_name, storage: as in `optuna.create_study`; an existing study is continued.

    Attributes:
        study: the Optuna study, for its plots and importances. Add nothing to it while the run goes on.

    Raises:
        SpaceError: the space makes no sense to Optuna (grids, normal distributions), or a point does not fit it.
        SearchError: another argument is wrong, or a package is missing.
        UnknownNameError: no sampler of that name.
    """

    def __init__(
        self,
        space: AnySpace | None = None,
        metric: str | Sequence[str] | None = None,
        mode: str | Sequence[str] | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        sampler: str | BaseSampler | None = "tpe",
        *,
        seed: int | None = None,
        evaluated_rewards: Sequence[Any] | None = None,
        study_name: str | None = None,
        storage: str | BaseStorage | None = None,
    ) -> None:
        super().__init__(metric, mode)
        self._sampler = _checked_sampler(sampler, seed)
        self._seed = check_seed("seed", seed)
        self._run_seed = 0
        self._points = check_points(points_to_evaluate)
        self._rewards = _checked_rewards(evaluated_rewards, self._points)
        self._study_name = study_name
        self._storage = storage
        self._has_own_space = space is not None
        self._space: Space | None = None
        self._fixed: Mapping[str, Any] = {}
        self._study: Study | None = None
        self._study_attrs: dict[str, Any] = {}
        self._recorded: dict[str, Any] = {}  # trials that a lasting storage had from before, by our id
        self._count = 0
        self._open: dict[str, _Open] = {}
        self._restored: Mapping[str, Any] | None = None
        self.is_adaptive = self._sampler != "random"
        if space is not None:
            self._set_space(space)

    def _set_space(self, space: Any) -> None:
        with _quiet():
            self._space = space_of(space)
            for point in self._points:
                self._space.fix(point)

    def set_search_properties(
        self,
        metric: str | Sequence[str] | None,
        mode: str | Sequence[str] | None,
        space: Mapping[str, Any],
        *,
        num_samples: int | None = None,
        seed: int = 0,
    ) -> bool:
        """Take what the run knows; constants of the run's space are added to the configs of one given here."""
        if not super().set_search_properties(metric, mode, space):
            return False
        self._run_seed = check_seed("seed", seed) or 0
        if not self._has_own_space:
            if space:
                self._set_space(space)
        elif has_domains(space):
            return False
        else:
            self._fixed = fresh(space)
        return True

    @property
    def study(self) -> Study:
        """The Optuna study: `optuna.visualization.plot_optimization_history(search.study)`.

        Raises:
            SearchError: metric, mode or the space are not known yet.
        """
        if self._study is None:
            with _quiet():
                self._study = self._new_study()
        return self._study

    def suggest(self, trial_id: str) -> Config | Signal:
        if trial_id in self._open:
            return self._copy(trial_id)
        from optuna.trial import TrialState

        study, space, point = self.study, self._known_space(), None
        with _quiet():
            stale = self._recorded.pop(trial_id, None)
            if stale is not None and not stale.state.is_finished():  # asked, but never answered, before a crash
                study.tell(stale.number, state=TrialState.FAIL)
            self._reseed(study, self._count)
            if self._rewards is None and self._count < len(self._points):
                point, space = space.fix(self._points[self._count])
                study.enqueue_trial(point)
            trial = study.ask()
            trial.set_user_attr(TRIAL_ID, trial_id)
            try:
                config = space.suggest(trial)
                _check_used(point, trial.params)
            except Exception as error:  # the user's function may raise anything
                study.tell(trial, state=TrialState.FAIL)
                if isinstance(error, SearchError):
                    raise
                raise SearchError(f"the space could not be sampled: {type(error).__name__}: {error}") from error
            self._open[trial_id] = _Open(trial.number, trial._trial_id, config, self._record(study, trial._trial_id))
        self._count += 1
        return self._copy(trial_id)

    def suggestion_state(self, trial_id: str) -> Mapping[str, Any] | None:
        """Return the parameters, and what the sampler wrote into the trial and the study while suggesting."""
        suggestion = self._open.get(trial_id)
        return None if suggestion is None else suggestion.state

    def retell(self, trial_id: str, config: Config, state: Mapping[str, Any] | None) -> None:
        """Put a suggestion of before the restart into the study, as it was; nothing is sampled.

        Raises:
            SearchError: the space has changed and no longer holds the suggestion.
        """
        from optuna.trial import TrialState

        study, space = self.study, self._known_space()
        old = self._recorded.pop(trial_id, None)
        with _quiet():
            if old is None:
                if state is None:
                    params, space = space.fix(_without(config, self._fixed))
                    state = {}
                else:
                    params = self._decoded(state["params"], state.get("distributions", {}))
                template = _trial(
                    space,
                    params,
                    f"the recorded trial {trial_id}",
                    state.get("distributions"),
                    state=TrialState.RUNNING,
                    user_attrs={TRIAL_ID: trial_id},
                    system_attrs=dict(state.get("trial_attrs", {})),
                )
                optuna_id = study._storage.create_new_trial(study._study_id, template_trial=template)
                number = study._storage.get_trial_number_from_id(optuna_id)
                for key, value in state.get("study_attrs", {}).items():
                    study._storage.set_study_system_attr(study._study_id, key, value)
                    self._study_attrs[key] = value
            else:
                optuna_id, number = old._trial_id, old.number
        self._open[trial_id] = _Open(number, optuna_id, fresh(config), dict(state or {}))
        self._count += 1

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Report an intermediate value, by `training_iteration`; with several objectives Optuna has none."""
        suggestion = self._open.get(trial_id)
        step = result.get("training_iteration")
        objectives = self._objectives()
        if suggestion is None or not isinstance(step, int) or len(objectives) != 1:
            return
        value = _number(result.get(objectives[0][0]))
        if value is not None and not math.isnan(value):
            self.study._storage.set_trial_intermediate_value(suggestion.optuna_id, step, value)

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        suggestion = self._open.pop(trial_id, None)
        if suggestion is None:
            return
        state, values = self._outcome(result, error)
        with _quiet():
            self.study.tell(suggestion.number, values, state, skip_if_finished=True)

    def observe(self, config: Config, result: Mapping[str, Any]) -> None:
        """Add a point that was evaluated elsewhere; without its metric, or with NaN, it is added as pruned.

        Raises:
            SpaceError: `config` is no point of the space.
        """
        _, values = self._outcome(result, error=False)
        with _quiet():
            self._add(self.study, _without(config, self._fixed), values, {})

    def get_state(self) -> Mapping[str, Any]:
        """Return the trials of the study that ended with something to learn, and what the sampler wrote into it."""
        seed = self._run_seed if self._seed is None else self._seed
        study = self.study
        trials = [self._trial_state(trial) for trial in study.get_trials(deepcopy=False)]
        return {
            "count": self._count,
            "seed": seed,
            "metric": self.metric,
            "mode": self.mode,
            "trials": [trial for trial in trials if trial is not None],
            "study_attrs": study._storage.get_study_system_attrs(study._study_id),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Learn from the study of another search, and go on behind its last suggestion.

        The space is not part of the state; it must still hold the points of the other search. With a sampler by name
        the suggestions are those that the other search would have made next, if it had no open trials.

        Raises:
            SearchError: suggestions were made already, or the other search had another metric or mode.
            SpaceError: the space does not hold one of the points; said when the study is built.
        """
        if self._study is not None or self._open:
            raise SearchError("this search has begun; restore into a new OptunaSearch, before its first suggestion.")
        metrics, modes = _listed(state["metric"]), _listed(state["mode"])
        if _listed(self.metric) not in ([], metrics) or _listed(self.mode) not in ([], modes):
            raise SearchError(
                f"the state is of metric={state['metric']!r} and mode={state['mode']!r}, this search is for "
                f"metric={self.metric!r} and mode={self.mode!r}; they must be the same."
            )
        self.metric, self.mode = self.metric or state["metric"], self.mode or state["mode"]
        self._count = int(state["count"])
        if isinstance(self._sampler, str):
            self._seed = int(state["seed"])
        self._restored = state

    # --- inside ------------------------------------------------------------------------------------------------------

    def _known_space(self) -> Space:
        if self._space is None:
            raise SearchError(
                "OptunaSearch has no space to search; pass space= or call set_search_properties(metric, mode, space)."
            )
        return self._space

    def _new_study(self) -> Study:
        import optuna

        space, objectives = self._known_space(), self._objectives()
        metrics, modes = [metric for metric, _ in objectives], [mode for _, mode in objectives]
        if not metrics:
            raise SearchError(
                f"OptunaSearch has metric={self.metric!r} and mode={self.mode!r}; it needs both, for instance "
                "metric='loss', mode='min'."
            )
        if self._sampler == "cmaes" and len(metrics) > 1:
            raise SearchError("the sampler 'cmaes' has one objective only; use 'tpe' or 'nsgaii' for several.")
        study = optuna.create_study(
            storage=self._storage,
            sampler=self._new_sampler(0, space),
            pruner=optuna.pruners.NopPruner(),
            study_name=self._study_name,
            directions=["minimize" if mode == "min" else "maximize" for mode in modes],
            load_if_exists=True,
        )
        if self._storage is not None:
            trials = study.get_trials(deepcopy=False)
            self._recorded = {t.user_attrs[TRIAL_ID]: t for t in trials if TRIAL_ID in t.user_attrs}
        if len(metrics) == 1 and not study.metric_names:
            study.set_metric_names(metrics)
        if self._restored is not None:
            self._put_back(study, self._restored)
        self._study_attrs = dict(study._storage.get_study_system_attrs(study._study_id))
        for index, reward in enumerate(self._rewards or ()):
            name = f"evaluated_{index}"
            if self._recorded.pop(name, None) is None and not self._was_restored(name):
                _, values = self._outcome(dict(zip(metrics, _listed(reward), strict=True)), error=False)
                self._add(study, self._points[index], values, {TRIAL_ID: name})
        return study

    def _new_sampler(self, draw: int, space: Space) -> BaseSampler:
        """Return the sampler of ask number `draw`."""
        if not isinstance(self._sampler, str):
            own_sampler: BaseSampler = self._sampler
            return own_sampler
        from optuna import samplers

        own = self._run_seed if self._seed is None else self._seed
        seed = derived_seed(own, draw)
        other = samplers.RandomSampler(seed=seed)  # for what a sampler cannot handle itself
        match self._sampler:
            case "tpe":
                return samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True, group=space.is_conditional)
            case "cmaes":
                return samplers.CmaEsSampler(seed=seed, independent_sampler=other, warn_independent_sampling=False)
            case "gp":
                return samplers.GPSampler(seed=seed, independent_sampler=other, warn_independent_sampling=False)
            case "qmc":  # one scrambled sequence for all draws: its seed must not change, the study counts the draws
                return samplers.QMCSampler(
                    scramble=True, seed=derived_seed(own, 0), independent_sampler=other, warn_independent_sampling=False
                )
            case "nsgaii":
                return samplers.NSGAIISampler(seed=seed)
            case "nsgaiii":
                return samplers.NSGAIIISampler(seed=seed)
        return other

    def _reseed(self, study: Study, draw: int) -> None:
        if isinstance(self._sampler, str):
            study.sampler = self._new_sampler(draw, self._known_space())

    def _record(self, study: Study, optuna_id: int) -> dict[str, Any]:
        """Return as JSON values what `retell` needs of the suggestion that was just made."""
        trial = study._storage.get_trial(optuna_id)
        state: dict[str, Any] = {"params": {name: _encoded(trial, name) for name in trial.params}}
        if isinstance(self._space, FunctionSpace):
            from optuna.distributions import distribution_to_json

            state["distributions"] = {name: distribution_to_json(d) for name, d in trial.distributions.items()}
        if trial.system_attrs:
            state["trial_attrs"] = dict(trial.system_attrs)
        attrs = study._storage.get_study_system_attrs(study._study_id)
        missing = object()
        changed = {key: value for key, value in attrs.items() if self._study_attrs.get(key, missing) != value}
        if changed:
            state["study_attrs"] = changed
            self._study_attrs = dict(attrs)
        return state

    def _decoded(self, params: Mapping[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
        """Undo `_encoded`."""
        from optuna.distributions import json_to_distribution

        decoded = {}
        for name, value in params.items():
            if isinstance(value, Mapping):
                known = self._known_space().distribution(name)
                distribution = json_to_distribution(texts[name]) if known is None else known
                decoded[name] = distribution.to_external_repr(value["choice"])
            else:
                decoded[name] = value
        return decoded

    def _outcome(self, result: Mapping[str, Any] | None, error: bool) -> tuple[Any, list[float] | None]:
        """Return the state in which a trial ends and its values, None unless COMPLETE."""
        from optuna.trial import TrialState

        if error:
            return TrialState.FAIL, None
        values = [_number((result or {}).get(metric)) for metric, _ in self._objectives()]
        numbers = [value for value in values if value is not None and not math.isnan(value)]
        return (TrialState.COMPLETE, numbers) if len(numbers) == len(values) else (TrialState.PRUNED, None)

    def _objectives(self) -> list[tuple[str, str]]:
        """Return metric and mode of what is optimised; nothing while one of the two is not known."""
        metrics, modes = _listed(self.metric), _listed(self.mode)
        pairs = zip(metrics, modes, strict=True) if len(metrics) == len(modes) else ()
        return [(metric, mode) for metric, mode in pairs if mode != "obs"]

    def _trial_state(self, trial: FrozenTrial) -> dict[str, Any] | None:
        """Return one trial of the study as JSON values; None if there is nothing to learn from it."""
        from optuna.distributions import distribution_to_json
        from optuna.trial import TrialState

        if trial.state not in (TrialState.COMPLETE, TrialState.PRUNED):
            return None
        state = {
            "trial_id": trial.user_attrs.get(TRIAL_ID),
            "state": trial.state.name,
            "values": trial.values,
            "params": {name: _encoded(trial, name) for name in trial.params},
            "trial_attrs": dict(trial.system_attrs),
            "reports": [[step, value] for step, value in sorted(trial.intermediate_values.items())],
        }
        if isinstance(self._space, FunctionSpace):
            state["distributions"] = {name: distribution_to_json(d) for name, d in trial.distributions.items()}
        return state

    def _put_back(self, study: Study, state: Mapping[str, Any]) -> None:
        """Put the trials of a saved search into the study, those excepted that a lasting storage has."""
        from optuna.trial import TrialState

        for old in state["trials"]:
            trial_id, texts = old["trial_id"], old.get("distributions")
            if trial_id is not None and trial_id in self._recorded:
                continue
            trial = _trial(
                self._known_space(),
                self._decoded(old["params"], texts or {}),
                "a trial of the saved search",
                texts,
                state=TrialState[old["state"]],
                values=old["values"],
                user_attrs={} if trial_id is None else {TRIAL_ID: trial_id},
                system_attrs=dict(old["trial_attrs"]),
                intermediate_values={int(step): value for step, value in old["reports"]},
            )
            study.add_trial(trial)
        for key, value in state["study_attrs"].items():
            study._storage.set_study_system_attr(study._study_id, key, value)

    def _was_restored(self, trial_id: str) -> bool:
        return self._restored is not None and any(old["trial_id"] == trial_id for old in self._restored["trials"])

    def _add(
        self, study: Study, config: Mapping[str, Any], values: list[float] | None, user_attrs: dict[str, Any]
    ) -> None:
        """Add a point that was evaluated elsewhere."""
        from optuna.trial import TrialState

        params, space = self._known_space().fix(config)
        state = TrialState.PRUNED if values is None else TrialState.COMPLETE
        what = "a point that was evaluated elsewhere"
        study.add_trial(_trial(space, params, what, state=state, values=values, user_attrs=user_attrs))

    def _copy(self, trial_id: str) -> Config:
        return merge(self._fixed, self._open[trial_id].config)


def _checked_sampler(sampler: Any, seed: Any) -> Any:
    """Return a sampler's name in lower case, or the object."""
    if sampler is None:
        return "tpe"
    if not isinstance(sampler, str):
        from optuna.samplers import BaseSampler

        if not isinstance(sampler, BaseSampler):
            raise SearchError(f"sampler is {sampler!r}; expected a name ({', '.join(SAMPLERS)}) or an Optuna sampler.")
        if seed is not None:
            raise SearchError("seed is for samplers chosen by name; give your sampler object its own seed.")
        return sampler
    name = sampler.lower()
    if name not in SAMPLERS:
        raise UnknownNameError(f"no sampler is called {sampler!r}. {nearest(name, SAMPLERS)}")
    missing = [package for package in SAMPLERS[name] if importlib.util.find_spec(package) is None]
    if missing:
        raise SearchError(f"the sampler {name!r} needs {' and '.join(missing)}: pip install {' '.join(missing)}")
    return name


def _checked_rewards(rewards: Any, points: Sequence[Any]) -> list[Any] | None:
    if rewards is None:
        return None
    if isinstance(rewards, (str, Mapping)) or not hasattr(rewards, "__len__"):
        raise SearchError(f"evaluated_rewards is {rewards!r}; expected a list of numbers, one for each point.")
    if len(rewards) != len(points):
        raise SearchError(f"{len(points)} points_to_evaluate but {len(rewards)} evaluated_rewards; give one for each.")
    return list(rewards)


def _check_used(point: Mapping[str, Any] | None, params: Mapping[str, Any]) -> None:
    for name, value in (point or {}).items():
        if name not in params:
            raise SpaceError(
                f"points_to_evaluate names {name!r}, which the space did not ask for. {nearest(name, params)}"
            )
        if not is_same(params[name], value):
            raise SpaceError(f"points_to_evaluate sets {name} to {value!r}, but the space made it {params[name]!r}.")


def _trial(
    space: Space, params: Mapping[str, Any], what: str, texts: Mapping[str, str] | None = None, **fields: Any
) -> FrozenTrial:
    """Return a trial of the study with these parameters; their distributions are those recorded in `texts`, else those
    that the space asks for when it is given the values.

    Raises:
        SpaceError: the parameters are not the space's; `what` says whose they are.
    """
    from optuna.distributions import json_to_distribution
    from optuna.trial import FixedTrial, create_trial

    asked = FixedTrial(dict(params))
    try:
        if texts:
            distributions = {name: json_to_distribution(text) for name, text in texts.items()}
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # a value out of range: create_trial raises
                space.suggest(asked)
            distributions = dict(asked.distributions)
        if unknown := params.keys() - distributions.keys():
            raise SpaceError(f"{what} names {min(unknown)!r}, which the space does not have.")
        return create_trial(params=dict(params), distributions=distributions, **fields)
    except SpaceError:
        raise
    except ValueError as error:  # of FixedTrial: a parameter is missing; of create_trial: out of range
        raise SpaceError(f"{what} does not fit the space: {error} Every parameter must be named.") from error


def _encoded(trial: Any, name: str) -> Any:
    """Return a parameter as a JSON value; an option that is none as its number."""
    value = trial.params[name]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return {"choice": trial.distributions[name].to_internal_repr(value)}


def _without(config: Mapping[str, Any], fixed: Mapping[str, Any]) -> Config:
    """Return `config` without the constants that the run added to it."""
    return {key: value for key, value in config.items() if key not in fixed}


def _number(value: Any) -> float | None:
    """Return a metric as a number; None if there is none, NaN if it is none."""
    if value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError):  # text, arrays
        return math.nan


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]
