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


def test_an_axis_is_logarithmic_or_has_its_categories_or_whole_numbers(tmp_path):
    figure = ExperimentAnalysis(make(tmp_path, "conditional")).plot.slice(["lr", "opt/kind"])
    assert figure.layout.xaxis.type == "log"
    assert list(figure.layout.xaxis2.ticktext) == ["adam", "sgd"]
    kinds = figure.data[1]
    assert [round(x) for x in kinds.x] == [1 - row[0] % 2 for row in kinds.customdata]
    made = MadeExperiment(tmp_path)
    for number in range(4):
        run(made, {"layers": 1 + number % 3, "same": 7}, [number])
    plot = ExperimentAnalysis(made.close()).plot
    assert plot.slice().layout.xaxis.dtick == 1
    assert "same" not in str(plot.slice().layout)
    for name in ("same", "layers"):
        assert plot.slice(name).layout.xaxis.title.text == plot.slice([name]).layout.xaxis.title.text == name
    with pytest.raises(ConfigError, match="Did you mean 'layers'"):
        plot.slice(["layer"])
    for params in ([], 3, {"lr": 1}):
        with pytest.raises(ConfigError, match="params is"):
            plot.slice(params)


def test_an_outlier_below_0_stays_outside_unless_it_is_the_best(tmp_path: Path) -> None:
    for mode, is_outside in (("max", True), ("min", False)):
        made = MadeExperiment(tmp_path, mode, mode=mode)
        for number in range(12):
            run(made, {"lr": number}, [-1e6 if number == 5 else number / 10])
        plot = ExperimentAnalysis(made.close()).plot
        for figure in (plot.slice(), plot.history(), plot.curves()):
            assert (figure.layout.yaxis.range is not None) == is_outside
            assert ("1 point far outside: a double click shows all." in figure.layout.meta["note"]) == is_outside
