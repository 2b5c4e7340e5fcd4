"""Configs as text: literals, arguments, JSON, and how trials are named after what varies among them."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from sweep.core.results import flatten
from sweep.core.values import is_held, printed, shown_int, sound_text

_MOST_ITEMS = 10_000  # of an array that is written out
_INT = re.compile(r"[+-]?\d+")
_WORDS: Mapping[str, Any] = {"true": True, "false": False, "null": None, "none": None}


def parse_literal(text: str) -> Any:
    """Return the value that a word stands for: a number, true, false, null, or a text (quotes may be used)."""
    word = text.strip()
    if len(word) >= 2 and word[0] == word[-1] and word[0] in "'\"":
        return word[1:-1]
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    if _INT.fullmatch(word):
        return int(word)
    if word[:1] in "[{":
        try:
            return json.loads(word)
        except ValueError:
            return word
    try:
        return float(word)
    except ValueError:
        return word


def as_arguments(config: Mapping[str, Any]) -> str:
    """Return a config as arguments of a command line: `lr=0.00031 opt.name=adam`, quoted for a shell."""
    return sound_text(
        shlex.join(f"{name.replace('/', '.')}={_argument(value)}" for name, value in flatten(config).items())
    )


def _argument(value: Any) -> str:
    """Return a value as the grammar of ranges reads it back."""
    if isinstance(value, str):
        is_plain = parse_literal(value) == value and not set(value) & set(",()[]{}'\"") and value == value.strip()
        quote = '"' if "'" in value else "'"
        return value if is_plain and value else f"{quote}{value}{quote}"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else printed(value) if isinstance(value, (int, float)) else json_text(value)


def json_text(value: Any) -> str:
    """Return JSON that every reader accepts: NaN and infinities as texts, unknown objects as they print."""
    return sound_text(json.dumps(jsonable(value), indent=2, ensure_ascii=False))


def jsonable(value: Any, *, is_strict: bool = True) -> Any:
    """Return `value` in terms of JSON; what it does not know, and an array of very many items, as text.

    Args:
        is_strict: NaN and infinities, which some readers do not know, as text, too.
    """
    if isinstance(value, float) and is_strict and not math.isfinite(value):
        return f"{value:f}"
    if value is None or isinstance(value, (bool, float, str)):
        return value
    if isinstance(value, int):
        return value if is_held(value) else shown_int(value)
    if isinstance(value, Mapping):
        return {printed(key): jsonable(item, is_strict=is_strict) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item, is_strict=is_strict) for item in value]
    kind = getattr(getattr(value, "dtype", None), "kind", None)  # of a number or an array of numpy
    if kind in (*"biufU",) and value.size <= _MOST_ITEMS:
        return jsonable(value.tolist(), is_strict=is_strict)
    return printed(value)


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
