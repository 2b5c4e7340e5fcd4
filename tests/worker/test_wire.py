"""Messages survive the wire, and any cutting of the stream; stray bytes are told from them, and harm nobody."""

from __future__ import annotations

import contextlib
import dataclasses
import pickle
import sys
from typing import get_args
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.core.group import Dismiss
from sweep.core.messages import Reported, Started, Waiting
from sweep.core.trial import Cause, Outcome
from sweep.worker import wire
from sweep.worker.metrics import MAX_BYTES
from sweep.worker.wire import Done, EndTree, Frames, Message, Relayed, decode, encode, frame

KEY = ("abcde_00001", 1)


@pytest.mark.parametrize("kind", get_args(Message))
def test_a_message_of_every_kind_comes_out_as_it_went_in(kind):
    names = kind._fields if hasattr(kind, "_fields") else dataclasses.fields(kind)
    message = kind(*range(len(names)))
    told = decode(encode(message))
    assert type(told) is kind
    assert told == message


@given(st.lists(st.tuples(st.text(), st.text())), st.lists(st.integers(1, 40)))
def test_messages_come_out_as_they_went_in_however_the_stream_is_cut(values, cuts):
    messages = [Waiting(*each) for each in values]
    stream = b"".join(map(frame, messages))
    frames, out = Frames(), []
    for size in [*cuts, len(stream) + 1]:
        piece, stream = stream[:size], stream[size:]
        if piece:
            out += frames.feed(piece)
    assert out == messages


def framed(data):
    return len(data).to_bytes(4, "little") + crc32(data).to_bytes(4, "little") + data


class Ends:
    def __reduce__(self):
        return (sys.exit, (3,))


class Wrong:
    """Says of itself that it is a message with other fields."""

    def __init__(self, kind, *values):
        self.told = kind, values

    def __reduce__(self):
        return self.told


STARTED = Started(*KEY, 2)
STRAYS = {
    "text": b"Epoch 1: loss 0.5\n",
    "zeros": bytes(64),
    "giant": b"\xff" * 8,
    "too long": (wire.MAX_BYTES + 1).to_bytes(4, "little") + bytes(4),
    "checksum": frame(STARTED)[:-1] + b"?",
    "nothing": framed(b""),
    "no pickle": framed(b"rubbish"),
    "SystemExit": framed(pickle.dumps(Ends())),
    "no message": framed(pickle.dumps(3)),
    "too few": framed(pickle.dumps(Wrong(Started, 1))),
    "of the driver": frame(EndTree()),
    "wrong type": framed(pickle.dumps(Wrong(Reported, *KEY, "1", {}, None))),
    "no metrics": framed(pickle.dumps(Wrong(Reported, *KEY, 1, [1], None))),
    "wrong outcome": frame(Done(Outcome("FAILED", 3), 0.0)),  # type: ignore[arg-type]
    "no cause": framed(pickle.dumps(Wrong(Waiting, "a", "b", "c"))),
    "code": framed(pickle.dumps(Wrong(Waiting, "a", decode))),
}


@pytest.mark.parametrize("stray", STRAYS.values(), ids=STRAYS)
def test_what_a_trial_writes_that_is_no_message_is_refused_and_nothing_of_it_is_run(stray):
    frames, heard = Frames(is_workers=True), []
    with pytest.raises(wire.StrayBytesError):
        heard += frames.feed(frame(STARTED) + stray)
    assert heard == [STARTED]


@given(st.binary(), st.integers(0, 200), st.booleans())
def test_any_bytes_in_a_stream_end_it_or_are_waited_for(data, at, is_inserted):
    told = [
        STARTED,
        Reported(*KEY, 1, {"loss": 0.5}, None),
        Done(Outcome("FINISHED"), 2.0),
        Waiting("a", "b", Cause.SPACE),
    ]
    good = b"".join(map(frame, told))
    stream = good[:at] + data + (good[at:] if is_inserted else b"")
    heard = []
    with contextlib.suppress(wire.StrayBytesError):
        heard += Frames(is_workers=True).feed(stream)
    assert heard == told[: len(heard)]


def test_the_largest_messages_of_workers_are_taken():
    whole = Outcome("FAILED", "e" * 1000, "t" * (1 << 16), "ValueError", bytes(1 << 20), {"cpu": 1.0})
    messages = [
        Reported(*KEY, 1, {"text": "x" * MAX_BYTES}, "t/checkpoint_1"),
        Done(whole, 2.0),
        Relayed("n", 0, Dismiss(), 1.0),
    ]
    stream = b"".join(map(frame, messages))
    frames, heard = Frames(is_workers=True), []
    for at in range(0, len(stream), 1 << 16):
        heard += frames.feed(stream[at : at + (1 << 16)])
    assert heard == messages
