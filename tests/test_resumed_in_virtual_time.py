"""A sweep that is killed and resumed does what it would have done without: every scheduler, every searcher, no clock.

The engine is virtual and loses no time at the kill: what a trial had computed towards its next report is not lost, so
the report comes when it would have come. Then everything else must come out the same, too.
"""

from __future__ import annotations

import itertools
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sweep
from sweep.core.messages import Reported, Started, Suggested
from sweep.core.packing import Packer
from sweep.core.plan import Plan
from sweep.core.resources import Node, parse_resources
from sweep.core.sweep import Sweep
from sweep.drive import drive
from sweep.engines.simulator import Point, Simulator
from sweep.policies import build_policies
from sweep.store.journal import Journal
from sweep.store.resume import load, record, retell

NUM_TRIALS = 14
LONGEST = 9
SPACE = {
    "x": sweep.uniform(0, 1),
    "lr": sweep.loguniform(1e-4, 1e-1),
    "layers": sweep.randint(1, 5),
    "kind": sweep.choice(["a", "b"]),
}
BOUNDS = {"x": [0.0, 1.0], "lr": [1e-4, 1e-1]}

SCHEDULERS: dict[str, Callable[[], Any]] = {
    "fifo": lambda: None,
    "asha": lambda: sweep.ASHAScheduler(max_t=9, reduction_factor=3),
    "asha, brackets": lambda: sweep.ASHAScheduler(max_t=9, reduction_factor=3, brackets=2),
    "asha, promotion": lambda: sweep.ASHAScheduler(max_t=9, reduction_factor=3, type="promotion"),
    "moasha": lambda: sweep.MOASHAScheduler(max_t=9, reduction_factor=3, metric=["loss", "size"], mode="min"),
    "pasha": lambda: sweep.PASHAScheduler(max_t=9, reduction_factor=3),
    "bohb": lambda: sweep.HyperBandForBOHB(max_t=9, reduction_factor=3),
    "pb2": lambda: _pb2(),
    "pb2, synchronous": lambda: _pb2(synch=True),
    "hyperband": lambda: sweep.HyperBandScheduler(max_t=9, reduction_factor=3),
    "median": lambda: sweep.MedianStoppingRule(time_attr="training_iteration", grace_period=2),
    "resources": lambda: sweep.ResourceChangingScheduler(sweep.ASHAScheduler(max_t=9, reduction_factor=3)),
    "pbt": lambda: _pbt(),
    "pbt, synchronous": lambda: _pbt(synch=True),
}
SEARCHERS: dict[str, Callable[[], Any]] = {
    "variants": lambda: None,
    "random": lambda: "random",
    "tpe": lambda: "tpe",
    "qmc": lambda: "qmc",
    "nsgaii": lambda: "nsgaii",
    "cmaes": lambda: "cmaes",
    "bohb": lambda: sweep.BOHBSearch(max_t=9),
    "limited": lambda: sweep.ConcurrencyLimiter(sweep.OptunaSearch(), max_concurrent=2),
    "batches": lambda: sweep.ConcurrencyLimiter(sweep.OptunaSearch(), max_concurrent=3, batch=True),
    "repeated": lambda: sweep.Repeater(sweep.OptunaSearch(), repeat=2),
}


def _pbt(**more: Any) -> Any:
    mutations = {"x": sweep.uniform(0, 1), "lr": [1e-4, 1e-3, 1e-2]}
    return sweep.PopulationBasedTraining(
        time_attr="training_iteration", perturbation_interval=2, hyperparam_mutations=mutations, **more
    )


def _pb2(**more: Any) -> Any:
    return sweep.PB2(time_attr="training_iteration", perturbation_interval=2, hyperparam_bounds=BOUNDS, **more)


class Killed(BaseException):
    """Stands for SIGKILL: nobody catches it."""


def curve(config: Mapping[str, Any], count: int) -> Iterator[Point]:
    """Yield losses that fall at a pace of the config's own; no two reports of a sweep come at the same moment."""
    pace = 1 + abs(math.sin(1e3 * config["x"] + math.log(config["lr"])))
    for step in range(count + 1, LONGEST + 1):
        loss = (config["x"] - 0.3) ** 2 + abs(math.log10(config["lr"]) + 2) / 9 + 0.1 * config["layers"] + 1 / step
        metrics = {"loss": loss, "size": config["layers"] + config["x"] / step}
        yield Point(pace * (1 + 0.1 * math.sin(7.7 * step)), metrics, has_checkpoint=True)


class Machine(Simulator):
    """A virtual engine that may begin where another one was killed."""

    def __init__(self, start_at: float, due: Mapping[str, float]) -> None:
        super().__init__(curve, [Node("local", 4.0)], start_at=start_at)
        self._due = dict(due)

    def due(self) -> dict[str, float]:
        """Return when the next report of each running trial would come."""
        return {event.trial_id: when for when, _, _, event in self._queue if isinstance(event, Reported)}

    def _points(self, trial: Any, done: int) -> Iterator[Point]:
        points = super()._points(trial, done)
        due = self._due.pop(trial.id, None)
        if due is not None:
            first = next(points)
            yield replace(first, seconds=due - self.now())
        yield from points


