"""Values as people type and paste them: words of a command line, arguments, JSON that every reader accepts."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping
from typing import Any

from sweep.core.results import flatten
from sweep.core.values import is_held, printed, shown, shown_int, sound_text

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
    """Return JSON that every reader accepts: NaN and infinities as texts, unknown objects as their repr."""
    return sound_text(json.dumps(jsonable(value), indent=2, ensure_ascii=False))


def jsonable(value: Any) -> Any:
    """Return `value` in terms of strict JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value:f}"
    if type(value) is int:
        return value if is_held(value) else shown_int(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    return shown(value, 10_000)
