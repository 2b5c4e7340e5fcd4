"""The simulator: trials are curves in virtual time; the same commands and events as with real processes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from sweep.core import messages as m
from sweep.core.resources import Node
from sweep.core.trial import CheckpointRef, Trial
from sweep.engines.base import Engine, EngineCommand, EngineFactory
from sweep.errors import refuse_unknown


@refuse_unknown()
@dataclass(frozen=True, slots=True)
class Point:
    """One report of a simulated trial.

    Attributes:
        seconds: virtual time that passes before it.
        metrics: what is reported.
        has_checkpoint: whether a checkpoint comes with it.
        order: among what happens at the same moment; equal ones come in the order in which they were caused.
        state: what that checkpoint holds, for a curve that is given it when it continues from there.
    """

    seconds: float
    metrics: Mapping[str, Any]
    has_checkpoint: bool = False
    state: Any = None
    order: int = 0


# A curve is called with the config and the number of reports contained in the checkpoint to continue from (0: none),
# and, if it has a state, with what that checkpoint holds (None: there is none). The points it yields are the reports;
# returning ends the trial, raising fails it.
Curve = Callable[..., Iterator[Point]]


@dataclass(slots=True)
class _Attempt:
    trial: Trial
    points: Iterator[Point]
    seq: int = 0
    state: Any = None


class Simulator(Engine):
    """Run curves in virtual time.

    Args:
        curve: what every trial does.
        nodes: the declared inventory.
        has_state: whether the curve is also called with the state of the checkpoint that a trial continues from.
        start_s, stop_s: virtual seconds from `Start` to `Started`, and from the end to `Exited` and `Released`.
        start_at: seconds that earlier runs of the driver spent.
        absences: by node, from when to when it is away, without notice; in order, in virtual seconds.
    """

    is_in_real_time = False

    def __init__(
        self,
        curve: Curve,
        nodes: Sequence[Node],
        *,
        has_state: bool = False,
        start_s: float = 0.0,
        stop_s: float = 0.0,
        start_at: float = 0.0,
        absences: Mapping[str, Sequence[tuple[float, float]]] | None = None,
    ) -> None:
        self._curve = curve
        self._nodes = tuple(nodes)
        self._has_state = has_state
        self._states: dict[str, Any] = {}  # by checkpoint
        self._start_s, self._stop_s = start_s, stop_s
        self._now = start_at
        self._queue: list[tuple[float, int, int, m.Event | str]] = []  # by virtual time, order, and when it was caused
        self._count = 0
        self._gone: set[str] = set()
        for node, spans in (absences or {}).items():
            for at in chain.from_iterable(spans):
                self._at(at - start_at, node, -1)  # a node that goes, or comes back
        self._posted: list[m.Event] = []
        self._running: dict[tuple[str, int], _Attempt] = {}

    @classmethod
    def factory(cls, curve: Curve, **options: Any) -> EngineFactory:
        """Return what makes the simulator of a run: the context says only its nodes and what earlier runs spent."""
        return lambda context: cls(curve, context.nodes, start_at=context.start_at, **options)

    def nodes(self) -> Sequence[Node]:
        return tuple(node for node in self._nodes if node.id not in self._gone) if self._gone else self._nodes

    def now(self) -> float:
        return self._now

    def execute(self, command: EngineCommand) -> None:
        if isinstance(command, m.Start):
            trial = command.trial
            if self._gone & _places(trial):
                self._at(0.0, m.Exited(trial.id, trial.attempt, m.Exit(m.ExitKind.NODE_LOST, "its node has left")))
                self._at(0.0, m.Released(trial.id, trial.attempt))
                return
            done = trial.checkpoint.count if trial.checkpoint is not None else 0
            self._running[trial.id, trial.attempt] = _Attempt(trial, self.points(trial, done))
            self._at(self._start_s, m.Started(trial.id, trial.attempt))
            return
        attempt = self._running.get((command.trial_id, command.attempt))
        if attempt is None:
            return
        match command:
            case m.Continue():
                self._next(attempt)
            case m.Save(seq=seq):
                self._save(attempt, seq)
                self._next(attempt)
            case m.Stop(seq=seq, save=save):
                if seq:  # otherwise it takes effect at the next report
                    if save:
                        self._save(attempt, seq)
                    self._end(attempt, m.Exit(m.ExitKind.STOPPED))
            case m.Kill(reason=reason, kind=kind):
                self._end(attempt, m.Exit(kind, reason or "killed"))

    def next_events(self, deadline: float | None) -> Sequence[m.Event]:
        if self._posted:
            events, self._posted = self._posted, []
            return events
        while self._queue:
            when = self._queue[0][0]
            if deadline is not None and deadline <= when:
                break
            self._now = max(self._now, when)
            events = []
            while self._queue and self._queue[0][0] == when:
                event = heapq.heappop(self._queue)[3]
                if isinstance(event, str):
                    events += self._turn(event)
                elif self._is_current(event):
                    events.append(event)
            if events:
                return events
        if deadline is None:
            raise RuntimeError("the simulator was asked to wait, but nothing will ever happen")
        self._now = max(self._now, deadline)
        return [m.Tick()]

    def post(self, event: m.Event) -> None:
        self._posted.append(event)

    def close(self) -> None:
        for attempt in self._running.values():
            _close(attempt.points)
        self._running.clear()
        self._queue.clear()

    def forget(self, path: str) -> None:
        """Let go of what a deleted checkpoint held."""
        self._states.pop(path, None)

    def points(self, trial: Trial, done: int) -> Iterator[Point]:
        """Yield what a trial reports after its first `done` reports; a subclass may know better than by its config."""
        # The curve is called only when the trial has started: it may raise at once.
        if self._has_state:
            held = self._states.get(trial.checkpoint.path) if trial.checkpoint is not None else None
            yield from self._curve(trial.config, done, held)
        else:
            yield from self._curve(trial.config, done)

    def _turn(self, node: str) -> Sequence[m.Event]:
        """Let a node go, and with it all attempts that have a part there, or come back."""
        self._gone ^= {node}
        lost = [key for key, attempt in self._running.items() if node in _places(attempt.trial)]
        for key in lost:
            _close(self._running.pop(key).points)
        why = m.Exit(m.ExitKind.NODE_LOST, f"node {node} was lost")
        away = tuple(one for one in self._nodes if one.id in self._gone)
        return [
            *(m.Exited(*key, why) for key in lost),
            m.NodesChanged(tuple(self.nodes()), away),
            *(m.Released(*key) for key in lost),
        ]

    def _is_current(self, event: m.Event) -> bool:
        """Let an event pass unless its attempt ended before it came due; `Started` lets the curve begin."""
        if not isinstance(event, (m.Started, m.Reported)):
            return True
        attempt = self._running.get((event.trial_id, event.attempt))
        if attempt is not None and isinstance(event, m.Started):
            self._next(attempt)
        return attempt is not None

    def _next(self, attempt: _Attempt) -> None:
        """Run the curve to its next report."""
        trial = attempt.trial
        try:
            point = next(attempt.points, None)
        except Exception as error:  # the curve stands for user code
            name = type(error).__name__
            self._end(attempt, m.Exit(m.ExitKind.FAILED, f"{name}: {error}", class_name=name))
            return
        if point is None:
            self._end(attempt, m.Exit(m.ExitKind.FINISHED))
            return
        attempt.seq += 1
        attempt.state = point.state
        metrics = {"time_this_iter_s": point.seconds, "timestamp": int(self._now + point.seconds), **point.metrics}
        checkpoint = self._checkpoint(attempt) if point.has_checkpoint else None
        self._at(point.seconds, m.Reported(trial.id, trial.attempt, attempt.seq, metrics, checkpoint), point.order)

    def _save(self, attempt: _Attempt, seq: int) -> None:
        self._at(0.0, m.Saved(attempt.trial.id, attempt.trial.attempt, seq, self._checkpoint(attempt)))

    def _checkpoint(self, attempt: _Attempt) -> str:
        """Take a checkpoint of an attempt as it is now; returns its path."""
        trial = attempt.trial
        base = trial.checkpoint or CheckpointRef("")
        path = f"{trial.id}/checkpoint_{base.count + attempt.seq:06d}.{trial.attempt}"
        if self._has_state:
            self._states[path] = attempt.state
        return path

    def _end(self, attempt: _Attempt, exit: m.Exit) -> None:
        trial = attempt.trial
        del self._running[trial.id, trial.attempt]
        _close(attempt.points)
        self._at(self._stop_s, m.Exited(trial.id, trial.attempt, exit))
        self._at(self._stop_s, m.Released(trial.id, trial.attempt))

    def _at(self, delay: float, event: m.Event | str, order: int = 0) -> None:
        self._count += 1
        # whole nanoseconds, so that sums of delays meet where they should
        heapq.heappush(self._queue, (round(self._now + delay, 9), order, self._count, event))


def _places(trial: Trial) -> set[str]:
    """Return the nodes of a trial that was placed."""
    return {place.node for place in trial.placement.bundles} if trial.placement is not None else set()


def _close(points: Iterator[Point]) -> None:
    close = getattr(points, "close", None)
    if close is not None:
        close()
