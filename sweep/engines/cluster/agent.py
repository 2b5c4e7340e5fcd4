"""The agent: one process on each node of a cluster, in which the local engine runs what the driver sends there.

It ends everything that it has started, and then itself, when its connection to the driver or its heartbeat ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from sweep.core import messages
from sweep.core.messages import Event
from sweep.engines.base import EngineContext
from sweep.engines.cluster.handshake import HEARTBEAT, LINK, Invitation, dial, keep_alive
from sweep.engines.cluster.heartbeat import Heartbeat
from sweep.engines.cluster.staging import LOOK_S, Staging
from sweep.engines.jobs import JobMaker, Payload, Stored
from sweep.engines.link import Link
from sweep.engines.local.engine import LocalEngine
from sweep.errors import ExperimentError, SweepError, refuse_unknown
from sweep.record.layout import CACHE_VARIABLE, ExperimentLayout
from sweep.storage.disks import SHARED_VARIABLE
from sweep.storage.nodes import NodeCopy
from sweep.worker import limits, wire
from sweep.worker.trainable import PreparedTrainable

_SEEN_S = 30.0  # for a file of the driver's to be seen here: network file systems keep what they knew for a while
_SEEN_SOON_S = 2.0  # where it need not be: the driver's directory is a cache then
_LOOK_S = 0.2
_END_S = 20.0  # to end what was started
_ASK_S = 5.0  # between two times that a node is asked whether it will be taken away
GONE = "the driver ended"
# Exit codes: no trial of the run could run on this node, which the driver was told; no driver was found.
UNFIT, UNREACHED = 3, 4


@dataclass(frozen=True, slots=True)
class Setup:
    """What an agent needs to know of a run."""

    context: EngineContext  # without what only the driver has
    stored: Stored  # where the trainable lies
    path: Sequence[str]  # of the driver's modules; used where they exist
    cwd: str  # of the driver, likewise
    heartbeat_timeout_s: float
    witness: tuple[str, str]  # a file that the driver has written into the experiment, and what it says
    home: bytes = b""  # pickled `Home` of the experiment, for nodes that do not see the driver's directory
    no_home: str = ""  # why there is none
    notice_command: str = ""  # tells by success that the node will be taken away

    def in_copy(self, copy: NodeCopy) -> Setup:
        """Return the same for a node that works in a directory of its own."""
        root, start = self.context.directory, copy.start if self.context.start_from else ""
        return replace(
            self,
            context=replace(self.context, directory=copy.root, is_staged=True, start_from=start),
            stored=Stored(*(copy.own(root, path) for path in self.stored)),
            path=[copy.own(root, path) for path in self.path],
        )


def context_for_agents(context: EngineContext) -> EngineContext:
    """Return the context of a run without what only the driver has: the user's own objects, and what it is told by."""
    one = context.trainable
    group = None if one.group is None else _is_told
    trainable = PreparedTrainable(one.name, one.kind, b"", imports=one.imports, group=group, env=dict(one.env))
    return replace(
        context,
        directory=context.directory.absolute(),
        trainable=trainable,
        nodes=tuple(context.nodes),
        start_at=0.0,
        env=dict(context.env),
        environ=None,
        name_of=None,
        seeded_as=None,
        lock_fd=None,
        home=None,
        notice=None,
    )


def _is_told(config: Mapping[str, Any]) -> Any:
    """Stand where a trainer says what a group is: the driver says so with each start."""
    raise AssertionError("the group of a trial comes with its start")


