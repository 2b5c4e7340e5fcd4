"""The trials of a record as Optuna's: parameters with their distributions, states, values, what else is known."""

from __future__ import annotations

import datetime as dt
import json
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
from searchers.variants import fixed_domains, flatten, grid_values, matches
from sweep.core.history import Life
from sweep.core.messages import Suggested
from sweep.core.ranking import Objectives
from sweep.core.results import TrialResult, own_metrics
from sweep.core.results import flatten as flatten_result
from sweep.core.values import as_float, printed, shown, sound_text
from sweep.record.encoding import Opaque
from sweep.record.reader import ExperimentReader
from sweep.record.rows import TrialRow

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial


TRIAL_ID, REASON, ATTEMPTS = "trial_id", "reason", "attempts"
"""The user attributes that every trial has."""

CONFIG = "sweep:config"
"""The system attribute that holds the config as it was recorded, where that is not very long."""

_MOST_CONFIG = 20_000  # characters
_MOST_LABEL = 80  # characters of an option
_MOST_TEXT = 2000  # characters of a user attribute
_MOST_STEP = 2**31 - 1  # what databases of Optuna hold


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class _Computed:
    """Stands for a value that a function computes: whatever a config has there fits it."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


class RecordedSpace:
    """The space of a record as Optuna's distributions.

    Args:
        meta: of the experiment.

    Attributes:
        distributions: of every parameter that Optuna has a word for, by name as `OptunaSearch` gives them.
        constants: of the space, by flattened name.
    """

    def __init__(self, meta: Mapping[str, Any]) -> None:
        self._space = _without_grids(from_json(meta.get("domains") or ["dict"], Opaque, _Computed()))
        self.distributions: dict[str, BaseDistribution] = {}
        self.constants: dict[str, Any] = {}
        twice = set()
        for path, domain in fixed_domains(self._space):
            name = _name(path)
            if name in self.distributions:
                twice.add(name)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # said when the sweep's own searcher was built
                    self.distributions[name] = _readable(distribution_of(name, domain), domain)
            except (SpaceError, ValueError, OverflowError):
                continue  # normal, infinite, or bounds that Optuna does not take
        for name in twice:
            del self.distributions[name]

    def split(self, config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the parameters of a config by name, and its other values that are no constants of the space, by
        flattened name."""
        params: dict[str, Any] = {}
        rest: dict[str, Any] = {}
        self._walk(self._space, config, (), (), params, rest)
        return params, rest

    def _walk(
        self,
        node: Any,
        value: Any,
        path: tuple[Any, ...],
        place: tuple[Any, ...],
        params: dict[str, Any],
        rest: dict[str, Any],
    ) -> None:
        """Go through the space and a config side by side; `path` leads through the options of choices, `place` not."""
        if isinstance(node, Categorical):
            index = _index_of(node.categories, value)
            distribution: Any = self.distributions.get(_name(path))
            if index is None or distribution is None:
                rest[_name(place)] = value
                return
            params[_name(path)] = distribution.choices[index]
            self._walk(node.categories[index], value, (*path, index), place, params, rest)
        elif isinstance(node, Domain):
            distribution = self.distributions.get(_name(path))
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            is_param = distribution is not None and is_number and contains(distribution, value)
            (params if is_param else rest)[_name(path if is_param else place)] = value
        elif isinstance(node, Mapping) and isinstance(value, Mapping):
            for key, one in value.items():
                if key in node or (isinstance(one, Mapping) and one):
                    self._walk(node.get(key, {}), one, (*path, key), (*place, key), params, rest)
                else:
                    rest[_name((*place, key))] = one
        elif isinstance(node, (list, tuple)) and isinstance(value, (list, tuple)) and len(node) == len(value):
            for index, (inner, one) in enumerate(zip(node, value, strict=True)):
                self._walk(inner, one, (*path, index), (*place, index), params, rest)
        elif isinstance(node, _Computed) or not is_same(node, value):
            rest[_name(place)] = value


