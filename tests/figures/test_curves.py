"""Learning curves."""

from __future__ import annotations

import math
from datetime import datetime
from pathlib import Path

import pytest
from made_experiment import T0, MadeExperiment
from odd_experiments import make, run

from sweep.errors import ConfigError, MetricError
from sweep.figures.curves import curves_of
from sweep.results.analysis import ExperimentAnalysis


@pytest.mark.parametrize("name", ["stopped", "nested", "hostile_metric", "some_numbers"])
def test_a_curve_is_what_the_trial_has_reported(name: str, tmp_path: Path) -> None:
    analysis = ExperimentAnalysis(make(tmp_path, name))
    reader, metric = analysis._reader, analysis.default_metric
    assert metric is not None
    for rows in (reader.trials(), reader.trials()[1:3]):
        found = curves_of(reader, rows, metric, "training_iteration")
        expected: dict[int, list[float]] = {}
        numbers = {row.trial_id: row.number for row in rows}
        for trial_id, _, value in reader.values(metric):
            if trial_id in numbers:
                expected.setdefault(numbers[trial_id], []).append(value)
        assert found.keys() == expected.keys()
        for number, curve in found.items():
            assert [value for _, value, _ in curve] == pytest.approx(expected[number], nan_ok=True)
        assert all(curve == sorted(curve, key=lambda point: point[0]) for curve in found.values())


def test_what_became_of_the_trial_tells_curves_apart(tmp_path: Path) -> None:
    figure = ExperimentAnalysis(make(tmp_path, "stopped")).plot.curves()
    assert {trace.name: len({row[0] for row in trace.customdata}) for trace in figure.data} == {
        "finished": 3,
        "stopped early": 5,
        "best: trial 0": 1,
    }
    best = figure.data[-1]  # above the others
    assert (best.line.width, best.marker.symbol, best.marker.size[-1]) == (3, "star", 14)
    stopped = figure.data[0]
    assert "stopped early: loss=1 at 3, cutoff 0.5" in stopped.hovertext[2]
    assert "lr = 1" in stopped.hovertext[2]


def test_any_number_is_shown_over_any_other(tmp_path: Path) -> None:
    plot = ExperimentAnalysis(make(tmp_path, "nested")).plot
    figure = plot.curves("eval/acc", x="time_total_s", trials=[5, "abcde_00002"])
    assert figure.layout.xaxis.title.text == "time_total_s"
    assert {row[0] for trace in figure.data for row in trace.customdata} == {2, 5}
    with pytest.raises(MetricError, match="Did you mean 'eval/acc'"):
        plot.curves("eval/ac")
    with pytest.raises(ConfigError, match="no trial '9'"):
        plot.curves(trials=[9])
    with pytest.raises(ConfigError, match="trials"):
        plot.curves(trials=3)
    with pytest.raises(ConfigError, match="names no trial"):
        plot.curves(trials=[])


def test_the_clock_is_shown_as_date_and_time(tmp_path: Path) -> None:
    (best,) = ExperimentAnalysis(make(tmp_path, "one_trial")).plot.curves(x="timestamp").data
    assert [datetime.fromisoformat(x).timestamp() for x in best.x] == [T0 + 1]


def test_the_lines_of_two_trials_are_never_joined(tmp_path: Path) -> None:
    for trace in ExperimentAnalysis(make(tmp_path, "stopped")).plot.curves().data:
        for one, other, x in zip(trace.customdata, trace.customdata[1:], trace.x[1:], strict=False):
            assert one[0] == other[0] or x is not None
            if one[0] != other[0]:
                assert trace.x[list(map(list, trace.customdata)).index(list(other)) - 1] is None


def test_a_line_ends_where_a_trial_went_back_to_a_checkpoint_and_where_it_diverged(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    back = made.trial({"lr": 1})
    made.start(back)
    for attempt, step in ((1, 1), (1, 2), (1, 3), (2, 2), (2, 3)):
        made.report(back, {"loss": 1 / step, "training_iteration": step}, attempt=attempt)
    made.end(back)
    run(made, {"lr": 2}, [1.0, 0.5, math.nan])
    diverged, best = ExperimentAnalysis(made.close()).plot.curves().data
    assert [list(trace.x) for trace in (best, diverged)] == [[1, 2, 3, None, 2, 3], [1, 2]]
    assert "then nan" in diverged.hovertext[-1]
    assert [[size for size in trace.marker.size if size] for trace in (best, diverged)] == [[14], [7]]


def test_of_many_trials_some_are_drawn_and_the_figure_says_which(tmp_path: Path) -> None:
    figure = ExperimentAnalysis(make(tmp_path, "many_categories")).plot.curves(most=10)
    assert figure.layout.meta["note"] == "10 of 40 trials: the best 3 and a spread of the others."
    assert {0, 1, 2} < {row[0] for trace in figure.data for row in trace.customdata}
