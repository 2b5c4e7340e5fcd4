"""What may be reported: metrics made plain in the worker, so that no value that a trial reports harms the driver."""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

from sweep.core.results import NODE_IP, add_measured
from sweep.core.values import is_held, shown_int, sound_text
from sweep.errors import UserCodeError

MAX_KEYS = 1000
MAX_BYTES = 1 << 20
MAX_ITEMS = 64  # elements of an array or set that is stored as a list
MAX_TEXT_BYTES = 4096
_MAX_KEY_BYTES = 256
_MAX_DEPTH = 32
_MAX_VALUES = 1 << 20  # in one value: a list that holds another twice, which holds a third twice, and so on, has no end

OnChange = Callable[[str, str], None]
"""Called with the key of a value that was changed, and with what became of it."""

_noted: set[tuple[str, str]] = set()  # directory of the experiment, and a key that was noted for it


def plain_metrics(metrics: Any, on_change: OnChange = lambda key, what: None) -> dict[str, Any]:
    """Return a copy of `metrics` that holds only numbers, texts, bools, None, and lists and dicts of those.

    Scalars of numpy, torch and jax become Python numbers; tuples become lists; NaN and infinities stay as they are.
    What else there is becomes a list (arrays and sets of up to 64 elements) or a text of at most 4 KiB, keys that are
    no texts become texts, and `on_change` is called. No value is refused.

    Raises:
        UserCodeError: not a dict, or more than 1,000 keys.
    """
    if not isinstance(metrics, Mapping):
        raise UserCodeError(
            f"report() was given {type(metrics).__name__}; expected a dict of metrics such as {{'loss': 0.1}}, or "
            "keywords such as report(loss=0.1)."
        )
    result: dict[str, Any] = {}
    for key, value in list(metrics.items()):
        name, renamed = _key_text(key, result)
        plain = _Plain()
        result[name] = plain.of(value)
        if change := plain.change or renamed:
            on_change(name, change)
    if len(result) > MAX_KEYS:
        raise UserCodeError(
            f"a report has {len(result):,} keys; at most {MAX_KEYS:,} are stored. Write large data to a file of the "
            "trial's directory, or into a checkpoint."
        )
    counts = {key: num_keys(value) for key, value in result.items()}
    why = f"a report holds at most {MAX_KEYS:,} keys"
    _leave_out(result, counts, len(result) + sum(counts.values()) - MAX_KEYS, why, on_change)
    return result


def within_size(result: dict[str, Any], on_change: OnChange = lambda key, what: None) -> None:
    """Write the largest values of a report as texts, until it takes at most 1 MiB."""
    sizes = {key: len(pickle.dumps(value, 5)) for key, value in result.items()}
    total = sum(sizes.values()) + sum(len(key.encode()) + 8 for key in sizes)
    _leave_out(result, sizes, total - MAX_BYTES, f"a report takes at most {MAX_BYTES:,} bytes", on_change)


def _leave_out(result: dict[str, Any], sizes: dict[str, int], excess: int, why: str, on_change: OnChange) -> None:
    """Write the largest values as texts until the excess is gone."""
    while excess > 0:
        key = max(sizes, key=lambda key: sizes[key])
        excess -= sizes.pop(key)
        result[key] = text = f"{_summary(result[key])}: not stored, {why}"
        on_change(key, f"{text}; write large data to a file of the trial's directory, or into a checkpoint")


def measure(values: dict[str, Any], seconds: float, node_ip: str = NODE_IP) -> None:
    """Add to a report when and where it was made, and how long that took."""
    host = os.uname().nodename
    add_measured(values, wall=time.time(), seconds=seconds, pid=os.getpid(), hostname=host, node_ip=node_ip)


