"""Configs of searchers that are not ours: what they leave out, and where one of them does not fit the run's space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from searchers.errors import SearchError
from searchers.signals import Config
from searchers.space import Domain
from searchers.variants import Path, fresh, grid_values, has_domains, matches, path_name


def constants_of(space: Mapping[str, Any]) -> Config:
    """Return the part of a space that holds no domain and no grid."""
    found: Config = {}
    for key, node in space.items():
        if not has_domains(node):
            found[key] = fresh(node)
        elif _is_group(node) and (inner := constants_of(node)):
            found[key] = inner
    return found


def mismatch(space: Mapping[str, Any], config: Mapping[str, Any], path: Path = ()) -> str | None:
    """Say where a config first does not fit a space: by a value that is missing, or outside its domain.

    Constants may have any value, keys that the space does not have may be there, and a number may lie between the steps
    of its domain. None: it fits.

    Raises:
        SearchError: the config holds a domain that was never decided.
    """
    if not path:
        _check_decided(config)
    for key, node in space.items():
        if not has_domains(node):
            continue
        name = path_name((*path, key))
        if key not in config:
            return f"{name} is missing"
        value = config[key]
        if _is_group(node) and isinstance(value, Mapping):
            if found := mismatch(node, value, (*path, key)):
                return found
        elif not matches(node, value):
            return f"{name} is {value!r:.100}, and the space has {node!r:.100}"
    return None


def _is_group(node: Any) -> bool:
    return isinstance(node, Mapping) and grid_values(node) is None


def _check_decided(config: Any, path: Path = ()) -> None:
    if isinstance(config, Domain) or (isinstance(config, Mapping) and grid_values(config) is not None):
        raise SearchError(
            f"{'/'.join(map(str, path))} was suggested as {config!r:.100}; expected a value of it: draw one, for "
            "instance by its method sample()."
        )
    if isinstance(config, (list, tuple)):
        config = dict(enumerate(config))
    for key, value in config.items() if isinstance(config, Mapping) else ():
        _check_decided(value, (*path, key))
