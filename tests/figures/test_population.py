"""Populations: who continued from whom."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from odd_experiments import make
from virtual_sweeps import LAST
from virtual_sweeps import run as run_sweep

from sweep.errors import ConfigError
from sweep.figures.population import stretches_of
from sweep.results.analysis import ExperimentAnalysis


@pytest.fixture
def analysis(tmp_path: Path) -> ExperimentAnalysis:
    return run_sweep(tmp_path, "pbt")


def test_the_stretches_are_those_of_the_policy_file(analysis: ExperimentAnalysis) -> None:
    root = Path(analysis.experiment_path)
    lines = [json.loads(line) for line in (root / "pbt_global.txt").read_text().splitlines()]
    told = sorted((int(to.split("_")[0]), int(of.split("_")[0]), at, new["x"]) for to, of, _, at, _, new in lines)
    found = stretches_of(analysis._reader)
    changes = [one for stretches in found.values() for one in stretches if one.before is not None]
    assert len(changes) == len(told) > 3
    assert sorted((one.number, one.source, one.begin, one.config["x"]) for one in changes) == told
    for stretches in found.values():
        assert stretches[-1].end == LAST


def test_the_figure_shows_the_changed_parameters_and_the_way_to_the_best(analysis, tmp_path):
    figure = analysis.plot.population()
    names = [trace.name for trace in figure.data]
    assert names[:3] == ["trial", "continued from another", "the best and what it comes from"]
    best, way, schedule = analysis.best_trial, figure.data[2], figure.data[-1]
    assert (way.x[-1], way.y[-1]) == (LAST, best.number)
    assert schedule.y[-1] == pytest.approx(best.config["x"], rel=1e-5)
    for line in (way, schedule):  # one line, with one value at a time
        assert None not in line.x
        assert line.x[0] == 1
        assert list(line.x) == sorted(line.x)
        assert all(before == after for before, after in zip(line.x[1::2], line.x[2::2], strict=False))
    found = stretches_of(analysis._reader)
    for step, number in zip(way.x, way.y, strict=True):
        assert any(one.begin <= step <= one.end for one in found[number])
    assert figure.layout.yaxis2.title.text == "x"
    assert "continued from trial" in figure.data[1].hovertext[0]
    assert analysis.plot.population(["same"]).layout.yaxis2.title.text == "same"
    with pytest.raises(ConfigError, match="no trial has a parameter 'y'"):
        analysis.plot.population(["y"])
    with pytest.raises(ConfigError, match="scheduler='pbt'"):
        ExperimentAnalysis(make(tmp_path, "plain")).plot.population()
