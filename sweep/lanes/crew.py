"""The process that many trials share: a thread for each, which waits but for its reports, and one that computes.

main thread    all lanes wait ──> steps all at once ──> each thread reports ──> sends it all, takes the answers
lane's thread  run_class, as a trial's process does: setup, step, report, save ... with a session of its own
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping
from queue import Empty, SimpleQueue
from typing import Any

from sweep.core.messages import Kill, Started
from sweep.core.trial import Outcome
from sweep.errors import TrainableError
from sweep.lanes.batch import NoRoom, Pool, Seat
from sweep.lanes.trainable import Lane, program_of
from sweep.record.importing import unpickle
from sweep.worker import adapters, wire
from sweep.worker.channel import ChannelClosed
from sweep.worker.main import DAMAGED, FINISHED, STOPPED, Code, describe
from sweep.worker.session import Session, StopRequested, current, install

START = 32  # lanes where their number is to be found out
_MOST = 4096
_GAIN = 1.2  # by how much twice as many lanes must do more steps per second
_PART = 0.2  # of the free memory: what is doubled may take so much, since computing takes some times as much
_LOOK_S = 0.1  # at messages, while a lane waits for room on a full disk


class _Killed(BaseException):
    """Unwinds a lane's thread whose trial is to end at once."""


class _Member:
    """A lane's thread as the main thread sees it: what its session talks to in place of a socket."""

    def __init__(self, crew: Crew, job: wire.Job) -> None:
        self.job = job
        self.seat: Seat | None = None
        self.is_killed = False
        self.has_started = False
        self.answers: SimpleQueue[Any] = SimpleQueue()
        self.result: SimpleQueue[Any] = SimpleQueue()
        self._crew = crew
        self._next: list[Any] = []

    def send(self, data: bytes) -> None:
        """Hand over what is to be sent."""
        self._crew.outgoing.append(data)

    def receive(self) -> Any:
        """Wait for the answer to a report."""
        answer = self._next.pop() if self._next else self._crew.wait_in("answer", self, self.answers, None)
        if isinstance(answer, Kill):
            raise _Killed
        return answer

    def wait(self, seconds: float) -> bool:
        """Wait for a message, at most so long."""
        if not self._next and (message := self._crew.wait_in("disk", self, self.answers, seconds)) is not None:
            self._next.append(message)
        return bool(self._next)

    def step(self, seat: Seat) -> dict[str, Any]:
        """Wait until the main thread has made the steps of all; return the metrics."""
        self.seat = seat
        result = self._crew.wait_in("step", self, self.result, None)
        if isinstance(result, BaseException):
            raise result
        return dict(result)


