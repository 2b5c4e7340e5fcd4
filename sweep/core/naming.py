"""How trials are named after what varies among them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from sweep.core.results import flatten
from sweep.core.values import printed

_NO_LETTERS = re.compile(r"[^A-Za-z0-9_-]+")


def format_vars(values: Mapping[str, Any]) -> str:
    """Return `b=0.1235,c=x_y` for `{"a/b": 0.12345, "a/c": "x y"}`: the last part of each path, sorted by path.

    Floats have four decimals; whatever has no place in a file's name becomes `_`.
    """
    return ",".join(f"{path.rpartition('/')[2]}={_shown(values[path])}" for path in sorted(values))


def _shown(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else _NO_LETTERS.sub("_", printed(value)).strip("_")


def evaluated_params(config: Mapping[str, Any], variables: Iterable[str] | None) -> dict[str, Any]:
    """Return the values of a config that its space varies, by flattened path.

    Args:
        variables: flattened paths of the leaves that vary; of a leaf whose value is a dict (a choice of dicts) all that
            is below it. None: it is not known what varies, so everything is returned.
    """
    if variables is None:
        return flatten(config)
    wanted = tuple(variables)
    flat = flatten(config)
    found = {
        path: value
        for path, value in flat.items()
        if any(path == wish or path.startswith(f"{wish}/") for wish in wanted)
    }
    for wish in wanted:  # an item of a list: lists are not flattened
        if wish not in found and not any(path.startswith(f"{wish}/") for path in found):
            value = _at(config, wish)
            if value is not None:
                found[wish] = value
    return found


def _at(nested: Any, path: str) -> Any:
    for part in path.split("/"):
        if isinstance(nested, Mapping):
            nested = nested.get(part)
        elif isinstance(nested, (list, tuple)) and part.isdigit() and int(part) < len(nested):
            nested = nested[int(part)]
        else:
            return None
    return nested


def experiment_tag(number: int, config: Mapping[str, Any], variables: Iterable[str] | None) -> str:
    """Return `<number>_<name=value,...>`, or the number alone when nothing varies."""
    shown = format_vars(evaluated_params(config, variables))
    return f"{number}_{shown}" if shown else str(number)
