"""Lanes in PyTorch: `torch.func.vmap` over trials, a loop over steps, and random numbers that belong to a trial."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.utils import _pytree as pytree

from sweep.errors import TrainableError
from sweep.lanes.functions import BATCH, INDEX, KEY, STATE, Call, config_of, taken_apart
from sweep.lanes.program import Array, Numbers, Program

Tensors: TypeAlias = dict[str, torch.Tensor]
_NO_MEMORY = ("out of memory", "can't allocate memory", "_STATUS_ALLOC_FAILED")
_NOT_IN_LANES = ("vmap:", "Cannot access data pointer of Tensor that doesn't have storage")
_GAMMA, _FIRST, _SECOND = (n - 2**64 for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


class TorchProgram(Program):
    """See `Program`. States and data may be any trees of tensors; states are kept as a dict by name.

    A `torch.nn.Module` in what `init` returns becomes `{"params": ..., "buffers": ...}`, each by name, and the
    functions may have a parameter `module`, for `torch.func.functional_call(module, params, (x,))`. `init` may draw
    random numbers of torch; those in `step` would depend on the lane: it has a `key` for `normal` and `uniform` below.
    """

    def __init__(self, vector: Any, static: Mapping[str, Any], objects: Mapping[str, Any]) -> None:
        super().__init__(vector, static, objects)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        # Tensors that a step makes belong beside those that it is given; on a CPU they do by themselves.
        self._there: Any = self.device if self.device.type == "cuda" else contextlib.nullcontext()
        here = (None if data is None else pytree.tree_map(self._here, data) for data in (self.data, self.validation))
        self.data, self.validation = here
        self._names, self._form = list[str](), pytree.tree_structure(None)  # of a state as a tree
        self._module: dict[str, torch.nn.Module] = {}  # without its tensors

    def _here(self, leaf: Any) -> torch.Tensor:
        return _tensor(leaf).to(self.device)

    def _begin_one(self, numbers: Mapping[Any, Any], key: torch.Tensor) -> Tensors:
        def tensors(leaf: Any) -> Any:
            if not isinstance(leaf, torch.nn.Module):
                return _tensor(leaf)
            tree = {"params": dict(leaf.named_parameters()), "buffers": dict(leaf.named_buffers())}
            tree = pytree.tree_map(_tensor, tree)
            self._module = {"module": copy.deepcopy(leaf).to("meta")}
            return tree

        tree = pytree.tree_map(tensors, self.init(config_of(numbers, self.static), **{KEY: key})[0])
        paths, self._form = pytree.tree_flatten_with_path(tree)
        self._names = [pytree.keystr(path) for path, _ in paths]
        return _by_name(tree)

    def _step_one(self, numbers: Mapping[Any, Any], state: Tensors, key: Any, index: Any) -> tuple[Tensors, Tensors]:
        tree, batch = self._tree(state), self.data
        if self.batch_size is not None:
            rows = index % self.num_batches * self.batch_size + torch.arange(self.batch_size, device=self.device)
            batch = pytree.tree_map(lambda array: array[rows], batch)
        given = {STATE: tree, BATCH: batch, INDEX: index, KEY: key, **self._module}
        returned, parts = self.step(config_of(numbers, self.static), **given)
        new, metrics = taken_apart(self.step.what, returned, tree, parts, _is_alike)
        found = _by_name(new)
        return {name: _tensor(found[name]).to(old.dtype) for name, old in state.items()}, _of_scalars(metrics)

    def _evaluate_one(self, numbers: Mapping[Any, Any], state: Tensors) -> Tensors:
        config = config_of(numbers, self.static)
        return _of_scalars(self.evaluated(config, self._tree(state), self.data, self.validation, **self._module))

    def _tree(self, state: Tensors) -> Any:
        return pytree.tree_unflatten([state[name] for name in self._names], self._form)

    # --- for all lanes -----------------------------------------------------------------------------------------------

    def begin(self, seeds: Array, numbers: Numbers, mask: Array) -> Tensors:
        # One after another, and not on a GPU, so that a trial draws the same wherever it begins.
        fresh = np.flatnonzero(mask) if mask.any() else np.array([0])
        began = list[Tensors]()
        for at in fresh:
            own = {path: torch.from_numpy(value[at : at + 1]) for path, value in numbers.items()}
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(int(seeds[at]))
                began.append(self._called(self.init, self._begin_one, own, _keys(seeds[at : at + 1])))
        rows = torch.zeros(len(seeds), dtype=torch.int64)
        rows[fresh] = torch.arange(len(fresh))
        return {name: torch.cat([state[name] for state in began])[rows].to(self.device) for name in began[0]}

    def advance(
        self, states: Tensors, numbers: Numbers, seeds: Array, counts: Array
    ) -> tuple[Tensors, dict[str, Array]]:
        given = {path: torch.from_numpy(value).to(self.device) for path, value in numbers.items()}
        keys, index = _keys(seeds).to(self.device), torch.as_tensor(counts, dtype=torch.int64, device=self.device)
        states = {name: state.clone() for name, state in states.items()}  # a step may change them in place
        metrics: Tensors = {}
        for _ in range(self.num_steps):
            index = index + 1
            states, metrics = self._called(self.step, self._step_one, given, states, fold_in(keys, index), index - 1)
        if self.evaluate is not None:
            metrics |= self._called(self.evaluate, self._evaluate_one, given, states)
        return states, self.to_host(metrics)

    def choose(self, mask: Array, new: Tensors, old: Tensors) -> Tensors:
        chosen = torch.from_numpy(mask).to(self.device)
        return {name: torch.where(chosen.reshape(-1, *[1] * (a.ndim - 1)), a, old[name]) for name, a in new.items()}

    def to_host(self, states: Tensors) -> dict[str, Array]:
        narrow = torch.bfloat16  # which numpy does not know
        return {name: (a.cpu().float() if a.dtype is narrow else a.cpu()).numpy() for name, a in states.items()}

    def from_host(self, arrays: Mapping[str, Array], like: Tensors) -> Tensors:
        return {name: torch.as_tensor(arrays[name], dtype=a.dtype, device=self.device) for name, a in like.items()}

    def leaves(self, tree: Any) -> list[Any]:
        return [leaf for leaf in pytree.tree_leaves(tree) if leaf is not None]

    def is_out_of_memory(self, error: BaseException) -> bool:
        is_torch = isinstance(error, RuntimeError) and any(said in str(error) for said in _NO_MEMORY)
        return is_torch or super().is_out_of_memory(error)

    def free_bytes(self) -> int:
        if self.device.type != "cuda":
            return super().free_bytes()
        return torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()

    def _called(self, of: Call, function: Callable[..., Any], numbers: Mapping[Any, torch.Tensor], *rest: Any) -> Any:
        randomness = "same" if of is self.init else "error"
        try:
            with torch.no_grad(), contextlib.nullcontext() if of is self.init else self._there:
                return torch.func.vmap(function, randomness=randomness)(numbers, *rest)
        except RuntimeError as error:
            if "randomness" in str(error):
                raise TrainableError(
                    f"{of.what} draws random numbers of torch, and a lane would draw others than the trial alone. Use "
                    "normal(key, shape) or uniform(key, shape) of sweep.lanes.torch_program, with a parameter `key`."
                ) from error
            if "mutate a captured Tensor" in str(error):
                raise TrainableError(
                    f"{of.what} changes a tensor in place in a function that is differentiated, as BatchNorm does with "
                    "its buffers. Call the module there with copies, (params, {name: b.clone() for name, b in "
                    "buffers.items()}), and return these as well, by has_aux=True, and from the step after params."
                ) from error
            if str(error).startswith(_NOT_IN_LANES) and (guilty := self._guilty(function, numbers, rest)):
                raise TrainableError(
                    f"config[{guilty!r}] differs between lanes of one program, and {of.what} needs its value in "
                    f"Python, such as for a shape or a branch. Declare it: static = ({guilty!r},), and trials are "
                    "grouped by its value; or use torch.where and the like."
                ) from error
            raise

    def _guilty(self, function: Callable[..., Any], numbers: Mapping[Any, torch.Tensor], rest: Any) -> str:
        """Return the hyperparameter without which, were it and those before it plain numbers, this would not happen."""
        static, left = self.static, dict(numbers)
        first = pytree.tree_map(lambda array: array[:1], rest)
        try:
            for name in dict.fromkeys(path[0] for path in numbers):
                fixed = {path: left.pop(path)[0].tolist() for path in numbers if path[0] == name}
                self.static = config_of(fixed, self.static)
                try:
                    torch.func.vmap(function, randomness="same")({path: one[:1] for path, one in left.items()}, *first)
                except Exception as error:  # the border to the user's code, which is only tried
                    if str(error).startswith(_NOT_IN_LANES):
                        continue
                return str(name)
        finally:
            self.static = static
        return ""


def uniform(key: torch.Tensor, shape: int | Sequence[int] = ()) -> torch.Tensor:
    """Draw from [0, 1) for a trial and step, whose `key` it is: the same in any lane, alone, and on any device.

    The same key gives the same numbers again: see `fold_in`.
    """
    return (_bits(key, shape) >> 40 & 0xFFFFFF).float() / 2**24


def normal(key: torch.Tensor, shape: int | Sequence[int] = ()) -> torch.Tensor:
    """Draw from the normal distribution, as `uniform` does from its own."""
    bits = _bits(key, shape)
    radius = torch.sqrt(-2.0 * torch.log(((bits >> 40 & 0xFFFFFF) + 1).float() / 2**24))
    return radius * torch.cos((bits & 0xFFFFFF).float() * (2.0 * math.pi / 2**24))


def fold_in(key: torch.Tensor, number: Any) -> torch.Tensor:
    """Return another key, made from a key and a whole number: one for each thing that is drawn."""
    return _mixed(_mixed(key) + torch.as_tensor(number, dtype=torch.int64, device=key.device) * _GAMMA)


def _bits(key: torch.Tensor, shape: int | Sequence[int]) -> torch.Tensor:
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    return _mixed(key + torch.arange(1, math.prod(sizes) + 1, device=key.device) * _GAMMA).reshape(sizes)


def _mixed(value: torch.Tensor) -> torch.Tensor:
    """Return the mix of SplitMix64; integers of torch are signed and wrap around."""
    value = (value ^ (value >> 30 & 2**34 - 1)) * _FIRST
    value = (value ^ (value >> 27 & 2**37 - 1)) * _SECOND
    return value ^ (value >> 31 & 2**33 - 1)


def _keys(seeds: Array) -> torch.Tensor:
    return _mixed(torch.from_numpy(seeds.astype(np.int64)))


def _tensor(leaf: Any) -> torch.Tensor:
    """Return a tensor; numpy's usual floats become torch's usual ones."""
    is_double = isinstance(leaf, np.ndarray) and leaf.dtype == np.float64
    return torch.as_tensor(leaf, dtype=torch.get_default_dtype() if is_double else None).detach()


def _by_name(tree: Any) -> dict[str, Any]:
    return dict(sorted((pytree.keystr(path), leaf) for path, leaf in pytree.tree_flatten_with_path(tree)[0]))


def _of_scalars(metrics: Mapping[str, Any]) -> Tensors:
    return {name: torch.as_tensor(value) for name, value in metrics.items()}


def _is_alike(one: Any, other: Any) -> bool:
    shapes = [{name: np.shape(leaf) for name, leaf in _by_name(tree).items()} for tree in (one, other)]
    return shapes[0] == shapes[1]
