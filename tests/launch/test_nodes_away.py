"""Nodes that an engine declares possible and that are not there: what is refused beforehand, what waits, what a resumed
run makes of it, and what those who look are told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import sweep
from sweep.cli.main import sweep as command_line
from sweep.core.messages import Ask, Asked, Event, NodesChanged
from sweep.core.resources import Node
from sweep.engines.simulator import Point, Simulator
from sweep.errors import ResourceError
from sweep.record.facts import read_facts
from sweep.simulation.curves import Curves
from sweep.simulation.replay import replay

SMALL, LARGE = Node("n1", cpus=1), Node("n2", cpus=4)


def curve(config: Mapping[str, Any], count: int) -> Iterator[Point]:
    for step in range(count, 2):
        yield Point(1.0, {"loss": 1 / (step + 1)})


class Coming(Simulator):
    """A small node is there and a large one may come: it does as soon as everything waits for it; with `has_patience`
    False somebody ends the sweep instead."""

    def __init__(self, has_patience: bool = True) -> None:
        super().__init__(curve, [SMALL])
        self.away = (LARGE,)
        self._has_patience = has_patience

    def next_events(self, deadline: float | None) -> Sequence[Event]:
        if self._running or self._queue or self._posted or not self.away:
            return super().next_events(deadline)
        if not self._has_patience:
            return [Asked(Ask.DRAIN)]
        self.away = ()
        return [NodesChanged((SMALL, LARGE))]


def run(tmp_path: Path, cpus: float, **given: Any) -> sweep.ExperimentAnalysis:
    options: dict[str, Any] = {"config": {"x": 1}, "resources_per_trial": {"cpu": cpus}, "engine": Coming()}
    return sweep.run(lambda config: None, **(options | given), name="made", storage_path=tmp_path, verbose=0)


def test_what_only_a_node_that_is_not_there_can_hold_waits_until_it_comes(tmp_path: Path) -> None:
    (trial,) = run(tmp_path, 4).trials
    assert (trial.status, trial.count) == ("TERMINATED", 2)
    database = tmp_path / "made" / "sweep.db"
    told = [fact.event for fact in read_facts(database) if isinstance(fact.event, NodesChanged)]
    assert told == [NodesChanged((SMALL,), (LARGE,)), NodesChanged((SMALL, LARGE))]
    assert replay(database.parent).is_same
    assert Curves.from_experiment(database.parent).nodes == (SMALL, LARGE)


def test_what_not_even_that_can_hold_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="cpu=5 is more than the largest node there is, or that may come, has: 4"):
        run(tmp_path, 5)
    assert not (tmp_path / "made").exists()


def test_who_asks_why_is_told_which_node_is_missing_and_a_resumed_run_judges_likewise(tmp_path: Path) -> None:
    run(tmp_path, 4, engine=Coming(has_patience=False))
    why = "waits for node 'n2' (cpu=4), which is not available now"
    asked = CliRunner().invoke(command_line, ["why", "made", "--storage", str(tmp_path)])
    assert why in asked.output
    with pytest.raises(ResourceError, match="cpu=4 is more than this machine has: 1"):
        run(tmp_path, 4, engine=Simulator(curve, [SMALL]), resume=True)
    assert [trial.status for trial in run(tmp_path, 4, resume=True).trials] == ["TERMINATED"]
