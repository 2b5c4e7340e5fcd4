"""How a training step finds its arguments, and what it may return: `sweep.vectorized` on code as people write it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sweep
from sweep.errors import TrainableError
from sweep.lanes.functions import Call

SLOPE = 3.0
X = np.linspace(-1.0, 1.0, 8, dtype=np.float32)
Y = SLOPE * X


def loss_of(params: Any, x: Any, y: Any) -> Any:
    return jnp.mean((params["w"] * x - y) ** 2)


def descended(params: Any, lr: Any, x: Any, y: Any) -> tuple[Any, Any]:
    loss, gradient = jax.value_and_grad(loss_of)(params, x, y)
    return jax.tree.map(lambda p, g: p - lr * g, params, gradient), loss


def params_of(key: Any) -> dict[str, Any]:
    return {"w": jax.random.normal(key, ())}


class Momentum:
    """As an optimizer of optax is made: of functions over its hyperparameters."""

    def __init__(self, lr: Any) -> None:
        self.init: Callable[[Any], Any] = lambda params: jax.tree.map(jnp.zeros_like, params)
        self.update: Callable[[Any, Any], Any] = lambda grads, old: jax.tree.map(
            lambda g, o: 0.5 * o - lr * g, grads, old
        )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """As flax has it: an optimizer beside the arrays, which is no array."""

    params: Any
    velocity: Any
    optimizer: Any = dataclasses.field(metadata={"static": True})


class Pair(NamedTuple):
    params: Any
    num_steps: Any


def a_dict(state, config, batch):
    new, loss = descended(state, config["lr"], batch["x"], batch["y"])
    return new, {"loss": loss}


def only_params(params, x, y, lr):
    return descended(params, lr, x, y)


def metrics_first(model, batch, lr):
    new, loss = descended(model, lr, batch["x"], batch["y"])
    return {"loss": loss}, new


def a_tuple_in_its_parts(params, num_steps, x, y, lr):
    new, loss = descended(params, lr, x, y)
    return new, num_steps + 1, loss


def a_whole_tuple(state, x, y, lr):
    new, loss = descended(state[0], lr, x, y)
    return (new, state[1] + 1), loss


def a_part_of_a_named_tuple(params, data, lr):
    return descended(params, lr, *data)


def an_optimizer_in_the_state(state, x, y):
    loss, gradient = jax.value_and_grad(loss_of)(state.params, x, y)
    velocity = state.optimizer.update(gradient, state.velocity)
    return dataclasses.replace(state, params=jax.tree.map(jnp.add, state.params, velocity), velocity=velocity), loss


def made_with_an_optimizer(key, lr):
    params, optimizer = params_of(key), Momentum(lr)
    return TrainState(params, optimizer.init(params), optimizer)


IN_A_DICT, IN_A_TUPLE = (lambda: {"x": X, "y": Y}), (lambda: (X, Y))


@pytest.mark.parametrize(
    ("step", "init", "data"),
    [
        (a_dict, params_of, IN_A_DICT),
        (only_params, params_of, IN_A_TUPLE),
        (only_params, params_of, IN_A_DICT),
        (metrics_first, params_of, IN_A_DICT),
        (a_tuple_in_its_parts, lambda key: (params_of(key), 0), IN_A_TUPLE),
        (a_whole_tuple, lambda key: (params_of(key), 0), IN_A_TUPLE),
        (a_part_of_a_named_tuple, lambda key: Pair(params_of(key), 0), IN_A_TUPLE),
        (an_optimizer_in_the_state, made_with_an_optimizer, IN_A_TUPLE),
    ],
)
def test_a_step_as_people_write_it_trains(step, init, data):
    vector = sweep.vectorized(step, init=init, data=data, steps_per_report=2)
    first, *_, last = (row["loss"] for row in vector.run_one({"lr": 0.3}, 15))
    assert last < 1e-3 < first


def test_evaluate_may_return_a_scalar_and_has_data_of_its_own():
    def error(params, x, y):
        return loss_of(params, x, y)

    vector = sweep.vectorized(
        only_params, init=params_of, data=IN_A_TUPLE, evaluate=error, validation=lambda: (X, -Y), steps_per_report=40
    )
    last = vector.run_one({"lr": 0.3}, 2)[-1]
    assert last["error"] == pytest.approx(4 * np.mean(Y**2), rel=1e-3)
    assert last["loss"] < 1e-3


def test_a_step_without_a_state_is_a_whole_training():
    @sweep.vectorized
    def whole(config, key):
        return {"score": config["lr"] + jax.random.uniform(key)}

    first, second = whole.run_one({"lr": 1.0}, 2)
    assert first["score"] != second["score"]
    assert 1.0 <= first["score"] <= 2.0


class Dict(dict[str, Any]):
    """One that no other is: what was given is recognized by identity."""


STATE, BATCH = Dict(w=1), Dict(x=2)


@pytest.mark.parametrize(
    ("function", "given", "expected"),
    [
        (lambda model, data: (model, data), {"state": STATE, "batch": BATCH}, (STATE, BATCH)),
        (lambda batch, model: (batch, model), {"state": STATE, "batch": BATCH}, (BATCH, STATE)),
        (lambda params, data: (params, data), {"state": (1, 2), "batch": (3, 4)}, ((1, 2), (3, 4))),
        (lambda params, a, b: (params, a, b), {"state": (1, 2), "batch": (3, 4)}, ((1, 2), 3, 4)),
        (lambda p, q, a, b: (p, q, a, b), {"state": (1, 2), "batch": (3, 4)}, (1, 2, 3, 4)),
        (lambda params, opt, batch: (params, opt, batch), {"state": (1, 2), "batch": BATCH}, (1, 2, BATCH)),
        (lambda rng, i, x, w: (rng, i, x, w), {"state": STATE, "batch": BATCH, "key": 5, "index": 6}, (5, 6, 2, 1)),
        (lambda state, *, lr, decay=0.5: (state, lr, decay), {"state": STATE}, (STATE, 0.1, 0.5)),
    ],
)
def test_arguments_are_found_by_name_and_then_by_place(function, given, expected):
    assert Call(function, "step")({"lr": 0.1}, **given)[0] == expected


def test_a_parameter_that_is_nothing_is_named():
    with pytest.raises(
        TrainableError, match="step has the parameter 'momentum'; expected one of 'state', 'config', 'lr'"
    ):
        Call(lambda state, momentum: 0, "step")({"lr": 0.1}, state=STATE)
