"""Directories on other machines, through fsspec: where a path lies, and transfers that are whole or not at all."""

from __future__ import annotations

import json
import os
import pickle
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweep.errors import ConfigError, ExperimentError, SweepError
from sweep.record.files import SUFFIXES, create_private, sync, write_atomically
from sweep.record.layout import REMOTE_NOTE, cache_root, split_uri

# A file appears there whole when its upload ends, and directories are made by the files in them.
_OBJECT_STORES = frozenset(
    {"memory", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "oci", "tos", "hf", "r2"}
)
TEMPORARY = ".tmp-"  # in names of files that are being written
_TOKEN = secrets.token_hex(4)  # of this process in them: what it has left there, it writes over


def locate(path: str | os.PathLike[str], filesystem: Any = None) -> tuple[Any, str]:
    """Return the file system on which `path` lies and its path there; (None, absolute path) for a local one.

    Args:
        path: a local path, a URI such as `s3://bucket/dir` or `file:///dir`; or, with `filesystem`, a path in that.
        filesystem: of fsspec or of pyarrow; None: the one that the URI names.
    """
    text = os.fspath(path)
    if filesystem is None and "://" not in text:
        return None, os.path.abspath(text)
    import fsspec

    if filesystem is None:
        with explained(f"{text} cannot be opened", "Check the address and the login."):
            try:
                filesystem, text = fsspec.core.url_to_fs(text)
            except (ImportError, ValueError) as error:  # a package is missing, or there is no such protocol
                raise ConfigError(f"{text} cannot be used: {str(error).rstrip('.')}.") from error
    elif type(filesystem).__module__.partition(".")[0] == "pyarrow":
        from fsspec.implementations.arrow import ArrowFSWrapper

        is_local = type(filesystem).__name__ == "LocalFileSystem"
        filesystem = local_filesystem() if is_local else ArrowFSWrapper(filesystem)
    elif not isinstance(filesystem, fsspec.AbstractFileSystem):
        raise ConfigError(
            f"storage_filesystem is {filesystem!r:.100}; expected a file system of fsspec, such as "
            "fsspec.filesystem('s3', endpoint_url=...), or of pyarrow."
        )
    inside = str(filesystem._strip_protocol(text))
    if _is_local(filesystem):
        return None, inside
    inside = inside.rstrip("/")
    # a path in a directory's own file system has no root
    return filesystem, inside.lstrip("/") if hasattr(filesystem, "fs") else inside


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


