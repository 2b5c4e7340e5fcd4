"""What of an experiment is at its remote place, what is known of that here, and which driver may write there.

<uri>/<experiment>/sweep.db                a consistent copy of the record, sent after what it refers to
<uri>/<experiment>/.sweep-record.json      which driver may write here, and how far the record goes; see `Lease`
<uri>/<experiment>/<trial>/result.json ... as on the local disk
<uri>/<experiment>/<trial>/checkpoint_*/   whole once `.sweep-manifest.json` is there, which is written last
"""

from __future__ import annotations

import fnmatch
import json
import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from sweep.record.checkpoints import STRAY_PREFIX
from sweep.record.files import write_atomically
from sweep.record.filesystems import RemoteDirectory
from sweep.record.layout import (
    CHECKPOINT_PATTERN,
    DATABASE,
    MARK,
    MIRROR_STATE,
    OUTGOING,
    RECORD_MARK,
    REMOTE_NOTE,
    TRANSIT,
)
from sweep.record.manifest import MANIFEST

_LOGS = (
    *("params.json", "params.pkl", "result.json", "progress.csv", "error.txt", "error.pkl"),
    *("stdout", "stderr", "*.log", "*.out", "*.err", "events.out.tfevents*"),
)
_LOCAL_ONLY = ("driver.lock", "code")
# with what writing them leaves when it is killed
_LOCAL_PREFIXES = (
    DATABASE,
    STRAY_PREFIX,
    ".probe-",
    "..",
    MIRROR_STATE,
    REMOTE_NOTE,
    RECORD_MARK,
    OUTGOING,
    TRANSIT,
    Path(DATABASE).with_suffix(MARK).name,
)


@dataclass(frozen=True)
class Lease:
    """Which driver writes a remote directory, and how far the record goes that it sent last.

    Attributes:
        run: drawn by each driver.
        epoch: one more than that of the driver before: of two that write, the one of the higher epoch goes on.
        seq: number of the last event of the record there; wall: when that was sent, in UTC epoch seconds.
        host, pid: of the driver, for people.
    """

    run: str = ""
    seq: int = 0
    wall: float = 0.0
    host: str = ""
    pid: int = 0
    epoch: int = 0

    @classmethod
    def read(cls, remote: RemoteDirectory) -> Lease | None:
        """Return the lease of a remote directory; None when there is none."""
        data = remote.read(RECORD_MARK)
        return None if data is None else cls.parse(data)

    @classmethod
    def parse(cls, data: bytes) -> Lease:
        """Return what `encode` was given."""
        known = {item.name for item in fields(cls)}
        return cls(**{name: value for name, value in json.loads(data).items() if name in known})

    def encode(self) -> bytes:
        """Return what the file holds."""
        return json.dumps(asdict(self)).encode()

    def write(self, remote: RemoteDirectory) -> None:
        """Put it in its place."""
        remote.write(RECORD_MARK, self.encode())


def version_of(remote: RemoteDirectory, lease: Lease | None) -> str:
    """Return a text that changes whenever another record is there, or another driver; empty: there is no record.

    The lease is written after its record. What the file system says of the record tells of one that was sent by a
    driver that ended before it could write the lease.
    """
    stamp = remote.stamp(DATABASE)
    lease = lease or Lease()
    return f"{lease.run} {lease.epoch} {lease.seq} {stamp}" if stamp else ""


@dataclass
class MirrorState:
    """What a local directory knows of the remote one; kept in it so that nothing is transferred twice.

    Attributes:
        version: of the remote directory when the records were last compared, by `version_of`: that one holds nothing
            which this directory lacks.
        run: of the lease under which `files` were sent, or from which they were brought.
        files: size and time of change (ns) of each file when it was transferred.
        elsewhere: checkpoints that are only at the remote place.
    """

    version: str = ""
    run: str = ""
    files: dict[str, tuple[int, int]] = field(default_factory=dict)
    elsewhere: list[str] = field(default_factory=list)

    @classmethod
    def load(cls, root: Path) -> MirrorState:
        """Return the state that was saved; an empty one when there is none or it cannot be read."""
        try:
            data = json.loads((root / MIRROR_STATE).read_text(encoding="utf-8"))
            files = {name: (int(size), int(time)) for name, (size, time) in data["files"].items()}
            return cls(data["version"], data["run"], files, list(data["elsewhere"]))
        except (OSError, ValueError, KeyError, TypeError):
            return cls()

    def save(self, root: Path) -> None:
        """Write it down, whole or not at all."""
        write_atomically(root / MIRROR_STATE, json.dumps(asdict(self)))


def is_checkpoint(name: str) -> bool:
    """Whether `name` is that of a checkpoint's directory."""
    return CHECKPOINT_PATTERN.match(name) is not None


def is_log(name: str, more: Collection[str] = ()) -> bool:
    """Whether a file of this name in a trial's directory is always copied, rather than an artifact.

    Args:
        more: further names that are.
    """
    return name in more or any(fnmatch.fnmatchcase(name, pattern) for pattern in _LOGS)


def artifacts_of(root: Path, trial_id: str, log_files: Collection[str] = ()) -> Iterator[str]:
    """Give the files that a trial has written itself, by their names in the experiment: no logs, no checkpoints.

    Args:
        log_files: names of files that are logs, besides the usual ones.
    """
    top = str(root / trial_id)
    for place, directories, files in os.walk(top):
        is_top = place == top
        directories[:] = [
            name for name in directories if not name.startswith(STRAY_PREFIX) and not (is_top and is_checkpoint(name))
        ]
        for name in files:
            path = os.path.join(place, name)
            is_other = name.startswith(STRAY_PREFIX) or (is_top and is_log(name, log_files)) or os.path.islink(path)
            if not is_other:
                yield os.path.relpath(path, root)


def is_mirrored(name: str) -> bool:
    """Whether a file or directory of this name in an experiment's directory belongs to it, and not to this machine."""
    return name not in _LOCAL_ONLY and not name.startswith(_LOCAL_PREFIXES)


def remote_checkpoints(names: Iterable[str]) -> dict[str, bool]:
    """Return the checkpoints, `<trial>/<checkpoint>`, to which files belong, and whether each has its manifest."""
    found: dict[str, bool] = {}
    for name in names:
        parts = name.split("/")
        if len(parts) > 2 and is_checkpoint(parts[1]):
            path = f"{parts[0]}/{parts[1]}"
            found[path] = found.get(path, False) or parts[2:] == [MANIFEST]
    return found


def stamp_of(place: Path) -> tuple[int, int] | None:
    """Return the size and the time of change (ns) of a file; None when it is gone."""
    try:
        found = place.stat()
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns
