"""Claims: what each sweep of this user holds of the machine, in one directory that all of its sweeps read.

lock       flocked by whoever reads or writes the others, so that a claim is whole or not made
ID.claim   a row: what one driver holds, and what it waits for. Flocked by the driver and by the supervisors of its
           trials: it counts while one of them lives

    Start ──claimed──> the attempt begins; what it held is given back with its release
      └─another sweep was faster──> ClaimsChanged, Declined: the trial waits again
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import socket
import stat
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from sweep.core.claims import Claim, Part
from sweep.core.messages import ClaimsChanged, Declined, Event
from sweep.core.resources import LOCAL, UNIT, Node, Placement, Resources, units_of
from sweep.core.trial import Trial
from sweep.engines.base import EngineContext
from sweep.engines.loop import Loop
from sweep.worker.environment import TRIAL_VARIABLE

_LOOK_S = 0.25
_PATIENCE_S = 5.0  # for the lock, which others hold for a fraction of a millisecond
_DEAF_S = 5.0  # a driver that waits and has not looked for so long, as when it is stopped, lets others go first

_Place = tuple[str, str, str]  # machine, name, and for devices their id


def open_claims(context: EngineContext, say: Callable[[str], None]) -> Claims:
    """Return the claims of an engine; where they are not to be kept, or cannot be, they grant everything."""
    directory, trial = None, os.environ.get(TRIAL_VARIABLE)
    if context.is_shared and trial:
        say(f"this sweep runs inside trial {trial} of another one: it uses what that one holds, and claims nothing")
    elif context.is_shared:
        try:
            directory = directory_of()
        except OSError as error:
            say(f"other sweeps of this machine are not seen, and do not see this one: {error}")
    nodes = [node for node in context.nodes if context.node in ("", node.id)]
    name = context.experiment_name or context.directory.name
    return Claims(directory, nodes, name, here=context.node, run=context.claims_as, notice=say)


def directory_of() -> Path:
    """Return the directory of the claims, made if it is missing: `$SWEEP_CLAIMS`, else one in the temporary directory.

    Raises:
        OSError: it is not this user's own, others may write there, it is a link or cannot be made, or it would lie in
            the user's home directory, which machines may share.
    """
    given, base = os.environ.get("SWEEP_CLAIMS"), Path(tempfile.gettempdir()).absolute()
    home = Path(os.path.expanduser("~"))
    if not given and home in base.parents and home != Path("/"):
        raise OSError(f"the temporary directory {base} lies in the home directory, which machines may share")
    path = Path(given or base / f"sweep-{os.geteuid()}").absolute()
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        is_now = f"{stat.filemode(found.st_mode)} of user {found.st_uid}"
        raise OSError(f"{path} is {is_now}; expected a directory of yours into which nobody else may write: drwx------")
    return path


@dataclass
class _Row:
    """What the file of a driver says; the parts are by machine, name and, of devices, id."""

    experiment: str
    pid: int
    run: str
    totals: Sequence[Part]
    held: Sequence[Part] = ()
    wants: Sequence[Part] = ()  # with a type in place of an id; of devices their number
    since: float = 0.0  # when it began to wait, on the monotonic clock: who has waited longest goes first
    looked_at: float = 0.0


@dataclass
class Claims:
    """One driver's part in the claims of this machine. After an OSError it is alone there, and says so.

    Attributes:
        directory: of all claims; None: it is alone.
        nodes: its inventory. What is called `local`, or like this host, is this machine, or what a batch job of Slurm
            has of it; other nodes are machines of their own, the same for all drivers that have one of that name.
        here: id of the node that is this machine, too, whatever it is called.
        run: what the drivers of one run on nodes of this machine have in common: they do not keep off each other.
        fd: descriptor of the driver's own file, which processes that shall keep its claims alive inherit; -1: none.
        others: what the other drivers keep from this one, as of the last look.
        awaited: the request that waits for others, which they hear of at the next look; None: none does.
    """

    directory: Path | None
    nodes: Sequence[Node]
    experiment: str
    here: str = ""
    run: str = ""
    notice: Callable[[str], Any] = lambda text: None
    fd: int = field(default=-1, init=False)
    others: tuple[Claim, ...] = field(default=(), init=False)
    awaited: Resources | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._file = (self.directory or Path()) / f"{os.getpid()}-{uuid.uuid4().hex[:12]}.claim"
        local, totals = (self.here, LOCAL, socket.gethostname()), list[Part]()
        own = os.environ.get("SLURM_JOB_ID", "")  # another job of this user's has another part of the machine
        self._machines = {node.id: own if node.id in local else node.id for node in self.nodes}
        for node in self.nodes:
            totals += [(self._machines[node.id], device.kind, device.id, UNIT) for device in node.devices]
            for name in ("cpu", "memory", *node.custom):
                totals.append((self._machines[node.id], name, "", _units(name, node.amount(name))))
        self._row = _Row(self.experiment, os.getpid(), self.run, totals)
        self._damaged: set[Path] = set()
        self._held: dict[Hashable, Counter[_Place]] = {}
        self._rows: list[_Row] = []  # of the other drivers
        self._most = Counter[_Place]()  # how much there is, by the driver that counts most
        self.look()

    def take(self, key: Hashable, resources: Resources, placement: Placement | None) -> bool:
        """Claim all that a placement names, under a key, or nothing; False: another driver holds a part of it."""
        need: Counter[_Place] = Counter()
        for bundle, at in zip(resources.bundles, placement.bundles if placement is not None else (), strict=False):
            if (machine := self._machines.get(at.node)) is not None:  # else it is for another driver of the run
                for name, amount in bundle.amounts.items():
                    if name not in ("gpu", "tpu"):
                        need[machine, name, ""] += _units(name, amount)
                for device, share in at.devices:
                    need[machine, "tpu" if bundle.tpu else "gpu", device] += units_of(share)

        def take() -> bool:
            for place, amount in need.items():
                theirs = sum(_amount(row.held, place) for row in self._rows)
                if theirs and theirs + _amount(self._row.held, place) + amount > self._most[place]:
                    return False
            self._held[key] = need
            self.awaited = None if resources == self.awaited else self.awaited
            return True

        written, held = self._row.held, self._all_held()
        is_spare = not self._rows and all(_amount(written, place) >= held[place] + need[place] for place in need)
        return take() if is_spare else self._turn(take)

    def give_back(self, key: Hashable, idle: Hashable = None) -> None:
        """Give back what was claimed under a key, but for the devices where an idle process still uses them: those are
        claimed under the key `idle` from then on. Unknown keys are fine. Where there are no other drivers, the file
        says so from the next look on: the next trial may take it as it is."""
        if need := self._held.pop(key, None):
            if idle is not None:
                self._held[idle] = Counter({place: share for place, share in need.items() if place[2]})
            if self._rows:
                self.look()

    def look(self) -> tuple[Claim, ...]:
        """Return what the other drivers keep from this one now. Who clears old files away leaves what has looked."""
        self._turn(lambda: True)
        return self.others

    def close(self) -> None:
        """Give back everything; processes that inherited the descriptor must be gone by now."""
        self.directory, self._rows = None, []
        if self.fd >= 0:
            self._file.unlink(missing_ok=True)
            fcntl.flock(self.fd, fcntl.LOCK_UN)  # also for a process that was forked from this one and has it still
            os.close(self.fd)
            self.fd = -1

    def _turn(self, change: Callable[[], bool]) -> bool:
        """Read what the others hold, change what this one holds, and write it, all under the lock."""
        try:
            if self.directory is None:
                done = change()
            else:
                with (self.directory / "lock").open("wb") as file:
                    if not _lock(file, _PATIENCE_S):
                        raise OSError(f"a process that does not go on keeps {file.name} locked")
                    try:
                        self._rows = list(self._read(self.directory))
                        self._most.clear()
                        for row in (self._row, *self._rows):
                            self._most |= Counter({(node, name, one): most for node, name, one, most in row.totals})
                        done = change()
                        self._write()
                    finally:
                        fcntl.flock(file, fcntl.LOCK_UN)  # also for a process that another thread has forked meanwhile
        except OSError as error:
            self.directory, self._rows = None, []
            self.notice(f"other sweeps of this machine are not seen, and do not see all of this one: {error}")
            return self._turn(change)
        self.others = tuple(self._claims())
        return done

    def _read(self, directory: Path) -> Iterator[_Row]:
        """Yield the rows of other runs, and delete those of drivers that are gone with all their trials."""
        for name in sorted(os.listdir(directory)):
            path = directory / name
            if not name.endswith(".claim") or path == self._file:
                continue
            try:
                with path.open("rb") as file:
                    if _lock(file):
                        path.unlink()
                        continue
                    row = _Row(**json.loads(file.readline()))
                if not row.run or row.run != self.run:
                    yield row
            except FileNotFoundError:
                continue  # it was closed just now
            except (ValueError, TypeError):
                if path not in self._damaged:
                    self._damaged.add(path)
                    self.notice(f"another sweep of this machine is not seen: {path} is damaged")

    def _write(self) -> None:
        """Write the own row, in one step of less than a page: a kill leaves it, or the one before."""
        self._row.held = [(*place, min(n, UNIT) if place[2] else n) for place, n in self._all_held().items()]
        self._row.wants = list(self._wants(self.awaited)) if self.awaited is not None else []
        self._row.looked_at = time.monotonic()
        self._row.since = self._row.since or self._row.looked_at if self._row.wants else 0.0
        if not self._file.exists():  # it is new, or something has cleared the directory
            descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o600)
            if self.fd < 0:
                self.fd = descriptor
            else:
                os.dup2(descriptor, self.fd, inheritable=False)
                os.close(descriptor)
            fcntl.flock(self.fd, fcntl.LOCK_EX)
        os.pwrite(self.fd, json.dumps(vars(self._row)).encode() + b"\n", 0)

    def _all_held(self) -> Counter[_Place]:
        return sum(self._held.values(), Counter[_Place]())

    def _wants(self, request: Resources) -> Iterator[Part]:
        wants: Counter[tuple[str, str]] = Counter()
        for bundle in request.bundles:
            for name, amount in bundle.amounts.items():
                is_device = name in ("gpu", "tpu")
                wants[name, bundle.type_of(name)] += math.ceil(amount) if is_device else _units(name, amount)
        for machine in dict.fromkeys(self._machines.values()):
            yield from [(machine, *want, amount) for want, amount in wants.items()]

    def _claims(self) -> Iterator[Claim]:
        """Yield what others keep from this driver: what they hold, and what those want that go first."""
        spare: dict[_Place, int] = {}
        for row in self._rows:
            is_deaf = time.monotonic() - row.looked_at > _DEAF_S
            is_later = 0 < self._row.since < row.since
            held = tuple(self._kept(row.held, spare))
            wants = tuple(self._kept(() if is_deaf or is_later else row.wants, spare))
            if held or wants:
                yield Claim(row.experiment, row.pid, held, wants)

    def _kept(self, parts: Iterable[Part], spare: dict[_Place, int]) -> Iterator[Part]:
        """Yield the parts of this driver's nodes, but for what is there by the count of others alone."""
        for machine, name, device, amount in parts:
            place = machine, name, device
            left = spare.get(place, self._most[place] - _amount(self._row.totals, place))
            spare[place] = max(0, left - amount)
            for node in self._machines if amount > left else ():
                if self._machines[node] == machine:
                    yield node, name, device, amount - left


