"""Send a whole experiment to remote storage, piece by piece, so that what is there can always be continued."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from sweep.checkpoints.manifest import MANIFEST, METADATA
from sweep.checkpoints.store import AT_ONCE, pin, send, unsend
from sweep.core.trial import HELD
from sweep.errors import CheckpointError, ExperimentError
from sweep.record.access import open_for_reading
from sweep.record.layout import DATABASE, OUTGOING, ExperimentLayout, leads_outside
from sweep.record.stored import StoredCheckpoints, references, statuses, trial_of
from sweep.storage.filesystems import RemoteDirectory
from sweep.storage.local_copy import (
    LocalState,
    changed_files,
    files_of_trial,
    is_mirrored,
    remote_checkpoints,
)
from sweep.storage.ownership import Ownership, version_of
from sweep.storage.record_copy import RecordCopy, SendingStopped


class Mirror(RecordCopy):
    """Bring the remote copy of one experiment up to date, as often as wanted; it sends only what has changed.

    At any moment, also when it is killed, the remote record can be continued: it is sent after the checkpoints that it
    refers to, and a checkpoint is deleted there only when a record is there that says so.

        look who owns it                              taken the first time
        copy the record                               SQLite's own backup: consistent while the driver writes
        pin the checkpoints that it keeps, send them  manifest last: without it there is no checkpoint
        send logs and artifacts that have changed
        look again, send the record, then say how far it goes
        delete the checkpoints that it does not keep

    Args:
        remote: the experiment's directory there.
        root: its directory here.
        log_files: names of files in trials' directories that are sent like logs, besides the usual ones.
    """

    def __init__(self, remote: RemoteDirectory, root: Path, *, log_files: Collection[str] = ()) -> None:
        self.remote = remote
        self.layout = ExperimentLayout(root)
        lost = f"nothing more is copied there. This run goes on, and everything of it is in {root}."
        super().__init__(Ownership(remote, lost), self.layout.database, root / OUTGOING / DATABASE)
        self.kept = str(root)
        self._log_files = log_files
        self._state = LocalState()
        self._stored = StoredCheckpoints()
        self._status_of: dict[str, str] = {}  # by trial of the record
        self._wanted: set[str] = set()  # checkpoints that it refers to
        self._there: dict[str, bool] = {}  # checkpoints at the remote place, and whether they are whole

    def sync(self, trial_ids: Collection[str] | None = None, *, with_artifacts: bool = False) -> None:
        """Send what has changed: the record with its checkpoints, and the files of these trials (None: of all)."""
        self._hold()
        if trial_ids is None:  # a node of a cluster that was lost may have sent what it never reported
            self._there = dict.fromkeys(remote_checkpoints(self.remote.find()), False) | self._there
        snapshot = self.snapshot()  # after that: it knows by now what a trial that has ended has reported
        if snapshot is not None:
            self._read(snapshot)
        missing = self._send_checkpoints()
        self._send_files(trial_ids, with_artifacts)
        if snapshot is not None:
            self._check_time()
            self.put(snapshot)
            self._state.version = version_of(self.remote, self.ownership.owner)
        # a trial whose latest checkpoint is not there yet may have to continue from an older one
        behind = {trial_of(path) for path in missing & self._wanted}
        for path in sorted(self._there.keys() - self._stored.kept - self._wanted):
            # What a node of a cluster has just sent may not be in the record yet.
            is_known = path in self._stored.discarded or self._status_of.get(trial_of(path)) not in HELD
            if is_known and trial_of(path) in self._status_of.keys() - behind:
                self._check_time()
                unsend(self.remote / path)
                del self._there[path]
        self._state.elsewhere = [path for path in self._state.elsewhere if path in self._there]
        self._state.save(self.layout.root)

    def num_unsent_checkpoints(self) -> int:
        """Return how many checkpoints that the record keeps lie here and were not sent."""
        return sum((self.layout.root / path).is_dir() for path in self._unsent())

    def _hold(self) -> None:
        """Take ownership unless this driver has it.

        The first time the remote directory must be as it was when it was pulled.

        Raises:
            TakenOver: it is another's.
        """
        ownership, root = self.ownership, self.layout.root
        found = ownership.find()
        if ownership.is_held(found):
            return
        self._state = state = LocalState.load(root)
        is_first = not ownership.owner.epoch and found.run != ownership.owner.run
        if is_first and version_of(self.remote, found) not in ("", state.version):
            raise ownership.lost_to(found)
        shutil.rmtree(root / OUTGOING, ignore_errors=True)
        self._there, self._stored = remote_checkpoints(self.remote.find()), StoredCheckpoints()
        with contextlib.closing(open_for_reading(self.layout.database, with_events=False)) as db:
            self._stored.follow(db)
        for path in self._stored.reused.union(state.elsewhere) & self._there.keys():
            if (root / path).is_dir():
                self._there[path] = False  # another one by that name, unless its manifest is the same
        ownership.take(found)
        if not found.run or found.run != state.run:  # what is there was sent by others
            state.files = {}
        state.run, state.epoch = ownership.owner.run, ownership.owner.epoch
        state.version = version_of(self.remote, ownership.owner)
        state.elsewhere = [p for p, is_whole in self._there.items() if is_whole and not (root / p).is_dir()]
        state.save(root)

    def _read(self, snapshot: Path) -> None:
        """Take in what a snapshot says of trials and checkpoints."""
        with contextlib.closing(open_for_reading(snapshot, with_events=False)) as db:
            for path in self._stored.follow(db) & self._there.keys():
                self._there[path] = False  # another one by that name, unless its manifest is the same
            self._status_of = statuses(db)
            self._wanted = set().union(*references(db).values())

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

    # --- other files ---

    def _send_files(self, trial_ids: Collection[str] | None, with_artifacts: bool) -> None:
        root, known = self.layout.root, self._state.files
        changed = changed_files(root, self._files(trial_ids, with_artifacts), known)
        self.num_files = len(changed)
        for name in self._put([(root / name, name) for name in changed]):
            known[name] = changed[name]
            self.num_files -= 1
        self.num_files = 0

    def _files(self, trial_ids: Collection[str] | None, with_artifacts: bool) -> Iterator[str]:
        """Give the files that are to be at the remote place, by their names in the experiment."""
        if trial_ids is None:
            with os.scandir(self.layout.root) as entries:
                ours = [entry for entry in entries if is_mirrored(entry.name)]
            yield from (entry.name for entry in ours if entry.is_file(follow_symlinks=False))
            trial_ids = {entry.name for entry in ours if entry.is_dir(follow_symlinks=False)}
        for path, is_whole in self._there.items():
            if is_whole and trial_of(path) in trial_ids:
                yield f"{path}/{METADATA}"  # what was set after it was stored
        for trial_id in trial_ids:
            yield from files_of_trial(
                self.layout.root, trial_id, self._log_files, with_logs=True, with_artifacts=with_artifacts
            )

    def _put(self, pairs: Sequence[tuple[Path, str]]) -> Iterator[str]:
        """Send files, and give the names of those that were there to be sent."""
        for start in range(0, len(pairs), AT_ONCE):
            self._check_time()
            yield from self.remote.put(pairs[start : start + AT_ONCE])

    def _check_time(self) -> None:
        if self.is_over():
            raise SendingStopped
