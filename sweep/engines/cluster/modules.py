"""The modules of a user's own, which agents on other machines import from the experiment's directory."""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

MOST_BYTES = 50 << 20
_OURS = ("sweep", "searchers")
_HERE = Path(__file__).resolve().parents[3]


def ship_local_modules(directory: Path, say: Callable[[str], None]) -> str:
    """Copy the modules that this process has loaded from directories of the user's own, and those beside the script;
    return the directory to look for them in, or an empty text. What is installed is on the nodes, too, or Ray's
    `runtime_env` brings it."""
    files = dict(_files())
    if not files:
        return ""
    size = sum(path.stat().st_size for path in files.values())
    if size > MOST_BYTES:
        say(
            f"the modules beside the script have {size / 1e6:.0f} MB, more than {MOST_BYTES / 1e6:.0f} MB, and are not "
            "copied to the nodes: runtime_env={'working_dir': '.'} ships them, or keep them where every node sees them"
        )
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


def _files() -> Iterator[tuple[str, Path]]:
    """Yield files of the user's own code, with their places below the directories in which they are found."""
    roots = _roots()
    for root in roots[:1]:
        yield from ((path.name, path) for path in root.glob("*.py") if path.is_file())
    packages, installed = set(), _installed()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not file or not file.endswith(".py") or name.partition(".")[0] in (*_OURS, "__main__"):
            continue
        path = Path(file)
        if any(path.is_relative_to(place) for place in installed):
            continue  # an environment may lie in the directory of the script
        home = next((root for root in roots if path.is_relative_to(root)), None)
        if home is None:
            continue
        top = path.relative_to(home).parts[0]
        if top.endswith(".py"):
            yield top, path
        else:
            packages.add((home, top))
    for root, top in sorted(packages):
        for path in (root / top).rglob("*.py"):
            yield str(path.relative_to(root)), path


def _installed() -> set[str]:
    """Return the directories of the environment that this process runs in."""
    given = {*sysconfig.get_paths().values(), sys.prefix, sys.base_prefix}
    return given | {os.path.realpath(path) for path in given}


def _roots() -> list[Path]:
    """Return the directories of `sys.path` in which nothing is installed, the script's first."""
    installed = _installed()
    roots = []
    for entry in sys.path:
        root = Path(entry or os.curdir).resolve()
        is_installed = any(root.is_relative_to(place) for place in installed) or root == _HERE
        if root.is_dir() and not is_installed and root not in roots:
            roots.append(root)
    return roots
