"""Attempts whose ranks lie on several nodes: what becomes of them on each, joined to one exit and one release.

    Start ──> agent of rank 0's node ──> its supervisor is there  ──NodeReady──┐
          ──> agents of the others   ──> theirs, too              ──NodeReady──┴─> Meet, to all: the ranks are made
    Continue, Save, Stop ──> rank 0's node        Kill ──> all of them
    Relayed: between the supervisor of rank 0 and the others

Nothing of the user's runs before every node is ready. Where another sweep has claimed the place on one node meanwhile,
the others give theirs back, and the attempt as a whole was declined. A node on which the kernel refuses processes has
all the others give back what they hold, and all are tried again later: so no group holds a part of what another needs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sweep.core import messages
from sweep.core.messages import Event, Exit, ExitKind
from sweep.core.trial import Trial
from sweep.engines.exits import unstarted
from sweep.engines.jobs import Payload
from sweep.worker import wire
from sweep.worker.limits import describe_shortage

_AGAIN_S = 0.1  # pause after a refusal; it doubles
_MOST_AGAIN_S = 5.0

_NEVER_BEGAN = Exit(ExitKind.KILLED, error="another sweep has claimed its place")

Key = tuple[str, int]


@dataclass(slots=True, eq=False)
class _NodeState:
    """The attempt on one node, from a start to its release."""

    ports: tuple[int, ...] | None = None  # for its ranks there, once its supervisor is there
    exit: Exit | None = None  # how it ended there
    is_released: bool = False  # what it held there is clean


@dataclass(slots=True, eq=False)
class _MultiNodeGroup:
    """One attempt."""

    trial: Trial
    payload: Payload
    nodes: Sequence[str]  # that it lies on; rank 0 is on the first
    on_nodes: dict[str, _NodeState] = field(default_factory=dict)  # empty: it waits to be tried again
    has_met: bool = False  # all were told to make their ranks
    is_ending: bool = False  # all were told to end
    verdict: Exit | None = None  # how it ended, if that is not for rank 0's supervisor to say
    refused: str = ""  # what the kernel refuses, and where; empty: nothing, since it was last tried
    is_declined: bool = False  # another sweep has claimed a part of its place
    pause_s: float = _AGAIN_S  # until it is tried again
    is_exit_told: bool = False  # the core knows that it ended

    @property
    def key(self) -> Key:
        return self.trial.id, self.trial.attempt

    @property
    def first(self) -> str:
        """The node of rank 0."""
        return self.nodes[0]

    @property
    def is_started(self) -> bool:
        """Whether its ranks were made, so that rank 0's supervisor says how it ends."""
        return self.has_met and not self.refused

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs, and it is not to be tried again."""
        return all(state.exit is not None for state in self.on_nodes.values()) and (
            bool(self.on_nodes) or self.verdict is not None
        )


@dataclass(eq=False)
class MultiNodeGroups:
    """All such attempts of an engine."""

    send: Callable[[str, wire.ToAgent], None]  # to the agent of a node; one that is gone is told by `lose`
    emit: Callable[[Event], None]  # to the core
    alarm: Callable[[float, Callable[[], None]], None]  # calls a function after so many seconds
    notice: Callable[[str], None]  # called once for each kind of shortage, with a line for the user
    _groups: dict[Key, _MultiNodeGroup] = field(default_factory=dict, init=False)
    _noticed: set[str] = field(default_factory=set, init=False)

    def __contains__(self, key: Key) -> bool:
        return key in self._groups

    def start(self, trial: Trial, payload: Payload, nodes: Sequence[str]) -> None:
        """Begin an attempt on some nodes, all of which have an agent; rank 0 is on the first."""
        group = _MultiNodeGroup(trial, payload, nodes)
        self._groups[group.key] = group
        self._try(group)

    def execute(self, key: Key, command: messages.Continue | messages.Save | messages.Stop | messages.Kill) -> None:
        """Carry out a command to an attempt that is known."""
        group = self._groups[key]
        match command:
            case messages.Kill():
                if not group.is_started:
                    group.verdict = group.verdict or unstarted(command)
                self._end(group, command)
            case messages.Stop() if not group.is_started:
                group.verdict = group.verdict or unstarted(None)
                self._end(group)
            case _:
                self._send(group, group.first, wire.Order(command))
        self._settle(group)

    def hear(self, node: str, key: Key, word: Any) -> None:
        """Take in what the agent of a node says of an attempt."""
        group = self._groups.get(key)
        state = group.on_nodes.get(node) if group is not None else None
        if group is None or state is None:
            return
        match word:
            case wire.NodeReady(ports):
                state.ports = ports
                self._meet(group)
            case wire.Refused(errno):
                self._refuse(group, node, errno)
            case wire.Relayed(node=to) if node == group.first:
                for other in group.nodes[1:] if not to else (to,):
                    self._send(group, other, wire.Passed(*key, word._replace(node=other)))
            case wire.Relayed():
                self._send(group, group.first, wire.Passed(*key, word._replace(node=node)))

    def take(self, node: str, event: Event) -> bool:
        """Take in an event of the engine of a node; False: it concerns none of these attempts."""
        if not isinstance(event, messages.Exited | messages.Released | messages.Declined):
            return False
        group = self._groups.get((event.trial_id, event.attempt))
        state = group.on_nodes.get(node) if group is not None else None
        if group is None or state is None:
            return False
        if isinstance(event, messages.Released):
            state.is_released = True
        elif isinstance(event, messages.Declined):
            state.exit, state.is_released = _NEVER_BEGAN, True
            group.is_declined = True
            self._end(group)
        else:
            state.exit = event.exit
            # Rank 0's supervisor ends when every rank is gone, another when its own are; if not, it never got so far.
            if node != group.first and event.exit.kind is not ExitKind.FINISHED and not group.is_ending:
                group.verdict = event.exit
            if node == group.first or group.verdict is not None:
                self._end(group)
        self._settle(group)
        return True

    def lose(self, node: str, error: str) -> None:
        """The agent of a node is gone, with all that it ran: so are the attempts that lay there. Their devices are
        released by `settle`."""
        for group in list(self._groups.values()):
            if node not in group.nodes or group.is_exit_told:
                continue
            first = group.on_nodes.get(group.first)
            lost = Exit(ExitKind.NODE_LOST, error=error)
            if first is None or first.exit is None or group.refused:
                group.verdict = group.verdict or lost
            state = group.on_nodes.get(node)
            if state is not None:
                state.exit = state.exit or lost
            self._end(group)
            self._tell_exit(group)
        for group in self._groups.values():
            if node in group.on_nodes:
                group.on_nodes[node].is_released = True

    def settle(self) -> None:
        """Release what is over, after a node was lost."""
        for group in list(self._groups.values()):
            self._settle(group)

    def count(self, node: str) -> int:
        """Return how many attempts lie on a node."""
        return sum(node in group.nodes for group in self._groups.values())

    def nodes(self) -> set[str]:
        """Return the nodes on which attempts lie."""
        return {node for group in self._groups.values() for node in group.nodes}

    # --- one attempt -------------------------------------------------------------------------------------------------

    def _send(self, group: _MultiNodeGroup, node: str, message: wire.ToAgent) -> None:
        state = group.on_nodes.get(node)
        if state is not None and state.exit is None:
            self.send(node, message)

    def _try(self, group: _MultiNodeGroup) -> None:
        group.refused, group.has_met, group.is_ending = "", False, False
        group.on_nodes = {node: _NodeState() for node in group.nodes}
        for node in group.nodes:
            self._send(group, node, wire.Order(messages.Start(group.trial), group.payload))

    def _try_again(self, group: _MultiNodeGroup) -> None:
        if self._groups.get(group.key) is group and not group.on_nodes:
            self._try(group)

    def _meet(self, group: _MultiNodeGroup) -> None:
        """Have the ranks made once every node is ready."""
        ready = {node: state.ports for node, state in group.on_nodes.items() if state.ports is not None}
        if len(ready) < len(group.nodes) or group.is_ending or group.has_met:
            return
        group.has_met = True
        for node in group.nodes:
            self._send(group, node, wire.Passed(*group.key, wire.Meet(ready)))

    def _refuse(self, group: _MultiNodeGroup, node: str, errno: int) -> None:
        if group.is_ending:
            return
        shortage = describe_shortage(OSError(errno, ""))
        group.refused = f"cannot start on {node}: {shortage}"
        self.emit(messages.Waiting(group.trial.id, group.refused))
        if shortage not in self._noticed:
            self._noticed.add(shortage)
            self.notice(
                f"a training group cannot start: the kernel of {node} allows no more {shortage}; it is tried again"
            )
        self._end(group)

    def _end(self, group: _MultiNodeGroup, kill: messages.Kill | None = None) -> None:
        """Have what is left of it ended everywhere."""
        if group.is_ending:
            return
        group.is_ending = True
        for node in group.nodes:
            self._send(group, node, wire.Order(kill or messages.Kill(*group.key)))

    def _settle(self, group: _MultiNodeGroup) -> None:
        """Say what is to be said by now."""
        if self._groups.get(group.key) is not group:
            return
        are_released = all(state.is_released for state in group.on_nodes.values())
        if group.is_declined and group.verdict is None:
            if are_released:
                del self._groups[group.key]
                self.emit(messages.Declined(*group.key))
            return
        if group.refused and group.verdict is None:
            if group.on_nodes and are_released:
                group.on_nodes = {}
                pause_s, group.pause_s = group.pause_s, min(2 * group.pause_s, _MOST_AGAIN_S)
                # Groups that take each other's processes must not try in step.
                self.alarm(pause_s * random.uniform(0.5, 1.0), lambda: self._try_again(group))
            return
        self._tell_exit(group)
        if group.is_exit_told and are_released:
            del self._groups[group.key]
            self.emit(messages.Released(*group.key))

    def _tell_exit(self, group: _MultiNodeGroup) -> None:
        if group.is_exit_told or not group.is_over or (group.refused and group.verdict is None):
            return
        group.is_exit_told = True
        exits = [state.exit for state in group.on_nodes.values() if state.exit is not None]
        first = group.on_nodes.get(group.first)
        told = first.exit if first is not None else None
        if told is None or (group.verdict is not None and told.kind not in (ExitKind.FINISHED, ExitKind.STOPPED)):
            told = group.verdict
        assert told is not None
        peak = sum(one.peak_rss_bytes for one in exits)
        self.emit(messages.Exited(*group.key, replace(told, peak_rss_bytes=peak)))