class Agent:
    """One agent; `run` returns when it is over and nothing of it is left."""

    def __init__(
        self,
        invitation: Invitation,
        *,
        environ: Mapping[str, str] | None = None,
        memory_limit: float | None = None,
    ) -> None:
        """Connect to the driver; trials start from the variables in `environ`, None: from those of this process.

        Raises:
            ExperimentError: the driver cannot be reached, or does not let this agent in.
        """
        self.node = invitation.node
        self._environ = dict(os.environ if environ is None else environ)
        self._memory_limit = memory_limit
        self._invitation = invitation
        self._payloads: dict[tuple[str, int], Payload] = {}
        self._notices: list[str] = []
        self.problem = ""  # why no trial could run here
        self._why_over = ""
        self._is_leaving = self._has_told = False
        self._engine: LocalEngine | None = None
        self._staging: Staging | None = None  # where the node does not see the driver's directory
        self._ready: list[Event] = []  # whose turn has come
        self._lock = -1
        self._is_over = threading.Event()
        self._heartbeat: Heartbeat | None = None
        self._link = Link(dial(invitation, LINK), self._on_full)

    def run(self) -> str:
        """Serve the driver until it is gone; returns why it ended."""
        path = sys.path.copy()
        try:
            setup = self._receive_setup()
            if setup is None:
                return GONE
            keep_alive(self._link.socket, setup.heartbeat_timeout_s)
            peer = dial(self._invitation, HEARTBEAT)
            self._heartbeat = Heartbeat(peer, "the driver", setup.heartbeat_timeout_s, self._on_lost)
            if self._prepare(setup):
                if setup.notice_command:
                    asks = partial(self._ask_whether_to_leave, setup.notice_command)
                    threading.Thread(target=asks, name="sweep-notice", daemon=True).start()
                self._serve()
            return self._why_over
        finally:
            if self._engine is not None:
                self._engine.close()
            if self._staging is not None:
                self._staging.close()
            if self._lock >= 0:
                os.close(self._lock)
            sys.path[:] = path
            self._is_over.set()
            if self._heartbeat is not None:
                self._heartbeat.close()
            self._link.close()  # which the driver waits for

    # --- before the first trial --------------------------------------------------------------------------------------

    def _receive_setup(self) -> Setup | None:
        """Wait for what to run; None: the driver is gone."""
        poll = select.poll()
        poll.register(self._link.socket, select.POLLIN)
        while self._link.is_open:
            poll.poll()
            for message in self._link.receive():
                setup: Setup = message.setup
                return setup
        return None

    def _prepare(self, setup: Setup) -> bool:
        """Make the engine and say so; or say what is wrong here, and return False."""
        with contextlib.suppress(OSError):
            os.chdir(setup.cwd)
        problem = ""
        try:
            setup = self._at_home(setup)
            sys.path.extend(entry for entry in setup.path if entry not in sys.path and os.path.exists(entry))
            _check_imports(setup)
            limits.refuse_too_few()
            self._engine = self._make_engine(setup)
        except _UnfitError as error:
            problem = str(error)
        except (SweepError, OSError) as error:
            problem = f"{type(error).__name__}: {error}".rstrip(".")
        node = next((node for node in setup.context.nodes if node.id == self.node), None)
        others = () if self._engine is None else tuple(self._engine.claims())
        self.problem = problem
        self._link.send(wire.Prepared(node, problem, others, is_staged=self._staging is not None))
        while not self._link.is_empty:
            self._link.flush()
        return not problem

    def _at_home(self, setup: Setup) -> Setup:
        """Where this node does not see the driver's directory, make one of its own; files go through the storage."""
        directory, patience_s = setup.context.directory, 2 * setup.heartbeat_timeout_s
        is_staged = bool(setup.home) and os.environ.get(SHARED_VARIABLE) == "0"
        if not is_staged and _is_seen(directory, setup.witness, _SEEN_SOON_S if setup.home else _SEEN_S):
            self._lock = _lock_of(directory, self.node, patience_s)
            return setup
        if not setup.home:
            raise _UnfitError(
                f"it does not see the files of {directory}, where the driver writes. Expected a storage_path that "
                f"every node sees, such as a directory on a network file system, or a URI{setup.no_home}"
            )
        try:
            home = pickle.loads(setup.home)
        except Exception as error:  # whatever the package behind the file system raises, or its absence
            raise _UnfitError(f"the storage cannot be opened there: {type(error).__name__}: {error}") from error
        try:
            copy = NodeCopy(home, self.node)
        except OSError as error:
            raise _UnfitError(
                f"there is no directory for its trials: {error}. Set {CACHE_VARIABLE} to one on a disk of that node"
            ) from error
        self._lock = _lock_of(copy.root, self.node, patience_s)
        copy.clear()
        try:
            copy.bring_code()
        except Exception as error:  # likewise
            raise _UnfitError(f"it cannot read {home.remote}: {type(error).__name__}: {error}") from error
        if not Path(copy.own(directory, setup.stored.code)).exists():
            raise _UnfitError(
                f"it does not find in {home.remote} what the driver has written there. Expected storage that every "
                "node reaches, such as s3://bucket/sweeps"
            )
        self._staging = Staging(
            copy,
            setup.context.log_to_file or (),
            tell=self._link.send,
            emit=self._ready.append,
            wake=self._wake,
            say=self._on_notice,
        )
        return setup.in_copy(copy)

    def _make_engine(self, setup: Setup) -> LocalEngine:
        context = replace(
            setup.context, node=self.node, environ=self._environ, lock_fd=self._lock, notice=self._on_notice
        )
        jobs = JobMaker(context, setup.stored, payload=lambda trial: self._payloads[trial.id, trial.attempt])
        say_of = self._say_of if self._staging is None else partial(self._staging.say_of, say=self._say_of)
        return LocalEngine(context, jobs=jobs, say_of=say_of, memory_limit=self._memory_limit)

    # --- while trials run --------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        assert self._engine is not None
        engine, link = self._engine, self._link
        engine.loop.listen(link.socket.fileno(), self._on_link)
        if self._staging is not None:
            self._look()
        while not self._why_over:
            for event in engine.next_events(None):
                if isinstance(event, messages.Tick):
                    continue
                if isinstance(event, messages.Released | messages.Declined):
                    self._payloads.pop((event.trial_id, event.attempt), None)
                if self._staging is None:
                    self._ready.append(event)
                else:
                    self._staging.take(event)
            if self._staging is not None:
                self._staging.settle()
            if self._is_leaving and not self._has_told:
                self._has_told = True
                link.send(wire.Leaves())
            if self._ready or self._notices:
                link.send(wire.Happened(tuple(self._ready), tuple(self._notices)))
                self._ready.clear()
                self._notices.clear()

    def _look(self) -> None:
        """Send what trials have printed, again and again, unless the driver has not read the last of it."""
        assert self._engine is not None
        assert self._staging is not None
        if self._link.is_empty:
            self._staging.look()
        self._engine.loop.alarm(LOOK_S, self._look)

    def _on_link(self) -> None:
        assert self._engine is not None
        for message in self._link.receive():
            match message:
                case wire.Order(messages.Start(trial) as command, payload):
                    self._payloads[trial.id, trial.attempt] = payload
                    if self._staging is None:
                        self._engine.execute(command)
                    else:
                        self._staging.start(trial, partial(self._engine.execute, command))
                        self._wake()
                case wire.Order(command):
                    if self._staging is not None:
                        self._staging.hurry((command.trial_id, command.attempt))
                    self._engine.execute(command)
                case wire.Passed(trial_id, attempt, word):
                    key = (trial_id, attempt)
                    if self._staging is None:
                        self._engine.hear(key, word)
                    else:
                        self._staging.hear(key, word, self._engine.hear)
                case wire.Want(wanted):
                    self._engine.want(wanted)
        if not self._link.is_open:
            self._engine.loop.ignore(self._link.socket.fileno())
            self._end(GONE)

    def _say_of(self, key: tuple[str, int], word: Any) -> None:
        """Tell the driver what concerns an attempt with ranks on other machines."""
        self._link.send(wire.Passed(*key, word))

    def _on_full(self, link: Link, is_full: bool) -> None:
        if self._engine is not None:
            self._engine.loop.await_writable(link.socket.fileno(), link.flush if is_full else None)

    def _on_notice(self, text: str) -> None:
        self._notices.append(text)
        self._wake()

    def _ask_whether_to_leave(self, command: str) -> None:
        """Ask, again and again, until the command succeeds."""
        while subprocess.run(
            command, shell=True, stdin=subprocess.DEVNULL, capture_output=True, check=False
        ).returncode:
            if self._is_over.wait(_ASK_S):
                return
        self.leave()

    def leave(self) -> None:
        """Tell the driver that this node will be taken away; it ends the agent when what runs here has saved.

        May be called by a signal handler.
        """
        self._is_leaving = True
        self._wake()

    def _on_lost(self, why: str) -> None:
        """The driver is lost, says the heartbeat's thread: end everything, at last without ceremony."""
        self._end(why)
        if not self._is_over.wait(_END_S):
            os._exit(1)  # the processes below notice that by themselves

    def _end(self, why: str) -> None:
        """End the serving; called on the thread of the heartbeat, too."""
        self._why_over = self._why_over or why
        self._wake()

    def _wake(self) -> None:
        """Have `_serve` look at what there is; called by other threads, too."""
        if self._engine is not None:
            self._engine.post(messages.Tick())


