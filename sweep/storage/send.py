"""Keep the place of an experiment that other machines reach up to date while it runs, on a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from sweep.callbacks.base import Callback
from sweep.core.trial import Trial
from sweep.errors import RecordError
from sweep.storage.ownership import TakenOver
from sweep.storage.record_copy import RecordCopy, SendingStopped
from sweep.storage.shared import SharedRecord

_GAP_S = 10.0  # between two passes: what happens faster than that is sent together
_SHARED_GAP_S = 3.0  # where only the record is sent
_RECORD_SHARE = 3  # and at least this many times as long as copying and sending the record takes
_FIRST_BACKOFF_S = 2.0
_LAST_BACKOFF_S = 60.0
_PATIENCE_S = 5.0  # after this long the end says what it waits for


class Sender(Callback):
    """Send the experiment to its place: checkpoints and ended trials soon, all the rest periodically.

    Hooks only note what is new; a thread of its own sends it. A place that cannot be reached is tried again and named
    once, and the run goes on. `finish` must be called after the record is closed: only then is everything written.

    Args:
        copy: what is sent.
        sync_period_s: seconds between two passes over everything.
        sync_timeout_s: seconds that `finish` waits.
        sync_artifacts: send also files that trials write themselves.
        sync_artifacts_on_checkpoint: together with checkpoints, too, not only periodically and when the trial ends.
        notice: called with each line for the user.

    Attributes:
        await_files: returns when log files say what is committed now; nothing is sent before.
    """

    def __init__(
        self,
        copy: RecordCopy,
        sync_period_s: float = 300.0,
        *,
        sync_timeout_s: float = 1800.0,
        sync_artifacts: bool = False,
        sync_artifacts_on_checkpoint: bool = True,
        notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.copy = copy
        self.await_files: Callable[[], None] = lambda: None
        self._is_shared = isinstance(copy, SharedRecord)
        self._gap_s = _SHARED_GAP_S if self._is_shared else _GAP_S
        self._period_s = self._gap_s if self._is_shared else sync_period_s
        self._timeout_s = sync_timeout_s
        self._artifacts = sync_artifacts
        self._artifacts_on_checkpoint = sync_artifacts and sync_artifacts_on_checkpoint
        self._notice = notice
        self._on_lost: Callable[[], None] = lambda: None
        self._condition = threading.Condition()
        self._new: dict[str, bool] = {}  # trials with something to send, and whether with artifacts
        self._is_finishing = False
        self._is_over = False
        self._done = threading.Event()
        self._is_complete = False
        self._next_full = self._not_before = 0.0  # on the monotonic clock
        self._deadline = float("inf")
        self._num_failures = 0  # in a row
        self._last_error = ""
        self._said: dict[str, str] = {}
        self._thread: threading.Thread | None = None
        copy.is_over = lambda: self._is_over

    def start(self, on_lost: Callable[[], None] = lambda: None) -> None:
        """Begin.

        Args:
            on_lost: called on another thread when the driver has to stop, so that it asks `check`.

        Raises:
            RuntimeError: no thread is free.
        """
        self._on_lost = on_lost
        thread = threading.Thread(target=self._work, name="sweep-sender", daemon=True)
        thread.start()
        self._thread = thread

    def check(self) -> None:
        """Refuse to go on with an experiment in a shared directory when another driver does.

        Raises:
            RecordError: says which.
        """
        if self._is_shared and "lost" in self._said:
            raise RecordError(self._said["lost"])

    def on_trial_save(self, trial: Trial) -> None:
        """Send the checkpoint soon."""
        self._wake({trial.id: self._artifacts_on_checkpoint})

    def on_trial_complete(self, trial: Trial) -> None:
        """Send what the trial leaves."""
        self._wake({trial.id: self._artifacts})

    on_trial_error = on_trial_complete

    def finish(self) -> bool:
        """Send the rest and end; whether the place has everything. A notice says what is missing."""
        if self._thread is None:
            return True
        with self._condition:
            if not self._is_finishing:
                self._is_finishing = True
                self._deadline = time.monotonic() + self._timeout_s
                self._not_before = 0.0  # whatever it waits for
                self._condition.notify_all()
        try:
            if not self._done.wait(min(_PATIENCE_S, self._timeout_s)) and self._timeout_s > _PATIENCE_S:
                self._notice(f"copying what is left to {self.copy.shown}; Ctrl-C ends that, and nothing is lost")
                self._done.wait(max(self._deadline - time.monotonic(), 0))
        finally:  # also when Ctrl-C is pressed instead of waiting
            self.stop()
            if not self._is_complete:
                self._say_what_is_missing()
        return self._is_complete

    def stop(self) -> None:
        """Send nothing more."""
        with self._condition:
            self._is_over = True
            self._condition.notify_all()

    def _wake(self, new: dict[str, bool]) -> None:
        if self._is_shared:
            return  # where trials write, others read
        with self._condition:
            for trial_id, with_artifacts in new.items():
                self._new[trial_id] = self._new.get(trial_id, False) or with_artifacts
            self._condition.notify_all()

    # --- on the thread ---

    def _work(self) -> None:
        try:
            while not self._is_over:
                with self._condition:
                    while (delay := self._delay()) > 0:
                        self._condition.wait(delay)
                    new, self._new = self._new, {}
                    is_last, now = self._is_finishing, time.monotonic()
                if self._try_pass(new, is_full=is_last or now >= self._next_full, is_last=is_last) and is_last:
                    self._is_complete = not self.copy.problems
                    return
        finally:
            self._done.set()

    def _delay(self) -> float:
        """Return the seconds until something is to be done."""
        now = time.monotonic()
        if self._is_over:
            return 0.0
        if self._is_finishing:
            return min(self._not_before, self._deadline) - now if self._num_failures else 0.0
        return max(self._not_before, now if self._new else self._next_full) - now

    def _try_pass(self, new: dict[str, bool], *, is_full: bool, is_last: bool = False) -> bool:
        """Send what is new; False if that did not work, and then it is new again."""
        try:
            self.await_files()
            if is_full:
                self.copy.sync(None, with_artifacts=self._artifacts)
                self._next_full = time.monotonic() + self._period_s
            else:
                self.copy.sync(new.keys(), with_artifacts=any(new.values()))
            if is_last:
                self.copy.end()
        except TakenOver as error:
            self._say_once("lost", str(error))
            self._is_over = True
            self._on_lost()
            return False
        except SendingStopped:
            return False
        except Exception as error:  # whatever the package behind the file system raises: it is tried again
            self._failed(error, new)
            return False
        self._num_failures = 0
        if "failed" in self._said:
            self._say_once("again", f"{self.copy.shown} can be written again")
        for path, why in self.copy.problems.items():
            self._say_once(path, f"not copied to {self.copy.shown}: {why}")
        self._not_before = time.monotonic() + min(
            max(self._gap_s, _RECORD_SHARE * self.copy.took_s), max(self._period_s, self._gap_s)
        )
        return True

    def _failed(self, error: Exception, new: dict[str, bool]) -> None:
        self._last_error = f"{type(error).__name__}: {error}"
        self._wake(new)
        pause = min(_FIRST_BACKOFF_S * 2**self._num_failures, _LAST_BACKOFF_S)
        self._num_failures += 1
        if self._is_finishing and time.monotonic() + pause > self._deadline:
            self._is_over = True  # the next try would come too late
        self._not_before = time.monotonic() + pause
        self._say_once(
            "failed",
            f"{self.copy.shown} cannot be written ({self._last_error}); it is tried again. The run does not wait for "
            f"it; everything is in {self.copy.kept}",
        )

    def _say_once(self, key: str, text: str) -> None:
        if key not in self._said:
            self._said[key] = text
            self._notice(text)

    def _say_what_is_missing(self) -> None:
        copy = self.copy
        if "lost" in self._said or (copy.problems and not self._num_failures and self._done.is_set()):
            return  # that was said already
        counts = [(copy.num_unsent_checkpoints(), "checkpoint"), (copy.num_files, "file")]
        parts = [f"{count} {noun}{'s' * (count != 1)}" for count, noun in counts if count]
        why = f" (last error: {self._last_error})" if self._num_failures else ""
        self._notice(
            f"{copy.shown} is not complete: {' and '.join(parts) or 'the last changes'} could not be copied within "
            f"sync_timeout={self._timeout_s:g} s{why}. Everything is in {copy.kept}; the same call with "
            "resume=True copies the rest"
        )
