"""What an engine is: where trials run. It executes commands, delivers events and owns the clock."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sweep.core.claims import Claim
from sweep.core.messages import Continue, Event, Kill, Save, Start, Stop
from sweep.core.resources import Node, Resources
from sweep.core.trial import Trial

if TYPE_CHECKING:
    from sweep.storage.nodes import Home
    from sweep.worker.trainable import PreparedTrainable


EngineCommand = Start | Continue | Save | Stop | Kill

LOG_LIMIT_BYTES = 64 << 20

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class EngineContext:
    """What a run has to give to the engine that it makes; an engine takes of it what it has a use for.

    Attributes:
        directory: of the experiment; the engine makes it when it is missing.
        trainable: what every trial runs.
        nodes: the inventory.
        start_at: seconds of driving that earlier runs spent.
        seed: of the sweep; the global generators of each trial are seeded from it and the trial's number.
        seeded_as: returns, for the id of a trial, that of the one whose seed it has; None: each has its own.
        experiment_name: empty: that of the directory.
        node: id of the one of `nodes` that the engine is; empty: it runs all of them.
        environ: the variables that trials start from; None: those of this process.
        env: additional environment variables for all trials; those of the trainable come before them.
        is_chdir: trials run in their own directory.
        has_company: several trials may run at a time.
        name_of: returns the name that the user gives to a trial, or an empty text.
        start_from: checkpoint of trials that have none of their own; empty: they start from nothing.
        log_to_file: names of the files for standard output and standard error; None: both go to `output.log`.
        log_limit_bytes: size that each file of a trial's output is kept below; 0: unlimited.
        report_timeout_s: how long a report may take before the trial counts as hung and is killed; None: for ever.
        reuse_actors: a worker stays and runs further trials that ask for the same and hold the same devices.
        start_method: "forkserver" forks workers; "spawn" starts a fresh interpreter for each: for libraries that do not
            survive a fork.
        preload: modules to import in advance, besides those that the trainable refers to.
        lock_fd: descriptor of the experiment's lock, which every process of the engine that could outlive the driver
            holds, too.
        is_shared: what trials hold is claimed, so that other sweeps of this user on this machine keep off it.
        claims_as: what the engines of one run, each on a node of its own, have in common: those of them that share a
            machine do not keep off each other. Empty: there is only this one.
        home: remote storage that holds the experiment; None: the directory is all there is.
        is_staged: the directory is this node's alone, one of several that are filled from remote storage.
        notice: called at once with each line for the user; None: it is kept in `Engine.notices`.
    """

    directory: Path
    trainable: PreparedTrainable
    nodes: Sequence[Node]
    start_at: float = 0.0
    seed: int = 0
    seeded_as: Callable[[str], str] | None = None
    experiment_name: str = ""
    node: str = ""
    environ: Mapping[str, str] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    is_chdir: bool = False
    has_company: bool = False
    name_of: Callable[[Trial], str] | None = None
    start_from: str = ""
    log_to_file: tuple[str, str] | None = None
    log_limit_bytes: int = LOG_LIMIT_BYTES
    report_timeout_s: float | None = None
    reuse_actors: bool = False
    start_method: str = "forkserver"
    preload: Sequence[str] = ()
    lock_fd: int | None = None
    is_shared: bool = True
    claims_as: str = ""
    home: Home | None = None
    is_staged: bool = False
    notice: Callable[[str], None] | None = None


class Engine(ABC):
    """Run attempts of trials and say what happened to them.

    The contract; `tests/conformance/engines.py` checks each line:

    1. `execute` returns at once and never raises for a trial's fault: faults are `Exited` events.
    2. Exactly one `Exited` per `Start`, after every process of the attempt is gone (a warm worker stays, idle: then
       after the attempt's descendants are gone).
    3. Exactly one `Released` per `Start`, after `Exited`, when the devices are clean. An idle warm worker is ended
       before its devices are granted to another request.
    4. Events of one attempt arrive in order: `Started` first (if it got that far), `Exited`, `Released` last.
    5. `next_events(deadline)` blocks, then returns every event that is ready; `[Tick()]` when `deadline`, on this
       engine's own clock, is reached. None: no deadline.
    6. `post` may be called from a signal handler or another thread and wakes `next_events`.
    7. `close` ends everything the engine started, also after an exception. It may be called twice. What an engine keeps
        for the next run of this process has nothing of this one any more.
    8. `Stop` and `Kill` may precede `Started`; commands to attempts that are gone are ignored; a device that never
       clears gives `NodesChanged` without it, then `Released`.
    9. A node that leaves gives `Exited` with NODE_LOST for every attempt that had a part there, then `NodesChanged`
       with the node in its `away` if it may come back, then `Released` of those attempts. A `Start` that names a node
       which has left meanwhile ends so, too.
    10. A `Start` whose place another sweep of the machine has claimed meanwhile gives `ClaimsChanged`, if that is news,
        and `Declined`, and nothing else.

    Attributes:
        notices: what the user should be shown, oldest first, such as a module that could not be imported in advance.
        away: nodes that may come and are not there when the run begins, as in `NodesChanged.away`: what only they can
            hold is not refused, but waits.
        waker: descriptor of which any byte that is written ends the waiting in `next_events`, so that the kernel's
            signal handlers lose none; None: it never waits long.
        is_in_real_time: a second of its clock is one of the world.
    """

    notices: Sequence[str] = ()
    away: Sequence[Node] = ()
    waker: int | None = None
    is_in_real_time: bool = True

    @abstractmethod
    def nodes(self) -> Sequence[Node]:
        """Return the inventory."""

    @abstractmethod
    def now(self) -> float:
        """Return seconds of driving since the sweep first began (an engine is built with what earlier runs spent)."""

    @abstractmethod
    def execute(self, command: EngineCommand) -> None:
        """Begin to carry out a command."""

    @abstractmethod
    def next_events(self, deadline: float | None) -> Sequence[Event]:
        """Wait for events until `deadline`."""

    @abstractmethod
    def post(self, event: Event) -> None:
        """Hand in an event from outside."""

    @abstractmethod
    def close(self) -> None:
        """End everything."""

    def claims(self) -> Sequence[Claim]:
        """Return what other sweeps of the machine keep from this one, at the beginning; an engine may know of none."""
        return ()

    def want(self, wanted: Resources | None) -> None:  # noqa: B027  # an engine that claims nothing ignores it
        """Give `ClaimsChanged` within a quarter of a second after a change in what others keep, until None is given."""

    def run_loop(self, loop: Callable[[], T]) -> T:
        """Call `loop`, which drives this engine, and return what it returns.

        An engine that needs the calling thread for the trials themselves calls it on another one.
        """
        return loop()


EngineFactory = Callable[[EngineContext], Engine]
"""Makes an engine for a run: `LocalEngine`, `InlineEngine`, or another package's own."""
