"""Configs of searchers that are not ours: what they leave out, and what they leave undecided."""

from __future__ import annotations

import pytest

from searchers import SearchError, choice, grid_search, loguniform, quniform, randint, sample_from, uniform
from searchers.adapter import check_decided, constants_of

SPACE = {
    "lr": loguniform(1e-4, 1e-1),
    "epochs": 3,
    "net": {"width": randint(8, 65), "act": "relu", "layers": [uniform(0, 1), 2]},
    "only": {"q": quniform(0, 1, 0.25)},
    "kind": choice(["a", {"name": "b", "rate": uniform(0, 1)}]),
    "seen": sample_from(lambda config: config["lr"] * 2),
}


def test_constants_are_what_holds_no_domain():
    assert constants_of(SPACE) == {"epochs": 3, "net": {"act": "relu"}}
    found = constants_of({"a": {}, "b": [1, 2], "c": grid_search([1]), "d": {"grid_search": [1]}})
    assert found == {"a": {}, "b": [1, 2]}


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"lr": uniform(0, 1)}, "lr"),
        ({"own": {"deep": [1, choice([1])]}}, "own/deep/1"),
        ({"own": {"grid_search": [1, 2]}}, "own"),
    ],
)
def test_what_is_still_to_be_decided_is_an_error(config, name):
    with pytest.raises(SearchError, match=f"^{name} was suggested as .*; expected a value of it"):
        check_decided(config)
