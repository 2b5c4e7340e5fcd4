"""Text on its way into files: collected in memory, and written once per file and round."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from sweep.record.files import write_atomically
from sweep.record.space import lacks_space


class Files:
    """Collects what is to be written.

    What a full disk does not take goes on waiting. A file that cannot be written for another reason is given up.

    Attributes:
        shortage: why the disk took nothing the last time; None: it took everything.

    Args:
        say: called with one line when a file is given up.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.shortage: OSError | None = None
        self._say = say
        self._waiting: dict[str, bytearray] = {}  # to be appended
        self._anew: set[str] = set()  # of those: to be written in place of what is there
        self._broken: set[str] = set()

    @property
    def num_waiting(self) -> int:
        """Bytes that wait."""
        return sum(map(len, self._waiting.values()))

    def append(self, path: str, text: str) -> None:
        """Add text to the end of a file; its directory is made when it is not there."""
        self._waiting.setdefault(path, bytearray()).extend(text.encode("utf-8", "replace"))

    def replace(self, path: str, text: str) -> None:
        """Make a text all that a file says."""
        self._waiting[path] = bytearray(text.encode("utf-8", "replace"))
        self._anew.add(path)

    def remove(self, path: str) -> None:
        """Delete a file now, so that it is written from its beginning."""
        with contextlib.suppress(OSError):  # there is none; or it cannot be written either, which is said then
            os.unlink(path)

    def text(self, path: str) -> str:
        """Return what a file says, with what waits for it."""
        data = bytes(self._waiting.get(path, b""))
        if path not in self._anew and os.path.isfile(path):
            with open(path, "rb") as file:
                data = file.read() + data
        return data.decode("utf-8", "replace")

    def flush(self) -> bool:
        """Write what waits, as far as there is room; whether that is all of it."""
        self.shortage = None
        for path, data in list(self._waiting.items()):
            try:
                if path not in self._broken:
                    self._write(path, data)
            except OSError as error:
                if lacks_space(error):
                    self.shortage = error
                    continue
                # The directory of an experiment that was deleted is not made anew; that ends the sweep, and is said.
                if not isinstance(error, FileNotFoundError):
                    self._broken.add(path)
                    self._say(f"{path} cannot be written, and is given up: {error.strerror or error}")
            del self._waiting[path]
            self._anew.discard(path)
        return not self._waiting

    def _write(self, path: str, data: bytearray) -> None:
        """Append to a file, or write it anew. What was appended is taken from `data`, also before an error."""
        if not os.path.isdir(directory := os.path.dirname(path)):
            with contextlib.suppress(FileExistsError):
                os.mkdir(directory)
        if path in self._anew:
            write_atomically(path, bytes(data))
            return
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_APPEND, 0o644)
        try:
            while data:
                del data[: os.write(descriptor, data)]
        finally:
            os.close(descriptor)
