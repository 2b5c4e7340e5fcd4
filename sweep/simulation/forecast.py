"""What a sweep will be like, in virtual time: its packing and rungs; from trials that have run, how long it takes."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, repeat, zip_longest
from statistics import median
from typing import Any

import numpy as np

from sweep.core.messages import Start
from sweep.core.packing import Packer
from sweep.core.resources import Node, Resources
from sweep.core.trial import Trial, number_of
from sweep.core.values import as_float
from sweep.engines.base import EngineCommand
from sweep.engines.simulator import Point, Simulator
from sweep.errors import ConfigError
from sweep.launch.build import Built
from sweep.record.reader import ExperimentReader
from sweep.simulation.curves import Curves, RecordedCurve, RecordedFailure
from sweep.simulation.virtual import drive_in_virtual_time

Draw = Callable[[Trial], RecordedCurve]
_MOST_REPORTS = 10_000  # of a trial that is sketched
_PRIOR, _SPREAD = 2, 0.4  # what the spread of log-lengths is taken for, and how many degrees of freedom that counts
_SECONDS, _LEAST = 30.0, 12  # for which sweeps are simulated, and how many at least


class _Drawn(Simulator):
    """Trials that do what is drawn for each. `first` are those that start before anything else happens, `num_kept` is
    how many checkpoints there are."""

    def __init__(self, draw: Draw, nodes: Sequence[Node], start_s: float = 0.0, stop_s: float = 0.0) -> None:
        super().__init__(lambda config, count: iter(()), nodes, start_s=start_s, stop_s=stop_s)
        self.first: list[Trial] = []
        self.num_kept = 0
        self._draw = draw

    def execute(self, command: EngineCommand) -> None:
        self.first += [command.trial] if isinstance(command, Start) and not self.now() else []
        super().execute(command)

    def points(self, trial: Trial, done: int) -> Iterator[Point]:
        curve = self._draw(trial)
        for point in curve.points[done:]:
            self.num_kept += point.has_checkpoint
            yield point
        if curve.error:
            raise RecordedFailure(curve.error)

    def forget(self, path: str) -> None:
        self.num_kept -= 1


def sketch(built: Built, most: int = 256) -> tuple[list[Trial], dict[str, Any]]:
    """Return the first trials of a sweep, `most` at most, and what is known before any has run, as plain JSON: what
    lies where at its beginning, what can never be used, and how many trials get to each rung if luck decides."""
    scheduler, number = built.policies.scheduler.inner or built.policies.scheduler, built.plan.num_trials
    longest = int(getattr(scheduler, "max_t", 1)) if scheduler.time_attr == "training_iteration" else 1
    plan = replace(built.plan, num_trials=min(number or most, most), time_budget_s=None, stop={})

    def draw(trial: Trial) -> RecordedCurve:
        value = float(np.random.default_rng((built.seed, number_of(trial.id))).random())
        point = Point(1e-6, dict.fromkeys(built.policies.optimised, value), has_checkpoint=True)
        return RecordedCurve(trial.id, trial.config, (point,) * min(longest, _MOST_REPORTS))

    simulator = _Drawn(draw, built.packer.nodes)
    trials = drive_in_virtual_time(replace(built, plan=plan, spec=replace(built.spec, stop=None)), simulator).trials
    ends = [trial.last_result.get(scheduler.time_attr, 0) for trial in trials if trial.last_result and longest > 1]
    layout: dict[str, dict[str, Any]] = {
        node.id: {"cpus": node.cpus, "cpus_held": 0.0, "trials": [], "devices": {one.id: [] for one in node.devices}}
        for node in built.packer.nodes
    }
    for trial, where in ((trial, trial.placement) for trial in simulator.first if trial.placement is not None):
        for bundle, place in zip(trial.resources.bundles, where.bundles, strict=True):
            here = layout[place.node]
            here["cpus_held"] += bundle.cpu
            for numbers in (here["trials"], *(here["devices"][device] for device, _ in place.devices)):
                numbers.append(number_of(trial.id))
    return trials, {
        "num_trials": number,
        "num_sketched": len(trials),
        "at_once": len(simulator.first),
        "nodes": layout,
        "rungs": {f"{level:g}": sum(end >= level for end in ends) for level in sorted(set(ends))},
        "warnings": list(_unusable(built.packer.nodes, list(dict.fromkeys(trial.resources for trial in trials)))),
    }


def _unusable(nodes: Sequence[Node], requests: Sequence[Resources]) -> Iterator[str]:
    """Say what stays idle however many trials there are: each kind of request is laid out first, the others around it.
    Of CPUs it counts where trials ask for no devices, and beyond a tenth."""
    most: Counter[str] = Counter()
    for first in requests:
        packer, used = Packer(nodes), Counter[str]()
        for request in (first, *requests):
            while packer.place(request, (str(len(packer.holders)), 1)) is not None:
                used.update(request.total.amounts)
        most |= used
    for name in [kind for kind in ("gpu", "tpu") if most[kind]] or ["cpu"]:
        there = sum(node.amount(name) for node in nodes)
        left, asked = there - most[name], [str(request) for request in requests if request.total.amount(name)]
        if asked and (left > there / 10 or (name != "cpu" and left >= 1)):
            what = f"{left:g} of {there:g} {name.upper()}s can never be used"
            yield f"{what}: a trial asks for {' or '.join(asked[:3])}"


def pilots(trials: Sequence[Trial], number: int, seed: int) -> list[Trial]:
    """Return so many of the trials of a sweep, at random, of each kind of request as many as is their share."""
    order = np.random.default_rng(seed).permutation(len(trials))
    ordered = sorted((trials[place] for place in order), key=lambda trial: str(trial.resources))
    return [ordered[int((at + 0.5) * len(trials) / number)] for at in range(min(number, len(trials)))]


class Known:
    """Trials that have run, from which those of a sweep are drawn.

    Args:
        curves: what they reported; one that was stopped goes on like a longer one.
        metrics: what the sweep optimises.
        spent: seconds from the grant of resources to the start of a trial, and from its last report to their release;
            bytes of a checkpoint.
    """

    def __init__(
        self, curves: Sequence[RecordedCurve], metrics: Sequence[str], spent: tuple[float, ...] = (0.0, 0.0, 0.0)
    ) -> None:
        self.start_s, self.stop_s, self.checkpoint_bytes = spent
        self.curves = _whole(curves, metrics)
        self.num_cut = sum(curve.is_cut for curve in self.curves)
        self._groups: defaultdict[Resources | None, list[RecordedCurve]] = defaultdict(list)
        for curve in self.curves:
            self._groups[curve.resources].append(curve)
        lengths = [[_seconds(one.points) for one in group if not one.error] for group in self._groups.values()]
        logs = [np.log(np.maximum(some, 1e-3)) for some in lengths if some]
        self._degrees = _PRIOR + sum(len(some) - 1 for some in logs)
        squares = sum(float(np.var(some)) * len(some) for some in logs)
        self._variance = (_PRIOR * _SPREAD**2 + squares) / self._degrees
        columns = zip_longest(*(curve.points for curve in self.curves))
        self._widths = [{name: _width(column, name) for name in metrics} for column in columns]  # of each report

    @classmethod
    def of(cls, reader: ExperimentReader, metrics: Sequence[str]) -> Known:
        """Return what the trials of an experiment tell, ended or still running.

        Raises:
            ExperimentError: none has reported anything, or their scheduler has changed configs.
        """
        curves = Curves.from_experiment(reader.root).curves
        last = {(report.trial_id, report.attempt): report.at for report in reader.results()}
        begun, ended, sizes = [], [], []
        for attempt in reader.history().attempts:
            if attempt.started and attempt.released and not attempt.is_lost:
                begun.append(attempt.started.at - attempt.granted.at)
                ended.append(attempt.released.at - last.get((attempt.trial_id, attempt.number), attempt.started.at))
        for checkpoint, _ in chain.from_iterable(reader.checkpoints(row.trial_id) for row in reader.trials()):
            with suppress(OSError):  # it was deleted meanwhile
                files = [path for path in (reader.root / checkpoint.path).rglob("*") if path.is_file()]
                sizes.append(sum(path.stat().st_size for path in files))
        return cls(curves, metrics, (median(begun or [0]), median(ended or [0]), sum(sizes) / (len(sizes) or 1)))

    def draws(self, number: int, of: int, *, is_ranked: bool) -> Draw:
        """Return what draws the curve of a trial in one `of` some sweeps: that of a trial which asked for the same.

        The mean length of few trials may be off, so all times of a request have a common factor: log-normal about 1,
        with the variance of a mean of log-normal lengths, and Student's t for what is not known of their spread. That
        is moderated as if two lengths more were known, which differ by 40%. The sweeps share out the distribution of
        the factor. If a scheduler ranks trials, the metrics of each are shifted, as by a kernel.
        """
        factors = dict[Any, float]()
        for at, (request, group) in enumerate((*self._groups.items(), ("another", self.curves))):
            rng = np.random.default_rng(at)
            place = (rng.permutation(of)[number] + 0.5) / of
            width = math.sqrt(math.expm1(min(self._variance, 4.0)) / len(group))
            factors[request] = math.exp(width * float(np.quantile(rng.standard_t(self._degrees, 10_000), place)))

        def draw(trial: Trial) -> RecordedCurve:
            chance = np.random.default_rng((number, number_of(trial.id)))
            group = self._groups.get(trial.resources, self.curves)
            factor = factors[trial.resources if trial.resources in self._groups else "another"]
            curve, shift = group[int(chance.integers(len(group)))], float(chance.normal()) * is_ranked
            shifts = ({name: shift * width for name, width in widths.items()} for widths in self._widths)
            return replace(curve, points=tuple(_moved(*one) for one in zip(curve.points, repeat(factor), shifts)))

        return draw


def forecast(make: Callable[[], Built], known: Known, simulated: int) -> dict[str, Any]:
    """Return what becomes of a sweep whose trials are like known ones, as plain JSON: median and 80% range of its
    seconds, the trials that run, the idle shares of devices and the bytes of checkpoints.

    Args:
        make: returns what the sweep decides with, made anew.
        simulated: how many sweeps are simulated; fewer if that takes long.

    Raises:
        ConfigError: nothing ends the sweep.
    """
    found: dict[str, list[float]] = defaultdict(list)
    until = time.monotonic() + _SECONDS
    for number in range(simulated):
        built = make()
        if built.plan.num_trials is None and built.plan.time_budget_s is None:
            raise ConfigError("nothing ends the sweep, so its length is not known. Give --trials or --time.")
        draw = known.draws(number, simulated, is_ranked=not built.policies.scheduler.is_stateless)
        simulator = _Drawn(draw, built.packer.nodes, known.start_s, known.stop_s)
        simulation = drive_in_virtual_time(built, simulator)
        found["seconds"].append(simulation.seconds)
        found["trials"].append(sum(trial.attempt > 0 for trial in simulation.trials))
        for name in ("cpu", "gpu", "tpu"):
            if there := sum(node.amount(name) for node in built.packer.nodes) * simulation.seconds:
                held = [(one.resources.total.amount(name), one) for one in simulation.trials]
                held_s = sum(amount * (one.ran_s + known.start_s * one.attempt) for amount, one in held)
                found[f"idle_{name}"].append(1 - held_s / there)
        found["checkpoint_bytes"].append(simulator.num_kept * known.checkpoint_bytes)
        if number + 1 >= _LEAST and time.monotonic() > until:
            break
    cuts = {name: np.quantile(values, (0.1, 0.5, 0.9), method="weibull") for name, values in found.items()}
    ranges = {name: dict(zip(("low", "median", "high"), map(float, cut), strict=True)) for name, cut in cuts.items()}
    return {"known": len(known.curves), "cut": known.num_cut, "simulated": len(found["seconds"]), **ranges}


def _seconds(points: Sequence[Point]) -> float:
    return sum(point.seconds for point in points)


def _width(column: Sequence[Point | None], name: str) -> float:
    """Return how wide a kernel smooths a metric of one report of all trials: Silverman's rule of thumb."""
    values = [as_float(point.metrics.get(name)) for point in column if point is not None]
    known = [value for value in values if value is not None and math.isfinite(value)]
    return 0.9 * float(np.std(known)) * len(known) ** -0.2 if known else 0.0


