"""What may be reported: metrics made plain in the worker, so that no value that a trial reports harms anybody else."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import Any

from sweep.core.values import MOST
from sweep.errors import UserCodeError
from sweep.worker.odd import MAX_TEXT_BYTES, Plain, key_text, numpy_scalars, summary

__all__ = ["MAX_BYTES", "MAX_KEYS", "Told", "plain_metrics", "within_size"]

MAX_KEYS = 1000
MAX_BYTES = 1 << 20

Told = Callable[[str, str], None]
"""Is told the key of a value that was changed, and what became of it."""

_MAX_KNOWN = 10_000
_known: set[str] = set()  # keys that have passed: most reports have the same as the one before


def plain_metrics(metrics: Any, told: Told | None = None) -> dict[str, Any]:
    """Return a copy of `metrics` that holds only numbers, texts, bools, None, and lists and dicts of those.

    Scalars of numpy, torch and jax become Python numbers; tuples become lists; NaN and infinities stay as they are.
    What else there is becomes a list (arrays and sets of up to 64 elements) or a text of at most 4 KiB, keys that are
    no texts become texts, and `told` hears of it. No value is refused.

    Raises:
        UserCodeError: not a dict, or more than 1,000 keys.
    """
    if type(metrics) is dict and (copy := _ordinary(metrics)) is not None:
        return copy
    if not isinstance(metrics, Mapping):
        raise UserCodeError(
            f"report() was given {type(metrics).__name__}; expected a dict of metrics such as {{'loss': 0.1}}, or "
            "keywords such as report(loss=0.1)."
        )
    plain = Plain()
    result: dict[str, Any] = {}
    for key, value in list(metrics.items()):
        name, what = (key, None) if type(key) is str and key in _known and key not in result else key_text(key, result)
        if type(value) is float:
            result[name], plain.changed = value, None
        else:
            result[name] = plain.of(value)
        if told is not None and (said := plain.changed or what):
            told(name, said)
        if what is None and len(_known) < _MAX_KNOWN:
            _known.add(name)
            if type(value) is dict and plain.changed is None and len(value) <= MAX_KEYS:
                _known.update(key for key in value if type(key) is str)
    return _few_keys(result, told)


def _ordinary(metrics: dict[Any, Any]) -> dict[str, Any] | None:
    """Return a copy of metrics in which all is as it should be, lists and dicts of such values included, else None.

    This is the way of nearly every report, hence the checks in a row instead of one function for a value.
    """
    count = len(metrics)
    nested = False
    for key, value in metrics.items():
        kind = type(value)
        if kind is float or kind is bool or value is None:
            pass
        elif kind is int:
            if not -MOST <= value <= MOST:
                return None
        elif kind is str:
            if len(value) > MAX_TEXT_BYTES or not value.isascii() or not value.isprintable():
                return None
        elif kind is dict:
            if not (_are_leaves(value.values()) and all(type(name) is str and name in _known for name in value)):
                return None
            count += len(value)
            nested = True
        elif kind is list:
            if not _are_leaves(value):
                return None
            nested = True
        elif kind in numpy_scalars:
            nested = True
        else:
            return None
        if type(key) is not str or key not in _known:
            return None
    if count > MAX_KEYS:
        return None
    copy = metrics.copy()
    if nested:
        for key, value in copy.items():
            if type(value) is dict or type(value) is list:
                copy[key] = value.copy()
            elif type(value) in numpy_scalars:
                copy[key] = value.item()
    return copy


def _are_leaves(values: Any) -> bool:
    for value in values:
        kind = type(value)
        if kind is float or kind is bool or value is None:
            continue
        if kind is int and -MOST <= value <= MOST:
            continue
        if kind is str and len(value) <= MAX_TEXT_BYTES and value.isascii() and value.isprintable():
            continue
        return False
    return True


def _few_keys(result: dict[str, Any], told: Told | None) -> dict[str, Any]:
    """Write those that hold the most keys as texts, until there are few enough in all."""
    counts = {key: num_keys(value) for key, value in result.items()}
    total = len(result) + sum(counts.values())
    if len(result) > MAX_KEYS:
        raise UserCodeError(
            f"a report has {len(result):,} keys; at most {MAX_KEYS:,} are stored. Write large data to a file of the "
            "trial's directory, or into a checkpoint."
        )
    while total > MAX_KEYS:
        largest = max(counts, key=lambda key: counts[key])
        total -= counts.pop(largest)
        _leave_out(result, largest, f"a report holds at most {MAX_KEYS:,} keys", told)
    return result


def within_size(result: dict[str, Any], told: Told | None) -> None:
    """Write the largest values of a report as texts, until it takes at most 1 MiB."""
    sizes = {key: len(pickle.dumps(value, 5)) for key, value in result.items()}
    total = sum(sizes.values()) + sum(len(key.encode()) + 8 for key in sizes)
    while total > MAX_BYTES:
        largest = max(sizes, key=lambda key: sizes[key])
        total -= sizes.pop(largest)
        _leave_out(result, largest, f"a report takes at most {MAX_BYTES:,} bytes", told)


def _leave_out(result: dict[str, Any], key: str, why: str, told: Told | None) -> None:
    result[key] = text = f"{summary(result[key])}: not stored, {why}"
    if told is not None:
        told(key, f"{text}; write large data to a file of the trial's directory, or into a checkpoint")


def num_keys(value: Any) -> int:
    """Return how many keys the dicts in a plain value have."""
    if type(value) is dict:
        return len(value) + sum(map(num_keys, value.values()))
    return sum(map(num_keys, value)) if type(value) is list else 0
