"""The driver's end of a zygote: start it, ask it for hosts, read its messages, end it."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sweep.worker import wire
from sweep.worker.channel import Packets
from sweep.worker.environment import (
    DRIVER_VARIABLE,
    EXPERIMENT_VARIABLE,
    IMPORTER_VARIABLE,
    THREAD_VARIABLES,
    TRIAL_VARIABLE,
)
from sweep.worker.nested import process_mark

__all__ = ["Nursery", "own_path"]

_CLOSE_S = 10.0
_numbers = itertools.count(1)
_BOOT = "import sys; sys.path[:] = {path!r}; from sweep.engines.zygote import main; main({descriptor})"


class Nursery:
    """One zygote process.

    Attributes:
        packets: the socket to it, which it closes when it ends.
        importing: the module that it imports at the moment, or empty.
    """

    def __init__(
        self,
        setup: wire.Setup,
        *,
        directory: Path,
        log: Path,
        environ: Mapping[str, str],
        locks: Sequence[int] = (),
    ) -> None:
        """Start the process; it does not wait for it.

        Args:
            log: gets what the imported modules print.
            environ: its environment, to which the markers and one thread per library are added.
            locks: descriptors of files that are locked: hosts hold them too, so that they are free only when those are
                gone.
        """
        self.importing = ""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.packets = Packets(ours)
        variables = dict(environ)
        # Libraries start their pools when they are imported: one thread leaves nothing to tear down in each worker.
        variables.update(dict.fromkeys(THREAD_VARIABLES, "1"))
        # What is forked without a new program keeps this environment in the kernel's eyes.
        variables[EXPERIMENT_VARIABLE] = str(directory)
        variables[DRIVER_VARIABLE] = process_mark(os.getpid())
        variables.pop(TRIAL_VARIABLE, None)
        if setup.is_importing:
            variables[IMPORTER_VARIABLE] = f"{process_mark(os.getpid())}/{next(_numbers)}"
        flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # -O, -X and the like
        code = _BOOT.format(path=setup.path, descriptor=theirs.fileno())
        try:
            with open(log, "ab") as output:
                self._process = subprocess.Popen(
                    [sys.executable, *flags, "-c", code],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=(theirs.fileno(),),
                    env=variables,
                )
            self.packets.send(setup, locks)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)

    @property
    def is_alive(self) -> bool:
        """Whether it has not closed its socket."""
        return self.packets.is_open

    @property
    def pid(self) -> int:
        """Of the zygote."""
        return self._process.pid

    def ask_for_host(self, number: int, life: socket.socket) -> None:
        """Have a host forked that speaks over `life`.

        Raises:
            OSError: the process takes no more messages at the moment, or no descriptor can be handed over.
        """
        try:
            self.packets.send(wire.ForkHost(number), [life.fileno()])
        except BlockingIOError:
            raise OSError(errno.ENOBUFS, "requests to the process that forks, which is busy") from None

    def end_host(self, number: int) -> None:
        """Have a host killed that does not answer."""
        with contextlib.suppress(OSError):
            self.packets.send(wire.EndHost(number))

    def close(self) -> str:
        """End it and everything that it has started, wait until that is gone, and say how it ended."""
        self.packets.close()  # one that still imports is ended by its watch
        try:
            code = self._process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def own_path() -> list[str]:
    """Return `sys.path` as another process needs it: absolute, with the place that this package was found in."""
    here = str(Path(__file__).resolve().parents[2])
    path = [os.path.abspath(entry) for entry in sys.path]
    return path if here in path else [*path, here]
