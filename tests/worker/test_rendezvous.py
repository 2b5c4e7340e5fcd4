"""Ports that ranks meet at: on the address that is asked for, taken by nobody else, and let go."""

from __future__ import annotations

import socket

import pytest

from sweep.errors import ConfigError
from sweep.worker.rendezvous import close_ports, interface_of, open_ports


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"])
@pytest.mark.parametrize("kind", ["listening", "shared"])
def test_ports_are_on_the_address_that_is_asked_for(address, kind):
    ports = open_ports(2, kind, address)
    try:
        assert [port.holder.getsockname() for port in ports] == [(address, port.number) for port in ports]
    finally:
        close_ports(ports)


def test_a_listening_port_can_be_called_at_once_at_that_address_only():
    (port,) = ports = open_ports(1, "listening", "127.0.0.2")
    try:
        socket.create_connection(("127.0.0.2", port.number)).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.3", port.number))
    finally:
        close_ports(ports)


@pytest.mark.parametrize("address", ["192.0.2.1", "no address"])
def test_an_address_that_this_machine_does_not_have_is_refused_by_name(address):
    with pytest.raises(
        ConfigError, match=f"'{address}', the address of the node that is .*, is none of that machine's"
    ):
        open_ports(1, "listening", address)


def test_the_interface_of_an_address_is_the_one_that_bears_it():
    assert interface_of("127.0.0.1") == interface_of("127.0.0.3") == "lo"
    assert interface_of("192.0.2.1") == ""


def test_the_interface_of_this_machines_own_address_is_one_that_it_has():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no route")
        address = probe.getsockname()[0]
    assert interface_of(address) in {name for _, name in socket.if_nameindex()}
