"""Population based training's policy files in the experiment's directory: which trial continued from which, and how."""

from __future__ import annotations

from collections import Counter

from sweep.core.trial import Trial
from sweep.schedulers.pbt_policy import GLOBAL_FILE, PolicyLog, perturbed_tag, policy_file
from sweep.scribe.outbox import Outbox


class PolicyFiles:
    """Write down exploits.

    A line goes to `pbt_global.txt` and to the trial's `pbt_policy_<id>.txt` whenever a trial is cloned. The trial's
    file becomes a copy of the other one's, which says how that came to be what it is, and the line.

    Args:
        changed: flattened config paths that may be changed; they name the trial afterwards.
    """

    def __init__(self, root: str, outbox: Outbox, changed: tuple[str, ...]) -> None:
        self._root = root
        self._outbox = outbox
        self._changed = changed
        self._trials: dict[str, Trial] = {}
        self._tags: dict[str, str] = {}  # of each trial when it was new
        self._shown: dict[str, str] = {}  # of each trial now
        self._log = PolicyLog()
        self._there = Counter(self._text(GLOBAL_FILE).splitlines())

    def started(self, trial: Trial, tag: str, *, is_told: bool) -> None:
        """Hear that an attempt began, from `trial.started_from` if another trial has saved that.

        Args:
            tag: of the trial as it is now.
            is_told: the files have that already.

        Raises:
            OSError: the disk is full; nothing was done.
        """
        self._shown.setdefault(trial.id, self._tags.setdefault(trial.id, tag))
        source = "" if trial.started_from is None else policy_file(trial.started_from.owner)
        own = policy_file(trial.id)
        text = self._text(source) or self._text(own) if source and not is_told else ""
        exploit = self._log.restored(trial, self._trials)
        self._trials[trial.id] = trial
        if exploit is None:
            return
        line = exploit.line(self._shown.get(trial.id, trial.id), self._shown.get(exploit.source_id, exploit.source_id))
        self._shown[trial.id] = perturbed_tag(self._tags.get(trial.id, trial.id), exploit.new_config, self._changed)
        if is_told or self._there[line] > 0:
            self._there[line] -= 1
            return
        self._outbox.replace(f"{self._root}/{own}", f"{text}{line}\n")
        self._outbox.append(f"{self._root}/{GLOBAL_FILE}", line + "\n")

    def _text(self, name: str) -> str:
        path = f"{self._root}/{name}"
        self._outbox.flush(path)
        if self._outbox.shortage is not None:
            raise self._outbox.shortage
        try:
            with open(path, encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return ""
