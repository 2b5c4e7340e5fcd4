"""Claims: what each sweep of this user holds of the machine, in one directory that all of its sweeps read.

lock       flocked by whoever reads or writes the others, so that a claim is whole or not made
ID.claim   a row: what one driver holds, and what it waits for. Flocked by the driver and by the supervisors of its
           trials: it counts while one of them lives
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import os
import re
import socket
import stat
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path

from sweep.core.claims import Claim
from sweep.core.resources import LOCAL, UNIT, Node, Placement, Resources, units_of
from sweep.errors import SweepError

DIRECTORY_VARIABLE = "SWEEP_CLAIMS"

_PATIENCE_S = 5.0  # for the lock, which others hold for a fraction of a millisecond
_YOUNG_S = 60.0  # since the lock was touched: who clears old files away is to leave it
_DEAF_S = 5.0  # a driver that waits and has not looked for so long, as when it is stopped, lets others go first
# What the drivers of GPUs call one of them, in every process and whatever the order in which it sees them.
_UUID = re.compile(r"(GPU|MIG)-[0-9A-Fa-f-]{8}")

Place = tuple[str, str, str]  # machine, "amount" or "device", and its name; a device with a name of its own is on "*"
_AMOUNT, _DEVICE = "amount", "device"


class Unkept(SweepError):
    """Claims cannot be kept here; says why."""


def directory_of(environ: Mapping[str, str] | None = None) -> Path:
    """Return the directory of the claims, made if it is missing: `$SWEEP_CLAIMS`, else one in the temporary directory.

    Raises:
        Unkept: it is not this user's own, others may write there, it is a link or cannot be made, or it would lie in
            the user's home directory, which machines may share.
    """
    given = (os.environ if environ is None else environ).get(DIRECTORY_VARIABLE)
    try:
        path = Path(given).absolute() if given else _default()
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        found = path.lstat()
    except OSError as error:
        raise Unkept(f"{error.filename or given}: {error.strerror or error}") from error
    if stat.S_ISLNK(found.st_mode) or not stat.S_ISDIR(found.st_mode):
        raise Unkept(f"{path} is no directory")
    if found.st_uid != os.geteuid():
        raise Unkept(f"{path} belongs to another user (uid {found.st_uid})")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Unkept(f"other users may write into {path} (mode {stat.S_IMODE(found.st_mode):o}); expected mode 700")
    return path


def _default() -> Path:
    base = Path(tempfile.gettempdir()).absolute()
    home = Path(os.path.expanduser("~")).absolute()
    usual = [Path(name) for name in ("/tmp", "/var/tmp", "/usr/tmp", "/dev/shm")]
    is_home = home != Path("/") and base.is_relative_to(home)
    if is_home and not any(base.is_relative_to(name) for name in usual):
        raise Unkept(f"the temporary directory {base} lies in the home directory, which machines may share")
    return base / f"sweep-{os.geteuid()}"


@dataclass(slots=True)
class _Row:
    """What the file of a driver says.

    Attributes:
        experiment, pid, mark, run: see `Claims`.
        totals: how much there is of amounts on each machine that it uses.
        held: what its trials, and its idle processes, hold.
        ticket: its place among those that wait, by which the first one goes first; 0: it waits for nothing.
        looked_at: when it last looked, on the monotonic clock.
        wants: (name, type, amount) of what it waits for; of devices their number.
    """

    experiment: str
    pid: int
    mark: str
    run: str
    totals: Counter[Place]
    held: Counter[Place]
    ticket: int = 0
    looked_at: float = 0.0
    wants: Sequence[tuple[str, str, int]] = ()

    @property
    def is_waiting(self) -> bool:
        return self.ticket > 0 and abs(time.monotonic() - self.looked_at) < _DEAF_S

    def to_json(self) -> bytes:
        data = {one.name: getattr(self, one.name) for one in fields(self)}
        for name in ("totals", "held"):
            data[name] = [[*place, amount] for place, amount in data[name].items()]
        return json.dumps(data, separators=(",", ":")).encode()

    @classmethod
    @lru_cache(maxsize=64)
    def from_json(cls, text: bytes) -> _Row:
        row = cls(**json.loads(text))
        row.looked_at = float(row.looked_at)
        for name in ("totals", "held"):
            rows = {(str(machine), str(kind), str(what)): int(n) for machine, kind, what, n in getattr(row, name)}
            setattr(row, name, Counter(rows))
        row.wants = [(str(name), str(of_type), int(amount)) for name, of_type, amount in row.wants]
        return row


class Claims:
    """One driver's part in the claims of this machine. Not for several threads.

    Attributes:
        fd: descriptor of the driver's own file. Processes that shall keep its claims alive inherit it.
        others: what the other drivers keep from this one, as of the last look.
        has_waiters: whether one of them waited then, no matter since when.
        awaited: the request that waits for others; None: none does.
    """

    def __init__(
        self,
        directory: Path,
        nodes: Sequence[Node],
        *,
        experiment: str,
        mark: str = "",
        here: str = "",
        run: str = "",
        notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Register a driver.

        Args:
            nodes: its inventory. What is called `local`, or like this host, is this machine; other nodes are machines
                of their own, the same for all drivers that have one of that name.
            mark: names its process for good.
            here: id of the node that is this machine, too, whatever it is called.
            run: what the drivers of one run on nodes of this machine have in common: they do not keep off each other.
            notice: called once with each thing that the user should know.

        Raises:
            Unkept: the directory does not take it.
        """
        self._directory = directory
        self._nodes = tuple(nodes)
        self._machines = {node.id: "" if node.id in (here, LOCAL, socket.gethostname()) else node.id for node in nodes}
        self._devices: dict[Place, list[tuple[str, str]]] = {}  # as all drivers know it -> (node, device) here
        for node in nodes:
            for device in node.devices:
                self._devices.setdefault(self._known(node.id, device.id), []).append((node.id, device.id))
        self._row = _Row(experiment, os.getpid(), mark, run, _totals(nodes, self._machines), Counter())
        self._notice = notice
        self._noticed: set[str] = set()
        self._held: dict[Hashable, Counter[Place]] = {}
        self._idle: dict[Hashable, Counter[Place]] = {}
        self._rows: list[_Row] = []  # of the other drivers
        self._is_blind = False
        self.others: tuple[Claim, ...] = ()
        self.has_waiters = False
        self.awaited: Resources | None = None
        self._file = directory / f"{os.getpid()}-{uuid.uuid4().hex[:12]}.claim"
        self.fd = -1
        self._lock = -1  # of the directory, once it is open
        self._row_at = 0, 0  # where the own row begins and ends in its file
        try:
            with self._locked():
                self.fd = _open(self._file)
                fcntl.flock(self.fd, fcntl.LOCK_EX)
                self._read()
                self._write()
        except OSError as error:
            self.close()
            raise Unkept(f"{error.filename or directory}: {error.strerror or error}") from error
        self._see()

    # --- what a driver does ------------------------------------------------------------------------------------------

    def take(self, key: Hashable, resources: Resources, placement: Placement | None) -> bool:
        """Claim all that a placement names, or nothing; False: another driver holds a part of it.

        A request that is refused waits from now on, if none did before it.

        Args:
            key: what `give_back` will be given.
        """
        need = self._need(resources, placement)
        with self._turn():
            if self._is_taken(need):
                self._queue_up(resources)
                return False
            self._held[key] = need
            if self.awaited == resources:
                self._queue_up(None)
            return True

    def give_back(self, key: Hashable, idle: Hashable = None) -> None:
        """Give back what was claimed under a key; unknown ones are fine.

        Args:
            idle: a process stays that still uses the devices, under this name, until `end_idle`.
        """
        need = self._held.pop(key, None)
        if need is None:
            return
        if idle is not None:
            self._idle[idle] = Counter({place: share for place, share in need.items() if place[1] == _DEVICE})
        self.look()

    def end_idle(self, name: Hashable) -> None:
        """A process that was left is gone, or is used again; unknown ones are fine."""
        if self._idle.pop(name, None) is not None:
            self.look()

    def look(self) -> tuple[Claim, ...]:
        """Return what the other drivers keep from this one now. A look now and then keeps the files from those that
        clear temporary directories of what is old."""
        with self._turn():
            pass
        return self.others

    def wait_for(self, request: Resources | None) -> None:
        """Keep a place among those that wait, for this request from now on; None: nothing waits any more."""
        if request != self.awaited:
            with self._turn():
                self._queue_up(request)

    def is_driven_by(self, mark: str) -> bool:
        """Whether one of the other drivers bears this mark."""
        self.look()
        return any(row.mark == mark for row in self._rows if mark)

    def close(self) -> None:
        """Give back everything; processes that inherited the descriptor must be gone by now."""
        if self.fd >= 0:
            with contextlib.suppress(OSError):
                self._file.unlink()
            fcntl.flock(self.fd, fcntl.LOCK_UN)  # also for a process that was forked from this one and has it still
            os.close(self.fd)
            self.fd = -1
        self._drop_lock()

    # --- the files ---------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Read what the others hold before the body, and write what has changed after it, all under the lock."""
        with contextlib.ExitStack() as locked:
            if not self._is_blind:
                try:
                    locked.enter_context(self._locked())
                    self._read()
                except OSError as error:
                    self._is_blind, self._rows = True, []
                    where = error.filename or self._directory
                    self._say(f"other sweeps of this machine are not seen: {where}: {error.strerror}")
            yield
            if not self._is_blind:
                try:
                    self._write()
                except OSError as error:
                    where = f"{self._directory}: {error.strerror}"
                    self._say(f"other sweeps of this machine do not see all of this one: {where}")
            self._see()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the directory.

        Raises:
            OSError: another process keeps it, or the file system locks nothing.
        """
        path, give_up = self._directory / "lock", time.monotonic() + _PATIENCE_S
        while True:
            if self._lock < 0:
                self._lock = _open(path)
            if _lock(self._lock):
                if _is_at(path, self._lock):
                    break
                self._drop_lock()  # something has cleared the directory
            elif time.monotonic() > give_up:
                raise OSError(errno.EBUSY, "a process that does not go on keeps it locked", str(path))
            else:
                time.sleep(0.0002)
        try:
            if os.fstat(self._lock).st_mtime < time.time() - _YOUNG_S:
                os.utime(self._lock)
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _drop_lock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _read(self) -> None:
        """Read the rows of the other drivers, and delete those of drivers that are gone with all their trials."""
        self._rows = []
        for name in os.listdir(self._directory):
            path = f"{self._directory}/{name}"
            if not name.endswith(".claim") or name == self._file.name:
                continue
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            except FileNotFoundError:
                continue  # it was closed just now
            try:
                if _lock(descriptor):
                    os.unlink(path)
                else:
                    self._rows.append(_last_row(os.pread(descriptor, os.fstat(descriptor).st_size, 0)))
            except ValueError:
                self._say(f"another sweep of this machine is not seen: {path} is damaged")
            finally:
                os.close(descriptor)

    def _write(self) -> None:
        """Write the own row where the one before is not, so that a kill leaves one whole: the latest counts."""
        held: Counter[Place] = Counter()
        for need in (*self._held.values(), *self._idle.values()):
            held.update(need)
        self._row.held = Counter({place: min(n, UNIT) if place[1] == _DEVICE else n for place, n in held.items()})
        self._row.looked_at = time.monotonic()
        if not _is_at(self._file, self.fd):  # something has cleared the directory
            again = _open(self._file)
            os.dup2(again, self.fd, inheritable=False)
            os.close(again)
            fcntl.flock(self.fd, fcntl.LOCK_EX)
            self._row_at = 0, 0
        text = b"\n%b\n" % self._row.to_json()
        before, after = self._row_at
        at = 0 if len(text) <= before else after
        if os.pwrite(self.fd, text, at) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._row_at = at, at + len(text)

    def _say(self, text: str) -> None:
        if text not in self._noticed:
            self._noticed.add(text)
            self._notice(text)

    # --- what the rows say -------------------------------------------------------------------------------------------

    def _known(self, node: str, device: str) -> Place:
        return ("*" if _UUID.match(device) else self._machines.get(node, node), _DEVICE, device)

    def _need(self, resources: Resources, placement: Placement | None) -> Counter[Place]:
        need: Counter[Place] = Counter()
        for bundle, place in zip(resources.bundles, placement.bundles if placement is not None else (), strict=False):
            machine = self._machines.get(place.node)
            if machine is None:
                continue  # a part on a node of another driver of the run
            for name, amount in bundle.amounts.items():
                if name not in ("gpu", "tpu"):
                    need[machine, _AMOUNT, name] += _units(name, amount)
            for device, share in place.devices:
                need[self._known(place.node, device)] += units_of(share)
        return need

    def _is_taken(self, need: Counter[Place]) -> bool:
        """Whether others hold too much for a need, of which the own trials hold theirs in any case."""
        for place, amount in need.items():
            holding = [row for row in self._strangers() if row.held[place]]
            totals = [self._total(row, place) for row in holding if place in row.totals]
            most = UNIT if place[1] == _DEVICE else min([*totals, self._row.totals[place]])
            held = sum(mine[place] for mine in self._held.values()) + sum(row.held[place] for row in holding)
            if holding and held + amount > most:
                return True
        return False

    def _strangers(self) -> list[_Row]:
        """Return the other drivers but those of the same run."""
        return [row for row in self._rows if not self._row.run or row.run != self._row.run]

    def _total(self, driver: _Row, place: Place) -> int:
        """Return how much a run counts in all, of which a driver is one: several nodes of it may be this machine."""
        return sum(row.totals[place] for row in self._rows if row is driver or (driver.run and row.run == driver.run))

    def _queue_up(self, request: Resources | None) -> None:
        """Wait, behind those that do; a driver that waits already keeps its place for another request."""
        self.awaited = request
        self._row.wants = [] if request is None else _wants(request)
        if request is None:
            self._row.ticket = 0
        elif not self._row.ticket:
            self._row.ticket = 1 + max((row.ticket for row in self._rows), default=0)

    def _see(self) -> None:
        """Note what the other drivers keep from this one."""
        strangers = self._strangers()
        self.has_waiters = any(row.is_waiting for row in strangers)
        claims = [self._claim_of(row) for row in strangers]
        claims = [claim for claim in claims if claim.amounts or claim.devices or claim.wants]
        self.others = tuple(sorted(claims, key=lambda claim: (claim.experiment, claim.pid)))

    def _claim_of(self, row: _Row) -> Claim:
        is_first = row.is_waiting and (not self._row.ticket or row.ticket < self._row.ticket)
        machines = {machine for machine, _, _ in row.totals}
        wants = [
            (node.id, *want)
            for node in self._nodes
            for want in (row.wants if is_first else ())
            if self._machines[node.id] in machines and node.amount(want[0])
        ]
        used = {(node, name) for node, name, *_ in (*wants, *self._here(row.held))}
        # Of what it holds or must get, where it counts less in all than this driver does.
        totals = {
            (node, name): self._total(row, (self._machines[node], _AMOUNT, name))
            for node, name, _ in self._here(row.totals)
            if (node, name) in used
        }
        return Claim(
            row.experiment,
            row.pid,
            tuple(self._here(row.held)),
            tuple((*here, n) for place, n in row.held.items() for here in self._devices.get(place, ())),
            tuple(
                (node, name, total)
                for (node, name), total in totals.items()
                if total < self._row.totals[self._machines[node], _AMOUNT, name]
            ),
            tuple(wants),
        )

    def _here(self, amounts: Mapping[Place, int]) -> Iterator[tuple[str, str, int]]:
        for node in self._nodes:
            for (machine, kind, name), amount in amounts.items():
                if kind == _AMOUNT and machine == self._machines[node.id]:
                    yield node.id, name, amount


def _units(name: str, amount: float) -> int:
    return int(amount) if name == "memory" else units_of(amount)


def _totals(nodes: Sequence[Node], machines: Mapping[str, str]) -> Counter[Place]:
    totals: Counter[Place] = Counter()
    for node in nodes:
        amounts = {"cpu": node.cpus, **node.custom, **({"memory": node.memory} if node.memory else {})}
        for name, amount in amounts.items():
            totals[machines[node.id], _AMOUNT, name] = _units(name, amount)
    return totals


def _wants(request: Resources) -> list[tuple[str, str, int]]:
    """Return name, type and amount of all that a request asks for; of devices their number."""
    wants = []
    for name, of_type, amount in request.needs():
        if name in ("gpu", "tpu"):
            asked = [b.amount(name) for b in request.bundles if not of_type or b.type_of(name) == of_type]
            number = sum(map(math.ceil, asked)) if request.distinct_devices else math.ceil(amount)
        else:
            number = _units(name, amount)
        wants.append((name, of_type, number))
    return wants


def _last_row(text: bytes) -> _Row:
    """Return the latest of the whole rows in a driver's file.

    Raises:
        ValueError: it says none.
    """
    rows = []
    for line in filter(None, text.split(b"\n")):
        with contextlib.suppress(ValueError, TypeError, AttributeError, OverflowError):
            rows.append(_Row.from_json(line))
    return max(rows, key=lambda row: row.looked_at)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _lock(descriptor: int) -> bool:
    """Lock a file that nobody else has locked; False: somebody has."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether a path still names the file that is open."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
