"""Claims: what each sweep of this user holds of the machine, in files that all of its sweeps read.

    lock          flocked for each claim, so that one is whole or not made
    ID.claim      one for each driver, flocked by it and by the hosts of its trials: while one of them lives, it counts
    ID.bell       a pipe of a driver that waits: whoever gives something back rings it

How a claim lies in its file: `claim_file`.
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
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweep.accelerators.claim_file import is_free, newest, write
from sweep.core.claims import Claim
from sweep.core.resources import LOCAL, UNIT, Node, Placement, Resources, units_of
from sweep.errors import SweepError

DIRECTORY_VARIABLE = "SWEEP_CLAIMS"

_VERSION = 1
_TURN_S = 0.05  # for the lock, which others hold for a fraction of a millisecond
_GIVE_UP_S = 5.0  # of trying again and again to get the lock
_RETRY_S = 1.0  # at most between two of those attempts
_ALONE_S = 0.1  # how long it is taken for granted that there is no other driver when none was seen
_BEAT_S = 1.0  # a driver that waits says so often that it lives
_DEAF_S = 5.0  # one that has not for so long, for instance because it is stopped, lets others go first
# What the drivers of GPUs call one of them, in every process and whatever the order in which it sees them.
_UUID = re.compile(r"(GPU|MIG)-[0-9A-Fa-f-]{8}")

Place = tuple[str, str]  # machine and name, or machine and device; a device that has a name of its own is on "*"


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
class _Need:
    """What is held or wanted: amounts and shares of devices."""

    amounts: Counter[Place] = field(default_factory=Counter)
    devices: Counter[Place] = field(default_factory=Counter)

    def add(self, other: _Need) -> None:
        self.amounts.update(other.amounts)
        self.devices.update(other.devices)

    def take_away(self, other: _Need) -> None:
        for mine, theirs in ((self.amounts, other.amounts), (self.devices, other.devices)):
            mine.subtract(theirs)
            for place in [place for place in theirs if mine[place] <= 0]:
                del mine[place]


@dataclass(slots=True)
class _Ticket:
    """A driver's place among those that wait; numbers are given in the order in which they began to."""

    number: int
    request: Resources
    beat: float


@dataclass(slots=True)
class _Other:
    """What another driver's file said last."""

    descriptor: int
    raw: bytes = b""
    body: dict[str, Any] = field(default_factory=dict)
    held: _Need = field(default_factory=_Need)
    totals: dict[Place, int] = field(default_factory=dict)


