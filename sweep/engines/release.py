"""When what an attempt held may be granted again: at once, or when the memory of its GPUs has come back."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace

from sweep.accelerators.meter import read_placed
from sweep.core.messages import Event, NodesChanged, Waiting
from sweep.core.resources import Node
from sweep.core.trial import Trial
from sweep.engines.handover import Clear, HandOver, Quarantined, Waits
from sweep.engines.loop import Loop


class Releases:
    """Calls back when what an attempt whose processes are gone, or a worker that was ended, held is free.

    Attributes:
        nodes: the inventory, less the devices that never became clean.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        hand_over: HandOver | None,
        loop: Loop,
        *,
        emit: Callable[[Event], None],
        notice: Callable[[str], None],
    ) -> None:
        self.nodes = tuple(nodes)
        devices = [(node.id, device) for node in nodes for device in node.devices]
        self._hand_over = hand_over or HandOver(read_placed, devices=devices)
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
        if not devices or self._hand_over.enter(key, devices, time.monotonic()):
            then()
            return
        self._waiting[key] = then
        self._set_alarm()

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
