"""The directory that a run writes into: whether it takes files before anything starts, and whether it is still there
while the sweep is driven."""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

from sweep.errors import ExperimentError, RecordError
from sweep.record.files import sync, write_atomically
from sweep.record.layout import ExperimentLayout
from sweep.record.space import lacks_space

_CERTAIN_S = 0.2  # whoever deletes a directory deletes what is in it first: which of the two it is shows after a moment
_DELETED = " (deleted)"  # what Linux adds to the path of an open file


def make_directory(path: Path, *, exist_ok: bool = False) -> list[Path]:
    """Create a directory and its parents, so that a power cut does not take them back; return those that are new, the
    innermost first.

    Raises:
        OSError: one cannot be created, or is there already.
    """
    new = [one for one in (path, *path.absolute().parents) if not one.exists()]
    path.mkdir(parents=True, exist_ok=exist_ok)
    for one in new:
        with contextlib.suppress(PermissionError):  # of a directory that may be written and not read
            sync(one.absolute().parent)
    return new


def make_writable(layout: ExperimentLayout, *, is_resumed: bool = False) -> None:
    """Create an experiment's directory, and prove that it takes files; raises ExperimentError where it does not."""
    probe = layout.root / f".probe-{os.getpid()}"
    try:
        make_directory(layout.root, exist_ok=True)
        write_atomically(probe, b"x", is_durable=True)
        probe.unlink()
    except OSError as error:
        advice = "Pass storage_path=, or set SWEEP_STORAGE, to a directory of yours."
        if is_resumed and lacks_space(error):
            advice = "No trial was started; free some space, and resume."
        elif is_resumed:
            advice = (
                "A sweep is continued where it lies: copy its directory to a place of yours, and resume it there with "
                "storage_path= (on the command line --storage). It can be read where it is."
            )
        raise ExperimentError(f"{layout.root} cannot be written: {error.strerror or error}. {advice}") from None


@contextlib.contextmanager
def refusing_full_disk(layout: ExperimentLayout) -> Iterator[None]:
    """Before trials start a full disk is no reason to wait, but an error.

    Raises:
        ExperimentError: what is written within did not fit.
    """
    try:
        yield
    except OSError as error:
        if not lacks_space(error):
            raise
        raise ExperimentError(
            f"{layout.root} cannot be written: {error.strerror or error}. "
            "No trial was started; free some space, and resume."
        ) from error


class DirectoryGuard:
    """Find out within a second that an experiment's directory, record, lock or code was deleted, moved or replaced.

    SQLite goes on writing into a deleted file, and so would a sweep; without the lock two would. The loop looks once a
    second and before it records more than reports, in some ten microseconds.

    Args:
        layout: of the experiment; its directory exists.
        database: the record that the driver writes, where that lies elsewhere.

    Attributes:
        problem: what happened and what to do; empty as long as everything is there.
    """

    def __init__(self, layout: ExperimentLayout, database: Path | None = None) -> None:
        self.problem = ""
        self._layout = layout
        self._database = database or layout.database
        self._lock, self._code = layout.lock, layout.code
        self._fd = os.open(layout.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._was_at = _location_of(self._fd)
        self._known: dict[Path, tuple[int, ...]] = {}  # the record, the lock and the code, and what tells each of them

    def start(self) -> None:
        """Take note of what is there."""
        paths = (self._database, self._lock, self._code)
        self._known = {path: seen for path in paths if (seen := self._seen(path))}

    def check(self, *, anew: bool = True) -> None:
        """Refuse to go on when something is gone; `anew`: look again, so that what trials make of it is not recorded.

        Raises:
            RecordError: says what is gone and what to do.
        """
        if anew and self._fd >= 0 and not self.problem and not self._is_all_there():
            time.sleep(_CERTAIN_S)
            self.problem = self._what_happened()
        if self.problem:
            raise RecordError(self.problem)

    def close(self) -> None:
        """Stop looking."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _is_all_there(self) -> bool:
        return self._is_root_there() and all(map(self._is_there, self._known))

    def _is_root_there(self) -> bool:
        # Some file systems number a directory anew: what the kernel calls it decides.
        if self._was_at and _location_of(self._fd) == self._was_at:
            return True
        known = os.fstat(self._fd)
        return self._seen(self._layout.root) in (None, (known.st_dev, known.st_ino))

    def _is_there(self, path: Path) -> bool:
        return self._seen(path) in (None, self._known.get(path))

    def _seen(self, path: Path) -> tuple[int, ...] | None:
        """Return what changes when another one takes the place of a file; empty: it is gone; None: the file system does
        not answer. The record is not opened: closing it here would drop the locks that SQLite holds on it."""
        try:
            found = os.stat(str(path))
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError:
            return None
        # A network file system may number files anew. The lock is written once; in the code there is always more.
        if path is self._lock:
            return found.st_size, found.st_mtime_ns
        return (1,) if path is self._code else (found.st_dev, found.st_ino)

    def _what_happened(self) -> str:
        root, database, lock = self._layout.root, self._database, self._lock
        stopped = "while its sweep ran. The sweep was stopped and its trials were ended"
        if not self._is_root_there() or not (self._is_there(database) or lock.exists()):
            now = _location_of(self._fd)
            if now == self._was_at or not now or now.endswith(_DELETED) or not os.path.isdir(now):
                return (
                    f"{root} was deleted {stopped}: nothing more can be recorded, and what it had found is gone with "
                    "the directory. Run it again; whoever wants to be rid of a sweep stops it first, with Ctrl-C."
                )
            target = Path(now)
            return (
                f"{root} was moved to {target} {stopped}; what is recorded was kept. Move it back, or resume it where "
                f"it is now: with storage_path={str(target.parent)!r}, name={target.name!r} "
                f"(sweep resume {shlex.join([target.name, '--storage', str(target.parent)])})."
            )
        gone = next((path for path in self._known if not self._is_there(path)), None)
        if gone is None:
            return ""
        if gone != database:
            why = "another driver could write the same record" if gone == lock else "no trial can start"
            rest = f": without it {why}. What is recorded was kept: resume the sweep, and it goes on."
        elif database != self._layout.database:
            rest = f". What was published is in {self._layout.database}: resume the sweep, and it goes on from there."
        else:
            rest = (
                f": nothing more can be recorded. Their checkpoints and output are still in {root}; without its record "
                "it cannot be resumed. Put the file back from a copy, or run the sweep again under another name."
            )
        return f"{gone} was deleted or replaced {stopped}{rest}"


def _location_of(descriptor: int) -> str:
    """Return where the kernel says an open file is; empty: it does not say."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/self/fd/{descriptor}")
    return ""
