"""Send an experiment to where other machines reach it, so that what is there can be continued at any moment."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from sweep.checkpoints.manifest import MANIFEST, METADATA
from sweep.checkpoints.store import AT_ONCE, pin, send, unsend
from sweep.core.trial import HELD
from sweep.errors import CheckpointError, ExperimentError, SweepError
from sweep.record.checksums import Totals
from sweep.record.db import open_for_reading
from sweep.record.layout import DATABASE, OUTGOING, RECORD_MARK, ExperimentLayout, leads_outside
from sweep.record.snapshot import copy_record, totals_of
from sweep.record.stored import StoredCheckpoints, references, statuses, trial_of
from sweep.storage.filesystems import TEMPORARY, RemoteDirectory
from sweep.storage.local_copy import changed_files, files_of_trial, is_mirrored, remote_checkpoints
from sweep.storage.ownership import LocalState, Owner, TakenOver


class SendingStopped(SweepError):
    """There is no time left; what was sent so far is whole."""


class Mirror:
    """Bring the remote copy of one experiment up to date, as often as wanted; it sends only what has changed.

    At any moment, also when it is killed, the remote record can be continued: it is sent after the checkpoints that it
    refers to, and a checkpoint is deleted there only when a record is there that says so.

        look who owns it                              taken the first time
        copy the record                               SQLite's own backup: consistent while the driver writes
        pin the checkpoints that it keeps, send them  manifest last: without it there is no checkpoint
        send logs and artifacts that have changed
        look again, send the record, then say how far it goes
        delete the checkpoints that it does not keep

    Attributes:
        owner: what this driver has written last of itself; its epoch is 0 before it owned the experiment.
        shown, kept: that place, and where everything is that could not be sent; for people.
        await_flush: returns when what is committed survives a power cut, or raises; no record is sent before.
        is_over: asked between two batches of files; True ends a pass with `SendingStopped`.
        problems: checkpoints that cannot be sent, with the reasons.
    """

    is_record_only = False
    consequence = "nothing more is copied there. This run goes on, and everything of it is in {root}."

    def __init__(self, remote: RemoteDirectory, root: Path, *, log_files: Collection[str] = ()) -> None:
        self.remote = remote
        self.layout = ExperimentLayout(root)
        self.owner = Owner(secrets.token_hex(8), host=socket.gethostname(), pid=os.getpid())
        self.shown, self.kept = str(remote), str(root)
        self.await_flush: Callable[[], None] = lambda: None
        self.is_over: Callable[[], bool] = lambda: False
        self.problems: dict[str, str] = {}
        self._log_files = log_files  # besides the usual ones
        self._state = LocalState()
        self._sent: tuple[Totals, str] | None = None  # the record that is there, and what its file system says of it
        self._stored = StoredCheckpoints()
        self._status_of: dict[str, str] = {}  # by trial of the record
        self._wanted: set[str] = set()  # checkpoints that it refers to
        self._there: dict[str, bool] = {}  # checkpoints at the remote place, and whether they are whole

    def sync(self, trial_ids: Collection[str] | None = None, *, with_artifacts: bool = False) -> None:
        """Send what has changed: the record with its checkpoints, and the files of these trials (None: of all).

        Raises:
            TakenOver, SendingStopped: see there; nothing more is to be sent.
            Exception: whatever the file system raises; nothing is broken, try again.
        """
        self._hold()
        if trial_ids is None:  # a node of a cluster that was lost may have sent what it never reported
            self._there = dict.fromkeys(remote_checkpoints(self.remote.find()), False) | self._there
        snapshot = self._snapshot()  # after that: it knows by now what a trial that has ended has reported
        if snapshot is not None:
            new = self._read(snapshot)
            self._there |= dict.fromkeys(new & self._there.keys(), False)  # others by those names, or the same
        missing = self._send_checkpoints()
        self._send_files(trial_ids, with_artifacts)
        if snapshot is not None:
            self._check_time()
            self._put(snapshot)
        self._delete_checkpoints(missing)
        self._state.elsewhere = [path for path in self._state.elsewhere if path in self._there]
        self._state.save(self.layout.root)

    def end(self) -> None:
        """Do what is left to do when everything is sent and the record is closed."""

    # --- ownership ---

    def _hold(self) -> None:
        """Take ownership unless this driver has it; the first time the record must be the one that was pulled.

        Raises:
            TakenOver: it is another's.
        """
        root, found = self.layout.root, Owner.of(self.remote)
        if self._is_held(found):
            return
        self._state = state = LocalState.load(root)
        if not self.owner.epoch and self.remote.stamp(DATABASE) not in ("", state.version):
            raise self._lost_to(found)
        shutil.rmtree(root / OUTGOING, ignore_errors=True)
        there, self._stored = remote_checkpoints(self.remote.find()), StoredCheckpoints()
        with contextlib.closing(open_for_reading(self.layout.database, with_events=False)) as db:
            self._stored.follow(db)
        unsure = self._stored.reused.union(state.elsewhere)  # there may be another one by that name
        self._there = {
            path: is_whole and not (path in unsure and (root / path).is_dir()) for path, is_whole in there.items()
        }
        if not found.run or found.run != state.run:  # what is there was sent by others
            state.files = {}
        self._own(found)
        state.elsewhere = [path for path, is_whole in there.items() if is_whole and not (root / path).is_dir()]
        state.save(root)

    def _is_held(self, found: Owner) -> bool:
        """Whether this driver is the owner; not either if a driver from before has written late.

        Raises:
            TakenOver: a driver that came later owns it.
        """
        if found.run != self.owner.run and found.epoch >= self.owner.epoch > 0:
            raise self._lost_to(found)
        return found.run == self.owner.run and self.owner.epoch > 0

    def _own(self, found: Owner) -> None:
        """Become the owner after this one."""
        state = self._state
        state.run, state.epoch = self.owner.run, max(found.epoch, self.owner.epoch, state.epoch) + 1
        state.save(self.layout.root, is_durable=True)
        self.owner = replace(self.owner, epoch=state.epoch)
        self._renew(found.seq)
        for name in self.remote.names():
            if TEMPORARY in name and name.startswith((DATABASE, RECORD_MARK)):  # whose writing was cut
                self.remote.remove(name)

    def _renew(self, seq: int) -> None:
        """Say that this driver lives, and how far the record goes that is there."""
        self.owner = replace(self.owner, wall=time.time(), seq=seq)
        self.owner.write(self.remote)

    def _lost_to(self, found: Owner) -> TakenOver:
        consequence = self.consequence.format(root=self.layout.root)
        return TakenOver(f"another driver (pid {found.pid} on {found.host}) writes to {self.remote}: {consequence}")

    # --- the record ---

    def _snapshot(self) -> Path | None:
        """Return a copy of the record; None when that one is there."""
        database, outgoing = self.layout.database, self.layout.root / OUTGOING / DATABASE
        if self._sent == (totals_of(database), self.remote.stamp(DATABASE)):
            return None
        copy_record(database, outgoing)
        return outgoing

    def _read(self, snapshot: Path) -> set[str]:
        """Take in what a snapshot says of trials and checkpoints; returns the checkpoints that were stored since."""
        with contextlib.closing(open_for_reading(snapshot, with_events=False)) as db:
            self._status_of = statuses(db)
            self._wanted = set().union(*references(db).values())
            return self._stored.follow(db)

    def _put(self, snapshot: Path) -> None:
        """Send a snapshot."""
        self.await_flush()
        if not self._is_held(Owner.of(self.remote)):
            raise ExperimentError(f"{self.remote} was changed while it was written")
        self.remote.replace(snapshot, DATABASE)
        totals = totals_of(snapshot)
        self._state.version = self.remote.stamp(DATABASE)
        self._sent = totals, self._state.version
        self._renew(totals.last)
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
            elif (self.remote / path).has(MANIFEST):  # a node of the cluster has sent it
                self._there[path] = True
                self._state.elsewhere.append(path)
        for path, source in pinned.items():
            self._there[path] = send(source, self.remote / path, between=self._check_time)
            shutil.rmtree(self.layout.root / OUTGOING / path, ignore_errors=True)
        return self._unsent()

    def _delete_checkpoints(self, missing: set[str]) -> None:
        """Delete there what the record that is there does not need."""
        # a trial whose latest checkpoint is not there yet may have to continue from an older one
        trial_ids = self._status_of.keys() - {trial_of(path) for path in missing & self._wanted}
        for path in sorted(self._there.keys() - self._stored.kept - self._wanted):
            # What a node of a cluster has just sent may not be in the record yet.
            is_known = path in self._stored.discarded or self._status_of.get(trial_of(path)) not in HELD
            if is_known and trial_of(path) in trial_ids:
                self._check_time()
                unsend(self.remote / path)
                del self._there[path]

    # --- other files ---

    def _send_files(self, trial_ids: Collection[str] | None, with_artifacts: bool) -> None:
        root, known = self.layout.root, self._state.files
        changed = changed_files(root, self._files(trial_ids, with_artifacts), known)
        names = list(changed)
        for start in range(0, len(names), AT_ONCE):
            self._check_time()
            sent = self.remote.put([(root / name, name) for name in names[start : start + AT_ONCE]])
            known |= {name: changed[name] for name in sent}

    def _files(self, trial_ids: Iterable[str] | None, with_artifacts: bool) -> Iterator[str]:
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

    def _check_time(self) -> None:
        if self.is_over():
            raise SendingStopped
