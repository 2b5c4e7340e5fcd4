"""Searcher and scheduler of a sweep: built from what was given, with metric and mode set, checked for conflicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

from searchers import (
    BasicVariantGenerator,
    ConcurrencyLimiter,
    Domain,
    ForeignSearcher,
    OptunaSearch,
    RandomSearch,
    Repeater,
    Searcher,
    as_searcher,
    create_searcher,
    name_of,
)
from searchers.adapter import check_decided, constants_of
from searchers.errors import SpaceError, nearest
from searchers.keywords import taken_by
from searchers.variants import check_space, grid_values, has_domains, merge, walk
from searchers.warm_start import Point
from sweep.core import scheduler_guard
from sweep.core.results import NUMBERS
from sweep.core.trial import number_of
from sweep.core.values import shown
from sweep.errors import ConfigError, SearchError
from sweep.launch.spec import RunSpec, metric_and_mode
from sweep.schedulers import SCHEDULERS, FIFOScheduler, ResourceChangingScheduler, Scheduler, create_scheduler

# Modules whose objects are distributions that other libraries draw from; here they would be constants.
_FOREIGN = (
    "scipy.stats.",
    "optuna.distributions.",
    "hyperopt.pyll.",
    "ray.tune.search.",
    "skopt.space.",
    "ConfigSpace.",
)

Names = str | Sequence[str] | None


@dataclass(frozen=True, slots=True)
class Policies:
    """A searcher and a scheduler, ready to be asked."""

    searcher: Searcher
    scheduler: Scheduler
    metrics: Names  # as given to the run, or to one of the two itself; lists for several objectives
    modes: Names
    metric: str  # the first of them; "" and "max" if there are none
    mode: str
    space: Mapping[str, Any] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)  # what the user should know, filled while configs are completed

    @property
    def optimised(self) -> tuple[str, ...]:
        """The objectives, without those that are only watched."""
        if self.metrics is None or isinstance(self.metrics, str):
            return (self.metric,) if self.metric else ()
        modes = self.modes if isinstance(self.modes, (list, tuple)) else [self.modes] * len(self.metrics)
        return tuple(name for name, mode in zip(self.metrics, modes, strict=False) if mode != "obs")

    def numbers(self, stop: Iterable[str]) -> tuple[str, ...]:
        """Return the keys of reports that are read as numbers besides the objectives; `stop=` compares some."""
        keys = dict.fromkeys([*NUMBERS, *stop, self.scheduler.time_attr])
        return tuple(key for key in keys if key and key not in self.optimised)

    def complete(self, config: Mapping[str, Any], trial_id: str) -> Mapping[str, Any]:
        """Return the config of a trial: what was suggested, and what the searcher leaves out and the scheduler adds.

        A searcher that is not of this package may leave the space's constants out, as one for Tune may."""
        if _foreign(self.searcher) is not None:
            config = merge(constants_of(self.space), config)
            check_decided(config)
        return scheduler_guard.complete(self.scheduler, config, number_of(trial_id))


def build_policies(spec: RunSpec, seed: int) -> Policies:
    """Return the searcher and the scheduler that were asked for, with metric and mode set and checked."""
    searcher, scheduler = _searcher(spec.search_alg), _scheduler(spec.scheduler)
    space = _copied(spec.config or {})
    take = searcher.set_search_properties
    if not take(spec.metric, spec.mode, space, **taken_by(take, {"num_samples": spec.samples, "seed": seed})):
        raise ConfigError(
            f"{type(searcher).__name__} was built with a space, metric or mode of its own, and the run gives another. "
            "Give each in one place."
        )
    searcher = _limited(searcher, spec.max_concurrent_trials)
    goal: tuple[Any, Any] = (spec.metric, spec.mode)
    if goal == (None, None) and searcher.metric and searcher.mode:
        goal = (searcher.metric, searcher.mode)
    if not scheduler.is_stateless:
        first, first_mode = metric_and_mode(*goal)
        told = goal if scheduler.is_multi_objective else (first or None, goal[1] and first_mode)
        if spec.metric is None and scheduler.metric is not None:
            told = (None, None)  # the searcher's are not meant for a scheduler that was given its own
        scheduler.set_search_properties(*told, seed=seed)
    if goal == (None, None) and scheduler.metric and scheduler.mode:
        goal = getattr(scheduler, "metrics", scheduler.metric), getattr(scheduler, "modes", scheduler.mode)
    if scheduler.is_searching and searcher.is_adaptive:
        raise ConfigError(
            f"the scheduler {describe(scheduler)} changes configs itself, which would mislead the searcher "
            f"{describe(searcher)}. Leave search_alg out: the first configs are then drawn from config."
        )
    if scheduler.milestones:
        searcher.set_budgets(scheduler.milestones)
    learned = [] if spec.warm_start is None else [_teach(searcher, spec.warm_start)]
    return Policies(searcher, scheduler, *goal, *metric_and_mode(*goal), space, learned)


def _teach(searcher: Searcher, points: Sequence[Point]) -> str:
    """Let a searcher learn from what was evaluated before; return what to say of it."""
    try:
        learned = searcher.observe_all(points)
    except SpaceError:
        raise
    except SearchError as error:
        raise ConfigError(f"warm_start: {error} Pass a search_alg that learns, such as 'tpe', and a metric.") from error
    if not learned.num_learned:
        known = nearest(str(searcher.metric), sorted({name for _, result in points for name in result or ()}))
        raise ConfigError(f"warm_start: of {len(points)} results none has a number under {searcher.metric!r}. {known}")
    return f"{describe(searcher)} has learned from {learned.num_learned} of {len(points)} former results (warm_start)"


