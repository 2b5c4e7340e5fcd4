"""The ranks of a group on one of its nodes, without their host, agent and group: what goes up and what comes down."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
from collections.abc import Sequence

import pytest

from sweep.core.group import Dismiss, Dump, KillAll
from sweep.core.trial import Outcome
from sweep.engines.local.group import RemoteRanks
from sweep.worker import wire

JOB = wire.Job(7, "abcde_00000", 1, "e", "/nowhere", "", "function", "f", "", b"", {}, 1, 0, 0, "", {}, False)


class Bench:
    """A part of ranks 2 and 3, whose processes are `sleep`, and whose agent and ranks are the test."""

    def __init__(self):
        self.refusals: list[OSError | None] = []
        self.pids: list[int] = []
        self.ranks: list[socket.socket] = []
        self.agent, theirs = socket.socketpair()
        self.agent.setblocking(False)
        self.up = theirs.fileno()
        self.frames = wire.Frames()
        self.part = RemoteRanks(theirs, [], self.make, 42)

    def make(self, data: int, kept: Sequence[int], is_spawned: bool) -> int:
        refusal = self.refusals.pop(0) if self.refusals else None
        if refusal is not None:
            raise refusal
        self.pids.append(os.posix_spawn("/bin/sleep", ["sleep", "1000"], {}))
        self.ranks.append(socket.socket(fileno=os.dup(data)))
        return self.pids[-1]

    def tell(self, message):
        self.agent.send(wire.frame(message))
        self.part.handle({self.up: 1})

    def start(self):
        self.tell(wire.GroupJob(JOB, tuple(wire.RankJob(wire.Rank(rank, 4), {}, 1) for rank in (2, 3))))

    def told(self):
        """Return what has come up, without times; of what is relayed rank and word."""
        try:
            messages = list(self.frames.feed(self.agent.recv(1 << 16)))
        except BlockingIOError:
            return []
        assert {one.token for one in messages} == {42}
        return [(one.rank, one.word) if isinstance(one, wire.Relayed) else one for one in messages]

    def look(self):
        """Let the part see what is ready by now."""
        self.part.handle({descriptor: 1 for descriptor, _ in self.part.descriptors() if descriptor != self.up})


@pytest.fixture
def bench():
    bench = Bench()
    yield bench
    if not bench.part.is_over:
        bench.part.kill()
    for end in (bench.agent, *bench.ranks):
        end.close()


def test_what_ranks_say_goes_up_with_their_number_and_answers_come_down_to_them(bench):
    bench.start()
    assert bench.told() == [wire.Pids(42, tuple(bench.pids)), (-1, None)]
    report = wire.Report(7, 1, {}, "shard")
    for rank in bench.ranks:
        rank.send(wire.frame(report))
    bench.part.handle(dict.fromkeys((bench.part.descriptors()[1][0],), 1))
    assert bench.told() == [(2, report)]
    bench.tell(wire.Relayed(42, "n", 3, wire.Continue(7, 1), 1.0))
    frames = wire.Frames()
    (job, answer) = frames.feed(bench.ranks[1].recv(1 << 16))
    assert (job.rank.rank, job.token) == (3, 7)
    assert answer == wire.Continue(7, 1)


def test_the_clock_is_looked_at_a_few_times_and_no_more(bench):
    bench.start()
    for _ in range(10):
        bench.tell(wire.Relayed(42, "n", -1, None, 1.0))
    assert [one for one in bench.told() if one == (-1, None)] == 4 * [(-1, None)]


def test_a_rank_that_is_gone_is_told_with_how_and_the_end_of_the_last_is_the_parts(bench):
    bench.start()
    bench.told()
    os.kill(bench.pids[0], signal.SIGKILL)
    os.waitid(os.P_PID, bench.pids[0], os.WEXITED | os.WNOWAIT)
    bench.part.handle({descriptor: 1 for descriptor, _ in bench.part.descriptors()[3:4]})
    ((rank, gone),) = bench.told()
    assert (rank, gone.was_told, gone.outcome.kind) == (2, False, "KILLED")
    assert not bench.part.is_over
    bench.tell(wire.Relayed(42, "n", -1, KillAll(), 1.0))
    (rank, gone), done = bench.told()
    assert (rank, gone.was_told) == (3, True)
    assert done.outcome == Outcome("FINISHED")
    assert bench.part.is_over
    assert not any(os.path.exists(f"/proc/{pid}") for pid in bench.pids)


def test_states_are_told_when_stacks_are_asked_for(bench):
    bench.start()
    bench.told()
    for pid in bench.pids:  # `sleep` would die of the signal that asks for stacks
        os.kill(pid, signal.SIGSTOP)
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
    bench.tell(wire.Relayed(42, "n", -1, Dump(), 1.0))
    assert (-1, wire.Seen({2: "T", 3: "T"})) in bench.told()


def test_ranks_that_are_dismissed_see_the_end_of_their_socket(bench):
    bench.start()
    bench.tell(wire.Relayed(42, "n", -1, Dismiss(), 1.0))
    for rank in bench.ranks:
        rank.recv(1 << 16)  # the job
        assert rank.recv(1) == b""


def test_a_refused_process_ends_those_that_were_made_and_is_the_parts_refusal(bench):
    bench.refusals = [None, OSError(errno.EAGAIN, "no process")]
    bench.start()
    assert bench.part.is_over
    assert bench.part.refusal == errno.EAGAIN
    assert not os.path.exists(f"/proc/{bench.pids[0]}")


def test_without_its_agent_a_part_ends(bench):
    bench.start()
    bench.agent.close()
    poll = select.poll()
    poll.register(bench.up, select.POLLIN)
    poll.poll(10_000)  # a process that is being made may hold its end for a moment
    bench.part.handle({bench.up: 1})
    assert bench.part.is_over
    assert not any(os.path.exists(f"/proc/{pid}") for pid in bench.pids)
