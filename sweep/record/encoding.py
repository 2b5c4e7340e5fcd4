"""Values to JSON text and back, exactly: NaN and infinities, tuples, numpy scalars, and the user's own objects.

What JSON cannot say is an object with one `$`-key:

    {"$float": "nan"}             nan, inf, -inf
    {"$int": "0x..."}             a whole number of more digits than Python prints
    {"$tuple": [...]}             a tuple
    {"$bytes": "base64"}          bytes
    {"$dict": [[key, value]]}     a dict whose keys are not all texts, or begin with `$`
    {"$pickle": "base64", "repr": "..."}   anything else, by cloudpickle; only `resume` ever loads it. With "str" where
                                  `str()` of it says something else
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import math
import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sweep.core.values import printed, shown, sound_text
from sweep.record.importing import unpickle

_MOST_BITS = 14_000  # of a whole number that is written in digits: Python prints 4,300 of them
_MOST_PRINTED = 4096  # characters that are stored of how an object prints
# What pickles of numpy's arrays name: nothing that runs code of anybody else.
_OF_ARRAYS = frozenset({"_frombuffer", "_reconstruct", "dtype", "ndarray", "scalar"})


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value that was stored as a pickle and was not loaded, because reading an experiment runs no code."""

    text: str
    printed: str = field(default="", compare=False)

    def __repr__(self) -> str:
        return self.text

    def __str__(self) -> str:
        return self.printed or self.text


# Numbers that JSON does not know raise ValueError.
_write = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
_PLAIN = frozenset({float, int, str, bool, type(None)})


def encode(value: Any) -> str:
    """Return `value` as JSON text that `decode` turns back into an equal value.

    Raises:
        TypeError: a value that cannot be pickled either; the message names it.
    """
    try:
        text = _write(value if _is_plain(value) else _tag(value))
    except ValueError:
        text = _write(_tag(value))
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, as in a file name that is no text: no database takes it
        return json.dumps(json.loads(text), separators=(",", ":"))
    return text


def _is_plain(value: Any) -> bool:
    """Whether JSON says it as it is, or refuses it; a walk like this takes a third of the time of `_tag`."""
    kind = type(value)
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str or key[:1] == "$" or (type(item) not in _PLAIN and not _is_plain(item)):
                return False
        return True
    return kind in _PLAIN or (kind is list and all(map(_is_plain, value)))


def _tag(value: Any) -> Any:
    kind = type(value)
    if value is None or isinstance(value, bool) or kind is str:
        return value
    if kind is int:
        return value if value.bit_length() <= _MOST_BITS else {"$int": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"$float": str(value)}
    if kind is tuple:
        return {"$tuple": [_tag(item) for item in value]}
    if kind is list:
        return [_tag(item) for item in value]
    if kind is bytes:
        return {"$bytes": base64.b64encode(value).decode()}
    if kind is dict:
        if all(type(k) is str and not k.startswith("$") for k in value):
            return {k: _tag(v) for k, v in value.items()}
        return {"$dict": [[_tag(k), _tag(v)] for k, v in value.items()]}
    np = sys.modules.get("numpy")  # no value is one of numpy's before it was imported
    if np and isinstance(value, np.generic) and value.ndim == 0 and not isinstance(value, (np.void, np.object_)):
        plain = value.item()
        return _pickled(value) if isinstance(plain, np.generic) else _tag(plain)  # a long double is its own item
    if isinstance(value, Mapping) and kind.__module__.startswith("sweep."):
        return _tag(dict(value))
    return _pickled(value)


def _pickled(value: Any) -> dict[str, str]:
    import cloudpickle

    try:
        data = cloudpickle.dumps(value)
    except Exception as error:  # whatever the user's __reduce__ raises
        raise TypeError(f"a value of type {type(value).__name__} cannot be stored: {error}") from error
    tagged = {"$pickle": base64.b64encode(data).decode(), "repr": shown(value)}
    text = sound_text(printed(value)[:_MOST_PRINTED])
    return tagged if text == tagged["repr"] else tagged | {"str": text}


Trust = bool | Literal["arrays"] | None


def decode(text: str, *, trust: Trust = False) -> Any:
    """Return the value that `encode` was given.

    Args:
        trust: load pickled values. This runs code from the file: only for experiments of one's own. Otherwise they
            come back as `Opaque`, which prints like the value. "arrays": of numpy alone, whose pickles run no code.
    """
    return untag(json.loads(text), trust=trust_in(text, trust))


def trust_in(text: str, trust: Trust) -> Trust:
    """Return how what `text` says is to be read: None where it has no `$`-key, which nearly all have not."""
    return trust if '"$' in text else None


def untag(value: Any, *, trust: Trust = False) -> Any:
    """Return what a value of JSON stands for; arguments as of `decode`, and trust None: nothing in it is tagged."""
    if trust is None:
        return value
    if isinstance(value, list):
        return [untag(item, trust=trust) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) <= 3:
        if "$float" in value:
            return float(value["$float"])
        if "$int" in value:
            return int(value["$int"], 16)
        if "$tuple" in value:
            return tuple(untag(item, trust=trust) for item in value["$tuple"])
        if "$bytes" in value:
            return base64.b64decode(value["$bytes"])
        if "$dict" in value:
            pairs = [(untag(key, trust=trust), untag(item, trust=trust)) for key, item in value["$dict"]]
            return {tuple(key) if isinstance(key, list) else key: item for key, item in pairs}
        if "$pickle" in value:
            return _unpickled(value, trust)
    return {key: untag(item, trust=trust) for key, item in value.items()}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] == "numpy" and name in _OF_ARRAYS:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is not needed for an array")


def _unpickled(tagged: dict[str, str], trust: Trust) -> Any:
    if trust is True:
        return unpickle(base64.b64decode(tagged["$pickle"]))
    if trust:
        with contextlib.suppress(Exception):  # no array, or of another version: a damaged pickle raises anything
            return _ArrayUnpickler(io.BytesIO(base64.b64decode(tagged["$pickle"]))).load()
    return Opaque(tagged.get("repr", "<object>"), tagged.get("str", ""))


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are equal as the record would hold them: objects that do not define `==` are, when they are
    stored alike."""
    if _bare(one) == _bare(other):
        return True
    try:
        return bool(one == other)
    except Exception:  # arrays in them, which are not alike, and the user's own __eq__
        return False


def _bare(value: Any) -> Any:
    """Return what is stored, without how pickled values print: that may name where they lie in memory."""
    return json.loads(encode(value), object_hook=lambda found: found.get("$pickle", found))
