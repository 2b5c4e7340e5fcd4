"""Send an experiment to where other machines reach it, so that what is there can be continued at any moment."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path

from sweep.checkpoints.manifest import MANIFEST, METADATA
from sweep.checkpoints.store import discard_in, send, unsend
from sweep.core.trial import HELD
from sweep.errors import CheckpointError, ExperimentError
from sweep.record.checksums import Totals
from sweep.record.db import open_for_reading
from sweep.record.layout import DATABASE, RECORD_MARK, leads_outside
from sweep.record.snapshot import copy_record, totals_of
from sweep.record.stored import StoredCheckpoints, references, statuses, trial_of
from sweep.storage.filesystems import TEMPORARY, RemoteDirectory
from sweep.storage.local_copy import changed_files, files_of_trial, is_mirrored, remote_checkpoints
from sweep.storage.ownership import LocalState, Owner, TakenOver

_AT_ONCE = 64  # files that are sent together


class Mirror:
    """Bring the remote copy of one experiment up to date, as often as wanted; it sends only what has changed.

    At any moment, also when it is killed, the remote record can be continued: it is sent after the checkpoints that it
    refers to, and a checkpoint is deleted there only when a record is there that says so.

        look who owns it                              taken the first time
        delete the checkpoints that were given up     here, and none until the next pass
        copy the record                               SQLite's own backup: consistent while the driver writes
        send the checkpoints that it keeps            manifest last: without it there is no checkpoint
        send logs and artifacts that have changed
        look again, send the record, then say how far it goes
        delete the checkpoints that it does not keep  there

    Attributes:
        root: directory of the experiment; home: that of the record which is worked on.
        owner: what this driver has written last of itself; its epoch is 0 before it owned the experiment.
        shown, kept: that place, and where everything is that could not be sent; for people.
        await_flush: returns when what is committed survives a power cut, or raises; no record is sent before.
        is_over: whether no other pass begins.
        notice: called with each line for the user.
    """

    is_record_only = False
    consequence = "nothing more is copied there. This run goes on, and everything of it is in {home}."

    def __init__(
        self, remote: RemoteDirectory, root: Path, home: Path | None = None, *, log_files: Collection[str] = ()
    ) -> None:
        self.remote, self.root, self.home = remote, root, home or root
        self.database = self.home / DATABASE
        self.owner = Owner(secrets.token_hex(8), host=socket.gethostname(), pid=os.getpid())
        self.shown, self.kept = str(remote), str(root)
        self.await_flush: Callable[[], None] = lambda: None
        self.is_over: Callable[[], bool] = lambda: False
        self.notice: Callable[[str], None] = lambda text: None
        self._log_files = log_files  # besides the usual ones
        self._state = LocalState()
        self._sent: tuple[Totals, str] | None = None  # the record that is there, and what its file system says of it
        self._given_up: deque[str] = deque()  # checkpoints that are to be deleted here
        self._stored = StoredCheckpoints()
        self._status_of: dict[str, str] = {}  # by trial of the record
        self._wanted: set[str] = set()  # checkpoints that it refers to
        self._there: dict[str, bool] = {}  # checkpoints at the remote place, and whether they are known to be whole

    def discard(self, path: str) -> None:
        """Delete a checkpoint here when a pass begins: none vanishes while it is sent. Called on any thread."""
        self._given_up.append(path)
        if self.is_over() and not self.is_record_only:
            self._delete_here(len(self._given_up))

    def sync(self, trial_ids: Collection[str] | None = None, *, with_artifacts: bool = False) -> None:
        """Send what has changed: the record with its checkpoints, and the files of these trials (None: of all).

        Raises:
            TakenOver: another driver owns the experiment; nothing more is to be sent.
            Exception: whatever the file system raises; nothing is broken, try again.
        """
        self._delete_here(len(self._given_up))
        self._hold()
        if trial_ids is None:  # a node of a cluster that was lost may have sent what it never reported
            self._there = dict.fromkeys(remote_checkpoints(self.remote.find()), False) | self._there
        snapshot = self._snapshot()  # after that: it knows by now what a trial that has ended has reported
        if snapshot is not None:
            self._read(snapshot)
        for path in sorted(path for path in self._stored.kept | self._wanted if not self._there.get(path)):
            self._send_checkpoint(path)
        self._send_files(trial_ids, with_artifacts)
        if snapshot is not None:
            self._put(snapshot)
        self._delete_there()
        self._state.elsewhere = [path for path, is_whole in self._there.items() if is_whole]
        self._state.save(self.home)

    def end(self) -> None:
        """Do what is left to do when everything is sent and the record is closed."""

    # --- ownership ---

    def _hold(self) -> None:
        """Take ownership unless this driver has it."""
        found = Owner.of(self.remote)
        if not self._is_held(found):
            self._begin(found)

    def _hold_on(self) -> None:
        """Refuse to go on with a pass in which a driver from before wrote late: what is there must be compared."""
        if not self._is_held(Owner.of(self.remote)):
            raise ExperimentError(f"{self.remote} was changed while it was written")

    def _begin(self, found: Owner) -> None:
        """Take ownership; the first time the record must be the one that was pulled."""
        self._state = state = LocalState.load(self.home)
        if not self.owner.epoch and self.remote.stamp(DATABASE) not in ("", state.version):
            raise self._lost_to(found)
        self._stored = StoredCheckpoints()
        with contextlib.closing(open_for_reading(self.database, with_events=False)) as db:
            self._stored.follow(db)
        there = remote_checkpoints(self.remote.find())
        # by the name of one that is here another one may be there: sending compares them
        self._there = {path: is_whole and not (self.root / path).is_dir() for path, is_whole in there.items()}
        if not found.run or found.run != state.run:  # what is there was sent by others
            state.files = {}
        self._own(found)

    def _is_held(self, found: Owner) -> bool:
        """Whether this driver is the owner; not either if a driver from before has written late. Raises TakenOver if
        one that came later is."""
        if found.run != self.owner.run and found.epoch >= self.owner.epoch > 0:
            raise self._lost_to(found)
        return found.run == self.owner.run and self.owner.epoch > 0

    def _own(self, found: Owner) -> None:
        """Become the owner after this one."""
        state = self._state
        state.run, state.epoch = self.owner.run, max(found.epoch, self.owner.epoch, state.epoch) + 1
        state.save(self.home, is_durable=True)
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
        consequence = self.consequence.format(home=self.home)
        return TakenOver(f"another driver (pid {found.pid} on {found.host}) writes to {self.remote}: {consequence}")

    # --- the record ---

    def _snapshot(self) -> Path | None:
        """Return a copy of the record; None when that one is there."""
        if self._sent == (totals_of(self.database), self.remote.stamp(DATABASE)):
            return None
        snapshot = self.home / f"{DATABASE}.outgoing"
        copy_record(self.database, snapshot)
        return snapshot

    def _read(self, snapshot: Path) -> None:
        """Take in what a snapshot says of trials and checkpoints."""
        with contextlib.closing(open_for_reading(snapshot, with_events=False)) as db:
            self._status_of = statuses(db)
            self._wanted = set().union(*references(db).values())
            stored = self._stored.follow(db)
        self._there |= dict.fromkeys(stored & self._there.keys(), False)  # others by those names, or the same

    def _put(self, snapshot: Path) -> None:
        """Send a snapshot."""
        self.await_flush()
        self._hold_on()
        self.remote.write(DATABASE, snapshot)
        totals = totals_of(snapshot)
        self._state.version = self.remote.stamp(DATABASE)
        self._sent = totals, self._state.version
        self._renew(totals.last)
        snapshot.unlink()

    # --- checkpoints ---

    def _delete_here(self, number: int) -> None:
        """Delete the checkpoints that were given up first, so many."""
        for _ in range(number):
            path, why = self._given_up.popleft(), f"a symbolic link leads out of {self.root}"
            try:
                if discard_in(self.root, path):
                    continue
            except (OSError, CheckpointError) as error:  # what is left of it is found when the sweep is resumed
                why = str(error)
            self.notice(f"{path} is not deleted: {why}")

    def _send_checkpoint(self, path: str) -> None:
        """Send a checkpoint; one that is not here a node of the cluster may have sent."""
        place, remote = self.root / path, self.remote / path
        if place.is_dir() and not leads_outside(self.root, path):
            self._there[path] = send(place, remote)
        elif remote.stamp(MANIFEST):
            self._there[path] = True

    def _delete_there(self) -> None:
        """Delete what the record that is there does not need."""
        for path in sorted(self._there.keys() - self._stored.kept - self._wanted):
            # what a node of a cluster has just sent may not be in the record yet
            if path in self._stored.discarded or self._status_of.get(trial_of(path)) not in HELD:
                unsend(self.remote / path)
                del self._there[path]

    # --- other files ---

    def _send_files(self, trial_ids: Collection[str] | None, with_artifacts: bool) -> None:
        known = self._state.files
        changed = changed_files(self.root, self._files(trial_ids, with_artifacts), known)
        names = list(changed)
        for start in range(0, len(names), _AT_ONCE):
            sent = self.remote.put([(self.root / name, name) for name in names[start : start + _AT_ONCE]])
            known |= {name: changed[name] for name in sent}

    def _files(self, trial_ids: Collection[str] | None, with_artifacts: bool) -> Iterator[str]:
        """Give the files that are to be at the remote place, by their names in the experiment."""
        if trial_ids is None:
            with os.scandir(self.root) as entries:
                ours = [entry for entry in entries if is_mirrored(entry.name)]
            yield from (entry.name for entry in ours if entry.is_file(follow_symlinks=False))
            trial_ids = {entry.name for entry in ours if entry.is_dir(follow_symlinks=False)}
        for path, is_whole in self._there.items():
            if is_whole and trial_of(path) in trial_ids:
                yield f"{path}/{METADATA}"  # what was set after it was stored
        for trial_id in trial_ids:
            yield from files_of_trial(
                self.root, trial_id, self._log_files, with_logs=True, with_artifacts=with_artifacts
            )
