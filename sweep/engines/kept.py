"""The zygote that is kept between the runs of one driver, so that what trials need is imported once.

At most one is: that of the run that ended last. It is used again only where a new one would be the same: modules that
are needed in addition are imported, but none may be there that is not needed. It ends with the driver, and by itself
when no run has come for ten minutes.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections.abc import Mapping

from sweep.engines.nursery import Nursery, Run, key_of, setup_of
from sweep.worker import wire

_kept: Nursery | None = None
_lock = threading.Lock()


def nursery_for(setup: wire.Setup, run: Run, environ: Mapping[str, str]) -> Nursery:
    """Return a zygote that serves a run: the one that is kept, or a new one.

    Raises:
        OSError: the kernel allows no process or descriptor.
    """
    found = _exchange(None)
    try:
        is_same = found is not None and found.key == key_of(setup, environ) and found.modules <= set(run.modules)
        if found is not None and is_same and found.begin(run):
            taken, found = found, None
            return taken
        return Nursery(setup, environ, run)
    finally:
        if found is not None:
            found.end_resting()  # while the new one boots


def prepare(environ: Mapping[str, str]) -> None:
    """Start a zygote for a run that is about to begin, unless one is kept: it boots while the driver gets ready."""
    if _kept is None:
        with contextlib.suppress(OSError):  # the run will meet the reason
            keep(Nursery(setup_of(is_importing=True), environ))


def keep(nursery: Nursery) -> None:
    """Keep a zygote that rests; one that was kept before is ended."""
    if (before := _exchange(nursery)) is not None:
        before.end_resting()


def end_kept() -> None:
    """End the zygote that is kept, and wait until it is gone."""
    if (found := _exchange(None)) is not None:
        found.end_resting()


def _exchange(new: Nursery | None) -> Nursery | None:
    global _kept
    with _lock:
        old, _kept = _kept, new
    return old


def _forget_in_child() -> None:
    """A process that the driver forks neither uses nor ends what is the driver's."""
    global _lock
    _lock = threading.Lock()  # another thread may have held it
    if (found := _exchange(None)) is not None:
        found.forget()


os.register_at_fork(after_in_child=_forget_in_child)
atexit.register(end_kept)
