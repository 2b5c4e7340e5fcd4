"""The samplers of Optuna: by name, or as the user gave them; one for each suggestion, with a seed of its own."""

from __future__ import annotations

import importlib.util
import inspect
import math
from collections.abc import Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from searchers import checks
from searchers.base import derived_seed
from searchers.errors import SearchError, UnknownNameError, nearest
from searchers.optuna_space import Space
from searchers.optuna_window import CONSTRAINTS

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.study import Study
    from optuna.trial import FrozenTrial


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
    """Make the sampler of each suggestion.

    Args:
        given: a name, a sampler class, a function of a seed that returns a sampler, or a sampler object.
        seed: of the searcher; refused with a sampler object, which has its own.
        window: how many ended trials "tpe" sees at most; None: all of them.

    Attributes:
        kind: a name of `SAMPLERS`; "" for samplers of the user.
        title: its usual name.
        is_keyed: samplers are built here, each from its own seed.

    Raises:
        SearchError: it is no sampler, or a package is missing.
        UnknownNameError: no sampler of that name.
    """

    def __init__(self, given: Any, seed: int | None, *, window: int | None, is_constrained: bool) -> None:
        self._given: Any = "tpe" if given is None else given
        self.kind = _checked_name(self._given) if isinstance(self._given, str) else ""
        if not self.kind:
            self._given = _checked_sampler(given, seed)
        own = self._given if isinstance(self._given, type) else type(self._given)
        self.title = self.kind or f"optuna ({getattr(self._given, '__name__', own.__name__)})"
        self.is_keyed = bool(self.kind) or callable(self._given)
        if window is not None:
            window = checks.whole("window", window, least=50, hint="None is no bound.")
        self.window = window if self.kind == "tpe" else None
        self._is_constrained = is_constrained
        self._last: BaseSampler | None = None

    def next(self, study: Study, seed: int, draw: int, space: Space, num_open: int) -> BaseSampler:
        """Return the sampler of ask number `draw`, as the study is to have it."""
        sampler = self.make(seed, draw, space, num_open)
        if not self.is_keyed:
            return sampler
        for name in ("_search_space", "_intersection_search_space"):
            # What the parameters of all trials have in common: found anew it costs as much as the rest of an ask. It
            # follows from the trials alone, so that a sampler may take it from the one before.
            known = getattr(self._last, name, None)
            if known is not None and type(known) is type(getattr(sampler, name, None)):
                setattr(sampler, name, known)
        self._last = sampler
        return with_open_trials(sampler, study) if self.kind == "cmaes" else sampler

    def make(self, seed: int, draw: int, space: Space, num_open: int) -> BaseSampler:
        """Return a new sampler for ask number `draw` under `seed`; the object of the user's if it is one."""
        drawn = derived_seed(seed, draw)
        if self.kind:
            return self._named(drawn, derived_seed(seed, 0), space, num_open)
        if not self.is_keyed:
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
                return samplers.TPESampler(
                    seed=seed,
                    multivariate=True,
                    group=space.is_conditional,
                    constant_liar=space.is_discrete,
                    n_startup_trials=max(_FEWEST_STARTUP_TRIALS, _STARTUP_TRIALS - num_open),
                    **limited,
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
    """Return what the user's class or function returns.

    Raises:
        SearchError: it cannot be called like this, or it is no sampler.
    """
    from optuna.samplers import BaseSampler

    try:
        sampler = make(*arguments, **seed)
    except TypeError as error:
        raise SearchError(
            f"sampler is {make!r}, which could not be called: {error}. Pass a sampler object, or a function such as "
            "lambda seed: TPESampler(seed=seed)."
        ) from error
    if not isinstance(sampler, BaseSampler):
        raise SearchError(f"sampler is {make!r}, which returned {sampler!r:.100}; expected a sampler of Optuna.")
    return sampler


def _violations_of(trial: FrozenTrial) -> Sequence[float]:
    return tuple(trial.system_attrs[CONSTRAINTS])


# --- CMA-ES: no more points than it can use, those of the generation that is under way --------------------------------

# The attributes under which Optuna keeps the generation of a trial, and the state that the next one begins with.
_GENERATION, _OPTIMIZER = "cma:generation", "cma:optimizer"


def generation_size(num_dimensions: int) -> int:
    """Return how many points a generation has.

    Source: Hansen 2016, arXiv:1604.00772, table 1, which the package `cmaes` follows.
    """
    return 4 + math.floor(3 * math.log(num_dimensions)) if num_dimensions > 0 else 0


def is_generation_full(study: Study, open_numbers: Container[int]) -> bool:
    """Whether the study's CMA-ES can make no use of another point before an open one is told.

    Optuna throws away what exceeds a generation, and all but one of the points that were asked before the first result.
    With this rule the points are the same however many trials run at a time.

    Args:
        open_numbers: of the trials that were asked and not told.
    """
    num_of: dict[int, int] = {}  # by generation: complete and open ones
    is_open: dict[int, bool] = {}
    some = None
    num_open = 0
    for trial in study.get_trials(deepcopy=False):
        waits = trial.number in open_numbers
        num_open += waits
        if not waits and trial.state.name != "COMPLETE":
            continue
        some = trial if not waits else some
        generation = trial.system_attrs.get(_GENERATION)
        if generation is not None:
            num_of[generation] = num_of.get(generation, 0) + 1
            is_open[generation] = is_open.get(generation, False) or waits
    if not num_open:
        return False
    if some is None:
        return True
    if not num_of:
        return False
    latest = max(num_of)
    size = generation_size(len(study.sampler.infer_relative_search_space(study, some)))
    return is_open[latest] and num_of[latest] >= size


def with_open_trials(sampler: BaseSampler, study: Study) -> BaseSampler:
    """Return the CMA-ES sampler, which now also finds its state in trials that are open.

    Optuna looks for it in complete ones, and while the first point of a generation is open the others would be drawn
    from a state that is computed anew, with other random numbers.
    """
    changed: Any = sampler
    restore = changed._restore_optimizer

    def restore_from(completed: list[Any]) -> Any:
        running = [trial for trial in study.get_trials(deepcopy=False) if trial.state.name == "RUNNING"]
        holders = [trial for trial in running if any(key.startswith(_OPTIMIZER) for key in trial.system_attrs)]
        return restore(sorted([*completed, *holders], key=lambda trial: trial.number))

    changed._restore_optimizer = restore_from
    return sampler
