"""`sweep migrate`: have scripts and notebooks that were written for Ray import sweep; name what has no counterpart."""

from __future__ import annotations

import ast
import difflib
import io
import json
import re
import tokenize
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from sweep.cli.tables import json_option
from sweep.errors import ConfigError
from sweep.launch.target import refuse_shadows

_FROM = re.compile(rb"from\s+(ray)\b")
_SPEAKS_OF_RAY = re.compile(r"\b(?:from|import)\s+ray\b|\bray\.\w")
_CLASS = re.compile(r"ray(\.\w+)+\.[A-Z]\w*")
_BY_NAME = ("import_module", "__import__", "patch")  # functions that take a module's name as a text

Remarks = dict[tuple[int, str], None]  # line and what to say of it, each once
Edit = tuple[int, int, int, bytes]  # row, from and to which byte of it, what stands there then


@click.command(short_help="Rewrite scripts and notebooks that were written for Ray.")
@click.argument("files", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path))
@click.option("--write", is_flag=True, help="Write the files; otherwise only the difference is printed.")
@json_option("Print one JSON object per file.")
def migrate(files: tuple[Path, ...], write: bool, as_json: bool) -> int:
    """Have scripts (*.py) and notebooks (*.ipynb) that were written for Ray import sweep instead; of a directory, all
    below it whose path has no part that begins with a dot. Print the difference,
    and after it, on standard error, each line with something of Ray's that has no counterpart, and what to do about it.

    Only import statements change, wherever they stand, and of those only the words that must. Texts, comments and
    notebooks' magics stay as they are. The exit code is 1 when something is left to do by hand.

    \b
    Examples:
      sweep migrate train.py
      sweep migrate train.py search.ipynb > changes.diff
      sweep migrate . --write
    """
    num_changed = num_left = 0
    files = tuple(found for path in files for found in (_below(path) if path.is_dir() else [path]))
    for path in files:
        try:
            before = path.read_bytes()
            text, after, left = _changed(path, before)
            if write and after != text:
                path.write_bytes(after.encode(_encoding(before)))
        except OSError as error:
            raise ConfigError(f"{path} cannot be read or written: {error.strerror or error}.") from error
        lines = difflib.unified_diff(_lines(text), _lines(after), str(path), str(path))
        difference = "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
        if as_json:
            click.echo(json.dumps({"path": str(path), "difference": difference, "left": left}))
        else:
            click.echo(difference, nl=False)
        for line in () if as_json else left:
            click.echo(line, err=True)
        num_changed += after != text
        num_left += len(left)
    done = "changed" if write else "to change (--write does it)"
    click.echo(f"{num_changed} of {len(files)} files {done}; {num_left} lines left to you", err=True)
    return 1 if num_left else 0


def migrated(source: str, bound: dict[str, str]) -> tuple[str, Remarks]:
    """Return a source that imports sweep where it did ray, and what is left to do, by line.

    `bound` is what names mean, name -> name of ours with its dots; those that are imported here are added."""
    lines = _lines(source)
    tree, unread = _parsed(lines)
    rows = [line.encode() for line in lines]
    edits: set[Edit] = set()
    left: Remarks = {(row + 1, "this line cannot be read as Python: change it by hand."): None for row in unread}
    fallbacks: list[Any] = [node for node in ast.walk(tree) if _falls_back(node)]
    guarded = {id(node) for block in fallbacks for inner in block.body for node in ast.walk(inner)}
    for node in ast.walk(tree):
        for edit, theirs, name in _imports(node, rows):
            edits.add(edit)
            problem = _problem(_ours(theirs))
            if not problem or name == "ray":
                bound[name] = "sweep" if name == "ray" else _ours(theirs)
            if problem and id(node) not in guarded:
                left[edit[0] + 1, problem] = None
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (problem := _problem(_dotted(node, bound))):
            left[node.lineno, problem] = None
        elif isinstance(node, (ast.Call, ast.Constant)) and (named := _named(node)):
            left[node.lineno, f"the text {named!r} stays as it is: write {_ours(named)!r} if that is meant."] = None
    for row, at, end, new in sorted(edits, reverse=True):
        rows[row] = rows[row][:at] + new + rows[row][end:]
    return b"".join(rows).decode(), dict(sorted(left.items()))


def _below(directory: Path) -> list[Path]:
    """Return the scripts and notebooks below a directory."""
    found = (path for path in directory.rglob("*") if path.suffix in (".py", ".ipynb") and path.is_file())
    return sorted(path for path in found if not any(part[0] == "." for part in path.relative_to(directory).parts))


def _changed(path: Path, data: bytes) -> tuple[str, str, list[str]]:
    """Return what a file holds, what it is to hold, and what is left to do."""
    try:
        text = data.decode(_encoding(data))
        if path.suffix == ".ipynb":
            after, left = _notebook(text)
        else:
            after, remarks = migrated(text, {})
            left = [f"{line}: {what}" for (line, what) in remarks]
        if after != text:
            refuse_shadows(path.absolute().parent)
    except ConfigError as error:
        left.append(f" {error}")
    except (ValueError, SyntaxError, LookupError, TypeError) as error:
        return "", "", [f"{path}: it cannot be read as what its name says: {error}"]
    return text, after, [f"{path}:{line}" for line in left]


