"""From what was asked to what decides: plan, policies, packer, requests and verdicts. No file and no process."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from searchers.space import Domain
from searchers.variants import grid_values, has_domains, path_name, walk
from sweep.core.messages import Verdict
from sweep.core.packing import Packer
from sweep.core.plan import Plan
from sweep.core.resources import Node, Resources, parse_resources
from sweep.core.results import TrialResult
from sweep.errors import ConfigError, ResourceError
from sweep.launch.policies import Policies, build_policies, refuse_foreign_domains
from sweep.launch.spec import RunSpec, same_fields
from sweep.schedulers.resource_changing import ResourceChangingScheduler
from sweep.worker.trainable import PreparedTrainable, prepare

# Configs that may wait for a place, where the searcher loses nothing by being asked early: in all, and for each of many
# nodes, so that there is something for every gap.
_AHEAD = 64
_AHEAD_PER_NODE = 4


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
    judge: Callable[[str, TrialResult], Verdict] | None
    variables: tuple[str, ...] | None  # config paths that vary among trials; None: only the searcher knows


def prepared(spec: RunSpec) -> tuple[RunSpec, PreparedTrainable]:
    """Return what was asked with the space that the trainable makes of it, and the trainable as engines take it."""
    trainable = prepare(spec.trainable)
    if spec.trainable_name:
        trainable = replace(trainable, name=spec.trainable_name)
    if trainable.space is not None:
        spec = replace(spec, config=trainable.space(spec.config or {}))
    return spec, trainable


def check(spec: RunSpec) -> None:
    """Refuse what no run of this spec could begin with, whatever its searcher, its metric and its machine."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the run itself says it
        spec, trainable = prepared(spec)
    refuse_foreign_domains(spec.config)
    _requests(spec, trainable)
    _refuse_for_functions(spec, trainable)
    _ = spec.stop_rules  # checked as they are read


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
    refuse_foreign_domains(spec.config)
    wanted, request_of = _requests(spec, trainable)
    policies = build_policies(spec, seed)
    if trainable.group is not None and isinstance(policies.scheduler, ResourceChangingScheduler):
        raise ConfigError(
            "ResourceChangingScheduler changes what a trial asks for, and a training group keeps its size: its "
            "request comes from its ScalingConfig alone. Use another scheduler, or search over num_workers."
        )
    ahead = max(_AHEAD, _AHEAD_PER_NODE * len(nodes))
    plan = _plan(spec, trainable, policies, ahead, **facts)
    packer = Packer(nodes, away)
    requests = {*open_requests, *([] if wanted is None else [wanted]), *_least_group(spec, trainable, packer)}
    for request in requests:
        if not packer.could_ever_fit(request):
            raise ResourceError(packer.why_never(request, of_workers=trainable.group is not None))
    variables = _variables(spec, policies)
    return Built(spec, seed, policies, plan, packer, wanted, request_of, spec.stop_rules.judge, variables)


def _requests(
    spec: RunSpec, trainable: PreparedTrainable
) -> tuple[Resources | None, Callable[[Mapping[str, Any]], Resources]]:
    given, own = spec.resources_per_trial, trainable.resources
    if given is not None and own is not None:
        where = "in one place" if trainable.group is None else "by the trainer's ScalingConfig only"
        raise ResourceError(
            f"resources were given twice: by resources_per_trial and by the trainable itself. Give them {where}."
        )
    wanted = given if given is not None else own
    if callable(wanted):
        return None, lambda config: parse_resources(wanted(config))
    fixed = parse_resources(wanted)
    return fixed, lambda config: fixed


def _refuse_for_functions(spec: RunSpec, trainable: PreparedTrainable) -> None:
    for name in ("checkpoint_frequency", "checkpoint_at_end"):
        if getattr(spec.checkpoints, name) and not trainable.can_save_on_demand:
            raise ConfigError(f"{name} is for class trainables; a function reports checkpoints by itself.")


def _plan(spec: RunSpec, trainable: PreparedTrainable, policies: Policies, ahead: int, **facts: Any) -> Plan:
    keep, failures, searcher, criteria = spec.checkpoints, spec.failures, policies.searcher, spec.stop_rules.criteria
    is_class = trainable.can_save_on_demand
    _refuse_for_functions(spec, trainable)
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
        "retry_on": failures.retried,
        "trial_timeout_s": failures.trial_limit_s,
        "fail_fast": bool(failures.fail_fast),
        "checkpoint_score": keep.checkpoint_score_attribute or "",
        "checkpoint_mode": keep.checkpoint_score_order,
        "checkpoint_at_end": is_class if keep.checkpoint_at_end is None else keep.checkpoint_at_end,
        "retry_errored": spec.resuming.errored,
        "retry_unfinished": spec.resuming.unfinished,
        "is_unasked": spec.resources_per_trial is None and trainable.resources is None,
    }
    return Plan(**{**same_fields(Plan, spec, failures, keep), **own, **facts})


def _least_group(spec: RunSpec, trainable: PreparedTrainable, packer: Packer) -> list[Resources]:
    """Return the smallest request that groups of the space come to, if none of them fits: some of several sizes may
    run, and the trials of the others say why they cannot."""
    found = [] if trainable.requests is None else trainable.requests(spec.config or {})
    if spec.engine == "inline" and found and all(len(resources.bundles) > 1 for resources in found):
        raise ConfigError(
            "engine='inline' runs trials in this process, and a group of several workers needs processes. Use "
            "engine='local', or ScalingConfig(num_workers=1) to debug."
        )
    if not found or any(packer.could_ever_fit(resources) for resources in found):
        return []
    return [min(found, key=lambda resources: len(resources.bundles))]


def _variables(spec: RunSpec, policies: Policies) -> tuple[str, ...] | None:
    config = spec.config or {}
    if spec.search_alg is not None and not has_domains(config):
        return None
    varied = [path for path, leaf in walk(config) if isinstance(leaf, Domain) or grid_values(leaf) is not None]
    return tuple(dict.fromkeys([*map(path_name, varied), *policies.scheduler.mutated_paths]))


def seed_of(given: int | None, recorded: Mapping[str, Any]) -> int:
    """Return the seed of a run: the given one, that of the runs before, or one from numpy's global generator, so that
    `np.random.seed(...)` before a run makes it repeatable."""
    import numpy as np

    known = given if given is not None else recorded.get("seed")
    return int(known if known is not None else np.random.randint(2**32, dtype=np.uint64))
