"""Elastic groups: as large as there is room for; when that changes they go on from a checkpoint at another size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, final

from sweep.core.messages import Decision, ResizeTrial
from sweep.core.packing import Packer
from sweep.core.resources import Node, Resources
from sweep.core.results import TrialResult
from sweep.core.trial import Status, Trial, evolve
from sweep.schedulers.base import Scheduler, WrappingScheduler


@final
class ElasticGroups(WrappingScheduler):
    """Choose the number of workers of groups that may have more or fewer; another scheduler decides all else.

    A group that waits gets its part of what is free, but never less than its minimum, for which it then waits. One that
    runs is looked at when it reports a checkpoint, `resize_every_s` after it started at the earliest: what others wait
    for is theirs, down to the minimum of the group, and the rest of what is free is the group's. If that is another
    size, it goes on from that checkpoint with it. When nodes have gone, a group takes what fits on the others.

    Args:
        inner: decides everything else.
        facts: what holds for groups whose config does not say it, as JSON values: `num_workers`, the least and the
            most, or None for groups that keep their size; `resize_every_s`, seconds.

    Attributes:
        packer: that of the sweep, which says which nodes there are, who holds a part, and what other sweeps hold.
    """

    def __init__(self, inner: Scheduler, facts: Mapping[str, Any]) -> None:
        super().__init__(inner)
        self.is_stateless = inner.is_stateless
        self.facts = facts
        self.packer = Packer()
        self._num_known = 0
        self._live: dict[str, Trial] = {}  # as they were heard of
        self._seen: Mapping[str, Trial] = {}  # as they are, since the first result

    def first_request(
        self, config: Mapping[str, Any], request: Resources, num_trials: int | None, at_a_time: int | None
    ) -> Resources:
        """Return what a new trial is to ask for: an equal part of what is free, for it and for those still to come.

        Args:
            request: with the least workers.
            num_trials: of the whole sweep. at_a_time: how many may run at a time. None: no limit.
        """
        sizes = self._sizes(config, request)
        limits = [(num_trials, self._num_known), (at_a_time, len(self._live))]
        left = [limit - used for limit, used in limits if limit is not None]
        if len(sizes) == 1 or not left:
            return request
        packer = self._free()
        for other in self._waiting():
            packer.place(other.resources, (other.id, 0))
        return _part(packer, sizes, max(1, min(left)))

    def size_at_checkpoint(self, trial: Trial) -> Resources:
        """Return what a trial that runs would go on with if it saved a checkpoint now."""
        packer, sizes = self._free(besides=trial.id), self._sizes_of(trial)
        for other in self._waiting():
            if packer.place(self._sizes_of(other)[0], (other.id, 0)) and not packer.fits_now(sizes[0]):
                packer.release((other.id, 0))
        return next((size for size in reversed(sizes) if packer.fits_now(size)), sizes[0])

    def outlook(self, trial: Trial) -> str:
        """Return how large a trial's group is and what becomes of that, for people; empty: it keeps its size."""
        sizes, number = self._sizes_of(trial), len(trial.resources.bundles)
        if len(sizes) == 1 or trial.is_ended:
            return ""
        most = len(sizes[-1].bundles)
        if not trial.is_held:
            return f"asks for {number} of at most {most} workers"
        later = len(self.size_at_checkpoint(trial).bundles)
        if later == number:
            return f"{number} of at most {most} workers" + (": no more room" if number < most else "")
        when = f"at its next checkpoint, at most every {self._field(trial.config, 'resize_every_s'):g} s"
        return f"{number} of at most {most} workers: {'grows' if later > number else 'shrinks'} to {later} {when}"

    def on_trial_add(self, trial: Trial) -> None:
        self._num_known += 1
        self._live[trial.id] = trial
        self.inner.on_trial_add(trial)

    def on_result(self, trial: Trial, result: TrialResult, trials: Mapping[str, Trial]) -> Sequence[Decision]:
        decisions = list(self.inner.on_result(trial, result, trials) or ())
        self._seen = trials
        if all(decision.trial_id != trial.id for decision in decisions):
            decisions += self._change(trial, result)
        return decisions + self._settle()

    def on_trial_end(self, trial: Trial) -> Sequence[Decision]:
        self._live.pop(trial.id, None)
        return [*(self.inner.on_trial_end(trial) or ()), *self._settle()]

    def on_refused(self, trial: Trial, decision: Decision) -> Sequence[Decision]:
        if isinstance(decision, ResizeTrial) and decision.resources != trial.resources:
            return ()  # this one's own
        return self.inner.on_refused(trial, decision)

    def on_nodes_changed(self, nodes: Sequence[Node]) -> Sequence[Decision]:
        decisions = list(self.inner.on_nodes_changed(nodes) or ())
        for trial in self._trials():
            decisions += self._within_nodes(trial)
        return decisions + self._settle(is_known=False)

    def _trials(self) -> list[Trial]:
        return [self._seen.get(trial_id, trial) for trial_id, trial in self._live.items()]

    def _waiting(self) -> list[Trial]:
        """Return the trials that wait for resources, the oldest first."""
        held = dict(self.packer.holders)
        waiting = [one for one in self._trials() if one.id not in held and one.status is not Status.PAUSED]
        return sorted(waiting, key=lambda trial: trial.ticket)

    def _field(self, config: Mapping[str, Any], name: str) -> Any:
        """Return what a trial's config says of its group, or what holds for all."""
        scaling, default = config.get("scaling_config"), self.facts[name]
        return scaling.get(name, default) if isinstance(scaling, Mapping) else getattr(scaling, name, default)

    def _sizes(self, config: Mapping[str, Any], request: Resources) -> list[Resources]:
        """Return the requests that a trial may have, the smallest first; one that is not elastic has one."""
        between = self._field(config, "num_workers")
        if not isinstance(between, (tuple, list)):
            return [request]
        return [replace(request, bundles=request.bundles[-1:] * n) for n in range(between[0], between[1] + 1)]

    def _sizes_of(self, trial: Trial) -> list[Resources]:
        return self._sizes(trial.config, trial.resources)

    def _free(self, besides: str = "") -> Packer:
        """Return the nodes with what trials hold, or are about to hold again, without that of one of them."""
        packer = Packer(self.packer.nodes)
        packer.set_others(self.packer.others)
        held, soon = dict(self.packer.holders), []
        for trial in self._trials():
            if trial.id == besides or trial.id not in held:
                continue
            if trial.status in (Status.STARTING, Status.RUNNING) and trial.placement is not None:
                packer.hold(trial.resources, trial.placement, (trial.id, 1))
            elif trial.status is Status.PENDING or isinstance(trial.pending, ResizeTrial):
                soon.append(trial)
        for trial in soon:
            packer.place(_promised(trial), (trial.id, 1))
        return packer

    def _change(self, trial: Trial, result: TrialResult) -> list[Decision]:
        """Return the decision that gives a trial another size after this result, if there is one."""
        is_restarting = isinstance(trial.pending, ResizeTrial)
        if len(self._sizes_of(trial)) == 1 or (trial.pending is not None and not is_restarting):
            return []
        if trial.checkpoint is None or trial.checkpoint.count < trial.count:
            return self._within_nodes(trial)
        if not is_restarting and result["time_since_restore"] < self._field(trial.config, "resize_every_s"):
            return []
        size = self.size_at_checkpoint(trial)
        return [] if size == _promised(trial) else [ResizeTrial(trial.id, size)]

    def _within_nodes(self, trial: Trial) -> list[Decision]:
        """Return the decision that makes a group as large as there are nodes for, where it is too large for them."""
        idle = Packer(self.packer.nodes)
        fitting = [size for size in self._sizes_of(trial) if idle.could_ever_fit(size)]
        return [ResizeTrial(trial.id, fitting[-1])] if fitting and not idle.could_ever_fit(_promised(trial)) else []

    def _settle(self, *, is_known: bool = True) -> list[Decision]:
        """Return the decisions that give each waiting trial its part of what is free.

        Args:
            is_known: what they ask for is as it was seen; not so at the beginning of a run.
        """
        waiting = [(trial, self._sizes_of(trial)) for trial in self._waiting()]
        number = sum(len(sizes) > 1 for _, sizes in waiting)
        packer = self._free() if number else Packer()
        decisions: list[Decision] = []
        for trial, sizes in waiting if number else ():
            size = sizes[0]
            if len(sizes) > 1:
                size, number = _part(packer, sizes, number), number - 1
            packer.place(size, (trial.id, 0))
            if len(sizes) > 1 and not (is_known and size == trial.resources):
                self._live[trial.id] = evolve(trial, resources=size)
                decisions.append(ResizeTrial(trial.id, size))
        return decisions


def _promised(trial: Trial) -> Resources:
    """Return what a trial has, or will have once it is saved."""
    return trial.pending.resources if isinstance(trial.pending, ResizeTrial) else trial.resources


def _part(packer: Packer, sizes: Sequence[Resources], number: int) -> Resources:
    """Return the largest size of which so many fit at once; the smallest, if not even that does."""
    for size in reversed(sizes):
        placed = 0
        while placed < number and packer.place(size, (f"part {placed}", 0)):
            placed += 1
        for one in range(placed):
            packer.release((f"part {one}", 0))
        if placed == number:
            return size
    return sizes[0]
