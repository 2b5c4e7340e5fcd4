"""One thread on which all callbacks run, in order, behind a bounded queue; a slow or broken one is named."""

from __future__ import annotations

import contextlib
import inspect
import os
import pickle
import queue
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from searchers.keywords import taken_by
from sweep.callbacks.base import Callback, overriding
from sweep.callbacks.observed import ObservedTrial, plain_result
from sweep.core.messages import Hook, Notify
from sweep.core.trial import Trial
from sweep.errors import SweepError
from sweep.record.files import write_atomically
from sweep.record.importing import unpickle
from sweep.record.space import lacks_space
from sweep.results.trials import ExperimentInfo

_LIMIT = 20_000  # messages that may wait before the driver does
_MAX_ERRORS = 3
_SLOW_S = 5.0  # a hook that takes longer than this is named
_FLUSH_S = 30.0  # how long the end waits for callbacks to finish
_POLL_S = 0.01  # between two looks for room in the queue
_LOOK_S = 0.1  # a signal that another thread was given is heard so late
_SOME = ("a callback", 0.0)  # where it is not known which
_STATE_S = 10.0  # between two times that the callbacks' own states are stored

_HOOKS: Mapping[Hook, tuple[str, ...]] = {
    hook: ("on_checkpoint", "on_trial_save") if hook is Hook.SAVE else (f"on_{hook.value}",) for hook in Hook
}
# When somebody may look into log files: they say by then what had happened.
_READING = (Hook.SAVE, Hook.COMPLETE, Hook.ERROR, Hook.RETRY, Hook.PAUSE)
_OUR_FORMS = (("trial",), ("trial", "result"), ("trial", "checkpoint"))
_TUNES_NAMES = frozenset({"iteration", "trials", "trial", "result", "checkpoint"})


class LogFiles(Protocol):
    """Who writes log files; no callback does, unless it is the user's own."""

    def catch_up(self) -> None:
        """Return when they say all that is committed now, or that takes too long."""

    def finish(self) -> bool:
        """Write what is left and end; whether all of it is written."""


class _Hook:
    """One hook of one callback, called in the form in which it was written.

    Ours is `on_trial_result(self, trial, result)`; Tune's has keywords, `on_trial_result(self, iteration, trials,
    trial, result, **info)`, and gets a plain dict as its result.
    """

    __slots__ = ("_function", "_is_ours", "callback", "lists_trials", "name")

    def __init__(self, callback: Callback, name: str) -> None:
        self.callback, self.name = callback, name
        self._function: Callable[..., Any] = getattr(callback, name)
        parameters = inspect.signature(self._function).parameters.values()
        names = tuple(p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL))
        takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
        is_tunes = bool({"iteration", "trials"} & set(names)) or (takes_any and _TUNES_NAMES.issuperset(names))
        self._is_ours = names in _OUR_FORMS or not is_tunes
        self.lists_trials = not self._is_ours and (takes_any or "trials" in names)

    def call(self, trial: ObservedTrial, extra: Mapping[str, Any], **more: Any) -> None:
        """Call it; `extra` is what comes besides the trial, `more` what only Tune's form has."""
        if self._is_ours:
            self._function(trial, *extra.values())
            return
        given = {**more, "trial": trial, **extra}
        if "result" in extra:
            given["result"] = plain_result(trial, extra["result"])
        self._function(**taken_by(self._function, given))


