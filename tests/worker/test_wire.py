"""Messages survive any cutting of the stream."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sweep.worker.wire import Frames, Waits, frame


@given(st.lists(st.builds(Waits, st.integers(0, 9), st.text())), st.lists(st.integers(1, 40)))
def test_messages_come_out_as_they_went_in_however_the_stream_is_cut(messages, cuts):
    stream = b"".join(map(frame, messages))
    frames, out = Frames(), []
    for size in [*cuts, len(stream) + 1]:
        piece, stream = stream[:size], stream[size:]
        if piece:
            out += frames.feed(piece)
    assert out == messages
