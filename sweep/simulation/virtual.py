"""Try schedulers, searchers and machines in virtual time: the sweep's own decisions, on curves and not processes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sweep.core.config import CheckpointConfig
from sweep.core.messages import Changes, Command, Event, Notify, Tick
from sweep.core.ranking import Objectives, best_of, objectives_of, shown_objectives
from sweep.core.resources import Node
from sweep.core.results import TrialResult, flatten
from sweep.core.sweep import Sweep
from sweep.core.trial import CheckpointRef, Trial
from sweep.engines.simulator import Curve, Simulator
from sweep.errors import ConfigError, refuse_unknown
from sweep.launch.build import Built, build
from sweep.launch.drive import drive
from sweep.launch.spec import RunSpec
from sweep.simulation.curves import Curves
from sweep.worker.trainable import PreparedTrainable

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Arrival:
    """One report as the sweep got it.

    Attributes:
        at: virtual seconds since the beginning.
        metrics: with what is filled in (`training_iteration`, `time_total_s` ...).
    """

    at: float
    trial_id: str
    metrics: Mapping[str, Any]


@dataclass
class Simulation:
    """What happened in virtual time.

    Attributes:
        trials: as they ended, in the order they were made.
        arrivals: all reports, in the order of arrival.
        seconds: virtual time from the first start to the last end.
        notices: what the scheduler would have told the user.
        objectives: (metric, mode) of each of several; then `metric` and `mode` are the first.
        num_events: how many facts the sweep took: suggestions, starts, reports, ends; not that time went by.
    """

    metric: str
    mode: str
    trials: list[Trial] = field(default_factory=list)
    arrivals: list[Arrival] = field(default_factory=list)
    seconds: float = 0.0
    notices: list[str] = field(default_factory=list)
    objectives: Objectives = ()
    num_events: int = 0

    @property
    def best_trial(self) -> Trial | None:
        """The best trial by its last report, the first of equals; None if no last report has a number.

        Raises:
            ConfigError: there are several objectives, so none is best (a ValueError).
        """
        if self.objectives:
            raise ConfigError(
                f"the simulation has several objectives, {shown_objectives(self.objectives)}, so no single trial is "
                "best. Give the values of [trial.last_result for trial in found.trials] to searchers.pareto_front."
            )
        if not self.metric:
            return None
        last = ((trial, trial.last_result) for trial in self.trials)
        best = best_of(((trial, result.get(self.metric)) for trial, result in last if result is not None), self.mode)
        return None if best is None else best[0]

    @property
    def best_result(self) -> TrialResult | None:
        """The last report of `best_trial`."""
        trial = self.best_trial
        return trial.last_result if trial is not None else None

    @property
    def trial_seconds(self) -> float:
        """Seconds that trials spent up to their reports, summed: what the trials cost."""
        return sum(float(arrival.metrics["time_this_iter_s"]) for arrival in self.arrivals)

    def get_dataframe(self) -> pd.DataFrame:
        """Return one row per report: `at`, `trial_id`, the metrics, and the config as `config/x`."""
        import pandas as pd

        configs = {
            trial.id: {f"config/{key}": value for key, value in flatten(trial.config).items()} for trial in self.trials
        }
        rows = [{"at": a.at, "trial_id": a.trial_id, **a.metrics, **configs[a.trial_id]} for a in self.arrivals]
        return pd.DataFrame(rows)


class Unobserved:
    """Stands for callbacks where there are none."""

    driver_is_in: tuple[str, float] | None = None

    def notify(self, told: Sequence[Notify]) -> None:
        """Hear what became of trials."""

    def step(self, trials: Mapping[str, Trial], now: float, changed: Sequence[str]) -> None:
        """Hear that a batch was handled."""


class _Record(Unobserved):
    """The record of a simulation: what is asked for afterwards, in memory."""

    def __init__(self, simulator: Simulator) -> None:
        self.arrivals: list[Arrival] = []
        self.num_events = 0
        self._simulator = simulator

    def commit(
        self, events: Sequence[Event], commands: Sequence[Sequence[Command]], changes: Changes, now: float
    ) -> None:
        self.num_events += sum(type(event) is not Tick for event in events)
        self.arrivals += [Arrival(now, metrics["trial_id"], metrics) for metrics in changes.results.values()]

    def discard(self, checkpoint: CheckpointRef) -> None:
        self._simulator.forget(checkpoint.path)


@refuse_unknown()
def simulate(
    curve: Curve,
    *,
    config: Mapping[str, Any] | None = None,
    metric: str | Sequence[str] | None = None,
    mode: str | Sequence[str] | None = None,
    num_samples: int | None = None,
    search_alg: Any = None,
    scheduler: Any = None,
    cpus: float | None = None,
    nodes: Sequence[Node] | None = None,
    absences: Mapping[str, Sequence[tuple[float, float]]] | None = None,
    resources_per_trial: Any = None,
    max_concurrent_trials: int | None = None,
    stop: Any = None,
    time_budget_s: float | timedelta | None = None,
    seed: int = 0,
    start_s: float = 0.0,
    stop_s: float = 0.0,
    can_save_on_demand: bool | None = None,
) -> Simulation:
    """Run a sweep in virtual time: the same core, packing, searcher and scheduler as `sweep.run`, and no processes.

    Args:
        curve: what a trial does: called with its config and the number of reports that the checkpoint it continues
            from contains (0: from the start), it yields `Point(seconds, metrics, has_checkpoint)`. A curve with a
            third parameter is also given the `state` of that checkpoint's point (None: none). Returning ends the
            trial, raising fails it. Or recorded `Curves`: then their configs are tried in their order unless `config`
            or `search_alg` is given, and what else is left out is as it was recorded.
        num_samples: 1, or all recorded configs, if it is left out; -1 for no limit.
        config, metric, mode, search_alg, scheduler, stop, time_budget_s, max_concurrent_trials: as in
            `sweep.run`.
        cpus: of the one machine, 1 if left out; every trial takes one unless `resources_per_trial` says otherwise.
        nodes: the machines, instead of `cpus`.
        absences: by the id of a node, from when to when it is away, in virtual seconds and in order. Its trials are
            lost, and start again from their last checkpoints.
        seed: of searcher and scheduler; the same seed gives the same simulation.
        start_s, stop_s: virtual seconds that a start takes, and an end.
        can_save_on_demand: trials save whenever they are asked to, as class trainables do; left out: they do not.

    Raises:
        ConfigError, SpaceError, ResourceError: as `sweep.run` does for the same arguments.
        SweepError: what the sweep ended with.
    """
    recorded = curve if isinstance(curve, Curves) else None
    if recorded is not None:
        metric, mode = (recorded.metric, recorded.mode) if metric is None and mode is None else (metric, mode)
        if config is None and search_alg is None:
            search_alg = recorded.searcher()
            num_samples = -1 if num_samples is None else num_samples
        if resources_per_trial is None:
            resources_per_trial = recorded.request_of
        can_save_on_demand = recorded.can_save_on_demand if can_save_on_demand is None else can_save_on_demand
    spec = RunSpec(
        trainable=curve,
        config=config,
        metric=metric,
        mode=mode,
        num_samples=1 if num_samples is None else num_samples,
        search_alg=search_alg,
        scheduler=scheduler,
        resources_per_trial=resources_per_trial,
        max_concurrent_trials=max_concurrent_trials,
        stop=stop,
        time_budget_s=time_budget_s,
        checkpoint_config=CheckpointConfig(checkpoint_at_end=False),
        strict_metric=False,
    )
    if nodes is None and cpus is None and recorded is not None:
        nodes = recorded.nodes
    machine = tuple(nodes) if nodes is not None else (Node("local", 1.0 if cpus is None else float(cpus)),)
    trainable = PreparedTrainable("curve", "function", b"", can_save_on_demand=bool(can_save_on_demand))
    built = build(spec, trainable, machine, seed=seed)
    if recorded is not None and built.policies.scheduler.is_searching:
        raise ConfigError(
            f"{type(built.policies.scheduler).__name__} changes configs while trials run, and recorded curves hold "
            "only those that were run from beginning to end. Give a function that computes curves instead."
        )
    if unknown := sorted({*(absences or ())} - {node.id for node in machine}):
        raise ConfigError(f"absences names {unknown[0]!r}, which is none of the nodes.")
    times = {"start_s": start_s, "stop_s": stop_s}
    simulator = Simulator(curve, machine, has_state=_has_state(curve), absences=absences, **times)
    return drive_in_virtual_time(built, simulator)


def drive_in_virtual_time(built: Built, simulator: Simulator) -> Simulation:
    """Drive a sweep to its end, on what the simulator's trials do."""
    policies, record = built.policies, _Record(simulator)
    sweep = Sweep(built.plan, policies.scheduler, built.packer)
    drive(
        sweep,
        simulator,
        policies.searcher,
        record,
        record,
        request_of=built.request_of,
        judge=built.spec.stop_rules.judge,
        complete=policies.complete,
    )
    return Simulation(
        policies.metric,
        policies.mode,
        list(sweep.trials.values()),
        record.arrivals,
        simulator.now(),
        [*policies.notices, *policies.scheduler.notices],
        objectives_of(policies.metrics, policies.modes or policies.mode),
        record.num_events,
    )


def _has_state(curve: Curve) -> bool:
    """Whether a curve takes a third argument: the state that it continues from."""
    try:
        parameters = list(inspect.signature(curve).parameters.values())
    except (TypeError, ValueError):
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in kinds for parameter in parameters) >= 3
