"""Claims: what each sweep of this user holds of the machine, in one table that all of its sweeps read.

lock       the table: a row for each driver, with what it holds and what it waits for. Flocked by whoever reads or
           writes it, so that a claim is whole or not made
ID.claim   empty; flocked by a driver and by the hosts of its trials: while one of them lives, its row counts
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
import struct
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

from sweep.core.claims import Claim
from sweep.core.resources import LOCAL, UNIT, Node, Placement, Resources, units_of
from sweep.errors import SweepError

DIRECTORY_VARIABLE = "SWEEP_CLAIMS"

_PATIENCE_S = 5.0  # for the lock, which others hold for a fraction of a millisecond
_BEAT_S = 1.0  # a driver that waits says so often that it looks
_DEAF_S = 5.0  # one that has not for so long, for instance because it is stopped, lets others go first
_HEAD = struct.Struct("<QII")  # of a version of the table: its number, length and checksum
_SLOT_BYTES = 1 << 20  # for each of two versions; a hole in the file but for what is used
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
    named = [Path(os.environ[name]).absolute() for name in ("TMPDIR", "TEMP", "TMP") if os.environ.get(name)]
    if base == Path.cwd() and base not in (*usual, *named):  # where Python goes when nothing else can be written
        raise Unkept("there is no temporary directory that can be written")
    is_home = home != Path("/") and base.is_relative_to(home)
    if is_home and not any(base.is_relative_to(name) for name in usual):
        raise Unkept(f"the temporary directory {base} lies in the home directory, which machines may share")
    return base / f"sweep-{os.geteuid()}"


@dataclass(slots=True)
class _Ticket:
    """A driver's place among those that wait; numbers are given in the order in which they began to."""

    number: int
    request: Resources
    beat: float


@dataclass(slots=True)
class _Other:
    """The row of another driver; `waits` is the number of its place, when it last looked, and what it asks for."""

    experiment: str
    pid: int
    mark: str
    run: str
    machines: set[str]
    totals: Counter[Place]
    held: Counter[Place]
    waits: tuple[int, float, list[tuple[str, str, int]]] | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> _Other:
        waits = row["waits"]
        if waits is not None:
            number, beat, wants = waits
            waits = int(number), float(beat), [(str(name), str(of_type), int(n)) for name, of_type, n in wants]
        return cls(
            str(row["experiment"]),
            int(row["pid"]),
            str(row["mark"]),
            str(row["run"]),
            set(row["machines"]),
            _counted(row["totals"]),
            _counted(row["held"]),
            waits,
        )


