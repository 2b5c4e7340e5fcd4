"""Which driver writes an experiment that several machines reach: one file beside its record, with an epoch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from sweep.errors import ExperimentError
from sweep.record.layout import DATABASE, RECORD_MARK
from sweep.storage.filesystems import RemoteDirectory


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
    def of(cls, experiment: RemoteDirectory) -> Owner:
        """Return who owns an experiment."""
        return cls.parse(experiment.read(RECORD_MARK))

    @classmethod
    def parse(cls, data: bytes | None) -> Owner:
        """Return what the file says; nobody where nothing can be made of it."""
        try:
            return cls(**json.loads(data or b"{}"))
        except (ValueError, TypeError):
            return cls()

    def write(self, experiment: RemoteDirectory) -> None:
        """Make this the owner."""
        experiment.write(RECORD_MARK, json.dumps(asdict(self)).encode())


def version_of(experiment: RemoteDirectory, owner: Owner) -> str:
    """Return a text that changes whenever another record is there, or another driver; empty: there is no record.

    The owner is written after the record. What the file system says of the record tells of one that was sent by a
    driver that ended before it could do that.
    """
    stamp = experiment.stamp(DATABASE)
    return f"{owner.run} {owner.epoch} {owner.seq} {stamp}" if stamp else ""
