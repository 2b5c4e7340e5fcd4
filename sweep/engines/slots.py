"""The driver's records of what runs: attempts, and slots with the sockets to their hosts."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from sweep.core.messages import Kill
from sweep.core.resources import Resources
from sweep.core.trial import Outcome, Trial
from sweep.engines.link import Link
from sweep.engines.loop import Loop
from sweep.engines.nursery import Nursery
from sweep.worker import wire
from sweep.worker.channel import Packets

Key = tuple[Resources, tuple[tuple[str, str], ...]]
"""What a reused worker must have in common with a trial: request and devices."""


@dataclass(slots=True, eq=False)
class Attempt:
    """One start of a trial, from `Start` to `Released`.

    Attributes:
        link: to its worker, once the job was sent.
        outcome: the worker's last word.
        pids: of the worker, or of the ranks, once they have started.
        kill: the command that is to end it.
        is_stopping: a Stop was sent.
        refusal: why the kernel does not allow it to run so far, as was said last.
        blockers: slots whose idle worker holds devices of this one, and is being ended.
        is_spanning: it is a group with ranks on other machines, too: the driver says when all may start.
    """

    token: int
    trial: Trial
    slot: Slot | None = None
    link: Link | None = None
    outcome: Outcome | None = None
    pids: tuple[int, ...] = ()
    has_reported: bool = False
    kill: Kill | None = None
    is_stopping: bool = False
    refusal: str = ""
    blockers: set[int] = field(default_factory=set)
    is_spanning: bool = False

    @property
    def key(self) -> tuple[str, int]:
        """Return the trial's id and the number of the attempt."""
        return self.trial.id, self.trial.attempt


@dataclass(slots=True, eq=False)
class Slot:
    """One host and what runs under it.

    Attributes:
        life: the socket to the host; what the host has left behind may still run when it is closed.
        pid: of the host, 0 until it has said hello.
        attempt: that it runs, or that waits for it to say hello.
        link: to its worker, which a reused one keeps between attempts.
        born: token of the attempt that the worker was made for. worker: its pid, once known.
        key: what a reused worker is good for.
        held: the trial whose devices an idle reused worker may still use.
        is_retiring: its idle worker is being ended.
    """

    number: int
    life: Packets
    nursery: Nursery
    pid: int = 0
    attempt: Attempt | None = None
    link: Link | None = None
    born: int = 0
    worker: int = 0
    key: Key | None = None
    held: Trial | None = None
    is_retiring: bool = False

    @property
    def is_dead(self) -> bool:
        """Whether the socket to the host is closed."""
        return not self.life.is_open

    @property
    def is_idle(self) -> bool:
        """Whether a reused worker waits here."""
        return self.link is not None and self.attempt is None and not self.is_dead

    def tell(self, message: wire.ToHost, descriptors: Sequence[int] = ()) -> None:
        """Send a message to the host; one that is gone, or is stopped and takes no more, is found out elsewhere."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            self.life.send(message, descriptors)

    def retire(self) -> None:
        """Have an idle worker ended."""
        if not self.is_retiring:
            self.is_retiring = True
            self.tell(wire.Retire())

    def drop_link(self, loop: Loop) -> None:
        """Close the socket to the worker, which is gone."""
        if self.link is not None:
            loop.ignore(self.link.socket.fileno())
            self.link.close()
        self.link = self.key = None
        self.worker = 0


def key_of(trial: Trial) -> Key:
    """Return what a reused worker must have in common with a trial."""
    return (trial.resources, trial.placement.placed_devices if trial.placement is not None else ())
