"""Nested dicts: flattened and back, looked up by path, merged; and a result as text."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any

from sweep.core.results import flatten, unflatten
from sweep.display.formats import to_yaml
from sweep.errors import ConfigError, nearest, refuse_unknown

__all__ = [
    "deep_update",
    "flatten_dict",
    "merge_dicts",
    "pretty_print",
    "unflatten_dict",
    "unflatten_list_dict",
    "unflattened_lookup",
]


def flatten_dict(
    d: Mapping[str, Any], delimiter: str = "/", prevent_delimiter: bool = False, flatten_list: bool = False
) -> dict[str, Any]:
    """Return a flat dict whose keys are paths; empty dicts vanish, lists stay as they are.

    Args:
        prevent_delimiter: refuse keys that hold the delimiter, so that `unflatten_dict` gives the same dict back.
        flatten_list: lists count as dicts with the keys 0, 1 ...; `unflatten_list_dict` gives them back.

    Raises:
        ConfigError: such a key, with `prevent_delimiter` (a ValueError).

    Example:
        >>> flatten_dict({"a": {"b": 1, "c": {}}, "d": [1]})
        {'a/b': 1, 'd': [1]}
    """
    if prevent_delimiter:
        _refuse_delimiter(d, delimiter)
    return flatten(_lists_as_dicts(d) if flatten_list else d, delimiter)


def _lists_as_dicts(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _lists_as_dicts(one) for key, one in value.items()}
    return {str(i): _lists_as_dicts(one) for i, one in enumerate(value)} if isinstance(value, list) else value


def unflatten_dict(dt: Mapping[str, Any], delimiter: str = "/") -> dict[str, Any]:
    """Return the nested dict of a flat one.

    Raises:
        ConfigError: a path leads through a value that is no dict, such as `a/b` beside `a` (a ValueError).

    Example:
        >>> unflatten_dict({"a/b": 1, "d": [1]})
        {'a': {'b': 1}, 'd': [1]}
    """
    paths = set(map(str, dt))
    for path in dt:
        parts = str(path).split(delimiter)
        for length in range(1, len(parts)):
            parent = delimiter.join(parts[:length])
            if parent in paths:
                raise ConfigError(f"{path!r} cannot be inside {parent!r}, which has a value of its own. Rename one.")
    return unflatten({str(path): value for path, value in dt.items()}, delimiter)


def unflatten_list_dict(dt: Mapping[str, Any], delimiter: str = "/") -> Any:
    """Return the nested dict of a flat one, with a list wherever the keys are 0, 1, 2 ... without a gap.

    Raises:
        ConfigError: as `unflatten_dict`.

    Example:
        >>> unflatten_list_dict({"layers/0/width": 8, "layers/1/width": 16})
        {'layers': [{'width': 8}, {'width': 16}]}
    """
    return _dicts_as_lists(unflatten_dict(dt, delimiter))


def _dicts_as_lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inner = {key: _dicts_as_lists(one) for key, one in value.items()}
    numbers = [str(i) for i in range(len(inner))]
    return [inner[number] for number in numbers] if inner and inner.keys() == set(numbers) else inner


@refuse_unknown(also=["default"])
def unflattened_lookup(flat_key: str, lookup: Any, delimiter: str = "/", **kwargs: Any) -> Any:
    """Return what `lookup` has at a path; the numbers of a path count in lists and tuples.

    Args:
        flat_key: such as `eval/acc` or `layers/0/width`; a key of `lookup` that is called so itself is found too.
        kwargs: `default=...` is returned where there is nothing.

    Raises:
        KeyError: there is nothing, and no default was given.

    Example:
        >>> unflattened_lookup("eval/acc/1", {"eval": {"acc": [0.1, 0.2]}})
        0.2
    """
    if isinstance(lookup, Mapping) and flat_key in lookup:
        return lookup[flat_key]
    place = lookup
    for part in flat_key.split(delimiter):
        if isinstance(place, Mapping) and part in place:
            place = place[part]
        elif (
            isinstance(place, (list, tuple)) and part.lstrip("-").isdecimal() and -len(place) <= int(part) < len(place)
        ):
            place = place[int(part)]
        elif "default" in kwargs:
            return kwargs["default"]
        else:
            known = f" {nearest(part, map(str, place))}" if isinstance(place, Mapping) and place else ""
            raise KeyError(f"nothing at {flat_key!r}: {part!r} is not there.{known}")
    return place


def merge_dicts(d1: Mapping[str, Any], d2: Mapping[str, Any]) -> dict[str, Any]:
    """Return a new dict with what both hold, dicts merged with each other; where they disagree `d2` wins.

    Example:
        >>> merge_dicts({"a": {"x": 1}}, {"a": {"y": 2}})
        {'a': {'x': 1, 'y': 2}}
    """
    merged: dict[str, Any] = copy.deepcopy(dict(d1))
    return deep_update(merged, d2, new_keys_allowed=True, allow_new_subkey_list=[])


def deep_update(
    original: dict[str, Any],
    new_dict: Mapping[str, Any],
    new_keys_allowed: bool = False,
    allow_new_subkey_list: Collection[str] | None = None,
    override_all_if_type_changes: Collection[str] | None = None,
    override_all_key_list: Collection[str] | None = None,
) -> dict[str, Any]:
    """Put the values of `new_dict` into `original`, dicts inside dicts merged, and return `original`.

    Args:
        new_keys_allowed: whether `original` may get keys that it lacks, at any depth.
        allow_new_subkey_list: keys of `original` whose dicts may get new keys in any case.
        override_all_if_type_changes: keys whose dict is replaced as a whole when the new one has another `"type"`.
        override_all_key_list: keys whose dict is replaced as a whole.

    Raises:
        ConfigError: a new key that is not allowed (a ValueError); values before it are in `original` by then.
    """
    replaced = set(override_all_key_list or ())
    if_typed = set(override_all_if_type_changes or ())
    for key, value in new_dict.items():
        if key not in original and not new_keys_allowed:
            raise ConfigError(f"{key!r} is no key that could be updated. {nearest(str(key), map(str, original))}")
        known = original.get(key)
        if not isinstance(known, dict) or not isinstance(value, Mapping):
            original[key] = copy.deepcopy(dict(value)) if isinstance(value, Mapping) else value
        elif key in replaced or (key in if_typed and "type" in value and value["type"] != known.get("type")):
            original[key] = copy.deepcopy(dict(value))
        else:
            is_free = new_keys_allowed or key in (allow_new_subkey_list or ())
            deep_update(known, value, is_free)
    return original


@refuse_unknown()
def pretty_print(result: Mapping[str, Any], exclude: Collection[str] = ()) -> str:
    """Return a result as YAML for people: without its config, and without what has no value.

    Args:
        exclude: keys to leave out, too.
    """
    return to_yaml({k: v for k, v in result.items() if v is not None and k != "config" and k not in exclude})


def _refuse_delimiter(nested: Mapping[str, Any], delimiter: str) -> None:
    for key, value in nested.items():
        if delimiter in str(key):
            raise ConfigError(f"the key {key!r} holds the delimiter {delimiter!r}. Rename it, or give delimiter=.")
        if isinstance(value, Mapping):
            _refuse_delimiter(value, delimiter)
