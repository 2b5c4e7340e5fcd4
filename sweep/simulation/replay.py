"""Replay a record: handle its facts again with new objects, and compare what is decided with what was decided then."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from searchers.base import Searcher, Signal, answer_of
from sweep.core.messages import (
    Command,
    Discard,
    Event,
    Failed,
    NodesChanged,
    Notify,
    PlanChanged,
    Reported,
    Saved,
    Suggested,
)
from sweep.core.packing import Packer
from sweep.core.retention import without
from sweep.core.sweep import Sweep
from sweep.core.trial import Trial
from sweep.errors import ExperimentError, SweepError, refuse_unknown
from sweep.launch.drive import tell
from sweep.launch.policies import Policies, build_policies
from sweep.launch.spec import RunSpec
from sweep.launch.stop_rules import StopRules
from sweep.record.encoding import decode, encode, is_same
from sweep.record.facts import Fact, read_facts
from sweep.record.layout import ExperimentLayout
from sweep.record.reader import ExperimentReader
from sweep.record.records import command_texts
from sweep.record.resume import kept_before, retell
from sweep.record.saved_spec import read_saved_spec, space_keys
from sweep.worker.trainable import prepare

__all__ = ["Difference", "Replay", "own_policies", "replay", "rows_of", "what_of"]

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
    """What a replay found.

    Attributes:
        num_runs: runs of the driver.
        num_events: facts that were handled again.
        num_commands: commands that followed from them, Notify and plain answers to reports included.
        num_suggestions: configs that the searcher was asked for again.
        num_differences: facts of which something else followed; `differences` holds the first of them.
        notices: what could not be compared, and why.
    """

    num_runs: int = 0
    num_events: int = 0
    num_commands: int = 0
    num_suggestions: int = 0
    num_differences: int = 0
    differences: list[Difference] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    @property
    def is_same(self) -> bool:
        """Whether everything came out as recorded."""
        return not self.num_differences

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
    layout = ExperimentLayout(Path(experiment))
    events = list(read_facts(layout.database))
    if not events:
        raise ExperimentError(f"{layout.root} holds no events yet: nothing was decided.")
    given = {"search_alg": search_alg, "scheduler": scheduler, "config": config, "trainable": trainable}
    return _Replayer(layout, events, {name: value for name, value in given.items() if value is not None}).run()


def own_policies(layout: ExperimentLayout, given: Mapping[str, Any]) -> tuple[Policies, StopRules]:
    """Build the searcher and the scheduler of an experiment anew, from its directory.

    Args:
        given: arguments of `sweep.run` that take the place of the stored ones, and `trainable`.

    Returns:
        Them, and what `stop=` meant.

    Raises:
        ExperimentError: something is not there and was not given.
    """
    meta = ExperimentReader(layout.root).meta
    arguments, lost = read_saved_spec(layout.root)
    arguments = {**arguments, **given}
    needed = ("search_alg", "scheduler", "config", "stop")
    missing = [name for name in lost if name in needed and name not in given]
    if missing:
        raise ExperimentError(
            f"{layout.root} does not hold {' and '.join(missing)}: it could not be pickled, or its code is not here. "
            "Pass it to sweep.replay."
        )
    kept = ("metric", "mode", "num_samples", "max_concurrent_trials", *needed)
    known = {name: arguments[name] for name in kept if name in arguments}
    spec = RunSpec(None, **{**known, "config": _space(layout, arguments, meta)})
    return build_policies(spec, int(meta["seed"])), spec.stop_rules


def _space(layout: ExperimentLayout, arguments: Mapping[str, Any], meta: Mapping[str, Any]) -> Mapping[str, Any]:
    space: Mapping[str, Any] = arguments.get("config") or {}
    if "trainable" in arguments:
        prepared = prepare(arguments["trainable"])
        space = prepared.space(space) if prepared.space is not None else space
    if space_keys(space) != meta.get("space_keys", space_keys(space)):
        raise ExperimentError(
            f"{layout.root} was run with a space of {', '.join(meta['space_keys']) or 'nothing'}, and what is known "
            f"here has {', '.join(space_keys(space)) or 'nothing'}. Pass what was run as trainable= if it is a "
            "trainer, or the space as config=."
        )
    return space


class _Replayer:
    """Walks through a record, run by run."""

    def __init__(self, layout: ExperimentLayout, events: Sequence[Fact], given: Mapping[str, Any]) -> None:
        self.layout, self.events, self.given = layout, events, given
        self.found = Replay()
        self.existing: set[str] = set()  # checkpoints that are committed and not discarded
        self.sweep: Sweep
        self.policies: Policies
        self.late: deque[Notify] = deque()  # the searcher hears them after the questions of the same batch

    def run(self) -> Replay:
        for fact in self.events:
            if isinstance(fact.event, PlanChanged):
                self._begin_run(fact)
            elif self.found.num_runs == 0:
                raise ExperimentError(f"{self.layout.database} does not begin with a plan; it cannot be replayed.")
            self._handle(fact)
        return self.found

    def _begin_run(self, fact: Fact) -> None:
        """Build what the driver built then: all from the record so far."""
        assert isinstance(fact.event, PlanChanged)
        plan = fact.event.plan
        trials: list[Trial] = []
        kept = None
        self.policies, _ = own_policies(self.layout, self.given)
        if self.found.num_runs:
            self.existing.difference_update(plan.lost)
            kept = kept_before(self.layout.database, plan, self.existing, fact.seq)
            trials = [t if t.is_ended else without(plan.lost, t, kept) for t in self.sweep.trials.values()]
            retell(self.layout.database, self.policies.scheduler, self.policies.searcher, before=fact.seq)
        nodes = next((t.event.nodes for t in self._after(fact) if isinstance(t.event, NodesChanged)), ())
        self.sweep = Sweep(plan, self.policies.scheduler, Packer(nodes), trials, kept=kept, seq=fact.seq - 1)
        self.late.clear()
        self.found.num_runs += 1

    def _after(self, fact: Fact) -> Iterator[Fact]:
        first = self.events[0].seq
        return iter(self.events[fact.seq - first :])

    def _handle(self, fact: Fact) -> None:
        event = fact.event
        if isinstance(event, Suggested):
            self._ask(fact, event)
        else:
            self._tell_late()
        commands = self.sweep.handle(event, fact.at)
        self.sweep.take_changes()
        now = rows_of(event, commands)
        if now != fact.caused:
            self.found.add(Difference(fact.seq, what_of(event), fact.caused, now))
        self.found.num_events += 1
        self.found.num_commands += len(commands)
        self._follow_checkpoints(event, commands)
        self.late.extend(command for command in commands if isinstance(command, Notify))
        if not isinstance(event, Suggested):
            self._tell_late()

    def _ask(self, fact: Fact, event: Suggested) -> None:
        """Ask the searcher what it was asked then; an error of then cannot be expected to come again."""
        if isinstance(event.config, Failed):
            return
        searcher = self.policies.searcher
        try:
            answer = self._answer(searcher, event.trial_id)
        except Exception as error:  # a searcher may be the user's own
            answer = f"{type(error).__name__}: {error}"
        then = event.config.value if isinstance(event.config, Signal) else dict(event.config)
        self.found.num_suggestions += 1
        if not is_same(answer, then):
            self.found.add(Difference(fact.seq, f"the searcher was asked for {event.trial_id}", then, answer))

    def _answer(self, searcher: Searcher, trial_id: str) -> Any:
        answer = answer_of(searcher.suggest(trial_id))
        if isinstance(answer, Signal):
            return answer.value
        config = self.policies.complete(answer, trial_id)
        return decode(encode(dict(config)), trust=True)  # as it would have come back from the record

    def _tell_late(self) -> None:
        while self.late:
            command = self.late.popleft()
            try:
                tell(self.policies.searcher, command)
            except SweepError as error:
                self.found.notices.append(str(error))

    def _follow_checkpoints(self, event: Event, commands: Sequence[Command]) -> None:
        if isinstance(event, (Reported, Saved)) and event.checkpoint is not None:
            self.existing.add(event.checkpoint)
        self.existing.difference_update(c.checkpoint.path for c in commands if isinstance(c, Discard))


def rows_of(event: Event, commands: Sequence[Command]) -> Any:
    """Return what followed as the record writes it."""
    text = command_texts(event, commands)
    return decode(text) if text is not None else None


def what_of(event: Event) -> str:
    """Return what happened, for people."""
    trial_id = getattr(event, "trial_id", None)
    return f"{type(event).__name__} {trial_id}" if trial_id else type(event).__name__
