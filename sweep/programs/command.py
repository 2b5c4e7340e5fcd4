"""Run any command as a child of the trial's process: what it prints is read, it is stopped with all that it started.

worker (this)   reads stdout and stderr into the trial's log and the feed; answers hooks of Python children;
                hears a stop from the sweep
  child         leads a session of its own; `workers` of them for a group, of which the first one is read
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import IO, TYPE_CHECKING, Any

from sweep.errors import UserCodeError
from sweep.programs.feed import Feed
from sweep.programs.files import Files
from sweep.programs.hooks import RANK_VARIABLES
from sweep.programs.output import Output
from sweep.programs.place import Place
from sweep.record.layout import rank_outputs
from sweep.worker.environment import THREAD_VARIABLES
from sweep.worker.session import Session, StopRequested

if TYPE_CHECKING:
    from sweep.programs.program import Program

_INJECTED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "injected")
_GRACE_S = 4.0  # from SIGTERM to SIGKILL: within what the sweep grants a trial that is to stop
_LOOK_S = 0.25
_DRAIN_S = 0.5  # what a child's own children may still print once it has ended
_TEARDOWN_S = 60.0
_READ_BYTES = 1 << 16


def run_command(
    program: Program,
    words: Sequence[str],
    filled: Callable[[Sequence[str]], list[str]],
    place: Place,
    variables: Mapping[str, str],
    feed: Feed,
    session: Session,
) -> None:
    """Run a command to its end.

    Args:
        filled: fills in the placeholders of `setup`, `ready` and `teardown`.

    Raises:
        UserCodeError: it cannot be started, or ended with another status than 0.
        StopRequested: the trial was asked to stop; nothing of the command is left.
    """
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        home = stack.enter_context(tempfile.TemporaryDirectory(prefix="sweep-", ignore_cleanup_errors=True))
        listener.bind(os.path.join(home, "socket"))
        listener.listen()
        path = os.pathsep.join(filter(None, [_INJECTED, os.environ.get("PYTHONPATH")]))
        inherited = {name: value for name, value in os.environ.items() if name not in RANK_VARIABLES}
        environ = {**inherited, **variables, "SWEEP_SOCKET": listener.getsockname(), "PYTHONPATH": path}
        where: dict[str, Any] = {"cwd": place.directory, "env": environ | {"PYTHONUNBUFFERED": "1"}}
        own = [place.directory] if program.isolate else []  # in others, files may be those of other trials
        files = Files(own, time.time(), variables["SWEEP_REPORT"])
        children = _Children(program.name, where, feed, session, files)
        children.listen(listener)
        stack.callback(children.end)
        size = program.workers
        group = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
        group |= dict.fromkeys(THREAD_VARIABLES, str(max(1, session.job.num_threads // size)))
        ranks: list[subprocess.Popen[bytes]] = []
        try:
            if program.setup:
                server = children.start(filled(program.setup))
                until = time.monotonic() + program.ready_timeout_s
                while program.ready and not _is_ready(program.ready, filled, where):
                    if code := server.poll():
                        raise UserCodeError(f"setup ended with {_how(code)} before it was ready")
                    if time.monotonic() > until:
                        what = f"setup was not ready within {program.ready_timeout_s:g} s"
                        raise UserCodeError(f"{what}: {program.ready}")
                    children.look(0.1)
            for rank in range(size):
                told = group | {"RANK": str(rank), "LOCAL_RANK": str(rank)} if size > 1 else {}
                ranks.append(children.start(words, told, is_read=rank == 0))
            children.watch(ranks)
        finally:
            children.end(ranks)
            if program.teardown:
                subprocess.run(filled(program.teardown), timeout=_TEARDOWN_S, check=False, **where)


@dataclass
class _Children:
    """The children of one trial, and what is read from them.

    Attributes:
        where: they run: a directory and variables.
    """

    name: str
    where: Mapping[str, Any]
    feed: Feed
    session: Session
    files: Files
    _running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    # Its data are functions that read what is there, and say whether there may be more.
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    def listen(self, listener: socket.socket) -> None:
        """Answer what connects there, and hear the sweep."""
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        channel: Any = self.session.channel
        if hasattr(channel, "fileno"):  # not in the driver's own process
            self._selector.register(channel, selectors.EVENT_READ, self._hear)

    def start(
        self, command: Sequence[str], told: Mapping[str, str] | None = None, *, is_read: bool = False
    ) -> subprocess.Popen[bytes]:
        """Start a child; `told`: more variables; `is_read`: what it prints is looked at.

        Raises:
            UserCodeError: it cannot be started.
        """
        how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        how |= {**self.where, "env": {**self.where["env"], **(told or {})}, "start_new_session": True}
        try:
            child: subprocess.Popen[bytes] = subprocess.Popen(command, **how)
        except (OSError, ValueError) as error:
            raise UserCodeError(f"{self.name} cannot be started: {error}") from error
        self._running.append(child)
        for stream, log in ((child.stdout, sys.stdout.buffer), (child.stderr, sys.stderr.buffer)):
            assert stream is not None
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            lines = Output(self.feed.line if is_read else lambda line: None)
            self._selector.register(stream, selectors.EVENT_READ, partial(_read, log, decoder, lines))
        return child

    def look(self, seconds: float) -> bool:
        """Wait for something to read, at most so long, and read it; return whether there was anything."""
        ready = self._selector.select(seconds)
        for key, _ in ready:
            source: Any = key.fileobj
            if not key.data(source):
                self._selector.unregister(source)
                source.close()
        self.feed.tick()
        return bool(ready)

    def watch(self, ranks: Sequence[subprocess.Popen[bytes]]) -> None:
        """Read until those that the trial consists of have ended.

        Raises:
            UserCodeError: one of them has failed.
        """
        next_look = 0.0
        while None in (codes := [child.poll() for child in ranks]) and not any(codes):
            self.look(_LOOK_S if self.feed.deadline is None else 0.05)
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + _LOOK_S
                self.feed.read(self.files)
        until = time.monotonic() + _DRAIN_S
        while self.look(0.01) and time.monotonic() < until:
            pass
        self.feed.read(self.files, is_last=True)
        for rank, code in enumerate(codes):
            if code:
                who = f"rank {rank} of {len(ranks)}" if len(ranks) > 1 else self.name
                others = "".join(map(_tail, rank_outputs(self.session.trial_dir)))
                raise UserCodeError(f"{who} ended with {_how(code)}{self.feed.said()}{others}")

    def end(self, children: Sequence[subprocess.Popen[bytes]] | None = None) -> None:
        """End children, or all, with whatever they started: SIGTERM to their groups, some time, SIGKILL."""
        ending = self._running if children is None else children
        self._running = [child for child in self._running if child not in ending]
        for number in (signal.SIGTERM, signal.SIGKILL):
            until = time.monotonic() + _GRACE_S
            for child in ending:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, number)
            while any(child.poll() is None for child in ending) and time.monotonic() < until:
                with contextlib.suppress(BaseException):  # the trial ends: reports that come now are not for the record
                    self.look(0.05)

    def _accept(self, listener: socket.socket) -> bool:
        connection, _ = listener.accept()
        self.feed.has_library = lambda: True
        self._selector.register(connection, selectors.EVENT_READ, partial(self._answer, connection.makefile("rb")))
        return True

    def _answer(self, lines: IO[bytes], connection: socket.socket) -> bool:
        """Take what the hooks of one Python child log, a line that it sends at once, and let it go on."""
        line = b""
        with contextlib.suppress(OSError):  # it has gone meanwhile
            line = lines.readline()
        with contextlib.suppress(ValueError, KeyError, TypeError):  # not ours
            said = json.loads(line)
            self.feed.take(said["values"], said["step"], said["source"], said["whole"])
        with contextlib.suppress(OSError):
            connection.sendall(b"\n")
        return bool(line)

    def _hear(self, channel: Any) -> bool:
        if self.session.hear_stop():
            raise StopRequested
        return True


def _read(log: Any, decoder: codecs.IncrementalDecoder, lines: Output, stream: Any) -> bool:
    """Read what is there of a stream, into the log and as lines; False: that was all."""
    data = os.read(stream.fileno(), _READ_BYTES)
    log.write(data)  # waits where the disk is full
    log.flush()
    lines(decoder.decode(data, not data), is_last=not data)
    return bool(data)


def _is_ready(
    ready: str | Sequence[str], filled: Callable[[Sequence[str]], list[str]], where: Mapping[str, Any]
) -> bool:
    """Say whether the server under test answers: at a URL, or to a command."""
    if not isinstance(ready, str):
        return subprocess.run(filled(ready), capture_output=True, check=False, **where).returncode == 0
    import urllib.request  # late: it loads a lot

    try:
        with urllib.request.urlopen(filled([ready])[0], timeout=2):
            return True
    except OSError:  # URLError and HTTPError are such
        return False


def _tail(path: str) -> str:
    """Return the last line of what a rank of a launcher printed."""
    with open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _READ_BYTES))
        lines = file.read().decode(errors="replace").strip().splitlines()
    return f"\n    {os.path.basename(path)}: {lines[-1]:.500}" if lines else ""


def _how(code: int) -> str:
    return f"status {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
