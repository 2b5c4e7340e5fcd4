"""Experiments whose storage is a URI: worked on in a local directory, and brought back from the remote one.

SQLite needs a local disk, so a run works in a directory of the cache, and `callbacks/mirror.py` copies it to the URI:

    <uri>/<experiment>/sweep.db                a consistent copy of the record, never older than its mark says
    <uri>/<experiment>/.sweep-record.json      how far that goes and which driver wrote it; written after it
    <uri>/<experiment>/<trial>/result.json ... as on the local disk
    <uri>/<experiment>/<trial>/checkpoint_*/   whole once `.sweep-manifest.json` is there, which is written last
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import json
import os
import re
import secrets
import shlex
import sqlite3
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from sweep.errors import CheckpointError, ConfigError, ExperimentError, NoExperimentError, SweepError, nearest
from sweep.record.checkpoints import MANIFEST, STRAY_PREFIX, fetch
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
    storage_root,
)
from sweep.record.lock import DriverLock
from sweep.record.schema import open_for_reading

__all__ = [
    "Mark",
    "MirrorState",
    "Storage",
    "check_writable",
    "checkpoint_of",
    "copy_record",
    "download_experiment",
    "has_checkpoint",
    "has_experiment",
    "is_checkpoint",
    "is_log",
    "is_mirrored",
    "open_all_for_reading",
    "open_storage_for_reading",
    "parse_storage",
    "record_stamp",
    "references",
    "storage_of",
]

DATABASE = ExperimentLayout(Path()).database.name
_LOGS = (
    *("params.json", "params.pkl", "result.json", "progress.csv", "error.txt", "error.pkl"),
    *("stdout", "stderr", "*.log", "*.out", "*.err", "events.out.tfevents*"),
)
_LOCAL_ONLY = ("driver.lock", "code")
_LOCAL_PREFIXES = (DATABASE, STRAY_PREFIX, ".probe-", MIRROR_STATE, REMOTE_NOTE, RECORD_MARK, OUTGOING)
_BUCKETS = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss", "oci"}
_REFERENCE = re.compile(r'"([A-Za-z0-9][A-Za-z0-9_-]*/checkpoint_\d{6,}[^"/\\]*)"')


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
        local = str(self.local_root / name)
        if not self.is_remote:
            return f"rm -r {shlex.quote(local)}" if is_shell else f"shutil.rmtree({local!r})"
        what = f"fsspec.filesystem({str(self.uri).partition('://')[0]!r})" if self.is_named else "storage_filesystem"
        call = f"{what}.rm({self.experiment(name).path!r}, recursive=True)"
        return f"{call} and shutil.rmtree({local!r})" if os.path.exists(local) else call

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
    parent = str(note["uri"]).rpartition("/")[0]
    storage = parse_storage(f"{parent}/" if parent.endswith(":/") else parent)
    return replace(storage, local_root=root.parent)


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
        return storage.experiment(name).has(DATABASE) if storage.is_remote else False


def download_experiment(
    storage: Storage, name: str, *, with_checkpoints: bool = True, with_artifacts: bool = True
) -> bool:
    """Bring an experiment from remote storage when the local copy is missing or older; whether anything came.

    The records are compared event by event where they meet: a local copy that went further stays, and so do its files.

    Args:
        with_checkpoints: bring those that trials continue from, and all of trials that may go on (those that are not
            TERMINATED); the others are fetched when they are used, by `Checkpoint`.
        with_artifacts: bring the files that trials wrote themselves.

    Raises:
        ExperimentError: the storage cannot be reached, or both copies went on by themselves since they were one.
    """
    if not storage.is_remote:
        return False
    remote, layout = storage.experiment(name), ExperimentLayout(storage.local_root / name)
    with _reaching(storage, name):
        if not remote.has(DATABASE):
            return False
        has_come = _bring_record(storage, remote, layout, with_artifacts)
        remember_home(layout.root, remote, storage.uri_of(name))
        if with_checkpoints:
            has_come = _bring_checkpoints(remote, layout) or has_come
    return has_come


def open_storage_for_reading(path_or_uri: str | os.PathLike[str], storage_filesystem: Any = None) -> Path:
    """Return a local directory that holds the experiment at `path_or_uri`, with its record and logs up to date.

    A local path is returned as it is. Of a remote experiment everything but checkpoints and artifacts is brought to the
    cache; a checkpoint is fetched when it is used.

    Raises:
        ExperimentError: there is no such experiment, or it cannot be reached.
    """
    text = os.fspath(path_or_uri).rstrip("/")
    if text.endswith(f"/{DATABASE}"):
        text = text.removesuffix(f"/{DATABASE}")
    if "://" not in text and storage_filesystem is None:
        return Path(text).expanduser().absolute()
    parent, _, name = text.rpartition("/")
    if parent.endswith(":/") or not name:  # `memory://name`: the storage is the root
        parent += "/"
    storage = parse_storage(parent or "/", storage_filesystem)
    local = storage.local_root / name
    if not storage.is_remote:
        return local
    download_experiment(storage, name, with_checkpoints=False, with_artifacts=False)
    if not ExperimentLayout(local).database.is_file():
        with _reaching(storage, name):
            known = RemoteDirectory(storage.filesystem, storage.path).names()
        raise NoExperimentError(f"there is no experiment {name!r} in {storage.uri}. {nearest(name, known)}")
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
        with _reaching(storage, ""):
            names = RemoteDirectory(storage.filesystem, storage.path).names()
        for name in names:
            download_experiment(storage, name, with_checkpoints=False, with_artifacts=False)
    return storage.local_root


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
    return frozenset(path for path, is_here in MirrorState.load(root).checkpoints.items() if not is_here)


# --- what is where ---


@dataclass(frozen=True)
class Mark:
    """How far a remote `sweep.db` goes (`seq` of its last event), and which run of a driver wrote it."""

    run: str = ""
    seq: int = 0
    wall: float = 0.0
    host: str = ""
    pid: int = 0

    @classmethod
    def read(cls, remote: RemoteDirectory) -> Mark | None:
        """Return the mark; None when there is none."""
        data = remote.read(RECORD_MARK)
        return None if data is None else cls(**json.loads(data))

    def write(self, remote: RemoteDirectory) -> None:
        """Put the mark in its place."""
        remote.write(RECORD_MARK, json.dumps(asdict(self)).encode())


@dataclass
class MirrorState:
    """What of a local directory is at the remote place; kept beside it so that nothing is sent twice.

    Attributes:
        run, seq: of the mark that belongs to this; previous: run of the one before, until the new mark is written.
        files: size and time of change (ns) of each file when it was sent.
        checkpoints: those at the remote place, and whether they are (or were) also here.
    """

    run: str = ""
    seq: int = 0
    previous: str = ""
    files: dict[str, tuple[int, int]] = field(default_factory=dict)
    checkpoints: dict[str, bool] = field(default_factory=dict)

    @classmethod
    def load(cls, root: Path) -> MirrorState:
        """Return the state that was saved; an empty one when there is none or it cannot be read."""
        try:
            data = json.loads((root / MIRROR_STATE).read_text(encoding="utf-8"))
            files = {name: (int(size), int(time)) for name, (size, time) in data["files"].items()}
            return cls(data["run"], data["seq"], data["previous"], files, dict(data["checkpoints"]))
        except (OSError, ValueError, KeyError, TypeError):
            return cls()

    def save(self, root: Path) -> None:
        """Write it down, whole or not at all."""
        temporary = root / f"{MIRROR_STATE}.{os.getpid()}"
        temporary.write_text(json.dumps(asdict(self)), encoding="utf-8")
        os.replace(temporary, root / MIRROR_STATE)


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


def checkpoint_of(name: str) -> str | None:
    """Return the checkpoint to which a file belongs, `<trial>/<checkpoint>`."""
    parts = PurePosixPath(name).parts
    return "/".join(parts[:2]) if len(parts) > 2 and is_checkpoint(parts[1]) else None


def copy_record(database: Path, target: Path) -> int:
    """Write a consistent copy of a `sweep.db` that may be in use; return the number of its last event.

    The copy is one file, without a log beside it.
    """
    target.unlink(missing_ok=True)
    with contextlib.closing(open_for_reading(database)) as source, contextlib.closing(sqlite3.connect(target)) as copy:
        source.backup(copy)
        copy.execute("PRAGMA journal_mode=DELETE")
        (seq,) = copy.execute("SELECT coalesce(max(seq), 0) FROM event").fetchone()
    return int(seq)


def record_stamp(database: Path) -> str:
    """Return a text that changes whenever a `sweep.db` says something new."""
    with contextlib.closing(open_for_reading(database)) as db:
        (seq,) = db.execute("SELECT coalesce(max(seq), 0) FROM event").fetchone()
        meta = repr(db.execute("SELECT key, value FROM meta ORDER BY key").fetchall())
    return f"{seq} {hashlib.sha256(meta.encode()).hexdigest()}"


def references(database: Path) -> dict[str, set[str]]:
    """Return by trial the checkpoints that it continues from or will; trials without any are left out."""
    with contextlib.closing(open_for_reading(database)) as db:
        rows = db.execute(
            "SELECT trial_id, checkpoint, started_from, pending FROM trial"
            " WHERE checkpoint IS NOT NULL OR started_from IS NOT NULL OR pending IS NOT NULL"
        )
        found = {row[0]: {path for text in row[1:] if text for path in _REFERENCE.findall(text)} for row in rows}
    return {trial_id: paths for trial_id, paths in found.items() if paths}


# --- bringing ---


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


def _bring_record(storage: Storage, remote: RemoteDirectory, layout: ExperimentLayout, with_artifacts: bool) -> bool:
    mark, state = Mark.read(remote), MirrorState.load(layout.root)
    has_local = layout.database.is_file()
    if has_local and mark is not None and (mark.run, mark.seq) == (state.run, state.seq):
        return False  # it was sent from here, or brought here
    incoming = storage.local_root / f".incoming-{layout.root.name}-{os.getpid()}-{secrets.token_hex(4)}.db"
    try:
        remote.get(DATABASE, incoming)
        if has_local and not _goes_further(incoming, layout, remote):
            return False
        _bring_files(remote, layout, with_artifacts, mark or Mark())
        lock = DriverLock(layout.lock)
        try:
            # in this order: a log that is left beside another database would be played into it
            for place in ("", "-wal", "-shm"):
                layout.database.with_name(f"{DATABASE}{place}").unlink(missing_ok=True)
            os.replace(incoming, layout.database)
        finally:
            lock.release()
    finally:
        incoming.unlink(missing_ok=True)
    return True


def _goes_further(incoming: Path, layout: ExperimentLayout, remote: RemoteDirectory) -> bool:
    """Whether the record that came continues the local one.

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
        if theirs.execute(same, where).fetchone() != ours.execute(same, where).fetchone():
            raise ExperimentError(
                f"{layout.root} and {remote} are two different experiments, or one that was continued in both places. "
                "Nothing was changed. Pass another name, or delete the copy that you do not want."
            )
        return bool(their_seq > our_seq)


