"""Search with Hyperopt's tree of Parzen estimators."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from searchers import checks
from searchers.base import Config, Signal, derived_seed
from searchers.errors import SpaceError, nearest
from searchers.history import HistorySearch, Tried, load
from searchers.keywords import refuse_unknown
from searchers.named_space import DomainSpace, Range, Values
from searchers.space import Categorical, Domain, Float, Function, Integer, Normal
from searchers.variants import Path, check_space, fixed_domains, flatten, has_domains, path_name, rebuilt, walk


@refuse_unknown({"max_concurrent": "Give max_concurrent_trials to run() or to TuneConfig."})
class HyperOptSearch(HistorySearch):
    """Suggest configs with Hyperopt's tree of Parzen estimators (TPE). Needs the package hyperopt.

    Suggestion n depends on the space, the seed, n and the results. Trials that go on count as bad points, so that
    parallel ones keep apart; so do those that ended with NaN or without the metric. A failed trial teaches nothing.

    Args:
        space: nested dict of domains, in which a choice among dicts is a conditional space; or nested dict of `hp`
            expressions of Hyperopt. None: that of the run.
        metric, mode: what is optimised, "min" or "max".
        points_to_evaluate: (partial) configs to suggest first, nested or with names such as `model/lr`. With `hp`
            expressions: dicts of labels, for `hp.choice` the index of the option.
        n_initial_points: how many points are drawn at random before the model begins; int of at least 0.
        random_state_seed: int of at least 0; None: the seed of the run.
        gamma: share of the points that the model takes as good ones, above 0 and below 1.

    Raises:
        SpaceError: the space holds a grid or an infinite range, or a point does not fit it.
        SearchError: another argument is wrong; when the space is known: hyperopt is missing.

    Source: Bergstra et al. 2011, NeurIPS, through the package hyperopt. Departures: the package is given the whole
    history anew for each suggestion, with random numbers of its own for each, so that a restart changes nothing.
    """

    def __init__(
        self,
        space: Mapping[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        n_initial_points: int = 20,
        random_state_seed: int | None = None,
        gamma: float = 0.25,
    ) -> None:
        super().__init__(space, metric, mode, points_to_evaluate, random_state_seed, "random_state_seed")
        self._n_initial_points = checks.whole("n_initial_points", n_initial_points)
        self._gamma = checks.number("gamma", gamma, above=0, below=1)
        self._domain: Any = None

    @staticmethod
    def convert_search_space(spec: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
        """Return a space with `hp` expressions of Hyperopt in place of its domains, constants as they are.

        Args:
            prefix: in front of the expressions' labels, which are paths such as `model/lr`.

        Raises:
            SpaceError: the space holds a grid, a function of the config, or an infinite range.
            SearchError: hyperopt is missing.
        """
        hyperopt = load("hyperopt", "hyperopt", "HyperOptSearch")
        DomainSpace(spec, "HyperOptSearch")  # its checks
        converted: dict[str, Any] = _converted(hyperopt, spec, (prefix,) if prefix else ())
        return converted

    def _read(self, space: Any) -> DomainSpace:
        hyperopt = load("hyperopt", "hyperopt", "HyperOptSearch")
        if _is_expression(space):
            raise SpaceError(
                "the space is one hp expression; expected a dict of them, such as {'lr': hp.uniform('lr', 0, 1)}."
            )
        expressions = [leaf for _, leaf in walk(check_space(space)) if _is_expression(leaf)]
        if expressions and has_domains(space):
            raise SpaceError(
                "the space holds hp expressions of Hyperopt and domains such as uniform; write all in one way."
            )
        if expressions:
            self._domain = hyperopt.Domain(None, dict(space))
            return _ExpressionSpace(space, self._domain, hyperopt)
        taken = DomainSpace(space, "HyperOptSearch")
        self._domain = hyperopt.Domain(None, _expression(hyperopt, space, ()))
        return taken

    def _propose(self, number: int) -> Values | Signal:
        space = self._known_space()
        if not self._domain.params:
            return {}
        hyperopt = load("hyperopt", "hyperopt", "HyperOptSearch")
        history = [tried for tried in self._history() if tried.end != "error"]
        with warnings.catch_warnings(action="ignore"):
            suggested = hyperopt.tpe.suggest(
                [len(history)],
                self._domain,
                self._trials(hyperopt, history),
                derived_seed(self._seed, number),
                n_startup_jobs=max(1, self._n_initial_points),  # the model cannot begin with nothing
                gamma=self._gamma,
                verbose=False,
            )
        values = {name: drawn[0] for name, drawn in suggested[0]["misc"]["vals"].items() if len(drawn)}
        return {name: _brought_in(space.parameters.get(name), value) for name, value in values.items()}

    def _trials(self, hyperopt: Any, history: Sequence[Tried]) -> Any:
        """Return the history as Hyperopt keeps it; it takes a trial without a loss as the worst."""
        ids = list(range(len(history)))
        trials = hyperopt.Trials()
        results, miscs = [], []
        for tid, tried in enumerate(history):
            results.append({"status": "fail"} if tried.loss is None else {"status": "ok", "loss": tried.loss})
            vals = {name: [tried.values[name]] if name in tried.values else [] for name in self._domain.params}
            idxs = {name: [tid] * len(one) for name, one in vals.items()}
            miscs.append({"tid": tid, "cmd": self._domain.cmd, "workdir": None, "idxs": idxs, "vals": vals})
        documents = trials.new_trial_docs(ids, [None] * len(ids), results, miscs)
        for document in documents:
            document["state"] = hyperopt.JOB_STATE_DONE
        return hyperopt.trials_from_docs(documents)


class _ExpressionSpace(DomainSpace):
    """A nested dict of `hp` expressions; what is searched are their labels."""

    def __init__(self, space: Mapping[str, Any], domain: Any, hyperopt: Any) -> None:
        super().__init__({}, "HyperOptSearch")
        self._space = dict(space)
        self._domain = domain
        self._hyperopt = hyperopt

    def config(self, values: Values, filled: Any, rng: np.random.Generator) -> tuple[Config, Values]:
        if filled is not None:  # a point: a random value for each label that is missing, needed or not
            missing = {name: node for name, node in self._domain.params.items() if name not in values}
            sample = self._hyperopt.pyll.stochastic.sample
            values = {name: np.asarray(sample(node, rng)).item() for name, node in missing.items()} | values
        with warnings.catch_warnings(action="ignore"):
            config = self._hyperopt.space_eval(self._space, values)
        return _plain(config), values

    def fix(self, point: Mapping[str, Any]) -> tuple[Values, Any]:
        values = point if point.keys() <= self._domain.params.keys() else flatten(point)
        for name, value in values.items():
            if name not in self._domain.params:
                raise SpaceError(
                    f"the point names {name!r}, which is no label of the space. {nearest(name, self._domain.params)}"
                )
            if not checks.is_number(value):
                raise SpaceError(
                    f"the point sets {name} to {value!r}; expected a number, for hp.choice the index of the option."
                )
        return dict(values), point


def _is_expression(value: Any) -> bool:
    return type(value).__module__.split(".")[:2] == ["hyperopt", "pyll"]


def _expression(hyperopt: Any, node: Any, path: Path) -> Any:
    """Return the domains of a space as nested `hp` expressions; functions are left out."""
    if isinstance(node, Categorical):
        options = [_expression(hyperopt, option, (*path, i)) for i, option in enumerate(node.categories)]
        return hyperopt.hp.choice(path_name(path), options)
    if isinstance(node, (Float, Integer)):
        return _number(hyperopt.hp, path_name(path), node)
    items = node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, (list, tuple)) else ()
    return [_expression(hyperopt, one, (*path, key)) for key, one in items if fixed_domains(one)]


def _converted(hyperopt: Any, node: Any, path: Path) -> Any:
    """Return a space as it is, with `hp` expressions in place of its domains; whole numbers come as such."""
    if isinstance(node, Function):
        name = path_name(path)
        raise SpaceError(f"{name} is a function of the config, for which Hyperopt has no expression. Leave it out.")
    if isinstance(node, Categorical):
        options = [_converted(hyperopt, option, (*path, i)) for i, option in enumerate(node.categories)]
        return hyperopt.hp.choice(path_name(path), options)
    if isinstance(node, (Float, Integer)):
        number = _number(hyperopt.hp, path_name(path), node)
        return hyperopt.pyll.scope.int(number) if isinstance(node, Integer) else number
    if isinstance(node, Mapping):
        return {key: _converted(hyperopt, one, (*path, key)) for key, one in node.items()}
    if isinstance(node, (list, tuple)):
        return type(node)(_converted(hyperopt, one, (*path, i)) for i, one in enumerate(node))
    return node


def _number(hp: Any, name: str, domain: Float | Integer) -> Any:
    """Return a range as an `hp` expression; integers are rounded numbers, so that 3 lies between 2 and 4."""
    base, q = domain.base_and_q()
    step = domain.step if isinstance(domain, Integer) else q
    if isinstance(base, Normal):
        kind, first, second = "normal", base.mean, base.sd
    else:
        ends = Range(domain)
        kind, first, second = "loguniform" if ends.is_log else "uniform", ends.low, ends.high
    if step is None:
        return getattr(hp, kind)(name, first, second)
    return getattr(hp, f"q{kind}")(name, first, second, step)


def _brought_in(domain: Domain | None, value: Any) -> Any:
    """Return a value that Hyperopt suggested, as one of its domain."""
    value = _plain(value)
    if isinstance(domain, Float):
        return float(min(max(domain.quantize(value), domain.lower), domain.upper))
    if isinstance(domain, Integer):
        return domain.quantize(value)
    return value if domain is None else int(value)


def _plain(value: Any) -> Any:
    """Return a value with numpy's numbers as Python's."""
    return value.item() if isinstance(value, np.generic) else rebuilt(value, _plain)
