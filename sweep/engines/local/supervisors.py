"""The processes that attempts run in, as the driver sees them: a fork server, and a supervisor for each slot."""

from __future__ import annotations

import contextlib
import errno
import itertools
import signal
import socket
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from sweep.core.messages import Kill, Waiting
from sweep.core.resources import Resources
from sweep.core.trial import Outcome, Trial
from sweep.engines.base import EngineContext
from sweep.engines.link import Link
from sweep.engines.local.fork_server_client import PRELOADED, ForkServerClient, cache, fork_server_for
from sweep.engines.local.processes import await_end, send
from sweep.engines.loop import Loop, LoopEngine
from sweep.record.layout import ExperimentLayout
from sweep.worker import limits, wire
from sweep.worker.channel import Packets

Key = tuple[Resources, tuple[tuple[str, str], ...]]
"""What a reused worker must have in common with a trial: request and devices."""


@dataclass(slots=True, eq=False)
class Attempt:
    """One start of a trial, from `Start` to `Released`.

    Attributes:
        number: counts the attempts of an engine.
        outcome: the worker's last word.
        pids: of the worker, or of the ranks, once they have started.
        kill: the command that is to end it.
        is_stopping: a Stop was sent.
        refusal: why the kernel does not allow it to run so far, as was said last.
        is_multi_node: it is a group with ranks on other machines, too: the driver says when all may start.
    """

    number: int
    trial: Trial
    slot: Slot | None = None
    outcome: Outcome | None = None
    pids: tuple[int, ...] = ()
    has_reported: bool = False
    kill: Kill | None = None
    is_stopping: bool = False
    refusal: str = ""
    is_multi_node: bool = False

    @property
    def key(self) -> tuple[str, int]:
        """Return the trial's id and the number of the attempt."""
        return self.trial.id, self.trial.attempt

    def is_told_by(self, event: wire.WorkerEvent) -> bool:
        """Whether an event is of this attempt."""
        return event.trial_id == self.trial.id and getattr(event, "attempt", self.trial.attempt) == self.trial.attempt

    @property
    def link(self) -> Link | None:
        """Return the link to its worker, once that is being made."""
        return None if self.slot is None else self.slot.link


