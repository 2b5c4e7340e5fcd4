"""A search space as Optuna sees it: distributions, define-by-run, and the way back to nested configs."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from searchers.base import Config
from searchers.errors import SearchError, SpaceError, nearest
from searchers.named_space import DomainSpace
from searchers.space import Categorical, Domain, Float, Integer, LogUniform, is_same
from searchers.variants import Path, flatten, merge, path_name, resolve, unflatten, walk

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import BaseTrial, FrozenTrial


@contextmanager
def quiet() -> Iterator[None]:
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


class OptunaDomains(DomainSpace):
    """A nested dict of domains; a choice is a parameter whose choices stand for its options, see `_labels`.

    Attributes:
        distributions: those that are known without a trial.
        is_discrete: every parameter has finitely many values, as far as is known without a trial.
    """

    def __init__(self, space: Mapping[str, Any]) -> None:
        self.distributions: dict[str, BaseDistribution] = {}
        super().__init__(space, "OptunaSearch")
        self.is_conditional = not self.parameters.keys() <= {path_name(path) for path, _ in walk(space)}
        self.is_discrete = all(map(_is_finite, self.distributions.values()))

    def check(self, name: str, domain: Domain) -> None:
        self.distributions[name] = distribution_of(name, domain)

    def holds(self, name: str, domain: Domain, value: Any) -> bool:
        return super().holds(name, domain, value) and contains(self.distributions[name], value)

    def suggest(self, trial: BaseTrial, filled: Any = None) -> Config:
        """Return a config, asking `trial` for every parameter; `filled` is what `fix` returned for a point."""

        def decide(path: Path, domain: Domain) -> Any:
            name = path_name(path)
            distribution: Any = self.distributions.get(name) or distribution_of(name, domain)
            value = _ask(trial, name, distribution)
            if isinstance(domain, Categorical):
                return distribution.choices.index(value)
            assert isinstance(domain, (Float, Integer))
            return domain.quantize(value)

        return resolve(self.space if filled is None else filled, decide)

    def fix(self, point: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        values, filled = super().fix(point)
        for name, value in values.items():
            if isinstance(self.parameters[name], Categorical):
                distribution: Any = self.distributions[name]
                values[name] = distribution.choices[value]
        return values, filled


class _FunctionSpace:
    """A function that asks the trial for its parameters (define by run) and may return a dict of constants."""

    is_conditional = True
    is_discrete = False

    def __init__(self, function: Callable[[BaseTrial], Mapping[str, Any] | None]) -> None:
        self._function = function
        self.distributions: dict[str, BaseDistribution] = {}

    def suggest(self, trial: BaseTrial, filled: Any = None) -> Config:
        constants = self._function(trial)
        if constants is None:
            constants = {}
        if not isinstance(constants, Mapping) or not all(isinstance(key, str) for key in constants):
            expected = "expected None or a dict of constants with string keys"
            raise SearchError(f"the define-by-run function returned {constants!r}; {expected}.")
        return merge(constants, unflatten(trial.params))

    def fix(self, point: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        nested: Config = {}
        for key, value in point.items():
            nested = merge(nested, unflatten({str(key): value}))
        return flatten(nested), None


class _DistributionSpace(_FunctionSpace):
    """A dict of names and Optuna distributions; a `/` in a name makes a nested config."""

    is_conditional = False

    def __init__(self, space: Mapping[str, BaseDistribution]) -> None:
        unflatten(dict.fromkeys(space))  # refuses names that clash
        super().__init__(self._ask_all)
        self.distributions = dict(space)
        self.is_discrete = all(map(_is_finite, space.values()))

    def _ask_all(self, trial: BaseTrial) -> None:
        for name, distribution in self.distributions.items():
            _ask(trial, name, distribution)

    def fix(self, point: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        params, _ = super().fix(point)
        for name, value in params.items():
            known = self.distributions.get(name)
            if known is None:
                names = nearest(name, self.distributions)
                raise SpaceError(f"the point names {name!r}, which the space does not have. {names}")
            if not contains(known, value):
                raise SpaceError(f"the point sets {name} to {value!r}; expected a value of {known}.")
        return params, None


Space = OptunaDomains | _FunctionSpace


def space_of(space: Any) -> Space:
    """Tell the three forms of a space apart."""
    from optuna.distributions import BaseDistribution

    if callable(space) and not isinstance(space, (Domain, type)):
        return _FunctionSpace(space)
    if isinstance(space, Mapping) and any(isinstance(value, BaseDistribution) for value in space.values()):
        for name, value in space.items():
            if not isinstance(value, BaseDistribution) or not isinstance(name, str):
                others = "while other values of the space are Optuna distributions; make all of them distributions"
                raise SpaceError(f"{name!r} is {value!r} {others}, or use uniform, choice ... for all.")
        return _DistributionSpace(space)
    return OptunaDomains(space)


def distribution_of(name: str, domain: Domain) -> BaseDistribution:
    """Return a domain as an Optuna distribution; a quantized log range is rounded after the suggestion."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(domain, Categorical):
        return CategoricalDistribution(_labels(domain.categories))
    assert isinstance(domain, (Float, Integer))
    base, q = domain.base_and_q()
    is_log = isinstance(base, LogUniform)
    if isinstance(domain, Integer):
        return IntDistribution(domain.first, domain.last, log=is_log, step=1 if is_log else domain.step)
    if math.isfinite(domain.upper - domain.lower):
        step_size = None if q is None or is_log else float(q)
        return FloatDistribution(float(domain.lower), float(domain.upper), log=is_log, step=step_size)
    advice = "Use uniform(mean - 2 * sd, mean + 2 * sd) in place of randn, or the searcher 'random'."
    raise SpaceError(f"{name} is {domain!r}; Optuna has only ranges with two finite bounds. {advice}")


