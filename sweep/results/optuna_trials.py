"""The trials of a record as Optuna's: parameters with their distributions, states, values, what else is known."""

from __future__ import annotations

import datetime as dt
import math
import re
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from searchers.errors import SpaceError
from searchers.optuna_samplers import CONSTRAINTS
from searchers.optuna_space import contains, distribution_of
from searchers.space import Categorical, Domain, from_json, is_same
from searchers.variants import fixed_domains, grid_values, matches, rebuilt
from sweep.core.literals import jsonable
from sweep.core.messages import Suggested
from sweep.core.ranking import Objectives
from sweep.core.results import TrialResult, flatten, own_metrics
from sweep.core.values import as_float, printed, sound_text
from sweep.record.encoding import Opaque
from sweep.record.reader import ExperimentReader
from sweep.record.rows import TrialRow
from sweep.results.frames import optuna_state

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial


TRIAL_ID = "trial_id"  # the user attribute that says which trial it is
CONFIG = "sweep:config"  # the system attribute that holds the config as it was recorded
_MOST_LABEL = 80  # characters of an option
_MOST_NAME, _MOST_STEP = 500, 2**31 - 1  # what databases of Optuna hold
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_COMPUTED = object()  # stands for what a function computes, and for what the space does not have


class _Space:
    """The space of a record as Optuna's distributions, by name as `OptunaSearch` gives them."""

    def __init__(self, meta: Mapping[str, Any]) -> None:
        self.root = _without_grids(from_json(meta.get("domains") or ["dict"], Opaque, _COMPUTED))
        self.distributions: dict[str, BaseDistribution] = {}
        for path, domain in fixed_domains(self.root):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # said when the sweep's own searcher was built
                    self.distributions[_name(path)] = _labelled(distribution_of(_name(path), domain), domain)
            except (SpaceError, ValueError, OverflowError):
                continue  # normal, infinite, or bounds that Optuna does not take

    def split(
        self, node: Any, value: Any, path: tuple[Any, ...] = (), place: tuple[Any, ...] = ()
    ) -> Iterator[tuple[bool, str, Any]]:
        """Give what a config has other than the constants of the space: whether it is a parameter, name and value.

        Goes through both side by side; `path` leads through the options of choices, `place` does not.
        """
        distribution: Any = self.distributions.get(_name(path)) if isinstance(node, Domain) else None
        if distribution is not None and isinstance(node, Categorical):
            index = _index_of(node.categories, value)
            if index is None:
                yield False, _name(place), value
                return
            yield True, _name(path), distribution.choices[index]
            yield from self.split(node.categories[index], value, (*path, index), place)
        elif distribution is not None and type(value) in (int, float) and contains(distribution, value):
            yield True, _name(path), value
        elif isinstance(node, Mapping) and isinstance(value, Mapping):
            for key, one in value.items():
                inner = node.get(key, {} if one and isinstance(one, Mapping) else _COMPUTED)
                yield from self.split(inner, one, (*path, key), (*place, key))
        elif isinstance(node, (list, tuple)) and isinstance(value, (list, tuple)) and len(node) == len(value):
            for index, pair in enumerate(zip(node, value, strict=True)):
                yield from self.split(*pair, (*path, index), (*place, index))
        elif not is_same(node, value):
            yield False, _name(place), value


def frozen_trials(reader: ExperimentReader, objectives: Objectives) -> list[FrozenTrial]:
    """Return all trials of a record in the order of their numbers."""
    from optuna.trial import FrozenTrial, TrialState

    snapshot, lives = reader.snapshot(), reader.history().lives()
    space, steps = _Space(snapshot.meta), _steps(reader, objectives)
    first: dict[str, Suggested] = {}
    for fact in reader.facts(kinds=[Suggested]):
        if isinstance(fact.event, Suggested) and isinstance(fact.event.config, Mapping):
            first.setdefault(fact.event.trial_id, fact.event)
    found = []
    for number, row in enumerate(snapshot.trials):
        values, life, suggested = _values(row, objectives), lives[row.trial_id], first.get(row.trial_id)
        state = optuna_state(row, values is not None)
        if state not in ("COMPLETE", "PRUNED") or (state == "PRUNED" and len(objectives) > 1):
            values = None  # of several that were stopped early Optuna takes none
        begin = (life.started or life.created).wall
        end = max([begin, *(one.wall for one in (life.exited, row.last_report) if one is not None)])
        params, distributions, attributes = _params(space, row, suggested)
        shown = {metric for metric, _ in objectives} if values is not None else ()
        report = own_metrics(flatten(row.last_metrics or {}))
        attributes |= {name: value for name, value in report.items() if name not in shown}
        trial = FrozenTrial(
            number=number,
            trial_id=number,
            state=TrialState[state],
            value=None,
            values=values,
            datetime_start=None if state == "WAITING" else dt.datetime.fromtimestamp(begin),
            datetime_complete=dt.datetime.fromtimestamp(end) if TrialState[state].is_finished() else None,
            params=params,
            distributions=distributions,
            user_attrs={sound_text(name)[:_MOST_NAME]: jsonable(value) for name, value in attributes.items()}
            | {TRIAL_ID: row.trial_id, "reason": sound_text(row.reason), "attempts": row.attempt},
            system_attrs={CONFIG: row.config_text} | _constraints(row),
            intermediate_values=steps[row.trial_id],
        )
        found.append(trial)
    return found


