"""`analysis.plot`: whatever was tried and reported, a figure is sensible or one error says what to do."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from figure_checks import check
from made_experiment import MadeExperiment
from odd_experiments import WORLDS, make, run
from odd_values import ODD

from sweep.errors import ConfigError, MetricError
from sweep.figures.plots import NAMES, Plots
from sweep.record.encoding import encode
from sweep.results.analysis import ExperimentAnalysis, ResultGrid

ORDER = ["history", "curves", "pareto", "parallel", "importance", "slice", "rungs", "population", "timeline"]
MORE: dict[str, tuple[dict[str, Any], ...]] = {
    "history": ({"over": "time"},),
    "curves": ({"x": "time_total_s"}, {"most": 2}),
    "rungs": ({"at": [1, 2]}, {"at": [0.5], "time_attr": "time_total_s"}),
    "timeline": ({"by": "device"}, {"most": 1}),
}


@pytest.mark.parametrize("name", WORLDS)
def test_every_figure_of_an_odd_experiment_is_sound_or_says_what_to_do(name: str, tmp_path: Path) -> None:
    plot = ExperimentAnalysis(make(tmp_path, name)).plot
    suited = plot.suited()
    numbers = {row.number for row in plot._reader.trials()}
    assert suited == [one for one in ORDER if one in suited]
    for figure in ORDER:
        for arguments in ({}, *MORE.get(figure, ())):
            drawn, error = drawn_or_refused(plot, figure, arguments)
            if drawn is None:
                assert arguments or figure not in suited, error
                assert error.endswith((".", ")", "?"))
                continue
            made = check(drawn, numbers)
            assert made["layout"]["meta"]["figure"] == figure
            assert len(made["data"]) <= 6 * max(1, sum(key.startswith("yaxis") for key in made["layout"]))


def drawn_or_refused(plot: Plots, figure: str, arguments: dict[str, Any]) -> tuple[Any, str]:
    try:
        return getattr(plot, figure)(**arguments), ""
    except (ConfigError, MetricError) as error:
        return None, str(error)


@pytest.mark.slow
def test_whatever_a_config_holds_is_drawn(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    for name, make_value in ODD.items():
        if "of one list" in name or "tensor" in name or "jax" in name:  # never recorded, or long to load
            continue
        try:
            value = make_value()
            size = len(encode(value))
        except Exception:  # what cannot be made here, or recorded
            continue
        if size > 1_000_000:  # some seconds each
            continue
        run(made, {"odd": value, "lr": made.num_trials, "deep": {"odd": value}}, [float(made.num_trials)])
    assert made.num_trials > 50
    plot = ExperimentAnalysis(made.close()).plot
    assert plot.suited() == ["history", "curves", "parallel", "importance", "slice", "timeline"]
    for name in plot.suited():
        check(getattr(plot, name)(), range(made.num_trials))
    check(plot.contour("odd", "lr"), range(made.num_trials))


def test_what_suits_an_experiment_is_printed_and_listed(tmp_path: Path) -> None:
    plot = ExperimentAnalysis(make(tmp_path, "stopped")).plot
    assert plot.suited() == ["history", "curves", "parallel", "slice", "rungs", "timeline"]  # too few for importances
    assert repr(plot) == (
        "figures of stopped: history(), curves(), parallel(), slice(), rungs(), timeline(); of two parameters "
        "contour(x, y)"
    )
    assert {*NAMES, "suited"} <= set(dir(plot))


def test_a_grid_has_the_same_figures(tmp_path: Path) -> None:
    analysis = ExperimentAnalysis(make(tmp_path, "plain"))
    grid = ResultGrid(analysis)
    assert isinstance(grid.plot, Plots)
    assert grid.plot.history().to_json() == analysis.plot.history().to_json()


def test_a_figure_that_does_not_exist_names_the_nearest(tmp_path: Path) -> None:
    plot = ExperimentAnalysis(make(tmp_path, "plain")).plot
    with pytest.raises(AttributeError, match="Did you mean 'history'"):
        plot.histroy()
    assert not hasattr(plot, "_repr_html_")


def test_of_several_objectives_each_figure_shows_the_first_and_says_so_or_the_one_that_is_named(tmp_path: Path) -> None:
    plot = ExperimentAnalysis(make(tmp_path, "two_objectives")).plot
    assert plot.suited() == ["history", "curves", "pareto", "parallel", "slice", "timeline"]
    for name in ("history", "curves", "parallel", "slice"):
        made = check(getattr(plot, name)(), range(6))
        assert made["layout"]["meta"]["note"] == "The first of 2 objectives: error (min), size (max)."
        assert "error" in made["layout"]["title"]["text"]
        other = check(getattr(plot, name)(metric="size"), range(6))
        assert "size" in other["layout"]["title"]["text"]
        assert other["layout"]["meta"]["note"] == ""
        assert other["layout"]["margin"]["t"] == made["layout"]["margin"]["t"] - 30  # two lines
    figure = plot.history("size")  # its mode is known
    assert figure.data[-1].y[-1] == 5
    assert plot.parallel(metric="error").layout.meta["figure"] == "parallel"


def test_the_metric_is_completed_by_the_defaults(tmp_path: Path) -> None:
    directory = make(tmp_path, "plain")
    analysis = ExperimentAnalysis(directory, default_metric="loss", default_mode="max")
    assert analysis.plot.history().data[-1].y[-1] == 0.5
    assert analysis.plot.history(mode="min").data[-1].y[-1] == 0.0625
    with pytest.raises(ValueError, match="mode"):
        analysis.plot.history(mode="least")
    with pytest.raises(ValueError, match="metric"):
        analysis.plot.history(metric=["loss"])


def test_without_plotly_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plot = ExperimentAnalysis(make(tmp_path, "plain")).plot
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "plotly" else real(name, *more)
    )
    assert plot.suited()
    with pytest.raises(ConfigError, match="pip install plotly"):
        plot.history()


@pytest.mark.slow
def test_figures_of_many_trials_stay_small_and_say_what_they_show(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    for number in range(3000):
        reason = f"stopped early: loss=1 at {number % 20 + 1}, cutoff 0.5" if number % 3 else ""
        values = [number / step for step in range(1, number % 20 + 2)]
        config = {f"parameter_{index}": (number * 7919) % (101 + index) for index in range(14)}
        run(made, config, values, reason=reason, kind="FAILED" if number % 50 == 0 else "FINISHED")
    plot = ExperimentAnalysis(made.close()).plot
    for name in plot.suited():
        figure = getattr(plot, name)()
        made_of = check(figure, range(3000))
        assert len(json.dumps(made_of)) < 3_000_000
        assert "3,000" in made_of["layout"]["meta"]["note"], name


def test_reading_writes_nothing(tmp_path: Path) -> None:
    directory = make(tmp_path, "stopped")
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    plot = ExperimentAnalysis(directory).plot
    for name in plot.suited():
        getattr(plot, name)()
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
