"""Run any command as a child of the trial's process: what it prints is read, it is stopped with all that it started.

worker (this)   reads stdout and stderr into the trial's log and the feed; answers hooks of Python children;
                hears a stop from the sweep
  child         leads a session of its own; `workers` of them for a group, of which the first one is read
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sweep.errors import UserCodeError
from sweep.programs.arguments import appended, render
from sweep.programs.feed import Feed
from sweep.programs.files import Files
from sweep.programs.hooks import RANK_VARIABLES
from sweep.programs.place import Place, placeholders
from sweep.record.layout import rank_outputs
from sweep.worker.environment import THREAD_VARIABLES
from sweep.worker.rendezvous import open_ports
from sweep.worker.session import Session, StopRequested

if TYPE_CHECKING:
    from sweep.programs.run import Launch

_INJECTED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "injected")
_GRACE_S = 4.0  # from SIGTERM to SIGKILL: within what the sweep grants a trial that is to stop
_LOOK_S = 0.25
_DRAIN_S = 0.5  # what a child's own children may still print once it has ended
_READ_BYTES = 1 << 16
_MAX_LINE = 1 << 16


def run_command(
    launch: Launch,
    words: Sequence[str],
    config: Mapping[str, Any],
    place: Place,
    variables: Mapping[str, str],
    feed: Feed,
    session: Session,
) -> None:
    """Run a command to its end.

    Raises:
        UserCodeError: it cannot be started, or ended with another status than 0.
        StopRequested: the trial was asked to stop; nothing of the command is left.
    """
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        home = stack.enter_context(tempfile.TemporaryDirectory(prefix="sweep-", ignore_cleanup_errors=True))
        listener.bind(os.path.join(home, "socket"))
        listener.listen()
        (kept,) = open_ports(1, "named")
        stack.callback(kept.holder.close)
        port = kept.number
        path = os.pathsep.join(filter(None, [_INJECTED, os.environ.get("PYTHONPATH")]))
        inherited = {name: value for name, value in os.environ.items() if name not in RANK_VARIABLES}
        environ = {**inherited, **variables, "SWEEP_SOCKET": listener.getsockname(), "PYTHONPATH": path}
        environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "PET_STANDALONE": "1"}
        environ |= {"PYTHONUNBUFFERED": "1"}

        def child(command: Sequence[str], **more: str) -> subprocess.Popen[bytes]:
            return _start(launch.name, [one.replace("{port}", str(port)) for one in command], place, environ | more)

        def around(command: Sequence[str]) -> list[str]:
            extra = appended(command, config)
            given = {name: value for name, value in config.items() if name not in extra}
            known = placeholders(variables) | {"port": str(port)}
            return render(command, given, interface=launch.interface, variables=known)

        own = [place.directory] if place.is_isolated else []  # in others, files may be those of other trials
        files = Files(own, time.time(), variables["SWEEP_REPORT"])
        children = _Children(launch.name, feed, session, listener, files)
        stack.callback(children.close)
        if launch.setup:
            server = children.add(child(around(launch.setup)), is_read=False)
            _await_ready(launch, around, {"env": environ, "cwd": place.directory}, server, children)
        size = launch.num_workers
        if size > 1:
            environ |= {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
            environ |= dict.fromkeys(THREAD_VARIABLES, str(max(1, session.job.num_threads // size)))
        for rank in range(size):
            ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank)} if size > 1 else {}
            children.add(child(_with_port(words), **ranks), is_read=rank == 0, is_main=True)
        try:
            children.watch()
        finally:
            children.end_main()
            if launch.teardown:
                subprocess.run(around(launch.teardown), env=environ, cwd=place.directory, timeout=60, check=False)


class _Children:
    """The children of one trial, and what is read from them."""

    def __init__(self, name: str, feed: Feed, session: Session, listener: socket.socket, files: Files) -> None:
        self._name = name
        self._feed, self._session, self._files = feed, session, files
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        channel = getattr(session.channel, "fileno", None)
        if channel is not None:
            self._selector.register(session.channel, selectors.EVENT_READ, self._hear)  # type: ignore[arg-type]
        self._all: list[subprocess.Popen[bytes]] = []
        self._main: list[subprocess.Popen[bytes]] = []
        self._num_streams = 0

    def add(self, child: subprocess.Popen[bytes], *, is_read: bool, is_main: bool = False) -> subprocess.Popen[bytes]:
        """Take a child; `is_read`: what it prints is looked at; `is_main`: the trial ends with it."""
        self._all.append(child)
        if is_main:
            self._main.append(child)
        for stream, log in ((child.stdout, sys.stdout), (child.stderr, sys.stderr)):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ, _Reader(self._feed, log.buffer, is_read))
            self._num_streams += 1
        return child

    def look(self, seconds: float) -> None:
        """Wait for something to read, at most so long, and read it."""
        for key, _ in self._selector.select(seconds):
            source: Any = key.fileobj
            if not key.data(source):
                self._selector.unregister(source)
                source.close()
                self._num_streams -= isinstance(key.data, _Reader)
        self._feed.tick()

    def watch(self) -> None:
        """Read until the children have ended."""
        next_look = 0.0
        while any(child.poll() is None for child in self._main):
            self.look(_LOOK_S if self._feed.deadline is None else 0.05)
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + _LOOK_S
                self._feed.read(self._files)
            if any(child.poll() for child in self._main):
                break  # one of a group has failed: the others would wait for it
        until = time.monotonic() + _DRAIN_S
        while self._num_streams and time.monotonic() < until:
            self.look(0.05)
        self._feed.read(self._files, is_last=True)
        failed = next((child for child in self._main if child.poll()), None)
        if failed is not None:
            who = f"rank {self._main.index(failed)} of {len(self._main)}" if len(self._main) > 1 else ""
            others = "".join(map(_tail, rank_outputs(self._session.trial_dir)))
            raise UserCodeError(f"{who or self._name} ended with {_how(failed.returncode)}{self._feed.said()}{others}")

    def _accept(self, listener: socket.socket) -> bool:
        connection, _ = listener.accept()
        self._feed.has_library = lambda: True
        self._selector.register(connection, selectors.EVENT_READ, _Answerer(self._feed))
        return True

    def _hear(self, channel: Any) -> bool:
        if self._session.hear_stop():
            raise StopRequested
        return True

    def end_main(self) -> None:
        """End those that the trial consists of."""
        self._end(self._main)

    def close(self) -> None:
        """End all children."""
        self._end(self._all)
        self._selector.close()

    def _end(self, children: Sequence[subprocess.Popen[bytes]]) -> None:
        """End children with all that they started: SIGTERM to their groups, some time, SIGKILL."""
        running = [child for child in children if child.poll() is None]
        for child in children:
            _signal(child, signal.SIGTERM)
        until = time.monotonic() + _GRACE_S
        while any(child.poll() is None for child in running) and time.monotonic() < until:
            with contextlib.suppress(BaseException):  # the trial ends: reports that come now are not for the record
                self.look(0.05)
        for child in children:
            _signal(child, signal.SIGKILL)
            child.wait()


class _Reader:
    """Reads one stream of a child: into the log, and its lines into the feed."""

    def __init__(self, feed: Feed, log: Any, is_read: bool) -> None:
        self._feed, self._log, self._is_read = feed, log, is_read
        self._rest = b""

    def __call__(self, stream: Any) -> bool:
        """Read what is there; False: that was all."""
        data = os.read(stream.fileno(), _READ_BYTES)
        if data:
            self._log.write(data)  # waits where the disk is full
            self._log.flush()
        if not self._is_read:
            return bool(data)
        *lines, self._rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        self._rest = self._rest[:_MAX_LINE]
        if not data and self._rest:
            lines, self._rest = [self._rest], b""
        for line in lines:
            if line:
                self._feed.line(line.decode(errors="replace"))
        return bool(data)


class _Answerer:
    """Takes what the hooks of one Python child log, and lets it go on."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._rest = b""

    def __call__(self, connection: socket.socket) -> bool:
        """Read what is there; False: the child has closed it."""
        try:
            data = connection.recv(_READ_BYTES)
        except OSError:
            data = b""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError, KeyError, TypeError):  # not ours
                said = json.loads(line)
                self._feed.take(said["values"], said["step"], said["source"], said["whole"])
            with contextlib.suppress(OSError):  # it has gone meanwhile
                connection.sendall(b"\n")
        return bool(data)


