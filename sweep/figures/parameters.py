"""The parameters of an experiment as axes: numbers, logarithms or categories, and what some trials lack."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from searchers.errors import nearest
from searchers.space import Categorical, Float, Integer, LogUniform, from_json
from sweep import checks
from sweep.core.literals import evaluated_params
from sweep.core.ranking import rankable
from sweep.core.results import flatten
from sweep.core.values import printed, shown_range
from sweep.errors import ConfigError
from sweep.figures.style import plain
from sweep.record.encoding import Opaque
from sweep.record.reader import ExperimentReader
from sweep.record.rows import TrialRow, variables_of

_MOST_CATEGORIES = 20
_MOST_NAMED = 5
_OTHERS = "others"
_LOG_RATIO = 100.0  # of a parameter whose space is not known


@dataclass(frozen=True)
class Parameter:
    """One parameter of some trials."""

    name: str  # flattened, such as `opt/lr`
    values: tuple[float | None, ...]  # numbers, or places of categories; None: missing, or no finite number
    labels: tuple[str, ...] | None  # of the categories, all different; None: it is numeric
    is_log: bool  # whether its axis is logarithmic
    is_whole: bool = False  # whether all are whole numbers

    @property
    def title(self) -> str:
        """The name for people."""
        return plain(self.name, 32)

    @property
    def num_missing(self) -> int:
        """How many trials lack it."""
        return sum(value is None for value in self.values)

    @property
    def is_constant(self) -> bool:
        """Whether all trials have the same value."""
        return len(set(self.values)) < 2


def varying_names(reader: ExperimentReader, rows: Sequence[TrialRow]) -> list[str]:
    """Return the flattened names of the parameters that the space varies, as they first appear.

    Where the record does not say what varies, it is those that have several values, or all if none has.
    """
    variables = variables_of(reader.meta)
    named = dict.fromkeys(name for row in rows for name in evaluated_params(row.config, variables or ()))
    if named:
        return list(named)
    flats = [flatten(row.config) for row in rows]
    names = dict.fromkeys(name for flat in flats for name in flat)
    return [name for name in names if len({_key(flat.get(name, _MISSING)) for flat in flats}) > 1] or list(names)


def parameters(
    reader: ExperimentReader, rows: Sequence[TrialRow], names: Sequence[str] | None, *, most: int
) -> tuple[list[Parameter], list[str]]:
    """Return the named parameters of some trials, or up to `most` that vary, and what is to be said of others."""
    flats = [flatten(row.config) for row in rows]
    if names is not None:
        return [parameter_of(reader, name, flats) for name in named_parameters(names, flats)], []
    wanted = varying_names(reader, rows)
    if not wanted:
        raise ConfigError(f"the trials of {reader.name} have empty configs, so there is no parameter to show.")
    found = [parameter_of(reader, name, flats) for name in wanted]
    varied = [one for one in found if not one.is_constant]
    notes = []
    if 0 < len(varied) < len(found):
        same = [one.title for one in found if one.is_constant]
        more = f" and {len(same) - _MOST_NAMED} more" if len(same) > _MOST_NAMED else ""
        notes.append(f"Left out, as the same in all trials: {', '.join(same[:_MOST_NAMED])}{more}.")
    if len(varied) > most:
        notes.append(f"The first {most} of {len(varied)} parameters; params=[...] chooses others.")
    return (varied or found)[:most], notes


def named_parameters(names: Any, configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names that the user gave, one or several, each of which some of these flattened configs have."""
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, (list, tuple)) or not names:
        checks.refuse("params", names, "a list of flattened names of parameters, such as ['lr', 'opt/momentum']")
    known = list(dict.fromkeys(name for config in configs for name in config))
    for name in names:
        if name not in known:
            raise ConfigError(f"no trial has a parameter {name!r}. {nearest(str(name), known)}")
    return list(names)


