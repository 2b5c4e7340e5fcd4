"""A training group in its host: forks the ranks, carries what they say to `core.group` and what that decides to them.

One `Group` is either a whole attempt, and then speaks to the driver, or it was asked for by the attempt's worker (a
`fit()` inside a trial), and then speaks to that. Both look alike from here: a socket above, one for each rank below.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import select
import shutil
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

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
from sweep.engines.exits import classify, num_oom_kills
from sweep.engines.link import Link
from sweep.engines.processes import ask_for_stacks, descendants, pidfd_of, send
from sweep.record.layout import find_shards, rank_output
from sweep.record.proc import stat_of
from sweep.worker import wire
from sweep.worker.limits import describe_shortage

__all__ = ["Group"]

_RETRY_S = 0.1
_MOST_RETRY_S = 2.0

# Makes the process of a rank: its end of a socket, descriptors that it keeps, whether it is a fresh interpreter.
MakeRank = Callable[[int, Sequence[int], bool], int]


@dataclass(slots=True, eq=False)
class _Member:
    """The process of one rank."""

    pid: int
    pidfd: int
    link: Link
    log: str
    is_gone: bool = False


class Group:
    """The ranks of one group, from the job to the last process's end.

    Attributes:
        is_over: every rank is gone and how it ended has been written upwards, if it was not killed from above.
        peak_rss_bytes: sum of the ranks' peaks, of those that are gone.
        logs: the ranks' output files.
        refusal: errno of the kernel's refusal to make the ranks, which ended a group that is not patient; 0: none.
        problem: why the kernel refuses more processes at the moment; it is tried again.
    """

    def __init__(
        self, upstream: socket.socket, ports: Sequence[int], make: MakeRank, *, is_patient: bool = True
    ) -> None:
        """Take over the socket above and the descriptors of the sockets that hold its ports.

        Args:
            is_patient: when the kernel refuses processes it is tried again; otherwise it is over.
        """
        self.is_over = False
        self.refusal = 0
        self.peak_rss_bytes = 0
        self.problem = ""
        self._up = Link(upstream)
        self._ports = list(ports)
        self._make = make
        self._members: list[_Member] = []
        self._job: wire.GroupJob | None = None
        self._token = 0
        self._trial_dir = ""
        self._rules: GroupRules | None = None
        self._reports: dict[int, Any] = {}  # metrics of rank 0's reports that were not passed on yet
        self._unborn = -1  # our end of the socket to the rank that is being made
        self._retry_at: float | None = None
        self._is_patient = is_patient
        self._pause_s = _RETRY_S
        self._oom_kills = num_oom_kills()
        self._has_started = False
        self._is_done_said = False

    # --- for the host's loop -----------------------------------------------------------------------------------------

    @property
    def logs(self) -> list[str]:
        """Output files of the ranks."""
        return [member.log for member in self._members]

    @property
    def log_limit_bytes(self) -> int:
        """Size that each of them is kept below; 0: unlimited."""
        return self._job.log_limit_bytes if self._job is not None else 0

    @property
    def _links(self) -> list[Link]:
        """The sockets that are open: the one above, and those of the ranks."""
        return [link for link in (self._up, *(member.link for member in self._members)) if link.is_open]

    @property
    def _pidfds(self) -> list[int]:
        return [member.pidfd for member in self._members if not member.is_gone]

    def descriptors(self) -> list[tuple[int, int]]:
        """Return what to wait for: descriptors and poll masks."""
        masks = [(link, select.POLLIN if link.is_empty else select.POLLIN | select.POLLOUT) for link in self._links]
        return [(link.socket.fileno(), mask) for link, mask in masks] + [(fd, select.POLLIN) for fd in self._pidfds]

    def own_descriptors(self) -> list[int]:
        """Return every descriptor that a process forked now must close."""
        unborn = [self._unborn] if self._unborn >= 0 else []
        return [link.socket.fileno() for link in self._links] + self._pidfds + self._ports + unborn

    def deadline(self) -> float | None:
        """Return the monotonic time at which `handle` must be called at the latest."""
        times = [self._retry_at, self._rules.deadline if self._rules is not None else None]
        return min((at for at in times if at is not None), default=None)

    def handle(self, ready: dict[int, int]) -> None:
        """Take in what is ready, and the time."""
        now = time.monotonic()
        known = list(self._members)  # one made below may bear the number of a descriptor that was ready and is closed
        if self._up.is_open and ready.get(self._up.socket.fileno(), 0) & ~select.POLLOUT:
            self._hear_above(now)
        for rank, member in enumerate(known):
            if member.link.is_open and ready.get(member.link.socket.fileno(), 0) & ~select.POLLOUT:
                self._hear(rank, member.link.receive(), now)
                if not member.link.is_open:
                    member.link.socket.close()
        for rank, member in enumerate(known):
            if not member.is_gone and ready.get(member.pidfd, 0):
                self._reap(rank, now)
        if self._retry_at is not None and now >= self._retry_at:
            self._start()
        if self._rules is not None and not self._is_ended:
            self._act(self._rules.tick(now), now)
        for link in self._links:
            if not link.is_empty:
                link.flush()
        if self._is_ended and not self._is_done_said and self._rules is not None:
            assert self._rules.ending is not None
            self._is_done_said = True
            self._up.send(wire.Done(self._token, self._rules.ending, now))
        if self._is_done_said and self._up.is_empty:
            self._close()

    def kill(self) -> None:
        """End every process of it, and say nothing any more."""
        self._end_ranks(time.monotonic())
        self._close()

    # --- from above --------------------------------------------------------------------------------------------------

    def _hear_above(self, now: float) -> None:
        for message in self._up.receive():
            if isinstance(message, wire.GroupJob):
                self._job, self._token = message, message.job.token
                self._start()
            elif self._rules is not None and message.token == self._token:  # an answer
                self._act(self._rules.answered(message.seq, isinstance(message, wire.Stop), now), now)
        if not self._up.is_open:  # the driver is gone
            self._up.socket.close()
            if self._rules is not None and not self._is_ended:
                self._act(self._rules.kill(now), now)
            elif self._rules is None:
                self._close()

    # --- starting ----------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Make every rank, or none: when the kernel refuses one, all go and it is tried again."""
        assert self._job is not None
        self._retry_at = None
        group, job = self._job, self._job.job
        self._trial_dir = os.path.join(job.directory, job.home or job.trial_id)
        try:
            for rank, variables, threads in group.ranks:
                listener = self._ports[0] if group.is_listening and rank.rank == 0 else -1
                self._start_rank(
                    job._replace(
                        rank=rank._replace(listener=listener),
                        variables={**job.variables, **variables},
                        num_threads=threads,
                    ),
                    rank_output(self._trial_dir, rank.rank),
                    listener,
                )
        except OSError as error:
            self._end_ranks(time.monotonic())
            self._members.clear()
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
        self._up.send(wire.Pids(self._token, tuple(member.pid for member in self._members)))
        limits = Limits(group.start_s, group.barrier_s, group.hang_s)
        self._rules = GroupRules(len(group.ranks), limits, time.monotonic())

    def _start_rank(self, job: wire.Job, log: str, listener: int) -> None:
        assert self._job is not None
        ours, theirs = socket.socketpair()
        self._unborn = ours.fileno()
        try:
            pid = self._make(theirs.fileno(), [listener] if listener >= 0 else [], self._job.is_spawned)
            pidfd = pidfd_of(pid)
        except OSError:
            ours.close()
            raise
        finally:
            self._unborn = -1
            theirs.close()
        link = Link(ours)
        self._members.append(_Member(pid, pidfd, link, log))
        link.send(job)

    # --- from the ranks ----------------------------------------------------------------------------------------------

    def _hear(self, rank: int, messages: list[wire.FromWorker], now: float) -> None:
        if self._rules is None:
            return
        for message in messages:
            if message.token != self._token:
                continue
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
                case wire.Waits(_, reason):
                    self._up.send(wire.Waits(self._token, f"{reason} (rank {rank})" if reason else ""))
                    actions = self._rules.waits_for_space(rank, bool(reason), now)
                case wire.Done(_, outcome, at):
                    actions = self._rules.said(rank, outcome, at, now)
            self._act(actions, now)

    def _reap(self, rank: int, now: float) -> None:
        """A rank's process has ended: take what it wrote last, then that."""
        member = self._members[rank]
        if member.link.is_open:
            self._hear(rank, member.link.drain(), now)
        outcome = self._bury(member)
        if self._rules is not None:
            self._act(self._rules.gone(rank, outcome, now), now)

    def _bury(self, member: _Member) -> Outcome:
        """Wait for the process of a rank and return how it ended, as far as the kernel knows."""
        _, status, usage = os.wait4(member.pid, 0)
        os.close(member.pidfd)
        member.is_gone = True
        if member.link.is_open:
            member.link.close()
        self.peak_rss_bytes += usage.ru_maxrss * 1024
        has_oom_kill = False
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            before, self._oom_kills = self._oom_kills, num_oom_kills()
            has_oom_kill = self._oom_kills > before
        ended = classify(None, status, peak_rss_bytes=usage.ru_maxrss * 1024, has_oom_kill=has_oom_kill)
        return Outcome(ended.kind.value, ended.error)

    # --- what was decided --------------------------------------------------------------------------------------------

    @property
    def _is_ended(self) -> bool:
        return self._rules is not None and self._rules.ending is not None

    def _act(self, actions: list[Action], now: float) -> None:
        assert self._rules is not None
        token = self._token
        waiting = list(actions)
        while waiting:
            match waiting.pop(0):
                case Tell(rank, is_stop, seq, path):
                    answer = wire.Stop(token, seq, checkpoint=path) if is_stop else wire.Continue(token, seq, path)
                    self._members[rank].link.send(answer)
                case Merge(rank, seq, shards):
                    self._members[rank].link.send(wire.Merge(token, seq, tuple(shards)))
                case Forward(seq, path):
                    self._up.send(wire.Report(token, seq, self._reports.pop(seq), path))
                case Late(seq, path):
                    self._up.send(wire.Saved(token, seq, path))
                case Joined():
                    self._say_started()
                case Explain(text):
                    self._up.send(wire.Waits(token, text))
                case Note(text):
                    self._note(text)
                case Dismiss():
                    for member in self._members:
                        if member.link.is_open:
                            with contextlib.suppress(OSError):
                                member.link.socket.shutdown(socket.SHUT_WR)
                case Dump():
                    self._rules.seen(self._dump())
                case KillAll():
                    waiting += self._end_ranks(now)
        ending = self._rules.ending
        if ending is not None and not self._has_started and ending.class_name != START_ERROR:
            self._say_started()  # what ended it before all had joined was its own code, and counts as such

    def _say_started(self) -> None:
        self._has_started = True
        self._up.send(wire.Started(self._token, self._members[0].pid))

    def _note(self, text: str) -> None:
        with contextlib.suppress(OSError), open(self._members[0].log, "a", encoding="utf-8") as file:
            file.write(f"--- {text}\n")

    def _dump(self) -> dict[int, str]:
        """Have every rank write its stacks into its log; return the states of their processes."""
        states = {}
        for rank, member in enumerate(self._members):
            if member.is_gone:
                continue
            with contextlib.suppress(OSError):  # it ended meanwhile
                states[rank] = stat_of(member.pid)[0].decode()
            ask_for_stacks(member.pid)
        return states

    def _end_ranks(self, now: float) -> list[Action]:
        """Kill what is left of every rank, and wait for the ranks themselves."""
        victims: list[int] = []
        for member in self._members:
            if not member.is_gone:
                victims += [member.pid, *descendants(member.pid)]
        for pid in victims:
            send(signal.SIGKILL, -pid, pid)
        actions: list[Action] = []
        for rank, member in enumerate(self._members):
            if member.is_gone:
                continue
            outcome = self._bury(member)
            if self._rules is not None:
                actions += self._rules.gone(rank, outcome, now)
        return actions

    def _close(self) -> None:
        self.is_over = True
        self._retry_at = None
        for port in self._ports:
            os.close(port)
        self._ports.clear()
        for link in self._links:
            link.close()
        for shards in find_shards(self._trial_dir) if self._trial_dir else ():
            shutil.rmtree(shards, ignore_errors=True)  # of checkpoints that were never completed
