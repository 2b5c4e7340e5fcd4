"""What a Python script imports at its top, and whether it can run in a fork: read from its syntax tree, not by running
it."""

from __future__ import annotations

import ast
import functools
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from sweep.errors import ConfigError

_MAX_FILES = 300
_WANDB_INIT = "wandb.sdk.launch"  # what wandb imports when a run begins: 0.13 s in each process
_TORCH_OPTIMIZERS = "torch._dynamo"  # what torch imports when the first optimizer is built: 1.8 s in each process
# Calls by which a script makes processes that print metrics, or that start from a clean interpreter.
_OF_PROCESSES = {
    "spawn": "starts processes with spawn",
    "start_processes": "starts processes with start_processes",
    "notebook_launcher": "starts processes with notebook_launcher",
    "execv": "executes itself again",
    "execve": "executes itself again",
    "execvp": "executes itself again",
}
_OF_ENVIRONMENT = ("os.environ", "os.putenv", "environ")
_NEVER = frozenset({"__future__", "sweep", "searchers", "antigravity", "this", "idlelib", "turtledemo"})


class Source:
    """A script with the modules of its own directory that it imports, in the order of execution.

    Attributes:
        imports: installed and standard modules that are imported before the script changes the environment: those that
            can be imported beforehand.
        needs_own_interpreter: why the script cannot run in a fork; empty: it can.
    """

    def __init__(self, script: str | os.PathLike[str], directory: str | os.PathLike[str] | None = None) -> None:
        """Read a script.

        Args:
            directory: that comes first on `sys.path`; None: the script's.

        Raises:
            ConfigError: the script cannot be read, or has an error in its syntax.
        """
        self.imports: tuple[str, ...] = ()
        self._names: set[str] = set()
        self.needs_own_interpreter = ""
        self._directory = os.path.abspath(directory or os.path.dirname(os.path.abspath(script)))
        self._seen: set[str] = set()
        self._is_changed = False  # the environment, by a statement at the top
        found: dict[str, None] = {}
        self._read(os.path.abspath(script), "", found)
        if "torch" in {name.partition(".")[0] for name in found} and "optim" in self._names:
            found[_TORCH_OPTIMIZERS] = None
        if "wandb" in found:
            found[_WANDB_INIT] = None
        self.imports = tuple(found)

    def _read(self, path: str, package: str, found: dict[str, None]) -> None:
        if path in self._seen or len(self._seen) >= _MAX_FILES:
            return
        self._seen.add(path)
        try:
            tree = parsed(Path(path))
        except (OSError, SyntaxError, ValueError) as error:
            if len(self._seen) == 1:
                line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
                raise ConfigError(f"{path}{line} is no Python that can be run: {error}.") from None
            return  # one that it imports: perhaps in a `try`
        for node in ast.walk(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self._names.update(part for alias in node.names for part in alias.name.split("."))
                self._names.update((getattr(node, "module", None) or "").split("."))
            elif isinstance(node, ast.Attribute) and node.attr == "optim":
                self._names.add("optim")
            elif isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if why := _OF_PROCESSES.get(str(name)):
                    self.needs_own_interpreter = self.needs_own_interpreter or why
        for node in _executed(tree.body):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                for name, members in _imported(node, package):
                    self._import(name, members, found)
            elif _changes_environment(node):
                self._is_changed = True

    def _import(self, name: str, members: Sequence[str], found: dict[str, None]) -> None:
        """Follow an import into the script's own modules, or note it as one that can be done beforehand."""
        top = name.partition(".")[0]
        if top in _NEVER:
            return
        if _file_of(name.split(".")[:1], [self._directory]):
            parts = name.split(".")
            for depth in range(1, len(parts) + 1):
                self._follow(parts[:depth], found)
            for member in members:
                self._follow([*parts, member], found)
        elif not self._is_changed:
            places = [entry for entry in sys.path if os.path.abspath(entry) != self._directory]
            if top in sys.stdlib_module_names:
                found[top] = None
            elif is_installed(name, places):
                found[name] = None
                for member in members:
                    if member != "*" and is_installed(f"{name}.{member}", places):
                        found[f"{name}.{member}"] = None

    def _follow(self, parts: Sequence[str], found: dict[str, None]) -> None:
        if path := _file_of(parts, [self._directory]):
            is_package = os.path.basename(path) == "__init__.py"
            self._read(path, ".".join(parts if is_package else parts[:-1]), found)


def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a source file, for reading; raises OSError, SyntaxError or ValueError."""
    return _parsed(path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=_MAX_FILES)
def _parsed(path: Path, changed_ns: int) -> ast.Module:
    return ast.parse(path.read_bytes())


def _executed(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run when a module is executed, but those in functions and classes."""
    for node in body:
        yield node
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for name in ("body", "orelse", "handlers", "finalbody"):
                inner = getattr(node, name, [])
                yield from _executed([one for one in inner if isinstance(one, ast.stmt)])


def _imported(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the modules that a statement imports, each with the names that are taken from it."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, []) for alias in node.names)
        return
    name = node.module or ""
    if node.level:
        parts = package.split(".") if package else []
        base = parts[: len(parts) - node.level + 1]
        name = ".".join([*base, name] if name else base)
    if name:
        yield name, [alias.name for alias in node.names]


def _changes_environment(node: ast.stmt) -> bool:
    """Whether a statement sets variables: what is imported after it may read them."""
    text = ast.unparse(node) if isinstance(node, (ast.Assign, ast.AugAssign, ast.Expr)) else ""
    targets = text.split("=", 1)[0] if isinstance(node, (ast.Assign, ast.AugAssign)) else text
    return targets.startswith(_OF_ENVIRONMENT) and not targets.startswith(("os.environ.get", "environ.get"))


def _file_of(parts: Sequence[str], places: Sequence[str]) -> str:
    """Return the source file of a module below some directories; empty: there is none."""
    for place in places:
        base = os.path.join(place, *parts)
        for path in (f"{base}.py", os.path.join(base, "__init__.py")):
            if os.path.isfile(path):
                return path
    return ""


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
