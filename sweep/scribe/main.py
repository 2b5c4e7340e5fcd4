"""The process of the scribe: `main` is all that it runs. It ends with its driver, in whatever way that ends."""

from __future__ import annotations

import contextlib
import csv
import ctypes
import os
import select
import signal
import socket
from contextlib import closing
from pathlib import Path

from sweep.record.access import open_for_following
from sweep.record.schema import last_seq
from sweep.scribe.follower import Follower
from sweep.worker.channel import Packets
from sweep.worker.wire import CatchUp, Follow, Notice, Ready, Wrote

_PERIOD_S = 0.25  # between two looks at the record
_PR_SET_PDEATHSIG = 1


def main(descriptor: int, parent: int) -> None:
    """Follow what the driver says, until it is gone.

    Args:
        descriptor: of a packet socket to the driver.
        parent: the driver's pid.
    """
    # Of the thread that started this, which waits for this process: also one that is stopped does not outlive it.
    prctl = getattr(ctypes.CDLL(None), "prctl", None)  # Linux has it
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # what is sent to all of a job is the driver's affair
        signal.signal(number, signal.SIG_IGN)
    csv.field_size_limit(2**31 - 1)  # of what is read again to add a column
    packets = Packets(socket.socket(fileno=descriptor))
    if os.getppid() != parent:
        return
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        packets.send(Ready(1))
        job, _ = packets.receive()
        if isinstance(job, Follow):
            _follow(packets, job)


def _follow(packets: Packets, job: Follow) -> None:
    follower = Follower(job, lambda text: packets.send(Notice(text)))
    wanted: CatchUp | None = None
    number = told = 0
    try:
        with closing(open_for_following(Path(job.database))) as connection:
            while True:
                last = last_seq(connection)
                if follower.written < last:
                    follower.advance(connection, last)
                if wanted is not None and (follower.written >= wanted.seq or follower.is_short):
                    number, wanted = wanted.number, None
                    packets.send(Wrote(number, follower.written, follower.is_short))
                elif follower.written != told:
                    packets.send(Wrote(number, follower.written))
                told = follower.written
                is_behind = follower.position < last and not follower.is_short
                if not select.select([packets.socket], [], [], 0.0 if is_behind else _PERIOD_S)[0]:
                    continue
                message, _ = packets.receive()
                if message is None:
                    return
                wanted = message
    finally:
        follower.close()
