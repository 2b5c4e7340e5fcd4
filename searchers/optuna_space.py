"""A search space as Optuna sees it: distributions, define-by-run, and the way back to nested configs."""

from __future__ import annotations

import copy
import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from searchers.base import Config
from searchers.errors import SearchError, SpaceError, nearest
from searchers.space import Categorical, Domain, Float, Function, Integer, LogUniform, Normal, Quantized, is_same
from searchers.variants import (
    Path,
    check_space,
    fixed_domains,
    flatten,
    fresh,
    has_domains,
    merge,
    path_name,
    refuse_grids,
    resolve,
    unflatten,
    walk,
)

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import BaseTrial, FrozenTrial

    AnySpace = Mapping[str, Any] | Mapping[str, BaseDistribution] | Callable[[BaseTrial], Mapping[str, Any] | None]

__all__ = ["FunctionSpace", "Space", "check_used", "encoded", "space_of", "study_trial"]


class Space(Protocol):
    """What a search needs of its space."""

    is_conditional: bool
    is_discrete: bool  # every parameter has finitely many values, as far as is known without a trial

    def suggest(self, trial: BaseTrial) -> Config:
        """Return a config, asking `trial` for every parameter."""

    def fix(self, point: Mapping[str, Any]) -> tuple[dict[str, Any], Space]:
        """Return the parameters that `point` gives, and the space with everything else that it gives in it."""

    def distribution(self, name: str) -> BaseDistribution | None:
        """Return the distribution of a parameter where it is known without a trial."""


class _DomainSpace:
    """A nested dict of domains. A choice among dicts is a parameter of its own, and the domains of the chosen dict are
    parameters that exist only then: `model` (which option), `model/1/lr` (the learning rate of option 1)."""

    def __init__(self, space: Mapping[str, Any], options: dict[str, list[Any]] | None = None) -> None:
        refuse_grids(check_space(space), "OptunaSearch")
        self._space = space
        self._labels: dict[str, list[Any]] = {}
        top = {path_name(path) for path, _ in _top_domains(space)}
        names: set[str] = set()
        self.is_discrete = True
        for path, domain in fixed_domains(space):
            name = path_name(path)
            if name in names:
                raise SpaceError(f"two parameters of the space are called {name!r}; rename one.")
            names.add(name)
            if isinstance(domain, Categorical):
                self._labels[name] = options[name] if options and name in options else _labels(domain.categories)
            if not _is_finite(_distribution(name, domain, self._labels.get(name))):
                self.is_discrete = False
        self.is_conditional = not names <= top

    def distribution(self, name: str) -> BaseDistribution | None:
        return None

    def suggest(self, trial: BaseTrial) -> Config:
        def decide(path: Path, domain: Domain) -> Any:
            name = path_name(path)
            if not isinstance(domain, Categorical):
                value = _ask(trial, name, _distribution(name, domain, None))
                return domain.quantize(value) if isinstance(domain, (Float, Integer)) else value
            labels = self._labels.get(name) or _labels(domain.categories)
            return labels.index(_ask(trial, name, _distribution(name, domain, labels)))

        return resolve(self._space, decide)

    def fix(self, point: Mapping[str, Any]) -> tuple[dict[str, Any], Space]:
        params: dict[str, Any] = {}
        filled = self._fix(self._space, _nested(point, self._space), (), params)
        return params, _DomainSpace(filled, self._labels)

    def _fix(self, node: Any, value: Any, path: Path, params: dict[str, Any]) -> Any:
        """Put `value` into `node`: parameters into `params`, anything else into the returned space."""
        if isinstance(node, Categorical):
            return self._fix_choice(node, value, path, params)
        if isinstance(node, Domain) and not isinstance(node, Function):
            name = path_name(path)
            params[name] = _checked(name, _distribution(name, node, None), value)
            return node
        if isinstance(node, Mapping) and isinstance(value, Mapping):
            filled = dict(node)
            for key, one in value.items():
                if key not in node:
                    raise SpaceError(
                        f"the point names {path_name((*path, key))!r}, which the space does not have. "
                        f"{nearest(str(key), map(str, node))}"
                    )
                filled[key] = self._fix(node[key], one, (*path, key), params)
            return filled
        if isinstance(node, (list, tuple)) and has_domains(node):
            if not isinstance(value, (list, tuple)) or len(value) != len(node):
                raise SpaceError(f"the point sets {path_name(path)} to {value!r}; expected {len(node)} values.")
            items = [self._fix(a, b, (*path, i), params) for i, (a, b) in enumerate(zip(node, value, strict=True))]
            return items if isinstance(node, list) else tuple(items)
        return fresh(value)

    def _fix_choice(self, node: Categorical, value: Any, path: Path, params: dict[str, Any]) -> Categorical:
        name = path_name(path)
        index = next((i for i, option in enumerate(node.categories) if _fits(option, value)), None)
        if index is None:
            raise SpaceError(f"the point sets {name} to {value!r}, which is not among {node.domain_str}.")
        params[name] = self._labels[name][index]
        filled = copy.copy(node)
        filled.categories = list(node.categories)
        filled.categories[index] = self._fix(node.categories[index], value, (*path, index), params)
        return filled


