"""Tests of how a nested space becomes configs."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchers import choice, grid_search, randint, sample_from, uniform
from searchers.errors import SpaceError
from searchers.space import Categorical
from searchers.variants import (
    Variants,
    draw_with,
    fill,
    fixed_domains,
    flatten,
    has_domains,
    matches,
    path_name,
    refuse_grids,
    resolve,
    unflatten,
    walk,
)

Pair = namedtuple("Pair", ["left", "right"])


def resolved(space, seed=0):
    return resolve(space, draw_with(np.random.default_rng(seed)))


def filled(space, point):
    return fill(space, point, lambda path, node, value: value)


def all_configs(space, num_samples=1, points=(), seed=0, **options):
    variants = Variants(space, points, **options)
    return [variants.config(n, seed) for n in range(variants.count(num_samples))]


def test_the_grid_variable_whose_path_sorts_first_varies_fastest():
    configs = all_configs({"b": grid_search([1, 2]), "a": grid_search(["x", "y", "z"])})
    assert [(c["b"], c["a"]) for c in configs] == [(1, "x"), (1, "y"), (1, "z"), (2, "x"), (2, "y"), (2, "z")]


def test_a_constant_grid_search_keeps_random_values_over_the_grid():
    space = {"a": grid_search([1, 2, uniform(5, 6)]), "x": uniform(0, 1), "y": sample_from(lambda c: c["a"])}
    configs = all_configs(space, num_samples=2, is_constant=True)
    assert [c["x"] for c in configs[:3]] == [configs[0]["x"]] * 3
    assert configs[3]["x"] != configs[0]["x"]
    assert [c["y"] for c in configs] == [c["a"] for c in configs]


def test_the_dict_form_and_the_categorical_form_of_a_grid_are_grids():
    space = {"a": {"grid_search": (1, 2)}, "b": Categorical([3, 4]).grid()}
    assert [(c["a"], c["b"]) for c in all_configs(space)] == [(1, 3), (2, 3), (1, 4), (2, 4)]


def test_a_config_depends_on_its_number_alone():
    space = {"a": grid_search([1, 2]), "x": uniform(0, 1), "k": choice([1, 2, 3])}
    forwards = all_configs(space, 5)
    variants = Variants(space)
    assert [variants.config(n, 0) for n in reversed(range(10))] == forwards[::-1]


def test_a_grid_of_a_trillion_points_is_never_built():
    variants = Variants({f"g{i:02d}": grid_search(range(10)) for i in range(12)})
    assert variants.num_points == 10**12
    assert list(variants.config(123_456_789_012, 0).values()) == [2, 1, 0, 9, 8, 7, 6, 5, 4, 3, 2, 1]
    assert variants.count(5) == 5 * 10**12


def test_lists_and_tuples_keep_their_type():
    space = {"l": [uniform(0, 1), 2, (randint(0, 3), "x")], "p": Pair(choice([1]), 2)}
    config = resolved(space)
    assert isinstance(config["l"], list)
    assert isinstance(config["l"][2], tuple)
    assert 0 <= config["l"][0] < 1
    assert config["p"] == Pair(1, 2)
    assert isinstance(config["p"], Pair)


def test_grids_are_found_in_lists():
    assert [c["l"] for c in all_configs({"l": [grid_search([1, 2]), 3]})] == [[1, 3], [2, 3]]


def test_options_and_grid_values_may_hold_domains():
    space = {
        "m": choice([{"kind": "a", "lr": uniform(0, 1)}]),
        "g": grid_search([choice([3]), 4, {"x": [choice([5])]}]),
    }
    configs = all_configs(space)
    assert [c["g"] for c in configs] == [3, 4, {"x": [5]}]
    assert all(0 <= c["m"]["lr"] < 1 for c in configs)


def test_values_are_computed_from_others_in_any_order():
    space = {
        "e": sample_from(lambda config: config["d"] + config["n"]["c"]),
        "d": sample_from(lambda config: config["n"]["c"] * 2),
        "n": {"c": sample_from(lambda config: config["b"] + 1)},
        "b": choice([10]),
    }
    assert resolved(space) == {"e": 33, "d": 22, "n": {"c": 11}, "b": 10}


def test_a_chain_of_computed_values_may_be_long():
    space = {f"k{i}": sample_from(lambda c, i=i: c[f"k{i + 1}"] + 1) for i in range(60)}
    assert resolved({**space, "k60": 0})["k0"] == 60


def test_all_forms_of_reading_a_config_work():
    forms = {
        "by_spec": (lambda spec: spec.config.a * 2, 6),
        "by_spec_key": (lambda spec: spec["config"]["a"] * 3, 9),
        "by_attribute": (lambda config: config.n.w, 4),
        "by_get": (lambda config: config.get("missing", 5) + config.get("a", 0), 8),
        "by_items": (lambda config: sorted(config.n.keys()), ["l", "w"]),
        "in_list": (lambda config: config["n"]["l"][-1] + sum(config["n"]["l"][:2]), 6),
        "whole": (lambda config: config["n"], {"w": 4, "l": [1, 2, 3]}),
        "unpacked": (lambda config: {**config["n"]}["w"], 4),
        "nothing": (lambda: "constant", "constant"),
        "is_in": (lambda config: "a" in config and "z" not in config, True),
        "is_equal": (lambda config: config["n"] == {"w": 4, "l": [1, 2, 3]}, True),
    }
    given = {"a": choice([3]), "n": {"w": choice([4]), "l": [1, choice([2]), sample_from(lambda c: c["a"])]}}
    config = resolved(given | {name: sample_from(function) for name, (function, _) in forms.items()})
    assert {name: config[name] for name in forms} == {name: expected for name, (_, expected) in forms.items()}
    assert type(config["whole"]) is dict
    assert config["whole"] is not config["n"]


def test_a_key_called_config_is_read_as_a_key():
    assert resolved({"config": {"a": 1}, "b": sample_from(lambda c: c.config.a)})["b"] == 1


def test_a_computed_value_may_be_a_domain_itself():
    config = resolved({"x": sample_from(lambda: choice([7])), "y": sample_from(lambda c: c["x"] + 1)})
    assert config == {"x": 7, "y": 8}


def test_grid_values_reach_computed_values():
    space = {"a": grid_search([1, 2]), "b": sample_from(lambda c: c["a"] * 10)}
    assert [c["b"] for c in all_configs(space)] == [10, 20]


def test_values_that_wait_for_each_other_are_named():
    space = {"a": sample_from(lambda c: c["b"]), "n": {"b": 1}, "b": sample_from(lambda c: c["a"])}
    with pytest.raises(SpaceError, match="wait for each other or for themselves: a, b"):
        resolved(space)


def test_the_error_of_a_function_is_the_cause():
    with pytest.raises(SpaceError, match="sample_from at n/x raised ZeroDivisionError") as caught:
        resolved({"n": {"x": sample_from(lambda c: 1 / 0)}})
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_missing_key_is_named_with_its_neighbours():
    with pytest.raises(SpaceError, match="Did you mean 'width'"):
        resolved({"width": 1, "x": sample_from(lambda c: c.widht)})
    with pytest.raises(SpaceError, match="raised KeyError: 'widht'"):
        resolved({"width": 1, "x": sample_from(lambda c: c["widht"])})


def test_configs_share_no_container_with_the_space_but_keep_objects():
    marker = object()
    space = {"d": {"l": [1, {"x": 2}]}, "o": marker, "c": choice([[1, 2]])}
    first, second = resolved(space), resolved(space)
    first["d"]["l"][1]["x"] = 99
    first["c"].append(3)
    assert second == {"d": {"l": [1, {"x": 2}]}, "o": marker, "c": [1, 2]}
    assert resolved(space)["c"] == [1, 2]
    assert first["o"] is marker


def test_keys_keep_their_order_and_the_order_does_not_change_the_draws():
    one = resolved({"b": uniform(0, 1), "a": uniform(0, 1)})
    two = resolved({"a": uniform(0, 1), "b": uniform(0, 1)})
    assert list(one) == ["b", "a"]
    assert one == two


def test_deciding_goes_through_the_path_of_the_chosen_option():
    heard = []

    def decide(path, domain):
        heard.append(path)
        return 1 if isinstance(domain, Categorical) else domain.draw(np.random.default_rng(0))

    resolve({"m": choice([1, {"lr": uniform(0, 1)}]), "a": [uniform(0, 1)], "f": sample_from(lambda: 1)}, decide)
    assert heard == [("a", 0), ("m",), ("m", 1, "lr")]


@pytest.mark.parametrize("space", [3, None, [uniform(0, 1)], uniform(0, 1), "x"])
def test_a_space_that_is_no_dict_is_refused(space):
    with pytest.raises(SpaceError, match="expected a dict"):
        Variants(space)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"a": choice([1, {"b": grid_search([1, 2])}])}, r"a/1/b is a grid_search inside a choice \(a\)"),
        (
            {"a": grid_search([1, {"b": choice([{"c": [grid_search([1, 2])]}])}])},
            r"a/1/b/0/c/0 is a grid_search inside a choice \(a/1/b\)",
        ),
        ({"a": {"grid_search": 3}}, "expected a list"),
        ({"a": {"grid_search": []}}, "at least one value"),
    ],
)
def test_grids_that_cannot_be_crossed_are_refused(space, message):
    with pytest.raises(SpaceError, match=message):
        Variants(space)


def test_a_grid_returned_by_a_function_is_refused_or_crossed_never_dropped():
    space = {"a": sample_from(lambda: {"grid_search": [1, 2]})}
    with pytest.raises(SpaceError, match="grid"):
        Variants(space).config(0, 0)


def test_grids_are_refused_by_name_where_values_are_drawn():
    with pytest.raises(SpaceError, match=r"n/a is a grid_search over 2 values; X draws"):
        refuse_grids({"n": {"a": grid_search([1, 2])}}, "X")
    refuse_grids({"a": uniform(0, 1)}, "X")


def test_a_grid_within_a_value_of_a_grid_is_crossed_where_that_value_is_tried():
    space = {"a": grid_search([1, {"b": grid_search([2, 3])}]), "z": grid_search(["x", "y"])}
    variants = Variants(space)
    assert (variants.num_points, variants.count(2)) == (6, 12)
    assert all_configs(space) == [{"a": a, "z": z} for z in "xy" for a in (1, {"b": 2}, {"b": 3})]


def test_grids_may_be_nested_at_any_depth_beside_each_other_and_as_values_themselves():
    inner = {"c": grid_search([1, {"d": grid_search([2, 3]), "e": grid_search([4, 5])}]), "x": uniform(0, 1)}
    values = [c["a"] for c in all_configs({"a": grid_search([[inner, 0], grid_search([8, 9])])})]
    assert [inner["c"] for inner, _ in values[:5]] == [1, *({"d": d, "e": e} for e in (4, 5) for d in (2, 3))]
    assert len({inner["x"] for inner, _ in values[:5]}) == 5
    assert values[5:] == [8, 9]


def test_a_point_that_names_the_outer_grid_leaves_nothing_of_the_inner_one():
    space = {"a": grid_search([1, {"b": grid_search([2, 3])}]), "z": grid_search(["x", "y"])}
    assert all_configs(space, points=[{"a": {"b": 3}}]) == [{"a": {"b": 3}, "z": "x"}, {"a": {"b": 3}, "z": "y"}]


# --- points to evaluate ----------------------------------------------------------------------------------------------


def test_each_point_takes_the_place_of_one_sample():
    configs = all_configs({"x": uniform(0, 1), "y": choice([1, 2])}, 3, points=[{"x": 0.5}, {"x": 0.25, "y": 2}])
    assert configs[0]["x"] == 0.5
    assert configs[1] == {"x": 0.25, "y": 2}
    assert len(configs) == 3


def test_a_grid_variable_that_a_point_names_is_not_crossed():
    space = {"a": grid_search([1, 2, 3]), "b": grid_search([4, 5])}
    configs = all_configs(space, 2, points=[{"a": 2}])
    assert configs[:2] == [{"a": 2, "b": 4}, {"a": 2, "b": 5}]
    assert len(configs) == 2 + 6
    assert Variants(space, [{"a": 1, "b": 4}] * 3).count(1) == 3


def test_points_reach_nested_values_by_nesting_and_by_name():
    space = {"n": {"x": uniform(0, 1), "l": [uniform(0, 1), {"y": uniform(0, 1)}]}, "f": sample_from(lambda: 0), "c": 1}
    point = {"n": {"x": 0.5, "l": [0.1, {"y": 0.2}]}, "f": 3, "c": 2}
    assert resolved(filled(space, point)) == point
    config = resolved(filled(space, {"n/x": 0.25, "n/l/0": 0.3, "n/l/1/y": 0.4}))
    assert config["n"] == {"x": 0.25, "l": [0.3, {"y": 0.4}]}


def test_what_a_point_leaves_open_within_an_option_is_drawn():
    space = {"net": choice(["none", {"kind": "mlp", "width": randint(1, 9), "act": choice(["a", "b"])}])}
    first, second = all_configs(space, 2, points=[{"net": {"width": 3}}, {"net/act": "b", "net/kind": "mlp"}])
    assert (first["net"]["kind"], first["net"]["width"]) == ("mlp", 3)
    assert first["net"]["act"] in ("a", "b")
    assert (second["net"]["act"], second["net"]["width"] in range(1, 9)) == ("b", True)


def test_keys_of_all_kinds_have_one_order_indexes_first_then_names_then_the_rest():
    # as texts, None and the tuple would lie between the names
    space = {key: uniform(0, 1) for key in ("Z", None, "a", (1, 2), 3, "N", -1, "(")}
    assert [path for path, _ in walk(space)] == [(-1,), (3,), ("(",), ("N",), ("Z",), ("a",), ((1, 2),), (None,)]


@pytest.mark.parametrize("name", ["l/x", "l/1", "l/7", 8, "l/", "n/0/1", "m"])
def test_a_name_that_leads_nowhere_is_refused_by_that_name(name):
    space = {"l": [uniform(0, 1)], "n": {"0": uniform(0, 1)}}
    with pytest.raises(SpaceError, match=f"the point names '{name}', which the space does not"):
        filled(space, {name: 0.5})


def test_a_name_with_a_slash_that_the_space_has_is_that_name():
    space = {"a/b": uniform(0, 1), "a": {"b": uniform(0, 1)}, 7: uniform(0, 1)}
    assert filled(space, {"a/b": 0.5, 7: 0.25}) == {**space, "a/b": 0.5, 7: 0.25}


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({"leraning": 1}, "names 'leraning', which the space does not have. Did you mean 'learning'"),
        ({"n": {"z": 1}}, "names 'n/z'"),
        ({"n/z": 1}, "names 'n/z'"),
        ({"l": [1]}, "sets l to .*; expected 2 values"),
    ],
)
def test_a_point_that_does_not_belong_to_the_space_is_refused(point, message):
    space = {"learning": uniform(0, 1), "n": {"x": 1}, "l": [uniform(0, 1), 2]}
    with pytest.raises(SpaceError, match=message):
        Variants(space, [point])


@pytest.mark.parametrize("point", [{"x": 2.0}, {"k": 9}, {"g": 9}])
def test_a_value_outside_its_domain_is_used_with_a_warning(point):
    space = {"x": uniform(0, 1), "k": choice([1, 2]), "g": grid_search([1, 2])}
    with pytest.warns(UserWarning, match="outside"):
        variants = Variants(space, [point])
    config = variants.config(0, 0)
    assert {key: config[key] for key in point} == point


def test_matching_knows_the_configs_of_a_space():
    space = {"a": uniform(0, 1), "l": [choice([1, {"x": randint(0, 3)}])], "g": grid_search([1, 2]), "c": "s"}
    assert matches(space, {"a": 0.5, "l": [{"x": 2}], "g": 2, "c": "s"})
    assert not matches(space, {"a": 0.5, "l": [{"x": 7}], "g": 2, "c": "s"})
    assert not matches(space, {"a": 0.5, "l": [1], "g": 3, "c": "s"})
    assert not matches(space, {"a": 0.5, "l": [1], "g": 1})


# --- paths --------------------------------------------------------------------------------------------------


def test_paths_become_names():
    assert path_name(("a", 0, "b")) == "a/0/b"
    with pytest.raises(SpaceError, match="holds a '/'"):
        path_name(("a/b",))
    with pytest.raises(SpaceError, match="expected a string"):
        path_name((2.5,))


@pytest.mark.parametrize("names", [["a", "a/b"], ["a/b", "a"], ["a/b", "a/b/c"]])
def test_names_that_clash_are_refused(names):
    with pytest.raises(SpaceError, match="rename one"):
        unflatten(dict.fromkeys(names, 1))


names = st.text("abc", min_size=1, max_size=3)
nested_configs = st.recursive(
    st.dictionaries(names, st.integers() | st.lists(st.integers()), min_size=1, max_size=3),
    lambda inner: st.dictionaries(names, st.integers() | inner, min_size=1, max_size=3),
    max_leaves=8,
)


@given(nested_configs)
def test_unflatten_undoes_flatten(config):
    assert unflatten(flatten(config)) == config


def test_all_domains_are_found_those_of_options_too():
    space = {"m": choice([1, {"lr": uniform(0, 1)}]), "f": sample_from(lambda: 1), "x": [uniform(0, 1)]}
    assert [path for path, _ in fixed_domains(space)] == [("m",), ("m", 1, "lr"), ("x", 0)]


leaves = st.sampled_from([1, "x", None, uniform(0, 1), choice([1, 2]), randint(0, 5), sample_from(lambda: 3)])
spaces = st.dictionaries(
    names,
    st.recursive(
        leaves | st.lists(st.integers(), min_size=1, max_size=3).map(grid_search),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(names, inner, max_size=3)
            | st.lists(inner, min_size=1, max_size=3).map(grid_search)
        ),
        max_leaves=6,
    ),
    max_size=4,
)


@settings(deadline=None)
@given(spaces, st.integers(0, 2**32 - 1))
def test_every_config_of_every_space_is_decided_and_the_grid_is_covered_once(space, seed):
    variants = Variants(space)
    number = min(variants.num_points, 30)
    configs = [variants.config(n, seed) for n in range(number)]
    assert not any(map(has_domains, configs))
    assert configs == [Variants(space).config(n, seed) for n in range(number)]
    assert all(matches(space, config) for config in configs)
