"""The engine that runs trials on several machines: an agent on each runs the local engine, this one joins them.

    driver ──Order──> agent of the trial's node ──> its local engine
    driver <─Happened── agents

A command goes to the agent of the node that the trial's first bundle lies on, or to those of all nodes that the ranks
of its group lie on, see `multi_node`; events of all agents become one sequence.
An agent that is lost takes its trials with it: `Exited(NODE_LOST)` of each, then the inventory without the node, then
`Released` of each. What the trials of a lost agent had started has ended by then, see `heartbeat`.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import socket
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import cloudpickle

from sweep.core import messages
from sweep.core.claims import Claim
from sweep.core.messages import Event, Exit, ExitKind
from sweep.core.resources import Node, Resources
from sweep.core.trial import Trial, evolve
from sweep.engines.base import Engine, EngineCommand, EngineContext
from sweep.engines.cluster.agent import Setup, context_for_agents, witness
from sweep.engines.cluster.handshake import HEARTBEAT, LINK, VERSION, Guest, Hello, Invitation, Listener, keep_alive
from sweep.engines.cluster.heartbeat import BEAT_S, HEARTBEAT_TIMEOUT_S, Heartbeat
from sweep.engines.cluster.log_relay import LogWriter
from sweep.engines.cluster.modules import ship_local_modules
from sweep.engines.cluster.multi_node import MultiNodeGroups
from sweep.engines.jobs import payload_of, store_trainable
from sweep.engines.link import Link
from sweep.engines.local.fork_server_client import own_path
from sweep.engines.loop import LoopEngine
from sweep.errors import ExperimentError
from sweep.record.layout import ExperimentLayout
from sweep.storage.nodes import Home
from sweep.worker import wire
from sweep.worker.group_environment import nodes_of


class Cluster(ABC):
    """Machines on which a run may have agents, from before it is built until it is over."""

    host: str = "127.0.0.1"  # of the interface on which the driver listens for the agents that are called next
    heartbeat_timeout_s: float = HEARTBEAT_TIMEOUT_S
    start_s: float = 60.0  # how long an agent may take to come
    idle_s: float = math.inf  # how long a node may run nothing before it is given back
    notice_command: str = ""  # of the shell, asked on each node whether that will be taken away: it is if this succeeds
    may_return: bool = True  # whether a node that was lost may come back by the same name

    @abstractmethod
    def nodes(self) -> Sequence[Node]:
        """Return the machines that are there, with what a run may use of each."""

    @property
    def away(self) -> Sequence[Node]:
        """Return the machines that may come and are not there."""
        return ()

    @abstractmethod
    def summon(self, node: str, invitation: Invitation) -> None:
        """Have an agent started on a node, at best at once, with an invitation for it; returns without waiting."""

    def problem(self, node: str) -> str:
        """Return why no agent has come from a node, as far as is known; empty: nothing is."""
        return ""

    changed: Callable[[], None] = staticmethod(lambda: None)  # see `watch`

    def watch(self, changed: Callable[[], None]) -> None:
        """Have `changed` called, on any thread, whenever `nodes`, `away` or `leaving` would return something else: a
        cluster calls `self.changed()`."""
        self.changed = changed

    def leaving(self) -> Collection[str]:
        """Return the nodes that will be taken away soon: trials there save and go on elsewhere."""
        return ()

    def request(self, waiting: Bundles, running: Bundles) -> None:  # noqa: B027  # a cluster may have all from the start
        """Hear what the trials that wait ask for, and what those that run hold, bundle by bundle, in Ray's names.

        Called on a thread of its own whenever that has changed."""

    def dismiss(self, node: str) -> None:  # noqa: B027  # or keep all to the end
        """Give back a node that ran nothing for `idle_s`, once its agent has ended; returns without waiting."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the machines, once the engine is closed. May be called twice."""

    def __call__(self, context: EngineContext) -> Engine:
        """Return the engine of a run on these machines."""
        return Agents(context, self)


