"""What may be reported, value by value."""

from __future__ import annotations

import decimal
import json
import math

import numpy as np
import odd_values
import pytest

from sweep.errors import UserCodeError
from sweep.record.encoding import decode, encode
from sweep.worker import metrics
from sweep.worker.metrics import MAX_BYTES, MAX_KEYS, num_keys, plain_metrics, within_size


def plain(value):
    """Return what a value becomes, and what is said of it."""
    told = {}
    return plain_metrics({"v": value}, told.__setitem__)["v"], told.get("v")


def test_scalars_of_numpy_torch_and_jax_become_python_numbers():
    import jax.numpy as jnp
    import torch

    given = {"a": np.float32(1.5), "b": np.int64(3), "c": np.bool_(True), "d": torch.tensor(2.5), "e": np.array(4.0)}
    given["f"] = jnp.float32(1.5)
    told = {}
    result = plain_metrics(given, told.__setitem__)
    assert result == {"a": 1.5, "b": 3, "c": True, "d": 2.5, "e": 4.0, "f": 1.5}
    assert [type(value) for value in result.values()] == [float, int, bool, float, float, float]
    assert told == {}
    assert plain_metrics({"loss": torch.tensor(0.5, requires_grad=True) * 2}) == {"loss": 1.0}


LARGEST = int(1.7976931348623157e308)
ORDINARY = [
    {"a": 0.5, "b": 3, "c": True, "d": None, "e": "x y", "f": "x" * 4096},
    {"a": LARGEST, "b": -LARGEST},
    {"a": [0.5, 3, True, None, "x", "x" * 4096, LARGEST, -LARGEST]},
    {"a": {"b": 0.5, "c": 3, "d": True, "e": None, "f": "x", "g": -LARGEST, "h": LARGEST}},
    {"a": [], "b": {}},
    {str(n): n for n in range(MAX_KEYS)},
    {"a": {str(n): n for n in range(MAX_KEYS - 1)}},
    {"a": np.float32(0.5), "b": np.int8(3), "c": np.bool_(True)},
]


@pytest.mark.parametrize("given", ORDINARY, ids=range(len(ORDINARY)))
def test_an_ordinary_report_stays_as_it_is_in_a_copy(given):
    made = plain_metrics(given)
    assert made == given
    assert all(made[key] is not value for key, value in given.items() if isinstance(value, (list, dict)))


SLOW = ("mock", "2**60 of one list")  # which have as many values as are taken


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in odd_values.ODD]
)
def test_any_value_becomes_plain_json_that_comes_back_as_it_was(name):
    value, told = plain(odd_values.ODD[name]())
    _check(value)
    text = encode({"v": value})
    text.encode()
    assert repr(decode(text)) == repr({"v": value})
    if name in odd_values.NUMBERS:
        assert isinstance(value, (int, float))
        assert told is None


def _check(value):
    assert type(value) in (int, float, bool, str, type(None), list, dict)
    if type(value) is int:
        float(value)
    elif type(value) is str:
        assert len(value.encode()) <= 4096
        assert "\0" not in value
    for item in value.values() if type(value) is dict else value if type(value) is list else ():
        _check(item)
    if type(value) is dict:
        json.dumps(value, ensure_ascii=False).encode()
        assert all(type(key) is str for key in value)


