"""A training group in its supervisor: carries what its ranks say to `core.group` and what that decides to them.

One `Group` is either a whole attempt, and then speaks to the driver, or it was asked for by the attempt's worker (a
`fit()` inside a trial), and then speaks to that. Both look alike from here: a socket above, one for each rank below.
Ranks on other nodes are reached through the socket above, and run in a `RemoteRanks` there.
"""

from __future__ import annotations

import contextlib
import errno
import math
import random
import socket
import time
from collections.abc import Sequence
from typing import Any

from sweep.core import group as core
from sweep.core.messages import Continue, Reported, Saved, Started, Stop, Waiting
from sweep.core.trial import Outcome
from sweep.engines.local.ranks import LocalRanks, MakeRank
from sweep.worker import wire
from sweep.worker.limits import describe_shortage

_RETRY_S = (0.2, 0.5)
_FAR_STOP_S = 5.0  # for ranks to end, where what they are told goes through the driver


class ClockGap:
    """How far another machine's monotonic clock is ahead of this one's, found as NTP does it: from messages both ways
    that bear the time at which they were sent. Of each way the fastest counts; both are taken to last equally long."""

    def __init__(self) -> None:
        self._from_there = math.inf  # least of: arrival here less sending there, each by its own clock
        self._to_there = math.inf

    def heard(self, sent_at: float, now: float, lag: float | None) -> None:
        """Take a message, sent at this time of the other's clock; `lag` is what that has found of messages to it."""
        self._from_there = min(self._from_there, now - sent_at)
        if lag is not None:
            self._to_there = min(self._to_there, lag)

    def here(self, at: float, now: float) -> float:
        """Return a time of the other machine's in this one's clock; nothing that was told lies after `now`."""
        if math.isinf(self._from_there):
            return now
        gap = -self._from_there if math.isinf(self._to_there) else (self._to_there - self._from_there) / 2
        return min(now, at - gap)


