"""What is recorded of a sweep, and the one fold of it: from facts to trials, attempts, reports and causes.

A record says what happened and what the state machine did about it; this follows both, so that whoever reads a record
need not know how: a resume, figures, dataframes, log files, a replay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sweep.core import messages as m
from sweep.core.plan import Plan
from sweep.core.reports import reference
from sweep.core.resources import Node, Placement, Resources
from sweep.core.results import TrialResult
from sweep.core.trial import CheckpointRef, Status, Trial, begun, evolve, revived

_FATES = {
    m.Hook.COMPLETE: Status.TERMINATED,
    m.Hook.ERROR: Status.ERROR,
    m.Hook.PAUSE: Status.PAUSED,
    m.Hook.RETRY: Status.PENDING,
}


@dataclass(frozen=True, slots=True)
class Fact:
    """One event of a record, and what followed from it.

    Attributes:
        seq: its number: 1, 2, 3 ...
        at: when it was committed, in seconds of driving.
        wall: when it was committed, in UTC epoch seconds.
        event: what happened.
        caused: the commands that it caused, as they are recorded; None: what such an event usually causes.
        metrics: of a report, as filled in; None: there are none, or they were not asked for.
    """

    seq: int
    at: float
    wall: float
    event: m.Event
    caused: list[list[Any]] | None
    metrics: dict[str, Any] | None

    @property
    def when(self) -> When:
        """Both its times."""
        return When(self.at, self.wall)

    @property
    def is_judged(self) -> bool:
        """Whether observers were told of the report that it is: they are not told again of what is repeated."""
        return self.caused is None or any(row[:2] == ["Notify", m.Hook.RESULT.value] for row in self.caused)


class When(NamedTuple):
    """A time: `at` in seconds of driving, `wall` in UTC epoch seconds."""

    at: float
    wall: float


_BEGIN = When(0.0, 0.0)


@dataclass(slots=True)
class Attempt:
    """One start of a trial; times that are None: it has not come to that.

    Attributes:
        number: of the attempt, from 1.
        granted: when it was given its place. started: when the user's code began. exited: when its processes were gone.
            released: when its place could be granted again.
        placement: what it holds or held; None: unknown.
        config: what it runs with. resources: what it asked for.
        source: the checkpoint of another trial that it began from; None: it began from its own, or from nothing.
        cause: the event that let it start.
        waits: what the engine said of a long start.
        pid: of its process; 0 before it started.
        exit: how it ended; None: it runs, or was lost with its driver.
        is_lost: its driver ended before it did.
        after: what the trial was then: PENDING, PAUSED, TERMINATED or ERROR; None while it runs.
    """

    trial_id: str
    number: int
    granted: When
    placement: Placement | None
    config: Mapping[str, Any]
    resources: Resources
    source: CheckpointRef | None
    cause: m.Event
    waits: str = ""
    started: When | None = None
    exited: When | None = None
    released: When | None = None
    pid: int = 0
    exit: m.Exit | None = None
    is_lost: bool = False
    after: Status | None = None


@dataclass(slots=True)
class Life:
    """All attempts of a trial together.

    Attributes:
        created: when the trial was. started, exited: when its first attempt began, and its last one ended.
        pid: of the last process. peak_rss_bytes: the most memory that one held.
        exit: how the last attempt ended that did.
    """

    created: When
    started: When | None = None
    exited: When | None = None
    pid: int = 0
    peak_rss_bytes: int = 0
    exit: m.Exit | None = None


@dataclass
class History:
    """A sweep as its facts tell it so far.

    Of a trial it knows what it is, where it is, what it holds and what it last reported; not what only the state
    machine decides by, such as its ticket. A trial that was resumed or started anew, which is no fact, is seen to be at
    its next start. From facts without results it knows nothing of reports.

    Attributes:
        trials: by id, in the order they were made.
        created: when each was.
        attempts: in the order of their starts.
        plan: of the last run of the driver.
        nodes: that there are.
        seq: number of the last fact. now: its time.
    """

    trials: dict[str, Trial] = field(default_factory=dict)
    created: dict[str, When] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)
    plan: Plan = field(default_factory=Plan)
    nodes: tuple[Node, ...] = ()
    seq: int = 0
    now: When = _BEGIN
    # By trial and number, until they are released: of a trial that starts again elsewhere, two.
    _open: dict[tuple[str, int], Attempt] = field(default_factory=dict)
    _last_request: Resources = field(default_factory=Resources)

    @classmethod
    def of(cls, facts: Iterable[Fact]) -> History:
        """Return what some facts tell."""
        history = cls()
        for fact in facts:
            history.add(fact)
        return history

    def add(self, fact: Fact) -> None:
        """Take a fact and what followed from it."""
        self.happened(fact)
        for _ in self.followed(fact):
            pass

    def lives(self) -> dict[str, Life]:
        """Return the life of each trial."""
        lives = {trial_id: Life(created) for trial_id, created in self.created.items()}
        for attempt in self.attempts:
            life = lives[attempt.trial_id]
            life.started, life.pid = life.started or attempt.started, attempt.pid or life.pid
            if attempt.exit is not None:
                life.exited, life.exit = attempt.exited, attempt.exit
                life.peak_rss_bytes = max(life.peak_rss_bytes, attempt.exit.peak_rss_bytes)
        return lives

    # --- what happened -----------------------------------------------------------------------------------------------

    def happened(self, fact: Fact) -> None:
        """Take a fact alone: everything is then as it was when the sweep began to answer it."""
        self.seq, self.now = fact.seq, fact.when
        match fact.event:
            case m.Reported() as event:
                self._reported(event, fact)
            case m.Suggested(trial_id, config, resources) if isinstance(config, Mapping):
                self._last_request = resources or self._last_request
                self.trials[trial_id] = Trial(trial_id, config, self._last_request)
                self.created[trial_id] = fact.when
            case m.Started(trial_id, number, pid):
                trial = self.trials.get(trial_id)
                if trial is not None and number > trial.attempt:  # of a record that lacks what it was given
                    self._start(trial_id, number, None, [], fact)
                if (trial := self._current(trial_id, number)) is not None:
                    if trial.status is Status.STARTING:
                        self._change(trial, status=Status.RUNNING)
                    attempt = self._open[trial_id, number]
                    attempt.started, attempt.pid = fact.when, pid
            case m.Saved(trial_id, number, _, path):
                if (trial := self._current(trial_id, number)) is not None:
                    self._bind(trial, path, fact)
            case m.Exited(trial_id, number, exit_):
                if (trial := self._current(trial_id, number)) is not None:
                    self._exited(trial, exit_, fact)
            case m.Released(trial_id, number):
                self._released(trial_id, number, fact)
            case m.Declined(trial_id, number):
                self._declined(trial_id, number, fact)
            case m.Waiting(trial_id, reason):
                if (waiting := self._latest(trial_id)) is not None:
                    waiting.waits = reason
            case m.Asked(m.Ask.RETRY, trial_id) if trial_id in self.trials:
                if (trial := self.trials[trial_id]).is_ended:
                    self.trials[trial_id] = revived(trial, from_scratch=False)
            case m.Asked(m.Ask.EDIT | m.Ask.ENQUEUE, _, detail):
                self.plan = self.plan.edited(detail)
            case m.NodesChanged(nodes):
                self.nodes = nodes
            case m.PlanChanged(plan):
                self._begin_run(plan, fact)

    def _reported(self, event: m.Reported, fact: Fact) -> None:
        trial = self._current(event.trial_id, event.attempt)
        if trial is None or fact.metrics is None:
            return
        result = TrialResult(fact.metrics, fact.seq)
        status = Status.RUNNING if trial.status is Status.STARTING else trial.status
        trial = self._change(trial, status=status, count=trial.count + 1, last_result=result)
        if event.checkpoint is not None:
            self._bind(trial, event.checkpoint, fact)

    def _bind(self, trial: Trial, path: str, fact: Fact) -> None:
        """Let a trial continue from a checkpoint, unless it was given up at once: by one that becomes another."""
        if ["Discard", path] not in (fact.caused or ()):
            self._change(trial, checkpoint=reference(trial, path, trial.last_result))

    def _exited(self, trial: Trial, exit_: m.Exit, fact: Fact) -> None:
        attempt = self._open[trial.id, trial.attempt]
        attempt.exit, attempt.exited, attempt.after = exit_, fact.when, Status.PENDING
        if not any(row[0] == "Notify" and row[2] == trial.id for row in fact.caused or ()):
            self._wait(trial)
        self._change(self.trials[trial.id], started_from=None)

    def _wait(self, trial: Trial) -> None:
        count = trial.checkpoint.count if trial.checkpoint is not None else 0
        self._change(trial, status=Status.PENDING, count=count)

    def _released(self, trial_id: str, number: int, fact: Fact) -> None:
        attempt = self._open.pop((trial_id, number), None)
        if attempt is None:
            return
        attempt.released, attempt.exited = fact.when, attempt.exited or fact.when
        if self.trials[trial_id].attempt == number:
            self._change(self.trials[trial_id], placement=None)

    def _declined(self, trial_id: str, number: int, fact: Fact) -> None:
        """It did not begin: it is as it was before, unless that was decided to be its end meanwhile."""
        attempt = self._open.pop((trial_id, number), None)
        if attempt is None:
            return
        self.attempts.remove(attempt)
        trial = self._change(self.trials[trial_id], placement=None, started_from=None)
        if trial.status is Status.STARTING:
            self._wait(self._change(trial, attempt=number - 1))
        elif trial.is_held:
            self._wait(trial)

    def _begin_run(self, plan: Plan, fact: Fact) -> None:
        """The driver before is gone, and what it ran; driving goes on at the time at which it ended."""
        self.plan = plan
        for attempt in self._open.values():
            attempt.is_lost = attempt.exit is None
            attempt.after = attempt.after or Status.PENDING
            attempt.released, attempt.exited = fact.when, attempt.exited or fact.when
        for trial in list(self.trials.values()):
            if trial.placement is not None or trial.is_held:
                trial = self._change(trial, placement=None, started_from=None)
                if trial.is_held:
                    self._wait(trial)
        self._open.clear()

    # --- what followed -----------------------------------------------------------------------------------------------

    def followed(self, fact: Fact) -> Iterator[tuple[m.Hook, Trial]]:
        """Take what a fact caused, one command after the other, and yield what became of trials as each is taken:
        COMPLETE, ERROR, PAUSE and RETRY."""
        for row in fact.caused or ():
            match row:
                case ["Start", trial_id, number, placement, *later]:
                    self._start(trial_id, number, placement, later, fact)
                case ["Stop" | "Kill", trial_id, *_]:
                    if (trial := self.trials[trial_id]).is_held:
                        self._change(trial, status=Status.STOPPING)
                case ["Notify", name, trial_id, *why] if (hook := m.Hook(name)) in _FATES:
                    yield hook, self._notified(hook, trial_id, why)

    def _start(self, trial_id: str, number: int, placement: Any, later: list[Any], fact: Fact) -> None:
        trial = self.trials[trial_id]
        if self.plan.request is not None:
            trial = evolve(trial, resources=self.plan.request)
        if later:  # else all is as it was suggested
            config, resources, ref = later
            config, checkpoint = trial.config if config is None else config, CheckpointRef.parse(ref)
            trial = evolve(trial, config=config, resources=Resources.from_json(resources), checkpoint=checkpoint)
        place = Placement.from_json(placement) if placement else None
        trial = self._change(begun(evolve(trial, attempt=number - 1), place))
        source = trial.checkpoint if trial.checkpoint is not None and trial.checkpoint.owner != trial.id else None
        attempt = Attempt(trial_id, number, fact.when, place, trial.config, trial.resources, source, fact.event)
        self.attempts.append(attempt)
        self._open[trial_id, number] = attempt

    def _notified(self, hook: m.Hook, trial_id: str, why: list[Any]) -> Trial:
        trial, status = self.trials[trial_id], _FATES[hook]
        if (attempt := self._latest(trial_id)) is not None and attempt.exit is not None:
            attempt.after = status
        if status is Status.PENDING:
            self._wait(trial)
            trial = self.trials[trial_id]
        return self._change(trial, status=status, reason=why[1] if len(why) > 1 else "")

    # --- bookkeeping -------------------------------------------------------------------------------------------------

    def _current(self, trial_id: str, attempt: int) -> Trial | None:
        """Return the trial if this is its running attempt; the sweep has no ear for others."""
        trial = self.trials.get(trial_id)
        return trial if trial is not None and trial.attempt == attempt and trial.is_held else None

    def _latest(self, trial_id: str) -> Attempt | None:
        """Return the last attempt of a trial, unless that is released."""
        return self._open.get((trial_id, self.trials[trial_id].attempt)) if trial_id in self.trials else None

    def _change(self, trial: Trial, **changes: Any) -> Trial:
        self.trials[trial.id] = trial = evolve(trial, **changes)
        return trial
