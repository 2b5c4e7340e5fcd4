"""Population based training's policy files in the experiment's directory: which trial continued from which, and how."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sweep.callbacks.base import FilesCallback
from sweep.core.trial import Trial
from sweep.record.files import write_atomically
from sweep.schedulers.pbt_policy import GLOBAL_FILE, PolicyLog, perturbed_tag, policy_file, read_policy

__all__ = ["PolicyFiles"]


class PolicyFiles(FilesCallback):
    """Write a line to `pbt_global.txt` and to the trial's `pbt_policy_<id>.txt` whenever a trial is cloned.

    The trial's file becomes a copy of the other one's, which says how that came to be what it is, and the line.

    Args:
        changed: flattened config paths that may be changed; they name the trial afterwards.
    """

    def __init__(self, changed: Sequence[str]) -> None:
        self._changed = tuple(changed)
        self._trials: dict[str, Trial] = {}
        self._tags: dict[str, str] = {}  # of each trial when it was new
        self._shown: dict[str, str] = {}  # of each trial now
        self._log = PolicyLog()

    def setup(self, *, experiment_dir: str, plan: Any, num_trials: int | None, **info: Any) -> None:
        """Read what an earlier run of the driver wrote."""
        super().setup(experiment_dir=experiment_dir, plan=plan, num_trials=num_trials, **info)
        self._trials = {trial.id: trial for trial in info.get("trials", ())}
        known = {}
        for trial_id in self._trials:
            if lines := read_policy(self._text(trial_id)):
                tag = lines[-1][0].partition("@perturbed[")[0]  # only the last line is the trial's own
                self._tags[trial_id], known[trial_id] = tag, lines[-1][-1]
                self._shown[trial_id] = perturbed_tag(tag, lines[-1][-1], self._changed)
        self._log = PolicyLog(known)

    def on_trial_start(self, trial: Trial) -> None:
        """Know the trial by its name and config."""
        self._trials[trial.id] = trial
        self._shown.setdefault(trial.id, self._tags.setdefault(trial.id, getattr(trial, "experiment_tag", trial.id)))

    def on_trial_restore(self, trial: Trial) -> None:
        """Write the line, if another trial saved what it continues from."""
        exploit = self._log.restored(trial, self._trials)
        self._trials[trial.id] = trial
        if exploit is None:
            return
        line = exploit.line(self._shown.get(trial.id, trial.id), self._shown.get(exploit.source_id, exploit.source_id))
        self._shown[trial.id] = perturbed_tag(self._tags.get(trial.id, trial.id), exploit.new_config, self._changed)
        text = self._text(exploit.source_id) or self._text(trial.id)
        write_atomically(self._path(trial.id), f"{text}{line}\n")
        with (self.layout.root / GLOBAL_FILE).open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def _path(self, trial_id: str) -> Path:
        return self.layout.root / policy_file(trial_id)

    def _text(self, trial_id: str) -> str:
        path = self._path(trial_id)
        return path.read_text(encoding="utf-8") if path.exists() else ""
