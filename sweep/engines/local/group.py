"""A training group in its supervisor: carries what its ranks say to `core.group` and what that decides to them.

One `Group` is either a whole attempt, and then speaks to the driver, or it was asked for by the attempt's worker (a
`fit()` inside a trial), and then speaks to that. Both look alike from here: a socket above, one for each rank below.
Ranks on other nodes are reached through the socket above, and run in a `RemoteRanks` there.
"""

from __future__ import annotations

import errno
import math
import os
import random
import select
import shutil
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from sweep.core.clocks import ClockGap
from sweep.core.group import (
    START_ERROR,
    Action,
    Dismiss,
    Dump,
    Explain,
    Forward,
    GroupRules,
    Joined,
    KillAll,
    Late,
    Limits,
    Merge,
    Note,
    Tell,
)
from sweep.core.trial import Outcome
from sweep.engines.link import Link
from sweep.engines.local.ranks import MakeRank, Ranks
from sweep.record.layout import find_shards
from sweep.worker import wire
from sweep.worker.limits import describe_shortage


class HostedRanks(ABC):
    """Ranks in a supervisor, and the socket to who leads them, from the job to the last process's end.

    Attributes:
        is_over: every rank is gone and that has been written upwards, if it was not killed from above.
        refusal: errno of the kernel's refusal to make the ranks, which ended it; 0: none.
    """

    def __init__(self, upstream: socket.socket, ports: Sequence[int], make: MakeRank) -> None:
        """Take over the socket above and the descriptors of the sockets that hold its ports."""
        self.is_over = False
        self.refusal = 0
        self._up = Link(upstream)
        self._ranks = Ranks(ports, make, hear=self._hear, gone=self._on_gone)
        self._job: wire.GroupJob | None = None

    @property
    def logs(self) -> list[str]:
        """Output files of the ranks that run here."""
        return self._ranks.logs

    @property
    def log_limit_bytes(self) -> int:
        """Size that each of them is kept below; 0: unlimited."""
        return self._job.log_limit_bytes if self._job is not None else 0

    @property
    def peak_rss_bytes(self) -> int:
        """Sum of the peaks of the ranks that run here, of those that are gone."""
        return self._ranks.peak_rss_bytes

    def descriptors(self) -> list[tuple[int, int]]:
        """Return what to wait for: descriptors and poll masks."""
        own = [(self._up.socket.fileno(), self._up.mask)] if self._up.is_open else []
        return own + self._ranks.descriptors()

    def own_descriptors(self) -> list[int]:
        """Return every descriptor that a process forked now must close."""
        own = [self._up.socket.fileno()] if self._up.is_open else []
        return own + self._ranks.own_descriptors()

    @abstractmethod
    def _hear_above(self) -> None:
        """Take in what is written above; the end of that stream, too."""

    @abstractmethod
    def _hear(self, rank: int, messages: list[Any]) -> None:
        """Take in what a rank has written."""

    @abstractmethod
    def _on_gone(self, rank: int, outcome: Outcome) -> None:
        """A rank's process has ended by itself."""

    def _take_in(self, ready: dict[int, int]) -> None:
        """Hear above, and then the ranks."""
        if self._up.is_open and ready.get(self._up.socket.fileno(), 0) & ~select.POLLOUT:
            known = set(self._ranks.own_descriptors())
            self._hear_above()
            # What was made just now may bear the number of a descriptor that was ready and is closed.
            ready = {descriptor: mask for descriptor, mask in ready.items() if descriptor in known}
        self._ranks.handle(ready)

    def _write_on(self) -> None:
        """Write more of what could not be written at once."""
        if not self._up.is_empty:
            self._up.flush()
        self._ranks.flush()

    def _close(self) -> None:
        self.is_over = True
        self._ranks.close()
        if self._up.is_open:
            self._up.close()


_RETRY_S = 0.1
_MOST_RETRY_S = 2.0
_FAR_STOP_S = 5.0  # for ranks to end, where what they are told goes through the driver


