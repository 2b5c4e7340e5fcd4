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
from sweep.record.files import sync_directory, write_atomically
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
            sync_directory(str(one.absolute().parent))
    return new


def make_writable(layout: ExperimentLayout, *, is_resumed: bool = False) -> None:
    """Create an experiment's directory, and prove that it takes files.

    Args:
        is_resumed: the experiment is there, and to be continued.

    Raises:
        ExperimentError: it does not.
    """
    probe = layout.root / f".probe-{os.getpid()}"
    try:
        make_directory(layout.root, exist_ok=True)
        write_atomically(probe, b"x", is_durable=True)
        probe.unlink()
    except OSError as error:
        advice = "Pass storage_path=, or set SWEEP_STORAGE, to a directory of yours."
        if is_resumed:
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

    SQLite goes on writing into a deleted file, and so would a sweep, to its end; without the lock two would. The loop
    looks at these paths once a second and before it records more than reports, which costs some ten microseconds.

    Args:
        layout: of the experiment; its directory exists.
        database: the record that the driver writes, where that lies elsewhere.

    Attributes:
        problem: what happened and what to do; empty as long as everything is there.
    """

    def __init__(self, layout: ExperimentLayout, database: Path | None = None) -> None:
        self.problem = ""
        self._layout = layout
        self._paths = str(layout.root), str(database or layout.database)
        self._fd = os.open(layout.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._root = os.fstat(self._fd)
        self._was_at = _place_of(self._fd)
        # The file is not opened: closing it here would drop the locks that SQLite holds on it in this process.
        self._database: os.stat_result | None = None
        self._others: dict[Path, tuple[os.stat_result, str]] = {}  # lock and code, if they are there

    def start(self) -> None:
        """Take note of what is there."""
        self._database = os.stat(self._paths[1])
        others = (self._layout.lock, self._layout.code)
        self._others = {path: (path.stat(), said) for path in others if (said := _said_by(path))}

    def check(self, *, anew: bool = True) -> None:
        """Refuse to go on when something is gone.

        Args:
            anew: look again, so that what trials make of it is not recorded; False: what was seen last.

        Raises:
            RecordError: says what is gone and what to do.
        """
        if anew and self._fd >= 0:
            self._look()
        if self.problem:
            raise RecordError(self.problem)

    def close(self) -> None:
        """Stop looking."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _look(self) -> None:
        if not self.problem and (
            not (self._is_root_there() and self._is_database_there()) or self._other_gone() is not None
        ):
            time.sleep(_CERTAIN_S)
            self.problem = self._what_happened()

    def _is_root_there(self) -> bool:
        if _is_at(self._paths[0], self._root) is not False:
            return True
        # Some file systems number a directory anew: what the kernel calls it decides.
        self._root = os.fstat(self._fd)
        return _is_at(self._paths[0], self._root) is not False or (
            bool(self._was_at) and _place_of(self._fd) == self._was_at
        )

    def _is_database_there(self) -> bool:
        return self._database is None or _is_at(self._paths[1], self._database) is not False

    def _other_gone(self) -> Path | None:
        for path, (known, said) in self._others.items():
            if _is_at(str(path), known) is False and _said_by(path) not in (said, None):
                return path
        return None

    def _what_happened(self) -> str:
        root = self._layout.root
        is_record_there = self._is_database_there()
        if not self._is_root_there() or not (is_record_there or self._layout.lock.exists()):
            now = _place_of(self._fd)
            if now == self._was_at or not now or now.endswith(_DELETED) or not os.path.isdir(now):
                return (
                    f"{root} was deleted while its sweep ran. The sweep was stopped and its trials were ended: nothing "
                    "more can be recorded, and what it had found is gone with the directory. Run it again; whoever "
                    "wants to be rid of a sweep stops it first, with Ctrl-C."
                )
            place = Path(now)
            return (
                f"{root} was moved to {place} while its sweep ran. The sweep was stopped and its trials were ended; "
                "what is recorded was kept. Move it back, or resume it where it is now: with "
                f"storage_path={str(place.parent)!r}, name={place.name!r} "
                f"(sweep resume {shlex.join([place.name, '--storage', str(place.parent)])})."
            )
        if not is_record_there and self._paths[1] != str(self._layout.database):
            return (
                f"{self._paths[1]} was deleted or replaced while its sweep ran. The sweep was stopped and its trials "
                f"were ended. What was published until a few seconds before is in {self._layout.database}: resume the "
                "sweep, and it goes on from there."
            )
        if not is_record_there:
            return (
                f"{self._paths[1]} was deleted or replaced while its sweep ran. The sweep was stopped and its "
                "trials were ended: nothing more can be recorded. Their checkpoints and output are still in "
                f"{root}; without its record it cannot be resumed. Put the file back from a copy, or run the sweep "
                "again under another name."
            )
        if (gone := self._other_gone()) is not None:
            why = "another driver could write the same record" if gone == self._layout.lock else "no trial can start"
            return (
                f"{gone} was deleted or replaced while its sweep ran. The sweep was stopped and its trials were ended: "
                f"without it {why}. What is recorded was kept: resume the sweep, and it goes on."
            )
        return ""


def _said_by(path: Path) -> str | None:
    """Return what a file says, or that it is a directory; empty: it is gone; None: the file system does not answer."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except IsADirectoryError:
        return "a directory"
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError:
        return None


def _is_at(path: str, known: os.stat_result) -> bool | None:
    """Whether what is known lies at a path; None: the file system does not answer now."""
    try:
        return os.path.samestat(os.stat(path), known)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return None


def _place_of(descriptor: int) -> str:
    """Return where the kernel says an open file is; empty: it does not say."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/self/fd/{descriptor}")
    return ""
