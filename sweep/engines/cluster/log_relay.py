"""The output of trials on nodes that do not see the driver's directory: read there, and written into it as it grows."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from sweep.engines.local.supervisor import trim_output
from sweep.record.layout import ExperimentLayout, checked_name
from sweep.storage.local_copy import is_log
from sweep.worker import wire

_CHUNK_BYTES = 1 << 20

Key = tuple[str, int]


class LogTails:
    """What was printed on a node and not sent yet; `log_files` are the names of logs besides the usual ones."""

    def __init__(self, root: Path, log_files: Collection[str]) -> None:
        self._layout = ExperimentLayout(root)
        self._log_files = log_files
        self._sent: dict[tuple[Key, str], int] = {}

    def news(self, key: Key) -> Iterator[wire.Written]:
        """Give what was added to the output of an attempt; a file that has become shorter is sent again."""
        try:
            with os.scandir(self._layout.trial(key[0])) as entries:
                files = [e for e in entries if is_log(e.name, self._log_files) and e.is_file(follow_symlinks=False)]
        except FileNotFoundError:
            return
        for file in files:
            at = self._sent.get((key, file.name), 0)
            size = file.stat().st_size
            if size < at:
                at = 0
            if size > at:
                yield from self._read(key, file, at, size)

    def end(self, key: Key) -> None:
        """Forget an attempt."""
        self._sent = {pair: at for pair, at in self._sent.items() if pair[0] != key}

    def _read(self, key: Key, file: os.DirEntry[str], at: int, size: int) -> Iterator[wire.Written]:
        with open(file.path, "rb") as source:
            source.seek(at)
            while at < size and (data := source.read(min(_CHUNK_BYTES, size - at))):
                yield wire.Written(*key, file.name, at, data)
                at += len(data)
        self._sent[key, file.name] = at


class LogWriter:
    """Writes it where it is read: into the driver's directory, behind what earlier attempts have printed.

    When an attempt begins each file is cut to `limit` bytes; 0: unlimited.
    """

    def __init__(self, root: Path, limit: int, say: Callable[[str], None]) -> None:
        self._layout = ExperimentLayout(root)
        self._limit = limit
        self._say = say
        self._starts: dict[tuple[Key, str], int] = {}  # where the attempt's own part of a file begins
        self._has_failed = False

    def write(self, written: wire.Written) -> None:
        """Write what was read on a node."""
        key = ((written.trial_id, written.attempt), written.name)
        path = self._layout.trial(written.trial_id) / checked_name(written.name)
        try:
            path.parent.mkdir(exist_ok=True)
            if key not in self._starts and self._limit:
                trim_output(str(path), self._limit)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            try:
                start = self._starts.setdefault(key, os.fstat(descriptor).st_size)
                if written.at == 0:
                    os.ftruncate(descriptor, start)
                os.pwrite(descriptor, written.data, start + written.at)
            finally:
                os.close(descriptor)
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                self._say(f"what trials on other nodes print cannot be written to {path}: {error.strerror}")

    def end(self, key: Key) -> None:
        """Forget an attempt."""
        self._starts = {pair: start for pair, start in self._starts.items() if pair[0] != key}
