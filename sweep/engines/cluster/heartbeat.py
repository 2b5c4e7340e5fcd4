"""Heartbeats: driver and agent each learn that the other is gone, whatever became of it.

Both send a byte every second over a socket of its own, from a thread of its own, so that neither a slow searcher nor a
busy disk stops it. A process that dies closes its socket, which the other sees at once. A machine or a network that is
gone says nothing: then the agent ends everything it has started when it has heard nothing for `heartbeat_timeout_s`,
and the driver, which stops sending two beats before that, counts the agent as lost after twice that time: no trial runs
twice at a time, also where only what the agent says is lost on the way.
"""

from __future__ import annotations

import contextlib
import math
import socket
import threading
import time
from collections.abc import Callable

BEAT_S = 1.0
HEARTBEAT_TIMEOUT_S = 15.0


class Heartbeat:
    """One side of a connection, until the other is gone."""

    def __init__(
        self, peer: socket.socket, who: str, timeout_s: float, lost: Callable[[str], None], *, mute_s: float = math.inf
    ) -> None:
        """Begin to beat; `lost` is called on another thread, once, with what happened, and not after `close`.

        After `mute_s` without a word of the other side nothing is sent any more, after `timeout_s` it is lost.
        """
        self._peer = peer
        self._who = who
        self._timeout_s = timeout_s
        self._lost = lost
        self._mute_s = mute_s
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sweep-heartbeat", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it: the other side takes this one for gone."""
        self._closed.set()
        with contextlib.suppress(OSError):  # it is gone
            self._peer.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join()

    def _run(self) -> None:
        why = self._beat()
        self._peer.close()
        if not self._closed.is_set():
            self._lost(why)

    def _beat(self) -> str:
        """Return why the other side is gone, when it is."""
        heard = time.monotonic()
        while (silent_s := time.monotonic() - heard) <= self._timeout_s:
            next_beat = time.monotonic() + min(BEAT_S, max(0.01, self._timeout_s - silent_s))
            try:
                if silent_s <= self._mute_s:
                    with contextlib.suppress(TimeoutError):  # full: nobody reads it there
                        self._peer.settimeout(0.01)
                        self._peer.send(b".")
                while (left_s := next_beat - time.monotonic()) > 0:
                    with contextlib.suppress(TimeoutError):
                        self._peer.settimeout(left_s)
                        if not self._peer.recv(1 << 12):
                            return f"{self._who} ended"
                        heard = time.monotonic()
            except OSError:
                return f"{self._who} ended"
        return f"nothing was heard of {self._who} for {silent_s:.0f} s"
