"""Which files of an experiment's directory belong where other machines reach it."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from sweep.checkpoints.manifest import MANIFEST
from sweep.checkpoints.store import STRAY_PREFIX
from sweep.record.layout import CHECKPOINT_PATTERN, DATABASE, MARK, MIRROR_STATE, RECORD_MARK, REMOTE_NOTE, STAGING

_LOGS = (
    *("params.json", "params.pkl", "result.json", "progress.csv", "error.txt", "error.pkl"),
    *("stdout", "stderr", "*.log", "*.out", "*.err", "events.out.tfevents*"),
)
_LOCAL_ONLY = ("driver.lock", "code")
# with what writing them leaves when it is killed
_LOCAL_PREFIXES = (
    *(DATABASE, STRAY_PREFIX, ".probe-", "..", MIRROR_STATE, REMOTE_NOTE, RECORD_MARK, STAGING),
    Path(DATABASE).with_suffix(MARK).name,
)


def is_log(name: str, more: Collection[str] = ()) -> bool:
    """Whether a file of this name, one of those or one of `more`, is always copied, rather than an artifact."""
    return name in more or any(fnmatch.fnmatchcase(name, pattern) for pattern in _LOGS)


def files_of_trial(
    root: Path, trial_id: str, log_files: Collection[str] = (), *, with_logs: bool, with_artifacts: bool
) -> Iterator[str]:
    """Give the logs of a trial (`log_files` besides the usual ones), and what it has written itself, by their names in
    the experiment; no checkpoints."""
    top = str(root / trial_id)
    for place, directories, files in os.walk(top):
        is_top = place == top
        kept = [name for name in directories if not name.startswith(STRAY_PREFIX)]
        directories[:] = [name for name in kept if with_artifacts and not (is_top and CHECKPOINT_PATTERN.match(name))]
        for name in files:
            path = os.path.join(place, name)
            is_wanted = with_logs if is_top and is_log(name, log_files) else with_artifacts
            if is_wanted and not name.startswith(STRAY_PREFIX) and not os.path.islink(path):
                yield os.path.relpath(path, root)


def is_mirrored(name: str) -> bool:
    """Whether a file or directory of this name in an experiment's directory belongs to it, and not to this machine."""
    return name not in _LOCAL_ONLY and not name.startswith(_LOCAL_PREFIXES)


def remote_checkpoints(names: Iterable[str]) -> dict[str, bool]:
    """Return the checkpoints, `<trial>/<checkpoint>`, to which files belong, and whether each has its manifest."""
    found: dict[str, bool] = {}
    for name in names:
        parts = name.split("/")
        if len(parts) > 2 and CHECKPOINT_PATTERN.match(parts[1]):
            path = f"{parts[0]}/{parts[1]}"
            found[path] = found.get(path, False) or parts[2:] == [MANIFEST]
    return found


def changed_files(root: Path, names: Iterable[str], known: Mapping[str, str]) -> dict[str, str]:
    """Return the files that are not as they are known, and how they are now: what is written later is sent later."""
    changed = {}
    for name in sorted(names):
        try:
            found = (root / name).stat()
        except FileNotFoundError:
            continue
        stamp = f"{found.st_size} {found.st_mtime_ns}"
        if known.get(name) != stamp:
            changed[name] = stamp
    return changed
