"""From what was asked to what decides: searcher, scheduler, plan, packer, requests. No process."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
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
from searchers.variants import check_space, grid_values, has_domains, merge, path_name, walk
from searchers.warm_start import Point, points_of
from sweep.core import scheduler_guard
from sweep.core.packing import Packer
from sweep.core.plan import Plan
from sweep.core.resources import Node, Resources, parse_resources
from sweep.core.results import NUMBERS, flatten, own_metrics
from sweep.core.trial import number_of
from sweep.core.values import shown
from sweep.errors import ConfigError, ResourceError, SearchError
from sweep.launch.spec import RunSpec, metric_and_mode, same_fields
from sweep.schedulers import SCHEDULERS, ResourceChangingScheduler, Scheduler, create_scheduler
from sweep.schedulers.elastic import ElasticGroups
from sweep.worker.trainable import PreparedTrainable, prepare

# Configs that may wait for a place, where the searcher loses nothing by being asked early: in all, and for each of many
# nodes, so that there is something for every gap.
_AHEAD = 64
_AHEAD_PER_NODE = 4
# Modules whose objects are distributions that other libraries draw from; here they would be constants.
_FOREIGN = ("scipy.stats", "optuna.distributions", "hyperopt.pyll", "ray.tune.search", "skopt.space", "ConfigSpace")

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
        metrics = [self.metric] if self.metrics is None or isinstance(self.metrics, str) else self.metrics
        modes = self.modes if isinstance(self.modes, (list, tuple)) else [self.modes] * len(metrics)
        return tuple(name for name, mode in zip(metrics, modes, strict=False) if name and mode != "obs")

    def numbers(self, stop: Iterable[str]) -> tuple[str, ...]:
        """Return the keys of reports that are read as numbers besides the objectives; `stop=` compares some."""
        keys = dict.fromkeys([*NUMBERS, *stop, self.scheduler.time_attr])
        return tuple(key for key in keys if key and key not in self.optimised)

    def look_at(self, packer: Packer) -> None:
        """Take the packer of the sweep that they decide."""
        if isinstance(self.scheduler, ElasticGroups):
            self.scheduler.packer = packer

    def complete(self, config: Mapping[str, Any], trial_id: str) -> Mapping[str, Any]:
        """Return the config of a trial: what was suggested, and what the searcher leaves out and the scheduler adds.

        A searcher that is not of this package may leave the space's constants out, as one for Tune may."""
        if _is_foreign(self.searcher):
            config = merge(constants_of(self.space), config)
            check_decided(config)
        return scheduler_guard.complete(self.scheduler, config, number_of(trial_id))


def build_policies(spec: RunSpec, seed: int, elastic: Mapping[str, Any] | None = None) -> Policies:
    """Return the searcher and the scheduler that were asked for, with metric and mode set and checked.

    `elastic`: what `ElasticGroups` is made with; None: no group is elastic."""
    searcher, scheduler = _searcher(spec.search_alg), "fifo" if spec.scheduler is None else spec.scheduler
    if isinstance(scheduler, str):
        scheduler = create_scheduler(scheduler)
    if not isinstance(scheduler, Scheduler):
        raise ConfigError(f"scheduler is {scheduler!r:.100}; expected a scheduler, or a name such as 'asha'.")
    space = _copied(spec.config or {})
    take = searcher.set_search_properties
    if not take(spec.metric, spec.mode, space, **taken_by(take, {"num_samples": spec.samples, "seed": seed})):
        own = f"{type(searcher).__name__} was built with a space, metric or mode of its own"
        raise ConfigError(f"{own}, and the run gives another. Give each in one place.")
    if (most := spec.max_concurrent_trials) and not isinstance(searcher, ConcurrencyLimiter):
        searcher = ConcurrencyLimiter(searcher, most)
    if most and most != (limit := searcher.max_concurrent):  # type: ignore[attr-defined]
        raise ConfigError(f"max_concurrent_trials={most}, but the searcher is already limited to {limit}.")
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
        why = f"changes configs itself, which would mislead the searcher {describe(searcher)}"
        raise ConfigError(f"the scheduler {describe(scheduler)} {why}. Leave search_alg out.")
    if scheduler.milestones:
        searcher.set_budgets(scheduler.milestones)
    learned = [] if spec.warm_start is None else [_teach(searcher, spec.warm_start)]
    if elastic is not None and not isinstance(scheduler, ResourceChangingScheduler):
        scheduler = ElasticGroups(scheduler, elastic)
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
        if kind.__module__.startswith(_FOREIGN):
            where = "".join(f"[{key!r}]" for key in path)
            raise ConfigError(
                f"config{where} is a {kind.__name__} of {kind.__module__.partition('.')[0]}; nothing is drawn from it "
                "here. Write sweep.uniform(lower, upper), loguniform, randint or choice in its place."
            )


