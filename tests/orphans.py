"""Which processes of a test are still there: they carry a mark in their environment."""

from __future__ import annotations

import time
from pathlib import Path

from sweep.engines.local.fork_server_client import end_cached

MARK = "SWEEP_TEST_MARK"


def marked(mark: str, variable: str = MARK) -> dict[int, str]:
    """Return pid -> command line of every process whose environment holds the mark."""
    wanted = f"{variable}={mark}".encode()
    found = {}
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                state = (process / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z":
                    found[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue  # it ended just now
    return found


def wait_until_gone(mark: str, limit_s: float = 10.0) -> dict[int, str]:
    """Return what is left of the marked processes after at most `limit_s` seconds; empty: nothing.

    The fork server that this process keeps for its next run is none of them, and ended first.
    """
    end_cached()
    give_up = time.monotonic() + limit_s
    while (found := marked(mark)) and time.monotonic() < give_up:
        time.sleep(0.01)
    return found