def _is_local(filesystem: Any) -> bool:
    from fsspec.implementations.local import LocalFileSystem

    return type(filesystem) is LocalFileSystem


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

    Attributes:
        uri: by which any process reaches it; empty: its file system was given as an object.
    """

    filesystem: Any
    path: str
    uri: str = field(default="", compare=False)

    def __truediv__(self, name: str) -> RemoteDirectory:
        separator = "" if self.uri.endswith("://") else "/"
        return RemoteDirectory(self.filesystem, self._full(name), self.uri and f"{self.uri}{separator}{name}")

    def __str__(self) -> str:
        filesystem, path = self._innermost()
        return self.uri or str(filesystem.unstrip_protocol(path.lstrip("/") if self.is_object_store else path))

    def _full(self, name: str) -> str:
        return f"{self.path}/{name}" if name and self.path else name or self.path

    def _innermost(self) -> tuple[Any, str]:
        """Return the file system that others are directories of, and the path on it."""
        filesystem, path = self.filesystem, self.path
        while hasattr(getattr(filesystem, "fs", None), "protocol"):  # one of pyarrow has none
            if hasattr(filesystem, "path"):
                path = f"{filesystem.path}/{path}".rstrip("/")
            filesystem = filesystem.fs
        return filesystem, path

    @property
    def is_object_store(self) -> bool:
        """Whether files appear whole, and directories are only parts of names."""
        protocol = self._innermost()[0].protocol
        return not _OBJECT_STORES.isdisjoint((protocol,) if isinstance(protocol, str) else protocol)

    def find(self, name: str = "") -> dict[str, int]:
        """Return the size in bytes of every file below `name`, by its name here; none when there is no such place."""
        self.filesystem.invalidate_cache()
        found = {}
        with suppress(FileNotFoundError):
            found = self.filesystem.find(self._full(name), detail=True)
        start = len(self.path.strip("/"))
        sizes = {str(path).strip("/")[start:].lstrip("/"): int(info.get("size") or 0) for path, info in found.items()}
        return {name: size for name, size in sizes.items() if name}

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
            return str(self.filesystem.ukey(self._full(name)))
        return ""

    def read(self, name: str) -> bytes | None:
        """Return the contents of a small file; None when there is none."""
        with suppress(FileNotFoundError):
            return bytes(self.filesystem.cat_file(self._full(name)))
        return None

    def write(self, name: str, source: bytes | Path) -> None:
        """Write a file, or a copy of one that is here, such that readers see the old one or the new one, never a part:
        a process that is killed meanwhile leaves `<name>.tmp-*`."""
        place = temporary = self._full(name)
        if not self.is_object_store:
            self._make_parents([name])
            temporary = f"{place}{TEMPORARY}{_TOKEN}"
        if isinstance(source, bytes):
            self.filesystem.pipe_file(temporary, source)
        else:
            self.filesystem.put_file(str(source), temporary)
        is_local = _is_local(self.filesystem)
        if is_local:  # on a network file system this is also what says that it was taken
            sync(temporary)
        if temporary != place:
            self.filesystem.mv(temporary, place)
        if is_local:
            sync(os.path.dirname(place))

    def get(self, names: Sequence[str], target: Path) -> None:
        """Bring files here, below `target`; those with pickles are private from the first byte."""
        for name in names:
            if ".." in name.split("/") or name.startswith("/"):
                raise ExperimentError(f"{self} holds a file named {name!r}, which lies outside of it.")
        places = [target / name for name in names]
        for place in places:
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.name.endswith(SUFFIXES):
                create_private(place).close()  # it is filled, and keeps its mode
        if names:
            self.filesystem.get([self._full(name) for name in names], [str(place) for place in places])

    def put(self, pairs: Sequence[tuple[Path, str]]) -> list[str]:
        """Send files, each (here, name there), and return the names sent; those that are gone here are left out.
        Unlike with `write`, a reader may see a part of one."""
        names = [name for _, name in pairs]
        self._make_parents(names)
        try:
            self.filesystem.put([str(path) for path, _ in pairs], [self._full(name) for name in names])
        except FileNotFoundError:
            left = [(path, name) for path, name in pairs if path.exists()]
            if len(left) == len(pairs):
                raise
            return self.put(left) if left else []
        return names

    def remove(self, name: str) -> None:
        """Delete a file; gone already is fine."""
        with suppress(FileNotFoundError):
            self.filesystem.rm_file(self._full(name))

    def remove_tree(self, name: str = "") -> None:
        """Delete a directory and everything in it; gone already is fine."""
        self.filesystem.invalidate_cache()
        with suppress(FileNotFoundError):
            self.filesystem.rm(self._full(name), recursive=True)

    def _make_parents(self, names: Iterable[str]) -> None:
        # Making a directory in an object store could make a bucket, which was not asked for.
        if not self.is_object_store:
            for parent in {self._full(name).rpartition("/")[0] or "/" for name in names}:
                self.filesystem.makedirs(parent, exist_ok=True)


# --- where the rest of a local copy lies ---

_homes: dict[str, RemoteDirectory] = {}


def remember_home(root: Path, home: RemoteDirectory, *, is_for_all: bool = False) -> None:
    """Note that `root` is a copy of `home`, for whoever misses a checkpoint in it; also in later processes.

    A file system that was given as an object is written down, with its secrets, only if this `is_for_all` processes.
    """
    _homes[str(root)] = home
    root.mkdir(parents=True, exist_ok=True)
    note = {"uri": home.uri, "shown": str(home)}
    if is_for_all and not home.uri:
        import cloudpickle

        note["object"] = cloudpickle.dumps(home).hex()
    write_atomically(root / REMOTE_NOTE, json.dumps(note), is_private=True)  # a URI may hold a password


def home_of(root: Path) -> RemoteDirectory | None:
    """Return where the whole of the copy `root` lies, as far as this process can reach it; None when it is no copy."""
    known, note = _homes.get(str(root)), _note_in(root)
    if known is not None or not note:
        return known
    if not root.is_relative_to(cache_root()):  # anybody may have written that note, which would be believed
        raise ExperimentError(f"{root} is a copy that was made elsewhere. Open the experiment where it is stored")
    if note["uri"]:
        return RemoteDirectory(*locate(note["uri"]), note["uri"])
    if "object" not in note:
        raise ExperimentError(
            f"it lies in {note['shown']}; open the experiment with storage_filesystem=... first, then it can be fetched"
        )
    home: RemoteDirectory = pickle.loads(bytes.fromhex(note["object"]))
    return home


def storage_of(root: Path) -> str:
    """Return the URI of the storage of which the experiment in `root` is a local copy; empty: it is none, or the file
    system was given as an object, which no other process can open."""
    uri = _note_in(root).get("uri")
    return split_uri(uri)[0] if uri else ""


def _note_in(root: Path) -> dict[str, str]:
    with suppress(FileNotFoundError, NotADirectoryError):
        note: dict[str, str] = json.loads((root / REMOTE_NOTE).read_text(encoding="utf-8"))
        return note
    return {}
