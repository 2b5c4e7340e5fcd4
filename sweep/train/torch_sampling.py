"""How one rank gets its part of what a sampler of the user's gives, with the same random numbers in every rank."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from typing import Any

import numpy
import torch
from torch.utils.data import Sampler

__all__ = ["ShardedSampler", "chain", "generator_states", "restore_generators", "seed_cpu_generators"]

# Rounds that a user's sampler is asked for at once: changing the generators back and forth costs 0.3 ms each time.
_ROUNDS = 128


def chain(sampler: Any) -> Iterator[Any]:
    """Give a sampler and those it wraps, outermost first."""
    seen: list[Any] = []
    while sampler is not None and all(sampler is not other for other in seen):
        seen.append(sampler)
        yield sampler
        inner = getattr(sampler, "sampler", None)
        sampler = getattr(sampler, "batch_sampler", None) if inner is None else inner


class ShardedSampler(Sampler[Any]):
    """Gives one rank every n-th item of a sampler or batch sampler that knows nothing of ranks.

    All ranks get the same number of items, and together all of them: the last round is filled with the first items, or
    left out with `drop_last`. For that the wrapped sampler must give every rank the same sequence. So it is run on
    global generators of its own (torch's on the CPU, `random`, numpy's), seeded alike in all ranks and anew in each
    epoch; the trial's do not move. A generator that the sampler holds itself must be seeded alike in all ranks. It is
    asked for some rounds ahead, and may be endless. Attributes that this class lacks are the wrapped sampler's.

    Attributes:
        sampler: the wrapped one.
        rank, num_replicas: which part of how many.
        epoch: set by `set_epoch`; added to the seed.
    """

    def __init__(self, sampler: Iterable[Any], rank: int, num_replicas: int, *, seed: int = 0, drop_last: bool = False):
        super().__init__()
        self.sampler = sampler
        self.rank = rank
        self.num_replicas = num_replicas
        self.seed = seed
        self.drop_last = drop_last
        self.epoch = 0

    def __iter__(self) -> Iterator[Any]:
        own: tuple[Any, ...] | None = None

        @contextmanager
        def own_generators() -> Iterator[None]:
            nonlocal own
            outer = generator_states()
            if own is None:
                seed_cpu_generators(self.seed + self.epoch)
            else:
                restore_generators(own)
            try:
                yield
            finally:
                own = generator_states()
                restore_generators(outer)

        with own_generators():
            items = iter(self.sampler)
        first: list[Any] = []
        while True:
            with own_generators():
                chunk = list(islice(items, _ROUNDS * self.num_replicas))
            first = first or chunk[: self.num_replicas]
            end = len(chunk) - len(chunk) % self.num_replicas
            yield from chunk[self.rank : end : self.num_replicas]
            if len(chunk) < _ROUNDS * self.num_replicas:
                break
        rest = chunk[end:]
        if rest and not self.drop_last:
            # Those of few items may be needed more than once: 2 items for 5 ranks.
            filled = rest + list(islice(cycle(first), self.num_replicas - len(rest)))
            yield filled[self.rank]

    def __len__(self) -> int:
        num_items = len(self.sampler)  # type: ignore[arg-type]  # a TypeError when it has no length, as without us
        return num_items // self.num_replicas if self.drop_last else -(-num_items // self.num_replicas)

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next iteration is; it is passed on to a wrapped sampler that has this method."""
        self.epoch = epoch
        for sampler in chain(self.sampler):
            if callable(getattr(sampler, "set_epoch", None)):
                sampler.set_epoch(epoch)
                return

    def __getattr__(self, name: str) -> Any:
        # While a copy is being made there is no wrapped sampler yet.
        if name.startswith("__") or "sampler" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.sampler, name)


def generator_states() -> tuple[Any, ...]:
    """Return the states of the global generators of torch's CPU, `random` and numpy."""
    return torch.get_rng_state(), random.getstate(), numpy.random.get_state(legacy=False)


def restore_generators(states: tuple[Any, ...]) -> None:
    """Put the global generators into states of before."""
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    numpy.random.set_state(states[2])


def seed_cpu_generators(seed: int) -> None:
    """Seed the same generators; not by `torch.manual_seed`, which also moves the generators of every GPU."""
    torch.default_generator.manual_seed(seed % (1 << 64))
    random.seed(seed)
    numpy.random.seed(seed % (1 << 32))