def parameter_of(reader: ExperimentReader, name: str, configs: Sequence[Mapping[str, Any]]) -> Parameter:
    """Return one parameter of some flattened configs."""
    values = [config.get(name, _MISSING) for config in configs]
    present = [value for value in values if value is not _MISSING]
    kinds = {kind for known, kind in _kinds(space_of(reader)) if known == name}
    described = kinds.pop() if len(kinds) == 1 else ""
    is_numeric = bool(present) and {type(value) for value in present} <= {int, float}
    if is_numeric and not (described == "category" and len(set(present)) <= _MOST_CATEGORIES):
        numbers = [None if value is _MISSING else rankable(value) for value in values]
        known = [number for number in numbers if number is not None]
        if known:
            looks_log = described == "log" or (not described and shown_range(known, wide=_LOG_RATIO)[2])
            is_whole = all(type(value) is int for value in present)
            return Parameter(name, tuple(numbers), None, min(known) > 0 and looks_log, is_whole)
    return _categories(name, values, is_sorted=is_numeric)


_MISSING = object()


def _categories(name: str, values: Sequence[Any], *, is_sorted: bool) -> Parameter:
    keys = [None if value is _MISSING else _key(value) for value in values]
    of_key = {key: value for key, value in zip(keys, values, strict=True) if key is not None}
    counts = Counter(key for key in keys if key is not None)
    most = _MOST_CATEGORIES if len(counts) <= _MOST_CATEGORIES else _MOST_CATEGORIES - 1
    shown = {key for key, _ in counts.most_common(most)}
    order = sorted(shown, key=(lambda key: of_key[key]) if is_sorted else None)
    often = Counter(text for _, text in order)
    labels = [f"{text} ({kind})" if often[text] > 1 else text for kind, text in order]
    labels += [f"{len(counts) - len(order)} {_OTHERS}"] if len(order) < len(counts) else []
    place = {key: float(index) for index, key in enumerate(order)}
    placed = tuple(None if key is None else place.get(key, float(len(order))) for key in keys)
    return Parameter(name, placed, tuple(labels), is_log=False)


def _key(value: Any) -> tuple[str, str]:
    """Return what tells one category from another: its type and its text."""
    return type(value).__name__, f"{value:.6g}" if isinstance(value, float) else printed(value)


def space_of(reader: ExperimentReader) -> Mapping[str, Any]:
    """Return the space of an experiment; its objects and functions are `Opaque`."""
    space = from_json(reader.meta.get("domains") or ["dict"], Opaque, Opaque("sample_from(...)"))
    return space if isinstance(space, Mapping) else {}


def _kinds(node: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Give name and kind of the parameters of a space, `log`, `linear` or `category`; several times where options of a
    choice have it."""
    if isinstance(node, (Float, Integer)):
        yield name, "log" if isinstance(node.base_and_q()[0], LogUniform) else "linear"
    elif isinstance(node, Categorical) or (isinstance(node, Mapping) and [*node] == ["grid_search"]):
        yield name, "category"
        options = node.categories if isinstance(node, Categorical) else node["grid_search"]
        for option in options if isinstance(options, Iterable) else ():
            if isinstance(option, Mapping):
                yield from _kinds(option, name)
    elif isinstance(node, Mapping):
        for key, one in node.items():
            yield from _kinds(one, f"{name}/{key}" if name else str(key))


def ticks_of_log(low: float, high: float) -> tuple[list[float], list[str]]:
    """Return places (decimal logarithms) and texts of ticks between two decimal logarithms, about two to nine."""
    powers = range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)
    places = [float(power) for power in powers[:: max(1, math.ceil(len(powers) / 8))]]
    if len(places) < 2:
        places = [low, high] if high > low else [low]
    return places, [f"{10**place:.3g}" for place in places]


def ticks_between(low: float, high: float, is_whole: bool) -> tuple[list[float], list[str]]:
    """Return about five places between two."""
    places = [low + (high / 4 - low / 4) * index for index in range(5)] if low < high else [low]
    places = sorted(set(map(round, places))) if is_whole else places
    return places, [f"{place:.4g}" for place in places]