@dataclass(slots=True, eq=False)
class Slot:
    """One supervisor and what runs under it.

    Attributes:
        life: the socket to the supervisor; what the supervisor has left behind may still run when it is closed.
        pid: of the supervisor, 0 until it has said hello.
        attempt: that it runs, or that waits for it to say hello.
        link: to its worker, which a reused one keeps between attempts.
        held: the trial whose devices an idle reused worker uses, or one that was ended, until they are clean.
        is_ending: its worker is to end, and runs nothing more.
    """

    number: int
    life: Packets
    fork_server: ForkServerClient
    pid: int = 0
    attempt: Attempt | None = None
    link: Link | None = None
    held: Trial | None = None
    is_ending: bool = False

    @property
    def is_dead(self) -> bool:
        """Whether the socket to the supervisor is closed."""
        return not self.life.is_open

    @property
    def is_idle(self) -> bool:
        """Whether a reused worker waits here."""
        return self.link is not None and self.attempt is None and not self.is_ending and not self.is_dead

    def tell(self, message: wire.ToSupervisor, descriptors: Sequence[int] = ()) -> None:
        """Send a message to the supervisor; one that is gone or stopped is found out elsewhere."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            self.life.send(message, descriptors)

    def end_tree(self) -> None:
        """Have the worker, or the group, ended; the supervisor says when it is gone with all that it has started."""
        if not self.is_ending:
            self.is_ending = True
            self.tell(wire.EndTree())

    def drop_link(self, loop: Loop) -> None:
        """Close the socket to the worker, which is gone."""
        if self.link is not None:
            loop.ignore(self.link.socket.fileno())
            self.link.close()
        self.link, self.is_ending = None, False


def key_of(trial: Trial) -> Key:
    """Return what a reused worker must have in common with a trial."""
    return (trial.resources, trial.placement.placed_devices if trial.placement is not None else ())


_SLOT_FILES = 4  # life and data socket, and their other ends for a moment


class SlotEngine(LoopEngine):
    """An engine with a fork server, and a supervisor for each slot; what they say of attempts is for who derives."""

    def __init__(self, context: EngineContext) -> None:
        super().__init__(context.start_at)
        self.notices: list[str] = []
        self._context = context
        self._say = context.notice or self.notices.append
        self._layout = ExperimentLayout(context.directory.absolute())
        self._environ: Mapping[str, str] = {}  # the variables that trials start from
        self._locks: tuple[int, ...] = ()  # descriptors that every supervisor holds
        self._attempts: dict[tuple[str, int], Attempt] = {}
        self._slots: dict[int, Slot] = {}  # by number
        self._fork_server: ForkServerClient | None = None
        self._has_import_crashed = False  # then trials import for themselves
        self._numbers = itertools.count(1)
        self._most_busy = 0  # slots at a time

    @abstractmethod
    def _on_supervisor(self, slot: Slot, message: wire.FromSupervisor | wire.Gone) -> None:
        """Take in what a supervisor says. The last is `Gone`: with all that it had left behind, or no fork server is
        there to say so, and then what can be found is to be ended."""

    @abstractmethod
    def _refuse(self, attempt: Attempt, errno: int) -> None:
        """An attempt gets no supervisor."""

    @abstractmethod
    def _on_imported(self, num_threads: int, modules: Sequence[str]) -> None:
        """It has imported all, which started so many threads."""

    @cached_property
    def _modules(self) -> tuple[str, ...]:
        modules = tuple(dict.fromkeys((*self._context.preload, *self._context.trainable.imports)))
        if any(name.startswith("sweep.train.") for name in modules):
            modules = (*modules, "sweep.engines.local.group", "sweep.worker.rank")
        return modules

    def _start_fork_server(self) -> ForkServerClient:
        """Start a fork server, or take the one that an earlier run of this process has left.

        Raises:
            OSError: the kernel allows no process or descriptor.
        """
        modules = () if self._has_import_crashed or self._context.start_method == "spawn" else self._modules
        directory = str(self._context.directory.absolute())
        run = wire.Begin(directory, (*PRELOADED, *modules), self._context.reuse_actors)
        log = self._layout.code / (f"fork-server-{self._context.node}.log" if self._context.node else "fork-server.log")
        fork_server = fork_server_for(self._environ, run, log, self._locks)
        self._fork_server = fork_server
        for descriptor in (fork_server.packets.socket.fileno(), fork_server.pidfd):
            self._loop.listen(descriptor, lambda: self._on_fork_server(fork_server))
        return fork_server

    def _free_slot(self) -> Slot | None:
        """Return a slot without an attempt and worker; None: there is none.

        An idle worker, which is for another request, is ended where there were more workers than ever run at a time.
        """
        living = [slot for slot in self._slots.values() if not slot.is_dead]
        num_busy = 1 + sum(slot.attempt is not None for slot in living)
        self._most_busy = max(self._most_busy, num_busy)
        idle = [slot for slot in living if slot.is_idle]
        if idle and num_busy + len(idle) > self._most_busy:
            idle[0].end_tree()
        return next((slot for slot in living if slot.attempt is None and slot.link is None), None)

    def _new_slot(self) -> Slot:
        """Have a supervisor made, which says hello when it is there.

        Raises:
            OSError: the kernel allows no process or descriptor.
        """
        taken = [slot.link is None for slot in self._slots.values() if slot.attempt is not None]
        if taken:
            limits.keep_reserve(_SLOT_FILES + sum(taken))  # those that have no link yet will need one
        fork_server = self._fork_server or self._start_fork_server()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            slot = Slot(next(self._numbers), Packets(ours), fork_server)
            fork_server.packets.send(wire.ForkSupervisor(slot.number), [theirs.fileno()])
        except OSError as error:
            ours.close()
            if isinstance(error, BlockingIOError):
                raise OSError(errno.ENOBUFS, "requests to the process that forks, which is busy") from None
            raise
        finally:
            theirs.close()
        self._slots[slot.number] = slot
        self._loop.listen(ours.fileno(), lambda: self._on_life(slot))
        return slot

    def _give_up_idle(self) -> None:
        """End the supervisors that nothing needs now; when there is no attempt in any, one stays for the next."""
        living = [slot for slot in self._slots.values() if not slot.is_dead]
        idle = [slot for slot in living if slot.attempt is None and not slot.is_ending]
        for slot in idle[1:] if len(idle) == len(living) else idle:
            if slot.link is not None:
                slot.end_tree()  # its devices must be clean before they are granted again
                continue
            self._loop.ignore(slot.life.socket.fileno())
            slot.life.close()
            if not slot.fork_server.is_alive:  # nothing would say that it is gone
                self._bury(slot)

    def _retire_idle(self) -> None:
        """End the idle reused workers, for what they hold."""
        for slot in self._slots.values():
            if slot.is_idle:
                slot.end_tree()

    def _wake_all(self) -> None:
        """Have fork servers and supervisors go on that somebody has stopped (SIGSTOP): they are to end."""
        for slot in self._slots.values():
            slot.fork_server.wake()
            if slot.pid and not slot.is_dead:
                send(signal.SIGCONT, slot.pid)

    def _end_supervisor(self, slot: Slot) -> None:
        """End a supervisor that does not react, for instance because it was stopped (SIGSTOP)."""
        slot.fork_server.wake()
        if slot.pid:
            send(signal.SIGKILL, slot.pid)

    def _end_all(self, *, is_in_order: bool) -> None:
        """End everything, and return when it is gone; where all was in order the fork server may be cached."""
        orphans = []
        for slot in self._slots.values():
            if slot.link is not None:
                slot.link.socket.close()
            slot.life.close()
            if slot.pid and not slot.fork_server.is_alive:
                orphans.append(slot.pid)
        fork_server = self._fork_server
        if fork_server is not None:
            if is_in_order and fork_server.rest():
                cache(fork_server)
            else:
                fork_server.close()
        for pid in orphans:
            await_end(pid)
        self._slots.clear()

    def _on_life(self, slot: Slot) -> None:
        for message in slot.life.receive_all():
            self._on_supervisor(slot, message)
        if slot.is_dead and slot.number in self._slots:
            self._loop.ignore(slot.life.socket.fileno())
            if not slot.fork_server.is_alive:
                self._bury(slot)
            # otherwise the fork server says when everything that it left behind is gone

    def _bury(self, slot: Slot, status: int | None = None) -> None:
        for message in slot.life.receive_all():
            self._on_supervisor(slot, message)
        self._loop.ignore(slot.life.socket.fileno())
        slot.life.close()
        del self._slots[slot.number]
        self._on_supervisor(slot, wire.Gone(slot.number, status))

    def _on_fork_server(self, fork_server: ForkServerClient) -> None:
        for message in fork_server.packets.receive_all():
            match message:
                case wire.Importing(module):
                    fork_server.importing = module
                    for attempt in self._attempts.values():
                        if attempt.link is None:
                            self._say_importing(attempt, module)
                case wire.Notice(text):
                    self._say(text)
                case wire.Ready(num_threads):
                    fork_server.importing = None
                    self._on_imported(num_threads - 1, self._modules)
                case wire.Gone(number, status) if number in self._slots:
                    self._bury(self._slots[number], status)
                case wire.Refused(errno, number) if number in self._slots:
                    slot = self._slots[number]
                    refused, slot.attempt = slot.attempt, None
                    self._bury(slot)
                    if refused is not None:
                        self._refuse(refused, errno)
        if not fork_server.is_alive:
            self._on_fork_server_gone(fork_server)

    def _say_importing(self, attempt: Attempt, module: str) -> None:
        self._events.append(Waiting(attempt.trial.id, f"importing {module}"))

    def _on_fork_server_gone(self, fork_server: ForkServerClient) -> None:
        """Trials go on without their fork server; another is started when the next supervisor is needed."""
        for descriptor in (fork_server.packets.socket.fileno(), fork_server.pidfd):
            self._loop.ignore(descriptor)
        how = fork_server.close()
        while_importing = ""
        if fork_server.importing:
            self._has_import_crashed = True
            while_importing = f" while importing {fork_server.importing}; trials import for themselves now"
        self._say(f"the process that imports modules in advance ended ({how}){while_importing}")
        if self._fork_server is fork_server:
            self._fork_server = None
        for slot in [slot for slot in self._slots.values() if slot.fork_server is fork_server]:
            if slot.is_dead or not slot.pid:
                self._bury(slot)
