"""Population based training's policy files in the experiment's directory: which trial continued from which, and how."""

from __future__ import annotations

from collections.abc import Sequence

from sweep.core.literals import experiment_tag
from sweep.core.trial import Trial
from sweep.logs.files import Files
from sweep.schedulers.pbt_policy import GLOBAL_FILE, PolicyLog, perturbed_tag, policy_file


class PolicyFiles:
    """Write down exploits.

    A line goes to `pbt_global.txt` and to the trial's `pbt_policy_<id>.txt` whenever a trial is cloned. The trial's
    file becomes a copy of the other one's, which says how that came to be what it is, and the line. How an exploit came
    about is told by all that was before, so each run writes them from the beginning.

    Args:
        changed: flattened config paths that may be changed; they name the trial afterwards.
        variables: those that vary among trials; None: all.
    """

    def __init__(self, root: str, files: Files, changed: Sequence[str], variables: Sequence[str] | None) -> None:
        self._root = root
        self._files = files
        self._changed = changed
        self._variables = variables
        self._trials: dict[str, Trial] = {}
        self._tags: dict[str, str] = {}  # of each trial when it was new
        self._shown: dict[str, str] = {}  # of each trial now
        self._texts: dict[str, str] = {}  # of each trial's file
        self._log = PolicyLog()
        files.remove(f"{root}/{GLOBAL_FILE}")

    def start(self, trial: Trial) -> None:
        """Hear that an attempt begins, from `trial.started_from` if another trial has saved that."""
        name = trial.id
        path = f"{self._root}/{policy_file(name)}"
        if name not in self._tags:
            self._tags[name] = self._shown[name] = experiment_tag(trial.number, trial.config, self._variables)
            self._files.remove(path)
        exploit = self._log.restored(trial, self._trials)
        self._trials[name] = trial
        if exploit is None:
            return
        source = exploit.source_id
        line = exploit.line(self._shown[name], self._shown[source]) + "\n"
        self._shown[name] = perturbed_tag(self._tags[name], exploit.new_config, self._changed)
        self._texts[name] = (self._texts.get(source) or self._texts.get(name, "")) + line
        self._files.replace(path, self._texts[name])
        self._files.append(f"{self._root}/{GLOBAL_FILE}", line)