Bundles = Sequence[Mapping[str, float]]

_AGAIN_S = (1.0, 2.0, 5.0, 10.0, 30.0)  # pauses before an agent that was lost is called again
_LOOK_S = 1.0  # between two looks at an agent that was called and has not come
_FIRST_CALLS = 3  # of an agent, before a sweep begins without it


@dataclass(slots=True, eq=False)
class _Member:
    """One node."""

    node: Node
    link: Link | None = None  # to its agent, once that is here
    heartbeat: Heartbeat | None = None
    is_ready: bool = False  # the agent runs an engine
    is_staged: bool = False  # it does not see the driver's directory; files go through remote storage
    is_called: bool = False  # an agent was called, and is not lost yet
    calls: int = 0  # since one was last ready
    called_at: float = 0.0  # the last time, on the monotonic clock
    others: tuple[Claim, ...] = ()  # what other sweeps keep from this one there, as the agent said last
    wanted: Resources | None = None  # what it was last told to look out for
    idle_since: float = math.inf  # on the monotonic clock; it runs something: endless
    is_leaving: bool = False  # it will be taken away
    has_left: bool = False  # its agent ended for that: no other one is called there


@dataclass(slots=True)
class _Attempt:
    """An attempt that lies on one node; `is_exited`: its exit was told."""

    node: str
    is_exited: bool = False


