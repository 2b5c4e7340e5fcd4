"""What is to be written to log files: collected in memory, and written once per file and round."""

from __future__ import annotations

import os
from collections.abc import Callable

from sweep.callbacks.log_text import write_to
from sweep.record.space import lacks_space


class Outbox:
    """Text that waits for its files. What a full disk does not take goes on waiting; a file that cannot be written for
    another reason is given up.

    Args:
        say: called with one line when a file is given up.

    Attributes:
        shortage: why the disk took nothing the last time; None: it took everything.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.shortage: OSError | None = None
        self._say = say
        self._waiting: dict[str, bytearray] = {}  # to be appended
        self._anew: set[str] = set()  # of those: to be written in place of what is there
        self._broken: set[str] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def append(self, path: str, text: str) -> None:
        """Add `text` to the end of a file; its directory is made when it is not there."""
        self._waiting.setdefault(path, bytearray()).extend(text.encode("utf-8", "replace"))

    def replace(self, path: str, text: str) -> None:
        """Make `text` all that a file says."""
        self._waiting[path] = bytearray(text.encode("utf-8", "replace"))
        self._anew.add(path)

    def flush(self, path: str | None = None) -> None:
        """Write what waits, of one file or of all, as far as there is room."""
        self.shortage = None
        for name in [path] if path is not None else list(self._waiting):
            data = self._waiting.get(name)
            if data is None:
                continue
            try:
                if name in self._anew:
                    write_to(name, bytearray(data), os.O_TRUNC)  # whole, however often it is tried
                elif name not in self._broken:
                    write_to(name, data, os.O_APPEND)
            except OSError as error:
                # The directory of an experiment that was deleted is not made anew; that ends the sweep, and is said.
                if lacks_space(error):
                    self.shortage = error
                    continue
                if not isinstance(error, FileNotFoundError):
                    self._broken.add(name)
                    self._say(f"{name} cannot be written, and is given up: {error.strerror or error}")
            del self._waiting[name]
            self._anew.discard(name)
