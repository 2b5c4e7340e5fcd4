"""What a checkpoint of a class trainable holds: its files or one pickled dict, and how far the object had come."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sweep.core.values import as_float, summed
from sweep.errors import CheckpointError
from sweep.record.files import create_private
from sweep.record.importing import importing

DICT_FILE = "dict_checkpoint.pkl"  # what a class returned from save_checkpoint
CLOCK_FILE = ".sweep-clock.json"  # beside it: how far the object had come


@dataclass(frozen=True)
class Clock:
    """How far an object of the class API has come, besides its iterations.

    Attributes:
        time_total_s: of all steps; `restored_s` are those before the checkpoint it continued from.
        iterations_since_restore: steps of this object since then.
        timesteps_total, episodes_total: sums of `timesteps_this_iter`, `episodes_this_iter`; None: never reported.
    """

    time_total_s: float = 0.0
    restored_s: float = 0.0
    iterations_since_restore: int = 0
    timesteps_total: float | None = None
    episodes_total: float | None = None

    def after(self, metrics: Mapping[str, Any]) -> Clock:
        """Return the clock after a step that reported `metrics`."""
        return Clock(
            self.time_total_s + (_number(metrics.get("time_this_iter_s")) or 0.0),
            self.restored_s,
            self.iterations_since_restore + 1,
            _sum(self.timesteps_total, _number(metrics.get("timesteps_this_iter"))),
            _sum(self.episodes_total, _number(metrics.get("episodes_this_iter"))),
        )

    def to_json(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of it."""
        return {
            "time_total_s": self.time_total_s,
            "timesteps_total": self.timesteps_total,
            "episodes_total": self.episodes_total,
        }

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Clock:
        """Return the clock of an object that continues from a checkpoint."""
        total = kept.get("time_total_s", 0.0)
        return cls(total, total, 0, kept.get("timesteps_total"), kept.get("episodes_total"))


def _number(value: Any) -> float | None:
    try:
        if isinstance(value, bool):
            return None
        if hasattr(value, "item") and tuple(getattr(value, "shape", (0,))) == ():
            value = value.item()  # a scalar of numpy or torch
        return value if isinstance(value, (int, float)) and as_float(value) is not None else None
    except Exception:  # the border to the user's own types
        return None


def _sum(so_far: float | None, more: float | None) -> float | None:
    return so_far if more is None else summed(so_far or 0, more)


class Savable(Protocol):
    """What an object must have to be stored here: a `Trainable`."""

    iteration: int
    _sweep_clock: Clock

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any] | str | None:
        """Write into the directory, and return it or something in it, or return a dict."""

    def load_checkpoint(self, checkpoint: dict[str, Any] | str) -> None:
        """Continue from the dict, or from what was returned as a path."""


def save_into(instance: Savable, directory: str) -> None:
    """Have an object write its state into an empty directory, with how far it has come.

    Raises:
        CheckpointError: `save_checkpoint` returned a path elsewhere, no dict, or one that cannot be pickled.
    """
    returned = instance.save_checkpoint(directory)
    name = type(instance).__name__
    inner = _within(returned, directory)
    if inner is None:
        raise CheckpointError(
            f"{name}.save_checkpoint returned {os.fspath(returned)!r}; expected the directory that it was given, "  # type: ignore[arg-type]
            "something that it wrote there, a dict, or None. Write the files into that directory."
        )
    if returned is not None and not isinstance(returned, (dict, str, os.PathLike)):
        raise CheckpointError(
            f"{name}.save_checkpoint returned {type(returned).__name__}; expected a dict, the directory, or None."
        )
    if isinstance(returned, dict):
        try:
            with create_private(os.path.join(directory, DICT_FILE)) as file:
                pickle.dump(returned, file, protocol=5)
        except Exception as error:  # whatever a value's own __reduce__ raises
            raise CheckpointError(
                f"{name}.save_checkpoint returned a dict that cannot be pickled: {error}. Write files into the "
                "directory instead."
            ) from error
    with open(os.path.join(directory, CLOCK_FILE), "w", encoding="utf-8") as text:
        counts = {"training_iteration": instance.iteration, **instance._sweep_clock.to_json()}
        json.dump(counts | ({"path": inner} if inner else {}), text)


def _within(returned: object, directory: str) -> str | None:
    """Return where in the directory a returned path is, "" for the directory itself and for what is no path; None: it
    is elsewhere, or there is nothing."""
    if not isinstance(returned, (str, os.PathLike)):
        return ""
    path, root = os.path.abspath(os.fspath(returned)), os.path.abspath(directory)
    if path == root:
        return ""
    is_inside = path.startswith(root + os.sep) and os.path.exists(path)
    return os.path.relpath(path, root) if is_inside else None


def load_from(instance: Savable, directory: str) -> None:
    """Have an object continue from what `save_into` wrote; what has no counts, such as files of others, is at 0."""
    try:
        with open(os.path.join(directory, CLOCK_FILE), encoding="utf-8") as text:
            counts = json.load(text)
    except FileNotFoundError:
        counts = {}
    inner = counts.pop("path", "")
    try:
        with open(os.path.join(directory, DICT_FILE), "rb") as file, importing():
            state: dict[str, Any] | str = pickle.load(file)
    except FileNotFoundError:
        state = os.path.join(directory, inner) if inner else directory
    instance.load_checkpoint(state)
    instance.iteration = counts.pop("training_iteration", 0)
    instance._sweep_clock = Clock.from_json(counts)
