"""Copy an experiment's directory to remote storage, piece by piece, so that what is there can always be continued."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from sweep.errors import CheckpointError, ExperimentError, SweepError
from sweep.record.checkpoints import MANIFEST, METADATA, STRAY_PREFIX, pin
from sweep.record.filesystems import RemoteDirectory
from sweep.record.layout import OUTGOING, ExperimentLayout
from sweep.record.remote import (
    Mark,
    MirrorState,
    checkpoint_of,
    copy_record,
    is_checkpoint,
    is_log,
    is_mirrored,
    record_stamp,
    references,
)

__all__ = ["OtherDriver", "UploadStopped", "Uploader"]

_AT_ONCE = 64


class OtherDriver(ExperimentError):
    """Another driver writes to the same remote directory."""


class UploadStopped(SweepError):
    """There is no time left; what was sent so far is whole."""


class Uploader:
    """Bring the remote copy of one experiment up to date, as often as wanted; it sends only what has changed.

    At any moment, also when it is killed, the remote record can be continued: it is sent after the checkpoints that it
    refers to, and a checkpoint is deleted there only when a later record is there that does not need it.

        look which sent checkpoints were deleted here        they are deleted there at the end, not before
        copy the record                                      SQLite's own backup: consistent while the driver writes
        pin the checkpoints it refers to, send them          manifest last: without it there is no checkpoint
        send logs and artifacts that have changed
        send the record, then its mark
        delete

    Args:
        remote: the experiment's directory there.
        root: its directory here.
        log_files: names of files in trials' directories that are sent like logs, besides the usual ones.
        is_over: asked between two files; True ends a pass with `UploadStopped`.

    Attributes:
        record_s: seconds that the last copying and sending of the record took.
        num_files: still to be sent in this pass.
        problems: checkpoints that cannot be sent, with the reasons.
    """

    def __init__(
        self,
        remote: RemoteDirectory,
        root: Path,
        *,
        log_files: Collection[str] = (),
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        self.remote = remote
        self.layout = ExperimentLayout(root)
        self.record_s = 0.0
        self.num_files = 0
        self.problems: dict[str, str] = {}
        self._log_files = frozenset(log_files)
        self._is_over = is_over
        self._run = secrets.token_hex(8)
        self._accepted: set[str] = set()
        self._state = MirrorState()
        self._has_begun = False
        self._stamp = ""
        self._copied_seq = 0
        self._wanted: set[str] = set()  # checkpoints that the record refers to

    def sync(self, trial_ids: Collection[str] | None = None, *, with_artifacts: bool = False) -> None:
        """Send what has changed: the record, and the files and checkpoints of these trials (None: of all).

        Raises:
            OtherDriver: the remote copy was written by somebody else since the last time.
            UploadStopped: `is_over` said so.
            Exception: whatever the file system raises; nothing is broken, try again.
        """
        if not self._has_begun:
            self._begin()
        self._refuse_other_drivers()
        state, root = self._state, self.layout.root
        gone = [
            path
            for path, is_here in state.checkpoints.items()
            if is_here and (trial_ids is None or _trial_of(path) in trial_ids) and not (root / path).is_dir()
        ]
        directories = sorted(self._directories()) if trial_ids is None else sorted(trial_ids)
        snapshot, stamp = self._copy_record()
        behind = self._send_checkpoints(directories)
        self._send_files(directories, with_files_of_root=trial_ids is None, with_artifacts=with_artifacts)
        if snapshot is not None:
            self._send_record(snapshot, stamp)
        for path in gone:
            if _trial_of(path) not in behind and path not in self._wanted:
                self._check_time()
                self.remote.remove(f"{path}/{MANIFEST}")  # first: without it nobody takes it for whole
                self.remote.remove_tree(path)
                del state.checkpoints[path]
        state.save(root)

    def num_unsent_checkpoints(self) -> int:
        """Return how many checkpoints lie here that were not sent, as far as the passes so far know."""
        sent = self._state.checkpoints
        found = (path for directory in self._directories() for path in self._checkpoints_in(directory))
        return sum(path not in sent for path in found)

    def _begin(self) -> None:
        """Learn what is there already."""
        shutil.rmtree(self.layout.root / OUTGOING, ignore_errors=True)
        root = self.layout.root
        state, mark = MirrorState.load(root), Mark.read(self.remote)
        if mark is None:
            state = MirrorState()
        else:
            names = self.remote.find()
            there = {path for name in names if (path := checkpoint_of(name)) is not None}
            whole = {path for path in there if f"{path}/{MANIFEST}" in names}
            here = {path for path in there if (root / path).is_dir()}
            if mark.run in (state.run, state.previous):
                # Those that nobody wrote down were sent from here just before a kill. Those that are not whole are to
                # be sent again if they are here, and to be deleted otherwise.
                known = state.checkpoints
                state.checkpoints = {path: known.get(path, True) for path in sorted(whole | (there - here))}
                state.previous = mark.run
            else:  # sent by another machine: what is not here is none of our business
                state = MirrorState(checkpoints={path: path in here for path in sorted(whole)})
        state.run = self._run
        state.save(root)  # before anything is marked with that name
        self._accepted = {self._run, mark.run if mark is not None else ""}
        self._state = state
        self._has_begun = True

    def _refuse_other_drivers(self) -> None:
        mark = Mark.read(self.remote)
        if mark is not None and mark.run not in self._accepted:
            raise OtherDriver(
                f"another driver (pid {mark.pid} on {mark.host}) writes to {self.remote}: nothing more is copied "
                f"there. This run goes on, and everything of it is in {self.layout.root}."
            )

    def _directories(self) -> Iterator[str]:
        with os.scandir(self.layout.root) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False) and is_mirrored(entry.name):
                    yield entry.name

    def _copy_record(self) -> tuple[Path | None, str]:
        """Return a copy of the record, None when it says nothing new, and its stamp."""
        began = time.monotonic()
        stamp = record_stamp(self.layout.database)
        if stamp == self._stamp:
            return None, stamp
        place = self.layout.root / OUTGOING / self.layout.database.name
        place.parent.mkdir(exist_ok=True)
        self._copied_seq = copy_record(self.layout.database, place)
        self._wanted = set().union(*references(place).values())
        self.record_s = time.monotonic() - began
        return place, stamp

    def _send_record(self, snapshot: Path, stamp: str) -> None:
        self._check_time()
        began = time.monotonic()
        self.remote.replace(snapshot, snapshot.name)
        mark = Mark(self._run, self._copied_seq, time.time(), socket.gethostname(), os.getpid())
        mark.write(self.remote)
        self._state.seq = mark.seq
        self._stamp = stamp
        self.record_s += time.monotonic() - began
        snapshot.unlink()

    # --- checkpoints ---

    def _send_checkpoints(self, directories: Iterable[str]) -> set[str]:
        """Send new checkpoints; return the trials of which one is missing that the record refers to."""
        root, state = self.layout.root, self._state
        found = {path for path in self._wanted if path not in state.checkpoints}
        for directory in directories:
            for path in self._checkpoints_in(directory):
                if path not in state.checkpoints:
                    found.add(path)
                    continue
                state.checkpoints[path] = True
                self._send_metadata(path)
        pinned: dict[str, Path | None] = {}
        for path in sorted(found):  # all of them before the first is sent, which may take long
            place, target = self.layout.checkpoint(path), root / OUTGOING / path
            shutil.rmtree(target, ignore_errors=True)
            try:
                pinned[path] = pin(place, target)
                self.problems.pop(path, None)
            except CheckpointError as error:
                self.problems[path] = str(error)
        missing = found - pinned.keys()
        for path, source in pinned.items():
            self._check_time()
            if source is None or not self._send_checkpoint(path, source):
                missing.add(path)
            shutil.rmtree(root / OUTGOING / path, ignore_errors=True)
        return {_trial_of(path) for path in missing & self._wanted}

    def _checkpoints_in(self, directory: str) -> list[str]:
        try:
            names = sorted(os.listdir(self.layout.root / directory))
        except FileNotFoundError:
            return []
        return [
            f"{directory}/{name}"
            for name in names
            if is_checkpoint(name) and (self.layout.root / directory / name / MANIFEST).is_file()
        ]

    def _send_checkpoint(self, path: str, source: Path) -> bool:
        """Send one, unless the same is there; False if it vanished meanwhile."""
        try:
            manifest = (source / MANIFEST).read_bytes()
        except FileNotFoundError:
            return False
        there = self.remote / path
        if there.read(MANIFEST) != manifest:
            if there.find():  # an upload that was cut
                there.remove(MANIFEST)
                there.remove_tree("")
            files = [place for place in sorted(source.rglob("*")) if place.is_file() and place.name != MANIFEST]
            pairs = [(place, place.relative_to(source).as_posix()) for place in files]
            for start in range(0, len(pairs), _AT_ONCE):
                self._check_time()
                some = pairs[start : start + _AT_ONCE]
                if len(there.put(some)) < len(some):
                    return False
            there.write(MANIFEST, manifest)
        self._note(path + "/" + METADATA, source / METADATA)
        self._state.checkpoints[path] = True
        return True

    def _send_metadata(self, path: str) -> None:
        """Send what was written beside a checkpoint's files after it was sent."""
        name = f"{path}/{METADATA}"
        place = self.layout.root / name
        if self._has_changed(name, place):
            stamp = _stamp_of(place)
            if stamp is not None and self.remote.put([(place, name)]):
                self._state.files[name] = stamp

    # --- other files ---

    def _send_files(self, directories: Iterable[str], *, with_files_of_root: bool, with_artifacts: bool) -> None:
        root = self.layout.root
        names = [name for directory in directories for name in self._files_in(directory, with_artifacts)]
        if with_files_of_root:
            with os.scandir(root) as entries:
                names += [
                    entry.name
                    for entry in entries
                    if entry.is_file(follow_symlinks=False) and is_mirrored(entry.name) and not _is_partial(entry.name)
                ]
        changed = sorted(name for name in names if self._has_changed(name, root / name))
        self.num_files = len(changed)
        for start in range(0, len(changed), _AT_ONCE):
            self._check_time()
            # their sizes and times from before: what is written meanwhile is sent the next time
            stamps = {name: _stamp_of(root / name) for name in changed[start : start + _AT_ONCE]}
            for name in self.remote.put([(root / name, name) for name in stamps]):
                stamp = stamps[name]
                if stamp is not None:
                    self._state.files[name] = stamp
            self.num_files -= len(stamps)

    def _files_in(self, directory: str, with_artifacts: bool) -> Iterator[str]:
        """Give the files of a trial that are to be at the remote place, by their names in the experiment."""
        top = self.layout.root / directory
        for place, directories, files in os.walk(top):
            is_top = Path(place) == top
            directories[:] = [
                name
                for name in directories
                if with_artifacts and not name.startswith(STRAY_PREFIX) and not (is_top and is_checkpoint(name))
            ]
            for name in files:
                is_wanted = with_artifacts or (is_top and is_log(name, self._log_files))
                path = os.path.join(place, name)
                if is_wanted and not _is_partial(name) and not os.path.islink(path):
                    yield os.path.relpath(path, self.layout.root)

    def _has_changed(self, name: str, place: Path) -> bool:
        stamp = _stamp_of(place)
        return stamp is not None and self._state.files.get(name) != stamp

    def _note(self, name: str, place: Path) -> None:
        stamp = _stamp_of(place)
        if stamp is not None:
            self._state.files[name] = stamp

    def _check_time(self) -> None:
        if self._is_over():
            raise UploadStopped


def _trial_of(checkpoint: str) -> str:
    return checkpoint.partition("/")[0]


def _stamp_of(place: Path) -> tuple[int, int] | None:
    try:
        found = place.stat()
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns


def _is_partial(name: str) -> bool:
    """Whether a file is being written under a name that is not its own yet."""
    return name.startswith(STRAY_PREFIX)