class CallbackStates:
    """What callbacks remember over a restart of the driver: `get_state` and `set_state`, kept in `callbacks.pkl`.

    A state belongs to the callback of the same class and the same position among those of that class. What cannot be
    stored or read costs the state, and is said.
    """

    def __init__(self, callbacks: Sequence[Callback], root: str, notice: Callable[[str], None]) -> None:
        self._path = os.path.join(root, "callbacks.pkl") if root else ""
        self._notice = notice
        self._said: set[str] = set()
        self._owners: dict[str, Callback] = {}
        counts: Counter[str] = Counter()
        for callback in overriding(callbacks, "get_state"):
            name = f"{type(callback).__module__}.{type(callback).__qualname__}"
            counts[name] += 1
            self._owners[f"{name}#{counts[name]}"] = callback

    def store(self) -> None:
        """Write all states, whole or not at all."""
        if not (self._owners and self._path):
            return
        import cloudpickle

        parts: dict[str, bytes] = {}
        for key, callback in self._owners.items():
            with self._saying(f"the state of the callback {key} cannot be stored"):
                parts[key] = cloudpickle.dumps(callback.get_state())
        with self._saying(f"{self._path} cannot be written, and the callbacks' states are lost at a restart"):
            write_atomically(self._path, pickle.dumps(parts), is_private=True)

    def give_back(self) -> None:
        """Hand what was stored to the callbacks of this run."""
        parts: dict[str, bytes] = {}
        if self._owners and os.path.exists(self._path):
            with self._saying(f"{self._path} cannot be read, and callbacks begin anew"), open(self._path, "rb") as file:
                parts = pickle.load(file)
        for key, callback in self._owners.items():
            if key in parts:
                with self._saying(f"the state of the callback {key} cannot be used"):
                    callback.set_state(unpickle(parts[key]))

    @contextlib.contextmanager
    def _saying(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # the user's own; and a damaged pickle raises anything
            if what not in self._said:
                self._said.add(what)
                self._notice(f"{what}: {type(error).__name__}: {error}")


class Dispatcher:
    """Hand what happened to callbacks, in their order, without waiting for them.

    `notice` is told which one raised or was switched off, `warn` what everything waits for, which also a user who wants
    no lines must know. `files` are brought up to date before a hook of the user's is called who may read them.
    """

    def __init__(
        self,
        callbacks: Sequence[Callback],
        notice: Callable[[str], None],
        warn: Callable[[str], None] | None = None,
        *,
        about: ExperimentInfo | None = None,
        files: LogFiles | None = None,
    ) -> None:
        self._callbacks = list(callbacks)
        self._notice = notice
        self._warn = warn or notice
        self._about = about or ExperimentInfo()
        self._files = files
        self._errors: dict[int, int] = {}
        self._queue: queue.SimpleQueue[tuple[Sequence[Notify], dict[str, Trial]] | None] = queue.SimpleQueue()
        self._changed: dict[str, Trial] = {}  # trials of earlier batches, to be handed over with the next commands
        self._sent = 0
        self._handled = 0
        self._covered = 0  # of those handled, how many log files are known to say already
        self._busy: tuple[str, float] | None = None
        self._seen: dict[str, ObservedTrial] = {}
        self._iteration = 0
        # only hooks that a callback overrides are handed over at all
        self._hooks = {
            hook: [_Hook(callback, name) for name in names for callback in overriding(callbacks, name)]
            for hook, names in _HOOKS.items()
        }
        self._reading = {hook for hook in _READING if any(_reads(one.callback) for one in self._hooks[hook])}
        self._begins = overriding(callbacks, "on_step_begin")
        self._ends = overriding(callbacks, "on_step_end")
        # Some are given all trials: they must hear of each change. What they see takes memory, so else it is not kept.
        lists = (one.lists_trials for hooks in self._hooks.values() for one in hooks)
        self._is_listing = bool(self._begins or self._ends) or any(lists)
        self._steppers = overriding(callbacks, "on_step")
        self._states = CallbackStates(self._callbacks, self._about.root, notice)
        self._stored_at = time.monotonic()
        self.driver_is_in: tuple[str, float] | None = None
        self._said: tuple[str, float] | None = None  # of what was waited for, what was named last
        self._thread: threading.Thread | None = None
        self._wake: Callable[[], object] = lambda: None
        self.fatal: SweepError | None = None

    def start(self, wake: Callable[[], object] = lambda: None) -> None:
        """Begin; `wake` lets the driver take its next step soon."""
        self._wake = wake
        thread = threading.Thread(target=self._run, name="sweep-callbacks", daemon=True)
        thread.start()
        self._thread = thread

    def notify(self, commands: Sequence[Notify]) -> None:
        """Queue the calls of callbacks; waits only while the queue is full."""
        if self._thread is None:
            return
        wanted = commands if self._is_listing else [c for c in commands if self._hooks[c.hook]]
        if not wanted:
            return
        self._sent += len(wanted)
        self._queue.put((wanted, self._changed))
        self._changed = {}
        while self._sent - self._handled > _LIMIT and self._thread.is_alive():
            self._say_if_late("trials wait", self._busy)
            time.sleep(_POLL_S)

    def step(self, trials: Mapping[str, Trial], now: float, changed: Sequence[str]) -> None:
        """Tell displays that a batch is committed; on the driver's own thread."""
        if self._is_listing:
            self._changed.update((trial_id, trials[trial_id]) for trial_id in changed)
        for callback in self._steppers:
            self._call(callback, "on_step", trials, now, changed)
        if self.fatal is not None:
            raise self.fatal

    def setup(self, **info: Any) -> None:
        """Tell all callbacks what is about to run, each as much as it takes; an error here is raised."""
        if self._is_listing:
            self._see(info.get("trials", ()))
        for callback in self._callbacks:
            callback.setup(**taken_by(callback.setup, info))
        if info.get("is_resumed"):
            self._states.give_back()

    def close(self, trials: Sequence[Trial]) -> bool:
        """Let callbacks finish what is queued, then notify them of the end; return whether all calls were made."""
        is_complete = self._thread is None or self._finish_queue()
        if self._files is not None:
            is_complete = self._files.finish() and is_complete
        observed = [ObservedTrial(trial, self._about) for trial in trials]
        for callback in self._callbacks:
            self._call(callback, "on_experiment_end", observed)
        self._states.store()
        return is_complete and not self._errors

    def _finish_queue(self) -> bool:
        """Wait for the thread, and say for what; whether it has come to its end."""
        self._queue.put(None)
        self.driver_is_in = ("callbacks", time.monotonic())
        with contextlib.suppress(KeyboardInterrupt):  # the user does not want to wait
            if not self._is_over_within(_SLOW_S):
                left_s = _FLUSH_S - _SLOW_S
                waits = f"the end of the sweep waits for {(self._busy or _SOME)[0]}, at most {left_s:g} s more"
                self._warn(f"{waits}; Ctrl-C twice leaves it")
                self._is_over_within(left_s)
        self.driver_is_in = None
        if is_late := not self._is_over_within(0):
            name = (self._busy or _SOME)[0]
            self._notice(f"{name} did not finish within {_FLUSH_S:g} s; what it had not written is in sweep.db")
        return not is_late

    def _is_over_within(self, limit_s: float) -> bool:
        """Wait for the thread, in short steps: of two signals at once, the kernel may give one to another thread."""
        assert self._thread is not None
        give_up = time.monotonic() + limit_s
        while self._thread.is_alive() and time.monotonic() < give_up:
            self._thread.join(_LOOK_S)
        return not self._thread.is_alive()

    def _see(self, trials: Iterable[Trial]) -> None:
        self._seen.update((trial.id, ObservedTrial(trial, self._about)) for trial in trials)

    def _run(self) -> None:
        while (item := self._next()) is not None:
            commands, changed = item
            self._see(changed.values())
            self._iteration += 1
            for callback in self._begins:
                self._call(callback, "on_step_begin", iteration=self._iteration, trials=list(self._seen.values()))
            for command in commands:
                self._tell(command)
            for callback in self._ends:
                self._call(callback, "on_step_end", iteration=self._iteration, trials=list(self._seen.values()))
            if time.monotonic() - self._stored_at > _STATE_S:
                self._states.store()
                self._stored_at = time.monotonic()

    def _next(self) -> tuple[Sequence[Notify], dict[str, Trial]] | None:
        """Wait for what is to be handed over; meanwhile, say what of the user's the driver waits for."""
        while True:
            try:
                return self._queue.get(timeout=_SLOW_S)
            except queue.Empty:
                self._say_if_late("everything waits", self.driver_is_in, "; Ctrl-C twice ends the sweep")

    def _say_if_late(self, who: str, waits: tuple[str, float] | None, advice: str = "") -> None:
        if waits is not None and waits is not self._said and time.monotonic() - waits[1] > _SLOW_S:
            self._said = waits
            self._warn(f"{who} for {waits[0]}, which has not returned for {_SLOW_S:g} s or more{advice}")

    def _tell(self, command: Notify) -> None:
        if self._is_listing:
            self._see([command.trial])
        self._handled += 1
        if self._files is not None and self._handled > self._covered and command.hook in self._reading:
            self._busy = ("a callback that waits for log files", time.monotonic())
            covered = self._sent  # what was handed over is committed
            self._files.catch_up()
            self._covered = covered
        trial = ObservedTrial(command.trial, self._about)
        extra = {"result": command.result} if command.hook is Hook.RESULT else {}
        for one in self._hooks[command.hook]:
            own = {"checkpoint": trial.checkpoint} if one.name == "on_checkpoint" else extra
            more = {"trials": list(self._seen.values())} if one.lists_trials else {}  # a copy of 10,000 for each report
            self._guarded(one.callback, one.name, one.call, trial, own, iteration=self._iteration, **more)

    def _call(self, callback: Callback, hook: str, *arguments: object, **named: object) -> None:
        self._guarded(callback, hook, getattr(callback, hook), *arguments, **named)

    def _guarded(
        self, callback: Callback, hook: str, function: Callable[..., Any], *arguments: object, **named: object
    ) -> None:
        errors = self._errors.get(id(callback), 0)
        if errors >= _MAX_ERRORS and hook != "on_experiment_end":
            return
        name, is_driver = f"{type(callback).__name__}.{hook}", threading.current_thread() is not self._thread
        if not is_driver:
            self._busy = (name, time.monotonic())
        elif not _is_ours(type(callback)):
            self.driver_is_in = (f"the callback {name}", time.monotonic())
        try:
            function(*arguments, **named)
        except BaseException as error:  # a callback may be the user's own; it never harms the sweep, unless it wants to
            if isinstance(error, KeyboardInterrupt) and is_driver:
                raise  # Ctrl-C
            # One of ours is no wish of the user's: a callback that reads results may meet it.
            if isinstance(error, SweepError) and (type(error) is SweepError or not _is_ours(type(error))):
                self.fatal = self.fatal or error
                self._wake()
                return
            # A full disk is no callback's fault and passes: it is said once, and switches nothing off.
            self._errors[id(callback)] = max(errors, 1) if lacks_space(error) else errors + 1
            if errors == 0:
                self._notice(f"the callback {name} raised {type(error).__name__}: {error} ({_where(error)})")
            elif self._errors[id(callback)] == _MAX_ERRORS:
                self._notice(f"the callback {type(callback).__name__} raised {_MAX_ERRORS} times and is switched off")
        finally:
            if is_driver:
                self.driver_is_in = None
            else:
                self._busy = None


def _reads(callback: Callback) -> bool:
    """Whether a callback may read log files: each that is not this package's, and what says so."""
    return bool(getattr(callback, "reads_log_files", not _is_ours(type(callback))))


def _is_ours(kind: type) -> bool:
    """Whether a class is this package's."""
    return kind.__module__.partition(".")[0] in ("sweep", "searchers")


def _where(error: BaseException) -> str:
    """Return file and line where an exception was raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename}:{frame.lineno}"
