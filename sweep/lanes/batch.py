"""Which trial sits in which lane: batches of lanes that grow, shrink and are refilled without compiling again."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sweep.errors import CheckpointError, SweepError, UserCodeError
from sweep.lanes.functions import CONSTANTS, numbers_of
from sweep.lanes.program import Array, Numbers, Program


class NoRoom(SweepError):
    """A trial that has not begun finds no memory; it may when others have ended."""


@dataclass(eq=False)
class Seat:
    """One trial in a batch.

    Attributes:
        seed: of the trial, uint32. numbers: its traced hyperparameters. count: steps that its state has made.
        restored: its state as arrays by name, to be taken over; None: it begins with `init`, or sits already.
        is_new: its state is not in the batch yet.
    """

    group: Group
    seed: int
    numbers: Numbers
    count: int = 0
    restored: Mapping[str, Array] | None = None
    is_new: bool = True

    def arrays(self) -> dict[str, Array]:
        """Return its state, to be saved."""
        if self.is_new:
            self.group.settle()
        return next(batch for batch in self.group.batches if self in batch.seats).at(self)

    def leave(self) -> None:
        """Make room for another."""
        self.group.leave(self)


class Batch:
    """The states of some trials of one program, and the lanes that they have there; None: a lane is free."""

    def __init__(self, program: Program, seats: Sequence[Seat | None]) -> None:
        self.program = program
        self.seats: list[Seat | None] = list(seats)
        self.states: Any = None
        self._numbers: Numbers = {}
        self._is_arranged = False
        self._host: dict[str, Array] | None = None
        self._lock = threading.Lock()

    @property
    def sitting(self) -> list[Seat]:
        """Its trials."""
        return [seat for seat in self.seats if seat is not None]

    def put(self, seat: Seat) -> None:
        """Give a trial a free lane."""
        self.seats[self.seats.index(None)] = seat
        self._is_arranged = False

    def host(self) -> dict[str, Array]:
        """Return the states in memory, by name; of threads that ask at the same time the first fetches them."""
        with self._lock:
            if self._host is None:
                self._host = self.program.to_host(self.states)
            return self._host

    def at(self, seat: Seat) -> dict[str, Array]:
        """Return the state of a trial, by name."""
        at = self.seats.index(seat)
        return {name: array[at] for name, array in self.host().items()}

    def resize(self, size: int) -> None:
        """Have another number of lanes; what is in them moves to the first ones."""
        before, sitting = self.seats, self.sitting
        self.seats = [*sitting, *[None] * (size - len(sitting))]
        if self.states is not None:
            order = [before.index(seat) for seat in sitting] or [0]
            order += order[:1] * (size - len(order))
            self._take({name: array[order] for name, array in self.host().items()})
        self._is_arranged = False

    def settle(self) -> dict[Seat, Exception]:
        """Begin or restore those that have just come; return what is wrong with the checkpoints of some."""
        wrong: dict[Seat, Exception] = {}
        if not self._is_arranged:
            full = self._padded()
            self._numbers = {path: np.stack([seat.numbers[path] for seat in full]) for path in full[0].numbers}
            self._is_arranged = True
        new = [seat for seat in self.sitting if seat.is_new]
        fresh = [seat for seat in new if seat.restored is None]
        if fresh or (new and self.states is None):
            mask = np.array([seat in fresh for seat in self.seats])
            began = self.program.begin(self._seeds(), self._numbers, mask)
            self.states = self.program.place(
                began if self.states is None else self.program.choose(mask, began, self.states)
            )
            self._host = None
        if restored := [seat for seat in new if seat.restored is not None]:
            arrays = {name: np.array(array) for name, array in self.host().items()}
            for seat in restored:
                at = self.seats.index(seat)
                try:
                    for name, array in _fitting(seat.restored or {}, {name: one[at] for name, one in arrays.items()}):
                        arrays[name][at] = array
                except CheckpointError as error:
                    wrong[seat] = error
            self._take(arrays)
        for seat in new:
            seat.is_new, seat.restored = False, None
        return wrong

    def advance(self) -> dict[Seat, dict[str, Any]]:
        """Let all make their steps up to the next report; return the metrics of each."""
        self.settle()
        counts = np.array([seat.count for seat in self._padded()], np.int32)
        self.states, metrics = self.program.advance(self.states, self._numbers, self._seeds(), counts)
        self._host = None
        for name, values in metrics.items():
            if np.ndim(values) != 1:
                raise UserCodeError(
                    f"{self.program.step.what} returned the metric {name!r} of shape {np.shape(values)[1:]}; expected "
                    "a scalar. Take its mean, or leave it out."
                )
        columns = {name: np.asarray(values).tolist() for name, values in metrics.items()}
        for seat in self.sitting:
            seat.count += self.program.num_steps
        return {
            seat: {name: column[at] for name, column in columns.items()}
            for at, seat in enumerate(self.seats)
            if seat is not None
        }

    def _padded(self) -> list[Seat]:
        first = self.sitting[0]
        return [first if seat is None else seat for seat in self.seats]

    def _seeds(self) -> Array:
        return np.array([seat.seed for seat in self._padded()], np.uint32)

    def _take(self, arrays: dict[str, Array]) -> None:
        self.states = self.program.place(self.program.from_host(arrays, self.states))
        self._host = arrays


class Group:
    """The trials of one program: one batch, or several where memory does not suffice for one.

    Attributes:
        most: lanes of a batch at most.
    """

    def __init__(self, program: Program, most: int) -> None:
        self.program = program
        self.most = most
        self.batches: list[Batch] = []
        self.has_advanced = False
        self._coming: list[Seat] = []
        self._first_s = 0.0  # of the first time at a size, most of which is compiling
        self._idle_s = 0.0  # that lanes without a trial have cost since the last change of size
        self._lock = threading.Lock()

    def enter(self, seed: int, numbers: Numbers) -> Seat:
        """Have a trial, which sits from the next step on."""
        seat = Seat(self, seed, numbers)
        with self._lock:
            self._coming.append(seat)
        return seat

    def leave(self, seat: Seat) -> None:
        """Make room for another; one that has left is fine."""
        with self._lock:
            if seat in self._coming:
                self._coming.remove(seat)
            for batch in self.batches:
                if seat in batch.seats:
                    batch.seats[batch.seats.index(seat)] = None

    @property
    def trials(self) -> list[Seat]:
        """All of it, also those that do not sit yet."""
        return [seat for batch in self.batches for seat in batch.sitting] + self._coming

    def settle(self) -> dict[Seat, Exception]:
        """Give those that came a lane, and begin them; return why some cannot."""
        wrong: dict[Seat, Exception] = {}
        with self._lock:
            coming, self._coming = self._coming, []
        while coming:
            batch = self._with_room(len(coming))
            part, coming = coming[: batch.seats.count(None)], coming[batch.seats.count(None) :]
            for seat in part:
                batch.put(seat)
            try:
                wrong |= batch.settle()
            except Exception as error:
                if not self.program.is_out_of_memory(error):
                    raise
                traceback.clear_frames(error.__traceback__)  # they hold arrays
                wrong |= {**self._shrink_to_memory(batch, part, error), **dict.fromkeys(coming, NoRoom())}
                break
        for seat in wrong:
            seat.leave()
        return wrong

    def _shrink_to_memory(self, batch: Batch, part: list[Seat], error: Exception) -> dict[Seat, Exception]:
        """Take back those that were to begin where there is no memory for them; return why they cannot."""
        for seat in part:
            batch.seats[batch.seats.index(seat)] = None
        if batch.sitting or len(self.batches) > 1:  # what runs goes on, with no more than it has
            self.most = max(self.program.multiple, min(self.most, len(batch.sitting) or self.most))
            self.batches = [one for one in self.batches if one.sitting]
            for one in self.batches:
                one.resize(self._size(len(one.sitting)))
            return dict.fromkeys(part, NoRoom())
        if len(batch.seats) <= self.program.multiple:
            raise error
        self.most = len(batch.seats) // 2
        self.batches.remove(batch)
        with self._lock:
            self._coming = part[: self.most]
        return {**dict.fromkeys(part[self.most :], NoRoom()), **self.settle()}

    def _with_room(self, number: int) -> Batch:
        batch = next((one for one in self.batches if None in one.seats), None)
        if batch is None and self.batches and len(self.batches[-1].seats) < self.most:
            batch = self.batches[-1]
            batch.resize(self._size(len(batch.seats) + number))
        if batch is None:
            batch = Batch(self.program, [None] * self._size(number))
            self.batches.append(batch)
        return batch

    def _size(self, number: int) -> int:
        """Return how many lanes a batch of so many trials has: a power of two, so that few sizes are compiled."""
        size = 1
        while size < number:
            size *= 2
        return -(-max(1, min(size, self.most)) // self.program.multiple) * self.program.multiple

    def advance(self) -> dict[Seat, dict[str, Any]]:
        """Let all that sit make their steps; what has no memory for all at once is done in two batches from now on."""
        done: dict[Seat, dict[str, Any]] = {}
        for batch in list(self.batches):
            if batch.sitting:
                began = time.monotonic()
                done |= self._advance(batch)
                self._fit(batch, time.monotonic() - began)
        self.has_advanced |= bool(done)
        return done

    def _advance(self, batch: Batch) -> dict[Seat, dict[str, Any]]:
        try:
            return batch.advance()
        except Exception as error:
            if not self.program.is_out_of_memory(error) or len(batch.seats) <= self.program.multiple:
                raise
        most = self.most = self._size(len(batch.seats) // 2)
        sitting = batch.sitting
        for seat in sitting:
            if not seat.is_new:
                seat.is_new, seat.restored = True, batch.at(seat)
        batch.states = None  # its memory is needed
        self.batches.remove(batch)
        done: dict[Seat, dict[str, Any]] = {}
        for start in range(0, len(sitting), most):
            part = sitting[start : start + most]
            half = Batch(self.program, [*part, *[None] * (most - len(part))])
            self.batches.append(half)
            done |= self._advance(half)
        return done

    def _fit(self, batch: Batch, took_s: float) -> None:
        """Halve a batch when the lanes that nobody sits in have cost as much as compiling for fewer will."""
        self._first_s = self._first_s or took_s
        number, size = len(batch.sitting), len(batch.seats)
        self._idle_s += took_s * (size - number) / size if number <= size // 2 else 0.0
        if self._idle_s > self._first_s and number <= size // 2:
            batch.resize(self._size(number))
            self._idle_s, self._first_s = 0.0, 0.0


class Pool:
    """All trials of one process, by program.

    Args:
        vector: an object of a `VectorTrainable`.
        program: the framework's.
        objects: given by `with_parameters`; CONSTANTS: the paths of what all configs of the sweep have in common.
        most: lanes at a time.
    """

    def __init__(self, vector: Any, program: Callable[..., Program], objects: Mapping[str, Any], most: int) -> None:
        self._vector, self._program, self._objects = vector, program, dict(objects)
        self._static = {*self._objects.pop(CONSTANTS, ()), *((name,) for name in vector.static)}
        self.most = most
        self.groups: dict[Any, Group] = {}
        self._lock = threading.Lock()

    def enter(self, config: Mapping[str, Any], seed: int) -> Seat:
        """Have a trial.

        Raises:
            TrainableError: the config has a whole number of more than 32 bits that is not static.
        """
        numbers, static = numbers_of(config, self._static)
        with np.printoptions(threshold=sys.maxsize, floatmode="unique"):  # arrays whole
            key = repr(static), tuple((path, value.shape) for path, value in numbers.items())
        with self._lock:
            if key not in self.groups:
                program = self._program(self._vector, static, self._objects)
                self.groups[key] = Group(program, self.most)
        return self.groups[key].enter(seed, numbers)

    def grow(self, most: int) -> None:
        """Have more lanes at a time."""
        for group in self.groups.values():
            group.most = most if group.most == self.most else group.most
        self.most = most

    def trials(self) -> Iterable[Seat]:
        """All trials."""
        return [seat for group in self.groups.values() for seat in group.trials]


def _fitting(arrays: Mapping[str, Array], like: Mapping[str, Array]) -> Iterable[tuple[str, Array]]:
    """Yield the arrays of a checkpoint, as those of a state are called and typed.

    Raises:
        CheckpointError: they are others.
    """
    for name in dict.fromkeys([*like, *arrays]):
        found, wanted = arrays.get(name), like.get(name)
        if found is not None and wanted is not None and found.shape == wanted.shape:
            yield name, found.view(wanted.dtype) if found.dtype.kind == "V" else found.astype(wanted.dtype)
            continue
        has = "nothing" if found is None else f"an array of shape {found.shape}"
        needs = "nothing" if wanted is None else f"one of shape {wanted.shape}"
        raise CheckpointError(
            f"the checkpoint holds {has} under {name or 'the state'}, and this trial's state needs {needs}. What gives "
            "a state its shape must be the same in both trials."
        )
