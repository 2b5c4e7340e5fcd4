"""Events, commands and trials as JSON texts of `sweep.db`, and back.

An event is one object: `kind` (the name of its class in `sweep.core.messages`), `at` (seconds of driving), `wall` (UTC
epoch seconds), its fields that have not their defaults, but for the trial's id, and `commands`: what it caused, where
that is not what such an event usually causes. A report also has `filled`: what was filled in after what the trial
reported, as `_split` has it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from functools import cache, lru_cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from searchers.base import Signal
from sweep.core import messages as m
from sweep.core.plan import Plan
from sweep.core.resources import Placement, Resources
from sweep.core.results import TrialResult
from sweep.core.trial import CheckpointRef, Trial
from sweep.record.encoding import Trust, encode, untag

# What is filled in after what a trial reports, in that order; `node_ip` only on several nodes.
_FILLED = (
    *("timestamp", "time_this_iter_s", "pid", "hostname", "node_ip", "training_iteration", "time_total_s", "trial_id"),
    *("time_since_restore", "iterations_since_restore", "done"),
)
_LOCAL = tuple(name for name in _FILLED if name != "node_ip")

_EVENTS: dict[str, type] = {kind.__name__: kind for kind in get_args(m.Event)}
_STEADY = (m.Hook.START, m.Hook.SAVE, m.Hook.RESTORE)  # hooks that follow from the event by themselves
_OWN_COLUMNS = ("id", "config", "status")  # of a trial


# --- dataclasses and named tuples ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Way:
    """How the values of a type become JSON, and come back."""

    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]


def pack(value: Any) -> dict[str, Any]:
    """Return the fields of a value that have not their defaults, as JSON values; of a trial those that have no column
    of their own, and of results their numbers."""
    found = {}
    kind: Any = type(value)
    for (name, default, way), item in zip(_fields(kind), _getter(kind)(value), strict=True):
        if item is not default and item != default:
            found[name] = item if way is None else way.pack(item)
    return found


def unpacked(cls: type, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that `pack` has written."""
    ways = ((name, way) for name, _, way in _fields(cls) if name in data)
    return {name: data[name] if way is None else way.unpack(data[name]) for name, way in ways}


@cache
def _fields(cls: Any) -> list[tuple[str, Any, _Way | None]]:
    """Return the name of each field, its default, and how it is stored: None: as it is, `encode` knows what JSON does
    not."""
    hints = get_type_hints(cls, localns={"Decision": m.Decision, "TrialResult": TrialResult})
    if cls is m.PlanChanged:
        hints["plan"] = Plan
    if issubclass(cls, tuple):
        defaults = {name: cls._field_defaults.get(name, _NOTHING) for name in cls._fields}
    else:
        defaults = {one.name: _NOTHING if one.default is MISSING else one.default for one in fields(cls)}
    own = _OWN_COLUMNS if cls is Trial else ()
    return [(name, default, _way(hints[name])) for name, default in defaults.items() if name not in own]


_NOTHING = object()


@cache
def _getter(cls: Any) -> Callable[[Any], tuple[Any, ...]]:
    """Return what gives the values of the fields, in C where there are several."""
    names = [name for name, _, _ in _fields(cls)]
    return attrgetter(*names) if len(names) > 1 else lambda value: tuple(getattr(value, name) for name in names)


def _way(hint: Any) -> _Way | None:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        if m.Failed in inner:
            return _Way(_pack_answer, _unpack_answer)
        kinds = {kind.__name__: kind for kind in inner if kind is not NoneType}
        if len(kinds) > 1 and all(map(_has_fields, kinds.values())):
            return _Way(
                lambda value: [type(value).__name__, pack(value)],
                lambda data: kinds[data[0]](**unpacked(kinds[data[0]], data[1])),
            )
        one = _way(next(iter(kinds.values())))
        return one and _Way(one.pack, lambda data: None if data is None else one.unpack(data))
    if origin is tuple:
        each = _way(inner[0]) if inner[-1] is Ellipsis else None
        if each is None:
            return _Way(list, tuple)
        return _Way(lambda value: [each.pack(one) for one in value], lambda data: tuple(map(each.unpack, data)))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _Way(dict, lambda data: data)
    if hint in _WAYS:
        return _WAYS[hint]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _Way(lambda value: value.value, hint)
    return _Way(pack, lambda data: hint(**unpacked(hint, data))) if _has_fields(hint) else None


