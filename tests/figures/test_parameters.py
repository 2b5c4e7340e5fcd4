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


def read(tmp_path: Path, values: list[Any], name: str = "x", **meta: Any) -> Any:
    made = MadeExperiment(tmp_path, **meta)
    for value in values:
        run(made, {} if value is ... else {name: value}, [1.0])
    reader = ExperimentReader(made.close())
    (found,), _ = parameters(reader, reader.trials(), [name], most=1)
    return found


def test_numbers_booleans_none_and_texts_that_print_alike_are_kept_apart(tmp_path: Path) -> None:
    found = read(tmp_path, [1, True, "1", None, "None", 1.0])
    assert sorted(found.labels) == ["1 (float)", "1 (int)", "1 (str)", "None (NoneType)", "None (str)", "True"]
    assert len(set(found.values)) == 6


def test_what_is_missing_or_no_finite_number_has_no_place(tmp_path: Path) -> None:
    found = read(tmp_path, [0.5, ..., math.nan, math.inf, 2])
    assert found.values == (0.5, None, None, None, 2.0)
    assert found.labels is None
    assert found.num_missing == 3


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


def test_a_nested_parameter_is_found_in_the_space(tmp_path: Path) -> None:
    space = {"opt": {"lr": sweep.loguniform(1e-5, 1), "drop": sweep.uniform(0, 1), "n": 3}}
    made = MadeExperiment(tmp_path, domains=to_json(space))
    run(made, {"opt": {"lr": 0.1, "drop": 0.0001, "n": 3}}, [1.0])
    run(made, {"opt": {"lr": 0.2, "drop": 1.0, "n": 3}}, [1.0])
    reader = ExperimentReader(made.close())
    found, notes = parameters(reader, reader.trials(), None, most=5)
    assert [(one.name, one.is_log) for one in found] == [("opt/lr", True), ("opt/drop", False)]
    assert notes == []


def test_constant_parameters_are_left_out_unless_they_are_named(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path, variables=["lr", "rate"])
    for number in range(3):
        run(made, {"lr": number, "rate": 1, "fixed": 7}, [1.0])
    reader = ExperimentReader(made.close())
    found, notes = parameters(reader, reader.trials(), None, most=5)
    assert [one.name for one in found] == ["lr"]
    assert notes == ["Left out, as the same in all trials: rate."]
    found, _ = parameters(reader, reader.trials(), ["fixed"], most=5)
    assert found[0].is_constant
    with pytest.raises(ConfigError, match="Did you mean 'rate'"):
        parameters(reader, reader.trials(), ["rat"], most=5)


def test_of_many_categories_the_most_common_are_shown_and_the_others_together(tmp_path: Path) -> None:
    found = read(tmp_path, ["often"] * 3 + [f"n{number}" for number in range(40)])
    assert len(found.labels) == 20
    assert "often" in found.labels
    assert found.labels[-1] == "22 others"
    assert max(found.values) == 19


def test_of_many_parameters_the_note_says_how_to_choose(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    for number in range(3):
        run(made, {f"p{index}": number for index in range(9)}, [1.0])
    reader = ExperimentReader(made.close())
    found, notes = parameters(reader, reader.trials(), None, most=4)
    assert len(found) == 4
    assert "4 of 9 parameters" in notes[0]


def test_a_conditional_parameter_is_missing_in_the_trials_of_the_other_branch(tmp_path: Path) -> None:
    reader = ExperimentReader(make(tmp_path, "conditional"))
    found, _ = parameters(reader, reader.trials(), None, most=9)
    missing = {one.name: one.num_missing for one in found}
    assert missing == {"opt/kind": 0, "opt/momentum": 6, "opt/beta": 6, "lr": 0}


@given(st.floats(-300, 150), st.floats(0, 150))
def test_a_logarithmic_axis_has_some_ticks_inside(low: float, span: float) -> None:
    places, texts = ticks_of_log(low, low + span)
    assert 1 <= len(places) == len(texts) <= 10
    assert places == sorted(places)
    assert all(low - 1e-6 <= place <= low + span + 1e-6 for place in places)
