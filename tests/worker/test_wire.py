"""Messages survive the wire, and any cutting of the stream; stray bytes are told from them, and harm nobody."""

from __future__ import annotations

import contextlib
import pickle
import sys
from typing import get_args
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.core.group import Dismiss
from sweep.core.trial import Outcome
from sweep.worker import wire
from sweep.worker.metrics import MAX_BYTES
from sweep.worker.wire import Done, Frames, Kill, Message, Relayed, Report, Started, Waits, decode, encode, frame


@pytest.mark.parametrize("kind", get_args(Message))
def test_a_message_of_every_kind_comes_out_as_it_went_in(kind):
    message = kind(*range(len(kind._fields)))
    told = decode(encode(message))
    assert type(told) is kind
    assert told == message


@given(st.lists(st.tuples(st.integers(0, 9), st.text())), st.lists(st.integers(1, 40)))
def test_messages_come_out_as_they_went_in_however_the_stream_is_cut(values, cuts):
    messages = [Waits(*each) for each in values]
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


NUMBER = wire._NUMBERS
STRAYS = {
    "text": b"Epoch 1: loss 0.5\n",
    "zeros": bytes(64),
    "giant": b"\xff" * 8,
    "too long": (wire.MAX_BYTES + 1).to_bytes(4, "little") + bytes(4),
    "checksum": frame(Started(1, 2))[:-1] + b"?",
    "nothing": framed(b""),
    "no pickle": framed(b"rubbish"),
    "SystemExit": framed(pickle.dumps(Ends())),
    "no tuple": framed(pickle.dumps(3)),
    "no number": framed(pickle.dumps(("a", 1, 2))),
    "no such number": framed(pickle.dumps((1000, 1, 2))),
    "unhashable": framed(pickle.dumps(([], 1, 2))),
    "too few": framed(pickle.dumps((NUMBER[Started], 1))),
    "of the driver": frame(Kill(1)),
    "wrong type": framed(pickle.dumps((NUMBER[Report], 1, "1", {}, None))),
    "no metrics": framed(pickle.dumps((NUMBER[Report], 1, 1, [1], None))),
    "wrong outcome": frame(Done(1, Outcome("FAILED", 3), 0.0)),  # type: ignore[arg-type]
    "code": framed(pickle.dumps((NUMBER[Waits], 1, decode))),
}


@pytest.mark.parametrize("stray", STRAYS.values(), ids=STRAYS)
def test_what_a_trial_writes_that_is_no_message_is_refused_and_nothing_of_it_is_run(stray):
    frames, heard = Frames(is_workers=True), []
    with pytest.raises(wire.StrayBytesError):
        heard += frames.feed(frame(Started(1, 2)) + stray)
    assert heard == [Started(1, 2)]


@given(st.binary(), st.integers(0, 200), st.booleans())
def test_any_bytes_in_a_stream_end_it_or_are_waited_for(data, at, is_inserted):
    good = b"".join(map(frame, [Started(1, 2), Report(1, 1, {"loss": 0.5}, None), Done(1, Outcome("FINISHED"), 2.0)]))
    stream = good[:at] + data + (good[at:] if is_inserted else b"")
    heard = []
    with contextlib.suppress(wire.StrayBytesError):
        heard += Frames(is_workers=True).feed(stream)
    told = [Started(1, 2), Report(1, 1, {"loss": 0.5}, None), Done(1, Outcome("FINISHED"), 2.0)]
    assert heard == told[: len(heard)]


def test_the_largest_messages_of_workers_are_taken():
    whole = Outcome("FAILED", "e" * 1000, "t" * (1 << 16), "ValueError", bytes(1 << 20), {"cpu": 1.0})
    messages = [
        Report(1, 1, {"text": "x" * MAX_BYTES}, "t/checkpoint_1"),
        Done(1, whole, 2.0),
        Relayed(1, "n", 0, Dismiss(), 1.0),
    ]
    stream = b"".join(map(frame, messages))
    frames, heard = Frames(is_workers=True), []
    for at in range(0, len(stream), 1 << 16):
        heard += frames.feed(stream[at : at + (1 << 16)])
    assert heard == messages