def _has_fields(kind: Any) -> bool:
    return hasattr(kind, "__dataclass_fields__") or hasattr(kind, "_fields")


@lru_cache(maxsize=4096)
def _plain(value: Resources | Placement) -> Any:
    """Return a request or a place as JSON values; most trials ask for the same."""
    return value.to_json()


@lru_cache(maxsize=256)
def _request(text: str) -> Resources:
    return Resources.from_json(json.loads(text))


_WAYS: dict[Any, _Way] = {
    Resources: _Way(_plain, lambda data: _request(json.dumps(data))),
    Placement: _Way(_plain, Placement.from_json),
    CheckpointRef: _Way(CheckpointRef.to_json, CheckpointRef.parse),
    TrialResult: _Way(lambda result: result.seq, lambda seq: seq),
}


def _pack_answer(config: Mapping[str, Any] | Signal | m.Failed) -> Any:
    """Return what a searcher answered: an object is a config."""
    match config:
        case Signal():
            return ["signal", config.value]
        case m.Failed(error):
            return ["failed", error]
        case _:
            return dict(config)


def _unpack_answer(data: Any) -> Any:
    if not isinstance(data, list):
        return data
    return Signal(data[1]) if data[0] == "signal" else m.Failed(data[1])


# --- events ----------------------------------------------------------------------------------------------------------


def encode_event(
    event: m.Event, at: float, wall: float, commands: list[list[Any]] | None, metrics: Mapping[str, Any] | None = None
) -> str:
    """Return an event as text.

    Args:
        at: seconds of driving. wall: UTC epoch seconds.
        commands: what it caused, as of `command_rows`.
        metrics: of a report, with all that was filled in; None: it is not of the running attempt, and is no result.
    """
    data: dict[str, Any] = {"kind": type(event).__name__, "at": at, "wall": wall}
    if isinstance(event, m.Reported):
        data |= {"attempt": event.attempt, "seq": event.seq}
        if metrics is not None:
            data["metrics"], filled = _split(metrics, event.seq, wall)
            if filled is not None:
                data["filled"] = filled
        if event.checkpoint is not None:
            data["checkpoint"] = event.checkpoint
        if event.verdict:
            data["verdict"] = event.verdict.value
    else:
        data |= pack(event)
        data.pop("trial_id", None)
    if commands is not None:
        data["commands"] = commands
    return encode(data)


def _split(metrics: Mapping[str, Any], seq: int, wall: float) -> tuple[dict[str, Any], list[Any] | None]:
    """Return what a trial reported, and what was filled in; all of it and None where that has another form.

    Null stands for the usual: the time of the commit, as much time since the restore as in all, the report's number.
    """
    keys = tuple(metrics)
    names = _FILLED if "node_ip" in metrics else _LOCAL
    num_own = len(keys) - len(names)
    if num_own < 0 or keys[num_own:] != names or metrics["done"] is not False:
        return dict(metrics), None
    timestamp, this_s, pid, hostname, *node, iteration, total_s, _, since_s, number, _ = (metrics[key] for key in names)
    if None in (timestamp, since_s, number):
        return dict(metrics), None
    filled = [
        None if type(timestamp) is int and timestamp == int(wall) else timestamp,
        this_s,
        pid,
        hostname,
        iteration,
        total_s,
        None if type(since_s) is type(total_s) is float and since_s == total_s else since_s,
        None if type(number) is int and number == seq else number,
        *node,
    ]
    return {key: metrics[key] for key in keys[:num_own]}, filled


def metrics_of(data: Mapping[str, Any], trial_id: str | None, *, trust: Trust = False) -> dict[str, Any] | None:
    """Return the metrics of a report with all that was filled in; None: it is no result, or another event.

    Args:
        data: the text of the event, read as JSON.
        trust: as of `decode`.
    """
    if data.get("metrics") is None:
        return None
    metrics: dict[str, Any] = untag(data["metrics"], trust=trust)
    if "filled" in data:
        timestamp, this_s, pid, hostname, iteration, total_s, since_s, number, *node = untag(data["filled"])
        metrics["timestamp"] = int(data["wall"]) if timestamp is None else timestamp
        metrics |= {"time_this_iter_s": this_s, "pid": pid, "hostname": hostname}
        if node:
            metrics["node_ip"] = node[0]
        metrics |= {"training_iteration": iteration, "time_total_s": total_s, "trial_id": trial_id}
        metrics["time_since_restore"] = total_s if since_s is None else since_s
        metrics |= {"iterations_since_restore": data["seq"] if number is None else number, "done": False}
    return metrics