def _start(name: str, command: Sequence[str], place: Place, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            env=environ,
            cwd=place.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise UserCodeError(f"{name} cannot be started: {error}") from error


def _await_ready(
    launch: Launch,
    around: Callable[[Sequence[str]], list[str]],
    where: Mapping[str, Any],
    server: subprocess.Popen[bytes],
    children: _Children,
) -> None:
    """Wait until the server under test answers.

    Raises:
        UserCodeError: it has failed, or does not in time.
    """
    until = time.monotonic() + launch.ready_timeout_s
    while launch.ready:
        if isinstance(launch.ready, str):
            is_ready = _answers(around([launch.ready])[0])
        else:
            is_ready = subprocess.run(around(launch.ready), capture_output=True, check=False, **where).returncode == 0
        if is_ready:
            return
        if server.poll():
            raise UserCodeError(f"setup ended with {_how(server.returncode)} before it was ready")
        if time.monotonic() > until:
            raise UserCodeError(f"setup was not ready within {launch.ready_timeout_s:g} s: {launch.ready}")
        children.look(0.1)


def _answers(url: str) -> bool:
    import urllib.request

    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status < 400)
    except OSError:  # URLError and HTTPError are such
        return False


def _with_port(words: Sequence[str]) -> list[str]:
    """Return a command, with a port of its own for a launcher that takes 29500 for every run."""
    name = os.path.basename(words[0])
    is_accelerate = name == "accelerate" and "launch" in words
    if is_accelerate and not any(word.startswith("--main_process_port") for word in words):
        at = words.index("launch") + 1
        return [*words[:at], "--main_process_port", "{port}", *words[at:]]
    return list(words)


def _tail(path: str) -> str:
    """Return the last line of what a rank of a launcher printed."""
    with open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _READ_BYTES))
        lines = file.read().decode(errors="replace").strip().splitlines()
    return f"\n    {os.path.basename(path)}: {lines[-1]:.500}" if lines else ""


def _signal(child: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def _how(code: int) -> str:
    return f"status {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"


def which(word: str, directory: str) -> str:
    """Return the file that a command's first word starts; empty: there is none that can be executed."""
    if os.sep in word:
        path = os.path.join(directory, word)
        return path if os.path.isfile(path) and os.access(path, os.X_OK) else ""
    return shutil.which(word) or ""
