"""Configs of searchers that are not ours: what they leave out, and where they do not fit the space."""

from __future__ import annotations

import pytest

from searchers import SearchError, choice, grid_search, loguniform, quniform, randint, sample_from, uniform
from searchers.adapter import constants_of, mismatch
from searchers.grid import RandomSearch

SPACE = {
    "lr": loguniform(1e-4, 1e-1),
    "epochs": 3,
    "net": {"width": randint(8, 65), "act": "relu", "layers": [uniform(0, 1), 2]},
    "only": {"q": quniform(0, 1, 0.25)},
    "kind": choice(["a", {"name": "b", "rate": uniform(0, 1)}]),
    "seen": sample_from(lambda config: config["lr"] * 2),
}
GOOD = {
    "lr": 0.01,
    "epochs": 3,
    "net": {"width": 8, "act": "relu", "layers": [0.5, 2]},
    "only": {"q": 0.3},
    "kind": {"name": "b", "rate": 0.5},
    "seen": 7,
}


def with_changed(**changes):
    return {**GOOD, **changes}


def test_constants_are_what_holds_no_domain():
    assert constants_of(SPACE) == {"epochs": 3, "net": {"act": "relu"}}
    assert constants_of({"a": {}, "b": [1, 2], "c": grid_search([1]), "d": {"grid_search": [1]}}) == {
        "a": {},
        "b": [1, 2],
    }


@pytest.mark.parametrize(
    "config",
    [
        GOOD,
        with_changed(kind="a"),
        with_changed(more=1, epochs=4),  # new keys and other constants are a searcher's own business
        with_changed(net={**GOOD["net"], "width": 8.0}),
    ],
)
def test_a_config_of_the_space_fits(config):
    assert mismatch(SPACE, config) is None


def test_every_config_that_is_drawn_fits():
    search = RandomSearch(SPACE, seed=0)
    assert all(mismatch(SPACE, search.suggest(str(n))) is None for n in range(100))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({key: value for key, value in GOOD.items() if key != "lr"}, "lr is missing"),
        (with_changed(lr=0.5), "lr is 0.5, and the space has Float(0.0001, 0.1).LogUniform()"),
        (with_changed(lr=float("nan")), "lr is nan, and the space has"),
        (with_changed(lr="0.01"), "lr is '0.01', and the space has"),
        (with_changed(net={"act": "relu"}), "net/width is missing"),
        (with_changed(net=3), "net is 3, and the space has"),
        (with_changed(net={**GOOD["net"], "width": 8.5}), "net/width is 8.5, and"),
        (with_changed(net={**GOOD["net"], "layers": [2.0, 2]}), "net/layers is [2.0, 2], and"),
        (with_changed(kind="c"), "kind is 'c', and"),
        (with_changed(kind={"name": "b", "rate": 2.0}), "kind is {'name': 'b', 'rate': 2.0}, and"),
    ],
)
def test_the_first_mismatch_is_named(config, said):
    found = mismatch(SPACE, config)
    assert found is not None
    assert found.startswith(said)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (with_changed(lr=uniform(0, 1)), "lr"),
        (with_changed(own={"deep": [1, choice([1])]}), "own/deep/1"),
        (with_changed(own={"grid_search": [1, 2]}), "own"),
    ],
)
def test_what_is_still_to_be_decided_is_an_error(config, name):
    with pytest.raises(SearchError, match=f"^{name} was suggested as .*; expected a value of it"):
        mismatch(SPACE, config)
