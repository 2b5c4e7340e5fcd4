"""Every file and directory name of an experiment, once."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from sweep.errors import ConfigError, ExperimentError

DATABASE = "sweep.db"
MARK = ".mark"  # suffix of the file beside it that says how far it goes
ERROR_FILE = "error.txt"  # in a trial's directory: its failures
COMMAND_FILE = "command.txt"  # likewise, of a program: its command line, ready to paste
DEFAULT_STORAGE = "sweep_results"
STORAGE_VARIABLE = "SWEEP_STORAGE"
CACHE_VARIABLE = "SWEEP_CACHE"
REMOTE_NOTE = ".sweep-remote.json"  # in a local copy: where the whole lies
MIRROR_STATE = ".sweep-mirror.json"  # in a local copy: what of it is at that place
RECORD_MARK = ".sweep-record.json"  # beside a remote `sweep.db`: how far it goes, and which driver wrote it
STAGING = ".sweep-staging"  # at the remote place: what nodes of a cluster fetch while trials run
CHECKPOINT_PATTERN = re.compile(r"checkpoint_(\d{6,})")

_SHARDS = "tmp-shards-"  # a stray like every `tmp-*`
_TRIAL_ID = r"[A-Za-z0-9][A-Za-z0-9_-]*"
_CHECKPOINT = rf"{_TRIAL_ID}/checkpoint_\d+[A-Za-z0-9_.-]*"
_ODD = r"[^\w .,:;=+@()-]+"
_MAX_NAME_BYTES = 200  # with what files beside it add, a file system's 255


def check_name(name: str) -> None:
    """Refuse a name that cannot be that of an experiment's directory, in a shell, a URI and on every file system.

    Raises:
        ConfigError: it cannot.
    """
    text = name if isinstance(name, str) else ""
    tidy = re.sub(r":{2,}", ":", re.sub(_ODD, "_", text)).lstrip(" .,:;=+@-").rstrip() or "sweep"
    size = len(text.encode(errors="replace"))
    if name == tidy and size <= _MAX_NAME_BYTES:
        return
    why = f"expected letters, digits and ' .,:;=+@()-_', the first one a letter or a digit, such as {tidy[:60]!r}"
    if "/" in text:
        parent, _, last = text.rpartition("/")
        why = f"it has a '/'. Give directories by storage_path, for instance storage_path='.../{parent}', name={last!r}"
    elif size > _MAX_NAME_BYTES:
        why = f"it has {size} bytes in UTF-8; expected at most {_MAX_NAME_BYTES}"
    raise ConfigError(f"name={name!r:.300} cannot name a directory: {why}.")


def checked_trial_id(trial_id: str) -> str:
    """Return the id of a trial that a record names, which becomes the name of a directory.

    Raises:
        ExperimentError: it is none, such as a path that leads out of the experiment.
    """
    return _checked("trial", trial_id, _TRIAL_ID, "an id such as a1b2c_00042")


def checked_checkpoint(path: str) -> str:
    """Return the path of a checkpoint that a record names, relative to its experiment; errors as `checked_trial_id`."""
    return _checked("checkpoint", path, _CHECKPOINT, "a path such as a1b2c_00042/checkpoint_000003")


def checked_name(name: str) -> str:
    """Return the name of a file in a trial's directory that a record names; errors as of `checked_trial_id`."""
    return _checked("file", name, r"(?!\.{0,2}$)[^/\0]+", "a name without a path")


def _checked(what: str, found: str, pattern: str, expected: str) -> str:
    if isinstance(found, str) and re.fullmatch(pattern, found):
        return found
    raise ExperimentError(
        f"the record names a {what} {found!r:.100}; expected {expected}. It was changed by hand, or somebody else's; "
        "nothing was read or written there."
    )


def leads_outside(root: str | os.PathLike[str], path: str | os.PathLike[str]) -> bool:
    """Whether what is at `path` in an experiment lies elsewhere, because a directory on the way is a symbolic link."""
    parent = os.path.realpath(os.path.dirname(os.path.join(root, path)))
    home = os.path.realpath(root)
    return parent != home and not parent.startswith(os.path.join(home, ""))


def copy_root(uri: str, key: str = "") -> Path:
    """Return the local directory in which experiments of remote storage are worked on: the same one every time.

    Args:
        uri: of the storage; its name is made of it.
        key: tells storages of one URI apart; it is hashed.
    """
    uri = uri.rstrip("/")
    digest = hashlib.sha256(f"{uri}\0{key}".encode()).hexdigest()[:10]
    label = tidy_name(re.sub(r"[/:]+", "-", re.sub(r"//[^/@]*@", "//", uri)))[-60:].lstrip(".-")
    return cache_root() / "remote" / f"{label}-{digest}"


def cache_root() -> Path:
    """Return the directory for what this machine alone keeps of experiments: `$SWEEP_CACHE`, else `~/.cache/sweep`."""
    cache = os.environ.get(CACHE_VARIABLE) or os.path.join("~", ".cache", "sweep")
    return Path(cache).expanduser().absolute()


def split_uri(uri: str) -> tuple[str, str]:
    """Return the storage in which an experiment lies, and its name: `("memory://", "digits")` of `memory://digits`."""
    parent, _, name = uri.rstrip("/").rpartition("/")
    return f"{parent}/" if parent.endswith(":/") else parent, name


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
        return self.root / DATABASE

    @property
    def lock(self) -> Path:
        """Held by the driver for its life; identifies it."""
        return self.root / "driver.lock"

    @property
    def code(self) -> Path:
        """Directory of the pickled trainables, one file per content."""
        return self.root / "code"

    def trial(self, trial_id: str) -> Path:
        """Directory of one trial: output, checkpoints, what its loggers wrote; `checked_trial_id` may refuse it."""
        return self.root / checked_trial_id(trial_id)

    def checkpoint(self, path: str) -> Path:
        """Directory of a checkpoint, of which a record says where it lies; `checked_checkpoint` may refuse it."""
        return self.root / checked_checkpoint(path)

    def output(self, trial_id: str) -> Path:
        """What the trial printed, standard output and error together."""
        return self.trial(trial_id) / "output.log"

    def lane_outputs(self) -> list[Path]:
        """What the processes printed that had many trials as lanes."""
        return sorted(self.code.glob("lanes_*.log"))


def command_of(root: str | os.PathLike[str], trial_id: str) -> str:
    """Return the command line of a trial of an experiment; empty: it is no program's."""
    path = Path(root, trial_id, COMMAND_FILE)
    return path.read_text().strip() if path.exists() else ""


def rank_output(trial_dir: str, rank: int) -> str:
    """Return the file that takes what one rank of a training group prints."""
    return os.path.join(trial_dir, f"rank{rank}.log")


def rank_outputs(trial_dir: str) -> list[str]:
    """Return those files of a trial, in the order of the ranks."""
    numbers = [int(found[1]) for name in _names(trial_dir) if (found := re.fullmatch(r"rank(\d+)\.log", name))]
    return [rank_output(trial_dir, number) for number in sorted(numbers)]


def shards_name(count: int, attempt: int) -> str:
    """Return the directory in which the shards of the checkpoint at report number `count` wait to be merged."""
    return f"{_SHARDS}{count:06d}-{attempt}"


def find_shards(trial_dir: str) -> list[str]:
    """Return the directories of shards that lie in a trial's directory."""
    return [os.path.join(trial_dir, name) for name in sorted(_names(trial_dir)) if name.startswith(_SHARDS)]


def _names(directory: str) -> list[str]:
    return os.listdir(directory) if os.path.isdir(directory) else []
