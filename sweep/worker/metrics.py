"""What may be reported: metrics made plain in the worker, so that no value that a trial reports harms the driver."""

from __future__ import annotations

import contextlib
import math
import pickle
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from numbers import Integral, Real
from typing import Any

from sweep.core.values import is_held, shown_int, sound_text
from sweep.errors import UserCodeError

MAX_KEYS = 1000
MAX_BYTES = 1 << 20

OnChange = Callable[[str, str], None]
"""Called with the key of a value that was changed, and with what became of it."""

_MAX_NOTED = 1000
_noted: set[tuple[str, str]] = set()  # directory of the experiment, and a key that was noted for it
MAX_ITEMS = 64  # elements of an array or set that is stored as a list
MAX_TEXT_BYTES = 4096
_MAX_KEY_BYTES = 256
_MAX_DEPTH = 32
_MAX_VALUES = 1 << 20  # in one report: of the smallest that would fit; a list that holds another twice, which holds a
# third twice, and so on, has no end
_CONTAINER = 5  # what a list, a dict or an object counts as: they take longer
_ORDINARY = frozenset({float, bool, type(None)})


def plain_metrics(metrics: Any, on_change: OnChange | None = None) -> dict[str, Any]:
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
    plain = Plain()
    result: dict[str, Any] = {}
    for key, value in list(metrics.items()):
        name, what = key_text(key, result)
        result[name] = plain.of(value)
        if on_change is not None and (said := plain.changed or what):
            on_change(name, said)
    return _few_keys(result, on_change)


def _few_keys(result: dict[str, Any], on_change: OnChange | None) -> dict[str, Any]:
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
        _leave_out(result, largest, f"a report holds at most {MAX_KEYS:,} keys", on_change)
    return result


def note_once(directory: str, key: str, what: str) -> None:
    """Say in a trial's output that a value is not stored as it was reported, once for the sweep in `directory`."""
    noted = (directory, key)
    if noted not in _noted and len(_noted) < _MAX_NOTED:
        _noted.add(noted)
        with contextlib.suppress(OSError, ValueError):  # its reader has gone
            print(f"sweep: {key[:60]!r} was reported as {what}; this is said once.", file=sys.stderr, flush=True)


def within_size(result: dict[str, Any], on_change: OnChange | None) -> None:
    """Write the largest values of a report as texts, until it takes at most 1 MiB."""
    sizes = {key: len(pickle.dumps(value, 5)) for key, value in result.items()}
    total = sum(sizes.values()) + sum(len(key.encode()) + 8 for key in sizes)
    while total > MAX_BYTES:
        largest = max(sizes, key=lambda key: sizes[key])
        total -= sizes.pop(largest)
        _leave_out(result, largest, f"a report takes at most {MAX_BYTES:,} bytes", on_change)


def _leave_out(result: dict[str, Any], key: str, why: str, on_change: OnChange | None) -> None:
    result[key] = text = f"{summary(result[key])}: not stored, {why}"
    if on_change is not None:
        on_change(key, f"{text}; write large data to a file of the trial's directory, or into a checkpoint")


def num_keys(value: Any) -> int:
    """Return how many keys the dicts in a plain value have."""
    if type(value) is dict:
        return len(value) + sum(map(num_keys, value.values()))
    return sum(map(num_keys, value)) if type(value) is list else 0


class _TooMuch(Exception):
    """A value holds more than any report can take."""


