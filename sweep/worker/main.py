"""What a worker does: take a job from its socket, become the trial's process, run the user's code, say how it ended."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import faulthandler
import os
import pickle
import re
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from sweep.core.messages import Started
from sweep.core.resources import Resources
from sweep.core.trial import Outcome
from sweep.core.values import printed
from sweep.record.importing import unpickle, why_missing
from sweep.record.layout import rank_output
from sweep.record.proc import children_of
from sweep.record.space import lacks_space
from sweep.worker import adapters, limits, wire
from sweep.worker.channel import ChannelClosed, Packets, SocketChannel
from sweep.worker.devices import find_thread_pools, limit_threads, offer_to_oom_killer, seed_generators
from sweep.worker.disk_wait import DiskWait, open_streams
from sweep.worker.environment import CALLER_VARIABLE
from sweep.worker.output import OUTPUT_NAME
from sweep.worker.parameters import load_objects
from sweep.worker.script import become_script
from sweep.worker.session import MoreNeeded, Session, StopRequested, current, install
from sweep.worker.shipping import main_globals

FINISHED, STOPPED, FAILED, DAMAGED, NEEDS_MORE = "FINISHED", "STOPPED", "FAILED", "DAMAGED", "NEEDS_MORE"

_PR_SET_PDEATHSIG = 1
_MAX_TRACEBACK = 1 << 16
_MAX_ERROR = 1000
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_OWN_DIRECTORIES = tuple([os.path.join(_PACKAGE, room, "") for room in ("worker", "train", "programs")])

_libc = ctypes.CDLL(None, use_errno=True)


class Code:
    """The trainable that this process loaded last; a reused worker does not load it again."""

    def __init__(self) -> None:
        self.path = ""
        self.trainable: Any = None
        self.objects_path = ""
        self.objects: dict[str, Any] = {}
        self.kept = adapters.ReusedInstance()

    def load(self, job: wire.Job) -> None:
        """Load trainable and shared objects unless they are those of the job before."""
        if job.code != self.path:
            with open(job.code, "rb") as file:
                self.trainable = unpickle(file.read())
            self.path = job.code
            main = sys.modules["__main__"].__dict__
            if theirs := main_globals(self.trainable):
                become_script()
            for name, value in theirs.items():
                main.setdefault(name, value)
        if job.objects != self.objects_path:
            self.objects = load_objects(job.objects) if job.objects else {}
            self.objects_path = job.objects


_code = Code()


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies; end at once if that has happened already."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def become_worker(parent: int) -> None:
    """Make this fresh process the worker of the supervisor `parent`: own session, no exit functions or signals."""
    atexit._clear()  # torch registers functions in the fork server that would take 0.1 s here
    die_with(parent)
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Batch systems say it to every process, and the driver then has trials save. What a trial starts dies of it.
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, _spared)
    os.register_at_fork(after_in_child=_unspare)
    limits.give_back()
    offer_to_oom_killer()


def _spared(*_: object) -> None:
    """Hear a signal and go on: SIG_IGN would stay with every program that the trial runs."""


def _unspare() -> None:
    if signal.getsignal(signal.SIGTERM) is _spared:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def serve(channel: SocketChannel, *, is_reused: bool = False, control: int = -1) -> None:
    """Run the job that comes, or one after another, and end the process.

    Args:
        is_reused: the process waits for another job, once the supervisor has ended what the one before has left.
        control: descriptor to the supervisor, which is asked for groups, too; -1: none, as in a rank of a group.
    """
    state = _State()
    _code.kept.is_wanted = is_reused
    to_host = None if control < 0 else Packets(socket.socket(fileno=control))
    cwd = os.getcwd()
    while True:
        try:
            job = channel.receive()
        except ChannelClosed:
            os._exit(0)
        if not isinstance(job, wire.Job):
            continue  # an answer to the job before, which had ended meanwhile
        if job.rank is not None:
            _run_rank(job, channel, state)
        outcome = _run_here(job, channel, state, to_host)
        if not is_reused:
            threading._shutdown()  # type: ignore[attr-defined]  # wait for the user's threads, as an interpreter does
        _flush()
        is_last = not is_reused or limits.is_table_full()  # what it left open would be the next trial's fault
        is_idle = not is_last and _leaves_nothing(job)
        if not is_idle and threading.active_count() > 1:  # such as those of a pool, which replace what is ended
            is_last = is_last or bool(children_of(os.getpid()))
        try:
            channel.send(wire.frame(wire.Done(outcome, time.monotonic(), is_idle)))
        except ChannelClosed:
            os._exit(1)
        if is_last or to_host is None:
            atexit._run_exitfuncs()
            _flush()
            os._exit(0)
        if not is_idle:
            to_host.send(wire.Idle())
        os.chdir(cwd)


def _leaves_nothing(job: wire.Job) -> bool:
    """Whether this reused worker is all that is left of a job: no process for its host to end, no output to trim."""
    own = os.getpid()
    try:
        if any(os.fstat(descriptor).st_size > job.log_limit_bytes > 0 for descriptor in (1, 2)):
            return False
    except OSError:
        return False
    return not children_of(own) and children_of(os.getppid()) == [own]  # in this order: orphans go to the supervisor


def _run_rank(job: wire.Job, channel: SocketChannel, state: _State) -> NoReturn:
    """Run a rank of a group and end the process.

    How it ended is said at once: what a library does at exit may wait for ranks that are gone, so after a failure
    nothing more is done here, and the supervisor ends the group.
    """
    outcome = _run_here(job, channel, state, None)
    at = time.monotonic()
    try:
        if outcome.kind == FINISHED:
            threading._shutdown()  # type: ignore[attr-defined]  # wait for the user's threads, as an interpreter does
        _flush()
        channel.send(wire.frame(wire.Done(outcome, at)))
        if outcome.kind == FINISHED:
            with contextlib.suppress(ChannelClosed):
                while True:  # until every rank has returned: the others may still need what this process serves
                    channel.receive()
            atexit._run_exitfuncs()
            _flush()
    except ChannelClosed:
        os._exit(1)
    finally:
        os._exit(0)


def _run_here(job: wire.Job, channel: SocketChannel, state: _State, control: Packets | None) -> Outcome:
    """Set this process up for a job, and run it."""
    session = Session(job, channel, control)
    logs = [os.path.join(job.trial_dir, name) for name in job.outputs or (OUTPUT_NAME, OUTPUT_NAME)]
    if job.rank is not None:
        from sweep.worker.rank import RankSession  # imported beforehand where there are groups

        session = RankSession(job, channel)
        logs = [rank_output(job.trial_dir, job.rank.rank)] * 2
    try:
        _open_output(session, logs)
        open_streams(state.streams, _wait_to_print)
        _set_environment({**state.environ, **job.variables})
        limit_threads(job.num_threads, were=state.num_threads)
        state.num_threads = job.num_threads
        seed_generators(job.seed)
    except StopRequested:
        return Outcome(STOPPED)
    except OSError as error:
        return Outcome(FAILED, f"the trial's process could not be prepared: {error}", class_name="OSError")
    return run_job(session, _code)


def _open_output(session: Session, logs: Sequence[str]) -> None:
    """Make the trial's directory and send what is printed there; on a full disk as soon as there is room.

    Raises:
        StopRequested: the trial was asked to stop meanwhile.
    """
    job = session.job
    with session.room() as room:
        while True:
            try:
                os.stat(job.directory)  # what was deleted or moved is not made anew
                os.makedirs(job.trial_dir, exist_ok=True)
                redirect_output(logs[0], logs[1], f"{job.trial_id} attempt {job.attempt}")
                break
            except OSError as error:
                if not lacks_space(error):
                    raise
            room.wait("the trial's output")


def _wait_to_print() -> DiskWait | None:
    """Return how the running trial waits for room for what it prints."""
    session = current()
    return session.wait_to_print() if session is not None else None


def run_job(session: Session, code: Code, *, is_interruptible: bool = False) -> Outcome:
    """Say that the attempt has started, run the user's code in its session, and return how it ended.

    Args:
        is_interruptible: Ctrl-C is meant for the driver, which runs in this process: it is passed on.
    """
    job = session.job
    try:
        session.send(Started(*job.key, os.getpid()))
        code.load(job)
        config = unpickle(job.config)
        if job.is_chdir:
            os.chdir(session.trial_dir)  # not before: modules that were just imported may have looked where they are
        if damage := session.damage():
            return Outcome(DAMAGED, damage)
        install(session)
        try:
            if job.kind == "class":
                adapters.run_class(session, code.trainable, config, code.objects, code.kept)
            else:
                adapters.run_function(session, code.trainable, config, code.objects)
        finally:
            install(None)
    except (StopRequested, MoreNeeded):
        pass
    except ChannelClosed:
        os._exit(1)  # the driver is gone; the supervisor ends what is left
    except SystemExit as error:
        if error.code is not None and error.code != 0 and _request(session) is None:
            code_text = error.code if isinstance(error.code, int) else repr(error.code)
            return Outcome(FAILED, f"SystemExit: the trial called sys.exit({code_text})", class_name="SystemExit")
    except BaseException as error:  # the border to user code: whatever it raises is its outcome
        if is_interruptible and isinstance(error, KeyboardInterrupt):
            raise
        if _request(session) is None:
            return describe(error)
    if (request := _request(session)) is not None:
        return Outcome(NEEDS_MORE, session.why_more, needs=request.to_json())
    return Outcome(STOPPED if session.is_stopping else FINISHED)


def _request(session: Session) -> Resources | None:
    """Return what a `fit()` needs that found no room, whatever the user's code made of that; None: none did so."""
    return session.needs if not session.is_stopping else None


