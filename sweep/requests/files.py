"""A request to a sweep is a file in its directory: written beside its place, renamed, answered by another file.

    NAME/requests/1764196800000000000-1f0a.json     what is asked for
    NAME/requests/1764196800000000000-1f0a.answer   what came of it

Nothing listens on a port, and a directory that several machines see will do. The driver looks four times a second.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import secrets
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sweep.errors import ConfigError, ExperimentError
from sweep.record.files import write_atomically

DIRECTORY = "requests"
VERBS = ("stop", "cancel", "pause", "resume", "retry", "enqueue", "edit")
KEPT = ("retry", "enqueue", "edit", "resume")
"""Verbs that a sweep which does not run takes at its next start."""
_NAME = re.compile(r"\d{16,20}-[0-9a-f]{4,}\.json")
_MAX_BYTES = 1_000_000


@dataclass(frozen=True)
class Request:
    """What a person asks of a sweep.

    Attributes:
        id: names it for good; requests are carried out in the order of their ids.
        verb: one of `VERBS`.
        trials: ids; empty: the whole sweep.
        values: of `retry`, `failed`: classes of failures; of `enqueue`, `config`; of `edit`, `num_samples`,
            `time_budget_s`, `max_concurrent_trials`, where a text such as "+50" is added to what holds now.
        by: who, for people.
    """

    id: str
    verb: str
    trials: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    by: str = ""


@dataclass(frozen=True)
class Answer:
    """What came of a request: whether it was carried out, and a sentence."""

    is_done: bool
    said: str


def write(root: Path, verb: str, trials: tuple[str, ...] = (), values: Mapping[str, Any] | None = None) -> Request:
    """Write a request into an experiment's directory.

    Raises:
        ConfigError: a value cannot be written as JSON.
        ExperimentError: the directory takes no file.
    """
    values = dict(values or {})
    request = Request(f"{time.time_ns()}-{secrets.token_hex(4)}", verb, trials, values, _who())
    try:
        text = json.dumps(asdict(request), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{values!r:.300} cannot be asked for: {error}; expected values of JSON.") from error
    path = root / DIRECTORY / f"{request.id}.json"
    try:
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, text)
    except OSError as error:
        raise ExperimentError(f"{path.parent} takes no request: {error.strerror}. Nothing was asked for.") from error
    return request


def _who() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):  # the user has no name
        return f"{os.getuid()}@{socket.gethostname()}"


def waiting(root: Path) -> tuple[list[str], list[str]]:
    """Return the names of the requests in an experiment's directory, oldest first, and of files that are none."""
    try:
        names = sorted(os.listdir(root / DIRECTORY))
    except OSError:  # there is none yet, or it cannot be read, which the next look will find no different
        return [], []
    ours = [name for name in names if _NAME.fullmatch(name)]
    return ours, [name for name in names if name not in ours and name[0] != "." and not name.endswith(".answer")]


def read(root: Path, name: str) -> Request:
    """Return a request.

    Raises:
        ConfigError: the file holds none.
    """
    path = root / DIRECTORY / name
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > _MAX_BYTES:  # of a pipe nothing may come
            raise ValueError(f"it is no file, or larger than {_MAX_BYTES} bytes")
        given = json.loads(path.read_text(encoding="utf-8"))
        request = Request(**{**given, "id": name.removesuffix(".json"), "trials": tuple(given.get("trials") or ())})
        if request.verb not in VERBS or not isinstance(request.values, dict):
            raise ValueError(f"its verb is {request.verb!r:.50}; expected one of {', '.join(VERBS)}")
        return request
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{path} is no request: {error}") from error


def answer(root: Path, request: Request, reply: Answer) -> None:
    """Answer a request and take it away; raises OSError."""
    write_atomically(root / DIRECTORY / f"{request.id}.answer", json.dumps(asdict(reply)))
    withdraw(root, request)


def take_answer(root: Path, request: Request) -> Answer | None:
    """Return the answer to a request and take it away; None: there is none yet."""
    path = root / DIRECTORY / f"{request.id}.answer"
    try:
        reply = Answer(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    path.unlink(missing_ok=True)
    return reply


def forget_answers(root: Path) -> None:
    """Remove the answers of the driver before, which nobody has waited for."""
    for path in (root / DIRECTORY).glob("*.answer"):
        with suppress(OSError):
            path.unlink()


def withdraw(root: Path, request: Request) -> None:
    """Take a request away."""
    (root / DIRECTORY / f"{request.id}.json").unlink(missing_ok=True)