def refuse_foreign_domains(config: Mapping[str, Any] | None) -> None:
    """Refuse a space with a distribution of another library in it, which every trial would be given as it is."""
    for path, leaf in walk(config or {}):
        kind = type(leaf)
        if f"{kind.__module__}.".startswith(_FOREIGN):
            where = "".join(f"[{key!r}]" for key in path)
            raise ConfigError(
                f"config{where} is a {kind.__name__} of {kind.__module__.partition('.')[0]}; nothing is drawn from it "
                "here. Write sweep.uniform(lower, upper), loguniform, randint or choice in its place."
            )


def unsearched_lists(search_alg: Any, scheduler: Scheduler, config: Mapping[str, Any] | None) -> str:
    """Return what to say when lists of different values lie in a config of which nothing is searched; "" if none do.

    Whoever writes `lr=[0.1, 0.01]` and no domain besides most likely wants each in turn; beside a domain, or with equal
    values such as `layers=[64, 64]`, a list is one value. An object as `search_alg` may search a space of its own."""
    if scheduler.is_searching or not (search_alg is None or isinstance(search_alg, str)) or has_domains(config or {}):
        return ""
    found = list(_lists(config or {}, "config"))
    if not found:
        return ""
    (where, number), *others = found
    also = f" (so {'is' if len(others) == 1 else 'are'} {', '.join(name for name, _ in others)})" if others else ""
    return (
        f"{where} is a list of {number} values{also} and nothing is searched; each trial gets the whole list. To try "
        "each, write sweep.grid_search([...]); to draw one, sweep.choice([...])."
    )


def _lists(node: Any, where: str) -> Iterator[tuple[str, int]]:
    """Yield where lists of different plain values are, and how many they have."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from _lists(value, f"{where}[{key!r}]")
    elif isinstance(node, (list, tuple)):
        is_plain = all(isinstance(one, (str, int, float, NoneType)) for one in node)
        if is_plain and len(set(node)) == len(node) > 1:
            yield where, len(node)


def describe(thing: object, space: Mapping[str, Any] | None = None) -> str:
    """Return the name of a searcher or scheduler for displays and the record, as it is typed; else its class's.

    Drawing from nothing but the grids of a space is called so."""
    match thing:
        case ConcurrencyLimiter():
            return f"{describe(thing.searcher, space)} (limit {thing.max_concurrent})"
        case Repeater():
            return f"{describe(thing.searcher, space)} ({thing.repeat} times each)"
        case ForeignSearcher():
            return type(thing.searcher).__name__
        case OptunaSearch():
            return thing.sampler_name
        case ResourceChangingScheduler():
            return f"resource_changing({describe(thing.base_scheduler)})"
        case BasicVariantGenerator() | RandomSearch() if type(thing) in (BasicVariantGenerator, RandomSearch):
            leaves = [leaf for _, leaf in walk(space or {})]
            grids = [leaf for leaf in leaves if grid_values(leaf) is not None]
            domains = [leaf for leaf in leaves if isinstance(leaf, Domain)]
            return "grid" if grids and all(grid_values(leaf) is not None for leaf in domains) else "random"
    if isinstance(thing, Searcher):
        return name_of(thing)
    return next((name for name, make in SCHEDULERS.items() if make is type(thing)), type(thing).__name__)


def _foreign(searcher: Any) -> Any:
    """Return the searcher inside of our limiters and adapters if it is not one of ours, else None."""
    while type(searcher).__module__.partition(".")[0] in ("searchers", "sweep"):
        inner = getattr(searcher, "searcher", None)
        if inner is None:
            return None
        searcher = inner
    return searcher


def _searcher(given: Any) -> Searcher:
    if given is None:
        return BasicVariantGenerator()
    if isinstance(given, str):
        return create_searcher(given)
    try:
        return as_searcher(given)
    except SearchError as error:
        raise ConfigError(f"search_alg is {given!r:.100}: {error}") from error


def _limited(searcher: Searcher, most: int | None) -> Searcher:
    if not most:
        return searcher
    if not isinstance(searcher, ConcurrencyLimiter):
        return ConcurrencyLimiter(searcher, most)
    if searcher.max_concurrent != most:
        raise ConfigError(
            f"max_concurrent_trials={most}, but the searcher is already limited to {searcher.max_concurrent}."
        )
    return searcher


def _scheduler(given: Any) -> Scheduler:
    if given is None:
        return FIFOScheduler()
    if isinstance(given, str):
        return create_scheduler(given)
    if isinstance(given, Scheduler):
        return given
    raise ConfigError(f"scheduler is {given!r:.100}; expected a scheduler, or a name such as 'asha'.")


def _copied(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a space, all of which can be looked through."""
    copied = {}
    for key, value in config.items():
        try:
            copied[key] = deepcopy(value)
            with suppress(SpaceError):  # the searcher says what it takes
                check_space({key: copied[key]})
        except Exception as error:  # the user's own objects
            raise ConfigError(
                f"config[{shown(key)}] is of type {type(value).__name__} and cannot be copied "
                f"({type(error).__name__}: {shown(str(error))}). Put what it is made from into the config, such as a "
                "path or a number, and create it inside the trainable."
            ) from error
    return copied
