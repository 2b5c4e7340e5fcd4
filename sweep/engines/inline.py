"""The engine that runs trials in this process, one at a time, on the calling thread: for debuggers and tiny tests.

    calling thread   run_loop(): executes attempts, so that pdb, breakpoints and Ctrl-C work as in any program
    second thread    the driver's loop: execute(), next_events()

In strict hand-off: the user's code runs only while the loop waits in `next_events`, and the loop only while the user's
code waits in `report`, except when a deadline passes or an event is posted meanwhile.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

from sweep.core import messages
from sweep.core.messages import Event, Exit
from sweep.core.resources import Node
from sweep.core.trial import Outcome, Trial
from sweep.engines.base import Engine, EngineCommand, EngineContext
from sweep.engines.exits import classify, unstarted
from sweep.engines.jobs import JobMaker
from sweep.errors import SweepError
from sweep.record.importing import unpickle
from sweep.record.layout import ExperimentLayout
from sweep.worker import environment, wire
from sweep.worker.devices import seed_generators
from sweep.worker.main import Code, run_job
from sweep.worker.nested import inside_trial
from sweep.worker.session import Session, current
from sweep.worker.trainable import PreparedTrainable

T = TypeVar("T")


Answer = messages.Continue | messages.Save | messages.Stop


class _Attempt:
    """An attempt that waits for its turn or runs: what its session talks to in place of a socket."""

    def __init__(self, engine: InlineEngine, trial: Trial) -> None:
        self.trial = trial
        self.key = (trial.id, trial.attempt)
        self.is_running = False
        self.kill: messages.Kill | None = None
        self.answers: deque[Answer] = deque()
        self._engine = engine

    def send(self, data: bytes) -> None:
        """Hand over what a worker would write."""
        with self._engine.turn:
            for message in wire.Frames().feed(data):
                if isinstance(message, wire.WorkerEvent):
                    self._engine.events.append(message)
            self._engine.turn.notify_all()

    def receive(self) -> Answer:
        """Wait until the loop has answered and waits again."""
        engine = self._engine
        with engine.turn:
            while not (self.answers and (engine.is_loop_waiting or engine.is_closed)):
                engine.turn.wait()
            return self.answers.popleft()

    def wait(self, seconds: float) -> bool:
        """Let the loop run for a while; whether there is an answer."""
        with self._engine.turn:
            if not self.answers:
                self._engine.turn.wait(seconds)
            return bool(self.answers)


class _Code(Code):
    """The trainable in this process, which is loaded from memory."""

    def __init__(self, trainable: PreparedTrainable) -> None:
        super().__init__()
        self._payload = trainable.payload
        self.objects = dict(trainable.objects)

    def load(self, job: wire.Job) -> None:
        """Load the trainable at its first use."""
        if self.trainable is None:
            self.trainable = unpickle(self._payload)


class InlineEngine(Engine):
    """Run attempts one at a time on the thread that calls `run_loop`.

    Code in this process cannot be killed: a `Kill` takes effect at its next report. Output is not redirected and
    threads are not limited.
    """

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._layout = ExperimentLayout(context.directory.absolute())
        self._began = time.monotonic()
        self._jobs = JobMaker(context)
        self._code = _Code(context.trainable)

        # Shared with the attempts.
        self.turn = threading.Condition()
        self.events: list[Event] = []
        self.is_loop_waiting = False
        self.is_closed = False

        self._posted: deque[Event] = deque()
        self._queue: deque[_Attempt] = deque()
        self._attempts: dict[tuple[str, int], _Attempt] = {}
        self._is_loop_done = False
        self._interrupt: BaseException | None = None

    # --- the contract, on the loop's thread --------------------------------------------------------------------------

    def nodes(self) -> Sequence[Node]:
        return self._context.nodes

    def now(self) -> float:
        return self._context.start_at + time.monotonic() - self._began

    def execute(self, command: EngineCommand) -> None:
        """Begin to carry out a command; it reaches the user's code when the loop waits again."""
        with self.turn:
            if self.is_closed:
                return
            if isinstance(command, messages.Start):
                attempt = _Attempt(self, command.trial)
                self._attempts[attempt.key] = attempt
                self._queue.append(attempt)
                return
            known = self._attempts.get((command.trial_id, command.attempt))
            if known is None:
                return
            if isinstance(command, messages.Kill):
                known.kill = command
                command = messages.Stop(*known.key)
            known.answers.append(command)
            if not known.is_running:  # it has not reported: this is its end
                self._finish(known, unstarted(known.kill))

    def next_events(self, deadline: float | None) -> Sequence[Event]:
        """Let the user's code run until something happened; `[Tick()]` at the deadline."""
        with self.turn:
            while True:
                while self._posted:
                    self.events.append(self._posted.popleft())
                if self._interrupt is not None:
                    raise self._interrupt
                if self.events:
                    events, self.events = self.events, []
                    return events
                left = None if deadline is None else deadline - self.now()
                if left is not None and left <= 0:
                    return [messages.Tick()]
                self.is_loop_waiting = True
                self.turn.notify_all()
                try:
                    # Woken now and then, because `post` may come from a signal handler, which must not take the lock.
                    self.turn.wait(0.05 if left is None else min(left, 0.05))
                finally:
                    self.is_loop_waiting = False

    def post(self, event: Event) -> None:
        """Hand in an event from a signal handler or another thread; it is handled within 50 ms."""
        self._posted.append(event)

    def close(self) -> None:
        """End what runs at its next report, and start nothing more."""
        with self.turn:
            self.is_closed = True
            self._queue.clear()
            for attempt in self._attempts.values():
                attempt.kill = messages.Kill(*attempt.key)
                attempt.answers.append(messages.Stop(*attempt.key))
            self.turn.notify_all()

    def _finish(self, attempt: _Attempt, exit: Exit) -> None:
        del self._attempts[attempt.key]
        if attempt in self._queue:
            self._queue.remove(attempt)
        self.events += [messages.Exited(*attempt.key, exit), messages.Released(*attempt.key)]

    # --- the user's code, on the calling thread ----------------------------------------------------------------------

    def run_loop(self, loop: Callable[[], T]) -> T:
        """Run `loop` on a second thread and the attempts that it starts on this one; return what the loop returns.

        Raises:
            KeyboardInterrupt: Ctrl-C; the loop meets it in `next_events`.
            SweepError: a trial runs on this very thread: sweeps inside inline trials are not possible.
            BaseException: whatever the loop raises.
        """
        if current() is not None:
            raise SweepError("an inline sweep cannot run inside a trial; use the local engine for one of the two.")
        with ThreadPoolExecutor(1, "sweep-driver") as executor:
            driving = executor.submit(loop)
            driving.add_done_callback(self._on_loop_done)
            try:
                while (attempt := self._next_attempt()) is not None:
                    self._run_attempt(attempt)
            finally:
                while not driving.done():
                    try:
                        wait([driving])
                    except KeyboardInterrupt as error:
                        self._interrupt_loop(error)
        return driving.result()

    def _on_loop_done(self, driving: Future[T]) -> None:
        self._is_loop_done = True
        self.close()

    def _next_attempt(self) -> _Attempt | None:
        while True:
            try:
                with self.turn:
                    while not self._is_loop_done and not (self._queue and self.is_loop_waiting):
                        self.turn.wait()
                    if self._is_loop_done:
                        return None
                    attempt = self._queue.popleft()
                    attempt.is_running = True
                    return attempt
            except KeyboardInterrupt as error:
                self._interrupt_loop(error)

    def _interrupt_loop(self, error: BaseException) -> None:
        with self.turn:
            self._interrupt = error
            self.turn.notify_all()

    def _run_attempt(self, attempt: _Attempt) -> None:
        trial = attempt.trial
        job = self._jobs.one(trial)
        variables = {k: v for k, v in job.variables.items() if k not in environment.THREAD_VARIABLES}
        trial_dir = self._layout.trial(trial.id)
        trial_dir.mkdir(parents=True, exist_ok=True)
        kept = {name: os.environ.get(name) for name in variables}
        cwd = os.getcwd()
        try:
            _set_variables(variables)
            sys.path += [cwd] * (self._context.is_chdir and "" in sys.path)
            seed_generators(job.seed)
            with inside_trial(trial.id):
                outcome = run_job(Session(job, attempt), self._code, is_interruptible=True)
        except KeyboardInterrupt as error:
            self._interrupt_loop(error)
            outcome = Outcome("FAILED", "KeyboardInterrupt", class_name="KeyboardInterrupt")
        finally:
            _set_variables(kept)
            os.chdir(cwd)
        with self.turn:
            if attempt.key in self._attempts:
                is_killed = attempt.kill is not None and outcome.kind == "STOPPED"
                self._finish(attempt, classify(None if is_killed else outcome, 0, kill=attempt.kill))
            self.turn.notify_all()


def _set_variables(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
