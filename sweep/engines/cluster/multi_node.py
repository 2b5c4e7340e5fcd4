"""Attempts whose ranks lie on several nodes: what becomes of them on each, joined to one exit and one release.

    Start ──> agent of rank 0's node ──> its host is there ──PartReady──┐
          ──> agents of the others   ──> theirs, too       ──PartReady──┴─> Meet, to all: the ranks are made
    Continue, Save, Stop ──> rank 0's node        Kill ──> all of them
    Relayed: between the host of rank 0 and the others

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
from sweep.engines.exits import NOT_STARTED
from sweep.engines.jobs import Brief
from sweep.worker import wire
from sweep.worker.limits import describe_shortage

_AGAIN_S = 0.1  # pause after a refusal; it doubles
_MOST_AGAIN_S = 5.0

_NEVER_BEGAN = Exit(ExitKind.KILLED, error="another sweep has claimed its place")

Key = tuple[str, int]


@dataclass(slots=True, eq=False)
class _Part:
    """The attempt on one node, from a start to its release.

    Attributes:
        ready: its host is there.
        exit: how it ended there.
        is_released: what it held there is clean.
    """

    ready: wire.PartReady | None = None
    exit: Exit | None = None
    is_released: bool = False


@dataclass(slots=True, eq=False)
class _Span:
    """One attempt.

    Attributes:
        nodes: that it lies on; rank 0 is on the first.
        parts: by node; empty: it waits to be tried again.
        has_met: all were told to make their ranks.
        is_ending: all were told to end.
        verdict: how it ended, if that is not for rank 0's host to say.
        refused: what the kernel refuses, and where; empty: nothing, since it was last tried.
        is_declined: another sweep has claimed a part of its place.
        pause_s: until it is tried again.
        is_exit_told: the core knows that it ended.
    """

    trial: Trial
    brief: Brief
    nodes: Sequence[str]
    parts: dict[str, _Part] = field(default_factory=dict)
    has_met: bool = False
    is_ending: bool = False
    verdict: Exit | None = None
    refused: str = ""
    is_declined: bool = False
    pause_s: float = _AGAIN_S
    is_exit_told: bool = False

    @property
    def key(self) -> Key:
        return self.trial.id, self.trial.attempt

    @property
    def first(self) -> str:
        """The node of rank 0."""
        return self.nodes[0]

    @property
    def is_started(self) -> bool:
        """Whether its ranks were made, so that rank 0's host says how it ends."""
        return self.has_met and not self.refused

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs, and it is not to be tried again."""
        return all(part.exit is not None for part in self.parts.values()) and (
            bool(self.parts) or self.verdict is not None
        )


@dataclass(eq=False)
class Spans:
    """All such attempts of an engine.

    Attributes:
        send: writes to the agent of a node; one that is gone is told by `lose`.
        emit: hands an event to the core.
        alarm: calls a function after so many seconds.
        notice: called once for each kind of shortage, with a line for the user.
    """

    send: Callable[[str, wire.ToAgent], None]
    emit: Callable[[Event], None]
    alarm: Callable[[float, Callable[[], None]], None]
    notice: Callable[[str], None]
    _spans: dict[Key, _Span] = field(default_factory=dict, init=False)
    _noticed: set[str] = field(default_factory=set, init=False)

    def __contains__(self, key: Key) -> bool:
        return key in self._spans

    def start(self, trial: Trial, brief: Brief, nodes: Sequence[str]) -> None:
        """Begin an attempt on some nodes, all of which have an agent; rank 0 is on the first."""
        span = _Span(trial, brief, nodes)
        self._spans[span.key] = span
        self._try(span)

    def execute(self, key: Key, command: messages.Continue | messages.Save | messages.Stop | messages.Kill) -> None:
        """Carry out a command to an attempt that is known."""
        span = self._spans[key]
        match command:
            case messages.Kill(kind=kind, reason=reason):
                if not span.is_started:
                    span.verdict = span.verdict or Exit(kind, error=reason or "killed")
                self._end(span, command)
            case messages.Stop() if not span.is_started:
                span.verdict = span.verdict or Exit(ExitKind.STOPPED, error=NOT_STARTED)
                self._end(span)
            case _:
                self._send(span, span.first, wire.Order(command))
        self._settle(span)

    def hear(self, node: str, key: Key, word: Any) -> None:
        """Take in what the agent of a node says of an attempt."""
        span = self._spans.get(key)
        part = span.parts.get(node) if span is not None else None
        if span is None or part is None:
            return
        match word:
            case wire.PartReady():
                part.ready = word
                self._meet(span)
            case wire.Refused(_, errno):
                self._refuse(span, node, errno)
            case wire.Relayed(node=to) if node == span.first:
                for other in span.nodes[1:] if not to else (to,):
                    self._send(span, other, wire.Passed(*key, word._replace(node=other)))
            case wire.Relayed():
                self._send(span, span.first, wire.Passed(*key, word._replace(node=node)))

    def take(self, node: str, event: Event) -> bool:
        """Take in an event of the engine of a node; False: it concerns none of these attempts."""
        if not isinstance(event, messages.Exited | messages.Released | messages.Declined):
            return False
        span = self._spans.get((event.trial_id, event.attempt))
        part = span.parts.get(node) if span is not None else None
        if span is None or part is None:
            return False
        if isinstance(event, messages.Released):
            part.is_released = True
        elif isinstance(event, messages.Declined):
            part.exit, part.is_released = _NEVER_BEGAN, True
            span.is_declined = True
            self._end(span)
        else:
            part.exit = event.exit
            # Rank 0's host ends when every rank is gone, another one when its own are: if not, it did not get that far.
            if node != span.first and event.exit.kind is not ExitKind.FINISHED and not span.is_ending:
                span.verdict = event.exit
            if node == span.first or span.verdict is not None:
                self._end(span)
        self._settle(span)
        return True

    def lose(self, node: str, error: str) -> None:
        """The agent of a node is gone, with all that it ran: so are the attempts that lay there. Their devices are
        released by `settle`."""
        for span in list(self._spans.values()):
            if node not in span.nodes or span.is_exit_told:
                continue
            first = span.parts.get(span.first)
            lost = Exit(ExitKind.NODE_LOST, error=error)
            if first is None or first.exit is None or span.refused:
                span.verdict = span.verdict or lost
            part = span.parts.get(node)
            if part is not None:
                part.exit = part.exit or lost
            self._end(span)
            self._tell_exit(span)
        for span in self._spans.values():
            if node in span.parts:
                span.parts[node].is_released = True

    def settle(self) -> None:
        """Release what is over, after a node was lost."""
        for span in list(self._spans.values()):
            self._settle(span)

    def count(self, node: str) -> int:
        """Return how many attempts lie on a node."""
        return sum(node in span.nodes for span in self._spans.values())

    # --- one attempt -------------------------------------------------------------------------------------------------

    def _send(self, span: _Span, node: str, message: wire.ToAgent) -> None:
        part = span.parts.get(node)
        if part is not None and part.exit is None:
            self.send(node, message)

    def _try(self, span: _Span) -> None:
        span.refused, span.has_met, span.is_ending = "", False, False
        span.parts = {node: _Part() for node in span.nodes}
        for node in span.nodes:
            self._send(span, node, wire.Order(messages.Start(span.trial), span.brief))

    def _try_again(self, span: _Span) -> None:
        if self._spans.get(span.key) is span and not span.parts:
            self._try(span)

    def _meet(self, span: _Span) -> None:
        """Have the ranks made once every node is ready."""
        ready = {node: part.ready for node, part in span.parts.items() if part.ready is not None}
        if len(ready) < len(span.nodes) or span.is_ending or span.has_met:
            return
        span.has_met = True
        meet = wire.Meet(ready[span.first].token, {node: one.ports for node, one in ready.items()})
        for node in span.nodes:
            self._send(span, node, wire.Passed(*span.key, meet))

    def _refuse(self, span: _Span, node: str, errno: int) -> None:
        if span.is_ending:
            return
        shortage = describe_shortage(OSError(errno, ""))
        span.refused = f"cannot start on {node}: {shortage}"
        self.emit(messages.Waiting(span.trial.id, span.refused))
        if shortage not in self._noticed:
            self._noticed.add(shortage)
            self.notice(
                f"a training group cannot start: the kernel of {node} allows no more {shortage}; it is tried again"
            )
        self._end(span)

    def _end(self, span: _Span, kill: messages.Kill | None = None) -> None:
        """Have what is left of it ended everywhere."""
        if span.is_ending:
            return
        span.is_ending = True
        for node in span.nodes:
            self._send(span, node, wire.Order(kill or messages.Kill(*span.key)))

    def _settle(self, span: _Span) -> None:
        """Say what is to be said by now."""
        if self._spans.get(span.key) is not span:
            return
        are_released = all(part.is_released for part in span.parts.values())
        if span.is_declined and span.verdict is None:
            if are_released:
                del self._spans[span.key]
                self.emit(messages.Declined(*span.key))
            return
        if span.refused and span.verdict is None:
            if span.parts and are_released:
                span.parts = {}
                pause_s, span.pause_s = span.pause_s, min(2 * span.pause_s, _MOST_AGAIN_S)
                # Groups that take each other's processes must not try in step.
                self.alarm(pause_s * random.uniform(0.5, 1.0), lambda: self._try_again(span))
            return
        self._tell_exit(span)
        if span.is_exit_told and are_released:
            del self._spans[span.key]
            self.emit(messages.Released(*span.key))

    def _tell_exit(self, span: _Span) -> None:
        if span.is_exit_told or not span.is_over or (span.refused and span.verdict is None):
            return
        span.is_exit_told = True
        exits = [part.exit for part in span.parts.values() if part.exit is not None]
        first = span.parts.get(span.first)
        told = first.exit if first is not None else None
        if told is None or (span.verdict is not None and told.kind not in (ExitKind.FINISHED, ExitKind.STOPPED)):
            told = span.verdict
        assert told is not None
        peak = sum(one.peak_rss_bytes for one in exits)
        self.emit(messages.Exited(*span.key, replace(told, peak_rss_bytes=peak)))
