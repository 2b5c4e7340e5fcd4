"""What an engine is: where trials run. It executes commands, delivers events and owns the clock."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from sweep.core.messages import Continue, Event, Kill, Save, Start, Stop
from sweep.core.resources import Node

__all__ = ["Engine", "EngineCommand"]

EngineCommand = Start | Continue | Save | Stop | Kill


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
    7. `close` ends everything the engine started, also after an exception. It may be called twice.
    8. `Stop` and `Kill` may precede `Started`; commands to attempts that are gone are ignored; a device that never
       clears gives `NodesChanged` without it, then `Released`.
    """

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
