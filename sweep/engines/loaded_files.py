"""Whether modules would be the same if they were imported anew: by the files that they were loaded from."""

from __future__ import annotations

import os
import sys
from types import ModuleType

_GRAIN_NS = 20_000_000  # of the times that the kernel notes for files, at most


class LoadedFiles:
    """The files of the modules of this process, and the directories that packages are installed in, as they are now.

    Not only the contents count: a file that was replaced by an older one of the same size has another time of change.
    """

    def __init__(self, since_ns: int) -> None:
        """Note them.

        Args:
            since_ns: by the wall clock, before the first was loaded. What changed after that may have been loaded
                before it did, so nothing is known then.
        """
        files = [
            file
            for module in list(sys.modules.values())
            if isinstance(module, ModuleType) and isinstance(file := module.__dict__.get("__file__"), str)
        ]
        installed = [entry for entry in sys.path if entry.endswith("-packages") or os.path.isfile(entry)]
        self._seen = {path: _state(path) for path in (*files, *installed)}
        self._is_known = all(state[0] < since_ns - _GRAIN_NS for state in self._seen.values())

    def are_same(self) -> bool:
        """Whether they are as they were when they were loaded, for sure."""
        return self._is_known and all(_state(path) == state for path, state in self._seen.items())


def _state(path: str) -> tuple[int, ...]:
    """Return what a change of a file changes, its time first; the file may be gone, or lie in an archive."""
    try:
        found = os.stat(path)
    except OSError:
        return (0,)
    return found.st_ctime_ns, found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev
