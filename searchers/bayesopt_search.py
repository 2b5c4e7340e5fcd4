"""Search with a Gaussian process, by the package bayesian-optimization."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from searchers import checks
from searchers.base import EXHAUSTED, NOT_NOW, Config, Signal, derived_seed
from searchers.errors import SpaceError
from searchers.history import HistorySearch, Tried, load
from searchers.keywords import refuse_unknown
from searchers.named_space import DomainSpace, Range, Values
from searchers.space import Categorical, Domain, Float, Normal, uniform
from searchers.variants import check_space, constants_by_name, has_domains, unflatten

UTILITY: Mapping[str, Any] = {"kind": "ucb", "kappa": 2.576, "xi": 0.0, "kappa_decay": 1.0, "kappa_decay_delay": 0}
"""What `utility_kwargs` may set, and what holds without."""

KINDS = {"ucb": "UpperConfidenceBound", "ei": "ExpectedImprovement", "poi": "ProbabilityOfImprovement"}

DIGITS = 5
"""Two points are the same if they agree to so many decimals, in parts of the range of each parameter."""


@refuse_unknown()
class BayesOptSearch(HistorySearch):
    """Suggest configs where a Gaussian process expects or allows the most. Needs the package bayesian-optimization.

    Every range is searched in parts from 0 to 1, a log range in its logarithm, so that parameters of all magnitudes
    count alike. Suggestion n depends on the space, the seed, n and the results. To keep parallel trials apart, the
    model takes for the result of one that goes on, or failed, what it expects there; one that ended with NaN or
    without the metric is taken as the worst.

    Args:
        space: nested dict of `uniform` and `loguniform` domains and constants; or bounds by name, `{"x": (0, 20)}`.
            None: that of the run.
        metric, mode: what is optimised, "min" or "max".
        points_to_evaluate: (partial) configs to suggest first, nested or with names such as `model/lr`.
        utility_kwargs: what is maximised in choosing a point: `kind` "ucb" (mean plus `kappa` standard deviations;
            `kappa` is multiplied by `kappa_decay` with each suggestion of the model after the first
            `kappa_decay_delay`), "ei" or "poi" (improvement by more than `xi`: expected, or its probability).
        random_state: seed, int of at least 0; None: the seed of the run.
        random_search_steps: how many suggestions are drawn at random before the model begins; int of at least 0.
        verbose: plays no part; progress is the run's business.
        patience: how often a point may be suggested that was suggested before; then the search ends, as it has
            converged. With `skip_duplicate`: how often another is looked for. None: it never ends.
        skip_duplicate: suggest no point twice.
        analysis: of an earlier run; its trials are learned from before the first suggestion.

    Raises:
        SpaceError: a parameter is no plain range of floats, or a point does not fit the space.
        SearchError: another argument is wrong; when the space is known: bayesian-optimization is missing.

    Source: Snoek et al. 2012, arXiv:1206.2944, through the package bayesian-optimization. Departures: the package is
    given the whole history anew for each suggestion, each with random numbers of its own; so a restart changes nothing.
    """

    def __init__(
        self,
        space: Mapping[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        utility_kwargs: Mapping[str, Any] | None = None,
        random_state: int | None = None,
        random_search_steps: int = 10,
        verbose: int = 0,
        patience: int | None = 5,
        skip_duplicate: bool = True,
        analysis: Any = None,
    ) -> None:
        super().__init__(space, metric, mode, points_to_evaluate, random_state, "random_state")
        self._utility = _checked_utility(utility_kwargs)
        self._random_search_steps = checks.whole("random_search_steps", random_search_steps)
        self._patience = None if patience is None else checks.whole("patience", patience, least=1)
        self._skips_duplicates = bool(skip_duplicate)
        self._analysis = analysis
        self._has_ended = False
        self._waited_with: int | None = None  # how many trials had ended when it last had nothing new to suggest

    @staticmethod
    def convert_search_space(spec: Mapping[str, Any], join: bool = False) -> dict[str, Any]:
        """Return the bounds of a space by name, `{"model/lr": (0.0, 1.0)}`, as the package takes them.

        Bounds know no logarithm: a log range is searched evenly by whoever is given them, which a warning says.

        Args:
            join: with the constants of the space.

        Raises:
            SpaceError: a parameter is no plain range of floats.
        """
        bounds: dict[str, Any] = {}
        for name, domain in _FloatSpace(spec, "BayesOptSearch").parameters.items():
            assert isinstance(domain, Float)
            if Range(domain).is_log:
                warnings.warn(f"the bounds of {name} leave out that its range is logarithmic.", stacklevel=2)
            bounds[name] = (float(domain.lower), float(domain.upper))
        return constants_by_name(spec) | bounds if join else bounds

    def suggest(self, trial_id: str) -> Config | Signal:
        """Return a config; `EXHAUSTED` once the search has converged, `NOT_NOW` while it may have."""
        self._learn()
        return super().suggest(trial_id)

    def retell(self, trial_id: str, config: Config, state: Mapping[str, Any] | None) -> None:
        self._learn()
        super().retell(trial_id, config, state)

    def _learn(self) -> None:
        """Learn from the earlier run, before anything else."""
        if self._analysis is not None:
            self._check_goal()
            analysis, self._analysis = self._analysis, None
            self.add_evaluated_trials(analysis)

    def _read(self, space: Any) -> DomainSpace:
        load("bayes_opt", "bayesian-optimization", "BayesOptSearch")
        return _FloatSpace(_with_domains(check_space(space)), "BayesOptSearch")

    def _propose(self, number: int) -> Values | Signal:
        domains = self._domains()
        history = self._history()
        if self._has_ended:
            return EXHAUSTED
        if self._open and self._waited_with == len(self._past):
            return NOT_NOW  # no result since the last time: the model is the same, and costs time
        is_known = any(tried.end in ("ok", "bad") for tried in history)
        if not domains or number < self._random_search_steps or not is_known:
            return {}
        times = Counter(self._rounded(tried.values) for tried in history)
        for attempt in range(5 if self._patience is None else self._patience):
            values = self._best(number, attempt, history)
            count = times[self._rounded(values)]
            is_allowed = self._patience is None or count < self._patience
            if count == 0 or (not self._skips_duplicates and is_allowed):
                return values
        if self._patience is None:
            return {}  # anything else is better than the same again
        if self._open:
            self._waited_with = len(self._past)
            return NOT_NOW  # their results may move the model
        self._has_ended = True
        return EXHAUSTED

    def _best(self, number: int, attempt: int, history: Sequence[Tried]) -> Values:
        bayes_opt = load("bayes_opt", "bayesian-optimization", "BayesOptSearch")
        domains = self._domains()
        with warnings.catch_warnings(action="ignore"):
            optimizer = bayes_opt.BayesianOptimization(
                f=None,
                pbounds=dict.fromkeys(domains, (0.0, 1.0)),
                acquisition_function=self._acquisition(bayes_opt, number),
                random_state=derived_seed(derived_seed(self._seed, number), attempt),
                verbose=0,
            )
            known = self._targets(history)
            for part, target in known.items():
                optimizer.register(params=dict(zip(domains, part, strict=True)), target=target)
            # the points whose trials go on or failed, once each
            parts = dict.fromkeys(self._parts(tried.values) for tried in history if tried.end in ("open", "error"))
            unknown = [dict(zip(domains, part, strict=True)) for part in parts if part not in known]
            expected = [float(one) for one in optimizer.predict(unknown)] if unknown else []
            for point, target in zip(unknown, expected, strict=True):
                optimizer.register(params=point, target=target)
            best = optimizer.suggest()
        found = {name: Range(domain).value(float(best[name])) for name, domain in domains.items()}
        return {name: float(min(max(found[name], domain.lower), domain.upper)) for name, domain in domains.items()}

    def _acquisition(self, bayes_opt: Any, number: int) -> Any:
        kind = self._utility["kind"]
        make = getattr(bayes_opt.acquisition, KINDS[kind])
        if kind != "ucb":
            return make(xi=self._utility["xi"])
        num_decays = max(0, number - self._random_search_steps - self._utility["kappa_decay_delay"])
        return make(kappa=self._utility["kappa"] * self._utility["kappa_decay"] ** num_decays)

    def _targets(self, history: Sequence[Tried]) -> dict[tuple[float, ...], float]:
        """Return what is maximised at each point whose trial ended; equal ones are one, as the library wants."""
        known = [-tried.loss for tried in history if tried.loss is not None]
        worst = min(known, default=0.0)
        found: dict[tuple[float, ...], list[float]] = {}
        for tried in history:
            if tried.end in ("ok", "bad"):
                found.setdefault(self._parts(tried.values), []).append(worst if tried.loss is None else -tried.loss)
        return {part: math.fsum(targets) / len(targets) for part, targets in found.items()}

    def _parts(self, values: Values) -> tuple[float, ...]:
        ranges = {name: Range(domain) for name, domain in self._domains().items()}
        return tuple(one.position(values[name]) if one.high > one.low else 0.0 for name, one in ranges.items())

    def _rounded(self, values: Values) -> tuple[float, ...]:
        return tuple(round(part, DIGITS) for part in self._parts(values))

    def _domains(self) -> dict[str, Float]:
        domains = self._known_space().parameters
        return {name: domain for name, domain in domains.items() if isinstance(domain, Float)}


def _with_domains(space: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return bounds by name as a nested dict of domains; any other space as it is."""
    is_bounds = bool(space) and all(
        isinstance(bounds, (tuple, list))
        and len(bounds) == 2
        and all(checks.is_number(bound, is_finite=False) for bound in bounds)
        for bounds in space.values()
    )
    if is_bounds and not has_domains(space):
        return unflatten({name: uniform(*bounds) for name, bounds in space.items()})
    return space


class _FloatSpace(DomainSpace):
    """A space of plain ranges of floats."""

    def check(self, name: str, domain: Domain) -> None:
        base, q = domain.base_and_q() if isinstance(domain, Float) else (None, None)
        if base is None or q is not None or isinstance(base, Normal):
            raise SpaceError(
                f"{name} is {'a choice' if isinstance(domain, Categorical) else repr(domain)}; BayesOptSearch has "
                "continuous ranges of floats only. Use uniform or loguniform, and round in the trial; the searchers "
                "'hyperopt' and 'optuna' have all kinds of parameters."
            )
        super().check(name, domain)


def _checked_utility(given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    utility = {**UTILITY, **(given or {})}
    for name in utility:
        checks.one_of("a name in utility_kwargs", name, UTILITY)
    checks.one_of("the kind of utility_kwargs", utility["kind"], KINDS)
    for name in ("kappa", "xi"):
        checks.number(f"{name} of utility_kwargs", utility[name], least=0)
    checks.number("kappa_decay of utility_kwargs", utility["kappa_decay"], above=0, most=1)
    checks.whole("kappa_decay_delay", utility["kappa_decay_delay"])
    return utility