def _bring_files(remote: RemoteDirectory, layout: ExperimentLayout, with_artifacts: bool, mark: Mark) -> None:
    """Bring everything but the record and the checkpoints, and note what is at the remote place."""
    state = MirrorState(mark.run, mark.seq)
    for name in remote.find():
        checkpoint = checkpoint_of(name)
        if checkpoint is not None:
            if name == f"{checkpoint}/{MANIFEST}":
                state.checkpoints[checkpoint] = (layout.root / checkpoint).is_dir()
            continue
        parts = PurePosixPath(name).parts
        if not is_mirrored(parts[0]) or (len(parts) > 1 and not with_artifacts and not is_log(parts[-1])):
            continue
        place = layout.root / name
        remote.get(name, place)
        found = place.stat()
        state.files[name] = (found.st_size, found.st_mtime_ns)
    layout.root.mkdir(parents=True, exist_ok=True)
    state.save(layout.root)


def _bring_checkpoints(remote: RemoteDirectory, layout: ExperimentLayout) -> bool:
    """Bring the checkpoints that trials need to go on; whether any came."""
    wanted = references(layout.database)
    with contextlib.closing(open_for_reading(layout.database)) as db:
        going = {row[0] for row in db.execute("SELECT trial_id FROM trial WHERE status != 'TERMINATED'")}
    needed = {path for trial_id, paths in wanted.items() if trial_id in going for path in paths}
    state = MirrorState.load(layout.root)
    needed |= {path for path in state.checkpoints if path.partition("/")[0] in going}
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
        state.checkpoints[path] = has_come = True
    if has_come:
        state.save(layout.root)
    return has_come
