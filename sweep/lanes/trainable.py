"""What the user writes, `VectorTrainable` or a decorated function, and the trainable of single trials made from it."""

from __future__ import annotations

import importlib
import inspect
import io
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from searchers.space import Domain
from searchers.variants import grid_values, has_domains, walk
from sweep.core.resources import LANE, Bundle, Resources, parse_resources
from sweep.errors import TrainableError, refuse_unknown
from sweep.lanes.batch import Pool, Seat
from sweep.lanes.functions import CONFIG, CONSTANTS, Call, Path, numbers_of
from sweep.worker.session import current
from sweep.worker.trainable import Trainable

STATE_FILE = "lane.npz"
AUTO = "auto"
_FRAMEWORKS = {"jax": ("sweep.lanes.jax_program", "JaxProgram"), "torch": ("sweep.lanes.torch_program", "TorchProgram")}


class VectorTrainable:
    """A training as pure functions, many of which run as lanes of one batched computation in one process.

    For small models, whose time is Python, dispatch and start-up. Numbers that are searched differ between lanes of one
    compiled program; those that decide a shape or a branch are `static`: trials are grouped by them and by what is no
    number, a program for each group. What has one value in the search space is an ordinary value of Python.
    A lane is a trial like any other: searchers, schedulers, record and results are the same. Its numbers are those that
    it has alone, up to the rounding of another batch size, whatever its neighbours: random keys come from its own seed.

    Override `init` and `step`; `data`, `evaluate` and `validation` as needed. Their parameters are found by name:
    `state`, `config`, `batch`, `key` (or `rng`), `index` (or `i`), a hyperparameter, a part of the state (of a dict,
    named tuple or dataclass) or of the batch (of a dict). Others are in their order the state and the batch, each whole
    or, if it is a tuple, part by part: `step(self, params, opt_state, x, y)`.

    Attributes:
        static: names of searched numbers that are the same for all lanes of a program.
        steps_per_report: calls of `step` from one report to the next, at least 1.
        batch_size: rows of `data` for each step, the next ones each time; a number, or the name of a hyperparameter
            that is not traced; None: `batch` is all of it.
        num_lanes: trials of a process at a time; "auto": 32, and twice as many as long as that gives a fifth more steps
            per second and memory suffices.
        resources_per_worker: what a process holds, such as {"gpu": 1}; None: one of the GPUs, or all CPUs.
        framework: "jax" or "torch", or a class derived from `sweep.lanes.program.Program`.
    """

    static: ClassVar[Sequence[str]] = ()
    steps_per_report: ClassVar[int] = 1
    batch_size: ClassVar[int | str | None] = None
    num_lanes: ClassVar[int | str] = AUTO
    resources_per_worker: ClassVar[Any] = None
    framework: ClassVar[Any] = "jax"
    data: ClassVar[Callable[..., Any] | None] = None
    evaluate: ClassVar[Callable[..., Any] | None] = None
    validation: ClassVar[Callable[..., Any] | None] = None

    def init(self, key: Any, config: Mapping[str, Any]) -> Any:
        """Return the state of a trial that begins, a tree of arrays; by default none: each step is a whole training."""
        return ()

    def step(self, state: Any, config: Mapping[str, Any], batch: Any) -> Any:
        """Return the next state and a dict of scalars, `(state, metrics)`; those of the last step are reported.

        `data(self)` returns the arrays that `batch` is taken from; it is called once for each program.
        `evaluate(self, state, config, batch)` returns more metrics, once for each report; its batch is all of what
        `validation(self)` returns, or without that all of the data.
        """
        raise NotImplementedError

    @classmethod
    def run_one(cls, config: Mapping[str, Any], num_reports: int, *, seed: int = 0) -> list[dict[str, Any]]:
        """Train alone in this process, without a sweep; return the metrics of each report."""
        lane = as_process(cls)(dict(config))
        lane.seat.seed = seed
        return [lane.step() for _ in range(num_reports)]

    @classmethod
    def __sweep_lanes__(cls) -> tuple[type[Trainable], Options, Callable[[Mapping[str, Any]], dict[str, Any]]]:
        """Return the trainable of a single trial, how lanes run, and what checks a search space."""
        return as_process(cls), options_of(cls), lambda space: checked_space(cls, space)