class Plain:
    """Makes the values of one report plain.

    Attributes:
        changed: what became of the last value, for people; None when nothing that they would miss is gone.
    """

    def __init__(self) -> None:
        self.changed: str | None = None
        self._num_left = _MAX_VALUES
        self._above: set[int] = set()  # the lists and dicts that the present value lies in

    def of(self, value: Any) -> Any:
        """Return the plain form of a value; whatever its own methods raise."""
        self.changed = None
        left, self._num_left = self._num_left, min(self._num_left, _MAX_VALUES)
        try:
            return self._plain(value, 0)
        except _TooMuch:
            self._num_left = left
            return self._said(f"{summary(value)}: not stored, it holds more than {_MAX_VALUES:,} values", "a text")
        finally:
            self._above.clear()

    def _plain(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind in _ORDINARY:
            return value
        if kind is int:
            return value if is_held(value) else self._text(shown_int(value), "a number that no float holds")
        if kind is str:
            return self._text(value, "")
        self._num_left -= _CONTAINER
        if self._num_left < 0:
            raise _TooMuch
        try:
            return self._converted(value, depth)
        except _TooMuch:
            raise
        except Exception:  # the border to the user's own types: any of their methods may raise
            return self._text_of(value)

    def _converted(self, value: Any, depth: int) -> Any:
        if isinstance(value, (Mapping, list, tuple)):
            return self._inside(value, depth)
        if isinstance(value, (bytes, bytearray)):
            return self._text(repr(bytes(value[:MAX_TEXT_BYTES])), f"{kind_of(value)} of {len(value):,} bytes")
        if _shape(value) is not None:
            return self._array(value, depth)
        # of subclasses the number or text that they are, whatever they make of it themselves
        if isinstance(value, str):
            return self._text(str.__str__(value), "")
        if isinstance(value, int):
            return self._plain(int.__pos__(value), depth)
        if isinstance(value, float):
            return float.__pos__(value)
        if isinstance(value, Integral):
            return self._plain(int(value), depth)
        if isinstance(value, Real) or _is_decimal(value):
            return self._real(value)
        if isinstance(value, (Set, deque, range)):
            if len(value) > MAX_ITEMS:
                return self._said(summary(value), "a text")
            self.changed = f"{kind_of(value)}, stored as a list"
            items = [self._plain(item, depth + 1) for item in value]
            return sorted(items, key=_order) if isinstance(value, Set) else items
        return self._text_of(value)

    def _real(self, value: Any) -> Any:
        number = float(value)
        if math.isinf(number) and value not in (math.inf, -math.inf):
            return self._text(str(value), "a number that no float holds")
        return number

    def _inside(self, value: Any, depth: int) -> Any:
        """Return the plain form of a dict or list; what holds itself, or lies too deep, is named."""
        if id(value) in self._above or depth >= _MAX_DEPTH:
            why = "it holds itself" if id(value) in self._above else f"nested more than {_MAX_DEPTH} deep"
            return self._said(f"{kind_of(value)}: not stored, {why}", "a text")
        self._above.add(id(value))
        if isinstance(value, Mapping):
            inner: dict[str, Any] = {}
            for key, item in list(value.items()):
                name, what = key_text(key, inner)
                inner[name] = self._plain(item, depth + 1)
                self._num_left -= 1
                self.changed = self.changed or (what if not issubclass(type(key), (int, float)) else None)
            plain: Any = inner
        else:
            self._num_left -= len(value)
            if self._num_left < 0:
                raise _TooMuch
            plain = [item if type(item) in _ORDINARY else self._plain(item, depth + 1) for item in value]
        self._above.discard(id(value))
        return plain

    def _array(self, value: Any, depth: int) -> Any:
        """Return the number that an array of no dimension holds, a small array as a list, a larger one as a text."""
        shape = _shape(value)
        assert shape is not None
        if depth >= _MAX_DEPTH:
            return self._text_of(value)
        if shape == ():
            made = [getattr(value, name) for name in ("tolist", "item", "numpy") if hasattr(value, name)]
            item = made[0]()  # numpy's `masked` is None as a list, and 0.0 as an item
            if type(item) is not type(value):
                return self._plain(item, depth + 1)
            return self._real(item)  # a long double, which is its own item
        size = math.prod(shape)
        dtype = getattr(value, "dtype", None)
        what = f"{kind_of(value)} of shape {shape}" + ("" if dtype is None else f" and dtype {dtype!s:.40}")
        if size > MAX_ITEMS:
            return self._said(sound_text(what), "a text")
        for name in ("tolist", "to_numpy", "numpy"):
            if callable(make := getattr(value, name, None)):
                made = make()
                plain = self._plain(made if isinstance(made, list) else made.tolist(), depth + 1)
                self.changed = f"{what}, stored as a list"
                return plain
        return self._text_of(value)

    def _text_of(self, value: Any) -> str:
        """Return how a value prints; of one that cannot print, its type."""
        try:
            text = str.__str__(str(value))
        except Exception as error:  # the user's own __str__ or __repr__
            text = f"<{kind_of(value)}, whose __str__ raised {type(error).__name__}>"
        return self._text(text, kind_of(value))

    def _text(self, text: str, what: str) -> str:
        """Return a text that can be stored; `what` it was is said, and that a text was cut or escaped."""
        stored = cut(text, MAX_TEXT_BYTES)
        if what:
            self.changed = f"{what}, stored as a text"
        elif stored != text:
            is_long = stored.endswith(_mark(text))
            self.changed = (
                f"a text of {len(text):,} characters, cut" if is_long else "a text with NUL or half characters"
            )
        return stored

    def _said(self, text: str, what: str) -> str:
        self.changed = f"{text}, stored as {what}"
        return text


def cut(text: str, most: int) -> str:
    """Return a sound text of at most `most` bytes; at its end stands how long it was, if it was longer."""
    if len(text) <= most:
        sound = sound_text(text)
        if len(sound) * 4 <= most or len(sound.encode()) <= most:
            return sound
    mark = _mark(text)
    start = sound_text(text[:most]).encode()[: most - len(mark)]
    return start.decode("utf-8", "ignore") + mark


def _mark(text: str) -> str:
    return f"... [{len(text):,} characters]"


def key_text(key: Any, taken: Iterable[str]) -> tuple[str, str | None]:
    """Return a key as text, and what became of it, for people; None when it was a text that can be stored."""
    kind = type(key)  # not isinstance(), which asks the key itself for its class
    is_text = issubclass(kind, str)
    try:
        text = str.__str__(key if is_text else shown_int(key) if issubclass(kind, int) else str(key))
    except Exception:  # the user's own __str__
        text = f"<{kind_of(key)}>"
    name = cut(text, _MAX_KEY_BYTES)
    if is_text and name == text and name not in taken:
        return name, None
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name} ({number})"
    return free, f"a key of type {kind.__name__}, stored as {free!r}"


