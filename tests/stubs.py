"""Write the stub of each package that loads its names late: `python tests/stubs.py`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
PACKAGES = ("searchers", "sweep", "sweep.train")
HEAD = "# Written by `python tests/stubs.py` from the table of names in {}."


def path_of(package: str) -> Path:
    return ROOT / package.replace(".", "/") / "__init__.pyi"


def import_of(home: str, ours: str, theirs: str) -> str:
    """What type checkers take for a public name; `import x as y` is a private one, unless y is x."""
    said = f"from {home} import {ours}" if home else f"import {ours}"
    return f"{said} as {theirs}" if ours == theirs else f"{said} as _{theirs}\n\n{theirs} = _{theirs}\n"


def stub_of(package: str) -> str:
    """What type checkers and editors are to read in place of a package's `__init__.py`."""
    module: ModuleType = importlib.import_module(package)
    lines = [HEAD.format("__init__.py"), ""]
    for name, home in getattr(module, "_MODULES", {}).items():
        parent, _, last = home.rpartition(".")
        lines.append(import_of(parent, last, name))
    for home, words in module._NAMES.items():
        for theirs, _, ours in (word.partition("=") for word in words.split()):
            lines.append(import_of(home, ours or theirs, theirs))
    return "\n".join([*lines, *(["", "__version__: str"] if hasattr(module, "__version__") else []), ""])


def tune_stubs() -> Iterator[tuple[Path, str]]:
    """The stub of each module that has Tune's names, and its file."""
    from sweep.tune.formerly import module_now, names_of, submodules_of
    from sweep.tune.names import ROOMS, TUNE

    rooms = [(room, now) for room, now in ROOMS.items() if now.startswith("sweep.tune.")]
    former = {f"{room}{name.removeprefix(now)}": name for room, now in rooms for name in TUNE if name.startswith(now)}
    for module in [*TUNE, *former]:
        below = submodules_of(module) or submodules_of(module_now(module))
        lines = [HEAD.format("sweep/tune/names.py"), ""]
        if now := former.get(module) or module_now(module):
            lines.append(f"from {now} import *")
        else:
            lines += [import_of(module, name, name) for name in below]
            rows = sorted(names_of(module).items(), key=lambda row: row[0] != row[1][1])
            lines += [import_of(home, ours, name) for name, (home, ours) in rows]
        path = ROOT / module.replace(".", "/")
        if path.parent.with_suffix(".py").exists():
            continue  # below a module of ours that is no package: no stub is found there
        yield path / "__init__.pyi" if below else path.with_suffix(".pyi"), "\n".join([*lines, ""])


def all_stubs() -> dict[Path, str]:
    return {path_of(package): stub_of(package) for package in PACKAGES} | dict(tune_stubs())


def written_stubs() -> set[Path]:
    return {path for package in ("searchers", "sweep") for path in (ROOT / package).rglob("*.pyi")}


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    stubs = all_stubs()
    for path in written_stubs() - stubs.keys():
        path.unlink()
    for path, text in stubs.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