class Agents(LoopEngine):
    """Run trials on the nodes of a cluster."""

    def __init__(self, context: EngineContext, cluster: Cluster) -> None:
        """Store the trainable in the experiment, call an agent on each node and wait for them.

        Raises:
            ExperimentError: no agent came, or one that came cannot run the trials; every one is named by its node.
            TrainableError: objects given by `with_parameters` cannot be stored.
        """
        super().__init__(context.start_at)
        self._context = context
        self._cluster = cluster
        self.notices: list[str] = []
        self._say = context.notice or self.notices.append
        self._members = {node.id: _Member(node) for node in context.nodes}
        self._attempts: dict[tuple[str, int], _Attempt] = {}  # that lie on one node, until they are released
        self._told: tuple[Claim, ...] = ()  # what others keep from this sweep, as the sweep knows it
        self._wanted: Resources | None = None
        self._given_back: set[str] = set()  # nodes that ran nothing, and have not been called since
        self._unheard: set[_Member] = set()  # who have not been told of a wanted since they spoke of others
        self._is_closed = self._has_begun = False
        self._multi_node = MultiNodeGroups(self._send, self._emit, self._loop.alarm, self._say)
        layout = ExperimentLayout(context.directory.absolute())
        stored = store_trainable(context.trainable, layout)
        self._witness = witness(layout.root, secrets.token_hex(8))
        modules = ship_local_modules(layout.code, self._say)
        home, no_home = _portable(context.home)
        self._home = context.home if home else None
        if self._home is not None:
            self._send_code(layout.root, [*stored, modules])
        self._logs = LogWriter(layout.root, context.log_limit_bytes, self._say)
        self._setup = Setup(
            replace(context_for_agents(context), claims_as=secrets.token_hex(8)),
            stored,
            path=[*own_path(), *filter(None, [modules])],
            cwd=os.getcwd(),
            heartbeat_timeout_s=cluster.heartbeat_timeout_s,
            witness=self._witness,
            home=home,
            no_home=no_home,
            notice_command=cluster.notice_command,
        )
        self._listeners: dict[str, Listener] = {}  # by the address that they listen on
        self._problems: dict[str, str] = {}
        try:
            for member in self._members.values():
                self._summon(member)
            self._await_members()
        except BaseException:
            self.close()
            raise
        self._has_begun = True
        self._events.clear()  # what came first is what `nodes` says
        cluster.watch(lambda: self._call(self._on_machines))
        if {node.id for node in cluster.nodes()} - self._members.keys():  # who came meanwhile
            self._call(self._on_machines)
        self._loop.alarm(_LOOK_S, self._look_for_idle)

    # --- the contract ------------------------------------------------------------------------------------------------

    def nodes(self) -> Sequence[Node]:
        return tuple(one.node for one in self._members.values() if one.is_ready and not one.is_leaving)

    @property
    def away(self) -> Sequence[Node]:  # type: ignore[override]  # computed
        """The nodes that are known, or may come, and have no agent now; one that has just come may still be news."""
        known = [one.node for one in self._members.values() if not one.is_ready or one.is_leaving]
        others = {node.id: node for node in (*self._cluster.away, *self._cluster.nodes())}  # who comes meanwhile: both
        return (*known, *(node for node in others.values() if node.id not in self._members))

    def execute(self, command: EngineCommand) -> None:
        """Begin to carry out a command; commands to attempts that are gone are ignored."""
        if self._is_closed:
            return
        if isinstance(command, messages.Start):
            self._start(command.trial)
            return
        key = (command.trial_id, command.attempt)
        if key in self._multi_node:
            self._multi_node.execute(key, command)
        attempt = self._attempts.get(key)
        if attempt is not None and not attempt.is_exited:
            self._send(attempt.node, wire.Order(command))

    def _turn(self, timeout_s: float | None) -> None:
        self._loop.run_once(timeout_s)
        for posted in self._loop.take_posted():
            if callable(posted):
                posted()
            else:
                self._events.append(posted)

    def claims(self) -> Sequence[Claim]:
        self._told = self._others()
        return self._told

    def want(self, wanted: Resources | None) -> None:
        """Have agents look out where other sweeps keep something; each is answered whenever it has spoken of them."""
        members = self._unheard if wanted == self._wanted else self._members.values()
        self._wanted = wanted
        for member in members:
            wanted = wanted if member.others else None
            if member.link is not None and member.is_ready and (member in self._unheard or wanted != member.wanted):
                member.wanted = wanted
                member.link.send(wire.Want(wanted))
        self._unheard.clear()

    def close(self) -> None:
        """End every agent, and return when what they have started is gone."""
        if self._is_closed:
            return
        self._is_closed = True
        for listener in self._listeners.values():
            listener.close()
        waiting = []
        for member in self._members.values():
            if member.link is not None:
                self._loop.ignore(member.link.socket.fileno())
                with contextlib.suppress(OSError):  # it is gone
                    member.link.socket.shutdown(socket.SHUT_WR)  # an agent closes its end when it is done
                waiting.append(member.link.socket)
        give_up = time.monotonic() + 2 * self._cluster.heartbeat_timeout_s  # by then its own timeout has ended it
        for ended in waiting:
            _await_end(ended, give_up)
        for member in self._members.values():
            if member.heartbeat is not None:
                member.heartbeat.close()
        self._cluster.close()
        (self._context.directory.absolute() / self._witness[0]).unlink(missing_ok=True)
        self._end_staging()
        self._loop.close()

    def _send_code(self, root: Path, paths: Sequence[str]) -> None:
        assert self._home is not None
        try:
            self._home.send_code(root, paths, self._context.start_from)
        except Exception as error:  # whatever the package behind the file system raises
            raise ExperimentError(
                f"what trials are made of cannot be written to {self._home.remote}: {type(error).__name__}: {error}. "
                "Nothing was started."
            ) from error

    def _end_staging(self) -> None:
        if self._home is not None:
            try:
                self._home.staging.remove_tree()
            except Exception as error:  # whatever the package behind the file system raises; the next run deletes it
                self._say(
                    f"{self._home.staging} could not be deleted ({type(error).__name__}: {error}); it holds "
                    "what trials were made of"
                )

    # --- agents ------------------------------------------------------------------------------------------------------

    def _call(self, function: Callable[[], None]) -> None:
        """Have a function called on the engine's thread."""
        self._loop.post(function)  # type: ignore[arg-type]  # no event: `_turn` takes it out

    def _summon(self, member: _Member) -> None:
        self._given_back.discard(member.node.id)
        member.is_called = True
        member.calls += 1
        member.called_at = called_at = time.monotonic()
        host = self._cluster.host
        if host not in self._listeners:
            self._listeners[host] = Listener(host, lambda guest: self._call(lambda: self._on_guest(guest)))
        self._cluster.summon(member.node.id, self._listeners[host].invitation(member.node.id))
        self._loop.alarm(_LOOK_S, lambda: self._look_for(member, called_at))

    def _look_for(self, member: _Member, called_at: float) -> None:
        """See whether an agent that was called still comes: one that ends before it has connected tells nobody."""
        if self._is_closed or member.is_ready or not member.is_called or member.called_at != called_at:
            return
        why = "" if member.link is not None else self._cluster.problem(member.node.id)
        if not why and time.monotonic() - called_at > self._cluster.start_s:
            why = self._why_missing(member)
        if why:
            self._on_lost(member, why)
        else:
            self._loop.alarm(_LOOK_S, lambda: self._look_for(member, called_at))

    def _on_guest(self, guest: Guest) -> None:
        """An agent that knows the key is here."""
        member = self._members.get(guest.hello.node)
        if self._is_closed or member is None:
            guest.socket.close()
        elif (member.link if guest.hello.purpose == LINK else member.heartbeat) is not None:
            guest.socket.close()  # a second one for the same node
        elif guest.hello.purpose == HEARTBEAT:
            timeout_s = self._cluster.heartbeat_timeout_s
            member.heartbeat = Heartbeat(
                guest.socket,
                "its agent",
                2 * timeout_s,
                lambda why: self._call(lambda: self._on_lost(member, why)),
                mute_s=max(1.5 * BEAT_S, timeout_s - 2 * BEAT_S),
            )
        else:
            problem = misfit(guest.hello)
            if problem:
                guest.socket.close()
                self._on_problem(member, problem)
                return
            keep_alive(guest.socket, self._cluster.heartbeat_timeout_s)
            link = Link(guest.socket, self._on_full)
            member.link = link
            self._loop.listen(guest.socket.fileno(), lambda: self._on_link(member, link))
            nodes = tuple(one.node for one in self._members.values())  # with those that came after the beginning
            link.send(wire.Prepare(replace(self._setup, context=replace(self._setup.context, nodes=nodes))))

    def _on_full(self, link: Link, is_full: bool) -> None:
        self._loop.await_writable(link.socket.fileno(), link.flush if is_full else None)

    def _on_link(self, member: _Member, link: Link) -> None:
        for message in link.receive():
            match message:
                case wire.Prepared(_, problem) if problem:
                    self._on_problem(member, problem)
                case wire.Prepared(node, _, others, is_staged):
                    member.node, member.is_staged, member.is_ready, member.calls = node, is_staged, True, 0
                    self._say_nodes()
                    self._on_others(member, others)
                case wire.Happened(events, notices):
                    for text in notices:
                        self._say(f"{member.node.id}: {text}" if len(self._members) > 1 else text)
                    for event in events:
                        if isinstance(event, messages.Declined):
                            self._unheard.add(member)
                        if not self._multi_node.take(member.node.id, event):
                            self._on_event(member, event)
                case wire.Leaves():
                    self._on_leaving(member)
                case wire.Written() as written:
                    self._logs.write(written)
                case wire.Passed(trial_id, attempt, word):
                    self._multi_node.hear(member.node.id, (trial_id, attempt), word)
        if not link.is_open and member.link is link:
            self._on_lost(member, "its agent ended")

    def _on_event(self, member: _Member, event: Event) -> None:
        match event:
            case messages.Exited(trial_id, attempt):
                self._attempts[trial_id, attempt].is_exited = True
            case messages.ClaimsChanged(others):
                self._on_others(member, others)
                return
            case messages.Released(trial_id, attempt) | messages.Declined(trial_id, attempt):
                self._attempts.pop((trial_id, attempt), None)
                self._logs.end((trial_id, attempt))
            case messages.NodesChanged(nodes):  # a device there never became clean
                member.node = next((node for node in nodes if node.id == member.node.id), member.node)
                self._say_nodes()
                return
        self._events.append(event)

    def _others(self) -> tuple[Claim, ...]:
        """Return what other sweeps keep from this one on all nodes."""
        return tuple([claim for member in self._members.values() for claim in member.others])

    def _on_others(self, member: _Member, others: Sequence[Claim]) -> None:
        """Take what an agent says of its node, and tell the sweep of all nodes, if that is news."""
        if member.others or others:
            member.others = tuple(others)
            self._unheard.add(member)
            if (told := self._others()) != self._told:
                self._told = told
                self._events.append(messages.ClaimsChanged(told))

    def _on_problem(self, member: _Member, problem: str) -> None:
        """The agent of a node cannot run trials."""
        self._problems[member.node.id] = problem
        if self._has_begun:
            self._say(f"trials cannot run on {member.node.id}: {problem}")
        self._on_lost(member, problem)
        if self._has_begun and not self._cluster.may_return:
            if not any(one.is_ready for one in self._members.values()):
                raise ExperimentError(self._why_not([member]))
            self._cluster.dismiss(member.node.id)

    def _on_lost(self, member: _Member, why: str) -> None:
        """An agent is gone, and so is what it ran; without a `why` it ran nothing more and has left in time."""
        if self._is_closed or not member.is_called:
            return
        member.is_called = False
        was_ready, member.is_ready = member.is_ready, False
        self._hang_up(member)
        running = {key: attempt for key, attempt in self._attempts.items() if attempt.node == member.node.id}
        error = f"node {member.node.id} was lost: {why}" if why else f"node {member.node.id} has left in time"
        num_lost = len(running) + self._multi_node.count(member.node.id)
        self._multi_node.lose(member.node.id, error)
        for key, attempt in running.items():
            del self._attempts[key]
            if not attempt.is_exited:
                self._events.append(messages.Exited(*key, Exit(ExitKind.NODE_LOST, error=error)))
        if was_ready:
            self._say(error + (f"; {num_lost} of its trials start again" if num_lost else ""))
            self._say_nodes()
            self._on_others(member, ())
        member.wanted, member.is_leaving = None, False
        member.has_left = not why and not self._cluster.may_return
        self._unheard.discard(member)
        for key in running:
            self._emit(messages.Released(*key))
        self._multi_node.settle()
        if member.node.id not in self._problems:
            pause_s = _AGAIN_S[min(member.calls, len(_AGAIN_S) - 1)]
            self._loop.alarm(pause_s, lambda: self._call_again(member))

    def _call_again(self, member: _Member) -> None:
        """Call an agent to a node whose last one was lost, if the cluster has that node."""
        if self._is_closed or member.is_called:
            return
        is_there = any(node.id == member.node.id for node in self._cluster.nodes())
        if is_there and member.has_left:
            self._loop.alarm(_LOOK_S, lambda: self._call_again(member))
        elif is_there and not self._is_to_leave(member):
            self._summon(member)
        elif not self._cluster.may_return:
            self._members.pop(member.node.id, None)
            self._say_nodes()

    def _is_to_leave(self, member: _Member) -> bool:
        return member.has_left or member.node.id in self._cluster.leaving()

    def _on_leaving(self, member: _Member) -> None:
        """A node will be taken away: nothing more starts there, and the sweep takes what runs there elsewhere."""
        if member.is_ready and not member.is_leaving:
            member.is_leaving = True
            self._say(f"node {member.node.id} will be taken away: its trials save and go on elsewhere")
            self._say_nodes()

    def _look_for_idle(self) -> None:
        """Give back what has run nothing for long."""
        if self._is_closed:
            return
        now = time.monotonic()
        busy = {attempt.node for attempt in self._attempts.values()} | self._multi_node.nodes()
        ready = [member for member in self._members.values() if member.is_ready]
        for member in ready:
            member.idle_since = math.inf if member.node.id in busy else min(member.idle_since, now)
            if member.is_leaving and member.idle_since < math.inf:
                self._on_lost(member, "")
            elif now - member.idle_since > self._cluster.idle_s:
                self._dismiss(member)
        self._loop.alarm(_LOOK_S, self._look_for_idle)

    def _dismiss(self, member: _Member) -> None:
        """Have the agent of a node that runs nothing end, and the node given back."""
        del self._members[member.node.id]
        self._given_back.add(member.node.id)
        member.is_called = member.is_ready = False
        self._hang_up(member)
        self._cluster.dismiss(member.node.id)
        self._say(f"node {member.node.id} ran nothing for {self._cluster.idle_s:g} s and is given back")
        self._say_nodes()
        self._on_others(member, ())
        self._unheard.discard(member)

    def _hang_up(self, member: _Member) -> None:
        if member.link is not None:
            self._loop.ignore(member.link.socket.fileno())
            member.link.close()
            member.link = None
        if member.heartbeat is not None:
            member.heartbeat.close()
            member.heartbeat = None

    def _on_machines(self) -> None:
        """The cluster has other machines than before."""
        nodes = self._cluster.nodes()
        self._problems = {node.id: self._problems[node.id] for node in nodes if node.id in self._problems}
        for node in nodes:
            member = self._members.setdefault(node.id, _Member(node))
            member.node = replace(member.node, address=node.address)  # another one may have come from elsewhere
            if not member.is_called and node.id not in self._problems and not self._is_to_leave(member):
                member.node = node
                self._summon(member)
        for name in self._cluster.leaving():
            if (leaving := self._members.get(name)) is not None:
                self._on_leaving(leaving)
        self._say_nodes()

    def _say_nodes(self) -> None:
        self._events.append(messages.NodesChanged(tuple(self.nodes()), tuple(self.away)))

    def _await_members(self) -> None:
        """Wait for every agent, or until it is clear that some will not come."""
        give_up = time.monotonic() + self._cluster.start_s
        while any(self._may_come(member) for member in self._members.values()) and time.monotonic() < give_up:
            self._turn(max(0.0, min(1.0, give_up - time.monotonic())))
        missing = [member for member in self._members.values() if not member.is_ready]
        if self._problems or (len(missing) == len(self._members) and (missing or not self.away)):
            raise ExperimentError(self._why_not(missing))
        if (num_staged := sum(member.is_staged for member in self._members.values())) and self._home is not None:
            self._say(
                f"{num_staged} of {len(self._members)} nodes do not see {self._context.directory}: their trials' files "
                f"go through {self._home.remote}"
            )
        for member in missing:
            self._say(
                f"node {member.node.id} is not there yet: {self._why_missing(member)}; the sweep begins without it"
            )

    def _may_come(self, member: _Member) -> bool:
        """Whether an agent is not there yet, and worth waiting for."""
        if member.is_ready or member.is_called or self._problems:
            return member.is_called and not member.is_ready
        return member.calls < _FIRST_CALLS and any(node.id == member.node.id for node in self._cluster.nodes())

    def _why_not(self, missing: Sequence[_Member]) -> str:
        """Return why the run cannot begin, node by node."""
        named = [member for member in missing if member.node.id in self._problems] or missing
        told = [
            f"{member.node.id}: {self._problems.get(member.node.id) or self._why_missing(member)}" for member in named
        ]
        more = f" (and {len(told) - 4} more nodes)" if len(told) > 4 else ""
        if not told:
            return "trials cannot run: the cluster has no node, and none that may come. Nothing was started."
        return f"trials cannot run on {'; on '.join(told[:4])}{more}. Nothing was started."

    def _why_missing(self, member: _Member) -> str:
        why = self._cluster.problem(member.node.id)
        return why or f"no agent came from there within {self._cluster.start_s:g} s"

    # --- trials ------------------------------------------------------------------------------------------------------

    def _start(self, trial: Trial) -> None:
        assert trial.placement is not None
        key = (trial.id, trial.attempt)
        payload = payload_of(trial, self._context)
        bundles = trial.placement.bundles
        names = (bundles[0].node,) if payload.group is None else nodes_of(trial.placement, payload.group)
        members = [self._members.get(name) for name in names]
        if self._given_back.intersection(names):  # after the core had placed the trial there
            self._events.append(messages.Declined(*key))
            return
        for name, member in zip(names, members, strict=True):
            if member is None or not member.is_ready or member.link is None:
                # It was lost after the core had placed the trial there.
                lost = Exit(ExitKind.NODE_LOST, error=f"node {name} was lost before the trial started there")
                self._events += [messages.Exited(*key, lost), messages.Released(*key)]
                return
        # The user's own objects stay here.
        bare = evolve(trial, config={}, last_result=None, best_result=None, pending=None)
        found = [member for member in members if member is not None]
        if len(found) > 1:
            self._multi_node.start(bare, replace(payload, nodes=tuple(member.node for member in found)), names)
            return
        self._attempts[key] = _Attempt(names[0])
        self._send(names[0], wire.Order(messages.Start(bare), payload))

    def _send(self, node: str, message: wire.ToAgent) -> None:
        member = self._members.get(node)
        if member is not None and member.link is not None:
            member.link.send(message)

    def _emit(self, event: Event) -> None:
        if isinstance(event, messages.Released):
            self._logs.end((event.trial_id, event.attempt))
        self._events.append(event)


