"""How a training step finds its arguments, and what it may return: `sweep.vectorized` on code as people write it."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sweep
from sweep.errors import TrainableError
from sweep.lanes.functions import Call, config_of, numbers_of

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


def the_batch_is_its_first_part(params, num_steps, batch, labels, lr):
    return a_tuple_in_its_parts(params, num_steps, batch, labels, lr)


@jax.jit
def under_jit(params, x, y, lr):
    return descended(params, lr, x, y)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Sized:
    """As a module of Equinox: a number that is no array decides a shape, and another one counts."""

    w: Any
    width: int = 1
    num_steps: int = 0


def with_a_size(model, x, y, lr):
    ones = jnp.ones(model.width)
    new, loss = descended({"w": model.w}, lr, x, y)
    return Sized(new["w"] * ones[0], model.width, model.num_steps + 1), {"loss": loss, "n": model.num_steps}


def in_place(model, x, y, lr):
    """As objects of Flax's NNX are trained."""
    new, loss = descended({"w": model.w}, lr, x, y)
    model.w = new["w"]
    return loss


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
        (the_batch_is_its_first_part, lambda key: (params_of(key), 0), IN_A_TUPLE),
        (only_params, {"w": jnp.float32(-0.5)}, (X, Y)),
        (under_jit, params_of, IN_A_TUPLE),
        (with_a_size, lambda key: Sized(params_of(key)["w"]), IN_A_TUPLE),
        (in_place, lambda key: Sized(params_of(key)["w"]), IN_A_TUPLE),
    ],
)
def test_a_step_as_people_write_it_trains(step, init, data):
    vector = sweep.vectorized(step, init=init, data=data, steps_per_report=2)
    first, *_, last = vector.run_one({"lr": 0.3}, 15)
    assert last["loss"] < 1e-3 < first["loss"]
    assert last.get("n", 29) == 29  # a number that steps change is one of the state


def test_evaluate_may_return_a_scalar_and_has_data_of_its_own():
    @jax.jit
    def error(params, x, y):
        return loss_of(params, x, y)

    vector = sweep.vectorized(
        only_params, init=params_of, data=IN_A_TUPLE, evaluate=error, validation=lambda: (X, -Y), steps_per_report=40
    )
    vector = pickle.loads(cloudpickle.dumps(vector))
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
        (lambda p, q, batch, b: (p, q, batch, b), {"state": (1, 2), "batch": (3, 4)}, (1, 2, 3, 4)),
        (lambda model, batch, y: (model, batch, y), {"state": STATE, "batch": {"batch": 3, "y": 4}}, (STATE, 3, 4)),
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


def test_what_is_no_number_and_what_all_trials_share_is_not_traced():
    config = {"lr": 0.1, "net": {"act": "relu", "depth": 2, "width": 8}, "sizes": [[1], [2, 3]], "steps": 5e5, "d": {}}
    numbers, static = numbers_of(config, [("net", "depth"), ("steps",)])
    assert list(numbers) == [("lr",), ("net", "width")]
    assert static == {"net": {"act": "relu", "depth": 2}, "sizes": [[1], [2, 3]], "steps": 5e5, "d": {}}
    made = config_of(dict.fromkeys(numbers, 0), static)
    assert made["net"] == {"act": "relu", "depth": 2, "width": 0}
    made["net"]["act"] = "tanh"  # as PureJaxRL adds to its config
    assert static["net"] == {"act": "relu", "depth": 2}


def test_what_is_changed_while_a_trial_runs_is_no_constant():
    _, options, _ = sweep.vectorized(only_params, init=params_of).__sweep_lanes__()
    space = {"lr": 0.1, "kind": "a", "net": {"depth": 2, "width": sweep.uniform(1, 2)}, "n": {"grid_search": [1, 2]}}
    assert options.constants(space, ("lr",)) == {"sweep_constants": [("kind",), ("net", "depth")]}


def test_a_hyperparameter_that_no_function_takes_is_named():
    vector = sweep.vectorized(lambda params, x, y: descended(params, 0.1, x, y), init=params_of, data=(X, Y))
    _, _, check = vector.__sweep_lanes__()
    with pytest.warns(UserWarning, match="the search space has 'lr', and no function of <lambda> takes it"):
        check({"lr": sweep.uniform(0, 1), "note": "a constant may be there for people"})
