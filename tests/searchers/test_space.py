"""Tests of domains and of the functions that make them."""

from __future__ import annotations

import copy
import importlib
import math
import pickle
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchers import space as sp
from searchers.errors import SearchError, SpaceError


def draws(domain: sp.Domain, size: int = 4000) -> list:
    return list(domain.sample(size=size, random_state=0))


def test_uniform_draws_what_numpy_draws():
    assert sp.uniform(0, 1).sample(random_state=42) == 0.7739560485559633


def test_uniform_stays_below_its_upper_bound():
    values = draws(sp.uniform(-2, 3))
    assert min(values) >= -2
    assert max(values) < 3
    assert abs(np.mean(values) - 0.5) < 0.1


def test_loguniform_is_uniform_in_the_logarithm():
    logs = np.log10(draws(sp.loguniform(1e-4, 1e-2)))
    assert logs.min() >= -4
    assert logs.max() <= -2
    assert abs(np.mean(logs) + 3) < 0.05


def test_quniform_gives_its_ends_half_the_weight():
    counts = Counter(draws(sp.quniform(0, 1, 0.25), 8000))
    assert sorted(counts) == [0.0, 0.25, 0.5, 0.75, 1.0]
    for value, weight in ((0.0, 1 / 8), (0.25, 1 / 4), (0.5, 1 / 4), (0.75, 1 / 4), (1.0, 1 / 8)):
        assert abs(counts[value] / 8000 - weight) < 0.02


def test_quantized_floats_do_not_leave_their_bounds():
    assert max(draws(sp.quniform(0.0, 0.3, 0.1))) <= 0.3


def test_qloguniform_gives_multiples():
    values = draws(sp.qloguniform(0.5, 8, 0.5))
    assert all(value % 0.5 == 0 for value in values)
    assert {0.5, 8.0} <= set(values)


def test_randint_leaves_out_its_upper_bound():
    assert set(draws(sp.randint(1, 4))) == {1, 2, 3}


@pytest.mark.parametrize(("lower", "upper", "q"), [(1, 10, 3), (0, 4, 1), (2, 10, 2), (-7, 7, 5), (5, 5, 5)])
def test_qrandint_reaches_every_multiple_equally_often(lower, upper, q):
    expected = [value for value in range(lower, upper + 1) if value % q == 0]
    counts = Counter(draws(sp.qrandint(lower, upper, q), 6000))
    assert sorted(counts) == expected
    for value in expected:
        assert abs(counts[value] / 6000 - 1 / len(expected)) < 0.03


@pytest.mark.parametrize(("lower", "upper", "q"), [(2, 10, 2), (1, 10, 3), (1, 6, 1), (4, 4, 2), (1, 1, 1)])
def test_qlograndint_weighs_every_multiple_by_the_log_mass_of_its_cell(lower, upper, q):
    multiples = [value for value in range(lower, upper + 1) if value % q == 0]
    cells = {m: (max(m - q / 2, lower), min(m + q / 2, upper)) for m in multiples}
    masses = {m: math.log(high / low) if high > low else 1.0 for m, (low, high) in cells.items()}
    counts = Counter(draws(sp.qlograndint(lower, upper, q), 6000))
    assert sorted(counts) == multiples
    for value in multiples:
        assert abs(counts[value] / 6000 - masses[value] / sum(masses.values())) < 0.03


def test_lograndint_rounds_down_inside_its_bounds():
    values = draws(sp.lograndint(1, 100))
    assert min(values) == 1
    assert max(values) <= 99
    assert abs(np.mean(np.array(values) < 10) - 0.5) < 0.05


def test_randn_has_its_mean_and_deviation():
    values = draws(sp.randn(3, 2))
    assert abs(np.mean(values) - 3) < 0.15
    assert abs(np.std(values) - 2) < 0.15
    assert all(value % 0.5 == 0 for value in draws(sp.qrandn(3, 2, 0.5)))


