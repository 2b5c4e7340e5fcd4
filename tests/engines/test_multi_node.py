"""Attempts on several nodes, driven by what their agents say: one exit and one release, whatever happens where."""

from __future__ import annotations

import errno

import pytest
from conformance.engines import trial

from sweep.core.messages import Continue, Declined, Exit, Exited, ExitKind, Kill, Released, Start, Stop, Waiting
from sweep.engines.cluster.multi_node import MultiNodeGroups
from sweep.engines.jobs import Payload
from sweep.worker import wire

KEY = ("abcde_00000", 1)
FINISHED, KILLED = Exit(ExitKind.FINISHED, peak_rss_bytes=5), Exit(ExitKind.KILLED, error="killed")
LOST = Exit(ExitKind.LOST, error="its host is gone")
NODES = ("a", "b", "c")
END = Kill(*KEY)


class World:
    """The rest of a driver: what was sent to which node, and what the core was told."""

    def __init__(self):
        self.sent, self.events, self.alarms, self.notices = [], [], [], []
        self.groups = MultiNodeGroups(
            lambda node, message: self.sent.append((node, message)),
            self.events.append,
            lambda after_s, call: self.alarms.append((after_s, call)),
            self.notices.append,
        )
        self.trial = trial()
        self.groups.start(self.trial, Payload(b""), NODES)

    def take_sent(self):
        """Return what was sent since the last call: commands by node, and words."""
        sent, self.sent = self.sent, []
        return [(node, one.command if isinstance(one, wire.Order) else one.word) for node, one in sent]

    def ready(self, *nodes):
        for number, node in enumerate(nodes):
            self.groups.hear(node, KEY, wire.NodeReady((4000 + number,)))

    def exit(self, node, how=FINISHED):
        assert self.groups.take(node, Exited(*KEY, how))

    def release(self, *nodes):
        for node in nodes:
            assert self.groups.take(node, Released(*KEY))


@pytest.fixture
def world():
    return World()


@pytest.fixture
def running(world):
    """Return a world in which the ranks of an attempt were made on all nodes."""
    world.ready(*NODES)
    world.take_sent()
    return world


def test_ranks_are_made_when_every_node_is_ready_and_all_learn_the_ports_of_all(world):
    assert [(node, type(command)) for node, command in world.take_sent()] == [(node, Start) for node in NODES]
    world.ready("a", "b")
    assert world.take_sent() == []
    world.groups.hear("c", KEY, wire.NodeReady(()))
    meet = wire.Meet({"a": (4000,), "b": (4001,), "c": ()})
    assert world.take_sent() == [(node, meet) for node in NODES]


def test_the_exit_is_rank_0s_and_comes_when_all_have_ended_the_release_when_all_is_clean(running):
    running.exit("b")
    running.exit("a", Exit(ExitKind.FAILED, error="rank 2: true", peak_rss_bytes=3))
    running.release("a", "b")
    assert running.events == []
    assert running.take_sent() == [("c", END)]
    running.exit("c")
    assert running.events == [Exited(*KEY, Exit(ExitKind.FAILED, error="rank 2: true", peak_rss_bytes=13))]
    running.release("c")
    assert running.events[1:] == [Released(*KEY)]
    assert KEY not in running.groups


def test_answers_go_to_rank_0s_node_and_a_kill_to_all(running):
    running.groups.execute(KEY, Continue(*KEY, 1))
    running.groups.execute(KEY, Stop(*KEY, 2))
    assert running.take_sent() == [("a", Continue(*KEY, 1)), ("a", Stop(*KEY, 2))]
    kill = Kill(*KEY, "too long", ExitKind.TIMEOUT)
    running.groups.execute(KEY, kill)
    running.groups.execute(KEY, kill)
    assert running.take_sent() == [(node, kill) for node in NODES]
    for node in NODES:
        running.exit(node, Exit(ExitKind.TIMEOUT, error="too long"))
    assert running.events == [Exited(*KEY, Exit(ExitKind.TIMEOUT, error="too long"))]


def test_words_go_from_rank_0s_node_to_one_or_all_others_and_back_with_their_node(running):
    running.groups.hear("a", KEY, wire.Relayed("c", 4, "x", 1.0))
    running.groups.hear("a", KEY, wire.Relayed("", -1, "y", 2.0))
    running.groups.hear("b", KEY, wire.Relayed("", 2, "z", 3.0, 0.5))
    assert running.take_sent() == [
        ("c", wire.Relayed("c", 4, "x", 1.0)),
        ("b", wire.Relayed("b", -1, "y", 2.0)),
        ("c", wire.Relayed("c", -1, "y", 2.0)),
        ("a", wire.Relayed("b", 2, "z", 3.0, 0.5)),
    ]


@pytest.mark.parametrize("is_met", [False, True])
def test_a_lost_node_ends_the_others_and_its_name_is_the_error(world, is_met):
    if is_met:
        world.ready(*NODES)
    world.take_sent()
    world.groups.lose("b", "node b was lost: why")
    assert world.take_sent() == [("a", END), ("c", END)]
    world.exit("a", KILLED)
    assert world.events == []
    world.exit("c", KILLED)
    assert world.events == [Exited(*KEY, Exit(ExitKind.NODE_LOST, error="node b was lost: why"))]
    world.release("a", "c")
    assert world.events[1:] == [Released(*KEY)]


