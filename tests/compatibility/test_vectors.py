"""Numbers and names that Tune computes: the same inputs give the same results here."""

from __future__ import annotations

import pytest

from sweep.core.literals import experiment_tag, format_vars
from sweep.core.stoppers import ExperimentPlateauStopper, MaximumIterationStopper, TrialPlateauStopper


@pytest.mark.parametrize(
    ("stopper", "values", "verdicts"),
    [
        (TrialPlateauStopper("m", std=0.5, num_results=3, grace_period=4), [1, 1, 1, 1, 5, 5.1, 5.2], "FFFTFFT"),
        (
            ExperimentPlateauStopper("m", top=3, std=0.1, mode="min", patience=1),
            [3, 2, 1, 1, 1, 1, 1, 0.99],
            "FFFFTTTT",
        ),
        (MaximumIterationStopper(3), [0, 0, 0, 0], "FFTT"),
    ],
)
def test_stoppers_stop_where_tunes_do(stopper, values, verdicts):
    assert "".join("T" if stopper("t", {"m": value}) else "F" for value in values) == verdicts


def test_tags_are_written_as_in_tune():
    values = {"a/b": 0.123456, "a/c": "x/y z", "d": [1, 2]}
    assert format_vars(values) == "b=0.1235,c=x_y_z,d=1_2"
    config = {"a": {"b": 0.123456, "c": "x/y z"}, "d": [1, 2], "fixed": 3}
    assert experiment_tag(7, config, list(values)) == "7_b=0.1235,c=x_y_z,d=1_2"
