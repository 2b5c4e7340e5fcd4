"""The history: every trial where it ended, and the best so far."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from made_experiment import MadeExperiment
from odd_experiments import make, run

from sweep.results.analysis import ExperimentAnalysis

value = st.one_of(st.floats(-1e6, 1e6), st.sampled_from([math.nan, math.inf, -math.inf, None]))


@settings(deadline=None, max_examples=25)
@given(values=st.lists(value, min_size=1, max_size=12), mode=st.sampled_from(["min", "max"]))
def test_the_line_is_the_best_so_far_and_each_trial_is_marked_once(values: list[float | None], mode: str) -> None:
    finite = {number: one for number, one in enumerate(values) if one is not None and math.isfinite(one)}
    if not finite:
        return
    with tempfile.TemporaryDirectory() as directory:
        made = MadeExperiment(Path(directory), mode=mode)
        for one in values:
            run(made, {"x": 1}, [] if one is None else [one], kind="FAILED" if one is None else "FINISHED")
        figure = ExperimentAnalysis(made.close()).plot.history()
    *marks, line = figure.data
    marked = [(row[0], x) for trace in marks for row, x in zip(trace.customdata, trace.x, strict=True)]
    assert sorted(marked) == [(number, number) for number in range(len(values))]
    better = min if mode == "min" else max
    best = better(finite.values())
    assert math.isclose(line.y[-1], best, rel_tol=1e-5)
    assert line.x[-1] == len(values) - 1
    steps = list(line.y[:-1])
    assert steps == sorted(steps, reverse=mode == "min")
    assert [row[0] for row in line.customdata[:-1]] == list(line.x[:-1])
    starred = [number for (number,), size in zip(line.customdata, line.marker.size, strict=True) if size]
    assert [finite[number] for number in starred] == [best]


def test_trials_that_ended_without_a_number_stand_at_the_edge_and_tell_failures_apart(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    run(made, {"x": 1}, [2.0])
    run(made, {"x": 1}, [], kind="FAILED", reason="ValueError: no")
    run(made, {"x": 1}, [math.nan])
    made.start(made.trial({"x": 1}))  # which goes on
    figure = ExperimentAnalysis(made.close()).plot.history()
    edge = {trace.name: trace for trace in figure.data if trace.yaxis == "y2"}
    assert {name: list(trace.x) for name, trace in edge.items()} == {"failed, no number": [1], "ended, no number": [2]}
    assert "ValueError: no" in edge["failed, no number"].hovertext[0]
    assert edge["failed, no number"].marker.symbol != edge["ended, no number"].marker.symbol


def test_over_time_trials_stand_where_their_last_report_was_made(tmp_path: Path) -> None:
    analysis = ExperimentAnalysis(make(tmp_path, "stopped"))
    figure = analysis.plot.history(over="time")
    at = analysis.history().groupby("trial_id")["time_s"].max().to_list()
    for trace in figure.data[:-1]:
        assert [at[row[0]] for row in trace.customdata] == list(trace.x)
    assert figure.layout.xaxis.title.text == "seconds of driving"
    assert {trace.name for trace in figure.data} == {"finished", "stopped early", "best so far"}


def test_values_over_many_magnitudes_are_shown_on_a_logarithmic_axis(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    for number in range(5):
        run(made, {"x": 1}, [10.0**number])
    assert ExperimentAnalysis(made.close()).plot.history().layout.yaxis.type == "log"
