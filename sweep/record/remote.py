"""Experiments whose storage is a URI: worked on in a local directory, and brought back from the remote one.

SQLite needs a local disk, so a run works in a directory of the cache. It is pushed to the URI (`upload.py`), and pulled
from there (here) by the next run or reader on another machine; the two records are never merged:

    <uri>/<experiment>/sweep.db                a consistent copy of the record, never newer than what it refers to
    <uri>/<experiment>/.sweep-record.json      which driver may write here, and how far the record goes; see `Lease`
    <uri>/<experiment>/<trial>/result.json ... as on the local disk
    <uri>/<experiment>/<trial>/checkpoint_*/   whole once `.sweep-manifest.json` is there, which is written last
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import secrets
import shlex
import shutil
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from sweep.errors import CheckpointError, ConfigError, ExperimentError, NoExperimentError, SweepError, nearest
from sweep.record.checkpoints import MANIFEST, STRAY_PREFIX, fetch
from sweep.record.files import write_atomically
from sweep.record.filesystems import RemoteDirectory, identity, locate, remember_home
from sweep.record.layout import (
    CHECKPOINT_PATTERN,
    MIRROR_STATE,
    OUTGOING,
    RECORD_MARK,
    REMOTE_NOTE,
    STORAGE_VARIABLE,
    ExperimentLayout,
    copy_root,
    split_uri,
    storage_root,
)
from sweep.record.lock import DriverLock
from sweep.record.schema import open_for_reading
from sweep.record.stored import StoredCheckpoints, references, trial_of

__all__ = [
    "DATABASE",
    "Lease",
    "MirrorState",
    "Storage",
    "check_writable",
    "has_checkpoint",
    "has_experiment",
    "is_checkpoint",
    "is_log",
    "is_mirrored",
    "open_all_for_reading",
    "open_storage_for_reading",
    "parse_storage",
    "pull",
    "remote_checkpoints",
    "stamp_of",
    "storage_of",
    "version_of",
]

DATABASE = ExperimentLayout(Path()).database.name
_LOGS = (
    *("params.json", "params.pkl", "result.json", "progress.csv", "error.txt", "error.pkl"),
    *("stdout", "stderr", "*.log", "*.out", "*.err", "events.out.tfevents*"),
)
_LOCAL_ONLY = ("driver.lock", "code")
_LOCAL_PREFIXES = (DATABASE, STRAY_PREFIX, ".probe-", "..", MIRROR_STATE, REMOTE_NOTE, RECORD_MARK, OUTGOING)
_BUCKETS = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss", "oci"}
_STAGING = ".incoming-"  # of pulls that are under way, in the local storage
_DEAD_S = 86400.0  # after that one that nothing was added to is of a process that was killed


@dataclass(frozen=True)
class Storage:
    """Where experiments are stored.

    Attributes:
        uri: of remote storage, as people read it; None: `local_root` is all there is.
        local_root: directory in which experiments are worked on.
        filesystem: of fsspec; None for local storage.
        path: of the storage on `filesystem`.
        is_named: other processes reach it by its URI alone; False when the file system was given as an object.
    """

    uri: str | None
    local_root: Path
    filesystem: Any = None
    path: str = ""
    is_named: bool = True

    @property
    def is_remote(self) -> bool:
        """Whether experiments are copied to another place."""
        return self.filesystem is not None

    def experiment(self, name: str) -> RemoteDirectory:
        """Return the remote directory of an experiment."""
        return RemoteDirectory(self.filesystem, f"{self.path}/{name}" if self.path else name)

    def uri_of(self, name: str) -> str | None:
        """Return the URI by which other processes reach the experiment `name`; None when there is none."""
        if self.uri is None or not self.is_named:
            return None
        return f"{self.uri}{'' if self.uri.endswith('://') else '/'}{name}"

    def deletion(self, name: str, *, is_shell: bool = False) -> str:
        """Return the calls that delete the experiment `name`, here and in remote storage.

        Args:
            is_shell: a command of the shell where one can do it.
        """
        local = self.local_root / name
        if not self.is_remote:
            return f"rm -r {shlex.quote(str(local))}" if is_shell else self.local_deletion(name)
        call = self.remote_deletion(name)
        return f"{call} and {self.local_deletion(name)}" if local.exists() else call

    def local_deletion(self, name: str) -> str:
        """Return the call that deletes the experiment `name` here."""
        return f"shutil.rmtree({str(self.local_root / name)!r})"

    def remote_deletion(self, name: str) -> str:
        """Return the call that deletes the experiment `name` in remote storage."""
        what = f"fsspec.filesystem({str(self.uri).partition('://')[0]!r})" if self.is_named else "storage_filesystem"
        return f"{what}.rm({self.experiment(name).path!r}, recursive=True)"

    def describe(self, name: str) -> str:
        """Return where the experiment `name` is kept, for people."""
        return (self.uri_of(name) or f"{self.uri}/{name}") if self.is_remote else str(self.local_root / name)


def parse_storage(storage_path: str | os.PathLike[str] | None = None, storage_filesystem: Any = None) -> Storage:
    """Return what `storage_path=` and `storage_filesystem=` mean; nothing is read or written.

    A `file://` URI, and a path on the local file system of fsspec or pyarrow, are local paths.

    Args:
        storage_path: a directory or a URI; None: `$SWEEP_STORAGE`, else `./sweep_results`.
        storage_filesystem: of fsspec or pyarrow; `storage_path` is a path on it.

    Raises:
        ConfigError: the URI names no directory, or an unknown protocol; or a package for it is missing.
        ExperimentError: the file system cannot be opened.
    """
    if storage_filesystem is not None and not storage_path:
        raise ConfigError("storage_filesystem was given without storage_path; pass the path of a directory on it, too.")
    path = storage_path or os.environ.get(STORAGE_VARIABLE)
    if not path or ("://" not in os.fspath(path) and storage_filesystem is None):
        return Storage(None, storage_root(path))
    text = os.fspath(path)
    if "?" in text:
        raise ConfigError(
            f"storage_path={text!r} has options behind '?'. Give them to the file system: "
            f"storage_filesystem=fsspec.filesystem({text.partition('://')[0]!r}, endpoint_url=...), "
            f"storage_path={text.partition('://')[2].partition('?')[0]!r}."
        )
    filesystem, inside = locate(text, storage_filesystem)
    if filesystem is None:
        return Storage(None, Path(inside))
    protocol = text.partition("://")[0]
    if not inside.strip("/") and protocol in _BUCKETS:
        raise ConfigError(f"storage_path={text!r} names no bucket; expected {protocol}://bucket/directory.")
    if storage_filesystem is None:
        uri = text.rstrip("/") if inside.strip("/") else f"{protocol}://"
        return Storage(uri, copy_root(uri), filesystem, inside)
    uri = RemoteDirectory(filesystem, inside).uri()
    return Storage(uri, copy_root(uri, identity(filesystem)), filesystem, inside, is_named=False)


def storage_of(root: Path) -> Storage | None:
    """Return the remote storage of which the experiment in `root` is a local copy; None when it is none.

    None also when the file system was given as an object: nobody else can open it.
    """
    try:
        note = json.loads((root / REMOTE_NOTE).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    if note["uri"] is None:
        return None
    return replace(parse_storage(split_uri(note["uri"])[0]), local_root=root.parent)


def check_writable(storage: Storage) -> None:
    """Prove that remote storage takes files and gives them up again, before anything starts.

    Raises:
        ExperimentError: it does not: no permission, no such bucket, no network.
    """
    if not storage.is_remote:
        return
    root = RemoteDirectory(storage.filesystem, storage.path)
    probe = f".sweep-probe-{secrets.token_hex(4)}"
    try:
        root.write(probe, b"sweep")
        is_whole = root.read(probe) == b"sweep"
        root.remove(probe)
    except Exception as error:  # whatever the package behind the file system raises
        raise ExperimentError(
            f"{storage.uri} cannot be written: {type(error).__name__}: {error}. Check the name of the bucket and the "
            "permission to write and to delete there, or pass another storage_path."
        ) from error
    if not is_whole:
        raise ExperimentError(f"{storage.uri} does not give back what was written to it; pass another storage_path.")


def has_experiment(storage: Storage, name: str) -> bool:
    """Whether remote storage holds an experiment `name`.

    Raises:
        ExperimentError: it cannot be reached.
    """
    with _reaching(storage, name):
        return storage.is_remote and storage.experiment(name).has(DATABASE)


def open_storage_for_reading(path_or_uri: str | os.PathLike[str], storage_filesystem: Any = None) -> Path:
    """Return a local directory that holds the experiment at `path_or_uri`, with its record and logs up to date.

    A local path is returned as it is. Of a remote experiment everything but checkpoints and artifacts is brought to the
    cache; a checkpoint is fetched when it is used.

    Raises:
        ExperimentError: there is no such experiment, or it cannot be reached.
    """
    text = os.fspath(path_or_uri).rstrip("/").removesuffix(f"/{DATABASE}")
    if "://" not in text and storage_filesystem is None:
        return Path(text).expanduser().absolute()
    parent, name = split_uri(text)
    storage = parse_storage(parent or "/", storage_filesystem)
    local = storage.local_root / name
    if not storage.is_remote:
        return local
    pull(storage, name, for_reading=True)
    if not ExperimentLayout(local).database.is_file():
        raise NoExperimentError(f"there is no experiment {name!r} in {storage.uri}. {nearest(name, _names(storage))}")
    return local


def open_all_for_reading(storage_path: str | os.PathLike[str] | None = None) -> Path:
    """Return a local directory that holds the experiments of a storage, with records and logs up to date.

    Args:
        storage_path: a directory or a URI; None: `$SWEEP_STORAGE`, else `./sweep_results`.

    Raises:
        ConfigError, ExperimentError: as `parse_storage` and `open_storage_for_reading`.
    """
    storage = parse_storage(storage_path)
    if storage.is_remote:
        for name in _names(storage):
            pull(storage, name, for_reading=True)
    return storage.local_root


def _names(storage: Storage) -> list[str]:
    with _reaching(storage, ""):
        return RemoteDirectory(storage.filesystem, storage.path).names()


def has_checkpoint(root: Path, path: str) -> bool:
    """Whether the checkpoint `path` of the experiment in `root` exists: here, or where it can be fetched from."""
    if ExperimentLayout(root).checkpoint(path).is_dir():
        return True
    try:
        stamp = (root / MIRROR_STATE).stat().st_mtime_ns
    except FileNotFoundError:
        return False
    return path in _elsewhere(root, stamp)


@lru_cache(maxsize=8)
def _elsewhere(root: Path, stamp: int) -> frozenset[str]:
    return frozenset(MirrorState.load(root).elsewhere)


# --- what is where ---


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
        """Return the lease of a remote directory; None when nobody has taken one."""
        data = remote.read(RECORD_MARK)
        if data is None:
            return None
        known = {item.name for item in fields(cls)}
        return cls(**{name: value for name, value in json.loads(data).items() if name in known})

    def write(self, remote: RemoteDirectory) -> None:
        """Put it in its place."""
        remote.write(RECORD_MARK, json.dumps(asdict(self)).encode())


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


# --- pulling ---


@contextlib.contextmanager
def _reaching(storage: Storage, name: str) -> Iterator[None]:
    try:
        yield
    except SweepError:
        raise
    except Exception as error:  # whatever the package behind the file system raises
        raise ExperimentError(
            f"{storage.describe(name)} cannot be read: {type(error).__name__}: {error}. Check the network and the "
            "permissions; nothing was changed."
        ) from error


def pull(storage: Storage, name: str, *, for_reading: bool = False) -> bool:
    """Bring an experiment from remote storage when the local copy is missing or older; whether anything came.

    The remote record takes the place of the local one, whole, or nothing of it comes: a local copy that went further
    stays, and so do its files. Before the record everything else that belongs to it has come:

        get the record, and compare the two             into a directory of its own
        get the other files, but checkpoints            the same
        lock the local copy, put the files in place     what is there is older, and the next pull does it again
        put the record in place, then the state         the new copy
        get the checkpoints that trials need            each whole or not at all; the next pull brings the rest

    Args:
        for_reading: bring no artifacts, and no checkpoints: `Checkpoint` fetches those that are used. Otherwise those
            that trials continue from are brought, and all of trials that may go on (those that are not TERMINATED).

    Raises:
        ExperimentError: the storage cannot be reached, or both copies went on by themselves since they were one.
    """
    if not storage.is_remote:
        return False
    remote, layout = storage.experiment(name), ExperimentLayout(storage.local_root / name)
    with _reaching(storage, name):
        lease = Lease.read(remote) or Lease()
        version = version_of(remote, lease)
        if not version:
            return False
        has_come = False
        if not layout.database.is_file() or MirrorState.load(layout.root).version != version:
            with _staging(storage.local_root) as staging:
                has_come = _pull_record(storage, layout, staging, lease, version, for_reading)
        remember_home(layout.root, remote, storage.uri_of(name))
        if not for_reading:
            has_come = _pull_checkpoints(remote, layout) or has_come
    return has_come


@contextlib.contextmanager
def _staging(local_root: Path) -> Iterator[Path]:
    """Give a directory for what is under way; what killed processes left of theirs goes."""
    local_root.mkdir(parents=True, exist_ok=True)
    for left in local_root.glob(f"{_STAGING}*"):
        with contextlib.suppress(OSError):  # another process is deleting it
            if left.stat().st_mtime < time.time() - _DEAD_S:
                shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=_STAGING, dir=local_root) as directory:
        yield Path(directory)


def _pull_record(
    storage: Storage, layout: ExperimentLayout, staging: Path, lease: Lease, version: str, for_reading: bool
) -> bool:
    """Bring the record unless the local one went further, with everything but the checkpoints; whether it came."""
    remote, state = storage.experiment(layout.root.name), MirrorState.load(layout.root)
    remote.get([DATABASE], staging)
    is_newer = not layout.database.is_file() or _goes_further(staging / DATABASE, layout, lease, storage)
    if for_reading and not is_newer:
        return False
    found = remote.find()
    names = [name for name in found if _is_wanted(name, not for_reading)] if is_newer else []
    remote.get(names, staging)
    layout.root.mkdir(exist_ok=True)
    lock = DriverLock(layout.lock)
    try:
        for name in names:
            (layout.root / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(staging / name, layout.root / name)
        if is_newer:
            # in this order: a log that is left beside another database would be played into it
            for end in ("", "-wal", "-shm"):
                layout.database.with_name(f"{DATABASE}{end}").unlink(missing_ok=True)
            os.replace(staging / DATABASE, layout.database)
            state.run = lease.run
            state.files = {n: stamp for n in names if (stamp := stamp_of(layout.root / n))}
        state.version = version
        state.elsewhere = [path for path, is_whole in remote_checkpoints(found).items() if is_whole]
        state.save(layout.root)
    finally:
        lock.release()
    return is_newer


def _is_wanted(name: str, with_artifacts: bool) -> bool:
    first, *rest = name.split("/")
    return (
        is_mirrored(first)
        and not (len(rest) > 1 and is_checkpoint(rest[0]))
        and (not rest or with_artifacts or is_log(rest[-1]))
    )


def _goes_further(incoming: Path, layout: ExperimentLayout, lease: Lease, storage: Storage) -> bool:
    """Whether the record that came continues the local one; they are compared where the shorter one ends.

    Raises:
        ExperimentError: each has events that the other lacks.
    """
    with (
        contextlib.closing(open_for_reading(incoming)) as theirs,
        contextlib.closing(open_for_reading(layout.database)) as ours,
    ):
        last = "SELECT coalesce(max(seq), 0) FROM event"
        (their_seq,), (our_seq,) = theirs.execute(last).fetchone(), ours.execute(last).fetchone()
        same = "SELECT at, wall, kind, trial_id, attempt FROM event WHERE seq = ?"
        where = (min(their_seq, our_seq),)
        if theirs.execute(same, where).fetchone() == ours.execute(same, where).fetchone():
            return bool(their_seq > our_seq)
    name = layout.root.name
    by = f", written by pid {lease.pid} on {lease.host}" if lease.host else ""
    raise ExperimentError(
        f"{layout.root} (up to event {our_seq}) and {storage.describe(name)} (up to event {their_seq}{by}) are two "
        "different experiments, or one that was continued in both places. Nothing was changed. Pass another name, or "
        f"delete the copy that you do not want: {storage.local_deletion(name)} or {storage.remote_deletion(name)}."
    )


def _pull_checkpoints(remote: RemoteDirectory, layout: ExperimentLayout) -> bool:
    """Bring the checkpoints that trials need to go on; whether any came."""
    stored = StoredCheckpoints()
    with contextlib.closing(open_for_reading(layout.database)) as db:
        stored.follow(db)
        going = {row[0] for row in db.execute("SELECT trial_id FROM trial WHERE status != 'TERMINATED'")}
        wanted = {trial_id: paths for trial_id, paths in references(db).items() if trial_id in going}
    state = MirrorState.load(layout.root)
    there = set(state.elsewhere)
    behind = {t for t, paths in wanted.items() if any(not layout.checkpoint(p).is_dir() for p in paths - there)}
    needed = set().union(*wanted.values())
    needed |= {path for path in there & stored.kept if trial_of(path) in going}
    needed |= {path for path in there if trial_of(path) in behind}  # what took their place never came
    has_come = False
    for path in sorted(needed):
        if layout.checkpoint(path).is_dir():
            continue
        try:
            fetch(remote / path, layout.checkpoint(path))
        except CheckpointError as error:
            if error.__cause__ is not None:  # it could not be reached, or the disk is full
                raise
            continue  # it is damaged, or its upload never ended: the trial continues from the one before
        has_come = True
    state.elsewhere = [path for path in state.elsewhere if not layout.checkpoint(path).is_dir()]
    state.save(layout.root)
    return has_come


def stamp_of(place: Path) -> tuple[int, int] | None:
    """Return the size and the time of change (ns) of a file; None when it is gone."""
    try:
        found = place.stat()
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns
