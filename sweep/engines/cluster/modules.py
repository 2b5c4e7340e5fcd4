"""The modules of a user's own, which agents on other machines import from the experiment's directory."""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
from collections.abc import Callable, Collection
from pathlib import Path

MOST_BYTES = 50 << 20
_OURS = ("sweep", "searchers", "__main__")
_INSTALLED = {"site-packages", "dist-packages"}  # directories of these names are an environment's
_HERE = Path(__file__).resolve().parents[3]


def ship_local_modules(directory: Path, say: Callable[[str], None]) -> str:
    """Copy the modules that this process has loaded from directories of the user's own, and those beside the script;
    return the directory to look for them in, or an empty text. What is installed is on the nodes, too, or Ray's
    `runtime_env` brings it."""
    roots = _roots()
    files = {path.name: path for root in roots[:1] for path in root.glob("*.py") if path.is_file()}
    loaded = {name: (_bytes_of(found), found) for name, found in _loaded(roots).items()}
    size, left = _bytes_of(files), []
    for name, (num_bytes, found) in sorted(loaded.items(), key=lambda one: one[1][0]):
        if size + num_bytes <= MOST_BYTES or found.keys() <= files.keys():
            files |= found
            size += num_bytes
        else:
            left.append(f"{name} ({num_bytes / 1e6:.0f} MB)")
    if left:
        say(
            f"{', '.join(left)} would make more than {MOST_BYTES / 1e6:.0f} MB of modules and is not copied to the "
            "nodes: runtime_env={'working_dir': '.'} ships it, or keep it where every node sees it"
        )
    if not files:
        return ""
    contents = {name: path.read_bytes() for name, path in sorted(files.items())}
    digest = hashlib.sha256(repr([(name, hashlib.sha256(data).digest()) for name, data in contents.items()]).encode())
    home = directory / f"modules-{digest.hexdigest()[:16]}"
    for name, data in contents.items():
        place = home / name
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
    return str(home)


def _bytes_of(files: dict[str, Path]) -> int:
    return sum(path.stat().st_size for path in files.values())


def _loaded(roots: Collection[Path]) -> dict[str, dict[str, Path]]:
    """Return the files of the user's top-level modules that are loaded from `roots`, by their places below these."""
    installed = {root: _recorded(root) for root in roots}
    found: dict[str, dict[str, Path]] = {}
    for name, module in list(sys.modules.items()):
        file, (top, *below) = getattr(module, "__file__", None), name.split(".")
        if top in _OURS or top in found or not str(file).endswith(".py"):
            continue
        path = Path(str(file)).absolute()
        depth = len(below) + (path.name == "__init__.py")
        root = path.parents[min(depth, len(path.parents) - 1)]
        if top not in installed.get(root.resolve(), {top}):
            paths = (root / top).rglob("*.py") if depth else [path]
            found[top] = {str(one.relative_to(root)): one for one in paths if _INSTALLED.isdisjoint(one.parts)}
    return found


def _roots() -> list[Path]:
    """Return the directories of `sys.path` in which what the user has written may lie, the script's first."""
    roots = [Path(entry or os.curdir).resolve() for entry in sys.path]
    return [root for root in dict.fromkeys(roots) if root.is_dir() and root != _HERE and not _is_installed(root)]


def _is_installed(path: Path) -> bool:
    """Whether a path lies where Python, pip or a site's modules of software (Lmod's of EasyBuild) install."""
    schemes = (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user"))
    kinds = ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
    places = {sysconfig.get_path(kind, scheme) for scheme in schemes for kind in kinds}
    places |= {value for name, value in os.environ.items() if name.startswith("EBROOT") and os.path.isabs(value)}
    is_within = any(path.is_relative_to(one) for place in places for one in (place, os.path.realpath(place)))
    return is_within or not _INSTALLED.isdisjoint(path.parts)


def _recorded(root: Path) -> set[str]:
    """Return the modules that `pip install --target` has put into a directory; the others there are the user's own."""
    lines = [line for file in root.glob("*.dist-info/RECORD") for line in file.read_text().splitlines()]
    return {line.partition(",")[0].partition("/")[0].removesuffix(".py") for line in lines}
