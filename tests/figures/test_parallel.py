"""Parallel coordinates."""

from __future__ import annotations

import math
from pathlib import Path

from odd_experiments import make

from sweep.results.analysis import ExperimentAnalysis


def test_a_line_goes_through_the_values_of_its_trial(tmp_path: Path) -> None:
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


def test_text_of_the_user_is_shown_as_it_is(tmp_path: Path) -> None:
    (lines,) = ExperimentAnalysis(make(tmp_path, "hostile")).plot.parallel(["text"]).data
    assert all(text.startswith("\\x00<script>") or "<script>" in text for text in lines.dimensions[0]["ticktext"])


def test_trials_without_a_number_are_left_out_and_counted(tmp_path: Path) -> None:
    figure = ExperimentAnalysis(make(tmp_path, "some_numbers")).plot.parallel(["n"])
    assert "that have no number" in figure.layout.meta["note"]
    assert len(figure.data[0].customdata) == 7
