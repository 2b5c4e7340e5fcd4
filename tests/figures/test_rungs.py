"""Rungs: who came there, who was stopped, and whether early ranks say late ones."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from made_experiment import MadeExperiment
from odd_experiments import make, run
from virtual_sweeps import LAST
from virtual_sweeps import run as run_sweep

from sweep.errors import ConfigError, MetricError
from sweep.figures.rungs import found_rungs
from sweep.results.analysis import ExperimentAnalysis


@pytest.mark.parametrize("scheduler", ["asha", "promotion", "hyperband"])
def test_the_rungs_of_a_scheduler_are_found(scheduler: str, tmp_path: Path) -> None:
    rows = run_sweep(tmp_path, scheduler)._reader.trials()
    steps = found_rungs(rows, "training_iteration")
    assert set(steps) <= {1, 3, 9, LAST}
    assert steps[-1] == LAST
    assert found_rungs([row for row in rows if not row.was_stopped_early], "training_iteration") == []


def test_counts_and_marks_are_those_of_the_trials(tmp_path: Path) -> None:
    figure = ExperimentAnalysis(make(tmp_path, "stopped")).plot.rungs()
    assert list(figure.layout.xaxis.ticktext) == [
        "1<br>9 came<br>3 out",
        "3<br>6 came<br>3 out",
        "9<br>3 came<br>0 out",
    ]
    finished, stopped, heatmap = figure.data
    assert [row[0] for row in stopped.customdata] == [0, 0, 1, 1, 1, 3, 3, 4, 4, 4, 6, 6, 7, 7]
    assert list(finished.y)[:3] == [3, 2.33333, 2.11111]
    assert heatmap.z[0][1] == 1
    assert heatmap.z[0][0] is None


def test_a_rank_correlation_says_whether_early_ranks_hold(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    shuffled = list(range(30))
    random.Random(3).shuffle(shuffled)
    for number in range(30):
        run(made, {"lr": 1}, [float(number), 100.0 + number**3, -float(number), float(shuffled[number])])
    plot = ExperimentAnalysis(made.close()).plot
    heatmap = plot.rungs(at=[1, 2, 3, 4]).data[-1]
    assert heatmap.z[0][1] == 1
    assert heatmap.z[0][2] == -1
    assert abs(heatmap.z[0][3]) < 0.4
    assert heatmap.text[0][1] == "1.00<br>n=30"
    assert "correlate with" in plot.rungs(at=[1, 4]).layout.meta["summary"]


def experiment(root: Path, steps: list[int], reason: str, last: int = 0, **meta: Any) -> ExperimentAnalysis:
    """Return an analysis of trials of so many steps, each stopped there for a reason unless it came to the last."""
    made = MadeExperiment(root, **meta)
    for number, ran in enumerate(steps):
        end = {"kind": "STOPPED", "reason": reason.format(ran, ran / 2)} if ran != last else {}
        run(made, {"lr": 1}, [float(number)] * ran, **end)
    return ExperimentAnalysis(made.close())


def test_where_too_few_trials_came_to_two_rungs_no_ranks_are_drawn(tmp_path):
    figure = experiment(tmp_path, [3, 3, 1, 1], "stopped early: loss=1 at {}, cutoff 0.5", last=3).plot.rungs()
    assert {trace.type for trace in figure.data} == {"scatter"}
    assert "Ranks at two rungs need 3 trials that came to both." in figure.layout.meta["note"]


def test_where_stops_are_many_an_even_choice_is_compared_by_what_the_scheduler_went_by(tmp_path):
    many = experiment(tmp_path, [*range(1, 40)], "stopped early: best loss=1 at {}, median of the others 0.5")
    steps = found_rungs(many._reader.trials(), "training_iteration")
    assert 4 <= len(steps) <= 8
    assert steps == sorted(set(steps))
    reason = "stopped early: best loss=1 at {1:g}, median of the others 0.5"  # a report each half second
    figure = experiment(tmp_path / "b", [6, 2] * 4, reason, last=6, time_attr="time_total_s").plot.rungs()
    assert list(figure.layout.xaxis.ticktext) == ["1<br>8 came<br>4 out", "3<br>4 came<br>0 out"]


def test_what_cannot_be_compared_is_refused_with_what_to_do(tmp_path: Path) -> None:
    plot = ExperimentAnalysis(make(tmp_path, "plain")).plot
    with pytest.raises(ConfigError, match=r"rungs\(at=\[1, 3, 9\]\)"):
        plot.rungs()
    for at in ([], "3", ["a"], [1] * 50, 3):
        with pytest.raises(ConfigError, match="at is"):
            plot.rungs(at=at)
    with pytest.raises(MetricError, match="time_attr"):
        plot.rungs(at=[100])
