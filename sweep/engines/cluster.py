"""What a cluster is to a run: machines, and a way to start an agent on each. Ray, Slurm or plain processes are ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from sweep.core.resources import Node
from sweep.engines.agents import Agents
from sweep.engines.base import Engine, EngineContext
from sweep.engines.gate import Invitation
from sweep.engines.lease import LEASE_S


class Cluster(ABC):
    """Machines on which a run may have agents, from before it is built until it is over.

    Attributes:
        host: address of the interface on which the driver listens for the agents that are called next.
        lease_s: see `engines.lease`.
        start_s: how long an agent may take to come.
    """

    host: str = "127.0.0.1"
    lease_s: float = LEASE_S
    start_s: float = 60.0

    @abstractmethod
    def nodes(self) -> Sequence[Node]:
        """Return the machines that are there, with what a run may use of each."""

    @property
    def away(self) -> Sequence[Node]:
        """Return the machines that may come and are not there."""
        return ()

    @abstractmethod
    def summon(self, node: str, invitation: Invitation) -> None:
        """Have an agent started on a node, at best at once, with an invitation for it; returns without waiting."""

    def problem(self, node: str) -> str:
        """Return why no agent has come from a node, as far as is known; empty: nothing is."""
        return ""

    def watch(self, changed: Callable[[], None]) -> None:  # noqa: B027  # a cluster may never change
        """Have `changed` called, on any thread, whenever `nodes` or `away` would return something else."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the machines, once the engine is closed. May be called twice."""

    def __call__(self, context: EngineContext) -> Engine:
        """Return the engine of a run on these machines."""
        return Agents(context, self)
