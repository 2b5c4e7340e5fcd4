"""Search with Optuna's samplers: the space as distributions, suggestions by ask and tell, exact after a restart."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from searchers import checks
from searchers.base import NOT_NOW, Config, Signal
from searchers.checks import as_number, listed
from searchers.errors import SearchError
from searchers.keywords import refuse_unknown
from searchers.optuna_samplers import CONSTRAINTS, Sampling, is_generation_full, showing, with_open_trials
from searchers.optuna_space import OptunaDomains, check_used, decoded, encoded, quiet, space_of, study_trial
from searchers.space_searcher import SpaceSearcher
from searchers.variants import constants_by_name, fresh

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.storages import BaseStorage
    from optuna.study import Study
    from optuna.trial import BaseTrial, FrozenTrial

    AnySpace = Mapping[str, Any] | Mapping[str, BaseDistribution] | Callable[[BaseTrial], Mapping[str, Any] | None]


TRIAL_ID = "trial_id"
"""The user attribute of the study's trials that holds our trial id."""


@dataclass
class _Open:
    """A suggestion whose trial has not completed."""

    number: int  # of the study's trial
    optuna_id: int
    config: Config
    state: dict[str, Any] = field(default_factory=dict)


Limits = str | Sequence[str] | Mapping[str, float] | Callable[[Mapping[str, Any]], float | Sequence[float]]
"""Metrics that must be at most 0, metrics with the most that each may be, or a function of the result."""


