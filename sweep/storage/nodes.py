"""What a node that does not see the driver's directory has of an experiment whose storage is a URI.

It works in a directory of its own, which is filled from that storage and emptied into it:

<uri>/<experiment>/.sweep-staging/code/    what trials are made of: sent by the driver, deleted when it ends
<uri>/<experiment>/.sweep-staging/shards/  parts of checkpoints on their way between the nodes of a group
<uri>/<experiment>/<trial>/checkpoint_*/   checkpoints, sent by the node that made them
$SWEEP_CACHE/nodes/<node>/<experiment>/    the directory of one node
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweep.checkpoints.manifest import MANIFEST
from sweep.checkpoints.store import STRAY_PREFIX, send
from sweep.record.layout import CHECKPOINT_PATTERN, STAGING, ExperimentLayout, cache_root, tidy_name
from sweep.storage.filesystems import RemoteDirectory, remember_home
from sweep.storage.local_copy import bring_checkpoint, changed_files, files_of_trial

_CODE = "code"
_START = f"{_CODE}/start"
_SHARDS = "shards"


@dataclass(frozen=True)
class Home:
    """Where the whole of an experiment lies.

    Attributes:
        remote: the experiment's directory there.
        uri: by which any process reaches it; None: the file system was given as an object.
        sync_artifacts: files that trials write themselves are sent there, too, when a trial ends.
        sync_artifacts_on_checkpoint: and with each checkpoint.
    """

    remote: RemoteDirectory
    uri: str | None
    sync_artifacts: bool = False
    sync_artifacts_on_checkpoint: bool = False


def send_code(home: Home, root: Path, paths: Iterable[str], start_from: str = "") -> None:
    """Send files and directories of the driver's `root` to where nodes fetch them; those of a former run go.

    Args:
        start_from: checkpoint of the user's own that trials start from; empty: there is none.
    """
    home.remote.remove_tree(STAGING)
    tops = [(Path(path), Path(path).relative_to(root).as_posix()) for path in paths if path]
    if start_from:
        tops.append((Path(start_from), _START))
    (home.remote / STAGING).put([pair for top, name in tops for pair in _pairs(top, name)])


def end_staging(home: Home) -> None:
    """Delete what is only of use while trials run."""
    home.remote.remove_tree(STAGING)


def _pairs(top: Path, name: str) -> list[tuple[Path, str]]:
    """Return a file, or all files below a directory, each with its name where `top` is called `name`."""
    files = [top] if top.is_file() else [place for place in sorted(top.rglob("*")) if place.is_file()]
    return [(place, f"{name}/{place.relative_to(top).as_posix()}".removesuffix("/.")) for place in files]


class NodeCopy:
    """The directory of one node.

    Attributes:
        root: takes the place of the experiment's directory on this node.
    """

    def __init__(self, home: Home, node: str) -> None:
        """Make the directory; see `clear` for what an agent that was killed has left there."""
        self.home = home
        name = home.remote.path.rstrip("/").rpartition("/")[2]
        digest = hashlib.sha256(f"{home.remote.uri()}\0{node}".encode()).hexdigest()[:10]
        self.root = cache_root() / "nodes" / f"{tidy_name(node)}-{digest}" / name
        self._layout = ExperimentLayout(self.root)
        self._sent: dict[str, tuple[int, int]] = {}  # artifacts, and what they were when they were sent
        self._num_dropped = 0
        self._layout.code.mkdir(parents=True, exist_ok=True)

    def clear(self) -> None:
        """Delete what is left of an agent that was killed."""
        for place in self.root.iterdir():
            if place != self._layout.code:
                delete(place)
        remember_home(self.root, self.home.remote, self.home.uri, is_for_all=True)  # for ranks that miss a checkpoint

    def close(self) -> None:
        """Delete everything but the lock, which the next agent may be waiting for."""
        for place in (*self.root.iterdir(), *self._layout.code.iterdir()):
            if place != self._layout.code and place.suffix != ".lock":
                delete(place)

    def own(self, root: Path, path: str) -> str:
        """Return where a file that lies below `root` for the driver lies here; others are where they are."""
        return str(self.root / Path(path).relative_to(root)) if path and Path(path).is_relative_to(root) else path

    @property
    def start(self) -> str:
        """Where the checkpoint lies that trials start from, if there is one."""
        return str(self.root / _START)

    def bring_code(self) -> None:
        """Fetch what trials are made of."""
        remote = self.home.remote / STAGING
        remote.get(list(remote.find(_CODE)), self.root)

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def has(self, path: str) -> bool:
        """Whether the checkpoint `path` of the experiment is here."""
        return self._layout.checkpoint(path).is_dir()

    def bring(self, path: str) -> None:
        """Fetch a checkpoint; see `bring_checkpoint`."""
        bring_checkpoint(self.home.remote / path, self._layout.checkpoint(path))

    def send(self, path: str) -> None:
        """Send a checkpoint, manifest last; one that is not here was sent by the node that made it."""
        send(self._layout.checkpoint(path), self.home.remote / path)

    def send_artifacts(self, trial_id: str, log_files: Collection[str]) -> None:
        """Send the files of a trial that are no logs and have changed."""
        names = files_of_trial(self.root, trial_id, log_files, with_logs=False, with_artifacts=True)
        changed = changed_files(self.root, names, self._sent)
        for name in self.home.remote.put([(self.root / name, name) for name in changed]):
            self._sent[name] = changed[name]

    def set_aside(self, active: Collection[str], needed: Collection[str]) -> list[Path]:
        """Take out of sight what is not needed any more, and return what is to be deleted.

        Of trials that run here the latest checkpoint stays with everything else, of others nothing.

        Args:
            active: ids of the trials that run here.
            needed: checkpoints that trials here were started from.
        """
        aside = []
        keep = {self._layout.checkpoint(path) for path in needed}
        for home in self.root.iterdir():
            if home == self._layout.code or home.name.startswith(STRAY_PREFIX) or not home.is_dir():
                continue
            unneeded = [home]
            if home.name in active or any(path.parent == home for path in keep):
                stored = [entry for entry in home.iterdir() if CHECKPOINT_PATTERN.match(entry.name)]
                whole = [e for e in stored if (e / MANIFEST).exists() and e not in keep and not e.is_symlink()]
                unneeded = sorted(whole, key=lambda entry: (entry / MANIFEST).stat().st_mtime_ns)
                if home.name in active:
                    unneeded = unneeded[:-1]
            for entry in unneeded:
                self._num_dropped += 1
                aside.append(entry.rename(self.root / f"{STRAY_PREFIX}gone-{self._num_dropped}"))
            if home.name not in active:
                self._sent = {n: stamp for n, stamp in self._sent.items() if not n.startswith(f"{home.name}/")}
        return aside

    # --- shards of a group's checkpoint ------------------------------------------------------------------------------

    def send_shard(self, path: str) -> None:
        """Move a directory of this node to the storage, with files of a checkpoint that another node will merge."""
        (self.home.remote / STAGING / _SHARDS).put(_pairs(Path(path), self.shard_name(path)))
        shutil.rmtree(path, ignore_errors=True)

    def bring_shard(self, name: str) -> str:
        """Move such a directory here, and return where it is."""
        remote = self.home.remote / STAGING / _SHARDS
        place = self.root / name
        place.mkdir(parents=True, exist_ok=True)
        remote.get(list(remote.find(name)), self.root)
        remote.remove_tree(name)
        return str(place)

    def shard_name(self, path: str) -> str:
        """Return by what name other nodes know a directory of shards here."""
        return Path(path).relative_to(self.root).as_posix()

    def end_shards(self, names: Sequence[str]) -> None:
        """Delete shards from the storage."""
        for name in names:
            self.home.remote.remove_tree(f"{STAGING}/{_SHARDS}/{name}")


def delete(place: Path) -> None:
    """Delete a file, or a directory and everything in it; gone already is fine."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place, ignore_errors=True)
    else:
        place.unlink(missing_ok=True)
