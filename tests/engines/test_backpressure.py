"""Who waits where the kernel refuses: in which order, with how many alarms, and what is said."""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace

import pytest

from sweep.engines.local.backpressure import Backpressure


class World:
    """A kernel that allows `most` attempts at a time, and a clock that goes from alarm to alarm."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.placed: list[int] = []
        self.tried: list[int] = []
        self.told: dict[int, list[str]] = {}
        self.notices: list[str] = []
        self.alarms: list[tuple[float, object]] = []
        self.num_rooms = 0
        self.backpressure = Backpressure(
            self,  # type: ignore[arg-type]
            place=self._place,
            make_room=self._make_room,
            num_placed=lambda: len(self.placed),
            explain=lambda attempt, text: self.told.setdefault(attempt.number, []).append(text),
            notice=self.notices.append,
        )

    def alarm(self, after_s, action):
        self.alarms.append((after_s, action))

    def ring(self) -> float:
        """Have the only alarm go off; return its pause."""
        ((pause_s, action),) = self.alarms
        self.alarms.clear()
        action()
        return pause_s

    def start(self, *tokens: int) -> None:
        for token in tokens:
            self.backpressure.admit(SimpleNamespace(number=token, refusal=""))

    def end(self, token: int) -> None:
        self.placed.remove(token)
        self.backpressure.on_room()

    def _place(self, attempt) -> None:
        self.tried.append(attempt.number)
        if len(self.placed) >= self.most:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        self.placed.append(attempt.number)

    def _make_room(self) -> None:
        self.num_rooms += 1


def test_however_many_wait_there_is_one_alarm_and_only_the_first_is_tried():
    world = World(most=2)
    world.start(*range(40))
    assert world.tried == [0, 1, 2]
    assert len(world.alarms) == 1
    for _ in range(10):
        world.tried.clear()
        world.ring()
        assert world.tried == [2]
        assert len(world.alarms) == 1


def test_the_pause_doubles_while_all_are_refused_up_to_five_seconds():
    world = World(most=1)
    world.start(0, 1)
    assert [world.ring() for _ in range(9)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]


def test_where_nothing_runs_it_is_at_most_a_second():
    world = World(most=0)
    world.start(0)
    assert [world.ring() for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_an_end_lets_the_first_in_at_once_in_the_order_of_their_starts():
    world = World(most=2)
    world.start(0, 1, 2, 3, 4)
    world.end(0)
    world.end(1)
    assert world.placed == [2, 3]


def test_when_there_is_room_again_one_more_is_tried_every_tenth_of_a_second():
    world = World(most=1)
    world.start(*range(5))
    world.most = 100
    assert [world.ring() for _ in range(5)] == [0.1, 0.2, 0.1, 0.1, 0.1]
    assert len(world.placed) == 5
    assert world.alarms == []


def test_those_that_are_refused_later_take_their_old_place_and_the_pause_goes_on():
    """A worker is refused in its supervisor, after the driver has given the attempt a slot."""
    world = World(most=3)
    world.start(0, 1, 2)
    late = SimpleNamespace(number=1, refusal="")
    world.placed.remove(1)
    world.backpressure.refuse(late, OSError(errno.EAGAIN, ""))
    world.start(3)
    world.most = 2
    pauses = [world.ring() for _ in range(3)]
    assert pauses == [0.1, 0.2, 0.4]
    world.end(0)
    assert world.placed == [2, 1]


def test_everybody_who_waits_is_told_how_many_run_and_the_user_once():
    world = World(most=3)
    world.start(*range(6))
    world.ring()
    world.ring()
    texts = [told[-1] for told in world.told.values()]
    assert len(set(texts)) == 1
    assert texts[0].startswith("at most 3 at once: processes")
    assert all(len(told) <= 2 for told in world.told.values())
    (notice,) = world.notices
    assert notice.startswith("at most 3 trials run at once: the kernel allows no more processes")


def test_that_nothing_can_be_started_is_said_when_it_lasts():
    world = World(most=0)
    world.start(0, 1)
    while world.ring() < 0.8:
        told = list(world.notices)
    assert told == []
    (notice,) = world.notices
    assert notice.startswith("no trial can be started: the kernel allows no more processes")
    assert world.told[1][-1].startswith("cannot start: processes")


def test_an_attempt_that_is_over_is_forgotten():
    world = World(most=1)
    world.start(0)
    gone = SimpleNamespace(number=1, refusal="")
    world.backpressure.admit(gone)
    world.backpressure.forget(gone)
    world.backpressure.forget(gone)
    world.end(0)
    assert world.placed == []


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.EMFILE, "descriptors (ulimit -n "),
        (errno.ENFILE, "descriptors of the whole machine"),
        (errno.EAGAIN, "processes"),
        (errno.ENOMEM, "memory for processes"),
        (errno.ETOOMANYREFS, "descriptors (ulimit -n"),
        (errno.EADDRINUSE, "Address already in use"),
    ],
)
def test_what_is_short_is_named_with_its_limit(number, says):
    world = World(most=0)
    world.backpressure.refuse(SimpleNamespace(number=0, refusal=""), OSError(number, os.strerror(number)))
    assert world.told[0][0].startswith(f"waits for {says}")