class Claims:
    """One driver's part in the claims of this machine. Not for several threads.

    Attributes:
        fd: descriptor of the driver's own file. Processes that shall keep its claims alive inherit it.
        others: what the other drivers keep from this one, as of the last look.
        has_waiters: whether one of them waited then, no matter since when.
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
        self._table = directory / "lock"
        self._nodes = tuple(nodes)
        self._machines = {node.id: "" if node.id == here else _machine(node) for node in nodes}
        self._devices: dict[Place, list[tuple[str, str]]] = {}  # as all drivers know it -> (node, device) here
        for node in nodes:
            for device in node.devices:
                self._devices.setdefault(self._known(node.id, device.id), []).append((node.id, device.id))
        self._run = run
        self._totals = _totals(self._nodes, self._machines)
        self._about = {
            "experiment": experiment,
            "pid": os.getpid(),
            "mark": mark,
            "run": run,
            "machines": sorted(set(self._machines.values())),
            "totals": [[*place, total] for place, total in self._totals.items()],
        }
        self._notice = notice
        self._noticed: set[str] = set()
        self._held: dict[Hashable, Counter[Place]] = {}
        self._sum: Counter[Place] = Counter()
        self._idle: dict[Hashable, Counter[Place]] = {}
        self._ticket: _Ticket | None = None
        self._rows: dict[str, Any] = {}  # of the other drivers, as they are in the table
        self._others: dict[str, _Other] = {}
        self._version, self._text = 0, b""  # of the table, as it was read or written last
        self._is_blind = False
        self.others: tuple[Claim, ...] = ()
        self.has_waiters = False
        self._id = f"{os.getpid()}-{uuid.uuid4().hex[:12]}"
        self._own_file = directory / f"{self._id}.claim"
        self.fd = self._lock = -1
        try:
            self._lock = _open(self._table)
            with self._locked():
                self.fd = _open(self._own_file)
                fcntl.flock(self.fd, fcntl.LOCK_EX)
                self._read()
                for path in directory.glob("*.claim"):  # of drivers that were killed before they wrote a row
                    if path.stem not in self._rows and path != self._own_file and _is_free(path):
                        path.unlink()
                self._write()
                self._see()
        except OSError as error:
            with contextlib.suppress(OSError):
                self._own_file.unlink()
            self._close_files()
            raise Unkept(f"{error.filename or directory}: {error.strerror or error}") from error

    # --- what a driver does ------------------------------------------------------------------------------------------

    def take(self, key: Hashable, resources: Resources, placement: Placement | None) -> bool:
        """Claim all that a placement names, or nothing; False: another driver holds a part of it.

        A request that is refused waits from now on, if none did before it.

        Args:
            key: what `give_back` will be given.
        """
        need = self._need(resources, placement)

        def claim() -> bool:
            if self._is_taken(need):
                self._queue_up(resources)
                return False
            self._held[key] = need
            self._sum += need
            if self._ticket is not None and self._ticket.request == resources:
                self._ticket = None
            return True

        return self._exchange(claim)

    def give_back(self, key: Hashable, idle: Hashable = None) -> None:
        """Give back what was claimed under a key; unknown ones are fine.

        Args:
            idle: a process stays that still uses the devices, under this name, until `end_idle`.
        """
        need = self._held.pop(key, None)
        if need is None:
            return
        self._sum -= need
        if idle is not None:
            self._idle[idle] = Counter({place: share for place, share in need.items() if place[1] == _DEVICE})
        self._exchange()

    def end_idle(self, name: Hashable) -> None:
        """A process that was left is gone, or is used again; unknown ones are fine."""
        if self._idle.pop(name, None) is not None:
            self._exchange()

    def look(self) -> tuple[Claim, ...]:
        """Return what the other drivers keep from this one now."""
        self._exchange()
        return self.others

    def refresh(self) -> None:
        """Keep the files from those that clear temporary directories of what is old; call it now and then."""
        for descriptor in (self._lock, self.fd):
            with contextlib.suppress(OSError):  # what cannot be written now is not cleared away, either
                os.utime(descriptor)
        self._exchange()  # and make them again, should they be gone

    def wait_for(self, request: Resources | None) -> None:
        """Keep a place among those that wait, for this request from now on; None: nothing waits any more."""
        if request == self.awaited:
            return

        def wait() -> bool:
            self._queue_up(request)
            return True

        self._exchange(wait)

    def is_driven_by(self, mark: str) -> bool:
        """Whether one of the other drivers bears this mark."""
        self._exchange()
        return any(other.mark == mark for other in self._others.values() if mark)

    @property
    def awaited(self) -> Resources | None:
        """The request that waits for others; None: none does."""
        return None if self._ticket is None else self._ticket.request

    def close(self) -> None:
        """Give back everything; processes that inherited the descriptor must be gone by now."""
        if self.fd < 0:
            return
        fcntl.flock(self.fd, fcntl.LOCK_UN)  # also for a process that was forked from this one and has it still
        with contextlib.suppress(OSError), self._locked():
            self._own_file.unlink(missing_ok=True)
            self._read()
            self._put(self._rows)
        self._close_files()

    def _close_files(self) -> None:
        for descriptor in (self.fd, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self.fd = self._lock = -1

    # --- the table ---------------------------------------------------------------------------------------------------

    def _exchange(self, act: Callable[[], bool] = lambda: True) -> bool:
        """Read the table, act, and write what has changed, all in one turn; return what the act returned."""
        with contextlib.ExitStack() as turn:
            if not self._is_blind:
                try:
                    turn.enter_context(self._locked())
                    if not _is_at(self._own_file, self.fd):  # something has cleared the directory
                        _reopen(self._own_file, self.fd)
                        fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    self._read()
                except OSError as error:
                    self._is_blind = True
                    self._others.clear()
                    where = error.filename or self._directory
                    self._say(f"other sweeps of this machine are not seen: {where}: {error.strerror}")
            answer = act()
            if not self._is_blind:
                try:
                    self._write()
                except OSError as error:
                    where = f"{self._directory}: {error.strerror}"
                    self._say(f"other sweeps of this machine do not see all of this one: {where}")
            self._see()
        return answer

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the table.

        Raises:
            OSError: another process keeps it, or the file system locks nothing.
        """
        path, give_up = self._table, time.monotonic() + _PATIENCE_S
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(path, self._lock):
                    break
                _reopen(path, self._lock)  # something has cleared the directory
            except BlockingIOError:
                if time.monotonic() > give_up:
                    raise OSError(errno.EBUSY, "a process that does not go on keeps it locked", str(path)) from None
                time.sleep(0.0002)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _read(self) -> None:
        """Read the rows of the other drivers, but of those that are gone."""
        self._version, text = _load(self._lock)
        if text != self._text:
            self._text = text
            try:
                rows = dict(json.loads(text or b"{}"))
            except (ValueError, TypeError):
                rows = {}
                self._say(f"other sweeps of this machine may not be seen: {self._table} was damaged")
            rows.pop(self._id, None)
            self._rows, self._others = rows, {}
            for name, row in rows.items():
                try:
                    self._others[name] = _Other.of(row)
                except (ValueError, TypeError, KeyError, OverflowError):
                    self._say(f"another sweep of this machine is not seen: its row in {self._table} is damaged")
        for name in list(self._rows):
            path = self._directory / f"{name}.claim"
            if _is_free(path):
                del self._rows[name]
                self._others.pop(name, None)
                path.unlink(missing_ok=True)

    def _write(self) -> None:
        """Put the own row into the table."""
        held = sum(self._idle.values(), self._sum)
        ticket, now = self._ticket, time.monotonic()
        if ticket is not None and now > ticket.beat + _BEAT_S:
            ticket.beat = now
        row = {
            **self._about,
            "held": [[*place, min(n, UNIT) if place[1] == _DEVICE else n] for place, n in held.items()],
            "waits": None if ticket is None else [ticket.number, ticket.beat, _wants(ticket.request)],
        }
        self._put({**self._rows, self._id: row})

    def _put(self, rows: Mapping[str, Any]) -> None:
        text = json.dumps(rows, separators=(",", ":"), sort_keys=True).encode()
        if not rows:
            os.ftruncate(self._lock, 0)
        elif text != self._text:
            _store(self._lock, self._version + 1, text)
            self._version, self._text = self._version + 1, text

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
                    need[machine, _AMOUNT, name] += int(amount) if name == "memory" else units_of(amount)
            for device, share in place.devices:
                need[self._known(place.node, device)] += units_of(share)
        return need

    def _is_taken(self, need: Counter[Place]) -> bool:
        """Whether others hold too much for a need, of which the own trials hold theirs in any case."""
        for place, amount in need.items():
            holding = [other for other in self._strangers() if other.held[place]]
            totals = [self._total(other, place) for other in holding if place in other.totals]
            most = UNIT if place[1] == _DEVICE else min([*totals, self._totals.get(place, 0)])
            if holding and self._sum[place] + sum(other.held[place] for other in holding) + amount > most:
                return True
        return False

    def _strangers(self) -> list[_Other]:
        """Return the other drivers but those of the same run."""
        return [other for other in self._others.values() if not self._run or other.run != self._run]

    def _total(self, driver: _Other, place: Place) -> int:
        """Return how much a run counts in all, of which a driver is one: several nodes of it may be this machine."""
        of_run = [o for o in self._others.values() if o is driver or (driver.run and o.run == driver.run)]
        return sum(other.totals.get(place, 0) for other in of_run)

    def _queue_up(self, request: Resources | None) -> None:
        """Wait, behind those that do; a driver that waits already keeps its place for another request."""
        if request is None:
            self._ticket = None
        elif self._ticket is None:
            last = max((other.waits[0] for other in self._others.values() if other.waits is not None), default=0)
            self._ticket = _Ticket(last + 1, request, time.monotonic())
        else:
            self._ticket.request = request

    def _see(self) -> None:
        """Note what the other drivers keep from this one."""
        now, claims = time.monotonic(), []
        self.has_waiters = False
        for other in self._strangers():
            is_waiting = other.waits is not None and abs(now - other.waits[1]) < _DEAF_S
            self.has_waiters = self.has_waiters or is_waiting
            wants: tuple[tuple[str, str, str, int], ...] = ()
            if is_waiting and other.waits and (self._ticket is None or other.waits[0] < self._ticket.number):
                wants = tuple(self._wanted(other.machines, other.waits[2]))
            claim = Claim(
                other.experiment,
                other.pid,
                tuple(self._here(other.held)),
                tuple((*here, n) for place, n in other.held.items() for here in self._devices.get(place, ())),
                tuple(self._smaller(other, {(node, name) for node, name, _, _ in wants})),
                wants,
            )
            if claim.amounts or claim.devices or claim.wants:
                claims.append(claim)
        self.others = tuple(sorted(claims, key=lambda claim: (claim.experiment, claim.pid)))

    def _here(self, amounts: Mapping[Place, int]) -> Iterator[tuple[str, str, int]]:
        for node in self._nodes:
            for (machine, kind, name), amount in amounts.items():
                if kind == _AMOUNT and machine == self._machines[node.id]:
                    yield node.id, name, amount

    def _smaller(self, other: _Other, wanted: set[tuple[str, str]]) -> Iterator[tuple[str, str, int]]:
        """Yield the totals of another driver that are smaller here than the own ones, of what it holds or must get."""
        for node, name, _ in self._here(other.totals):
            place = (self._machines[node], _AMOUNT, name)
            total = self._total(other, place)
            is_used = place in other.held or (node, name) in wanted
            if is_used and total < self._totals.get(place, 0):
                yield node, name, total

    def _wanted(self, machines: set[str], wants: Iterable[Sequence[Any]]) -> Iterator[tuple[str, str, str, int]]:
        for node in self._nodes:
            for name, of_type, amount in wants:
                if self._machines[node.id] in machines and node.amount(name):
                    yield node.id, name, of_type, amount


