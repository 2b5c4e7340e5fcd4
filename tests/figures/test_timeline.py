"""The timeline, by trial and by device."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from odd_experiments import make
from virtual_sweeps import run as run_sweep

from sweep.errors import ConfigError
from sweep.results.analysis import ExperimentAnalysis


def test_trials_that_share_a_device_have_lanes_of_their_own(tmp_path: Path) -> None:
    figure = run_sweep(tmp_path, "promotion").plot.timeline(by="device")
    lanes: dict[int, list[tuple[float, float]]] = {}
    for trace in figure.data:
        for place, begin, span in zip(trace.y, trace.base, trace.x, strict=True):
            lanes.setdefault(place, []).append((begin, begin + span))
    assert len(lanes) == 8  # as many as there are CPUs
    for held in lanes.values():
        held.sort()
        assert all(one[1] <= other[0] + 1e-4 for one, other in pairwise(held))
    assert list(figure.layout.yaxis.ticktext) == [f"CPUs {lane}" for lane in range(1, 9)]


def test_a_row_for_each_trial_says_what_it_did(tmp_path: Path) -> None:
    figure = ExperimentAnalysis(make(tmp_path, "going_on")).plot.timeline()
    assert [trace.name for trace in figure.data] == ["waiting", "starting", "running"]
    assert {row[0] for trace in figure.data for row in trace.customdata} == set(range(6))
    assert "lr = 1" in figure.data[-1].hovertext[0]


def test_chosen_trials_and_a_choice_of_many(tmp_path: Path) -> None:
    plot = ExperimentAnalysis(make(tmp_path, "many_categories")).plot
    chosen = plot.timeline(trials=[3, 1])
    assert {row[0] for trace in chosen.data for row in trace.customdata} == {1, 3}
    assert list(chosen.layout.yaxis.ticktext) == ["1", "3"]
    many = plot.timeline(most=9)
    assert many.layout.meta["note"].startswith("9 of 40 trials: ")
    for arguments in ({"by": "gpu"}, {"most": 0}, {"trials": "3"}, {"trials": []}, {"trials": [99]}):
        with pytest.raises(ConfigError):
            plot.timeline(**arguments)
