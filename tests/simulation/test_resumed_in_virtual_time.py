"""A sweep that is killed and resumed does what it would have done without: every scheduler, every searcher, no clock.

The engine is virtual and loses no time at the kill: what a trial had computed towards its next report is not lost, so
the report comes when it would have come. Then everything else must come out the same, too.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from every_policy import SCHEDULERS, SEARCHERS, world_of

import sweep
from sweep.core.messages import Reported, Suggested
from sweep.core.packing import Packer
from sweep.core.plan import Plan
from sweep.core.resources import Node, parse_resources
from sweep.core.sweep import Sweep
from sweep.engines.simulator import Point, Simulator
from sweep.launch.build import build_policies
from sweep.launch.drive import drive
from sweep.launch.spec import RunSpec
from sweep.record.facts import read_facts
from sweep.record.journal import Journal
from sweep.record.resume import load, retell

LONGEST = 9


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

    def points(self, trial: Any, done: int) -> Iterator[Point]:
        points = super().points(trial, done)
        due = self._due.pop(trial.id, None)
        if due is not None:
            first = next(points)
            yield replace(first, seconds=due - self.now())
        yield from points


class Record(Journal):
    """A record on the disk, with directories for checkpoints; it dies after a number of commits."""

    def __init__(self, root: Path, die_after: int | None) -> None:
        super().__init__(root / "sweep.db", discard=lambda path: shutil.rmtree(root / path))
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


def run(
    root: Path,
    scheduler: Any,
    search_alg: Any,
    space: Mapping[str, Any],
    num_samples: int,
    *,
    die_after: int | None = None,
    due: Any = None,
) -> Any:
    """Drive one run; returns what is due if it was killed, else the scheduler's state."""
    given = {"search_alg": search_alg, "scheduler": scheduler, "config": space, "num_samples": num_samples}
    policies = build_policies(RunSpec(trainable=curve, metric="loss", mode="min", **given), seed=5)
    num_trials, ask_ahead = policies.searcher.num_trials(num_samples), 1 if policies.searcher.is_adaptive else 64
    plan = Plan(num_trials=num_trials, ask_ahead=ask_ahead, metric="loss", mode="min", num_to_keep=2)
    machine, left = Machine(0.0, {}), {}
    if (root / "sweep.db").exists():
        loaded = load(root / "sweep.db")
        assert not loaded.missing
        retell(root / "sweep.db", policies.scheduler, policies.searcher)
        machine, left = Machine(loaded.at, due), {"trials": loaded.trials, "kept": loaded.kept, "seq": loaded.seq}
    journal = Record(root, die_after)
    main = Sweep(plan, policies.scheduler, Packer([Node("local", 4.0)]), **left)
    request = parse_resources(None)
    how = {"request_of": lambda config: request, "complete": policies.complete}
    try:
        drive(main, machine, policies.searcher, journal, journal, **how)
    except Killed:
        return machine.due()
    finally:
        journal.close()
    return policies.scheduler.state()


def story(root: Path) -> tuple[list[Any], dict[str, Any]]:
    """Return what happened, without what a restart may change: numbers of attempts and of events."""
    events: list[Any] = []
    for told in read_facts(root / "sweep.db"):
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


COMBINATIONS = [(name, "variants") for name in SCHEDULERS] + [
    (scheduler, name) for scheduler, name in itertools.product(("asha", "bohb"), SEARCHERS) if name != "variants"
]
OF_BOHB = [("bohb", name) for name in SEARCHERS if name not in ("variants", "bohb")]
EVERYWHERE = tuple(i / 40 for i in range(1, 40))
PARTS = pytest.mark.parametrize(
    "parts", [pytest.param((0.5,), id="half way"), pytest.param(EVERYWHERE, marks=pytest.mark.slow, id="everywhere")]
)


def check_resumed(tmp_path: Path, parts: tuple[float, ...], once: Callable[..., Any]) -> None:
    """Run once whole; then kill after each share of the commits, resume, and compare."""
    whole = tmp_path / "whole"
    whole.mkdir()
    expected_state = once(whole)
    expected = story(whole)
    num_commits = len({told.at for told in read_facts(whole / "sweep.db")})
    assert num_commits > 10
    for part in parts:
        root = tmp_path / f"killed-{part}"
        root.mkdir()
        due = once(root, die_after=max(1, round(part * num_commits)))
        state = once(root, due=due)
        events, ends = story(root)
        assert events == expected[0]
        assert ends == expected[1]
        assert state == expected_state


@PARTS
@pytest.mark.parametrize(
    ("scheduler", "searcher"),
    [
        pytest.param(*pair, marks=pytest.mark.slow if pair == ("asha", "gp") or pair in OF_BOHB else ())
        for pair in COMBINATIONS
    ],
)
def test_killed_at_any_commit_and_resumed_it_ends_like_the_one_that_was_not(
    tmp_path: Path, scheduler: str, searcher: str, parts: tuple[float, ...]
) -> None:
    def once(root: Path, **kill: Any) -> Any:
        return run(root, SCHEDULERS[scheduler](), SEARCHERS[searcher](), *world_of(searcher), **kill)

    check_resumed(tmp_path, parts, once)


@PARTS
def test_the_replay_of_a_policy_keeps_to_it(tmp_path: Path, parts: tuple[float, ...]) -> None:
    file = tmp_path / "pbt_policy_abcde_00002.txt"
    changes = [("1", "0", 2, {"x": 0.1}, {"x": 0.2}), ("2", "1", 5, {"x": 0.2}, {"x": 0.7})]
    lines = [[target, source, 9, at, old, new] for target, source, at, old, new in changes]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def once(root: Path, **kill: Any) -> Any:
        return run(root, sweep.PopulationBasedTrainingReplay(file), None, world_of("variants")[0], 1, **kill)

    check_resumed(tmp_path, parts, once)
