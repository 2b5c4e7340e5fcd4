"""What user code calls while it runs in a trial: `report`, `get_checkpoint`, `get_context`."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NoReturn, SupportsFloat

from sweep.checkpoints.manifest import MANIFEST, DamagedError, set_aside, verify
from sweep.checkpoints.store import Checkpoint, free_target, known_whole, persist
from sweep.core.messages import Reported, Save, Saved, Stop, Waiting
from sweep.core.resources import Resources
from sweep.core.results import ANONYMOUS_METRIC
from sweep.core.trial import Cause
from sweep.errors import CheckpointError, UserCodeError
from sweep.record.files import sync
from sweep.record.layout import checkpoint_name
from sweep.record.space import lacks_space, tree_bytes
from sweep.worker import wire
from sweep.worker.channel import Channel, Packets
from sweep.worker.context import Context
from sweep.worker.disk_wait import DiskWait, is_full
from sweep.worker.environment import CALLER_VARIABLE
from sweep.worker.metrics import MAX_BYTES, measure, note_once, plain_metrics, within_size

_STOP_PATIENCE_S = 5.0  # a trial that is to save and stop waits no longer than this for room


class StopRequested(BaseException):
    """Unwinds the user's function when its trial is asked to stop; `finally` blocks run. Not an `Exception`, so that
    `except Exception` does not swallow it; code that swallows it gets it again at the next report."""


class MoreNeeded(BaseException):
    """Unwinds the user's function when its `fit()` asked for more than the trial holds: the trial is about to start
    again with that. Not an `Exception`, for the same reason as `StopRequested`."""


class Session:
    """One attempt as its worker sees it: it counts reports, stores checkpoints, and waits for answers.

    Attributes:
        is_stopping: the trial was asked to stop. num_reports: of this attempt so far.
        saver: stores a checkpoint of a class trainable into a directory when asked; None for functions.
        channel: to the driver.
        control: by which a `fit()` inside the trial asks for its workers; None where that is not possible.
        is_fitting: such a `fit()` runs. has_fitted: one has found room in what the trial holds.
        needs: what a `fit()` asks for that has found none; None: there was no such.
    """

    def __init__(self, job: wire.Job, channel: Channel, control: Packets | None = None) -> None:
        self.job = job
        self.control = control
        self.is_stopping = False
        self.is_fitting = False
        self.has_fitted = False
        self.needs: Resources | None = None
        self.why_more = ""
        self.saver: Callable[[str], None] | None = None
        self.channel = channel
        self.num_reports = 0
        self._is_placed = False  # the trial's directory is there also after a power cut
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._last = time.monotonic()
        self._checkpoint: Checkpoint | None = None  # the latest, known to be whole
        self._pending = ""  # directory that `checkpoint_dir` gave out: the next report's checkpoint

    @property
    def trial_dir(self) -> str:
        """Directory of the trial."""
        return self.job.trial_dir

    def send(self, message: wire.Message) -> None:
        """Send the driver a message."""
        self.channel.send(wire.frame(message))

    def report(
        self, metrics: Mapping[str, Any], checkpoint: Checkpoint | None = None, *, is_saving: bool = False
    ) -> None:
        """Send one report and wait for the answer; see the function of this name.

        Args:
            is_saving: with a checkpoint of the class trainable's present state.

        Raises:
            StopRequested: the trial was asked to stop.
        """
        if os.getpid() != self._pid:
            raise UserCodeError(
                f"report() was called in process {os.getpid()}, a child of the trial's process {self._pid}; only the "
                "trial's own process may report. Send the numbers there first."
            )
        with self._lock:
            if self.is_stopping:
                raise StopRequested
            if self.needs is not None:
                raise MoreNeeded
            note = partial(note_once, self.job.directory)
            values = plain_metrics(metrics, note)
            if checkpoint is None and self._pending:
                checkpoint = Checkpoint(self._pending)
            stored = None
            if is_saving:
                stored = self._save(self.num_reports + 1)
            elif checkpoint is not None:
                self._check(checkpoint)
                stored = self._keep(checkpoint, self.num_reports + 1)
            now = time.monotonic()
            measure(values, now - self._last, self.job.node_ip)
            data = self._framed(values, stored)
            if len(data) > MAX_BYTES:
                within_size(values, note)
                data = self._framed(values, stored)
            self.num_reports += 1
            self.channel.send(data)
            self._last = now
            self._forget_pending()
            if stored is not None:
                self._continue_from(stored)
            self._await_answer()

    @contextlib.contextmanager
    def checkpoint_dir(self) -> Iterator[str]:
        """Give an empty directory whose files are the checkpoint of the next report; after an error they are not."""
        self._make_directory()
        directory = tempfile.mkdtemp(prefix="tmp-save-", dir=self.trial_dir)
        try:
            yield directory
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        self._forget_pending()
        self._pending = directory

    def store_pending(self) -> None:
        """Store what `checkpoint_dir` gave out since the last report as one of that: the function has ended."""
        if source := self._pending:
            self._say_saved(self._patiently(lambda: self._store(source, self.num_reports), source))
            self._forget_pending()

    def _forget_pending(self) -> None:
        if self._pending:
            shutil.rmtree(self._pending, ignore_errors=True)
            self._pending = ""

    def ask_for(self, request: Resources, why: str) -> NoReturn:
        """End the attempt, so that the trial starts again with room for a group that asks for `request`.

        Raises:
            MoreNeeded: always; whoever swallows it meets it again at the next report.
        """
        self.needs, self.why_more = request, why
        raise MoreNeeded

    def _keep(self, checkpoint: Checkpoint, seq: int) -> str:
        """Store a checkpoint that comes with report `seq`; return what the report says of it."""
        return self._patiently(lambda: self._store(checkpoint.path, seq), checkpoint.path)

    def _check(self, checkpoint: Any) -> None:
        """Refuse what is none, and a directory of the caller's, where other trials write into it meanwhile."""
        if not isinstance(checkpoint, Checkpoint):
            raise UserCodeError(
                f"report() was given checkpoint={checkpoint!r}; expected a Checkpoint. Write the state into a "
                "directory and pass checkpoint=Checkpoint(directory)."
            )
        given = checkpoint._given
        if not self.job.has_company or self.job.is_chdir or os.path.isabs(given) or self.job.trial_id in given:
            return
        caller = self.job.variables[CALLER_VARIABLE] or ""
        if checkpoint.path == os.path.abspath(os.path.join(caller, given)):
            raise CheckpointError(
                f"the checkpoint {given!r} lies in {caller}, where several trials may write it at the same time, so it "
                "may hold another's model. Write it into a directory of its own (with tempfile.TemporaryDirectory() as "
                "directory: ...), or pass chdir_to_trial_dir=True, and each trial runs in its own directory."
            )

    def _framed(self, values: dict[str, Any], stored: str | None) -> bytes:
        return wire.frame(Reported(*self.job.key, self.num_reports + 1, values, stored))

    def _continue_from(self, stored: str) -> None:
        self._checkpoint = known_whole(os.path.join(self.job.directory, stored))

    def _await_answer(self) -> None:
        """Wait for the answer to the report that was just sent; those to others are dropped, a stop is always taken.

        Raises:
            StopRequested: the trial was asked to stop.
            CheckpointError: shards could not be merged. Only after the answer: until then the other ranks wait, and
                code that catches this goes on with its next report.
        """
        problem: CheckpointError | None = None
        while True:
            answer = self.channel.receive()
            if isinstance(answer, wire.Merge):
                problem = self._merge(answer)
                continue
            if isinstance(answer, wire.Stored):
                self._checkpoint = known_whole(os.path.join(self.job.directory, answer.checkpoint))
                continue
            if (answer.trial_id, answer.attempt) != self.job.key:
                continue
            self.is_stopping |= isinstance(answer, Stop)
            if not self.is_stopping and answer.seq != self.num_reports:
                continue
            if isinstance(answer, Save) or (isinstance(answer, Stop) and answer.save):
                self._save_on_demand()
            if problem is not None:
                raise problem
            if self.is_stopping:
                raise StopRequested
            return

    def _merge(self, asked: wire.Merge) -> CheckpointError | None:
        raise NotImplementedError  # a rank does

    def hear_stop(self) -> bool:
        """Take one message that has come outside of a report; return whether the trial is asked to stop."""
        message = self.channel.receive()
        if isinstance(message, Stop) and (message.trial_id, message.attempt) == self.job.key:
            self.is_stopping = True
        return self.is_stopping

    def _save_on_demand(self) -> None:
        """Have the class trainable store a checkpoint of its present state, and say where it is."""
        if self.saver is not None:
            stored = self._save(self.num_reports)
            self._continue_from(stored)
            self._say_saved(stored)

    def _say_saved(self, stored: str) -> None:
        self.send(Saved(*self.job.key, self.num_reports, stored))

    def _save(self, seq: int) -> str:
        """Have the class trainable write its state, and store it with report `seq`."""
        # Beside its final place, so that storing it is a rename; a killed worker leaves a `tmp-*`.
        scratch = os.path.join(self.trial_dir, f"tmp-save-{self._pid}")

        def store() -> str:
            assert self.saver is not None
            self._make_directory()
            os.mkdir(scratch)
            self.saver(scratch)
            return self._store(scratch, seq, is_source_spent=True)

        try:
            return self._patiently(store, scratch, is_scratch=True)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _make_directory(self) -> None:
        """Make the trial's directory; that of the experiment is there, or was deleted, and then stays so."""
        if not os.path.isdir(self.job.directory):
            raise CheckpointError(f"the directory of the experiment is gone: {self.job.directory}.")
        os.makedirs(self.trial_dir, exist_ok=True)

    def _store(self, source: str, seq: int, **how: bool) -> str:
        """Store a directory as the checkpoint of report `seq`; `how` is as in `persist`."""
        self._make_directory()
        name = checkpoint_name(self.job.base_count + seq)
        if self.job.is_staged and self.job.attempt > 1:
            name = f"{name}.{self.job.attempt}"
        target = free_target(self.trial_dir, name, self.job.attempt)
        persist(source, target, **how)
        if not self._is_placed:
            sync(self.job.directory)  # the name of the trial's own directory
            self._is_placed = True
        return os.path.relpath(target, self.job.directory)

    def damage(self) -> str:
        """Say what is wrong with the checkpoint of a trial that this attempt is started from; empty: nothing.

        A damaged one is moved aside, so that it is not offered again.

        Raises:
            OSError: it cannot be read, which says nothing of it.
        """
        path = self.job.checkpoint
        if self.job.home or not path.startswith(self.job.directory + os.sep):
            return ""  # of the user's own: `get_checkpoint` refuses it
        try:
            verify(path, is_exact=False)
        except DamagedError as error:
            name, why = os.path.relpath(path, self.job.directory), str(error)
            aside = set_aside(self.job.directory, name)
            said = why.replace(path, name).rstrip(".")
            return f"{said}; what is left of it is in {os.path.relpath(aside, self.job.directory)}" if aside else said
        self._checkpoint = known_whole(path)
        return ""

    def get_checkpoint(self) -> Checkpoint | None:
        """Return the latest checkpoint: stored by this attempt, else the one it was started from.

        Raises:
            CheckpointError: the one it was started from is missing or damaged.
        """
        if self._checkpoint is None and self.job.checkpoint:
            path = self.job.checkpoint
            if os.path.exists(os.path.join(path, MANIFEST)) or path.startswith(self.job.directory + os.sep):
                verify(path, is_exact=False)  # a directory of the user's own has no manifest
            self._checkpoint = known_whole(path)
        return self._checkpoint

    # --- a full disk -------------------------------------------------------------------------------------------------

    def _patiently(self, store: Callable[[], str], source: str, *, is_scratch: bool = False) -> str:
        """Store something, and while there is no room for it wait for some; return what `store` does.

        Args:
            is_scratch: `store` also writes the source, by the user's code, which makes anything of a full disk.

        Raises:
            StopRequested: the trial was asked to stop meanwhile.
        """
        with self.room() as room:
            while True:
                try:
                    return store()
                except Exception as error:
                    num_bytes = tree_bytes(source)
                    if not lacks_space(error, self.trial_dir) and not (is_scratch and is_full(self.job.directory)):
                        raise
                if is_scratch:
                    shutil.rmtree(source, ignore_errors=True)
                room.wait("a checkpoint", num_bytes)

    def room(self) -> contextlib.closing[DiskWait]:
        """Return how to wait for room while no other thread may read the channel."""
        return contextlib.closing(DiskWait(self.job.directory, self._say_waiting, self._listener()))

    def _listener(self) -> Callable[[float], None]:
        """Return how to wait while no other thread may read the channel; a stop ends the wait."""
        began, was_stopping = time.monotonic(), self.is_stopping

        def wait(seconds: float) -> None:
            if self.channel.wait(seconds):
                self.hear_stop()
            if self.is_stopping and (not was_stopping or time.monotonic() - began > _STOP_PATIENCE_S):
                raise StopRequested

        return wait

    def _say_waiting(self, text: str, cause: Cause = Cause.SPACE) -> None:
        self.send(Waiting(self.job.trial_id, text, cause))

    def say_waiting(self, text: str, cause: Cause = Cause.SPACE) -> None:
        """Say what a group in this trial waits for, unless a report is under way; empty: nothing any more."""
        with self._undisturbed() as is_free:
            if is_free:
                self._say_waiting(text, cause)

    def wait_to_print(self) -> DiskWait:
        """Return how this trial waits for room for what it prints, on whatever thread."""
        wait = self._listener()
        is_own = threading.current_thread() is threading.main_thread()

        def listen(seconds: float) -> None:
            with self._undisturbed() as is_free:
                (wait if is_own and is_free else time.sleep)(seconds)

        return DiskWait(self.job.directory, self.say_waiting, listen)

    @contextlib.contextmanager
    def _undisturbed(self) -> Iterator[bool]:
        """Have the channel, unless a report does; whether that is so."""
        is_free = self._lock.acquire(blocking=False)
        try:
            yield is_free
        finally:
            if is_free:
                self._lock.release()


