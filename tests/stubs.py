"""Write the stub of each package that loads its names late: `python tests/stubs.py`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
PACKAGES = ("searchers", "sweep", "sweep.train")
HEAD = "# Written by `python tests/stubs.py` from the table of names in __init__.py."


def path_of(package: str) -> Path:
    return ROOT / package.replace(".", "/") / "__init__.pyi"


def import_of(home: str, ours: str, theirs: str) -> str:
    """What type checkers take for a public name; `import x as y` is a private one, unless y is x."""
    said = f"from {home} import {ours}" if home else f"import {ours}"
    return f"{said} as {theirs}" if ours == theirs else f"{said} as _{theirs}\n\n{theirs} = _{theirs}\n"


def stub_of(package: str) -> str:
    """What type checkers and editors are to read in place of a package's `__init__.py`."""
    module: ModuleType = importlib.import_module(package)
    lines = [HEAD, ""]
    for name, home in getattr(module, "_MODULES", {}).items():
        parent, _, last = home.rpartition(".")
        lines.append(import_of(parent, last, name))
    for home, words in module._NAMES.items():
        for theirs, _, ours in (word.partition("=") for word in words.split()):
            lines.append(import_of(home, ours or theirs, theirs))
    return "\n".join([*lines, *(["", "__version__: str"] if hasattr(module, "__version__") else []), ""])


def all_stubs() -> dict[Path, str]:
    return {path_of(package): stub_of(package) for package in PACKAGES}


def written_stubs() -> set[Path]:
    return {path for package in ("searchers", "sweep") for path in (ROOT / package).rglob("*.pyi")}


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    for path, text in all_stubs().items():
        path.write_text(text, encoding="utf-8")
