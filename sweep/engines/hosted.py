"""Ranks in a host, and the socket to who leads them: what a group has in common with the part of one elsewhere."""

from __future__ import annotations

import select
import socket
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from sweep.core.trial import Outcome
from sweep.engines.link import Link
from sweep.engines.ranks import MakeRank, Ranks
from sweep.worker import wire


class HostedRanks(ABC):
    """What a host waits for and ends, from the job to the last process's end.

    Attributes:
        is_over: every rank is gone and that has been written upwards, if it was not killed from above.
        refusal: errno of the kernel's refusal to make the ranks, which ended it; 0: none.
    """

    def __init__(self, upstream: socket.socket, ports: Sequence[int], make: MakeRank) -> None:
        """Take over the socket above and the descriptors of the sockets that hold its ports."""
        self.is_over = False
        self.refusal = 0
        self._up = Link(upstream)
        self._ranks = Ranks(ports, make, hear=self._hear, gone=self._on_gone)
        self._job: wire.GroupJob | None = None

    @property
    def logs(self) -> list[str]:
        """Output files of the ranks that run here."""
        return self._ranks.logs

    @property
    def log_limit_bytes(self) -> int:
        """Size that each of them is kept below; 0: unlimited."""
        return self._job.log_limit_bytes if self._job is not None else 0

    @property
    def peak_rss_bytes(self) -> int:
        """Sum of the peaks of the ranks that run here, of those that are gone."""
        return self._ranks.peak_rss_bytes

    def descriptors(self) -> list[tuple[int, int]]:
        """Return what to wait for: descriptors and poll masks."""
        own = [(self._up.socket.fileno(), self._up.mask)] if self._up.is_open else []
        return own + self._ranks.descriptors()

    def own_descriptors(self) -> list[int]:
        """Return every descriptor that a process forked now must close."""
        own = [self._up.socket.fileno()] if self._up.is_open else []
        return own + self._ranks.own_descriptors()

    @abstractmethod
    def deadline(self) -> float | None:
        """Return the monotonic time at which `handle` must be called at the latest; None: there is none."""

    @abstractmethod
    def handle(self, ready: dict[int, int]) -> None:
        """Take in what is ready, and the time."""

    @abstractmethod
    def kill(self) -> None:
        """End every process of it here, and say nothing any more."""

    @abstractmethod
    def _hear_above(self) -> None:
        """Take in what is written above; the end of that stream, too."""

    @abstractmethod
    def _hear(self, rank: int, messages: list[Any]) -> None:
        """Take in what a rank has written."""

    @abstractmethod
    def _on_gone(self, rank: int, outcome: Outcome) -> None:
        """A rank's process has ended by itself."""

    def _take_in(self, ready: dict[int, int]) -> None:
        """Hear above, and then the ranks."""
        if self._up.is_open and ready.get(self._up.socket.fileno(), 0) & ~select.POLLOUT:
            known = set(self._ranks.own_descriptors())
            self._hear_above()
            # What was made just now may bear the number of a descriptor that was ready and is closed.
            ready = {descriptor: mask for descriptor, mask in ready.items() if descriptor in known}
        self._ranks.handle(ready)

    def _write_on(self) -> None:
        """Write more of what could not be written at once."""
        if not self._up.is_empty:
            self._up.flush()
        self._ranks.flush()

    def _close(self) -> None:
        self.is_over = True
        self._ranks.close()
        if self._up.is_open:
            self._up.close()
