"""Areas of equal value over two parameters."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_experiment import MadeExperiment
from odd_experiments import make, run

from sweep.errors import ConfigError, MetricError
from sweep.results.analysis import ExperimentAnalysis


def test_a_cell_has_the_median_of_its_trials(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path, domains=["dict", ["kind", ["Categorical", None, "a", "b"]]])
    for number in range(30):
        run(made, {"kind": "ab"[number % 2], "lr": 10.0 ** -(number % 3)}, [float(number % 6) + number // 6])
    areas, marks = ExperimentAnalysis(made.close()).plot.contour("lr", "kind").data
    assert len(areas.z) == 2
    assert len(areas.x) == len(areas.z[0])
    assert sorted(z for row in areas.z for z in row if z is not None) == [2, 3, 4, 5, 6, 7]
    assert len(marks.customdata) == 30


def test_both_parameters_are_needed_and_two_of_them(tmp_path: Path) -> None:
    plot = ExperimentAnalysis(make(tmp_path, "conditional")).plot
    figure = plot.contour("lr", "opt/beta")
    assert figure.layout.meta["note"] == "Without 6 trials that lack one of the two or a number."
    with pytest.raises(ConfigError, match="twice"):
        plot.contour("lr", "lr")
    with pytest.raises(ConfigError, match="Did you mean 'opt/beta'"):
        plot.contour("lr", "opt/bet")
    with pytest.raises(MetricError, match="no trial of conditional has"):
        plot.contour("opt/momentum", "opt/beta")
    for name, of in (("odd_configs", ("odd", "lr")), ("some_numbers", ("lr", "n"))):  # odd values have a place
        assert ExperimentAnalysis(make(tmp_path, name)).plot.contour(*of).data[0].z
