"""Files that only their owner may read: a pickle runs code where it is loaded, and may hold secrets."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import BinaryIO

__all__ = ["SUFFIXES", "create_private"]

SUFFIXES = (".pkl", ".objects")  # of files with pickles


def create_private(path: str | os.PathLike[str]) -> BinaryIO:
    """Create a file for writing, in place of what is there, readable by its owner alone from the first moment on."""
    with suppress(FileNotFoundError):
        os.unlink(path)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600), "wb")