class RecordedTrials:
    """The trials of a record as Optuna's, as of the last call of `trials`.

    Args:
        reader: of the experiment.
        objectives: metric and mode of each, one or several.
    """

    def __init__(self, reader: ExperimentReader, objectives: Objectives) -> None:
        self._reader = reader
        self._objectives = objectives
        self._seq = -1  # of the last event that was read
        self._found: list[FrozenTrial] = []

    def trials(self) -> list[FrozenTrial]:
        """Return all trials in the order of their numbers; they are made anew when something has happened."""
        snapshot = self._reader.snapshot()
        if snapshot.seq != self._seq:
            space, lives, steps = RecordedSpace(snapshot.meta), self._reader.history().lives(), self._steps()
            first: dict[str, Any] = {}  # config, and the state of the searcher
            for fact in self._reader.facts(kinds=[Suggested]):
                match fact.event:
                    case Suggested(trial_id, config, _, state) if isinstance(config, Mapping):
                        first.setdefault(trial_id, (config, state or {}))
            self._found = [
                self._trial(row, number, space, lives[row.trial_id], steps, *first.get(row.trial_id, (row.config, {})))
                for number, row in enumerate(snapshot.trials)
            ]
            self._seq = snapshot.seq
        return self._found

    def _steps(self) -> dict[str, dict[int, float]]:
        """Return the values of each trial by step, of one objective: Optuna has none of several."""
        found: dict[str, dict[int, float]] = defaultdict(dict)
        if len(self._objectives) == 1:
            steps = {seq: value for _, seq, value in self._reader.values("training_iteration")}
            for trial_id, seq, value in self._reader.values(self._objectives[0][0]):
                step, number = steps.get(seq, -1), as_float(value)
                if number is not None and 0 <= step <= _MOST_STEP and step == int(step):
                    found[trial_id][int(step)] = number
        return found

    def _trial(
        self,
        row: TrialRow,
        number: int,
        space: RecordedSpace,
        life: Life,
        steps: Mapping[str, Mapping[int, float]],
        first: Mapping[str, Any],
        of_searcher: Mapping[str, Any],
    ) -> FrozenTrial:
        from optuna.trial import FrozenTrial, TrialState

        state, values = _state_of(row, self._values(row))
        params, rest = space.split(row.config)
        distributions = {name: space.distributions[name] for name in params}
        for name, value, distribution in _of_function(of_searcher, row.config, rest):
            params[name], distributions[name] = value, distribution
        begin = (life.started or life.created).wall
        last = begin if row.last_report is None else row.last_report.wall
        end = max(life.exited.wall if life.exited else begin, last, begin)
        return FrozenTrial(
            number=number,
            trial_id=number,
            state=TrialState[state],
            value=None,
            values=values,
            datetime_start=None if state == "WAITING" else _date(begin),
            datetime_complete=_date(end) if state in ("COMPLETE", "PRUNED", "FAIL") else None,
            params=params,
            distributions=distributions,
            user_attrs=self._attributes(row, rest, first, is_valued=values is not None),
            system_attrs=_config_text(row) | _constraints(row),
            intermediate_values=dict(steps.get(row.trial_id, {})),
        )

    def _values(self, row: TrialRow) -> list[float] | None:
        """Return the objectives by the last report; None where one is missing or NaN."""
        report = TrialResult({**(row.last_metrics or {}), "config": row.config})
        values = [as_float(report.get(metric)) for metric, _ in self._objectives]
        numbers = [value for value in values if value is not None and not math.isnan(value)]
        return numbers if row.last_seq is not None and len(numbers) == len(values) else None

    def _attributes(
        self, row: TrialRow, rest: Mapping[str, Any], first: Mapping[str, Any], *, is_valued: bool
    ) -> dict[str, Any]:
        shown_elsewhere = {metric for metric, _ in self._objectives} if is_valued else set()
        report = own_metrics(flatten_result(row.last_metrics or {}))
        found = {name: value for name, value in report.items() if name not in shown_elsewhere}
        found |= {f"config/{name}": value for name, value in rest.items()}
        if not is_same(first, row.config):  # PBT and its like change it
            before, now = _flat(first), _flat(row.config)
            changed = {name: value for name, value in before.items() if not is_same(value, now.get(name))}
            found |= {f"config_at_start/{name}": value for name, value in changed.items()}
        plain = {sound_text(printed(name))[:500]: _plain(value) for name, value in found.items()}
        return plain | {TRIAL_ID: row.trial_id, REASON: sound_text(row.reason)[:_MOST_TEXT], ATTEMPTS: row.attempt}


def _constraints(row: TrialRow) -> dict[str, Any]:
    """Return by how much the last report violates each constraint, as `OptunaSearch` keeps it."""
    limits = row.meta.get("constraints")
    if not isinstance(limits, Mapping) or not limits or not row.is_ended:
        return {}
    report = TrialResult(row.last_metrics or {})
    over = [(as_float(report.get(name)), as_float(most) or 0.0) for name, most in limits.items()]
    violations = [math.inf if value is None else value - most for value, most in over]
    return {CONSTRAINTS: [value if math.isfinite(value) else math.inf for value in violations]}


