"""Ctrl-C, SIGTERM and SIGUSR1 as wishes of a person: once stops in order, twice kills, three times ends at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

from sweep.core.messages import Ask, Asked
from sweep.engines.base import Engine
from sweep.settings import NO_SIGINT, is_set

__all__ = ["interruptible"]


@contextlib.contextmanager
def interruptible(engine: Engine, notice: Callable[[str], None]) -> Iterator[None]:
    """Turn Ctrl-C (SIGTERM and SIGUSR1, too) into a wish: once saves and stops, twice kills, three times ends here."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    times = 0

    def handler(number: int, frame: Any) -> None:
        nonlocal times
        times += 1
        if times >= 3:
            os._exit(130)
        engine.post(Asked(Ask.INTERRUPT))
        notice("stopping: trials save and end; once more to kill them" if times == 1 else "killing what still runs")

    wanted = [signal.SIGTERM, signal.SIGUSR1, *([] if is_set(NO_SIGINT) else [signal.SIGINT])]
    previous = {number: signal.signal(number, handler) for number in wanted}
    try:
        yield
    finally:
        for number, old in previous.items():
            signal.signal(number, old if old is not None else signal.SIG_DFL)
