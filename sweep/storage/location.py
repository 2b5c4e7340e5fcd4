"""Where experiments are stored: a local directory, or a URI and the local directory in which they are worked on."""

from __future__ import annotations

import json
import os
import secrets
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sweep.errors import ConfigError, ExperimentError
from sweep.record.layout import DEFAULT_STORAGE, REMOTE_NOTE, STORAGE_VARIABLE, copy_root, split_uri
from sweep.storage.filesystems import RemoteDirectory, explained, identity, locate

_BUCKETS = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss", "oci"}


@dataclass(frozen=True)
class Storage:
    """Where experiments are stored.

    Attributes:
        uri: of remote storage, as people read it; None: `local_root` is all there is.
        local_root: directory in which experiments are worked on.
        filesystem: of fsspec; None for local storage.
        path: of the storage on `filesystem`.
        is_named: other processes reach it by its URI alone; False when the file system was given as an object.
    """

    uri: str | None
    local_root: Path
    filesystem: Any = None
    path: str = ""
    is_named: bool = True

    @property
    def is_remote(self) -> bool:
        """Whether experiments are copied to another place."""
        return self.filesystem is not None

    def experiment(self, name: str) -> RemoteDirectory:
        """Return the remote directory of an experiment."""
        return RemoteDirectory(self.filesystem, self.path) / name

    def uri_of(self, name: str) -> str | None:
        """Return the URI by which other processes reach the experiment `name`; None when there is none."""
        return self.describe(name) if self.is_remote and self.is_named else None

    def deletion(self, name: str, *, is_shell: bool = False) -> str:
        """Return the calls that delete the experiment `name`, here and in remote storage.

        Args:
            is_shell: a command of the shell where one can do it.
        """
        local = self.local_root / name
        here = f"shutil.rmtree({str(local)!r})"
        if not self.is_remote:
            return f"rm -r {shlex.quote(str(local))}" if is_shell else here
        what = f"fsspec.filesystem({str(self.uri).partition('://')[0]!r})" if self.is_named else "storage_filesystem"
        there = f"{what}.rm({self.experiment(name).path!r}, recursive=True)"
        return f"{there} and {here}" if local.exists() else there

    def describe(self, name: str) -> str:
        """Return where the experiment `name` is kept, for people."""
        if self.uri is None:
            return str(self.local_root / name)
        return f"{self.uri}{'' if self.uri.endswith('://') else '/'}{name}"


def parse_storage(storage_path: str | os.PathLike[str] | None = None, storage_filesystem: Any = None) -> Storage:
    """Return what `storage_path=` and `storage_filesystem=` mean; nothing is read or written.

    A `file://` URI, and a path on the local file system of fsspec or pyarrow, are local paths.

    Args:
        storage_path: a directory or a URI; None: `$SWEEP_STORAGE`, else `./sweep_results`.
        storage_filesystem: of fsspec or pyarrow; `storage_path` is a path on it.

    Raises:
        ConfigError: the URI names no directory, or an unknown protocol; or a package for it is missing.
        ExperimentError: the file system cannot be opened.
    """
    if storage_filesystem is not None and not storage_path:
        raise ConfigError("storage_filesystem was given without storage_path; pass the path of a directory on it, too.")
    path = storage_path or os.environ.get(STORAGE_VARIABLE)
    if not path or ("://" not in os.fspath(path) and storage_filesystem is None):
        return Storage(None, Path(path or DEFAULT_STORAGE).expanduser().absolute())
    text = os.fspath(path)
    protocol, _, rest = text.partition("://")
    if "?" in text:
        raise ConfigError(
            f"storage_path={text!r} has options behind '?'. Give them to the file system: storage_filesystem="
            f"fsspec.filesystem({protocol!r}, endpoint_url=...), storage_path={rest.partition('?')[0]!r}."
        )
    filesystem, inside = locate(text, storage_filesystem)
    if filesystem is None:
        return Storage(None, Path(inside))
    if not inside.strip("/") and protocol in _BUCKETS:
        raise ConfigError(f"storage_path={text!r} names no bucket; expected {protocol}://bucket/directory.")
    if storage_filesystem is None:
        uri = text.rstrip("/") if inside.strip("/") else f"{protocol}://"
        return Storage(uri, copy_root(uri), filesystem, inside)
    uri = RemoteDirectory(filesystem, inside).uri()
    return Storage(uri, copy_root(uri, identity(filesystem)), filesystem, inside, is_named=False)


def storage_of(root: Path) -> Storage | None:
    """Return the remote storage of which the experiment in `root` is a local copy; None when it is none.

    None also when the file system was given as an object: no other process can open it.
    """
    try:
        note = json.loads((root / REMOTE_NOTE).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    if note["uri"] is None:
        return None
    return replace(parse_storage(split_uri(note["uri"])[0]), local_root=root.parent)


def check_writable(storage: Storage) -> None:
    """Prove that remote storage takes files and gives them up again, before anything starts.

    Raises:
        ExperimentError: it does not: no permission, no such bucket, no network.
    """
    if not storage.is_remote:
        return
    root, probe = RemoteDirectory(storage.filesystem, storage.path), f".sweep-probe-{secrets.token_hex(4)}"
    advice = (
        "Check the name of the bucket and the permission to write and to delete there, or pass another storage_path."
    )
    with explained(f"{storage.uri} cannot be written", advice):
        root.write(probe, b"sweep")
        is_whole = root.read(probe) == b"sweep"
        root.remove(probe)
    if not is_whole:
        raise ExperimentError(f"{storage.uri} does not give back what was written to it; pass another storage_path.")