def test_choice_returns_its_options_as_they_are():
    marker = object()
    assert sp.choice([marker]).sample() is marker
    assert {type(value) for value in draws(sp.choice([1, "a", None, 2.5]))} == {int, str, type(None), float}


def test_choice_takes_arrays_and_ranges():
    assert sp.choice(np.array([1, 2])).categories == [1, 2]
    assert sp.choice(range(3)).categories == [0, 1, 2]
    assert len(sp.choice([5, 6])) == 2
    assert sp.choice([5, 6])[1] == 6


def test_sample_from_calls_with_the_config_or_with_nothing():
    assert sp.sample_from(lambda config: config["a"] + 1).sample({"a": 1}) == 2
    assert sp.sample_from(lambda: 7).sample() == 7
    assert sp.sample_from(lambda config, scale=3: config["a"] * scale).sample({"a": 2}, size=2) == [6, 6]


def test_grid_search_is_a_plain_dict():
    assert sp.grid_search((1, 2)) == {"grid_search": [1, 2]}


@pytest.mark.parametrize(
    ("make", "types"),
    [
        (lambda: sp.uniform(0, 1), float),
        (lambda: sp.quniform(0, 2, 1), float),
        (lambda: sp.loguniform(1, 2), float),
        (lambda: sp.uniform(1, 1), float),
        (lambda: sp.randint(0, 5), int),
        (lambda: sp.qrandint(0, 5, 5), int),
        (lambda: sp.lograndint(1, 5), int),
        (lambda: sp.qlograndint(1, 5), int),
        (lambda: sp.randn(), float),
        (lambda: sp.qrandn(0, 1, 1), float),
    ],
)
def test_one_sample_is_a_plain_number_and_several_are_an_array(make, types):
    assert type(make().sample(random_state=0)) is types
    several = make().sample(size=3, random_state=0)
    assert isinstance(several, np.ndarray)
    assert several.shape == (3,)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sp.uniform(1, 0), "lower=1 is above upper=0; swap them"),
        (lambda: sp.uniform(0, math.inf), "must be finite"),
        (lambda: sp.uniform(-1e308, 1e308), "must be finite"),
        (lambda: sp.uniform(math.nan, 1), "lower is nan"),
        (lambda: sp.uniform(0, True), "upper is True"),
        (lambda: sp.uniform("1e-4", 1), "Write 0.0001, without quotes"),
        (lambda: sp.loguniform(0, 1), "must be above 0"),
        (lambda: sp.quniform(0, 1, 0.3), "not a multiple of q=0.3"),
        (lambda: sp.quniform(0, 1, 0), "q is 0"),
        (lambda: sp.qloguniform(0, 1, 0.5), "must be above 0"),
        (lambda: sp.randint(3, 3), "upper bound is exclusive"),
        (lambda: sp.randint(0.5, 3), "expected a whole number"),
        (lambda: sp.randint(0, 10**30), "beyond"),
        (lambda: sp.uniform(0, 10**400), "upper is 1000.*; expected a number that a float holds"),
        (lambda: sp.randint(True, 3), "lower is True"),
        (lambda: sp.qrandint(1, 2, 3), "no multiple of q=3"),
        (lambda: sp.qrandint(1, 5, 1.5), "whole number"),
        (lambda: sp.lograndint(0, 3), "must be above 0"),
        (lambda: sp.randn(0, 0), "sd above 0"),
        (lambda: sp.randn(None), "mean is None"),
        (lambda: sp.choice([]), "empty list"),
        (lambda: sp.choice("abc"), "expected a list"),
        (lambda: sp.choice({1, 2}), "expected a list"),
        (lambda: sp.grid_search(3), "expected a list"),
        (lambda: sp.sample_from(3), "expected a function"),
        (lambda: sp.sample_from(lambda a, b: a), r"requires \(a, b\)"),
        (lambda: sp.uniform(0, 1).sample(size=0), "size is 0"),
        (lambda: sp.uniform(0, 1).sample(random_state=-1), "random_state is -1"),
        (lambda: sp.Float().sample(), "must be finite"),
        (lambda: sp.Integer(3, 3).sample(), "no integer"),
        (lambda: sp.Float(0, 1).normal(0, -1), "sd above 0"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(SpaceError, match=message) as caught:
        make()
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, SearchError)


