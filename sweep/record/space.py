"""Disks and quotas that are full: how an error says so, and how much room there is."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil

_FEW = 100
_MOST_CAUSES = 50
_NUMBERS = (errno.ENOSPC, errno.EDQUOT)


def lacks_space(error: BaseException, directory: str | os.PathLike[str] = "") -> bool:
    """Whether an error, or what caused it, says that a disk or a quota is full.

    Args:
        directory: an error that names a file elsewhere does not count; empty: each does.
    """
    current: BaseException | None = error
    for _ in range(_MOST_CAUSES):  # a chain may be a ring
        if current is None:
            return False
        if _says_so(current, os.fspath(directory)):
            return True
        current = current.__cause__ or current.__context__
    return False


def _says_so(error: BaseException, directory: str) -> bool:
    if isinstance(error, shutil.Error):  # copytree gives the texts of errors only
        return any(f"[Errno {number}]" in str(error) for number in _NUMBERS)
    if not isinstance(error, OSError) or error.errno not in _NUMBERS:
        return False
    names = [name for name in (error.filename, error.filename2) if isinstance(name, str) and os.path.isabs(name)]
    return not directory or not names or any(name.startswith(directory) for name in names)


def free_bytes(directory: str | os.PathLike[str]) -> int | None:
    """Return how many bytes can be written below a directory; 0 when no file can be made; None: not known."""
    with contextlib.suppress(OSError):
        found = os.statvfs(directory)
        return 0 if found.f_files and not found.f_favail else found.f_bavail * found.f_frsize
    return None


def few_inodes(directory: str | os.PathLike[str]) -> int | None:
    """Return how many files can be made below a directory if they are what is scarce there; None: they are not."""
    with contextlib.suppress(OSError):
        found = os.statvfs(directory)
        if found.f_files and found.f_favail <= max(_FEW, found.f_files // _FEW):
            return found.f_favail
    return None


def tree_bytes(directory: str | os.PathLike[str]) -> int:
    """Return the size of all files below a directory, as far as they are there."""
    total = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):  # deleted meanwhile, or a link to nothing
                total += os.stat(os.path.join(parent, name)).st_size
    return total
