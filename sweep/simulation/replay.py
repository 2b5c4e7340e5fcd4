"""Decide a record again with new objects, and compare: by its facts alone, or by the loop that drove it then."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, NoReturn

from searchers.base import Signal
from searchers.wrapper import Enqueued
from sweep.core import messages as m
from sweep.core.claims import Claim
from sweep.core.history import Fact
from sweep.core.packing import Packer
from sweep.core.resources import Node, Resources
from sweep.core.retention import without
from sweep.core.sweep import Sweep
from sweep.core.trial import CheckpointRef, Trial
from sweep.engines.base import Engine, EngineCommand
from sweep.errors import ExperimentError, SweepError, refuse_unknown
from sweep.launch.build import Policies, build_policies
from sweep.launch.drive import ask, drive, tell
from sweep.launch.spec import RunSpec, StopRules
from sweep.record.codec import command_rows, request_of
from sweep.record.encoding import decode, encode, is_same
from sweep.record.facts import read_facts
from sweep.record.layout import ExperimentLayout
from sweep.record.reader import ExperimentReader
from sweep.record.resume import kept_before, retell
from sweep.record.saved_spec import read_saved_spec, recorded_points, space_keys
from sweep.simulation.virtual import Unobserved
from sweep.worker.trainable import prepare

_MOST_DIFFERENCES = 20  # after the first, most others only follow from it


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact of which something else follows now than then.

    Attributes:
        seq: number of the event in the record.
        what: what happened, for people.
        then, now: what followed, as the record writes it: a list of commands, or a suggested config.
    """

    seq: int
    what: str
    then: Any
    now: Any

    def __str__(self) -> str:
        return f"event {self.seq}, {self.what}: recorded {self.then!r:.300}, now {self.now!r:.300}"


@dataclass
class Replay:
    """What came out when a record was decided again.

    Attributes:
        num_runs: runs of the driver.
        num_events: facts that were handled again.
        num_commands: commands that followed from them, Notify and plain answers to reports included.
        num_suggestions: configs that the searcher was asked for again.
        num_differences: facts of which something else followed; `differences` holds the first of them.
        notices: what could not be compared, and why.
        seconds: of driving that were decided again.
    """

    num_runs: int = 0
    num_events: int = 0
    num_commands: int = 0
    num_suggestions: int = 0
    num_differences: int = 0
    differences: list[Difference] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_same(self) -> bool:
        """Whether everything came out as recorded."""
        return not self.num_differences

    @property
    def difference(self) -> Difference | None:
        """The first fact of which something else followed; None: everything came out as recorded."""
        return self.differences[0] if self.differences else None

    def add(self, difference: Difference) -> None:
        """Count a difference; the first ones are kept."""
        self.num_differences += 1
        if len(self.differences) < _MOST_DIFFERENCES:
            self.differences.append(difference)


@refuse_unknown()
def replay(
    experiment: str | os.PathLike[str],
    *,
    search_alg: Any = None,
    scheduler: Any = None,
    config: Any = None,
    trainable: Any = None,
) -> Replay:
    """Decide a finished or interrupted experiment again from its facts alone, and compare with what was decided.

    The facts are what happened outside of the sweep: reports, exits, what persons asked, the machine, the time. From
    them core, packing, scheduler and searcher must decide the same, in every run of the driver: then a resume, which
    tells them the same facts, continues what the killed sweep would have done. Nothing is run and nothing written.

    Searcher and scheduler are those that the experiment was started with, from its directory; loading them runs code
    from there, so replay only experiments that you trust.

    Args:
        experiment: its directory.
        search_alg, scheduler, config: in place of those in the directory, which may lack what could not be pickled.
        trainable: what was run; only needed of a trainer, whose own config is a part of the space.

    Raises:
        ExperimentError: there is no such experiment, it is empty, or searcher, scheduler or space are not known.
    """
    given = {"search_alg": search_alg, "scheduler": scheduler, "config": config, "trainable": trainable}
    return _Replayer(_Record(experiment, given)).run()