@pytest.mark.parametrize(
    ("make", "same"),
    [
        (lambda: sp.loguniform(1e-4, 1, 10), sp.loguniform(1e-4, 1)),
        (lambda: sp.qloguniform(1, 8, 0.5, base=2), sp.qloguniform(1, 8, 0.5)),
        (lambda: sp.lograndint(1, 9, base=10), sp.lograndint(1, 9)),
        (lambda: sp.qlograndint(2, 8, 2, base=10), sp.qlograndint(2, 8, 2)),
    ],
)
def test_the_base_of_a_log_range_is_taken_with_a_warning_and_changes_nothing(make, same):
    with pytest.warns(DeprecationWarning, match="base= changes nothing") as warned:
        domain = make()
    assert warned[0].filename == __file__
    assert repr(domain) == repr(same)
    assert domain.sample(random_state=3) == same.sample(random_state=3)


def test_domains_are_found_under_the_path_of_converters():
    for name in ("Categorical", "Domain", "Float", "Function", "Integer", "LogUniform", "Quantized", "Uniform"):
        assert getattr(importlib.import_module("sweep.tune.search.sample"), name) is getattr(sp, name)


def test_whole_floats_are_integers_because_yaml_writes_them():
    domain = sp.randint(0, 1e3)
    assert (domain.lower, domain.upper) == (0, 1000)
    assert type(domain.upper) is int


def test_a_domain_takes_one_sampler():
    domain = sp.Float(1, 2)
    assert str(domain.uniform().sampler) == "Uniform"
    assert domain.sampler is None
    with pytest.raises(ValueError, match="already has the sampler"):
        domain.uniform().loguniform()
    with pytest.raises(ValueError, match="quantized already"):
        domain.uniform().quantized(0.5).quantized(0.5)


def test_converters_see_the_sampler_and_the_bounds():
    domain = sp.qloguniform(1, 8, 0.5)
    assert (domain.lower, domain.upper, domain.sampler.q) == (1, 8, 0.5)
    assert isinstance(domain.get_sampler(), sp.Quantized)
    assert isinstance(domain.get_sampler().get_sampler(), sp.LogUniform)
    assert str(domain.get_sampler()) == "Quantized"
    assert isinstance(sp.Float(0, 1).get_sampler(), sp.Uniform)
    normal = sp.randn(1, 2).get_sampler()
    assert (normal.mean, normal.sd) == (1, 2)
    assert sp.Float().lower == -math.inf


def test_domains_say_what_they_are():
    assert sp.uniform(0, 1).domain_str == "(0, 1)"
    assert sp.choice([1, 2]).domain_str == "[1, 2]"
    assert sp.sample_from(lambda: 1).domain_str == "<lambda>()"
    assert sp.sample_from(lambda: 1).is_function()
    assert not sp.choice([1]).is_grid()
    assert sp.Categorical([1, 2]).grid().is_grid()
    assert repr(sp.uniform(0, 1)) == "Float(0, 1).Uniform()"


@pytest.mark.parametrize(
    ("domain", "inside", "outside"),
    [
        (sp.uniform(0, 1), [0, 0.5, 1, np.float32(0.5)], [-0.1, 1.1, "0.5", None, True, math.nan]),
        (sp.randint(0, 3), [0, 3, 2.0, np.int64(1)], [0.5, 4, "1", True]),
        (sp.choice([1, "a", [1, 2]]), [1, "a", [1, 2]], [2, True, None, [1]]),
        (sp.choice([np.array([1, 2])]), [np.array([1, 2])], [np.array([1, 3]), 1]),
        (sp.sample_from(lambda: 1), [1, None, "x"], []),
        (sp.randn(), [-100, 100.0], ["x"]),
    ],
)
def test_is_valid_knows_inside_from_outside(domain, inside, outside):
    assert all(domain.is_valid(value) for value in inside)
    assert not any(domain.is_valid(value) for value in outside)


