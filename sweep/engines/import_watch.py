"""A process beside a zygote while that imports: when the driver goes meanwhile, the zygote and what it started go too.

    zygote ── fork ──> watch          waits for: driver gone, driver's socket closed, zygote gone
       │ imports the user's modules     ├─ driver gone: stop the zygote, kill what it started, kill it
       │ done                           └─ zygote gone: kill what bears its mark
       └─ kill ──> watch

A zygote that imports does not listen, and what a module starts while it is imported outlives every process of ours: the
kernel's death signal would end the zygote alone. The watch ends with the import, so it costs nothing afterwards.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator, Sequence

from sweep.engines.processes import end_marked, end_tree, fork
from sweep.worker.environment import IMPORTER_VARIABLE
from sweep.worker.limits import are_processes_few


@contextlib.contextmanager
def watched(driver: int, control: int, unneeded: Sequence[int]) -> Iterator[None]:
    """Have this process, and what it starts, end with the driver while this is open.

    What is started bears the mark that this process was started with; afterwards the mark is gone. Where the kernel
    allows no process more, or so few that the driver may need this one for a thread, nothing watches: then a driver
    that goes is noticed after the import only.

    Args:
        driver: pidfd of the driver.
        control: socket to the driver.
        unneeded: descriptors that the watch must not hold.
    """
    own = os.getpid()
    mark = os.environ.get(IMPORTER_VARIABLE, "")
    zygote = -1

    def watch() -> None:
        os.setsid()
        for descriptor in unneeded:
            os.close(descriptor)
        _watch(own, driver, control, zygote, mark)

    pid = -1
    if not are_processes_few():
        with contextlib.suppress(OSError):
            zygote = os.pidfd_open(own)
            pid = fork(watch, 0)
    if zygote >= 0:
        os.close(zygote)
    try:
        yield
    finally:
        os.environ.pop(IMPORTER_VARIABLE, None)
        if pid > 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):  # a module has waited for any child
                os.waitpid(pid, 0)


def _watch(zygote_pid: int, driver: int, control: int, zygote: int, mark: str) -> None:
    poll = select.poll()
    poll.register(driver, select.POLLIN)
    poll.register(zygote, select.POLLIN)
    poll.register(control, 0)  # the hang-up of a closed socket is reported whatever is registered
    ready = {descriptor for descriptor, _ in poll.poll()}
    os.close(control)  # the driver sees that the zygote is gone when no process holds its end
    if zygote not in ready:
        end_tree(zygote_pid)
    if mark:
        end_marked([], [f"{IMPORTER_VARIABLE}={mark}".encode()])
