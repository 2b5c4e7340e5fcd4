"""Write the stub of each package that loads its names late: `python tests/stubs.py`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

PACKAGES = ("searchers", "sweep", "sweep.train")


def path_of(package: str) -> Path:
    return Path(__file__).parents[1] / package.replace(".", "/") / "__init__.pyi"


def stub_of(package: str) -> str:
    """What type checkers and editors are to read in place of a package's `__init__.py`."""
    module: ModuleType = importlib.import_module(package)
    lines = ["# Written by `python tests/stubs.py` from the table of names in __init__.py.", ""]
    for name, home in getattr(module, "_MODULES", {}).items():
        parent, _, last = home.rpartition(".")
        lines.append(f"from {parent} import {last} as {name}" if parent else f"import {home} as {name}")
    for home, names in module._NAMES.items():
        lines += [f"from {home} import {name} as {name}" for name in names.split()]
    return "\n".join([*lines, *(["", "__version__: str"] if hasattr(module, "__version__") else []), ""])


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    for each in PACKAGES:
        path_of(each).write_text(stub_of(each), encoding="utf-8")
