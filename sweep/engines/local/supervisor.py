"""The supervisor: one small process per slot, free of user code, that forks workers and ends their trees.

It ends its tree and itself when the driver is gone: end of file on the life socket, or the driver's pidfd.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from sweep.engines.local.processes import (
    become_subreaper,
    end_descendants,
    fork,
    is_gone,
    open_descriptors,
    pidfd_of,
    send,
)
from sweep.record.proc import children_of
from sweep.worker import wire
from sweep.worker.channel import Packets, SocketChannel
from sweep.worker.limits import users_limit
from sweep.worker.main import become_worker, serve

if TYPE_CHECKING:
    from sweep.engines.local.ranks import LocalRanks


_LOG_CHECK_S = 0.5
_HEAD_SHARE = 0.25
_SPAWNED = "import sys; sys.path[:] = {path!r}; from sweep.worker.main import run_spawned; run_spawned{arguments!r}"


class Supervisor:
    """One supervisor process: `run` never returns."""

    def __init__(self, life: socket.socket, driver: int, run: wire.Begin, locks: Sequence[int] = ()) -> None:
        """Take over this process.

        Args:
            life: the socket to the driver, of which `driver` is a pidfd.
            locks: descriptors of locked files, which this process holds and its workers close.
        """
        self._life = Packets(life)
        self._driver = driver
        self._own = (life.fileno(), driver, *locks)
        self._inherited = open_descriptors().difference(self._own)  # also of what modules have opened
        self._is_reusing = run.is_reusing
        self._worker = 0
        self._pidfd = -1
        self._control: Packets | None = None  # to the worker, which may ask for groups, or is idle
        self._groups: list[LocalRanks] = []
        self._whole: LocalRanks | None = None  # the one that is the attempt itself, or its part on this node
        self._logs: tuple[str, ...] = ()
        self._log_limit = 0

    def run(self) -> NoReturn:
        """Serve the driver until it is gone."""
        os.setsid()
        become_subreaper()
        self._send(wire.Hello(os.getpid()))
        life = self._life.socket.fileno()
        while True:
            poll = select.poll()
            poll.register(life, select.POLLIN)
            poll.register(self._driver, select.POLLIN)
            if self._pidfd >= 0:
                poll.register(self._pidfd, select.POLLIN)
            control = self._control.socket.fileno() if self._control is not None else -1
            if control >= 0:
                poll.register(control, select.POLLIN)
            for group in self._groups:
                for descriptor, mask in group.descriptors():
                    poll.register(descriptor, mask)
            timeout_s = self._timeout_s()
            ready = dict(poll.poll(None if timeout_s is None else 1000 * timeout_s))
            if self._driver in ready:
                self._end()
            if control in ready:
                self._on_control()
            if self._pidfd in ready:
                self._on_exit()
            for group in list(self._groups):
                group.handle(ready)
                if group.is_over:
                    self._on_group_over(group)
            if life in ready:
                self._on_message()
            if not ready:
                self._on_timeout()

    def _timeout_s(self) -> float | None:
        is_limited = (self._worker and self._log_limit) or any(group.log_limit_bytes for group in self._groups)
        times = [_LOG_CHECK_S] if is_limited else []
        times += [group.deadline - time.monotonic() for group in self._groups if group.deadline is not None]
        return max(0.0, min(times)) if times else None

    def _send(self, message: wire.FromSupervisor) -> None:
        try:
            self._life.send(message)
        except (BrokenPipeError, ConnectionResetError):
            self._end()

    def _on_message(self) -> None:
        match self._life.receive():
            case (None, _):
                self._end()
            case (wire.StartWorker() as start, [data]):
                self._start(start, data)
            case (wire.StartGroup(is_remote), [data, *ports]):
                self._whole = self._add_group(data, ports, is_patient=False, is_remote=is_remote)
            case (wire.StartWorker() | wire.StartGroup(), _):
                self._send(wire.Refused(errno.EMFILE))
            case (wire.EndTree(), _):
                if self._whole is not None:
                    self._whole.kill()
                    self._on_group_over(self._whole)
                elif self._worker:
                    self._kill_worker()

    def _start(self, start: wire.StartWorker, data: int) -> None:
        """Make a worker with this socket to the driver; where the kernel allows none, the trial is not to blame."""
        try:
            ours, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with control:  # closed here, once the worker has it
                self._control = Packets(ours)
                worker = (self._spawn if start.is_spawned else self._fork)(data, (), control.fileno())
                self._pidfd, self._worker = pidfd_of(worker), worker
        except OSError as error:
            self._forget_worker()
            self._send(wire.Refused(error.errno or 0))
        else:
            self._logs, self._log_limit = start.logs, start.log_limit_bytes
        finally:
            os.close(data)

    def _fork(self, data: int, kept: Sequence[int], control: int = -1) -> int:
        parent = os.getpid()

        def work() -> None:
            for descriptor in self._own:
                os.close(descriptor)
            for descriptor in open_descriptors().difference(self._inherited, kept, (data, control)):
                os.close(descriptor)
            become_worker(parent)
            serve(SocketChannel(data), is_reused=self._is_reusing and control >= 0, control=control)

        return fork(work)

    def _spawn(self, data: int, kept: Sequence[int], control: int = -1) -> int:
        # Not at the top: a supervisor that forks never needs it, and it takes 50 ms.
        import multiprocess.spawn
        import multiprocess.util

        arguments = (os.getpid(), data, control, users_limit(), self._is_reusing and control >= 0)
        code = _SPAWNED.format(path=sys.path, arguments=arguments)
        executable = os.fsencode(multiprocess.spawn.get_executable())
        command = [executable, *multiprocess.util._args_from_interpreter_flags(), "-c", code]
        passed = tuple(sorted({descriptor for descriptor in (data, control, *kept) if descriptor >= 0}))
        pid: int = multiprocess.util.spawnv_passfds(executable, command, passed)
        return pid

    # --- groups ------------------------------------------------------------------------------------------------------

    def _on_control(self) -> None:
        """The worker asks for a group, is done with a job and waits for another, or is gone."""
        assert self._control is not None
        match self._control.receive():
            case (wire.StartGroup(), [data, *ports]):
                self._add_group(data, ports, is_patient=True)
            case (wire.StartGroup(), _):
                pass  # the worker sees its socket close
            case (wire.Idle(), _):
                self._on_idle()
            case _:
                self._drop_control()

    def _add_group(self, data: int, ports: Sequence[int], *, is_patient: bool, is_remote: bool = False) -> LocalRanks:
        # Not at the top: it would slow every cold start; the fork server imports it where there will be groups.
        from sweep.engines.local.group import Group, RemoteRanks

        def make(data: int, kept: Sequence[int], is_spawned: bool) -> int:
            return (self._spawn if is_spawned else self._fork)(data, kept)

        upstream = socket.socket(fileno=data)
        group: LocalRanks
        if is_remote:
            group = RemoteRanks(upstream, ports, make)
        else:
            group = Group(upstream, ports, make, is_patient=is_patient)
        self._groups.append(group)
        return group

    def _on_group_over(self, group: LocalRanks) -> None:
        """Forget a group; when it was the attempt itself, end what it left, and say that the tree is gone."""
        self._groups.remove(group)
        _trim(group)
        if group is self._whole:
            self._whole = None
            end_descendants()
            self._send(wire.Refused(group.refusal) if group.refusal else wire.Exited(0, group.peak_rss_bytes))

    def _end_groups(self) -> None:
        """The worker that asked for them is gone, or idle."""
        for group in self._groups:
            group.kill()
        self._groups.clear()

    def _forget_worker(self) -> None:
        """Close what led to a worker that is gone, or was never made."""
        self._drop_control()
        if self._pidfd >= 0:
            os.close(self._pidfd)
        self._worker, self._pidfd = 0, -1

    def _drop_control(self) -> None:
        if self._control is not None:
            self._control.close()
        self._control = None

    def _kill_worker(self) -> None:
        """Kill the worker with its whole tree."""
        send(signal.SIGKILL, -self._worker, self._worker)  # it may not lead a group yet
        self._on_exit()

    def _on_exit(self) -> None:
        """Reap the worker, end what it left, and say that the tree is gone."""
        self._end_groups()
        _, status, usage = os.wait4(self._worker, 0)
        end_descendants()
        self._trim_log()
        self._forget_worker()
        self._send(wire.Exited(status, usage.ru_maxrss * 1024))

    def _on_idle(self) -> None:
        """A reused worker is done with a job: end whatever it left running."""
        self._end_groups()
        if children_of(self._worker) or len(children_of(os.getpid())) > 1:
            self._end_orphans()
        self._trim_log()
        self._send(wire.Idle())

    def _end_orphans(self) -> None:
        """Kill the children that a reused worker left, its own and those handed to this process."""
        while children := children_of(self._worker):
            send(signal.SIGKILL, *children)
            if all(is_gone(pid) for pid in children):
                break  # zombies that only the worker can reap; they run no more
        end_descendants(spare=[self._worker])

    def _on_timeout(self) -> None:
        self._trim_log()
        for group in self._groups:
            _trim(group)

    def _trim_log(self) -> None:
        """Keep the output below its limit: its head, a mark, and its tail."""
        if not self._log_limit or not self._logs:
            return
        paths = self._logs
        if self._is_reusing and self._worker:  # it may write for another trial by now
            with contextlib.suppress(OSError):
                now = os.readlink(f"/proc/{self._worker}/fd/1")
                if os.path.basename(now) == os.path.basename(paths[0]):
                    paths = tuple(os.path.join(os.path.dirname(now), os.path.basename(path)) for path in paths)
        for path in paths:
            trim_output(path, self._log_limit)

    def _end(self) -> NoReturn:
        """The driver is gone: end the tree and this process."""
        if self._worker:
            self._kill_worker()
        end_descendants()
        os._exit(0)


def _trim(group: LocalRanks) -> None:
    for log in group.logs if group.log_limit_bytes else ():
        trim_output(log, group.log_limit_bytes)


def trim_output(path: str, limit: int) -> None:
    """Cut a file that is appended to down to `limit` bytes: its head, a mark, its tail.

    Writers go on at the new end, because they append; what is written between the reading of the tail and the cut is
    lost, like the rest of the middle.
    """
    try:
        if os.lstat(path).st_size <= limit:
            return
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return  # removed or renamed by the user's code
    try:
        size = os.fstat(descriptor).st_size
        if size <= limit:
            return
        # Cut to half the limit, so that a trial that prints without end is not trimmed at every look.
        head, tail = int(limit * _HEAD_SHARE), int(limit * _HEAD_SHARE)
        data = os.pread(descriptor, tail, size - tail)
        mark = f"\n--- {size - head - tail:,} bytes were dropped here: output is kept up to {limit:,} bytes\n"
        os.pwrite(descriptor, mark.encode() + data, head)
        os.ftruncate(descriptor, head + len(mark.encode()) + len(data))
    except OSError:
        return  # a full disk: trimmed at the next look
    finally:
        os.close(descriptor)