def describe(error: BaseException) -> Outcome:
    """Return an exception as an outcome: one line, the user's frames, its class, and itself when it can be pickled.

    The traceback is printed too, so that it stands in the trial's output.
    """
    name, text = type(error).__name__, printed(error)
    line = f"{name}: {text.strip().splitlines()[0]}" if text.strip() else name
    if isinstance(error, NameError) and (why := why_missing(error)):
        line = f"{line}. {why}"
    if why := _left_behind(error):
        line = f"{line}. {why}"
        error.add_note(why)
    rendered = user_traceback(error)
    print(rendered, file=sys.stderr, flush=True)
    return Outcome(FAILED, line[:_MAX_ERROR], rendered[-_MAX_TRACEBACK:], name, _pickled(error))


def _left_behind(error: BaseException | None) -> str:
    """Say what a trial that runs in its own directory did not find there and would find where the caller is."""
    here, caller = os.path.realpath("/proc/self/cwd"), os.environ.get(CALLER_VARIABLE)  # getcwd fails in a deleted one
    while error is not None and caller:
        text = printed(error)
        is_lack = isinstance(error, FileNotFoundError) or re.search(r"(?i)no such|not exist|not found|n.t find", text)
        words = [str(getattr(error, "filename", "")), *re.split(r"[\s'\"`,;()]+", text)] if is_lack else []
        for word in words:
            name = word.rstrip(".:").removeprefix(f"{here}/")
            if not os.path.exists(name or here) and os.path.exists(os.path.join(caller, name)):
                return (
                    f"{name} is in {caller}, and this trial runs in its own directory, as in Tune. Write "
                    f"os.path.join(os.environ[{CALLER_VARIABLE!r}], {name!r}) or an absolute path, or pass "
                    "chdir_to_trial_dir=False"
                )
        error = error.__cause__ or error.__context__
    return ""


