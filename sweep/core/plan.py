"""What a run was asked to do, as plain values: the part of the arguments that the state machine needs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sweep.core.failures import RETRIED
from sweep.core.resources import Resources


@dataclass(frozen=True)
class Plan:
    """What a run was asked to do; recorded as the first event of every run of the driver.

    Attributes:
        prefix: five hex digits that the ids of this experiment's trials begin with.
        num_trials: how many trials to make at most; None: until the searcher is exhausted or the budget is spent.
        max_running: how many trials may run at a time, as a person has said since; None: as many as fit.
        ask_ahead: how many configs may wait; 1 for an adaptive searcher.
        metric, mode: what is optimised; empty when nothing was said. With several objectives: the first.
        required: metrics that trials must report, and as numbers: all objectives, unless the metric is not strict.
        numbers: other keys that must be numbers where they are reported: what scheduler and `stop` read, what is
            filled in.
        stop: metric -> value; a trial ends when any of them is reached (>=; True and False by an equal value).
        time_budget_s: seconds of driving, over all runs of the driver; None: no limit.
        can_save_on_demand: the trainable is a class that stores a checkpoint when asked.
        max_failures: failures a trial may have and still be started again; -1: unlimited.
        max_losses: likewise for faults of the infrastructure. max_node_losses: likewise for nodes that are gone.
        max_identical_failures: how many trials may fail alike before any has reported; None: three rounds of those that
            run at a time, at least five; -1: unlimited.
        retry_on: classes of failures (`core.failures.CLASSES`) after which a trial is started again.
        out_of_memory: what becomes of a trial that ran out of memory: "retry" as after any failure, "retry_alone" with
            nothing else on its nodes, once even where no failure is allowed, or "fail".
        nan: a metric that is NaN is recorded ("record"), or a failure of the trial ("error").
        trial_timeout_s: seconds that a trial may run in all its attempts; then it is asked to stop. None: no limit.
        fail_fast: the first trial in ERROR ends the sweep.
        num_to_keep: checkpoints kept per trial; None: all.
        checkpoint_score, checkpoint_mode: which are kept; empty: the latest.
        checkpoint_frequency: a class trainable saves each that many reports; 0: never.
        checkpoint_at_end: a class trainable saves when it ends.
        stop_grace_s, save_grace_s, interrupt_grace_s: how long a trial may take to obey before it is killed.
        retry_errored: trials in ERROR are started again: "" (no), "continue" (from their checkpoint), "restart".
        retry_unfinished: on resume, trials that had not ended are continued; otherwise they are ended.
        is_unasked: the trials were given no request; their own processes then count for nothing beside the groups that
            they start.
        request: what all trials ask for that begin or go on, also those that asked for something else where they ran
            before; None: each for what it has asked for.
        lost: paths of checkpoints that were stored, not discarded, and gone when the run began.
    """

    prefix: str = "00000"
    num_trials: int | None = 1
    max_running: int | None = None
    ask_ahead: int = 64
    metric: str = ""
    mode: str = "max"
    required: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    stop: Mapping[str, float] = field(default_factory=dict)
    time_budget_s: float | None = None
    can_save_on_demand: bool = False
    max_failures: int = 0
    max_losses: int = 3
    max_node_losses: int = 10
    max_identical_failures: int | None = None
    retry_on: tuple[str, ...] = RETRIED
    out_of_memory: str = "retry"
    nan: str = "record"
    trial_timeout_s: float | None = None
    fail_fast: bool = False
    num_to_keep: int | None = None
    checkpoint_score: str = ""
    checkpoint_mode: str = "max"
    checkpoint_frequency: int = 0
    checkpoint_at_end: bool = False
    stop_grace_s: float = 5.0
    save_grace_s: float = 60.0
    interrupt_grace_s: float = 30.0
    retry_errored: str = ""
    retry_unfinished: bool = True
    is_unasked: bool = False
    request: Resources | None = None
    lost: tuple[str, ...] = ()

    def why_full(self, num_held: int) -> str:
        """Say that as many trials run as a person has allowed; empty: more may."""
        is_full = self.max_running is not None and num_held >= self.max_running
        return f"no more than {self.max_running} may run at a time" if is_full else ""

    def edited(self, detail: str) -> Plan:
        """Return the plan as a person wants it: `{"plan": {field: value}}`; a config that was given is one trial more.

        What a request says besides, as who made it, is not of the plan.
        """
        said = json.loads(detail)
        if "config" in said and self.num_trials is not None:
            return replace(self, num_trials=self.num_trials + 1)
        return replace(self, **said.get("plan", {}))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `Plan(**values)` reads them back."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}
