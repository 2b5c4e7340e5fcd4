"""Population based bandits: population based training whose new values a model of past gains chooses."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, final

import numpy as np

from searchers.variants import fresh
from sweep import checks
from sweep.core.messages import Decision
from sweep.core.results import flatten
from sweep.core.trial import Trial
from sweep.errors import ConfigError, refuse_unknown
from sweep.schedulers.explore import customised
from sweep.schedulers.gaussian_process import Gain, choose_point
from sweep.schedulers.pbt import FIRST, Explore, PopulationScheduler

_MOST_GAINS = 500  # the newest that are remembered: a choice costs about a quarter of a second with so many
_MOST_RUNNING = 100  # other trials whose intervals are under way, the newest, that a choice keeps away from
_MOST_MARKS = 16  # a checkpoint belongs to one of the last reports: to this one or, saved on demand, to the one before
_LARGEST = 1e100

Mark = tuple[float, float]  # progress and score


@dataclass(frozen=True, slots=True)
class _Bound:
    """The range of one hyperparameter; `path` are the keys that lead to it."""

    path: tuple[Any, ...]
    low: float
    high: float

    def share(self, value: Any) -> float | None:
        """Return where a value lies in the range, 0 to 1; None where it is no number."""
        if not checks.is_number(value):
            return None
        return min(max((float(value) - self.low) / (self.high - self.low), 0.0), 1.0)

    def put(self, config: dict[str, Any], share: float) -> None:
        """Set the value; where the old one is an int, to the nearest whole number in the range, if there is one."""
        value: int | float = min(max(self.low + share * (self.high - self.low), self.low), self.high)
        place: Any = config
        for key in self.path[:-1]:
            place = place.setdefault(key, {})
            if not isinstance(place, dict):
                return  # this branch of the config has no such key
        old = place.get(self.path[-1])
        if isinstance(old, Integral) and not isinstance(old, bool):
            first, last = math.ceil(self.low), math.floor(self.high)
            value = min(max(round(value), first), last) if first <= last else int(old)
        place[self.path[-1]] = value


@dataclass(slots=True)
class _Track:
    """What is known of one trial's course."""

    config: Mapping[str, Any] | None = None  # what it runs, or will run when it has become a clone
    point: tuple[float, ...] | None = None  # its place in the unit cube, if it has one
    begin: Mark | None = None  # where its current interval began; None: nowhere, or it has ended
    last: Mark | None = None  # its last report
    saved: Mark | None = None  # what its latest checkpoint holds
    marks: dict[int, Mark] = field(default_factory=dict)  # its last reports, by their count