def _params(
    space: _Space, row: TrialRow, first: Suggested | None
) -> tuple[dict[str, Any], dict[str, BaseDistribution], dict[str, Any]]:
    """Return the parameters of a trial, their distributions, and what else is to be said of its config."""
    from optuna.distributions import json_to_distribution

    params: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for is_param, name, value in space.split(space.root, row.config):
        (params if is_param else rest)[name] = value
    distributions = {name: space.distributions[name] for name in params}
    state = (first and first.state) or {}
    for name, text in (state.get("distributions") or {}).items():  # of a define-by-run function
        asked: Any = json_to_distribution(text)
        value = state["params"][name]
        params[name] = asked.to_external_repr(value["choice"]) if isinstance(value, Mapping) else value
        distributions[name] = asked
        rest.pop(name, None)
    said = {f"config/{name}": value for name, value in rest.items()}
    now, before = flatten(row.config), flatten(first.config) if first and isinstance(first.config, Mapping) else {}
    changed = {name: value for name, value in before.items() if not is_same(value, now.get(name))}
    return params, distributions, said | {f"config_at_start/{name}": value for name, value in changed.items()}


def _steps(reader: ExperimentReader, objectives: Objectives) -> dict[str, dict[int, float]]:
    """Return the values of each trial by step, of one objective: Optuna has none of several."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    if len(objectives) == 1:
        steps = {seq: value for _, seq, value in reader.values("training_iteration")}
        for trial_id, seq, value in reader.values(objectives[0][0]):
            step, number = steps.get(seq, -1), as_float(value)
            if number is not None and 0 <= step <= _MOST_STEP and step == int(step):
                found[trial_id][int(step)] = number
    return found


def _values(row: TrialRow, objectives: Objectives) -> list[float] | None:
    """Return the objectives by the last report; None where one is missing or NaN."""
    report = TrialResult({**(row.last_metrics or {}), "config": row.config})
    values = [as_float(report.get(metric)) for metric, _ in objectives]
    numbers = [value for value in values if value is not None and not math.isnan(value)]
    return numbers if row.last_seq is not None and len(numbers) == len(values) else None


def _constraints(row: TrialRow) -> dict[str, Any]:
    """Return by how much the last report violates each constraint, as `OptunaSearch` keeps it."""
    limits = row.meta.get("constraints")
    if not isinstance(limits, Mapping) or not limits or not row.is_ended:
        return {}
    report = TrialResult(row.last_metrics or {})
    over = [(as_float(report.get(name)), as_float(most) or 0.0) for name, most in limits.items()]
    violations = [math.inf if value is None else value - most for value, most in over]
    return {CONSTRAINTS: [value if math.isfinite(value) else math.inf for value in violations]}


def _labelled(distribution: BaseDistribution, domain: Domain) -> BaseDistribution:
    """Return a choice in which objects go by how they print, in place of their number, where that tells them apart."""
    from optuna.distributions import CategoricalDistribution

    if isinstance(domain, Categorical) and isinstance(distribution, CategoricalDistribution):
        pairs = zip(distribution.choices, domain.categories, strict=True)
        names = [_anonymous(option).text if isinstance(option, Opaque) else choice for choice, option in pairs]
        if len(set(names)) == len(names) and all(len(str(name)) <= _MOST_LABEL for name in names):
            return CategoricalDistribution(names)
    return distribution


def _index_of(options: Sequence[Any], value: Any) -> int | None:
    """Return the index of the option that a config has, the same or one that prints alike; None: it is none of them."""
    exact = next((i for i, option in enumerate(options) if matches(option, value)), None)
    alike = (i for i, option in enumerate(options) if matches(_anonymous(option), _anonymous(value)))
    return next(alike, None) if exact is None else exact


def _anonymous(value: Any) -> Any:
    """Return a value whose functions print without their address, which is another one in a later run."""
    return Opaque(_ADDRESS.sub("", value.text)) if isinstance(value, Opaque) else rebuilt(value, _anonymous)


def _without_grids(node: Any) -> Any:
    """Return a space whose grids are choices."""
    try:
        values = grid_values(node)
    except SpaceError:  # a key of the user's own
        values = None
    if isinstance(node, Categorical) or values is not None:
        return Categorical([_without_grids(value) for value in values or node.categories])
    return rebuilt(node, _without_grids)


def _name(path: tuple[Any, ...]) -> str:
    """Return a path as one name, as `searchers.variants.path_name`, also where it could not be taken apart again."""
    return "/".join(map(printed, path))
