"""Population based training's policy files in the experiment's directory: which trial continued from which, and how."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sweep.core.literals import experiment_tag, jsonable
from sweep.core.trial import CheckpointRef, number_of
from sweep.schedulers.pbt_policy import GLOBAL_FILE, perturbed_tag, policy_file


class PolicyFiles:
    """Write down exploits: a trial starts from a checkpoint that another one saved.

    A line goes to `pbt_global.txt` and to the trial's `pbt_policy_<id>.txt`, which becomes a copy of the other one's,
    that says how that came to be what it is, and the line. All that was before tells how an exploit came about, so each
    run writes them from the beginning: `whole` takes what a file of the experiment is to say, `lines` what is added.
    """

    def __init__(
        self, whole: dict[str, str], lines: dict[str, list[str]], changed: Sequence[str], names: Sequence[str] | None
    ) -> None:
        self._whole, self._lines = whole, lines
        self._changed, self._variables = changed, names
        self._configs: dict[str, Mapping[str, Any]] = {}
        self._known: dict[str, tuple[str, str]] = {}  # the checkpoint and the config of each trial's last exploit
        self._tags: dict[str, str] = {}  # of each trial when it was new
        self._shown: dict[str, str] = {}  # of each trial now
        self._texts: dict[str, str] = {}  # of each trial's file

    def start(self, name: str, config: Mapping[str, Any], start: CheckpointRef | None, iteration: int) -> None:
        """Hear that an attempt of a trial begins, from a checkpoint, and how far the one before it got."""
        if name not in self._tags:
            self._tags[name] = self._shown[name] = experiment_tag(number_of(name), config, self._variables)
        self._configs[name] = config
        if start is None or start.owner == name or start.owner not in self._configs:
            return
        given = start.path, json.dumps(dict(config), default=jsonable, sort_keys=True)
        if self._known.get(name) == given:
            return  # the same one again, after a failure or a restart
        is_first = not self._known
        self._known[name], source = given, start.owner
        tags, configs = [self._shown[name], self._shown[source]], [dict(self._configs[source]), dict(config)]
        line = json.dumps([*tags, iteration, start.training_iteration, *configs], default=jsonable) + "\n"
        self._shown[name] = perturbed_tag(self._tags[name], config, self._changed)
        self._texts[name] = (self._texts.get(source) or self._texts.get(name, "")) + line
        self._whole[policy_file(name)] = self._texts[name]
        if is_first:
            self._whole[GLOBAL_FILE] = line
        else:
            self._lines[GLOBAL_FILE].append(line)