@refuse_unknown()
@final
class PB2(PopulationScheduler):
    """Let the worst of a population continue from the best, with hyperparameters chosen by a model of what they gain.

    As in `PopulationBasedTraining`, a trial that is among the worst at the end of its interval takes the checkpoint of
    one of the best. Its new hyperparameters are then those for which a Gaussian process, fitted to what all intervals
    so far gained per unit of progress, promises most. A small population suffices, 4 for instance.

    Args:
        perturbation_interval: progress between two perturbation points, above 0. At least two reports should fall into
            an interval, or a new trial's first interval teaches nothing: where it began is not known.
        hyperparam_bounds: what may be changed: per config key [low, high], or a dict of these. A key that a config
            lacks is drawn from there; an int stays one. The scale is linear: search the exponent of a learning rate
            that spans decades.
        others: as for `PopulationBasedTraining`.

    Raises:
        ConfigError: an argument is wrong, or no bounds are given.

    Source: Parker-Holder, Nguyen and Roberts 2020, arXiv:2002.02518, algorithm 1. Departures: as in
    `PopulationBasedTraining`, and the newest 500 intervals are remembered. The score at an interval's start is an input
    of the model beside time and hyperparameters, as in the authors' program, with a length scale of its own. An
    interval that ended in NaN counts as the worst gain so far, so that the model avoids what diverges. A clone's
    interval begins with the score that the checkpoint had, not with that of the source when it was copied. An int is
    rounded to the nearest whole number, not cut off. Forgetting is per interval, and how fast is fitted with the
    length scales, as `sweep.schedulers.gaussian_process` says.
    """

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: float = 60.0,
        hyperparam_bounds: Mapping[str, Any] | None = None,
        quantile_fraction: float = 0.25,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = False,
        custom_explore_fn: Explore | None = None,
    ) -> None:
        limits = (perturbation_interval, 0.0, quantile_fraction)
        super().__init__(time_attr, metric, mode, *limits, custom_explore_fn, log_config, require_attrs, synch)
        self._bounds = tuple(_checked_bounds(hyperparam_bounds))
        if not self._bounds:
            raise ConfigError(
                "nothing is given that could be changed: pass hyperparam_bounds={'lr': [0.0001, 0.1]}, the least and "
                "the largest value per key."
            )
        self.mutated_paths = tuple("/".join(str(key) for key in bound.path) for bound in self._bounds)
        self._gains: deque[Gain] = deque(maxlen=_MOST_GAINS)
        self._tracks: dict[str, _Track] = defaultdict(_Track)

    def complete_config(self, config: Mapping[str, Any], number: int) -> dict[str, Any]:
        """Return a trial's config with a uniform draw for every bounded key that it lacks."""
        new: dict[str, Any] = fresh(config)
        known = flatten(config)
        shares = self._rng(FIRST, number, 0).random(len(self._bounds))
        for bound, path, share in zip(self._bounds, self.mutated_paths, shares, strict=True):
            if path not in known:
                bound.put(new, float(share))
        return new

    def on_trial_end(self, trial: Trial) -> Sequence[Decision]:
        """Forget what the trial is about to gain."""
        decisions = super().on_trial_end(trial)
        self._tracks[trial.id].begin = None
        return decisions

    # --- what there is to learn from ---------------------------------------------------------------------------------

    def _heard(self, trial: Trial, time: float, score: float) -> None:
        track = self._tracks[trial.id]
        if trial.config is not track.config:
            point = self._point(trial.config)
            if point != track.point:  # new, or its config was changed from outside: its interval began unseen
                track.begin = track.saved = None
                track.marks, track.point = {}, point
            track.config = trial.config
        track.last = track.marks[trial.count] = (time, _tame(score))
        if len(track.marks) > _MOST_MARKS:
            del track.marks[next(iter(track.marks))]
        _find_checkpoint(track, trial)
        if track.begin is None:
            track.begin = track.last

    def _came_to_point(self, trial: Trial, time: float, score: float) -> None:
        track = self._tracks[trial.id]
        score = _tame(score)
        if track.begin is not None and track.point is not None:
            start, before = track.begin
            if start < time < math.inf and before > -math.inf:
                gain = _tame((score - before) / (time - start))
                self._gains.append(Gain(start / self.perturbation_interval, before, track.point, gain))
        track.begin = time, score

    def _point(self, config: Mapping[str, Any]) -> tuple[float, ...] | None:
        values = flatten(config)
        pairs = zip(self._bounds, self.mutated_paths, strict=True)
        point = tuple(share for bound, path in pairs if (share := bound.share(values.get(path))) is not None)
        return point if len(point) == len(self._bounds) else None

    # --- choosing ----------------------------------------------------------------------------------------------------

    def _explored(self, target_id: str, source: Trial, rng: np.random.Generator) -> dict[str, Any]:
        _find_checkpoint(self._tracks[source.id], source)
        return self._chosen(target_id, source.id, source.config, rng)

    def _became_clone(self, target_id: str, source_id: str, config: Mapping[str, Any]) -> None:
        track = self._tracks[target_id]
        track.config, track.point = config, self._point(config)
        track.saved = track.last = track.begin = self._start(source_id)
        track.marks = {}

    def _recall_clone(self, target_id: str, source_id: str, rng: np.random.Generator) -> None:
        config = self._tracks[source_id].config
        assert config is not None  # it has reported
        config = customised(self._chosen(target_id, source_id, config, rng), self._custom_explore)
        self._became_clone(target_id, source_id, config)

    def _chosen(
        self, target_id: str, source_id: str, config: Mapping[str, Any], rng: np.random.Generator
    ) -> dict[str, Any]:
        """Return a copy of a config with the values that promise most where the source is."""
        time, score = self._start(source_id) or self._tracks[source_id].last or (0.0, 0.0)
        point = choose_point(
            list(self._gains),
            self._under_way(target_id),
            time=time / self.perturbation_interval,
            score=max(score, -_LARGEST),
            num_dimensions=len(self._bounds),
            rng=rng,
        )
        new: dict[str, Any] = fresh(config)
        for bound, share in zip(self._bounds, point, strict=True):
            bound.put(new, share)
        return new

    def _under_way(self, target_id: str) -> list[Gain]:
        """Return the newest intervals of the others that are not over yet."""
        tracks = [track for trial_id, track in self._tracks.items() if trial_id != target_id]
        begun = [(*t.begin, t.point) for t in tracks if t.begin and t.point is not None and math.isfinite(t.begin[1])]
        newest = sorted(begun, reverse=True)[:_MOST_RUNNING]
        return [Gain(time / self.perturbation_interval, score, point, 0.0) for time, score, point in newest]

    def _start(self, source_id: str) -> Mark | None:
        """Return what the checkpoint contains that a clone of the source begins with, if that is known.

        At a barrier all are paused, so all were saved at their last report.
        """
        track = self._tracks[source_id]
        return track.last if self.synch else track.saved

    def state(self) -> Any:
        """Return the population's state, what was gained where, and what every trial runs; for replay checks."""
        tracks = {trial_id: (track.point, track.begin) for trial_id, track in self._tracks.items()}
        return *super().state(), list(self._gains), tracks


def _tame(score: float) -> float:
    """Return a score that can be subtracted and squared; -inf stays, it stands for a trial that diverged."""
    return score if score == -math.inf else min(max(score, -_LARGEST), _LARGEST)


def _find_checkpoint(track: _Track, trial: Trial) -> None:
    """Find the report that a trial's newest checkpoint belongs to; one that it took over from another is no news."""
    ref = trial.checkpoint
    if ref is not None and ref.owner == trial.id:
        track.saved = track.marks.get(ref.count, track.saved)


def _checked_bounds(bounds: Any, path: tuple[Any, ...] = ()) -> Iterator[_Bound]:
    """Yield the bounds of a nested dict; each must be two finite numbers, the first below the second."""
    here = "hyperparam_bounds" + "".join(f"[{key!r}]" for key in path)
    if bounds is None and not path:
        return
    if isinstance(bounds, Mapping):
        for key, inner in bounds.items():
            yield from _checked_bounds(inner, (*path, key))
        return
    is_pair = isinstance(bounds, (list, tuple)) and len(bounds) == 2 and bool(path)
    if not is_pair or not all(map(checks.is_number, bounds)) or not bounds[0] < bounds[1]:
        what = "two finite numbers [low, high], the lower one first, or a dict of these"
        checks.refuse(here, bounds, what if path else "a dict of config keys and [low, high]")
    yield _Bound(path, float(bounds[0]), float(bounds[1]))
