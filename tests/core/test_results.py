"""Results: flattening, the fields that are filled in, and NaN as the worst of all."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.core.results import AUTO_FILLED, TrialResult, fill, flatten, score, unflatten

NAN = math.nan


def filled(metrics, **changes):
    values = {"trial_id": "a_0", "count": 3, "since_restore": 2, "time_before_s": 10.0, "restored_s": 4.0}
    return fill(metrics, **(values | changes))


def test_flattening_joins_with_a_slash_drops_empty_dicts_and_keeps_lists():
    assert flatten({"a": {"b": 1, "c": {}}, "d": [1]}) == {"a/b": 1, "d": [1]}
    assert flatten({"a": {"b": {"c": 1}}, 3: 4}) == {"a/b/c": 1, "3": 4}
    assert flatten({"a": {"b": 1}}, ".") == {"a.b": 1}


@given(
    st.recursive(
        st.integers(),
        lambda inner: st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, min_size=1, max_size=3),
        max_leaves=8,
    ).filter(lambda value: isinstance(value, dict))
)
def test_unflatten_undoes_flatten(nested):
    assert unflatten(flatten(nested)) == nested


def test_iteration_and_times_are_filled_in():
    assert filled({"m": 1, "time_this_iter_s": 2.0}) == {
        "m": 1,
        "time_this_iter_s": 2.0,
        "training_iteration": 3,
        "time_total_s": 12.0,
        "trial_id": "a_0",
        "time_since_restore": 8.0,
        "iterations_since_restore": 2,
        "done": False,
    }


def test_what_the_user_reports_under_these_names_is_kept():
    values = filled({"training_iteration": 99, "time_total_s": 50.0, "done": True})
    assert (values["training_iteration"], values["time_total_s"], values["done"]) == (99, 50.0, True)
    assert values["time_since_restore"] == 46.0


def test_everything_that_is_filled_in_is_known_to_be_no_metric():
    assert set(filled({})) <= AUTO_FILLED


def test_filling_in_changes_nothing_that_belongs_to_the_user():
    metrics = {"m": 1}
    filled(metrics)
    assert metrics == {"m": 1}


def test_a_time_that_is_no_number_does_not_hurt():
    assert filled({"time_this_iter_s": None})["time_total_s"] == 10.0
    assert filled({"time_total_s": "long"})["time_since_restore"] == 0.0


def test_a_result_understands_paths():
    result = TrialResult({"eval": {"acc": 0.5, "none": None}, "a/b": 7}, seq=3)
    assert result["eval/acc"] == 0.5
    assert result["a/b"] == 7
    assert result.get("eval/none", 1) is None
    assert "eval/acc" in result
    assert "eval/none" in result
    for missing in ("eval/f1", "acc", "eval/acc/x", "a", 3):
        assert missing not in result
    assert result.get("eval/f1", 8) == 8
    with pytest.raises(KeyError):
        result["eval/f1"]
    with pytest.raises(KeyError):
        result["f1"]
    assert (list(result), len(result), result.seq) == (["eval", "a/b"], 2, 3)


def test_a_result_has_no_number_before_it_is_committed():
    assert TrialResult({}).seq == 0


def test_keys_are_flattened_whatever_they_are():
    nested = {"a": {"b": 1}, 2: {"c": 3}, None: 4, 10**5000: {"d": 5}}
    huge = "a whole number of about 5,001 digits"
    assert flatten(nested) == {"a/b": 1, "2/c": 3, "None": 4, f"{huge}/d": 5}


def test_times_and_counts_that_no_float_holds_do_not_hurt():
    assert filled({"time_this_iter_s": 10**400})["time_total_s"] == 10.0
    assert filled({"time_total_s": 10**400})["time_since_restore"] == 0.0


def test_a_result_is_read_only_and_compares_by_its_values():
    result = TrialResult({"m": 1})
    with pytest.raises(TypeError):
        result["m"] = 2  # type: ignore[index]
    assert result == {"m": 1} == TrialResult({"m": 1}, seq=9)
    assert result != {"m": 2}
    assert repr(result) == "TrialResult({'m': 1})"


@pytest.mark.parametrize(
    ("value", "mode", "expected"),
    [
        (2, "max", 2.0),
        (2, "min", -2.0),
        (True, "max", 1.0),
        (False, "min", 0.0),
        (NAN, "max", -math.inf),
        (NAN, "min", -math.inf),
        (math.inf, "min", -math.inf),
        (math.inf, "max", math.inf),
        (None, "max", -math.inf),
        ("0.9", "max", -math.inf),
        ([1], "min", -math.inf),
        (np.float64(2), "max", 2.0),
    ],
)
def test_the_score_is_larger_for_the_better_and_nan_is_the_worst(value, mode, expected):
    assert score(value, mode) == expected


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int64, np.int32, np.uint8])
def test_numpy_scalars_are_numbers(kind):
    assert score(kind(2), "max") == 2.0