def _config_text(row: TrialRow) -> dict[str, Any]:
    return {CONFIG: row.config_text} if len(row.config_text) <= _MOST_CONFIG else {}


def _state_of(row: TrialRow, values: list[float] | None) -> tuple[str, list[float] | None]:
    """Return the name of a trial's state in Optuna, and its values there."""
    if row.status == "ERROR":
        return "FAIL", None
    if row.was_stopped_early:
        return "PRUNED", values if values is not None and len(values) == 1 else None  # of several Optuna takes none
    if row.status == "TERMINATED":
        return ("FAIL", None) if values is None else ("COMPLETE", values)
    return ("WAITING" if row.status == "PENDING" else "RUNNING"), None


def _of_function(
    state: Mapping[str, Any], config: Mapping[str, Any], rest: dict[str, Any]
) -> Iterator[tuple[str, Any, BaseDistribution]]:
    """Yield name, value and distribution of what a define-by-run function asked for, and take it from the rest."""
    from optuna.distributions import json_to_distribution

    texts = state.get("distributions")
    if not isinstance(texts, Mapping):
        return
    recorded = state.get("params")
    now = _flat(config)
    for name, text in texts.items():
        value = recorded.get(name) if isinstance(recorded, Mapping) else None
        try:
            distribution: Any = json_to_distribution(text)
            if isinstance(value, Mapping):
                value = distribution.to_external_repr(value["choice"])
        except (ValueError, KeyError, TypeError, IndexError):
            continue
        if name in now and not is_same(now[name], value) and contains(distribution, now[name]):
            value = now[name]
        if contains(distribution, value):
            rest.pop(name, None)
            yield name, value, distribution


def _index_of(options: Sequence[Any], value: Any) -> int | None:
    """Return the index of the option that a config has; None: it is none of them.

    Functions print with their address, which is another one in a run that continued the sweep.
    """
    exact = next((i for i, option in enumerate(options) if matches(option, value)), None)
    if exact is not None or not isinstance(value, Opaque):
        return exact
    alike = [i for i, option in enumerate(options) if isinstance(option, Opaque) and _named(option) == _named(value)]
    return alike[0] if len(alike) == 1 else None


def _readable(distribution: Any, domain: Domain) -> BaseDistribution:
    """Return a choice in which objects go by how they print, in place of their number, where that tells them apart."""
    from optuna.distributions import CategoricalDistribution

    if isinstance(domain, Categorical) and isinstance(distribution, CategoricalDistribution):
        pairs = zip(distribution.choices, domain.categories, strict=True)
        names = [_named(option) if isinstance(option, Opaque) else choice for choice, option in pairs]
        if len(set(names)) == len(names) and all(len(str(name)) <= _MOST_LABEL for name in names):
            return CategoricalDistribution(names)
    found: BaseDistribution = distribution
    return found


def _named(value: Opaque) -> str:
    return _ADDRESS.sub("", value.text)


def _without_grids(node: Any) -> Any:
    """Return a space whose grids are choices."""
    if isinstance(node, Categorical):
        return Categorical([_without_grids(option) for option in node.categories])
    if isinstance(node, Mapping):
        try:
            values = grid_values(node)
        except SpaceError:
            values = None
        if values is not None:
            return Categorical([_without_grids(value) for value in values])
        return {key: _without_grids(one) for key, one in node.items()}
    return type(node)(map(_without_grids, node)) if type(node) in (list, tuple) else node


def _name(path: tuple[Any, ...]) -> str:
    """Return a path as one name, as `searchers.variants.path_name`, also where it could not be taken apart again."""
    return "/".join(map(printed, path))


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return flatten(config)
    except SpaceError:
        return {printed(key): value for key, value in config.items()}


def _plain(value: Any) -> Any:
    """Return a value as JSON has it, unless it has none for it or needs a long text; else how it prints."""
    try:
        text = json.dumps(value, allow_nan=False)
        return json.loads(text) if len(text) <= _MOST_TEXT else shown(value, _MOST_TEXT)
    except (ValueError, TypeError, RecursionError):
        return shown(value, _MOST_TEXT)


def _date(wall: float) -> dt.datetime:
    """Return a time in UTC epoch seconds as Optuna has it: local, without a zone."""
    try:
        return dt.datetime.fromtimestamp(wall)
    except (ValueError, OverflowError, OSError):
        return dt.datetime.fromtimestamp(0)