class _UnfitError(SweepError):
    """Why trials of this run cannot run on this node."""


def _lock_of(root: Path, node: str, patience_s: float) -> int:
    """Return the lock that an agent and all it starts hold for life; the next one waits until none of them is left."""
    path = ExperimentLayout(root).code / f"agent-{node}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    give_up = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() > give_up:
                os.close(descriptor)
                raise SweepError(
                    f"processes of an earlier agent still hold {path} after {patience_s:g} s. End them first."
                ) from None
            time.sleep(_LOOK_S)


def _check_imports(setup: Setup) -> None:
    """Refuse a trainable whose modules are not here, as far as can be told without running it."""
    missing = [module for module in setup.context.trainable.imports if not _can_import(module)]
    if missing:
        raise _UnfitError(
            f"it cannot import {', '.join(missing)}, which the trainable needs. Install it there, or ship it with "
            "runtime_env={'pip': [...]} or {'working_dir': '.'}"
        )


def _is_seen(directory: Path, witness: tuple[str, str], patience_s: float) -> bool:
    """Whether a file that the driver has just written is there, once what this machine remembers is out of date."""
    name, said = witness
    path, give_up = directory / name, time.monotonic() + patience_s
    while True:
        with contextlib.suppress(OSError):
            if path.read_text() == said:
                return True
        # Only a directory that is there may be out of date; a path that leads nowhere will not come to life.
        if time.monotonic() > give_up or not path.parent.is_dir():
            return False
        with contextlib.suppress(OSError):
            os.listdir(path.parent)  # has an NFS client look again
        time.sleep(_LOOK_S)


