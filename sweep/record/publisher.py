"""Publish the record of a sweep while it runs, on a thread of its own, and delete what no published record needs."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable

from sweep.errors import CheckpointError, ExperimentError, RecordError
from sweep.record.working import TakenOver, WorkingRecord

_GAP_S = 3.0  # between two snapshots
_SHARE = 5  # and at least this many times as long as the last one took
_LAST_TRIES_S = (0.0, 1.0, 3.0, 10.0)  # pauses before each try of the end


class Publisher:
    """Publish the record every few seconds, and once more at the end.

    Args:
        record: taken.
        delete: deletes a checkpoint, given its path relative to the experiment.
        notice: called with each line for the user.
    """

    def __init__(self, record: WorkingRecord, *, delete: Callable[[str], None], notice: Callable[[str], None]) -> None:
        self._record = record
        self._delete = delete
        self._notice = notice
        self._seq_of: Callable[[], int] = lambda: 0
        self._wake: Callable[[], None] = lambda: None
        self._waiting: deque[tuple[int, str]] = deque()  # checkpoints, and the events from which on nothing needs them
        self._problem = ""
        self._has_failed = False
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(
        self, seq_of: Callable[[], int], wake: Callable[[], None], await_flush: Callable[[], None] | None = None
    ) -> None:
        """Publish now, so that the sweep can be seen, and go on doing so.

        Args:
            seq_of: returns the number of the last event that is committed.
            wake: called on another thread when the driver has to stop, so that it asks `check`.
            await_flush: returns when what is committed survives a power cut, or raises; nothing is published before.

        Raises:
            ExperimentError: it cannot be published.
        """
        self._seq_of, self._wake = seq_of, wake
        self._record.await_flush = await_flush or self._record.await_flush
        try:
            self.step()
        except (OSError, sqlite3.Error) as error:
            raise ExperimentError(f"{self._record.published} cannot be written: {error}.") from error
        self._thread = threading.Thread(target=self._work, name="sweep-publisher", daemon=True)
        self._thread.start()

    def step(self) -> None:
        """Publish, and delete what no published record needs any more.

        Raises:
            TakenOver, OSError, sqlite3.Error: as `WorkingRecord.publish`.
        """
        self._delete_until(self._record.publish())

    def check(self) -> None:
        """Refuse to go on when another driver does.

        Raises:
            RecordError: says which.
        """
        if self._problem:
            raise RecordError(self._problem)

    def discard(self, path: str) -> None:
        """Delete a checkpoint once a record is published that does not name it."""
        self._waiting.append((self._seq_of(), path))

    def close(self, *, is_lost: bool = False) -> None:
        """Publish the rest and end; the journal must be closed by now.

        Args:
            is_lost: the experiment's directory is gone: there is nothing more to do.
        """
        self._over.set()
        if self._thread is None:
            return
        self._thread.join()
        self._thread = None
        if is_lost or self._problem:
            return
        problem: Exception | None = None
        for pause_s in _LAST_TRIES_S:
            time.sleep(pause_s)
            try:
                self._record.end()
            except TakenOver as error:
                self._notice(str(error))
                return
            except (OSError, sqlite3.Error, ExperimentError) as error:
                problem = error
                continue
            self._delete_until(self._waiting[-1][0] if self._waiting else 0)
            return
        self._notice(
            f"{self._record.published} cannot be written ({problem}) and is not up to date: the whole record is in "
            f"{self._record.database}, on this machine. The same call with resume=True, here, goes on from it."
        )

    def _work(self) -> None:
        gap = _GAP_S
        while not self._over.wait(gap):
            began = time.monotonic()
            try:
                self.step()
            except TakenOver as error:
                self._problem = str(error)
                self._wake()
                return
            except (OSError, sqlite3.Error, ExperimentError) as error:  # the storage does not answer now
                self._say(f"{self._record.published} cannot be written ({error}); it is tried again, the sweep goes on")
            else:
                if self._has_failed:
                    self._has_failed = False
                    self._notice(f"{self._record.published} can be written again")
            gap = max(_GAP_S, _SHARE * (time.monotonic() - began))

    def _say(self, text: str) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._notice(text)

    def _delete_until(self, seq: int) -> None:
        while self._waiting and self._waiting[0][0] <= seq:
            _, path = self._waiting.popleft()
            try:
                self._delete(path)
            except (OSError, CheckpointError) as error:  # what is left of it is found when the sweep is resumed
                self._notice(f"{path} is not deleted: {error}")