@dataclass
class Sharing:
    """What a sweep is told of others, which are looked at four times a second."""

    claims: Claims
    loop: Loop
    emit: Callable[[Event], None]  # takes an event for the sweep
    end_idle: Callable[[], None]  # ends the idle reused workers: they may hold what is waited for
    told: tuple[Claim, ...] = ()

    def begin(self) -> tuple[Claim, ...]:
        """Return what other sweeps keep from this one now; from here on, changes are told."""
        self.told = self.claims.look()
        self.loop.alarm(_LOOK_S, self._look)
        return self.told

    def take(self, trial: Trial) -> bool:
        """Claim what a trial was given; False: it must not begin, and the sweep is told so."""
        is_taken = self.claims.take((trial.id, trial.attempt), trial.resources, trial.placement)
        is_news = self._tell()
        if not is_taken:
            self.end_idle()
            # Without news it would try just the same again.
            self.loop.alarm(0.0 if is_news else _LOOK_S, lambda: self.emit(Declined(trial.id, trial.attempt)))
        return is_taken

    def _tell(self) -> bool:
        """Tell the sweep what others hold, if that is news; whether it is."""
        is_news = self.claims.others != self.told
        if is_news:
            self.told = self.claims.others
            self.emit(ClaimsChanged(self.told))
        return is_news

    def _look(self) -> None:
        if self.claims.fd >= 0:
            self.claims.look()
            self._tell()
            if self.claims.awaited is not None or any(claim.wants for claim in self.told):
                self.end_idle()
            self.loop.alarm(_LOOK_S, self._look)


def _units(name: str, amount: float) -> int:
    return int(amount) if name == "memory" else units_of(amount)


def _amount(parts: Iterable[Part], place: _Place) -> int:
    return sum([amount for *where, amount in parts if tuple(where) == place])


def _lock(file: IO[bytes], patience_s: float = 0.0) -> bool:
    """Lock a file that nobody else has locked; False: somebody has."""
    give_up = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= give_up:
                return False
            time.sleep(0.0002)