def user_traceback(error: BaseException) -> str:
    """Return the traceback as Python prints it, without the frames of this package's worker."""
    shown = traceback.TracebackException.from_exception(error)
    waiting: list[traceback.TracebackException | None] = [shown]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        kept = [frame for frame in one.stack if not os.path.abspath(frame.filename).startswith(_OWN_DIRECTORIES)]
        one.stack = traceback.StackSummary.from_list(kept)
        waiting += [one.__cause__, one.__context__]
    return "".join(shown.format()).rstrip()


def _pickled(error: BaseException) -> bytes:
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(error)
        pickle.loads(data)  # an exception with its own __init__ often pickles and then cannot be loaded
    except Exception:  # whatever the user's classes raise: then the text alone is kept
        return b""
    return data if len(data) <= 1 << 20 else b""


def redirect_output(out: str, err: str, title: str) -> None:
    """Send what this process prints to the ends of two files, or of one, under a header that tells attempts apart; a
    file of one stream alone has none before the first."""
    _flush()
    head = f"--- {title}, {time.strftime('%Y-%m-%d %H:%M:%S')}, pid {os.getpid()}\n".encode()
    for path, numbers in [(out, (1, 2))] if out == err else [(out, (1,)), (err, (2,))]:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            if out == err or os.fstat(descriptor).st_size:
                os.write(descriptor, head)
            for number in numbers:
                os.dup2(descriptor, number)
        finally:
            if descriptor not in numbers:  # as it is where a trial has closed its output
                os.close(descriptor)
    if not faulthandler.is_enabled():  # a reused worker's descriptor 2 is a new file, its number the same
        faulthandler.enable(file=2, all_threads=True)
        faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)


class _State:
    """What this process was before its first job, as far as each further one is to find it so."""

    def __init__(self) -> None:
        self.num_threads = 1  # of its numeric libraries, now
        self.environ = dict(os.environ)
        self.streams: dict[str, Any] = {}


def _set_environment(wanted: Mapping[str, str | None]) -> None:
    """Make the environment what is wanted, and nothing else."""
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]
    for name, value in wanted.items():
        if value is None:
            os.environ.pop(name, None)
        elif os.environ.get(name) != value:
            os.environ[name] = value


def _flush() -> None:
    """Write out what is printed, also to streams that the trial has replaced."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # closed or replaced by the user's code
            stream.flush()  # type: ignore[union-attr]


def run_spawned(parent: int, data: int, control: int, files: int, is_reused: bool) -> None:
    """Be a worker in a fresh interpreter (`start_method="spawn"`); `data` and `control` are inherited descriptors,
    `files` is the soft limit of descriptors as the user had it."""
    die_with(parent)
    limits.set_original(files)
    become_worker(parent)
    for descriptor in (data, control):
        if descriptor >= 0:
            os.set_inheritable(descriptor, False)
    find_thread_pools()
    serve(SocketChannel(data), is_reused=is_reused, control=control)
