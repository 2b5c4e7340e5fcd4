"""The samplers of Optuna: by name, or as the user gave them; one for each suggestion, with a seed of its own."""

from __future__ import annotations

import bisect
import copy
import importlib.util
import inspect
import math
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

from searchers import checks
from searchers.base import derived_seed
from searchers.errors import SearchError, UnknownNameError, nearest
from searchers.optuna_space import Space
from searchers.pareto import pareto_front

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.study import Study
    from optuna.trial import FrozenTrial, TrialState


CONSTRAINTS = "constraints"
"""The attribute of a study's trial under which Optuna keeps the violations."""

SAMPLERS: Mapping[str, tuple[str, ...]] = {
    "tpe": (),
    "cmaes": ("cmaes",),
    "gp": ("scipy", "torch"),
    "qmc": ("scipy",),
    "nsgaii": (),
    "nsgaiii": (),
    "random": (),
}
"""Samplers by name, with the packages each needs beside Optuna."""

# Of "tpe": random suggestions before the first from the model, open ones included; how many of them must have ended.
_STARTUP_TRIALS, _FEWEST_STARTUP_TRIALS = 10, 5


class Sampling:
    """Make the sampler of each suggestion, from a name, a sampler class, a function of a seed or a sampler object."""

    def __init__(self, given: Any, seed: int | None, *, window: int | None, is_constrained: bool) -> None:
        self._given: Any = "tpe" if given is None else given
        self.kind = _checked_name(self._given) if isinstance(self._given, str) else ""  # "" for one of the user's
        if not self.kind:
            self._given = _checked_sampler(given, seed)
        own = self._given if isinstance(self._given, type) else type(self._given)
        self.title = self.kind or f"optuna ({getattr(self._given, '__name__', own.__name__)})"
        if window is not None:
            window = checks.whole("window", window, least=50, hint="None is no bound.")
        self.window = Window(window) if window is not None and self.kind == "tpe" else None
        self._is_constrained = is_constrained

    def make(self, seed: int, draw: int, space: Space, num_open: int) -> BaseSampler:
        """Return a new sampler for ask number `draw` under `seed`; the object of the user's if it is one."""
        drawn = derived_seed(seed, draw)
        if self.kind:
            return self._named(drawn, derived_seed(seed, 0), space, num_open)
        if not callable(self._given):
            own: BaseSampler = self._given
            return own
        if isinstance(self._given, type):
            is_sequence = self._given.__name__ == "QMCSampler"  # its seed must not change
            return _made(self._given, seed=derived_seed(seed, 0) if is_sequence else drawn)
        return _made(self._given, drawn)

    def _named(self, seed: int, first_seed: int, space: Space, num_open: int) -> BaseSampler:
        from optuna import samplers

        other = samplers.RandomSampler(seed=seed)  # for what a sampler cannot handle itself
        independent: dict[str, Any] = {"independent_sampler": other, "warn_independent_sampling": False}
        # Optuna 4 looks at a trial's constraints only if there is a function; this one returns what is there already.
        limited: dict[str, Any] = {"constraints_func": _violations_of} if self._is_constrained else {}
        match self.kind:
            case "tpe":
                startup = max(_FEWEST_STARTUP_TRIALS, _STARTUP_TRIALS - num_open)
                group, liar = space.is_conditional, space.is_discrete
                return samplers.TPESampler(
                    seed=seed, multivariate=True, group=group, constant_liar=liar, n_startup_trials=startup, **limited
                )
            case "cmaes":
                return samplers.CmaEsSampler(seed=seed, **independent)
            case "gp":
                return samplers.GPSampler(seed=seed, **independent, **limited)
            case "qmc":  # one scrambled sequence for all draws: its seed must not change, the study counts the draws
                return samplers.QMCSampler(scramble=True, seed=first_seed, **independent)
            case "nsgaii":
                return samplers.NSGAIISampler(seed=seed, **limited)
            case "nsgaiii":
                return samplers.NSGAIIISampler(seed=seed, **limited)
        return other