def event_of(
    data: Mapping[str, Any], trial_id: str | None, metrics: Mapping[str, Any] = {}, *, trust: Trust = False
) -> m.Event:
    """Return the event of a text that was read as JSON.

    Args:
        metrics: of a report, as of `metrics_of`.
        trust: as of `decode`.
    """
    kind = _EVENTS[data["kind"]]
    if kind is m.Reported:
        verdict = m.Verdict(data.get("verdict", ""))
        return m.Reported(trial_id or "", data["attempt"], data["seq"], metrics, data.get("checkpoint"), verdict)
    owner = {"trial_id": trial_id} if any(name == "trial_id" for name, _, _ in _fields(kind)) else {}
    found: m.Event = kind(**owner, **unpacked(kind, untag(dict(data), trust=trust)))
    return found


# --- commands --------------------------------------------------------------------------------------------------------


def command_rows(
    event: m.Event, commands: Sequence[m.Command], configs: dict[str, Mapping[str, Any]]
) -> list[list[Any]] | None:
    """Return what an event caused, as JSON values; None when it caused just what such an event usually does.

    The usual: a report notifies searcher and callbacks and is answered with Continue; anything else causes nothing.

    Args:
        configs: by trial that has not ended the config that the record has for it; kept up to date.
    """
    if isinstance(event, m.Reported):
        if len(commands) == 2 and type(commands[1]) is m.Continue:
            first = commands[0]
            if type(first) is m.Notify and first.hook is m.Hook.RESULT:  # else it was reported before
                return None
    elif isinstance(event, m.Suggested) and isinstance(event.config, Mapping):
        configs[event.trial_id] = event.config
    if not commands and not isinstance(event, m.Reported):
        return None
    rows = [row for command in commands if (row := _command(command, configs)) is not None]
    return rows if rows or isinstance(event, m.Reported) else None


def _command(command: m.Command, configs: dict[str, Mapping[str, Any]]) -> list[Any] | None:
    match command:
        case m.Suggest(trial_id):
            return ["Suggest", trial_id]
        case m.Start(trial):
            row: list[Any] = ["Start", trial.id, trial.attempt, trial.placement.to_json() if trial.placement else None]
            ref, is_new = trial.started_from, configs.get(trial.id) is not trial.config
            configs[trial.id] = trial.config
            if trial.attempt == 1 and trial.escalation is None and ref is None and not is_new:
                return row  # all else is as it was suggested
            config = dict(trial.config) if is_new else None
            return [*row, config, trial.resources.to_json(), ref.to_json() if ref is not None else None]
        case m.Continue(trial_id, _, seq):
            return ["Continue", trial_id, seq]
        case m.Save(trial_id, _, seq):
            return ["Save", trial_id, seq]
        case m.Stop(trial_id, attempt, seq, save):
            return ["Stop", trial_id, attempt, seq, save]
        case m.Kill(trial_id, attempt, reason, kind):
            return ["Kill", trial_id, attempt, reason] + ([] if kind is m.ExitKind.KILLED else [kind.value])
        case m.Discard(checkpoint):
            return ["Discard", checkpoint.path]
        case m.Fail(error):
            return ["Fail", f"{type(error).__name__}: {error}"]
        case m.Notify(hook, trial):
            if hook in _STEADY:
                return None
            row = ["Notify", hook.value, trial.id]
            if hook in (m.Hook.COMPLETE, m.Hook.ERROR):  # if it comes back, its start tells all
                configs.pop(trial.id, None)
            if hook not in (m.Hook.ERROR, m.Hook.RETRY):
                return row
            row += [trial.failures + trial.losses + trial.node_losses, trial.reason]
            return [*row, trial.cause.value] if trial.cause else row
