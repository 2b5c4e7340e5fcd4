"""Two hundred values that nobody should report, by name: each is made anew, because some can be used only once."""

from __future__ import annotations

import ast
import collections
import contextlib
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import io
import itertools
import math
import operator
import pathlib
import random
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


class Flags(enum.Flag):
    A = 1
    B = 2


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


class WrongRepr:
    def __repr__(self):
        return 3  # type: ignore[return-value]


class EndlessRepr:
    def __repr__(self):
        return repr(self)


class HugeRepr:
    def __repr__(self):
        return "x" * 3_000_000


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


class OddShape:
    shape = (2, "three")


class TextShape:
    shape = "wide"


class LyingArray:
    shape = (3,)

    def tolist(self):
        raise RuntimeError("nothing here")


class EndlessScalar:
    shape = ()

    def item(self):
        return EndlessScalar()


class EndlessArray:
    shape = (1,)

    def tolist(self):
        return [EndlessArray()]


class Hashed:
    def __init__(self, number):
        self.number = number


def _holds_itself(kind: str) -> Any:
    if kind == "list":
        loop: Any = []
        loop.append(loop)
    elif kind == "twice":
        loop = []
        loop += [loop, loop]
    elif kind == "dict":
        loop = {}
        loop["again"] = loop
    elif kind == "tuple":
        inner: list[Any] = []
        loop = (inner,)
        inner.append(loop)
    else:
        loop = {"a": [{}]}
        loop["a"][0]["b"] = loop
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


def _array_that_holds_itself() -> Any:
    array = np.empty(1, dtype=object)
    array[0] = array
    return array


def _closed_file() -> Any:
    file = io.StringIO()
    file.close()
    return file


# Values that are numbers, if odd ones: they are stored as such, and a metric may be one.
NUMBERS: dict[str, Callable[[], Any]] = {
    "nan": lambda: math.nan,
    "inf": lambda: math.inf,
    "negative inf": lambda: -math.inf,
    "negative zero": lambda: -0.0,
    "smallest float": lambda: 5e-324,
    "largest float": lambda: 1.7976931348623157e308,
    "True": lambda: True,
    "2**63": lambda: 2**63,
    "2**64": lambda: 2**64,
    "-2**63-1": lambda: -(2**63) - 1,
    "10**100": lambda: 10**100,
    "10**308": lambda: 10**308,
    "IntEnum": lambda: Level.HIGH,
    "own int": lambda: OwnInt(3),
    "own float": lambda: OwnFloat(0.5),
    "Decimal": lambda: decimal.Decimal("0.1"),
    "Decimal NaN": lambda: decimal.Decimal("NaN"),
    "Decimal inf": lambda: decimal.Decimal("Infinity"),
    "Fraction": lambda: fractions.Fraction(1, 3),
    "np.float16": lambda: np.float16(0.5),
    "np.float32": lambda: np.float32(0.1),
    "np.float64": lambda: np.float64(0.1),
    "np.longdouble": lambda: np.longdouble("0.1"),
    "np.float32 nan": lambda: np.float32("nan"),
    "np.longdouble inf": lambda: np.longdouble("inf"),
    "np.int8": lambda: np.int8(-3),
    "np.uint64": lambda: np.uint64(2**64 - 1),
    "np.bool": lambda: np.bool_(True),
    "0-d float array": lambda: np.array(0.5),
    "0-d int array": lambda: np.array(3),
    "0-d tensor": lambda: _torch(lambda torch: torch.tensor(0.5)),
    "0-d tensor with gradient": lambda: _torch(lambda torch: torch.tensor(0.5, requires_grad=True) * 2),
    "0-d bfloat16 tensor": lambda: _torch(lambda torch: torch.tensor(0.5, dtype=torch.bfloat16)),
    "0-d bool tensor": lambda: _torch(lambda torch: torch.tensor(True)),
    "0-d jax": lambda: _jax(lambda jnp: jnp.float32(0.5)),
}

