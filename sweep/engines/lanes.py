"""The engine whose workers each run many trials, as lanes of one batched computation.

To the sweep a node has so many of the resource `lane`, and each trial asks for one. Workers are attempts of the local
engine's own, each with the request of `resources_per_worker`, which it holds as long as it lives:

    Start ──> a worker with a free lane, started if there is none ──> the trial's job goes to it
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import cloudpickle

from sweep.core import messages
from sweep.core.claims import Claim, of_others
from sweep.core.messages import Event, Exit, ExitKind
from sweep.core.packing import Packer
from sweep.core.resources import LANE, Bundle, Node, Placement, Resources
from sweep.core.trial import Trial
from sweep.engines.base import EngineCommand, EngineContext
from sweep.engines.exits import classify, unstarted
from sweep.engines.jobs import JobMaker, store_trainable
from sweep.engines.link import Link
from sweep.engines.local.engine import LocalEngine
from sweep.engines.local.supervisors import Attempt, Slot
from sweep.errors import ResourceError
from sweep.lanes.crew import START, serve
from sweep.lanes.trainable import Options
from sweep.record.layout import ExperimentLayout
from sweep.worker import wire
from sweep.worker.trainable import PreparedTrainable

_HOME = "code"  # where the output of workers goes, in the experiment's directory
_RETRY_S = 0.25  # for what another sweep holds
_IDLE_S = 30.0  # a worker without trials is ended then: compiling again is cheaper than keeping others off
_INSIST_S = 10.0  # a trial that is to end at once ends between two steps; then its worker is ended


@dataclass(eq=False)
class _Place:
    """A part of the machine for one worker, whose request it is.

    Attributes:
        most: lanes at a time. worker: the attempt there; None: it is not started, or gone.
        link: to the worker, once it can be given trials.
        trials: that it has, or that wait for it, or the next one, to start. lost: that ended with it.
        is_leaving: it has no trial, and is to end. said: what its trials wait for, as the sweep was told last.
    """

    placement: Placement
    request: Resources
    most: int
    worker: Trial | None = None
    link: Link | None = None
    trials: dict[tuple[str, int], Trial] = field(default_factory=dict)
    lost: Sequence[tuple[str, int]] = ()
    is_leaving: bool = False
    said: dict[tuple[str, int], str] = field(default_factory=dict)

    @property
    def node(self) -> str:
        return self.placement.bundles[0].node


def lane_nodes(nodes: Sequence[Node], options: Options) -> tuple[Node, ...]:
    """Return an inventory with the lanes that the workers have room for.

    Raises:
        ResourceError: no node has room for a worker.
    """
    return _with_lanes(nodes, _places(nodes, options))


def _places(nodes: Sequence[Node], options: Options) -> list[_Place]:
    packer, request = Packer(nodes), options.request or _usual_request(nodes)
    if not packer.could_ever_fit(request):
        raise ResourceError(f"resources_per_worker: {packer.why_never(request)}")
    places: list[_Place] = []
    while (placement := packer.place(request, (LANE, len(places)))) is not None:
        places.append(_Place(placement, request, options.num_lanes or START))
    return places


def _usual_request(nodes: Sequence[Node]) -> Resources:
    """Return a GPU where there is one, else all CPUs of a node."""
    if any(node.amount("gpu") for node in nodes):
        per_gpu = min(node.cpus / node.amount("gpu") for node in nodes if node.amount("gpu"))
        return Resources((Bundle(cpu=per_gpu, gpu=1.0),))
    return Resources((Bundle(cpu=min((node.cpus for node in nodes), default=1.0)),))


def _with_lanes(nodes: Sequence[Node], places: Sequence[_Place]) -> tuple[Node, ...]:
    there = {(node.id, device.id) for node in nodes for device in node.devices}
    numbers = dict.fromkeys([node.id for node in nodes], 0)
    for place in places:
        if place.node in numbers and there.issuperset(place.placement.placed_devices):
            numbers[place.node] += place.most
    return tuple(replace(node, custom={**node.custom, LANE: float(numbers[node.id])}) for node in nodes)


def _without_lanes(nodes: Sequence[Node]) -> tuple[Node, ...]:
    return tuple(replace(node, custom={n: a for n, a in node.custom.items() if n != LANE}) for node in nodes)


class _WorkerJobs(JobMaker):
    """Jobs of workers, which have no directory of their own."""

    def one(self, *arguments: Any, **keywords: Any) -> wire.Job:
        job = super().one(*arguments, **keywords)
        return job._replace(home=_HOME, outputs=(f"{job.trial_id}.log",) * 2)


class LanesEngine(LocalEngine):
    """See `Engine`; a trial has no process of its own, and is lost where that of its lanes ends."""

    def __init__(self, context: EngineContext) -> None:
        """Take the machine apart into places of workers; none is started before it has a trial.

        Raises:
            ResourceError: no node has room for a worker.
        """
        assert context.trainable.lanes is not None
        layout, nodes = ExperimentLayout(context.directory.absolute()), _without_lanes(context.nodes)
        worker = PreparedTrainable(
            name="lanes",
            kind="function",
            payload=cloudpickle.dumps(serve),
            imports=context.trainable.imports,
            env=context.trainable.env,
        )
        own = replace(context, trainable=worker, nodes=nodes, is_chdir=False, reuse_actors=False, log_to_file=None)
        own = replace(own, start_from="", name_of=None, seeded_as=None)
        self._places = _places(nodes, context.trainable.lanes)
        self._waiting_trials: list[Trial] = []  # for a worker
        self._kills: dict[tuple[str, int], messages.Kill] = {}
        self._numbers_of_workers = itertools.count()
        self._num_lanes = context.trainable.lanes.num_lanes
        self._lane_jobs = JobMaker(context, store_trainable(context.trainable, layout))
        super().__init__(own, jobs=_WorkerJobs(own, store_trainable(worker, layout)))
        if context.log_to_file:
            self._say(f"log_to_file is left out: lanes share a process, whose output is in {layout.code}/lanes_*.log")

    # --- the contract ------------------------------------------------------------------------------------------------

    def nodes(self) -> Sequence[Node]:
        return _with_lanes(self._gpu_cleanup.nodes, self._places)

    def claims(self) -> Sequence[Claim]:
        self._sharing.begin()
        return ()  # what others hold keeps workers off, and not lanes

    def want(self, wanted: Resources | None) -> None:
        """What waits is a worker, and that is told where it is refused."""

    def execute(self, command: EngineCommand) -> None:
        if self._is_closed:
            return
        if isinstance(command, messages.Start):
            self._waiting_trials.append(command.trial)
            self._assign()
            return
        key = command.trial_id, command.attempt
        place = self._place_of(key)
        if place is None and key not in [(trial.id, trial.attempt) for trial in self._waiting_trials]:
            return
        kill = command if isinstance(command, messages.Kill) else None
        if place is None or place.link is None:  # no worker knows of it
            if kill is not None or isinstance(command, messages.Stop):
                self._end(key, unstarted(kill))
            return
        if kill is not None:
            self._kills[key] = kill
            self._loop.alarm(_INSIST_S, lambda: self._insist(key))
        elif (worker := self._worker_of(place)) is not None:
            self._watchdogs.watch(worker)
        place.link.send(command)

    def _turn(self, timeout_s: float | None) -> None:
        super()._turn(timeout_s)
        events = self._events.copy()
        self._events.clear()
        for event in events:
            self._events += self._told(event)

    def _told(self, event: Event) -> list[Event]:
        """Return what the sweep hears of an event: workers are nothing to it."""
        if isinstance(event, messages.NodesChanged):
            there = {(node.id, device.id) for node in self._gpu_cleanup.nodes for device in node.devices}
            gone = [one for one in self._places if not there.issuperset(one.placement.placed_devices)]
            self._places = [one for one in self._places if one not in gone or one.worker is not None]
            return [messages.NodesChanged(tuple(self.nodes()), event.away)]
        if isinstance(event, messages.ClaimsChanged):
            return []
        trial_id = getattr(event, "trial_id", None)
        place = next((one for one in self._places if one.worker is not None and one.worker.id == trial_id), None)
        if place is None:
            return [event]
        if isinstance(event, messages.Declined):
            self._on_declined(place)
        if isinstance(event, messages.Waiting) and place.link is None:
            return [messages.Waiting(trial_id, event.reason, event.cause) for trial_id, _ in place.trials]
        return []

    # --- which worker ------------------------------------------------------------------------------------------------

    def _assign(self) -> None:
        """Give those that wait to the workers with the fewest trials."""
        waiting, self._waiting_trials = self._waiting_trials, []
        for trial in waiting:
            assert trial.placement is not None
            node = trial.placement.bundles[0].node
            places = [one for one in self._places if one.node == node and len(one.trials) < one.most]
            place = min(places, key=lambda one: len(one.trials), default=None)
            if place is None:
                self._waiting_trials.append(trial)
                continue
            place.trials[trial.id, trial.attempt] = trial
            if place.link is not None:
                place.link.send(self._lane_jobs.one(trial))
            elif place.worker is None:
                self._start(place)

    def _start(self, place: _Place) -> None:
        number = next(self._numbers_of_workers)
        lanes = place.most if self._num_lanes else 0
        config = {"num_lanes": lanes}
        place.worker = Trial(f"lanes_{number}", config, place.request, attempt=1, placement=place.placement)
        super().execute(messages.Start(place.worker))

    def _on_declined(self, place: _Place) -> None:
        """Another sweep holds a part of it: its trials wait, for this worker or another one."""
        place.worker = None
        others = "; ".join(
            filter(None, (of_others(self._claims.others, self._context.nodes, n) for n in place.request.total.amounts))
        )
        self._claims.awaited = place.request
        self._waiting_trials += place.trials.values()
        said = dict.fromkeys(
            place.trials, f"waits for a process with {place.request}" + (f"; {others}" if others else "")
        )
        news = [(key, reason) for key, reason in said.items() if place.said.get(key) != reason]
        self._events += [messages.Waiting(trial_id, reason) for (trial_id, _), reason in news]
        place.said = said
        place.trials.clear()
        self._loop.alarm(_RETRY_S, self._assign)

    def _retire_idle(self) -> None:
        for slot in self._slots.values():
            place = self._place_at(slot)
            if place is not None and place.link is not None and not place.trials:
                place.link, place.is_leaving = None, True
                slot.end_tree()

    def _place_of(self, key: tuple[str, int]) -> _Place | None:
        return next((place for place in self._places if key in place.trials), None)

    def _place_at(self, slot: Slot) -> _Place | None:
        worker = None if slot.attempt is None else slot.attempt.trial
        return next((place for place in self._places if place.worker is worker), None) if worker is not None else None

    def _worker_of(self, place: _Place) -> Attempt | None:
        return None if place.worker is None else self._attempts.get((place.worker.id, place.worker.attempt))

    # --- what workers say --------------------------------------------------------------------------------------------

    def _send_start(self, slot: Slot, attempt: Attempt) -> None:
        super()._send_start(slot, attempt)
        place = self._place_at(slot)
        if place is not None and slot.link is not None:
            place.link = slot.link
            for trial in place.trials.values():
                place.link.send(self._lane_jobs.one(trial))

    def _on_worker(self, slot: Slot, received: Sequence[wire.FromWorker]) -> None:
        place, rest = self._place_at(slot), list[wire.FromWorker]()
        for message in received:
            key = getattr(message, "trial_id", ""), getattr(message, "attempt", 0)
            if isinstance(message, messages.Waiting):
                key = next((one for one in (place.trials if place else ()) if one[0] == message.trial_id), key)
            if place is None or not (isinstance(message, wire.Room) or key in place.trials):
                rest.append(message)
                continue
            match message:
                case wire.Room(num_lanes, why):
                    self._on_room(place, num_lanes, why)
                    self._assign()
                case wire.LaneDone(outcome=outcome):
                    kill = self._kills.get(key)
                    is_killed = kill is not None and outcome.kind == "STOPPED"
                    self._end(key, classify(None if is_killed else outcome, 0, kill=kill))
                case wire.LaneDeclined():
                    del place.trials[key]
                    self._events.append(messages.Declined(*key))
                case messages.Started() | messages.Reported() | messages.Saved() | messages.Waiting():
                    if slot.attempt is not None:
                        slot.attempt.has_reported |= isinstance(message, messages.Reported)
                        owes = isinstance(message, messages.Started) or getattr(message, "reason", None) == ""
                        (self._watchdogs.watch if owes else self._watchdogs.rest)(slot.attempt)
                    self._events.append(message)
        super()._on_worker(slot, rest)

    def _on_room(self, place: _Place, num_lanes: int, why: str) -> None:
        if why:
            self._say(f"{why} than {num_lanes} trials at a time, instead of {place.most}")
        place.most = num_lanes
        self._events.append(messages.NodesChanged(tuple(self.nodes())))

    def _end(self, key: tuple[str, int], exit: Exit) -> None:
        """A trial is over, and its lane free."""
        self._kills.pop(key, None)
        self._waiting_trials = [trial for trial in self._waiting_trials if (trial.id, trial.attempt) != key]
        self._events.append(messages.Exited(*key, exit))
        if (place := self._place_of(key)) is not None:
            del place.trials[key]
            if not place.trials:
                if (worker := self._worker_of(place)) is not None:
                    self._watchdogs.rest(worker)  # it owes no report of anybody
                self._loop.alarm(_IDLE_S, self._retire_idle)
        self._events.append(messages.Released(*key))

    def _insist(self, key: tuple[str, int]) -> None:
        """End the worker of a trial that was to end at once and has not."""
        place, kill = self._place_of(key), self._kills.get(key)
        worker = None if place is None else self._worker_of(place)
        if worker is not None and kill is not None:
            self._kill(worker, messages.Kill(*worker.key, kill.reason, kill.kind))

    def _finish(self, attempt: Attempt, exit: Exit) -> None:
        """A worker is gone, and so are its trials."""
        place = next((one for one in self._places if one.worker is attempt.trial), None)
        if place is not None:
            place.lost = () if place.is_leaving else tuple(place.trials)
            place.trials = {key: trial for key, trial in place.trials.items() if key not in place.lost}
            place.link, place.is_leaving = None, False
            if exit.kind is ExitKind.OUT_OF_MEMORY and place.most > 1:
                self._on_room(place, place.most // 2, "the memory suffices for no more")
            for key in place.lost:
                self._events.append(messages.Exited(*key, self._exit_of(key, exit)))
        super()._finish(attempt, exit)

    def _exit_of(self, key: tuple[str, int], exit: Exit) -> Exit:
        kill = self._kills.pop(key, None)
        if kill is not None:
            return classify(None, None, kill=kill)
        if exit.kind is ExitKind.HUNG:
            return exit
        return Exit(ExitKind.LOST, f"the process of its lanes ended: {exit.error}", exit.traceback)

    def _release(self, trial: Trial, idle: int = 0) -> None:
        super()._release(trial, idle)
        place = next((one for one in self._places if one.worker is trial), None)
        if place is not None:
            place.worker = None
            self._events += [messages.Released(*key) for key in place.lost]
            if place.trials and not self._is_closed:
                self._start(place)

    def _logs_of(self, trial: Trial) -> tuple[str, ...]:
        return (str(self._layout.root / _HOME / f"{trial.id}.log"),)
