"""What may be reported: metrics made plain in the worker, so that a bad value fails its own trial, its key named."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

from sweep.errors import UserCodeError

__all__ = ["MAX_BYTES", "MAX_KEYS", "check_size", "plain_metrics"]

MAX_KEYS = 1000
MAX_BYTES = 1 << 20

_PLAIN = frozenset({float, int, str, bool, type(None)})
_MAX_DEPTH = 32


def plain_metrics(metrics: Any) -> dict[str, Any]:
    """Return a copy of `metrics` that holds only numbers, texts, bools, None, and lists and dicts of those.

    Scalars of numpy, torch and jax become Python numbers; tuples become lists; NaN and infinities stay as they are.

    Raises:
        UserCodeError: not a dict, a key that is no text, a value that is none of the above, or too many keys.
    """
    if not isinstance(metrics, Mapping):
        raise UserCodeError(
            f"report() was given {type(metrics).__name__}; expected a dict of metrics such as {{'loss': 0.1}}, or "
            "keywords such as report(loss=0.1)."
        )
    result: dict[str, Any] = {}
    count = len(metrics)
    for key, value in metrics.items():
        if type(key) is not str:
            if not isinstance(key, str):
                raise UserCodeError(f"a reported key is {key!r}; expected a text. Use str(...) on it.")
            key = str(key)
        if type(value) in _PLAIN:
            result[key] = value
        else:
            result[key], inner = _plain(value, key, 0)
            count += inner
    if count > MAX_KEYS:
        largest = max(result, key=lambda k: _num_keys(result[k]))
        where = f"; {largest!r} alone holds {_num_keys(result[largest])}" if _num_keys(result[largest]) else ""
        raise UserCodeError(
            f"a report has {count} keys{where}; at most {MAX_KEYS} are stored. Write large data to a file of the "
            "trial's directory, or into a checkpoint."
        )
    return result


def check_size(metrics: Mapping[str, Any], encoded_bytes: int) -> None:
    """Refuse a report whose encoding is too large, naming its largest value.

    Raises:
        UserCodeError: it is.
    """
    if encoded_bytes <= MAX_BYTES:
        return
    sizes = {key: len(repr(value)) for key, value in metrics.items()}
    largest = max(sizes, key=lambda key: sizes[key])
    raise UserCodeError(
        f"a report takes {encoded_bytes:,} bytes, most of them in {largest!r} ({sizes[largest]:,}); at most "
        f"{MAX_BYTES:,} are stored. Write large data to a file of the trial's directory, or into a checkpoint."
    )


def _plain(value: Any, key: str, depth: int) -> tuple[Any, int]:
    """Return the plain form of a value and how many keys its dicts hold."""
    if type(value) in _PLAIN:
        return value, 0
    if depth > _MAX_DEPTH:
        raise UserCodeError(f"the value of {key!r} is nested more than {_MAX_DEPTH} deep; report flat metrics.")
    if isinstance(value, Mapping):
        inner: dict[Any, Any] = {}
        count = len(value)
        for name, item in value.items():
            plain_name = name if type(name) in _PLAIN else str(name)
            inner[plain_name], more = _plain(item, f"{key}/{name}", depth + 1)
            count += more
        return inner, count
    if isinstance(value, (list, tuple)):
        items = []
        count = 0
        for index, item in enumerate(value):
            plain_item, more = _plain(item, f"{key}[{index}]", depth + 1)
            items.append(plain_item)
            count += more
        return items, count
    shape = getattr(value, "shape", None)
    if shape is not None and hasattr(value, "item"):
        if tuple(shape) == ():
            return _plain(value.item(), key, depth + 1)
        raise UserCodeError(
            f"the value of {key!r} is a {type(value).__module__.partition('.')[0]} {type(value).__name__} of shape "
            f"{tuple(shape)}; expected a number. Reduce it, for instance with .mean().item(), or use .tolist()."
        )
    if isinstance(value, str):
        return str(value), 0
    if isinstance(value, numbers.Integral):
        return int(value), 0
    if isinstance(value, numbers.Real):
        return float(value), 0
    raise UserCodeError(
        f"the value of {key!r} is of type {type(value).__qualname__}; expected a number, a text, None, or lists and "
        "dicts of those. Report a number, or put the object into a checkpoint."
    )


def _num_keys(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(_num_keys, value.values()))
    return sum(map(_num_keys, value)) if isinstance(value, list) else 0
