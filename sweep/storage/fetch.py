"""Experiments whose storage is a URI, brought to this machine: to be continued, or to be read.

SQLite needs a local disk, so a run works in a directory of the cache. It is sent to the URI (`mirror.py`), and pulled
from there (here) by the next run or reader on another machine. The two records are never merged.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import warnings
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from searchers.errors import nearest
from sweep.checkpoints.manifest import DamagedError
from sweep.checkpoints.store import fetch
from sweep.errors import NoExperimentError
from sweep.record.db import open_for_reading
from sweep.record.layout import CHECKPOINT_PATTERN, DATABASE, ExperimentLayout, split_uri
from sweep.record.lock import DriverLock
from sweep.record.stored import StoredCheckpoints, references, statuses, trial_of
from sweep.storage.filesystems import RemoteDirectory, explained, remember_home
from sweep.storage.local_copy import changed_files, is_log, is_mirrored, remote_checkpoints
from sweep.storage.location import Storage, parse_storage
from sweep.storage.ownership import LocalState, Owner, install_record, set_aside


def has_experiment(storage: Storage, name: str) -> bool:
    """Whether remote storage holds an experiment `name`; raises ExperimentError where it cannot be reached."""
    if storage.remote is None:
        return False
    remote = storage.remote / name
    with _reaching(remote):
        return bool(remote.stamp(DATABASE))


def open_storage_for_reading(path_or_uri: str | os.PathLike[str], storage_filesystem: Any = None) -> Path:
    """Return a local directory that holds the experiment at `path_or_uri`, with its record and logs up to date.

    A local path is returned as it is. Of a remote experiment everything but checkpoints and artifacts is brought to the
    cache; a checkpoint is fetched when it is used.
    """
    text = os.fspath(path_or_uri).rstrip("/").removesuffix(f"/{DATABASE}")
    if "://" not in text and storage_filesystem is None:
        return Path(text).expanduser().absolute()
    parent, name = split_uri(text)
    storage = parse_storage(parent or "/", storage_filesystem)
    local = storage.local_root / name
    pull(storage, name, for_reading=True)
    if storage.remote is not None and not ExperimentLayout(local).database.is_file():
        raise NoExperimentError(f"there is no experiment {name!r} in {storage}. {nearest(name, _names(storage))}")
    return local


def open_all_for_reading(storage_path: str | os.PathLike[str] | None = None) -> Path:
    """Return a local directory that holds the experiments of a storage, with records and logs up to date."""
    storage = parse_storage(storage_path)
    for name in _names(storage):
        pull(storage, name, for_reading=True)
    return storage.local_root


def _names(storage: Storage) -> list[str]:
    if storage.remote is None:
        return []
    with _reaching(storage.remote):
        return storage.remote.names()


def existing_checkpoints(root: Path, paths: Iterable[str]) -> list[str]:
    """Return those checkpoints of the experiment in `root` that exist: here, or where they can be fetched from."""
    elsewhere = LocalState.load(root).elsewhere
    return [path for path in paths if ExperimentLayout(root).checkpoint(path).is_dir() or path in elsewhere]


# --- pulling ---


def _reaching(remote: RemoteDirectory) -> AbstractContextManager[None]:
    return explained(f"{remote} cannot be read", "Check the network and the permissions; nothing was changed.")


def pull(storage: Storage, name: str, *, for_reading: bool = False) -> bool:
    """Bring an experiment from remote storage when the local copy is missing or older; whether anything came.

    The remote record takes the place of the local one, whole, or nothing of it comes: a local copy that went further
    stays, and so do its files. Before the record everything else that belongs to it has come:

        get the record, and compare the two             into a directory of its own
        get the other files, but checkpoints            the same
        lock the local copy, put the files in place     what is there is older, and the next pull does it again
        put the record in place, then the state         the new copy
        get the checkpoints that trials need            each whole or not at all; the next pull brings the rest

    A local copy without which a driver on another machine has gone on is set aside as a whole, which is warned of.

    Args:
        for_reading: bring no artifacts, and no checkpoints: `Checkpoint` fetches those that are used. Otherwise those
            that trials continue from are brought, and all of trials that may go on (those that are not TERMINATED).
    """
    if storage.remote is None:
        return False
    remote, root = storage.remote / name, storage.local_root / name
    with _reaching(remote):
        owner, version = Owner.of(remote), remote.stamp(DATABASE)
        if not version:
            return False
        has_come = False
        if not (root / DATABASE).is_file() or LocalState.load(root).version != version:
            storage.local_root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".incoming-", dir=storage.local_root) as staging:
                has_come = _pull_record(remote, root, Path(staging), owner, version, for_reading)
        remember_home(root, remote)
        if not for_reading:
            has_come = _pull_checkpoints(remote, root) or has_come
    return has_come


def _pull_record(
    remote: RemoteDirectory, root: Path, staging: Path, owner: Owner, version: str, for_reading: bool
) -> bool:
    """Bring the record unless the local one went further, with everything but the checkpoints; whether it came."""
    state, incoming, layout = LocalState.load(root), staging / DATABASE, ExperimentLayout(root)
    remote.get([DATABASE], staging)
    is_newer, why = state.is_to_come(incoming, layout.database, owner, str(remote), has_files=True)
    if for_reading and not is_newer:
        return False
    found = remote.find()
    names = [name for name in found if is_newer and _is_wanted(name, not for_reading)]
    remote.get(names, staging)
    root.mkdir(exist_ok=True)
    lock = DriverLock(layout.lock)
    try:
        if why:
            warnings.warn(set_aside(root, f"{remote}: {why}"), stacklevel=4)
            root.mkdir()
            state = LocalState()
        for name in names:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(staging / name, root / name)
        if is_newer:
            install_record(incoming, layout.database)
            state.run, state.files = owner.run, changed_files(root, names, {})
        state.version = version
        state.elsewhere = [path for path, is_whole in remote_checkpoints(found).items() if is_whole]
        state.save(root)
    finally:
        lock.release()
    return is_newer


def _is_wanted(name: str, with_artifacts: bool) -> bool:
    first, *rest = name.split("/")
    is_of_checkpoint = len(rest) > 1 and CHECKPOINT_PATTERN.match(rest[0])
    return is_mirrored(first) and not is_of_checkpoint and (not rest or with_artifacts or is_log(rest[-1]))


def _pull_checkpoints(remote: RemoteDirectory, root: Path) -> bool:
    """Bring the checkpoints of trials that may go on; whether any came."""
    stored = StoredCheckpoints()
    with contextlib.closing(open_for_reading(root / DATABASE)) as db:
        stored.follow(db)
        going = {trial_id for trial_id, status in statuses(db).items() if status != "TERMINATED"}
        needed = {path for trial_id, paths in references(db).items() if trial_id in going for path in paths}
    needed |= {path for path in stored.kept & set(LocalState.load(root).elsewhere) if trial_of(path) in going}
    missing = {path for path in needed if not ExperimentLayout(root).checkpoint(path).is_dir()}
    for path in sorted(missing):
        with contextlib.suppress(DamagedError):  # the trial continues from the one before
            fetch(remote / path, root / path)
    return any((root / path).is_dir() for path in missing)
