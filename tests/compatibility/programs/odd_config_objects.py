"""Lambdas, enum members, dataclasses, classes, None and tuples as config values."""

import dataclasses
import enum

from ray import train, tune


class Kind(enum.Enum):
    SMALL = 1
    LARGE = 2


@dataclasses.dataclass
class Settings:
    depth: int = 3
    name: str = "net"


class Plain:
    value = 5


def objective(config):
    assert isinstance(config["kind"], Kind) and isinstance(config["settings"], Settings)
    score = config["fn"](2) * config["kind"].value + config["settings"].depth + config["cls"]().value
    train.report({"score": score, "none": config["none"] is None, "pair": config["pair"][1]})


results = tune.Tuner(
    objective,
    param_space={
        "kind": tune.grid_search([Kind.SMALL, Kind.LARGE]),
        "settings": Settings(depth=4),
        "fn": tune.choice([lambda x: x * 10, lambda x: x * 100]),
        "cls": Plain,
        "none": None,
        "pair": (1, 2),
        "nested": {"list": [1, {"a": tune.choice([1, 2])}]},
    },
    tune_config=tune.TuneConfig(num_samples=2),
).fit()
assert not results.errors, results.errors
assert len(results) == 4
for r in results:
    assert r.config["settings"].depth == 4
    assert r.metrics["score"] == r.config["fn"](2) * r.config["kind"].value + 9
    assert r.metrics["none"] and r.metrics["pair"] == 2
    assert r.config["nested"]["list"][1]["a"] in (1, 2)