def _checked_name(given: str) -> str:
    name = given.lower()
    if name not in SAMPLERS:
        raise UnknownNameError(f"no sampler is called {given!r}. {nearest(name, SAMPLERS)}")
    missing = [package for package in SAMPLERS[name] if importlib.util.find_spec(package) is None]
    if missing:
        raise SearchError(f"the sampler {name!r} needs {' and '.join(missing)}: pip install {' '.join(missing)}")
    return name


def _checked_sampler(given: Any, seed: Any) -> Any:
    """Return a sampler object, or the class or function that makes one of a seed."""
    from optuna.samplers import BaseSampler

    sampler = given
    if isinstance(given, type) and issubclass(given, BaseSampler):
        if "seed" in inspect.signature(given).parameters:
            return given
        sampler = _made(given)
    if callable(sampler) and not isinstance(sampler, (type, BaseSampler)):
        return sampler
    if not isinstance(sampler, BaseSampler):
        expected = f"a name ({', '.join(SAMPLERS)}), an Optuna sampler, or a function of a seed that returns one"
        checks.refuse("sampler", sampler, expected)
    if seed is not None:
        raise SearchError("seed is for samplers chosen by name; give your sampler object its own seed.")
    return sampler


def _made(make: Callable[..., Any], *arguments: int, **seed: int) -> BaseSampler:
    """Return what the user's class or function returns."""
    from optuna.samplers import BaseSampler

    try:
        sampler = make(*arguments, **seed)
    except TypeError as error:
        advice = "Pass a sampler object, or a function such as lambda seed: TPESampler(seed=seed)."
        raise SearchError(f"sampler is {make!r}, which could not be called: {error}. {advice}") from error
    if not isinstance(sampler, BaseSampler):
        raise SearchError(f"sampler is {make!r}, which returned {sampler!r:.100}; expected a sampler of Optuna.")
    return sampler


def _violations_of(trial: FrozenTrial) -> Sequence[float]:
    return tuple(trial.system_attrs[CONSTRAINTS])


# --- CMA-ES: no more points than it can use, those of the generation that is under way --------------------------------

# The attributes under which Optuna keeps the generation of a trial, and the state that the next one begins with.
_GENERATION, _OPTIMIZER = "cma:generation", "cma:optimizer"


def is_generation_full(study: Study, open_numbers: Collection[int]) -> bool:
    """Whether the study's CMA-ES can make no use of another point before an open one is told.

    Optuna throws away what exceeds a generation, and all but one of the points that were asked before the first result.
    """
    trials = [(trial, trial.number in open_numbers) for trial in study.get_trials(deepcopy=False)]
    complete = [trial for trial, is_open in trials if not is_open and trial.state.name == "COMPLETE"]
    known = [(trial, is_open) for trial, is_open in trials if is_open or trial.state.name == "COMPLETE"]
    if not open_numbers or not complete:
        return bool(open_numbers)
    generations = [(t.system_attrs[_GENERATION], is_open) for t, is_open in known if _GENERATION in t.system_attrs]
    of_latest = [is_open for generation, is_open in generations if generation == max(generations)[0]]
    num_dimensions = len(study.sampler.infer_relative_search_space(study, complete[-1]))
    # Hansen 2016, arXiv:1604.00772, table 1, which the package `cmaes` follows
    size = 4 + math.floor(3 * math.log(num_dimensions)) if num_dimensions else 0
    return any(of_latest) and len(of_latest) >= size


def with_open_trials(study: Study) -> None:
    """Let the CMA-ES sampler of a study find its state in open trials too; else it would draw others from a new one."""
    sampler: Any = study.sampler
    restore = sampler._restore_optimizer

    def restore_from(completed: list[Any]) -> Any:
        running = [trial for trial in study.get_trials(deepcopy=False) if trial.state.name == "RUNNING"]
        holders = [trial for trial in running if any(key.startswith(_OPTIMIZER) for key in trial.system_attrs)]
        return restore(sorted([*completed, *holders], key=lambda trial: trial.number))

    sampler._restore_optimizer = restore_from


# --- TPE: a bounded number of trials, so that its cost stops growing with them ----------------------------------------


