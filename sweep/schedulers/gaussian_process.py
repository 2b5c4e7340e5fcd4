"""A time-varying Gaussian-process bandit: where in the unit cube the next gain is likely to be large."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_FITTED = 100  # the newest gains, by which the kernel is chosen
_GRIDS = {
    "length": (0.05, 0.1, 0.2, 0.4, 0.8, 1.6),
    "epsilon": (0.0, 0.003, 0.01, 0.03, 0.1, 0.3),
    "noise": (0.001, 0.01, 0.1, 0.5),
    "score_length": (0.5, 2.0, math.inf),  # infinite: the score at the start says nothing
}
_PRIOR = 2.0  # of the variance of standardised gains: as if so many pairs of them had shown that it is 1
_FURTHEST = 10.0  # from the scores that gains began with, in widths of their range: what lies beyond is as unknown
_NUM_CANDIDATES = 256
_REFINEMENTS = (0.1, 0.05, 0.02, 0.008, 0.003)  # widths of the steps around the best candidate so far
_NUM_STEPS = 64


@dataclass(frozen=True, slots=True)
class Gain:
    """What one interval of one trial brought.

    Attributes:
        time: when it began, in intervals. score: what it began with.
        point: its hyperparameters, each in [0, 1].
        gain: change of the score per unit of time; -inf: it diverged.
    """

    time: float
    score: float
    point: tuple[float, ...]
    gain: float


@dataclass(frozen=True, slots=True)
class _Kernel:
    """How alike intervals are: length scale, forgetting rate, share of noise, and length scale of the score."""

    length: float
    epsilon: float
    noise: float
    score_length: float

    def correlation(self, some: Array, others: Array) -> Array:
        """Return how each of some rows (time, score, point...) goes with each of the others."""
        (times, scores), (other_times, other_scores) = some[:, :2].T, others[:, :2].T
        a, b = some[:, 2:], others[:, 2:]
        points = np.square(a).sum(axis=1)[:, None] + np.square(b).sum(axis=1) - 2.0 * (a @ b.T)
        distances = np.maximum(points, 0.0) / self.length**2
        distances += np.square(np.subtract.outer(scores, other_scores)) / self.score_length**2
        decay = 0.5 * math.log1p(-self.epsilon) * np.abs(np.subtract.outer(times, other_times))
        return np.asarray(np.exp(decay - 0.5 * distances), dtype=np.float64)

    def factor(self, rows: Array) -> Array:
        """Return the Cholesky factor of the covariance of noisy gains, for a signal variance of 1."""
        covariance = self.correlation(rows, rows) + self.noise * np.eye(len(rows))
        return np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)


def choose_point(
    gains: Sequence[Gain],
    running: Sequence[Gain],
    *,
    time: float,
    score: float,
    num_dimensions: int,
    rng: np.random.Generator,
) -> tuple[float, ...]:
    """Return the point of the unit cube with the largest upper confidence bound of the gain, at a time and a score.

    Args:
        gains: what is known, in any order; none: the point is random.
        running: intervals under way, whose `gain` is not looked at: their points will be known soon, so they lower the
            uncertainty around them, and not the expectation.
        time, score: of the interval to come, as in `Gain`.

    Source: Parker-Holder, Nguyen and Roberts 2020, arXiv:2002.02518, algorithm 1 with equations 5 to 7; running points
    as in Desautels et al. 2014, JMLR 15 (GP-BUCB). Departures: length scales, noise and forgetting are the most likely
    ones of a fixed grid instead of a gradient search, and the signal variance follows in closed form, so that nothing
    depends on where a search begins; beta is 0.2 + log(0.4 n), not below 0.2, in place of the constants of the proof.
    """
    if not gains:
        return tuple(float(value) for value in rng.random(num_dimensions))
    ordered = sorted(gains, key=lambda one: one.time)
    scores = [one.score for one in ordered]
    low, width = min(scores), max(scores) - min(scores) or 1.0

    def rows_of(intervals: Iterable[Gain]) -> Array:
        rows = np.array([(one.time, one.score, *one.point) for one in intervals]).reshape(-1, 2 + num_dimensions)
        with np.errstate(over="ignore"):
            rows[:, 1] = np.clip((rows[:, 1] - low) / width, -_FURTHEST, _FURTHEST)
        return rows

    rows, targets = rows_of(ordered), _standardised(np.array([one.gain for one in ordered]))
    kernel, variance = _most_likely(rows[-_FITTED:], targets[-_FITTED:])
    factor = kernel.factor(rows)
    weights = np.linalg.solve(factor.T, np.linalg.solve(factor, targets))
    known = np.vstack([rows, rows_of(running)])
    spread = np.linalg.inv(kernel.factor(known))
    kappa = math.sqrt(0.2 + max(0.0, math.log(0.4 * len(gains))))
    here = rows_of([Gain(time, score, (0.0,) * num_dimensions, 0.0)])[:, :2]

    def bound(points: Array) -> Array:
        asked = np.hstack([np.repeat(here, len(points), axis=0), points])
        correlations = kernel.correlation(known, asked)
        mean = weights @ correlations[: len(rows)]
        left = np.maximum(1.0 - np.square(spread @ correlations).sum(axis=0), 0.0)
        return np.asarray(mean + kappa * np.sqrt(variance * left), dtype=np.float64)

    return tuple(float(value) for value in _maximum(bound, num_dimensions, rng))


def _maximum(bound: Callable[[Array], Array], num_dimensions: int, rng: np.random.Generator) -> Array:
    """Return the best of random points, improved by ever smaller random steps."""
    points = rng.random((_NUM_CANDIDATES, num_dimensions))
    best: Array = points[int(bound(points).argmax())]
    for width in _REFINEMENTS:
        steps = np.clip(best + rng.normal(0.0, width, (_NUM_STEPS, num_dimensions)), 0.0, 1.0)
        points = np.vstack([best, steps])
        best = points[int(bound(points).argmax())]
    return best


def _standardised(gains: Array) -> Array:
    """Return gains with mean 0 and variance 1; a trial that diverged gained as little as the worst of the others."""
    is_finite = np.isfinite(gains)
    gains = np.where(is_finite, gains, gains[is_finite].min() if is_finite.any() else 0.0)
    largest = float(np.abs(gains).max())
    gains = gains - gains.mean()
    deviation = float(gains.std())
    return gains / deviation if deviation > 1e-12 * largest else np.zeros(len(gains))  # rounding is no gain


def _most_likely(rows: Array, targets: Array) -> tuple[_Kernel, float]:
    """Return the kernel of the grid, found one coordinate after another, twice, and its signal variance."""
    best = _Kernel(length=0.4, epsilon=0.01, noise=0.1, score_length=math.inf)
    for name, grid in [*_GRIDS.items()] * 2:
        kernels = [best, *(replace(best, **{name: value}) for value in grid)]
        best = max(kernels, key=lambda kernel: _likelihood(kernel, rows, targets)[0])
    return best, _likelihood(best, rows, targets)[1]


def _likelihood(kernel: _Kernel, rows: Array, targets: Array) -> tuple[float, float]:
    """Return the logarithm of the marginal likelihood, up to a constant, and the most likely signal variance.

    The variance has an inverse gamma prior around 1, so that two or three gains do not make it vanish.
    """
    factor = kernel.factor(rows)
    whitened = np.linalg.solve(factor, targets)
    degrees = 0.5 * len(targets) + _PRIOR
    scale = 0.5 * float(whitened @ whitened) + _PRIOR
    return -float(np.log(np.diag(factor)).sum()) - degrees * math.log(scale), scale / degrees
