"""Events, commands and trials as JSON texts of `sweep.db`, and back.

An event is one object: `kind` (the name of its class in `sweep.core.messages`), `at` (seconds of driving), `wall` (UTC
epoch seconds), its fields that have not their defaults, but for the trial's id, and `commands`: what it caused, where
that is not what such an event usually causes. A report also has `filled`: what was filled in after what the trial
reported, in the order of `_STORED`; null stands for the usual.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache, lru_cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from searchers.base import Signal
from sweep.core import messages as m
from sweep.core.plan import Plan
from sweep.core.resources import Placement, Resources
from sweep.core.results import TrialResult
from sweep.core.trial import CheckpointRef, Trial
from sweep.record.encoding import Trust, decode, encode, untag

# What is filled in after what a trial reports, in that order; `node_ip` only on several nodes.
_FILLED = (
    *("timestamp", "time_this_iter_s", "pid", "hostname", "node_ip", "training_iteration", "time_total_s", "trial_id"),
    *("time_since_restore", "iterations_since_restore", "done"),
)
_LOCAL = tuple(name for name in _FILLED if name != "node_ip")
_STORED = (*(name for name in _LOCAL if name not in ("trial_id", "done")), "node_ip")

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
    for name, (default, way) in _fields(kind).items():
        item = getattr(value, name)
        if item is not default and item != default:
            found[name] = way.pack(item)
    return found


def unpacked(cls: type, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that `pack` has written."""
    known = _fields(cls)
    return {name: known[name][1].unpack(item) for name, item in data.items() if name in known}


@cache
def _fields(cls: Any) -> dict[str, tuple[Any, _Way]]:
    """Return the default of each field, and how it is stored."""
    hints = get_type_hints(cls, localns={"Decision": m.Decision, "TrialResult": TrialResult})
    if cls is m.PlanChanged:
        hints["plan"] = Plan
    defaults = {one.name: one.default for one in fields(cls)} if is_dataclass(cls) else cls._field_defaults
    own = _OWN_COLUMNS if cls is Trial else ()
    return {name: (defaults.get(name, MISSING), _way(hint)) for name, hint in hints.items() if name not in own}


def _way(hint: Any) -> _Way:
    origin, inner = get_origin(hint), get_args(hint)
    if hint in _WAYS:
        return _WAYS[hint]
    if origin in (Union, UnionType):
        kinds = {kind.__name__: kind for kind in inner if kind is not NoneType}
        if len(kinds) > 1 and all(map(_has_fields, kinds.values())):
            return _Way(
                lambda value: [type(value).__name__, pack(value)],
                lambda data: kinds[data[0]](**unpacked(kinds[data[0]], data[1])),
            )
        one = _way(next(iter(kinds.values())))
        return _Way(one.pack, lambda data: None if data is None else one.unpack(data))
    if origin is tuple:
        each = _way(inner[0]) if inner[-1] is Ellipsis else _AS_IT_IS
        return _Way(lambda value: [each.pack(one) for one in value], lambda data: tuple(map(each.unpack, data)))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _Way(dict, _AS_IT_IS.unpack)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _Way(lambda value: value.value, hint)
    return _Way(pack, lambda data: hint(**unpacked(hint, data))) if _has_fields(hint) else _AS_IT_IS


def _has_fields(kind: Any) -> bool:
    return is_dataclass(kind) or hasattr(kind, "_fields")


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


_AS_IT_IS = _Way(lambda value: value, lambda data: data)  # `encode` knows what JSON does not
_WAYS: dict[Any, _Way] = {
    Resources: _Way(lru_cache(4096)(Resources.to_json), Resources.from_json),  # most trials ask for the same
    Placement: _Way(Placement.to_json, Placement.from_json),
    CheckpointRef: _Way(CheckpointRef.to_json, CheckpointRef.parse),
    TrialResult: _Way(lambda result: result.seq, lambda seq: seq),
    Mapping[str, Any] | Signal | m.Failed: _Way(_pack_answer, _unpack_answer),
}


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
    data: dict[str, Any] = {"kind": type(event).__name__, "at": at, "wall": wall} | pack(event)
    data.pop("trial_id", None)
    if isinstance(event, m.Reported):
        del data["metrics"]
        if metrics is not None:
            data |= _split(metrics, event.seq, wall)
    if commands is not None:
        data["commands"] = commands
    return encode(data)


def _split(metrics: Mapping[str, Any], seq: int, wall: float) -> dict[str, Any]:
    """Return what a trial reported, and what was filled in; all of it as reported where that has another form."""
    keys, names = tuple(metrics), _FILLED if "node_ip" in metrics else _LOCAL
    num_own = len(keys) - len(names)
    if num_own < 0 or keys[num_own:] != names or metrics["done"] is not False:
        return {"metrics": dict(metrics)}
    values = {name: metrics[name] for name in _STORED if name in metrics}
    for name, usual in _usual(values, seq, wall).items():
        if values[name] is None:
            return {"metrics": dict(metrics)}
        if type(values[name]) is type(usual) and values[name] == usual:
            values[name] = None
    return {"metrics": {name: metrics[name] for name in keys[:num_own]}, "filled": list(values.values())}