class Record(Journal):
    """A record on the disk, with directories for checkpoints; it dies after a number of commits."""

    def __init__(self, root: Path, die_after: int | None) -> None:
        super().__init__(root / "sweep.db", durability="fast", discard=lambda path: shutil.rmtree(root / path))
        self._root, self._left = root, die_after

    def commit(self, events: Any, commands: Any, changes: Any, now: float) -> None:
        for event in events:
            if isinstance(event, Reported) and event.checkpoint is not None:
                os.makedirs(self._root / event.checkpoint, exist_ok=True)
        super().commit(events, commands, changes, now)
        if self._left is not None:
            self._left -= 1
            if not self._left:
                raise Killed

    def notify(self, told: Any) -> None:
        pass

    def step(self, trials: Any, now: float, changed: Any) -> None:
        pass


def run(root: Path, scheduler: Any, search_alg: Any, *, die_after: int | None = None, due: Any = None) -> Any:
    """Drive one run; returns what is due if it was killed, else the scheduler's state."""
    exists = (root / "sweep.db").exists()
    policies = build_policies(
        search_alg, scheduler, config=SPACE, metric="loss", mode="min", num_samples=NUM_TRIALS, seed=5
    )
    is_adaptive = policies.searcher.is_adaptive
    plan = Plan(
        num_trials=policies.searcher.num_trials(NUM_TRIALS),
        ask_ahead=1 if is_adaptive else 64,
        metric="loss",
        mode="min",
        num_to_keep=2,
    )
    loaded = load(root / "sweep.db") if exists else None
    if loaded is not None:
        assert not loaded.missing
        retell(root / "sweep.db", policies.scheduler, policies.searcher)
    journal = Record(root, die_after)
    packer = Packer([Node("local", 4.0)])
    if loaded is None:
        machine = Machine(0.0, {})
        main = Sweep(plan, policies.scheduler, packer)
    else:
        machine = Machine(loaded.at, due)
        main = Sweep(plan, policies.scheduler, packer, loaded.trials, kept=loaded.kept, seq=loaded.seq)
    request = parse_resources(None)
    try:
        drive(
            main,
            machine,
            policies.searcher,
            journal,
            journal,
            request_of=lambda config: request,
            complete=lambda config, trial_id: policies.scheduler.complete_config(config, int(trial_id[-5:])),
        )
    except Killed:
        return machine.due()
    finally:
        journal.close()
    return policies.scheduler.state()


def story(root: Path) -> tuple[list[Any], dict[str, Any]]:
    """Return what happened, without what a restart may change: numbers of attempts and of events."""
    events: list[Any] = []
    for told in record(root / "sweep.db"):
        match told.event:
            case Suggested(trial_id, config, _, _) if isinstance(config, Mapping):
                events.append((round(told.at, 6), "config", trial_id, dict(config)))
            case Reported(trial_id, _, _, metrics, _):
                events.append((round(told.at, 6), "report", trial_id, metrics["loss"], metrics["training_iteration"]))
                for row in told.caused or ():
                    if row[0] == "Stop":
                        events.append((round(told.at, 6), "stop", row[1]))
    loaded = load(root / "sweep.db")
    ends = {
        trial.id: (trial.status, dict(trial.config), trial.reason, trial.failures, trial.judged_to)
        for trial in loaded.trials
    }
    return events, ends


def test_the_record_of_a_killed_run_begins_where_it_was_left(tmp_path: Path) -> None:
    due = run(tmp_path, SCHEDULERS["asha"](), None, die_after=20)
    killed_at = load(tmp_path / "sweep.db").at
    assert due
    assert all(when >= killed_at for when in due.values())
    held = {told.event.trial_id for told in record(tmp_path / "sweep.db") if isinstance(told.event, Started)}
    assert set(due) <= held


COMBINATIONS = [(name, "variants") for name in SCHEDULERS] + [
    (scheduler, name) for scheduler, name in itertools.product(("asha", "bohb"), SEARCHERS) if name != "variants"
]


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param((0.5,), id="half way"),
        pytest.param(tuple(i / 40 for i in range(1, 40)), marks=pytest.mark.slow, id="everywhere"),
    ],
)
@pytest.mark.parametrize(("scheduler", "searcher"), COMBINATIONS)
def test_killed_at_any_commit_and_resumed_it_ends_like_the_one_that_was_not(
    tmp_path: Path, scheduler: str, searcher: str, parts: tuple[float, ...]
) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    expected_state = run(whole, SCHEDULERS[scheduler](), SEARCHERS[searcher]())
    expected = story(whole)
    num_commits = len({told.at for told in record(whole / "sweep.db")})
    assert num_commits > 20
    for part in parts:
        root = tmp_path / f"killed-{part}"
        root.mkdir()
        due = run(root, SCHEDULERS[scheduler](), SEARCHERS[searcher](), die_after=round(part * num_commits))
        state = run(root, SCHEDULERS[scheduler](), SEARCHERS[searcher](), due=due)
        events, ends = story(root)
        assert events == expected[0]
        assert ends == expected[1]
        assert state == expected_state
