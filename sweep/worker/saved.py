"""What a checkpoint of a class trainable holds: its files or one pickled dict, and how far the object had come."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sweep.core.values import as_float, summed
from sweep.errors import CheckpointError
from sweep.record.files import create_private
from sweep.record.importing import importing

if TYPE_CHECKING:
    from sweep.worker.trainable import Trainable

DICT_FILE = "dict_checkpoint.pkl"  # what a class returned from save_checkpoint
PROGRESS_FILE = ".sweep-clock.json"  # beside it: how far the object had come

# What is summed up over the steps of an object, and from what; a sum that no step had a number for is not there.
_SUMMED = {
    "time_total_s": "time_this_iter_s",
    "timesteps_total": "timesteps_this_iter",
    "episodes_total": "episodes_this_iter",
}


def totals_after(totals: Mapping[str, float], metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the totals of an object after a step that reported `metrics`."""
    more = {total: _number(metrics.get(part)) for total, part in _SUMMED.items()}
    return {**totals, **{name: summed(totals.get(name, 0), value) for name, value in more.items() if value is not None}}


def _number(value: Any) -> float | None:
    try:
        if hasattr(value, "item") and tuple(getattr(value, "shape", (0,))) == ():
            value = value.item()  # a scalar of numpy or torch
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return value if is_number and as_float(value) is not None else None
    except Exception:  # the border to the user's own types
        return None


def save_into(instance: Trainable, directory: str) -> None:
    """Have an object write its state into an empty directory, with how far it has come.

    Raises:
        CheckpointError: `save_checkpoint` returned a path elsewhere, no dict, or one that cannot be pickled.
    """
    returned = instance.save_checkpoint(directory)
    name, inner = type(instance).__name__, ""
    if isinstance(returned, dict):
        try:
            with create_private(os.path.join(directory, DICT_FILE)) as file:
                pickle.dump(returned, file, protocol=5)
        except Exception as error:  # whatever a value's own __reduce__ raises
            raise CheckpointError(
                f"{name}.save_checkpoint returned a dict that cannot be pickled: {error}. Write files into the "
                "directory instead."
            ) from error
    elif isinstance(returned, (str, os.PathLike)):
        inner = os.path.relpath(returned, directory)
        if inner.partition(os.sep)[0] == os.pardir or not os.path.exists(returned):
            raise CheckpointError(
                f"{name}.save_checkpoint returned {os.fspath(returned)!r}; expected the directory that it was given, "
                "something that it wrote there, a dict, or None. Write the files into that directory."
            )
    elif returned is not None:
        raise CheckpointError(
            f"{name}.save_checkpoint returned {type(returned).__name__}; expected a dict, the directory, or None."
        )
    with open(os.path.join(directory, PROGRESS_FILE), "w", encoding="utf-8") as text:
        json.dump({"training_iteration": instance.iteration, **instance._sweep_totals, "path": inner}, text)


def load_from(instance: Trainable, directory: str) -> None:
    """Have an object continue from what `save_into` wrote; what has no counts, such as files of others, is at 0."""
    progress: dict[str, Any] = {}
    path = os.path.join(directory, PROGRESS_FILE)
    if os.path.exists(path):
        with open(path, encoding="utf-8") as text:
            progress = json.load(text)
    state: dict[str, Any] | str = os.path.normpath(os.path.join(directory, progress.get("path", "")))
    if os.path.exists(pickled := os.path.join(directory, DICT_FILE)):
        with open(pickled, "rb") as file, importing():
            state = pickle.load(file)
    instance.load_checkpoint(state)
    instance.iteration = progress.get("training_iteration", 0)
    instance._sweep_totals = {name: progress[name] for name in _SUMMED if progress.get(name) is not None}
    instance._sweep_restored = instance.iteration, instance._sweep_totals.get("time_total_s", 0.0)
