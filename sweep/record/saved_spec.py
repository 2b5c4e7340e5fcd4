"""The arguments of a sweep, kept beside its record in `tuner.pkl`, from which `Tuner.restore` takes them.

The record itself, `sweep.db`, needs no pickle. This file holds what only the caller's Python can express: a space with
functions in it, a searcher and a scheduler as they were given, callbacks. Each is pickled apart, so that one that
cannot be pickled does not take the others with it.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from searchers.variants import path_name, walk
from sweep.errors import ConfigError, ExperimentError
from sweep.record.encoding import decode
from sweep.record.files import write_atomically
from sweep.record.importing import unpickle

TUNER_PKL = "tuner.pkl"
_ENV_NAMES = "env_names"  # in place of `env`: values of variables are often secrets, and are not stored


def pack_saved_spec(arguments: Mapping[str, Any]) -> bytes:
    """Return arguments as bytes; now, because searchers and schedulers change once they are used.

    Of environment variables only the names are kept.
    """
    import cloudpickle

    named = {_ENV_NAMES if name == "env" else name: value for name, value in arguments.items()}
    parts: dict[str, bytes | None] = {}
    for name, value in named.items():
        try:
            parts[name] = cloudpickle.dumps(sorted(value) if name == _ENV_NAMES else value)
        except Exception:  # whatever the user's objects raise: its name is kept, and a restore reports it
            parts[name] = None
    return pickle.dumps({"arguments": parts})


def recorded_points(meta: Mapping[str, Any]) -> list[Any] | None:
    """Return what the searcher of an experiment had learned from before its first suggestion, as pairs of a config and
    its result; None: nothing."""
    text = meta.get("warm_start")
    return None if text is None else [tuple(pair) for pair in decode(text)]


def write_saved_spec(root: Path, data: bytes) -> None:
    """Store packed arguments in an experiment's directory, whole or not at all."""
    write_atomically(root / TUNER_PKL, data, is_private=True)


def read_saved_spec(root: Path, *, with_trainable: bool = False) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the arguments, and why others by their names could not be stored or cannot be loaded here.

    The trainable is kept where no import finds it again, and returned on request.

    Loading runs code from the file: restore only experiments that you trust.

    Raises:
        ExperimentError: there is no such file, or it is damaged.
    """
    path = root / TUNER_PKL
    how = "Resume with sweep.run(..., name=..., resume=True) and the arguments of the first call."
    try:
        parts: dict[str, bytes | None] = pickle.loads(path.read_bytes())["arguments"]
    except FileNotFoundError:
        raise ExperimentError(f"{root} has no {TUNER_PKL}. {how}") from None
    except Exception as error:  # a damaged pickle raises anything
        raise ExperimentError(f"{path} cannot be read: {type(error).__name__}: {error}. {how}") from error
    if not with_trainable:
        parts.pop("trainable", None)
    arguments: dict[str, Any] = {}
    lost = {}
    for name, data in parts.items():
        try:
            arguments[name] = unpickle(data)
        except Exception as error:  # a class may be gone, or need what this process has not
            lost[name] = "it could not be pickled" if data is None else str(error)
    return arguments, lost


def with_environment(
    arguments: Mapping[str, Any], environ: Mapping[str, str], *, is_given: bool = False
) -> dict[str, Any]:
    """Return saved arguments with the environment variables of the trials, taken by name from `environ`.

    Args:
        is_given: the caller has other variables for them.

    Raises:
        ConfigError: some are not in `environ`; the message names them.
    """
    rest = dict(arguments)
    names = rest.pop(_ENV_NAMES, None)
    if names is None or is_given:
        return rest
    missing = [name for name in names if name not in environ]
    if missing:
        raise ConfigError(
            f"the experiment gave its trials the environment variable{'s' if len(missing) > 1 else ''} "
            f"{', '.join(missing)}, whose values are not stored. Export them, or pass them again: "
            "run_config=RunConfig(runtime_env={'env_vars': {...}})."
        )
    return {**rest, "env": {name: environ[name] for name in names}}


def space_keys(space: Mapping[str, Any]) -> list[str]:
    """Return the flattened paths of a space's leaves, sorted; a domain or a grid is one leaf."""
    return sorted(path_name(path) for path, _ in walk(space))
