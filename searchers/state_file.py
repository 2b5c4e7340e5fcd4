"""Files that hold what a searcher has learned: the one place of the search side that touches a disk."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from searchers.errors import SearchError

__all__ = ["newest_state", "read_state", "state_path", "write_state"]

_FORMAT = 1
_PREFIX = "searcher-state-"
_SUFFIX = ".json"


def state_path(directory: Any, session: str) -> str:
    """Return the path of the state of one session in a directory."""
    return os.path.join(os.fspath(directory), f"{_PREFIX}{session}{_SUFFIX}")


def write_state(path: Any, searcher: str, state: Mapping[str, Any]) -> None:
    """Write a state as JSON; a reader finds the old file or the new one, never a part.

    Args:
        searcher: name of the class whose state it is.

    Raises:
        SearchError: the state holds something else than JSON values.
        OSError: the file cannot be written.
    """
    try:
        text = json.dumps({"format": _FORMAT, "searcher": searcher, "state": state})
    except (TypeError, ValueError) as error:
        raise SearchError(f"the state of {searcher} cannot be written as JSON: {error}.") from error
    target = os.fspath(path)
    partial = f"{target}.{os.getpid()}.partial"
    try:
        with open(partial, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    except OSError:
        if os.path.exists(partial):
            os.unlink(partial)
        raise


def read_state(path: Any, searcher: str) -> Mapping[str, Any]:
    """Return the state that `write_state` wrote.

    Raises:
        SearchError: no such file, not one of these, or the state of another kind of searcher.
    """
    shown = repr(os.fspath(path))
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except FileNotFoundError as error:
        raise SearchError(f"there is no searcher state {shown}; write one with searcher.save(path).") from error
    except (OSError, ValueError) as error:
        raise SearchError(f"{shown} cannot be read as the state of a searcher: {error}.") from error
    state = content.get("state") if isinstance(content, dict) else None
    if not isinstance(state, dict) or content.get("format") != _FORMAT:
        raise SearchError(f"{shown} is no state of a searcher; write one with searcher.save(path).")
    if content.get("searcher") != searcher:
        raise SearchError(f"{shown} is the state of {content.get('searcher')}; it cannot be restored into {searcher}.")
    return state


def newest_state(directory: Any) -> str:
    """Return the path of the state in a directory whose name sorts last.

    Raises:
        SearchError: the directory holds none.
    """
    shown = str(os.fspath(directory))
    names = os.listdir(shown) if os.path.isdir(shown) else []
    states = sorted(name for name in names if name.startswith(_PREFIX) and name.endswith(_SUFFIX))
    if not states:
        raise SearchError(
            f"{shown!r} holds no {_PREFIX}*{_SUFFIX}; write one with searcher.save_to_dir(directory), or continue the "
            "experiment with resume=True, which needs none."
        )
    return os.path.join(shown, states[-1])
