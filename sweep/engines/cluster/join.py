"""A machine joins a sweep that runs: a handshake in files of the experiment's directory.

    NAME/agents/HOST.json         the machine says what it has; it renews the file for as long as it may be used
    NAME/agents/HOST.invitation   the driver answers; the machine takes it away

The directory and its files are for their owner alone: an invitation holds the run's key. Who joins is the same user as
the driver, on any machine that sees the directory. When the driver ends, it takes the directory away; a driver that was
killed does not, so the machine waits for the next one.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, count
from pathlib import Path
from typing import Any

from sweep.core.resources import Device, Node
from sweep.engines.cluster.agent import UNFIT, UNREACHED
from sweep.engines.cluster.handshake import LINK, Hello, Invitation, address_towards, this_machine
from sweep.engines.local.fork_server_client import own_path
from sweep.errors import ExperimentError

BEAT_S = 5.0  # between two times that a machine renews its file
_LOOK_S = 0.2
_AGAIN_S = 10.0  # before a driver that was not reached is tried again
_LOST_S = 2.0  # for a driver that ends in order to take the files away
_ELSEWHERE = "192.0.2.1"  # an address that leads out of this machine (RFC 5737)
_AGENT = "import sys; sys.path[:] = {path!r}; from sweep.engines.cluster.agent import main; main()"


@dataclass(frozen=True)
class Ticket:
    """What a machine that joins says of itself."""

    node: Node
    machine: tuple[str, str]  # see `this_machine`
    pid: int = field(default_factory=os.getpid)
    version: str = Hello.version
    python: str = field(default_factory=lambda: Hello("", LINK).python)

    def to_json(self) -> str:
        """Return it as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Ticket:
        """Return what `to_json` wrote; raises ValueError, TypeError or KeyError for anything else."""
        said: dict[str, Any] = json.loads(text)
        node = said["node"]
        devices = tuple(Device(**{**one, "labels": tuple(one["labels"])}) for one in node["devices"])
        boot, network = said["machine"]
        return cls(**{**said, "node": Node(**{**node, "devices": devices}), "machine": (str(boot), str(network))})


def ticket_of(node: Node) -> Ticket:
    """Return what this machine says of itself, where `node` is what it gives."""
    try:
        address = address_towards(_ELSEWHERE)
    except OSError:  # it has no network
        address = "127.0.0.1"
    return Ticket(replace(node, address=address), this_machine())


def agents_directory(root: Path) -> Path:
    """Return where machines join the sweep in a directory."""
    return root / "agents"


def start_agent(invitation: Invitation) -> subprocess.Popen[str]:
    """Start an agent on this machine; the invitation goes through a pipe, so that no list of processes shows it."""
    command = (sys.executable, "-c", _AGENT.format(path=own_path()))
    process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin:  # it may be gone already
        process.stdin.write(invitation.to_json() + "\n")
    return process