class _DistributionSpace:
    """A dict of names and Optuna distributions; a `/` in a name makes a nested config."""

    is_conditional = False

    def __init__(self, space: Mapping[str, BaseDistribution]) -> None:
        self._space = dict(space)
        self.is_discrete = all(map(_is_finite, space.values()))
        unflatten(dict.fromkeys(space))  # refuses names that clash

    def distribution(self, name: str) -> BaseDistribution | None:
        return self._space.get(name)

    def suggest(self, trial: BaseTrial) -> Config:
        return unflatten({name: _ask(trial, name, distribution) for name, distribution in self._space.items()})

    def fix(self, point: Mapping[str, Any]) -> tuple[dict[str, Any], Space]:
        params = flatten(_nested(point, {}))
        for name, value in params.items():
            if name not in self._space:
                raise SpaceError(
                    f"the point names {name!r}, which the space does not have. {nearest(name, self._space)}"
                )
            params[name] = _checked(name, self._space[name], value)
        return params, self


class FunctionSpace:
    """A function that asks the trial for its parameters (define by run) and may return a dict of constants."""

    is_conditional = True
    is_discrete = False

    def __init__(self, function: Callable[[BaseTrial], Mapping[str, Any] | None]) -> None:
        self._function = function

    def distribution(self, name: str) -> BaseDistribution | None:
        return None

    def suggest(self, trial: BaseTrial) -> Config:
        constants = self._function(trial)
        if constants is None:
            constants = {}
        if not isinstance(constants, Mapping) or not all(isinstance(key, str) for key in constants):
            raise SearchError(
                f"the define-by-run function returned {constants!r}; expected None or a dict of constants with string "
                "keys. Parameters come from trial.suggest_float and its like."
            )
        return merge(constants, unflatten(trial.params))

    def fix(self, point: Mapping[str, Any]) -> tuple[dict[str, Any], Space]:
        return flatten(_nested(point, {})), self


def space_of(space: Any) -> Space:
    """Tell the three forms of a space apart."""
    from optuna.distributions import BaseDistribution

    if callable(space) and not isinstance(space, (Domain, type)):
        return FunctionSpace(space)
    if isinstance(space, Mapping) and any(isinstance(value, BaseDistribution) for value in space.values()):
        for name, value in space.items():
            if not isinstance(value, BaseDistribution) or not isinstance(name, str):
                raise SpaceError(
                    f"{name!r} is {value!r} while other values of the space are Optuna distributions; "
                    "make all of them distributions, or use uniform, choice ... for all."
                )
        return _DistributionSpace(space)
    return _DomainSpace(check_space(space))


def _top_domains(space: Any) -> list[tuple[Path, Domain]]:
    """Return the domains that exist in every config: those not within an option of a choice."""
    return [(path, leaf) for path, leaf in walk(space) if isinstance(leaf, Domain)]