def test_values_are_cast():
    assert type(sp.uniform(0, 1).cast(np.float32(1))) is float
    assert type(sp.randint(0, 9).cast(3.0)) is int
    assert sp.choice([1]).cast("x") == "x"


def test_every_kind_of_random_state_works():
    domain = sp.uniform(0, 1)
    generator = np.random.default_rng(1)
    assert domain.sample(random_state=generator) != domain.sample(random_state=generator)
    assert domain.sample(random_state=np.random.RandomState(1)) == domain.sample(random_state=np.random.RandomState(1))
    state = np.random.RandomState(1)
    assert domain.sample(random_state=state) != domain.sample(random_state=state)
    assert domain.sample() != domain.sample()


def test_domains_are_copied_and_pickled():
    for domain in (sp.uniform(0, 1), sp.qlograndint(1, 9, 2), sp.choice([1, "a"]), sp.randn()):
        for again in (copy.deepcopy(domain), pickle.loads(pickle.dumps(domain))):
            assert again.sample(random_state=5) == domain.sample(random_state=5)


@given(lower=st.integers(1, 10**6), width=st.integers(0, 10**6), q=st.integers(1, 1000), seed=st.integers(0, 100))
def test_quantized_integers_are_multiples_within_their_bounds(lower, width, q, seed):
    for make in (sp.qrandint, sp.qlograndint):
        try:
            domain = make(lower, lower + width, q)
        except SpaceError:
            assert (lower + width) // q * q < lower
            continue
        value = domain.sample(random_state=seed)
        assert value % q == 0
        assert lower <= value <= lower + width


@given(lower=st.floats(1e-300, 1e300), ratio=st.floats(1, 1e6), seed=st.integers(0, 100))
def test_floats_stay_within_their_bounds(lower, ratio, seed):
    upper = lower * ratio
    for domain in (sp.uniform(lower, upper), sp.loguniform(lower, upper)):
        assert lower <= domain.sample(random_state=seed) <= upper


def test_shaped_distributions_have_their_mean_stay_within_their_bounds_and_are_kept_as_json():
    shaped = {
        "normal": sp.Float(0, 2).normal(1, 0.3),
        "lognormal": sp.Float(0.1, 50).lognormal(0.5, 0.5),
        "beta": sp.Float(0, 1).beta(2, 6),
        "whole": sp.Integer(0, 20).normal(10, 3).quantized(5),
        "weighted": sp.Categorical(["a", "b"]).weighted([3, 1]),
    }
    assert np.mean(draws(shaped["normal"])) == pytest.approx(1, abs=0.03)
    assert np.median(draws(shaped["lognormal"])) == pytest.approx(math.exp(0.5), rel=0.05)
    assert np.mean(draws(shaped["beta"])) == pytest.approx(0.25, abs=0.01)
    assert {*draws(shaped["whole"])} == {0, 5, 10, 15, 20}
    assert Counter(draws(shaped["weighted"]))["a"] == pytest.approx(3000, abs=120)
    assert min(draws(sp.Float(0, 2).normal(0, 1))) == 0
    kept = sp.from_json(sp.to_json(shaped), str, None)
    assert {name: repr(domain) for name, domain in kept.items()} == {name: repr(one) for name, one in shaped.items()}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sp.Float(0, 1).lognormal(0, 1), "lower bound must be above 0"),
        (lambda: sp.Float(1, 2).lognormal(0, 0), "sd above 0"),
        (lambda: sp.Float(0, 1).beta(0, 1), "a is 0; expected a finite number above 0"),
        (lambda: sp.Categorical([1, 2]).weighted([0, 0]), "expected one each"),
        (lambda: sp.Categorical([1, 2]).weighted([1, -1]), "probability 1 is -1"),
    ],
)
def test_a_shape_that_cannot_be_drawn_is_refused(make, message):
    with pytest.raises(SpaceError, match=message):
        make()
