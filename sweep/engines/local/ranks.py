"""The ranks of a group on one machine: processes made together, heard one by one, ended with what they started."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.core.trial import Outcome
from sweep.engines.exits import classify, num_oom_kills
from sweep.engines.link import Link
from sweep.engines.local.processes import ask_for_stacks, descendants, pidfd_of, send
from sweep.record.layout import find_shards, rank_output
from sweep.record.proc import stat_of
from sweep.worker import wire

# Makes the process of a rank: its end of a socket, descriptors that it keeps, whether it is a fresh interpreter.
MakeRank = Callable[[int, Sequence[int], bool], int]


@dataclass(slots=True, eq=False)
class _Member:
    pid: int
    pidfd: int
    link: Link
    log: str
    is_gone: bool = False


class LocalRanks(ABC):
    """Ranks in a supervisor, and the socket to who leads them, from the job to the last process's end.

    Attributes:
        is_over: every rank is gone and that has been written upwards, if it was not killed from above.
        refusal: errno of the kernel's refusal to make the ranks, which ended it; 0: none.
        peak_rss_bytes: sum of the ranks' peaks, of those that are gone.
    """

    def __init__(self, upstream: socket.socket, ports: Sequence[int], make: MakeRank) -> None:
        """Take over the socket above and the descriptors of the sockets that hold the group's ports."""
        self.is_over = False
        self.refusal = 0
        self.peak_rss_bytes = 0
        self._up = Link(upstream)
        self._ports = list(ports)
        self._make = make
        self._job: wire.GroupJob | None = None
        self._members: dict[int, _Member] = {}
        self._is_done_said = False
        self._oom_kills = num_oom_kills()

    @property
    def log_limit_bytes(self) -> int:
        """Size that each of `logs` is kept below; 0: unlimited."""
        return self._job.log_limit_bytes if self._job is not None else 0

    @property
    def logs(self) -> list[str]:
        """Output files of the ranks."""
        return [member.log for member in self._members.values()]

    @property
    def deadline(self) -> float | None:
        """The monotonic time at which `handle` must be called at the latest; None: there is none."""
        return None

    def descriptors(self) -> list[tuple[int, int]]:
        """Return descriptors to wait for, with poll masks."""
        links = [(link.socket.fileno(), link.mask) for link in (self._up, *self._links) if link.is_open]
        return links + [(one.pidfd, select.POLLIN) for one in self._members.values() if not one.is_gone]

    def handle(self, ready: dict[int, int]) -> None:
        """Take in what is ready, and the time."""
        members = list(self._members.items())  # one made meanwhile may bear the number of a descriptor that was ready
        if self._up.is_open and ready.get(self._up.socket.fileno(), 0) & ~select.POLLOUT:
            self._hear_above()
        for rank, member in members:
            if member.link.is_open and ready.get(member.link.socket.fileno(), 0) & ~select.POLLOUT:
                self._take_in(rank, member.link, member.link.receive())
                if not member.link.is_open:
                    member.link.socket.close()
        for rank, member in members:
            if not member.is_gone and ready.get(member.pidfd, 0):
                if member.link.is_open:
                    self._take_in(rank, member.link, member.link.drain())
                if not member.is_gone:  # what it wrote may have ended all
                    self._on_gone(rank, self._bury(member))
        now = time.monotonic()
        self._on_time(now)
        ending = self._ending()
        if ending is not None and not self._is_done_said:
            self._is_done_said = True
            self._up.send(wire.Done(ending, now))
        for link in (self._up, *self._links):
            if not link.is_empty:
                link.flush()
        if self._is_done_said and self._up.is_empty:
            self._close()

    @abstractmethod
    def kill(self) -> None:
        """End every process of it here, and say nothing any more."""

    @abstractmethod
    def _hear_above(self) -> None:
        """Take in what is written above; the end of that stream, too."""

    @abstractmethod
    def _hear(self, rank: int, messages: list[Any]) -> None:
        """Take in what a rank has written."""

    @abstractmethod
    def _on_gone(self, rank: int, outcome: Outcome) -> None:
        """A rank's process has ended by itself; what it wrote last was heard before."""

    @abstractmethod
    def _ending(self) -> Outcome | None:
        """Return how all has ended; None: it has not."""

    def _on_time(self, now: float) -> None:  # noqa: B027  # not everybody minds the time
        """Do what is due."""

    def _take_in(self, rank: int, link: Link, messages: list[Any]) -> None:
        if link.problem is not None:
            messages.append(wire.Done(link.problem, time.monotonic()))
        self._hear(rank, messages)

    @property
    def _links(self) -> list[Link]:
        return [member.link for member in self._members.values() if member.link.is_open]

    def _start_ranks(self, group: wire.GroupJob) -> None:
        """Make every rank that the job names, or none.

        Raises:
            OSError: the kernel refuses one; all are gone again.
        """
        self._job = group
        job = group.job
        try:
            for rank, variables, threads, _ in group.ranks:
                listener = self._ports[0] if group.is_listening and rank.rank == 0 else -1
                ours, theirs = socket.socketpair()
                try:
                    pid = self._make(theirs.fileno(), [listener] if listener >= 0 else [], group.is_spawned)
                    pidfd = pidfd_of(pid)
                except OSError:
                    ours.close()
                    raise
                finally:
                    theirs.close()
                member = _Member(pid, pidfd, Link(ours, is_workers=True), rank_output(job.trial_dir, rank.rank))
                self._members[rank.rank] = member
                own = rank._replace(listener=listener)
                given = {**job.variables, **variables}
                member.link.send(job._replace(rank=own, variables=given, num_threads=threads))
        except OSError:
            self._end_ranks()
            self._members.clear()
            raise
        self._up.send(wire.Pids(tuple(member.pid for member in self._members.values())))

    def _dismiss(self) -> None:
        """Let the ranks end their processes: all have returned."""
        for link in self._links:
            with contextlib.suppress(OSError):
                link.socket.shutdown(socket.SHUT_WR)

    def _dump(self) -> dict[int, str]:
        """Have every rank write its stacks into its log; return the states of their processes (`T`: stopped)."""
        states = {}
        for rank, member in self._members.items():
            if member.is_gone:
                continue
            with contextlib.suppress(OSError):  # it ended meanwhile
                states[rank] = stat_of(member.pid)[0].decode()
            ask_for_stacks(member.pid)
        return states

    def _end_ranks(self) -> list[tuple[int, Outcome]]:
        """Kill what is left of every rank, and wait for the ranks themselves; returns how each has ended."""
        living = [(rank, member) for rank, member in self._members.items() if not member.is_gone]
        for pid in [pid for _, member in living for pid in (member.pid, *descendants(member.pid))]:
            send(signal.SIGKILL, -pid, pid)
        return [(rank, self._bury(member)) for rank, member in living]

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

    def _close(self) -> None:
        """Let go of ports and sockets."""
        self.is_over = True
        for port in self._ports:
            os.close(port)
        self._ports.clear()
        for link in (self._up, *self._links):
            if link.is_open:
                link.close()

    def _remove_shards(self) -> None:
        """Delete those of checkpoints that were never completed: nobody will merge them."""
        for shards in find_shards(self._job.job.trial_dir) if self._job is not None else ():
            shutil.rmtree(shards, ignore_errors=True)
