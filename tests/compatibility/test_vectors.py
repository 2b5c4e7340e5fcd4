"""Numbers that Tune computes, or that it documents and does not keep: the same inputs give the same results here."""

from __future__ import annotations

import importlib
from collections import Counter

import numpy as np
import pytest
from conformance.schedulers import Told

from searchers import qlograndint, qrandint, quniform, uniform
from sweep.core.literals import experiment_tag, format_vars
from sweep.core.stoppers import ExperimentPlateauStopper, MaximumIterationStopper, TrialPlateauStopper
from sweep.schedulers.asha import ASHAScheduler


def named(module, name):
    """Return a name of a module that is imported when it is asked for: a missing one fails its own tests only."""
    return getattr(importlib.import_module(module), name)


# --- ASHA ------------------------------------------------------------------------------------------------------------


def ladders(**arguments):
    scheduler = ASHAScheduler(metric="m", mode="max", **arguments)
    return [[rung[0] for rung in bracket] for bracket in scheduler.state()]


@pytest.mark.parametrize(
    ("grace", "max_t", "factor", "bracket", "milestones"),
    [
        (1, 100, 4, 0, [64, 16, 4, 1]),
        (1, 100, 4, 1, [64, 16, 4]),
        (1, 81, 3, 0, [81, 27, 9, 3, 1]),
        (5, 100, 3, 0, [45, 15, 5]),
        (1, 10, 2, 0, [8, 4, 2, 1]),
        (1, 16, 2, 2, [16, 8, 4]),
    ],
)
def test_asha_has_its_rungs_where_tune_has_them(grace, max_t, factor, bracket, milestones):
    found = ladders(grace_period=grace, max_t=max_t, reduction_factor=factor, brackets=bracket + 1)
    assert found[bracket] == milestones


@pytest.mark.parametrize(
    ("max_t", "factor", "milestones"),
    [
        (1000, 10, [1000, 100, 10, 1]),
        (243, 3, [243, 81, 27, 9, 3, 1]),
        (125, 5, [125, 25, 5, 1]),
        (10**9, 10, [10**k for k in range(9, -1, -1)]),
    ],
)
def test_asha_has_the_top_rung_that_tunes_logarithm_loses(max_t, factor, milestones):
    assert ladders(grace_period=1, max_t=max_t, reduction_factor=factor) == [milestones]


def test_asha_decides_as_tune_does():
    told = Told(ASHAScheduler(metric="m", mode="max", grace_period=1, max_t=10, reduction_factor=2))
    for number in range(4):
        told.add(number)
    at_one = [bool(told.report(number, training_iteration=1, m=m)) for number, m in enumerate([2, 4, 1, 3])]
    assert at_one == [False, False, True, False]
    assert told.scheduler.state()[0][-1][2] == 2.5
    assert [bool(told.report(number, training_iteration=2, m=m)) for number, m in ((1, 5), (3, 4))] == [False, True]
    assert told.scheduler.state()[0][-2][2] == 4.5
    told.add(4)
    assert not told.report(4, training_iteration=5, m=9)
    assert [rung[0] for rung in told.scheduler.state()[0] if "abcde_00004" in rung[1]] == [4]


# --- HyperBand and PBT -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("max_t", "factor", "brackets"),
    [
        (
            81,
            3,
            [
                [(5, 81)],
                [(8, 27), (3, 81)],
                [(15, 9), (5, 27), (2, 81)],
                [(34, 3), (12, 9), (4, 27), (2, 81)],
                [(81, 1), (27, 3), (9, 9), (3, 27), (1, 81)],
            ],
        ),
        (
            100,
            4,
            [
                [(4, 100)],
                [(8, 25), (2, 100)],
                [(22, 6), (6, 24), (2, 96)],
                [(64, 1), (16, 4), (4, 16), (1, 64)],
            ],
        ),
        (
            16,
            2,
            [
                [(5, 16)],
                [(5, 8), (3, 16)],
                [(7, 4), (4, 8), (2, 16)],
                [(10, 2), (5, 4), (3, 8), (2, 16)],
                [(16, 1), (8, 2), (4, 4), (2, 8), (1, 16)],
            ],
        ),
        (9, 3, [[(3, 9)], [(5, 3), (2, 9)], [(9, 1), (3, 3), (1, 9)]]),
    ],
)
def test_hyperband_has_the_brackets_of_tune(max_t, factor, brackets):
    bracket_milestones = named("sweep.schedulers.hyperband", "bracket_milestones")
    assert [list(map(tuple, bracket)) for bracket in bracket_milestones(max_t, factor)] == brackets


