"""Scalars in the event files of TensorBoard, without TensorBoard, whose import takes a second."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, BinaryIO

_LONGEST = 1_000_000  # bytes of a record; longer ones are pictures


def read_events(stream: BinaryIO, offset: int, most: int) -> tuple[list[tuple[dict[str, Any], float | None]], int]:
    """Return the scalars of the whole records after an offset, those of one step together, and where to go on.

    A record is its length, a checksum, an event and a checksum; after `most` bytes no further one is begun.
    """
    found: list[tuple[dict[str, Any], float | None]] = []
    size, end = stream.seek(0, 2), offset + most
    while offset < end:
        stream.seek(offset)
        length = int.from_bytes(stream.read(12)[:8], "little")
        if offset + length + 16 > size:  # not yet whole
            break
        offset += length + 16
        try:
            step, values = _scalars(stream.read(length)) if length < _LONGEST else (0, {})
        except Exception:  # damaged: whatever is read of it may be wrong
            continue
        if values and found and found[-1][1] == step:
            found[-1][0].update(values)
        elif values:
            found.append((values, step))
    return found, offset


def _scalars(message: bytes) -> tuple[int, dict[str, Any]]:
    """Return the step and the scalars of an event: step 2, summary 5; of a value: tag 1, simple_value 2, tensor 8."""
    event, values = dict(_fields(message)), {}
    for _, value in _fields(event.get(5, b"")):
        parts = dict(_fields(value))
        tensor = dict(_fields(parts.get(8, b"")))  # its type, 1 or 2 of a float or a double, and where its content is
        scalar = parts.get(2) or next((tensor[number] for number in (4, 5, 6) if number in tensor), b"")
        if len(scalar) == {1: 4, 2: 8}.get(tensor.get(1, 1)):
            values[parts[1].decode()] = struct.unpack("<f" if len(scalar) == 4 else "<d", scalar)[0]
    return event.get(2, 0), values


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Give the fields of a protocol buffer by their numbers: whole numbers as such, anything else as bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        value, at = _varint(message, at) if kind in (0, 2) else (0, at)
        length = {1: 8, 2: value, 5: 4}.get(kind, 0)
        yield key >> 3, message[at : at + length] if kind else value
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while message[at] > 127:
        value |= (message[at] & 127) << shift
        at, shift = at + 1, shift + 7
    return value | message[at] << shift, at + 1