def _moved(point: Point, factor: float, shifts: Mapping[str, float]) -> Point:
    """Return a point with its seconds multiplied, and its metrics shifted, as far as they are numbers."""
    numbers = {name: as_float(point.metrics.get(name)) for name in shifts}
    shifted = {name: value + shifts[name] for name, value in numbers.items() if value is not None}
    return Point(point.seconds * factor, {**point.metrics, **shifted}, point.has_checkpoint)


def _whole(curves: Sequence[RecordedCurve], metrics: Sequence[str]) -> list[RecordedCurve]:
    """Let curves that were stopped go on like a longer one, from where they were, at their own pace."""
    whole: list[RecordedCurve] = []
    for number, curve in enumerate(sorted(curves, key=lambda one: -len(one.points))):
        here, points = len(curve.points), curve.points
        longer = [one.points for one in whole if len(one.points) > here]
        if curve.is_cut and points and longer:
            like = longer[number % len(longer)]
            ends = [[as_float(one[here - 1].metrics.get(name)) or 0.0 for one in (points, like)] for name in metrics]
            gaps = {name: own - its for name, (own, its) in zip(metrics, ends, strict=True)}
            pace = _seconds(points) / (_seconds(like[:here]) or 1.0)
            points += tuple(_moved(point, pace, gaps) for point in like[here:])
        if points or not curve.is_cut:
            whole.append(replace(curve, points=points))
    return whole
