"""The names and links that `trial_name_creator` and `trial_dirname_creator` give to trials."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sweep.core.trial import Trial

_MAX_BYTES = 240  # of a link's name, which a file system takes up to 255 of; a trial's number may follow


class Namer:
    """Give each trial its name, and its directory a second one, by the user's functions; asked once per trial.

    Whatever goes wrong in them is said once and costs the name only, never the sweep.

    Args:
        root: directory of the experiment.
        observed: turns a core trial into what the functions are called with.
        name_creator, dirname_creator: the user's; None: none.
        notice: called with one line that says what went wrong.
    """

    def __init__(
        self,
        root: Path,
        observed: Callable[[Trial], Any],
        name_creator: Callable[[Any], str] | None,
        dirname_creator: Callable[[Any], str] | None,
        notice: Callable[[str], None],
    ) -> None:
        self._root = root
        self._observed = observed
        self._name_creator = name_creator
        self._dirname_creator = dirname_creator
        self._notice = notice
        self._names: dict[str, str] = {}
        self._said: set[str] = set()

    def name_of(self, trial: Trial) -> str:
        """Return the trial's name; empty: the usual one."""
        known = self._names.get(trial.id)
        if known is None:
            known = self._names[trial.id] = self._created("trial_name_creator", self._name_creator, trial)
            self._link(trial)
        return known

    def _link(self, trial: Trial) -> None:
        name = self._created("trial_dirname_creator", self._dirname_creator, trial)
        if not name or name == trial.id:
            return
        if os.sep in name or name in (".", ".."):
            self._say_once(
                "separator",
                f"trial_dirname_creator returned {name!r}, which cannot name a directory; trial {trial.id} keeps its "
                "id alone. Leave separators out.",
            )
            return
        if len(data := name.encode()) > _MAX_BYTES:
            name = f"{data[: _MAX_BYTES - 9].decode(errors='ignore')}_{hashlib.sha256(data).hexdigest()[:8]}"
        link = self._root / name
        try:
            if link.is_symlink() and os.readlink(link) == trial.id:
                return
            if os.path.lexists(link):  # two trials of one name: the id tells them apart
                link = self._root / f"{name}_{trial.number:05d}"
            if not os.path.lexists(link):
                os.makedirs(self._root / trial.id, exist_ok=True)  # a link to nothing cannot be copied
                os.symlink(trial.id, link)
        except OSError as error:
            self._say_once("link", f"the link {link} could not be made: {error.strerror or error}")

    def _created(self, which: str, creator: Callable[[Any], str] | None, trial: Trial) -> str:
        if creator is None:
            return ""
        try:
            name = creator(self._observed(trial))
            if not isinstance(name, str):
                raise TypeError(f"it returned {name!r:.100}; expected a text")
            return "".join(letter if letter.isprintable() else "_" for letter in name.strip())
        except Exception as error:  # the user's own function: a name is not worth a sweep
            self._say_once(which, f"{which} failed for trial {trial.id}: {type(error).__name__}: {error}")
            return ""

    def _say_once(self, key: str, text: str) -> None:
        if key not in self._said:
            self._said.add(key)
            self._notice(text)
