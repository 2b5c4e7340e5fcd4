"""A cluster of plain processes on this machine: an agent for each declared node, for trying several machines on one."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Mapping, Sequence

from sweep.core.resources import Node
from sweep.engines.cluster.agents import Cluster
from sweep.engines.cluster.handshake import Invitation
from sweep.engines.cluster.heartbeat import HEARTBEAT_TIMEOUT_S
from sweep.engines.local.fork_server_client import own_path

_BOOT = "import sys; sys.path[:] = {path!r}; from sweep.engines.cluster.agent import main; main()"


class AgentProcesses(Cluster):
    """Nodes that are all this machine, each with an agent that is a child of this process.

    Attributes:
        processes: the agents that were started, by node; the last one of each.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        *,
        heartbeat_timeout_s: float = HEARTBEAT_TIMEOUT_S,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Declare the nodes; `environ` are the agents' variables, None: those of this process."""
        self.heartbeat_timeout_s = heartbeat_timeout_s
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self._nodes = tuple(nodes)
        self._environ = environ

    def nodes(self) -> Sequence[Node]:
        return self._nodes

    def summon(self, node: str, invitation: Invitation) -> None:
        """Start an agent; the key goes through a pipe, so that no list of processes shows it."""
        if (before := self.processes.get(node)) is not None:
            before.kill()  # lost, which one that is stopped (SIGSTOP) does not know
            before.wait()
        process = subprocess.Popen(
            [sys.executable, "-c", _BOOT.format(path=own_path())],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=None if self._environ is None else dict(self._environ),
        )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin:  # it may be gone already; `problem` says so
            process.stdin.write(invitation.to_json() + "\n")
        self.processes[node] = process

    def problem(self, node: str) -> str:
        process = self.processes.get(node)
        code = None if process is None else process.poll()
        return "" if code is None else f"its agent ended with exit code {code}"

    def close(self) -> None:
        """Wait for the agents, which end when the driver's engine is closed."""
        for process in self.processes.values():
            try:
                process.wait(2 * self.heartbeat_timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()