def test_of_several_lost_nodes_the_release_waits_for_the_inventory(running):
    for node in NODES:
        running.groups.lose(node, f"node {node} was lost")
    assert running.events == [Exited(*KEY, Exit(ExitKind.NODE_LOST, error="node a was lost"))]
    running.groups.settle()
    assert running.events[1:] == [Released(*KEY)]


def test_a_group_that_had_finished_when_a_node_was_lost_has_finished(running):
    running.groups.lose("c", "node c was lost")
    running.exit("a")
    running.exit("b")
    (exited,) = running.events
    assert exited.exit.kind is ExitKind.FINISHED


def test_a_host_that_is_gone_ends_the_group_as_lost(running):
    running.exit("b", LOST)
    assert running.take_sent() == [("a", END), ("c", END)]
    running.exit("a", KILLED)
    running.exit("c", KILLED)
    assert running.events == [Exited(*KEY, LOST)]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (Stop(*KEY), Exit(ExitKind.STOPPED, error="stopped before it started")),
        (Kill(*KEY, "because"), Exit(ExitKind.KILLED, error="because", signal=9)),
    ],
)
def test_what_is_ended_before_it_began_has_not_started(world, command, expected):
    world.ready("a")
    world.groups.execute(KEY, command)
    world.ready("b", "c")
    assert not any(isinstance(word, wire.Meet) for _, word in world.take_sent())
    for node in NODES:
        world.exit(node, KILLED)
        world.release(node)
    assert world.events == [Exited(*KEY, expected), Released(*KEY)]


def refuse(world):
    """Let the kernel of node b refuse a process, and all nodes give back what they hold."""
    world.groups.hear("b", KEY, wire.Refused(errno.EAGAIN))
    world.exit("b", LOST)
    sent = world.take_sent()
    world.release("b")
    world.exit("a", KILLED)
    world.exit("c", KILLED)
    world.release("a")
    assert world.alarms == []
    world.release("c")
    return sent


@pytest.mark.parametrize("is_met", [False, True])
def test_a_group_that_is_refused_on_one_node_gives_back_all_and_is_tried_again_ever_later(world, is_met):
    pauses = []
    for _ in range(8):
        world.ready(*(NODES if is_met else "ac"))
        world.take_sent()
        assert refuse(world) == [(node, END) for node in NODES]
        assert all(isinstance(event, Waiting) for event in world.events)
        assert "cannot start on b" in world.events[-1].reason
        ((pause_s, again),) = world.alarms
        pauses.append(pause_s)
        world.alarms.clear()
        again()
        assert [(node, type(command)) for node, command in world.take_sent()] == [(node, Start) for node in NODES]
    assert 0.05 <= pauses[0] <= 0.1
    assert 2.5 <= pauses[-1] <= 5.0
    assert len(world.notices) == 1
    world.ready(*NODES)
    assert [type(word) for _, word in world.take_sent()] == [wire.Meet] * 3


@pytest.mark.parametrize("is_waiting", [False, True])
@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (lambda groups: groups.execute(KEY, Kill(*KEY, "because")), ExitKind.KILLED),
        (lambda groups: groups.execute(KEY, Stop(*KEY)), ExitKind.STOPPED),
        (lambda groups: (groups.lose("c", "node c was lost"), groups.settle()), ExitKind.NODE_LOST),
    ],
)
def test_a_refused_group_can_be_ended_before_it_is_tried_again(running, end, kind, is_waiting):
    if is_waiting:
        refuse(running)
        end(running.groups)
        running.alarms.pop()[1]()
    else:
        running.groups.hear("b", KEY, wire.Refused(errno.EAGAIN))
        end(running.groups)
        for node in NODES:
            if node != "c" or kind is not ExitKind.NODE_LOST:
                running.exit(node, KILLED)
                running.release(node)
    exited, released = running.events[1:]
    assert exited.exit.kind is kind
    assert released == Released(*KEY)
    assert not any(isinstance(command, Start) for _, command in running.take_sent())


def test_one_node_that_another_sweep_was_faster_on_declines_the_whole_once_the_others_gave_theirs_back(world):
    world.ready("a")
    world.take_sent()
    assert world.groups.take("b", Declined(*KEY))
    assert world.take_sent() == [("a", END), ("c", END)]
    world.ready("c")
    assert world.take_sent() == []  # nobody meets any more
    for node in ("a", "c"):
        world.exit(node, KILLED)
    world.release("a")
    assert world.events == []
    world.release("c")
    assert world.events == [Declined(*KEY)]
    assert KEY not in world.groups


def test_what_is_killed_while_it_is_being_declined_ends_as_killed(world):
    assert world.groups.take("b", Declined(*KEY))
    world.groups.execute(KEY, Kill(*KEY, "enough"))
    for node in ("a", "c"):
        world.exit(node, KILLED)
    world.release("a", "c")
    assert world.events == [Exited(*KEY, Exit(ExitKind.KILLED, error="enough", signal=9)), Released(*KEY)]
