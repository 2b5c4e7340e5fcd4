"""When what an attempt held may be granted again: at once, or when the memory of its GPUs has come back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sweep.accelerators.meter import MemoryUse, describe, read_placed
from sweep.core.messages import Event, NodesChanged, Waiting
from sweep.core.resources import Device, Node, name_device
from sweep.core.trial import Trial
from sweep.engines.loop import Loop

Place = tuple[str, str]
"""Ids of a node and of a device of it: two nodes may have devices of the same id."""

Reader = Callable[[Sequence[tuple[str, Device]]], Mapping[Place, MemoryUse] | None]
"""Gives the memory in use, of devices with their nodes; None, or a device left out: not known."""

_SLACK_BYTES = 64 << 20  # a driver's own use of an idle device moves by some MiB


@dataclass(slots=True, eq=False)
class _Entry:
    gpus: dict[Place, Device]
    then: Callable[[], None]
    trial_id: str
    patience_s: float
    reason: str = ""


@dataclass(eq=False)
class GpuCleanup:
    """Calls back when what an attempt whose processes are gone, or a worker that was ended, held is clean.

    The processes of a trial may be gone while the driver still frees what they had, or while a child that got away, of
    another user or in another container, holds on. The next trial would then fail for want of memory.

    Attributes:
        nodes: the inventory, less the GPUs that never became clean.
        threshold: part of a GPU's memory that may stay in use, in [0, 1].
        patience_s: how long an entry may wait.
    """

    nodes: Sequence[Node]
    loop: Loop
    emit: Callable[[Event], None]
    notice: Callable[[str], None]
    read: Reader = read_placed
    threshold: float = 0.05
    patience_s: float = 60.0
    look_every_s: float = 0.25

    def __post_init__(self) -> None:
        self._entries: list[_Entry] = []
        # In use before any trial: that much is never a trial's.
        self._before = {place: use.used_bytes for place, use in self._memory(self._gpus()).items()}

    def after(
        self,
        trial: Trial,
        then: Callable[[], None],
        *,
        is_waiting: bool = True,
        running: Iterable[Trial] = (),
        spare: Iterable[Place] = (),
    ) -> None:
        """Call `then` once those GPUs are clean that an ended worker held for `trial` and none of `running` holds.

        Args:
            is_waiting: the trial itself waits for it, and is shown why.
            spare: GPUs that are in use by somebody else all the same.
        """
        gpus = self._gpus()
        taken = {*spare, *(place for other in running for place in _places(other))} if gpus else set()
        held = {place: gpus[place] for place in _places(trial) if place in gpus and place not in taken}
        if not self._unclean(held, self._memory(held)):
            then()
            return
        self._entries.append(_Entry(held, then, trial.id if is_waiting else "", self.patience_s))
        if len(self._entries) == 1:
            self.loop.alarm(self.look_every_s, self._look)

    def _look(self) -> None:
        entries, self._entries = self._entries, []
        memory = self._memory({place: gpu for entry in entries for place, gpu in entry.gpus.items()})
        ended = []
        for entry in entries:
            unclean = self._unclean(entry.gpus, memory)
            reason = "; ".join(describe(name_device(*place), use) for place, use in unclean.items())
            entry.patience_s -= self.look_every_s
            if unclean and entry.patience_s > 0:
                self._entries.append(entry)
                if reason != entry.reason and entry.trial_id:
                    self.emit(Waiting(entry.trial_id, reason))
                entry.reason = reason
                continue
            if unclean:
                self.notice(f"{reason}; not freed in {self.patience_s:g}s, so no more trials are started there")
                self._put_out_of_use(unclean)
            ended.append(entry)
        if self._entries:
            self.loop.alarm(self.look_every_s, self._look)
        for entry in ended:
            entry.then()

    def _put_out_of_use(self, places: Iterable[Place]) -> None:
        self.nodes = tuple(
            replace(node, devices=tuple(d for d in node.devices if (node.id, d.id) not in places))
            for node in self.nodes
        )
        self.emit(NodesChanged(self.nodes))

    def _gpus(self) -> dict[Place, Device]:
        return {(node.id, one.id): one for node in self.nodes for one in node.devices if one.kind == "gpu"}

    def _memory(self, gpus: Mapping[Place, Device]) -> Mapping[Place, MemoryUse]:
        return (self.read([(node, gpu) for (node, _), gpu in gpus.items()]) if gpus else None) or {}

    def _unclean(self, places: Iterable[Place], memory: Mapping[Place, MemoryUse]) -> dict[Place, MemoryUse]:
        """Return those that hold too much; what cannot be read is not waited for."""
        unclean = {}
        for place in places:
            use, before = memory.get(place), self._before.get(place)
            if use is None:
                continue
            most = self.threshold * use.total_bytes
            if use.used_bytes > (most if before is None else max(most, before + _SLACK_BYTES)):
                unclean[place] = use
        return unclean


def _places(trial: Trial) -> Sequence[Place]:
    return trial.placement.placed_devices if trial.placement is not None else ()