class Crew:
    """All lanes of this process."""

    def __init__(self, host: Session, num_lanes: int) -> None:
        """Take over the worker's process.

        Args:
            num_lanes: at a time; 0: as many as is worth it.
        """
        self.outgoing: list[bytes] = []
        self._channel = host.channel
        self._is_growing = num_lanes == 0
        self._most = num_lanes or START
        self._rate = 0.0  # steps of lanes per second, with half as many
        self._num_rounds = 0  # since the number of lanes was changed
        self._members: dict[tuple[str, int], _Member] = {}
        self._waiting: dict[_Member, str] = {}  # for what
        self._num_running = 0
        self._changed = threading.Condition()
        self._code = Code()
        self._pool: Pool | None = None

    # --- of the lanes' threads ---------------------------------------------------------------------------------------

    def wait_in(self, state: str, member: _Member, queue: SimpleQueue[Any], seconds: float | None) -> Any:
        """Have a lane's thread wait for what the main thread puts into a queue; None: that took too long."""
        with self._changed:
            if member.is_killed:
                raise _Killed
            if not queue.empty():  # it came while the thread ran
                return queue.get()
            self._waiting[member] = state
            self._num_running -= 1
            self._changed.notify()
        try:
            return queue.get(timeout=seconds)
        except Empty:
            with self._changed:
                if self._waiting.pop(member, None) is not None:
                    self._num_running += 1
                    return None
            return queue.get()  # it was put there just now

    def _run(self, member: _Member) -> None:
        session = Session(member.job, member)
        try:
            outcome = self._outcome(member, session)
        except ChannelClosed:
            os._exit(1)
        said = wire.LaneDeclined(*member.job.key) if outcome is None else wire.LaneDone(*member.job.key, outcome)
        self.outgoing.append(wire.frame(said))
        with self._changed:
            del self._members[member.job.key]
            self._num_running -= 1
            self._changed.notify()

    def _outcome(self, member: _Member, session: Session) -> Outcome | None:
        """Run the trial of a lane; None: it has not begun, and was declined."""
        job = session.job
        try:
            cls, pool = self._load(job)
            if damage := session.damage():
                return Outcome(DAMAGED, damage)
            own = {"sweep_pool": pool, "sweep_step": member.step, "sweep_seed": job.seed}
            adapters.run_class(session, cls, unpickle(job.config), {**self._code.objects, **own}, self._code.kept)
        except (StopRequested, _Killed):
            return Outcome(STOPPED)
        except NoRoom:
            return None
        except BaseException as error:  # the border to user code: whatever it raises is its outcome
            return describe(error) if not session.is_stopping else Outcome(STOPPED)
        return Outcome(STOPPED if session.is_stopping else FINISHED)

    def _load(self, job: wire.Job) -> tuple[type[Lane], Pool]:
        with self._changed:
            self._code.load(job)
            cls: type[Lane] = self._code.trainable
            if self._pool is None:
                program = program_of(cls.vector)
                self._pool = Pool(cls.vector(), program, self._code.objects, self._most)
            return cls, self._pool

    # --- of the main thread ------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Run lanes until the driver is gone, or the program fails after it has worked."""
        while True:
            with self._changed:
                while self._num_running:
                    self._changed.wait()
                states = set(self._waiting.values())
            self._flush()
            if states != {"step"}:
                self._take_messages(_LOOK_S if "disk" in states else None)
                continue
            self._take_messages(0.0)
            if not self._num_running:
                self._step()

    def _flush(self) -> None:
        data, self.outgoing = self.outgoing, []
        if data:
            self._channel.send(b"".join(data))

    def _take_messages(self, seconds: float | None) -> None:
        if seconds is not None and not self._channel.wait(seconds):
            return
        self._take(self._channel.receive())
        while self._channel.wait(0.0):
            self._take(self._channel.receive())

    def _take(self, message: Any) -> None:
        if isinstance(message, wire.Job):
            member = self._members[message.key] = _Member(self, message)
            with self._changed:
                self._num_running += 1
            threading.Thread(target=self._run, args=(member,), daemon=True).start()
            return
        member_or_none = self._members.get((message.trial_id, message.attempt))
        if member_or_none is None:
            return
        member = member_or_none
        if isinstance(message, Kill):
            member.is_killed = True
            if self._waiting.get(member) == "step":
                self._wake(member, member.result, _Killed())
                return
        self._wake(member, member.answers, message)

    def _wake(self, member: _Member, queue: SimpleQueue[Any], item: Any) -> None:
        """Let a lane's thread go on if it waits in this queue; otherwise it finds the item when it comes there."""
        with self._changed:
            if self._waiting.get(member) in (("step",) if queue is member.result else ("answer", "disk")):
                del self._waiting[member]
                self._num_running += 1
            queue.put(item)

    def _step(self) -> None:
        assert self._pool is not None
        by_seat = {member.seat: member for member in self._waiting}
        began = time.monotonic()
        results: dict[Any, Any] = {}
        for group in list(self._pool.groups.values()):
            mine = [seat for seat in group.trials if seat in by_seat]
            if not mine:
                continue
            most = group.most
            try:
                results |= group.settle()
                self._say_started([by_seat[seat] for seat in mine if seat not in results])
                results |= group.advance()
            except Exception as error:  # the border to user code
                # It works but for something that came up: what goes on is started anew.
                if group.has_advanced and not isinstance(error, TrainableError):
                    raise
                results |= dict.fromkeys(mine, error)
                for seat in mine:
                    seat.leave()
            if group.most < most:
                self._shrink(group.most)
        for seat, result in results.items():
            self._wake(by_seat[seat], by_seat[seat].result, result)
        self._measure(len(results), time.monotonic() - began)

    def _say_started(self, members: Iterable[_Member]) -> None:
        for member in members:
            if not member.has_started:
                member.has_started = True
                self.outgoing.append(wire.frame(Started(*member.job.key, os.getpid())))
        self._flush()

    def _shrink(self, most: int) -> None:
        """Say that memory does not suffice for as many lanes as there were to be."""
        assert self._pool is not None
        self._is_growing = False
        self._most = self._pool.most = max(1, most)
        self.outgoing.append(wire.frame(wire.Room(self._most, "the memory of a process suffices for no more")))

    def _measure(self, number: int, took_s: float) -> None:
        """Have twice as many lanes where the last doubling was worth it, and memory suffices."""
        if not self._is_growing or number < self._most or self._pool is None:
            return
        self._num_rounds += 1
        if self._num_rounds == 1:  # most of it was compiling
            return
        rate, before = number / took_s, self._rate
        groups = list(self._pool.groups.values())
        size = sum(array.nbytes for group in groups for batch in group.batches for array in batch.host().values())
        free = groups[0].program.free_bytes()
        self._is_growing = rate >= _GAIN * before and 2 * self._most <= _MOST and size <= _PART * free
        if self._is_growing:
            self._most, self._rate, self._num_rounds = 2 * self._most, rate, 0
            self._pool.grow(self._most)
            self.outgoing.append(wire.frame(wire.Room(self._most, "")))


def serve(config: Mapping[str, Any]) -> None:
    """Be the process of many lanes: what a worker of the engine runs in place of a trainable.

    Args:
        config: `num_lanes`, of the process; 0: that is found out.
    """
    host = current()
    assert host is not None
    install(None)  # a report() in the user's functions is of no trial
    try:
        Crew(host, config["num_lanes"]).serve()
    except ChannelClosed:
        os._exit(0)
