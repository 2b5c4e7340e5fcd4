"""A copy of a program's config file with values set: YAML with its comments, JSON, TOML."""

from __future__ import annotations

import io
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from searchers.errors import nearest
from sweep.core.literals import jsonable
from sweep.errors import ConfigError


def with_values(path: Path, values: Mapping[str, Any], target: Path) -> None:
    """Write a copy of a config file to `target`, with values at dotted keys such as `model.layers.0.width`.

    Raises:
        ConfigError: the file cannot be read or is none of the three kinds, or it has no such key.
    """
    read, write = _reader_and_writer(path)
    try:
        text = path.read_text(encoding="utf-8")
        data = read(text)
    except Exception as error:  # each reader has errors of its own
        raise ConfigError(f"{path} cannot be read: {error}") from error
    known = dict(_keys(data, ""))
    if unknown := [key for key in values if key not in known]:
        raise ConfigError(f"{path} has no key {', '.join(map(repr, unknown))}. {nearest(unknown[0], known)}")
    for key, value in values.items():
        holder, last = known[key]
        holder[last] = jsonable(value, is_strict=False)
    target.write_text(write(data), encoding="utf-8")


def _keys(data: Any, path: str) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield each dotted key, and what holds it under which key or index."""
    pairs = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in pairs:
        yield f"{path}{key}", (data, key)
        yield from _keys(value, f"{path}{key}.")


def _reader_and_writer(path: Path) -> tuple[Callable[[str], Any], Callable[[Any], str]]:
    match path.suffix.lower():
        case ".yaml" | ".yml":
            return _yaml()
        case ".json":
            return json.loads, lambda data: json.dumps(data, indent=2, ensure_ascii=False) + "\n"
        case ".toml":
            return tomllib.loads, lambda data: "".join(f"{_toml(key)} = {_toml(data[key])}\n" for key in data)
    raise ConfigError(f"{path} is no config file that can be written; expected .yaml, .yml, .json or .toml.")


def _yaml() -> tuple[Callable[[str], Any], Callable[[Any], str]]:
    """Return what reads and writes YAML and keeps comments, order and quotes."""
    from ruamel.yaml import YAML
    from ruamel.yaml.representer import RoundTripRepresenter

    def represent_float(representer: Any, value: float) -> Any:
        """Write `1.0e-05`: readers of YAML 1.1 take `1e-05` for a string."""
        node = representer.represent_float(value)
        node.value = re.sub(r"^(-?\d+)e", r"\1.0e", node.value)
        return node

    yaml = YAML()
    yaml.Representer = type("Representer", (RoundTripRepresenter,), {})
    yaml.Representer.add_representer(float, represent_float)
    yaml.preserve_quotes, yaml.width = True, 10_000

    def write(data: Any) -> str:
        written = io.StringIO()
        yaml.dump(data, written)
        return written.getvalue()

    return yaml.load, write


def _toml(value: Any) -> str:
    """Return a key or a value of TOML, which has no null; tables in their inline form."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_toml(key)} = {_toml(item)}' for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if value is None:
        raise ConfigError("TOML has no null; give every key a value.")
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (str, bool)) else str(value)
