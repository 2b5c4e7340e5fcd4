"""Modules under the names that they had before, or have in Tune: for imports, and for what was pickled under them.

A former module of ours is the module itself. One of Tune's holds the names that Tune has there, looked up when they are
used; what does not exist here is refused with what to use instead.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

from sweep.tune.names import NOT_HERE, NOW, ROOMS, TUNE

__all__ = ["NOW", "answer_to_former_names", "module_now", "late_names", "names_of", "reason_why_not", "submodules_of"]


def module_now(name: str) -> str:
    """Return where the module of a former name is; empty: it is no such name."""
    if name in NOW:
        return NOW[name]
    row = TUNE.get(name)
    if row is not None:
        return row if row and ":" not in row else ""
    for former, now in ROOMS.items():
        if name.startswith(former):
            return module_now(now + name.removeprefix(former)) or now + name.removeprefix(former)
    return ""


def reason_why_not(name: str) -> str:
    """Return why another library's name, with its dots, does not exist here and what to use; empty: it is no such."""
    asked = name
    for former in ("sweep.search.", "sweep.tune.suggest."):
        if name.startswith(former):
            name = f"sweep.tune.search.{name.removeprefix(former)}"
    return f"{asked} does not exist: {NOT_HERE[name]}" if name in NOT_HERE else ""


@cache
def _row(module: str) -> tuple[dict[str, tuple[str, str]], list[str]]:
    """Return what the table says: name -> module, and its name there; and the modules whose names are all there."""
    homes: dict[str, tuple[str, str]] = {}
    wholes: list[str] = []
    home = ""
    for word in TUNE[module].split():
        name, _, ours = word.partition("=")
        if word.endswith(":"):
            home = word[:-1]
        elif word == "*":
            wholes.append(home)
        else:
            homes[name] = home, ours or name
    return homes, wholes


@cache
def names_of(module: str) -> dict[str, tuple[str, str]]:
    """Return the names that a module of Tune's has here: name -> module, and its name there. Loads some of those."""
    homes, wholes = _row(module)
    found: dict[str, tuple[str, str]] = {}
    for home in wholes:
        package = importlib.import_module(home)
        modules = getattr(package, "_MODULES", {})
        found |= {name: (home, name) for name in package.__all__ if name not in modules and not name.startswith("__")}
    return found | homes


def submodules_of(module: str) -> list[str]:
    """Return the names of the modules of Tune's that a module has below it."""
    below = (name.removeprefix(f"{module}.") for name in TUNE if name.startswith(f"{module}."))
    return sorted(name for name in below if "." not in name)


def late_names(module: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a module of Tune's."""

    def look_up(name: str) -> Any:
        if name == "__all__":
            return sorted(names_of(module))
        value = None if name.startswith("_") else _value(module, name)
        if value is None:
            raise AttributeError(_problem(module, name), name=name, obj=sys.modules[module])
        vars(sys.modules[module])[name] = value
        return value

    def list_names() -> list[str]:
        return sorted({*names_of(module), *submodules_of(module)})

    return look_up, list_names


def _value(module: str, name: str) -> Any:
    if f"{module}.{name}" in TUNE:
        return importlib.import_module(f"{module}.{name}")
    home, there = _row(module)[0].get(name) or names_of(module).get(name, ("", ""))
    return getattr(importlib.import_module(home), there) if home else None


def _problem(module: str, name: str) -> str:
    if name.startswith("_"):
        return f"module {module!r} has no attribute {name!r}"
    if why := reason_why_not(f"{module}.{name}"):
        return why
    known = [*names_of(module), *submodules_of(module)]
    close = importlib.import_module("searchers.errors").closest(name, known)
    hint = f" Did you mean {close!r}?" if close else ""
    return f"{module}.{name} does not exist.{hint} dir({module}) lists what does."


class _Formerly:
    """Answers imports of names that the table has: finder and loader."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if not name.startswith("sweep."):
            return None
        loader: Any = self  # not derived from the classes of importlib.abc, whose import takes 8 ms
        parent, _, last = name.rpartition(".")
        if why := reason_why_not(name):
            raise ModuleNotFoundError(why)  # without its name: `from package import name` would hide the reason
        if module_now(name):
            return importlib.machinery.ModuleSpec(name, loader)
        if name in TUNE and name != "sweep.tune":
            return importlib.machinery.ModuleSpec(name, loader, origin="sweep.tune.names", is_package=True)
        if parent in TUNE and importlib.machinery.PathFinder.find_spec(name, path) is None:
            raise ModuleNotFoundError(_problem(parent, last))
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        now = module_now(spec.name)
        if not now:
            return None
        module = importlib.import_module(now)
        spec.loader_state = module.__spec__, module.__loader__
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None  # the import system has put its own there
        if module.__spec__.loader_state is not None:
            module.__spec__, module.__loader__ = module.__spec__.loader_state
            return
        name = module.__name__
        module.__doc__ = f"What scripts import from ray{name.removeprefix('sweep')}, under the same names."
        vars(module)["__getattr__"], vars(module)["__dir__"] = late_names(name)


def answer_to_former_names() -> None:
    """From now on former names of modules, and Tune's, can be imported."""
    sys.meta_path.insert(0, _Formerly())