def unheld(amounts: Mapping[str, float], bundles: Bundles) -> list[Mapping[str, float]]:
    """Return which bundles do not fit into what is there beside those before them."""
    free, rest = dict(amounts), []
    for bundle in bundles:
        if covers(free, bundle):
            free |= {name: free.get(name, 0.0) - amount for name, amount in bundle.items()}
        else:
            rest.append(bundle)
    return rest


def covers(there: Mapping[str, float], amounts: Mapping[str, float]) -> bool:
    """Whether all these amounts are there."""
    return all(there.get(name, 0.0) >= amount for name, amount in amounts.items())


def misfit(hello: Hello) -> str:
    """Return why an agent of other versions cannot be used; empty: it can."""
    here = ".".join(map(str, sys.version_info[:2]))
    if hello.version != VERSION:
        return f"it has sweep {hello.version}, the driver {VERSION}. Install the same version everywhere"
    if hello.python != here:
        return f"it runs Python {hello.python}, the driver {here}: functions cannot be shipped between them"
    return ""


def _portable(home: Home | None) -> tuple[bytes, str]:
    """Return the remote storage as other machines get it; empty, and why, where they cannot."""
    if home is None:
        return b"", ""
    try:
        return cloudpickle.dumps(home), ""
    except Exception as error:  # whatever the file system's own __reduce__ raises
        return b"", (
            f"; {home.remote} is one, but its file system cannot be sent to other machines "
            f"({type(error).__name__}: {error})"
        )


def _await_end(peer: socket.socket, give_up: float) -> None:
    """Wait until the other side has closed its end, at most until `give_up` on the monotonic clock; close this one."""
    with contextlib.suppress(OSError):
        while True:
            peer.settimeout(max(0.01, give_up - time.monotonic()))
            if not peer.recv(1 << 16) or time.monotonic() > give_up:
                break
    peer.close()
