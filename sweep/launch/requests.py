"""The driver's side of requests: files become events, and once these are committed they are answered.

A request is known by its id, which its events bear. One whose events are in the record was carried out: a driver that
takes over from one that was killed before it had answered says so, and does not carry it out again.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from searchers.base import Searcher, keyed_rng
from searchers.errors import SearchError
from searchers.variants import decide_with_warning, draw_with, fill, resolve
from searchers.wrapper import learns_from_others
from sweep.core.messages import Ask, Asked, Changes, Command, Event
from sweep.core.plan import Plan
from sweep.core.sweep import Sweep
from sweep.core.trial import CheckpointRef, Status, Trial, shown_state
from sweep.engines.base import Engine
from sweep.errors import ConfigError, SweepError
from sweep.launch.build import Policies, describe
from sweep.launch.drive import Store
from sweep.record.codec import request_of
from sweep.record.encoding import encode
from sweep.record.resume import Loaded
from sweep.requests.files import Answer, Request, answer, forget_answers, read, waiting

_LOOK_S = 0.25
_ASKS = {"stop": Ask.DRAIN, "cancel": Ask.CANCEL, "pause": Ask.PAUSE, "resume": Ask.RESUME, "retry": Ask.RETRY}
_RUNS = (Status.STARTING, Status.RUNNING)
_Number = TypeVar("_Number", int, float)


def continued(plan: Plan, loaded: Loaded) -> Plan:
    """Return the plan of a run that goes on, with what persons have asked for in those before."""
    given = sum(event.what is Ask.ENQUEUE for event in loaded.asked)
    trials = None if plan.num_trials is None else plan.num_trials + given
    return replace(plan, num_trials=trials, max_running=loaded.plan.max_running if loaded.plan else None)


class Requests:
    """Looks for requests, hands them in as events, and answers them; stands before the record to see the commit.

    Args:
        root: of the experiment. store: its record.
        asked: what persons have asked for in former runs.
        samples: that the run asks for; None: no limit.
        attend: what else is due from time to time.
        searcher: of the loop, which hears of requests when they are committed.
        replanned: called with a plan that a person has changed.

    Attributes:
        inbox: where the loop finds what was asked for. Nothing is put there before the sweep knows how it stands.
    """

    def __init__(
        self,
        root: Path,
        store: Store,
        sweep: Sweep,
        engine: Engine,
        policies: Policies,
        searcher: Searcher,
        *,
        asked: Sequence[Asked],
        samples: int | None,
        seed: int,
        notice: Callable[[str], None],
        attend: Callable[[], float],
        replanned: Callable[[Plan], None],
    ) -> None:
        self._root, self._store, self._sweep, self._engine = root, store, sweep, engine
        self._policies, self._seed, self._notice, self._attend = policies, seed, notice, attend
        self._searcher, self._replanned = searcher, replanned
        self._open: tuple[Request, str] | None = None  # handed in, and answered so once it is committed
        self._known: set[str] = set()  # names of files that are no requests, or cannot be taken away
        self._look_at = math.inf
        self.inbox: deque[Event] = deque()
        forget_answers(root)
        self._samples = samples
        self._done = {json.loads(event.detail)["id"] for event in asked}

    # --- as the loop calls it ---

    def attend(self) -> float:
        """Do what is due; return in how many seconds that is again."""
        due_s, now = self._attend(), time.monotonic()
        if now >= self._look_at and self._open is None:
            self._look()
        return min(due_s, max(self._look_at - now, 0.0))

    def commit(
        self, events: Sequence[Event], commands: Sequence[Sequence[Command]], changes: Changes, now: float
    ) -> None:
        """Commit, answer the request among the events, and look for the next before the sweep may be over."""
        self._store.commit(events, commands, changes, now)
        done, self._open = self._open, None
        for event in events if done else ():
            if isinstance(event, Asked) and event.what in (Ask.EDIT, Ask.ENQUEUE):
                self._searcher.on_request(request_of(event))
                self._replanned(self._sweep.plan)
        if done is not None:
            self._answer(done[0], Answer(True, done[1]))
        if done is not None or math.isinf(self._look_at):
            self._look()

    def discard(self, checkpoint: CheckpointRef) -> None:
        self._store.discard(checkpoint)

    # --- requests ---

    def _look(self) -> None:
        """Hand in the oldest request that can be carried out: the next is judged by what came of it."""
        self._look_at = time.monotonic() + _LOOK_S
        names, others = waiting(self._root)
        for name in others:
            if name not in self._known:
                self._known.add(name)
                self._notice(f"requests/{name} is no request and is left alone")
        for name in names:
            if name in self._known:
                continue
            try:
                request = read(self._root, name)
            except ConfigError as error:
                self._known.add(name)
                self._notice(f"{error}; it is left alone")
                continue
            if request.id in self._done:
                self._answer(request, Answer(True, "was carried out before the driver was killed"))
                continue
            who = "".join(f" {one}" for one in request.trials) + (f" ({request.by})" if request.by else "")
            try:
                events, said = self._events(request)
            except Exception as error:  # anybody may have written it, and functions in the space are the user's own
                why = str(error) if isinstance(error, (SweepError, SearchError)) else f"it makes no sense: {error!r}"
                self._notice(f"{request.verb}{who}: refused: {why}")
                self._answer(request, Answer(False, why))
                continue
            self._notice(f"{request.verb}{who}: {said}")
            self._open = request, said
            self.inbox += events
            return

    def _answer(self, request: Request, reply: Answer) -> None:
        try:
            answer(self._root, request, reply)
        except OSError as error:  # a full disk: it was carried out all the same, and the record knows
            self._known.add(f"{request.id}.json")
            self._notice(f"a request cannot be answered: {error}")

    def _events(self, request: Request) -> tuple[list[Event], str]:
        """Return what the sweep is told, and what to say of it.

        Raises:
            SweepError: the request cannot be carried out; what to do.
        """
        about = {"id": request.id, "by": request.by}
        match request.verb:
            case "enqueue":
                config, said = self._config(request.values.get("config"))
                return [Asked(Ask.ENQUEUE, None, json.dumps(about | {"config": encode(config)}))], said
            case "edit":
                changed, said = self._edited(request.values)
                return [Asked(Ask.EDIT, None, json.dumps(about | changed))], said
            case "retry":
                trials, said = self._retried(request)
            case verb if request.trials:
                trials = [self._trial(trial_id) for trial_id in request.trials]
                said = "; ".join(self._said_of(verb, trial) for trial in trials)
            case verb:
                trials, said = [], self._said_of_all(verb)
        detail, what = json.dumps(about), _ASKS[request.verb]
        ids: Collection[str | None] = [trial.id for trial in trials] or [None]
        return [Asked(what, trial_id, detail) for trial_id in ids], said

    def _trial(self, trial_id: str) -> Trial:
        found = self._sweep.trials.get(trial_id)
        if found is None:
            raise ConfigError(f"there is no trial {trial_id!r:.100}")
        return found

    def _said_of_all(self, verb: str) -> str:
        runs = self._sweep.num_held
        match verb:
            case "stop":
                return f"nothing new starts; {_num(runs)} to the end"
            case "cancel":
                return f"the sweep ends now, with {_num(runs, 'that ran')}"
            case "pause":
                return f"nothing starts until it is resumed; {_num(runs)} until saved, and to the end if never"
        return "the sweep goes on"

    def _said_of(self, verb: str, trial: Trial) -> str:
        """Return what a request means for a trial.

        Raises:
            ConfigError: it does not go together with what the trial is.
        """
        name, state = f"trial {trial.number:05d}", shown_state(trial)
        is_paused = trial.status is Status.PAUSED or trial.is_by_person
        advice = {
            "stop": "" if not trial.is_ended else "there is nothing to stop",
            "cancel": "" if not trial.is_ended else "there is nothing to cancel",
            "pause": "" if trial.status in _RUNS else "only a trial that runs can be paused",
            "resume": "" if is_paused else "only a trial that is paused can be resumed",
        }[verb]
        if verb == "resume" and self._sweep.is_paused:
            advice = "so is the whole sweep; `sweep resume` without a trial lets all go on"
        if advice:
            raise ConfigError(f"{name} is {state}: {advice}.")
        has_saved = trial.checkpoint is not None or self._sweep.plan.can_save_on_demand
        when = (
            "that has a checkpoint" if has_saved else "if that has a checkpoint; it never saved one, and else goes on"
        )
        what = {
            "stop": "ends at its next report" if trial.is_held else "ends",
            "cancel": "is ended",
            "pause": f"is paused at its next report {when}",
            "resume": "goes on",
        }
        return f"{name} {what[verb]}"

    def _retried(self, request: Request) -> tuple[list[Trial], str]:
        kinds = request.values.get("failed")
        trials = [self._trial(one) for one in request.trials] or [
            one
            for one in self._sweep.trials.values()
            if one.status is Status.ERROR and (not kinds or one.failure in kinds)
        ]
        if not trials:
            failures = sorted({one.failure for one in self._sweep.trials.values() if one.status is Status.ERROR})
            known = f"those that failed did so by {', '.join(failures)}" if failures else "no trial has failed"
            raise ConfigError(f"there is nothing to try again: {known}.")
        for trial in trials:
            if not trial.is_ended:
                raise ConfigError(f"trial {trial.number:05d} is {shown_state(trial)}; only one that has ended can be.")
        if self._sweep.ending is not None:
            raise ConfigError("the sweep is ending; retry when it has, and it is done at its next start.")
        return trials, f"{_num(len(trials), 'again')}"

    def _config(self, given: Any) -> tuple[Mapping[str, Any], str]:
        """Return the whole config of a point that a person gave, and what to say of it."""
        space, searcher = self._policies.space, self._policies.searcher
        if not isinstance(given, dict):
            raise ConfigError(f"config is {given!r:.100}; expected parameters and their values.")
        if self._sweep.ending is not None:
            raise ConfigError("the sweep is ending and starts nothing; ask again when it runs.")
        with warnings.catch_warnings(record=True) as outside:
            warnings.simplefilter("always")
            filled = fill(space, given, decide_with_warning)
        drawn = keyed_rng(self._seed, 2**31 + self._sweep.seq)
        config = resolve(filled, draw_with(drawn)) if space else dict(given)
        said = ["it is tried next"]
        said += [str(one.message).rstrip(".") for one in outside]
        if searcher.is_adaptive and (outside or not learns_from_others(searcher)):
            said.append(f"{describe(searcher)} does not learn from it")
        return config, "; ".join(said)

    def _edited(self, values: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        """Return what changes in the plan, and what to say of it."""
        sweep, plan, searcher = self._sweep, self._sweep.plan, self._policies.searcher
        changed: dict[str, Any] = {}
        more: dict[str, Any] = {"plan": changed}
        if (count := values.get("num_samples")) is not None:
            samples, made = _total("the number of trials", count, self._samples, int), len(sweep.trials)
            given = 0 if plan.num_trials is None else plan.num_trials - (searcher.num_trials(self._samples) or 0)
            trials = (searcher.num_trials(samples) or 0) + given  # with those that persons gave
            if trials < made:
                raise ConfigError(f"{made} trials were made already; give at least that many, or `sweep stop` it.")
            changed["num_trials"], more["num_samples"] = trials, samples
        if (span := values.get("time_budget_s")) is not None:
            budget, driven = _total("the time budget", span, plan.time_budget_s, float), self._engine.now()
            if budget <= driven:
                raise ConfigError(f"it has run for {driven:.0f} s already; give more, or `sweep stop` it.")
            changed["time_budget_s"] = budget
        if (most := values.get("max_concurrent_trials")) is not None:
            if not isinstance(most, int) or most < 1:
                raise ConfigError(f"the concurrency is {most!r}; expected a whole number of at least 1.")
            changed["max_running"] = more["max_concurrent"] = most
        if not changed:
            raise ConfigError("there is nothing to edit; expected trials, time or concurrency.")
        self._samples = more.get("num_samples", self._samples)
        shown = {"num_trials": "trials", "time_budget_s": "seconds", "max_running": "at a time"}
        return more, ", ".join(f"{value:g} {shown[name]}" for name, value in changed.items())


def _total(what: str, given: Any, before: _Number | None, kind: type[_Number]) -> _Number:
    """Return a new total: a number, or as a text such as "+50" so much more than before."""
    is_more = isinstance(given, str) and given.startswith("+")
    try:
        number = kind(given)
    except (TypeError, ValueError, OverflowError):
        number = kind(0)
    is_same = isinstance(given, str) or (number == given and not isinstance(given, bool))
    if not (is_same and 0 < number < math.inf):
        whole = "whole number" if kind is int else "number"
        raise ConfigError(f"{what} is {given!r:.100}; expected a {whole} above 0, or a text such as '+50'.")
    if is_more and before is None:
        raise ConfigError(f"{what} has no limit that {given} could be added to.")
    return number + before if is_more and before is not None else number


def _num(count: int, what: str = "") -> str:
    """Return a number of trials in words."""
    return f"{count} {'trial' if count == 1 else 'trials'} {what or ('runs' if count == 1 else 'run')}"
