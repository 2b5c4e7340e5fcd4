"""The engine that runs trials in processes of this machine: fork server, supervisor per slot, worker per attempt."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sweep.core import messages
from sweep.core.claims import Claim
from sweep.core.messages import Exit, ExitKind
from sweep.core.resources import Node, Resources
from sweep.core.trial import Outcome, Trial
from sweep.engines.base import EngineCommand, EngineContext, T
from sweep.engines.exits import classify, num_oom_kills, unstarted
from sweep.engines.jobs import JobMaker, store_trainable
from sweep.engines.link import Link
from sweep.engines.local.backpressure import Backpressure
from sweep.engines.local.claims import Sharing, open_claims
from sweep.engines.local.gpu_cleanup import GpuCleanup
from sweep.engines.local.processes import end_marked
from sweep.engines.local.supervisors import Attempt, Slot, SlotEngine, key_of
from sweep.engines.local.watchdogs import HANG_S, Watchdogs
from sweep.engines.loop import Loop
from sweep.errors import ConfigError
from sweep.worker import environment, limits, wire
from sweep.worker.output import OUTPUT_NAME
from sweep.worker.rendezvous import close_ports

_KILL_GRACE_S = 2.0  # a supervisor that has not carried out a Kill by then is killed itself


class LocalEngine(SlotEngine):
    """Run each attempt in a fresh process forked from one that has imported what it needs.

    Which process does what, which ends which, and what happens when one dies: docs/explanation/processes.md. All of
    this happens on the thread that calls `next_events`; only `post` may be called from elsewhere.
    """

    def __init__(
        self,
        context: EngineContext,
        *,
        jobs: JobMaker | None = None,
        gpu_cleanup: Callable[..., GpuCleanup] = GpuCleanup,
        hang_s: float = HANG_S,
        memory_limit: float | None = None,
        say_of: Callable[[tuple[str, int], Any], None] | None = None,
    ) -> None:
        """Store the trainable in the experiment and start the fork server.

        Args:
            jobs: makes the jobs of what is stored already; None: the trainable is stored here.
            gpu_cleanup: makes what decides when a GPU is clean.
            hang_s, memory_limit: see `Watchdogs`.
            say_of: called with what the engines of other machines must know of an attempt that has ranks there, too.

        Raises:
            ConfigError: an unknown start method, or a system other than Linux.
            ResourceError: the kernel allows not even the first process.
            TrainableError: objects given by `with_parameters` cannot be stored.
        """
        _refuse_what_cannot_run(context)
        super().__init__(context)
        self._outputs = tuple(dict.fromkeys(context.log_to_file or (OUTPUT_NAME,)))
        self._layout.code.mkdir(parents=True, exist_ok=True)
        self._jobs = jobs or JobMaker(context, store_trainable(context.trainable, self._layout))
        self._waiting: list[Attempt] = []  # for idle workers to be ended
        self._num_started = itertools.count(1)
        self._oom_kills = num_oom_kills()
        self._say_of = say_of or (lambda key, word: None)
        self._is_closed = False
        self._is_interrupted = False
        self._is_in_order = False  # it was driven to the end of a run, and nobody has interrupted that
        self._watchdogs = Watchdogs(
            self._loop,
            self._attempts,
            kill=self._kill,
            say=self._say,
            log_of=lambda attempt: Path(self._logs_of(attempt.trial)[-1]),
            # The supervisor of a group watches its ranks.
            report_s=None if self._jobs.is_group else context.report_timeout_s,
            hang_s=hang_s,
            memory_limit=memory_limit,
        )
        self._backpressure = Backpressure(
            self._loop,
            place=self._place,
            make_room=self._give_up_idle,
            num_placed=lambda: sum(attempt.slot is not None for attempt in self._attempts.values()),
            explain=lambda attempt, reason: self._events.append(messages.Waiting(attempt.trial.id, reason)),
            notice=self._say,
        )
        self._limits = limits.Raised()
        here = tuple(node for node in context.nodes if context.node in ("", node.id))
        self._gpu_cleanup = gpu_cleanup(here, self._loop, emit=self._events.append, notice=self._say)
        self._claims = open_claims(context, self._say)
        self._sharing = Sharing(self._claims, self._loop, emit=self._events.append, end_idle=self._retire_idle)
        self._environ = self._jobs.environ
        locks = (self._claims.fd, -1 if context.lock_fd is None else context.lock_fd)
        self._locks = tuple(descriptor for descriptor in locks if descriptor >= 0)
        try:
            self._start_fork_server()
        except OSError as error:
            self.close()
            raise limits.refusal(error) from error
        except BaseException:
            self.close()
            raise

    @property
    def loop(self) -> Loop:
        """What it waits with; whoever owns it may have it wait for more."""
        return self._loop

    # --- the contract ----------------------------------------------------------------------------------------------

    def nodes(self) -> Sequence[Node]:
        return self._gpu_cleanup.nodes

    def execute(self, command: EngineCommand) -> None:
        """Begin to carry out a command; commands to attempts that are gone are ignored."""
        if self._is_closed:
            return
        if isinstance(command, messages.Start):
            if not self._sharing.take(command.trial):
                return
            is_multi_node = self._jobs.is_multi_node(command.trial)
            attempt = Attempt(next(self._num_started), command.trial, is_multi_node=is_multi_node)
            self._attempts[attempt.key] = attempt
            if not is_multi_node:
                self._backpressure.admit(attempt)
                return
            try:
                self._place(attempt)
            except OSError as error:  # refused are all ranks of the group, or none
                self._refuse(attempt, error.errno or 0)
            return
        known = self._attempts.get((command.trial_id, command.attempt))
        if known is None:
            return
        if isinstance(command, messages.Kill):
            self._kill(known, command)
            return
        known.is_stopping |= isinstance(command, messages.Stop)
        if known.link is not None:
            # How long the end may take is the sweep's to say.
            (self._watchdogs.rest if known.is_stopping else self._watchdogs.watch)(known)
            known.link.send(command)
        elif known.is_stopping:
            self._finish(known, unstarted(None))

    def hear(self, key: tuple[str, int], word: wire.Meet | wire.Relayed) -> None:
        """Take in what the engines of other machines say of an attempt that has ranks there, too."""
        attempt = self._attempts.get(key)
        if attempt is None or attempt.link is None or attempt.kill is not None:
            return
        try:
            attempt.link.send(self._jobs.make(attempt.trial, word.ports) if isinstance(word, wire.Meet) else word)
        except ConfigError as error:
            self._fail(attempt, error)

    def run_loop(self, loop: Callable[[], T]) -> T:
        value = loop()
        self._is_in_order = not self._is_interrupted
        return value

    def _turn(self, timeout_s: float | None) -> None:
        self._loop.run_once(timeout_s)
        posted = self._loop.take_posted()
        if messages.Asked(messages.Ask.INTERRUPT) in posted:
            self._is_interrupted = True
            self._wake_all()
        self._events += posted

    def claims(self) -> Sequence[Claim]:
        return self._sharing.begin()

    def want(self, wanted: Resources | None) -> None:
        self._claims.awaited = wanted

    def close(self) -> None:
        """End everything that was started, and return when it is gone."""
        if self._is_closed:
            return
        self._is_closed = True
        self._end_all(is_in_order=self._is_in_order and not self._attempts)
        self._claims.close()
        self._attempts.clear()
        self._loop.close()
        self._limits.close()

    # --- starting ----------------------------------------------------------------------------------------------------

    def _place(self, attempt: Attempt) -> None:
        """Give an attempt a slot; raises OSError when descriptors or processes are short: the trial is not to blame."""
        if self._context.reuse_actors and not self._jobs.is_group and self._place_warm(attempt):
            return
        slot = self._free_slot() or self._new_slot()
        slot.attempt, attempt.slot = attempt, slot
        if slot.pid:
            try:
                self._send_start(slot, attempt)
            except OSError:
                slot.attempt = attempt.slot = None
                raise
        elif slot.fork_server.importing:
            self._say_importing(attempt, slot.fork_server.importing)

    def _place_warm(self, attempt: Attempt) -> bool:
        """Hand an attempt to an idle worker that fits, or have those ended that hold its devices; False: neither."""
        key = key_of(attempt.trial)
        is_blocked = False
        for slot in self._slots.values():
            held = key_of(slot.held) if slot.held is not None else None
            if slot.link is not None and slot.is_idle and held == key:
                slot.attempt, attempt.slot, slot.held = attempt, slot, None
                self._claims.give_back(slot.number)
                slot.link.send(self._jobs.make(attempt.trial))
                return True
            if held is not None and set(key[1]) & set(held[1]):
                is_blocked = True
                if slot.is_idle:
                    slot.end_tree()
        if is_blocked:
            self._waiting.append(attempt)
        return is_blocked

    def _on_retired(self, slot: Slot) -> None:
        """The idle worker of a slot is gone: those that wait for it may have its devices once they are clean."""
        held = slot.held

        def unblock() -> None:
            if slot.held is held:
                slot.held = None
            self._claims.give_back(slot.number)
            waiting, self._waiting = self._waiting, []
            for attempt in waiting:
                self._backpressure.admit(attempt)

        if held is None:
            unblock()
        else:
            self._gpu_cleanup.after(held, unblock, is_waiting=False)

    def _send_start(self, slot: Slot, attempt: Attempt) -> None:
        """Have the supervisor make a worker, or a group, and give it its job; one on several machines is to wait."""
        try:
            payload = self._jobs.payload(attempt.trial)  # it pickles the config: once for ports and job
            ports = self._jobs.open_ports(attempt.trial, payload)
        except ConfigError as error:
            slot.attempt = attempt.slot = None
            self._fail(attempt, error)
            return
        with contextlib.ExitStack() as stack:
            stack.callback(close_ports, ports)
            ours, theirs = socket.socketpair()
            stack.callback(theirs.close)
            descriptors = (theirs.fileno(), *(port.holder.fileno() for port in ports))
            start: wire.ToSupervisor
            if self._jobs.is_group:
                start = wire.StartGroup(self._jobs.is_remote(attempt.trial))
            else:
                is_spawned = self._context.start_method == "spawn"
                start = wire.StartWorker(self._logs_of(attempt.trial), self._context.log_limit_bytes, is_spawned)
            try:
                slot.tell(start, descriptors)
            except OSError:
                ours.close()
                raise
        link = Link(ours, self._on_full, is_workers=True)
        self._loop.listen(ours.fileno(), lambda: self._on_link(slot, link))
        slot.link = link
        numbers = tuple(port.number for port in ports)
        if attempt.is_multi_node:
            self._say_of(attempt.key, wire.NodeReady(numbers))
        else:
            link.send(self._jobs.make(attempt.trial, numbers, payload))

    def _logs_of(self, trial: Trial) -> tuple[str, ...]:
        return tuple(str(self._layout.trial(trial.id) / name) for name in self._outputs)

    def _refuse(self, attempt: Attempt, errno: int) -> None:
        """What an attempt needs cannot be made: it gives its slot back and waits, unless it is to end anyway."""
        if attempt.slot is not None:
            attempt.slot.attempt = None
        attempt.slot = None
        if attempt.kill is not None or attempt.is_stopping:
            self._finish(attempt, unstarted(attempt.kill))
        elif attempt.is_multi_node:  # the driver takes the group back from all machines, and tries again
            self._say_of(attempt.key, wire.Refused(errno))
            self._finish(attempt, Exit(ExitKind.LOST, error=os.strerror(errno)))
        else:
            self._backpressure.refuse(attempt, OSError(errno, os.strerror(errno)))

    # --- answers and ends --------------------------------------------------------------------------------------------

    def _kill(self, attempt: Attempt, kill: messages.Kill) -> None:
        if attempt.kill is not None:
            return
        attempt.kill = kill
        slot = attempt.slot
        if slot is None or attempt.link is None:
            self._finish(attempt, unstarted(kill))
            return

        def insist() -> None:
            if attempt.key in self._attempts and attempt.slot is not None and not attempt.slot.is_dead:
                self._end_supervisor(attempt.slot)

        slot.end_tree()
        self._loop.alarm(_KILL_GRACE_S, insist)

    def _fail(self, attempt: Attempt, error: ConfigError) -> None:
        """An attempt cannot be started as it was asked for."""
        attempt.outcome = Outcome("FAILED", str(error), class_name=type(error).__name__)
        if attempt.slot is None:
            self._finish(attempt, classify(attempt.outcome, None))
        else:
            attempt.slot.end_tree()

    def _finish(self, attempt: Attempt, exit: Exit) -> None:
        """The attempt is over and its processes are gone: say so."""
        del self._attempts[attempt.key]
        self._watchdogs.rest(attempt)
        if attempt in self._waiting:
            self._waiting.remove(attempt)
        self._backpressure.forget(attempt)
        slot = attempt.slot
        if slot is not None:
            slot.attempt = None
        self._events.append(messages.Exited(*attempt.key, exit))
        if slot is not None and slot.link is not None:  # its worker stays, idle, with its memory
            self._release(attempt.trial, idle=slot.number)
        else:
            others = [other.trial for other in self._attempts.values()]
            claims = self._claims.look() if key_of(attempt.trial)[1] else ()
            spare = [(node, device) for claim in claims for node, _, device, _ in claim.held]
            self._gpu_cleanup.after(attempt.trial, lambda: self._release(attempt.trial), running=others, spare=spare)
        if slot is not None:
            self._backpressure.on_room()

    def _release(self, trial: Trial, idle: int = 0) -> None:
        self._claims.give_back((trial.id, trial.attempt), idle or None)
        self._events.append(messages.Released(trial.id, trial.attempt))

    def _finish_with_status(
        self, attempt: Attempt, status: int | None, peak: int = 0, *, supervisor: int | None = None
    ) -> None:
        has_oom_kill = False
        if attempt.outcome is None and status is not None and os.WIFSIGNALED(status) and attempt.kill is None:
            before, self._oom_kills = self._oom_kills, num_oom_kills()
            has_oom_kill = self._oom_kills > before
        self._finish(
            attempt,
            classify(
                attempt.outcome,
                status,
                peak_rss_bytes=peak,
                kill=attempt.kill,
                has_oom_kill=has_oom_kill,
                supervisor=supervisor,
            ),
        )

    # --- messages ----------------------------------------------------------------------------------------------------

    def _on_link(self, slot: Slot, link: Link) -> None:
        self._on_worker(slot, link.receive())
        if not link.is_open:
            self._loop.ignore(link.socket.fileno())  # how it ended comes from the supervisor

    def _on_full(self, link: Link, is_full: bool) -> None:
        self._loop.await_writable(link.socket.fileno(), link.flush if is_full else None)

    def _on_worker(self, slot: Slot, received: Sequence[wire.FromWorker]) -> None:
        attempt, link = slot.attempt, slot.link
        for message in received:
            event = message if isinstance(message, wire.WorkerEvent) else None
            if attempt is None or (event is not None and not attempt.is_told_by(event)):
                continue  # it is of a thread that an earlier trial of the worker has left
            match message:
                case messages.Reported():
                    attempt.has_reported = True
                    self._watchdogs.rest(attempt)
                case messages.Started(pid=pid):
                    attempt.pids = attempt.pids or (pid,)
                    self._watchdogs.watch(attempt)
                case wire.Done(outcome, _, is_idle):
                    attempt.outcome = outcome
                    if is_idle:
                        self._on_idle(slot, attempt)
                case wire.Pids(pids):
                    attempt.pids = pids
                case wire.Relayed():
                    self._say_of(attempt.key, message)
                case messages.Waiting(reason=reason):
                    (self._watchdogs.rest if reason else self._watchdogs.watch)(attempt)
            if event is not None:
                self._events.append(event)
        if link is not None and link.problem is not None:  # what it says cannot be understood any more
            if attempt is not None:
                attempt.outcome = attempt.outcome or link.problem
            slot.end_tree()

    def _on_idle(self, slot: Slot, attempt: Attempt) -> None:
        """The worker of an attempt is ready for another, and nothing else of the attempt is left."""
        if not slot.is_ending:  # otherwise the attempt has ended with its worker
            slot.held = attempt.trial
            self._finish_with_status(attempt, None)

    def _drain(self, slot: Slot) -> None:
        """Take what the worker wrote before it ended or became idle: no exit may overtake the last report."""
        if slot.link is not None:
            self._on_worker(slot, slot.link.drain())

    def _on_supervisor(self, slot: Slot, message: wire.FromSupervisor | wire.Gone) -> None:
        attempt = slot.attempt
        match message:
            case wire.Hello(pid):
                slot.pid = pid
                if attempt is not None:
                    try:
                        self._send_start(slot, attempt)
                    except OSError as error:
                        self._refuse(attempt, error.errno or 0)
            case wire.Exited(status, peak):
                self._drain(slot)
                slot.drop_link(self._loop)
                if (attempt := slot.attempt) is not None:  # its last word may have been that it is idle
                    self._finish_with_status(attempt, status, peak)
                else:
                    self._on_retired(slot)
            case wire.Idle():
                self._drain(slot)
                if attempt is not None:
                    self._on_idle(slot, attempt)
            case wire.Refused(errno):
                slot.drop_link(self._loop)
                if attempt is not None:
                    self._refuse(attempt, errno)
            case wire.Gone(_, status):
                if attempt is not None and not slot.fork_server.is_alive:  # nothing else ends what it has left behind
                    end_marked(attempt.pids, environment.markers(str(self._layout.root), *attempt.key))
                self._drain(slot)
                slot.drop_link(self._loop)
                if (attempt := slot.attempt) is not None:
                    self._finish_with_status(attempt, None, supervisor=status)
                else:
                    self._on_retired(slot)

    def _on_imported(self, num_threads: int, modules: Sequence[str]) -> None:
        self._watchdogs.begin(num_threads, modules)


def _refuse_what_cannot_run(context: EngineContext) -> None:
    if context.start_method not in ("forkserver", "spawn"):
        raise ConfigError(f"start_method is {context.start_method!r}; expected 'forkserver' or 'spawn'.")
    if sys.platform != "linux":
        raise ConfigError(
            f"the local engine needs Linux, this is {sys.platform}: no other system can end a trial's processes "
            "reliably. Use engine='inline', or run on Linux."
        )
