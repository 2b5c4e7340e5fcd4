"""Read YAML into plain values and the line of every key; whatever is wrong is one line with its position."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from sweep.errors import ConfigError

_MOST = 10_000  # keys and items of a file, those of an alias counted at each of its places


class _Constructor(SafeConstructor):
    """Dates stay texts: configs hold what JSON can say."""


_Constructor.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)


def load_yaml(path: Path) -> tuple[Any, dict[tuple[str, ...], int]]:
    """Return the values of a file, and the line of every key."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Constructor = _Constructor
    lines: dict[tuple[str, ...], int] = {(): 1}
    try:
        text = path.read_bytes().decode("utf-8-sig")
        if path.suffix.lower() == ".json":
            text = text.replace("\t", " ")  # which YAML has no place for; within JSON's texts they are escaped
        for where, line in _lines(yaml.compose(text), ()):  # before merge keys are built, which multiply
            lines[where] = line
            if len(lines) > _MOST:
                raise ConfigError(f"{path}:{line}: more than {_MOST} values; write out what is meant by aliases.")
        data = yaml.load(text)
    except ConfigError:  # which is a ValueError, too
        raise
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}.") from error
    except RecursionError:
        raise ConfigError(f"{path}: it holds itself, or is nested too deep.") from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        why = f"{error.problem} ({error.context})" if error.context else error.problem
        raise ConfigError(f"{path}:{mark.line + 1}:{mark.column + 1}: not valid YAML: {why}.") from None
    except (YAMLError, ValueError) as error:
        what = str(error).partition("\n")[0]
        raise ConfigError(f"{path}: not valid YAML: {what}; expected a text file, saved as UTF-8.") from None
    return data, lines


def _lines(node: Any, where: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield where each key and each item is, and its line."""
    kind = getattr(node, "id", "")
    for index, item in enumerate(node.value if kind in ("mapping", "sequence") else ()):
        key, value = item if kind == "mapping" else (item, item)
        here = (*where, str(key.value if kind == "mapping" else index))
        yield here, key.start_mark.line + 1
        yield from _lines(value, here)
