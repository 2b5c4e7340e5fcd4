"""Directories on other machines, through fsspec: where a path lies, and transfers that are whole or not at all."""

from __future__ import annotations

import json
import os
import pickle
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.errors import ConfigError, ExperimentError, SweepError
from sweep.record.files import SUFFIXES, create_private, sync, write_atomically
from sweep.record.layout import REMOTE_NOTE, cache_root

# A file appears there whole when its upload ends, and directories are made by the files in them.
_OBJECT_STORES = frozenset(
    {"memory", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "oci", "tos", "hf", "r2"}
)
TEMPORARY = ".tmp-"  # in names of files that are being written


def locate(path: str | os.PathLike[str], filesystem: Any = None) -> tuple[Any, str]:
    """Return the file system on which `path` lies and its path there; (None, absolute path) for a local one.

    Args:
        path: a local path, a URI such as `s3://bucket/dir` or `file:///dir`; or, with `filesystem`, a path in that.
        filesystem: of fsspec or of pyarrow; None: the one that the URI names.

    Raises:
        ConfigError: there is no such protocol or file system, or a package for it is missing.
        ExperimentError: it cannot be opened.
    """
    text = os.fspath(path)
    if filesystem is None and "://" not in text:
        return None, os.path.abspath(text)
    filesystem, text = _open_uri(text) if filesystem is None else (_as_filesystem(filesystem), text)
    if _is_local(filesystem):
        return None, str(filesystem._strip_protocol(text))
    inside = str(filesystem._strip_protocol(text)).rstrip("/")
    # a path in a directory's own file system has no root
    return filesystem, inside.lstrip("/") if hasattr(filesystem, "fs") else inside


def _open_uri(uri: str) -> tuple[Any, str]:
    import fsspec

    try:
        filesystem, path = fsspec.core.url_to_fs(uri)
    except (ImportError, ValueError) as error:  # a package is missing, or there is no such protocol
        raise ConfigError(f"{uri} cannot be used: {str(error).rstrip('.')}.") from error
    except Exception as error:  # whatever the package behind the protocol raises: a login, a name that is no host
        raise ExperimentError(f"{uri} cannot be opened: {type(error).__name__}: {error}.") from error
    return filesystem, str(path)


@contextmanager
def explained(problem: str, advice: str) -> Iterator[None]:
    """Raise an `ExperimentError` that says what it means and what to do in place of whatever a file system raises."""
    try:
        yield
    except SweepError:
        raise
    except Exception as error:  # whatever the package behind the file system raises
        raise ExperimentError(f"{problem}: {type(error).__name__}: {error}. {advice}") from error


def local_filesystem() -> Any:
    """Return the file system of this machine."""
    import fsspec

    return fsspec.filesystem("file")


def _as_filesystem(filesystem: Any) -> Any:
    import fsspec

    if isinstance(filesystem, fsspec.AbstractFileSystem):
        return filesystem
    if type(filesystem).__module__.partition(".")[0] == "pyarrow":
        if type(filesystem).__name__ == "LocalFileSystem":
            return local_filesystem()
        from fsspec.implementations.arrow import ArrowFSWrapper

        return ArrowFSWrapper(filesystem)
    raise ConfigError(
        f"storage_filesystem is {filesystem!r:.100}; expected a file system of fsspec, such as "
        "fsspec.filesystem('s3', endpoint_url=...), or of pyarrow."
    )


def _is_local(filesystem: Any) -> bool:
    from fsspec.implementations.local import LocalFileSystem

    return type(filesystem) is LocalFileSystem


def _protocols(filesystem: Any) -> set[str]:
    while hasattr(filesystem, "fs"):  # a directory of another
        filesystem = filesystem.fs
    return {filesystem.protocol} if isinstance(filesystem.protocol, str) else set(filesystem.protocol)


def identity(filesystem: Any) -> str:
    """Return a text that is the same for equal file systems in every process; it may hold secrets, so hash it."""
    try:
        return str(filesystem.to_json())
    except Exception:  # an argument of it is no JSON: its class must do
        return f"{type(filesystem).__module__}.{type(filesystem).__qualname__}"


