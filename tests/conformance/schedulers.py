"""The contract of a scheduler, run over every implementation: subclass `SchedulerContract` and say how to build it."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from sweep_run import Nobody, given_configs, new_sweep

from sweep.core.messages import (
    CloneTrial,
    Decision,
    PauseTrial,
    ResizeTrial,
    ResumeTrial,
    SaveTrial,
    StopTrial,
)
from sweep.core.resources import Bundle, Node, Resources
from sweep.core.results import TrialResult
from sweep.core.trial import Status, Trial, evolve
from sweep.engines.simulator import Point, Simulator
from sweep.launch.drive import drive
from sweep.schedulers.base import Scheduler

STATUSES: dict[type, Status] = {
    PauseTrial: Status.PAUSED,
    ResumeTrial: Status.PENDING,
    StopTrial: Status.TERMINATED,
}
DECISIONS = (StopTrial, PauseTrial, ResumeTrial, SaveTrial, CloneTrial, ResizeTrial)


def tid(number: int) -> str:
    """Return the id of trial `number`."""
    return f"abcde_{number:05d}"


class Told:
    """A record told to one scheduler, and everything that it answered.

    Args:
        num_trials: how many trials it is told of before anything else.
    """

    def __init__(self, scheduler: Scheduler, num_trials: int = 0) -> None:
        self.scheduler = scheduler
        self.trials: dict[str, Trial] = {}
        self.answers: list[tuple[Decision, ...]] = []
        for number in range(num_trials):
            self.add(number)

    def add(self, number: int) -> Trial:
        trial = Trial(tid(number), {"x": number}, Resources((Bundle(cpu=1.0),)), Status.RUNNING, attempt=1)
        self.trials[trial.id] = trial
        self.scheduler.on_trial_add(trial)
        return trial

    def put(self, number: int, **changes: Any) -> Trial:
        """Change a trial without a word to the scheduler."""
        trial = self.trials[tid(number)] = evolve(self.trials[tid(number)], **changes)
        return trial

    def report(self, number: int, seq: int = 0, **values: Any) -> Sequence[Decision]:
        count = self.trials[tid(number)].count + 1
        result = TrialResult({"training_iteration": count, **values}, seq)
        trial = self.put(number, count=count, judged_to=count, last_result=result)
        return self._keep(self.scheduler.on_result(trial, result, self.trials))

    def end(self, number: int, status: Status = Status.TERMINATED) -> Sequence[Decision]:
        return self._keep(self.scheduler.on_trial_end(self.put(number, status=status)))

    def reach(self, number: int, time: float, m: float = 0.0) -> Sequence[Decision]:
        """Report one result at `time`; trials are paused, resumed and stopped as it is answered."""
        decisions = self.report(number, training_iteration=time, m=m)
        for decision in decisions:
            self.put(int(decision.trial_id[-5:]), status=STATUSES[type(decision)])
        return decisions

    def _keep(self, decisions: Sequence[Decision]) -> Sequence[Decision]:
        for decision in decisions:
            assert isinstance(decision, DECISIONS), decision
            assert decision.trial_id in self.trials, f"{decision} names a trial that nobody knows"
            if isinstance(decision, CloneTrial):
                assert decision.source_id in self.trials, decision
        self.answers.append(tuple(decisions))
        return decisions


def tell_a_record(told: Told, seed: int, values: Callable[[random.Random], dict[str, Any]]) -> Told:
    """Tell a scheduler one random but legal record: trials come, report in any order, and end."""
    rng = random.Random(seed)
    alive: list[int] = []
    number = 0
    for _ in range(300):
        dice = rng.random()
        if not alive or (dice < 0.1 and number < 30):
            told.add(number)
            alive.append(number)
            number += 1
            continue
        one = rng.choice(alive)
        if dice > 0.97:
            told.end(one, rng.choice([Status.TERMINATED, Status.ERROR]))
            alive.remove(one)
            continue
        if any(isinstance(d, StopTrial) and d.trial_id == tid(one) for d in told.report(one, **values(rng))):
            told.end(one)
            alive.remove(one)
    for one in list(alive):
        told.end(one)
    return told


def numbers(rng: random.Random) -> dict[str, Any]:
    return {"m": rng.random()}


def strange(rng: random.Random) -> dict[str, Any]:
    """Values that users do report: none at all, NaN, infinities, whole numbers, a metric that comes and goes."""
    return rng.choice([{}, {"m": math.nan}, {"m": math.inf}, {"m": -math.inf}, {"m": 3}, {"m": 0.5}, {"other": 1.0}])


class SchedulerContract(ABC):
    """What every scheduler promises."""

    @abstractmethod
    def build(self) -> Scheduler:
        """Return a new scheduler, not yet told of metric and mode."""

    def ready(self, mode: str = "max", seed: int = 7) -> Scheduler:
        scheduler = self.build()
        scheduler.set_search_properties("m", mode, seed=seed)
        return scheduler

    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("values", [numbers, strange], ids=["numbers", "strange values"])
    def test_the_same_record_gives_the_same_decisions_and_state(self, seed, values):
        random.seed(seed)  # a scheduler that draws from the global generator would differ
        first = tell_a_record(Told(self.ready()), seed, values)
        random.seed(seed + 1000)
        second = tell_a_record(Told(self.ready()), seed, values)
        assert first.answers == second.answers
        assert first.scheduler.state() == second.scheduler.state()

    @pytest.mark.parametrize("mode", ["min", "max"])
    def test_strange_values_are_tolerated(self, mode):
        told = Told(self.ready(mode))
        tell_a_record(told, 11, strange)
        assert len(told.trials) > 5

    def test_results_without_the_metric_decide_nothing(self):
        told = Told(self.ready(), 4)
        for _ in range(4):
            for number in range(4):
                assert not told.report(number, other=1.0)

    def test_a_trial_that_ends_without_any_result_is_tolerated(self):
        told = Told(self.ready())
        for number, status in enumerate([Status.TERMINATED, Status.ERROR]):
            told.add(number)
            told.end(number, status)
        told.add(2)
        told.report(2, m=1.0)

    def test_a_trial_that_ended_may_come_back(self):
        """A person may retry an ended trial, and the scheduler is told of its reports as before."""
        told = Told(self.ready(), 1)
        told.report(0, m=1.0)
        told.end(0, Status.ERROR)
        told.put(0, status=Status.RUNNING, attempt=2)
        for _ in range(12):
            told.report(0, m=2.0)

    def test_it_chooses_only_among_what_it_is_offered(self):
        scheduler = self.ready()
        told = Told(scheduler)
        offered = [evolve(told.add(number), status=Status.PENDING) for number in range(3)]
        assert scheduler.choose(offered) in [*offered, None]
        assert scheduler.choose(offered[1:2]) in [offered[1], None]

    def test_idle_decisions_name_known_trials(self):
        told = Told(self.ready(), 3)
        for number in range(3):
            told.put(number, status=Status.PAUSED)
        decisions = told.scheduler.on_idle(told.trials)
        assert decisions, "no answer would leave the sweep stalled"
        assert all(decision.trial_id in told.trials for decision in decisions)

    def test_a_refusal_is_tolerated(self):
        told = Told(self.ready())
        trial = told.add(0)
        for decision in (PauseTrial(trial.id), CloneTrial(trial.id, trial.id, {}), SaveTrial(trial.id)):
            assert all(d.trial_id in told.trials for d in told.scheduler.on_refused(trial, decision))

    @pytest.mark.parametrize("cpus", [1, 3])
    def test_a_whole_sweep_ends_and_does_so_the_same_way_twice(self, cpus):
        def curve(config, done):
            for step in range(done + 1, 28):
                yield Point(0.5 + config["x"], {"m": step * config["x"]}, has_checkpoint=step % 2 == 0)

        def run():
            sweep = new_sweep(self.ready(), num_trials=12, ask_ahead=4)
            engine = Simulator(curve, (Node("n", cpus),))
            searcher = given_configs([{"x": (7 * i % 12) / 12} for i in range(12)])
            drive(sweep, engine, searcher, Nobody(), Nobody(), request_of=lambda config: Resources())
            assert sweep.done
            assert all(trial.is_ended for trial in sweep.trials.values())
            return engine.now(), dict(sweep.trials)

        assert run() == run()
