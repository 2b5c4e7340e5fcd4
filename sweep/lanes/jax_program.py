"""Lanes in JAX: `vmap` over trials, `scan` over steps, one compiled function for each number of lanes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sweep.errors import TrainableError
from sweep.lanes.functions import BATCH, INDEX, KEY, STATE, config_of, taken_apart
from sweep.lanes.program import Array, Numbers, Program

_wait: Any = jax.block_until_ready  # or memory would be found missing later, when the old states are gone
_ADVICE = {
    "ConcretizationTypeError": "its value decides what is computed, such as a shape or a branch",
    "TracerIntegerConversionError": "it is used as a Python integer, such as a shape",
    "TracerBoolConversionError": "Python branches on it",
    "TracerArrayConversionError": "numpy is given it",
    "NonConcreteBooleanIndexError": "it selects how many elements there are",
    "TypeError": "it is used where Python needs a number, such as a shape",
}


class JaxProgram(Program):
    """See `Program`. States and data may be any pytrees; keys are of `jax.random.PRNGKey`.

    Between two calls a state is its arrays by path; what else is in it, such as an optimizer, `init` makes again.
    """

    def __init__(self, vector: Any, static: Mapping[str, Any], objects: Mapping[str, Any]) -> None:
        super().__init__(vector, static, objects)
        devices = jax.local_devices()
        self.multiple = len(devices)
        self._lanes = self._everywhere = None
        if len(devices) > 1:
            mesh = jax.sharding.Mesh(np.array(devices), ("lanes",))
            parts: Any = jax.sharding.PartitionSpec
            self._lanes = jax.sharding.NamedSharding(mesh, parts("lanes"))
            self._everywhere = jax.sharding.NamedSharding(mesh, parts())
        data = jax.tree.map(jnp.asarray, (self.data, self.validation))
        self.data, self.validation = jax.device_put(data, self._everywhere)
        self._begin = jax.jit(jax.vmap(self._begin_one))
        self._advance = jax.jit(jax.vmap(self._advance_one, in_axes=(0, 0, 0, 0, None)))
        self._choose = jax.jit(_choose)

    def _begin_one(self, seed: Any, numbers: dict[str, Any]) -> Any:
        state, form = self._begun(self._config(numbers), jax.random.PRNGKey(seed))
        return {name: jnp.asarray(array) for name, array in form.arrays(state).items()}

    def _begun(self, config: dict[str, Any], key: Any) -> tuple[Any, _Form]:
        # Not from the lane, so that a trial draws the same wherever it runs.
        state = self.init(config, **{KEY: jax.random.fold_in(key, 0)})[0]
        return state, _Form(state)

    def _advance_one(self, arrays: Any, numbers: dict[str, Any], seed: Any, count: Any, data: Any) -> Any:
        config, key = self._config(numbers), jax.random.PRNGKey(seed)
        data, validation = data
        # An optimizer in the state is one of this trace and its hyperparameters; what `init` computes is left out.
        form = self._begun(config, key)[1]

        def stepped(arrays: Any, index: Any) -> tuple[Any, Any]:
            given = {STATE: form.whole(arrays), BATCH: self._batch(data, index), INDEX: index}
            before = jax.tree.leaves(given[STATE])
            returned, parts = self.step(config, **given, **{KEY: jax.random.fold_in(key, index + 1)})
            is_changed = lambda: any(map(operator.is_not, before, jax.tree.leaves(given[STATE])))  # noqa: E731
            state, metrics = taken_apart(self.step.what, returned, given[STATE], parts, _is_alike, is_changed)
            return form.arrays(state), metrics

        def step(arrays: Any, index: Any) -> tuple[Any, Any]:
            new, metrics = stepped(arrays, index)
            return {name: jnp.asarray(new[name]).astype(old.dtype) for name, old in arrays.items()}, metrics

        form.find_constants(lambda: stepped(arrays, count)[0])
        arrays, seen = jax.lax.scan(step, arrays, count + jnp.arange(self.num_steps, dtype=jnp.int32))
        metrics = {name: value[-1] for name, value in seen.items()}
        return arrays, metrics | self.evaluated(config, form.whole(arrays), data, validation)

    def _batch(self, data: Any, index: Any) -> Any:
        size = self.batch_size
        if size is None:
            return data
        start = index % self.num_batches * size
        return jax.tree.map(lambda rows: jax.lax.dynamic_slice_in_dim(rows, start, size), data)

    def _config(self, numbers: dict[str, Any]) -> dict[str, Any]:
        return config_of({tuple(path.split("\0")): value for path, value in numbers.items()}, self.static)

    # --- for all lanes -----------------------------------------------------------------------------------------------

    def begin(self, seeds: Array, numbers: Numbers, mask: Array) -> Any:
        # One after another: what is compiled serves any number of lanes, and draws what it draws for one alone.
        states: dict[str, Array] = {}
        for at in np.flatnonzero(mask) if mask.any() else (0,):
            own = {path: value[at : at + 1] for path, value in _by_text(numbers).items()}
            for name, array in self.to_host(self._called(self._begin, seeds[at : at + 1], own)).items():
                states.setdefault(name, np.repeat(array, len(seeds), axis=0))[at] = array[0]
        return states

    def advance(self, states: Any, numbers: Numbers, seeds: Array, counts: Array) -> tuple[Any, dict[str, Array]]:
        data = self.data, self.validation
        states, metrics = self._called(self._advance, states, _by_text(numbers), seeds, counts, data)
        return states, jax.device_get(metrics)

    def choose(self, mask: Array, new: Any, old: Any) -> Any:
        return _wait(self._choose(mask, new, old))

    def to_host(self, states: Any) -> dict[str, Array]:
        return {name: np.asarray(array) for name, array in jax.device_get(states).items()}

    def from_host(self, arrays: Mapping[str, Array], like: Any) -> Any:
        return {name: arrays[name] for name in like}

    def leaves(self, tree: Any) -> list[Any]:
        return list(jax.tree.leaves(tree))

    def place(self, states: Any) -> Any:
        return _wait(jax.device_put(states, self._lanes))

    def is_out_of_memory(self, error: BaseException) -> bool:
        said = str(error)  # the second is of the driver, as when CUDA's graphs find no memory
        return super().is_out_of_memory(error) or "RESOURCE_EXHAUSTED" in said or "CUDA_ERROR_OUT_OF_MEMORY" in said

    def free_bytes(self) -> int:
        stats = [device.memory_stats() or {} for device in jax.local_devices()]
        if all("bytes_limit" in one for one in stats):
            return sum(int(one["bytes_limit"] - one["bytes_in_use"]) for one in stats)
        return super().free_bytes()

    def _called(self, function: Any, *arguments: Any) -> Any:
        try:
            return _wait(function(*arguments))
        except jax.errors.UnexpectedTracerError as error:
            raise TrainableError(
                f"{self.step.what} is no pure function: something keeps a value of one call, such as an attribute or a "
                "global list, and another call uses it. Return what is to be kept as a part of the state."
            ) from error
        except (jax.errors.JAXTypeError, TypeError) as error:
            guilty = self._guilty(function, arguments, error)
            if guilty:
                why = next((_ADVICE[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in _ADVICE), "")
                raise TrainableError(
                    f"config[{guilty!r}] differs between lanes of one program, and {why}. Declare it: static = "
                    f"({guilty!r},), and trials are grouped by its value; or use jax.numpy.where and the like."
                ) from error
            raise

    def _guilty(self, function: Any, arguments: Any, error: BaseException) -> str:
        """Return the hyperparameter without which, were it a plain number, this would not happen; empty: none."""
        at = next(place for place, one in enumerate(arguments) if type(one) is dict and _is_numbers(one))
        known, static = arguments[at], dict(self.static)
        for name in dict.fromkeys(path.partition("\0")[0] for path in known):
            one = {path: value for path, value in known.items() if path.partition("\0")[0] == name}
            rest = {path: value for path, value in known.items() if path not in one}
            try:
                fixed = {tuple(path.split("\0")): value[0].item() for path, value in one.items() if value.ndim == 1}
                self.static = config_of(fixed, static)
                inner = self._begin_one if function is self._begin else self._advance_one
                axes = (0, 0) if function is self._begin else (0, 0, 0, 0, None)
                jax.eval_shape(jax.vmap(inner, axes), *arguments[:at], rest, *arguments[at + 1 :])
            except Exception as other:  # the border to the user's code, which is only tried
                if str(other) == str(error) or type(other) is type(error):
                    continue
            finally:
                self.static = static
            return str(name)
        return ""


def _is_numbers(value: dict[Any, Any]) -> bool:
    return all(isinstance(name, str) and isinstance(one, np.ndarray) for name, one in value.items())


def _by_text(numbers: Numbers) -> dict[str, Array]:
    return {"\0".join(map(str, path)): value for path, value in numbers.items()}


def _choose(mask: Any, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(mask.reshape(-1, *[1] * (a.ndim - 1)), a, b), new, old)


def _is_alike(one: Any, other: Any) -> bool:
    forms: list[Any] = [jax.tree.structure(one), jax.tree.structure(other)]
    return bool(forms[0] == forms[1]) and all(
        np.shape(a) == np.shape(b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    )


class _Form:
    """What a state is but for its arrays: the tree, and leaves such as functions."""

    def __init__(self, state: Any) -> None:
        leaves, self._tree = jax.tree_util.tree_flatten_with_path(state)
        self._leaves = {jax.tree_util.keystr(path): leaf for path, leaf in leaves}
        self._names = [
            name
            for name, leaf in self._leaves.items()
            if hasattr(leaf, "dtype") or isinstance(leaf, (bool, int, float, complex))
        ]
        self._constants: dict[str, Any] = {}

    def find_constants(self, stepped: Callable[[], Mapping[str, Any]]) -> None:
        """Leave numbers of Python alone that no step changes, such as a width in a module, which may decide a shape."""
        numbers = {name: leaf for name, leaf in self._leaves.items() if isinstance(leaf, (bool, int, float, complex))}
        self._constants, new = numbers, dict[str, Any]()
        if numbers:
            jax.eval_shape(lambda: new.update(stepped()))
        self._constants = {name: leaf for name, leaf in numbers.items() if new[name] is leaf}

    def arrays(self, state: Any) -> dict[str, Any]:
        """Return the arrays of a state by path."""
        leaves = dict(zip(self._leaves, jax.tree.leaves(state), strict=True))
        return {name: leaves[name] for name in self._names}

    def whole(self, arrays: Mapping[str, Any]) -> Any:
        """Return a state of arrays again."""
        return jax.tree.unflatten(self._tree, list({**self._leaves, **arrays, **self._constants}.values()))
