"""Ctrl-C, SIGTERM, SIGHUP, SIGUSR1 as requests to end: once stops in order, twice kills, three times ends at once.

A hang-up counts only where no interrupt came before: a window that is closed brings several, from the shell and from
the kernel. Where it is ignored at the start, as under `nohup`, it stays ignored.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

from sweep.core.messages import Ask, Asked
from sweep.engines.base import Engine
from sweep.launch.settings import NO_SIGINT, is_set

__all__ = ["interruptible"]

_LEAVE_S = 0.5  # how long the last Ctrl-C may take to give the terminal back


@contextlib.contextmanager
def interruptible(engine: Engine, hear: Callable[[int], None], leave: Callable[[], None]) -> Iterator[None]:
    """Turn Ctrl-C (SIGTERM, SIGHUP, SIGUSR1) into a request: once saves and stops, twice kills, three times ends here.

    Args:
        hear: called with the number of interrupts so far, from within the signal handler: it may take no lock.
        leave: gives the terminal back before the third time ends the process.
    """
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
            os._exit(130)
        hear(times)
        engine.post(Asked(Ask.INTERRUPT))

    wanted = [signal.SIGTERM, signal.SIGUSR1, *([] if is_set(NO_SIGINT) else [signal.SIGINT])]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        wanted.append(signal.SIGHUP)
    previous = {number: signal.signal(number, handler) for number in wanted}
    # A signal that comes just before the engine waits would be handled when something else wakes it: maybe never.
    woken = None if engine.waker is None else signal.set_wakeup_fd(engine.waker, warn_on_full_buffer=False)
    try:
        yield
    finally:
        if woken is not None:
            signal.set_wakeup_fd(woken)
        for number, old in previous.items():
            signal.signal(number, old if old is not None else signal.SIG_DFL)