def _distribution(name: str, domain: Domain, labels: Sequence[Any] | None) -> BaseDistribution:
    """Return a domain as an Optuna distribution; a quantized log range is rounded after the suggestion."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(domain, Categorical):
        return CategoricalDistribution(_labels(domain.categories) if labels is None else labels)
    sampler = domain.get_sampler()
    base, q = (sampler.sampler, sampler.q) if isinstance(sampler, Quantized) else (sampler, None)
    is_log = isinstance(base, LogUniform)
    if isinstance(domain, Integer):
        step = 1 if q is None or is_log else int(q)
        return IntDistribution(domain.first, domain.last, log=is_log, step=step)
    if isinstance(domain, Float) and not isinstance(base, Normal) and math.isfinite(domain.upper - domain.lower):
        step_size = None if q is None or is_log else float(q)
        return FloatDistribution(float(domain.lower), float(domain.upper), log=is_log, step=step_size)
    raise SpaceError(
        f"{name} is {domain!r}; Optuna has only ranges with two finite bounds. Use uniform(mean - 2 * sd, "
        "mean + 2 * sd) in place of randn, or the searcher 'random'."
    )


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


def _checked(name: str, distribution: BaseDistribution, value: Any) -> Any:
    """Return `value` if the distribution holds it; Optuna itself would only warn."""
    try:
        is_inside = distribution._contains(distribution.to_internal_repr(value))
    except (ValueError, TypeError):  # not a number, not among the choices
        is_inside = False
    if not is_inside:
        raise SpaceError(f"the point sets {name} to {value!r}, which is outside {distribution}.")
    return value


_LARGEST = 1e308  # Optuna makes floats of numbers


def _labels(options: Sequence[Any]) -> list[Any]:
    """Return what stands for each option in the study: itself if that is a plain value, else a text.

    Optuna finds an option by equality, so options that are equal (a weighted choice, 1 and True) need names too.
    """
    plain = all(option is None or isinstance(option, (bool, int, float, str)) for option in options)
    plain = plain and all(not isinstance(option, int) or abs(option) < _LARGEST for option in options)
    if plain and all(options.index(option) == i and option == option for i, option in enumerate(options)):
        return list(options)
    texts = [_text(option) for option in options]
    return [text if text is not None and texts.count(text) == 1 else f"option {i}" for i, text in enumerate(texts)]


def _text(option: Any) -> str | None:
    try:
        text = json.dumps(option)
    except (TypeError, ValueError):  # objects, domains
        return None
    return text if len(text) <= 80 else None


def _fits(option: Any, value: Any) -> bool:
    """Whether `value` may stand for `option` of a choice; of a dict it may leave keys out."""
    if isinstance(option, Categorical):
        return any(_fits(one, value) for one in option.categories)
    if isinstance(option, Domain):
        return option.is_valid(value)
    if isinstance(option, Mapping) and isinstance(value, Mapping):
        return value.keys() <= option.keys() and all(_fits(option[key], value[key]) for key in value)
    if isinstance(option, (list, tuple)) and isinstance(value, (list, tuple)):
        return len(option) == len(value) and all(map(_fits, option, value))
    return is_same(option, value)


def _nested(point: Mapping[str, Any], space: Mapping[str, Any]) -> Config:
    """Return a point with its `a/b` names taken apart, where the space has no such key itself."""
    nested: Config = {}
    for key, value in point.items():
        is_name = isinstance(key, str) and "/" in key and key not in space
        nested = merge(nested, unflatten({key: value}) if is_name else {key: value})
    return nested


# --- trials of the study ----------------------------------------------------------------------------------------------


def check_used(point: Mapping[str, Any] | None, params: Mapping[str, Any]) -> None:
    for name, value in (point or {}).items():
        if name not in params:
            raise SpaceError(
                f"points_to_evaluate names {name!r}, which the space did not ask for. {nearest(name, params)}"
            )
        if not is_same(params[name], value):
            raise SpaceError(f"points_to_evaluate sets {name} to {value!r}, but the space made it {params[name]!r}.")


def study_trial(
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


def encoded(trial: Any, name: str) -> Any:
    """Return a parameter as a JSON value; an option that is none as its number."""
    value = trial.params[name]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return {"choice": trial.distributions[name].to_internal_repr(value)}