@dataclass(frozen=True)
class Options:
    """How the lanes of a trainable run.

    Attributes:
        num_lanes: of a process; 0: that is found out.
        request: what a process holds; None: one of the GPUs, or all CPUs.
        of_trial: what a trial asks for.
    """

    num_lanes: int
    request: Resources | None
    of_trial: Resources = field(default_factory=lambda: Resources((Bundle(custom=((LANE, 1.0),)),)))

    def constants(self, space: Mapping[str, Any], mutated: Sequence[str] = ()) -> dict[str, list[Path]]:
        """Return what trainables are to know of a space as an object: what no trial changes needs not be traced."""
        return {CONSTANTS: [path for path in _constants(space) if "/".join(map(str, path)) not in mutated]}


def _constants(space: Mapping[str, Any], at: Path = ()) -> Iterator[Path]:
    for name, node in space.items():
        if not has_domains(node):
            yield (*at, name)
        elif isinstance(node, Mapping) and grid_values(node) is None:
            yield from _constants(node, (*at, name))


class Lane(Trainable):
    """A trial of a `VectorTrainable`: in a process of its own, or as a lane of a process that has many."""

    vector: ClassVar[type[VectorTrainable]]

    def setup(
        self,
        config: dict[str, Any],
        *,
        sweep_pool: Pool | None = None,
        sweep_step: Callable[[Seat], dict[str, Any]] | None = None,
        sweep_seed: int | None = None,
        **objects: Any,
    ) -> None:
        session = current()
        if session is None:  # alone, nothing differs between lanes
            objects.setdefault(CONSTANTS, [(name,) for name in config])
        self._pool = sweep_pool or Pool(self.vector(), program_of(self.vector), objects, 1)
        self._do_step = sweep_step or self._step_alone
        seed = sweep_seed if session is None or sweep_seed is not None else session.job.seed
        self.seat = self._pool.enter(config, seed or 0)

    def step(self) -> dict[str, Any]:
        return self._do_step(self.seat)

    def _step_alone(self, seat: Seat) -> dict[str, Any]:
        for error in seat.group.settle().values():
            raise error
        return seat.group.advance()[seat]

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        arrays = self.seat.arrays()
        file = io.BytesIO()  # a zip file is written piece by piece
        np.savez(file, *arrays.values(), names=np.array(list(arrays), dtype=str), count=self.seat.count)
        with open(os.path.join(checkpoint_dir, STATE_FILE), "wb") as to:
            to.write(file.getbuffer())

    def load_checkpoint(self, checkpoint: Any) -> None:
        with np.load(os.path.join(checkpoint, STATE_FILE), allow_pickle=False) as stored:
            names = stored["names"].tolist()
            self.seat.restored = {name: stored[f"arr_{at}"] for at, name in enumerate(names)}
            self.seat.count = int(stored["count"])
        self.seat.is_new = True

    def cleanup(self) -> None:
        if hasattr(self, "seat"):
            self.seat.leave()


def as_process(vector: type[VectorTrainable]) -> type[Lane]:
    """Return the trainable of single trials of a `VectorTrainable`."""
    return type(vector.__name__, (Lane,), {"vector": vector, "__module__": vector.__module__})


def program_of(vector: type[VectorTrainable]) -> Any:
    """Return the class of the programs of a `VectorTrainable`."""
    if isinstance(vector.framework, type):
        return vector.framework
    module, name = _FRAMEWORKS[vector.framework]
    return getattr(importlib.import_module(module), name)


