"""The engine that runs trials in processes of this machine: driver, zygote, a host per slot, a worker per attempt."""

from __future__ import annotations

import itertools
import os
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any

from sweep.accelerators.meter import read_placed
from sweep.core.messages import (
    Continue,
    Event,
    Exit,
    Exited,
    ExitKind,
    Kill,
    Released,
    Reported,
    Save,
    Saved,
    Start,
    Started,
    Stop,
    Tick,
    Waiting,
)
from sweep.core.resources import Node
from sweep.engines import host, zygote
from sweep.engines.base import Engine, EngineCommand, EngineContext
from sweep.engines.exits import classify, num_oom_kills
from sweep.engines.handover import HandOver
from sweep.engines.hangs import HANG_S, LockWatch
from sweep.engines.jobs import JobMaker
from sweep.engines.link import Link
from sweep.engines.loop import Loop
from sweep.engines.nursery import Nursery, own_path
from sweep.engines.processes import await_end, end_marked
from sweep.engines.release import Releases
from sweep.engines.scarcity import Scarcity
from sweep.engines.silence import Silences
from sweep.engines.slots import Attempt, Slot, free_slot, key_of, unneeded
from sweep.errors import ConfigError
from sweep.record.layout import ExperimentLayout
from sweep.worker import environment, limits, wire
from sweep.worker.output import OUTPUT_NAME
from sweep.worker.parameters import store_objects
from sweep.worker.rendezvous import close_ports
from sweep.worker.shipping import store_code

__all__ = ["LocalEngine"]

_GATHERS = 4  # looks at what arrived meanwhile, before a batch is handed out
_KILL_GRACE_S = 2.0  # a host that has not carried out a Kill by then is killed itself
_NOT_STARTED = "stopped before it started"
_SLOT_FILES = 4  # life and data socket, and their other ends for a moment


