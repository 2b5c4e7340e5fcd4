"""What a Python script imports at its top, whether it can run in a fork, and whether it parses arguments: read from its
syntax tree, not by running it."""

from __future__ import annotations

import ast
import contextlib
import functools
import os
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import NamedTuple

from sweep.errors import ConfigError

_MAX_FILES, _MOST_ASKED = 300, 100
_WANDB_INIT = "wandb.sdk.launch"  # what wandb imports when a run begins: 0.13 s in each process
_TORCH_OPTIMIZERS = "torch._dynamo"  # what torch imports when the first optimizer is built: 1.8 s in each process
# Names that are imported, or attributes that are used, by scripts that parse arguments,
_OF_ARGUMENTS = re.compile(
    r"(click|typer|fire|tyro|jsonargparse|simple_parsing|absl\.(app|flags)|hydra\.main)(\..*)?"
    r"|(.*\.)?(parse_(known_|intermixed_)?args\w*|LightningCLI|from_cli)"
)
# and by those that make processes which print metrics, or which start from a clean interpreter.
_OF_PROCESSES = re.compile(r"(.*\.)?(spawn|start_processes|notebook_launcher|execv[ep]?)")
_OF_OPTIMIZERS = re.compile(r"(.*\.)?optim(\..*)?")
_OF_ENVIRONMENT = ("os.environ", "os.putenv", "environ")
_NEVER = frozenset({"__future__", "sweep", "searchers", "antigravity", "this", "idlelib", "turtledemo"})


class Source:
    """A script with the modules of its own that it imports when it starts.

    Attributes:
        imports: installed and standard modules that are imported before the script changes the environment: those that
            can be imported beforehand.
        needs_own_interpreter: the script cannot run in a fork.
    """

    def __init__(self, script: str | os.PathLike[str], directory: str | os.PathLike[str] | None = None) -> None:
        """Read a script.

        Args:
            directory: that comes first on `sys.path`; None: the script's.

        Raises:
            ConfigError: the script cannot be read, or has an error in its syntax.
        """
        path = os.path.abspath(script)
        self._directory = os.path.abspath(directory or os.path.dirname(path))
        self._found: dict[str, None] = {}
        self._names: set[str] = set()
        self._seen: set[str] = set()
        self._is_changed = False  # the environment, by a statement at the top
        try:
            self._read(path, _package(path, [self._directory]))
        except (OSError, SyntaxError, ValueError) as error:
            line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
            raise ConfigError(f"{path}{line} is no Python that can be run: {error}.") from None
        self.needs_own_interpreter = any(map(_OF_PROCESSES.fullmatch, self._names))
        has_optimizer = any(map(_OF_OPTIMIZERS.fullmatch, self._names))
        if has_optimizer and "torch" in {name.partition(".")[0] for name in self._found}:
            self._found[_TORCH_OPTIMIZERS] = None
        if "wandb" in self._found:
            self._found[_WANDB_INIT] = None
        self.imports = tuple(self._found)

    def _read(self, path: str, package: str) -> None:
        self._seen.add(path)
        module = _module(path, os.stat(path).st_mtime_ns, len(self._seen) == 1)
        self._names |= module.names
        for node in module.executed:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                for name, members in _imported(node, package):
                    self._import(name, members)
            else:
                self._is_changed |= _changes_environment(node)

    def _import(self, name: str, members: Sequence[str]) -> None:
        """Follow an import into the script's own modules, or note it as one that can be done beforehand."""
        own = _own(name, members, [self._directory])
        for path, package in own:
            if path not in self._seen and len(self._seen) < _MAX_FILES:
                with contextlib.suppress(OSError, SyntaxError, ValueError):  # perhaps it is imported in a `try`
                    self._read(path, package)
        top = name.partition(".")[0]
        if own or self._is_changed or top in _NEVER:
            return
        places = [entry for entry in sys.path if os.path.abspath(entry) != self._directory]
        if top in sys.stdlib_module_names:
            self._found[top] = None
        elif is_installed(name, places):
            within = [f"{name}.{member}" for member in members if member != "*"]
            self._found |= dict.fromkeys([name, *(one for one in within if is_installed(one, places))])