def note_once(directory: str, key: str, what: str) -> None:
    """Say in a trial's output that a value is not stored as it was reported, once for the sweep in `directory`."""
    if (directory, key) not in _noted and len(_noted) < MAX_KEYS:
        _noted.add((directory, key))
        with contextlib.suppress(OSError, ValueError):  # its reader has gone
            print(f"sweep: {key[:60]!r} was reported as {what}; this is said once.", file=sys.stderr, flush=True)


def num_keys(value: Any) -> int:
    """Return how many keys the dicts in a plain value have."""
    if type(value) is dict:
        return len(value) + sum(map(num_keys, value.values()))
    return sum(map(num_keys, value)) if type(value) is list else 0


class _TooMuch(Exception):
    """A value holds more than any report can take."""


class _Plain:
    """Makes one value plain; `change` says for people what became of it, and is empty when nothing is lost."""

    def __init__(self) -> None:
        self.change = ""
        self._num_left = _MAX_VALUES
        self._above: list[int] = []  # the lists and dicts that the present value lies in

    def of(self, value: Any) -> Any:
        """Return the plain form of a value; whatever its own methods raise."""
        try:
            return self._plain(value)
        except _TooMuch:
            return self._described(f"{_summary(value)}: not stored, it holds more than {_MAX_VALUES:,} values")

    def _plain(self, value: Any) -> Any:
        kind = type(value)
        if kind is float or kind is bool or value is None or (kind is int and is_held(value)):
            return value
        try:
            return self._converted(value)
        except _TooMuch:
            raise
        except Exception:  # the border to the user's own types: any of their methods may raise
            return self._text(_print(value), kind_name(value))

    def _converted(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(str.__str__(value))
        if isinstance(value, (Mapping, list, tuple)):
            return self._inside(value)
        if isinstance(value, (bytes, bytearray)):
            return self._text(repr(bytes(value[:MAX_TEXT_BYTES])), f"{kind_name(value)} of {len(value):,} bytes")
        if (shape := _shape(value)) is not None:
            return self._array(value, shape)
        if isinstance(value, Integral):  # of subclasses the number that they are, whatever they make of it themselves
            number = int.__pos__(value) if isinstance(value, int) else int(value)
            return number if is_held(number) else self._text(shown_int(number), "a number that no float holds")
        if isinstance(value, (Real, Decimal)):
            return self._real(value)
        if isinstance(value, (Set, deque, range)):
            if len(value) > MAX_ITEMS:
                return self._described(_summary(value))
            self.change = f"{kind_name(value)}, stored as a list"
            items = [self._plain(item) for item in value]
            with contextlib.suppress(TypeError):  # different types
                return sorted(items) if isinstance(value, Set) else items
            return items
        return self._text(_print(value), kind_name(value))

    def _real(self, value: Any) -> Any:
        number = float.__pos__(value) if isinstance(value, float) else float(value)
        is_lost = math.isinf(number) and value not in (math.inf, -math.inf)
        return self._text(str(value), "a number that no float holds") if is_lost else number

    def _inside(self, value: Any) -> Any:
        """Return the plain form of a dict or list; what holds itself, or lies too deep, is named."""
        if id(value) in self._above or len(self._above) >= _MAX_DEPTH:
            why = "it holds itself" if id(value) in self._above else f"nested more than {_MAX_DEPTH} deep"
            return self._described(f"{kind_name(value)}: not stored, {why}")
        self._num_left -= 1 + len(value)
        if self._num_left < 0:
            raise _TooMuch
        self._above.append(id(value))
        try:
            if not isinstance(value, Mapping):
                return [self._plain(item) for item in value]
            inner: dict[str, Any] = {}
            for key, item in list(value.items()):
                name, renamed = _key_text(key, inner)
                inner[name] = self._plain(item)
                if not issubclass(type(key), (int, float)):
                    self.change = self.change or renamed
            return inner
        finally:
            self._above.pop()

    def _array(self, value: Any, shape: tuple[int, ...]) -> Any:
        """Return the number that an array of no dimension holds, a small array as a list, a larger one as a text."""
        makers = (getattr(value, name, None) for name in ("tolist", "item", "to_numpy", "numpy"))
        make: Any = next(filter(callable, makers), None)
        if make is None:
            return self._text(_print(value), kind_name(value))
        dtype = getattr(value, "dtype", None)
        what = sound_text(
            f"{kind_name(value)} of shape {shape}" + ("" if dtype is None else f" and dtype {dtype!s:.40}")
        )
        if math.prod(shape) > MAX_ITEMS:
            return self._described(what)
        made = make()  # numpy's `masked` is None as a list, and 0.0 as an item
        if type(made) is type(value):  # a long double, which is its own item
            return self._real(made)
        if shape == ():
            return self._plain(made)
        plain = self._plain(made if isinstance(made, list) else made.tolist())
        self.change = f"{what}, stored as a list"
        return plain

    def _described(self, text: str) -> str:
        self.change = f"{text}, stored as a text"
        return text

    def _text(self, text: str, what: str = "") -> str:
        """Return a text that can be stored; `what` it was is noted, and that a text was cut or escaped."""
        stored = _cut(text, MAX_TEXT_BYTES)
        if what:
            self.change = f"{what}, stored as a text"
        elif stored != text:
            is_cut = stored.endswith(_mark(text))
            self.change = f"a text of {len(text):,} characters, cut" if is_cut else "a text with NUL or half characters"
        return stored


def _cut(text: str, most: int) -> str:
    """Return a sound text of at most `most` bytes; at its end stands how long it was, if it was longer."""
    data = sound_text(text).encode()
    return (
        data[: most - len(_mark(text))].decode("utf-8", "ignore") + _mark(text) if len(data) > most else data.decode()
    )


def _mark(text: str) -> str:
    return f"... [{len(text):,} characters]"


def _key_text(key: Any, taken: Iterable[str]) -> tuple[str, str]:
    """Return a key as text, and what became of it, for people; empty when it was a text that can be stored."""
    kind = type(key)  # not isinstance(), which asks the key itself for its class
    text = str.__str__(key) if issubclass(kind, str) else _print(key)
    name = free = _cut(text, _MAX_KEY_BYTES)
    number = 1
    while free in taken:
        number += 1
        free = f"{name} ({number})"
    is_same = free == text and issubclass(kind, str)
    return free, "" if is_same else f"a key of type {kind.__name__}, stored as {free!r}"


def _print(value: Any) -> str:
    """Return how a value prints; of one that cannot print, its type."""
    try:
        return str.__str__(shown_int(value) if issubclass(type(value), int) else str(value))
    except Exception as error:  # the user's own __str__ or __repr__
        return f"<{kind_name(value)}, whose __str__ raised {type(error).__name__}>"


def kind_name(value: Any) -> str:
    """Return what something is, for people: `numpy.ndarray`, `list`."""
    kind = type(value)
    with contextlib.suppress(Exception):  # a metaclass may forbid to ask
        module = kind.__module__
        is_builtin = module == "builtins" or not isinstance(module, str)
        return sound_text(kind.__qualname__ if is_builtin else f"{module}.{kind.__qualname__}")[:200]
    return "object"


def _summary(value: Any) -> str:
    """Return what a value is and how many elements it has, without looking into it."""
    with contextlib.suppress(Exception):  # the user's own __len__
        what = "characters" if isinstance(value, str) else "keys" if isinstance(value, Mapping) else "elements"
        return f"{kind_name(value)} of {len(value):,} {what}"
    return kind_name(value)


def _shape(value: Any) -> tuple[int, ...] | None:
    """Return the shape of an array, of whichever library; None for what is none."""
    shape = getattr(value, "shape", None)
    if shape is None or isinstance(shape, (str, bytes, Mapping)):
        return None
    sizes = tuple(shape)
    return tuple(map(int, sizes)) if all(isinstance(size, Integral) for size in sizes) else None