class Group(HostedRanks):
    """The ranks of one group, from the job to the last process's end.

    Attributes:
        problem: why the kernel refuses more processes at the moment; it is tried again.
    """

    def __init__(
        self, upstream: socket.socket, ports: Sequence[int], make: MakeRank, *, is_patient: bool = True
    ) -> None:
        """Take over the socket above and the descriptors of the sockets that hold its ports.

        Args:
            is_patient: when the kernel refuses processes it is tried again; otherwise it is over.
        """
        super().__init__(upstream, ports, make)
        self.problem = ""
        self._token = 0
        self._trial_dir = ""
        self._rules: GroupRules | None = None
        self._elsewhere: dict[int, str] = {}  # ranks on other nodes
        self._gaps: dict[str, ClockGap] = {}  # to the clocks of those
        self._reports: dict[int, Any] = {}  # metrics of rank 0's reports that were not passed on yet
        self._retry_at: float | None = None
        self._is_patient = is_patient
        self._pause_s = _RETRY_S
        self._has_started = False
        self._is_done_said = False

    # --- for the supervisor's loop ------------------------------------------------------------------------------------

    def deadline(self) -> float | None:
        """Return the monotonic time at which `handle` must be called at the latest; None: there is none."""
        times = [self._retry_at, self._rules.deadline if self._rules is not None else None]
        return min((at for at in times if at is not None), default=None)

    def handle(self, ready: dict[int, int]) -> None:
        """Take in what is ready, and the time."""
        now = time.monotonic()
        self._take_in(ready)
        if self._retry_at is not None and now >= self._retry_at:
            self._start()
        if self._rules is not None and not self._is_ended:
            self._act(self._rules.tick(now), now)
        self._write_on()
        if self._is_ended and not self._is_done_said and self._rules is not None:
            assert self._rules.ending is not None
            self._is_done_said = True
            self._up.send(wire.Done(self._token, self._rules.ending, now))
        if self._is_done_said and self._up.is_empty:
            self._close()

    def kill(self) -> None:
        """End every process of it here, and say nothing any more."""
        for rank, outcome in self._ranks.end():
            if self._rules is not None:
                self._rules.gone(rank, outcome, time.monotonic())
        self._close()

    # --- from above --------------------------------------------------------------------------------------------------

    def _hear_above(self) -> None:
        now = time.monotonic()
        for message in self._up.receive():
            if isinstance(message, wire.GroupJob):
                self._job, self._token = message, message.job.token
                self._start()
            elif self._rules is None or message.token != self._token:
                continue
            elif isinstance(message, wire.Relayed):
                self._hear_from_afar(message, now)
            else:  # an answer
                self._act(self._rules.answered(message.seq, isinstance(message, wire.Stop), now), now)
        if not self._up.is_open:  # the driver is gone
            self._up.socket.close()
            if self._rules is None or self._elsewhere:  # nobody will tell of the ranks elsewhere
                self.kill()
            elif not self._is_ended:
                self._act(self._rules.kill(now), now)

    # --- starting ----------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Make every rank of this node, or none: when the kernel refuses one, all go and it is tried again."""
        assert self._job is not None
        self._retry_at = None
        group, job = self._job, self._job.job
        self._trial_dir = os.path.join(job.directory, job.home or job.trial_id)
        try:
            self._ranks.start(group)
        except OSError as error:
            if not self._is_patient:
                self.refusal = error.errno or errno.EAGAIN
                self._close()
                return
            problem, before = f"cannot start: {describe_shortage(error)}", self.problem
            if problem != before:
                self.problem = problem
                self._up.send(wire.Waits(self._token, problem))
            # Groups that take each other's processes must not try in step.
            self._retry_at = time.monotonic() + self._pause_s * random.uniform(0.5, 1.0)
            self._pause_s = min(2 * self._pause_s, _MOST_RETRY_S)
            return
        if self.problem:
            self.problem = ""
            self._up.send(wire.Waits(self._token, ""))
        self._up.send(wire.Pids(self._token, self._ranks.pids))
        self._elsewhere = dict(group.elsewhere)
        self._gaps = {node: ClockGap() for node in self._elsewhere.values()}
        limits = Limits(group.start_s, group.barrier_s, group.hang_s)
        if self._elsewhere:
            limits = Limits(group.start_s, group.barrier_s, group.hang_s, stop_s=_FAR_STOP_S)
        size = len(group.ranks) + len(self._elsewhere)
        self._rules = GroupRules(size, limits, time.monotonic(), far=self._elsewhere)

    # --- from the ranks ----------------------------------------------------------------------------------------------

    def _hear(self, rank: int, messages: list[wire.FromWorker]) -> None:
        if self._rules is None:
            return
        now = time.monotonic()
        for message in messages:
            if message.token == self._token:
                self._hear_one(rank, message, now)

    def _hear_one(self, rank: int, message: wire.FromWorker, now: float, far: ClockGap | None = None) -> None:
        """Take in a message of a rank; `far`: it is on another node, to whose clock this is the gap."""
        assert self._rules is not None
        actions: list[Action] = []
        match message:
            case wire.Report(_, seq, metrics, shard):
                if rank == 0:
                    self._reports[seq] = metrics
                actions = self._rules.reported(rank, seq, shard or "", now)
            case wire.Joined():
                actions = self._rules.joined(rank, now)
            case wire.Merged(_, seq, path):
                actions = self._rules.merged(seq, path, now)
            case wire.Waits(_, reason, for_space):
                self._up.send(wire.Waits(self._token, f"{reason} (rank {rank})" if reason else "", for_space))
                actions = self._rules.waits_for_space(rank, bool(reason), now)
            case wire.Done(_, outcome, at):
                actions = self._rules.said(rank, outcome, at if far is None else far.here(at, now), now)
        self._act(actions, now)

    def _on_gone(self, rank: int, outcome: Outcome) -> None:
        """A rank's process has ended."""
        if self._rules is not None:
            now = time.monotonic()
            self._act(self._rules.gone(rank, outcome, now), now)

    # --- to and from other nodes -------------------------------------------------------------------------------------

    def _hear_from_afar(self, message: wire.Relayed, now: float) -> None:
        assert self._rules is not None
        gap = self._gaps[message.node]
        gap.heard(message.at, now, message.lag)
        match message.word:
            case None:
                self._pass_on(message.node, -1, None)
            case wire.Seen(states):
                self._act(self._rules.seen(states, now), now)
            case wire.RankGone(outcome, was_told):
                at = gap.here(message.at, now)
                self._act(self._rules.gone(message.rank, outcome, now, at=at, was_told=was_told), now)
            case word:
                self._hear_one(message.rank, word, now, gap)

    def _pass_on(self, node: str, rank: int, word: Any) -> None:
        self._up.send(wire.Relayed(self._token, node, rank, word, time.monotonic()))

    def _send(self, rank: int, message: wire.Continue | wire.Stop | wire.Merge) -> None:
        if rank in self._elsewhere:
            self._pass_on(self._elsewhere[rank], rank, message)
        else:
            self._ranks.send(rank, message)

    # --- what was decided --------------------------------------------------------------------------------------------

    @property
    def _is_ended(self) -> bool:
        return self._rules is not None and self._rules.ending is not None

    def _act(self, actions: list[Action], now: float) -> None:
        assert self._rules is not None
        token = self._token
        waiting = list(actions)
        while waiting:
            action = waiting.pop(0)
            if self._elsewhere and isinstance(action, (Dismiss, Dump, KillAll)):
                self._pass_on("", -1, action)
            match action:
                case Tell(rank, is_stop, seq, path):
                    answer = wire.Stop(token, seq, checkpoint=path) if is_stop else wire.Continue(token, seq, path)
                    self._send(rank, answer)
                case Merge(rank, seq, shards):
                    self._send(rank, wire.Merge(token, seq, tuple(shards)))
                case Forward(seq, path):
                    self._up.send(wire.Report(token, seq, self._reports.pop(seq), path))
                case Late(seq, path):
                    self._up.send(wire.Saved(token, seq, path))
                case Joined():
                    self._say_started()
                case Explain(text):
                    self._up.send(wire.Waits(token, text))
                case Note(text):
                    self._ranks.note(text)
                case Dismiss():
                    self._ranks.dismiss()
                case Dump():
                    waiting += self._rules.seen(self._ranks.dump(), now)
                case KillAll():
                    for rank, outcome in self._ranks.end():
                        waiting += self._rules.gone(rank, outcome, now)
        ending = self._rules.ending
        if ending is not None and not self._has_started and ending.class_name != START_ERROR:
            self._say_started()  # what ended it before all had joined was its own code, and counts as such

    def _say_started(self) -> None:
        self._has_started = True
        self._up.send(wire.Started(self._token, self._ranks.pids[0]))

    def _close(self) -> None:
        super()._close()
        self._retry_at = None
        for shards in find_shards(self._trial_dir) if self._trial_dir else ():
            shutil.rmtree(shards, ignore_errors=True)  # of checkpoints that were never completed


_NUM_LOOKS = 4  # at the clock of rank 0's node, once the ranks are made


class RemoteRanks(HostedRanks):
    """The ranks of a group that lie on another node than rank 0, led by the `Group` there.

    What they say goes up with the number of the rank, what they are told comes down with it; see `wire.Relayed`.
    """

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
