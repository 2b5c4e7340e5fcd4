"""How far a record goes, said in a file beside it: so that a log that is missing, or cut, is not taken for its end.

`sweep.mark` is one line: the number of the last event that was committed, of the last that was flushed, the boot of
the machine, and a checksum. What was committed is there as long as the machine runs, whatever was killed; after another
boot only what was flushed must be. The line is written after what it speaks of, so it never promises too much, and it
is not flushed itself. A record without a mark is a copy, and goes as far as it says itself.
"""

from __future__ import annotations

import os
import threading
import zlib
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from sweep.errors import ExperimentError
from sweep.record.layout import DATABASE, MARK

_LENGTH = 96  # bytes, so that a new line covers the old one
_TRIES = 3


class Mark(NamedTuple):
    """Numbers of events, and the boot under which they were written."""

    committed: int
    flushed: int
    boot: str

    def must_have(self) -> int:
        """Return the number of the last event that the record must have now."""
        return self.committed if self.boot and self.boot == boot() else self.flushed

    def encode(self) -> bytes:
        """Return the line."""
        text = f"committed {self.committed} flushed {self.flushed} boot {self.boot or '-'}"
        return f"{text} {zlib.crc32(text.encode()):08x}".ljust(_LENGTH - 1).encode() + b"\n"

    @staticmethod
    def parse(line: bytes) -> Mark:
        """Undo `encode`.

        Raises:
            ValueError: it is not what was written.
        """
        text, _, checksum = line.decode("ascii").rstrip().rpartition(" ")
        if int(checksum, 16) != zlib.crc32(text.encode()):
            raise ValueError(f"{line!r} has another checksum")
        _, committed, _, flushed, _, boot = text.split(" ")
        return Mark(int(committed), int(flushed), "" if boot == "-" else boot)


def boot() -> str:
    """Return what tells this boot of this machine from all others; empty where the system does not say."""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
    return ""


def mark_of(database: Path) -> Mark | None:
    """Return the mark of a record; None where there is none that can be read."""
    for _ in range(_TRIES):  # it may be half written just now
        try:
            return Mark.parse(database.with_suffix(MARK).read_bytes())
        except FileNotFoundError:
            return None
        except (ValueError, OSError):
            continue
    return None


def check_mark(mark: Mark | None, last: int, database: Path) -> None:
    """Refuse a record that ends before event number `last` is the one that its mark names.

    Args:
        mark: as it was before the record was read: it may have been written to meanwhile.
        last: number of the last event that the record has.

    Raises:
        ExperimentError: says what is missing.
    """
    if mark is None or last >= mark.must_have():
        return
    log = database.with_name(f"{DATABASE}-wal")
    state = "is cut short or damaged" if log.exists() else "is gone"
    raise ExperimentError(
        f"{database} ends with event {last}, and event {mark.must_have()} was recorded: its write-ahead log "
        f"({log.name}) {state}, or it was put back from an older copy. Nothing was changed. Restore {DATABASE} and "
        f"{log.name} together; to go on with what is there, delete {database.with_suffix(MARK)}."
    )


class MarkFile:
    """The mark of the record that this process writes.

    Args:
        database: beside which it lies.

    Raises:
        OSError: it cannot be written.
    """

    def __init__(self, database: Path) -> None:
        self._file = os.open(database.with_suffix(MARK), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._boot = boot()
        self._committed = self._flushed = 0
        self._lock = threading.Lock()

    def write(self, committed: int, flushed: int | None = None) -> None:
        """Say how far the record goes at least; from any thread.

        Args:
            flushed: None: as far as before.
        """
        with self._lock:
            self._committed = max(committed, self._committed)
            self._flushed = max(flushed or 0, self._flushed)
            line = Mark(self._committed, self._flushed, self._boot).encode()
            with suppress(OSError):  # no room for it: the line before promises less
                os.pwrite(self._file, line, 0)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)
