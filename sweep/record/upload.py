"""Push an experiment's directory to remote storage, piece by piece, so that what is there can always be continued."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from sweep.core.trial import HELD
from sweep.errors import CheckpointError, ExperimentError, SweepError
from sweep.record.access import open_for_reading
from sweep.record.checkpoints import AT_ONCE, STRAY_PREFIX, pin, send, unsend
from sweep.record.filesystems import TEMPORARY, RemoteDirectory
from sweep.record.layout import DATABASE, OUTGOING, ExperimentLayout, leads_outside
from sweep.record.manifest import MANIFEST, METADATA
from sweep.record.mirrored import (
    Lease,
    MirrorState,
    artifacts_of,
    is_checkpoint,
    is_log,
    is_mirrored,
    remote_checkpoints,
    stamp_of,
    version_of,
)
from sweep.record.snapshot import copy_record, stamp_of_record
from sweep.record.stored import StoredCheckpoints, references, trial_of


class OtherDriver(ExperimentError):
    """Another driver writes to the same remote directory."""


class UploadStopped(SweepError):
    """There is no time left; what was sent so far is whole."""


class Uploader:
    """Bring the remote copy of one experiment up to date, as often as wanted; it sends only what has changed.

    At any moment, also when it is killed, the remote record can be continued: it is sent after the checkpoints that it
    refers to, and a checkpoint is deleted there only when a record is there that says so.

        look whose the lease is                       the first time it is taken
        copy the record                               SQLite's own backup: consistent while the driver writes
        pin the checkpoints that it keeps, send them  manifest last: without it there is no checkpoint
        send logs and artifacts that have changed
        look again, send the record, then the lease
        delete the checkpoints that it does not keep

    Args:
        remote: the experiment's directory there.
        root: its directory here.
        log_files: names of files in trials' directories that are sent like logs, besides the usual ones.
        is_over: asked between two batches of files; True ends a pass with `UploadStopped`.
        do_nodes_send: nodes of a cluster may send checkpoints as well, of which this knows by the record alone.

    Attributes:
        record_s: seconds that the last copying and sending of the record took.
        num_files: still to be sent in this pass.
        problems: checkpoints that cannot be sent, with the reasons.
        await_flush: returns when what the driver has committed survives a power cut, or raises; to be set.
    """

    def __init__(
        self,
        remote: RemoteDirectory,
        root: Path,
        *,
        log_files: Collection[str] = (),
        is_over: Callable[[], bool] = lambda: False,
        do_nodes_send: bool = False,
    ) -> None:
        self.remote = remote
        self.layout = ExperimentLayout(root)
        self.record_s = 0.0
        self.await_flush: Callable[[], None] = lambda: None
        self.num_files = 0
        self.problems: dict[str, str] = {}
        self._log_files = log_files
        self._is_over = is_over
        self._do_nodes_send = do_nodes_send
        self._run = secrets.token_hex(8)
        self._lease: Lease | None = None
        self._state = MirrorState()
        self._stamp: tuple[int, str] | None = None  # of the record when it was sent last
        self._stored = StoredCheckpoints()
        self._trials: set[str] = set()  # of the record
        self._running: set[str] = set()  # of those
        self._wanted: set[str] = set()  # checkpoints that it refers to
        self._there: dict[str, bool] = {}  # checkpoints at the remote place, and whether they are whole

    def sync(self, trial_ids: Collection[str] | None = None, *, with_artifacts: bool = False) -> None:
        """Send what has changed: the record with its checkpoints, and the files of these trials (None: of all).

        Raises:
            OtherDriver: the remote copy was written by somebody else since the last time.
            UploadStopped: `is_over` said so.
            Exception: whatever the file system raises; nothing is broken, try again.
        """
        lease = self._hold_lease()
        if trial_ids is None and self._do_nodes_send:  # a node that was lost may have sent what it never reported
            self._there = dict.fromkeys(remote_checkpoints(self.remote.find()), False) | self._there
        snapshot = self._copy_record()  # after that: it knows by now what a trial that has ended has reported
        missing = self._send_checkpoints()
        self._send_files(trial_ids, with_artifacts)
        if snapshot is not None:
            self._send_record(snapshot, lease)
        # a trial whose latest checkpoint is not there yet may have to continue from an older one
        behind = {trial_of(path) for path in missing & self._wanted}
        for path in sorted(self._there.keys() - self._stored.kept - self._wanted):
            # What a node of a cluster has just sent may not be in the record yet.
            is_known = path in self._stored.discarded or trial_of(path) not in self._running
            if is_known and trial_of(path) in self._trials - behind:
                self._check_time()
                self._remove_checkpoint(path)
        self._state.elsewhere = [path for path in self._state.elsewhere if path in self._there]
        self._state.save(self.layout.root)

    def num_unsent_checkpoints(self) -> int:
        """Return how many checkpoints that the record keeps lie here and were not sent."""
        stored = StoredCheckpoints()
        with contextlib.closing(open_for_reading(self.layout.database, with_events=False)) as db:
            stored.follow(db)
        return sum(not self._there.get(path) and (self.layout.root / path).is_dir() for path in stored.kept)

    # --- whose it is ---

    def _hold_lease(self) -> Lease:
        """Return the lease of this driver, which is taken when it has none.

        The first time the remote directory must be as it was when it was pulled. Later a driver that came after this
        one has taken the lease away; one from before has only written late, and is written over.

        Raises:
            OtherDriver: it is another's.
        """
        found, root = Lease.read(self.remote) or Lease(), self.layout.root
        if self._lease is not None and self._is_mine(found):
            return self._lease
        self._state = state = MirrorState.load(root)
        if self._lease is None and found.run != self._run and version_of(self.remote, found) not in ("", state.version):
            raise self._other(found)
        shutil.rmtree(root / OUTGOING, ignore_errors=True)
        names = self.remote.find()
        for name in names:
            if TEMPORARY in name and "/" not in name:  # a record or a lease whose writing was cut
                self.remote.remove(name)
        self._there, self._stored = remote_checkpoints(names), StoredCheckpoints()
        with contextlib.closing(open_for_reading(self.layout.database, with_events=False)) as db:
            self._stored.follow(db)
        for path in self._stored.reused.union(state.elsewhere) & self._there.keys():
            if (root / path).is_dir():
                self._there[path] = False  # another one by that name, unless its manifest is the same
        epoch = max(found.epoch, self._lease.epoch if self._lease is not None else 0) + 1
        lease = Lease(self._run, found.seq, time.time(), socket.gethostname(), os.getpid(), epoch)
        lease.write(self.remote)
        if not found.run or found.run != state.run:  # what is there was sent by others
            state.files = {}
        state.run, state.version = self._run, version_of(self.remote, lease)
        state.elsewhere = [p for p, is_whole in self._there.items() if is_whole and not (root / p).is_dir()]
        state.save(root)
        self._lease, self._stamp = lease, None
        return lease

    def _is_mine(self, found: Lease) -> bool:
        """Whether this driver still has the lease.

        Raises:
            OtherDriver: one that came later has it.
        """
        if found.run != self._run and self._lease is not None and found.epoch >= self._lease.epoch:
            raise self._other(found)
        return found.run == self._run

    def _other(self, lease: Lease) -> OtherDriver:
        return OtherDriver(
            f"another driver (pid {lease.pid} on {lease.host}) writes to {self.remote}: nothing more is copied "
            f"there. This run goes on, and everything of it is in {self.layout.root}."
        )

    # --- the record ---

    def _copy_record(self) -> Path | None:
        """Return a copy of the record; None when it says nothing new."""
        began = time.monotonic()
        with contextlib.closing(open_for_reading(self.layout.database, with_events=False)) as source:
            if stamp_of_record(source) == self._stamp:
                return None
            place = self.layout.root / OUTGOING / DATABASE
            place.parent.mkdir(exist_ok=True)
            copy_record(source, place)
        with contextlib.closing(open_for_reading(place, with_events=False)) as db:
            before = set(self._stored.discarded)
            for path in self._stored.follow(db) & self._there.keys():
                self._there[path] = False  # likewise
            if self._do_nodes_send:
                self._there |= dict.fromkeys(self._stored.discarded - before - self._there.keys(), False)
            found = dict(db.execute("SELECT trial_id, status FROM trial").fetchall())
            self._trials, self._running = set(found), {one for one, status in found.items() if status in HELD}
            self._wanted = set().union(*references(db).values())
        self.record_s = time.monotonic() - began
        return place

    def _send_record(self, snapshot: Path, lease: Lease) -> None:
        self._check_time()
        began = time.monotonic()
        if not self._is_mine(Lease.read(self.remote) or Lease()):
            raise ExperimentError(f"{self.remote} was changed while it was written")
        self.await_flush()
        self.remote.replace(snapshot, DATABASE)
        with contextlib.closing(open_for_reading(snapshot, with_events=False)) as db:
            stamp = stamp_of_record(db)
        self._lease = lease = replace(lease, seq=stamp[0], wall=time.time())
        lease.write(self.remote)
        self._state.version = version_of(self.remote, lease)
        self._stamp = stamp
        self.record_s += time.monotonic() - began
        snapshot.unlink()

    # --- checkpoints ---

    def _unsent(self) -> set[str]:
        return {path for path in self._stored.kept | self._wanted if not self._there.get(path)}

    def _send_checkpoints(self) -> set[str]:
        """Send new checkpoints; return those that are still missing."""
        pinned: dict[str, Path] = {}
        for path in sorted(self._unsent()):  # all of them before the first is sent, which may take long
            try:
                place, target = self.layout.checkpoint(path), self.layout.root / OUTGOING / path
                shutil.rmtree(target, ignore_errors=True)
                source = None if leads_outside(self.layout.root, path) else pin(place, target)
            except (CheckpointError, ExperimentError) as error:
                self.problems[path] = str(error)
                continue
            self.problems.pop(path, None)
            if source is not None:
                pinned[path] = source
            elif (self.remote / path).read(MANIFEST) is not None:  # a node of the cluster has sent it
                self._there[path] = True
                self._state.elsewhere.append(path)
        for path, source in pinned.items():
            self._there[path] = send(source, self.remote / path, between=self._check_time)
            shutil.rmtree(self.layout.root / OUTGOING / path, ignore_errors=True)
        return self._unsent()

    def _remove_checkpoint(self, path: str) -> None:
        unsend(self.remote / path)
        self._there.pop(path, None)

    # --- other files ---

    def _send_files(self, trial_ids: Collection[str] | None, with_artifacts: bool) -> None:
        root, known = self.layout.root, self._state.files
        # their sizes and times from before: what is written meanwhile is sent the next time
        stamps = {name: stamp_of(root / name) for name in sorted(self._files(trial_ids, with_artifacts))}
        changed = {name: stamp for name, stamp in stamps.items() if stamp is not None and known.get(name) != stamp}
        self.num_files = len(changed)
        for name in self._put([(root / name, name) for name in changed]):
            known[name] = changed[name]
            self.num_files -= 1
        self.num_files = 0

    def _files(self, trial_ids: Iterable[str] | None, with_artifacts: bool) -> Iterator[str]:
        """Give the files that are to be at the remote place, by their names in the experiment."""
        if trial_ids is None:
            with os.scandir(self.layout.root) as entries:
                ours = [entry for entry in entries if is_mirrored(entry.name)]
            yield from (entry.name for entry in ours if entry.is_file(follow_symlinks=False))
            trial_ids = [entry.name for entry in ours if entry.is_dir(follow_symlinks=False)]
        for trial_id in trial_ids:
            yield from self._files_of_trial(trial_id, with_artifacts)

    def _files_of_trial(self, trial_id: str, with_artifacts: bool) -> Iterator[str]:
        top = self.layout.root / trial_id
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(top) as found:
            for entry in found:
                if entry.is_symlink() or entry.name.startswith(STRAY_PREFIX):
                    continue
                path = f"{trial_id}/{entry.name}"
                if is_checkpoint(entry.name) and entry.is_dir():
                    if self._there.get(path):
                        yield f"{path}/{METADATA}"  # what was set after it was stored
                elif entry.is_file() and is_log(entry.name, self._log_files):
                    yield path
        if with_artifacts:
            yield from artifacts_of(self.layout.root, trial_id, self._log_files)

    def _put(self, pairs: Sequence[tuple[Path, str]]) -> Iterator[str]:
        """Send files, and give the names of those that were there to be sent."""
        for start in range(0, len(pairs), AT_ONCE):
            self._check_time()
            yield from self.remote.put(pairs[start : start + AT_ONCE])

    def _check_time(self) -> None:
        if self._is_over():
            raise UploadStopped