ODD: dict[str, Callable[[], Any]] = NUMBERS | {
    # too large
    "10**309": lambda: 10**309,
    "10**400": lambda: 10**400,
    "-10**400": lambda: -(10**400),
    "10**4299": lambda: 10**4299,
    "10**4300": lambda: 10**4300,
    "10**5000": lambda: 10**5000,
    "-10**5000": lambda: -(10**5000),
    "2**1000000": lambda: 1 << 1_000_000,
    "huge own int": lambda: OwnInt(10**400),
    "huge own int past printing": lambda: OwnInt(10**5000),
    "huge Decimal": lambda: decimal.Decimal("1e400"),
    "huge Decimal exponent": lambda: decimal.Decimal("1e999999"),
    "signalling Decimal": lambda: decimal.Decimal("sNaN"),
    "huge Fraction": lambda: fractions.Fraction(10**400),
    "huge Fraction past printing": lambda: fractions.Fraction(10**5000, 7),
    "huge longdouble": lambda: np.longdouble("1e4000"),
    "huge int in a list": lambda: [1, 10**400],
    "huge int in a dict": lambda: {"a": {"b": 10**5000}},
    "huge int as a key": lambda: {10**5000: 1},
    "object array of huge ints": lambda: np.array([10**400, 10**5000], dtype=object),
    "0-d array of a huge int": lambda: np.array(10**5000, dtype=object),
    # texts
    "text": lambda: "0.3",
    "empty text": lambda: "",
    "text of digits": lambda: "9" * 400,
    "10 MB of text": lambda: "x" * 10_000_000,
    "10 MB of wide text": lambda: "語" * 3_300_000,
    "just over 4 KiB": lambda: "x" * 4097,
    "surrogate": lambda: "\ud800",
    "two surrogates": lambda: "\udc00\ud800",
    "NUL": lambda: "a\0b",
    "only NUL": lambda: "\0",
    "escape sequences": lambda: "\x1b[31mred\x1b[0m\x1b]0;title\x07",
    "line ends": lambda: "a\nb\r\nc\u2028d\x85e",
    "right to left": lambda: "\u202eabc",
    "emoji": lambda: "👩‍👩‍👧‍👦",
    "combining marks": lambda: "e" + "\u0301" * 500,
    "byte order mark": lambda: "\ufeffx",
    "quotes": lambda: "\"'`,;\\\t",
    "formula": lambda: "=1+1",
    "looks like a tag": lambda: '{"$pickle": "gASVBgAAAAAAAACMAmhplC4=", "repr": "x"}',
    "looks like NaN": lambda: "NaN",
    "own text": lambda: OwnStr("a"),
    "StrEnum": lambda: Name.ADAM,
    "np.str": lambda: np.str_("a"),
    "surrogate own text": lambda: OwnStr("\udcff"),
    # bytes
    "bytes": lambda: b"abc\xff",
    "10 MB of bytes": lambda: b"x" * 10_000_000,
    "bytearray": lambda: bytearray(b"abc"),
    "memoryview": lambda: memoryview(b"abc"),
    "released memoryview": lambda: _released(memoryview(b"abc")),
    "np.bytes": lambda: np.bytes_(b"a\xff"),
    # other numbers
    "complex": lambda: 1 + 2j,
    "complex nan": lambda: complex(math.nan, math.inf),
    "np.complex64": lambda: np.complex64(1 + 2j),
    # times, places, names
    "date": lambda: datetime.date(2024, 1, 1),
    "datetime": lambda: datetime.datetime(2024, 1, 1, 12),
    "aware datetime": lambda: datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC),
    "timedelta": lambda: datetime.timedelta(days=999999999),
    "time": lambda: datetime.time(1, 2),
    "np.datetime64": lambda: np.datetime64("2024-01-01"),
    "np.datetime64 ns": lambda: np.datetime64("2024-01-01T00:00:00.000000001"),
    "np.timedelta64": lambda: np.timedelta64(3, "s"),
    "NaT": lambda: np.datetime64("NaT"),
    "path": lambda: pathlib.Path("/tmp/x"),
    "path that is no text": lambda: pathlib.Path("/tmp/\udcff"),
    "UUID": lambda: uuid.UUID(int=1),
    "Enum": lambda: Colour.RED,
    "Enum with a tuple": lambda: Colour.NESTED,
    "Flag": lambda: Flags.A | Flags.B,
    # collections
    "tuple": lambda: (1, 2.0, "x"),
    "namedtuple": lambda: Pair(1, Pair(2, 3)),
    "set": lambda: {3, 1, 2},
    "frozenset": lambda: frozenset({"b", "a"}),
    "mixed set": lambda: {1, "a", None, (2, 3), 0.5},
    "large set": lambda: set(range(1000)),
    "empty set": lambda: set(),
    "deque": lambda: collections.deque([1, 2]),
    "range": lambda: range(3),
    "endless range": lambda: range(10**18),
    "range past len": lambda: range(10**30),
    "dict keys": lambda: {"a": 1}.keys(),
    "dict values": lambda: {"a": 1}.values(),
    "dict items": lambda: {"a": 1}.items(),
    "Counter": lambda: collections.Counter("abca"),
    "defaultdict": lambda: collections.defaultdict(list, a=[1]),
    "OrderedDict": lambda: collections.OrderedDict(a=1),
    "ChainMap": lambda: collections.ChainMap({"a": 1}, {"b": 2}),
    "mapping proxy": lambda: types.MappingProxyType({"a": 1}),
    "own mapping": OwnMapping,
    "mapping that raises": RaisingMapping,
    "mapping that lies": LyingMapping,
    "own list": lambda: OwnList([1, 2]),
    "own dict": lambda: OwnDict(a=1),
    "empty list": list,
    "empty dict": dict,
    "list of odd things": lambda: [object(), {1}, b"x", 10**400, "\ud800", lambda: 1],
    "list of 1,000,000": lambda: [0.5] * 1_000_000,
    "dict of 5,000": lambda: {str(n): n for n in range(5000)},
    "dict of large lists": lambda: {str(n): [0.5] * 1000 for n in range(300)},
    "list of long texts": lambda: ["x" * 5000] * 500,
    # keys within
    "keys of all kinds": lambda: {1: 1, None: 2, 0.5: 4, (1, 2): 5, b"x": 6, Colour.RED: 7, "1": 8},
    "key that cannot print": lambda: {Hashed(1): 1, Raising: 2},
    "empty key": lambda: {"": 1},
    "key with slashes": lambda: {"/": 1, "a/b": 2, "/a/": 3, "//": 4},
    "surrogate key": lambda: {"\ud800": 1, "\\ud800": 2},
    "NUL key": lambda: {"\0": 1, "a\nb": 2},
    "10 MB key": lambda: {"k" * 10_000_000: 1},
    "keys like tags": lambda: {"$float": "nan", "$pickle": "x", "$tuple": 3, "$dict": 4, "$bytes": "5"},
    "key like one tag": lambda: {"$pickle": "gASVBgAAAAAAAACMAmhplC4="},
    "own text as a key": lambda: {OwnStr("a"): 1},
    "dots and quotes in a key": lambda: {'a"b.c[0]': 1, "%s": 2, "{x}": 3},
    # lists that charts stumble over
    "ragged list": lambda: [[1], [1, 2]],
    "list of nan": lambda: [math.nan, math.inf],
    "list of three dimensions": lambda: [[[1.0]]],
    # structures without an end
    "list that holds itself": lambda: _holds_itself("list"),
    "list that holds itself twice": lambda: _holds_itself("twice"),
    "dict that holds itself": lambda: _holds_itself("dict"),
    "tuple that holds itself": lambda: _holds_itself("tuple"),
    "dict that holds itself below": lambda: _holds_itself("below"),
    "array that holds itself": _array_that_holds_itself,
    "31 deep": lambda: _deep(31, lambda value: [value]),
    "100,000 deep list": lambda: _deep(100_000, lambda value: [value]),
    "100,000 deep tuple": lambda: _deep(100_000, lambda value: (value,)),
    "10,000 deep dict": lambda: _deep(10_000, lambda value: {"a": value}),
    "2**60 of one list": lambda: _doubling(60),
    "2**25 of one list": lambda: _doubling(25),
    # arrays
    "array of 3": lambda: np.zeros(3),
    "array of 1": lambda: np.array([0.5]),
    "array of 64": lambda: np.arange(64),
    "array of 65": lambda: np.arange(65),
    "array of 8x8": lambda: np.eye(8),
    "array of 10**6": lambda: np.zeros(10**6),
    "empty array": lambda: np.zeros((0, 3)),
    "array of objects": lambda: np.array([object(), None, "x"], dtype=object),
    "array of records": lambda: np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    "0-d record": lambda: np.array((1, 2.0), dtype=[("a", "i4"), ("b", "f8")])[()],
    "masked array": lambda: np.ma.array([1.0, 2.0], mask=[True, False]),
    "masked": lambda: np.ma.masked,
    "matrix of texts": lambda: np.array([["a", "b"]]),
    "array of times": lambda: np.array(["2024-01-01"], dtype="M8[D]"),
    "complex array": lambda: np.array([1j]),
    "random generator": lambda: np.random.default_rng(0),
    "dtype": lambda: np.dtype("f8"),
    "ufunc": lambda: np.add,
    "tensor of 3": lambda: _torch(lambda torch: torch.zeros(3)),
    "tensor of 1": lambda: _torch(lambda torch: torch.tensor([0.5], requires_grad=True)),
    "tensor of 1000": lambda: _torch(lambda torch: torch.zeros(1000)),
    "sparse tensor": lambda: _torch(lambda torch: torch.eye(3).to_sparse()),
    "meta tensor": lambda: _torch(lambda torch: torch.zeros((), device="meta")),
    "complex tensor": lambda: _torch(lambda torch: torch.tensor(1j)),
    "torch module": lambda: _torch(lambda torch: torch.nn.Linear(2, 2)),
    "torch parameter": lambda: _torch(lambda torch: torch.nn.Parameter(torch.zeros(2))),
    "torch dtype": lambda: _torch(lambda torch: torch.float32),
    "torch device": lambda: _torch(lambda torch: torch.device("cpu")),
    "torch size": lambda: _torch(lambda torch: torch.zeros(2, 3).shape),
    "jax array": lambda: _jax(lambda jnp: jnp.zeros(3)),
    "jax array of 100": lambda: _jax(lambda jnp: jnp.zeros(100)),
    "series": lambda: _pandas(lambda pd: pd.Series([1.0, None])),
    "frame": lambda: _pandas(lambda pd: pd.DataFrame({"a": [1], "b": ["x"]})),
    "large frame": lambda: _pandas(lambda pd: pd.DataFrame(np.zeros((100, 10)))),
    "index": lambda: _pandas(lambda pd: pd.Index(["a"])),
    "pandas NA": lambda: _pandas(lambda pd: pd.NA),
    "pandas NaT": lambda: _pandas(lambda pd: pd.NaT),
    "timestamp": lambda: _pandas(lambda pd: pd.Timestamp("2024-01-01", tz="UTC")),
    "interval": lambda: _pandas(lambda pd: pd.Interval(0, 1)),
    "categorical": lambda: _pandas(lambda pd: pd.Categorical(["a", None])),
    "group by": lambda: _pandas(lambda pd: pd.DataFrame({"a": [1]}).groupby("a")),
    "shape of other things": OddShape,
    "shape that is a text": TextShape,
    "array that lies": LyingArray,
    "scalar without an end": EndlessScalar,
    "array without an end": EndlessArray,
    # objects
    "object": object,
    "dataclass": Point,
    "dataclass of odd things": lambda: Point(10**5000, [object(), "\ud800"]),
    "namespace": lambda: types.SimpleNamespace(a=1),
    "raises everywhere": Raising,
    "raises at any attribute": RaisingAttributes,
    "raises at its class": RaisingClass,
    "repr of another type": WrongRepr,
    "repr without an end": EndlessRepr,
    "repr of 3 MB": HugeRepr,
    "repr of a surrogate": SurrogateRepr,
    "== raises": EqualRaises,
    "odd metaclass": OfOddMeta,
    "class of an odd metaclass": lambda: OfOddMeta,
    "mock": unittest.mock.MagicMock,
    "plain mock": unittest.mock.Mock,
    "generator": lambda: (n for n in range(3)),
    "endless iterator": lambda: itertools.count(),
    "map": lambda: map(str, [1]),
    "lambda": lambda: lambda: 1,
    "function": lambda: _deep,
    "builtin": lambda: len,
    "method": lambda: "x".join,
    "partial": lambda: functools.partial(print, 1),
    "class": lambda: Point,
    "module": lambda: math,
    "exception": lambda: ValueError("x"),
    "exception with a cause": lambda: _raised(),
    "lock": threading.Lock,
    "thread": lambda: threading.Thread(target=print),
    "local": threading.local,
    "closed file": _closed_file,
    "pattern": lambda: re.compile("x"),
    "random": lambda: random.Random(0),
    "Ellipsis": lambda: ...,
    "NotImplemented": lambda: NotImplemented,
    "slice": lambda: slice(1, 2),
    "code": lambda: _deep.__code__,
    "syntax tree": lambda: ast.parse("x = 1"),
    "item getter": lambda: operator.itemgetter(1),
    "context": lambda: contextlib.nullcontext(),
    "sentinel in a list": lambda: [..., NotImplemented, None],
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