@refuse_unknown()
def rerun(experiment: str | os.PathLike[str], *, trainable: Any = None) -> Replay:
    """Run a recorded sweep again in virtual time and compare every decision with the record, to the first difference.

    Unlike `replay`, which handles each fact by itself, here the sweep's loop runs: it asks the searcher, whose answers
    count, and judges reports by the stop functions. From the record come only what the machine did, and when.

    Args:
        experiment: its directory; one run of the driver, which has ended.
        trainable: what was run; only needed of a trainable with a config of its own.

    Raises:
        ExperimentError: there is no such experiment, it cannot be run so, or its searcher or scheduler is not known.
        SweepError: what the sweep failed with, which is as recorded.
    """
    record = _Record(experiment, {"trainable": trainable})
    policies, stop_rules = record.policies()
    loop = _Loop(record)
    requests = deque(
        fact.event.resources
        for fact in record.facts
        if isinstance(fact.event, m.Suggested) and isinstance(fact.event.config, Mapping)
    )
    policies.look_at(packer := Packer(loop.nodes(), loop.away))
    with suppress(_Differs):
        drive(
            Sweep(loop.plan, policies.scheduler, packer),
            loop,
            policies.searcher,
            loop,
            loop,
            request_of=lambda config: (requests.popleft() if requests else None) or Resources(),
            judge=stop_rules.judge,
            complete=policies.complete,
        )
        loop.end()
    return record.found


class _Record:
    """A record that is decided again: its facts, what its directory says of the policies, and what is found.

    Args:
        given: arguments of `sweep.run` that take the place of the stored ones, and `trainable`.
    """

    def __init__(self, experiment: str | os.PathLike[str], given: Mapping[str, Any]) -> None:
        self.layout = ExperimentLayout(Path(experiment))
        self.facts = list(read_facts(self.layout.database))
        if not self.facts:
            raise ExperimentError(f"{self.layout.root} holds no events yet: nothing was decided.")
        self._given = {name: value for name, value in given.items() if value is not None}
        self.found = Replay()
        self.configs: dict[str, Mapping[str, Any]] = {}  # by trial, as `command_rows` keeps them

    def policies(self) -> tuple[Policies, StopRules]:
        """Build the searcher and the scheduler anew; returns them, and what `stop=` meant.

        Raises:
            ExperimentError: something is not there and was not given.
        """
        meta, given = ExperimentReader(self.layout.root).meta, self._given
        arguments, lost = read_saved_spec(self.layout.root)
        arguments |= given
        needed = ("search_alg", "scheduler", "config", "stop")
        missing = [f"{name} ({why})" for name, why in lost.items() if name in needed and name not in given]
        if missing:
            raise ExperimentError(f"{self.layout.root} does not hold {', '.join(missing)}. Pass it to sweep.replay.")
        kept = ("metric", "mode", "num_samples", "max_concurrent_trials", *needed)
        known = {name: arguments[name] for name in kept if name in arguments}
        points = None if "search_alg" in given else recorded_points(meta)  # another searcher may not learn
        spec = RunSpec(**{**known, "config": self._space(arguments, meta), "warm_start": points})
        policies = build_policies(spec, int(meta["seed"]), meta.get("elastic"))
        return replace(policies, searcher=Enqueued(policies.searcher)), spec.stop_rules

    def _space(self, arguments: Mapping[str, Any], meta: Mapping[str, Any]) -> Mapping[str, Any]:
        space: Mapping[str, Any] = arguments.get("config") or {}
        if "trainable" in arguments:
            prepared = prepare(arguments["trainable"])
            space = prepared.space(space) if prepared.space is not None else space
        known, recorded = space_keys(space), meta.get("space_keys")
        if recorded is not None and recorded != known:
            raise ExperimentError(
                f"{self.layout.root} was run with a space of {', '.join(recorded) or 'nothing'}, and what is known "
                f"here has {', '.join(known) or 'nothing'}. Pass what was run as trainable= if it is a trainer, or the "
                "space as config=."
            )
        return space

    def compare(self, fact: Fact, event: m.Event, commands: Sequence[m.Command]) -> None:
        """Compare what followed from a fact, which is this event now, with what followed then."""
        found = self.found
        found.num_events += 1
        found.num_commands += len(commands)
        found.seconds = fact.at - self.facts[0].at
        rows = command_rows(event, commands, self.configs)
        now = None if rows is None else decode(encode(rows), trust=True)
        if not is_same(now, fact.caused):
            found.add(Difference(fact.seq, _what_of(fact.event), fact.caused, now))

    def compare_answer(self, fact: Fact, then: m.Suggested, now: m.Suggested) -> None:
        """Compare what the searcher answered; an error of then cannot be expected to come again."""
        if isinstance(then.config, m.Failed):
            return
        self.found.num_suggestions += 1
        before, after = _plain(then), _plain(now)
        if not is_same(after, before):
            self.found.add(Difference(fact.seq, f"the searcher was asked for {then.trial_id}", before, after))


