"""A hundred values that nobody should report, by name: each is made anew, because some can be used only once."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import io
import math
import pathlib
import re
import threading
import types
import unittest.mock
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

__all__ = ["NUMBERS", "ODD"]


class Colour(enum.Enum):
    RED = 1
    NESTED = (1, (2, 3))


class Level(enum.IntEnum):
    HIGH = 3


class Name(enum.StrEnum):
    ADAM = "adam"


@dataclasses.dataclass
class Point:
    x: float = 0.5
    y: Any = dataclasses.field(default_factory=list)


Pair = collections.namedtuple("Pair", "one two")


class Raising:
    def __repr__(self):
        raise RuntimeError("no repr")

    __str__ = __eq__ = __reduce__ = __hash__ = __bool__ = __len__ = __float__ = __iter__ = __repr__  # type: ignore


class RaisingAttributes:
    def __getattribute__(self, name):
        raise ValueError(name)


class RaisingClass:
    @property
    def __class__(self):
        raise ValueError("no class")


class EndlessRepr:
    def __repr__(self):
        return repr(self)


class SurrogateRepr:
    def __repr__(self):
        return "\ud800\0"


class EqualRaises:
    def __eq__(self, other):
        raise RuntimeError("no ==")

    __hash__ = object.__hash__


class OddMeta(type):
    def __repr__(cls):
        raise RuntimeError("no repr of the class")

    @property
    def __module__(cls):
        raise RuntimeError("no module")


class OfOddMeta(metaclass=OddMeta):
    pass


class OwnMapping(Mapping):
    def __getitem__(self, key):
        return {"a": 1.0}[key]

    def __iter__(self):
        return iter(["a"])

    def __len__(self):
        return 1


class RaisingMapping(OwnMapping):
    def __iter__(self):
        raise RuntimeError("no keys")


class LyingMapping(OwnMapping):
    def __iter__(self):
        return iter(["a", "b"])


class OwnInt(int):
    def __repr__(self):
        raise RuntimeError("no repr")

    __str__ = __int__ = __index__ = __repr__  # type: ignore[assignment]


class OwnFloat(float):
    def __repr__(self):
        raise RuntimeError("no repr")

    __str__ = __float__ = __repr__  # type: ignore[assignment]


class OwnStr(str):
    def __repr__(self):
        raise RuntimeError("no repr")

    __str__ = __repr__  # type: ignore[assignment]


class OwnList(list):
    def __iter__(self):
        raise RuntimeError("no items")


class OwnDict(dict):
    def items(self):
        raise RuntimeError("no items")


class TextShape:
    shape = "wide"


class LyingArray:
    shape = (3,)

    def tolist(self):
        raise RuntimeError("nothing here")


class EndlessArray:
    shape = (1,)

    def tolist(self):
        return [EndlessArray()]


class Hashed:
    def __init__(self, number):
        self.number = number


def _holds_itself(loop: Any, inner: Any) -> Any:
    """Put a value into a list or dict in it."""
    inner.update(again=loop) if isinstance(inner, dict) else inner.append(loop)
    return loop


def _deep(depth: int, wrap: Callable[[Any], Any]) -> Any:
    value: Any = 1.0
    for _ in range(depth):
        value = wrap(value)
    return value


def _doubling(depth: int) -> Any:
    value: Any = [1.0]
    for _ in range(depth):
        value = [value, value]
    return value


def _pandas(make: Callable[[Any], Any]) -> Any:
    import pandas as pd

    return make(pd)


def _torch(make: Callable[[Any], Any]) -> Any:
    import torch

    return make(torch)


def _jax(make: Callable[[Any], Any]) -> Any:
    import jax.numpy as jnp

    return make(jnp)


def _closed_file() -> Any:
    file = io.StringIO()
    file.close()
    return file


# Values that are numbers, if odd ones: they are stored as such, and a metric may be one.
NUMBERS: dict[str, Callable[[], Any]] = {
    "nan": lambda: math.nan,
    "inf": lambda: math.inf,
    "negative zero": lambda: -0.0,
    "True": lambda: True,
    "2**63": lambda: 2**63,
    "10**308": lambda: 10**308,
    "IntEnum": lambda: Level.HIGH,
    "own int": lambda: OwnInt(3),
    "own float": lambda: OwnFloat(0.5),
    "Decimal": lambda: decimal.Decimal("0.1"),
    "Decimal NaN": lambda: decimal.Decimal("NaN"),
    "Fraction": lambda: fractions.Fraction(1, 3),
    "np.float32": lambda: np.float32(0.1),
    "np.longdouble": lambda: np.longdouble("0.1"),
    "np.float32 nan": lambda: np.float32("nan"),
    "np.uint64": lambda: np.uint64(2**64 - 1),
    "np.bool": lambda: np.bool_(True),
    "0-d float array": lambda: np.array(0.5),
    "0-d tensor": lambda: _torch(lambda torch: torch.tensor(0.5)),
    "0-d tensor with gradient": lambda: _torch(lambda torch: torch.tensor(0.5, requires_grad=True) * 2),
    "0-d bfloat16 tensor": lambda: _torch(lambda torch: torch.tensor(0.5, dtype=torch.bfloat16)),
    "0-d jax": lambda: _jax(lambda jnp: jnp.float32(0.5)),
}

ODD: dict[str, Callable[[], Any]] = NUMBERS | {
    # too large
    "10**309": lambda: 10**309,
    "10**400": lambda: 10**400,
    "10**5000": lambda: 10**5000,
    "2**1000000": lambda: 1 << 1_000_000,
    "huge own int": lambda: OwnInt(10**400),
    "huge Decimal": lambda: decimal.Decimal("1e400"),
    "signalling Decimal": lambda: decimal.Decimal("sNaN"),
    "huge Fraction past printing": lambda: fractions.Fraction(10**5000, 7),
    "huge longdouble": lambda: np.longdouble("1e4000"),
    "huge int in a dict": lambda: {"a": {"b": 10**5000}},
    "huge int as a key": lambda: {10**5000: 1},
    "0-d array of a huge int": lambda: np.array(10**5000, dtype=object),
    # texts
    "text": lambda: "0.3",
    "empty text": lambda: "",
    "10 MB of text": lambda: "x" * 10_000_000,
    "surrogate": lambda: "\ud800",
    "NUL": lambda: "a\0b",
    "escape sequences": lambda: "\x1b[31mred\x1b[0m\x1b]0;title\x07",
    "line ends": lambda: "a\nb\r\nc\u2028d\x85e",
    "looks like a tag": lambda: '{"$pickle": "gASVBgAAAAAAAACMAmhplC4=", "repr": "x"}',
    "looks like NaN": lambda: "NaN",
    "own text": lambda: OwnStr("a"),
    "StrEnum": lambda: Name.ADAM,
    # bytes
    "bytes": lambda: b"abc\xff",
    "released memoryview": lambda: _released(memoryview(b"abc")),
    # other numbers
    "complex": lambda: 1 + 2j,
    # times, places, names
    "date": lambda: datetime.date(2024, 1, 1),
    "timedelta": lambda: datetime.timedelta(days=999999999),
    "np.datetime64": lambda: np.datetime64("2024-01-01"),
    "NaT": lambda: np.datetime64("NaT"),
    "path": lambda: pathlib.Path("/tmp/x"),
    "UUID": lambda: uuid.UUID(int=1),
    "Enum": lambda: Colour.RED,
    # collections
    "tuple": lambda: (1, 2.0, "x"),
    "namedtuple": lambda: Pair(1, Pair(2, 3)),
    "set": lambda: {3, 1, 2},
    "mixed set": lambda: {1, "a", None, (2, 3), 0.5},
    "range": lambda: range(3),
    "dict items": lambda: {"a": 1}.items(),
    "defaultdict": lambda: collections.defaultdict(list, a=[1]),
    "mapping proxy": lambda: types.MappingProxyType({"a": 1}),
    "own mapping": OwnMapping,
    "mapping that raises": RaisingMapping,
    "mapping that lies": LyingMapping,
    "own list": lambda: OwnList([1, 2]),
    "own dict": lambda: OwnDict(a=1),
    "empty list": list,
    "empty dict": dict,
    "list of odd things": lambda: [object(), {1}, b"x", 10**400, "\ud800", lambda: 1],
    "dict of 5,000": lambda: {str(n): n for n in range(5000)},
    # keys within
    "keys of all kinds": lambda: {1: 1, None: 2, 0.5: 4, (1, 2): 5, b"x": 6, Colour.RED: 7, "1": 8},
    "key that cannot print": lambda: {Hashed(1): 1, Raising: 2},
    "key with slashes": lambda: {"/": 1, "a/b": 2, "/a/": 3, "//": 4},
    "surrogate key": lambda: {"\ud800": 1, "\\ud800": 2},
    "10 MB key": lambda: {"k" * 10_000_000: 1},
    "keys like tags": lambda: {"$float": "nan", "$pickle": "x", "$tuple": 3, "$dict": 4, "$bytes": "5"},
    # lists that charts stumble over
    "ragged list": lambda: [[1], [1, 2]],
    # structures without an end
    "list that holds itself": lambda: _holds_itself(*[[]] * 2),
    "dict that holds itself": lambda: _holds_itself(*[{}] * 2),
    "dict that holds itself below": lambda: (lambda inner: _holds_itself({"a": [inner]}, inner))({}),
    "100,000 deep list": lambda: _deep(100_000, lambda value: [value]),
    "10,000 deep dict": lambda: _deep(10_000, lambda value: {"a": value}),
    "2**60 of one list": lambda: _doubling(60),
    # arrays
    "array of 3": lambda: np.zeros(3),
    "array of 10**6": lambda: np.zeros(10**6),
    "array of objects": lambda: np.array([object(), None, "x"], dtype=object),
    "array of records": lambda: np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    "masked array": lambda: np.ma.array([1.0, 2.0], mask=[True, False]),
    "random generator": lambda: np.random.default_rng(0),
    "tensor of 3": lambda: _torch(lambda torch: torch.zeros(3)),
    "sparse tensor": lambda: _torch(lambda torch: torch.eye(3).to_sparse()),
    "meta tensor": lambda: _torch(lambda torch: torch.zeros((), device="meta")),
    "torch module": lambda: _torch(lambda torch: torch.nn.Linear(2, 2)),
    "jax array": lambda: _jax(lambda jnp: jnp.zeros(3)),
    "series": lambda: _pandas(lambda pd: pd.Series([1.0, None])),
    "frame": lambda: _pandas(lambda pd: pd.DataFrame({"a": [1], "b": ["x"]})),
    "pandas NA": lambda: _pandas(lambda pd: pd.NA),
    "timestamp": lambda: _pandas(lambda pd: pd.Timestamp("2024-01-01", tz="UTC")),
    "shape that is a text": TextShape,
    "array that lies": LyingArray,
    "array without an end": EndlessArray,
    # objects
    "object": object,
    "dataclass": Point,
    "dataclass of odd things": lambda: Point(10**5000, [object(), "\ud800"]),
    "raises everywhere": Raising,
    "raises at any attribute": RaisingAttributes,
    "raises at its class": RaisingClass,
    "repr without an end": EndlessRepr,
    "repr of a surrogate": SurrogateRepr,
    "== raises": EqualRaises,
    "odd metaclass": OfOddMeta,
    "mock": unittest.mock.MagicMock,
    "generator": lambda: (n for n in range(3)),
    "lambda": lambda: lambda: 1,
    "builtin": lambda: len,
    "module": lambda: math,
    "exception with a cause": lambda: _raised(),
    "lock": threading.Lock,
    "closed file": _closed_file,
    "pattern": lambda: re.compile("x"),
    "Ellipsis": lambda: ...,
}


def _released(view: memoryview) -> memoryview:
    view.release()
    return view


def _raised() -> Exception:
    try:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise ValueError("\ud800") from inner
    except ValueError as error:
        return error
