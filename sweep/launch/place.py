"""Where a run's experiment lies, and whether one is there already."""

from __future__ import annotations

import contextlib
import os
import shlex
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, count
from pathlib import Path

from sweep.errors import ConfigError, ExperimentError
from sweep.launch.spec import HAS_NO_RESUME, RunSpec
from sweep.record.guard import make_directory
from sweep.record.layout import ExperimentLayout, check_name, tidy_name
from sweep.record.lock import find_driver
from sweep.record.reader import ExperimentReader
from sweep.storage.fetch import has_experiment, pull
from sweep.storage.location import Storage, parse_storage
from sweep.worker.trainable import PreparedTrainable


@dataclass(frozen=True, slots=True)
class Place:
    """The directory of a run's experiment."""

    storage: Storage
    layout: ExperimentLayout
    exists: bool  # there is an experiment, and it is continued
    resume_command: str  # the call or the command that continues it
    claimed: tuple[Path, ...] = ()  # made so that no other run invents the same name, the innermost first

    @property
    def name(self) -> str:
        return self.layout.root.name

    def let_go(self) -> None:
        """Remove what was made for the name's sake and has remained empty."""
        for path in self.claimed:
            with contextlib.suppress(OSError):
                path.rmdir()


def place_of(spec: RunSpec, trainable: PreparedTrainable) -> Place:
    """Find the directory of a run, bringing the experiment there if it lies elsewhere and is to be continued."""
    storage = parse_storage(spec.storage_path, spec.storage_filesystem)
    claimed: list[Path] = []
    if spec.name is None:
        name, claimed = _claim(storage, f"{tidy_name(trainable.name)}_{datetime.now():%Y-%m-%d_%H-%M-%S}")
    else:
        check_name(name := spec.name)
    if is_resumed := spec.resuming.is_wanted:
        pull(storage, name)
    layout = ExperimentLayout(storage.local_root / name)
    exists = layout.database.exists()
    command = _resume_command(spec, trainable, storage, layout.root)
    if not is_resumed and (exists or has_experiment(storage, name)):
        is_typed = bool(spec.import_path)  # by the command line
        resume, other = ("--resume", "another --name") if is_typed else ("resume=True", "another name=")
        driver = find_driver(layout.lock)
        if driver is not None and driver.is_alive:
            advice = f"A driver runs it now (pid {driver.pid}): give {other}, or wait for its end"
        else:
            how = command if HAS_NO_RESUME.get() or trainable.group else resume
            deletion = storage.deletion(name, is_shell=is_typed)
            advice = f"Continue it with {how}, give {other}, or delete it: {deletion}"
        raise ExperimentError(f"there already is an experiment {name!r} in {storage}. {advice}")
    if exists:
        ExperimentReader(layout.root).refuse_imported()
    return Place(storage, layout, exists, command, tuple(claimed))


def _claim(storage: Storage, base: str) -> tuple[str, list[Path]]:
    """Return a name that is free, such as this one, and the directories that were made so that nobody else takes it."""
    for name in chain([base], (f"{base}_{number}" for number in count(2))):
        path = storage.local_root / name
        if path.exists() or has_experiment(storage, name):
            continue
        try:
            return name, make_directory(path)
        except OSError:
            if not path.exists():  # which is said when it is to be written to
                break
    return name, []


def _resume_command(spec: RunSpec, trainable: PreparedTrainable, storage: Storage, root: Path) -> str:
    if spec.import_path:  # the command line started it, and can start it again
        is_usual = root.parent == parse_storage().local_root
        where = "" if is_usual else f" --storage {shlex.quote(str(storage))}"
        return f"sweep resume {shlex.quote(root.name)}{where}"
    if HAS_NO_RESUME.get() or trainable.group:  # nor has the fit() of a trainer
        place = os.path.relpath(root) if storage.remote is None else storage.describe(root.name)
        is_named = trainable.group is None and trainable.name != "lambda"
        return f"sweep.Tuner.restore({place!r}, {trainable.name if is_named else 'trainable'}).fit()"
    return f"the same call with name={root.name!r}, resume=True"


def start_from(path: str | os.PathLike[str] | None) -> str:
    """Return the checkpoint that trials start from, absolute; empty: none."""
    if path is None:
        return ""
    found = os.path.abspath(getattr(path, "path", path))
    if not os.path.isdir(found):
        raise ConfigError(f"restore is {found!r}; expected the directory of a checkpoint.")
    return found