def _is_finite(distribution: BaseDistribution) -> bool:
    from optuna.distributions import FloatDistribution

    return not isinstance(distribution, FloatDistribution) or distribution.step is not None


def _ask(trial: BaseTrial, name: str, distribution: BaseDistribution) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    match distribution:
        case FloatDistribution(low=low, high=high, step=step, log=log):
            return trial.suggest_float(name, low, high, step=step, log=log)
        case IntDistribution(low=low, high=high, step=step, log=log):
            return trial.suggest_int(name, low, high, step=step, log=log)
        case CategoricalDistribution(choices=choices):
            return trial.suggest_categorical(name, choices)
    raise SpaceError(f"{name} is {distribution!r}; expected a Float-, Int- or CategoricalDistribution of Optuna.")


def contains(distribution: BaseDistribution, value: Any) -> bool:
    """Whether a distribution holds a value; Optuna itself would only warn."""
    try:
        return bool(distribution._contains(distribution.to_internal_repr(value)))
    except (ValueError, TypeError, OverflowError):  # no number, one that no float holds, not among the choices
        return False


_LARGEST = 1e308  # Optuna makes floats of numbers


def _labels(options: Sequence[Any]) -> list[Any]:
    """Return what stands for each option in the study: itself if that is a plain value, else a text.

    Optuna finds an option by equality, so options that are equal (a weighted choice, 1 and True) need names too.
    """
    plain = all(_is_plain(option) and not (isinstance(option, int) and abs(option) >= _LARGEST) for option in options)
    if plain and all(options.index(option) == i and option == option for i, option in enumerate(options)):
        return list(options)
    texts = [_text(option) for option in options]
    return [text if text and texts.count(text) == 1 else f"option {i}" for i, text in enumerate(texts)]


def _text(option: Any) -> str:
    try:
        text = json.dumps(option)
    except (TypeError, ValueError):  # objects, domains
        return ""
    return text if len(text) <= 80 else ""


# --- trials of the study ----------------------------------------------------------------------------------------------


def check_used(point: Mapping[str, Any], params: Mapping[str, Any]) -> None:
    for name, value in point.items():
        if name not in params:
            raise SpaceError(
                f"points_to_evaluate names {name!r}, which the space did not ask for. {nearest(name, params)}"
            )
        if not is_same(params[name], value):
            raise SpaceError(f"points_to_evaluate sets {name} to {value!r}, but the space made it {params[name]!r}.")


def study_trial(
    suggest: Callable[[BaseTrial], Any],
    params: Mapping[str, Any],
    what: str,
    texts: Mapping[str, str] | None = None,
    **fields: Any,
) -> FrozenTrial:
    """Return a trial of the study with these parameters; their distributions are those recorded in `texts`, else those
    that `suggest` of the space asks for when it is given the values.
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
                suggest(asked)
            distributions = dict(asked.distributions)
        if unknown := params.keys() - distributions.keys():
            raise SpaceError(f"{what} names {min(unknown)!r}, which the space does not have.")
        return create_trial(params=dict(params), distributions=distributions, **fields)
    except SpaceError:
        raise
    except ValueError as error:  # of FixedTrial: a parameter is missing; of create_trial: out of range
        raise SpaceError(f"{what} does not fit the space: {error} Every parameter must be named.") from error


def encoded(space: Space, trial: FrozenTrial, *, is_own: bool) -> dict[str, Any]:
    """Return a trial's parameters as JSON values, options that are none by their number; and their distributions where
    these depend on the trial, or the space is the searcher's own and the record says nothing else of it.
    """
    from optuna.distributions import distribution_to_json

    params = {}
    for name, value in trial.params.items():
        params[name] = value if _is_plain(value) else {"choice": trial.distributions[name].to_internal_repr(value)}
    options = [option for one in trial.distributions.values() for option in getattr(one, "choices", ())]
    is_plain = all(option is None or type(option) in (bool, int, float, str) for option in options)
    if space.distributions and not (is_own and is_plain):
        return {"params": params}
    return {"params": params, "distributions": {n: distribution_to_json(d) for n, d in trial.distributions.items()}}


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def decoded(space: Space, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that `encoded` made JSON values of."""
    from optuna.distributions import json_to_distribution

    params = dict(state["params"])
    for name, value in params.items():
        if isinstance(value, Mapping):
            known = space.distributions.get(name) or json_to_distribution(state["distributions"][name])
            params[name] = known.to_external_repr(value["choice"])
    return params
