"""Nested dicts: flattened and back, looked up by path, merged; a result as text; and waiting for a GPU."""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Mapping
from typing import Any

from sweep.core.results import flatten, unflatten
from sweep.display.formats import to_yaml
from searchers.errors import nearest
from sweep.errors import ConfigError, refuse_unknown
from sweep.worker.gpu_memory import wait_for_gpu as wait_for_gpu


def flatten_dict(
    d: Mapping[str, Any], delimiter: str = "/", prevent_delimiter: bool = False, flatten_list: bool = False
) -> dict[str, Any]:
    """Return a flat dict whose keys are paths, `{"a": {"b": 1}}` as `{"a/b": 1}`; empty dicts vanish.

    Args:
        prevent_delimiter: refuse keys that hold the delimiter with a ConfigError (a ValueError).
        flatten_list: lists count as dicts with the keys 0, 1 ...; `unflatten_list_dict` gives them back.
    """
    nested = _lists_as_dicts(d) if flatten_list else d
    for key in "\0".join(flatten(nested, "\0")).split("\0") if prevent_delimiter else ():
        if delimiter in key:
            raise ConfigError(f"the key {key!r} holds the delimiter {delimiter!r}. Rename it, or give delimiter=.")
    return flatten(nested, delimiter)


def _lists_as_dicts(value: Any) -> Any:
    if isinstance(value, list):
        value = {str(index): one for index, one in enumerate(value)}
    return {key: _lists_as_dicts(one) for key, one in value.items()} if isinstance(value, Mapping) else value


def unflatten_dict(dt: Mapping[str, Any], delimiter: str = "/") -> dict[str, Any]:
    """Return the nested dict of a flat one; a path through another's value, as `a/b` beside `a`, is a ConfigError."""
    flat = {str(path): value for path, value in dt.items()}
    for parent in flat:
        inside = [path for path in flat if path.startswith(parent + delimiter)]
        if inside:
            raise ConfigError(f"{inside[0]!r} cannot be inside {parent!r}, which has a value of its own. Rename one.")
    return unflatten(flat, delimiter)


def unflatten_list_dict(dt: Mapping[str, Any], delimiter: str = "/") -> Any:
    """Return the nested dict of a flat one, with a list wherever the keys are 0, 1, 2 ... without a gap."""
    return _dicts_as_lists(unflatten_dict(dt, delimiter))


def _dicts_as_lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inner = {key: _dicts_as_lists(one) for key, one in value.items()}
    numbers = [str(i) for i in range(len(inner))]
    return [inner[number] for number in numbers] if inner and inner.keys() == set(numbers) else inner


@refuse_unknown(also=["default"])
def unflattened_lookup(flat_key: str, lookup: Any, delimiter: str = "/", **kwargs: Any) -> Any:
    """Return what `lookup` has at a path such as `eval/acc` or `layers/0/width`, or under a key that is called so.

    Where there is nothing, `default=...` is returned if it was given, and else a KeyError raised.
    """
    if isinstance(lookup, Mapping) and flat_key in lookup:
        return lookup[flat_key]
    place = lookup
    for part in flat_key.split(delimiter):
        try:
            place = place[int(part) if isinstance(place, (list, tuple)) and re.fullmatch("-?[0-9]+", part) else part]
        except (LookupError, TypeError):
            if "default" in kwargs:
                return kwargs["default"]
            raise KeyError(f"nothing at {flat_key!r}: {part!r} is not there.") from None
    return place


def merge_dicts(d1: Mapping[str, Any], d2: Mapping[str, Any]) -> dict[str, Any]:
    """Return a new dict with what both hold, dicts merged with each other; where they disagree `d2` wins."""
    return deep_update(copy.deepcopy(dict(d1)), d2, new_keys_allowed=True)


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
        new_keys_allowed: whether `original` may get keys that it lacks, at any depth; else they are a ConfigError.
        allow_new_subkey_list: keys of `original` whose dicts may get new keys in any case.
        override_all_if_type_changes: keys whose dict is replaced as a whole when the new one has another `"type"`.
        override_all_key_list: keys whose dict is replaced as a whole.
    """
    for key, value in new_dict.items():
        if key not in original and not new_keys_allowed:
            raise ConfigError(f"{key!r} is no key that could be updated. {nearest(str(key), map(str, original))}")
        known: Any = original.get(key)
        is_merged = isinstance(known, dict) and isinstance(value, Mapping) and key not in (override_all_key_list or ())
        if is_merged and key in (override_all_if_type_changes or ()):
            is_merged = value.get("type", known.get("type")) == known.get("type")
        if is_merged:
            deep_update(known, value, new_keys_allowed or key in (allow_new_subkey_list or ()))
        else:
            original[key] = copy.deepcopy(dict(value)) if isinstance(value, Mapping) else value
    return original


@refuse_unknown()
def pretty_print(result: Mapping[str, Any], exclude: Collection[str] = ()) -> str:
    """Return a result as YAML for people, without its config, what has no value, and the keys in `exclude`."""
    return to_yaml({k: v for k, v in result.items() if v is not None and k != "config" and k not in exclude})