def kind_of(value: Any) -> str:
    """Return what something is, for people: `numpy.ndarray`, `list`."""
    kind = type(value)
    with contextlib.suppress(Exception):  # a metaclass may forbid to ask
        module = kind.__module__
        is_builtin = module == "builtins" or not isinstance(module, str)
        return sound_text(kind.__qualname__ if is_builtin else f"{module}.{kind.__qualname__}")[:200]
    return "object"


def summary(value: Any) -> str:
    """Return what a value is and how many elements it has, without looking into it."""
    with contextlib.suppress(Exception):  # the user's own __len__
        what = "characters" if isinstance(value, str) else "keys" if isinstance(value, Mapping) else "elements"
        return f"{kind_of(value)} of {len(value):,} {what}"
    return kind_of(value)


def _shape(value: Any) -> tuple[int, ...] | None:
    """Return the shape of an array, of whichever library; None for what is none."""
    shape = getattr(value, "shape", None)
    if shape is None or isinstance(shape, (str, bytes, Mapping)):
        return None
    try:
        sizes = tuple(shape)
    except TypeError:
        return None
    return tuple(map(int, sizes)) if all(isinstance(size, Integral) for size in sizes) else None


def _order(item: Any) -> tuple[str, Any]:
    """Sort what a set held: numbers by size, texts by letters, the rest by how it prints."""
    if isinstance(item, (bool, int, float)):
        return "", item
    return type(item).__name__, item if isinstance(item, str) else str(item)


def _is_decimal(value: Any) -> bool:
    module = sys.modules.get("decimal")  # a process that has one has imported it
    return module is not None and isinstance(value, module.Decimal)