def _usual(values: Mapping[str, Any], seq: int, wall: float) -> dict[str, Any]:
    """Return the time of the commit, as much time since the restore as in all, the report's number."""
    return {
        "timestamp": int(wall),
        "time_since_restore": values["time_total_s"],
        "iterations_since_restore": seq,
    }


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
        values = dict(zip(_STORED, untag(data["filled"], trust=trust), strict=False)) | {
            "trial_id": trial_id,
            "done": False,
        }
        for name, usual in _usual(values, data["seq"], data["wall"]).items():
            values[name] = usual if values[name] is None else values[name]
        metrics |= {name: values[name] for name in _FILLED if name in values}
    return metrics


def value_of(data: Mapping[str, Any], metric: str) -> Any:
    """Return what a report says under a key or a path, if it says it plainly; else anything that is no number."""
    found = data["metrics"]
    if metric in found:
        return found[metric]
    if metric in _STORED and "filled" in data:
        return dict(zip(_STORED, data["filled"], strict=False)).get(metric)
    for part in metric.split("/"):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def event_of(
    data: Mapping[str, Any], trial_id: str | None, metrics: Mapping[str, Any] = {}, *, trust: Trust = False
) -> m.Event:
    """Return the event of a text that was read as JSON.

    Args:
        metrics: of a report, as of `metrics_of`.
        trust: as of `decode`.
    """
    kind: Any = _EVENTS[data["kind"]]
    others = {name: value for name, value in data.items() if name not in ("metrics", "filled")}
    values = unpacked(kind, untag(others, trust=trust))
    known = {"trial_id": trial_id, "metrics": metrics}
    found: m.Event = kind(**values, **{name: value for name, value in known.items() if name in _fields(kind)})
    return found


# --- commands --------------------------------------------------------------------------------------------------------


def request_of(event: m.Asked) -> dict[str, Any]:
    """Return what a person's request says to a searcher; pickled values of a config are loaded."""
    said: dict[str, Any] = json.loads(event.detail or "{}")
    return said | ({"config": decode(said["config"], trust=True)} if "config" in said else {})


def command_rows(
    event: m.Event, commands: Sequence[m.Command], configs: dict[str, Mapping[str, Any]]
) -> list[list[Any]] | None:
    """Return what an event caused, as JSON values; None when it caused just what such an event usually does.

    The usual: a report notifies searcher and callbacks and is answered with Continue; anything else causes nothing.

    Args:
        configs: by trial that has not ended the config that the record has for it; kept up to date.
    """
    is_report = isinstance(event, m.Reported)
    match event, commands:
        case m.Reported(), [m.Notify(m.Hook.RESULT), m.Continue()]:  # else it was reported before
            return None
        case m.Suggested(trial_id, config), _ if isinstance(config, Mapping):
            configs[trial_id] = config
    rows = [row for command in commands if (row := _command(command, configs)) is not None]
    return rows if rows or is_report else None


def _command(command: m.Command, configs: dict[str, Mapping[str, Any]]) -> list[Any] | None:
    name = type(command).__name__
    match command:
        case m.Suggest(trial_id):
            return [name, trial_id]
        case m.Start(trial):
            row: list[Any] = [name, trial.id, trial.attempt, trial.placement.to_json() if trial.placement else None]
            ref, is_new = trial.started_from, configs.get(trial.id) is not trial.config
            configs[trial.id] = trial.config
            if trial.attempt == 1 and trial.escalation is None and ref is None and not is_new:
                return row  # all else is as it was suggested
            config = dict(trial.config) if is_new else None
            return [*row, config, trial.resources.to_json(), ref.to_json() if ref is not None else None]
        case m.Continue(trial_id, _, seq) | m.Save(trial_id, _, seq):
            return [name, trial_id, seq]
        case m.Stop(trial_id, attempt, seq, save):
            return [name, trial_id, attempt, seq, save]
        case m.Kill(trial_id, attempt, reason, kind):
            return [name, trial_id, attempt, reason] + ([] if kind is m.ExitKind.KILLED else [kind.value])
        case m.Discard(checkpoint):
            return [name, checkpoint.path]
        case m.Fail(error):
            return [name, f"{type(error).__name__}: {error}"]
        case m.Notify(hook, trial) if hook not in _STEADY:
            if hook in (m.Hook.COMPLETE, m.Hook.ERROR):  # if it comes back, its start tells all
                configs.pop(trial.id, None)
            row = [name, hook.value, trial.id]
            if hook in (m.Hook.ERROR, m.Hook.RETRY):
                row += [trial.failures + trial.losses + trial.node_losses, trial.reason]
                row += [trial.cause.value] if trial.cause else []
            return row
    return None
