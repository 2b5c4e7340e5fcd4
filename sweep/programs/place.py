"""Where a program's trial runs and what it keeps: its working directory, its checkpoints, the variables it is told."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweep.checkpoints.manifest import METADATA
from sweep.checkpoints.store import Checkpoint
from sweep.record.files import write_atomically
from sweep.record.layout import DATABASE
from sweep.worker.session import Session

CHECKPOINT_DIR, WORK_DIR, CONFIG_FILE, REPORT_FILE = "program_checkpoint", "work", "config.json", "report.jsonl"
_TREE = ".work"  # where the working directory lies with what is beside it; WORK_DIR is a link to it
_MAX_LINKS = 4096  # of one trial's directory
_MAX_BESIDE = 500  # of what lies beside the program's directory, and beside its parent
_MOST_PARENTS = 2
_NEVER_SHOWN = "sweep_results"
_WHOLE = {".git", ".venv", "venv", "node_modules", ".hg", "__pycache__"}  # directories that are shown by one link
_BY_NAME = re.compile(r"\.(db|sqlite)")  # of files with others beside them, which are shown by symbolic links
_SETTLED_S = 0.2  # a file that was changed since may still be written


class Place:
    """The directories of one attempt.

    Attributes:
        directory: in which the program runs.
        checkpoint_dir: kept between attempts, and copied into the trials that continue from this one.
        has_checkpoint: the attempt was given something to continue from. has_saved: so will the next one be.
        is_isolated: the directory is the trial's own.
    """

    def __init__(self, session: Session, directory: str, *, is_isolated: bool) -> None:
        """Make the directories, with the files of the checkpoint that the attempt starts from."""
        self.directory, self.is_isolated = directory, is_isolated
        self._session = session
        self.checkpoint_dir = os.path.join(session.trial_dir, CHECKPOINT_DIR)
        if (start := session.get_checkpoint()) is not None:
            shutil.rmtree(self.checkpoint_dir, ignore_errors=True)
            start.to_directory(self.checkpoint_dir)
            Path(self.checkpoint_dir, METADATA).unlink(missing_ok=True)
        os.makedirs(self.checkpoint_dir, exist_ok=True)
        self._known = self._signature()
        self.has_checkpoint = self.has_saved = bool(self._known)
        if is_isolated:
            top, link = os.path.join(session.trial_dir, _TREE), os.path.join(session.trial_dir, WORK_DIR)
            self.directory = show_with_parents(directory, top)
            if not os.path.lexists(link):
                os.symlink(os.path.relpath(self.directory, session.trial_dir), link)

    def variables(self, config: Mapping[str, Any]) -> dict[str, str]:
        """Write the config for the program, and return what it is told by variables."""
        session = self._session
        path, report = (Path(session.trial_dir, name) for name in (CONFIG_FILE, REPORT_FILE))
        write_atomically(path, json.dumps(config, default=str, indent=1))
        report.unlink(missing_ok=True)  # of the attempt before, whose reports are recorded
        return {
            "SWEEP_CONFIG": str(path),
            "SWEEP_TRIAL_ID": session.job.trial_id,
            "SWEEP_TRIAL_DIR": session.trial_dir,
            "SWEEP_CHECKPOINT_DIR": self.checkpoint_dir,
            "SWEEP_REPORT": str(report),
            "SWEEP_SEED": str(session.job.seed),
        }

    def checkpoint(self, *, is_settled: bool) -> Checkpoint | None:
        """Return what the program has saved since the last call; None: nothing.

        Args:
            is_settled: the program waits meanwhile, so that no file is half written.
        """
        found = self._signature()
        if not found or found == self._known:
            return None
        if not is_settled and time.time() - max(changed for _, changed in found.values()) < _SETTLED_S:
            return None
        self._known, self.has_saved = found, True
        return Checkpoint(self.checkpoint_dir)

    def _signature(self) -> dict[str, tuple[int, float]]:
        """Return sizes and times of the files in the checkpoint directory."""
        found: dict[str, tuple[int, float]] = {}
        for parent, _, names in os.walk(self.checkpoint_dir):
            for name in names:
                with contextlib.suppress(OSError):  # removed meanwhile, or a link to nothing
                    info = os.stat(path := os.path.join(parent, name))
                    found[path] = (info.st_size, info.st_mtime)
        return found


def own(path: str) -> None:
    """Put a copy of a file in place of the link that shows it, because it is about to be written."""
    if os.path.isfile(path) and (os.path.islink(path) or os.stat(path).st_nlink > 1):
        copy = f"{path}.{os.getpid()}.tmp"
        shutil.copy2(path, copy)
        os.replace(copy, path)


def show_with_parents(source: str, top: str) -> str:
    """Show a directory below `top`, and what lies beside it and beside its parent, where a program may look for
    `../data`; return the directory that shows it."""
    path = Path(os.path.abspath(source))
    inner = [one for one in (path, *path.parents) if one.parent.name][:_MOST_PARENTS]
    for one in reversed(inner):
        show(str(one.parent), top, most=_MAX_BESIDE, is_deep=False, but=str(one))
        top = os.path.join(top, one.name)
    show(str(path), top)
    return top


def show(source: str, target: str, *, most: int = _MAX_LINKS, is_deep: bool = True, but: str = "") -> None:
    """Make `target` look like `source`: directories of its own, with links to the files; what is there stays.

    What a program writes under a new name stays in `target`. A file of the source's that it opens for writing is the
    source's own, unless a Python script in a fork opens it (`own`). Links are hard ones where that is possible:
    programs ask where a file really lies, or refuse symbolic links. Experiments are not shown: each has such a target.

    Args:
        most: after so many names directories are links, too; without `is_deep` all are, and the rest is not shown.
        but: a path that is not shown.
    """
    waiting = deque([(source, target)])
    while waiting:
        theirs, ours = waiting.popleft()
        os.makedirs(ours, exist_ok=True)
        try:
            names = sorted(os.scandir(theirs), key=lambda entry: entry.name)
        except PermissionError:  # nor can the program read it
            continue
        for entry in names:
            path = os.path.join(ours, entry.name)
            if entry.name == _NEVER_SHOWN or entry.path == but:
                continue
            most -= 1
            is_made = is_deep and most > 0 and entry.name not in _WHOLE and entry.is_dir(follow_symlinks=False)
            if is_made and os.path.exists(os.path.join(entry.path, DATABASE)):
                continue  # an experiment, perhaps this one
            if is_made:
                waiting.append((entry.path, path))
            elif not os.path.lexists(path) and (is_deep or most > 0):
                _link(entry, path)


def _link(entry: os.DirEntry[str], path: str) -> None:
    if entry.is_file(follow_symlinks=False) and not _BY_NAME.search(entry.name):
        with contextlib.suppress(OSError):  # another file system, or a file of somebody else's
            os.link(entry.path, path)
            return
    os.symlink(entry.path, path)
