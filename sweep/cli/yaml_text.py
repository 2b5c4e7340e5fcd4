"""Read YAML into plain values and the line of every key; whatever is wrong is one line with its position."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.reader import ReaderError

from sweep.errors import ConfigError

KeyPath = tuple[Any, ...]  # of keys and indices

_MAX_DEPTH = 50
_MAX_VALUES = 10_000  # of a file, those of an alias counted at each of its places
_DATE = "tag:yaml.org,2002:timestamp"


def load_yaml(path: Path) -> tuple[Any, dict[KeyPath, int], list[tuple[KeyPath, str]]]:
    """Return the values of a file, the line of every key, and the keys that were given twice.

    Raises:
        ConfigError: the file cannot be read, is no text, no YAML, or YAML that a file of this size cannot mean: lists
            within lists within lists, or aliases of aliases that multiply.
    """
    text = _text(path)
    yaml = YAML(typ="safe", pure=True)
    values = _Values(yaml)
    try:
        node = yaml.compose(text)
        data = None if node is None else values.of(node, ())
    except RecursionError:
        raise ConfigError(f"{path}: it is nested more than {_MAX_DEPTH} deep.") from None
    except _Refused as error:
        raise ConfigError(f"{path}:{error}") from error.__cause__
    except MarkedYAMLError as error:
        raise ConfigError(_described(path, error)) from None  # it is all in the line
    except ReaderError as error:
        where = _position(text[: error.position])
        what = f"the character U+{ord(text[error.position]):04X} is not allowed"
        raise ConfigError(f"{path}:{where}: not valid YAML: {what}; is it a text file?") from None
    return data, values.lines, values.mistakes


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        where = _position(error.object[: error.start].decode("latin-1"))
        raise ConfigError(
            f"{path}:{where}: not valid YAML: the byte 0x{error.object[error.start]:02x} is no UTF-8; "
            "expected a text file, saved as UTF-8."
        ) from error


def _position(before: str) -> str:
    return f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"


def _described(path: Path, error: Any) -> str:
    mark = error.problem_mark or error.context_mark
    what = str(error.problem or error.context).rstrip(".")
    if "'\\t'" in what:
        what = "found a tab; YAML is indented by spaces"
    elif what.endswith("tag 'tag:yaml.org,2002:merge'"):
        what = "found the merge key <<, which is not supported; write the keys out"
    elif error.context and error.context_mark is not None and mark is not None:
        begins = f" from line {error.context_mark.line + 1}" if error.context_mark.line != mark.line else ""
        what = f"{what} ({error.context}{begins})"
    where = f":{mark.line + 1}:{mark.column + 1}" if mark is not None else ""
    return f"{path}{where}: not valid YAML: {what}."


class _Refused(Exception):
    """What is valid YAML and nothing that a spec may say, with its position."""

    def __init__(self, place: Any, what: str) -> None:
        super().__init__(f"{place.start_mark.line + 1}:{place.start_mark.column + 1}: {what}")


class _Values:
    """Makes plain values of nodes, and notes where each key is.

    Attributes:
        lines: line of each key and item.
        mistakes: keys that were given twice.
    """

    def __init__(self, yaml: YAML) -> None:
        self._yaml, self._num_values = yaml, 0
        self.lines: dict[KeyPath, int] = {(): 1}
        self.mistakes: list[tuple[KeyPath, str]] = []

    def of(self, node: Any, where: KeyPath) -> Any:
        """Return the value of a node that stands at `where`."""
        self._num_values += 1
        if len(where) > _MAX_DEPTH:
            raise _Refused(node, f"this is nested more than {_MAX_DEPTH} deep, or holds itself.")
        if self._num_values > _MAX_VALUES:
            raise _Refused(node, f"there are more than {_MAX_VALUES} values; write out what is meant by aliases.")
        if node.id == "mapping":
            return self._mapping(node, where)
        if node.id == "scalar":
            return self._scalar(node)
        items = []
        for index, item in enumerate(node.value):
            self.lines[(*where, index)] = item.start_mark.line + 1
            items.append(self.of(item, (*where, index)))
        return items

    def _mapping(self, node: Any, where: KeyPath) -> dict[Any, Any]:
        values: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = self.of(key_node, (*where, key_node))  # no key of the file: what is in a key hides no line
            key = tuple(map(str, key)) if isinstance(key, list) else str(key) if isinstance(key, dict) else key
            here, line = (*where, key), key_node.start_mark.line + 1
            if key in values:
                again = (*here, "")  # no key of a file: the second has a line of its own
                self.mistakes.append((again, f"{key!r} is given twice; it is already on line {self.lines[here]}."))
                self.lines[again] = line
            else:
                self.lines[here] = line
                values[key] = self.of(value_node, here)
        return values

    def _scalar(self, node: Any) -> Any:
        try:
            value = self._yaml.constructor.construct_object(node, deep=True)
        except ValueError as error:
            if node.tag == _DATE:
                return node.value
            shown = node.value if len(node.value) <= 40 else f"{node.value[:37]}..."
            raise _Refused(node, f"{shown!r} cannot be read as a number.") from error
        # Dates stay texts: configs hold what JSON can say.
        return value if value is None or isinstance(value, (bool, int, float, str)) else node.value