class LocalEngine(Engine):
    """Run each attempt in a fresh process forked from one that has imported what it needs.

    Which process does what, who ends whom, and what happens when one dies: docs/explanation/processes.md. All of
    this happens on the thread that calls `next_events`; only `post` may be called from elsewhere.
    """

    def __init__(self, context: EngineContext, *, hand_over: HandOver | None = None, hang_s: float = HANG_S) -> None:
        """Store the trainable in the experiment and start the zygote.

        Args:
            hand_over: decides when a GPU is clean; None: by its memory, as NVIDIA's driver tells it.
            hang_s: how long a trial may do nothing before its first report, until it is said what may be the reason.

        Raises:
            ConfigError: an unknown start method, or a system other than Linux.
            ResourceError: the kernel allows not even the first process.
            TrainableError: objects given by `with_parameters` cannot be stored.
        """
        trainable = context.trainable
        if context.start_method not in ("zygote", "spawn"):
            raise ConfigError(f"start_method is {context.start_method!r}; expected 'zygote' or 'spawn'.")
        if sys.platform != "linux":
            raise ConfigError(
                f"the local engine needs Linux, this is {sys.platform}: no other system can end a trial's processes "
                "reliably. Use engine='inline', or run on Linux."
            )
        self.notices: list[str] = []
        self._say = context.notice or self.notices.append
        self._context = context
        self._layout = ExperimentLayout(context.directory.absolute())
        self._directory = str(self._layout.root)
        self._nodes = tuple(context.nodes)
        self._began = time.monotonic()
        self._is_reusing = context.reuse_actors
        self._is_spawning = context.start_method == "spawn"
        self._outputs = tuple(dict.fromkeys(context.log_to_file or (OUTPUT_NAME,)))
        self._modules = tuple(dict.fromkeys((*context.preload, *trainable.imports)))
        if any(name.startswith("sweep.train.") for name in self._modules):
            self._modules = (*self._modules, "sweep.engines.group", "sweep.worker.rank")
        self._path = own_path()
        self._layout.code.mkdir(parents=True, exist_ok=True)
        self._jobs = JobMaker(
            context,
            code=store_code(trainable.payload, self._layout.code),
            objects=store_objects(trainable.objects, self._layout.code) if trainable.objects else "",
        )

        self._events: list[Event] = []
        self._attempts: dict[tuple[str, int], Attempt] = {}
        self._waiting: list[Attempt] = []  # for idle workers to be ended
        self._slots: dict[int, Slot] = {}
        self._tokens = itertools.count(1)
        self._numbers = itertools.count(1)
        self._oom_kills = num_oom_kills()
        self._nursery: Nursery | None = None
        self._has_import_crashed = False  # then trials import for themselves, and fail one by one
        self._is_closed = False
        self._loop = Loop()
        self.waker = self._loop.waker
        self._locks = LockWatch(hang_s, self._loop, lambda: self._attempts.values(), lambda text: self._say(text))
        self._silences = Silences(  # the host of a group watches its ranks
            None if self._jobs.is_group else context.report_timeout_s,
            self._loop,
            log_of=lambda attempt: self._layout.trial(attempt.trial_id) / self._outputs[-1],
            kill=lambda attempt, reason: self._kill(attempt, reason, ExitKind.HUNG),
        )
        self._scarcity = Scarcity(
            self._loop,
            place=self._place,
            make_room=self._give_up_idle,
            num_placed=lambda: sum(attempt.slot is not None for attempt in self._attempts.values()),
            explain=lambda attempt, reason: self._events.append(Waiting(attempt.trial_id, reason)),
            notice=lambda text: self._say(text),
        )
        self._limits = limits.Raised()
        self._releases = Releases(
            self._nodes,
            hand_over
            or HandOver(read_placed, devices=[(node.id, device) for node in self._nodes for device in node.devices]),
            self._loop,
            emit=lambda event: self._events.append(event),
            notice=lambda text: self._say(text),
        )
        try:
            self._start_nursery()
        except OSError as error:
            self.close()
            raise limits.refusal(error) from error
        except BaseException:
            self.close()
            raise

    # --- the contract ----------------------------------------------------------------------------------------------

    def nodes(self) -> Sequence[Node]:
        """Return the inventory."""
        return self._releases.nodes

    def now(self) -> float:
        """Return seconds of driving since the sweep first began."""
        return self._context.start_at + time.monotonic() - self._began

    def execute(self, command: EngineCommand) -> None:
        """Begin to carry out a command; commands to attempts that are gone are ignored."""
        if self._is_closed:
            return
        if isinstance(command, Start):
            attempt = Attempt(next(self._tokens), command.trial)
            self._attempts[attempt.trial_id, attempt.attempt] = attempt
            self._scarcity.admit(attempt)
            return
        known = self._attempts.get((command.trial_id, command.attempt))
        if known is None:
            return
        match command:
            case Continue(seq=seq):
                self._answer(known, wire.CONTINUE, seq)
            case Save(seq=seq):
                self._answer(known, wire.SAVE, seq)
            case Stop(seq=seq, save=save):
                known.is_stopping = True
                if known.link is None:
                    self._finish(known, Exit(ExitKind.STOPPED, error=_NOT_STARTED))
                else:
                    self._answer(known, wire.STOP, seq, save)
            case Kill(reason=reason, kind=kind):
                self._kill(known, reason, kind)

    def next_events(self, deadline: float | None) -> Sequence[Event]:
        """Wait until something happened, and return all that did; `[Tick()]` at the deadline."""
        while True:
            timeout = 0.0 if self._events else None if deadline is None else max(0.0, deadline - self.now())
            self._loop.run_once(timeout)
            self._events += self._loop.take_posted()
            if self._events:
                self._gather()
                events, self._events = self._events, []
                return events
            if deadline is not None and self.now() >= deadline:
                return [Tick()]

    def _gather(self) -> None:
        """Take in what arrived meanwhile, without waiting: the more events share a commit, the less each costs."""
        for _ in range(_GATHERS):
            before = len(self._events)
            self._loop.run_once(0.0)
            if len(self._events) == before:
                return

    def post(self, event: Event) -> None:
        """Hand in an event from a signal handler or another thread."""
        self._loop.post(event)

    def close(self) -> None:
        """End everything that was started, and return when it is gone."""
        if self._is_closed:
            return
        self._is_closed = True
        orphans = []
        for slot in self._slots.values():
            if slot.link is not None:
                slot.link.socket.close()
            slot.life.close()
            if slot.pid and not slot.nursery.is_alive:
                orphans.append(slot.pid)
        if self._nursery is not None:
            self._nursery.close()
        for pid in orphans:
            await_end(pid)
        self._slots.clear()
        self._attempts.clear()
        self._loop.close()
        self._limits.close()

    # --- starting ----------------------------------------------------------------------------------------------------

    def _start_nursery(self) -> Nursery:
        is_importing = not (self._is_spawning or self._has_import_crashed)
        setup = zygote.Setup(
            path=self._path,
            modules=self._modules if is_importing else (),
            is_reusing=self._is_reusing,
            is_importing=not self._is_spawning,
            driver_pid=os.getpid(),
            num_files=limits.users_limit(),
        )
        nursery = Nursery(
            setup,
            directory=self._layout.root,
            log=self._layout.code / "zygote.log",
            environ=self._jobs.environ,
            lock_fd=self._context.lock_fd,
        )
        self._nursery = nursery
        self._loop.listen(nursery.socket.fileno(), lambda: self._on_nursery(nursery))
        return nursery

    def _place_waiting(self) -> None:
        for attempt in [one for one in self._waiting if not one.blockers]:
            self._waiting.remove(attempt)
            self._scarcity.admit(attempt)

    def _place(self, attempt: Attempt) -> None:
        """Give an attempt a slot; raises OSError when descriptors or processes are short: the trial is not to blame."""
        if self._is_reusing and not self._jobs.is_group and self._place_warm(attempt):
            return
        slot = self._free_slot()
        if slot is None:
            slot = self._new_slot()
        slot.attempt = attempt
        attempt.slot = slot
        if slot.pid:
            try:
                self._send_start(slot, attempt)
            except OSError:
                slot.attempt = attempt.slot = None
                raise
        elif slot.nursery.importing and not slot.nursery.is_ready:
            self._events.append(Waiting(attempt.trial_id, f"importing {slot.nursery.importing}"))

    def _place_warm(self, attempt: Attempt) -> bool:
        """Hand an attempt to an idle worker that fits, or have those ended that hold its devices; False: neither."""
        key = key_of(attempt.trial)
        blockers = []
        devices = set(key[1])
        for slot in self._slots.values():
            if slot.is_dead or not slot.is_idle:
                continue
            if slot.key == key and not slot.is_retiring:
                slot.attempt, attempt.slot = attempt, slot
                self._send_job(attempt, slot.link)
                return True
            if devices and devices & set(slot.key[1]):
                blockers.append(slot)
        if not blockers:
            return False
        for slot in blockers:
            self._retire(slot)
        attempt.blockers = {slot.number for slot in blockers}
        self._waiting.append(attempt)
        return True

    def _retire(self, slot: Slot) -> None:
        if not slot.is_retiring:
            slot.is_retiring = True
            slot.tell(host.RETIRE)

    def _free_slot(self) -> Slot | None:
        slot = free_slot(self._slots.values())
        if slot is not None and slot.link is not None:
            # An idle worker for another request: the host ends it first, because it reads its messages in order.
            self._retire(slot)
            self._drop_link(slot)
        return slot

    def _give_up_idle(self) -> None:
        """End the hosts that nothing needs now: they see that their sockets are closed."""
        for slot in unneeded(self._slots.values()):
            if slot.link is not None:
                self._retire(slot)  # its devices must be clean before they are granted again
                continue
            self._loop.ignore(slot.life.fileno())
            slot.life.close()
            slot.is_dead = True
            if not slot.nursery.is_alive:  # nobody would say that it is gone
                self._bury(slot)

    def _new_slot(self) -> Slot:
        taken = [slot.link is None for slot in self._slots.values() if slot.attempt is not None]
        if taken:
            limits.keep_reserve(_SLOT_FILES + sum(taken))  # those that have no link yet will need one
        nursery = self._nursery or self._start_nursery()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            slot = Slot(next(self._numbers), ours, nursery)
            nursery.ask_for_host(slot.number, theirs)
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self._slots[slot.number] = slot
        self._loop.listen(ours.fileno(), lambda: self._on_host(slot))
        return slot

    def _send_start(self, slot: Slot, attempt: Attempt) -> None:
        """Have the host make a worker, and give it its job."""
        is_group = self._jobs.is_group
        ports = self._jobs.open_ports(attempt.trial) if is_group else []
        try:
            ours, theirs = socket.socketpair()
        except OSError:
            close_ports(ports)
            raise
        try:
            if is_group:
                descriptors = (theirs.fileno(), *(port.holder.fileno() for port in ports))
                slot.tell(host.START_GROUP, attempt.token, len(descriptors), descriptors=descriptors)
            else:
                logs = tuple(str(self._layout.trial(attempt.trial_id) / name) for name in self._outputs)
                start = (host.START, attempt.token, logs, self._context.log_limit_bytes, self._is_spawning)
                slot.tell(*start, descriptors=(theirs.fileno(),))
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
            numbers = [port.number for port in ports]
            close_ports(ports)
        link = Link(ours, self._on_full)
        self._loop.listen(ours.fileno(), lambda: self._on_link(link))
        slot.link, slot.born, slot.key = link, attempt.token, key_of(attempt.trial)
        if is_group:
            self._send_group(attempt, link, numbers)
            return
        if self._is_spawning:
            link.send(wire.frame((wire.JOB, self._path)))
        self._send_job(attempt, link)

    def _send_group(self, attempt: Attempt, link: Link, ports: Sequence[int]) -> None:
        attempt.link = link
        link.attempt = attempt
        path = self._path if self._is_spawning else ()
        job = self._jobs.make_group(attempt.token, attempt.trial, ports, path=path)
        link.send(wire.frame((wire.GROUP, tuple(job))))

    def _send_job(self, attempt: Attempt, link: Link | None) -> None:
        assert link is not None
        attempt.link = link
        link.attempt = attempt
        link.send(wire.frame((wire.JOB, tuple(self._jobs.make(attempt.token, attempt.trial)))))

    # --- answers and ends --------------------------------------------------------------------------------------------

    def _answer(self, attempt: Attempt, kind: int, seq: int, save: bool = False) -> None:
        is_over = kind == wire.STOP  # how long the end may take is the sweep's to say
        (self._silences.rest if is_over else self._silences.watch)(attempt)
        if attempt.link is not None:
            attempt.link.send(wire.frame((kind, attempt.token, seq, save)))

    def _kill(self, attempt: Attempt, reason: str, kind: ExitKind = ExitKind.KILLED) -> None:
        if attempt.is_killed:
            return
        attempt.is_killed, attempt.kill_reason, attempt.kill_kind = True, reason, kind
        slot = attempt.slot
        if slot is None or attempt.link is None:
            self._finish(attempt, classify(None, 0, is_killed_by_us=True, kill_reason=reason, kill_kind=kind))
            return
        slot.tell(host.KILL, attempt.token)
        self._loop.alarm(_KILL_GRACE_S, lambda: self._kill_host_of(attempt))

    def _kill_host_of(self, attempt: Attempt) -> None:
        """End a host that does not carry out a Kill, for instance because it was stopped."""
        slot = attempt.slot
        if (attempt.trial_id, attempt.attempt) not in self._attempts or slot is None or slot.is_dead:
            return
        if slot.nursery.is_alive:
            slot.nursery.end_host(slot.number)
        elif slot.pid:
            await_end(slot.pid, patience_s=0)

    def _finish(self, attempt: Attempt, exit: Exit) -> None:
        """The attempt is over and its processes are gone: say so."""
        del self._attempts[attempt.trial_id, attempt.attempt]
        self._silences.rest(attempt)
        if attempt in self._waiting:
            self._waiting.remove(attempt)
        self._scarcity.forget(attempt)
        if attempt.slot is not None:
            attempt.slot.attempt = None
        self._events.append(Exited(attempt.trial_id, attempt.attempt, exit))
        if attempt.slot is not None and attempt.slot.link is not None:  # its worker stays, idle, with its memory
            self._events.append(Released(attempt.trial_id, attempt.attempt))
        else:
            self._releases.release(attempt.trial, [other.trial for other in self._attempts.values()])
        if attempt.slot is not None:
            self._scarcity.on_room()

    def _finish_with_status(self, attempt: Attempt, status: int | None, peak: int = 0) -> None:
        has_oom_kill = False
        if attempt.outcome is None and status is not None and os.WIFSIGNALED(status) and not attempt.is_killed:
            before, self._oom_kills = self._oom_kills, num_oom_kills()
            has_oom_kill = self._oom_kills > before
        self._finish(
            attempt,
            classify(
                attempt.outcome,
                status,
                peak_rss_bytes=peak,
                is_killed_by_us=attempt.is_killed,
                kill_reason=attempt.kill_reason,
                kill_kind=attempt.kill_kind,
                has_oom_kill=has_oom_kill,
            ),
        )

    # --- hearing -----------------------------------------------------------------------------------------------------

    def _on_link(self, link: Link) -> None:
        self._on_worker(link, link.receive())
        if not link.is_open:
            self._loop.ignore(link.socket.fileno())  # how it ended comes from the host

    def _on_worker(self, link: Link, messages: list[tuple[Any, ...]]) -> None:
        attempt = link.attempt
        for message in messages:
            if attempt is None or message[1] != attempt.token:
                continue
            kind = message[0]
            if kind == wire.REPORT:
                attempt.has_reported = True
                self._silences.rest(attempt)
                self._events.append(Reported(attempt.trial_id, attempt.attempt, message[2], message[3], message[4]))
            elif kind == wire.STARTED:
                attempt.pids = attempt.pids or (message[2],)
                self._silences.watch(attempt)
                self._events.append(Started(attempt.trial_id, attempt.attempt, message[2]))
            elif kind == wire.SAVED:
                self._events.append(Saved(attempt.trial_id, attempt.attempt, message[2], message[3]))
            elif kind == wire.DONE:
                attempt.outcome = message[2:]
            elif kind == wire.PIDS:
                attempt.pids = tuple(message[2])
            elif kind == wire.WAITING:
                (self._silences.rest if message[2] else self._silences.watch)(attempt)
                self._events.append(Waiting(attempt.trial_id, message[2]))

    def _on_full(self, link: Link, is_full: bool) -> None:
        self._loop.await_writable(link.socket.fileno(), link.flush if is_full else None)

    def _drop_link(self, slot: Slot) -> None:
        link, slot.link, slot.key = slot.link, None, None
        if link is not None:
            self._loop.ignore(link.socket.fileno())
            link.socket.close()
            link.is_open = False

    def _drain(self, slot: Slot) -> None:
        """Take what the worker wrote before it ended or became idle: no exit may overtake the last report."""
        if slot.link is not None:
            self._on_worker(slot.link, slot.link.drain())

    def _on_host(self, slot: Slot) -> None:
        for message in slot.hear():
            self._on_host_message(slot, message)
        if slot.is_dead and slot.number in self._slots:
            self._loop.ignore(slot.life.fileno())
            if not slot.nursery.is_alive:
                self._bury(slot)
            # otherwise the zygote says when everything that it left behind is gone

    def _on_host_message(self, slot: Slot, message: tuple[Any, ...]) -> None:
        attempt = slot.attempt
        match message:
            case (host.HELLO, pid):
                slot.pid = pid
                if attempt is not None:
                    self._start_in(slot, attempt)
            case (host.EXIT, born, status, peak, _):
                if born != slot.born or slot.link is None:
                    return
                self._drain(slot)
                self._drop_link(slot)
                if attempt is not None:
                    self._finish_with_status(attempt, status, peak)
            case (host.IDLE, token):
                self._drain(slot)
                if attempt is not None and attempt.token == token and slot.link is not None:
                    slot.link.attempt = None
                    slot.held = attempt.trial
                    self._finish_with_status(attempt, None)
            case (host.RETIRED,):
                slot.is_retiring = False
                held, slot.held = slot.held, None
                if slot.attempt is None:
                    self._drop_link(slot)
                if held is None:
                    self._unblock(slot)
                else:
                    self._releases.after(slot.number, held, lambda: self._unblock(slot))
            case (host.REFUSED, token, number) if token == slot.born:
                self._drop_link(slot)
                if attempt is not None and attempt.token == token:
                    self._refuse(attempt, slot, number)

    def _start_in(self, slot: Slot, attempt: Attempt) -> None:
        try:
            self._send_start(slot, attempt)
        except OSError as error:
            self._refuse(attempt, slot, error.errno or 0)

    def _refuse(self, attempt: Attempt, slot: Slot, number: int) -> None:
        """What an attempt needs cannot be made: it gives its slot back and waits, unless it is to end anyway."""
        slot.attempt = attempt.slot = attempt.link = None
        if attempt.is_killed:
            self._finish(attempt, classify(None, 0, is_killed_by_us=True, kill_reason=attempt.kill_reason))
        elif attempt.is_stopping:
            self._finish(attempt, Exit(ExitKind.STOPPED, error=_NOT_STARTED))
        else:
            self._scarcity.refuse(attempt, OSError(number, os.strerror(number)))

    def _unblock(self, slot: Slot) -> None:
        for attempt in self._waiting:
            attempt.blockers.discard(slot.number)
        self._place_waiting()

    def _bury(self, slot: Slot) -> None:
        """A host is gone with all that it left behind, or nobody is there to say so: end what can be found."""
        for message in slot.hear():
            self._on_host_message(slot, message)
        attempt = slot.attempt
        if attempt is not None and not slot.nursery.is_alive:
            end_marked(attempt.pids, environment.markers(self._directory, attempt.trial_id, attempt.attempt))
        self._drain(slot)
        self._loop.ignore(slot.life.fileno())
        self._drop_link(slot)
        slot.life.close()
        slot.is_dead = True
        del self._slots[slot.number]
        if attempt is not None:
            self._finish_with_status(attempt, None)
        self._unblock(slot)

    def _on_nursery(self, nursery: Nursery) -> None:
        for message in nursery.receive():
            match message:
                case (zygote.IMPORTING, name):
                    nursery.importing = name
                    for attempt in self._attempts.values():
                        if attempt.link is None:
                            self._events.append(Waiting(attempt.trial_id, f"importing {name}"))
                case (zygote.NOTICE, text):
                    self._say(text)
                case (zygote.READY, threads):
                    nursery.is_ready = True
                    self._locks.begin(threads - 1, self._modules)
                case (zygote.GONE, number) if number in self._slots:
                    self._bury(self._slots[number])
                case (zygote.REFUSED, number, why) if number in self._slots:
                    slot = self._slots[number]
                    refused, slot.attempt = slot.attempt, None
                    self._bury(slot)
                    if refused is not None:
                        self._refuse(refused, slot, why)
        if not nursery.is_alive:
            self._on_nursery_gone(nursery)

    def _on_nursery_gone(self, nursery: Nursery) -> None:
        """Trials go on without their zygote; another is started when the next host is needed."""
        self._loop.ignore(nursery.socket.fileno())
        how = nursery.reap()
        while_importing = ""
        if nursery.importing and not nursery.is_ready:
            self._has_import_crashed = True
            while_importing = f" while importing {nursery.importing}; trials import for themselves now"
        self._say(f"the process that imports modules in advance ended ({how}){while_importing}")
        if self._nursery is nursery:
            self._nursery = None
        for slot in [slot for slot in self._slots.values() if slot.nursery is nursery]:
            if slot.is_dead or not slot.pid:
                self._bury(slot)
