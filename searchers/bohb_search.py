"""Search with the model of BOHB: kernel densities of the good and of the bad configs, one pair for each budget."""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from statistics import NormalDist
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from searchers import checks
from searchers.base import NOT_NOW, Config, Signal, derived_seed, keyed_rng
from searchers.errors import SearchError, SpaceError
from searchers.history import HistorySearch
from searchers.keywords import refuse_unknown
from searchers.named_space import DomainSpace, Range, Values
from searchers.space import Categorical, Domain, Float, Integer, Normal

Array = NDArray[np.float64]

_STANDARD = NormalDist()
_INNER = 1e-12  # how near to 0 and 1 the quantiles of a normal distribution are asked for
_MOST = 1000  # points of each density, so that a suggestion costs the same however many there are
_FLOOR = math.log(1e-32)  # densities below it count as it, so that nothing is gained by being ever farther from the bad
_erf = np.frompyfunc(math.erf, 1, 1)


@dataclass(frozen=True, slots=True)
class _Tuning:
    """The constants of the model, under the names and with the defaults that HpBandSter has; see `bohb_config`."""

    min_points_in_model: int | None = None
    top_n_percent: float = 15
    num_samples: int = 64
    random_fraction: float = 1 / 3
    bandwidth_factor: float = 3
    min_bandwidth: float = 1e-3

    def __post_init__(self) -> None:
        if self.min_points_in_model is not None:
            checks.whole("min_points_in_model of bohb_config", self.min_points_in_model, least=1)
        checks.whole("num_samples of bohb_config", self.num_samples, least=1)
        checks.number("top_n_percent of bohb_config", self.top_n_percent, above=0, below=100)
        checks.number("random_fraction of bohb_config", self.random_fraction, least=0, most=1)
        checks.number("bandwidth_factor of bohb_config", self.bandwidth_factor, above=0)
        checks.number("min_bandwidth of bohb_config", self.min_bandwidth, above=0, most=1)

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> Self:
        known = [field.name for field in fields(cls)]
        if given is not None and not isinstance(given, Mapping):
            checks.refuse("bohb_config", given, f"a dict with some of {', '.join(known)}")
        for name in given or ():
            checks.one_of("a name in bohb_config", name, known)
        return cls(**(given or {}))


# --- parameters as numbers -------------------------------------------------------------------------------------------


class _Axis:
    """One parameter as a number: a range as its part from 0 to 1, a choice as the index of its option."""

    def __init__(self, name: str, domain: Domain) -> None:
        self._domain = domain
        self.num_options = len(domain) if isinstance(domain, Categorical) else 0
        if self.num_options:
            return
        if not isinstance(domain, (Float, Integer)):
            raise SpaceError(f"{name} is {domain!r}; BOHBSearch has ranges of numbers and choices only.")
        base, _ = domain.base_and_q()
        self._normal = NormalDist(base.mean, base.sd) if isinstance(base, Normal) else None
        if self._normal is None:
            self._range = Range(domain)

    def position(self, value: Any) -> float:
        if self.num_options:
            return float(value)
        return self._range.position(value) if self._normal is None else self._normal.cdf(value)

    def value(self, position: float) -> Any:
        """Return the value at a position: one of the domain, as a plain number."""
        domain = self._domain
        if self.num_options:
            return int(position)
        if self._normal is not None:
            point = self._normal.inv_cdf(min(max(position, _INNER), 1 - _INNER))
        else:
            point = self._range.value(position)
        assert isinstance(domain, (Float, Integer))
        if isinstance(domain, Integer) or domain.base_and_q()[1] is not None:
            return domain.quantize(point)
        if self._normal is None and point >= domain.upper > domain.lower:
            return math.nextafter(domain.upper, domain.lower)  # the upper bound is exclusive
        return float(min(max(point, domain.lower), domain.upper))


# --- the model -------------------------------------------------------------------------------------------------------