def _plain(answer: m.Suggested) -> Any:
    """Return what a searcher answered as it comes back from the record."""
    match answer.config:
        case Signal() as signal:
            return signal.value
        case m.Failed(error):
            return error
        case config:
            return decode(encode(dict(config)), trust=True)


def _what_of(event: m.Event) -> str:
    """Return what happened, for people."""
    trial_id = getattr(event, "trial_id", None)
    return f"{type(event).__name__} {trial_id}" if trial_id else type(event).__name__


# --- by the facts alone ----------------------------------------------------------------------------------------------


class _Replayer:
    """Walks through a record, run by run."""

    def __init__(self, record: _Record) -> None:
        self.record, self.found, self.database = record, record.found, record.layout.database
        self.existing: set[str] = set()  # checkpoints that are committed and not discarded
        self.sweep: Sweep
        self.policies: Policies
        self.late: deque[m.Notify] = deque()  # the searcher hears them after the questions of the same batch

    def run(self) -> Replay:
        for number, fact in enumerate(self.record.facts):
            if isinstance(fact.event, m.PlanChanged):
                self._begin_run(fact, self.record.facts[number:])
            elif self.found.num_runs == 0:
                raise ExperimentError(f"{self.database} does not begin with a plan; it cannot be replayed.")
            self._handle(fact)
        return self.found

    def _begin_run(self, fact: Fact, ahead: Sequence[Fact]) -> None:
        """Build what the driver built then: all from the record so far."""
        assert isinstance(fact.event, m.PlanChanged)
        plan = fact.event.plan
        trials: list[Trial] = []
        kept = None
        self.policies, _ = self.record.policies()
        if self.found.num_runs:
            self.existing.difference_update(plan.lost)
            kept = kept_before(self.database, plan, self.existing, fact.seq)
            trials = [t if t.is_ended else without(plan.lost, t, kept) for t in self.sweep.trials.values()]
            retell(self.database, self.policies.scheduler, self.policies.searcher, before=fact.seq)
        first = next((one.event for one in ahead if isinstance(one.event, m.NodesChanged)), m.NodesChanged(()))
        self.policies.look_at(packer := Packer(first.nodes, first.away))
        self.sweep = Sweep(plan, self.policies.scheduler, packer, trials, kept=kept, seq=fact.seq - 1)
        self.late.clear()
        self.record.configs.clear()  # as its driver began
        self.found.num_runs += 1

    def _handle(self, fact: Fact) -> None:
        event = fact.event
        if not isinstance(event, m.Suggested):
            self._tell_late()
        elif not isinstance(event.config, m.Failed):
            now = ask(self.policies.searcher, event.trial_id, lambda config: Resources(), self.policies.complete)
            self.record.compare_answer(fact, event, now)
        if isinstance(event, m.Asked):
            self.policies.searcher.on_request(request_of(event))
        commands = self.sweep.handle(event, fact.at)
        self.sweep.take_changes()
        self.record.compare(fact, event, commands)
        if isinstance(event, (m.Reported, m.Saved)) and event.checkpoint is not None:
            self.existing.add(event.checkpoint)
        self.existing.difference_update(c.checkpoint.path for c in commands if isinstance(c, m.Discard))
        self.late.extend(command for command in commands if isinstance(command, m.Notify))
        if not isinstance(event, m.Suggested):
            self._tell_late()

    def _tell_late(self) -> None:
        while self.late:
            try:
                tell(self.policies.searcher, self.late.popleft())
            except SweepError as error:
                self.found.notices.append(str(error))


