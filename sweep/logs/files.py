"""Text on its way into files: collected in memory, and written once per file and round."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable

from sweep.record.files import write_atomically
from sweep.record.space import lacks_space


class Files:
    """Collects what is to be written.

    What a full disk does not take goes on waiting. A file that cannot be written for another reason is given up.

    After a run that did not end in order everything is written again from the beginning, and compared until `settle`:
    what a file says already stays; where it says something else it is cut off, and what comes then is appended.

    Attributes:
        shortage: why the disk took nothing the last time; None: it took everything.

    Args:
        say: called with one line when a file is given up.
    """

    def __init__(self, say: Callable[[str], None], *, is_comparing: bool = False) -> None:
        self.shortage: OSError | None = None
        self._say = say
        self._waiting: dict[str, bytearray] = {}  # to be appended
        self._anew: set[str] = set()  # of those: to be written in place of what is there
        self._broken: set[str] = set()
        self._same: dict[str, int | None] | None = {} if is_comparing else None  # bytes that agree; None: it ends there

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

    def said(self, path: str) -> str:
        """Return what a file says, with what waits for it."""
        data = bytes(self._waiting.get(path, b""))
        if path not in self._anew:
            data = _read(path, 0, -1 if self._same is None else self._same.get(path, 0)) + data
        return data.decode("utf-8", "replace")

    def flush(self) -> bool:
        """Write what waits, as far as there is room; whether that is all of it."""
        self.shortage = None
        for path, data in list(self._waiting.items()):
            try:
                if path not in self._broken and not self._is_there(path, data):
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

    def settle(self, paths: Iterable[str]) -> None:
        """End the comparison: take away what nobody has written again, also from files that were not named before."""
        same, self._same = self._same or {}, None
        for path in {*same, *paths} - self._broken:
            number = same.get(path, 0)
            if number is None or not os.path.isfile(path):
                continue
            if not number:
                os.unlink(path)
            elif os.path.getsize(path) > number:
                os.truncate(path, number)

    def _is_there(self, path: str, data: bytearray) -> bool:
        """Whether a file is compared and says this already; cuts it off if it does not."""
        if self._same is None:
            return False
        is_new = path in self._anew
        at = 0 if is_new else self._same.get(path, 0)
        if at is None:
            return False
        is_same = _read(path, at, len(data)) == data
        self._same[path] = at + len(data) if is_same else None
        if not is_same and not is_new and os.path.isfile(path):
            os.truncate(path, at)
        return is_same

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


def _read(path: str, start: int, number: int | None) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(start)
            return file.read(number)
    except FileNotFoundError:
        return b""