def _bandwidths(points: Array, num_options: Sequence[int], least: float) -> Array:
    """Return for each column its bandwidth by the normal reference rule, `1.06 * sd * n ** (-1 / (4 + d))`.

    The options of a choice count as all one apart; its bandwidth is the probability of another option, so at most that
    of a uniform draw.
    """
    number, dimensions = points.shape
    spread = points.std(axis=0)
    for j, options in enumerate(num_options):
        if options:
            shares = np.bincount(points[:, j].astype(np.int64), minlength=options) / number
            spread[j] = math.sqrt(max(1 - float(shares @ shares), 0.0) / 2)
    widths = np.maximum(1.06 * spread * number ** (-1 / (4 + dimensions)), least)
    most = [(options - 1) / options if options else math.inf for options in num_options]
    bandwidths: Array = np.minimum(widths, most)
    return bandwidths


class _Density:
    """A mean of product kernels around points: Gaussian cut to [0, 1] for ranges, Aitchison-Aitken for choices."""

    def __init__(self, points: Array, num_options: Sequence[int], min_bandwidth: float) -> None:
        self.points = points
        self.bandwidths = _bandwidths(points, num_options, min_bandwidth)
        self._num_options = num_options
        self._log_scale = np.zeros(len(points))  # of the Gaussian kernels of a point, all columns together
        for j, (width, options) in enumerate(zip(self.bandwidths, num_options, strict=True)):
            if not options:
                mean = points[:, j]
                above, below = _erf((1 - mean) / (width * math.sqrt(2))), _erf(mean / (width * math.sqrt(2)))
                mass = (above + below).astype(np.float64) / 2
                self._log_scale -= np.log(width * math.sqrt(2 * math.pi) * mass)

    def log_at(self, places: Array) -> Array:
        total: Array = np.tile(self._log_scale, (len(places), 1))
        for j, (width, options) in enumerate(zip(self.bandwidths, self._num_options, strict=True)):
            apart = places[:, j, None] - self.points[None, :, j]
            if not options:
                apart /= width
                apart *= apart
                total -= apart / 2
            elif options > 1:
                total += np.where(apart == 0, math.log(1 - width), math.log(width / (options - 1)))
        peak = total.max(axis=1, keepdims=True)
        density: Array = np.log(np.exp(total - peak).mean(axis=1)) + peak[:, 0]
        return density

    def draw(self, num_samples: int, factor: float, rng: np.random.Generator) -> Array:
        """Return random places: each is drawn around a random point, along ranges `factor` times as wide."""
        places = self.points[rng.integers(len(self.points), size=num_samples)]
        for j, (width, options) in enumerate(zip(self.bandwidths, self._num_options, strict=True)):
            parts = rng.random(num_samples)
            if options:
                others = rng.integers(options, size=num_samples)
                places[:, j] = np.where(parts < 1 - width, places[:, j], others)
            else:
                scale = float(width) * factor
                places[:, j] = [_cut_normal(m, scale, p) for m, p in zip(places[:, j], parts, strict=True)]
        return places


def _cut_normal(mean: float, scale: float, part: float) -> float:
    """Return the quantile `part` of a normal distribution that is cut to [0, 1], in which its mean lies."""
    low, high = _STANDARD.cdf(-mean / scale), _STANDARD.cdf((1 - mean) / scale)
    at = min(max(low + part * (high - low), _INNER), 1 - _INNER)
    return min(max(mean + scale * _STANDARD.inv_cdf(at), 0.0), 1.0)


def _without_gaps(points: Array, num_options: Sequence[int], rng: np.random.Generator) -> Array:
    """Return points in which the parameters that a config does not have (NaN) are filled in.

    A gap gets the value of a random other point that has one, and the further gaps of its row those of the same point.
    A parameter that no point has is drawn uniformly.
    """
    filled = points.copy()
    for j, options in enumerate(num_options):
        rows = np.flatnonzero(np.isnan(filled[:, j]))
        if not len(rows):
            continue
        donors = np.flatnonzero(~np.isnan(points[:, j]))
        if len(donors):
            given = points[rng.choice(donors, size=len(rows))]
            filled[rows] = np.where(np.isnan(filled[rows]), given, filled[rows])
        else:
            filled[rows, j] = rng.integers(options, size=len(rows)) if options else rng.random(len(rows))
    return filled


_Model = tuple[_Density, _Density]
"""The densities of the good and of the bad points of one budget."""

