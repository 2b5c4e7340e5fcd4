"""The timeline, by trial and by device."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from made_experiment import MadeExperiment
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


def test_lanes_of_a_process_are_rows_that_one_trial_after_another_takes(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    asked = {"bundles": [{"lane": 1}]}
    for pid, begin, end in [(7, 1, 4), (7, 1, 2), (7, 2, 3), (8, 2, 4)]:
        trial = made.trial({})
        made.event("Tick", at=begin, commands=[["Start", trial, 1, [["local", []]], {}, asked, None]])
        made.event("Started", trial, pid, begin)
        made.event("Exited", trial, {"exit": {"kind": "FINISHED"}}, end)
        made.event("Released", trial, None, end)
        made.set(trial, status="TERMINATED", attempt=1)
    figure = ExperimentAnalysis(made.close()).plot.timeline()
    assert list(figure.layout.yaxis.ticktext) == ["process 7 lane 1", "process 7 lane 2", "process 8 lane"]
    (running,) = [trace for trace in figure.data if trace.name == "running"]
    assert list(zip(running.y, [one for (one,) in running.customdata], strict=True)) == [(0, 0), (1, 1), (1, 2), (2, 3)]


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
