"""The record of an experiment in a directory that several machines see: worked on here, on a local disk, and published.

    STORAGE/NAME/sweep.db             a whole snapshot, a few seconds old at most: what readers open, on any machine
    STORAGE/NAME/.sweep-record.json   the lease: which driver may publish; see `mirrored.Lease`
    CACHE/records/NAME-.../sweep.db   what the driver writes, with SQLite's log beside it
                           mark.json  the run and the epoch under which, and the run that they took over from
                       superseded.db  events that no other machine knew of when a driver on one of them went on

Everything else of the experiment (trials' directories, checkpoints, code) is in the storage itself, so a snapshot is
published after all that it refers to, and what it refers to is deleted after one that does not.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import socket
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from sweep.errors import ExperimentError
from sweep.record.access import open_for_reading
from sweep.record.disks import Disk, disk_of, is_shared
from sweep.record.files import write_atomically
from sweep.record.flusher import flush_log
from sweep.record.layout import CACHE_VARIABLE, DATABASE, MARK, RECORD_MARK, cache_root, tidy_name
from sweep.record.manifest import sync_directory
from sweep.record.mirrored import Lease
from sweep.record.opening import Reading
from sweep.record.seals import check_structure
from sweep.record.snapshot import compare, copy_record, stamp_of_record
from sweep.record.stored import strangers_of

_MARK = "mark.json"
_OUTGOING = "outgoing.db"
_INCOMING = f".{DATABASE}.incoming"  # in the storage: what takes the place of the record next
_BEFORE = f".{DATABASE}.before"  # likewise: what it took the place of, so that whoever reads it on another machine may
_SUPERSEDED = "superseded.db"
_WATCH_S = 10.0  # a driver that lives renews its lease three times in that
_LOOK_S = 0.25


class TakenOver(ExperimentError):
    """A driver on another machine goes on with the sweep."""


@dataclass(frozen=True)
class _Mark:
    """Under which lease the local record was written: of `run`, which took over from `after`."""

    run: str = ""
    epoch: int = 0
    after: str = ""


def home_of(root: Path) -> Path:
    """Return the local directory in which the record of an experiment is worked on: the same one every time."""
    place = os.path.realpath(root)
    return cache_root() / "records" / f"{tidy_name(root.name)[-60:]}-{hashlib.sha256(place.encode()).hexdigest()[:10]}"


def live_record(root: Path) -> Path:
    """Return the record to read: what the driver writes, where that was on this machine, else what it has published."""
    published = root / DATABASE
    lease = _read_lease(root)
    if not lease.run:  # the usual case: an experiment on a local disk
        return published
    home = home_of(root)
    is_here = _read_mark(home).run == lease.run and (home / DATABASE).is_file()
    return home / DATABASE if is_here else published


def open_record(root: Path, *, with_events: bool = True) -> Reading:
    """Return a connection to the record of an experiment that only reads; see `live_record`.

    Args:
        with_events: events will be read, so they are checked.

    Raises:
        ExperimentError: there is none, it is damaged, or a newer version of this package wrote it.
    """
    place, published = live_record(root), root / DATABASE
    try:
        return open_for_reading(place, with_events=with_events)
    except ExperimentError:
        if place == published or place.exists():
            raise
        return open_for_reading(published, with_events=with_events)  # its driver has just ended


def working_record(root: Path) -> WorkingRecord | None:
    """Return where the record of an experiment is worked on; None: in the experiment's own directory.

    Raises:
        ExperimentError: that directory is on a file system of several machines, and so is the cache.
    """
    shared = is_shared(root)
    if shared is False:
        return None
    cache = disk_of(cache_root())
    if cache.is_network is False:
        return WorkingRecord(root)
    if shared is None:
        return None  # unknown file systems both: as good as each other
    raise ExperimentError(
        f"{root} is on a file system that several machines see ({_named(disk_of(root))}), where SQLite's log is not "
        f"safe, so the record is worked on in {cache_root()}; but that is on one, too ({_named(cache)}). Set "
        f"{CACHE_VARIABLE} to a directory on a disk of this machine, for instance {CACHE_VARIABLE}={_suggestion()}."
    )


def _named(disk: Disk) -> str:
    return f"{disk.type or 'an unknown type'} at {disk.mount}"


def _suggestion() -> str:
    places = [os.environ.get("TMPDIR", ""), "/var/tmp", "/tmp", "/dev/shm"]
    local = [place for place in places if place and disk_of(Path(place)).is_network is False]
    return f"{(local or ['/tmp'])[0]}/sweep-{os.getuid()}"


def work_in_place(root: Path, *, was_left: bool) -> list[str]:
    """Bring what was published, or is to be, into the experiment's own directory, which is no longer seen by others:
    it was copied to a local disk, or the user says so. The experiment's lock must be held.

    Returns:
        What the user should know, a line each.

    Raises:
        ExperimentError: as `WorkingRecord.take`.
    """
    if not (root / RECORD_MARK).exists():
        return []
    record = WorkingRecord(root)
    notices = record.take(was_left=was_left)
    if record.database.exists():
        try:
            record.end()
        except (OSError, sqlite3.Error) as error:
            raise ExperimentError(f"{record.published} cannot be written: {error}. Nothing was lost.") from error
    (root / RECORD_MARK).unlink()
    return notices


class WorkingRecord:
    """What the driver of an experiment in a shared directory does with its record.

    A process may be killed between any two steps. `take` goes: the right record here, the mark, the lease, then what
    the storage lacks. `publish` goes: a copy by SQLite's own backup, checked; into the storage under another name,
    flushed; a look at the lease; into its place; the lease.

    Attributes:
        database: what the driver writes.
        published: what others read.
        await_flush: returns when what is committed survives a power cut, or raises; nothing is published before.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = home_of(root)
        self.database, self.published = self.home / DATABASE, root / DATABASE
        self.await_flush: Callable[[], None] = lambda: flush_log(self.database)
        self._lease = Lease()
        self._stamp: tuple[int, str] | None = None  # of the record when it was published last
        self._found: tuple[int, int, int] | None = None  # the file that it became

    def take(self, *, was_left: bool) -> list[str]:
        """Bring the record here unless the one that is here goes further, and become the one that publishes.

        The experiment's lock must be held.

        Args:
            was_left: the driver before did not let go of the lock in order.

        Returns:
            What the user should know, a line each.

        Raises:
            ExperimentError: a driver on another machine lives; or each of the two records has events that the other
                lacks, and neither is known to have taken over; or one is damaged, or cannot be written.
        """
        found, mark = _read_lease(self.root), _read_mark(self.home)
        if was_left and found.run and found.host != socket.gethostname():
            self._watch(found)
        try:
            self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self.root / _INCOMING).unlink(missing_ok=True)
            notices = self._bring(found, mark)
            run, epoch = secrets.token_hex(8), max(found.epoch, mark.epoch) + 1
            write_atomically(
                self.home / _MARK, json.dumps({"run": run, "epoch": epoch, "after": found.run}), is_durable=True
            )
            self._lease = Lease(run, found.seq, time.time(), socket.gethostname(), os.getpid(), epoch)
            self._write_lease(is_durable=True)
            if self.published.exists():
                self.publish()
        except (OSError, sqlite3.Error) as error:
            raise ExperimentError(
                f"the record of {self.root} cannot be worked on in {self.home}: {error}. Check both disks; nothing was "
                "lost."
            ) from error
        return notices

    def publish(self) -> int:
        """Put a snapshot of the record in its place, unless it is there; returns the number of its last event.

        Raises:
            TakenOver: a driver on another machine goes on with the sweep; nothing was written.
            OSError, sqlite3.Error: it did not work; try again.
        """
        with contextlib.closing(open_for_reading(self.database, with_events=False)) as source:
            stamp = stamp_of_record(source)
            if stamp == self._stamp and self._found == _look(self.published):  # nobody has deleted or replaced it
                self._check_lease()
                self._write_lease()
                return stamp[0]
            outgoing = self.home / _OUTGOING
            copy_record(source, outgoing)
        with contextlib.closing(open_for_reading(outgoing, with_events=False)) as db:
            stamp = stamp_of_record(db)
            check_structure(db, outgoing)
        incoming = self.root / _INCOMING
        _copy_durably(outgoing, incoming)
        self.await_flush()
        self._check_lease()
        before = self.root / _BEFORE
        with contextlib.suppress(OSError):  # a file system without links: who reads it just now may have to repeat that
            before.unlink(missing_ok=True)
            os.link(self.published, before)
        os.replace(incoming, self.published)
        sync_directory(str(self.root))
        self._stamp, self._found = stamp, _look(self.published)
        self._lease = replace(self._lease, seq=stamp[0])
        self._write_lease()
        outgoing.unlink()
        return stamp[0]

    def end(self) -> None:
        """Publish what is left, and keep nothing here: what is in the storage is all. The journal must be closed.

        Raises:
            TakenOver, OSError, sqlite3.Error: as `publish`; the record stays here.
        """
        self.publish()
        with contextlib.suppress(OSError):
            (self.root / _BEFORE).unlink(missing_ok=True)
        for name in (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", self.database.with_suffix(MARK).name, _MARK):
            (self.home / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # something superseded is kept there
            self.home.rmdir()

    # --- whose it is -------------------------------------------------------------------------------------------------

    def _watch(self, found: Lease) -> None:
        """Refuse to take over from a driver that renews its lease: where locks do not reach from machine to machine
        that is all that can be seen of it, and clocks need not agree for that."""
        until = time.monotonic() + _WATCH_S
        while time.monotonic() < until:
            time.sleep(_LOOK_S)
            now = _read_lease(self.root)
            if now != found and now.run:
                raise ExperimentError(
                    f"{self.root} is in use by another driver (pid {now.pid} on {now.host}). Wait for it to end, or "
                    "stop it there."
                )

    def _check_lease(self) -> None:
        found = _read_lease(self.root)
        if found.run != self._lease.run and found.epoch >= self._lease.epoch:
            raise TakenOver(
                f"a driver on another machine (pid {found.pid} on {found.host}) goes on with {self.root}. This one was "
                f"stopped; what it recorded and the other did not know of is in {self.database}."
            )

    def _write_lease(self, *, is_durable: bool = False) -> None:
        self._lease = replace(self._lease, wall=time.time())
        write_atomically(self.root / RECORD_MARK, self._lease.encode(), is_durable=is_durable)

    # --- which record ------------------------------------------------------------------------------------------------

    def _bring(self, found: Lease, mark: _Mark) -> list[str]:
        """Have the record here that is to be continued; returns what the user should know."""
        if not self.published.exists():
            return self._set_aside("it is gone from the storage") if self.database.exists() else []
        self._fold_published()
        if not self.database.exists():
            self._fetch()
            return []
        with (
            contextlib.closing(open_for_reading(self.published)) as theirs,
            contextlib.closing(open_for_reading(self.database)) as ours,
        ):
            their_seq, our_seq, is_same = compare(theirs, ours)
            is_other = _identity(theirs) != _identity(ours)
        is_mine = found.run in ("", mark.run, mark.after)
        if is_same and not is_other and our_seq >= their_seq and (is_mine or our_seq == their_seq):
            return []
        notices = []
        if is_other:
            notices = self._set_aside("it is of another experiment, which lay at this place before")
        elif not is_same or our_seq > their_seq:
            if is_mine or mark.epoch > found.epoch:
                raise self._parted(found, their_seq, our_seq)
            who = f"a driver on another machine (pid {found.pid} on {found.host}) went on without it"
            notices = self._set_aside(f"up to event {our_seq}, but {who}")
        self._fetch()
        return notices

    def _parted(self, found: Lease, their_seq: int, our_seq: int) -> ExperimentError:
        by = f", published by pid {found.pid} on {found.host}" if found.host else ""
        return ExperimentError(
            f"{self.published} (up to event {their_seq}{by}) and what this machine has of it in {self.database} (up to "
            f"event {our_seq}) do not continue each other: one of them was put back from a copy, or changed by "
            "something else than a driver. Nothing was changed. To go on with the one in the storage: "
            f"rm -r {self.home}"
        )

    def _set_aside(self, why: str) -> list[str]:
        """Keep a record that is not continued, in place of the one that was kept before; one without trials is none."""
        place = self.home / _SUPERSEDED
        with contextlib.closing(open_for_reading(self.database)) as db:
            is_empty = db.execute("SELECT 1 FROM trial").fetchone() is None
            if not is_empty:
                copy_record(db, place)
        self._clear()
        if is_empty:
            return []
        return [f"the record that this machine had is not continued: {why}. It is kept in {place}"]

    def _clear(self) -> None:
        for end in ("", "-wal", "-shm"):  # in this order: a log beside another database would be played into it
            self.database.with_name(f"{DATABASE}{end}").unlink(missing_ok=True)
        self.database.with_suffix(MARK).unlink(missing_ok=True)

    def _fold_published(self) -> None:
        """Put the log into a record that was worked on in the storage itself, as earlier versions did."""
        if any(self.published.with_name(f"{DATABASE}{end}").exists() for end in ("-wal", "-shm", "-journal")):
            with contextlib.closing(sqlite3.connect(self.published)) as db:
                db.execute("PRAGMA journal_mode=DELETE")
            for end in ("-wal", "-shm"):
                self.published.with_name(f"{DATABASE}{end}").unlink(missing_ok=True)

    def _fetch(self) -> None:
        """Continue from what is published, and delete what trials left of which it does not know."""
        incoming, found = self.home / "incoming.db", _look(self.published)
        with contextlib.closing(open_for_reading(self.published)) as source:
            copy_record(source, incoming)
        with contextlib.closing(open_for_reading(incoming)) as db:
            check_structure(db, self.published)
            self._stamp, self._found = stamp_of_record(db), found
            strangers = strangers_of(self.root, db)
        self._clear()
        _sync(incoming)
        os.replace(incoming, self.database)
        sync_directory(str(self.home))
        for name in strangers:
            shutil.rmtree(self.root / name)


def _identity(db: sqlite3.Connection) -> list[tuple[str, str]]:
    """Return what tells experiments apart that lay at one place."""
    return db.execute("SELECT key, value FROM meta WHERE key IN ('created', 'prefix') ORDER BY key").fetchall()


def _copy_durably(source: Path, target: Path) -> None:
    with source.open("rb") as read, target.open("wb") as write:
        shutil.copyfileobj(read, write, 1 << 20)
        write.flush()
        os.fsync(write.fileno())  # on a network file system this is also what says that it was taken
    if target.stat().st_size != source.stat().st_size:
        raise OSError(f"{target} has {target.stat().st_size} bytes; {source.stat().st_size} were written")


def _look(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _read_lease(root: Path) -> Lease:
    """Return the lease of an experiment; an empty one where there is none, or nothing can be made of what is there."""
    try:
        return Lease.parse((root / RECORD_MARK).read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError, AttributeError):
        return Lease()


def _read_mark(home: Path) -> _Mark:
    try:
        said = json.loads((home / _MARK).read_text(encoding="utf-8"))
        return _Mark(str(said["run"]), int(said["epoch"]), str(said["after"]))
    except (OSError, ValueError, TypeError, KeyError):
        return _Mark()
