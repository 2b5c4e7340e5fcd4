"""The file of one driver's claims, locked for as long as they count.

It is written by its driver alone, in place, into one of two slots in turn: a driver that is killed at any moment leaves
one that is whole.
"""

from __future__ import annotations

import errno
import fcntl
import os
import zlib

_SLOT_BYTES = 1 << 20  # a hole in the file but for what is used
_READ_BYTES = 4096


def write(descriptor: int, version: int, text: str) -> None:
    """Write what is claimed, into the slot that does not hold the version before.

    Raises:
        OSError: there is no room for it.
    """
    said = f"{version} {text}".encode()
    data = b"%08x %d %s" % (zlib.crc32(said), len(said), said)
    if len(data) > _SLOT_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    os.pwrite(descriptor, data, version % 2 * _SLOT_BYTES)


def is_free(descriptor: int) -> bool:
    """Whether no process holds a file's lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return True


def newest(descriptor: int) -> bytes:
    """Return what the newer of the two slots says that are whole, its version first; nothing where none is."""
    found = [_slot(descriptor, 0), _slot(descriptor, _SLOT_BYTES)]
    return max(found, key=lambda text: int(text.partition(b" ")[0] or 0))


def _slot(descriptor: int, offset: int) -> bytes:
    data = os.pread(descriptor, _READ_BYTES, offset)
    try:
        checksum, length, text = data.split(b" ", 2)
        missing = int(length) - len(text)
        if missing > 0:
            text += os.pread(descriptor, min(missing, _SLOT_BYTES), offset + len(data))
        text = text[: int(length)]
        return text if int(checksum, 16) == zlib.crc32(text) and text.split(b" ", 1)[0].isdigit() else b""
    except ValueError:
        return b""
