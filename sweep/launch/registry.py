"""Trainables by name: `register_trainable("net", train)`, then `run("net")`."""

from __future__ import annotations

from typing import Any

from searchers.errors import nearest
from sweep.errors import TrainableError, UnknownNameError, refuse_unknown

_trainables: dict[str, Any] = {}


@refuse_unknown()
def register_trainable(name: str, trainable: Any) -> None:
    """Let `run(name)` find a trainable, in this process; a name given again is replaced.

    Raises:
        TrainableError: the name is no text, or the trainable is neither callable nor a class (a TypeError).
    """
    if not isinstance(name, str) or not name:
        raise TrainableError(f"register_trainable was given the name {name!r}; expected a text that is not empty.")
    if not (callable(trainable) or hasattr(trainable, "__sweep_trainable__")):  # a trainer
        what = f"register_trainable({name!r}, ...) was given {trainable!r:.100}"
        raise TrainableError(f"{what}; expected a function that takes a config, or a subclass of sweep.Trainable.")
    _trainables[name] = trainable


def registered(name: str) -> Any:
    """Return what was registered under `name`; the error names the nearest."""
    if name not in _trainables:
        known = nearest(name, _trainables) if _trainables else "Nothing is registered in this process."
        advice = f"Call sweep.register_trainable({name!r}, function) first, or pass the function itself."
        raise UnknownNameError(f"Unknown trainable: {name!r}. {known} {advice}")
    return _trainables[name]
