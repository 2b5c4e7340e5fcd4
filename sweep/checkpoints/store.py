"""Checkpoints on disk: directories that are stored whole or not at all, verified when read, removed without a trace.

How a checkpoint is stored, and what is there when the process is killed between two lines:

    copy into `tmp-<name>-<pid>-<n>` beside the target     a `tmp-*`, removed by a resume
    fsync every file, write and fsync the manifest         the same
    fsync the directories, rename to the target            the same, or the whole checkpoint
    fsync the parent directory                             the whole checkpoint
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from sweep.checkpoints.manifest import MANIFEST, METADATA, DamagedError, verify, write_manifest
from sweep.errors import CheckpointError, ExperimentError, refuse_unknown
from sweep.record.files import first_free, sync, write_atomically
from sweep.record.layout import leads_outside
from sweep.storage.filesystems import RemoteDirectory, home_of, identity, locate

STRAY_PREFIX = "tmp-"
_counter = itertools.count()


class _Gone:
    """A method that checkpoints of former versions of Tune had: says what is written instead."""

    def __init__(self, advice: str) -> None:
        self._advice = advice

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise CheckpointError(f"Checkpoint.{self._name} is gone: a checkpoint is a directory. {self._advice}.")


@refuse_unknown()
class Checkpoint:
    """A directory from which a trial can continue; immutable once it was reported.

    One that lies on this machine is used in place. One that lies elsewhere is downloaded when its files are asked for,
    and so is one whose experiment was opened from remote storage.

    Args:
        path: of a directory, or its URI, such as `s3://bucket/run/checkpoint_000003`.
        filesystem: of fsspec or pyarrow, on which `path` lies; None: this machine, or what the URI says.

    Attributes:
        path: the directory: absolute, or the path on `filesystem`.
        filesystem: the fsspec file system; None for a directory of this machine, however it was given.

    Raises:
        CheckpointError: what was given is no path.
        ConfigError: the protocol is unknown, or a package for it is missing.

    Example:
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     torch.save(model.state_dict(), os.path.join(directory, "model.pt"))
        ...     sweep.report(loss=loss, checkpoint=Checkpoint(directory))
    """

    path: str
    filesystem: Any
    _is_verified = False  # it was stored by this process, or compared with its manifest

    def __init__(self, path: str | os.PathLike[str], filesystem: Any = None) -> None:
        if not isinstance(path, (str, os.PathLike)):
            raise CheckpointError(
                f"a checkpoint was made from {type(path).__name__}; expected the path of a directory. Write the state "
                "into a directory and pass that."
            )
        self._given = os.fspath(path)
        self.filesystem, self.path = locate(path, filesystem)

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """Return the checkpoint that consists of the files in `path`; nothing is copied."""
        return cls(path)

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """Copy the files to `path` (None: a new temporary directory, the caller's to delete) and return it.

        Raises:
            CheckpointError: the checkpoint is gone or damaged, or cannot be copied, or `path` lies inside of it.
        """
        if self.filesystem is None:
            self._require_whole()
            if path is not None and Path(path).resolve().is_relative_to(Path(self.path).resolve()):
                raise CheckpointError(
                    f"{path} is the checkpoint {self.path} itself or lies in it; expected a directory outside of it."
                )
        target = os.path.abspath(path) if path is not None else tempfile.mkdtemp(prefix="checkpoint_")
        try:
            if self.filesystem is not None:
                _download(self._remote, target)
            else:
                shutil.copytree(self.path, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MANIFEST))
        except (OSError, CheckpointError) as error:
            if path is None:
                shutil.rmtree(target, ignore_errors=True)
            if isinstance(error, CheckpointError):
                raise
            raise CheckpointError(f"the checkpoint {self.path} cannot be copied to {target}: {error}.") from error
        return target

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        """Give the directory for reading: the checkpoint itself without a copy, or a download of a remote one.

        Users of one remote checkpoint in one process share the download; it is deleted when the last block ends.

        Raises:
            CheckpointError: the checkpoint is gone or damaged, or cannot be downloaded.
        """
        if self.filesystem is None:
            self._require_whole()
            yield self.path
            return
        with _shared_download(self._remote) as directory:
            yield directory

    def __fspath__(self) -> str:
        """Return the directory, for `open` and `os.path.join`.

        Raises:
            CheckpointError: the checkpoint is gone, damaged, or lies elsewhere: `as_directory` downloads it.
        """
        if self.filesystem is not None:
            raise CheckpointError(f"{self!r} lies elsewhere; read it by: with checkpoint.as_directory() as directory.")
        self._require_whole()
        return self.path

    value = dir_or_data = property(__fspath__, doc="The same, under the names that Tune once had.")

    def to_air_checkpoint(self) -> Checkpoint:
        """Return itself: Ray once had another class for checkpoints out of a trial."""
        return self

    def get_metadata(self) -> dict[str, Any]:
        """Return what `set_metadata` stored; empty when nothing was."""
        if self.filesystem is not None:
            found = self._remote.read(METADATA)
        else:
            if not os.path.isdir(self.path):
                self._fetch()
            place = Path(self.path, METADATA)
            found = place.read_bytes() if place.exists() else None
        data: dict[str, Any] = {} if found is None else json.loads(found)
        return data

    def set_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Store JSON values beside the files, replacing earlier ones.

        Raises:
            CheckpointError: the checkpoint is gone, or a value is not JSON.
        """
        try:
            text = json.dumps(dict(metadata))
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"the metadata of a checkpoint must be JSON values: {error}.") from error
        if self.filesystem is not None:
            if not self._remote.find():
                raise CheckpointError(f"there is no checkpoint at {self._remote}.")
            self._remote.write(METADATA, text.encode())
            return
        self._require()
        write_atomically(Path(self.path, METADATA), text)

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Add to the stored metadata; equal keys are replaced."""
        self.set_metadata({**self.get_metadata(), **metadata})

    @property
    def _remote(self) -> RemoteDirectory:
        return RemoteDirectory(self.filesystem, self.path)

    def _require(self) -> None:
        if not os.path.isdir(self.path) and not self._fetch():
            raise CheckpointError(
                f"there is no checkpoint at {self.path}. It may have been deleted because of num_to_keep; raise it."
            )

    def _require_whole(self) -> None:
        """See to it that it is there and, the first time, that it is what was stored; a directory of the user's own
        has no manifest, and passes."""
        self._require()
        if not self._is_verified and os.path.exists(os.path.join(self.path, MANIFEST)):
            verify(self.path, is_exact=False)
            self._is_verified = True

    def _fetch(self) -> bool:
        """Bring the checkpoint from the remote storage of its experiment; whether it has one."""
        place = Path(self.path)
        try:
            home = home_of(place.parent.parent)
        except ExperimentError as error:
            raise CheckpointError(f"there is no checkpoint at {self.path}: {error}.") from error
        if home is None:
            return False
        fetch(home / place.parent.name / place.name, self.path)
        return True

    from_dict = _Gone("Write the dict to a file in a directory and call Checkpoint.from_directory(directory)")
    from_bytes = _Gone("Write the bytes to a file in a directory and call Checkpoint.from_directory(directory)")
    from_uri = _Gone("Write Checkpoint(uri)")
    to_dict = _Gone("Read its files: with checkpoint.as_directory() as directory: ...")
    to_bytes = _Gone("Read its files: with checkpoint.as_directory() as directory: ...")
    to_uri = _Gone("Pass storage_path=uri to the run, and checkpoints are stored there")

    def __repr__(self) -> str:
        shown = self.path if self.filesystem is None else self._remote
        return f"Checkpoint({str(shown)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Checkpoint) or self.path != other.path:
            return False
        mine, its = self.filesystem, other.filesystem
        if mine is None or its is None or mine is its:
            return mine is its
        return identity(mine) == identity(its)

    def __hash__(self) -> int:
        return hash(self.path)


def known_whole(path: str) -> Checkpoint:
    """Return the checkpoint in a directory that was just stored, or compared with its manifest."""
    checkpoint = Checkpoint(path)
    checkpoint._is_verified = True
    return checkpoint


def persist(
    source_dir: str | os.PathLike[str], target_dir: str | os.PathLike[str], *, is_source_spent: bool = False
) -> None:
    """Store the files of `source_dir` as the checkpoint `target_dir`, whole or not at all, durable on return.

    Symbolic links are followed, so that the checkpoint stands alone.

    Args:
        target_dir: must not exist; its parent is created.
        is_source_spent: `source_dir` lies on the same file system and is not needed any more: renamed, not copied.
    """
    source, target = os.path.abspath(source_dir), os.path.abspath(target_dir)
    if not os.path.isdir(source):
        found = "a file" if os.path.exists(source) else "nothing"
        raise CheckpointError(f"a checkpoint must be a directory; at {source} there is {found}.")
    if os.path.lexists(target):
        raise CheckpointError(f"there is a checkpoint at {target} already; a stored checkpoint is never changed.")
    temporary = _beside(target)
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if is_source_spent:
            os.rename(source, temporary)
        else:
            shutil.copytree(source, temporary, ignore=shutil.ignore_patterns(MANIFEST))
        write_manifest(temporary)
        os.rename(temporary, target)
        sync(os.path.dirname(target))
    except (OSError, shutil.Error) as error:
        if is_source_spent and os.path.isdir(temporary):
            os.rename(temporary, source)  # the only copy: it may be stored later
        else:
            shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(f"the checkpoint {target} could not be written: {error}.") from error


def discard(directory: str | os.PathLike[str]) -> None:
    """Delete a checkpoint, if it is there; a process killed meanwhile leaves a `tmp-*`, never half a checkpoint."""
    target = os.path.abspath(directory)
    temporary = _beside(target)
    try:
        if os.path.islink(target):
            os.unlink(target)
            return
        os.rename(target, temporary)
        shutil.rmtree(temporary)
    except FileNotFoundError:
        return
    except OSError as error:
        raise CheckpointError(f"the checkpoint {target} could not be deleted: {error}.") from error


def discard_in(root: str | os.PathLike[str], path: str) -> bool:
    """Delete a checkpoint of the experiment in `root`, and return whether it may be: a directory that a symbolic link
    leads to, outside of the experiment, is left alone."""
    if leads_outside(root, path):
        return False
    discard(os.path.join(root, path))
    return True


def free_target(trial_dir: str | os.PathLike[str], name: str, attempt: int) -> str:
    """Return the path for a new checkpoint: `<name>`, or `<name>.<attempt>` when a former attempt stored that one."""
    target = os.path.join(trial_dir, name)
    return first_free(f"{target}.{attempt}") if os.path.lexists(target) else target


def fetch(remote: RemoteDirectory, target_dir: str | os.PathLike[str]) -> None:
    """Bring a checkpoint from remote storage, verified, whole or not at all; there already is fine. Raises DamagedError
    if it is not whole there, another CheckpointError if it cannot be brought."""
    target = os.path.abspath(target_dir)
    if os.path.isdir(target):
        return
    temporary = _beside(target)
    try:
        if not _download(remote, temporary, with_manifest=True):
            raise DamagedError(f"the checkpoint {remote} has no manifest: its upload did not end.")
        verify(temporary)
        try:
            persist(temporary, target, is_source_spent=True)
        except CheckpointError:
            if not os.path.isdir(target):  # otherwise another process has brought it meanwhile
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def send(source_dir: str | os.PathLike[str], remote: RemoteDirectory) -> bool:
    """Bring a stored checkpoint to remote storage, unless the same is there: manifest last, so that it counts as whole
    only then. False if it vanished meanwhile.

    What the file system raises is passed on; the next call sends all of it again.
    """
    source = Path(source_dir)
    try:
        manifest = (source / MANIFEST).read_bytes()
    except FileNotFoundError:
        return False
    if remote.read(MANIFEST) == manifest:
        return True
    if remote.find():  # an upload that was cut, or another one of that name
        unsend(remote)
    files = [place for place in sorted(source.rglob("*")) if place.is_file() and place.name != MANIFEST]
    pairs = [(place, place.relative_to(source).as_posix()) for place in files]
    if len(remote.put(pairs)) < len(pairs):
        return False
    remote.write(MANIFEST, manifest)
    return True


def unsend(remote: RemoteDirectory) -> None:
    """Delete a checkpoint from remote storage."""
    remote.remove(MANIFEST)  # first: without it the checkpoint does not count as whole
    remote.remove_tree()


def _download(remote: RemoteDirectory, target: str | os.PathLike[str], *, with_manifest: bool = False) -> bool:
    """Copy the files of a remote checkpoint; return whether it has a manifest, with which their sizes are compared."""
    try:
        found = remote.find()
        if not found:
            raise DamagedError(
                f"there is no checkpoint at {remote}. It may have been deleted because of num_to_keep; raise it."
            )
        manifest = remote.read(MANIFEST)
        if manifest is not None:
            for name, (size, _) in json.loads(manifest)["files"].items():
                if found.get(name) != size:
                    raise DamagedError(
                        f"the checkpoint {remote} is damaged: {name} "
                        f"has {found.get(name, 'no')} bytes, expected {size}."
                    )
        remote.get([name for name in found if name != MANIFEST or with_manifest], Path(target))
    except CheckpointError:
        raise
    except Exception as error:  # whatever the package behind the file system raises
        raise CheckpointError(f"the checkpoint {remote} cannot be read: {type(error).__name__}: {error}.") from error
    return manifest is not None


@dataclass
class _Download:
    """A temporary directory with a remote checkpoint, and how many use it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    num_users: int = 0
    directory: str = ""


_downloads: dict[tuple[int, str, str], _Download] = {}
_downloads_lock = threading.Lock()


@contextlib.contextmanager
def _shared_download(remote: RemoteDirectory) -> Iterator[str]:
    key = (os.getpid(), identity(remote.filesystem), remote.path)  # a forked child deletes nothing of its parent's
    with _downloads_lock:
        download = _downloads.setdefault(key, _Download())
        download.num_users += 1
    try:
        with download.lock:
            if not download.directory:
                directory = tempfile.mkdtemp(prefix="checkpoint_")
                try:
                    _download(remote, directory)
                except BaseException:
                    shutil.rmtree(directory, ignore_errors=True)
                    raise
                download.directory = directory
        yield download.directory
    finally:
        with _downloads_lock:
            download.num_users -= 1
            if not download.num_users:
                del _downloads[key]
        if not download.num_users and download.directory:
            shutil.rmtree(download.directory, ignore_errors=True)


def _beside(target: str) -> str:
    """Return a new name beside a checkpoint, under which it is a stray."""
    parent, name = os.path.split(target)
    return os.path.join(parent, f"{STRAY_PREFIX}{name}-{os.getpid()}-{next(_counter)}")
