"""Where experiments are stored: a local directory, or a URI and the local directory in which they are worked on."""

from __future__ import annotations

import os
import secrets
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.errors import ConfigError, ExperimentError
from sweep.record.layout import DEFAULT_STORAGE, STORAGE_VARIABLE, copy_root
from sweep.storage.filesystems import RemoteDirectory, explained, identity, locate

_BUCKETS = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss", "oci"}


@dataclass(frozen=True)
class Storage:
    """Where experiments are stored.

    Attributes:
        local_root: directory in which experiments are worked on.
        remote: to which they are copied; None: `local_root` is all there is.
    """

    local_root: Path
    remote: RemoteDirectory | None = None

    def __str__(self) -> str:
        return str(self.remote or self.local_root)

    def describe(self, name: str) -> str:
        """Return where the experiment `name` is kept, for people."""
        return str(self.local_root / name if self.remote is None else self.remote / name)

    def deletion(self, name: str, *, is_shell: bool = False) -> str:
        """Return the calls that delete the experiment `name`, here and there; where it can be, as a shell command."""
        local = self.local_root / name
        here = f"shutil.rmtree({str(local)!r})"
        if self.remote is None:
            return f"rm -r {shlex.quote(str(local))}" if is_shell else here
        uri = self.remote.uri
        filesystem = f"fsspec.filesystem({uri.partition('://')[0]!r})" if uri else "storage_filesystem"
        there = f"{filesystem}.rm({(self.remote / name).path!r}, recursive=True)"
        return f"{there} and {here}" if local.exists() else there


def parse_storage(storage_path: str | os.PathLike[str] | None = None, storage_filesystem: Any = None) -> Storage:
    """Return what `storage_path=` and `storage_filesystem=` mean; nothing is read or written.

    A `file://` URI, and a path on the local file system of fsspec or pyarrow, are local paths; None stands for
    `$SWEEP_STORAGE`, else `./sweep_results`.
    """
    if storage_filesystem is not None and not storage_path:
        raise ConfigError("storage_filesystem was given without storage_path; pass the path of a directory on it, too.")
    text = os.fspath(storage_path or os.environ.get(STORAGE_VARIABLE) or DEFAULT_STORAGE)
    if "://" not in text and storage_filesystem is None:
        return Storage(Path(text).expanduser().absolute())
    protocol, _, rest = text.partition("://")
    if "?" in text:
        raise ConfigError(
            f"storage_path={text!r} has options behind '?'. Give them to the file system: storage_filesystem="
            f"fsspec.filesystem({protocol!r}, endpoint_url=...), storage_path={rest.partition('?')[0]!r}."
        )
    filesystem, inside = locate(text, storage_filesystem)
    if filesystem is None:
        return Storage(Path(inside))
    if storage_filesystem is not None:
        remote = RemoteDirectory(filesystem, inside)
        return Storage(copy_root(str(remote), identity(filesystem)), remote)
    if not inside.strip("/") and protocol in _BUCKETS:
        raise ConfigError(f"storage_path={text!r} names no bucket; expected {protocol}://bucket/directory.")
    uri = text.rstrip("/") if inside.strip("/") else f"{protocol}://"
    return Storage(copy_root(uri), RemoteDirectory(filesystem, inside, uri))


def check_writable(storage: Storage) -> None:
    """Prove that remote storage takes files and gives them up again, before anything starts."""
    remote, probe = storage.remote, f".sweep-probe-{secrets.token_hex(4)}"
    if remote is None:
        return
    advice = "Check the name of the bucket and the permission to write and delete there, or pass another storage_path."
    with explained(f"{remote} cannot be written", advice):
        remote.write(probe, b"sweep")
        is_whole = remote.read(probe) == b"sweep"
        remote.remove(probe)
    if not is_whole:
        raise ExperimentError(f"{remote} does not give back what was written to it; pass another storage_path.")
