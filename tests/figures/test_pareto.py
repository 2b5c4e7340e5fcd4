"""The Pareto front of two and three objectives."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from made_experiment import MadeExperiment
from odd_experiments import make

from sweep.errors import ConfigError, MetricError
from sweep.results.analysis import ExperimentAnalysis


def several(tmp_path: Path, number: int, **meta: object) -> ExperimentAnalysis:
    names = [f"m{index}" for index in range(number)]
    made = MadeExperiment(tmp_path, metric=names[0], metrics=names, modes=["min", "max", "min", "min"][:number], **meta)
    for trial in range(20):
        trial_id = made.trial({"x": trial})
        made.start(trial_id)
        made.report(trial_id, {name: float((trial * (7 + 2 * i)) % 11) for i, name in enumerate(names)})
        made.end(trial_id)
    made.report(made.trial({"x": 0}), dict.fromkeys(names, math.nan))
    return ExperimentAnalysis(made.close())


@pytest.mark.parametrize("number", [2, 3])
def test_the_front_is_that_of_the_analysis(number: int, tmp_path: Path) -> None:
    analysis = several(tmp_path, number)
    rest, front = analysis.plot.pareto().data
    assert front.type == ("scatter" if number == 2 else "scatter3d")
    assert [row[0] for row in front.customdata] == [trial.number for trial in analysis.get_pareto_trials()]
    assert len(front.x) + len(rest.x) == 20
    assert front.marker.symbol != rest.marker.symbol
    assert "Without 1 trial that" in analysis.plot.pareto().layout.meta["note"]


def test_of_more_objectives_three_are_shown_and_others_can_be_named(tmp_path: Path) -> None:
    plot = several(tmp_path, 4).plot
    assert "pareto" in plot.suited()
    assert plot.pareto().layout.meta["note"].startswith("The first 3 of 4 objectives")
    figure = plot.pareto(["m3", "m1"])
    assert figure.layout.xaxis.title.text == "m3 (min)"
    assert figure.layout.yaxis.title.text == "m1 (max)"


def test_objectives_of_a_sweep_with_one_are_named(tmp_path: Path) -> None:
    plot = ExperimentAnalysis(make(tmp_path, "plain")).plot
    with pytest.raises(ConfigError, match="name them"):
        plot.pareto()
    assert plot.pareto(["loss", "time_total_s"], ["min", "min"]).data[1].x
    for metrics, modes in (
        (["loss"], ["min"]),
        ("loss", "min"),
        (["loss", "x"], None),
        (["loss", "x"], ["min", "less"]),
    ):
        with pytest.raises(ValueError, match="min"):
            plot.pareto(metrics, modes)
    with pytest.raises(MetricError, match="Did you mean 'loss'"):
        plot.pareto(["los", "time_total_s"], ["min", "min"])