def _encoding(data: bytes) -> str:
    return tokenize.detect_encoding(io.BytesIO(data).readline)[0]


def _notebook(text: str) -> tuple[str, list[str]]:
    """Return a notebook whose cells import sweep, and what is left to do, by cell and line."""
    content: Any = json.loads(text)
    if "cells" not in content:
        raise ValueError("no notebook of format 4; open it in Jupyter and save it")
    bound: dict[str, str] = {}
    left: list[str] = []
    for number, cell in enumerate(content["cells"], 1):
        if cell["cell_type"] != "code":
            continue
        after, remarks = migrated("".join(cell["source"]), bound)
        left += [f" cell {number}, line {line}: {what}" for (line, what) in remarks]
        cell["source"] = after if isinstance(cell["source"], str) else _lines(after)
    if content == json.loads(text):
        return text, left
    indent = re.match(r"\{\r?\n( *)", text)
    after = json.dumps(content, indent=len(indent[1]) if indent else None, ensure_ascii=text.isascii())
    return after + text[len(text.rstrip()) :], left


def _lines(text: str) -> list[str]:
    """Return the lines as Python counts them, with their ends."""
    return io.StringIO(text, newline="").readlines()


def _parsed(lines: list[str]) -> tuple[ast.Module, list[int]]:
    """Return the syntax tree without the lines that are no Python, such as magics, and the indices of those that speak
    of Ray."""
    kept, unread = list(lines), set[int]()
    while True:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse("".join(kept)), [row for row in unread if _SPEAKS_OF_RAY.search(lines[row])]
        except (SyntaxError, ValueError) as error:
            row = (getattr(error, "lineno", None) or 0) - 1
            filled = [index for index, line in enumerate(kept) if line.strip()]
            row = row if row in filled else filled[-1]
            indent = kept[row][: len(kept[row]) - len(kept[row].lstrip())]
            kept[row] = "\n" if row in unread else f"{indent}pass\n"
            unread.add(row)


def _imports(node: ast.AST, rows: list[bytes]) -> Iterator[tuple[Edit, str, str]]:
    """Yield for each name that a statement imports from Ray: what to change, its dotted name, its name here."""
    if isinstance(node, ast.Import):
        for one in node.names:
            if one.name.partition(".")[0] == "ray":
                row, at = one.lineno - 1, one.col_offset
                if one.asname:
                    yield (row, at, at + len("ray"), b"sweep"), one.name, one.asname
                else:
                    yield (row, at, one.end_col_offset or at, b"sweep as ray"), one.name, "ray"
    elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").partition(".")[0] == "ray":
        found = _FROM.match(rows[node.lineno - 1], node.col_offset)
        for one in node.names if found else ():  # not where the line ends behind `from`
            theirs = f"{node.module}.{one.name}".removesuffix(".*")
            yield (node.lineno - 1, *found.span(1), b"sweep"), theirs, one.asname or one.name  # type: ignore[union-attr]


def _falls_back(node: ast.AST) -> bool:
    """Whether a statement goes another way where an import fails."""
    caught = [ast.unparse(one.type or ast.Name("Exception")) for one in getattr(node, "handlers", ())]
    return any(word in text for text in caught for word in ("ImportError", "ModuleNotFoundError", "Exception"))


def _dotted(node: ast.expr, bound: dict[str, str]) -> str:
    """Return what `name.a.b` means, with our names; empty: it is nothing of Ray's."""
    if isinstance(node, ast.Name):
        return bound.get(node.id, "")
    base = _dotted(node.value, bound) if isinstance(node, ast.Attribute) else ""
    return f"{base}.{node.attr}" if base and isinstance(node, ast.Attribute) else ""


def _named(node: ast.Call | ast.Constant) -> str:
    """Return the class of Ray's that a text is the name of, or the module that a call names by a text."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) and _CLASS.fullmatch(node.value) else ""
    function = ast.unparse(node.func).rpartition(".")[2]
    given = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
    return given if function in _BY_NAME and isinstance(given, str) and given.partition(".")[0] == "ray" else ""


def _ours(theirs: str) -> str:
    return f"sweep{theirs.removeprefix('ray')}"


@cache
def _problem(name: str) -> str:
    """Say why a name of ours, with its dots, does not exist, and what to do; empty: it does."""
    if name == "sweep.__version__":
        return "ray.__version__: it is sweep's here. Leave out what is done for particular versions of Ray."
    import sweep

    value: Any = sweep
    known = "sweep"
    for part in name.split(".")[1:]:
        known += f".{part}"
        try:
            value = getattr(value, part)
        except (AttributeError, ImportError) as error:
            if type(error) is ImportError or (isinstance(error, ImportError) and error.name):
                break  # an optional package is not installed
            why = str(error).partition("does not exist: ")[2] or error
            return f"ray{known.removeprefix('sweep')} has no counterpart: {why}"
        if not isinstance(value, ModuleType):
            break
    return ""
