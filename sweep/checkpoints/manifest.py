"""What a stored checkpoint consists of: names, sizes and checksums, by which damage is found before anything is loaded.

The manifest is a hidden file inside the checkpoint, so that both appear by one rename and are copied, linked and
deleted together. It is written where the checkpoint is stored, before the report that carries it is sent. Each file has
a checksum by `zlib.crc32`: of all of it up to `FULL_BYTES`, of evenly spread pieces of a larger one, the first at its
beginning and the last at its end. That finds what disks and copies do; it is no protection against forgery.
"""

from __future__ import annotations

import errno
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from sweep.errors import CheckpointError
from sweep.record.files import first_free, sync, write_atomically
from sweep.record.layout import leads_outside

MANIFEST = ".sweep-manifest.json"
METADATA = ".sweep-metadata.json"
FULL_BYTES = 64 << 20  # of a larger file only pieces are read: all of it would cost as much as loading it
ASIDE_PREFIX = "damaged_"
_CHUNK_BYTES = 1 << 20
_NUM_PIECES, _PIECE_BYTES = 64, 1 << 16
# What a file system says of files that are lost or cannot be read any more; anything else may be over in a minute.
_LOST = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EIO, errno.EBADMSG, errno.EUCLEAN, errno.ENODATA})


class DamagedError(CheckpointError):
    """A stored checkpoint is gone, or is not what was stored."""


def write_manifest(directory: str) -> None:
    """Make the files of a directory durable, and write the manifest of what they are."""
    files = {name: _checked(os.path.join(directory, name), is_synced=True) for name in _files(directory)}
    write_atomically(os.path.join(directory, MANIFEST), json.dumps({"version": 1, "files": files}), is_durable=True)
    for inner, _, _ in os.walk(directory):
        sync(inner)


def verify(directory: str | os.PathLike[str], *, is_exact: bool = True) -> None:
    """Check a stored checkpoint against its manifest: names, sizes, and checksums.

    Args:
        is_exact: False also accepts a directory in which there is more than was stored, and one without a manifest as
            long as there is anything in it: such as a person put there.

    Raises:
        DamagedError: it is missing, was never completed, or a file is missing, was added, changed or cut.
        OSError: it cannot be read now, for a reason that says nothing of it, such as missing permissions.
    """
    root = os.path.abspath(directory)
    try:
        _verify(root, is_exact)
    except OSError as error:
        if error.errno in _LOST:
            raise DamagedError(f"the checkpoint {root} is damaged: {error.strerror} ({error.filename}).") from error
        raise


def _verify(root: str, is_exact: bool) -> None:
    found = set(_files(root))
    try:
        with open(os.path.join(root, MANIFEST), encoding="utf-8") as file:
            expected = _entries(json.load(file))
    except FileNotFoundError:
        if found and not is_exact:
            return
        state = "is missing"
        if os.path.isdir(root):
            state = "has no manifest: it was not stored by a trial" if is_exact else "is damaged: it is empty"
        raise DamagedError(f"the checkpoint {root} {state}.") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(f"the checkpoint {root} is damaged: its manifest cannot be read ({error}).") from error
    for name in expected:
        if name not in found:
            raise DamagedError(f"the checkpoint {root} is damaged: {name} is missing.")
    for name in sorted(found - set(expected)) if is_exact else ():
        raise DamagedError(f"the checkpoint {root} is damaged: {name} was added after it was stored.")
    for name, (size, checksum) in expected.items():
        path = os.path.join(root, name)
        actual = os.path.getsize(path)
        if actual != size:
            raise DamagedError(f"the checkpoint {root} is damaged: {name} has {actual} bytes, expected {size}.")
        if _checked(path)[1] != checksum:
            raise DamagedError(f"the checkpoint {root} is damaged: the contents of {name} have changed.")


def _entries(manifest: Mapping[str, Any]) -> dict[str, tuple[int, str]]:
    """Return size and checksum by name."""
    return {str(name): (int(size), str(checksum)) for name, (size, checksum) in manifest["files"].items()}


def set_aside(root: str, path: str) -> str:
    """Move a damaged checkpoint of the experiment in `root` out of the way, `checkpoint_000003` to
    `damaged_checkpoint_000003`, and return that.

    Several processes may find the same damage: for those that come late, and where nothing can be renamed, nothing is
    returned. Nor is anything moved that lies outside of the experiment, where a symbolic link leads.
    """
    if leads_outside(root, path):
        return ""
    directory = os.path.abspath(os.path.join(root, path))
    parent, name = os.path.split(directory)
    target = first_free(os.path.join(parent, f"{ASIDE_PREFIX}{name}"))
    with suppress(OSError):  # it stays where it is; whoever opens it finds the damage as well
        os.rename(directory, target)
        return target
    return ""


def _files(root: str) -> list[str]:
    names = []
    for directory, _, files in os.walk(root):
        for file in files:
            if file != MANIFEST and METADATA not in file:
                names.append(os.path.relpath(os.path.join(directory, file), root))
    return sorted(names)


def _checked(path: str, *, is_synced: bool = False) -> tuple[int, str]:
    """Return the size and the checksum of a file, after making it durable if that is wanted."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if is_synced:
            os.fsync(descriptor)
        size = os.fstat(descriptor).st_size
        value = 0
        for chunk in _chunks(descriptor, size):
            value = zlib.crc32(chunk, value)
        return size, f"{'crc32' if size <= FULL_BYTES else 'pieces'}:{value:08x}"
    finally:
        os.close(descriptor)


def _chunks(descriptor: int, size: int) -> Iterator[bytes]:
    if size <= FULL_BYTES:
        while chunk := os.read(descriptor, _CHUNK_BYTES):
            yield chunk
        return
    for number in range(_NUM_PIECES):
        yield os.pread(descriptor, _PIECE_BYTES, (size - _PIECE_BYTES) * number // (_NUM_PIECES - 1))
