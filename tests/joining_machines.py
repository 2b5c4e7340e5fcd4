"""Many machines that join a sweep, all of them this one: each is a `sweep agent join` with claims of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from sweep.engines.local.processes import descendants, send
from sweep.record.proc import children_of

CLI = (sys.executable, "-m", "sweep.cli.main")


@dataclass
class Machine:
    """One that has joined, or asks to; `log` is what it has said."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def name(self) -> str:
        """Its name in the sweep; empty: it has none yet."""
        found = re.search(r"(\S+) asks to join", self.log.read_text())
        return "" if found is None else found[1]

    @property
    def num_joined(self) -> int:
        """How many drivers have taken it."""
        return self.log.read_text().count(" has joined ")

    def kill(self) -> None:
        """Lose the machine: it says nothing more."""
        send(signal.SIGKILL, self.process.pid, *descendants(self.process.pid))

    def kill_agent(self) -> bool:
        """Lose what runs there; another agent may come. Returns whether there was one."""
        agents = children_of(self.process.pid)
        send(signal.SIGKILL, *agents)
        return bool(agents)

    def leave(self) -> None:
        """Have it leave in order."""
        self.process.terminate()


class Machines:
    """All machines that a test has started; killed by `close` if they have not ended."""

    def __init__(self, experiment: Path, directory: Path) -> None:
        """Let machines join the sweep in `experiment`, and keep what they say in `directory`."""
        self.all: list[Machine] = []
        self._experiment, self._directory = experiment, directory

    def join(self) -> None:
        """Start one more, of one CPU."""
        # Agents of one machine would each look at the claims of all others.
        claims = self._directory / f"claims-{len(self.all)}"
        claims.mkdir(mode=0o700)
        log = self._directory / f"machine-{len(self.all)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*CLI, "agent", "join", str(self._experiment), "--cpus", "1"],
                env={**os.environ, "SWEEP_CLAIMS": str(claims)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        self.all.append(Machine(process, log))

    def close(self) -> None:
        """End what is still there, and reap it."""
        for machine in self.all:
            if machine.process.poll() is None:
                machine.kill()
            machine.process.wait()