BECOMES = [
    (np.arange(64), list(range(64)), "numpy.ndarray of shape (64,) and dtype int64, stored as a list"),
    (
        np.arange(65),
        "numpy.ndarray of shape (65,) and dtype int64",
        "numpy.ndarray of shape (65,) and dtype int64, stored as a text",
    ),
    ([1, (2, np.float64(3))], [1, [2, 3.0]], None),
    (-math.inf, -math.inf, None),
    ({2, 1}, [1, 2], "set, stored as a list"),
    (set(range(64)), list(range(64)), "set, stored as a list"),
    (set(range(65)), "set of 65 elements", "set of 65 elements, stored as a text"),
    (decimal.Decimal("0.5"), 0.5, None),
    (decimal.Decimal("1e400"), "1E+400", "a number that no float holds, stored as a text"),
    (-(10**400), "-1" + "0" * 400, "a number that no float holds, stored as a text"),
    (int(1.7976931348623157e308), int(1.7976931348623157e308), None),
    (10**5000, "a whole number of about 5,001 digits", "a number that no float holds, stored as a text"),
    (np.longdouble("1e4000"), "1e+4000", "a number that no float holds, stored as a text"),
    (np.ma.masked, None, None),
    (1j, "1j", "complex, stored as a text"),
    (b"a\xff", "b'a\\xff'", "bytes of 2 bytes, stored as a text"),
    ("a\0\ud800", "a\\x00\\ud800", "a text with NUL or half characters"),
    ("x" * 4096, "x" * 4096, None),
    ("x" * 4097, "x" * (4096 - 22) + "... [4,097 characters]", "a text of 4,097 characters, cut"),
    ("é" * 3000, "é" * ((4096 - 22) // 2) + "... [3,000 characters]", "a text of 3,000 characters, cut"),
    (["é" * 3000], ["é" * ((4096 - 22) // 2) + "... [3,000 characters]"], "a text of 3,000 characters, cut"),
    ({"\0": 1}, {"\\x00": 1}, "a key of type str, stored as '\\\\x00'"),
    ({1: 2, "1": 3}, {"1": 2, "1 (2)": 3}, "a key of type str, stored as '1 (2)'"),
    ([[1, {"a": {2}}]], [[1, {"a": [2]}]], "set, stored as a list"),
]


@pytest.mark.parametrize("number", range(len(BECOMES)))  # pytest itself cannot print them all
def test_what_a_value_becomes_and_what_is_said_of_it(number):
    value, becomes, said = BECOMES[number]
    assert plain(value) == (becomes, said)
    if not isinstance(value, (set, dict, list)):
        assert plain([value])[0] == [becomes]


def test_a_structure_that_holds_itself_ends_where_it_comes_again_and_a_list_that_lies_there_twice_does_not():
    loop = {"a": 1.0}
    loop["again"] = loop
    assert plain(loop)[0] == {"a": 1.0, "again": "dict: not stored, it holds itself"}
    twice = [1]
    assert plain([twice, twice, {"a": twice}]) == ([[1], [1], {"a": [1]}], None)


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: {"a": value}])
def test_a_structure_may_be_32_deep(wrap):
    def deep(number):
        value = 1.0
        for _ in range(number):
            value = wrap(value)
        return value

    assert plain(deep(32)) == (deep(32), None)
    assert f"{type(wrap(1)).__name__}: not stored, nested more than 32 deep" in repr(plain(deep(33))[0])


def test_a_report_without_an_end_is_left_out_and_the_other_values_stay(monkeypatch):
    assert metrics._MAX_VALUES == 1 << 20
    monkeypatch.setattr(metrics, "_MAX_VALUES", 1 << 14)
    doubling = [1.0]
    for _ in range(100):
        doubling = [doubling, doubling]
    result = plain_metrics({"a": 0.5, "b": doubling, "c": {"d": [1, 2]}, "e": doubling})
    assert (result["a"], result["c"]) == (0.5, {"d": [1, 2]})
    assert result["b"] == result["e"] == "list of 2 elements: not stored, it holds more than 16,384 values"


def test_keys_that_are_no_texts_become_texts_and_none_is_lost():
    told = {}
    given = {1: "a", "1": "b", (1, 2): "c", "\ud800": "d", "": "e", "a/b": "f", "k" * 300: "g", 10**5000: "h"}
    given[odd_values.Raising] = "i"
    given[odd_values.RaisingAttributes()] = "j"
    result = plain_metrics(given, told.__setitem__)
    long = "k" * (256 - 20) + "... [300 characters]"
    assert list(result.items())[:-2] == [
        ("1", "a"),
        ("1 (2)", "b"),
        ("(1, 2)", "c"),
        ("\\ud800", "d"),
        ("", "e"),
        ("a/b", "f"),
        (long, "g"),
        ("a whole number of about 5,001 digits", "h"),
    ]
    assert set(told) == set(result) - {"", "a/b"}
    assert told["1"] == "a key of type int, stored as '1'"


def test_a_text_of_a_subclass_is_a_plain_text_also_as_a_key():
    key = odd_values.OwnStr("own")
    for given in ({"own": 1}, {key: 1}):
        assert [type(name) for name in plain_metrics(given)] == [str]
    assert type(plain(odd_values.OwnStr("x"))[0]) is str
    assert [type(name) for name in plain({key: 1})[0]] == [str]


def test_what_is_no_dict_and_too_many_keys_are_refused():
    with pytest.raises(UserCodeError, match="was given list"):
        plain_metrics([1])
    with pytest.raises(UserCodeError, match="a report has 1,001 keys; at most 1,000 are stored"):
        plain_metrics({str(n): n for n in range(MAX_KEYS + 1)})


def test_as_many_keys_as_allowed_pass_and_what_holds_more_is_left_out():
    whole = {"few": {"a": 1.0}, "many": {str(n): 1.0 for n in range(MAX_KEYS - 3)}}
    assert plain_metrics(whole) == whole
    told = {}
    result = plain_metrics({**whole, "one more": 1.0}, told.__setitem__)
    text = "dict of 997 keys: not stored, a report holds at most 1,000 keys"
    assert result == {"few": {"a": 1.0}, "many": text, "one more": 1.0}
    assert told["many"].startswith(text)


def test_keys_count_at_any_depth():
    assert num_keys({"a": [{"b": 1, "c": {}}, 3], "d": 4}) == 4
    deep = {"deep": [{"x": {str(n): n for n in range(MAX_KEYS)}}]}
    assert plain_metrics(deep)["deep"] == "list of 1 elements: not stored, a report holds at most 1,000 keys"


def test_of_a_report_that_is_too_large_the_largest_values_are_left_out():
    told = {}
    result = {"a": 1, "large": [0.5] * (MAX_BYTES // 18), "larger": [0.5] * (MAX_BYTES // 12), "text": "x"}
    large = list(result["large"])
    within_size(result, told.__setitem__)
    text = "list of 87,381 elements: not stored, a report takes at most 1,048,576 bytes"
    assert result == {"a": 1, "large": large, "larger": text, "text": "x"}
    assert list(told) == ["larger"]
    assert told["larger"].endswith("write large data to a file of the trial's directory, or into a checkpoint")