# --- by the loop that drove it ---------------------------------------------------------------------------------------


class _Differs(Exception):
    """Something else was decided or happened: whatever comes now only follows from it."""


class _Loop(Unobserved, Engine):
    """What the loop is run with again: a machine on which happens what happened, and a record that only compares.

    As long as all commands are those of then, so is what they bring about: it is handed out in its order, at its time.
    """

    is_in_real_time = False

    def __init__(self, record: _Record) -> None:
        events = [fact.event for fact in record.facts]
        plans = [event.plan for event in events if isinstance(event, m.PlanChanged)]
        machines = [event for event in events if isinstance(event, m.NodesChanged)]
        if len(plans) != 1 or len(machines) != 1:
            raise _cannot(f"it was driven in {len(plans)} runs, on {len(machines)} inventories")
        ended = {(event.trial_id, event.attempt) for event in events if isinstance(event, m.Exited)}
        if any(isinstance(event, m.Started) and (event.trial_id, event.attempt) not in ended for event in events):
            raise _cannot("it has not ended, or its driver was killed")
        self.plan, self._nodes, self.away = plans[0], machines[0].nodes, machines[0].away
        record.found.num_runs = 1
        self._record = record
        self._ahead = deque(record.facts)

    def nodes(self) -> Sequence[Node]:
        return self._nodes

    def claims(self) -> Sequence[Claim]:
        first = self._record.facts[2].event if len(self._record.facts) > 2 else None
        return first.others if isinstance(first, m.ClaimsChanged) else ()

    def now(self) -> float:
        return (self._ahead or self._record.facts)[0 if self._ahead else -1].at

    def execute(self, command: EngineCommand) -> None:
        pass  # what it brought about is ahead

    def next_events(self, deadline: float | None) -> Sequence[m.Event]:
        """Return what came in one batch: the loop asks the searcher after it."""
        now = self.now()
        batch = takewhile(lambda fact: fact.at == now and not isinstance(fact.event, m.Suggested), self._ahead)
        events = [_unjudged(fact.event) for fact in batch]
        if not events:
            self.end()
            self._differ(Difference(0, "the end, after which the sweep goes on", None, None))
        return events

    def post(self, event: m.Event) -> None:
        pass  # nobody asks for anything but what was asked for then

    def close(self) -> None:
        pass  # there are no processes

    def end(self) -> None:
        """Find that something is left that happened then."""
        if self._ahead:
            fact = self._ahead[0]
            self._differ(Difference(fact.seq, f"{_what_of(fact.event)}, which did not happen", fact.caused, None))

    def commit(
        self, events: Sequence[m.Event], commands: Sequence[Sequence[m.Command]], changes: m.Changes, now: float
    ) -> None:
        for event, caused in zip(events, commands, strict=True):
            if not self._ahead:
                self._differ(Difference(0, f"{_what_of(event)}, which never happened", None, None))
            fact = self._ahead.popleft()
            then = fact.event
            if _what_of(then) != _what_of(event):
                self._differ(Difference(fact.seq, "what happened", _what_of(then), _what_of(event)))
            if isinstance(then, m.Suggested) and isinstance(event, m.Suggested):
                self._record.compare_answer(fact, then, event)
            self._record.compare(fact, event, caused)
            if not self._record.found.is_same:
                raise _Differs

    def _differ(self, difference: Difference) -> NoReturn:
        self._record.found.add(difference)
        raise _Differs

    def discard(self, checkpoint: CheckpointRef) -> None:
        pass  # there are none


def _unjudged(event: m.Event) -> m.Event:
    """Return a report without the verdict of then: the stop functions are asked again."""
    return replace(event, verdict=m.Verdict.NONE) if isinstance(event, m.Reported) and event.verdict else event


def _cannot(why: str) -> ExperimentError:
    return ExperimentError(
        f"this sweep cannot be run again as it was: {why}. `sweep replay --verify` decides it again from its facts."
    )