@pytest.mark.parametrize(
    ("num_trials", "sizes"),
    [(2, (1, 1, 1)), (3, (1, 1, 1)), (4, (1, 2, 1)), (5, (2, 2, 1)), (8, (2, 4, 1)), (10, (3, 5, 1))],
)
def test_pbt_has_the_quantiles_of_tune(num_trials, sizes):
    quantile_size = named("sweep.schedulers.explore", "quantile_size")
    assert tuple(quantile_size(num_trials, fraction) for fraction in (0.25, 0.5, 0.1)) == sizes


# --- stoppers --------------------------------------------------------------------------------------------------------


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


# --- dicts -----------------------------------------------------------------------------------------------------------


def test_dicts_are_flattened_and_merged_as_in_tune():
    flatten_dict, merge_dicts = (named("sweep.dicts", name) for name in ("flatten_dict", "merge_dicts"))
    assert flatten_dict({"a": {"b": 1, "c": {}}, "d": [1]}) == {"a/b": 1, "d": [1]}
    assert merge_dicts({"a": {"x": 1}}, {"a": {"y": 2}}) == {"a": {"x": 1, "y": 2}}


# --- spaces and tags -------------------------------------------------------------------------------------------------


def shares(domain, size=8000):
    counts = Counter(domain.sample(size=size, random_state=0).tolist())
    return {value: counts[value] / size for value in sorted(counts)}


def test_uniform_with_a_seed_draws_what_tune_draws():
    assert uniform(0, 1).sample(random_state=42) == 0.7739560485559633


def test_the_ends_of_quniform_have_half_the_weight_of_the_values_between():
    expected = {0.0: 0.125, 0.25: 0.25, 0.5: 0.25, 0.75: 0.25, 1.0: 0.125}
    assert shares(quniform(0, 1, 0.25)) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize(
    ("domain", "values"),
    [(qrandint(1, 10, 3), [3, 6, 9]), (qrandint(1, 4), [1, 2, 3, 4]), (qrandint(-3, 3, 3), [-3, 0, 3])],
)
def test_every_multiple_of_qrandint_is_equally_likely_both_ends_included(domain, values):
    """Tune documents the upper bound as included; it leaves it out for q=1 and gives the top multiple less weight."""
    assert shares(domain) == pytest.approx(dict.fromkeys(values, 1 / len(values)), abs=0.02)


def test_qlograndint_reaches_its_upper_bound():
    """In Tune qlograndint(2, 10, 2) never gives 10."""
    found = shares(qlograndint(2, 10, 2))
    logs = np.log([2, 3, 5, 7, 9, 10])
    expected = dict(zip([2, 4, 6, 8, 10], (np.diff(logs) / (logs[-1] - logs[0])).tolist(), strict=True))
    assert found == pytest.approx(expected, abs=0.02)


def test_tags_are_written_as_in_tune():
    values = {"a/b": 0.123456, "a/c": "x/y z", "d": [1, 2]}
    assert format_vars(values) == "b=0.1235,c=x_y_z,d=1_2"
    config = {"a": {"b": 0.123456, "c": "x/y z"}, "d": [1, 2], "fixed": 3}
    assert experiment_tag(7, config, list(values)) == "7_b=0.1235,c=x_y_z,d=1_2"
