"""When what an attempt held may be granted again: at once, or when the memory of its GPUs has come back."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace

from sweep.core.messages import Event, NodesChanged, Released, Waiting
from sweep.core.resources import Node
from sweep.core.trial import Trial
from sweep.engines.handover import Clear, HandOver, Placed, Quarantined, Waits
from sweep.engines.loop import Loop

__all__ = ["Releases"]


class Releases:
    """Gives `Released` for attempts whose processes are gone, and calls back for workers that were ended.

    Attributes:
        nodes: the inventory, less the devices that never became clean.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        hand_over: HandOver,
        loop: Loop,
        *,
        emit: Callable[[Event], None],
        notice: Callable[[str], None],
    ) -> None:
        self.nodes = tuple(nodes)
        self._hand_over = hand_over
        self._loop = loop
        self._emit = emit
        self._notice = notice
        self._has_gpus = any(device.kind == "gpu" for node in nodes for device in node.devices)
        self._waiting: dict[Hashable, Callable[[], None]] = {}
        self._is_alarm_set = False

    def release(self, trial: Trial, running: Iterable[Trial]) -> None:
        """Say that a trial's placement is free, once those of its GPUs are clean that nobody else holds a part of."""
        event = Released(trial.id, trial.attempt)
        held = _devices_of(trial) if self._has_gpus else set()
        if held:
            for other in running:
                held -= _devices_of(other)
        if not held:
            self._emit(event)
            return
        self._watch((trial.id, trial.attempt), held, lambda: self._emit(event))

    def after(self, key: Hashable, trial: Trial, then: Callable[[], None]) -> None:
        """Call `then` when the GPUs that an ended worker held for `trial` are clean."""
        held = _devices_of(trial) if self._has_gpus else set()
        if held:
            self._watch(key, held, then)
        else:
            then()

    def _watch(self, key: Hashable, held: set[tuple[str, str]], then: Callable[[], None]) -> None:
        devices = self._known(held)
        if self._hand_over.enter(key, devices, time.monotonic()):
            then()
            return
        self._waiting[key] = then
        self._set_alarm()

    def _known(self, held: set[tuple[str, str]]) -> list[Placed]:
        return [(node.id, device) for node in self.nodes for device in node.devices if (node.id, device.id) in held]

    def _set_alarm(self) -> None:
        if self._hand_over.next_look is not None and not self._is_alarm_set:
            self._is_alarm_set = True
            self._loop.alarm(max(0.0, self._hand_over.next_look - time.monotonic()), self._look)

    def _look(self) -> None:
        self._is_alarm_set = False
        for change in self._hand_over.look(time.monotonic()):
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
