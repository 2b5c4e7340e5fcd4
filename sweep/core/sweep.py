"""The state machine that owns all trials: it takes facts and returns commands, and never waits or does I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from searchers.base import BY_PERSON, EXHAUSTED, NOT_NOW
from searchers.errors import SearchError
from sweep.core import failures, scheduler_guard
from sweep.core import messages as m
from sweep.core.nesting import Escalations
from sweep.core.packing import Packer
from sweep.core.plan import Plan
from sweep.core.reports import Expected, auto_filled, fault, improves, reference, silence, worth
from sweep.core.resources import Resources
from sweep.core.results import TrialResult
from sweep.core.retention import CheckpointLedger, Kept
from sweep.core.stoppers import reached
from sweep.core.trial import (
    ENDED,
    HELD,
    LEGAL,
    Cause,
    CheckpointRef,
    Status,
    Trial,
    begun,
    cloned,
    evolve,
    number_of,
    revived,
)
from sweep.core.waiting import FRONT, PAUSED, PendingQueue, Suggestions, Timers, keeps_place
from sweep.errors import MetricError, SweepError, SweepStalled

if TYPE_CHECKING:
    from sweep.schedulers.base import Scheduler


# Facts after which a searcher that said "not now" is asked again.
_NEWS = (m.Exited, m.Released, m.Asked, m.NodesChanged, m.PlanChanged)
_RANK: dict[type[object], int] = {m.SaveTrial: 1, m.PauseTrial: 2, m.ResizeTrial: 3}


class Sweep:
    """Decide what happens to every trial; never wait, never do I/O.

    `handle` takes one event at a time and returns the commands it causes. The handlers below stand in the order of a
    trial's life: suggested, started, reported, saved, exited, released; then what persons ask and what time brings.

    Args:
        plan: what to do; the `PlanChanged` event replaces it.
        packer: which trial holds what.
        trials: as loaded from the record; those that a process may have held are recovered at the first `PlanChanged`.
        kept: the checkpoints that exist, per trial, oldest first.
        seq: number of the last recorded event.
    """

    def __init__(
        self,
        plan: Plan,
        scheduler: Scheduler,
        packer: Packer,
        trials: Iterable[Trial] = (),
        *,
        kept: Mapping[str, Iterable[Kept]] | None = None,
        seq: int = 0,
    ) -> None:
        self.plan = plan
        self.seq = seq
        self._scheduler = scheduler
        self._packer = packer
        self._trials: dict[str, Trial] = {}
        self._counts: Counter[Status] = Counter()
        self._num_held = 0
        self._queue = PendingQueue()
        self._suggestions = Suggestions()
        self._ledger = CheckpointLedger(kept or {})
        self._expected = Expected(Plan(), {})
        self._unreleased: set[tuple[str, int]] = set()
        self._last_request = Resources()
        self._timers = Timers()
        self._answering: tuple[str, int] | None = None  # trial and seq of the report that still needs its answer
        self._refusing = False
        self._end_reason: tuple[str, Cause] = ("", Cause.NONE)
        self._ending: m.Ask | None = None  # DRAIN, INTERRUPT or CANCEL (which also stands for budget and stop_all)
        self._is_open = False
        self.is_paused = False  # the whole sweep, by a person
        self._has_nodes = False
        self._must_pump = False
        self._failed = False
        self._out: list[m.Command] = []
        self._changes = m.Changes()
        loaded = [trial.asking(plan.request) for trial in trials]
        for trial in sorted(loaded, key=lambda trial: trial.ticket):  # the longest waiting comes first again
            self._put(trial)
        self._trials = {trial.id: self._trials[trial.id] for trial in loaded}
        self._last_request = plan.request or (loaded[-1].resources if loaded else self._last_request)
        self._escalations = Escalations(loaded)
        self._changes = m.Changes()
        self._out = []

    # --- what others may see ---------------------------------------------------------------------------------------

    @property
    def trials(self) -> Mapping[str, Trial]:
        """All trials by id, in the order they were made; a read-only view of frozen values."""
        return MappingProxyType(self._trials)

    @property
    def counts(self) -> Mapping[Status, int]:
        """How many trials are in each status."""
        return MappingProxyType(self._counts)

    @property
    def num_held(self) -> int:
        """How many trials may have a process."""
        return self._num_held

    @property
    def ending(self) -> m.Ask | None:
        """Why nothing new starts: DRAIN, INTERRUPT, CANCEL (also: budget spent, stop_all, fail_fast), or None."""
        return self._ending

    @property
    def deadline(self) -> float | None:
        """When to send `Tick` at the latest; None: nothing depends on time."""
        budget = self.plan.time_budget_s if self._ending is None else None
        times = (self._timers.soonest, budget, self._suggestions.reask_at if self._can_ask else None)
        return min([time for time in times if time is not None], default=None)

    @property
    def wanted(self) -> Resources | None:
        """What starts as soon as other sweeps of the machine let it; None: nothing waits for them."""
        if not self._packer.others or self._ending is not None or self._failed:
            return None
        return self._queue.wanted(self._packer, self._last_request if self._can_ask else None)

    @property
    def done(self) -> bool:
        """Nothing runs, nothing is outstanding and nothing more can start."""
        if self._failed:
            return True
        if not self._is_open or self.num_held or self._unreleased or self._suggestions.num_outstanding:
            return False
        return self._ending is not None or not (self._counts[Status.PENDING] or self._can_ask or self._num_paused())

    def metric_error(self) -> MetricError | None:
        """Return what is to be raised when the sweep is over: no trial ever reported its metric."""
        return None if self._ending in (m.Ask.DRAIN, m.Ask.INTERRUPT) else self._expected.error_at_end(self._trials)

    def take_changes(self) -> m.Changes:
        """Return what changed since the last call, for the record."""
        changes, self._changes = self._changes, m.Changes()
        return changes

    def preview(self, event: m.Reported) -> TrialResult | None:
        """Return the result that a report will become, without changing anything; None if it will be dropped.

        For stop functions of the user, whose verdict must be in the event before it is handled.
        """
        trial = self._trials.get(event.trial_id)
        if trial is None or trial.attempt != event.attempt or trial.status not in (Status.STARTING, Status.RUNNING):
            return None
        if trial.count + 1 <= trial.judged_to:
            return None
        return TrialResult(auto_filled(trial, event))

    # --- the one entry ---------------------------------------------------------------------------------------------

    def handle(self, event: m.Event, now: float) -> list[m.Command]:
        """Take one fact and return the commands that follow from it; never raises for the sweep's fault."""
        self.seq += 1
        self._out = []
        if isinstance(event, _NEWS):
            self._suggestions.hear_news()
        match event:
            case m.Reported():
                self._on_reported(event, now)
            case m.Suggested():
                self._on_suggested(event, now)
            case m.Started():
                self._on_started(event, now)
            case m.Saved():
                self._on_saved(event, now)
            case m.Exited():
                self._on_exited(event, now)
            case m.Released():
                self._on_released(event)
            case m.Declined():
                self._on_declined(event, now)
            case m.Waiting():
                self._on_waiting(event)
            case m.Asked():
                self._on_asked(event, now)
            case m.NodesChanged():
                self._on_nodes_changed(event, now)
            case m.ClaimsChanged(others):
                self._packer.set_others(others)
                self._must_pump = True
            case m.PlanChanged():
                self._on_plan_changed(event, now)
        is_due = self._timers.waiting and self._timers.waiting[0][0] <= now
        if is_due or self._suggestions.reask_at is not None or self.plan.time_budget_s is not None:
            self._on_time(now)
        while self._must_pump and self._is_open and not self._failed:
            self._must_pump = False
            self._pump(now)
        return self._out

    # --- a trial's life --------------------------------------------------------------------------------------------

    def _on_suggested(self, event: m.Suggested, now: float) -> None:
        number = number_of(event.trial_id)
        if not self._suggestions.take(number):
            return
        self._must_pump = True
        match event.config:
            case m.Failed(error):
                if self._suggestions.failed(number):
                    self._fail(SearchError(f"the searcher failed 3 times in a row: {error}"))
            case signal if signal is NOT_NOW:
                self._suggestions.put_off(number, now)
            case signal if signal is EXHAUSTED:
                self._suggestions.exhausted()
            case config:
                self._suggestions.answered()
                ticket = FRONT + self.seq if event.state == BY_PERSON else 0
                trial = Trial(event.trial_id, config, event.resources or self._last_request, ticket=ticket)
                self._add(self._escalations.new(trial), now)

    def _add(self, trial: Trial, now: float) -> None:
        trial = self._put(trial)
        self._last_request = resources = trial.resources
        self._hear("on_trial_add", trial)
        if self._ending is m.Ask.CANCEL:
            self._end(trial, Status.TERMINATED, self._end_reason[0], now, self._end_reason[1])
        elif not self._packer.could_ever_fit(resources):
            self._end(trial, Status.ERROR, self._why_never(trial), now)

    def _start(self, trial: Trial, now: float) -> bool:
        holder = (trial.id, trial.attempt + 1)
        placement = self._packer.place(trial.resources, holder)
        if placement is None:
            return False
        trial = self._put(begun(trial, placement))
        self._unreleased.add(holder)
        self._out.append(m.Start(trial))
        return True

    def _on_started(self, event: m.Started, now: float) -> None:
        trial = self._current(event.trial_id, event.attempt)
        if trial is None:
            return
        if trial.status is Status.STARTING:
            trial = evolve(trial, status=Status.RUNNING, reason="")
        trial = self._put(evolve(trial, running_since=now))
        if self.plan.trial_timeout_s is not None:
            self._timers.set(now + self.plan.trial_timeout_s - trial.ran_s, trial, is_limit=True)
        self._out.append(m.Notify(m.Hook.START, trial))
        if trial.started_from is not None:
            self._out.append(m.Notify(m.Hook.RESTORE, trial))

    def _on_waiting(self, event: m.Waiting) -> None:
        trial = self._trials.get(event.trial_id)
        if trial is not None and trial.status in (Status.STARTING, Status.RUNNING) and trial.reason != event.reason:
            trial = self._put(evolve(trial, reason=event.reason, cause=event.cause))
            if trial.waits_for_space and self._ending is m.Ask.INTERRUPT:
                self._kill(trial, "interrupted")
        elif trial is not None and not trial.is_held:
            self._packer.explain((trial.id, trial.attempt), event.reason)
            if (oldest_id := self._queue.startable(self._packer)[0]) is not None:  # it may wait for just that
                self._say_why(oldest_id)

    def _on_reported(self, event: m.Reported, now: float) -> None:
        trial = self._current(event.trial_id, event.attempt)
        if trial is None:
            return  # an attempt that is gone still talks
        values = auto_filled(trial, event)
        result = TrialResult(values, self.seq)
        count = trial.count + 1
        is_stopping = trial.status is Status.STOPPING
        is_new = count > trial.judged_to and not is_stopping
        self._changes.results[self.seq] = values
        changes: dict[str, Any] = {"count": count, "last_result": result}
        wrong = ""
        if not is_stopping:
            wrong, failure = fault(self.plan, result, event.metrics)
            if wrong:
                changes["failure"] = failure
        if is_new:
            changes["judged_to"] = count
            changes["losses"] = changes["node_losses"] = 0
            if self.plan.metric and not wrong and improves(trial, result, self.plan):
                changes["best_result"] = result
        if trial.status is Status.STARTING:
            changes["status"] = Status.RUNNING
        trial = self._put(evolve(trial, **changes))
        if is_new:
            self._out.append(m.Notify(m.Hook.RESULT, trial, result))
        if event.checkpoint is not None:
            trial = self._bind(trial, event.checkpoint, result)
        if is_stopping:
            self._out.append(m.Stop(trial.id, trial.attempt, event.seq, failures.wants_save(trial, self.plan)))
            return
        self._answering = (trial.id, event.seq)
        if wrong:
            self._expected.hear(trial, result)
            self._stop(trial, Status.ERROR, wrong, now)
        elif is_new:
            self._judge(trial, result, event.verdict, now)
        if self._answering is not None:
            self._answer(self._trials[trial.id], has_checkpoint=event.checkpoint is not None, now=now)
        self._answering = None

    def _judge(self, trial: Trial, result: TrialResult, verdict: m.Verdict, now: float) -> None:
        """Stop rules first, then the scheduler, as in Tune."""
        plan = self.plan
        if self._expected.is_open:
            self._expected.hear(trial, result)
            if self._fail_for_what_is_missing():
                return
        if verdict is m.Verdict.STOP_ALL:
            self._stop_all("the stop rule ended the sweep", now)
            return
        why = "reported done" if result.get("done") is True else "by the stop rule" if verdict is m.Verdict.STOP else ""
        cause = Cause.NONE if why else Cause.REACHED
        why = why or (reached(plan.stop, result) if plan.stop else "")
        if why:
            if silent := self._went_through(trial):
                why, cause = f"{why}; {silent}", Cause.SILENT
            self._decide([m.StopTrial(trial.id, why, cause)], now)
            self._fail_for_what_is_missing()
            return
        self._consult("on_result", now, trial, result, self.trials)

    def _went_through(self, trial: Trial) -> str:
        """Take note that a trial went all its way, and return what it should have reported and did not."""
        if self._ending is not None:
            return ""  # it might have reported it later
        self._expected.went_through(trial)
        return silence(trial, self.plan)

    def _answer(self, trial: Trial, *, has_checkpoint: bool, now: float) -> None:
        """Answer a report that no decision has answered: carry out what was pending, or let it continue."""
        assert self._answering is not None
        seq = self._answering[1]
        can_save = self.plan.can_save_on_demand
        pending = trial.pending
        if isinstance(pending, (m.PauseTrial, m.ResizeTrial)):
            is_savable = has_checkpoint or can_save
            if is_savable or (self._ending is m.Ask.INTERRUPT and trial.checkpoint is None):
                is_pause = isinstance(pending, m.PauseTrial)
                to = Status.PAUSED if is_pause and is_savable else Status.PENDING
                reason = pending.reason if isinstance(pending, m.PauseTrial) else ""
                trial = self._put(evolve(trial, is_saved=has_checkpoint, pending=None if is_pause else pending))
                self._stop(trial, to, reason, now, save=can_save and not has_checkpoint)
                return
            if trial.checkpoint is None:
                reason = "cannot be paused: it never saved a checkpoint"
                trial = self._put(evolve(trial, pending=None, is_by_person=False, reason=reason))
                self._refuse(pending, trial, now)
                if self._answering is None:
                    return
        elif isinstance(pending, m.SaveTrial) and (can_save or has_checkpoint):
            trial = self._put(evolve(trial, pending=None))
            if not has_checkpoint:
                self._out.append(m.Save(trial.id, trial.attempt, seq))
                return
        frequency = self.plan.checkpoint_frequency
        if can_save and frequency and trial.count % frequency == 0 and not has_checkpoint:
            self._out.append(m.Save(trial.id, trial.attempt, seq))
        else:
            self._out.append(m.Continue(trial.id, trial.attempt, seq))

    def _on_saved(self, event: m.Saved, now: float) -> None:
        trial = self._current(event.trial_id, event.attempt)
        if trial is not None:
            trial = self._bind(trial, event.checkpoint, trial.last_result)
            if isinstance(trial.pending, m.SaveTrial):
                self._put(evolve(trial, pending=None))

    def _bind(self, trial: Trial, path: str, result: TrialResult | None) -> Trial:
        """Make a stored checkpoint the one that the trial continues from."""
        if isinstance(trial.pending, m.CloneTrial):  # about to become another: what the old attempt saves is unused
            self._out.append(m.Discard(CheckpointRef(path)))
            return trial
        ref = reference(trial, path, result)
        is_saved = trial.is_saved or trial.status is Status.STOPPING
        trial = self._put(evolve(trial, checkpoint=ref, is_saved=is_saved))
        kept, by_score = Kept(ref, worth(result, self.plan)), bool(self.plan.checkpoint_score)
        for free in self._ledger.add(trial.id, kept, self.plan.num_to_keep, by_score):
            self._out.append(m.Discard(free))
        self._out.append(m.Notify(m.Hook.SAVE, trial))
        return trial

    def _on_exited(self, event: m.Exited, now: float) -> None:
        trial = self._current(event.trial_id, event.attempt)
        if trial is None:
            return
        exit_ = event.exit
        self._must_pump = exit_.kind is not m.ExitKind.NODE_LOST  # nothing more starts there: `NodesChanged` comes next
        if trial.status is Status.STARTING and exit_.kind is m.ExitKind.FINISHED:
            trial = self._put(evolve(trial, status=Status.RUNNING))
        trial = self._ledger.after_exit(trial, exit_.kind)
        status, trial = failures.after_exit(trial, exit_, self.plan, now)
        if exit_.kind is m.ExitKind.FINISHED and trial.next_status not in ENDED:
            silent = self._went_through(trial)
            trial = evolve(trial, reason=silent, cause=Cause.SILENT if silent else Cause.NONE)
        match status:
            case Status.PENDING:
                is_retry = bool(trial.failure) or trial.status is not Status.STOPPING
                is_waiting = self._requeue(trial, trial.reason, now)
                if is_waiting and exit_.kind is m.ExitKind.NEEDS_MORE:
                    self._learn(self._trials[trial.id])
                elif is_waiting and is_retry:
                    self._out.append(m.Notify(m.Hook.RETRY, self._trials[trial.id]))
            case Status.PAUSED:
                trial = self._put(evolve(trial, status=status, next_status=None))
                self._out.append(m.Notify(m.Hook.PAUSE, trial))
            case _:
                self._end(trial, status, trial.reason, now)
                self._fail_for_what_is_missing()

    def _requeue(self, trial: Trial, reason: str, now: float) -> bool:
        """Make a trial PENDING, with what waited for its exit: another config, another request.

        Returns whether it waits now; a trial that no node can hold any more is in ERROR instead.
        """
        trial = failures.put_back(trial, reason, lambda r: not self._has_nodes or self._packer.could_ever_fit(r))
        if self._has_nodes and not self._packer.could_ever_fit(trial.resources):
            # its status is still the old one in the books, so that PAUSED and RUNNING alike go to ERROR
            self._end(trial, Status.ERROR, self._why_never(trial), now)
            return False
        self._put(trial)
        return True

    def _learn(self, trial: Trial) -> None:
        """Let those that have not begun ask for what the `fit()` of a trial like them proved to need."""
        for other in self._escalations.learn(trial, self._trials.values()):
            self._last_request = self._put(other).resources

    def _end(self, trial: Trial, status: Status, reason: str, now: float, cause: Cause | None = None) -> None:
        trial = trial.ended(status, reason)
        trial = self._put(trial if cause is None else evolve(trial, cause=cause))
        self._must_pump = True
        self._suggestions.hear_news()  # also when no process ended: the scheduler may have stopped one that was paused
        self._out.append(
            m.Notify(m.Hook.COMPLETE if status is Status.TERMINATED else m.Hook.ERROR, trial, trial.last_result)
        )
        self._consult("on_trial_end", now, trial)
        self._fail(self._expected.ended(trial, self._num_held) if self._ending is None else None)
        if status is Status.ERROR and self.plan.fail_fast and self._ending is None:
            self._stop_all(f"trial {trial.number:05d} failed and fail_fast is set", now)

    def _why_never(self, trial: Trial) -> str:
        return self._packer.why_never(trial.resources, of_workers=trial.escalation is not None)

    def _on_released(self, event: m.Released) -> None:
        holder = (event.trial_id, event.attempt)
        if holder not in self._unreleased:
            return
        self._unreleased.discard(holder)
        self._packer.release(holder)
        self._must_pump = True
        trial = self._trials.get(event.trial_id)
        if trial is not None and trial.attempt == event.attempt and trial.placement is not None:
            self._put(evolve(trial, placement=None))

    def _on_declined(self, event: m.Declined, now: float) -> None:
        """Another sweep was faster: the trial waits where it did before, or goes where it was to go meanwhile."""
        trial = self._current(event.trial_id, event.attempt)
        if trial is not None and trial.status is Status.STARTING:
            self._requeue(failures.unbegun(trial), trial.reason, now)
        elif trial is not None:
            self._on_exited(m.Exited(trial.id, trial.attempt, m.Exit(m.ExitKind.STOPPED)), now)
        self._on_released(m.Released(event.trial_id, event.attempt))

    # --- decisions -------------------------------------------------------------------------------------------------

    def _consult(self, hook: str, now: float, *arguments: Any) -> None:
        """Ask the scheduler and carry out what it answers; its own faults end the sweep with the record intact."""
        try:
            decisions = scheduler_guard.consult(self._scheduler, hook, *arguments)
        except SweepError as error:
            self._fail(error)
            return
        if decisions:
            self._decide(decisions, now)

    def _hear(self, hook: str, *arguments: Any) -> None:
        """Tell the scheduler something that it has no answer to."""
        try:
            scheduler_guard.tell(self._scheduler, hook, *arguments)
        except SweepError as error:
            self._fail(error)

    def _decide(self, decisions: Iterable[m.Decision], now: float) -> None:
        for decision in decisions:
            trial = self._trials.get(decision.trial_id)
            if trial is not None and not trial.is_ended:
                self._apply(decision, trial, now)

    def _apply(self, decision: m.Decision, trial: Trial, now: float) -> None:
        """Carry out one decision; docs/explanation/life-of-a-trial.md says what does what in which status."""
        if trial.next_status is Status.ERROR:
            return  # its end is decided
        is_active = trial.status in (Status.STARTING, Status.RUNNING)
        match decision:
            case m.StopTrial(_, reason, cause):
                trial = evolve(trial, reason=reason, cause=cause)
                if is_active:
                    save = self.plan.checkpoint_at_end and self.plan.can_save_on_demand
                    self._stop(trial, Status.TERMINATED, reason, now, save=save)
                elif trial.status is Status.STOPPING:
                    self._put(evolve(trial, next_status=Status.TERMINATED, pending=None))
                else:
                    self._end(trial, Status.TERMINATED, reason, now)
            case m.CloneTrial():
                self._clone(decision, trial, now)
            case m.ResumeTrial():
                self._resume(trial, now)
            case m.PauseTrial() | m.SaveTrial():
                if is_active:
                    self._pend(decision, trial, now)
            case m.ResizeTrial(_, resources):
                is_fixed = trial.escalation is not None and resources != trial.resources  # by what its fit() needs
                if is_fixed or not self._packer.could_ever_fit(resources):
                    self._refuse(decision, trial, now)
                elif is_active:
                    self._pend(decision, trial, now)
                elif trial.status in (Status.PENDING, Status.PAUSED):
                    self._must_pump = True
                    self._put(evolve(trial, resources=resources))

    def _resume(self, trial: Trial, now: float) -> None:
        if trial.is_by_person:
            return  # a person paused it; only a person resumes it
        if trial.status is not Status.STOPPING and isinstance(trial.pending, m.PauseTrial):
            self._put(evolve(trial, pending=None))
        elif trial.status is Status.STOPPING and trial.next_status is Status.PAUSED:
            self._put(evolve(trial, next_status=Status.PENDING))
        elif trial.status is Status.PAUSED:
            self._must_pump = True
            self._requeue(trial, "", now)

    def _pend(self, decision: m.PauseTrial | m.SaveTrial | m.ResizeTrial, trial: Trial, now: float) -> None:
        """Keep the highest of the decisions that wait for the next report; the loser is refused."""
        held = trial.pending
        if held is None or _RANK[type(decision)] >= _RANK.get(type(held), 0):
            trial = self._put(evolve(trial, pending=decision))
            if held is not None and type(held) is not type(decision):
                self._refuse(held, trial, now)
        else:
            self._refuse(decision, trial, now)

    def _clone(self, decision: m.CloneTrial, trial: Trial, now: float) -> None:
        source = self._trials.get(decision.source_id)
        checkpoint = source.checkpoint if source is not None else None
        if checkpoint is None:
            self._refuse(decision, trial, now)
            return
        bound = replace(decision, checkpoint=checkpoint)  # as it is now (rule 9)
        if trial.status is Status.PENDING or trial.status is Status.PAUSED:
            self._must_pump = True
            self._requeue(evolve(trial, **cloned(bound.config, checkpoint)), trial.reason, now)
        elif trial.status is Status.STOPPING:
            if trial.next_status is not Status.TERMINATED:
                self._put(evolve(trial, next_status=Status.PENDING, pending=bound, is_by_person=False))
        else:
            trial = self._put(evolve(trial, pending=bound))
            self._stop(trial, Status.PENDING, f"continues from trial {number_of(decision.source_id):05d}", now)

    def _refuse(self, decision: m.Decision, trial: Trial, now: float) -> None:
        """Tell the scheduler that a decision was not carried out; what it answers to that is not refused again."""
        if self._refusing:
            return
        self._refusing = True
        self._consult("on_refused", now, trial, decision)
        self._refusing = False

    def _stop(self, trial: Trial, to: Status, reason: str, now: float, *, save: bool = False) -> None:
        """Tell a STARTING or RUNNING trial to end, and set the time at which it will be killed if it does not."""
        changes: dict[str, Any] = {"status": Status.STOPPING, "next_status": to, "reason": reason}
        if to in ENDED:
            changes["pending"] = None
        trial = self._put(evolve(trial, **changes))
        seq = 0
        if self._answering is not None and self._answering[0] == trial.id:
            seq = self._answering[1]
            self._answering = None
        self._out.append(m.Stop(trial.id, trial.attempt, seq, save))
        grace_s = failures.grace_s(trial, self.plan, save=save, is_hurried=self._ending is m.Ask.INTERRUPT)
        self._timers.set(now + grace_s, trial)

    def _stop_all(self, reason: str, now: float, cause: Cause = Cause.NONE) -> None:
        """End everything for good: budget spent, a stopper's stop_all, fail_fast, cancel."""
        self._ending = m.Ask.CANCEL
        self._end_reason = reason, cause
        self._decide([m.StopTrial(trial_id, reason, cause) for trial_id in self._trials], now)

    # --- persons, machines, plans, time ----------------------------------------------------------------------------

    def _on_asked(self, event: m.Asked, now: float) -> None:
        self._must_pump = True
        trial = self._trials.get(event.trial_id) if event.trial_id is not None else None
        match event.what:
            case m.Ask.DRAIN if event.trial_id is None:
                self._ending = self._ending or m.Ask.DRAIN
            case m.Ask.DRAIN if trial is not None and not trial.is_ended:
                self._apply(m.StopTrial(trial.id, "stopped by a person"), trial, now)
            case m.Ask.EDIT | m.Ask.ENQUEUE:
                self.plan = self.plan.edited(event.detail)
                self._suggestions.is_exhausted = False
                if event.what is m.Ask.ENQUEUE and self._can_ask:
                    self._out.append(m.Suggest(self._id(self._suggestions.next_number())))
            case m.Ask.PAUSE | m.Ask.RESUME if event.trial_id is None:
                self.is_paused = event.what is m.Ask.PAUSE
                for one in [t for t in self._trials.values() if self.is_paused or t.is_by_person]:
                    self._on_asked(replace(event, trial_id=one.id), now)
            case m.Ask.INTERRUPT:
                self._interrupt(now)
            case m.Ask.CANCEL if event.trial_id is None:
                self._stop_all("cancelled", now, Cause.EARLY)
                for held in [t for t in self._trials.values() if t.is_held]:
                    self._out.append(m.Kill(held.id, held.attempt, "cancelled"))
            case m.Ask.CANCEL if trial is not None and not trial.is_ended:
                self._apply(m.StopTrial(trial.id, "cancelled"), trial, now)
                if trial.is_held:
                    self._out.append(m.Kill(trial.id, trial.attempt, "cancelled"))
            case m.Ask.PAUSE if trial is not None and trial.status in (Status.STARTING, Status.RUNNING):
                self._apply(m.PauseTrial(trial.id, "paused by a person"), trial, now)
                trial = self._trials[trial.id]
                if isinstance(trial.pending, m.PauseTrial):
                    self._put(evolve(trial, is_by_person=True))
            case m.Ask.RESUME if trial is not None:
                trial = self._put(evolve(trial, is_by_person=False))
                self._apply(m.ResumeTrial(trial.id), trial, now)
            case m.Ask.RETRY if trial is not None and trial.is_ended:
                self._revive(trial, from_scratch=False)

    def _interrupt(self, now: float) -> None:
        """First time: save and stop what runs, within the grace. Second time: kill it. Everything stays resumable."""
        is_second = self._ending is m.Ask.INTERRUPT
        if self._ending is not m.Ask.CANCEL:
            self._ending = m.Ask.INTERRUPT
        for trial in [t for t in self._trials.values() if t.is_held]:
            if is_second or trial.status is Status.STARTING or trial.waits_for_space:  # these have nothing to save
                self._kill(trial, "interrupted")
                continue
            if trial.status is not Status.STOPPING and not isinstance(trial.pending, (m.PauseTrial, m.ResizeTrial)):
                trial = self._put(evolve(trial, pending=m.ResizeTrial(trial.id, trial.resources)))
            self._timers.set(now + self.plan.interrupt_grace_s, trial)

    def _kill(self, trial: Trial, reason: str) -> None:
        if trial.status is not Status.STOPPING:
            trial = self._put(evolve(trial, status=Status.STOPPING, next_status=Status.PENDING, reason=reason))
        self._out.append(m.Kill(trial.id, trial.attempt, reason))

    def _revive(self, trial: Trial, *, from_scratch: bool) -> None:
        """Start an ended trial again; the scheduler hears of it as of a new one."""
        self._hear("on_trial_add", self._put(revived(trial, from_scratch=from_scratch).asking(self.plan.request)))

    def _on_nodes_changed(self, event: m.NodesChanged, now: float) -> None:
        self._packer.set_nodes(event.nodes, event.away)
        self._has_nodes = True
        self._must_pump = True
        self._consult("on_nodes_changed", now, event.nodes)  # first: it may make requests smaller that fit nowhere now
        self._decide(failures.take_away(self._trials.values(), event.nodes), now)
        for trial_id in [t.id for t in self._trials.values() if t.status in (Status.PENDING, Status.PAUSED)]:
            trial = self._trials[trial_id]  # as it is now: the end of another may have ended it
            absent = self._packer.absence(trial.resources)
            if not trial.is_ended and not self._packer.could_ever_fit(trial.resources):
                self._end(trial, Status.ERROR, self._why_never(trial), now)
            elif trial.status is Status.PENDING and (absent or trial.cause is Cause.RESOURCES):  # as it was before
                self._put(evolve(trial, reason=absent, cause=Cause.RESOURCES if absent else Cause.NONE))

    def _on_plan_changed(self, event: m.PlanChanged, now: float) -> None:
        self.plan = event.plan
        self._expected = Expected(self.plan, self._trials)
        self._must_pump = True
        if self._is_open:
            self._suggestions.is_exhausted = False
            return
        self._is_open = True
        self._suggestions.open({trial.number for trial in self._trials.values()})
        # What had begun comes before what had not; what was making room comes last, as it would have.
        held = [t for t in self._trials.values() if t.is_held or t.placement is not None]
        leaving = [t for t in held if t.status is Status.STOPPING and t.next_status is Status.PENDING]
        waiting = sorted((t for t in self._trials.values() if t.status is Status.PENDING), key=lambda t: t.ticket)
        for trial in [t for t in held if t not in leaving]:
            self._recover(trial, now)
        for trial in [self._trials[trial.id] for trial in waiting]:
            if trial.status is Status.PENDING:
                self._put(evolve(trial, ticket=self._queue.renew(trial.id, trial.resources, trial.attempt > 0)))
        for trial in leaving:
            self._recover(self._trials[trial.id], now)
        # only now, when no trial is taken for running any more, may the scheduler answer to what has ended
        for trial_id in list(self._trials):
            trial = self._trials[trial_id]
            if trial.status is Status.STOPPING:
                self._end(trial, trial.next_status or Status.TERMINATED, trial.reason, now)
            elif trial.status is Status.ERROR and self.plan.retry_errored:
                self._revive(trial, from_scratch=self.plan.retry_errored == "restart")
            elif self.plan.retry_unfinished and failures.was_lost(trial, self.plan):
                self._revive(trial, from_scratch=False)
            elif failures.was_put_off(trial, self.plan, now):
                self._revive(trial, from_scratch=True)
            elif not trial.is_ended and not self.plan.retry_unfinished:
                self._end(trial, Status.TERMINATED, "was not finished when its sweep was resumed without it", now)

    def _recover(self, trial: Trial, now: float) -> None:
        """The driver that held this trial is gone, and its processes with it (rule 6)."""
        ran_s = trial.running_s(now)
        trial = self._put(evolve(trial, placement=None, started_from=None, ran_s=ran_s, running_since=None))
        if not trial.is_held:
            return
        to = trial.next_status if trial.status is Status.STOPPING else None
        if to is Status.PAUSED and trial.is_saved:
            trial = self._put(evolve(trial, status=Status.PAUSED, next_status=None))
            self._out.append(m.Notify(m.Hook.PAUSE, trial))
        elif to not in ENDED:
            losses = trial.losses + 1
            trial = evolve(trial, losses=losses, reason="starts again: the driver was restarted", cause=Cause.RETRY)
            if self._requeue(trial, trial.reason, now):
                self._out.append(m.Notify(m.Hook.RETRY, self._trials[trial.id]))

    def _on_time(self, now: float) -> None:
        for trial_id, attempt, is_limit in self._timers.due(now):
            trial = self._trials.get(trial_id)
            if trial is None or trial.attempt != attempt or not trial.is_held:
                continue
            if is_limit:
                self._on_limit(trial, now)
            elif trial.status is Status.STOPPING and trial.failure == "timeout":
                self._out.append(m.Kill(trial.id, attempt, trial.reason + failures.DISOBEYED, m.ExitKind.TIMEOUT))
            elif trial.status is Status.STOPPING or self._ending is m.Ask.INTERRUPT:
                self._kill(trial, "did not end within its grace")
        budget = self.plan.time_budget_s
        if budget is not None and now >= budget and self._ending is None and self._is_open:
            self._stop_all(f"the time budget of {budget:g} s is spent", now, Cause.BUDGET)
            self._must_pump = True
        self._must_pump = self._must_pump or self._suggestions.is_due(now)

    def _on_limit(self, trial: Trial, now: float) -> None:
        """A trial has run for as long as it may: it has failed, unless it ends when it is asked to."""
        if trial.status is not Status.STOPPING:
            save = self.plan.checkpoint_at_end and self.plan.can_save_on_demand
            why = f"has run for trial_timeout_s={self.plan.trial_timeout_s:g} s"
            self._stop(evolve(trial, failure="timeout"), Status.TERMINATED, why, now, save=save)

    # --- starting and asking ---------------------------------------------------------------------------------------

    def _pump(self, now: float) -> None:
        """Start what fits, ask for more, and see to it that nothing waits without a name."""
        if self._ending is not None or not self._has_nodes:
            return
        while self._start_one(now):
            pass
        if not self.is_paused:
            self._ask()
        if self.is_paused or self.num_held or self._unreleased or self._queue.awaits_nodes(self._packer):
            self._suggestions.something_runs(now)
            return
        if self._suggestions.num_outstanding or self._failed or self.wanted is not None:
            return
        if self._counts[Status.PENDING]:
            why = self._queue.why_none(self._packer)
            who = f"{type(self._scheduler).__name__} starts none of the {self._counts[Status.PENDING]} waiting trials"
            self._stall(f"{who}; {why}")
        elif (not self._can_ask or self._suggestions.is_put_off) and self._wake_paused(now):
            self._must_pump = True
        elif self._can_ask and (overdue_s := self._suggestions.overdue_s(now)) is not None:
            self._stall(
                f"the searcher has answered 'not now' for {overdue_s:.0f} s. A concurrency limit below the batch that "
                "it waits for, or a searcher that waits for a result that will never come?"
            )

    def _wake_paused(self, now: float) -> bool:
        """Let the scheduler do something about paused trials; whether anything can start or ended now."""
        if not (number := self._num_paused()):
            return False
        self._consult("on_idle", now, self.trials)
        if self._num_paused() < number or self._failed:
            return True
        if not self._can_ask:
            self._stall(f"{number} trials are paused, and {type(self._scheduler).__name__} resumes none of them")
        return False

    def _num_paused(self) -> int:
        """How many trials are PAUSED, not counting those that only a person may resume."""
        trials = self._trials.values() if self._counts[Status.PAUSED] else ()
        paused = [trial for trial in trials if trial.status is Status.PAUSED]
        return sum(self.is_paused or not trial.is_by_person for trial in paused)

    def _stall(self, why: str) -> None:
        if not any(trial.is_by_person for trial in self._trials.values()):  # else a person has paused what would run
            self._fail(SweepStalled(f"nothing runs, and {why}"))

    def _say_why(self, trial_id: str, why: str = "") -> None:
        trial = self._trials[trial_id]
        why = why or self._packer.why_not(trial.resources)
        if trial.reason != why:
            self._put(evolve(trial, reason=why, cause=Cause.RESOURCES))

    def _start_one(self, now: float) -> bool:
        """Start one trial if any fits; the oldest may be overtaken by those that fit, but not for ever."""
        oldest_id, fitting = self._queue.startable(self._packer)
        if oldest_id is None:
            return False
        if why := PAUSED if self.is_paused else self.plan.why_full(self.num_held):
            self._say_why(oldest_id, why)
            return False
        is_blocked = not fitting or fitting[0] != oldest_id
        if is_blocked:
            oldest = self._trials[oldest_id]
            if not oldest.reason or oldest.cause in (Cause.RETRY, Cause.DAMAGED, Cause.RESOURCES):
                self._say_why(oldest_id)  # also anew: others may hold by now what it waits for
            if not fitting:
                return False
        try:
            chosen = scheduler_guard.choose(self._scheduler, [self._trials[trial_id] for trial_id in fitting])
        except SweepError as error:
            self._fail(error)
            return False
        if chosen is None:
            return False
        if is_blocked:
            self._queue.overtook(oldest_id)
        return self._start(chosen, now)

    @property
    def _can_ask(self) -> bool:
        limit, number = self.plan.num_trials, len(self._trials) + self._suggestions.num_outstanding
        may_be = limit is None or number < limit
        return may_be and not self._suggestions.is_exhausted and self._ending is None

    def _ask(self) -> None:
        """Ask the searcher: exactly when a slot is free if it is adaptive, else so that a few configs always wait."""
        if not self._can_ask or self._suggestions.must_wait or self._failed:
            return
        ahead = max(self.plan.ask_ahead, 1)
        waiting = self._counts[Status.PENDING] + self._suggestions.num_outstanding
        is_idle = not self.num_held and not self._unreleased
        is_wanted = is_idle or self._packer.fits_now(self._last_request)
        if ahead == 1 and (waiting or not is_wanted or self.plan.why_full(self.num_held)):
            return
        if waiting > ahead // 2:
            return
        at_most = 1 if self._suggestions.is_put_off else ahead - waiting
        while at_most > 0 and self._can_ask:
            self._out.append(m.Suggest(self._id(self._suggestions.next_number())))
            at_most -= 1

    # --- bookkeeping -----------------------------------------------------------------------------------------------

    def _id(self, number: int) -> str:
        return f"{self.plan.prefix}_{number:05d}"

    def _current(self, trial_id: str, attempt: int) -> Trial | None:
        """Return the trial if this is its running attempt; messages of older attempts are dropped (rule 5)."""
        trial = self._trials.get(trial_id)
        return trial if trial is not None and trial.attempt == attempt and trial.is_held else None

    def _put(self, new: Trial) -> Trial:
        """Replace a trial: the only place where one changes."""
        old = self._trials.get(new.id)
        if old is None or old.status is not new.status or old.resources is not new.resources:
            new = self._recount(old, new)
        elif old.checkpoint is new.checkpoint and old.pending is new.pending and old.started_from is new.started_from:
            self._trials[new.id] = self._changes.trials[new.id] = new
            return new  # the way of every report
        self._trials[new.id] = self._changes.trials[new.id] = new
        for free in self._ledger.replace(old, new):
            self._out.append(m.Discard(free))
        return new

    def _recount(self, old: Trial | None, new: Trial) -> Trial:
        """Count a trial where it is now; returns it with its place among those that wait."""
        if old is not None:
            if old.status is not new.status and new.status not in LEGAL[old.status]:
                raise AssertionError(f"{new.id}: {old.status} -> {new.status} is not legal")
            self._counts[old.status] -= 1
            self._num_held -= old.status in HELD
            if old.status is Status.PENDING:
                self._queue.remove(old.id, old.resources, old.attempt > 0)
        self._counts[new.status] += 1
        self._num_held += new.status in HELD
        if new.status is not Status.PENDING:
            return new
        is_kept = new.ticket < 0 if old is None else keeps_place(old, new, self._packer.nodes)
        ticket = self._queue.add(new.id, new.resources, new.attempt > 0, new.ticket if is_kept else 0)
        new = evolve(new, ticket=0 if self._ending is m.Ask.INTERRUPT else ticket)  # resumed, it is first
        absent = "" if new.reason else self._packer.absence(new.resources)
        return evolve(new, reason=absent, cause=Cause.RESOURCES) if absent else new

    def _fail_for_what_is_missing(self) -> bool:
        """End the sweep when enough trials lack what all were expected to report; whether it did."""
        error = self._expected.error(self._trials) if self._ending is None else None
        self._fail(error)
        return error is not None

    def _fail(self, error: Exception | None) -> None:
        if error is not None and not self._failed:
            self._failed = True
            self._out.append(m.Fail(error))
