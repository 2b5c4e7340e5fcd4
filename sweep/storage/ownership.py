"""Which driver writes an experiment that several machines reach: one file beside its record, with an epoch."""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from dataclasses import asdict, dataclass, fields, replace

from sweep.errors import ExperimentError
from sweep.record.layout import DATABASE, RECORD_MARK
from sweep.storage.filesystems import TEMPORARY, RemoteDirectory


class TakenOver(ExperimentError):
    """Another driver owns the experiment now."""


@dataclass(frozen=True)
class Owner:
    """Which driver writes, and how far the record goes that it sent last.

    Attributes:
        run: drawn by each driver; empty: there is none.
        epoch: one more than that of the driver before: of two that write, the one of the higher epoch goes on.
        seq: number of the last event of the record there; wall: when that was said, in UTC epoch seconds.
        host, pid: of the driver, for people.
    """

    run: str = ""
    seq: int = 0
    wall: float = 0.0
    host: str = ""
    pid: int = 0
    epoch: int = 0

    @classmethod
    def parse(cls, data: bytes | None) -> Owner:
        """Return what `encode` was given; nobody where nothing can be made of it."""
        known = {item.name for item in fields(cls)}
        try:
            return cls(**{name: value for name, value in json.loads(data or b"{}").items() if name in known})
        except (ValueError, TypeError, AttributeError):
            return cls()

    def encode(self) -> bytes:
        """Return what the file holds."""
        return json.dumps(asdict(self)).encode()


class Ownership:
    """What one driver has of an experiment.

    Args:
        place: the experiment's directory, which other machines reach.
        consequence: what it means to a driver that another one took over, for people.

    Attributes:
        owner: what this driver has written last; its epoch is 0 before `take`.
    """

    def __init__(self, place: RemoteDirectory, consequence: str) -> None:
        self.place = place
        self.owner = Owner(secrets.token_hex(8), host=socket.gethostname(), pid=os.getpid())
        self._consequence = consequence

    def find(self) -> Owner:
        """Return who owns the experiment."""
        return Owner.parse(self.place.read(RECORD_MARK))

    def is_held(self, found: Owner) -> bool:
        """Whether this driver owns it; not either if a driver from before has written late.

        Raises:
            TakenOver: a driver that came later owns it.
        """
        if found.run != self.owner.run and found.epoch >= self.owner.epoch > 0:
            raise self.lost_to(found)
        return found.run == self.owner.run and self.owner.epoch > 0

    def take(self, found: Owner, epoch: int = 0) -> None:
        """Become the owner, after this one; `epoch` is another that was used before."""
        self.owner = replace(self.owner, seq=found.seq, epoch=max(found.epoch, self.owner.epoch, epoch) + 1)
        self.renew()
        for name in self.place.names():
            if TEMPORARY in name and name.startswith((DATABASE, RECORD_MARK)):  # whose writing was cut
                self.place.remove(name)

    def renew(self, seq: int | None = None) -> None:
        """Say that this driver lives, and how far the record goes that is there; None: as before."""
        self.owner = replace(self.owner, wall=time.time(), seq=self.owner.seq if seq is None else seq)
        self.place.write(RECORD_MARK, self.owner.encode())

    def lost_to(self, found: Owner) -> TakenOver:
        """Return the error that says who took over."""
        return TakenOver(
            f"another driver (pid {found.pid} on {found.host}) writes to {self.place}: {self._consequence}"
        )


def version_of(place: RemoteDirectory, owner: Owner) -> str:
    """Return a text that changes whenever another record is there, or another driver; empty: there is no record.

    The owner is written after the record. What the file system says of the record tells of one that was sent by a
    driver that ended before it could do that.
    """
    stamp = place.stamp(DATABASE)
    return f"{owner.run} {owner.epoch} {owner.seq} {stamp}" if stamp else ""