class Claims:
    """One driver's part in the claims of this machine. Not for several threads.

    Attributes:
        fd: descriptor of the driver's own file. Processes that shall keep its claims alive inherit it.
        others: what the other drivers keep from this one, as of the last look.
        num_others: how many other drivers there were then.
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
        self._nodes = tuple(nodes)
        self._machines = {node.id: "" if node.id == here else _machine(node) for node in nodes}
        self._devices: dict[Place, list[Place]] = {}  # as all drivers know it -> (node, device) here
        for node in nodes:
            for device in node.devices:
                self._devices.setdefault(self._known(node.id, device.id), []).append((node.id, device.id))
        self._run = run
        self._about = {"experiment": experiment, "pid": os.getpid(), "mark": mark, "run": run}
        self._totals = _totals(self._nodes, self._machines)
        self._notice = notice
        self._noticed: set[str] = set()
        self._held: dict[Hashable, _Need] = {}
        self._sum = _Need()
        self._idle: dict[Hashable, _Need] = {}
        self._said: Counter[Place] | None = None  # amounts in the file, where they are more than is held
        self._alone_at = -math.inf  # when there was no other driver, seen last
        self._ticket: _Ticket | None = None
        self._others: dict[str, _Other] = {}
        self._busy_since = self._busy_at = -math.inf
        self._is_blind = False
        self._version = 0
        self.others: tuple[Claim, ...] = ()
        self.num_others = 0
        self.has_waiters = False
        self.bell = -1
        self.fd = -1
        self._lock = -1
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._lock = os.open(directory / "lock", flags, 0o600)
            self._join()
        except OSError as error:
            self.close()
            raise Unkept(f"{directory}: {error.strerror or error}") from error

    def _join(self) -> None:
        """Make the driver's own file."""
        self._name = f"{os.getpid()}-{uuid.uuid4().hex[:12]}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        with self._turn(_GIVE_UP_S) as is_mine:
            if not is_mine:
                raise OSError(errno.EBUSY, "a process that does not go on keeps it locked")
            descriptor = os.open(self._path(self._name, "claim"), flags, 0o600)
            self.fd = descriptor
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                self._write()
            except OSError:
                self._path(self._name, "claim").unlink()
                os.close(descriptor)
                self.fd = -1
                raise

    def _path(self, name: str, kind: str) -> Path:
        return self._directory / f"{name}.{kind}"

    @contextlib.contextmanager
    def _turn(self, patience_s: float = _TURN_S) -> Iterator[bool]:
        """Hold the lock of the directory; False: another process keeps it."""
        give_up = time.monotonic() + patience_s
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    if self.fd < 0:  # not registered yet
                        raise
                    self._lose_sight(f"{self._directory / 'lock'}: {error.strerror}")
                    yield False
                    return
            if (now := time.monotonic()) > give_up:
                if now > self._busy_at + _RETRY_S:  # a new trouble, if there was one before
                    self._busy_since = now
                self._busy_at = now
                if now - self._busy_since > _GIVE_UP_S:
                    self._lose_sight(f"a process that does not go on keeps {self._directory / 'lock'} locked")
                yield False
                return
            time.sleep(0.0002)
        self._busy_at = -math.inf
        try:
            yield True
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _lose_sight(self, why: str) -> None:
        self._is_blind = True
        self.others = ()
        self._say(f"other sweeps of this machine are not seen: {why}")

    def _say(self, text: str) -> None:
        if text not in self._noticed and self.fd >= 0:  # what refuses a new driver is raised
            self._noticed.add(text)
            self._notice(text)

    # --- what a driver does ------------------------------------------------------------------------------------------

    def take(self, key: Hashable, resources: Resources, placement: Placement | None) -> bool:
        """Claim all that a placement names, or nothing; False: another driver holds a part of it.

        A request that is refused waits from now on, if none did before it.

        Args:
            key: what `give_back` will be given.
        """
        need = self._need(resources, placement)
        if self._takes_again(need):
            self._held[key] = need
            return True
        with self._turn() as is_mine:
            if is_mine and not self._is_blind:
                self._read()
                if self._is_taken(need):
                    self._queue_up(resources)
                    self._see()
                    return False
            elif not self._is_blind:
                return False
            self._held[key] = need
            self._sum.add(need)
            if self._ticket is not None and self._ticket.request == resources:
                self._ticket = None
            self._write()
            self._see()
        return True

    def give_back(self, key: Hashable, idle: Hashable = None) -> None:
        """Give back what was claimed under a key; unknown ones are fine.

        Where no other driver was seen a moment ago, amounts wait for `settle`, or for the next trial to take them.

        Args:
            idle: a process stays that still uses the devices, under this name, until `end_idle`.
        """
        need = self._held.pop(key, None)
        if need is None:
            return
        self._sum.take_away(need)
        if idle is not None and need.devices:
            self._idle[idle] = need
        if not need.devices and self._is_alone():
            if self._said is None:
                self._said = self._sum.amounts + need.amounts
            return
        self._write()
        self._ring()

    def settle(self) -> None:
        """Say that what was given back is free, where `give_back` has not."""
        if self._said is not None:
            self._write()
            self._ring()

    def _is_alone(self) -> bool:
        return time.monotonic() < self._alone_at + _ALONE_S

    def _takes_again(self, need: _Need) -> bool:
        """Take what was given back and is still claimed: nobody can have it."""
        if self._said is None or need.devices or self._ticket is not None or not self._is_alone():
            return False
        wanted = self._sum.amounts + need.amounts
        if not wanted <= self._said:
            return False
        self._sum.add(need)
        if wanted == self._said:
            self._said = None
        return True

    def end_idle(self, name: Hashable) -> None:
        """A process that was left is gone, or is used again; unknown ones are fine."""
        if self._idle.pop(name, None) is not None:
            self._write()
            self._ring()

    def look(self) -> tuple[Claim, ...]:
        """Return what the other drivers keep from this one now."""
        with self._turn() as is_mine:
            if is_mine and not self._is_blind:
                if self._ticket is not None and time.monotonic() > self._ticket.beat + _BEAT_S:
                    self._ticket.beat = time.monotonic()
                    self._write()
                self._read()
                self._see()
        return self.others

    def refresh(self) -> None:
        """Keep the files from those that clear temporary directories of what is old; call it now and then."""
        for descriptor in (self._lock, self.fd):
            with contextlib.suppress(OSError):  # what cannot be written now is not cleared away, either
                os.utime(descriptor)
        self.look()  # and make them again, should they be gone

    def wait_for(self, request: Resources | None) -> None:
        """Keep a place among those that wait, for this request from now on; None: nothing waits any more."""
        if request is None:
            if self._ticket is not None:
                self._ticket = None
                self._write()
                self._ring()
        elif self._ticket is None or self._ticket.request != request:
            with self._turn() as is_mine:
                if is_mine and not self._is_blind:
                    self._read()
                    self._queue_up(request)
                    self._see()

    def is_driven_by(self, mark: str) -> bool:
        """Whether one of the other drivers bears this mark."""
        self.look()
        return any(other.body.get("mark") == mark for other in self._others.values() if mark)

    @property
    def awaited(self) -> Resources | None:
        """The request that waits for others; None: none does."""
        return None if self._ticket is None else self._ticket.request

    def drain_bell(self) -> None:
        """Take note that the bell has rung."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.bell, 1 << 16)

    def close(self) -> None:
        """Give back everything; processes that inherited the descriptor must be gone by now."""
        if self.fd >= 0:
            self._held.clear()
            self._idle.clear()
            self._sum, self._ticket = _Need(), None
            self._write()
            fcntl.flock(self.fd, fcntl.LOCK_UN)  # also for a process that was forked from this one and has it still
            for kind in ("claim", "bell"):
                with contextlib.suppress(OSError):
                    self._path(self._name, kind).unlink()
            self._ring()
        for descriptor in (self.fd, self.bell, self._lock, *[other.descriptor for other in self._others.values()]):
            if descriptor >= 0:
                os.close(descriptor)
        self._others.clear()
        self.fd = self.bell = self._lock = -1

    # --- what the files say ------------------------------------------------------------------------------------------

    def _known(self, node: str, device: str) -> Place:
        return ("*", device) if _UUID.match(device) else (self._machines.get(node, node), device)

    def _need(self, resources: Resources, placement: Placement | None) -> _Need:
        need = _Need()
        for bundle, place in zip(resources.bundles, placement.bundles if placement is not None else (), strict=False):
            machine = self._machines.get(place.node)
            if machine is None:
                continue  # a part on a node of another driver of the run
            for name, amount in bundle.amounts.items():
                if name not in ("gpu", "tpu"):
                    need.amounts[machine, name] += int(amount) if name == "memory" else units_of(amount)
            for device, share in place.devices:
                need.devices[self._known(place.node, device)] += units_of(share)
        return need

    def _is_taken(self, need: _Need) -> bool:
        """Whether others hold too much for a need, of which the own trials hold theirs in any case."""
        for place, amount in need.amounts.items():
            holding = [other for other in self._strangers() if other.held.amounts[place]]
            if holding:
                held = self._sum.amounts[place] + sum(other.held.amounts[place] for other in holding)
                totals = [self._total(other, place) for other in holding if place in other.totals]
                if held + amount > min([*totals, self._totals.get(place, 0)]):
                    return True
        for device, share in need.devices.items():
            held = sum(other.held.devices[device] for other in self._strangers())
            if held and held + self._sum.devices[device] + share > UNIT:
                return True
        return False

    def _strangers(self) -> list[_Other]:
        """Return the other drivers but those of the same run."""
        return [other for other in self._others.values() if not self._run or other.body.get("run") != self._run]

    def _total(self, driver: _Other, place: Place) -> int:
        """Return how much a run counts in all, of which a driver is one: several nodes of it may be this machine."""
        run = driver.body.get("run")
        of_run = [other for other in self._others.values() if other is driver or (run and other.body.get("run") == run)]
        return sum(other.totals.get(place, 0) for other in of_run)

    def _queue_up(self, request: Resources) -> None:
        """Wait, behind those that do; a driver that waits already keeps its place for another request."""
        now = time.monotonic()
        if self._ticket is None:
            last = max([other.body["ticket"][0] for other in self._others.values() if other.body["ticket"]], default=0)
            self._ticket = _Ticket(last + 1, request, now)
        else:
            self._ticket.request, self._ticket.beat = request, now
        if self.bell < 0:
            with contextlib.suppress(OSError):  # then others are not heard at once, but seen soon
                path = self._path(self._name, "bell")
                os.mkfifo(path, 0o600)
                self.bell = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._write()

    def _ring(self) -> None:
        """Wake the drivers that wait, or have waited."""
        try:
            names = [name for name in os.listdir(self._directory) if name.endswith(".bell")]
        except OSError:
            return  # they look by themselves
        for name in names:
            if name == f"{self._name}.bell":
                continue
            try:
                bell = os.open(self._directory / name, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
            except OSError:
                continue  # its driver is gone, or is making it
            with contextlib.suppress(OSError):  # full: it is awake, or stopped
                os.write(bell, b"\0")
            os.close(bell)

    def _write(self) -> None:
        """Say what is held, in the slot that does not hold what was said last."""
        devices = self._sum.devices.copy()
        for need in self._idle.values():
            devices.update(need.devices)
        ticket = self._ticket
        body = {
            "v": _VERSION,
            **self._about,
            "machines": sorted(set(self._machines.values())),
            "totals": [[*place, total] for place, total in self._totals.items()],
            "held": [[*place, amount] for place, amount in self._sum.amounts.items()],
            "devices": [[*place, min(share, UNIT)] for place, share in devices.items()],
            "ticket": None if ticket is None else [ticket.number, ticket.beat, _wants(ticket.request)],
        }
        self._said = None
        self._version += 1
        try:
            write(self.fd, self._version, json.dumps(body, separators=(",", ":")))
        except OSError as error:
            if self._version == 1:
                raise
            self._version -= 1
            self._say(f"other sweeps of this machine do not see all of this one: {self._directory}: {error.strerror}")

    def _read(self) -> None:
        """Read the files of the other drivers, and remove those of drivers that are gone."""
        try:
            found = os.listdir(self._directory)
            names = {name[:-6] for name in found if name.endswith(".claim")}
            for name in [name[:-5] for name in found if name.endswith(".bell")]:
                if name not in names and name != self._name:
                    self._path(name, "bell").unlink(missing_ok=True)
        except OSError as error:
            names = set()
            self._lose_sight(f"{self._directory}: {error.strerror}")
        for name in [name for name in self._others if name not in names]:
            os.close(self._others.pop(name).descriptor)
        for name in names:
            if name != self._name:
                self._read_one(name)
        if self._name not in names and not self._is_blind:
            self._rejoin()
        self.num_others = len(self._others)
        self._alone_at = -math.inf if self._others or self._is_blind else time.monotonic()

    def _rejoin(self) -> None:
        """Something has cleared the directory: make the own file again, so that others see what it says."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        for path, own in ((self._directory / "lock", self._lock), (self._path(self._name, "claim"), self.fd)):
            try:
                descriptor = os.open(path, flags, 0o600)
                if os.path.sameopenfile(descriptor, own):
                    os.close(descriptor)
                    continue
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                self._lose_sight(f"{self._directory}: {error.strerror}")
                return
            os.dup2(descriptor, own, inheritable=False)
            os.close(descriptor)
        self._write()

    def _read_one(self, name: str) -> None:
        other = self._others.get(name)
        try:
            if other is None:
                flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
                other = self._others[name] = _Other(os.open(self._path(name, "claim"), flags))
            if is_free(other.descriptor):
                os.close(self._others.pop(name).descriptor)
                for kind in ("claim", "bell"):
                    with contextlib.suppress(FileNotFoundError):
                        self._path(name, kind).unlink()
                return
            raw = newest(other.descriptor)
        except OSError as error:
            self._say(f"another sweep of this machine is not seen: {self._path(name, 'claim')}: {error.strerror}")
            if other is not None and name in self._others:
                os.close(self._others.pop(name).descriptor)
            return
        if raw == other.raw and raw:
            return
        other.raw = raw
        other.body, other.held, other.totals = {"ticket": None}, _Need(), {}
        try:
            body = json.loads(raw.partition(b" ")[2])
            if body["v"] > _VERSION:
                raise ValueError("a newer version of sweep")
            other.held = _Need(_counted(body["held"]), _counted(body["devices"]))
            other.totals = dict(_counted(body["totals"]))
            other.body = {
                "experiment": str(body["experiment"]),
                "pid": int(body["pid"]),
                "mark": str(body["mark"]),
                "run": str(body.get("run", "")),
                "machines": set(body["machines"]),
                "ticket": None if body["ticket"] is None else _ticket(*body["ticket"]),
            }
        except (ValueError, TypeError, KeyError, OverflowError):
            other.body, other.held, other.totals = {"ticket": None}, _Need(), {}
            self._say(
                f"another sweep of this machine is not seen: {self._path(name, 'claim')} is damaged, or of a newer "
                "version of sweep"
            )

    def _see(self) -> None:
        """Note what the other drivers keep from this one."""
        now, claims = time.monotonic(), []
        self.has_waiters = False
        for other in self._strangers():
            if not (other.held.amounts or other.held.devices or other.body["ticket"]):
                continue
            ticket = other.body["ticket"]
            is_waiting = ticket is not None and abs(now - ticket[1]) < _DEAF_S
            self.has_waiters = self.has_waiters or is_waiting
            is_first = is_waiting and (self._ticket is None or ticket[0] < self._ticket.number)
            wants = tuple(self._wanted(other.body["machines"], ticket[2])) if is_first else ()
            claim = Claim(
                other.body["experiment"],
                other.body["pid"],
                tuple(self._here(other.held.amounts)),
                tuple((*here, n) for place, n in other.held.devices.items() for here in self._devices.get(place, ())),
                tuple(self._smaller(other, {(node, name) for node, name, _, _ in wants})),
                wants,
            )
            if claim.amounts or claim.devices or claim.wants:
                claims.append(claim)
        self.others = () if self._is_blind else tuple(sorted(claims, key=lambda claim: (claim.experiment, claim.pid)))

    def _here(self, amounts: Mapping[Place, int]) -> Iterator[tuple[str, str, int]]:
        for node in self._nodes:
            for (machine, name), amount in amounts.items():
                if machine == self._machines[node.id]:
                    yield node.id, name, amount

    def _smaller(self, other: _Other, wanted: set[tuple[str, str]]) -> Iterator[tuple[str, str, int]]:
        """Yield the totals of another driver that are smaller here than the own ones, of what it holds or must get."""
        for node, name, _ in self._here(other.totals):
            place = (self._machines[node], name)
            total = self._total(other, place)
            is_used = place in other.held.amounts or (node, name) in wanted
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
        machine = machines[node.id]
        totals[machine, "cpu"] = units_of(node.cpus)
        if node.memory:
            totals[machine, "memory"] = node.memory
        for name, amount in node.custom.items():
            totals[machine, name] = units_of(amount)
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


def _ticket(number: Any, beat: Any, wants: Any) -> tuple[int, float, list[tuple[str, str, int]]]:
    return int(number), float(beat), [(str(name), str(of_type), int(amount)) for name, of_type, amount in wants]


def _counted(rows: Iterable[Sequence[Any]]) -> Counter[Place]:
    return Counter({(str(machine), str(name)): int(amount) for machine, name, amount in rows})