class Group(LocalRanks):
    """The ranks of one group, from the job to the last process's end."""

    def __init__(
        self, upstream: socket.socket, ports: Sequence[int], make: MakeRank, *, is_patient: bool = True
    ) -> None:
        """Take over what `LocalRanks` does; `is_patient`: where the kernel refuses processes it is tried again."""
        super().__init__(upstream, ports, make)
        self._problem = ""  # why the kernel refuses processes at the moment
        self._rules: core.GroupRules | None = None
        self._elsewhere: dict[int, str] = {}  # ranks on other nodes
        self._gaps: dict[str, ClockGap] = {}  # to the clocks of those
        self._reports: dict[int, Any] = {}  # metrics of rank 0's reports that were not passed on yet
        self._retry_at: float | None = None
        self._is_patient = is_patient
        self._has_started = False

    @property
    def deadline(self) -> float | None:
        times = [self._retry_at, self._rules.deadline if self._rules is not None else None]
        return min((at for at in times if at is not None), default=None)

    @property
    def _key(self) -> tuple[str, int]:
        assert self._job is not None
        return self._job.job.key

    def kill(self) -> None:
        for rank, outcome in self._end_ranks():
            if self._rules is not None:
                self._rules.gone(rank, outcome, time.monotonic())
        self._close()

    def _on_time(self, now: float) -> None:
        if self._retry_at is not None and now >= self._retry_at:
            self._start()
        if self._rules is not None and self._ending() is None:
            self._act(self._rules.tick(now), now)

    def _ending(self) -> Outcome | None:
        return self._rules.ending if self._rules is not None else None

    def _hear_above(self) -> None:
        now = time.monotonic()
        for message in self._up.receive():
            if isinstance(message, wire.GroupJob):
                self._job = message
                self._start()
            elif self._rules is None:
                continue
            elif isinstance(message, wire.Relayed):
                self._hear_from_afar(message, now)
            else:  # an answer
                self._act(self._rules.answered(message.seq, isinstance(message, Stop), now), now)
        if not self._up.is_open:  # the driver is gone
            self._up.socket.close()
            if self._rules is None or self._elsewhere:  # nobody will tell of the ranks elsewhere
                self.kill()
            elif self._ending() is None:
                self._act(self._rules.kill(now), now)

    def _start(self) -> None:
        """Make every rank of this node, or none: when the kernel refuses one, all go and it is tried again."""
        assert self._job is not None
        self._retry_at, group = None, self._job
        try:
            self._start_ranks(group)
        except OSError as error:
            if not self._is_patient:
                self.refusal = error.errno or errno.EAGAIN
                self._close()
                return
            self._say_problem(f"cannot start: {describe_shortage(error)}")
            # Groups that take each other's processes must not try in step.
            self._retry_at = time.monotonic() + random.uniform(*_RETRY_S)
            return
        self._say_problem("")
        self._elsewhere = dict(group.elsewhere)
        self._gaps = {node: ClockGap() for node in self._elsewhere.values()}
        limits = core.Limits(hang_s=group.hang_s, **({"stop_s": _FAR_STOP_S} if self._elsewhere else {}))
        size = len(group.ranks) + len(self._elsewhere)
        self._rules = core.GroupRules(size, limits, time.monotonic(), far=self._elsewhere)

    def _say_problem(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            self._up.send(Waiting(self._key[0], problem))

    def _hear(self, rank: int, messages: list[wire.FromWorker]) -> None:
        for message in messages:
            if self._rules is not None:
                self._hear_one(rank, message, time.monotonic())

    def _hear_one(self, rank: int, message: wire.FromWorker, now: float, far: ClockGap | None = None) -> None:
        """Take in a message of a rank; `far`: it is on another node, to whose clock this is the gap."""
        assert self._rules is not None
        actions: list[core.Action] = []
        match message:
            case Reported(_, _, seq, metrics, shard):
                if rank == 0:
                    self._reports[seq] = metrics
                actions = self._rules.reported(rank, seq, shard or "", now)
            case wire.Joined():
                actions = self._rules.joined(rank, now)
            case wire.Merged(seq, path):
                actions = self._rules.merged(seq, path, now)
            case Waiting(_, reason, cause):
                self._up.send(Waiting(self._key[0], f"{reason} (rank {rank})" if reason else "", cause))
                actions = self._rules.waits_for_space(rank, bool(reason), now)
            case wire.Done(outcome, at):
                actions = self._rules.said(rank, outcome, at if far is None else far.here(at, now), now)
        self._act(actions, now)

    def _on_gone(self, rank: int, outcome: Outcome) -> None:
        if self._rules is not None:
            now = time.monotonic()
            self._act(self._rules.gone(rank, outcome, now), now)

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
        self._up.send(wire.Relayed(node, rank, word, time.monotonic()))

    def _send(self, rank: int, message: Continue | Stop | wire.Merge | wire.Stored) -> None:
        if rank in self._elsewhere:
            self._pass_on(self._elsewhere[rank], rank, message)
        else:
            self._members[rank].link.send(message)

    def _act(self, actions: list[core.Action], now: float) -> None:
        assert self._rules is not None
        waiting = list(actions)
        while waiting:
            action = waiting.pop(0)
            if self._elsewhere and isinstance(action, (core.Dismiss, core.Dump, core.KillAll)):
                self._pass_on("", -1, action)
            match action:
                case core.Tell(rank, is_stop, seq, path):
                    if path:
                        self._send(rank, wire.Stored(path))
                    self._send(rank, (Stop if is_stop else Continue)(*self._key, seq))
                case core.Merge(rank, seq, shards):
                    self._send(rank, wire.Merge(seq, tuple(shards)))
                case core.Forward(seq, path):
                    self._up.send(Reported(*self._key, seq, self._reports.pop(seq), path))
                case core.Late(seq, path):
                    self._up.send(Saved(*self._key, seq, path))
                case core.Joined():
                    self._say_started()
                case core.Explain(text):
                    self._up.send(Waiting(self._key[0], text))
                case core.Note(text):
                    with contextlib.suppress(OSError), open(self.logs[0], "a", encoding="utf-8") as file:
                        file.write(f"--- {text}\n")
                case core.Dismiss():
                    self._dismiss()
                case core.Dump():
                    waiting += self._rules.seen(self._dump(), now)
                case core.KillAll():
                    for rank, outcome in self._end_ranks():
                        waiting += self._rules.gone(rank, outcome, now)
        ending = self._rules.ending
        if ending is not None and not self._has_started and ending.class_name != core.START_ERROR:
            self._say_started()  # what ended it before all had joined was its own code, and counts as such

    def _say_started(self) -> None:
        self._has_started = True
        self._up.send(Started(*self._key, next(iter(self._members.values())).pid))

    def _close(self) -> None:
        super()._close()
        self._retry_at = None
        self._remove_shards()


_NUM_LOOKS = 4  # at the clock of rank 0's node, once the ranks are made


class RemoteRanks(LocalRanks):
    """The ranks of a group that lie on another node than rank 0, led by the `Group` there.

    What they say goes up with the number of the rank, what they are told comes down with it; see `wire.Relayed`.
    """

    def __init__(self, upstream: socket.socket, ports: Sequence[int], make: MakeRank) -> None:
        super().__init__(upstream, ports, make)
        self._lag = math.inf  # least difference of this clock and the times at which we were sent something
        self._looks = 0

    def kill(self) -> None:
        self._end_ranks()
        self._close()
        self._remove_shards()  # the group is killed as well

    def _ending(self) -> Outcome | None:
        are_gone = self._members and all(member.is_gone for member in self._members.values())
        return Outcome("FINISHED") if are_gone else None

    def _hear_above(self) -> None:
        for message in self._up.receive():
            match message:
                case wire.GroupJob():
                    try:
                        self._start_ranks(message)
                        self._look_at_clock()
                    except OSError as error:
                        self.refusal = error.errno or errno.EAGAIN
                        self._close()
                case wire.Relayed(_, rank, word, at):
                    self._lag = min(self._lag, time.monotonic() - at)
                    self._obey(rank, word)
            if self.is_over:
                return
        if not self._up.is_open:  # the agent is gone
            self._up.socket.close()
            self.kill()

    def _obey(self, rank: int, word: Any) -> None:
        match word:
            case None:
                self._look_at_clock()
            case core.Dismiss():
                self._dismiss()
            case core.Dump():
                self._say(-1, wire.Seen(self._dump()))
            case core.KillAll():
                for ended, outcome in self._end_ranks():
                    self._say(ended, wire.RankGone(outcome, was_told=True))
            case _:
                self._members[rank].link.send(word)

    def _look_at_clock(self) -> None:
        """Ask for an answer: the times of both tell how far the clocks are apart."""
        if self._looks < _NUM_LOOKS:
            self._looks += 1
            self._say(-1, None)

    def _hear(self, rank: int, messages: list[wire.FromWorker]) -> None:
        for message in messages:
            self._say(rank, message)

    def _on_gone(self, rank: int, outcome: Outcome) -> None:
        self._say(rank, wire.RankGone(outcome, was_told=False))

    def _say(self, rank: int, word: Any) -> None:
        lag = None if math.isinf(self._lag) else self._lag
        self._up.send(wire.Relayed("", rank, word, time.monotonic(), lag))