_session: Session | None = None
_has_warned = False


def install(session: Session | None) -> None:
    """Make `session` the one that `report` and the others speak for; None: there is no trial any more."""
    global _session
    _session = session


def current() -> Session | None:
    """Return the session of the trial that runs in this process, or None."""
    return _session


def as_report(value: Any) -> Any:
    """Return a number alone, of Python, numpy, torch or jax, as the report that it stands for; all else as it is."""
    is_plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    is_scalar = is_plain or (hasattr(value, "item") and tuple(getattr(value, "shape", (0,))) == ())
    return {ANONYMOUS_METRIC: value} if is_scalar else value


def report(
    metrics: Mapping[str, Any] | SupportsFloat | None = None, *, checkpoint: Checkpoint | None = None, **kw: Any
) -> None:
    """Report metrics, and perhaps a checkpoint, and wait until the sweep has judged them.

    Returns when the trial may go on. When it may not, this call does not return: it unwinds the function, so that
    `finally` blocks and context managers run. Outside a sweep it warns once and does nothing, so that the same program
    runs alone.

    Args:
        metrics: numbers, texts, bools, None, and lists and dicts of those, by name; scalars of numpy, torch, jax too.
            Whatever else comes is stored as a list (arrays and sets of up to 64 elements) or as a text (at most 4 KiB),
            which the trial's output says once. A number alone is reported under `_metric`. A metric, and what is filled
            in, must be a number that a float holds, else the trial ends in ERROR.
            `timestamp` (epoch seconds), `time_this_iter_s`, `pid` and `hostname` are added unless given.
        checkpoint: a directory, copied before this call returns.
        kw: more metrics: `report(loss=0.1)` is `report({"loss": 0.1})`, except for one called `metrics`.

    Raises:
        UserCodeError: not a dict, or more than 1,000 keys.
        CheckpointError: the checkpoint could not be stored.
    """
    session = _session
    if session is None:
        global _has_warned
        if not _has_warned:
            _has_warned = True
            warnings.warn(
                "report() was called outside a sweep; it does nothing. Run the function with sweep.run().", stacklevel=2
            )
        return
    values: Any = kw if metrics is None else as_report(metrics)
    if kw and values is not kw and isinstance(values, Mapping):
        values = {**values, **kw}
    session.report(values, checkpoint)


