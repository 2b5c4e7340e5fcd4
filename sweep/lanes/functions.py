"""The user's functions as a program calls them: arguments by name, and what they return taken apart."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from sweep.errors import TrainableError

Array: TypeAlias = "np.ndarray[Any, Any]"
Path = tuple[str, ...]
STATE, CONFIG, BATCH, KEY, INDEX = "state", "config", "batch", "key", "index"
CONSTANTS = "sweep_constants"
_OTHER_NAMES = {"rng": KEY, "i": INDEX, "params": STATE}  # `params` only of a state that is no tuple


class Call:
    """One of the user's functions, called with what its parameters are named after; a value is returned as it is.

    A parameter is `state`, `config`, `batch`, `key` (or `rng`: the random key of this lane and step), `index` (or `i`:
    the number of steps so far), else a hyperparameter of that name, a part of the state of that name (of a dict, named
    tuple or dataclass) or of the batch (of a dict). The others are, in their order, the state and then the batch, whole
    or, if it is a tuple, in its parts: `step(params, opt_state, x, y)`.
    """

    def __init__(self, function: Any, what: str) -> None:
        name = str(getattr(inspect.unwrap(function), "__name__", "")) if callable(function) else ""
        self.what, self.name = what, name if name.isidentifier() else "value"
        self._function = function if callable(function) else lambda: function
        self._parameters = [
            one
            for one in inspect.signature(self._function).parameters.values()
            if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        ]

    @property
    def parameters(self) -> list[str]:
        """Their names."""
        return [one.name for one in self._parameters]

    def __call__(self, config: Mapping[str, Any], **given: Any) -> tuple[Any, list[str]]:
        """Return what the function returns, and which parts of the state it was given; none: the whole, or nothing.

        Raises:
            TrainableError: a parameter that is none of those.
        """
        values, parts = self._arguments({**given, CONFIG: dict(config)})
        positional = [values.pop(one.name) for one in self._parameters if one.kind is not one.KEYWORD_ONLY]
        return self._function(*positional, **values), parts

    def _arguments(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        batch = given.get(BATCH)
        has_batch = isinstance(batch, Mapping) and BATCH in batch
        # In `step(state, batch, labels)` it is the first part of the batch.
        for unnamed in (BATCH,) if has_batch else ("", BATCH):
            values, parts, left = self._by_name(given, unnamed)
            taken = [id(value) for value in values.values()]
            of_both = (_ways(given, STATE, taken, bool(parts)), _ways(given, BATCH, taken, False))
            fitting = [way for way in itertools.product(*of_both) if sum(map(len, way)) == len(left)]
            if fitting:
                of_state, of_batch = fitting[0]
                values |= zip(left, [*of_state.values(), *of_batch.values()], strict=True)
                return values, parts + [name for name in of_state if name]
        known = [*given, *(name for name in given[CONFIG] if name not in given), *parts_of(given.get(STATE))]
        raise TrainableError(
            f"{self.what} has the parameter {left[0]!r}; expected one of {', '.join(map(repr, known))}. Rename it, "
            "give it a default, or add it to the search space."
        )

    def _by_name(self, given: Mapping[str, Any], unnamed: str) -> tuple[dict[str, Any], list[str], list[str]]:
        """Return arguments by name, parts of the state among them, and parameters that no name explains."""
        of_state, of_batch = parts_of(given.get(STATE)), given.get(BATCH)
        values: dict[str, Any] = {}
        left, parts = list[str](), list[str]()
        for one in self._parameters:
            alias = one.name if one.name in given else _OTHER_NAMES.get(one.name, "")
            if one.name in given[CONFIG] and one.name not in (STATE, CONFIG, BATCH):
                values[one.name] = given[CONFIG][one.name]
            elif one.name in of_state:
                values[one.name] = of_state[one.name]
                parts.append(one.name)
            elif alias in given and alias != unnamed and not (one.name == "params" and type(given[alias]) is tuple):
                values[one.name] = given[alias]
            elif isinstance(of_batch, Mapping) and one.name in of_batch:
                values[one.name] = of_batch[one.name]
            elif one.default is not one.empty:
                values[one.name] = one.default
            else:
                left.append(one.name)
        return values, parts, left


def _ways(given: Mapping[str, Any], what: str, taken: Sequence[int], is_taken: bool) -> list[dict[str, Any]]:
    """Return how parameters in their order can be the state or the batch: whole, in its parts, not at all."""
    whole = given.get(what)
    if whole is None or is_taken or id(whole) in taken:
        return [{}]
    by_place = parts_of(whole) if type(whole) is tuple else {}
    return [{"": whole}, *([by_place] if by_place else []), {}]


def parts_of(state: Any) -> dict[str, Any]:
    """Return the parts of a state by name, of a tuple by place; none if it is neither, no named tuple or dataclass."""
    if isinstance(state, Mapping):
        return dict(state)
    if type(state) is tuple:
        return {str(place): value for place, value in enumerate(state)}
    if hasattr(state, "_asdict"):
        return dict(state._asdict())
    if dataclasses.is_dataclass(state) and not isinstance(state, type):
        return {one.name: getattr(state, one.name) for one in dataclasses.fields(state)}
    return {}


def with_parts(state: Any, parts: Mapping[str, Any]) -> Any:
    """Return the state with other parts."""
    if isinstance(state, Mapping):
        return {**state, **parts}
    if type(state) is tuple:
        return tuple(parts.get(str(place), value) for place, value in enumerate(state))
    return state._replace(**parts) if hasattr(state, "_replace") else dataclasses.replace(state, **parts)


def taken_apart(
    what: str,
    returned: Any,
    state: Any,
    parts: Sequence[str],
    is_alike: Callable[[Any, Any], bool],
    is_changed: Callable[[], bool] = lambda: False,
) -> tuple[Any, dict[str, Any]]:
    """Return the new state and the metrics that a step returned, in whichever order.

    Args:
        parts: of the state that it was given; none: the whole state.
        is_alike: whether two trees have the same structure.
        is_changed: whether the step has changed the state in place, as one of objects of Flax's NNX does.

    Raises:
        TrainableError: the state is not among what it returned, or what is left is no metrics.
    """
    values = list(returned) if type(returned) in (tuple, list) else [returned]
    if type(state) is tuple and not state:  # there is none
        return state, metrics_of(what, values)
    expected = [parts_of(state)[name] for name in parts] if parts else [state]
    if not parts and is_alike(returned, state):
        values = [returned]
    found, rest = list[Any](), list[Any]()
    for value in values:
        is_next = len(found) < len(expected) and is_alike(value, expected[len(found)])
        (found if is_next else rest).append(value)
    if not found and is_changed():
        return state, metrics_of(what, rest)
    if len(found) < len(expected):
        missing = f"the state's {parts[len(found)]!r}" if parts else "the state"
        raise TrainableError(
            f"{what} returned {_described(returned)}, and {missing} is not among that; expected (state, metrics): the "
            f"state with the same structure as {'it was given' if parts else 'init returned it'}, and a dict."
        )
    return (with_parts(state, dict(zip(parts, found, strict=True))) if parts else found[0]), metrics_of(what, rest)


def metrics_of(what: str, values: Sequence[Any], name: str = "loss") -> dict[str, Any]:
    """Return metrics that a function returned: dicts of scalars, or a scalar that gets a name.

    Raises:
        TrainableError: one is neither.
    """
    metrics: dict[str, Any] = {}
    for value in values:
        if isinstance(value, Mapping):
            metrics |= value
        elif type(value) not in (tuple, list):
            metrics |= {} if value is None else {name: value}
        else:
            raise TrainableError(f"{what} returned metrics as {_described(value)}; expected a dict of scalars.")
    return metrics


def _described(value: Any) -> str:
    if type(value) in (tuple, list):
        return f"({', '.join(type(one).__name__ for one in value)})"
    return type(value).__name__


def numbers_of(config: Mapping[str, Any], static: Collection[Path]) -> tuple[dict[Path, Array], dict[str, Any]]:
    """Return the hyperparameters of a config that are traced, by path, and a config of the others.

    Numbers, bools and lists of them are traced, but for what is static: at these paths and below.

    Raises:
        TrainableError: a whole number of more than 32 bits.
    """
    found: dict[Path, Array] = {}
    rest: dict[Path, Any] = {}

    def walk(node: Mapping[Any, Any], at: Path) -> None:
        for name, value in sorted(node.items(), key=lambda item: str(item[0])):
            path = (*at, name)
            is_static = path in static
            if isinstance(value, Mapping) and value and not is_static:
                walk(value, path)
                continue
            array = None if is_static else _array(value)
            if array is None:
                rest[path] = value
                continue
            if array.dtype.kind in "iu" and np.any(np.abs(array.astype(object)) >= 2**31):
                where = "config" + "".join(f"[{part!r}]" for part in path)
                raise TrainableError(
                    f"{where} is {value!r:.100}; expected whole numbers of 32 bits. Use a float, or declare it: "
                    f"static = ({path[0]!r},)."
                )
            narrow = {"f": np.float32, "b": np.bool_}.get(array.dtype.kind, np.int32)
            found[path] = array.astype(narrow)

    walk(config, ())
    return found, config_of(rest, {})


def config_of(numbers: Mapping[Path, Any], static: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config again, which the caller may change: values at their paths, and what is static."""
    config = _copied(static)
    for path, value in numbers.items():
        at = config
        for name in path[:-1]:
            at = at.setdefault(name, {})
        at[path[-1]] = value
    return config


def _array(value: Any) -> Array | None:
    """Return numbers as an array; None: it is something else."""
    if not isinstance(value, (bool, int, float, list, tuple, np.generic)):
        return None
    try:
        array = np.asarray(value)
    except ValueError:  # a list of lists that are not equally long
        return None
    return array if array.dtype.kind in "biuf" else None


def _copied(node: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _copied(value) if isinstance(value, Mapping) else value for name, value in node.items()}