_Point = tuple[int, float, list[float]]
"""The number of the suggestion, -1 for a point from elsewhere; the loss, infinite for the worst; the position."""


def _model_of(points: Sequence[_Point], num_options: Sequence[int], tuning: _Tuning, seed: int) -> _Model | None:
    """Return the model of the points of one budget; None while there are too few for one."""
    least = max(tuning.min_points_in_model or 0, len(num_options) + 1)
    numbers, losses = (np.array([point[i] for point in points]) for i in (0, 1))
    num_finite = int(np.isfinite(losses).sum())
    num_good = min(max(least, int(tuning.top_n_percent * len(losses) / 100)), num_finite)
    if num_good < least or len(losses) - num_good < least:
        return None
    # by the number second, so that the order in which results arrive plays no part
    order = np.lexsort((numbers, losses))
    best, rest = order[: min(num_good, max(_MOST, least))], np.sort(order[num_good:])
    newest = rest[np.argsort(numbers[rest], kind="stable")][-max(_MOST, least) :]
    rng = keyed_rng(derived_seed(seed, len(losses)), 1)
    filled = [_without_gaps(np.array([points[i][2] for i in part]), num_options, rng) for part in (best, newest)]
    good, bad = (_Density(part, num_options, tuning.min_bandwidth) for part in filled)
    return good, bad


# --- the searcher ----------------------------------------------------------------------------------------------------


