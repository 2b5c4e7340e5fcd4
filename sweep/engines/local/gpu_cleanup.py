"""When what an attempt held may be granted again: at once, or when the memory of its GPUs has come back."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sweep.accelerators.meter import MemoryUse, describe, read_placed
from sweep.core.messages import Event, NodesChanged, Waiting
from sweep.core.resources import Device, Node, name_device
from sweep.core.trial import Trial
from sweep.engines.loop import Loop


class Releases:
    """Calls back when what an attempt whose processes are gone, or a worker that was ended, held is free.

    Attributes:
        nodes: the inventory, less the devices that never became clean.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        gpu_cleanup: GpuCleanup | None,
        loop: Loop,
        *,
        emit: Callable[[Event], None],
        notice: Callable[[str], None],
    ) -> None:
        self.nodes = tuple(nodes)
        devices = [(node.id, device) for node in nodes for device in node.devices]
        self._gpu_cleanup = gpu_cleanup or GpuCleanup(read_placed, devices=devices)
        self._loop = loop
        self._emit = emit
        self._notice = notice
        self._has_gpus = any(device.kind == "gpu" for _, device in devices)
        self._waiting: dict[Hashable, Callable[[], None]] = {}
        self._is_alarm_set = False

    def after(
        self,
        key: Hashable,
        trial: Trial,
        then: Callable[[], None],
        running: Iterable[Trial] = (),
        spare: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Call `then` once those GPUs are clean that an ended worker held for `trial` and none of `running` holds.

        Args:
            key: id and attempt of the trial that waits, for which the reason is shown; anything else if none waits.
            spare: (node, device) of those that are in use by somebody else all the same.
        """
        held = _devices_of(trial) if self._has_gpus else set()
        if held:
            held = held.difference(spare, *map(_devices_of, running))
        devices = [(node.id, device) for node in self.nodes for device in node.devices if (node.id, device.id) in held]
        if not devices or self._gpu_cleanup.enter(key, devices, time.monotonic()):
            then()
            return
        self._waiting[key] = then
        self._set_alarm()

    def _set_alarm(self) -> None:
        if self._gpu_cleanup.next_look is not None and not self._is_alarm_set:
            self._is_alarm_set = True
            self._loop.alarm(max(0.0, self._gpu_cleanup.next_look - time.monotonic()), self._look)

    def _look(self) -> None:
        self._is_alarm_set = False
        for change in self._gpu_cleanup.look(time.monotonic()):
            match change:
                case Clear(key):
                    self._waiting.pop(key)()
                case Waits(key, reason):
                    if isinstance(key, tuple):
                        self._emit(Waiting(str(key[0]), reason))
                case Quarantined(key, devices, reason):
                    self._notice(reason)
                    self.nodes = tuple(
                        replace(node, devices=tuple(d for d in node.devices if (node.id, d.id) not in devices))
                        for node in self.nodes
                    )
                    self._emit(NodesChanged(self.nodes))
                    self._waiting.pop(key)()
        self._set_alarm()


def _devices_of(trial: Trial) -> set[tuple[str, str]]:
    return set(trial.placement.placed_devices) if trial.placement is not None else set()


Placed = tuple[str, Device]
"""A device with the id of its node: two nodes may have devices of the same id."""

Reader = Callable[[Sequence[Placed]], Mapping[tuple[str, str], MemoryUse] | None]
"""Gives the memory in use by (node, device id); None, or a device left out: not known."""

_SLACK_BYTES = 64 << 20  # a driver's own use of an idle device moves by some MiB


@dataclass(frozen=True, slots=True)
class Clear:
    """The devices of this entry are clean."""

    key: Hashable


@dataclass(frozen=True, slots=True)
class Waits:
    """The devices of this entry are not clean yet, for a reason that is new."""

    key: Hashable
    reason: str


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Some devices of this entry did not become clean in time; those not named are clean."""

    key: Hashable
    devices: tuple[tuple[str, str], ...]  # (node, id)
    reason: str


@dataclass(slots=True)
class _Entry:
    devices: tuple[Placed, ...]
    deadline: float
    reason: str = ""


class GpuCleanup:
    """Watches devices between two trials: when may one be given to the next? A state machine without a clock.

        enter ──clean──> (at once, True)
          │
        waiting ──look: clean──> Clear
          │  └────look: another reason than before──> Waits
          └──────look: patience_s are over──> Quarantined

    The processes of a trial may be gone while the driver still frees what they had, or while a child that got away, of
    another user or in another container, holds on. The next trial would then fail for want of memory.

    Attributes:
        next_look: when `look` should be called; None while nothing waits.
    """

    def __init__(
        self,
        read: Reader,
        *,
        devices: Sequence[Placed] = (),
        threshold: float = 0.05,
        patience_s: float = 60.0,
        look_every_s: float = 0.25,
    ) -> None:
        """Remember what `devices` have in use now, before any trial: that much is never a trial's.

        Args:
            read: asked once here if there are devices, once per `enter` and once per `look`.
            devices: all of the engine. One that is not among them has only the threshold.
            threshold: part of a device's memory that may stay in use, in [0, 1].
            patience_s: how long an entry may wait.
            look_every_s: time between two looks.
        """
        self.next_look: float | None = None
        self._read = read
        self._threshold = threshold
        self._patience_s = patience_s
        self._look_every_s = look_every_s
        self._entries: dict[Hashable, _Entry] = {}
        gpus = _gpus(devices)
        self._before = {place: use.used_bytes for place, use in ((read(gpus) if gpus else None) or {}).items()}

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._entries

    def enter(self, key: Hashable, devices: Sequence[Placed], now: float) -> bool:
        """Begin to watch the devices of a trial whose processes are gone; True: they are clean, nothing to wait for.

        Args:
            key: names the entry in what `look` returns, each time once at most.
            devices: those that no other trial holds a part of. TPU chips among them are clean.
        """
        gpus = _gpus(devices)
        if not gpus or not self._unclean(gpus, self._read(gpus)):
            return True
        self._entries[key] = _Entry(gpus, deadline=now + self._patience_s)
        self._plan(now, self.next_look)
        return False

    def look(self, now: float) -> list[Clear | Waits | Quarantined]:
        """Return what has changed since the last look, in the order of entry; nothing before `next_look`.

        Clear and Quarantined end an entry.
        """
        if self.next_look is None or now < self.next_look:
            return []
        watched = {_place(placed): placed for entry in self._entries.values() for placed in entry.devices}
        memory = self._read(tuple(watched.values()))
        changes: list[Clear | Waits | Quarantined] = []
        for key, entry in list(self._entries.items()):
            unclean = self._unclean(entry.devices, memory)
            reason = "; ".join(describe(name_device(*place), use) for place, use in unclean.items())
            if not unclean:
                changes.append(Clear(key))
            elif now >= entry.deadline:
                kept = f"{reason}; not freed in {self._patience_s:g}s, so no more trials are started there"
                changes.append(Quarantined(key, tuple(unclean), kept))
            else:
                if reason != entry.reason:
                    entry.reason = reason
                    changes.append(Waits(key, reason))
                continue
            del self._entries[key]
        self._plan(now, None)
        return changes

    def _plan(self, now: float, planned: float | None) -> None:
        """Set the next look: after the interval, or earlier if one is planned or an entry's patience ends."""
        if not self._entries:
            self.next_look = None
            return
        times = [now + self._look_every_s, *(entry.deadline for entry in self._entries.values())]
        self.next_look = min(times if planned is None else [*times, planned])

    def _unclean(
        self, devices: Sequence[Placed], memory: Mapping[tuple[str, str], MemoryUse] | None
    ) -> dict[tuple[str, str], MemoryUse]:
        unclean: dict[tuple[str, str], MemoryUse] = {}
        for placed in devices:
            place = _place(placed)
            use = (memory or {}).get(place)
            if use is None:
                continue  # declared, or of a vendor whose memory cannot be read: there is nothing to wait for
            before = self._before.get(place)
            most = self._threshold * use.total_bytes
            if use.used_bytes > (most if before is None else max(most, before + _SLACK_BYTES)):
                unclean[place] = use
        return unclean


def _gpus(devices: Sequence[Placed]) -> tuple[Placed, ...]:
    return tuple((node, device) for node, device in devices if device.kind == "gpu")


def _place(placed: Placed) -> tuple[str, str]:
    return placed[0], placed[1].id
