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
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sweep.checkpoints.manifest import MANIFEST, DamagedError
from sweep.checkpoints.store import STRAY_PREFIX, fetch, send
from sweep.core.config import SyncConfig
from sweep.record.layout import STAGING, ExperimentLayout, cache_root, tidy_name
from sweep.storage.filesystems import RemoteDirectory, remember_home
from sweep.storage.local_copy import changed_files, files_of_trial

_START = "code/start"


@dataclass(frozen=True)
class Home:
    """Where the whole of an experiment lies.

    Attributes:
        remote: the experiment's directory there.
        sync: whether files that trials write themselves are sent there, too.
    """

    remote: RemoteDirectory
    sync: SyncConfig = field(default_factory=SyncConfig)

    @property
    def staging(self) -> RemoteDirectory:
        """Holds what is only of use while trials run."""
        return self.remote / STAGING

    def send_code(self, root: Path, paths: Iterable[str], start_from: str = "") -> None:
        """Send files and directories of the driver's `root`, and a checkpoint of the user's own that trials start from,
        to where nodes fetch them; those of a former run go."""
        self.staging.remove_tree()
        tops = [(Path(path), Path(path).relative_to(root).as_posix()) for path in paths if path]
        if start_from:
            tops.append((Path(start_from), _START))
        self.staging.put([pair for top, name in tops for pair in _pairs(top, name)])


def _pairs(top: Path, name: str) -> list[tuple[Path, str]]:
    """Return a file, or all files below a directory, each with its name where `top` is called `name`."""
    files = [top] if top.is_file() else [place for place in sorted(top.rglob("*")) if place.is_file()]
    return [(place, f"{name}/{place.relative_to(top).as_posix()}".removesuffix("/.")) for place in files]


class NodeCopy:
    """The directory of one node.

    Attributes:
        root: takes the place of the experiment's directory on this node.
        start: where the checkpoint lies that trials start from, if there is one.
    """

    def __init__(self, home: Home, node: str) -> None:
        """Make the directory; see `clear` for what an agent that was killed has left there."""
        self.home = home
        self._remote, self._shards = home.remote, home.staging / "shards"
        name = home.remote.path.rstrip("/").rpartition("/")[2]
        digest = hashlib.sha256(f"{home.remote}\0{node}".encode()).hexdigest()[:10]
        self.root = cache_root() / "nodes" / f"{tidy_name(node)}-{digest}" / name
        self.start = str(self.root / _START)
        self._layout = ExperimentLayout(self.root)
        self._sent: dict[str, str] = {}  # artifacts, and what they were when they were sent
        self._num_dropped = 0
        self._layout.code.mkdir(parents=True, exist_ok=True)

    def clear(self) -> None:
        """Delete everything but the lock, which another agent may be waiting for."""
        for place in (*self.root.iterdir(), *self._layout.code.iterdir()):
            if place != self._layout.code and place.suffix != ".lock":
                delete(place)

    def own(self, root: Path, path: str) -> str:
        """Return where a file that lies below `root` for the driver lies here; others are where they are."""
        return str(self.root / Path(path).relative_to(root)) if path and Path(path).is_relative_to(root) else path

    def bring_code(self) -> None:
        """Fetch what trials are made of, and note for their ranks where checkpoints are that they miss."""
        remember_home(self.root, self._remote, is_for_all=True)
        self.home.staging.get(list(self.home.staging.find("code")), self.root)

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def has(self, path: str) -> bool:
        """Whether the checkpoint `path` of the experiment is here."""
        return self._layout.checkpoint(path).is_dir()

    def bring(self, path: str) -> None:
        """Fetch a checkpoint; whoever needs one that is damaged there, or gone, finds it missing."""
        with suppress(DamagedError):
            fetch(self._remote / path, self._layout.checkpoint(path))

    def send(self, path: str) -> None:
        """Send a checkpoint, manifest last; one that is not here was sent by the node that made it."""
        send(self._layout.checkpoint(path), self._remote / path)

    def send_artifacts(self, trial_id: str, log_files: Collection[str]) -> None:
        """Send the files of a trial that are no logs and have changed."""
        names = files_of_trial(self.root, trial_id, log_files, with_logs=False, with_artifacts=True)
        changed = changed_files(self.root, names, self._sent)
        for name in self._remote.put([(self.root / name, name) for name in changed]):
            self._sent[name] = changed[name]

    def set_aside(self, active: Collection[str], needed: Collection[str]) -> list[Path]:
        """Take out of sight what is not needed any more, and return what is to be deleted.

        Of `active` trials the latest checkpoint stays with everything else, of others only what is `needed`.
        """
        aside = []
        keep = {self._layout.checkpoint(path) for path in needed}
        for home in self.root.iterdir():
            if home == self._layout.code or home.name.startswith(STRAY_PREFIX) or not home.is_dir():
                continue
            unneeded = [] if any(path.parent == home for path in keep) else [home]
            if home.name in active:
                whole = sorted(home.glob(f"checkpoint_*/{MANIFEST}"), key=lambda manifest: manifest.stat().st_mtime_ns)
                unneeded = [manifest.parent for manifest in whole[:-1] if manifest.parent not in keep]
            for entry in unneeded:
                self._num_dropped += 1
                aside.append(entry.rename(self.root / f"{STRAY_PREFIX}gone-{self._num_dropped}"))
        return aside

    # --- shards of a group's checkpoint ------------------------------------------------------------------------------

    def send_shard(self, path: str) -> None:
        """Move a directory of this node to the storage, with files of a checkpoint that another node will merge."""
        self._shards.put(_pairs(Path(path), self.shard_name(path)))
        shutil.rmtree(path, ignore_errors=True)

    def bring_shard(self, name: str) -> str:
        """Move such a directory here, and return where it is."""
        place = self.root / name
        place.mkdir(parents=True, exist_ok=True)
        self._shards.get(list(self._shards.find(name)), self.root)
        self._shards.remove_tree(name)
        return str(place)

    def shard_name(self, path: str) -> str:
        """Return by what name other nodes know a directory of shards here."""
        return Path(path).relative_to(self.root).as_posix()

    def end_shards(self, names: Sequence[str]) -> None:
        """Delete shards from the storage."""
        for name in names:
            self._shards.remove_tree(name)


def delete(place: Path) -> None:
    """Delete a file, or a directory and everything in it; gone already is fine."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place, ignore_errors=True)
    else:
        place.unlink(missing_ok=True)
