"""A panel per parameter."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_experiment import MadeExperiment
from odd_experiments import make, run

from sweep.errors import ConfigError
from sweep.results.analysis import ExperimentAnalysis


def test_every_trial_is_in_the_panel_of_each_parameter_that_it_has(tmp_path: Path) -> None:
    analysis = ExperimentAnalysis(make(tmp_path, "conditional"))
    figure = analysis.plot.slice()
    titles = {f"x{i or ''}": figure.layout[f"xaxis{i or ''}"].title.text for i in (0, 2, 3, 4)}
    assert set(titles.values()) == {"opt/kind", "opt/momentum (in 6 of 12)", "opt/beta (in 6 of 12)", "lr"}
    for trace in figure.data:
        kind = (
            "opt/beta" if "beta" in titles[trace.xaxis] else "opt/momentum" if "moment" in titles[trace.xaxis] else ""
        )
        numbers = [row[0] for row in trace.customdata]
        assert numbers == [n for n in range(12) if not kind or (n % 2 == 1) == (kind == "opt/beta")]
        assert list(trace.y) == numbers


def test_an_axis_is_logarithmic_or_has_its_categories(tmp_path: Path) -> None:
    figure = ExperimentAnalysis(make(tmp_path, "conditional")).plot.slice(["lr", "opt/kind"])
    assert figure.layout.xaxis.type == "log"
    assert list(figure.layout.xaxis2.ticktext) == ["adam", "sgd"]
    kinds = figure.data[1]
    assert [round(x) for x in kinds.x] == [1 - row[0] % 2 for row in kinds.customdata]


def test_an_axis_of_few_whole_numbers_has_no_ticks_between_them(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    for number in range(4):
        run(made, {"layers": 1 + number % 3}, [number])
    assert ExperimentAnalysis(made.close()).plot.slice().layout.xaxis.dtick == 1


def test_an_outlier_below_0_stays_outside_unless_it_is_the_best(tmp_path: Path) -> None:
    for mode, is_outside in (("max", True), ("min", False)):
        made = MadeExperiment(tmp_path, mode, mode=mode)
        for number in range(12):
            run(made, {"lr": number}, [-1e6 if number == 5 else number / 10])
        plot = ExperimentAnalysis(made.close()).plot
        for figure in (plot.slice(), plot.history(), plot.curves()):
            assert (figure.layout.yaxis.range is not None) == is_outside
            assert ("1 point far outside: a double click shows all." in figure.layout.meta["note"]) == is_outside


def test_a_constant_parameter_can_be_named_and_an_unknown_one_cannot(tmp_path: Path) -> None:
    plot = ExperimentAnalysis(make(tmp_path, "plain")).plot
    assert "same" not in str(plot.slice().layout)
    assert plot.slice(["same"]).layout.xaxis.title.text == "same"
    assert plot.slice("lr").layout.xaxis.title.text == "lr"
    with pytest.raises(ConfigError, match="Did you mean 'width'"):
        plot.slice(["with"])
    for params in ([], 3, {"lr": 1}):
        with pytest.raises(ConfigError, match="params is"):
            plot.slice(params)
