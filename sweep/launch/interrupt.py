"""Ctrl-C, SIGTERM, SIGHUP, SIGUSR1 as requests to end: once stops in order, twice kills, three times ends at once.

A hang-up counts only where no interrupt came before: a window that is closed brings several, from the shell and from
the kernel. Where it is ignored at the start, as under `nohup`, it stays ignored.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from sweep.core.messages import Ask, Asked
from sweep.engines.base import Engine
from sweep.errors import SweepInterrupted
from sweep.launch.spec import NO_SIGINT, is_set

_LEAVE_S = 0.5  # how long the last Ctrl-C may take to give the terminal back


@contextlib.contextmanager
def interruptible(
    engine: Engine,
    hear: Callable[[int, int], None],
    leave: Callable[[], None],
    is_stuck: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Turn signals into requests.

    `hear` is called with their number so far and the signal, and may take no lock; `leave` gives the terminal back
    before the third ends the process; the second leaves code of the user's that the driver waits for (`is_stuck`)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    times = 0

    def handler(number: int, frame: Any) -> None:
        nonlocal times
        if number == signal.SIGHUP and times:
            return
        times += 1
        if times >= 3:
            # On a thread, because this one may hold what the display waits for.
            leaving = threading.Thread(target=leave, daemon=True)
            leaving.start()
            leaving.join(_LEAVE_S)
            os._exit(128 + number)
        hear(times, number)
        engine.post(Asked(Ask.INTERRUPT))
        if times == 2 and is_stuck():
            raise KeyboardInterrupt

    wanted = [signal.SIGTERM, signal.SIGUSR1, *([] if is_set(NO_SIGINT) else [signal.SIGINT])]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        wanted.append(signal.SIGHUP)
    previous = {number: signal.signal(number, handler) for number in wanted}
    try:
        yield
    finally:
        for number, old in previous.items():
            signal.signal(number, old if old is not None else signal.SIG_DFL)


@contextlib.contextmanager
def woken_by_signals(engine: Engine) -> Iterator[None]:
    """Let signals wake the engine: one that comes just before it waits would else be handled late, maybe never."""
    if engine.waker is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.set_wakeup_fd(engine.waker, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)


def end_script_quietly() -> None:
    """Let a `SweepInterrupted` that nobody catches end the script as Ctrl-C ends any other, without a traceback.

    It dies of SIGINT itself, as Python does for its own KeyboardInterrupt: only then does the loop of a shell end."""
    before = sys.excepthook
    if before.__module__ == __name__:  # of an interruption before, which somebody caught
        return

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not isinstance(error, SweepInterrupted) or hasattr(sys, "ps1") or sys.flags.interactive:
            before(kind, error, trace)
            return
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # closed, or nobody reads it
                stream.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)

    sys.excepthook = hook