@dataclass(frozen=True)
class RemoteDirectory:
    """A directory on a file system of fsspec; names in it are relative, with `/`.

    What the file system raises is passed on: the caller decides whether that ends or only delays something.
    """

    filesystem: Any
    path: str

    def __truediv__(self, name: str) -> RemoteDirectory:
        return RemoteDirectory(self.filesystem, self.full(name))

    def __str__(self) -> str:
        return self.uri()

    def full(self, name: str = "") -> str:
        """Return the path of `name` on the file system."""
        return f"{self.path}/{name}" if name and self.path else name or self.path

    def uri(self) -> str:
        """Return what to show to people."""
        filesystem, path = self.filesystem, self.path
        while hasattr(filesystem, "fs") and hasattr(filesystem, "path"):  # a directory of another
            path, filesystem = f"{filesystem.path}/{path}".rstrip("/"), filesystem.fs
        if self.is_object_store:
            path = path.lstrip("/")
        return str(filesystem.unstrip_protocol(path))

    @property
    def is_object_store(self) -> bool:
        """Whether files appear whole, and directories are only parts of names."""
        return not _protocols(self.filesystem).isdisjoint(_OBJECT_STORES)

    def find(self, name: str = "") -> dict[str, int]:
        """Return the size in bytes of every file below `name`, by its name here; none when there is no such place."""
        self.filesystem.invalidate_cache()
        with suppress(FileNotFoundError):
            found = self.filesystem.find(self.full(name), detail=True).items()
            root = self.path.lstrip("/")
            sizes = {
                str(path).lstrip("/").removeprefix(root).lstrip("/"): int(info.get("size") or 0)
                for path, info in found
                if info.get("type", "file") == "file"
            }
            return {name: size for name, size in sizes.items() if name}
        return {}

    def names(self) -> list[str]:
        """Return the names of what lies directly in this directory, sorted."""
        self.filesystem.invalidate_cache()
        with suppress(FileNotFoundError):
            found = self.filesystem.ls(self.path, detail=False)
            return sorted({str(path).rstrip("/").rpartition("/")[2] for path in found})
        return []

    def stamp(self, name: str) -> str:
        """Return a text that changes when the file `name` does, as its file system tells; empty: there is none."""
        self.filesystem.invalidate_cache()
        with suppress(FileNotFoundError):
            return str(self.filesystem.ukey(self.full(name)))
        return ""

    def has(self, name: str) -> bool:
        """Whether there is a file `name`."""
        return bool(self.stamp(name))

    def read(self, name: str) -> bytes | None:
        """Return the contents of a small file; None when there is none."""
        with suppress(FileNotFoundError):
            return bytes(self.filesystem.cat_file(self.full(name)))
        return None

    def write(self, name: str, data: bytes) -> None:
        """Write a small file such that readers see the old one or the new one, never a part."""
        with self._whole(name) as place:
            self.filesystem.pipe_file(place, data)

    def get(self, names: Sequence[str], target: Path) -> None:
        """Bring files here, below `target`, which is not read yet; those with pickles are private from the first byte.

        Raises:
            ExperimentError: a name leads out of the directory.
        """
        for name in names:
            if ".." in name.split("/") or name.startswith("/"):
                raise ExperimentError(
                    f"{self} holds a file named {name!r}, which lies outside of it; it is not brought."
                )
        places = [target / name for name in names]
        for place in places:
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.name.endswith(SUFFIXES):
                create_private(place).close()  # it is filled, and keeps its mode
        if names:
            self.filesystem.get([self.full(name) for name in names], [str(place) for place in places])

    def put(self, pairs: Sequence[tuple[Path, str]]) -> list[str]:
        """Send files, each (here, name there), and return the names sent; those that are gone here are left out.

        A reader may see a file half written where the file system is no object store; see `replace`.
        """
        names = [name for _, name in pairs]
        self._make_parents(names)
        try:
            self.filesystem.put([str(path) for path, _ in pairs], [self.full(name) for name in names])
        except FileNotFoundError:
            left = [(path, name) for path, name in pairs if path.exists()]
            if len(left) == len(pairs):
                raise
            return self.put(left) if left else []
        return names

    def replace(self, path: Path, name: str) -> None:
        """Send a file such that readers see the old one or the new one, never a part."""
        with self._whole(name) as place:
            self.filesystem.put_file(str(path), place)

    @contextmanager
    def _whole(self, name: str) -> Iterator[str]:
        """Give the path to write to; a process that is killed meanwhile leaves `<name>.tmp-*`."""
        if self.is_object_store:
            yield self.full(name)
            return
        self._make_parents([name])
        place, temporary = self.full(name), self.full(f"{name}{TEMPORARY}{secrets.token_hex(4)}")
        try:
            yield temporary
            if _is_local(self.filesystem):  # on a network file system this is also what says that it was taken
                sync(temporary)
            try:
                self.filesystem.mv(temporary, place)
            except FileExistsError:  # a file system that renames onto nothing that exists
                self.filesystem.rm_file(place)
                self.filesystem.mv(temporary, place)
        except BaseException:
            with suppress(Exception):  # it would hold the room that may be short
                self.filesystem.rm_file(temporary)
            raise
        if _is_local(self.filesystem):
            sync(os.path.dirname(place))

    def remove(self, name: str) -> None:
        """Delete a file; gone already is fine."""
        with suppress(FileNotFoundError):
            self.filesystem.rm_file(self.full(name))

    def remove_tree(self, name: str) -> None:
        """Delete a directory and everything in it; gone already is fine."""
        self.filesystem.invalidate_cache()
        with suppress(FileNotFoundError):
            self.filesystem.rm(self.full(name), recursive=True)

    def _make_parents(self, names: Iterable[str]) -> None:
        # Making a directory in an object store could make a bucket, which was not asked for.
        if not self.is_object_store:
            for parent in {self.full(name).rpartition("/")[0] or "/" for name in names}:
                self.filesystem.makedirs(parent, exist_ok=True)


