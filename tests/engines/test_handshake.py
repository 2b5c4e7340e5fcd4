"""Who is let in by a driver, and what a connection that knows nothing can do."""

from __future__ import annotations

import pickle
import queue
import select
import socket
import threading
from dataclasses import replace

import pytest

from sweep.core.messages import Kill
from sweep.engines.cluster import certificate
from sweep.engines.cluster.handshake import LINK, Listener, dial, keep_alive
from sweep.engines.link import Link
from sweep.errors import ExperimentError
from sweep.worker import wire


@pytest.fixture
def listener():
    """Return a listener and the queue of those that it has let in."""
    admitted = queue.SimpleQueue()
    made = Listener("127.0.0.1", admitted.put)
    yield made, admitted
    made.close()


def test_an_agent_with_the_key_is_let_in_and_says_who_it_is(listener):
    made, admitted = listener
    ours = dial(made.invitation("n1"), LINK)
    guest = admitted.get(timeout=20)
    assert (guest.hello.node, guest.hello.purpose) == ("n1", LINK)
    ours.sendall(b"hello")
    assert guest.socket.recv(5) == b"hello"
    ours.close()
    guest.socket.close()


def test_every_listener_has_a_key_of_its_own_and_another_one_is_not_let_in(listener):
    made, admitted = listener
    other = Listener("127.0.0.1", admitted.put)
    try:
        assert len(bytes.fromhex(made.key)) == 32
        assert made.key != other.key
        with pytest.raises(ExperimentError, match="did not let this agent in"):
            dial(replace(made.invitation("n1"), key=other.key), LINK)
    finally:
        other.close()
    assert admitted.empty()


def test_who_knows_no_key_has_nothing_unpickled_and_keeps_nobody_waiting(listener, tmp_path):
    made, admitted = listener
    mark = tmp_path / "mark"

    class Bad:
        def __reduce__(self):
            return (open, (str(mark), "w"))

    data = pickle.dumps(Bad())
    strangers = [socket.create_connection((made.host, made.port)) for _ in range(4)]
    strangers[0].sendall(len(data).to_bytes(4, "big") + data)
    strangers[1].sendall(b"GET / HTTP/1.1\r\n\r\n")
    strangers[2].sendall(b"\xff" * 64)
    ours = dial(made.invitation("n1"), LINK)  # the fourth stranger says nothing at all
    guest = admitted.get(timeout=20)
    assert guest.hello.node == "n1"
    assert admitted.empty()
    assert not mark.exists()
    for one in (*strangers, ours, guest.socket):
        one.close()


def test_who_says_a_little_again_and_again_is_cut_when_the_whole_handshake_takes_too_long(listener, monkeypatch):
    made, _ = listener
    monkeypatch.setattr("sweep.engines.cluster.handshake._HANDSHAKE_S", 0.2)
    stranger = socket.create_connection((made.host, made.port))
    stranger.settimeout(0.05)
    stranger.sendall(b"\x16\x03\x01\x02\x00")  # the head of a record of 512 bytes, which come byte by byte
    is_cut, num_sent = False, 0
    while not is_cut and num_sent < 500:
        try:
            stranger.sendall(b"x")
            num_sent += 1
            is_cut = not stranger.recv(1024)
        except TimeoutError:
            continue
        except OSError:
            is_cut = True
    assert is_cut
    stranger.close()


def test_an_agent_says_no_key_to_a_driver_with_another_certificate(listener):
    """Whoever listens at the driver's port, or stands between, gets neither the key nor anything to unpickle from."""
    made, admitted = listener
    other = Listener("127.0.0.1", admitted.put)
    other.key = made.key  # so that it would let the agent in
    try:
        with pytest.raises(ExperimentError, match="its certificate is not the one of the invitation"):
            dial(replace(made.invitation("n1"), port=other.port), LINK)
    finally:
        other.close()
    assert admitted.empty()


def test_what_is_said_over_the_link_is_not_readable_on_the_way(listener):
    """A relay between both sees everything that goes over the network, and neither the key nor a message of it."""
    made, admitted = listener
    relay = socket.create_server(("127.0.0.1", 0))
    seen = bytearray()

    def pass_on():
        near, _ = relay.accept()
        far = socket.create_connection((made.host, made.port))
        to, data = {near: far, far: near}, b"first"
        while data:
            for one in select.select([near, far], [], [])[0]:
                data = one.recv(1 << 16)
                seen.extend(data)
                to[one].sendall(data)
        near.close()
        far.close()

    thread = threading.Thread(target=pass_on)
    thread.start()
    ours = Link(dial(replace(made.invitation("n1"), port=relay.getsockname()[1]), LINK))
    guest = Link(admitted.get(timeout=20).socket)
    ours.send(wire.Order(Kill("a-secret-trial", 0)))
    select.select([guest.socket], [], [])
    assert guest.receive() == [wire.Order(Kill("a-secret-trial", 0))]
    ours.close()
    thread.join()
    guest.close()
    relay.close()
    assert len(seen) > 1000
    for secret in (b"a-secret-trial", made.key.encode(), b"n1"):
        assert secret not in seen


def test_messages_larger_than_the_buffers_arrive_whole_in_both_directions_at_once(listener):
    made, admitted = listener
    ends = [Link(dial(made.invitation("n1"), LINK)), Link(admitted.get(timeout=20).socket)]
    large = [wire.Written("a", 0, "out", 0, bytes([number]) * (1 << 22)) for number in range(8)]
    received = [[], []]
    for link in ends:
        keep_alive(link.socket, 15.0)
        for message in large:
            link.send(message)  # more than the kernel takes: what is left is written as the other side reads
    assert not ends[0].is_empty
    poll = select.poll()
    while any(len(messages) < len(large) for messages in received):
        for link in ends:
            poll.register(link.socket, link.mask)
        for descriptor, mask in poll.poll(20_000):
            number = int(descriptor == ends[1].socket.fileno())
            if mask & select.POLLOUT:
                ends[number].flush()
            received[number] += ends[number].receive()
    assert received == [large, large]
    for link in ends:
        link.close()


def test_a_link_whose_other_end_vanished_has_ended_and_raises_nothing(listener):
    made, admitted = listener
    ours, theirs = dial(made.invitation("n1"), LINK), Link(admitted.get(timeout=20).socket)
    theirs.send(wire.Want(None))  # unread there: so the end is a reset
    ours.close()
    while theirs.is_open:
        select.select([theirs.socket], [], [])
        theirs.receive()
    theirs.send(wire.Want(None))
    theirs.close()


def test_no_two_certificates_are_the_same():
    assert certificate.server_context()[1] != certificate.server_context()[1]
