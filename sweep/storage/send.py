"""Keep the place of an experiment that other machines reach up to date while it runs, on a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from sweep.callbacks.base import Callback
from sweep.core.config import SyncConfig
from sweep.core.trial import Trial
from sweep.errors import RecordError
from sweep.storage.mirror import Mirror
from sweep.storage.ownership import TakenOver

_GAP_S = 10.0  # between two passes: what happens faster is sent together
_SHARED_GAP_S = 3.0  # where only the record is sent
_FIRST_BACKOFF_S = 2.0
_LAST_BACKOFF_S = 60.0
_PATIENCE_S = 5.0  # after this long the end says what it waits for


class Sender(Callback):
    """Send the experiment to its place: checkpoints and ended trials soon, all the rest periodically.

    Hooks only note what is new; a thread of its own sends it. A place that cannot be reached is tried again and named
    once, and the run goes on. `finish` must be called after the record is closed: only then is everything written.

    Args:
        mirror: what is sent.
        sync: how often, for how long at the end, and whether with artifacts.
        notice: called with each line for the user.

    Attributes:
        await_files: returns when log files say what is committed now; nothing is sent before.
    """

    def __init__(self, mirror: Mirror, sync: SyncConfig | None = None, *, notice: Callable[[str], None]) -> None:
        self.mirror = mirror
        self.await_files: Callable[[], None] = lambda: None
        self._sync = sync = sync or SyncConfig()
        self._gap_s = _SHARED_GAP_S if mirror.is_record_only else _GAP_S
        self._period_s = self._gap_s if mirror.is_record_only else sync.sync_period
        self._notice = mirror.notice = notice
        self._on_lost: Callable[[], None] = lambda: None
        self._condition = threading.Condition()
        self._new: dict[str, bool] = {}  # trials with something to send, and whether with artifacts
        self._is_finishing = self._is_over = self._is_complete = self._is_back = False
        self._next_full = self._not_before = 0.0  # on the monotonic clock
        self._num_failures = 0  # in a row
        self._last_error = ""
        self._lost = ""  # why nothing more may be sent
        self._thread: threading.Thread | None = None
        mirror.is_over = lambda: self._is_over

    def start(self, on_lost: Callable[[], None] = lambda: None) -> None:
        """Begin; `on_lost` is called on another thread when the driver has to stop, so that it asks `check`."""
        self._on_lost = on_lost
        thread = threading.Thread(target=self._work, name="sweep-sender", daemon=True)
        thread.start()
        self._thread = thread

    def check(self) -> None:
        """Refuse to go on with an experiment in a shared directory when another driver does."""
        if self.mirror.is_record_only and self._lost:
            raise RecordError(self._lost)

    def on_trial_save(self, trial: Trial) -> None:
        """Send the checkpoint soon."""
        self._wake(trial.id, self._sync.sync_artifacts and self._sync.sync_artifacts_on_checkpoint)

    def on_trial_complete(self, trial: Trial) -> None:
        """Send what the trial leaves."""
        self._wake(trial.id, self._sync.sync_artifacts)

    on_trial_error = on_trial_complete

    def finish(self) -> bool:
        """Send the rest and end; whether the place has everything. A notice says if it has not."""
        if self._thread is None:
            return True
        timeout_s = self._sync.sync_timeout
        with self._condition:
            self._is_finishing, self._not_before = True, 0.0  # whatever it waits for
            self._condition.notify_all()
        try:
            self._thread.join(min(_PATIENCE_S, timeout_s))
            if self._thread.is_alive() and timeout_s > _PATIENCE_S:
                self._notice(f"copying what is left to {self.mirror.shown}; Ctrl-C ends that, and nothing is lost")
                self._thread.join(timeout_s - _PATIENCE_S)
        finally:  # also when Ctrl-C is pressed instead of waiting
            self.stop()
            if not (self._is_complete or self._lost):  # which was said
                why = f" (last error: {self._last_error})" if self._num_failures else ""
                self._notice(
                    f"{self.mirror.shown} is not complete: the last changes could not be copied within sync_timeout="
                    f"{timeout_s:g} s{why}. Everything is in {self.mirror.kept}; the same call with resume=True copies "
                    "the rest"
                )
        return self._is_complete

    def stop(self) -> None:
        """Begin nothing more."""
        with self._condition:
            self._is_over = True
            self._condition.notify_all()

    def _wake(self, trial_id: str, with_artifacts: bool) -> None:
        if self.mirror.is_record_only:
            return  # where trials write, others read
        with self._condition:
            self._new[trial_id] = self._new.get(trial_id, False) or with_artifacts
            self._condition.notify_all()

    # --- on the thread ---

    def _work(self) -> None:
        while True:
            with self._condition:
                while not self._is_over and (delay_s := self._delay_s()) > 0:
                    self._condition.wait(delay_s)
                if self._is_over:
                    return
                new, self._new = self._new, {}
                is_last = self._is_finishing
            try:
                self._pass(new, is_last=is_last)
            except TakenOver as error:
                self._lost, self._is_over = str(error), True
                self._notice(self._lost)
                self._on_lost()
            except Exception as error:  # whatever the package behind the file system raises: it is tried again
                self._failed(error)
                for trial_id, with_artifacts in new.items():
                    self._wake(trial_id, with_artifacts)

    def _delay_s(self) -> float:
        """Return the seconds until something is to be done."""
        if self._is_finishing and not self._num_failures:
            return 0.0
        is_due = bool(self._new or self._is_finishing)
        return max(self._not_before, 0.0 if is_due else self._next_full) - time.monotonic()

    def _pass(self, new: dict[str, bool], *, is_last: bool) -> None:
        """Send what is new."""
        self.await_files()
        if is_last or time.monotonic() >= self._next_full:
            self.mirror.sync(None, with_artifacts=self._sync.sync_artifacts)
            self._next_full = time.monotonic() + self._period_s
        else:
            self.mirror.sync(new.keys(), with_artifacts=any(new.values()))
        if self._last_error and not self._is_back:
            self._is_back = True
            self._notice(f"{self.mirror.shown} can be written again")
        self._num_failures, self._not_before = 0, time.monotonic() + self._gap_s
        if is_last:
            self.mirror.end()
            self._is_complete = self._is_over = True

    def _failed(self, error: Exception) -> None:
        if not self._last_error:
            self._notice(
                f"{self.mirror.shown} cannot be written ({type(error).__name__}: {error}); it is tried again. The run "
                f"does not wait for it; everything is in {self.mirror.kept}"
            )
        self._last_error = f"{type(error).__name__}: {error}"
        self._not_before = time.monotonic() + min(_FIRST_BACKOFF_S * 2**self._num_failures, _LAST_BACKOFF_S)
        self._num_failures += 1
