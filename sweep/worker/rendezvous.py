"""Ports that no other process takes: where the ranks of a group find each other, on loopback if all are on one machine.

| kind | who serves there | what keeps the port |
| --- | --- | --- |
| listening | rank 0, with the very socket | it is never free: the socket listens before it is handed over |
| shared | a server that sets `SO_REUSEPORT`, as gRPC does by default | a bound socket that does not listen |
| named | a server that wants the port for itself | its number, below those that the kernel gives out, is reserved among
  groups by an abstract socket of that name, which vanishes with the last process that holds it |
"""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Sequence
from typing import NamedTuple

from sweep.errors import ConfigError

_HOST = "127.0.0.1"
_BACKLOG = 1024
_LOWEST = 16_384
_TRIES = 1000


class Port(NamedTuple):
    """A port and the socket that keeps it, to be held for the life of a group."""

    number: int
    holder: socket.socket


def open_ports(number: int, kind: str, address: str = _HOST) -> list[Port]:
    """Return so many ports of a kind, at an IPv4 address of this machine.

    Raises:
        ConfigError: this machine does not have that address.
        OSError: no port or descriptor is free.
    """
    ports: list[Port] = []
    try:
        for _ in range(number):
            ports.append(_named() if kind == "named" else _bound(address, is_listening=kind == "listening"))
    except OSError:
        close_ports(ports)
        raise
    return ports


def close_ports(ports: Sequence[Port]) -> None:
    """Let go of them in this process."""
    for port in ports:
        port.holder.close()


def interface_of(address: str) -> str:
    """Return the network interface of this machine that bears an IPv4 address; empty: none does."""
    if address.startswith("127."):
        return "lo"
    import psutil

    found = (name for name, has in psutil.net_if_addrs().items() if any(one.address == address for one in has))
    return next(found, "").partition(":")[0]  # a second address may have a label


def _bound(address: str, *, is_listening: bool) -> Port:
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if not is_listening:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind((address, 0))
        if is_listening:
            holder.listen(_BACKLOG)
    except OSError as error:
        holder.close()
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            raise ConfigError(
                f"{address!r}, the address of the node that is {socket.gethostname()}, is none of that machine's. "
                "Expected Node(address=...) to be the IPv4 address at which the other nodes reach it."
            ) from error
        raise
    return Port(holder.getsockname()[1], holder)


def _named() -> Port:
    highest = _first_given_out()
    for _ in range(_TRIES):
        number = random.SystemRandom().randrange(_LOWEST, highest)
        holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            holder.bind(f"\0sweep-port-{number}")
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                probe.bind(("", number))
        except OSError as error:
            holder.close()
            if error.errno != errno.EADDRINUSE:
                raise
            continue
        return Port(number, holder)
    raise OSError(errno.EADDRINUSE, "no port is free")


def _first_given_out() -> int:
    """Return the lowest port that the kernel gives out when asked for any."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
            lowest = int(file.read().split()[0])
    except (OSError, ValueError):
        lowest = 32_768
    return max(lowest, _LOWEST + _TRIES)