def unsearched_lists(search_alg: Any, scheduler: Scheduler, config: Mapping[str, Any] | None) -> str:
    """Return what to say of the first list of different values in a config of which nothing is searched; "" if none is.

    Beside a domain, or with equal values such as `layers=[64, 64]`, a list is one value. An object as `search_alg` may
    search a space of its own."""
    if scheduler.is_searching or not isinstance(search_alg, (str, NoneType)) or has_domains(config or {}):
        return ""
    where, number = next(_lists(config or {}, "config"), ("", 0))
    if not number:
        return ""
    return (
        f"{where} is a list of {number} values and nothing is searched; each trial gets the whole list. To try each, "
        "write sweep.grid_search([...]); to draw one, sweep.choice([...])."
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
        case ElasticGroups():
            return describe(thing.inner, space)
        case ResourceChangingScheduler():
            return f"resource_changing({describe(thing.base_scheduler)})"
        case BasicVariantGenerator() | RandomSearch() if type(thing) in (BasicVariantGenerator, RandomSearch):
            drawn = [grid_values(leaf) is not None for _, leaf in _varied(space)]
            return "grid" if drawn and all(drawn) else "random"
    if isinstance(thing, Searcher):
        return name_of(thing)
    return next((name for name, make in SCHEDULERS.items() if make is type(thing)), type(thing).__name__)


def _is_foreign(searcher: Any) -> bool:
    """Whether what our limiters and adapters hold in the end is no searcher of ours."""
    while searcher is not None and type(searcher).__module__.partition(".")[0] in ("searchers", "sweep"):
        searcher = getattr(searcher, "searcher", None)
    return searcher is not None


def _searcher(given: Any) -> Searcher:
    if given is None or isinstance(given, str):
        return create_searcher(given or "random")
    try:
        return as_searcher(given)
    except SearchError as error:
        raise ConfigError(f"search_alg is {given!r:.100}: {error}") from error


def _copied(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a space, all of which can be looked through."""
    copied = {}
    for key, value in config.items():
        try:
            copied[key] = deepcopy(value)
            with suppress(SpaceError):  # the searcher says what it takes
                check_space({key: copied[key]})
        except Exception as error:  # the user's own objects
            what = f"config[{shown(key)}] is of type {type(value).__name__} and cannot be copied"
            why = f"{type(error).__name__}: {shown(str(error))}"
            raise ConfigError(f"{what} ({why}). Create it inside the trainable from what is in the config.") from error
    return copied


@dataclass(frozen=True, slots=True)
class Built:
    """What a sweep decides with."""

    spec: RunSpec
    seed: int  # of searcher, scheduler and trials
    policies: Policies
    plan: Plan
    packer: Packer
    wanted: Resources | None  # by every trial; None: that depends on its config
    request_of: Callable[[Mapping[str, Any]], Resources]
    variables: tuple[str, ...] | None  # config paths that vary among trials; None: only the searcher knows

    @property
    def has_company(self) -> bool:
        """Whether several trials may run at a time."""
        most, wanted = getattr(self.policies.searcher, "max_concurrent", None), self.wanted
        if self.spec.engine == "inline" or 1 in (most, self.plan.num_trials):
            return False
        twice = wanted and replace(wanted, bundles=wanted.bundles * 2, strategy="PACK")
        return twice is None or self.packer.could_ever_fit(twice)


def prepared(spec: RunSpec) -> tuple[RunSpec, PreparedTrainable]:
    """Return what was asked with the space that the trainable makes of it, and the trainable as engines take it."""
    trainable = prepare(spec.trainable)
    if spec.trainable_name:
        trainable = replace(trainable, name=spec.trainable_name)
    if trainable.space is not None:
        spec = replace(spec, config=trainable.space(spec.config or {}))
    if trainable.lanes is not None:
        constants = trainable.lanes.constants(spec.config or {}, getattr(spec.scheduler, "mutated_paths", ()))
        trainable = replace(trainable, objects={**trainable.objects, **constants})
    if defaults := {name: value for name, value in trainable.defaults.items() if getattr(spec, name) is None}:
        spec = replace(spec, **defaults)
    return spec, trainable


def check_alone(spec: RunSpec) -> None:
    """Refuse what no run of this spec could begin with, whatever its searcher, its metric and its machine."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the run itself says it
        check(*prepared(spec))
    _ = spec.stop_rules  # checked as they are read


def check(
    spec: RunSpec, trainable: PreparedTrainable
) -> tuple[Resources | None, Callable[[Mapping[str, Any]], Resources]]:
    """Return what every trial asks for (None: that depends on its config) and the function of a config that says it."""
    refuse_foreign_domains(spec.config)
    for name in ("checkpoint_frequency", "checkpoint_at_end"):
        if getattr(spec.checkpoints, name) and not trainable.can_save_on_demand:
            raise ConfigError(f"{name} is for class trainables; a function reports checkpoints by itself.")
    given, own = spec.resources_per_trial, trainable.resources
    if spec.engine == "lanes":
        return _lane(trainable, given if given is not None else own)
    if given is not None and own is not None:
        where = "in one place" if trainable.group is None else "by the trainer's ScalingConfig only"
        raise ResourceError(f"resources were given twice: the trainable has its own, too. Give them {where}.")
    wanted = given if given is not None else own
    if callable(wanted):
        return None, lambda config: parse_resources(wanted(config))
    fixed = parse_resources(wanted)
    return fixed, lambda config: fixed


def _lane(trainable: PreparedTrainable, wanted: Any) -> tuple[Resources, Callable[[Mapping[str, Any]], Resources]]:
    if trainable.lanes is None:
        raise ConfigError(
            f"engine='lanes' runs a sweep.VectorTrainable, and {trainable.name} is none. Leave engine out, or write "
            "its step as a pure function: @sweep.vectorized(init=...)."
        )
    if wanted is not None:
        raise ResourceError(
            f"resources_per_trial is {wanted!r:.100}, and {trainable.name} runs as lanes that share a process. Say "
            "what that holds, resources_per_worker={'gpu': 1}, or run each in a process of its own, engine='local'."
        )
    of_trial: Resources = trainable.lanes.of_trial
    return of_trial, lambda config: of_trial


def build(
    spec: RunSpec,
    trainable: PreparedTrainable,
    nodes: Sequence[Node],
    *,
    seed: int,
    away: Sequence[Node] = (),
    open_requests: Iterable[Resources] = (),
    **facts: Any,
) -> Built:
    """Return what a sweep of that trainable on those nodes decides with.

    `away` are nodes that may come, `open_requests` those of trials that go on, `facts` the fields of the plan that
    follow from the experiment and not from what was asked: `prefix`, `lost`, graces."""
    wanted, request_of = check(spec, trainable)
    elastic = trainable.elastic(spec.config or {}) if trainable.elastic is not None else None
    policies = build_policies(spec, seed, elastic)
    if isinstance(policies.scheduler, ResourceChangingScheduler):
        why = "ResourceChangingScheduler changes what a trial asks for, and"
        if trainable.group is not None:
            raise ConfigError(f"{why} a training group keeps its size. Use another one, or search over num_workers.")
        if spec.engine == "lanes":
            raise ConfigError(f"{why} a lane is a lane. Use another one, or engine='local'.")
    packer = Packer(nodes, away)
    policies.look_at(packer)
    request = None if trainable.lanes is None else wanted  # a lane may go on as a process, and the other way
    # Elastic groups that were larger before may go on smaller.
    requests = {*(open_requests if elastic is None and request is None else ()), *([] if wanted is None else [wanted])}
    groups = [] if trainable.requests is None else trainable.requests(spec.config or {})
    if spec.engine == "inline" and groups and (elastic or all(len(group.bundles) > 1 for group in groups)):
        why = "engine='inline' runs trials in this process, and a group of several workers needs processes"
        raise ConfigError(f"{why}. Use engine='local', or ScalingConfig(num_workers=1) to debug.")
    if groups and not any(map(packer.could_ever_fit, groups)):  # else the trials of the others say why they cannot
        requests.add(min(groups, key=lambda group: len(group.bundles)))
    for request in requests:
        if not packer.could_ever_fit(request):
            raise ResourceError(packer.why_never(request, of_workers=trainable.group is not None))
    variables = None  # only the searcher knows
    if spec.search_alg is None or has_domains(spec.config or {}):
        paths = [path_name(path) for path, _ in _varied(spec.config)]
        variables = tuple(dict.fromkeys([*paths, *policies.scheduler.mutated_paths]))
    plan = _plan(spec, trainable, policies, max(_AHEAD, _AHEAD_PER_NODE * len(nodes)), request=request, **facts)
    if isinstance(groups_of := policies.scheduler, ElasticGroups):
        at_a_time, least_of = spec.max_concurrent_trials, request_of
        request_of = lambda config: groups_of.first_request(config, least_of(config), plan.num_trials, at_a_time)  # noqa: E731
    return Built(spec, seed, policies, plan, packer, wanted, request_of, variables)


def _plan(spec: RunSpec, trainable: PreparedTrainable, policies: Policies, ahead: int, **facts: Any) -> Plan:
    keep, failures, searcher, criteria = spec.checkpoints, spec.failures, policies.searcher, spec.stop_rules.criteria
    is_class = trainable.can_save_on_demand
    uses_metric = policies.metrics is not None or searcher.is_adaptive or not policies.scheduler.is_stateless
    own = {
        "num_trials": searcher.num_trials(spec.samples),
        "ask_ahead": 1 if searcher.is_adaptive else max(2, min(ahead, spec.max_concurrent_trials or ahead)),
        "metric": policies.metric,
        "mode": policies.mode,
        "required": policies.optimised if spec.strict_metric and uses_metric else (),
        "numbers": policies.numbers(key for key, bound in criteria.items() if not isinstance(bound, bool)),
        "stop": criteria,
        "time_budget_s": spec.budget_s,
        "can_save_on_demand": is_class,
        "retry_on": Plan.retry_on if failures.retry_on is None else failures.retry_on,
        "fail_fast": bool(failures.fail_fast),
        "checkpoint_score": keep.checkpoint_score_attribute or "",
        "checkpoint_mode": keep.checkpoint_score_order,
        "checkpoint_at_end": is_class if keep.checkpoint_at_end is None else keep.checkpoint_at_end,
        "retry_errored": spec.resuming.errored,
        "retry_unfinished": spec.resuming.unfinished,
        "is_unasked": spec.resources_per_trial is None and trainable.resources is None,
    }
    return Plan(**{**same_fields(Plan, spec, failures, keep), **own, **facts})


def _varied(space: Mapping[str, Any] | None) -> Iterator[tuple[Any, Any]]:
    """Yield path and domain, or grid, of what differs among trials."""
    return ((at, leaf) for at, leaf in walk(space or {}) if isinstance(leaf, Domain) or grid_values(leaf) is not None)


def seed_of(given: int | None, recorded: Mapping[str, Any]) -> int:
    """Return the given seed, that of the runs before, or one from numpy's global generator, which the user may seed."""
    import numpy as np

    known = given if given is not None else recorded.get("seed")
    return int(known if known is not None else np.random.randint(2**32, dtype=np.uint64))


def evaluated_points(given: Any, metric: Any = None, mode: Any = None) -> list[Point]:
    """Return pairs of config and last result, in the order of the trials; those without a result are left out.

    Metric and mode are the run's: what the values of a study are called that has no name for them, and which way they
    must be better there."""
    from sweep.record.reader import ExperimentReader
    from sweep.results.optuna_points import from_optuna, is_study
    from sweep.storage.fetch import open_storage_for_reading

    if is_study(given):
        modes = [mode] if isinstance(mode, str) else [one for one in mode or () if one != "obs"]
        there = ["min" if direction.name == "MINIMIZE" else "max" for direction in given.directions]
        if modes and modes != there:
            advice = "expected the same. If its values mean the same, give sweep.from_optuna(study, metric)"
            raise ConfigError(f"warm_start is a study with the directions {there}, and mode is {modes}; {advice}.")
        found: list[Point] = [*from_optuna(given, given.metric_names or metric)]
    elif isinstance(given, (str, os.PathLike)):
        path = open_storage_for_reading(given, None) if "://" in os.fspath(given) else given
        rows = ExperimentReader(path).trials()
        found = [(row.fresh_config(), None if row.status == "ERROR" else row.last_metrics) for row in rows]
    else:
        try:
            found = [(dict(config), result) for config, result in points_of(given)]
        except (SearchError, TypeError, ValueError) as error:
            raise ConfigError(
                f"warm_start is {given!r:.100} ({error}); expected the directory of an experiment, an analysis, "
                "results, a study of Optuna, or pairs of a config and its result."
            ) from error
    counted = "training_iteration"  # of what is filled in
    points: list[Point] = [(config, own_metrics(flatten(result), counted)) for config, result in found if result]
    if not points:
        raise ConfigError(f"warm_start: of {len(found)} trials none has a result to learn from. Leave it out.")
    return points
