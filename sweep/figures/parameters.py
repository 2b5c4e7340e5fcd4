"""The parameters of an experiment as axes: numbers, logarithms or categories, and what some trials lack."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from searchers.space import Categorical, Float, Integer, LogUniform, from_json
from sweep import checks
from sweep.core.literals import evaluated_params
from sweep.core.results import flatten
from sweep.core.values import as_float, shown_range
from sweep.errors import ConfigError, nearest
from sweep.figures.style import brief, plain
from sweep.record.encoding import Opaque
from sweep.record.reader import ExperimentReader
from sweep.record.rows import TrialRow, variables_of

_MOST_CATEGORIES = 20
_MOST_NAMED = 5
_OTHERS = "others"
_LOG_RATIO = 100.0  # of a parameter whose space is not known


@dataclass(frozen=True)
class Parameter:
    """One parameter of some trials.

    Attributes:
        name: its flattened path, such as `opt/lr`.
        values: of each trial a number, or the place of its category; None: the trial lacks it, or it is no finite
            number.
        labels: of the categories, texts as they are, all different; None: it is numeric.
        is_log: whether its axis is logarithmic.
        is_whole: whether all are whole numbers.
    """

    name: str
    values: tuple[float | None, ...]
    labels: tuple[str, ...] | None
    is_log: bool
    is_whole: bool = False

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
    names: dict[str, None] = {}
    if variables is not None:
        for row in rows:
            names.update(dict.fromkeys(evaluated_params(row.config, variables)))
        if names:
            return list(names)
    seen: dict[str, tuple[str, int, str]] = {}
    several: dict[str, None] = {}
    counts: Counter[str] = Counter()
    for row in rows:
        for name, value in flatten(row.config).items():
            text = _key(value)
            counts[name] += 1
            if seen.setdefault(name, text) != text:
                several[name] = None
    several |= {name: None for name, count in counts.items() if count < len(rows)}
    return [name for name in seen if name in several] or list(seen)


def parameters(
    reader: ExperimentReader, rows: Sequence[TrialRow], names: Sequence[str] | None, *, most: int
) -> tuple[list[Parameter], list[str]]:
    """Return parameters of some trials, and what is to be said of those left out.

    Args:
        names: which; None: those that vary, up to `most`.

    Raises:
        ConfigError: a name that no trial has, or no name; all configs are empty.
    """
    kinds = _kinds_of(reader)
    flats = [flatten(row.config) for row in rows]
    if names is not None:
        names = [names] if isinstance(names, str) else names
        if not isinstance(names, (list, tuple)) or not names:
            checks.refuse("params", names, "a list of flattened names of parameters, such as ['lr', 'opt/momentum']")
        known = list(dict.fromkeys(name for flat in flats for name in flat))
        for name in names:
            if name not in known:
                raise ConfigError(f"no trial has a parameter {name!r}. {nearest(str(name), known)}")
        return [_parameter(kinds, name, [flat.get(name, _MISSING) for flat in flats]) for name in names], []
    wanted = varying_names(reader, rows)
    if not wanted:
        raise ConfigError(f"the trials of {reader.name} have empty configs, so there is no parameter to show.")
    found = [_parameter(kinds, name, [flat.get(name, _MISSING) for flat in flats]) for name in wanted]
    varied = [one for one in found if not one.is_constant]
    notes = []
    if 0 < len(varied) < len(found):
        same = [one.title for one in found if one.is_constant]
        more = f" and {len(same) - _MOST_NAMED} more" if len(same) > _MOST_NAMED else ""
        notes.append(f"Left out, as the same in all trials: {', '.join(same[:_MOST_NAMED])}{more}.")
    if len(varied) > most:
        notes.append(f"The first {most} of {len(varied)} parameters; params=[...] chooses others.")
    return (varied or found)[:most], notes


def parameter_of(reader: ExperimentReader, name: str, configs: Sequence[Mapping[str, Any]]) -> Parameter:
    """Return one parameter of some flattened configs."""
    return _parameter(_kinds_of(reader), name, [config.get(name, _MISSING) for config in configs])


_MISSING = object()


def _kinds_of(reader: ExperimentReader) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for name, kind in _kinds(space_of(reader)):
        found[name].add(kind)
    return found


def _parameter(kinds_of: Mapping[str, set[str]], name: str, values: Sequence[Any]) -> Parameter:
    present = [value for value in values if value is not _MISSING]
    kinds = set(map(type, present))
    described = "".join(kinds_of.get(name, ())) if len(kinds_of.get(name, ())) == 1 else ""
    is_numeric = bool(present) and kinds <= {int, float}
    if is_numeric and not (described == "category" and len(set(present)) <= _MOST_CATEGORIES):
        numbers = [_finite(value) for value in values]
        known = [number for number in numbers if number is not None]
        if known:
            is_positive = min(known) > 0
            is_log = is_positive and (
                described == "log" or (described == "" and shown_range(known, wide=_LOG_RATIO)[2])
            )
            return Parameter(name, tuple(numbers), None, is_log, is_whole=kinds == {int})
    return _categories(name, values, is_sorted=is_numeric)


def _finite(value: Any) -> float | None:
    number = None if value is _MISSING else as_float(value)
    return number if number is not None and math.isfinite(number) else None


def _categories(name: str, values: Sequence[Any], *, is_sorted: bool) -> Parameter:
    keys = [None if value is _MISSING else _key(value) for value in values]
    texts = {key: value for key, value in zip(keys, values, strict=True) if key is not None}
    counts = Counter(key for key in keys if key is not None)
    order = sorted(texts, key=(lambda key: texts[key]) if is_sorted else lambda key: (key[0], key[2]))
    if len(order) > _MOST_CATEGORIES:
        common = {key for key, _ in counts.most_common(_MOST_CATEGORIES - 1)}
        order = [key for key in order if key in common]
    labels = [_text(texts[key]) for key in order]
    often = {label for label, count in Counter(labels).items() if count > 1}
    labels = [
        f"{label} ({type(texts[key]).__name__})" if label in often else label
        for key, label in zip(order, labels, strict=True)
    ]
    place = {key: float(index) for index, key in enumerate(order)}
    if len(order) < len(texts):
        labels.append(f"{len(texts) - len(order)} {_OTHERS}")
    last = float(len(order))
    placed = tuple(None if key is None else place.get(key, last) for key in keys)
    return Parameter(name, placed, tuple(labels), is_log=False)


def _key(value: Any) -> tuple[str, int, str]:
    """Return what tells one category from another; lists and dicts by their beginning and their length."""
    size = len(value) if isinstance(value, (list, tuple, dict)) else 0
    return type(value).__name__, size, _text(value)


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else brief(value)


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
    powers = list(range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1))
    step = max(1, math.ceil(len(powers) / 8))
    places = [float(power) for power in powers[::step]]
    if len(places) < 3:
        factors = (1, 2, 5)
        every = [(power, factor) for power in range(math.floor(low) - 1, math.ceil(high) + 1) for factor in factors]
        places = [power + math.log10(factor) for power, factor in every]
        places = [place for place in places if low - 1e-9 <= place <= high + 1e-9]
    if len(places) < 2:
        places = [low, high] if high > low else [low]
    return places, [f"{10**place:.3g}" for place in places]


def ticks_between(low: float, high: float, is_whole: bool) -> tuple[list[float], list[str]]:
    """Return about five round numbers between two."""
    if not low < high or math.isinf(high - low):
        return [low, high], [f"{low:.4g}", f"{high:.4g}"]
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(max(rough, 1.0) if is_whole else rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    places = [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    return places, [f"{place:.4g}" for place in places]
