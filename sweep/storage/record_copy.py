"""The copy of a record at the place that other machines reach: a whole snapshot, sent by the driver that owns it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection
from pathlib import Path

from sweep.errors import ExperimentError, SweepError
from sweep.record.layout import DATABASE
from sweep.record.snapshot import Stamp, copy_record, stamp_of_record
from sweep.storage.ownership import Ownership

BEFORE = f".{DATABASE}.before"  # what was there before, so that who reads it on another machine may go on


class SendingStopped(SweepError):
    """There is no time left; what was sent so far is whole."""


class RecordCopy:
    """Send snapshots of a record.

    Args:
        ownership: of the place.
        database: the record, which may be in use.
        outgoing: where a snapshot is made.
        is_before_kept: the place is a directory of a network file system: the record before keeps a name there until
            the next one, for its server forgets files that have none.

    Attributes:
        shown, kept: the place, and where everything is that could not be sent; for people.
        await_flush: returns when what is committed survives a power cut, or raises; no record is sent before.
        is_over: asked between two batches of files; True ends a pass with `SendingStopped`.
        took_s: how long copying and sending the last record took.
        num_files: still to be sent in this pass.
        problems: checkpoints that cannot be sent, with the reasons.
    """

    def __init__(self, ownership: Ownership, database: Path, outgoing: Path, *, is_before_kept: bool = False) -> None:
        self.ownership = ownership
        self.shown, self.kept = str(ownership.place), str(database)
        self.await_flush: Callable[[], None] = lambda: None
        self.is_over: Callable[[], bool] = lambda: False
        self.took_s = 0.0
        self.num_files = 0
        self.problems: dict[str, str] = {}
        self._database = database
        self._outgoing = outgoing
        self._is_before_kept = is_before_kept
        self._sent: tuple[Stamp, str] | None = None  # the record that is there, and what its file system says of it

    def sync(self, trial_ids: Collection[str] | None = None, *, with_artifacts: bool = False) -> None:
        """Send what has changed: the record, and what belongs to it of these trials (None: of all).

        Raises:
            TakenOver, SendingStopped: see there; nothing more is to be sent.
            Exception: whatever the file system raises; nothing is broken, try again.
        """
        self.send()

    def end(self) -> None:
        """Do what is left to do when everything is sent and the record is closed."""

    def num_unsent_checkpoints(self) -> int:
        """Return how many checkpoints that the record keeps lie here and were not sent."""
        return 0

    def is_there(self, database: Path) -> None:
        """Take note that the place has this record."""
        self._sent = stamp_of_record(database), self._seen()

    def snapshot(self) -> Path | None:
        """Return a copy of the record; None when the place has that one."""
        began = time.monotonic()
        if self._sent == (stamp_of_record(self._database), self._seen()):
            return None
        copy_record(self._database, self._outgoing)
        self.took_s = time.monotonic() - began
        return self._outgoing

    def put(self, snapshot: Path) -> int:
        """Send a snapshot; returns the number of its last event.

        Raises:
            TakenOver: another driver owns the place now.
            Exception: whatever the file system raises; try again.
        """
        began = time.monotonic()
        place = self.ownership.place
        self.await_flush()
        if not self.ownership.is_held(self.ownership.find()):
            raise ExperimentError(f"{place} was changed while it was written")
        if self._is_before_kept:
            self._keep_before(Path(place.path))
        place.replace(snapshot, DATABASE)
        self.is_there(snapshot)
        assert self._sent is not None
        seq = self._sent[0].seq
        self.ownership.renew(seq)
        snapshot.unlink()
        self.took_s += time.monotonic() - began
        return seq

    def send(self) -> int:
        """Send the record unless it is there, and say that this driver lives; returns the number of its last event.

        Raises:
            TakenOver, Exception: as `put`.
        """
        found = self.ownership.find()
        if not self.ownership.is_held(found):
            self.ownership.take(found)
        snapshot = self.snapshot()
        if snapshot is not None:
            return self.put(snapshot)
        self.ownership.renew()
        return self.ownership.owner.seq

    def _seen(self) -> str:
        return self.ownership.place.stamp(DATABASE)

    @staticmethod
    def _keep_before(root: Path) -> None:
        with contextlib.suppress(OSError):  # there is none, or no links are made there: who reads it has to repeat that
            (root / BEFORE).unlink(missing_ok=True)
            os.link(root / DATABASE, root / BEFORE)
