"""The second step of durability: what was committed is flushed beside the loop, and what must not come before waits.

    committed   in SQLite's write-ahead log: it survives SIGKILL of every process of ours, and a power cut may take it
    flushed     on the disk: it survives a power cut

The log has no locks, so it may be opened here beside SQLite; `sweep.db` and `sweep.db-shm` have: closing any descriptor
of theirs would drop those that SQLite holds in this process.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from sweep.errors import RecordError

# How soon after a commit its flush begins, in seconds; None: the commit itself flushes; infinite: when somebody waits.
DURABILITIES: dict[str, float | None] = {"group": 0.05, "full": None, "fast": float("inf")}

_LOOK_S = 1.0  # without a commit for so long the driver is idle; a fold that failed is tried again after as long
_LOG_EVERY_S = 0.25  # how often it is looked at how long the log is
_MOST_BYTES = 16 << 20  # a log that holds more than this is folded into the database, also while the driver commits
_IDLE_BYTES = 1 << 20  # and one that holds more than this when the driver is idle

_flush = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


class Folded(NamedTuple):
    """What was found when a log was folded: how many frames it held, and whether all of them are in the database now.

    SQLite then begins the log anew, with another salt, as soon as no reader needs it.
    """

    frames: int
    is_whole: bool


def holds_more(log: int, most_bytes: int, *, salt: bytes = b"", frames: int = 0) -> bool:
    """Whether an open log holds more than so many bytes, without its first `frames` if it has this salt.

    Frames of former rounds lie behind those of this one, and have other salts. The format is described in
    https://www.sqlite.org/fileformat2.html#walformat.
    """
    head = os.pread(log, 32, 0)
    if len(head) < 32:
        return False
    size = 24 + int.from_bytes(head[8:12], "big")
    last = most_bytes // size + (frames if head[16:24] == salt else 0)
    return os.pread(log, 8, 32 + last * size + 8) == head[16:24]


def flush_log(database: Path) -> None:
    """Flush what the driver before committed and perhaps did not flush; nothing where it has left no log.

    Raises:
        OSError: the disk did not take it.
    """
    with suppress(FileNotFoundError):
        descriptor = os.open(f"{database}-wal", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _flush(descriptor)
        finally:
            os.close(descriptor)


class Flusher:
    """Flush the log of one record on a thread of its own, and do what has to wait for that on another.

    A flush that fails is never tried again: the kernel may have dropped what it could not write, and would say that
    all is well. `problem` says so from then on, and whoever waits hears it.

    Args:
        database: `sweep.db`; its log exists.
        durability: a key of `DURABILITIES`.
        fold: copies what is in the log into the database, where no reader needs it any more, and flushes both; None:
            there was no room. Raises RecordError when a flush failed.
        seq: returns the number of the last event that is committed.
        flushed: called with such a number when a power cut cannot take that event back any more.

    Attributes:
        problem: what failed and what to do; empty as long as nothing did.
        num_flushes: so far.
    """

    def __init__(
        self,
        database: Path,
        durability: str,
        *,
        fold: Callable[[], Folded | None],
        seq: Callable[[], int] = lambda: 0,
        flushed: Callable[[int], None] = lambda seq: None,
    ) -> None:
        self.problem = ""
        self.num_flushes = 0
        self._database = database
        self._log = os.open(f"{database}-wal", os.O_RDONLY | os.O_CLOEXEC)
        self._period_s = DURABILITIES[durability]
        self._fold = fold
        self._seq, self._tell_flushed = seq, flushed
        self._wake: Callable[[], None] = lambda: None
        self._num_committed, self._num_flushed = 1, 0  # transactions: all before this run, and those of it
        self._flushing = threading.Lock()
        self._flushed = threading.Condition()
        self._is_begun = threading.Event()  # something was committed and not flushed, or somebody waits
        self._is_urgent = threading.Event()
        self._is_over = False
        self._thread: threading.Thread | None = None
        self._took_s = 0.0  # the last flush
        self._salt, self._frames = b"", 0  # of the log when it was folded last, and how much of it was
        self._look_at = 0.0  # on the monotonic clock
        self._is_drained = False
        self._deeds: deque[tuple[int, Callable[[], None]]] = deque()  # each with the transaction that it waits for
        self._doing = threading.Condition()
        self._ready: deque[Callable[[], None]] = deque()
        self._doer: threading.Thread | None = None

    # --- of the loop ---

    def start(self, wake: Callable[[], None]) -> None:
        """Begin; before that only `wait` and `close` flush.

        Args:
            wake: called on another thread when a flush has failed, so that the loop looks at `problem`.

        Raises:
            RuntimeError: no thread is free.
        """
        self._wake = wake
        thread = threading.Thread(target=self._work, name="sweep-flusher", daemon=True)
        thread.start()
        self._thread = thread

    def committed(self) -> None:
        """Take note of a transaction: in the log, and with `durability="full"` flushed."""
        self._num_committed += 1
        if self._period_s is None:
            self._num_flushed = self._num_committed
        if not self._is_begun.is_set():
            self._is_begun.set()

    def do_when_flushed(self, deed: Callable[[], None]) -> None:
        """Call `deed`, which must not raise, when everything that is committed now is flushed; on another thread."""
        self._deeds.append((self._num_committed, deed))
        self._hurry()
        if self._thread is None:
            self._flush_now()

    def wait(self) -> None:
        """Return when everything that is committed now is flushed; from any thread.

        Raises:
            RecordError: the disk did not take it.
        """
        target = self._num_committed
        if self._num_flushed < target:
            thread = self._thread
            if thread is None:
                self._flush_now()
            else:
                self._hurry()
                with self._flushed:
                    self._flushed.wait_for(lambda: self._num_flushed >= target or self.problem or self._is_over)
                if self._num_flushed < target and not self.problem:  # it has ended meanwhile
                    self._flush_now()
        self.check()

    def check(self) -> None:
        """Refuse to go on after a flush that failed.

        Raises:
            RecordError: says what failed.
        """
        if self.problem:
            raise RecordError(self.problem)

    def close(self) -> None:
        """Flush the rest, do all that waited for it, and end; what failed is in `problem`."""
        self._is_over = True
        self._hurry()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._flush_now()
        with self._doing:
            self._is_drained = True
            self._doing.notify_all()
        if self._doer is not None:
            self._doer.join()
            self._doer = None

    def close_log(self) -> None:
        """Let go of the log's descriptor: after `close`, when SQLite has closed the record."""
        os.close(self._log)

    def fail(self, error: Exception) -> None:
        """Take note of a flush that failed."""
        if not self.problem:
            self.problem = (
                f"{self._database} could not be flushed to its disk ({error}). The sweep was stopped and its trials "
                "were ended: what was reported in the last moments may be lost, also where it can still be read. Look "
                "at the disk (dmesg), then resume: what is missing is run again."
            )
        with self._flushed:
            self._flushed.notify_all()
        self._wake()

    def _hurry(self) -> None:
        self._is_urgent.set()
        self._is_begun.set()

    # --- flushing ---

    def _work(self) -> None:
        is_by_time = self._period_s not in (None, float("inf"))
        period_s = self._period_s if self._period_s is not None and is_by_time else _LOOK_S
        may_fold = False
        while not self._is_over and not self.problem:
            if not self._is_begun.wait(_LOOK_S if may_fold else None):
                may_fold = not self._fold_above(_IDLE_BYTES)
                continue
            # What is committed meanwhile is flushed together; during a slow flush it has waited already.
            self._is_urgent.wait(max(period_s - self._took_s, 0.0))
            self._is_begun.clear()  # before it is looked at what there is: what comes later sets it again,
            is_urgent = self._is_urgent.is_set()  # and this one before that: whoever is in a hurry is not overheard
            self._is_urgent.clear()
            if is_urgent or is_by_time:
                self._flush_now()
            if time.monotonic() >= self._look_at:
                self._look_at = time.monotonic() + _LOG_EVERY_S
                self._fold_above(_MOST_BYTES)
            may_fold = True

    def _flush_now(self) -> None:
        with self._flushing:
            target = self._num_committed
            if self._num_flushed < target and not self.problem:
                seq = self._seq()  # of what is committed by now, or less
                began = time.monotonic()
                try:
                    _flush(self._log)
                except OSError as error:
                    self.fail(error)
                    return
                self._took_s = time.monotonic() - began
                self.num_flushes += 1
                self._tell_flushed(seq)
                with self._flushed:
                    self._num_flushed = max(target, self._num_flushed)
                    self._flushed.notify_all()
            while self._deeds and self._deeds[0][0] <= self._num_flushed and not self.problem:
                self._hand_over(self._deeds.popleft()[1])

    def _fold_above(self, most_bytes: int) -> bool:
        """Fold the log if it holds more than so much that was not folded; whether there is nothing more to fold."""
        if self.problem or not holds_more(self._log, most_bytes, salt=self._salt, frames=self._frames):
            return True
        self._flush_now()  # so that the driver, which cannot commit meanwhile, does not wait for that, too
        salt = os.pread(self._log, 8, 16)  # of this round: SQLite begins none before all of it is folded
        try:
            folded = self._fold()
        except RecordError as error:
            self.fail(error)
            return True
        if folded is None or not folded.is_whole:  # a reader holds what it began with, or the disk is full
            self._look_at = time.monotonic() + _LOOK_S
            return False
        self._salt, self._frames = salt, folded.frames
        return True

    # --- what waits for a flush ---

    def _hand_over(self, deed: Callable[[], None]) -> None:
        """Have it done on a thread of its own, for deleting a large checkpoint takes long; here, if there is none."""
        with self._doing:
            if self._doer is None and self._thread is not None:
                doer = threading.Thread(target=self._do, name="sweep-deeds", daemon=True)
                with suppress(RuntimeError):  # no thread is free
                    doer.start()
                    self._doer = doer
            if self._doer is not None:
                self._ready.append(deed)
                self._doing.notify()
                return
        deed()

    def _do(self) -> None:
        while True:
            with self._doing:
                self._doing.wait_for(lambda: self._ready or self._is_drained)
                if not self._ready:
                    return
                deed = self._ready.popleft()
            deed()