@refuse_unknown()
@final
class BOHBSearch(HistorySearch):
    """Suggest configs from densities of the good and of the bad results at the largest budget that has enough of both.

    To be used with `HyperBandForBOHB`, or any other scheduler that lets many trials run briefly and few of them long. A
    trial's first result at each budget counts for it: at the highest budget that its `time_attr` has reached. A NaN
    there is the worst; a trial that fails counts as the worst at the smallest budget that it has not reached. Each
    suggestion depends on the space, the seed, its number and the results, whatever their order. It takes about 8 ms
    with 1,000 points at the budget that it is made from, about twice that with 5,000 points and more, of which the best
    1,000 of the good and the newest 1,000 of the bad count.

    Args:
        space: nested dict of domains, in which a choice among dicts is a conditional space; None: that of the run.
        bohb_config: constants of the model: `min_points_in_model` (that the good and the bad each must have; at least,
            and by default, one more than there are parameters), `top_n_percent` (15; which are good), `num_samples`
            (64; candidates), `random_fraction` (1/3; of the suggestions are drawn from the space), `bandwidth_factor`
            (3; how much wider candidates are drawn), `min_bandwidth` (0.001; of a parameter's range).
        metric, mode: what is optimised, "min" or "max".
        points_to_evaluate: (partial) configs to suggest first, nested or with names such as `model/lr`.
        seed: int of at least 0; None: the seed of the run.
        max_concurrent: how many trials may be alive at a time, those not counted that `on_pause` named; 0: no limit.
        time_attr: result key that counts progress, in the unit of the budgets.
        budgets: numbers above 0; None: those of the scheduler if it has some, else `max_t` divided by powers of
            `reduction_factor`, down to 1.
        max_t: at least 1. reduction_factor: above 1.

    Raises:
        SpaceError: the space holds a grid or an infinite range, or a point does not fit it.
        SearchError: another argument is wrong.

    Source: Falkner, Klein, Hutter 2018, arXiv:1807.01774, algorithm 2 and equations 2 and 3, with the details of their
    implementation HpBandSter (gaps filled from other points, failures as the worst). Departures: a budget needs enough
    points for two separate sets; at least `min_points_in_model` of its results must be finite, and only such ones are
    good; each set has at most 1,000 points; the kernels of ranges are cut to the range in the densities too, not only
    when candidates are drawn; the bandwidth of a choice does not depend on the order of its options. A failed trial
    counts at the smallest budget that it has not reached, which need not be the one that its bracket had in mind.
    """

    def __init__(
        self,
        space: Mapping[str, Any] | None = None,
        bohb_config: Mapping[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        seed: int | None = None,
        max_concurrent: int = 0,
        *,
        time_attr: str = "training_iteration",
        budgets: Sequence[float] | None = None,
        max_t: float = 81,
        reduction_factor: float = 3,
    ) -> None:
        super().__init__(space, metric, mode, points_to_evaluate, seed)
        self._tuning = _Tuning.of(bohb_config)
        self._max_concurrent = checks.whole("max_concurrent", max_concurrent, hint="0 means no limit.")
        if not isinstance(time_attr, str) or not time_attr:
            checks.refuse("time_attr", time_attr, "the name of a result that counts progress")
        self._time_attr = time_attr
        self._are_own_budgets = budgets is not None
        self._budgets = _powers(max_t, reduction_factor) if budgets is None else _checked_budgets(budgets)
        self._axes: dict[str, _Axis] = {}
        self._points_at: dict[float, list[_Point]] = defaultdict(list)  # by budget
        self._reached: dict[str, float] = {}  # of the open trials that have reported: the highest budget, 0 for none
        self._paused: set[str] = set()

    @property
    def budgets(self) -> tuple[float, ...]:
        """The budgets at which results count, the smallest first."""
        return self._budgets

    def set_budgets(self, milestones: Sequence[float]) -> None:
        """Take the scheduler's milestones as the budgets of all further results, unless some were given here."""
        checked = _checked_budgets(milestones)
        if not self._are_own_budgets:
            self._budgets = checked

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Take the limit of a `ConcurrencyLimiter`: here trials that are paused need not count."""
        self._max_concurrent = checks.whole("max_concurrent", max_concurrent, least=1)
        return True

    def suggest(self, trial_id: str) -> Config | Signal:
        """Return the next config, or `NOT_NOW` while `max_concurrent` trials are alive."""
        num_alive = len(self._open) - len(self._paused)
        if trial_id not in self._open and self._max_concurrent and num_alive >= self._max_concurrent:
            return NOT_NOW
        return super().suggest(trial_id)

    def on_pause(self, trial_id: str) -> None:
        """Hear that a trial waits; it takes none of the `max_concurrent` places then."""
        if trial_id in self._open:
            self._paused.add(trial_id)

    def on_unpause(self, trial_id: str) -> None:
        """Hear that a trial goes on; its next result says so too."""
        self._paused.discard(trial_id)

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Learn from a trial's first result at the highest budget that it has reached."""
        if trial_id not in self._open:
            return
        self._paused.discard(trial_id)
        before = self._reached.setdefault(trial_id, 0.0)
        loss, time = self._loss_or_worst(result), self._time_of(result)
        if loss is None or not time >= self._budgets[0]:
            return
        budget = self._budgets[bisect.bisect_right(self._budgets, time) - 1]
        if budget > before:
            self._reached[trial_id] = budget
            self._learn(trial_id, budget, loss)

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        """Forget a trial; a failure counts as the worst result at the next budget.

        The result of a trial that reported nothing before (`Repeater` passes on means alone) counts for the largest.
        """
        if trial_id not in self._open:
            return
        before = self._reached.pop(trial_id, None)
        self._paused.discard(trial_id)
        if error:
            above = bisect.bisect_right(self._budgets, before or 0.0)
            if above < len(self._budgets):
                self._learn(trial_id, self._budgets[above], math.inf)
        elif before is None and (loss := self._loss_or_worst(result or {})) is not None:
            self._learn(trial_id, self._budgets[-1], loss)
        del self._open[trial_id]

    def observe(self, config: Config, result: Mapping[str, Any]) -> None:
        """Learn from a point that was evaluated elsewhere; without `time_attr` it counts for the largest budget."""
        self._check_goal()
        position = self._position(self._values_of(config))
        time = self._time_of(result)
        index = len(self._budgets) if math.isnan(time) else bisect.bisect_right(self._budgets, time)
        loss = self._loss_or_worst(result)
        if index:
            self._points_at[self._budgets[index - 1]].append((-1, math.inf if loss is None else loss, position))

    def get_state(self) -> Mapping[str, Any]:
        """Return the points of each budget, and the number and seed of the next suggestion."""
        points = []
        for budget, known in sorted(self._points_at.items()):
            for number, loss, position in known:
                parts = [None if math.isnan(part) else part for part in position]
                points.append([budget, number, loss if math.isfinite(loss) else None, parts])
        return {**super().get_state(), "points": points}

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._take_goal(state, has_begun=bool(self._points_at))
        super().set_state({**state, "points": []})
        for budget, number, loss, parts in state["points"]:
            position = [math.nan if part is None else float(part) for part in parts]
            self._points_at[float(budget)].append((int(number), math.inf if loss is None else float(loss), position))
        if self._space is not None:
            self._check_restored()

    def _read(self, space: Any) -> DomainSpace:
        taken = DomainSpace(space, "BOHBSearch")
        self._axes = {name: _Axis(name, domain) for name, domain in sorted(taken.parameters.items())}
        self._check_restored()
        return taken

    def _propose(self, number: int) -> Values | Signal:
        # A stream of its own: what `random_fraction` is compared with must say nothing about the values drawn later.
        rng = keyed_rng(derived_seed(self._seed, number), 0)
        model = None if rng.random() < self._tuning.random_fraction else self._model()
        if model is None:
            return {}
        candidates = model[0].draw(self._tuning.num_samples, self._tuning.bandwidth_factor, rng)
        good, bad = (np.maximum(density.log_at(candidates), _FLOOR) for density in model)
        best = candidates[np.argmax(good - bad)]
        return {name: axis.value(float(at)) for (name, axis), at in zip(self._axes.items(), best, strict=True)}

    def _model(self) -> _Model | None:
        num_options = [axis.num_options for axis in self._axes.values()]
        for budget in sorted(self._points_at, reverse=True) if num_options else ():
            model = _model_of(self._points_at[budget], num_options, self._tuning, self._seed)
            if model is not None:
                return model
        return None

    def _learn(self, trial_id: str, budget: float, loss: float) -> None:
        tried, _ = self._open[trial_id]
        assert tried.number is not None
        self._points_at[budget].append((tried.number, loss, self._position(tried.values)))

    def _position(self, values: Values) -> list[float]:
        self._known_space()
        return [axis.position(values[name]) if name in values else math.nan for name, axis in self._axes.items()]

    def _loss_or_worst(self, result: Mapping[str, Any]) -> float | None:
        """Return what is minimised; infinity for what is no finite number, None without the metric."""
        loss = self._loss_of(result)
        if math.isnan(loss):
            return None if result.get(str(self.metric)) is None else math.inf
        return loss

    def _time_of(self, result: Mapping[str, Any]) -> float:
        """Return the progress; NaN for what is no number, with which no comparison holds."""
        time: Any = result.get(self._time_attr)
        return float(time) if checks.is_number(time, is_finite=False) else math.nan

    def _check_restored(self) -> None:
        """Refuse restored points of another space."""
        for _, _, position in (points[0] for points in self._points_at.values()):
            if len(position) != len(self._axes):
                found = f"the restored points have {len(position)} parameters, the space has {len(self._axes)}"
                raise SearchError(f"{found}; a search is restored with the space that it was saved with.")


TuneBOHB = BOHBSearch


def _powers(max_t: float, reduction_factor: float) -> tuple[float, ...]:
    checks.number("max_t", max_t, least=1)
    checks.number("reduction_factor", reduction_factor, above=1)
    most, eta = Fraction(max_t), Fraction(reduction_factor)
    powers = range(round(math.log(max_t) / math.log(reduction_factor)), -1, -1)
    largest = next(power for power in powers if most >= eta**power)
    budgets = [int(most / eta**largest)]
    for _ in range(largest):
        budgets.append(min(max(int(budgets[-1] * eta), budgets[-1] + 1), int(most)))
    return tuple(map(float, sorted(set(budgets))))


def _checked_budgets(budgets: Any) -> tuple[float, ...]:
    is_list = isinstance(budgets, Sequence) and not isinstance(budgets, (str, bytes))
    if not is_list or not len(budgets) or not all(checks.is_number(budget) and budget > 0 for budget in budgets):
        checks.refuse("budgets", budgets, "a list of finite numbers above 0, such as [1, 3, 9]")
    return tuple(sorted({float(budget) for budget in budgets}))
