"""Run the best configs of an experiment again with other seeds."""

from __future__ import annotations

import os
from typing import Any

from searchers.base import derived_seed
from searchers.variants import Path, walk
from sweep import checks
from sweep.confirmation import REPEATS, TOP
from sweep.confirmation.outcome import Confirmation, confirmation_of
from sweep.confirmation.race import Race
from sweep.core.ranking import shown_objectives
from sweep.core.results import TRIAL_INDEX
from sweep.core.stoppers import ExperimentPlateauStopper, FunctionStopper, reached
from sweep.errors import ConfigError, SweepStalled, refuse_unknown
from sweep.launch.execute import execute
from sweep.launch.spec import PARAMETERS, StopRules
from sweep.launch.target import asked
from sweep.record.reader import ExperimentReader, find_experiment
from sweep.requests.attached import Attached
from sweep.results.analysis import ExperimentAnalysis, RecordedSweep
from sweep.results.winners import no_number
from sweep.schedulers import create_scheduler
from sweep.storage.filesystems import storage_of

# Of the call: the race is another search, goes to its end and learns from nothing.
_SPARE = "search_alg num_samples time_budget_s warm_start resume resume_config seed metric mode".split()
_SET = {"config", "name", "num_samples", "resume", "resume_config", "scheduler", "search_alg", "warm_start"}


@refuse_unknown(also=PARAMETERS.keys() - _SET)
def confirm(
    experiment: Any,
    top: int = TOP,
    repeats: int = REPEATS,
    *,
    metric: str | None = None,
    mode: str | None = None,
    storage_path: str | None = None,
    trainable: Any = None,
    **arguments: Any,
) -> Confirmation:
    """Run the best configs of an experiment again with other seeds, as the sweep `<experiment>-confirm`, and say which
    one to take. Called again it goes on with what was interrupted, and runs nothing twice.

    After three repeats of each, a config is dropped as soon as it is unlikely to have the best mean in the end (see
    `standing` in race.py); the sweep ends when one is left. Trials run to their full length, with the resources and
    settings that they had. In each repeat all configs have the same new seed of the trial, and the same new values of
    parameters called seed, random_state or random_seed that are whole numbers, and of a Repeater's index; configs that
    differ in nothing else count once.

    Args:
        experiment: its name, directory, analysis or results. It has ended, or was stopped.
        top: how many configs, by their last reports; without trials in ERROR.
        repeats: runs of each config at most, at least 2.
        metric, mode: as of `ExperimentAnalysis.get_best_trial`.
        storage_path: where experiments lie, for a name.
        trainable: where that of the experiment cannot be loaded.
        arguments: of `sweep.run`, in place of those of the experiment.

    Raises:
        ConfigError: it runs, has several objectives and no metric is given, its scheduler changes configs, or there is
            an `<experiment>-confirm` of something else.
        MetricError: no trial has a number under the metric.
        ExperimentError: there is no such experiment, or it cannot be run again.
    """
    is_read = isinstance(experiment, RecordedSweep)
    reader = experiment._reader if is_read else find_experiment(os.fspath(experiment), storage_path)
    if Attached(reader).is_running:
        raise ConfigError(f"{reader.name} still runs, and its best may change. Wait, or `sweep stop {reader.name}`.")
    if metric is None and (many := shown_objectives(reader.objectives)):
        raise ConfigError(f"{reader.name} optimised {many}, so no config is best. Say by which: metric=..., --metric.")
    analysis = ExperimentAnalysis(reader.root, trust=True)
    metric, mode = analysis.chosen_metric(metric, mode)
    configs, seeds = _candidates(analysis, metric, mode, checks.whole("top", top, least=1))
    race = Race(configs, repeats, seeds=seeds)
    place = reader.root.with_name(f"{reader.root.name}-confirm")
    found = confirmation_of(reader)
    if found is None and (place / "sweep.db").is_file() and ExperimentReader(place).trials():
        raise ConfigError(f"{place} is another sweep, and the repeats would have its name. Rename it, or delete it.")
    if found is not None:
        was = (sorted(one["trial"] for one in found.configs), found.metric, found.mode, found.repeats)
        if was != (now := (sorted(configs), metric, mode, repeats)):
            had, asks = ("trials {}, metric {} ({}), repeats {}".format(*one) for one in (was, now))
            raise ConfigError(f"{place} was begun with {had}; asked for is {asks}. Ask for the same, or delete it.")
    if found is None or not found.is_over:
        storage = storage_of(reader.root) or str(reader.root.parent)
        own, given = asked(reader, storage, trainable=trainable, spare=_SPARE)
        seed = derived_seed(int(reader.meta.get("seed") or 0), 1)  # with the same, trials would have the same again
        given |= {"search_alg": race, "metric": metric, "mode": mode, "seed": seed, "stop": _end_of(given)}
        given |= {"num_samples": race.num_trials(None), "raise_on_failed_trial": False, **arguments}
        result = execute(own, given | {"name": place.name, "resume": "AUTO"})
        if (found := confirmation_of(reader)) is None:
            raise SweepStalled(f"no trial of {place.name} was begun; see `sweep show {place.name}`.")
        found.interrupted = result.interrupted
    return found


def _candidates(
    analysis: ExperimentAnalysis, metric: str, mode: str, top: int
) -> tuple[dict[int, dict[str, Any]], dict[Path, int]]:
    """Return the best configs by their trials' numbers, and the largest value ever of each seed that is in all."""
    configs: dict[int, dict[str, Any]] = {}
    found: dict[Any, set[Path]] = {}
    largest: dict[Path, int] = {}
    for trial, _ in analysis.ranking(metric, mode):
        leaves = dict(walk(trial.config))
        seeds = {path: leaf for path, leaf in leaves.items() if type(leaf) is int and _is_seed(path)}
        largest |= {path: max(leaf, largest.get(path, leaf)) for path, leaf in seeds.items()}
        key = frozenset((path, repr(leaf)) for path, leaf in leaves.items() if path not in seeds)
        if trial.status != "ERROR" and key not in found and len(found) < top:
            configs[trial.number], found[key] = dict(trial.config), set(seeds)
    if not configs:
        raise no_number(analysis._reader, metric)
    return configs, {path: largest[path] for path in set.intersection(*found.values())}


def _is_seed(path: Path) -> bool:
    last = str(path[-1]).rpartition(".")[2]
    return last in ("seed", "random_state", "random_seed", TRIAL_INDEX) and all(isinstance(key, str) for key in path)


def _end_of(given: dict[str, Any]) -> Any:
    """Return `stop=` for trials of full length, which may be what the scheduler has set; and take that out."""
    scheduler, stop = given.pop("scheduler", None), given.get("stop")
    scheduler = create_scheduler(scheduler) if isinstance(scheduler, str) else scheduler
    scheduler = getattr(scheduler, "inner", None) or scheduler
    if getattr(scheduler, "is_searching", False):
        kind = type(scheduler).__name__
        raise ConfigError(f"{kind} changes configs while trials run, so none stands for a trial. Run the sweep again.")
    if isinstance(stop, (list, tuple)):
        stop = [one for one in stop if not isinstance(one, ExperimentPlateauStopper)]
    rules, most = StopRules.parse(stop), getattr(scheduler, "max_t", None)
    if most is None or not getattr(scheduler, "stop_last_trials", True):
        return stop
    limit = {scheduler.time_attr: min(most, rules.criteria.get(scheduler.time_attr, most))}
    if rules.stopper is None:
        return {**rules.criteria, **limit}
    return [rules.stopper, FunctionStopper(lambda trial_id, result: bool(reached(limit, result)))]
