"""A cluster of the driver's own machine, of those that join by files, and of those that are reached by ssh."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from sweep.core.resources import Device, Node
from sweep.engines.base import Engine, EngineContext
from sweep.engines.cluster.agents import Cluster, misfit
from sweep.engines.cluster.handshake import LINK, Hello, Invitation, address_towards, this_machine
from sweep.engines.cluster.heartbeat import HEARTBEAT_TIMEOUT_S
from sweep.engines.cluster.join import BEAT_S, Ticket, agents_directory, start_agent
from sweep.engines.cluster.ssh import reach
from sweep.errors import ExperimentError
from sweep.record.files import write_atomically

_LOOK_S = 0.5
_GONE_S = 12 * BEAT_S  # a file that was not renewed for so long; a network file system may show that late
_ANY = "0.0.0.0"
# What machines that join may have: trials that only they could run wait for them, and groups for as many as they need.
_MAY_COME = tuple(
    Node(f"a machine that joins ({number})", 4096.0, 1 << 50, tuple(Device(f"any{index}") for index in range(16)))
    for number in range(1, 9)
)


@dataclass(frozen=True)
class JoinedOptions:
    """Which machines a sweep may use; see `sweep.init`."""

    address: str | None = None
    hosts: Sequence[str] = ()
    here: bool = True
    notice_command: str = ""
    heartbeat_timeout_s: float = HEARTBEAT_TIMEOUT_S


@dataclass(slots=True)
class _Joined:
    """A machine that has joined."""

    ticket: Ticket
    renewed: int  # as its file says
    seen_at: float  # that this changed, on the monotonic clock


class JoinedCluster(Cluster):
    """This machine, and those that join."""

    def __init__(self, options: JoinedOptions, own: Sequence[Node], say: Callable[[str], None]) -> None:
        """Take what this machine has; others join once there is an experiment to join."""
        self._options = options
        self._say = say
        self.heartbeat_timeout_s, self.notice_command = options.heartbeat_timeout_s, options.notice_command
        self._machine = this_machine()
        self._own = {node.id: node for node in own} if options.here else {}
        self._hosts = reach(options.hosts)
        self._joined: dict[str, _Joined] = {}
        self._left: set[str] = set()  # who took their files away, or renew them no more
        self._refused: set[str] = set()
        self._processes: dict[str, subprocess.Popen[str]] = {}  # agents of this machine
        self._directory: Path | None = None
        self._closed = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="sweep-joined", daemon=True)

    def __call__(self, context: EngineContext) -> Engine:
        directory = agents_directory(context.directory.absolute())
        try:
            with contextlib.suppress(FileExistsError):  # of a driver that was killed
                directory.mkdir(mode=0o700)
            about = directory.stat(follow_symlinks=False)
            if about.st_uid != os.geteuid() or about.st_mode & 0o077:
                raise ExperimentError(
                    f"{directory} is open to others than you, and what lies there lets machines join. Expected a "
                    "directory of mode 700 of your own, on a file system that keeps modes. Nothing was started."
                )
        except OSError as error:
            raise ExperimentError(f"{directory} cannot be made: {error.strerror}. Nothing was started.") from error
        self._directory = directory
        self._look()
        self._watcher.start()
        if not self.nodes():
            self._say(f"trials wait for machines that join: sweep agent join {context.directory.absolute()}")
        return super().__call__(context)

    def nodes(self) -> Sequence[Node]:
        others = [(one.node, one.is_here) for one in self._hosts.values()]
        others += [(one.ticket.node, one.ticket.machine == self._machine) for one in list(self._joined.values())]
        far = [node for node, is_here in others if not is_here]
        if not far:  # ranks of a group find each other by loopback
            return (*self._own.values(), *(replace(node, address="") for node, _ in others))
        own = self._address(far[0])
        return (*(replace(node, address=own) for node in self._own.values()), *(node for node, _ in others))

    @property
    def away(self) -> Sequence[Node]:
        return _MAY_COME

    def leaving(self) -> Collection[str]:
        return frozenset(self._left)

    def summon(self, node: str, invitation: Invitation) -> None:
        joined = self._joined.get(node)
        near = replace(invitation, host="127.0.0.1") if invitation.host == _ANY else invitation
        if node in self._own:
            if (before := self._processes.get(node)) is not None:
                before.kill()  # lost, which one that is stopped does not know
                before.wait()
            self._processes[node] = start_agent(near)
        elif node in self._hosts:
            self._hosts[node].start_agent(near)
        elif joined is not None:
            is_here = joined.ticket.machine == self._machine
            far = replace(invitation, host=self._address(joined.ticket.node))
            self._answer(node, asdict(near if is_here else far))

    def problem(self, node: str) -> str:
        if node in self._own:
            process = self._processes.get(node)
            code = None if process is None else process.poll()
            return "" if code is None else f"its agent ended with exit code {code}"
        if node in self._hosts:
            return self._hosts[node].problem()
        return "" if node in self._joined else "it has left"

    def close(self) -> None:
        """Wait for the agents of this machine, and tell those that have joined that it is over."""
        self._closed.set()
        if self._watcher.is_alive():
            self._watcher.join()
        for process in (*self._processes.values(), *(one.process for one in self._hosts.values())):
            if process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(2 * self.heartbeat_timeout_s)
                process.kill()
                process.wait()
        self._processes.clear()
        if self._directory is not None:
            with contextlib.suppress(OSError):  # a machine may be joining at this moment; it gives up by itself
                for path in self._directory.iterdir():
                    path.unlink()
                self._directory.rmdir()
            self._directory = None

    # --- machines that join ------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._closed.wait(_LOOK_S):
            with contextlib.suppress(OSError):  # the storage is away; so is the sweep, if that lasts
                if self._look():
                    self.changed()

    def _look(self) -> bool:
        """Take in who has joined and who has left; returns whether somebody has."""
        assert self._directory is not None
        now, before = time.monotonic(), set(self._joined)
        found = {path.stem: path for path in self._directory.glob("*.json")}
        for name, path in found.items():
            with contextlib.suppress(FileNotFoundError), path.open(encoding="utf-8") as file:  # opening asks NFS anew
                renewed = os.fstat(file.fileno()).st_mtime_ns
                one = self._joined.get(name)
                if one is None:
                    self._take(name, file.read(), renewed)
                elif one.renewed != renewed:
                    one.renewed, one.seen_at = renewed, now
        for name, one in list(self._joined.items()):
            if name not in found or now > one.seen_at + _GONE_S:
                del self._joined[name]
                self._left.add(name)  # its agent may live, as that of one that was killed does
                (self._directory / f"{name}.json").unlink(missing_ok=True)
                (self._directory / f"{name}.invitation").unlink(missing_ok=True)
        self._refused &= found.keys()
        return before != set(self._joined)

    def _take(self, name: str, text: str, renewed: int) -> None:
        """Take in a machine, unless no trial of this run could run there."""
        if name in self._refused or not text:
            return
        try:
            ticket = Ticket.from_json(text)
            if ticket.node.id != name or name in (*self._own, *self._hosts):
                raise ValueError(f"its id is {ticket.node.id!r}")
            why = misfit(Hello(name, LINK, ticket.version, ticket.python))
        except (ValueError, TypeError, KeyError) as error:
            why = f"what it says of itself is not understood here ({error})"
        if why:
            self._refused.add(name)
            self._say(f"{name} asks to join, and cannot: {why}")
            self._answer(name, {"refused": why})
            return
        if ticket.machine != self._machine:
            self.host = self._options.address or _ANY  # until then all are reached by loopback
        self._left.discard(name)
        self._joined[name] = _Joined(ticket, renewed, time.monotonic())
        node = ticket.node
        self._say(f"{name} joins: {node.cpus:g} CPUs" + (f", {len(node.devices)} devices" if node.devices else ""))

    def _answer(self, name: str, answer: object) -> None:
        if self._directory is not None:
            with contextlib.suppress(OSError):  # the storage is away: so is who would read it
                write_atomically(self._directory / f"{name}.invitation", json.dumps(answer), is_private=True)

    def _address(self, node: Node) -> str:
        """Return the address of this machine at which another one reaches it."""
        if self._options.address:
            return self._options.address
        try:
            return address_towards(node.address)
        except OSError:
            return "127.0.0.1"
