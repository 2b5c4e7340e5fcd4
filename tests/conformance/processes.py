"""What tests of engines need to see processes: who belongs to an experiment, and waiting until they are gone."""

from __future__ import annotations

import os
import select
from pathlib import Path

from sweep.engines.local.orphans import experiment_mapped

LIMIT_S = 20.0  # only for a broken engine


def of_experiment(directory: Path) -> list[int]:
    """Return the processes, other than this one, that bear the experiment's marker in their environment, or were forked
    from its fork server without a new program."""
    marker = f"SWEEP_EXPERIMENT={directory}".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            entries = Path("/proc", name, "environ").read_bytes().split(b"\0")
            is_mapped = experiment_mapped(name) == str(directory)
        except OSError:
            continue
        if marker in entries or is_mapped:
            found.append(int(name))
    return found


class Watch:
    """Pidfds of processes, so that their end can be waited for without polling."""

    def __init__(self, pids: list[int]) -> None:
        self._pidfds = {}
        for pid in pids:
            try:
                self._pidfds[os.pidfd_open(pid)] = pid
            except ProcessLookupError:
                continue

    def left(self, limit_s: float = LIMIT_S) -> list[int]:
        """Wait until all are gone and return those that are not."""
        left = dict(self._pidfds)
        poll = select.poll()
        for pidfd in left:
            poll.register(pidfd, select.POLLIN)
        while left:
            ready = poll.poll(1000 * limit_s)
            if not ready:
                break
            for pidfd, _ in ready:
                poll.unregister(pidfd)
                del left[pidfd]
        for pidfd in self._pidfds:
            os.close(pidfd)
        return list(left.values())


def parent_of(pid: int) -> int:
    """Return the parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
