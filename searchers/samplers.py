"""How the values of a domain are distributed: what `Float(0, 1).normal(...)` and the like choose."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np


class Sampler:
    """How the values of a domain are distributed."""

    def __str__(self) -> str:
        return type(self).__name__


@dataclass(frozen=True)
class Uniform(Sampler):
    """Every value is equally likely."""


@dataclass(frozen=True)
class LogUniform(Sampler):
    """The logarithm of the value is uniform."""


class Shaped(Sampler):
    """A distribution that knows no bounds of the domain: a value outside is moved to the nearer one."""

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> float:
        """Return a number."""


@dataclass(frozen=True)
class Normal(Shaped):
    """A normal distribution with `mean` and standard deviation `sd`."""

    mean: float = 0.0
    sd: float = 1.0

    def draw(self, rng: np.random.Generator) -> float:
        return float(rng.normal(self.mean, self.sd))


@dataclass(frozen=True)
class LogNormal(LogUniform, Shaped):
    """The logarithm is normal with `mean` and `sd`; a searcher that only knows ranges takes it as a log range."""

    mean: float = 0.0
    sd: float = 1.0

    def draw(self, rng: np.random.Generator) -> float:
        return float(rng.lognormal(self.mean, self.sd))


@dataclass(frozen=True)
class Beta(Shaped):
    """A beta distribution over 0 to 1."""

    a: float = 1.0
    b: float = 1.0

    def draw(self, rng: np.random.Generator) -> float:
        return float(rng.beta(self.a, self.b))


@dataclass(frozen=True)
class Weighted(Sampler):
    """Each option of a choice has its own probability; a searcher with a model takes them as equally likely."""

    weights: tuple[float, ...]


@dataclass(frozen=True)
class Grid(Sampler):
    """Every value is tried: a grid variable."""


@dataclass(frozen=True)
class Quantized(Sampler):
    """Values of `sampler`, rounded to multiples of `q`."""

    sampler: Sampler
    q: float

    def get_sampler(self) -> Sampler:
        """Return the distribution before rounding."""
        return self.sampler
