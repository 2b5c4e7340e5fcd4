"""Functions with known minima, for judging how good the configs are that a search finds."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import sweep as tune

__all__ = ["ACKLEY_10", "BRANIN", "HARTMANN_6", "Task", "bbob", "has_bbob"]


@dataclass(frozen=True)
class Task:
    """A function to minimise over a box.

    Attributes:
        low, high: bounds, one for each variable.
        minimum: the smallest value that there is.
        num_evaluations: how often a search may evaluate it.
    """

    name: str
    function: Callable[[Sequence[float]], float]
    low: tuple[float, ...]
    high: tuple[float, ...]
    minimum: float
    num_evaluations: int = 100

    @property
    def names(self) -> list[str]:
        return [f"x{number}" for number in range(len(self.low))]

    @property
    def space(self) -> dict[str, Any]:
        """The box as a search space."""
        bounds = zip(self.names, self.low, self.high, strict=True)
        return {name: tune.uniform(low, high) for name, low, high in bounds}

    def regret(self, config: Any) -> float:
        """How far above the minimum the function is there."""
        return float(self.function([config[name] for name in self.names])) - self.minimum


def branin(x: Sequence[float]) -> float:
    """Return Branin's function; its three minima are equal."""
    b, c, t = 5.1 / (4 * math.pi**2), 5 / math.pi, 1 / (8 * math.pi)
    return (x[1] - b * x[0] ** 2 + c * x[0] - 6) ** 2 + 10 * (1 - t) * math.cos(x[0]) + 10


_HARTMANN_ALPHA = np.array([1.0, 1.2, 3.0, 3.2])
_HARTMANN_A = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
_HARTMANN_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann_6(x: Sequence[float]) -> float:
    """Return Hartmann's function of six variables."""
    inner = (_HARTMANN_A * (np.asarray(x) - _HARTMANN_P) ** 2).sum(axis=1)
    return -float((_HARTMANN_ALPHA * np.exp(-inner)).sum())


def ackley(x: Sequence[float]) -> float:
    """Return Ackley's function; its one minimum lies at the origin, among many others."""
    values = np.asarray(x)
    hill = -20 * math.exp(-0.2 * math.sqrt(float((values**2).mean())))
    return hill - math.exp(float(np.cos(2 * math.pi * values).mean())) + 20 + math.e


BRANIN = Task("Branin", branin, (-5.0, 0.0), (10.0, 15.0), 0.39788735772973816)
HARTMANN_6 = Task("Hartmann-6", hartmann_6, (0.0,) * 6, (1.0,) * 6, -3.322368011415515)
ACKLEY_10 = Task("Ackley-10", ackley, (-32.768,) * 10, (32.768,) * 10, 0.0)


def has_bbob() -> bool:
    """Whether the package with the 24 functions of BBOB is there: pip install ioh."""
    return importlib.util.find_spec("ioh") is not None


def bbob(number: int, dimension: int = 5) -> Task:
    """Return function `number`, 1 to 24, of BBOB, instance 1.

    Source: Hansen, Finck, Ros, Auger 2009, Real-Parameter Black-Box Optimization Benchmarking; computed by `ioh`.
    """
    import ioh

    problem = ioh.get_problem(number, instance=1, dimension=dimension, problem_class=ioh.ProblemClass.BBOB)
    return Task(
        f"f{number}",
        lambda x: float(problem(list(x))),
        (-5.0,) * dimension,
        (5.0,) * dimension,
        float(problem.optimum.y),
        200,
    )
