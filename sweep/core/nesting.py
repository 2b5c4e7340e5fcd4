"""A `fit()` in a trial: where its group lies in what the trial holds, and what the trial asks for if it needs more."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sweep.core.resources import Bundle, BundlePlacement, Placement, Resources, units_of
from sweep.core.trial import Escalation, Status, Trial, evolve

_WHOLE = 1_000_000_000  # units of one device, or one CPU: shares add up exactly


def place_inside(
    request: Resources,
    held: Resources,
    placement: Placement,
    kinds: Mapping[tuple[str, str], str],
    *,
    only: str = "",
) -> Placement | None:
    """Return where the bundles of a group lie within a trial's own placement, or None if they do not fit.

    The bundles after the trial's first are filled first; the first one, which is for the trial's own process, last:
    that process waits while its group runs. Shares of devices go to the emptiest ones, so that as many workers as
    possible have a device of their own; those that are to share devices to the ones that the group uses already.

    A fit is found if there is one, where the group's bundles are alike except the first, which may belong to a head.
    STRICT_PACK, STRICT_SPREAD and distinct devices are obeyed; accelerator types are not looked at.

    Args:
        request: of the group.
        held, placement: of the trial.
        kinds: "gpu" or "tpu" by (node, device id).
        only: node of which the bundles may be used; empty: any.
    """
    order = [at for at in (*range(1, len(held.bundles)), 0) if only in ("", placement.bundles[at].node)]
    nodes = [placement.bundles[position].node for position in order]
    packs = list(dict.fromkeys(nodes)) if request.strategy == "STRICT_PACK" else [""]
    for node, first in itertools.product(packs, range(len(order))):
        rooms = [
            _room(held.bundles[position], placement.bundles[position], is_last=position == 0)
            for position in order
            if node in ("", placement.bundles[position].node)
        ]
        if first < len(rooms):
            places = _fill(request, [rooms[first]], rooms, kinds)
            if places is not None:
                return Placement(tuple(places))
    return None


@dataclass(slots=True)
class _Room:
    """What is left of one bundle that the trial holds."""

    node: str
    cpu: int
    memory: int
    custom: dict[str, int]
    devices: dict[str, int]  # device id -> units
    is_last: bool  # only where nothing else will do

    def has(self, need: Bundle) -> bool:
        """Whether there is enough of everything but devices."""
        return (
            units_of(need.cpu) <= self.cpu
            and need.memory <= self.memory
            and all(units_of(amount) <= self.custom.get(name, 0) for name, amount in need.custom)
        )

    def choose(
        self, kind: str, amount: float, kinds: Mapping[tuple[str, str], str], barred: set[str], wanted: set[str]
    ) -> list[str]:
        """Return the devices of a kind that would be taken, `wanted` shares first; fewer when there is no room."""
        own = {one: left for one, left in self.devices.items() if kinds[self.node, one] == kind and one not in barred}
        if 0 < amount < 1:
            roomy = [one for one, left in own.items() if left >= units_of(amount)]
            return sorted(roomy, key=lambda one: (one in wanted, own[one]), reverse=True)[:1]
        return [one for one, left in own.items() if left == _WHOLE][: int(amount)]

    def take(self, need: Bundle, devices: Sequence[tuple[str, float]]) -> BundlePlacement:
        """Take room for one worker."""
        self.cpu -= units_of(need.cpu)
        self.memory -= need.memory
        for name, amount in need.custom:
            self.custom[name] = self.custom.get(name, 0) - units_of(amount)
        for one, share in devices:
            self.devices[one] -= units_of(share)
        return BundlePlacement(self.node, tuple(devices))


def _room(bundle: Bundle, place: BundlePlacement, *, is_last: bool) -> _Room:
    return _Room(
        place.node,
        units_of(bundle.cpu),
        bundle.memory,
        {name: units_of(amount) for name, amount in bundle.custom},
        {device: units_of(share) for device, share in place.devices},
        is_last,
    )


def _fill(
    request: Resources, first: list[_Room], rooms: list[_Room], kinds: Mapping[tuple[str, str], str]
) -> list[BundlePlacement] | None:
    """Place the first bundle into one of `first`, the others wherever they fit; None: that is not possible."""
    places: list[BundlePlacement] = []
    for need in request.bundles:
        found = _find(need, rooms if places else first, places, request, kinds)
        if found is None:
            return None
        room, devices = found
        places.append(room.take(need, devices))
    return places


def _find(
    need: Bundle,
    rooms: list[_Room],
    places: list[BundlePlacement],
    request: Resources,
    kinds: Mapping[tuple[str, str], str],
) -> tuple[_Room, list[tuple[str, float]]] | None:
    """Return the room for one bundle with the devices in it: the first, or for shares that with the best device."""
    best: tuple[_Room, list[tuple[str, float]]] | None = None
    most = (False, -1)
    for room in rooms:
        if best is not None and room.is_last:
            break
        if not room.has(need) or (request.strategy == "STRICT_SPREAD" and any(p.node == room.node for p in places)):
            continue
        taken = {one for place in places if place.node == room.node for one, _ in place.devices}
        barred = taken if request.distinct_devices else set()
        wanted = taken if request.shared_devices else set()
        devices: list[tuple[str, float]] = []
        for kind, amount in (("gpu", need.gpu), ("tpu", need.tpu)):
            chosen = room.choose(kind, amount, kinds, barred, wanted)
            if len(chosen) < math.ceil(amount):
                break
            devices += [(one, min(1.0, amount)) for one in chosen]
        else:
            left = min((room.devices[one] for one, _ in devices), default=_WHOLE)
            rank = (any(one in wanted for one, _ in devices), left)
            if rank > most:
                best, most = (room, devices), rank
    return best


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