class Window:
    """`size` of a study's trials that ended, or all of them while these are no more.

    These are the newest `size - size // 2` by number, and the best `size // 2` of the others: complete ones by
    their value, then pruned ones by how far they came, then infeasible ones by their violation; ties by number. With
    several objectives the second half are the trials of the others' Pareto front, the newest of them.
    A trial that ended is looked at once.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._trials: dict[int, FrozenTrial] = {}  # those that ended, by number
        self._ended: list[int] = []  # their numbers
        self._ranked: list[tuple[float, ...]] = []  # their ranks and numbers, the best first
        self._kinds: dict[int, int] = {}  # by number; trials of one kind have equal distributions

    def of(self, study: Study, new: Iterable[FrozenTrial]) -> list[FrozenTrial]:
        """Return the trials, by number; `new` are all that ended since the last time, and maybe others."""
        sign = 1.0 if study.directions[0].name == "MINIMIZE" else -1.0
        for trial in new:
            if trial.number not in self._trials and trial.state.name in ("COMPLETE", "PRUNED"):
                self._see(trial, sign)
        shown = self._ended
        if len(shown) > self._size:
            num_best = self._size // 2
            newest = self._ended[num_best - self._size :]
            if len(study.directions) > 1:
                old = [self._trials[number] for number in self._ended[: num_best - self._size]]
                complete = [trial for trial in old if _rank(trial, 1.0)[0] == 0]
                modes = ["min" if direction.name == "MINIMIZE" else "max" for direction in study.directions]
                front = [complete[i].number for i in pareto_front([trial.values for trial in complete], modes)]
                best = front[-num_best:]
            else:
                best = list(islice((int(number) for *_, number in self._ranked if number < newest[0]), num_best))
            shown = sorted([*best, *newest])
        return [self._trials[number] for number in shown]

    def one_of_each_kind(self, trials: Iterable[FrozenTrial]) -> list[FrozenTrial]:
        """Return the first of these trials for each set of distributions, or more where they alternate."""
        first: dict[int, FrozenTrial] = {}
        for trial in trials:
            first.setdefault(self._kinds[trial.number], trial)
        return list(first.values())

    def _see(self, trial: FrozenTrial, sign: float) -> None:
        number, last = trial.number, next(reversed(self._trials.values()), None)
        is_same = last is not None and trial.distributions == last.distributions
        self._kinds[number] = self._kinds[last.number] if last is not None and is_same else number
        self._trials[number] = trial
        bisect.insort(self._ended, number)
        bisect.insort(self._ranked, (*_rank(trial, sign), number))


def _rank(trial: FrozenTrial, sign: float) -> tuple[float, ...]:
    """Return a key by which trials are ordered as the Parzen estimator orders them, the best first."""
    violation = sum(value for value in trial.system_attrs.get(CONSTRAINTS, ()) if value > 0)
    if violation > 0:
        return 2, violation, 0.0
    if trial.state.name == "COMPLETE":
        return 0, sign * trial.values[0], 0.0
    step, value = max(trial.intermediate_values.items(), default=(-1, 0.0))
    return 1, -step, math.inf if math.isnan(value) else sign * value


@contextmanager
def showing(study: Study, window: Window | None, new: Iterable[FrozenTrial]) -> Iterator[None]:
    """Let TPE see what the window shows, and open trials only where it is a liar; other samplers have no window.

    `new` are all that ended since the last time, and maybe others.
    """
    if window is None:
        yield
        return
    from optuna.trial import TrialState

    changed: Any = study
    sampler: Any = study.sampler
    ended = window.of(study, new)
    running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)) if sampler._constant_liar else []
    shown = window.one_of_each_kind(ended)

    def get_trials(
        deepcopy: bool = True, states: Container[TrialState] | None = None, use_cache: bool = False
    ) -> Sequence[FrozenTrial]:
        found = [trial for trial in shown if states is None or trial.state in states]
        return copy.deepcopy(found) if deepcopy else found

    changed._get_trials = get_trials
    try:
        space = sampler.infer_relative_search_space(study, None)  # the same, however many trials are of a kind
        sampler.infer_relative_search_space = lambda *_: space
        shown = sorted([*ended, *running], key=lambda trial: trial.number)
        yield
    finally:
        del changed._get_trials
