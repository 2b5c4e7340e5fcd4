"""The record of an experiment in a directory that several machines see: worked on on a local disk, and sent there.

    STORAGE/NAME/sweep.db             a whole snapshot, a few seconds old at most: what readers open, on any machine
    STORAGE/NAME/.sweep-record.json   which driver may send it
    CACHE/records/NAME-.../sweep.db   what the driver writes, with SQLite's log beside it

Everything else of the experiment (trials' directories, checkpoints, code) is in the storage itself, so a snapshot is
sent after all that it refers to, and what it refers to is deleted after one that does not.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import socket
import time
from collections.abc import Collection
from pathlib import Path

from sweep.errors import ExperimentError
from sweep.record.db import Reading, open_for_reading
from sweep.record.layout import CACHE_VARIABLE, DATABASE, cache_root, tidy_name
from sweep.record.snapshot import close_log, copy_record, totals_of
from sweep.storage.disks import SHARED_VARIABLE, disk_of, is_shared
from sweep.storage.filesystems import RemoteDirectory, explained, local_filesystem
from sweep.storage.mirror import Mirror
from sweep.storage.ownership import LocalState, Owner, install_record, set_aside

_BEFORE = f".{DATABASE}.before"
_WATCH_S = 10.0  # a driver that lives renews its ownership three times in that


def home_of(root: Path) -> Path:
    """Return the local directory in which the record of an experiment is worked on: the same one every time."""
    place = os.path.realpath(root)
    return cache_root() / "records" / f"{tidy_name(root.name)[-60:]}-{hashlib.sha256(place.encode()).hexdigest()[:10]}"


def live_record(root: Path) -> Path:
    """Return the record to read: what the driver writes, where that was on this machine, else what it has sent."""
    owner = Owner.of(root)
    if not owner.run:  # the usual case: an experiment on a local disk
        return root / DATABASE
    home = home_of(root)
    is_here = LocalState.load(home).run == owner.run and (home / DATABASE).is_file()
    return (home if is_here else root) / DATABASE


def open_record(root: Path, *, with_events: bool = True) -> Reading:
    """Return a connection to the record of an experiment, as `open_for_reading` does; see `live_record`."""
    place, published = live_record(root), root / DATABASE
    try:
        return open_for_reading(place, with_events=with_events)
    except ExperimentError:
        if place == published or place.exists():
            raise
        return open_for_reading(published, with_events=with_events)  # its driver has just ended


def shared_record(root: Path) -> SharedRecord | None:
    """Return where the record of an experiment is worked on; None: in the experiment's own directory.

    What was shared once is worked on like that from then on, also where it was copied to a local disk.
    """
    if not is_shared(root):
        return SharedRecord(root) if Owner.of(root).run else None
    cache = disk_of(cache_root())
    if not cache.is_network:
        return SharedRecord(root)
    local = next((place for place in ("/var/tmp", "/tmp") if not disk_of(Path(place)).is_network), "/dev/shm")
    raise ExperimentError(
        f"{root} is on a file system that several machines see ({disk_of(root)}), where SQLite's log is not safe, so "
        f"the record is worked on in {cache_root()}; but that is on one, too ({cache}). Set {CACHE_VARIABLE} to a "
        f"directory on a disk of this machine, for instance {CACHE_VARIABLE}={local}/sweep-{os.getuid()}; or set "
        f"{SHARED_VARIABLE}=0 if no other machine sees the storage."
    )


class SharedRecord(Mirror):
    """What the driver of an experiment in a shared directory does with its record: nothing else is sent.

    A process may be killed between any two steps. `take` goes: the right record here, what is known of it, ownership,
    then what the storage lacks.
    """

    is_record_only = True
    consequence = "it goes on with it, and this one was stopped. What only this one recorded is in {home}/sweep.db."

    def __init__(self, root: Path) -> None:
        super().__init__(RemoteDirectory(local_filesystem(), str(root)), root, home_of(root))
        self.published = root / DATABASE
        self.shown, self.kept = str(self.published), str(self.database)

    def take(self, *, was_left: bool) -> list[str]:
        """Bring the record here unless the one that is here goes further, and become the one that sends it; returns
        what the user should know, a line each.

        The experiment's lock must be held; `was_left` says that the driver before did not let go of it in order.
        """
        found, self._state = Owner.of(self.remote), LocalState.load(self.home)
        if was_left and found.run and found.host != socket.gethostname():
            self._watch(found)
        with self.working():
            notices = self._bring(found)
            self._own(found)
            if self.database.exists():
                self.sync()
        return notices

    def sync(self, trial_ids: Collection[str] | None = None, *, with_artifacts: bool = False) -> None:
        """Send the record, and delete the checkpoints that it gives up."""
        self._hold()
        num_given_up = len(self._given_up)
        snapshot = self._snapshot()
        if snapshot is None:
            self._renew(self.owner.seq)
        else:
            self._put(snapshot)
        self._delete_here(num_given_up)

    def end(self) -> None:
        """Keep nothing here: what is in the storage is all."""
        (self.root / _BEFORE).unlink(missing_ok=True)
        shutil.rmtree(self.home)

    def working(self) -> contextlib.AbstractContextManager[None]:
        """Say of what fails in both places that it does."""
        problem = f"the record of {self.root} cannot be worked on in {self.home}"
        return explained(problem, "Check both disks; nothing was lost.")

    def _begin(self, found: Owner) -> None:
        self._own(found)

    def _hold_on(self) -> None:
        self._hold()  # the record is all that is sent, so there is nothing to compare

    def _put(self, snapshot: Path) -> None:
        """Send a snapshot. The record before keeps a name until the next one, so that who reads it on another machine
        may go on: the server of a network file system forgets files that have none."""
        with contextlib.suppress(OSError):  # there is none, or no links are made there: who reads it has to repeat that
            (self.root / _BEFORE).unlink(missing_ok=True)
            os.link(self.published, self.root / _BEFORE)
        super()._put(snapshot)

    def _watch(self, found: Owner) -> None:
        """Refuse to take over from a driver that renews its ownership: where locks do not reach from machine to
        machine that is all that can be seen of it, and clocks need not agree for that."""
        time.sleep(_WATCH_S)
        now = Owner.of(self.remote)
        if now != found and now.run:
            raise ExperimentError(
                f"{self.root} is in use by another driver (pid {now.pid} on {now.host}). Wait for it to end, or stop "
                "it there."
            )

    def _bring(self, found: Owner) -> list[str]:
        """Have the record here that is to be continued; returns what the user should know."""
        is_to_come, why = False, ""
        if is_there := self.published.exists():
            close_log(self.published)  # of a driver that worked on it in the storage itself
            is_to_come, why = self._state.is_to_come(
                self.published, self.database, found, str(self.published), has_files=False
            )
        elif self.database.exists() and totals_of(self.database).last:
            why = "what this machine has of it is gone from the storage"
        notices = []
        if why:
            notices, self._state = [set_aside(self.home, f"{self.root.name}: {why}")], LocalState()
        elif not is_there:
            shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_to_come:
            incoming = self.home / "incoming.db"
            copy_record(self.published, incoming)
            install_record(incoming, self.database)
        return notices
