"""What a power cut may leave of the files that a program wrote: what it flushed, and any part of the rest.

The program is run under strace; its system calls are played again up to a point. A file then has everything that was
written before the last fsync or fdatasync of it began and has ended, and of later writes some, cut at sectors. A
directory has the names that it had when it was flushed, and some of the later changes, in their order. That is less
than file systems with a journal promise. What is written through memory (`sweep.db-shm`) is not there.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

SECTOR = 512
_CALLS = (
    "openat,write,pwrite64,lseek,fsync,fdatasync,ftruncate,unlink,unlinkat,rename,renameat,renameat2,mkdir,mkdirat,rmdir,"
    "link,linkat,sendfile,copy_file_range,symlink,symlinkat,truncate,writev,pwritev,fallocate"
)
_UNFINISHED = " <unfinished ...>"
_RESUMED = re.compile(r"<\.\.\. (\w+) resumed>")
_CALL = re.compile(r"(\w+)\((.*)\)\s+= (-?\d+)")
_ARGUMENT = re.compile(
    r'"(?P<text>(?:\\x[0-9a-f]{2})*)"|(?P<fd>AT_FDCWD|\d+)<(?P<path>[^>]*)>(?:\(deleted\))?|[^,"<\s][^,"<]*'
)


def trace(command: list[str], to: Path, environment: dict[str, str]) -> None:
    """Run a program under strace."""
    strace = ["strace", "-f", "-y", "-xx", "-s", str(1 << 26), "-e", f"trace={_CALLS}", "-o", str(to), "--"]
    subprocess.run([*strace, *command], env=environment, check=True, timeout=240, stdin=subprocess.DEVNULL)


class Call:
    """One system call that succeeded, of one thread."""

    def __init__(self, pid: str, name: str, text: str, result: int) -> None:
        self.pid, self.name, self.result = pid, name, result
        self.text = text
        self._found = list(_ARGUMENT.finditer(text))
        self.texts = [_bytes(one["text"]) for one in self._found if one["text"] is not None]
        self.paths = [_bytes(one["path"]).decode() for one in self._found if one["path"] is not None]
        self.fds = [one["fd"] for one in self._found if one["fd"] is not None]
        self.numbers = [one[0].strip() for one in self._found if one["text"] is None and one["path"] is None]

    def names(self) -> list[str]:
        """Return the paths that are given as text, each with the directory that it is relative to."""
        bases = iter(self.paths)
        found = []
        for text in self.texts:
            base = next(bases, "/")
            found.append(os.path.normpath(os.path.join(base, text.decode())))
        return found


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", "")) if text.startswith("\\x") or not text else text.encode()


def calls(trace_file: Path) -> Iterator[Call]:
    """Give the calls in the order in which they ended; fsync and fdatasync once more, before, when they begin."""
    begun: dict[str, str] = {}
    with trace_file.open() as lines:
        for line in lines:
            pid, _, text = line.rstrip("\n").partition(" ")
            text = text.strip()
            if text.endswith(_UNFINISHED):
                begun[pid] = text.removesuffix(_UNFINISHED)
                if found := re.match(r"(fsync|fdatasync)\((.*)", begun[pid]):
                    yield Call(pid, f"{found[1]} begins", found[2], 0)
                continue
            resumed = _RESUMED.match(text)
            if resumed:
                text = begun.pop(pid) + text[resumed.end() :]
            match = _CALL.match(text)
            if match is None or int(match[3]) < 0:
                continue
            if not resumed and match[1] in ("fsync", "fdatasync"):
                yield Call(pid, f"{match[1]} begins", match[2], 0)
            yield Call(pid, match[1], match[2], int(match[3]))


class File:
    """A file: what was done to it, in order, and how much of that is surely on the disk."""

    def __init__(self) -> None:
        self.changes: list[tuple[int, bytes | None]] = []  # where and what; None: it was cut there
        self.num_safe = 0
        self.flushing: dict[str, int] = {}  # how much each thread's flush will have made safe
        self.size = 0

    def write(self, at: int, data: bytes) -> None:
        self.changes.append((at, data))
        self.size = max(self.size, at + len(data))

    def cut(self, size: int) -> None:
        self.changes.append((size, None))
        self.size = size

    def content(self, rng: random.Random, share: float) -> bytes:
        """Return what may be on the disk: of what is not safe about this share."""
        found = bytearray()
        for number, (at, data) in enumerate(self.changes):
            is_safe = number < self.num_safe
            if data is None:
                if is_safe or rng.random() < share:
                    del found[at:]
                    found.extend(bytes(at - len(found)))
                continue
            kept = [True] if is_safe else None
            start = 0
            while start < len(data):
                end = len(data) if is_safe else min(start + SECTOR - (at + start) % SECTOR, len(data))
                if kept or rng.random() < share:
                    if len(found) < at + start:
                        found.extend(bytes(at + start - len(found)))
                    found[at + start : at + end] = data[start:end]
                start = end
        return bytes(found)


class Directory:
    """A directory: the names in it, how they came about, and how much of that is surely on the disk."""

    def __init__(self) -> None:
        self.names: dict[str, File | Directory] = {}
        self.changes: list[dict[str, File | Directory | None]] = []
        self.num_safe = 0
        self.flushing: dict[str, int] = {}  # how much each thread's flush will have made safe

    def change(self, **names: File | Directory | None) -> None:
        self.changes.append(names)
        _apply(self.names, names)


def _apply(names: dict[str, File | Directory], change: dict[str, File | Directory | None]) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class Disk:
    """The files below one directory, which was empty, as a traced program changes them."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.top = Directory()
        self.marks: list[str] = []  # what the program wrote to a file `marks` beside the directory
        self._offsets: dict[str, int] = {}
        self._appends: set[str] = set()

    def node(self, path: str) -> File | Directory | None:
        if path == self.root:
            return self.top
        if not path.startswith(self.root + "/"):
            return None
        here: File | Directory | None = self.top
        for part in path[len(self.root) + 1 :].split("/"):
            here = here.names.get(part) if isinstance(here, Directory) else None
        return here

    def _parent(self, path: str) -> tuple[Directory | None, str]:
        parent = self.node(os.path.dirname(path))
        return (parent if isinstance(parent, Directory) else None), os.path.basename(path)

    def play(self, call: Call) -> None:
        """Do what a call did."""
        name = call.name.removesuffix(" begins")
        getattr(self, f"_{_SAME.get(name, name)}", self._unplayed)(call)

    def _openat(self, call: Call) -> None:
        (path,) = call.names()
        fd = str(call.result)
        self._offsets[fd] = 0
        self._appends.discard(fd)
        if "O_APPEND" in call.text:
            self._appends.add(fd)
        parent, name = self._parent(path)
        if parent is None:
            return
        node = parent.names.get(name)
        if node is None and "O_CREAT" in call.text:
            parent.change(**{name: File()})
        elif isinstance(node, File) and "O_TRUNC" in call.text and node.size:
            node.cut(0)

    def _write(self, call: Call) -> None:
        data, fd = call.texts[0][: call.result], call.fds[0]
        if call.paths[0] == f"{os.path.dirname(self.root)}/marks":
            self.marks += data.decode().splitlines()
        node = self.node(call.paths[0])
        if isinstance(node, File):
            at = node.size if fd in self._appends else self._offsets[fd]
            node.write(at, data)
            self._offsets[fd] = at + len(data)

    def _pwrite64(self, call: Call) -> None:
        node = self.node(call.paths[0])
        if isinstance(node, File):
            node.write(int(call.numbers[-1]), call.texts[0][: call.result])

    def _lseek(self, call: Call) -> None:
        self._offsets[call.fds[0]] = call.result

    def _ftruncate(self, call: Call) -> None:
        node = self.node(call.paths[0])
        if isinstance(node, File):
            node.cut(int(call.numbers[-1]))

    def _fsync(self, call: Call) -> None:
        node = self.node(call.paths[0])
        if node is None:
            return
        if call.name.endswith("begins"):
            node.flushing[call.pid] = len(node.changes)
        else:
            node.num_safe = max(node.num_safe, node.flushing.pop(call.pid))

    def _change(self, path: str, node: File | Directory | None) -> None:
        parent, name = self._parent(path)
        if parent is not None:
            parent.change(**{name: node})

    def _unlink(self, call: Call) -> None:
        self._change(call.names()[0], None)

    def _mkdir(self, call: Call) -> None:
        self._change(call.names()[0], Directory())

    def _rename(self, call: Call) -> None:
        (old, old_name), (new, new_name) = (self._parent(path) for path in call.names())
        node = None if old is None else old.names[old_name]
        if old is new and old is not None:
            old.change(**{old_name: None, new_name: node})
            return
        if new is not None:
            assert node is not None, "from elsewhere"
            new.change(**{new_name: node})
        if old is not None:
            old.change(**{old_name: None})

    def _link(self, call: Call) -> None:
        source, target = call.names()
        self._change(target, self.node(source))

    def _unplayed(self, call: Call) -> None:
        """Fail: it is not expected within the directory."""
        assert not any(self.root in path for path in (*call.paths, *call.names())), f"{call.name} is not played"

    def after_a_cut(self, target: Path, rng: random.Random) -> None:
        """Write what may be found when the power comes back."""
        of_names, of_data = (rng.choice((0.0, 0.3, 0.7, 1.0)) for _ in range(2))
        target.mkdir(parents=True)
        self._put(self.top, target, rng, of_names, of_data)

    def _put(self, directory: Directory, target: Path, rng: random.Random, of_names: float, of_data: float) -> None:
        names: dict[str, File | Directory] = {}
        num_unsafe = len(directory.changes) - directory.num_safe
        share = 1.0 if of_names == 1.0 else rng.random() * of_names
        num_kept = directory.num_safe + int(share * num_unsafe)
        for change in directory.changes[:num_kept]:
            _apply(names, change)
        for name, node in names.items():
            if isinstance(node, Directory):
                (target / name).mkdir()
                self._put(node, target / name, rng, of_names, of_data)
            elif not name.endswith("-shm"):
                (target / name).write_bytes(node.content(rng, of_data))


_SAME = {"fdatasync": "fsync", "unlinkat": "unlink", "rmdir": "unlink", "mkdirat": "mkdir", "linkat": "link"}
_SAME |= {"renameat": "rename", "renameat2": "rename"}

HAS_STRACE = shutil.which("strace") is not None
