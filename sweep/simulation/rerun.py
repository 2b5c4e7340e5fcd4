"""Run a recorded sweep again in virtual time, as it was: its own settings, its own delays, every decision compared."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from searchers.base import Config, Searcher, Signal
from searchers.wrapper import Wrapper
from sweep.core.messages import (
    Asked,
    Command,
    Event,
    Exit,
    Exited,
    ExitKind,
    NodesChanged,
    Notify,
    PlanChanged,
    Released,
    Reported,
    Saved,
    Start,
    Started,
    Suggested,
    Tick,
    Waiting,
)
from sweep.core.packing import Packer
from sweep.core.resources import Node, Resources
from sweep.core.sweep import Changes, Sweep
from sweep.core.trial import CheckpointRef, Trial
from sweep.engines.base import EngineCommand
from sweep.engines.simulator import Point, Simulator
from sweep.errors import ExperimentError, refuse_unknown
from sweep.launch.drive import drive
from sweep.record.encoding import is_same
from sweep.record.facts import Fact, read_facts
from sweep.record.layout import ExperimentLayout
from sweep.simulation.curves import RecordedFailure
from sweep.simulation.replay import Difference, own_policies, rows_of, what_of

__all__ = ["Rerun", "rerun"]

_Attempt = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Rerun:
    """What a second run in virtual time found.

    Attributes:
        num_events: facts of the record.
        difference: the first fact that came out differently, or after which something else was decided; None: none did.
        seconds: virtual time.
    """

    num_events: int
    difference: Difference | None
    seconds: float


class _Timing:
    """When everything happened: delays as the simulator needs them."""

    def __init__(self, events: Sequence[Fact]) -> None:
        self.asks: deque[float] = deque()
        self.ticks: deque[float] = deque()
        self.starts: dict[_Attempt, tuple[float, int]] = {}
        self.points: dict[_Attempt, list[Point]] = {}
        self.saves: dict[tuple[str, int, int], tuple[float, int]] = {}
        self.paths: dict[tuple[str, int, int], str] = {}  # of checkpoints, by trial, attempt and report
        self.ends: dict[_Attempt, tuple[tuple[float, int], tuple[float, int]]] = {}
        self.exits: dict[_Attempt, Exited] = {}
        self._begun: dict[_Attempt, float] = {}
        self._last: dict[_Attempt, float] = {}  # when an attempt last got something to do
        self._exit_delay: dict[_Attempt, tuple[tuple[float, int], float]] = {}
        for fact in events:
            self._take(fact)

    def _take(self, fact: Fact) -> None:
        at, seq = round(fact.at, 9), fact.seq
        match fact.event:
            case Suggested():
                self.asks.append(at)
            case Tick():
                self.ticks.append(at)
            case Started(trial_id, attempt):
                key = trial_id, attempt
                self.starts[key] = at - self._last[key], seq
                self._last[key] = at
                self.points[key] = []
            case Reported(trial_id, attempt, number, metrics, checkpoint):
                key = trial_id, attempt
                if checkpoint is not None:
                    self.paths[trial_id, attempt, number] = checkpoint
                self.points[key].append(
                    Point(at - self._last[key], metrics, has_checkpoint=checkpoint is not None, order=seq)
                )
                self._last[key] = at
            case Saved(trial_id, attempt, number, path):
                self.paths[trial_id, attempt, number] = path
                self.saves[trial_id, attempt, number] = at - self._last[trial_id, attempt], seq
            case Exited(exit=Exit(kind=ExitKind.DAMAGED)):
                raise _cannot("a checkpoint that a trial was started from was damaged")
            case Exited(trial_id, attempt) as event:
                key = trial_id, attempt
                self.exits[key] = event
                since = self._last[key] if key in self.starts else self._begun[key]
                self._exit_delay[key] = (at - since, seq), since
            case Released(trial_id, attempt):
                delay, since = self._exit_delay[trial_id, attempt]
                self.ends[trial_id, attempt] = delay, (at - since, seq)
            case Asked():
                raise _cannot("somebody asked it for something while it ran")
        for row in fact.caused or ():
            if row[0] in ("Start", "Kill"):
                self._last[row[1], row[2]] = at
            if row[0] == "Start":
                self._begun[row[1], row[2]] = at


class _Machine(Simulator):
    """A simulator in which everything takes as long as it took."""

    def __init__(self, timing: _Timing, nodes: Sequence[Node], start_at: float) -> None:
        super().__init__(lambda config, count: iter(()), nodes, start_at=start_at)
        self._timing = timing

    def execute(self, command: EngineCommand) -> None:
        """Carry out a command; an attempt that ended before it had started does so again."""
        if isinstance(command, Start):
            trial = command.trial
            key = trial.id, trial.attempt
            exited = self._timing.exits.get(key)
            if exited is not None and key not in self._timing.starts:
                exit_delay, release_delay = self._end_delays(trial)
                self._at(*exit_delay, exited)
                self._at(*release_delay, Released(*key))
                return
        super().execute(command)

    def next_events(self, deadline: float | None) -> Sequence[Event]:
        """Return what comes next; a deadline counts only if it was met then, and not overtaken by what came late."""
        ticks = self._timing.ticks
        while deadline is not None and ticks and ticks[0] < deadline:
            ticks.popleft()
        if deadline is not None and (ticks or self._queue):
            deadline = ticks[0] if ticks else math.inf
        return super().next_events(deadline)

    def _points(self, trial: Trial, done: int) -> Iterator[Point]:
        key = trial.id, trial.attempt
        yield from self._timing.points.get(key, ())
        exited = self._timing.exits.get(key)
        if exited is not None and exited.exit.kind is not ExitKind.FINISHED:
            raise RecordedFailure(exited.exit.error)

    def _start_delay(self, trial: Trial) -> tuple[float, int]:
        return self._timing.starts.get((trial.id, trial.attempt), (0.0, 0))

    def _save_delay(self, trial: Trial, seq: int) -> tuple[float, int]:
        return self._timing.saves.get((trial.id, trial.attempt, seq), (0.0, 0))

    def _path(self, trial: Trial, seq: int) -> str:
        return self._timing.paths.get((trial.id, trial.attempt, seq)) or super()._path(trial, seq)

    def _end_delays(self, trial: Trial) -> tuple[tuple[float, int], tuple[float, int]]:
        return self._timing.ends.get((trial.id, trial.attempt), ((0.0, 0), (0.0, 0)))


class _Thinks(Wrapper):
    """A searcher that takes as long for its answers as it took."""

    def __init__(self, searcher: Searcher, machine: Simulator, asks: deque[float]) -> None:
        super().__init__(searcher)
        self._machine, self._asks = machine, asks

    def suggest(self, trial_id: str) -> Config | Signal:
        answer = super().suggest(trial_id)
        if self._asks:
            self._machine.advance(self._asks.popleft())
        return answer


class _Compares:
    """A record that only compares what it is given with what was recorded."""

    def __init__(self, events: Sequence[Fact]) -> None:
        self.expected = deque(fact for fact in events if not isinstance(fact.event, (Waiting, Tick)))
        self.difference: Difference | None = None

    def commit(
        self, events: Sequence[Event], commands: Sequence[Sequence[Command]], changes: Changes, now: float
    ) -> None:
        for event, caused in zip(events, commands, strict=True):
            if self.difference is None and not isinstance(event, Tick):
                self._compare(event, rows_of(event, caused))

    def _compare(self, event: Event, rows: Any) -> None:
        if not self.expected:
            self.difference = Difference(0, f"{what_of(event)}, which never happened", None, rows)
            return
        fact = self.expected.popleft()
        then, now = what_of(fact.event), what_of(event)
        if then != now:
            self.difference = Difference(fact.seq, "what happened", then, now)
        elif rows != fact.caused:
            self.difference = Difference(fact.seq, then, fact.caused, rows)
        elif isinstance(event, Suggested) and isinstance(event.config, Mapping):
            config = fact.event.config if isinstance(fact.event, Suggested) else None
            recorded = dict(config) if isinstance(config, Mapping) else config
            if not is_same(dict(event.config), recorded):
                self.difference = Difference(fact.seq, then, recorded, dict(event.config))

    def discard(self, checkpoint: CheckpointRef) -> None:
        pass  # there are none

    def notify(self, told: Sequence[Notify]) -> None:
        pass  # there are no callbacks

    def step(self, trials: Mapping[str, Trial], now: float, changed: Sequence[str]) -> None:
        pass


@refuse_unknown()
def rerun(experiment: str | os.PathLike[str], *, trainable: Any = None) -> Rerun:
    """Run a recorded sweep again in virtual time and compare every decision with the record.

    Unlike `replay`, which is handed the recorded facts, here the facts follow from the decisions: a trial that is
    started reports what it reported, as long after as it did. So it shows that a simulation decides as the real run.

    Args:
        experiment: its directory; one run of the driver, in which no person intervened.
        trainable: what was run; only needed of a trainable with a config of its own.

    Raises:
        ExperimentError: there is no such experiment, it cannot be run so, or its searcher or scheduler is not known.
    """
    layout = ExperimentLayout(Path(experiment))
    events = list(read_facts(layout.database))
    plans = [fact for fact in events if isinstance(fact.event, PlanChanged)]
    machines = [fact.event.nodes for fact in events if isinstance(fact.event, NodesChanged)]
    if len(plans) != 1 or len(machines) != 1:
        raise _cannot(f"it was driven in {len(plans)} runs, on {len(machines)} inventories")
    policies, stop_rules = own_policies(layout, {} if trainable is None else {"trainable": trainable})
    timing = _Timing(events)
    if timing.starts.keys() - timing.exits.keys():
        raise _cannot("it has not ended, or its driver was killed")
    start_at = round(events[0].at, 9)
    machine = _Machine(timing, machines[0], start_at)
    plan = plans[0].event.plan  # type: ignore[union-attr]
    answers = [fact.event for fact in events if isinstance(fact.event, Suggested)]
    requests = deque(answer.resources for answer in answers if isinstance(answer.config, Mapping))
    found = _Compares(events)
    drive(
        Sweep(replace(plan), policies.scheduler, Packer(machines[0])),
        machine,
        _Thinks(policies.searcher, machine, timing.asks),
        found,
        found,
        request_of=lambda config: (requests.popleft() if requests else None) or Resources(),
        judge=stop_rules.judge,
        complete=policies.complete,
    )
    if found.difference is None and found.expected:
        fact = found.expected[0]
        found.difference = Difference(fact.seq, f"{what_of(fact.event)}, which did not happen", fact.caused, None)
    return Rerun(len(events), found.difference, machine.now() - start_at)


def _cannot(why: str) -> ExperimentError:
    return ExperimentError(
        f"this sweep cannot be run again as it was: {why}. `sweep replay --verify` decides it again from its facts."
    )
