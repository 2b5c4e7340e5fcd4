"""Keep the remote copy of an experiment up to date while it runs, on a thread of its own."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from sweep.callbacks.base import Callback
from sweep.core.trial import Trial
from sweep.record.filesystems import remember_home
from sweep.record.storage import Storage
from sweep.record.upload import OtherDriver, Uploader, UploadStopped

_GAP_S = 10.0  # between two passes: what happens faster than that is sent together
_RECORD_SHARE = 3  # and at least this many times as long as copying and sending the record takes
_FIRST_BACKOFF_S = 2.0
_LAST_BACKOFF_S = 60.0
_PATIENCE_S = 5.0  # after this long the end says what it waits for


class MirrorCallback(Callback):
    """Copy the experiment to its remote storage: checkpoints and ended trials soon, all the rest periodically.

    Hooks only note what is new; a thread of its own sends it. Storage that cannot be reached is tried again and
    named once, and the run goes on in its local directory. `finish` must be called after the record is closed: only
    then is everything written.

    Args:
        storage: remote storage; the experiment lies in it under the name of its directory.
        experiment_dir: where the experiment is worked on.
        sync_period_s: seconds between two passes over everything.
        sync_timeout_s: seconds that `finish` waits.
        sync_artifacts: copy also files that trials write themselves.
        sync_artifacts_on_checkpoint: together with checkpoints, too, not only periodically and when the trial ends.
        log_files: names of files in the trials' directories that are copied like logs, besides the usual ones.
        do_nodes_send: nodes of a cluster may copy checkpoints as well.
        notice: called with each line for the user.

    Attributes:
        await_flush: returns when what is committed now survives a power cut; no record is sent before.
        await_files: returns when log files say what is committed now; nothing is sent before.
    """

    def __init__(
        self,
        storage: Storage,
        experiment_dir: str | os.PathLike[str],
        sync_period_s: float = 300.0,
        *,
        sync_timeout_s: float = 1800.0,
        sync_artifacts: bool = False,
        sync_artifacts_on_checkpoint: bool = True,
        log_files: Collection[str] = (),
        do_nodes_send: bool = False,
        notice: Callable[[str], None] | None = None,
    ) -> None:
        self.root = Path(experiment_dir)
        self.shown = storage.describe(self.root.name)
        self.sync_period_s = sync_period_s
        self.sync_timeout_s = sync_timeout_s
        self.await_flush: Callable[[], None] = lambda: None
        self.await_files: Callable[[], None] = lambda: None
        self._artifacts = sync_artifacts
        self._artifacts_on_checkpoint = sync_artifacts and sync_artifacts_on_checkpoint
        self._notice = notice or (lambda text: None)
        self._remote = storage.experiment(self.root.name)
        self._uri = storage.uri_of(self.root.name)
        self._uploader = Uploader(
            self._remote,
            self.root,
            log_files=log_files,
            is_over=lambda: self._is_over,
            do_nodes_send=do_nodes_send,
        )
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
        self._said: set[str] = set()
        self._thread: threading.Thread | None = None

    def setup(self, *, experiment_dir: str, plan: Any, num_trials: int | None, **info: Any) -> None:
        """Begin."""
        if self._thread is None:
            remember_home(self.root, self._remote, self._uri)
            self._uploader.await_flush = self.await_flush
            self._thread = threading.Thread(target=self._work, name="sweep-mirror", daemon=True)
            self._thread.start()

    def on_trial_save(self, trial: Trial) -> None:
        """Send the checkpoint soon."""
        self._wake({trial.id: self._artifacts_on_checkpoint})

    def on_trial_complete(self, trial: Trial) -> None:
        """Send what the trial leaves."""
        self._wake({trial.id: self._artifacts})

    on_trial_error = on_trial_complete

    def finish(self) -> bool:
        """Send the rest and end; whether the remote copy is complete. A notice says what is missing."""
        if self._thread is None:
            return True
        with self._condition:
            if not self._is_finishing:
                self._is_finishing = True
                self._deadline = time.monotonic() + self.sync_timeout_s
                self._not_before = 0.0  # whatever it waits for
                self._condition.notify_all()
        try:
            if not self._done.wait(min(_PATIENCE_S, self.sync_timeout_s)) and self.sync_timeout_s > _PATIENCE_S:
                self._notice(f"copying what is left to {self.shown}; Ctrl-C ends that, and nothing is lost")
                self._done.wait(max(self._deadline - time.monotonic(), 0))
        finally:  # also when Ctrl-C is pressed instead of waiting
            self._stop()
            if not self._is_complete:
                self._say_what_is_missing()
        return self._is_complete

    def _stop(self) -> None:
        with self._condition:
            self._is_over = True
            self._condition.notify_all()

    def _wake(self, new: dict[str, bool]) -> None:
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
                is_full = is_last or now >= self._next_full
                if self._try_pass(new, is_full) and is_last:
                    self._is_complete = not self._uploader.problems
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

    def _try_pass(self, new: dict[str, bool], is_full: bool) -> bool:
        """Send what is new; False if that did not work, and then it is new again."""
        try:
            self.await_files()
            if is_full:
                self._uploader.sync(None, with_artifacts=self._artifacts)
                self._next_full = time.monotonic() + self.sync_period_s
            else:
                self._uploader.sync(new.keys(), with_artifacts=any(new.values()))
        except OtherDriver as error:
            self._say_once("other", str(error))
            self._is_over = True
            return False
        except UploadStopped:
            return False
        except Exception as error:  # whatever the package behind the file system raises: it is tried again
            self._failed(error, new)
            return False
        self._num_failures = 0
        if "failed" in self._said:
            self._say_once("again", f"{self.shown} can be written again")
        for path, why in self._uploader.problems.items():
            self._say_once(path, f"not copied to {self.shown}: {why}")
        gap = max(_GAP_S, _RECORD_SHARE * self._uploader.record_s)
        self._not_before = time.monotonic() + min(gap, self.sync_period_s)
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
            f"{self.shown} cannot be written ({self._last_error}); it is tried again. The run does not wait for it; "
            f"everything is in {self.root}",
        )

    def _say_once(self, key: str, text: str) -> None:
        if key not in self._said:
            self._said.add(key)
            self._notice(text)

    def _say_what_is_missing(self) -> None:
        if "other" in self._said:
            return
        uploader = self._uploader
        if uploader.problems and not self._num_failures and self._done.is_set():
            return  # each was named already
        counts = [(uploader.num_unsent_checkpoints(), "checkpoint"), (uploader.num_files, "file")]
        parts = [f"{count} {noun}{'s' * (count != 1)}" for count, noun in counts if count]
        why = f" (last error: {self._last_error})" if self._num_failures else ""
        self._notice(
            f"{self.shown} is not complete: {' and '.join(parts) or 'the last changes'} could not be copied within "
            f"sync_timeout={self.sync_timeout_s:g} s{why}. Everything is in {self.root}; the same call with "
            "resume=True copies the rest"
        )
