"""Read YAML into plain values and the line of every key; whatever is wrong is one line with its position."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sweep.errors import ConfigError

__all__ = ["KeyPath", "check_size", "load_yaml"]

KeyPath = tuple[Any, ...]  # of keys and indices

_MAX_DEPTH = 50
_MAX_COPIED = 10_000  # values that stand somewhere because of an alias
_DATE = "tag:yaml.org,2002:timestamp"


def load_yaml(path: Path) -> tuple[Any, dict[KeyPath, int], list[tuple[KeyPath, str]]]:
    """Return the values of a file, the line of every key, and the keys that were given twice.

    Raises:
        ConfigError: the file cannot be read, is no text, no YAML, or YAML that a file of this size cannot mean: lists
            within lists within lists, or aliases of aliases that multiply.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError
    from ruamel.yaml.reader import ReaderError

    text = _text(path)
    yaml = YAML(typ="safe", pure=True)
    lines: dict[KeyPath, int] = {(): 1}
    mistakes: list[tuple[KeyPath, str]] = []
    try:
        check_size(yaml.parse(text), path)
        node = yaml.compose(text)
        data = None if node is None else _Values(yaml, path, lines, mistakes).of(node, ())
    except MarkedYAMLError as error:
        raise ConfigError(_told(path, error)) from None  # it is all in the line
    except ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        what = f"the character U+{ord(text[error.position]):04X} is not allowed"
        raise ConfigError(f"{path}:{line}:{column}: not valid YAML: {what}; is it a text file?") from None
    return data, lines, mistakes


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        read = bytes(error.object[: error.start])
        line, column = read.count(b"\n") + 1, len(read) - read.rfind(b"\n")
        raise ConfigError(
            f"{path}:{line}:{column}: not valid YAML: the byte 0x{error.object[error.start]:02x} is no UTF-8; "
            "expected a text file, saved as UTF-8."
        ) from error


def _told(path: Path, error: Any) -> str:
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


def check_size(events: Iterable[Any], path: Path) -> None:
    """Refuse what would grow beyond all bounds, or nest deeper than Python calls, before a value is made of it."""
    sizes: dict[str, int] = {}  # of what is complete, by its anchor
    open_nodes: list[tuple[str | None, int]] = []  # anchor, size so far
    copied = 0

    def refuse(event: Any, what: str) -> ConfigError:
        mark = event.start_mark
        return ConfigError(f"{path}:{mark.line + 1}:{mark.column + 1}: {what}")

    for event in events:
        kind = type(event).__name__
        anchor = getattr(event, "anchor", None)
        size = 1
        if kind in ("MappingStartEvent", "SequenceStartEvent"):
            if len(open_nodes) == _MAX_DEPTH:
                raise refuse(event, f"this is nested more than {_MAX_DEPTH} deep.")
            open_nodes.append((anchor, 1))
            continue
        if kind in ("MappingEndEvent", "SequenceEndEvent"):
            anchor, size = open_nodes.pop()
        elif kind == "AliasEvent":
            if any(anchor == one for one, _ in open_nodes):
                raise refuse(event, f"*{anchor} stands within &{anchor} itself, without end.")
            size, anchor = sizes.get(str(anchor), 1), None
            copied += size
            if copied > _MAX_COPIED:
                raise refuse(event, f"aliases grow beyond {_MAX_COPIED} values here; write out what is meant.")
        elif kind != "ScalarEvent":
            continue
        if anchor is not None:
            sizes[anchor] = size
        if open_nodes:
            owner, so_far = open_nodes[-1]
            open_nodes[-1] = (owner, so_far + size)


class _Values:
    """Makes plain values of nodes, and notes where each key is."""

    def __init__(self, yaml: Any, path: Path, lines: dict[KeyPath, int], mistakes: list[tuple[KeyPath, str]]) -> None:
        self._yaml, self._path, self._lines, self._mistakes = yaml, path, lines, mistakes

    def of(self, node: Any, where: KeyPath) -> Any:
        if node.id == "mapping":
            return self._mapping(node, where)
        if node.id == "sequence":
            items = []
            for index, item in enumerate(node.value):
                self._lines[(*where, index)] = item.start_mark.line + 1
                items.append(self.of(item, (*where, index)))
            return items
        return self._scalar(node)

    def _mapping(self, node: Any, where: KeyPath) -> dict[Any, Any]:
        values: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = _Values(self._yaml, self._path, {}, self._mistakes).of(key_node, where)
            key = tuple(map(str, key)) if isinstance(key, list) else str(key) if isinstance(key, dict) else key
            here, line = (*where, key), key_node.start_mark.line + 1
            if key in values:
                # "" is no key of a file: the second has a line of its own
                self._mistakes.append(
                    ((*here, ""), f"{key!r} is given twice; it is already on line {self._lines[here]}.")
                )
                self._lines[(*here, "")] = line
                continue
            self._lines[here] = line
            values[key] = self.of(value_node, here)
        return values

    def _scalar(self, node: Any) -> Any:
        try:
            value = self._yaml.constructor.construct_object(node, deep=True)
        except ValueError as error:
            if node.tag == _DATE:
                return node.value
            mark, shown = node.start_mark, node.value if len(node.value) <= 40 else f"{node.value[:37]}..."
            raise ConfigError(
                f"{self._path}:{mark.line + 1}:{mark.column + 1}: {shown!r} cannot be read as a number."
            ) from error
        # Dates stay texts: configs hold what JSON can say.
        return value if value is None or isinstance(value, (bool, int, float, str)) else node.value
