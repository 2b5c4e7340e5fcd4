"""Every file and directory name of an experiment, once."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from sweep.errors import ConfigError

__all__ = [
    "CACHE_VARIABLE",
    "CHECKPOINT_PATTERN",
    "DEFAULT_STORAGE",
    "MIRROR_STATE",
    "OUTGOING",
    "RECORD_MARK",
    "REMOTE_NOTE",
    "STORAGE_VARIABLE",
    "ExperimentLayout",
    "checkpoint_name",
    "copy_root",
    "find_shards",
    "rank_output",
    "rank_outputs",
    "shards_name",
    "storage_root",
    "tidy_name",
]

DEFAULT_STORAGE = "sweep_results"
STORAGE_VARIABLE = "SWEEP_STORAGE"
CACHE_VARIABLE = "SWEEP_CACHE"
REMOTE_NOTE = ".sweep-remote.json"  # in a local copy: where the whole lies
MIRROR_STATE = ".sweep-mirror.json"  # in a local copy: what of it is at that place
RECORD_MARK = ".sweep-record.json"  # beside a remote `sweep.db`: how far it goes, and who wrote it
OUTGOING = ".sweep-outgoing"  # what is being uploaded, safe from being deleted meanwhile
_RANK_PATTERN = re.compile(r"rank(\d+)\.log")
_SHARDS = "tmp-shards-"  # a stray like every `tmp-*`
CHECKPOINT_PATTERN = re.compile(r"checkpoint_(\d{6,})")


def storage_root(storage_path: str | os.PathLike[str] | None = None) -> Path:
    """Return the directory that holds experiments: the argument, else `$SWEEP_STORAGE`, else `./sweep_results`.

    Raises:
        ConfigError: it is a URI; what this machine has of it lies elsewhere.
    """
    path = os.fspath(storage_path or os.environ.get(STORAGE_VARIABLE) or DEFAULT_STORAGE)
    if "://" in path:
        raise ConfigError(
            f"{path} is a URI, and a local directory is expected here. What this machine has of it is in "
            f"{copy_root(path)}."
        )
    return Path(path).expanduser().absolute()


def copy_root(uri: str, key: str = "") -> Path:
    """Return the local directory in which experiments of remote storage are worked on: the same one every time.

    It lies in `$SWEEP_CACHE`, else in `~/.cache/sweep`.

    Args:
        uri: of the storage; its name is made of it.
        key: tells storages of one URI apart; it is hashed.
    """
    cache = os.environ.get(CACHE_VARIABLE) or os.path.join("~", ".cache", "sweep")
    uri = uri.rstrip("/")
    digest = hashlib.sha256(f"{uri}\0{key}".encode()).hexdigest()[:10]
    label = tidy_name(re.sub(r"[/:]+", "-", re.sub(r"//[^/@]*@", "//", uri)))[-60:].lstrip(".-")
    return Path(cache).expanduser().absolute() / "remote" / f"{label}-{digest}"


def checkpoint_name(count: int) -> str:
    """Return the directory name of the checkpoint taken at report number `count`."""
    return f"checkpoint_{count:06d}"


def tidy_name(name: str) -> str:
    """Return `name` with everything dropped that has no place in a directory name; never empty, never hidden."""
    return re.sub(r"[^A-Za-z0-9._-]", "", name).lstrip(".-")[:100] or "sweep"


@dataclass(frozen=True)
class ExperimentLayout:
    """The paths inside one experiment's directory."""

    root: Path

    @property
    def database(self) -> Path:
        """The record: one SQLite file."""
        return self.root / "sweep.db"

    @property
    def lock(self) -> Path:
        """Held by the driver for its life; contains who it is."""
        return self.root / "driver.lock"

    @property
    def code(self) -> Path:
        """Directory of the pickled trainables, one file per content."""
        return self.root / "code"

    def trial(self, trial_id: str) -> Path:
        """Directory of one trial: output, checkpoints, what its loggers wrote."""
        return self.root / trial_id

    def output(self, trial_id: str) -> Path:
        """What the trial printed, standard output and error together."""
        return self.trial(trial_id) / "output.log"


def rank_output(trial_dir: str, rank: int) -> str:
    """Return the file that takes what one rank of a training group prints."""
    return os.path.join(trial_dir, f"rank{rank}.log")


def rank_outputs(trial_dir: str) -> list[str]:
    """Return those files of a trial, in the order of the ranks."""
    try:
        numbers = [int(found[1]) for name in os.listdir(trial_dir) if (found := _RANK_PATTERN.fullmatch(name))]
    except FileNotFoundError:
        return []
    return [rank_output(trial_dir, number) for number in sorted(numbers)]


def shards_name(count: int, attempt: int, token: int) -> str:
    """Return the directory in which the shards of the checkpoint at report number `count` wait to be merged."""
    return f"{_SHARDS}{count:06d}-{attempt}-{token}"


def find_shards(trial_dir: str) -> list[str]:
    """Return the directories of shards that lie in a trial's directory."""
    try:
        return [os.path.join(trial_dir, name) for name in sorted(os.listdir(trial_dir)) if name.startswith(_SHARDS)]
    except FileNotFoundError:
        return []
