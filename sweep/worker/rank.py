"""The session of one rank of a training group: reports go through the supervisor, shards become checkpoints."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from typing import Any

from sweep.checkpoints.store import Checkpoint
from sweep.errors import CheckpointError
from sweep.record.layout import shards_name
from sweep.worker import wire
from sweep.worker.session import Session


class RankSession(Session):
    """One attempt as a rank of its group sees it.

    The k-th `report` of every rank returns with the answer to rank 0's k-th; only rank 0's metrics count. A checkpoint
    that a rank attaches is its shard: the files of all ranks' shards become one checkpoint, and of files with the same
    name that of the lowest rank is kept.
    """

    def join(self) -> None:
        """Say that this rank has found the others."""
        self.send(wire.Joined())

    def _keep(self, checkpoint: Checkpoint, seq: int) -> str:
        """Copy this rank's files to where they will be merged, and return that directory."""
        name = shards_name(self.job.base_count + seq, self.job.attempt)
        target = os.path.join(self.trial_dir, name, f"rank{self._rank.rank}")
        if not os.path.isdir(checkpoint.path):
            found = "a file" if os.path.exists(checkpoint.path) else "nothing"
            raise CheckpointError(f"a checkpoint must be a directory; at {checkpoint.path} there is {found}.")

        def copy() -> str:
            # A report that was refused after this, or an attempt of the same name that was killed, may have left files.
            shutil.rmtree(target, ignore_errors=True)
            try:
                shutil.copytree(checkpoint.path, target)
            except OSError as error:
                shutil.rmtree(target, ignore_errors=True)
                raise CheckpointError(f"the checkpoint {checkpoint.path} could not be copied: {error}.") from error
            return target

        return self._patiently(copy, checkpoint.path)

    def _listener(self) -> Callable[[float], None]:
        """Read no messages meanwhile: they are for the call that waits for an answer. A stop ends the whole group."""
        return time.sleep

    def _continue_from(self, stored: str) -> None:
        """Nothing: what can be continued from is the merged checkpoint, which comes with the answer."""

    @property
    def _rank(self) -> wire.Rank:
        assert self.job.rank is not None
        return self.job.rank

    def _merge(self, asked: wire.Merge) -> CheckpointError | None:
        """Make one checkpoint of all shards of a report, and say where it is; return why that failed."""
        first, *others = asked.shards
        stored, problem = "", None
        try:
            for shard in others:
                _move_into(shard, first)
            stored = self._patiently(lambda: self._store(first, asked.seq, is_source_spent=True), first)
            shutil.rmtree(os.path.dirname(first), ignore_errors=True)
        except (OSError, CheckpointError) as error:
            problem = CheckpointError(f"the shards of a checkpoint could not be merged: {error}.")
            problem.__cause__ = error
        self.send(wire.Merged(asked.seq, stored))
        return problem

    def _framed(self, values: dict[str, Any], stored: str | None) -> bytes:
        return super()._framed(values if self._rank.rank == 0 else {}, stored)


def _move_into(source: str, target: str) -> None:
    """Move the files of one directory tree into another on the same file system; those that are there stay."""
    for directory, _, names in os.walk(source):
        into = os.path.join(target, os.path.relpath(directory, source))
        os.makedirs(into, exist_ok=True)
        for name in names:
            if not os.path.lexists(os.path.join(into, name)):
                os.rename(os.path.join(directory, name), os.path.join(into, name))
