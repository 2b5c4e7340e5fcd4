"""What a framework does for lanes: one program for all trials that agree in what is static."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from sweep.errors import TrainableError
from sweep.lanes.functions import BATCH, STATE, Call, Path, metrics_of

Array: TypeAlias = "np.ndarray[Any, Any]"
Numbers: TypeAlias = "Mapping[Path, Array]"


class Program(ABC):
    """The functions of a `VectorTrainable` for all lanes at once, each array with a first axis of lanes.

    One object serves all trials that have the same values under `static`. It holds no lane: states come and go.

    Attributes:
        num_steps: steps between two reports.
        multiple: the number of lanes is a multiple of this, for instance the number of devices.
    """

    multiple = 1

    def __init__(self, vector: Any, static: Mapping[str, Any], objects: Mapping[str, Any]) -> None:
        """Take the user's functions, and load the data.

        Args:
            vector: an object of a `VectorTrainable`.
            static: values of the config that are the same for all lanes.
            objects: given by `with_parameters`, for `data`.

        Raises:
            TrainableError: `batch_size` is no number of rows that the data has.
        """
        name = type(vector).__name__
        self.static, self.num_steps = dict(static), vector.steps_per_report
        self.init, self.step = Call(vector.init, f"{name}.init"), Call(vector.step, f"{name}.step")
        self.evaluate = None if vector.evaluate is None else Call(vector.evaluate, f"{name}.evaluate")
        given = {**objects, **static}
        self.data, self.validation = (self._loaded(vector, what, given) for what in ("data", "validation"))
        size = vector.batch_size
        self.batch_size: int | None = static.get(size, size) if isinstance(size, str) else size
        if self.batch_size is not None:
            rows = {len(leaf) for leaf in self.leaves(self.data)}
            fewest = min(rows, default=0)
            if not isinstance(self.batch_size, int) or len(rows) != 1 or not 0 < self.batch_size <= fewest:
                raise TrainableError(
                    f"{name}.batch_size is {self.batch_size!r}, and data() has arrays of {sorted(rows)} rows; expected "
                    "a number of rows that all of them have, or the name of a static hyperparameter that is one."
                )
            self.num_batches = fewest // self.batch_size

    def evaluated(
        self, config: Mapping[str, Any], state: Any, data: Any, validation: Any, **more: Any
    ) -> dict[str, Any]:
        """Return the metrics of `evaluate`; a scalar is called as the function is."""
        if self.evaluate is None:
            return {}
        given = {STATE: state, BATCH: data if validation is None else validation, **more}
        return metrics_of(self.evaluate.what, [self.evaluate(config, **given)[0]], self.evaluate.name)

    def _loaded(self, vector: Any, what: str, given: Mapping[str, Any]) -> Any:
        function = getattr(vector, what)
        return None if function is None else Call(function, f"{type(vector).__name__}.{what}")(given)[0]

    @abstractmethod
    def begin(self, seeds: Array, numbers: Numbers, mask: Array) -> Any:
        """Return the states of lanes that begin, from `init`, where the mask, bools by lane, is set; else anything.

        Args:
            seeds: those of their trials, uint32.
        """

    @abstractmethod
    def advance(self, states: Any, numbers: Numbers, seeds: Array, counts: Array) -> tuple[Any, dict[str, Array]]:
        """Return the states after `num_steps` more, and the metrics of the last one; `counts`: steps before these."""

    @abstractmethod
    def choose(self, mask: Array, new: Any, old: Any) -> Any:
        """Return the new state where the mask, bools by lane, is set, else the old one."""

    @abstractmethod
    def to_host(self, states: Any) -> dict[str, Array]:
        """Return the arrays of the states by name."""

    @abstractmethod
    def from_host(self, arrays: Mapping[str, Array], like: Any) -> Any:
        """Return states again, in the form of others."""

    @abstractmethod
    def leaves(self, tree: Any) -> list[Any]:
        """Return the arrays of a tree."""

    def place(self, states: Any) -> Any:
        """Lay the lanes out over the devices of this process."""
        return states

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether it would not happen with fewer lanes."""
        return isinstance(error, MemoryError)

    def free_bytes(self) -> int:
        """Return how much memory is free where the states lie."""
        import psutil

        return int(psutil.virtual_memory().available)