def _machine(node: Node) -> str:
    """Return the machine that a node is; empty: this one."""
    return "" if node.id in (LOCAL, socket.gethostname()) else node.id


def _totals(nodes: Sequence[Node], machines: Mapping[str, str]) -> dict[Place, int]:
    totals = {}
    for node in nodes:
        amounts = {"cpu": units_of(node.cpus), **{name: units_of(n) for name, n in node.custom.items()}}
        if node.memory:
            amounts["memory"] = node.memory
        totals.update({(machines[node.id], _AMOUNT, name): amount for name, amount in amounts.items()})
    return totals


def _wants(request: Resources) -> list[tuple[str, str, int]]:
    """Return name, type and amount of all that a request asks for; of devices their number."""
    wants = []
    for name, of_type, amount in request.needs():
        if name in ("gpu", "tpu"):
            asked = [b.amount(name) for b in request.bundles if not of_type or b.type_of(name) == of_type]
            number = sum(map(math.ceil, asked)) if request.distinct_devices else math.ceil(amount)
        else:
            number = int(amount) if name == "memory" else units_of(amount)
        wants.append((name, of_type, number))
    return wants


def _counted(rows: Iterable[Sequence[Any]]) -> Counter[Place]:
    return Counter({(str(machine), str(kind), str(name)): int(amount) for machine, kind, name, amount in rows})


def _load(descriptor: int) -> tuple[int, bytes]:
    """Return the newer of the two versions of the table that are whole, its number first."""
    versions = [(0, b"")]
    for at in (0, _SLOT_BYTES):
        head = os.pread(descriptor, _HEAD.size, at)
        if len(head) == _HEAD.size:
            number, length, checksum = _HEAD.unpack(head)
            text = os.pread(descriptor, min(length, _SLOT_BYTES), at + _HEAD.size)
            if crc32(text) == checksum:
                versions.append((number, text))
    return max(versions)


def _store(descriptor: int, number: int, text: bytes) -> None:
    """Write a version of the table, not over the one before: a driver that is killed meanwhile leaves that whole."""
    data = _HEAD.pack(number, len(text), crc32(text)) + text
    if len(data) > _SLOT_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    os.pwrite(descriptor, data, number % 2 * _SLOT_BYTES)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _reopen(path: Path, descriptor: int) -> None:
    """Have a descriptor lead to a file that was made anew."""
    opened = _open(path)
    os.dup2(opened, descriptor, inheritable=False)
    os.close(opened)


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether a path still names the file that is open."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _is_free(path: Path) -> bool:
    """Whether no process holds a file's lock; one that is missing is held by nobody."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
