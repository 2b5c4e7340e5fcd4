"""The driver's records of what runs: attempts, and slots with the sockets to their hosts."""

from __future__ import annotations

import contextlib
import pickle
import socket
from collections.abc import Iterable
from typing import Any

from sweep.core.messages import ExitKind
from sweep.core.resources import Resources
from sweep.core.trial import Trial
from sweep.engines.exits import Outcome
from sweep.engines.link import Link, receive_from
from sweep.engines.nursery import Nursery

__all__ = ["Attempt", "Slot", "free_slot", "key_of", "unneeded"]

_MESSAGE_BYTES = 1 << 16


class Attempt:
    """One start of a trial, from `Start` to `Released`."""

    __slots__ = (
        "attempt",
        "blockers",
        "has_reported",
        "is_killed",
        "is_stopping",
        "kill_kind",
        "kill_reason",
        "link",
        "outcome",
        "pids",
        "refusal",
        "slot",
        "token",
        "trial",
        "trial_id",
    )

    def __init__(self, token: int, trial: Trial) -> None:
        self.token = token
        self.trial = trial
        self.trial_id = trial.id
        self.attempt = trial.attempt
        self.slot: Slot | None = None
        self.link: Link | None = None  # once the job was sent
        self.outcome: Outcome | None = None  # the worker's last word
        self.pids: tuple[int, ...] = ()  # of the worker, or of the ranks, once they have started
        self.has_reported = False
        self.is_killed = False
        self.is_stopping = False  # a Stop was sent
        self.kill_reason = ""
        self.kill_kind = ExitKind.KILLED
        self.refusal = ""  # why the kernel does not allow it to run so far, as it was told
        self.blockers: set[int] = set()  # slots whose idle worker holds devices of this one, and is being ended


class Slot:
    """One host and what runs under it.

    Attributes:
        pid: of the host, 0 until it has said hello.
        attempt: that it runs, or that waits for it to say hello.
        link: to its worker, which a reused one keeps between attempts.
        born: token of the attempt that the worker was made for.
        key: what a reused worker is good for: request and devices.
        held: the trial whose devices an idle reused worker may still use.
        is_dead: its socket is closed, but what it left behind may still run.
    """

    __slots__ = ("attempt", "born", "held", "is_dead", "is_retiring", "key", "life", "link", "number", "nursery", "pid")

    def __init__(self, number: int, life: socket.socket, nursery: Nursery) -> None:
        life.setblocking(False)
        self.number = number
        self.life = life
        self.nursery = nursery
        self.pid = 0
        self.attempt: Attempt | None = None
        self.link: Link | None = None
        self.born = 0
        self.key: Any = None
        self.held: Trial | None = None
        self.is_dead = False
        self.is_retiring = False

    @property
    def is_idle(self) -> bool:
        """Whether a reused worker waits here."""
        return self.link is not None and self.attempt is None

    def tell(self, *message: Any, descriptors: tuple[int, ...] = ()) -> None:
        """Send a message to the host; one that is gone, or is stopped and takes no more, is found out elsewhere."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            socket.send_fds(self.life, [pickle.dumps(message, 5)], descriptors)

    def hear(self) -> list[tuple[Any, ...]]:
        """Return what the host says; `is_dead` becomes True when it is gone."""
        messages: list[tuple[Any, ...]] = []
        while not self.is_dead:
            try:
                data = receive_from(self.life, _MESSAGE_BYTES)
            except BlockingIOError:
                break
            if not data:
                self.is_dead = True
                break
            messages.append(pickle.loads(data))
        return messages


def free_slot(slots: Iterable[Slot]) -> Slot | None:
    """Return a slot without an attempt, rather one in which no reused worker waits; None: there is none."""
    warm = None
    for slot in slots:
        if slot.attempt is None and not slot.is_dead and not slot.is_retiring:
            if slot.link is None:
                return slot
            warm = warm or slot
    return warm


def key_of(trial: Trial) -> tuple[Resources, tuple[tuple[str, str], ...]]:
    """Return what a reused worker must have in common with a trial: request and devices."""
    return (trial.resources, trial.placement.placed_devices if trial.placement is not None else ())


def unneeded(slots: Iterable[Slot]) -> list[Slot]:
    """Return the slots without an attempt, to be given up where processes are short; when there is no attempt in any,
    one stays for the next."""
    living = [slot for slot in slots if not slot.is_dead]
    idle = [slot for slot in living if slot.attempt is None and not slot.is_retiring]
    return idle[1:] if len(idle) == len(living) else idle
