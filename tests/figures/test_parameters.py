"""Parameters as axes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_experiment import MadeExperiment
from odd_experiments import make, run

import sweep
from searchers.space import to_json
from sweep.errors import ConfigError
from sweep.figures.parameters import parameters, ticks_of_log
from sweep.record.reader import ExperimentReader


def axes(root: Path, names: list[str] | None, most: int = 9) -> Any:
    reader = ExperimentReader(root)
    return parameters(reader, reader.trials(), names, most=most)


def read(tmp_path: Path, values: list[Any], name: str = "x", **meta: Any) -> Any:
    made = MadeExperiment(tmp_path, **meta)
    for value in values:
        run(made, {} if value is ... else {name: value}, [1.0])
    ((found,), _) = axes(made.close(), [name])
    return found


def test_numbers_booleans_none_and_texts_that_print_alike_are_kept_apart(tmp_path: Path) -> None:
    found = read(tmp_path, [1, True, "1", None, "None", 1.0])
    assert sorted(found.labels) == ["1 (float)", "1 (int)", "1 (str)", "None (NoneType)", "None (str)", "True"]
    assert len(set(found.values)) == 6


def test_what_is_missing_or_no_finite_number_has_no_place(tmp_path):
    found = read(tmp_path, [0.5, ..., math.nan, math.inf, 2])
    assert (found.values, found.labels, found.num_missing) == ((0.5, None, None, None, 2.0), None, 3)
    found, _ = axes(make(tmp_path, "conditional"), None)  # missing in the trials of the other branch
    missing = {one.name: one.num_missing for one in found}
    assert missing == {"opt/kind": 0, "opt/momentum": 6, "opt/beta": 6, "lr": 0}


@pytest.mark.parametrize(
    ("space", "values", "expected"),
    [
        ({"x": sweep.loguniform(1e-5, 1)}, [0.1, 0.2], "log"),
        ({"x": sweep.qloguniform(0.1, 1, 0.1)}, [0.1, 0.2], "log"),
        ({"x": sweep.uniform(0, 1)}, [1e-9, 1.0], "linear"),
        ({"x": sweep.lograndint(1, 4096)}, [1, 4], "log"),
        ({"x": sweep.choice([16, 32])}, [32, 16], "category"),
        ({"x": sweep.grid_search([16, 32])}, [32, 16], "category"),
        ({}, [1e-9, 1.0], "log"),
        ({}, [0.5, 1.0], "linear"),
        ({"x": sweep.loguniform(1e-5, 1)}, [-1.0, 1.0], "linear"),
    ],
)
def test_an_axis_is_as_the_space_says_or_as_the_values_look(space, values, expected, tmp_path):
    found = read(tmp_path, values, domains=to_json(space))
    assert ("category" if found.labels else "log" if found.is_log else "linear") == expected
    if found.labels:
        assert found.labels == ("16", "32")
        assert found.values == (1.0, 0.0)


def test_constant_parameters_are_left_out_unless_they_are_named_and_of_many_a_few_are_shown(tmp_path):
    made = MadeExperiment(tmp_path, variables=["lr", "rate"])
    space = {"opt": {"lr": sweep.loguniform(1e-5, 1), "drop": sweep.uniform(0, 1), "n": 3}}
    nested, many = MadeExperiment(tmp_path, "nested", domains=to_json(space)), MadeExperiment(tmp_path, "many")
    for number in range(3):
        run(made, {"lr": number, "rate": 1, "fixed": 7}, [1.0])
        run(nested, {"opt": {"lr": 0.1 + number, "drop": 10.0**-number, "n": 3}}, [1.0])
        run(many, {f"p{index}": number for index in range(9)}, [1.0])
    root = made.close()
    found, notes = axes(root, None)
    assert [one.name for one in found] == ["lr"]
    assert notes == ["Left out, as the same in all trials: rate."]
    assert axes(root, ["fixed"])[0][0].is_constant
    with pytest.raises(ConfigError, match="Did you mean 'rate'"):
        axes(root, ["rat"])
    found, notes = axes(nested.close(), None)
    assert [(one.name, one.is_log) for one in found] == [("opt/lr", True), ("opt/drop", False)]
    assert notes == []
    found, notes = axes(many.close(), None, most=4)
    assert len(found) == 4
    assert "4 of 9 parameters" in notes[0]


def test_of_many_categories_the_most_common_are_shown_and_the_others_together(tmp_path: Path) -> None:
    found = read(tmp_path, ["often"] * 3 + [f"n{number}" for number in range(40)])
    assert len(found.labels) == 20
    assert "often" in found.labels
    assert found.labels[-1] == "22 others"
    assert max(found.values) == 19


@given(st.floats(-300, 150), st.floats(0, 150))
def test_a_logarithmic_axis_has_some_ticks_inside(low: float, span: float) -> None:
    places, texts = ticks_of_log(low, low + span)
    assert 1 <= len(places) == len(texts) <= 10
    assert places == sorted(places)
    assert all(low - 1e-6 <= place <= low + span + 1e-6 for place in places)
