"""Resource changing: trials get more of the machine, or less, while they run; another scheduler decides all else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from sweep import checks
from sweep.core.messages import Decision, ResizeTrial, SaveTrial
from sweep.core.packing import Packer
from sweep.core.resources import Node, Resources, parse_resources
from sweep.core.results import TrialResult
from sweep.core.trial import Trial
from sweep.errors import ConfigError, ResourceError, refuse_unknown
from sweep.schedulers.base import Scheduler, WrappingScheduler
from sweep.schedulers.distribute import DistributeResources, DistributeResourcesToTopJob, TrialsView
from sweep.schedulers.fifo import FIFOScheduler

# Called with a view of the sweep, a trial, its result and the scheduler; returns a request, or None for no change.
AllocationFunction = Callable[[TrialsView, Trial, TrialResult, "ResourceChangingScheduler"], Any]


@refuse_unknown()
@final
class ResourceChangingScheduler(WrappingScheduler):
    """Let a function decide after every result what the trial asks for from then on.

    Where the answer differs from what the trial has, it is saved, ended and started again from its checkpoint with the
    new request; it reads that with `get_context().get_trial_resources()`. A trial that never saved a checkpoint cannot
    be changed: it keeps its request until it has. One that was changed and then finds no room goes back to the request
    it began with, and is not changed again before another trial has ended.

    Args:
        base_scheduler: decides everything else; None: FIFO. The function is asked only after results for which it says
            nothing of the trial.
        resources_allocation_function: called as `fn(view, trial, result, scheduler)`, `view` being a `TrialsView`;
            returns a dict, `Resources` or a `PlacementGroupFactory`, or None for no change. None: an equal part for
            everybody, as `DistributeResources()` gives. It must return the same for the same arguments.

    Attributes:
        base_trial_resources: the request that all trials begin with; None before the first.

    Raises:
        ConfigError: `base_scheduler` is no scheduler, or the function is none.

    Source: Ray Tune's scheduler of this name. Departures: trials that begin with different requests are an error of
    `add` rather than of the first result; the allocation is what the packer can place, node by node; trials may be
    changed with `reuse_actors=True` too, because a change always ends the attempt.
    """

    def __init__(
        self,
        base_scheduler: Scheduler | None = None,
        resources_allocation_function: AllocationFunction | None = None,
    ) -> None:
        base_scheduler = FIFOScheduler() if base_scheduler is None else base_scheduler
        if not isinstance(base_scheduler, Scheduler) or isinstance(base_scheduler, ResourceChangingScheduler):
            checks.refuse("base_scheduler", base_scheduler, "a scheduler such as ASHAScheduler(), or None for FIFO")
        function = DistributeResources() if resources_allocation_function is None else resources_allocation_function
        if not callable(function) or isinstance(function, type):
            expected = "a function of (view, trial, result, scheduler), or an object such as DistributeResources()"
            checks.refuse("resources_allocation_function", function, expected)
        super().__init__(base_scheduler)
        self.base_scheduler = base_scheduler
        self.resources_allocation_function = function
        self._notices: list[str] = []
        self._view = TrialsView()
        self._packer = Packer()
        self._known: set[str] = set()
        self._asked: dict[str, int] = {}  # the attempt in which a change was last asked for
        self._changed: dict[str, Resources] = {}  # live trials that are to have another request than the base
        self._num_ended = 0
        self._barred: dict[str, int] = {}  # trials that found no room, and how many had ended then

    @property
    def base_trial_resources(self) -> Resources | None:
        """The request that all trials begin with; None before the first."""
        return self._view.base_resources

    @property
    def notices(self) -> Sequence[str]:  # type: ignore[override]  # an attribute of others
        """What the user should know, by the base scheduler and then by this one."""
        return [*self.base_scheduler.notices, *self._notices]

    def set_search_properties(self, metric: str | None, mode: str | None, *, seed: int = 0) -> None:
        """Hand metric, mode and seed of the run to the base scheduler.

        Raises:
            ConfigError: it refuses them, or the best trial is to get everything and there is no metric.
        """
        super().set_search_properties(metric, mode, seed=seed)
        if isinstance(self.resources_allocation_function, DistributeResourcesToTopJob):
            self.resources_allocation_function.check_metric(self.metric)

    def on_trial_add(self, trial: Trial) -> None:
        """Hear of a new trial.

        Raises:
            ConfigError: it begins with another request than the others, or none that the function could change.
        """
        view = self._view
        if view.base_resources is None:
            check = getattr(self.resources_allocation_function, "check", None)
            if check is not None:
                check(trial.asked)
            view.base_resources = trial.asked
        elif trial.id not in self._known and trial.asked != view.base_resources:
            raise ConfigError(
                f"trial {trial.number:05d} begins with {trial.asked}, others with {view.base_resources}; "
                "ResourceChangingScheduler needs trials that all begin alike. Give resources_per_trial as one request "
                "instead of a function of the config."
            )
        self._known.add(trial.id)
        view.add(trial)
        self.base_scheduler.on_trial_add(trial)

    def on_result(self, trial: Trial, result: TrialResult, trials: Mapping[str, Trial]) -> Sequence[Decision]:
        decisions = list(self.base_scheduler.on_result(trial, result, trials) or ())
        self._view.see(trials)
        self._view.add(trial)
        named = {decision.trial_id for decision in decisions}
        change = self._change(trial, result) if trial.id not in named else None
        decisions += [] if change is None else [change]
        return decisions + self._take_back(trials, {*named, trial.id})

    def on_trial_end(self, trial: Trial) -> Sequence[Decision]:
        self._view.remove(trial)
        self._num_ended += 1
        for memory in (self._asked, self._changed, self._barred):
            memory.pop(trial.id, None)
        return self.base_scheduler.on_trial_end(trial)

    def on_refused(self, trial: Trial, decision: Decision) -> Sequence[Decision]:
        if isinstance(decision, ResizeTrial) and decision.resources == self._changed.get(trial.id):
            return ()  # this one's own; what follows from it is seen at the next result, after a restart too
        return self.base_scheduler.on_refused(trial, decision)

    def on_nodes_changed(self, nodes: Sequence[Node]) -> Sequence[Decision]:
        """Take the new nodes; trials whose request fits on none of them go back to what they began with."""
        decisions = list(self.base_scheduler.on_nodes_changed(nodes))
        self._view.nodes = tuple(nodes)
        self._packer.set_nodes(self._view.nodes)
        self._barred.clear()
        base = self._view.base_resources
        for trial_id, request in list(self._changed.items()):
            if base is not None and not self._packer.could_ever_fit(request):
                del self._changed[trial_id]
                decisions.append(ResizeTrial(trial_id, base))
        return decisions

    def _change(self, trial: Trial, result: TrialResult) -> ResizeTrial | None:
        """Return the change that the function wants for a trial now; None: none, or none that is possible.

        What was asked for in this attempt was refused if there still is no checkpoint. That is read from the trial, and
        not from `on_refused`, because a restart repeats results only.
        """
        if self._barred.get(trial.id) == self._num_ended:
            return None
        if trial.checkpoint is None and self._asked.get(trial.id) == trial.attempt:
            self._changed.pop(trial.id, None)
            self._note(
                "ResourceChangingScheduler cannot change the resources of a trial that never saved a checkpoint; it "
                "keeps what it has until it has saved one. Report checkpoints."
            )
            return None
        pending = trial.pending
        is_changing = isinstance(pending, ResizeTrial) and pending.resources != trial.resources
        if pending is not None and not is_changing and not isinstance(pending, SaveTrial):
            return None  # a pause, or a turn for others, comes first
        wanted = self.resources_allocation_function(self._view, trial, result, self)
        if wanted is None:
            return None
        if not isinstance(wanted, Resources):
            if not isinstance(wanted, Mapping) or not wanted:
                raise ResourceError(
                    f"the function of ResourceChangingScheduler returned {wanted!r:.100}; expected a dict such as "
                    "{'cpu': 2}, a PlacementGroupFactory, or None for no change."
                )
            wanted = parse_resources(wanted)
        promised = pending.resources if isinstance(pending, ResizeTrial) else trial.resources
        if wanted != promised and self._view.nodes and not self._packer.could_ever_fit(wanted):
            self._note(
                "the function of ResourceChangingScheduler wanted what no machine has, and nothing was changed: "
                + self._packer.why_never(wanted)
            )
            return None
        if wanted != self._view.base_resources:
            self._changed[trial.id] = wanted
        else:
            self._changed.pop(trial.id, None)
        if wanted == promised:
            return None
        self._asked[trial.id] = trial.attempt
        return ResizeTrial(trial.id, wanted)

    def _take_back(self, trials: Mapping[str, Trial], named: set[str]) -> list[Decision]:
        """Return the decisions that let changed trials that wait for room start again with what they began with."""
        base = self._view.base_resources
        decisions: list[Decision] = []
        for trial_id in [changed for changed in self._changed if changed not in named]:
            other = trials.get(trial_id)
            if other is not None and other.is_waiting:
                del self._changed[trial_id]
                self._barred[trial_id] = self._num_ended
                if base is not None and other.resources != base:
                    decisions.append(ResizeTrial(trial_id, base))
        return decisions

    def _note(self, notice: str) -> None:
        if notice not in self._notices:
            self._notices.append(notice)

    def state(self) -> Any:
        """Return the base scheduler's state, which trials live, and which hold another request; for replay checks."""
        return self.base_scheduler.state(), self._view.live_ids, self._changed

    def debug_string(self) -> str:
        text = self.base_scheduler.debug_string()
        return f"(ResourceChangingScheduler, {len(self._changed)} changed) {text}"
