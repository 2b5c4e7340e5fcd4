"""Values to JSON text and back: exactly, always valid JSON, and no code is run unless it is trusted."""

from __future__ import annotations

import enum
import json
import math
import os
import sqlite3
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.core.results import TrialResult
from sweep.record.encoding import Opaque, decode, encode, is_same


class Color(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


def strict(text: str):
    """Parse as any other JSON reader would: no NaN, no Infinity."""

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def same(a, b) -> bool:
    """Equal in value and type, NaN equal to NaN, -0.0 different from 0.0."""
    return repr(a) == repr(b)


texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from(["$float", "$tuple", "$", '"$', "repr", "$dict"])
)
keys = st.one_of(texts, st.integers(), st.booleans(), st.none(), st.tuples(st.integers(), texts), st.binary(max_size=4))
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), texts, st.binary(max_size=8), st.just(-0.0), st.just(math.nan)
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(texts, inner, max_size=4),
        st.dictionaries(keys, inner, max_size=4),
    ),
    max_leaves=20,
)


@given(values)
def test_every_nested_value_comes_back_as_it_was(value):
    text = encode(value)
    strict(text)
    text.encode("utf-8")
    assert same(decode(text), value)
    assert same(decode(text, trust=True), value)


@pytest.mark.parametrize(
    "value",
    [
        *(math.inf, 5e-324, 10**30, (), [(1, (2,))], b"\x00\xff", {"": None}, {1: "a", "1": "b"}, {True: 1}),
        *({(1, 2): {"x": (3,)}}, {"$float": "nan"}, {"$pickle": "x", "repr": "y"}, {"a": {"$dict": []}}),
        *("line\nfeed \x00 \u2028 é 漢 \U0001f600", '{"$pickle": "x"}'),
    ],
)
def test_a_particular_value_comes_back_as_it_was(value):
    assert same(decode(encode(value)), value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float64(1.5), 1.5),
        (np.float32(0.1), float(np.float32(0.1))),
        (np.float32("nan"), math.nan),
        (np.int64(7), 7),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        ([np.float32(0.25), (np.int32(1),)], [0.25, (1,)]),
        ({np.int64(3): 1}, {3: 1}),
    ],
)
def test_numpy_scalars_become_plain_numbers(value, expected):
    assert same(decode(encode(value)), expected)


@pytest.mark.parametrize("value", [Color.RED, Level.LOW, {1, 2}, frozenset("a"), 3 + 4j, np.arange(3), range(3), int])
def test_objects_come_back_only_when_trusted_and_show_themselves_otherwise(value):
    text = encode({"x": value, "y": 1})
    strict(text)
    unread = decode(text)
    assert unread["x"] == Opaque(repr(value)[:200])
    assert repr(unread["x"]) == repr(value)[:200]
    assert str(unread["x"]) == str(value)[:200]
    assert unread["y"] == 1
    back = decode(text, trust=True)["x"]
    assert np.array_equal(back, value) if isinstance(value, np.ndarray) else back == value
    assert type(back) is type(value)


def test_arrays_are_loaded_without_trust_and_nothing_else_is(tmp_path):
    values = {
        "grid": np.arange(6.0).reshape(2, 3).T,
        "words": np.array(["a", "bc"]),
        "evil": Bomb(str(tmp_path / "ran")),
    }
    found = decode(encode(values), trust="arrays")
    assert np.array_equal(found["grid"], values["grid"])
    assert found["words"].tolist() == ["a", "bc"]
    assert isinstance(found["evil"], Opaque)
    array_of_objects = decode(encode({"x": np.array([Bomb(str(tmp_path / "ran"))], dtype=object)}), trust="arrays")
    assert isinstance(array_of_objects["x"], Opaque)
    assert not (tmp_path / "ran").exists()


class Bomb:
    """Makes a directory when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (self.path,))

    def __repr__(self):
        return "Bomb()"


def test_reading_runs_no_code_unless_trusted(tmp_path):
    mark = tmp_path / "ran"
    text = encode([Bomb(str(mark))])
    assert decode(text) == [Opaque("Bomb()")]
    assert not mark.exists()
    decode(text, trust=True)
    assert mark.exists()


def test_what_cannot_be_pickled_is_named():
    with pytest.raises(TypeError, match="a value of type lock cannot be stored"):
        encode({"x": threading.Lock()})


def test_a_result_is_stored_as_a_plain_dict():
    assert decode(encode(TrialResult({"m": (1, math.nan)}, seq=4)))["m"][0] == 1


def test_a_plain_value_is_plain_json():
    assert encode({"a": [1, 2.5, "x", None, True], "é": {}}) == '{"a":[1,2.5,"x",null,true],"é":{}}'


def test_a_lone_surrogate_can_be_stored():
    """Such texts come from file names that are no UTF-8; a driver must not die when one is in a config."""
    value = {"path": "caf\udce9", "n": (1,)}
    connection = sqlite3.connect(":memory:")
    try:
        (text,) = connection.execute("SELECT ?", (encode(value),)).fetchone()
    finally:
        connection.close()
    assert decode(text) == value


class Unequal:
    """Defines no `==`."""

    def __init__(self, value: int) -> None:
        self.value = value


class Picky:
    """Raises when it is compared."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("more than one truth")


def test_values_are_the_same_when_they_would_be_stored_alike():
    assert is_same({"x": 1, "y": [math.nan, (1, 2)]}, {"x": 1, "y": [math.nan, (1, 2)]})
    assert is_same({"mine": Unequal(1)}, {"mine": Unequal(1)})
    assert is_same({"a": np.arange(3)}, {"a": np.arange(3)})
    assert not is_same({"mine": Unequal(1)}, {"mine": Unequal(2)})
    assert not is_same({"a": np.arange(3)}, {"a": np.arange(1, 4)})
    assert not is_same({"x": 1}, {"x": 2})
    assert not is_same([Picky(), 1], [Picky(), 2])