def options_of(vector: type[VectorTrainable]) -> Options:
    """Return how the lanes of a trainable run, checked.

    Raises:
        TrainableError: what it says of itself makes no sense.
    """
    name = vector.__name__
    if vector.step is VectorTrainable.step:
        parameters = ", ".join(inspect.signature(VectorTrainable.step).parameters)
        raise TrainableError(f"{name} has no step; define step({parameters}).")
    if isinstance(vector.static, str) or not all(isinstance(one, str) for one in vector.static):
        raise TrainableError(
            f"{name}.static is {vector.static!r}; expected names of hyperparameters, such as ('width',)."
        )
    for what in ("steps_per_report", "num_lanes"):
        value = getattr(vector, what)
        if what == "num_lanes" and value == AUTO:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            expected = "a whole number of at least 1" + (" or 'auto'" if what == "num_lanes" else "")
            raise TrainableError(f"{name}.{what} is {value!r}; expected {expected}.")
    if not isinstance(vector.framework, type) and vector.framework not in _FRAMEWORKS:
        raise TrainableError(
            f"{name}.framework is {vector.framework!r}; expected {' or '.join(map(repr, _FRAMEWORKS))}."
        )
    request = None if vector.resources_per_worker is None else parse_resources(vector.resources_per_worker)
    if request is not None and len(request.bundles) > 1:
        raise TrainableError(f"{name}.resources_per_worker has {len(request.bundles)} bundles; a process takes one.")
    return Options(0 if vector.num_lanes == AUTO else int(vector.num_lanes), request)


def checked_space(vector: type[VectorTrainable], space: Mapping[str, Any]) -> dict[str, Any]:
    """Return a search space.

    Raises:
        TrainableError: a static name is not in the space, or a number has too many bits.
    """
    if unknown := [name for name in vector.static if name not in space]:
        known = ", ".join(map(repr, space)) or "nothing"
        raise TrainableError(
            f"{vector.__name__}.static names {unknown[0]!r}, and the search space has {known}. Add it there, or leave "
            "it out of static."
        )
    static = [(name,) for name in vector.static]
    for path, leaf in walk(space):
        values = grid_values(leaf)
        if values is None and isinstance(leaf, Domain):
            values = list(getattr(leaf, "categories", ()))
        for value in values or ():
            node: Any = value
            for name in reversed(path):
                node = {name: node}
            numbers_of(node, static)
    own = [vector.step, *(one for one in (vector.init, vector.evaluate) if one not in (VectorTrainable.init, None))]
    taken = {name for function in own for name in Call(function, "").parameters}
    for name in space if CONFIG not in taken else ():
        if has_domains(space[name]) and name not in (*taken, *vector.static, vector.batch_size):
            warnings.warn(
                f"the search space has {name!r}, and no function of {vector.__name__} takes it. Give it to step as a "
                "parameter, and make there what depends on it, such as an optimizer.",
                stacklevel=2,
            )
    return dict(space)


@refuse_unknown()
def vectorized(
    step: Callable[..., Any] | None = None,
    *,
    init: Any = None,
    data: Any = None,
    evaluate: Callable[..., Any] | None = None,
    validation: Any = None,
    static: Sequence[str] = (),
    steps_per_report: int = 1,
    batch_size: int | str | None = None,
    num_lanes: int | str = AUTO,
    resources_per_worker: Any = None,
    framework: Any = "jax",
) -> Any:
    """Make a `VectorTrainable` of a training step, as a decorator or by a call.

    Args:
        step: takes the state, or parts of it, and what else its parameters are named after; returns the state, or those
            parts, and a dict of metrics or a loss alone, in any order.
        init: as `VectorTrainable.init`, or a state. The others are as its methods and attributes; `data` and
            `validation` may be arrays.
    """
    if step is None:
        given = {name: value for name, value in locals().items() if name != "step"}
        return lambda function: vectorized(function, **given)
    functions = {"init": init, "step": step, "data": data, "evaluate": evaluate, "validation": validation}
    members = {name: staticmethod(_without_jit(one)) for name, one in functions.items() if one is not None}
    members |= {
        name: value
        for name, value in locals().items()
        if name in VectorTrainable.__annotations__ and name not in functions
    }
    return type(getattr(step, "__name__", "step"), (VectorTrainable,), {**members, "__module__": step.__module__})


def _without_jit(function: Any) -> Any:
    """Return what `jax.jit` was given: all is compiled together, and pickling it would lose its name."""
    return function.__wrapped__ if type(function).__name__ == "PjitFunction" else function
