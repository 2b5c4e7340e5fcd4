"""Agents on machines that are reached by ssh: nothing runs there before, and nobody need reach the driver from there.

Both what a machine has and its agent are commands of ssh. The agent reaches the driver through the same connection
(`ssh -R`), at a port of loopback that sshd chooses; the invitation then goes on the command's standard input.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from sweep.core.resources import Node
from sweep.engines.cluster.handshake import Invitation, this_machine
from sweep.engines.cluster.join import Ticket
from sweep.errors import ExperimentError

_SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15", "-T")
_FACTS_S = 60.0  # to log in, start Python and look for GPUs
_FACTS = """
from sweep.accelerators.inventory import detected
from sweep.engines.cluster.join import ticket_of
print(ticket_of(detected()[0]).to_json())
"""
_AGENT = "from sweep.engines.cluster.agent import main; main()"
_ALLOCATED = re.compile(r"Allocated port (\d+) for remote forward")


class SshHost:
    """A machine that is reached by ssh.

    Attributes:
        node: what it has.
        process: the command of its agent, once one was started.
    """

    def __init__(self, host: str) -> None:
        """Ask a machine what it has; `host` may end with `:/PATH/OF/PYTHON`, the driver's own path otherwise.

        Raises:
            ExperimentError: it cannot be reached, or has no sweep.
        """
        self._host, colon, python = host.partition(":/")
        self._python = "/" + python if colon else sys.executable
        self._said = ""  # the last line of the command of its agent
        self.process: subprocess.Popen[str] | None = None
        command = [*_SSH, "-o", "LogLevel=ERROR", self._host, self._remote(_FACTS)]
        try:
            asked = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_FACTS_S, check=False
            )
            ticket = Ticket.from_json(asked.stdout.strip().splitlines()[-1])
        except FileNotFoundError:
            raise ExperimentError("hosts are reached by ssh, and there is no ssh command here. Install it.") from None
        except subprocess.TimeoutExpired:
            raise ExperimentError(f"{self._host} did not say within {_FACTS_S:g} s what it has.") from None
        except (ValueError, TypeError, KeyError, IndexError):
            said = asked.stderr.strip().splitlines() or [f"the command ended with exit code {asked.returncode}"]
            why = said[-1].rstrip(".")
            raise ExperimentError(
                f"{self._host} does not say what it has: {why}. Expected a machine that `ssh {self._host}` reaches "
                f"without a password, with sweep installed for {self._python}; another Python is named by "
                f"{self._host}:/PATH/OF/PYTHON."
            ) from None
        name = re.sub(r"[^A-Za-z0-9._-]", "-", self._host.rpartition("@")[2])
        self.is_here = ticket.machine == this_machine()
        self.node: Node = replace(ticket.node, id=name)

    def start_agent(self, invitation: Invitation) -> None:
        """Start an agent there, without waiting; the one before is ended."""
        self.end()
        forward = f"0:{invitation.host}:{invitation.port}"
        options = ("-o", "ExitOnForwardFailure=yes", "-o", "LogLevel=INFO")  # where it says which port sshd has chosen
        command = [*_SSH, *options, "-R", forward, self._host, self._remote(_AGENT)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            command, stdin=pipe, stderr=pipe, stdout=subprocess.DEVNULL, text=True, start_new_session=True
        )
        self.process, self._said = process, ""
        threading.Thread(target=self._invite, args=(process, invitation), name="sweep-ssh", daemon=True).start()

    def problem(self) -> str:
        """Return why its agent is not there; empty: nothing is known."""
        code = None if self.process is None else self.process.poll()
        return "" if code is None else f"ssh ended with exit code {code}" + (f": {self._said}" if self._said else "")

    def end(self) -> None:
        """End the command; the agent then ends by itself, with all that it has started."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def _remote(self, code: str) -> str:
        return shlex.join(["exec", self._python, "-P", "-c", code])

    def _invite(self, process: subprocess.Popen[str], invitation: Invitation) -> None:
        """Write the invitation once it is known at which port the agent finds the driver; take in what ssh says."""
        assert process.stderr is not None
        assert process.stdin is not None
        with process.stderr, process.stdin:
            for line in process.stderr:
                if found := _ALLOCATED.search(line):
                    with contextlib.suppress(OSError):  # it has ended
                        here = replace(invitation, host="127.0.0.1", port=int(found[1]))
                        process.stdin.write(here.to_json() + "\n")
                        process.stdin.flush()
                elif line.strip():
                    self._said = line.strip()


def reach(hosts: Sequence[str]) -> dict[str, SshHost]:
    """Return the machines of these names, all of which were asked at a time; raises ExperimentError."""
    with ThreadPoolExecutor(max_workers=16) as pool:
        found = list(pool.map(SshHost, hosts))
    return {host.node.id: host for host in found}
