"""The loop: handle, commit, act. It joins the state machine, an engine, a searcher, callbacks and the record."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Protocol

from searchers.base import Searcher, Signal, answer_of
from searchers.wrapper import Enqueued
from sweep.core import messages as m
from sweep.core.resources import Resources
from sweep.core.results import TrialResult
from sweep.core.sweep import Sweep
from sweep.core.trial import CheckpointRef, Trial
from sweep.engines.base import Engine
from sweep.errors import SearchError, SweepError, UserCodeError

RequestOf = Callable[[Mapping[str, Any]], Resources]
Complete = Callable[[Mapping[str, Any], str], Mapping[str, Any]]
Judge = Callable[[str, TrialResult], m.Verdict]


class Store(Protocol):
    """The durable record: what is committed is written in one transaction."""

    def commit(
        self, events: Sequence[m.Event], commands: Sequence[Sequence[m.Command]], changes: m.Changes, now: float
    ) -> None: ...

    def discard(self, checkpoint: CheckpointRef) -> None: ...


class Observers(Protocol):
    """What is notified of everything after the fact."""

    driver_is_in: tuple[str, float] | None  # what of the user's the loop has called and waits for, and since when

    def notify(self, commands: Sequence[m.Notify]) -> None: ...

    def step(self, trials: Mapping[str, Trial], now: float, changed: Sequence[str]) -> None: ...


def drive(
    sweep: Sweep,
    engine: Engine,
    searcher: Searcher,
    observers: Observers,
    store: Store,
    *,
    request_of: RequestOf,
    judge: Judge | None = None,
    complete: Complete | None = None,
    attend: Callable[[], float] = lambda: math.inf,
    inbox: deque[m.Event] | None = None,
) -> None:
    """Run a sweep to its end.

    `request_of`, the resources of a config, and `judge`, the verdict of stop functions, are the user's; `complete` is
    what the scheduler makes of a config. `attend` does what is due from time to time, and returns in how many seconds
    that is again. `inbox` takes what happens elsewhere than in the engine."""
    inbox = deque() if inbox is None else inbox
    inbox.extend((m.PlanChanged(sweep.plan), m.NodesChanged(tuple(engine.nodes()), tuple(engine.away))))
    if others := tuple(engine.claims()):
        inbox.append(m.ClaimsChanged(others))
    name = f"the searcher {_name(searcher)}"
    while inbox or not sweep.done:
        due_s, deadline = attend(), sweep.deadline
        attend_at = engine.now() + due_s if engine.is_in_real_time else math.inf
        is_early = attend_at < (math.inf if deadline is None else deadline)
        arrived = list(inbox) or engine.next_events(attend_at if is_early else deadline)
        if is_early and list(arrived) == [m.Tick()]:  # nothing has happened
            arrived = ()
        inbox.clear()
        now = engine.now()
        events: list[m.Event] = []
        commands: list[Sequence[m.Command]] = []
        broken: SweepError | None = None
        for event in arrived:
            if judge is not None and broken is None and isinstance(event, m.Reported):
                observers.driver_is_in = ("the stop function", time.monotonic())
                try:
                    event = _judged(event, sweep, judge)
                except SweepError as caught:
                    broken = caught
                observers.driver_is_in = None
            events.append(event)
            commands.append(sweep.handle(event, now))
        changes = sweep.take_changes()
        if events:
            store.commit(events, commands, changes, now)  # nothing below happens before this is durable
        if broken is not None:
            raise broken
        notifications: list[m.Notify] = []
        asks: list[m.Suggest] = []
        for command in chain.from_iterable(commands):
            match command:
                case m.Notify():
                    observers.driver_is_in = (name, time.monotonic())
                    tell(searcher, command)
                    observers.driver_is_in = None
                    notifications.append(command)
                case m.Suggest():
                    asks.append(command)  # after everything that the searcher must learn first
                case m.Discard(checkpoint):
                    store.discard(checkpoint)
                case m.Fail(error):
                    observers.notify(notifications)
                    observers.step(sweep.trials, now, list(changes.trials))
                    raise error
                case _:
                    engine.execute(command)
        engine.want(sweep.wanted)
        if notifications:
            observers.notify(notifications)
        observers.step(sweep.trials, now, list(changes.trials))
        for wish in asks:
            observers.driver_is_in = (name, time.monotonic())
            inbox.append(ask(searcher, wish.trial_id, request_of, complete))
            observers.driver_is_in = None


def tell(searcher: Searcher, command: m.Notify) -> None:
    trial_id, result = command.trial.id, command.result
    try:
        match command.hook:
            case m.Hook.RESULT if result is not None:
                searcher.on_trial_result(trial_id, result)
            case m.Hook.COMPLETE:
                searcher.on_trial_complete(trial_id, result)
            case m.Hook.ERROR:
                searcher.on_trial_complete(trial_id, None, error=True)
            case m.Hook.PAUSE:
                searcher.on_pause(trial_id)
            case m.Hook.START:
                searcher.on_unpause(trial_id)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a searcher may be the user's own, and `sys.exit` in it no wish of the user's
        what = f"{_name(searcher)} failed when it was told of trial {trial_id}"
        raise SearchError(f"{what}: {type(error).__name__}: {error}") from error


def ask(searcher: Searcher, trial_id: str, request_of: RequestOf, complete: Complete | None) -> m.Suggested:
    """Ask the searcher for the config of a trial; an error of its is an answer, too."""
    try:
        answer = answer_of(searcher.suggest(trial_id))
        if isinstance(answer, Signal):
            return m.Suggested(trial_id, answer)
        if not isinstance(answer, Mapping):
            raise TypeError(f"suggest() returned {answer!r:.200}; expected a dict, NOT_NOW or EXHAUSTED")
        config = answer if complete is None else complete(answer, trial_id)
        return m.Suggested(trial_id, config, request_of(config), searcher.suggestion_state(trial_id))
    except BaseException as error:  # the searcher and the resources function may be the user's; three in a row end it
        if isinstance(error, KeyboardInterrupt) or type(error) is SweepError:  # which is the scheduler's, and says so
            raise
        return m.Suggested(trial_id, m.Failed(f"{_name(searcher)}: {type(error).__name__}: {error}"))


def _name(searcher: Searcher) -> str:
    return type(searcher.searcher if isinstance(searcher, Enqueued) else searcher).__name__


def _judged(event: m.Reported, sweep: Sweep, judge: Judge) -> m.Reported:
    result = sweep.preview(event)
    try:
        verdict = m.Verdict.NONE if result is None else judge(event.trial_id, result)
    except Exception as error:  # a stop function is the user's own
        what = f"the stop function failed on a result of trial {event.trial_id}: {type(error).__name__}: {error}"
        raise UserCodeError(f"{what}. Everything reported so far is kept; mend it and resume.") from error
    return event if verdict is m.Verdict.NONE else replace(event, verdict=verdict)
