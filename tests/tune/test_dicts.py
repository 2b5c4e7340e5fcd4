"""Nested dicts: flattened and back, looked up by path, merged, printed."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from sweep.dicts import (
    deep_update,
    flatten_dict,
    merge_dicts,
    pretty_print,
    unflatten_dict,
    unflatten_list_dict,
    unflattened_lookup,
)

from sweep.core.results import date_str


@pytest.mark.parametrize(
    ("nested", "delimiter", "flat"),
    [
        ({"a": {"b": 1, "c": {}}, "d": [1]}, "/", {"a/b": 1, "d": [1]}),
        ({"a": {"b": {"c": None}}}, ".", {"a.b.c": None}),
        ({}, "/", {}),
        ({"a/b": {"c": 1}}, "/", {"a/b/c": 1}),
    ],
)
def test_a_dict_is_flattened(nested: dict[str, Any], delimiter: str, flat: dict[str, Any]) -> None:
    before = copy.deepcopy(nested)
    assert flatten_dict(nested, delimiter) == flatten_dict(nested, delimiter=delimiter) == flat
    assert nested == before


@pytest.mark.parametrize("nested", [{"a/b": 1}, {"a": {"b/c": 1}}])
def test_a_key_with_the_delimiter_is_refused_when_asked(nested: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="holds the delimiter '/'"):
        flatten_dict(nested, prevent_delimiter=True)
    assert flatten_dict(nested, ".", prevent_delimiter=True)


@pytest.mark.parametrize(
    ("flat", "nested"),
    [
        ({"a/0/b": 1, "a/1/c": 2, "a/1/d": 3}, {"a": [{"b": 1}, {"c": 2, "d": 3}]}),
        ({"0": 1, "1": 2}, [1, 2]),
        ({"a/10": 1, "a/2": 2}, {"a": {"10": 1, "2": 2}}),  # a gap: they are keys
        ({f"a/{i}": i for i in (2, 0, 1)}, {"a": [0, 1, 2]}),
        ({"a/0/0": 1}, {"a": [[1]]}),
        ({"a": [1]}, {"a": [1]}),
        ({}, {}),
    ],
)
def test_a_flat_dict_becomes_nested_lists_again(flat: dict[str, Any], nested: Any) -> None:
    assert unflatten_list_dict(flat) == nested
    if nested:
        assert unflatten_list_dict(flatten_dict({"top": nested}, ".", flatten_list=True), ".") == {"top": nested}


def test_a_flat_dict_becomes_nested_again() -> None:
    nested = {"a": {"b": 1, "c": {"d": 2}}, "e": [1]}
    assert unflatten_dict(flatten_dict(nested)) == nested
    assert unflatten_dict({"a.b": 1}, delimiter=".") == {"a": {"b": 1}}
    for flat in ({"a": 1, "a/b": 2}, {"a/b": 2, "a": 1}, {"a/b/c": 1, "a/b": 2}):
        with pytest.raises(ValueError, match="which has a value of its own"):
            unflatten_dict(flat)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a", {"b": [10, {"c": 1}]}),
        ("a/b/0", 10),
        ("a/b/1/c", 1),
        ("a/b/-1/c", 1),
        ("x/y", 5),
        ("n", None),
    ],
)
def test_a_value_is_looked_up_by_its_path(path: str, value: Any) -> None:
    assert unflattened_lookup(path, {"a": {"b": [10, {"c": 1}]}, "x/y": 5, "n": None}) == value


@pytest.mark.parametrize("path", ["aa", "a/c", "a/b/2", "a/b/-3", "a/b/x", "a/b/0/1", "a/b/²"])
def test_what_is_not_there_is_an_error_or_the_default(path: str) -> None:
    nested = {"a": {"b": [10, 11]}}
    with pytest.raises(KeyError, match=f"nothing at {path!r}"):
        unflattened_lookup(path, nested)
    assert unflattened_lookup(path, nested, default=None) is None
    assert unflattened_lookup(path.replace("/", "."), nested, delimiter=".", default=3) == 3
    with pytest.raises(TypeError, match="Did you mean 'default'"):
        unflattened_lookup(path, nested, defalt=3)


def test_two_dicts_are_merged_into_a_new_one() -> None:
    first, second = {"a": {"x": 1, "l": [1]}, "b": 1, "t": {"k": 1}}, {"a": {"y": 2}, "b": {"c": 3}, "t": 4}
    before = copy.deepcopy((first, second))
    merged = merge_dicts(first, second)
    assert merged == {"a": {"x": 1, "l": [1], "y": 2}, "b": {"c": 3}, "t": 4}
    merged["a"]["l"].append(2)
    merged["b"]["c"] = 9
    assert (first, second) == before
    assert merge_dicts({"a": {"x": 1}}, {"a": {"y": 2}}) == {"a": {"x": 1, "y": 2}}


@pytest.mark.parametrize(
    ("new", "options", "updated"),
    [
        ({"a": {"x": 2}}, {}, {"a": {"x": 2, "type": "t"}, "b": 1}),
        ({"c": 1}, {"new_keys_allowed": True}, {"a": {"x": 1, "type": "t"}, "b": 1, "c": 1}),
        ({"a": {"z": 1}}, {"new_keys_allowed": True}, {"a": {"x": 1, "type": "t", "z": 1}, "b": 1}),
        ({"a": {"z": 1}}, {"allow_new_subkey_list": ["a"]}, {"a": {"x": 1, "type": "t", "z": 1}, "b": 1}),
        ({"a": {"z": 1}}, {"override_all_key_list": ["a"]}, {"a": {"z": 1}, "b": 1}),
        ({"a": {"type": "u"}}, {"override_all_if_type_changes": ["a"]}, {"a": {"type": "u"}, "b": 1}),
        ({"a": {"type": "t"}}, {"override_all_if_type_changes": ["a"]}, {"a": {"x": 1, "type": "t"}, "b": 1}),
        ({"a": {"x": 3}}, {"override_all_if_type_changes": ["a"]}, {"a": {"x": 3, "type": "t"}, "b": 1}),
    ],
)
def test_a_dict_is_updated_in_depth(new: dict[str, Any], options: dict[str, Any], updated: dict[str, Any]) -> None:
    original: dict[str, Any] = {"a": {"x": 1, "type": "t"}, "b": 1}
    assert deep_update(original, new, **options) is original
    assert original == updated


def test_a_new_key_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"'widht' is no key that could be updated\. Did you mean 'width'"):
        deep_update({"net": {"width": 1}}, {"net": {"widht": 2}})


def test_a_result_is_printed_as_yaml_without_its_config() -> None:
    result = {"loss": 0.5, "eval": {"acc": 1}, "note": None, "config": {"lr": 1}, "pid": 3}
    assert pretty_print(result) == "loss: 0.5\neval:\n  acc: 1\npid: 3\n"
    assert pretty_print(result, exclude=["pid", "eval"]) == "loss: 0.5\n"
    assert pretty_print({}) == ""


def test_a_date_is_a_text_that_sorts() -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d", date_str(1_700_000_000.0))
    assert date_str(1_700_000_000.0) < date_str(1_700_000_001.0)
