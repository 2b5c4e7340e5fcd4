"""What callbacks remember over a restart of the driver: `get_state` and `set_state`, kept in `callbacks.pkl`."""

from __future__ import annotations

import os
import pickle
from collections import Counter
from collections.abc import Callable, Sequence

from sweep.callbacks.base import Callback, overriding
from sweep.record.files import write_atomically
from sweep.record.importing import unpickle

STATES_NAME = "callbacks.pkl"


class CallbackStates:
    """Store the states of those callbacks that have one, and give them back to their successors.

    A state belongs to the callback of the same class and the same position among those of that class. What cannot be
    stored or read costs the state, and is said.

    Args:
        root: directory of the experiment; empty: nothing is stored.
        notice: called with one line that says what went wrong.
    """

    def __init__(self, callbacks: Sequence[Callback], root: str, notice: Callable[[str], None]) -> None:
        self._path = os.path.join(root, STATES_NAME) if root else ""
        self._notice = notice
        self._said: set[str] = set()
        self._owners: dict[str, Callback] = {}
        counts: Counter[str] = Counter()
        for callback in overriding(callbacks, "get_state"):
            name = f"{type(callback).__module__}.{type(callback).__qualname__}"
            counts[name] += 1
            self._owners[f"{name}#{counts[name]}"] = callback

    @property
    def is_needed(self) -> bool:
        """Whether any callback has a state."""
        return bool(self._owners and self._path)

    def store(self) -> None:
        """Write all states, whole or not at all."""
        if not self.is_needed:
            return
        import cloudpickle

        parts: dict[str, bytes] = {}
        for key, callback in self._owners.items():
            try:
                parts[key] = cloudpickle.dumps(callback.get_state())
            except Exception as error:  # the user's own
                self._say_once(f"the state of the callback {key} cannot be stored: {type(error).__name__}: {error}")
        try:
            write_atomically(self._path, pickle.dumps(parts), is_private=True)
        except OSError as error:
            self._say_once(f"{self._path} cannot be written: {error}; the callbacks' states are lost at a restart")

    def give_back(self) -> None:
        """Hand what was stored to the callbacks of this run."""
        if not self.is_needed or not os.path.exists(self._path):
            return
        try:
            with open(self._path, "rb") as file:
                parts = pickle.loads(file.read())
        except Exception as error:  # a damaged pickle raises anything
            self._say_once(f"{self._path} cannot be read: {type(error).__name__}: {error}; callbacks begin anew")
            return
        for key, callback in self._owners.items():
            if key not in parts:
                continue
            try:
                callback.set_state(unpickle(parts[key]))
            except Exception as error:  # the user's own, or its class is gone
                self._say_once(f"the state of the callback {key} cannot be used: {type(error).__name__}: {error}")

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._notice(text)
