"""Lanes without a framework, which begin at once: a `Program` of plain numpy, and what tests train with it."""

from __future__ import annotations

from typing import Any

import numpy as np

import sweep
from sweep.lanes.functions import config_of, taken_apart
from sweep.lanes.program import Program


class Plain(Program):
    """A Python loop over lanes; states, data and metrics are dicts of numbers or arrays."""

    def begin(self, seeds, numbers, mask):
        return _stacked([self.init(self._config(numbers, at), key=int(seed))[0] for at, seed in enumerate(seeds)])

    def advance(self, states, numbers, seeds, counts):
        new, seen = [], []
        for at, seed in enumerate(seeds.tolist()):
            state, config, metrics = {name: one[at] for name, one in states.items()}, self._config(numbers, at), {}
            for index in range(counts[at], counts[at] + self.num_steps):
                given = {"state": state, "batch": self.data, "key": (seed, int(index)), "index": int(index)}
                returned, parts = self.step(config, **given)
                state, metrics = taken_apart(self.step.what, returned, state, parts, _is_alike)
            new.append(state)
            seen.append(metrics)
        return _stacked(new), _stacked(seen)

    def choose(self, mask, new, old):
        wide = {name: mask.reshape(-1, *[1] * (one.ndim - 1)) for name, one in new.items()}
        return {name: np.where(wide[name], one, old[name]) for name, one in new.items()}

    def to_host(self, states):
        return dict(states)

    def from_host(self, arrays, like):
        return dict(arrays)

    def leaves(self, tree):
        return list(tree.values())

    def _config(self, numbers, at):
        return config_of({path: values[at].item() for path, values in numbers.items()}, self.static)


def _stacked(many: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: np.stack([np.asarray(one[name]) for one in many]) for name in many[0]}


def _is_alike(one: Any, other: Any) -> bool:
    return isinstance(one, dict) and list(one) == list(other)


class Climbs(sweep.VectorTrainable):
    """Reports a loss that depends on all steps so far, on the config and on what its own keys draw, and its number."""

    framework: Any = Plain
    num_lanes = 8

    def init(self, key, config):
        return {"at": np.float64(key % 1000 / 1000), "sum": np.zeros(3)}

    def step(self, state, config, batch, key, index):
        drawn = np.random.default_rng(key).random(3)
        at = state["at"] * (1 - config.get("lr", 0.1)) + config["x"] + drawn[0] / 100
        new = {"at": at, "sum": state["sum"] + drawn}
        return new, {"loss": at / (index + 1), "step": index + 1, "drawn": new["sum"].sum()}