def _can_import(module: str) -> bool:
    """Whether a module is found; none is run for that, but the packages around it."""
    if module in sys.modules or module in sys.builtin_module_names:
        return True
    try:
        return importlib.util.find_spec(module.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False


def witness(directory: Path, token: str) -> tuple[str, str]:
    """Write the file by which agents tell that they see this very directory; return its name and what it says."""
    name = f"{ExperimentLayout(directory).code.name}/driver-{token}"
    said = f"{socket.gethostname()} {os.getpid()} {token}"
    (directory / name).write_text(said)
    return name, said


@refuse_unknown()
def run_agent(invitation: str) -> str:
    """Be an agent in this process until its driver ends or the connection does; returns why it ended.

    Args:
        invitation: what `Cluster.summon` was given, as `invitation.to_json()`.

    Raises:
        ExperimentError: the driver cannot be reached, or does not let this agent in.
    """
    return Agent(Invitation.from_json(invitation)).run()


def main(environ: Mapping[str, str] | None = None) -> None:
    """Be an agent, as `Agent` says: the invitation comes as one line on standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C in the terminal is for the driver, which tells
    line = sys.stdin.readline()
    if not line:
        return
    try:
        agent = Agent(Invitation.from_json(line), environ=environ)
    except ExperimentError as error:
        print(error, file=sys.stderr)
        sys.exit(UNREACHED)
    for number in (signal.SIGTERM, signal.SIGUSR1):  # what batch systems send before they end a job
        signal.signal(number, lambda *_: agent.leave())
    why = agent.run()
    if agent.problem:
        print(f"no trial of this sweep can run here: {agent.problem}", file=sys.stderr)
        sys.exit(UNFIT)
    if why != GONE:
        print(f"the agent ended: {why}", file=sys.stderr)


if __name__ == "__main__":
    main()
