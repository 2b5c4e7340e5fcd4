"""The processes of a group's ranks on one machine: made together, heard one by one, ended with what they started."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.core.trial import Outcome
from sweep.engines.exits import classify, num_oom_kills
from sweep.engines.link import Link
from sweep.engines.local.processes import ask_for_stacks, descendants, pidfd_of, send
from sweep.record.layout import rank_output
from sweep.record.proc import stat_of
from sweep.worker import wire

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


class Ranks:
    """Those ranks of a group that run here.

    Attributes:
        peak_rss_bytes: sum of their peaks, of those that are gone.
    """

    def __init__(
        self,
        ports: Sequence[int],
        make: MakeRank,
        *,
        hear: Callable[[int, list[Any]], None],
        gone: Callable[[int, Outcome], None],
    ) -> None:
        """Take over the descriptors of the sockets that hold the group's ports.

        Args:
            hear: called with what a rank has written.
            gone: called when a rank's process has ended by itself, and how, as far as the kernel knows; what it wrote
                last was told before.
        """
        self.peak_rss_bytes = 0
        self._ports = list(ports)
        self._make = make
        self._hear = hear
        self._gone = gone
        self._members: dict[int, _Member] = {}
        self._token = 0  # of the attempt, for whom they speak
        self._unborn = -1  # our end of the socket to the rank that is being made
        self._oom_kills = num_oom_kills()

    @property
    def logs(self) -> list[str]:
        """Their output files."""
        return [member.log for member in self._members.values()]

    @property
    def pids(self) -> tuple[int, ...]:
        """Their processes, in order."""
        return tuple(member.pid for member in self._members.values())

    @property
    def are_gone(self) -> bool:
        """Whether no process of theirs is left."""
        return all(member.is_gone for member in self._members.values())

    @property
    def _links(self) -> list[Link]:
        return [member.link for member in self._members.values() if member.link.is_open]

    @property
    def _pidfds(self) -> list[int]:
        return [member.pidfd for member in self._members.values() if not member.is_gone]

    def descriptors(self) -> list[tuple[int, int]]:
        """Return what to wait for: descriptors and poll masks."""
        links = [(link.socket.fileno(), link.mask) for link in self._links]
        return links + [(fd, select.POLLIN) for fd in self._pidfds]

    def own_descriptors(self) -> list[int]:
        """Return every descriptor that a process forked now must close."""
        unborn = [self._unborn] if self._unborn >= 0 else []
        return [link.socket.fileno() for link in self._links] + self._pidfds + self._ports + unborn

    # --- from the first process to the last --------------------------------------------------------------------------

    def start(self, group: wire.GroupJob) -> None:
        """Make every rank that the job names, or none.

        Raises:
            OSError: the kernel refuses one; all are gone again.
        """
        job = group.job
        self._token = job.token
        trial_dir = os.path.join(job.directory, job.home or job.trial_id)
        try:
            for rank, variables, threads, _ in group.ranks:
                listener = self._ports[0] if group.is_listening and rank.rank == 0 else -1
                self._start_rank(
                    job._replace(
                        rank=rank._replace(listener=listener),
                        variables={**job.variables, **variables},
                        num_threads=threads,
                    ),
                    rank_output(trial_dir, rank.rank),
                    rank.rank,
                    listener,
                    is_spawned=group.is_spawned,
                )
        except OSError:
            self.end()
            self._members.clear()
            raise

    def _start_rank(self, job: wire.Job, log: str, rank: int, listener: int, *, is_spawned: bool) -> None:
        ours, theirs = socket.socketpair()
        self._unborn = ours.fileno()
        try:
            pid = self._make(theirs.fileno(), [listener] if listener >= 0 else [], is_spawned)
            pidfd = pidfd_of(pid)
        except OSError:
            ours.close()
            raise
        finally:
            self._unborn = -1
            theirs.close()
        link = Link(ours, is_workers=True)
        self._members[rank] = _Member(pid, pidfd, link, log)
        link.send(job)

    def handle(self, ready: dict[int, int]) -> None:
        """Take in what they have written, then which of them have ended."""
        known = list(self._members.items())  # one made meanwhile may bear the number of a descriptor that was ready
        for rank, member in known:
            if member.link.is_open and ready.get(member.link.socket.fileno(), 0) & ~select.POLLOUT:
                self._take_in(rank, member.link, member.link.receive())
                if not member.link.is_open:
                    member.link.socket.close()
        for rank, member in known:
            if not member.is_gone and ready.get(member.pidfd, 0):
                if member.link.is_open:
                    self._take_in(rank, member.link, member.link.drain())
                if not member.is_gone:  # what it wrote may have ended all
                    self._gone(rank, self._bury(member))

    def _take_in(self, rank: int, link: Link, messages: list[Any]) -> None:
        if link.problem is not None:
            messages.append(wire.Done(self._token, link.problem, time.monotonic()))
        self._hear(rank, messages)

    def send(self, rank: int, message: wire.Message) -> None:
        """Write to a rank."""
        self._members[rank].link.send(message)

    def flush(self) -> None:
        """Write more of what could not be written at once."""
        for link in self._links:
            if not link.is_empty:
                link.flush()

    def dismiss(self) -> None:
        """Let them end their processes: all have returned."""
        for link in self._links:
            with contextlib.suppress(OSError):
                link.socket.shutdown(socket.SHUT_WR)

    def dump(self) -> dict[int, str]:
        """Have every rank write its stacks into its log; return the states of their processes (`T`: stopped)."""
        states = {}
        for rank, member in self._members.items():
            if member.is_gone:
                continue
            with contextlib.suppress(OSError):  # it ended meanwhile
                states[rank] = stat_of(member.pid)[0].decode()
            ask_for_stacks(member.pid)
        return states

    def note(self, text: str) -> None:
        """Write a line into the log of the first."""
        with contextlib.suppress(OSError), open(self.logs[0], "a", encoding="utf-8") as file:
            file.write(f"--- {text}\n")

    def end(self) -> list[tuple[int, Outcome]]:
        """Kill what is left of every rank, and wait for the ranks themselves; returns how each has ended."""
        living = [(rank, member) for rank, member in self._members.items() if not member.is_gone]
        victims: list[int] = []
        for _, member in living:
            victims += [member.pid, *descendants(member.pid)]
        for pid in victims:
            send(signal.SIGKILL, -pid, pid)
        return [(rank, self._bury(member)) for rank, member in living]

    def close(self) -> None:
        """Let go of the ports, and of the sockets to ranks that are gone."""
        for port in self._ports:
            os.close(port)
        self._ports.clear()
        for link in self._links:
            link.close()

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
