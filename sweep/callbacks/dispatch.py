"""One thread on which all callbacks run, in order, behind a bounded queue: a slow or broken one is named, and harms
nobody."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from sweep.callbacks.base import Callback
from sweep.core.messages import Hook, Notify
from sweep.core.trial import Trial

__all__ = ["Dispatcher"]

_LIMIT = 20_000  # messages that may wait before the driver does
_MAX_ERRORS = 3
_SLOW_S = 5.0  # a hook that takes longer than this is named
_FLUSH_S = 30.0  # how long the end waits for callbacks to finish


class Dispatcher:
    """Hand what happened to callbacks without waiting for them.

    Args:
        callbacks: told in this order.
        notice: is told, in one line, which callback raised, was switched off, or is slow.
    """

    def __init__(self, callbacks: Sequence[Callback], notice: Callable[[str], None]) -> None:
        self._callbacks = list(callbacks)
        self._notice = notice
        self._errors: dict[int, int] = {}
        self._queue: queue.SimpleQueue[Sequence[Notify] | None] = queue.SimpleQueue()
        self._sent = 0
        self._handled = 0
        self._busy: tuple[str, float] | None = None
        self._room = threading.Event()
        # only hooks that somebody overrides are handed over at all
        hooks = {hook: f"on_{hook.value}" for hook in Hook}
        self._wanted = {
            hook: [c for c in self._callbacks if getattr(type(c), name) is not getattr(Callback, name)]
            for hook, name in hooks.items()
        }
        self._names = hooks
        self._steppers = [c for c in self._callbacks if type(c).on_step is not Callback.on_step]
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        if any(self._wanted.values()):
            self._thread = threading.Thread(target=self._run, name="sweep-callbacks", daemon=True)
            self._thread.start()

    def notify(self, told: Sequence[Notify]) -> None:
        """Queue what callbacks are to hear; waits only while the queue is full."""
        if self._thread is None:
            return
        wanted = [command for command in told if self._wanted[command.hook]]
        if not wanted:
            return
        self._sent += len(wanted)
        self._queue.put(wanted)
        while self._sent - self._handled > _LIMIT and self._thread.is_alive():
            busy = self._busy
            if busy is not None and time.monotonic() - busy[1] > _SLOW_S:
                self._notice(
                    f"trials wait for the callback {busy[0]}, which has not returned for {_SLOW_S:g} s or more"
                )
            self._room.clear()
            self._room.wait(_SLOW_S)

    def step(self, trials: Mapping[str, Trial], now: float, changed: Sequence[str]) -> None:
        """Tell displays that a batch is committed; on the driver's own thread."""
        for callback in self._steppers:
            self._call(callback, "on_step", trials, now, changed)

    def setup(self, **info: object) -> None:
        """Tell all callbacks what is about to run; an error here is raised."""
        for callback in self._callbacks:
            callback.setup(**info)  # type: ignore[arg-type]

    def close(self, trials: Sequence[Trial]) -> bool:
        """Let callbacks finish what is queued, then tell them that the sweep is over; whether they have heard all."""
        is_all_told = True
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(_FLUSH_S)
            if self._thread.is_alive():
                is_all_told = False
                name = self._busy[0] if self._busy is not None else "a callback"
                self._notice(f"{name} did not finish within {_FLUSH_S:g} s; what it had not written is in sweep.db")
        for callback in self._callbacks:
            self._call(callback, "on_experiment_end", trials)
        return is_all_told and not self._errors

    def _run(self) -> None:
        while (told := self._queue.get()) is not None:
            for command in told:
                hook = command.hook
                for callback in self._wanted[hook]:
                    if hook is Hook.RESULT:
                        self._call(callback, "on_trial_result", command.trial, command.result)
                    else:
                        self._call(callback, self._names[hook], command.trial)
            self._handled += len(told)
            self._room.set()

    def _call(self, callback: Callback, hook: str, *arguments: object) -> None:
        errors = self._errors.get(id(callback), 0)
        if errors >= _MAX_ERRORS and hook != "on_experiment_end":
            return
        self._busy = (f"{type(callback).__name__}.{hook}", time.monotonic())
        try:
            getattr(callback, hook)(*arguments)
        except Exception as error:  # a callback may be the user's own; it never harms the sweep
            self._errors[id(callback)] = errors + 1
            if errors == 0:
                self._notice(f"the callback {self._busy[0]} raised {type(error).__name__}: {error}")
            elif errors + 1 == _MAX_ERRORS:
                self._notice(f"the callback {type(callback).__name__} raised {_MAX_ERRORS} times and is switched off")
        finally:
            self._busy = None