def parses_arguments(script: Path, roots: Sequence[Path]) -> bool:
    """Say whether a script, or a module of its own that it imports anywhere, names what parses arguments."""
    places = [str(root) for root in roots]
    waiting, seen = [(str(script), _package(str(script), places))], {str(script)}
    while waiting and len(seen) < _MOST_ASKED:
        path, package = waiting.pop(0)
        try:
            module = _module(path, os.stat(path).st_mtime_ns, path == str(script))
        except (OSError, SyntaxError, ValueError):  # the interpreter that runs it will say so
            continue
        if any(map(_OF_ARGUMENTS.fullmatch, module.names)):
            return True
        imported = (one for node in module.imports for one in _imported(node, package))
        own = dict.fromkeys(found for one in imported for found in _own(*one, places) if found[0] not in seen)
        waiting += own
        seen |= {path for path, _ in own}
    return bool(waiting)


def _package(path: str, roots: Sequence[str]) -> str:
    """Return the package to which a script's relative imports belong."""
    home = next((root for root in roots if path.startswith(os.path.join(root, ""))), os.path.dirname(path))
    return os.path.relpath(os.path.dirname(path), home).strip(".").replace(os.sep, ".")


def _own(name: str, members: Sequence[str], roots: Sequence[str]) -> list[tuple[str, str]]:
    """Return the files below some directories that an import reads, each with its package."""
    parts = name.split(".")
    wanted = [*(parts[:depth] for depth in range(1, len(parts) + 1)), *([*parts, member] for member in members)]
    own = [(path, one) for one in wanted if parts[0] not in _NEVER and (path := _file_of(one, roots))]
    return [(path, ".".join(one if path.endswith("__init__.py") else one[:-1])) for path, one in own]


class _Module(NamedTuple):
    """One file: the statements that run when it is imported, all imports, and the names that it imports or uses."""

    executed: list[ast.stmt]
    imports: list[ast.Import | ast.ImportFrom]
    names: set[str]


@functools.lru_cache(maxsize=_MAX_FILES)
def _module(path: str, changed_ns: int, is_script: bool) -> _Module:
    body = ast.parse(Path(path).read_bytes()).body
    if not is_script:  # what it does as a program of its own
        body = [node for node in body if not isinstance(node, ast.If) or "__main__" not in ast.unparse(node.test)]
    nodes = [node for one in body for node in ast.walk(one)]
    imports = [node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = {f"{getattr(node.value, 'id', '')}.{node.attr}" for node in nodes if isinstance(node, ast.Attribute)}
    for node in imports:
        before = f"{node.module}." if isinstance(node, ast.ImportFrom) and node.module else ""
        names |= {f"{before}{alias.name}" for alias in node.names}
    return _Module([*_executed(body)], imports, names)


def _executed(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run when a module is executed, but those in functions and classes."""
    for node in body:
        yield node
        is_for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if not is_for_types and not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for name in ("body", "orelse", "finalbody"):
                yield from _executed(getattr(node, name, ()))


def _imported(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the modules that a statement imports, each with the names that are taken from it."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, ()) for alias in node.names)
        return
    around = package.split(".") if package and node.level else []
    within = [*around[: len(around) - node.level + 1], *filter(None, [node.module])]
    if within:
        yield ".".join(within), [alias.name for alias in node.names]


def _changes_environment(node: ast.stmt) -> bool:
    """Whether a statement sets variables: what is imported after it may read them."""
    match node:
        case ast.Assign(targets=[changed, *_]) | ast.AugAssign(target=changed) | ast.Expr(value=changed):
            return ast.unparse(changed).startswith(_OF_ENVIRONMENT)
    return False


def _file_of(parts: Sequence[str], places: Sequence[str]) -> str:
    """Return the source file of a module below some directories; empty: there is none."""
    bases = [os.path.join(place, *parts) for place in places]
    files = (path for base in bases for path in (f"{base}.py", os.path.join(base, "__init__.py")))
    return next(filter(os.path.isfile, files), "")


def is_installed(name: str, places: Sequence[str]) -> bool:
    """Whether a module is there, found without importing anything: neither it nor its parents."""
    path: Sequence[str] | None = places
    for part in name.split("."):
        spec = PathFinder.find_spec(part, path) if path is not None else None
        if spec is None:
            return False
        found = spec.submodule_search_locations
        path = None if found is None else list(found)
    return True
