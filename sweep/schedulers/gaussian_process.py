"""A time-varying Gaussian-process bandit: where in the unit cube the next gain is likely to be large."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
_Bound = Callable[[Array], Array]  # of points, one per row

_FITTED = 100  # the newest gains, by which the kernel is chosen
_LENGTHS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
_SCORE_LENGTHS = (0.5, 2.0, math.inf)  # infinite: the score at the start says nothing
_NOISES = (0.001, 0.01, 0.1, 0.5)
_EPSILONS = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3)
_GRIDS = (_LENGTHS, _EPSILONS, _NOISES, _SCORE_LENGTHS)
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
    """Length scale, forgetting rate, share of noise, and length scale of the score, as `_GRIDS` orders them."""

    length: float
    epsilon: float
    noise: float
    score_length: float

    def correlation(self, apart: _Apart) -> Array:
        distances = apart.points / self.length**2
        if math.isfinite(self.score_length):
            distances += apart.scores / self.score_length**2
        correlations = np.exp(-0.5 * distances)
        if self.epsilon:
            correlations *= (1.0 - self.epsilon) ** (0.5 * apart.times)
        return np.asarray(correlations, dtype=np.float64)

    def factor(self, apart: _Apart) -> Array:
        """Return the Cholesky factor of the covariance of noisy gains, for a signal variance of 1."""
        covariance = self.correlation(apart)
        covariance[np.diag_indices_from(covariance)] += self.noise
        return np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)


class _Apart(NamedTuple):
    """How far rows (time, score, point...) are from others: squared for points and scores, the time as it is."""

    times: Array
    scores: Array
    points: Array


def _apart(some: Array, others: Array) -> _Apart:
    a, b = some[:, 2:], others[:, 2:]
    points = np.square(a).sum(axis=1)[:, None] + np.square(b).sum(axis=1) - 2.0 * (a @ b.T)
    return _Apart(np.abs(some[:, :1] - others[:, 0]), np.square(some[:, 1:2] - others[:, 1]), np.maximum(points, 0.0))


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
    rows, targets = _standardised(gains)
    scores = np.array([one.score for one in gains])
    low, width = float(scores.min()), float(np.ptp(scores)) or 1.0

    def context(when: float, what: float) -> tuple[float, float]:
        return when, min(max((what - low) / width, -_FURTHEST), _FURTHEST)

    rows[:, 1] = (rows[:, 1] - low) / width
    kernel, variance = _most_likely(rows[-_FITTED:], targets[-_FITTED:])
    factor = kernel.factor(_apart(rows, rows))
    weights = np.linalg.solve(factor.T, np.linalg.solve(factor, targets))
    soon = np.array([(*context(one.time, one.score), *one.point) for one in running]).reshape(-1, 2 + num_dimensions)
    known = np.vstack([rows, soon])
    spread = np.linalg.inv(kernel.factor(_apart(known, known))) if len(soon) else np.linalg.inv(factor)
    kappa = math.sqrt(0.2 + max(0.0, math.log(0.4 * len(gains))))
    here = np.array(context(time, score))

    def bound(points: Array) -> Array:
        asked = np.hstack([np.broadcast_to(here, (len(points), 2)), points])
        correlations = kernel.correlation(_apart(known, asked))
        mean = weights @ correlations[: len(rows)]
        left = np.maximum(1.0 - np.square(spread @ correlations).sum(axis=0), 0.0)
        return np.asarray(mean + kappa * np.sqrt(variance * left), dtype=np.float64)

    best = _maximum(bound, num_dimensions, rng)
    return tuple(float(value) for value in best)


def _maximum(bound: _Bound, num_dimensions: int, rng: np.random.Generator) -> Array:
    """Return the best of random points, improved by ever smaller random steps."""
    points = rng.random((_NUM_CANDIDATES, num_dimensions))
    values = bound(points)
    best: Array = points[int(values.argmax())]
    most = float(values.max())
    for width in _REFINEMENTS:
        points = np.clip(best + rng.normal(0.0, width, (_NUM_STEPS, num_dimensions)), 0.0, 1.0)
        values = bound(points)
        if float(values.max()) > most:
            best, most = points[int(values.argmax())], float(values.max())
    return best


def _standardised(gains: Sequence[Gain]) -> tuple[Array, Array]:
    """Return rows (time, score, point...), the oldest first, and their gains with mean 0 and variance 1.

    A trial that diverged gained as little as the worst of those that did not.
    """
    ordered = sorted(gains, key=lambda one: one.time)
    rows = np.array([(one.time, one.score, *one.point) for one in ordered])
    targets = np.array([one.gain for one in ordered])
    is_finite = np.isfinite(targets)
    targets[~is_finite] = targets[is_finite].min() if is_finite.any() else 0.0
    largest = float(np.abs(targets).max())
    targets -= targets.mean()
    deviation = float(targets.std())
    return rows, targets / deviation if deviation > 1e-12 * largest else np.zeros(len(targets))  # rounding is no gain


def _most_likely(rows: Array, targets: Array) -> tuple[_Kernel, float]:
    """Return the kernel of the grid, found one coordinate after another, twice, and its signal variance."""
    apart = _apart(rows, rows)
    seen: dict[tuple[float, ...], tuple[float, float]] = {}

    def fit(values: tuple[float, ...]) -> tuple[float, float]:
        if values not in seen:
            seen[values] = _likelihood(_Kernel(*values), apart, targets)
        return seen[values]

    best: tuple[float, ...] = (0.4, 0.01, 0.1, math.inf)
    for _ in range(2):
        for i, grid in enumerate(_GRIDS):
            best = max([best, *((*best[:i], value, *best[i + 1 :]) for value in grid)], key=lambda one: fit(one)[0])
    return _Kernel(*best), fit(best)[1]


def _likelihood(kernel: _Kernel, apart: _Apart, targets: Array) -> tuple[float, float]:
    """Return the logarithm of the marginal likelihood, up to a constant, and the most likely signal variance.

    The variance has an inverse gamma prior around 1, so that two or three gains do not make it vanish.
    """
    factor = kernel.factor(apart)
    whitened = np.linalg.solve(factor, targets)
    degrees = 0.5 * len(targets) + _PRIOR
    scale = 0.5 * float(whitened @ whitened) + _PRIOR
    return -float(np.log(np.diag(factor)).sum()) - degrees * math.log(scale), scale / degrees
