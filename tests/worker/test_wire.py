"""Messages survive the wire, and any cutting of the stream."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.worker.wire import Frames, Message, Waits, decode, encode, frame


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
