"""Who is let in by a driver, and what a connection that knows nothing can do."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import socket
import threading
from dataclasses import replace

import pytest
from multiprocess.connection import Connection, deliver_challenge

from sweep.engines.cluster.handshake import LINK, Invitation, Listener, dial
from sweep.errors import ExperimentError

KEY = bytes(32)


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
    stranger.sendall((200).to_bytes(4, "big"))  # of the answer, which comes byte by byte
    is_cut, num_sent = False, 0
    while not is_cut and num_sent < 190:
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


def test_an_agent_serves_no_driver_that_does_not_know_the_key():
    """Each side proves to the other that it knows the key."""
    listener = socket.create_server(("127.0.0.1", 0))
    host, port = listener.getsockname()

    def pretend():
        peer, _ = listener.accept()
        with Connection(os.dup(peer.fileno())) as connection:
            deliver_challenge(connection, KEY)
            connection.recv_bytes(256)  # the agent's own challenge
            connection.send_bytes(b"0" * 16)
            with contextlib.suppress(EOFError, ConnectionError):
                connection.recv_bytes(256)
        peer.close()

    thread = threading.Thread(target=pretend)
    thread.start()
    try:
        with pytest.raises(ExperimentError, match="did not let this agent in"):
            dial(Invitation(host, port, KEY.hex(), "n1"), LINK)
    finally:
        listener.close()
        thread.join()


def test_a_driver_that_is_not_there_is_named():
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    listener.close()
    with pytest.raises(ExperimentError, match=rf"the driver at 127.0.0.1:{port} cannot be reached"):
        dial(Invitation("127.0.0.1", port, KEY.hex(), "n1"), LINK)


def test_an_invitation_does_not_show_its_key_when_it_is_printed(listener):
    made, _ = listener
    invitation = made.invitation("n1")
    assert made.key not in repr(invitation)
    assert Invitation.from_json(invitation.to_json()) == invitation
