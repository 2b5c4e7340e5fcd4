"""Parallel coordinates."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from made_experiment import MadeExperiment
from odd_experiments import HOSTILE, make, run

from sweep.results.analysis import ExperimentAnalysis


def test_a_line_goes_through_the_values_of_each_trial_that_has_a_number(tmp_path: Path) -> None:
    analysis = ExperimentAnalysis(make(tmp_path, "conditional"))
    (lines,) = analysis.plot.parallel(["lr", "opt/beta", "opt/kind"]).data
    lr, beta, kind, loss = lines.dimensions
    assert len(lines.customdata) == 12
    configs = [trial.config for trial in analysis.trials]
    for place, (number,) in enumerate(lines.customdata):
        config = configs[number]
        assert math.isclose(lr["values"][place], math.log10(config["lr"]), abs_tol=1e-5)
        assert kind["ticktext"][kind["tickvals"].index(kind["values"][place])] == config["opt"]["kind"]
        expected = config["opt"].get("beta")
        if expected is None:
            assert beta["ticktext"][beta["tickvals"].index(beta["values"][place])] == "absent"
        else:
            assert math.isclose(beta["values"][place], expected, rel_tol=1e-5)
        assert loss["values"][place] == number
    assert list(loss["values"]) == sorted(loss["values"])  # the best, by max, above the others
    assert set(lr["ticktext"]) >= {"0.0001", "0.01", "1"}
    assert min(beta["range"]) == min(beta["values"])
    figure = ExperimentAnalysis(make(tmp_path, "some_numbers")).plot.parallel(["n"])
    assert "that have no number" in figure.layout.meta["note"]
    assert len(figure.data[0].customdata) == 7


def test_colours_are_explained_axes_are_seen_on_dark_pages_and_whole_numbers_have_whole_ticks(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    for number in range(9):
        run(
            made, {"depth": 1 + number % 3, "x": number / 7, "name": "a very long name indeed" * (number % 2)}, [number]
        )
    figure = ExperimentAnalysis(made.close()).plot.parallel()
    (lines,) = figure.data
    assert list(lines.dimensions[0]["ticktext"]) == ["1", "2", "3"]
    assert list(lines.line.colorbar.ticktext) == ["8", "4", "0"]  # from worst to best, by ranks
    assert [shape.x0 for shape in figure.layout.shapes] == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert max(map(len, lines.dimensions[2]["ticktext"])) <= 14
    wide = ExperimentAnalysis(tmp_path / "made").plot.parallel(metric="training_iteration", params=["x", "depth"])
    assert wide.layout.margin.r > figure.layout.margin.r  # a longer name has its room
    many = MadeExperiment(tmp_path, "many")
    for number in range(9):
        run(many, {f"p{place}": "a very long name indeed" * (1 + number % 2) for place in range(8)}, [number])
    (lines,) = ExperimentAnalysis(many.close()).plot.parallel().data
    assert {len(text) for axis in lines.dimensions[:-1] for text in axis["ticktext"]} <= {7}  # for 390 pixels


def test_text_of_the_user_is_shown_as_it_is_and_alike_ones_are_told_apart(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    values = ["<b>a</b>", "a & b", f"{HOSTILE}1", f"{HOSTILE}2", 1, "1"]
    for number, value in enumerate(values):
        run(made, {"text": value}, [float(number)])
    (lines,) = ExperimentAnalysis(made.close()).plot.parallel().data
    assert sorted(lines.dimensions[0]["ticktext"]) == [
        "1 (int)",
        "1 (str)",
        "<b>a</b>",
        "<script>alert… 1",
        "<script>alert… 2",
        "a & b",
    ]