def get_checkpoint() -> Checkpoint | None:
    """Return the checkpoint to continue from, or None when the trial starts from nothing, and outside a sweep.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    return _session.get_checkpoint() if _session is not None else None


def get_context() -> Context:
    """Return what this trial may know of itself."""
    return Context(_session)


@contextlib.contextmanager
def checkpoint_dir(step: int | None = None) -> Iterator[str]:
    """Give a directory whose files become the checkpoint of the next `report`: the form that Tune once had.

    Outside a sweep they are deleted when the block ends. `report(..., checkpoint=Checkpoint(directory))` is plainer.

    Args:
        step: not used; checkpoints are numbered by the reports that they come with.
    """
    outside = partial(tempfile.TemporaryDirectory, prefix="checkpoint_")
    with outside() if _session is None else _session.checkpoint_dir() as directory:
        yield directory


def is_session_enabled() -> bool:
    """Whether this process runs a trial."""
    return _session is not None


def get_trial_id() -> str | None:
    """Return the trial's id, as `get_context` does; None outside a sweep."""
    return get_context().get_trial_id()


def get_trial_name() -> str | None:
    """Return the trial's name, as `get_context` does; None outside a sweep."""
    return get_context().get_trial_name()


def get_trial_dir() -> str | None:
    """Return the trial's directory, as `get_context` does; None outside a sweep."""
    return get_context().get_trial_dir()


def get_trial_resources() -> Resources | None:
    """Return what the trial asked for, as `get_context` does; None outside a sweep."""
    return get_context().get_trial_resources()