# --- where the rest of a local copy lies ---

_homes: dict[str, RemoteDirectory] = {}
_HOME_OBJECT = f"{REMOTE_NOTE}.pkl"


def remember_home(root: Path, home: RemoteDirectory, uri: str | None, *, is_for_all: bool = False) -> None:
    """Note that `root` is a copy of `home`, for whoever misses a checkpoint in it; also in later processes.

    Args:
        uri: by which other processes reach it; None: the file system was given as an object, and only this process
            has it.
        is_for_all: then that object is written down, too, with whatever secrets are in it: other processes of this
            user shall reach it.
    """
    _homes[str(root)] = home
    root.mkdir(parents=True, exist_ok=True)
    if is_for_all and uri is None:
        import cloudpickle

        write_atomically(root / _HOME_OBJECT, cloudpickle.dumps(home), is_private=True)
    note = json.dumps({"uri": uri, "shown": home.uri()})
    write_atomically(root / REMOTE_NOTE, note, is_private=True)  # a URI may hold a password


def home_of(root: Path) -> RemoteDirectory | None:
    """Return where the whole of the copy `root` lies; None when it is no copy.

    Raises:
        ExperimentError: it lies on a file system that was given as an object to another process; or no process of
            this user has made the copy.
    """
    known = _homes.get(str(root))
    if known is not None or not (root / REMOTE_NOTE).is_file():
        return known
    if not root.is_relative_to(cache_root()):  # anybody may have written that note, which would be believed
        raise ExperimentError(f"{root} is a copy that was made elsewhere. Open the experiment where it is stored")
    note = json.loads((root / REMOTE_NOTE).read_text(encoding="utf-8"))
    if note["uri"] is not None:
        return RemoteDirectory(*locate(note["uri"]))
    if not (root / _HOME_OBJECT).is_file():
        raise ExperimentError(
            f"it lies in {note['shown']}; open the experiment with storage_filesystem=... first, then it can be fetched"
        )
    home: RemoteDirectory = pickle.loads((root / _HOME_OBJECT).read_bytes())
    return home
