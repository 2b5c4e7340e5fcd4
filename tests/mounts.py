"""Mounting in a test: the words before a command that give it a mount namespace of its own."""

from __future__ import annotations

import functools
import subprocess

import pytest


@functools.cache
def _namespace() -> tuple[str, ...]:
    for user in ((), ("--user", "--map-root-user")):
        words = ("unshare", *user, "--mount", "--propagation", "private")
        trial = [*words, "sh", "-c", "mount -t tmpfs -o size=1m tmpfs /mnt"]
        try:
            if subprocess.run(trial, capture_output=True, check=False).returncode == 0:
                return words
        except FileNotFoundError:
            break
    return ()


def with_mounts(mounts: list[str], command: list[str]) -> list[str]:
    """Return the command that mounts what is wanted, seen by nobody else, and then is `command`; or skip the test."""
    if not _namespace():
        pytest.skip("mounting needs a mount namespace, which is refused here")
    return [*_namespace(), "sh", "-c", " && ".join([*mounts, 'exec "$@"']), "sh", *command]
