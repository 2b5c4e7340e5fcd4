"""A `fit()` in a trial: where its group lies in what the trial holds, and what the trial asks for if it needs more."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping

from sweep.core.capacity import BLOCKS, Capacity, Free
from sweep.core.packing import search
from sweep.core.resources import Bundle, Node, Placement, Resources, units_of
from sweep.core.trial import Escalation, Status, Trial, evolve


def place_inside(
    request: Resources,
    held: Resources,
    placement: Placement,
    kinds: Mapping[tuple[str, str], str],
    *,
    only: str = "",
) -> Placement | None:
    """Return where the bundles of a group lie within a trial's own placement, or None if they do not fit.

    What the trial holds on a node is packed like an idle node. The devices of its first bundle, which is for its own
    process, are taken last: that process waits while its group runs. Accelerator types and slices are not looked at.

    Args:
        request: of the group.
        held, placement: of the trial.
        kinds: "gpu" or "tpu" by (node, device id).
        only: node of which the bundles may be used; empty: any.
    """
    free: dict[str, Free] = {}
    own = list(zip(held.bundles, placement.bundles, strict=True))
    for bundle, place in (*own[1:], own[0]):
        if only not in ("", place.node):
            continue
        here = free.setdefault(place.node, Free(Node(place.node), 0, 0, {}))
        here.cpu += units_of(bundle.cpu)
        here.memory += bundle.memory
        for name, amount in bundle.custom:
            here.custom[name] = here.custom.get(name, 0) + units_of(amount)
        for device, share in place.devices:
            units = here.devices.setdefault(kinds[place.node, device], {})
            units[device] = units.get(device, 0) + units_of(share)
        chips = here.devices.get("tpu", {})
        while len(chips) % BLOCKS[-1]:  # a block of chips never reaches into those of the next bundle
            chips[f"none {len(chips)}"] = 0
    bundles = tuple(dataclasses.replace(bundle, accelerator_type="") for bundle in request.bundles)
    wanted = dataclasses.replace(request, bundles=bundles, bundles_per_slice=0, alone=False)
    return search(wanted, Capacity(free)) if free else None


def escalated_request(trial: Trial, wanted: Resources, *, is_unasked: bool) -> Resources:
    """Return what a trial must hold for a group that did not fit into what it held.

    The first bundle stays for the trial's own process; the others have room for the group, and for the groups of
    former calls: at each position the larger of the two. So a request only grows, and a trial whose groups are never
    satisfied ends where no machine can hold them.

    Args:
        trial: as it ran.
        wanted: what the group asks for.
        is_unasked: the trial itself was given no request; its own process then counts for nothing.

    Raises:
        ResourceError: the two cannot be had in one request.
    """
    asked, is_guess = trial.escalation or (trial.resources, True)
    own = Bundle() if is_unasked else asked.bundles[0]
    before = (asked if is_guess else trial.resources).bundles[1:]
    pairs = itertools.zip_longest(before, wanted.bundles, fillvalue=Bundle())
    return dataclasses.replace(
        wanted,
        bundles=(own, *(_larger(former, new) for former, new in pairs)),
        strategy=asked.strategy if wanted.strategy == "PACK" else wanted.strategy,
        alone=trial.resources.alone,
    )


def _larger(one: Bundle, other: Bundle) -> Bundle:
    """Return the bundle in which either of two fits."""
    custom = dict(one.custom)
    for name, amount in other.custom:
        custom[name] = max(amount, custom.get(name, 0.0))
    return Bundle(
        cpu=max(one.cpu, other.cpu),
        gpu=max(one.gpu, other.gpu),
        tpu=max(one.tpu, other.tpu),
        memory=max(one.memory, other.memory),
        custom=tuple(sorted(custom.items())),
        accelerator_type=other.accelerator_type or one.accelerator_type,
    )


class Escalations:
    """What requests have grown to, so that the next trials ask for that from the start.

    Where two trials that asked for the same came to need different things, the need depends on the config: then every
    trial finds out for itself.
    """

    def __init__(self, trials: Iterable[Trial] = ()) -> None:
        self._known: dict[Resources, Resources | None] = {}  # by what was asked for; None: that depends on the config
        for trial in trials:
            if trial.escalation is not None and not trial.escalation.is_guess:
                self._learn(trial.escalation.asked, trial.resources)

    def new(self, trial: Trial) -> Trial:
        """Return a new trial with the request that others with the same have grown to."""
        found = self._known.get(trial.resources)
        return (
            trial
            if found is None
            else evolve(trial, resources=found, escalation=Escalation(trial.resources, is_guess=True))
        )

    def learn(self, grown: Trial, trials: Iterable[Trial]) -> list[Trial]:
        """Take a trial whose request has grown; returns those of `trials` that ask for something else from now on:
        those that have not begun."""
        asked = grown.escalation.asked if grown.escalation is not None else None
        if asked is None or not self._learn(asked, grown.resources):
            return []
        changed = []
        for trial in trials:
            if trial.status is Status.PENDING and not trial.attempt and trial.asked == asked:
                changed.append(self.new(evolve(trial, resources=asked, escalation=None)))
        return changed

    def _learn(self, asked: Resources, needed: Resources) -> bool:
        """Note what was needed; whether new trials ask for something else from now on."""
        before = self._known.get(asked)
        is_new = asked not in self._known
        self._known[asked] = needed if is_new or before == needed else None
        return before != self._known[asked]
