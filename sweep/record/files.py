"""How files come to be: whole or not at all, and those with pickles readable by their owner alone."""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from typing import BinaryIO

SUFFIXES = (".pkl", ".objects")  # of files with pickles: one runs code where it is loaded, and may hold secrets


def create_private(path: str | os.PathLike[str]) -> BinaryIO:
    """Create a file for writing, in place of what is there, readable by its owner alone from the first moment on."""
    with suppress(FileNotFoundError):
        os.unlink(path)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600), "wb")


def write_atomically(
    path: str | os.PathLike[str], data: str | bytes, *, is_private: bool = False, is_durable: bool = False
) -> None:
    """Write a file in place of what is there, so that readers see the old or the new one, and never a part.

    Args:
        data: text is written as UTF-8.
        is_private: only its owner may read it.
        is_durable: flush it to the disk before it takes its place.

    Raises:
        OSError: it cannot be written; nothing is left behind, for it would hold the room that is short.
    """
    directory, name = os.path.split(os.fspath(path))
    temporary = os.path.join(directory, f".{name}.{os.getpid()}")
    try:
        with create_private(temporary) if is_private else open(temporary, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            if is_durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def first_free(path: str) -> str:
    """Return a path at which there is nothing: this one, or with `.2`, `.3` ... behind it."""
    names = itertools.chain((path,), (f"{path}.{number}" for number in itertools.count(2)))
    return next(name for name in names if not os.path.lexists(name))


def sync(path: str | os.PathLike[str]) -> None:
    """Flush a file, or the names in a directory, to its disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
