"""Files that hold what a searcher has learned: the one place of the search side that touches a disk."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from searchers.errors import SearchError

if TYPE_CHECKING:
    from searchers.base import Searcher


_FORMAT = 1
_PREFIX, _SUFFIX = "searcher-state-", ".json"


def save(searcher: Searcher, checkpoint_path: Any) -> None:
    """Write what was learned to a file as JSON; `restore` of a new searcher reads it.

    A reader finds the old file or the new one, never a part.

    Raises:
        SearchError: this searcher has no state to save, or it holds something else than JSON values.
        OSError: the file cannot be written.
    """
    who, state = type(searcher).__name__, searcher.get_state()
    try:
        text = json.dumps({"format": _FORMAT, "searcher": who, "state": state})
    except (TypeError, ValueError) as error:
        raise SearchError(f"the state of {who} cannot be written as JSON: {error}.") from error
    target = os.fspath(checkpoint_path)
    partial = f"{target}.{os.getpid()}.partial"
    with open(partial, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, target)


def restore(searcher: Searcher, checkpoint_path: Any) -> None:
    """Go on from a file that `save` wrote; the space is not in it, and is given to the constructor or the run.

    Raises:
        SearchError: there is no such file, it is none of `save`, or another kind of searcher wrote it.
    """
    who, shown = type(searcher).__name__, repr(os.fspath(checkpoint_path))
    try:
        with open(checkpoint_path, encoding="utf-8") as file:
            content = json.load(file)
    except FileNotFoundError as error:
        raise SearchError(f"there is no searcher state {shown}; write one with searcher.save(path).") from error
    except (OSError, ValueError) as error:
        raise SearchError(f"{shown} cannot be read as the state of a searcher: {error}.") from error
    state = content.get("state") if isinstance(content, dict) and content.get("format") == _FORMAT else None
    if not isinstance(state, dict):
        raise SearchError(f"{shown} is no state of a searcher; write one with searcher.save(path).")
    if content.get("searcher") != who:
        raise SearchError(f"{shown} is the state of {content.get('searcher')}; it cannot be restored into {who}.")
    searcher.set_state(state)


def save_to_dir(searcher: Searcher, checkpoint_dir: Any, session_str: str = "default") -> None:
    """Write what was learned to `searcher-state-<session_str>.json` in a directory."""
    searcher.save(os.path.join(os.fspath(checkpoint_dir), f"{_PREFIX}{session_str}{_SUFFIX}"))


def restore_from_dir(searcher: Searcher, checkpoint_dir: Any) -> None:
    """Go on from the file of `save_to_dir` in a directory whose name sorts last.

    Raises:
        SearchError: there is none, or as `restore`.
    """
    shown = str(os.fspath(checkpoint_dir))
    names = os.listdir(shown) if os.path.isdir(shown) else []
    states = sorted(name for name in names if name.startswith(_PREFIX) and name.endswith(_SUFFIX))
    if not states:
        how = "save_to_dir(directory) writes one. To learn from an experiment, give the run warm_start=directory."
        raise SearchError(f"{shown!r} holds no {_PREFIX}*{_SUFFIX}; {how}")
    searcher.restore(os.path.join(shown, states[-1]))
