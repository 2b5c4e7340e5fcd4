"""The ranks of a group that lie on another node than rank 0: made here, led by the `engines.group` there.

What they say goes up with the number of the rank, what they are told comes down with it; see `wire.Relayed`.
"""

from __future__ import annotations

import errno
import math
import os
import shutil
import socket
import time
from collections.abc import Sequence
from typing import Any

from sweep.core.group import Dismiss, Dump, KillAll
from sweep.core.trial import Outcome
from sweep.engines.hosted import HostedRanks
from sweep.engines.ranks import MakeRank
from sweep.record.layout import find_shards
from sweep.worker import wire

_NUM_LOOKS = 4  # at the clock of rank 0's node, once the ranks are made


class Part(HostedRanks):
    """Some ranks of a group, from the job to the last process's end."""

    def __init__(self, upstream: socket.socket, ports: Sequence[int], make: MakeRank, token: int) -> None:
        """Take over the socket above and the descriptors of the sockets that hold its ports.

        Args:
            token: of the attempt in the engine of this node; the ranks have that of rank 0's.
        """
        super().__init__(upstream, ports, make)
        self._token = token
        self._lag = math.inf  # least difference of this clock and the times at which we were sent something
        self._looks = 0
        self._is_done_said = False

    def deadline(self) -> float | None:
        """Return None: how long things may take is watched by the group."""
        return None

    def handle(self, ready: dict[int, int]) -> None:
        self._take_in(ready)
        self._write_on()
        if self._job is not None and self._ranks.are_gone and not self._is_done_said:
            self._is_done_said = True
            self._up.send(wire.Done(self._token, Outcome("FINISHED"), time.monotonic()))
        if self._is_done_said and self._up.is_empty:
            self._close()

    def kill(self) -> None:
        self._ranks.end()
        self._close()
        if self._job is not None:
            job = self._job.job
            for shards in find_shards(os.path.join(job.directory, job.home or job.trial_id)):
                shutil.rmtree(shards, ignore_errors=True)  # the group is killed as well; nobody will merge them

    # --- from above --------------------------------------------------------------------------------------------------

    def _hear_above(self) -> None:
        for message in self._up.receive():
            match message:
                case wire.GroupJob():
                    self._start(message)
                case wire.Relayed(_, _, rank, word, at):
                    self._lag = min(self._lag, time.monotonic() - at)
                    self._obey(rank, word)
            if self.is_over:
                return
        if not self._up.is_open:  # the agent is gone
            self._up.socket.close()
            self.kill()

    def _start(self, job: wire.GroupJob) -> None:
        """Make every rank, or none."""
        try:
            self._ranks.start(job)
        except OSError as error:
            self.refusal = error.errno or errno.EAGAIN
            self._close()
            return
        self._job = job
        self._up.send(wire.Pids(self._token, self._ranks.pids))
        self._look_at_clock()

    def _obey(self, rank: int, word: Any) -> None:
        match word:
            case None:
                self._look_at_clock()
            case Dismiss():
                self._ranks.dismiss()
            case Dump():
                self._say(-1, wire.Seen(self._ranks.dump()))
            case KillAll():
                for ended, outcome in self._ranks.end():
                    self._say(ended, wire.RankGone(outcome, was_told=True))
            case _:
                self._ranks.send(rank, word)

    def _look_at_clock(self) -> None:
        """Ask for an answer: the times of both tell how far the clocks are apart."""
        if self._looks < _NUM_LOOKS:
            self._looks += 1
            self._say(-1, None)

    # --- from the ranks ----------------------------------------------------------------------------------------------

    def _hear(self, rank: int, messages: list[wire.FromWorker]) -> None:
        for message in messages:
            self._say(rank, message)

    def _on_gone(self, rank: int, outcome: Outcome) -> None:
        self._say(rank, wire.RankGone(outcome, was_told=False))

    def _say(self, rank: int, word: Any) -> None:
        lag = None if math.isinf(self._lag) else self._lag
        self._up.send(wire.Relayed(self._token, "", rank, word, time.monotonic(), lag))