class Joining:
    """This machine, while it takes part in a sweep."""

    def __init__(self, root: Path, node: Node, say: Callable[[str], None]) -> None:
        """Ask the driver of the sweep in a directory to use `node`; its id is made of the host's name.

        Raises:
            ExperimentError: no driver there takes machines, or this user cannot ask it.
        """
        self._root = root
        self._say = say
        self._agent: subprocess.Popen[str] | None = None
        self._invitation: Invitation | None = None  # of the agent that runs, or found no driver
        self._again_at = math.inf  # when that is tried again, on the monotonic clock
        self._waiting_since = 0.0
        self._lost_at = math.inf  # when the last driver was lost, until that was said
        self._num_asked = self._num_heard = 0  # how often this machine was asked to leave, and that was acted upon
        self._place = self._apply(ticket_of(node))
        self._name = self._place.stem

    def run(self, wait_s: float) -> int:
        """Take part until the sweep ends, or a signal asks this process to leave; returns the exit code.

        Args:
            wait_s: how long to wait for a driver.

        Raises:
            ExperimentError: none came, or one that does not take this machine.
        """
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # under nohup one is
                signal.signal(number, self._on_signal)
        self._say(f"{self._name} asks to join {self._root.name}")
        self._waiting_since = beat_at = time.monotonic()
        try:
            while not (why := self._why_over()):
                now = time.monotonic()
                if self._agent is not None and self._agent.poll() is not None:
                    self._on_agent_gone()
                elif self._agent is None and now > self._waiting_since + wait_s:
                    raise ExperimentError(f"no driver of {self._root} took this machine within {wait_s:g} s.")
                elif self._agent is None:
                    self._accept()
                if now > self._lost_at + _LOST_S and self._agent is None:
                    self._lost_at = math.inf
                    self._say(f"the driver is gone; waiting {wait_s:g} s for `sweep resume --engine agents`")
                if now > beat_at + BEAT_S and not self._num_asked:
                    beat_at = now
                    with contextlib.suppress(OSError):  # the driver has taken it away
                        os.utime(self._place)
                self._hear()
                time.sleep(_LOOK_S)
        finally:
            self._place.unlink(missing_ok=True)
            if self._agent is not None:
                self._agent.kill()
                self._agent.wait()
        self._say(why)
        return 0

    def _why_over(self) -> str:
        if self._agent is not None:
            return ""
        if self._num_asked:
            return f"{self._name} has left {self._root.name}"
        return "" if self._place.exists() else f"{self._root.name} has ended"

    def _on_agent_gone(self) -> None:
        assert self._agent is not None
        code, self._agent, now = self._agent.returncode, None, time.monotonic()
        if code == UNREACHED:  # the network may be away, or the driver that was killed
            self._again_at = now + _AGAIN_S
            return
        self._invitation, self._waiting_since, self._lost_at = None, now, now
        if code == UNFIT:
            raise ExperimentError(f"{self._name} cannot take part in {self._root.name}, for the reason above.")
        if code and not self._num_asked:
            self._say(f"the agent ended with exit code {code}")

    def _on_signal(self, *_: object) -> None:
        self._num_asked += 1

    def _hear(self) -> None:
        """Leave in order when first asked to, at once when asked again."""
        if self._num_heard == self._num_asked:
            return
        self._num_heard = self._num_asked
        self._place.unlink(missing_ok=True)  # so that the driver calls no other agent
        if self._agent is None:
            return
        if self._num_asked == 1:
            self._say(f"{self._name} leaves once its trials have saved; asked again, it ends them at once")
            self._agent.terminate()
        else:
            self._agent.kill()

    def _apply(self, ticket: Ticket) -> Path:
        """Write this machine's file, under a name that no other has."""
        directory = agents_directory(self._root)
        host = re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname().partition(".")[0]) or "node"
        for name in chain([host], (f"{host}-{number}" for number in count(2))):
            path = directory / f"{name}.json"
            try:
                with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                    file.write(replace(ticket, node=replace(ticket.node, id=name)).to_json())
                return path
            except FileExistsError:
                continue
            except FileNotFoundError:
                raise ExperimentError(
                    f"no driver of {self._root} takes machines. Start the sweep with --engine agents, or continue it "
                    "so with `sweep resume`; then join."
                ) from None
            except OSError as error:
                raise ExperimentError(
                    f"{directory} takes no file ({error.strerror}): a machine joins as the user who runs the sweep."
                ) from None
        raise AssertionError("there is always another name")

    def _accept(self) -> None:
        """Start an agent if the driver has sent an invitation, or once more if the last one led nowhere."""
        path = self._place.with_suffix(".invitation")
        try:
            with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW)) as file:
                if os.fstat(file.fileno()).st_uid != os.geteuid():
                    raise ExperimentError(f"{path} is another user's: whoever wrote it could run code here.")
                said = json.load(file)
        except (FileNotFoundError, ValueError):
            if self._invitation is not None and time.monotonic() > self._again_at:
                self._agent = start_agent(self._invitation)
            return
        path.unlink(missing_ok=True)
        if "refused" in said:
            raise ExperimentError(f"the driver of {self._root} does not take this machine: {said['refused']}.")
        self._invitation = Invitation(**said)
        self._agent = start_agent(self._invitation)
        self._say(f"{self._name} has joined {self._root.name}")