class Constraints:
    """Say by how much a result violates each constraint; `limits` are what `OptunaSearch` takes as constraints."""

    def __init__(self, limits: Any) -> None:
        self._function: Callable[[Mapping[str, Any]], Any] | None = limits if callable(limits) else None
        self._num: int | None = None
        self._has_warned = False
        self.limits: dict[str, float] = {}  # the most that each metric may be; empty where a function says it
        if isinstance(limits, Mapping):
            self.limits = {name: checks.number(f"constraints[{name!r}]", most) for name, most in limits.items()}
        elif isinstance(limits, (str, list, tuple)):
            self.limits = dict.fromkeys(listed(limits), 0.0)
        if self._function is None and not (self.limits and all(isinstance(name, str) for name in self.limits)):
            expected = "names of metrics that must be at most 0, a dict such as {'latency_ms': 50}, or a function"
            checks.refuse("constraints", limits, f"{expected} of the result")

    def violations(self, result: Mapping[str, Any]) -> list[float] | None:
        """Return one finite number for each constraint, above 0 where it is violated; None if they cannot be computed.

        What the function did wrong is said in a warning, once.
        """
        if self._function is None:
            return _finite([as_number(result.get(name)) - most for name, most in self.limits.items()])
        try:
            returned = self._function(result)
            values = [float(one) for one in (returned if hasattr(returned, "__iter__") else [returned])]
        except Exception as error:  # the user's function may raise anything; a sweep of days must not end by it
            self._warn(f"raised {type(error).__name__}: {error}")
            return None
        if self._num is None and values:
            self._num = len(values)
        if len(values) != self._num:
            self._warn(f"returned {len(values)} values; expected {self._num or 'at least 1'}, each time as many")
            return None
        return _finite(values)

    def _warn(self, what: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(f"the function of constraints {what}. Such a trial counts as infeasible.", stacklevel=4)


def _finite(values: list[float]) -> list[float] | None:
    return values if all(map(math.isfinite, values)) else None


@refuse_unknown()
class OptunaSearch(SpaceSearcher):
    """Suggest configs with one of Optuna's samplers.

    Sampler number n is built anew with a seed derived from (seed, n), and a suggestion's state records what the
    sampler wrote into the study; so a search that is told its record again goes on exactly as if it had never
    stopped. That holds for samplers chosen by name, class or function; an object of your own is used as it is.

    One trial at a time, the suggestions are bit for bit those of a plain Optuna study whose sampler is seeded anew
    before each ask. "cmaes" makes the same ones however many trials run at a time: it waits for the rest of a
    generation (4 + 3 ln d points for d numbers) and for the first result, where Optuna would throw points away.
    Departures: the Parzen estimator sees at most `window` ended trials, and is told of groups of
    parameters (`group=True`) where the space is conditional; the Gaussian process is fitted from scratch each time.
    With several trials at a time, open ones count among the ten at random that "tpe" begins with, of which five must
    have ended; and the estimator takes them as bad (`constant_liar`) only where every parameter has finitely many
    values, so that none is tried twice. In a continuous space that costs more than it brings (docs/choose.md).

    A trial that completes with its metric is COMPLETE in the study; with NaN or without the metric it is PRUNED, which
    the sampler "tpe" takes as worse than every number; after an error it is FAIL, which teaches nothing. Stopping
    trials early is the scheduler's business: the study's pruner does nothing.

    Args:
        space: nested dict of domains, dict of names and Optuna distributions, or a function of an Optuna trial that
            calls `trial.suggest_...` and may return a dict of constants. None: that of the run.
        metric, mode: what is optimised; two lists of equal length for several objectives (not with "cmaes"). Metrics
            whose mode is "obs" are left out.
        points_to_evaluate: (partial) configs to suggest first, nested or with names such as `model/lr`.
        sampler: "tpe", "cmaes", "gp", "qmc", "nsgaii", "nsgaiii", "random"; a sampler class of Optuna, or a function
            of a seed that returns a sampler, called for each suggestion; or a sampler object.
        seed: int of at least 0; None: the seed of the run. Refused with a sampler object, which has its own.
        evaluated_rewards: the metric of each of `points_to_evaluate` (one list each for several objectives): they are
            then learned from and not run.
        study_name, storage: as in `optuna.create_study`; an existing study is continued.
        constraints: what a good config must keep, read off the last result: names of metrics that must be at most 0, a
            dict of metrics and the most that each may be, or a function of the result that returns one number or
            several, at most 0 where it is kept. "tpe", "gp", "nsgaii" and "nsgaiii" learn from them. A trial that
            violates one is never the best of the study; one whose constraints cannot be computed is PRUNED.
        window: int of at least 50, or None for no bound: how many of the ended trials "tpe" sees at most. Beyond it
            these are the best half and the newest half, so the good trials that it models are the same, and a
            suggestion costs no more. Plays no part with other samplers.

    Attributes:
        study: the Optuna study, for its plots and importances. Add nothing to it while the run goes on.

    Raises:
        SpaceError: the space makes no sense to Optuna (grids, normal distributions), or a point does not fit it.
        SearchError: another argument is wrong, or a package is missing.
        UnknownNameError: no sampler of that name.

    Source: Akiba et al. 2019, arXiv:1907.10902; the package Optuna names those of its samplers. Departures: as above.
    """

    def __init__(
        self,
        space: AnySpace | None = None,
        metric: str | Sequence[str] | None = None,
        mode: str | Sequence[str] | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        sampler: str | BaseSampler | Callable[[int], BaseSampler] | None = "tpe",
        *,
        seed: int | None = None,
        evaluated_rewards: Sequence[Any] | None = None,
        study_name: str | None = None,
        storage: str | BaseStorage | None = None,
        constraints: Limits | None = None,
        window: int | None = 5000,
    ) -> None:
        super().__init__(space, metric, mode, points_to_evaluate, seed)
        self._constraints = None if constraints is None else Constraints(constraints)
        self._sampling = Sampling(sampler, seed, window=window, is_constrained=constraints is not None)
        self._rewards = _checked_rewards(evaluated_rewards, self._points)
        self._study_name = study_name
        self._storage = storage
        self._study: Study | None = None
        self._study_attrs: dict[str, Any] = {}
        self._recorded: dict[str, Any] = {}  # trials that a lasting storage had from before, by our id
        self._open: dict[str, _Open] = {}
        self._told: list[int] | None = None  # Optuna's ids of what ended since the last suggestion; None: not known
        self._restored: Mapping[str, Any] | None = None
        if constraints is not None and self._rewards is not None:
            rewards = "evaluated_rewards, which do not tell them; use search.observe(config, result)"
            raise SearchError(f"constraints cannot go with {rewards}.")
        if constraints is not None and self._sampling.kind == "cmaes":
            raise SearchError(
                "constraints cannot go with the sampler 'cmaes', which knows none; use 'tpe', 'gp' or 'nsgaii'."
            )
        self.is_adaptive = self._sampling.kind != "random"
        if space is not None:
            self._take_space(space)

    @staticmethod
    def convert_search_space(spec: Mapping[str, Any], join: bool = False) -> dict[str, Any]:
        """Return the domains of a space as distributions of Optuna, by name such as `model/lr`.

        A parameter within option 1 of the choice `model` is `model/1/lr`. Of a quantized log range the quantum is left
        out, which Optuna does not have.

        Args:
            join: with the constants of the space.

        Raises:
            SpaceError: the space holds a grid, or a range without two finite bounds.
        """
        found: dict[str, Any] = OptunaDomains(spec).distributions
        return constants_by_name(spec) | found if join else found

    @quiet()
    def _take_space(self, space: Any) -> None:
        if self._has_own_space or space:
            self._space = space_of(space)
            for point in self._points:
                self._space.fix(point)

    @property
    def study(self) -> Study:
        """The Optuna study, for its plots; a SearchError while metric, mode or the space are not known."""
        if self._study is None:
            self._study = self._new_study()
        return self._study

    @property
    def _ot_study(self) -> Study:
        """`study`, by the name under which Tune's users take it for Optuna's plots."""
        return self.study

    @quiet()
    def suggest(self, trial_id: str) -> Config | Signal:
        if trial_id in self._open:
            return self._with_constants(self._open[trial_id].config)
        from optuna.trial import TrialState

        study, space = self.study, self._known_space()
        stale = self._recorded.pop(trial_id, None)
        if stale is not None and not stale.state.is_finished():  # asked, but never answered, before a crash
            study.tell(stale.number, state=TrialState.FAIL)
        study.sampler = self._sampling.make(self._seed, self._count, space, len(self._open))
        if self._sampling.kind == "cmaes":
            with_open_trials(study)
            if is_generation_full(study, {one.number for one in self._open.values()}):
                return NOT_NOW
        point: dict[str, Any] = {}
        filled = None
        if self._rewards is None and self._count < len(self._points):
            point, filled = space.fix(self._points[self._count])
            study.enqueue_trial(point)
        with showing(study, self._sampling.window, self._ended()):
            trial = study.ask()
            trial.set_user_attr(TRIAL_ID, trial_id)
            try:
                config = space.suggest(trial, filled)
                check_used(point, trial.params)
            except Exception as error:  # the user's function may raise anything
                study.tell(trial, state=TrialState.FAIL)
                if isinstance(error, SearchError):
                    raise
                raise SearchError(f"the space could not be sampled: {type(error).__name__}: {error}") from error
        self._open[trial_id] = _Open(trial.number, trial._trial_id, config, self._record(study, trial._trial_id))
        self._count += 1
        return self._with_constants(config)

    def _ended(self) -> Iterator[FrozenTrial]:
        """Yield the trials that ended since the last suggestion; all trials where it is not known which."""
        study, told = self.study, self._told
        self._told = [] if self._storage is None else None  # others may add to a storage
        yield from study.get_trials(deepcopy=False) if told is None else map(study._storage.get_trial, told)

    def suggestion_state(self, trial_id: str) -> Mapping[str, Any] | None:
        """Return the parameters, and what the sampler wrote into the trial and the study while suggesting."""
        suggestion = self._open.get(trial_id)
        return None if suggestion is None else suggestion.state

    @quiet()
    def retell(self, trial_id: str, config: Config, state: Mapping[str, Any] | None) -> None:
        """Put a suggestion of before the restart into the study, as it was; nothing is sampled."""
        from optuna.trial import TrialState

        study, space = self.study, self._known_space()
        old = self._recorded.pop(trial_id, None)
        if old is None:
            params, filled = (
                space.fix(self._without_constants(config)) if state is None else (decoded(space, state), None)
            )
            known = state or {}
            template = study_trial(
                partial(space.suggest, filled=filled),
                params,
                f"the recorded trial {trial_id}",
                known.get("distributions"),
                state=TrialState.RUNNING,
                user_attrs={TRIAL_ID: trial_id},
                system_attrs=dict(known.get("trial_attrs", {})),
            )
            optuna_id = study._storage.create_new_trial(study._study_id, template_trial=template)
            number = study._storage.get_trial_number_from_id(optuna_id)
            self._set_study_attrs(study, known.get("study_attrs", {}))
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
        value = as_number(result.get(objectives[0][0]))
        if not math.isnan(value):
            self.study._storage.set_trial_intermediate_value(suggestion.optuna_id, step, value)

    @quiet()
    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        suggestion = self._open.pop(trial_id, None)
        if suggestion is None:
            return
        state, values, attrs = self._outcome(result, error)
        study = self.study
        if attrs and not study._storage.get_trial(suggestion.optuna_id).state.is_finished():
            for key, value in attrs.items():
                study._storage.set_trial_system_attr(suggestion.optuna_id, key, value)
        study.tell(suggestion.number, values, state, skip_if_finished=True)
        if self._told is not None:
            self._told.append(suggestion.optuna_id)

    @quiet()
    def observe(self, config: Config, result: Mapping[str, Any]) -> None:
        """Add a point that was evaluated elsewhere; without its metric, or with NaN, it is added as pruned."""
        state, values, attrs = self._outcome(result, error=False)
        self._add(self.study, self._without_constants(config), state=state, values=values, system_attrs=attrs)

    def get_state(self) -> Mapping[str, Any]:
        """Return the trials of the study that ended with something to learn, and what the sampler wrote into it."""
        study, space = self.study, self._known_space()
        trials = [
            {
                "trial_id": trial.user_attrs.get(TRIAL_ID),
                "state": trial.state.name,
                "values": trial.values,
                "trial_attrs": dict(trial.system_attrs),
                "reports": [[step, value] for step, value in sorted(trial.intermediate_values.items())],
                **encoded(space, trial, is_own=False),
            }
            for trial in study.get_trials(deepcopy=False)
            if trial.state.name in ("COMPLETE", "PRUNED")
        ]
        goal = {"metric": self.metric, "mode": self.mode}
        attrs = study._storage.get_study_system_attrs(study._study_id)
        return {**super().get_state(), **goal, "trials": trials, "study_attrs": attrs}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Learn from the study of another search, and go on behind its last suggestion.

        With a sampler by name the suggestions are those that the other search would have made next, were no trial open.
        """
        self._take_goal(state, has_begun=self._study is not None or bool(self._open))
        super().set_state(state)
        self._restored = state

    @quiet()
    def _new_study(self) -> Study:
        import optuna

        space, objectives = self._known_space(), self._objectives()
        self._check_goal()
        metrics, modes = [metric for metric, _ in objectives], [mode for _, mode in objectives]
        if self._sampling.kind == "cmaes" and len(metrics) > 1:
            raise SearchError("the sampler 'cmaes' has one objective only; use 'tpe' or 'nsgaii' for several.")
        study = optuna.create_study(
            storage=self._storage,
            sampler=self._sampling.make(self._seed, 0, space, 0),
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
        restored = {old["trial_id"] for old in (self._restored or {"trials": ()})["trials"]}
        for index, reward in enumerate(self._rewards or ()):
            name = f"evaluated_{index}"
            if self._recorded.pop(name, None) is None and name not in restored:
                state, values, _ = self._outcome(dict(zip(metrics, listed(reward), strict=True)), error=False)
                self._add(study, self._points[index], state=state, values=values, user_attrs={TRIAL_ID: name})
        return study

    @property
    def limits(self) -> dict[str, float]:
        """The constraints that are metrics with the most that each may be; a function is not among them."""
        return {} if self._constraints is None else self._constraints.limits

    @property
    def sampler_name(self) -> str:
        """What the sampler is called: "tpe" and the like, "optuna" with the class of an object of your own."""
        return self._sampling.title

    def _record(self, study: Study, optuna_id: int) -> dict[str, Any]:
        """Return as JSON values what `retell` needs of the suggestion that was just made."""
        trial = study._storage.get_trial(optuna_id)
        state = encoded(self._known_space(), trial, is_own=self._has_own_space)
        if trial.system_attrs:
            state["trial_attrs"] = dict(trial.system_attrs)
        known, self._study_attrs = self._study_attrs, dict(study._storage.get_study_system_attrs(study._study_id))
        changed = {key: value for key, value in self._study_attrs.items() if key not in known or known[key] != value}
        return {**state, "study_attrs": changed} if changed else state

    def _set_study_attrs(self, study: Study, attrs: Mapping[str, Any]) -> None:
        for key, value in attrs.items():
            study._storage.set_study_system_attr(study._study_id, key, value)
            self._study_attrs[key] = value

    def _outcome(self, result: Mapping[str, Any] | None, error: bool) -> tuple[Any, list[float] | None, dict[str, Any]]:
        """Return the state in which a trial ends, its values (None unless COMPLETE), and what else is to be kept."""
        from optuna.trial import TrialState

        if error:
            return TrialState.FAIL, None, {}
        values = [as_number((result or {}).get(metric)) for metric, _ in self._objectives()]
        is_whole = not any(map(math.isnan, values))
        attrs: dict[str, Any] = {}
        if self._constraints is not None:
            violations = self._constraints.violations(result or {})
            is_whole = is_whole and violations is not None
            attrs[CONSTRAINTS] = [math.inf] if violations is None else violations
        return (TrialState.COMPLETE, values, attrs) if is_whole else (TrialState.PRUNED, None, attrs)

    def _objectives(self) -> list[tuple[str, str]]:
        """Return metric and mode of what is optimised; nothing while one of the two is not known."""
        metrics, modes = listed(self.metric), listed(self.mode)
        pairs = zip(metrics, modes, strict=True) if len(metrics) == len(modes) else ()
        return [(metric, mode) for metric, mode in pairs if mode != "obs"]

    def _put_back(self, study: Study, state: Mapping[str, Any]) -> None:
        """Put the trials of a saved search into the study, those excepted that a lasting storage has."""
        from optuna.trial import TrialState

        space = self._known_space()
        for old in state["trials"]:
            trial_id = old["trial_id"]
            if trial_id is not None and trial_id in self._recorded:
                continue
            trial = study_trial(
                space.suggest,
                decoded(space, old),
                "a trial of the saved search",
                old.get("distributions"),
                state=TrialState[old["state"]],
                values=old["values"],
                user_attrs={} if trial_id is None else {TRIAL_ID: trial_id},
                system_attrs=dict(old["trial_attrs"]),
                intermediate_values={int(step): value for step, value in old["reports"]},
            )
            study.add_trial(trial)
        self._set_study_attrs(study, state["study_attrs"])

    def _add(self, study: Study, config: Mapping[str, Any], **fields: Any) -> None:
        space = self._known_space()
        params, filled = space.fix(config)
        suggest = partial(space.suggest, filled=filled)
        study.add_trial(study_trial(suggest, params, "a point that was evaluated elsewhere", **fields))
        self._told = None


def _checked_rewards(rewards: Any, points: Sequence[Any]) -> list[Any] | None:
    if rewards is None:
        return None
    if isinstance(rewards, (str, Mapping)) or not hasattr(rewards, "__len__"):
        raise SearchError(f"evaluated_rewards is {rewards!r}; expected a list of numbers, one for each point.")
    if len(rewards) != len(points):
        raise SearchError(f"{len(points)} points_to_evaluate but {len(rewards)} evaluated_rewards; give one for each.")
    return list(rewards)
