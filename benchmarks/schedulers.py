"""What a scheduler costs per result when 10,000 trials run, and 10,000 ASHA trials in virtual time.

Every trial reports in turn; only calls of `on_result` are timed, in CPU time, so that a busy machine shows the same.
What a scheduler decides is carried out: who is stopped ends, who is paused waits until it is resumed, who is cloned
starts again. Time limits keep a slow one from taking for ever; how many results were timed stands beside the mean.

Run: python benchmarks/schedulers.py [--only NAME] [--profile]
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import core_floor

from searchers.base import keyed_rng
from searchers.space import uniform
from sweep.core.messages import CloneTrial, Decision, PauseTrial, ResizeTrial, ResumeTrial, StopTrial
from sweep.core.resources import Node, Resources
from sweep.core.results import TrialResult
from sweep.core.trial import CheckpointRef, Status, Trial, evolve
from sweep.schedulers import SCHEDULERS
from sweep.schedulers.base import Scheduler
from sweep.schedulers.resource_changing import ResourceChangingScheduler

Row = tuple[str, str, str, str]  # what, measured, promised, beside it

MANY, FEW = 10_000, 100
PROMISED_US = 50.0
VIRTUAL_PROMISED_S = 20.0
_WARM_S, _TIMED_S = 4.0, 2.0  # of on_result, at most
_ROUNDS = 30
_RESULTS_OF_FEW = 20_000

# What each scheduler is built with; one that is not named here takes no argument that it needs.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "AsyncHyperBandScheduler": {"max_t": 81, "grace_period": 1, "reduction_factor": 3},
    "HyperBandScheduler": {"max_t": 81},
    "MedianStoppingRule": {"time_attr": "training_iteration", "grace_period": 1},
    "PopulationBasedTraining": {
        "time_attr": "training_iteration",
        "perturbation_interval": 2,
        "hyperparam_mutations": {"x": uniform(0, 1)},
    },
    "PB2": {"time_attr": "training_iteration", "perturbation_interval": 2, "hyperparam_bounds": {"x": [0, 1]}},
    "HyperBandForBOHB": {"max_t": 81},
    "PASHAScheduler": {"max_t": 81, "grace_period": 1, "reduction_factor": 3},
    "MOASHAScheduler": {"max_t": 81, "grace_period": 1, "reduction_factor": 3},
}
# Those with several objectives: what they judge, case by case. In the last one nobody dominates anybody.
OBJECTIVES: dict[str, dict[str, tuple[Any, Any]]] = {
    "MOASHAScheduler": {
        "2 objectives": (["m", "cost"], ["max", "min"]),
        "3 objectives": (["m", "cost", "rest"], ["max", "min", "min"]),
        "one front": (["x", "rest"], ["max", "max"]),
    }
}
LEFT_OUT = {"PopulationBasedTrainingReplay": "follows the recorded policy of one trial"}


class Crowd:
    """So many trials that run at once under one scheduler, without a core: only what a scheduler is told is done."""

    def __init__(self, scheduler: Scheduler, number: int) -> None:
        self.scheduler = scheduler
        self.trials: dict[str, Trial] = {}
        self.spent_s = 0.0
        self.num_timed = 0
        self._request = Resources()
        self._checkpoint = CheckpointRef("c", 1)
        # a scheduler that is told of no machines may have no such hook
        getattr(scheduler, "on_nodes_changed", lambda nodes: None)((Node("n", 16),))
        for n in range(number):
            config = dict(scheduler.complete_config({"x": float(keyed_rng(0, n).uniform())}, n))
            trial = Trial(f"abcde_{n:05d}", config, self._request, Status.RUNNING, attempt=1)
            scheduler.on_trial_add(trial)
            self.trials[trial.id] = evolve(trial, checkpoint=self._checkpoint)

    def run(self, rounds: int, most_s: float, most: int = 10**9) -> None:
        """Let every trial report once in each round, until so much was spent in `on_result`; then start to count."""
        self.spent_s, self.num_timed = 0.0, 0
        for trial_id in self._turns(rounds):
            self._report(trial_id)
            if self.spent_s > most_s or self.num_timed >= most:
                return

    def _turns(self, rounds: int) -> Iterator[str]:
        for _ in range(rounds):
            running = [trial_id for trial_id, trial in self.trials.items() if trial.status is Status.RUNNING]
            if not running:
                self._carry_out(self.scheduler.on_idle(self.trials))
                running = [trial_id for trial_id, trial in self.trials.items() if trial.status is Status.RUNNING]
            yield from (trial_id for trial_id in running if self.trials[trial_id].status is Status.RUNNING)

    def _report(self, trial_id: str) -> None:
        old = self.trials[trial_id]
        count = old.count + 1
        x = float(old.config["x"])
        value = x * (1 - 0.9**count) + 0.01 * ((7 * old.number + 13 * count) % 17)  # curves that cross
        metrics = {"m": value, "cost": count * x, "x": x, "rest": 1 - x}
        result = TrialResult({"training_iteration": count, "time_total_s": float(count), **metrics})
        trial = self.trials[trial_id] = evolve(old, count=count, judged_to=count, last_result=result)
        began = time.thread_time()
        decisions = self.scheduler.on_result(trial, result, self.trials)
        self.spent_s += time.thread_time() - began
        self.num_timed += 1
        if decisions:
            self._carry_out(decisions)

    def _carry_out(self, decisions: Any) -> None:
        todo: list[Decision] = list(decisions or ())
        while todo:
            decision = todo.pop(0)
            trial = self.trials[decision.trial_id]
            if trial.is_ended:
                continue
            changes: dict[str, Any] = {}
            match decision:
                case StopTrial():
                    changes = {"status": Status.TERMINATED}
                case PauseTrial():
                    changes = {"status": Status.PAUSED}
                case ResumeTrial() if trial.status is Status.PAUSED:
                    changes = {"status": Status.RUNNING, "attempt": trial.attempt + 1}
                case CloneTrial(_, _, config):
                    changes = {"status": Status.RUNNING, "attempt": trial.attempt + 1, "config": config}
                case ResizeTrial(_, resources):
                    changes = {"attempt": trial.attempt + 1, "resources": resources}
            trial = self.trials[trial.id] = evolve(trial, **changes)
            if trial.is_ended:
                todo += self.scheduler.on_trial_end(trial) or ()


def build(kind: type[Scheduler], case: str = "") -> Scheduler:
    """Return a scheduler of a class, told of its metric."""
    scheduler = kind(**ARGUMENTS.get(kind.__name__, {}))
    metric, mode = OBJECTIVES[kind.__name__][case] if case else ("m", "max")
    scheduler.set_search_properties(metric, mode, seed=0)
    return scheduler


def measure(kind: type[Scheduler], case: str, number: int) -> tuple[float, int]:
    """Return (microseconds per result, how many results were timed) while so many trials run."""
    crowd = Crowd(build(kind, case), number)
    crowd.run(1, _WARM_S)
    crowd.run(_ROUNDS if number == MANY else 10**6, _TIMED_S, 10**9 if number == MANY else _RESULTS_OF_FEW)
    return crowd.spent_s / max(crowd.num_timed, 1) * 1e6, crowd.num_timed


def cases(kind: type[Scheduler]) -> list[str]:
    """Return what a scheduler is measured with; "" stands for the one metric that most of them have."""
    return list(OBJECTIVES.get(kind.__name__, [""]))


def kinds() -> dict[str, type[Scheduler]]:
    """Return every scheduler there is, once, by the name of its class."""
    found: dict[str, type[Scheduler]] = {kind.__name__: kind for kind in SCHEDULERS.values()}
    found.setdefault("ResourceChangingScheduler", ResourceChangingScheduler)
    return found


def row_of(kind: type[Scheduler], case: str = "") -> Row:
    """Return the row of one scheduler."""
    what = f"{kind.__name__}{case and f', {case}'}, per result"
    promised = f"<= {PROMISED_US:.0f} us"
    if kind.__name__ in LEFT_OUT:
        return what, "left out", "", LEFT_OUT[kind.__name__]
    few, _ = measure(kind, case, FEW)
    many, timed = measure(kind, case, MANY)
    verdict = "" if many <= PROMISED_US else "; ABOVE"
    beside = f"{many / few:.1f}x of {few:.1f} us at {FEW} trials; {timed:,} results{verdict}"
    return what, f"{many:.1f} us", promised, beside


def virtual() -> Row:
    """Return the row of 10,000 trials under ASHA through the whole core, in virtual time."""
    events, seconds, reports = core_floor.run(MANY, 16, stops_early=True)
    beside = f"{events:,} events, {reports:,} reports; an empty Python loop: {core_floor.spin():.0f} M turns/s"
    return f"{MANY:,} ASHA trials in virtual time", f"{seconds:.1f} s", f"<= {VIRTUAL_PROMISED_S:.0f} s", beside


def rows(directory: Path) -> list[Row]:
    """Return the rows of all schedulers; `directory` is not needed."""
    return [*[row_of(kind, case) for kind in kinds().values() for case in cases(kind)], virtual()]


def profiled(kind: type[Scheduler]) -> None:
    """Print where the time of `on_result` goes."""
    crowd = Crowd(build(kind, cases(kind)[0]), MANY)
    crowd.run(1, _WARM_S)
    profile = cProfile.Profile()
    profile.runcall(crowd.run, _ROUNDS, _TIMED_S)
    pstats.Stats(profile).sort_stats("tottime").print_stats(15)


def main() -> None:
    """Print a line per scheduler."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="the name of one class")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    chosen = kinds()
    if given.only is not None:
        if given.only not in chosen:
            raise SystemExit(f"no scheduler is called {given.only!r}; there are {', '.join(chosen)}")
        chosen = {given.only: chosen[given.only]}
    measured_each = (row_of(kind, case) for kind in chosen.values() for case in cases(kind))
    print(f"{'':44s} {'measured':>14s}   {'promised':10s} beside it")
    for what, measured, promised, beside in chain(measured_each, (virtual() for _ in range(given.only is None))):
        print(f"{what:44s} {measured:>14s}   {promised:10s} {beside}", flush=True)
    for kind in chosen.values() if given.profile else ():
        if kind.__name__ not in LEFT_OUT:
            profiled(kind)


if __name__ == "__main__":
    main()
