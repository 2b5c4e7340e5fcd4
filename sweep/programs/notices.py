"""What the user of a program should know, and no trial can see by itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from sweep.callbacks.base import FilesCallback
from sweep.core.trial import Status, Trial
from sweep.programs.script import WRITTEN_FILE


class ProgramNotices(FilesCallback):
    """Say once that trials write the same files, and that a scheduler has nothing to stop by."""

    def __init__(self, notice: Callable[[str], None], *, stops_early: bool) -> None:
        """Begin; `stops_early`: the scheduler judges trials while they run."""
        self._notice = notice
        self._is_waiting = stops_early
        self._writers: dict[str, int] | None = {}  # by path; None: it was said

    def on_trial_complete(self, trial: Trial) -> None:
        if self._is_waiting and trial.status is Status.TERMINATED and not trial.reason:  # it was not stopped
            self._is_waiting = False
            if trial.count == 1:
                self._notice(
                    f"trial {trial.number:05d} gave the metric once, at its end: the scheduler can stop no trial "
                    "early. Have the program log it as it goes on"
                )
        path = Path(self.layout.trial(trial.id), WRITTEN_FILE)
        if self._writers is None or not path.exists():
            return
        for name in json.loads(path.read_text()):
            other = self._writers.setdefault(name, trial.number)
            if other != trial.number:
                self._notice(
                    f"trials {other:05d} and {trial.number:05d} have written the same file: {name}. "
                    "With --isolate each has its own, but for absolute paths"
                )
                self._writers = None
                return
