"""Which driver writes an experiment that several machines reach, and which of two records is continued."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sweep.errors import ExperimentError
from sweep.record.files import sync, write_atomically
from sweep.record.layout import DATABASE, MARK, MIRROR_STATE, RECORD_MARK, cache_root
from sweep.record.snapshot import compare
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
    def of(cls, experiment: RemoteDirectory | Path) -> Owner:
        """Return who owns an experiment; nobody where nothing can be made of what is written there."""
        with suppress(FileNotFoundError, NotADirectoryError, ValueError, TypeError):
            if isinstance(experiment, Path):
                return cls(**json.loads((experiment / RECORD_MARK).read_bytes()))
            return cls(**json.loads(experiment.read(RECORD_MARK) or b"{}"))
        return cls()

    def write(self, experiment: RemoteDirectory) -> None:
        """Make this the owner."""
        experiment.write(RECORD_MARK, json.dumps(asdict(self)).encode())


@dataclass
class LocalState:
    """What a local directory knows of the place where its experiment lies; kept in it.

    Attributes:
        version: what the file system there said of the record when the two were last compared: that one holds nothing
            which this directory lacks.
        run, epoch: of the driver that sent `files`, or whose files were brought.
        files: by name what each file was when it was transferred (see `changed_files`), so that none is twice.
        elsewhere: checkpoints that are at that place, and perhaps only there.
    """

    version: str = ""
    run: str = ""
    epoch: int = 0
    files: dict[str, str] = field(default_factory=dict)
    elsewhere: list[str] = field(default_factory=list)

    @classmethod
    def load(cls, root: Path) -> LocalState:
        """Return the state that was saved; an empty one when there is none or it cannot be read."""
        try:
            return cls(**json.loads((root / MIRROR_STATE).read_bytes()))
        except (OSError, ValueError, TypeError):
            return cls()

    def save(self, root: Path, *, is_durable: bool = False) -> None:
        """Write it down, whole or not at all."""
        write_atomically(root / MIRROR_STATE, json.dumps(asdict(self)), is_durable=is_durable)

    def is_to_come(self, theirs: Path, ours: Path, owner: Owner, where: str, *, has_files: bool) -> tuple[bool, str]:
        """Return whether the record of the place is to be continued, and why in spite of what the one here has more.
        With `has_files` checkpoints lie beside the record that is here, so that no other driver has deleted them."""
        if not ours.exists():
            return True, ""
        num_theirs, num_ours, is_same = compare(theirs, ours)
        # nobody has taken over since this machine did, or tried to
        is_mine = owner.epoch < self.epoch or owner.run in ("", self.run)
        if is_same and (has_files or is_mine or num_theirs >= num_ours):
            return num_theirs > num_ours, ""
        by = f"pid {owner.pid} on {owner.host or 'another machine'}"
        if not is_mine:
            why = f"what this machine has of it goes up to event {num_ours}, but a driver ({by}) went on without it"
            return True, why
        raise ExperimentError(
            f"{where} (up to event {num_theirs}, sent by {by}) and {ours} (up to event {num_ours}) do not continue "
            "each other: they are two experiments, or one was changed by something else than a driver. Nothing was "
            "changed. Pass another name, or delete the one that you do not want: that on this machine by rm -r "
            f"{ours.parent}"
        )


def set_aside(root: Path, why: str) -> str:
    """Keep a local directory that is not continued, in place of the one that was kept before; returns what to say."""
    place = cache_root() / "superseded" / root.name
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(place, ignore_errors=True)
    root.rename(place)
    return f"{why}: it is not continued, and kept in {place}"


def install_record(incoming: Path, database: Path) -> None:
    """Put a record that was brought in the place of the one that is here, whose log goes last: one beside another
    database would be played into it."""
    for place in (database, *(database.with_name(f"{DATABASE}{end}") for end in ("-wal", "-shm"))):
        place.unlink(missing_ok=True)
    database.with_suffix(MARK).unlink(missing_ok=True)
    sync(incoming)
    os.replace(incoming, database)
    sync(database.parent)
