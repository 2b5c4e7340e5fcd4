"""Events and commands as rows of `sweep.db`, and back."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from searchers.base import Signal
from sweep.core.claims import Claim
from sweep.core.messages import (
    Ask,
    Asked,
    ClaimsChanged,
    CloneTrial,
    Command,
    Continue,
    Decision,
    Declined,
    Discard,
    Event,
    Exit,
    Exited,
    ExitKind,
    Fail,
    Failed,
    Hook,
    Kill,
    NodesChanged,
    Notify,
    PauseTrial,
    PlanChanged,
    Released,
    Reported,
    ResizeTrial,
    Save,
    Saved,
    SaveTrial,
    Start,
    Started,
    Stop,
    Suggest,
    Suggested,
    Tick,
    Verdict,
    Waiting,
)
from sweep.core.plan import Plan
from sweep.core.resources import Device, Node, Resources
from sweep.core.trial import CheckpointRef, Grown
from sweep.record.encoding import decode, encode

EventRow = tuple[str, str | None, int | None, str | None]  # kind, trial_id, attempt, data


def encode_event(event: Event) -> EventRow:
    """Return (kind, trial id, attempt, data); the metrics of a `Reported` are stored in `result` under the same seq."""
    match event:
        case Reported(trial_id, attempt, seq, _, checkpoint, verdict):
            if checkpoint is None and not verdict:
                return "Reported", trial_id, attempt, str(seq)
            return "Reported", trial_id, attempt, encode([seq, checkpoint, verdict.value])
        case Started(trial_id, attempt, pid):
            return "Started", trial_id, attempt, str(pid)
        case Released(trial_id, attempt):
            return "Released", trial_id, attempt, None
        case Exited(trial_id, attempt, exit_):
            data = {name: value for name in Exit.__dataclass_fields__ if (value := getattr(exit_, name))}
            data["kind"] = exit_.kind.value
            if exit_.pickled:
                data["pickled"] = base64.b64encode(exit_.pickled).decode()
            if exit_.needs is not None:
                data["needs"] = exit_.needs.to_json()
            return "Exited", trial_id, attempt, encode({"exit": data})
        case Suggested(trial_id, config, resources, state):
            return "Suggested", trial_id, None, _encode_suggested(config, resources, state)
        case Saved(trial_id, attempt, seq, checkpoint):
            return "Saved", trial_id, attempt, encode([seq, checkpoint])
        case Waiting(trial_id, reason):
            return "Waiting", trial_id, None, encode(reason)
        case Asked(what, trial_id, detail):
            return "Asked", trial_id, None, encode([what.value, detail])
        case NodesChanged(nodes, away):
            there = [_node_to_json(node) for node in nodes]
            whole = {"nodes": there, "away": [_node_to_json(node) for node in away]} if away else there
            return "NodesChanged", None, None, encode(whole)
        case ClaimsChanged(others):
            return "ClaimsChanged", None, None, encode([claim.to_json() for claim in others])
        case Declined(trial_id, attempt):
            return "Declined", trial_id, attempt, None
        case PlanChanged(plan):
            return "PlanChanged", None, None, encode(plan.to_json())
        case Tick():
            return "Tick", None, None, None


def decode_event(
    kind: str,
    trial_id: str | None,
    attempt: int | None,
    data: str | None,
    metrics: Mapping[str, Any],
    *,
    trust: bool,
    with_arrays: bool = False,
) -> Event:
    """Return the event of a row; `metrics` are those of the `result` row with the same seq.

    Args:
        trust: load values that were stored as pickles (configs of the user's own objects).
        with_arrays: of those only arrays of numpy, as `decode` does.
    """
    name, number = trial_id or "", attempt or 0
    match kind:
        case "Reported":
            parts = json.loads(data or "0")
            seq, checkpoint, verdict = (parts, None, "") if isinstance(parts, int) else parts
            return Reported(name, number, seq, metrics, checkpoint, Verdict(verdict))
        case "Started":
            return Started(name, number, int(data or 0))
        case "Released":
            return Released(name, number)
        case "Declined":
            return Declined(name, number)
    value: Any = decode(data, trust=trust, with_arrays=with_arrays) if data is not None else None
    match kind:
        case "Exited":
            fields = dict(value["exit"])
            fields["kind"] = ExitKind(fields["kind"])
            fields["pickled"] = base64.b64decode(fields.get("pickled", ""))
            if "needs" in fields:
                fields["needs"] = Resources.from_json(fields["needs"])
            return Exited(name, number, Exit(**fields))
        case "Suggested":
            return _decode_suggested(name, value)
        case "Saved":
            return Saved(name, number, *value)
        case "Waiting":
            return Waiting(name, value)
        case "Asked":
            return Asked(Ask(value[0]), trial_id, value[1])
        case "NodesChanged":
            there, away = (value["nodes"], value["away"]) if isinstance(value, dict) else (value, ())
            return NodesChanged(tuple(map(_node_from_json, there)), tuple(map(_node_from_json, away)))
        case "ClaimsChanged":
            return ClaimsChanged(tuple(Claim.from_json(claim) for claim in value))
        case "PlanChanged":
            known = {k: v for k, v in value.items() if k in Plan.__dataclass_fields__}
            return PlanChanged(Plan(**known))
        case _:
            return Tick()


def _encode_suggested(
    config: Mapping[str, Any] | Signal | Failed, resources: Resources | None, state: Mapping[str, Any] | None
) -> str:
    if isinstance(config, Signal):
        return encode({"signal": config.value})
    if isinstance(config, Failed):
        return encode({"failed": config.error})
    data: dict[str, Any] = {"config": dict(config)}
    if resources is not None:
        data["resources"] = resources.to_json()
    if state is not None:
        data["state"] = dict(state)
    return encode(data)


def _decode_suggested(trial_id: str, value: dict[str, Any]) -> Suggested:
    if "signal" in value:
        return Suggested(trial_id, Signal(value["signal"]))
    if "failed" in value:
        return Suggested(trial_id, Failed(value["failed"]))
    resources = _resources(json.dumps(value["resources"])) if "resources" in value else None
    return Suggested(trial_id, value["config"], resources, value.get("state"))


@lru_cache(maxsize=256)
def _resources(text: str) -> Resources:
    """Return a request; most trials of a sweep ask for the same."""
    return Resources.from_json(json.loads(text))


def _node_to_json(node: Node) -> dict[str, Any]:
    return {
        "id": node.id,
        "cpus": node.cpus,
        "memory": node.memory,
        "devices": [[d.id, d.kind, d.type, d.memory, d.visible, list(d.labels), d.vendor] for d in node.devices],
        "custom": dict(node.custom),
        "slice": node.slice,
        **({"gpu_note": node.gpu_note} if node.gpu_note else {}),
        **({"address": node.address} if node.address else {}),
    }


def _node_from_json(data: Mapping[str, Any]) -> Node:
    devices = tuple(_device_from_json(*device) for device in data["devices"])
    slice_, note, address = (data.get(name, "") for name in ("slice", "gpu_note", "address"))
    return Node(data["id"], data["cpus"], data["memory"], devices, data["custom"], slice_, note, address)


def _device_from_json(
    name: str, kind: str, type_: str, memory: int, visible: str, labels: Sequence[str] = (), vendor: str = ""
) -> Device:
    """Return a device; records from before devices had labels end earlier."""
    return Device(name, kind, type_, memory, visible, tuple(labels), vendor)


# --- commands ------------------------------------------------------------------------------------------------------

_STEADY = (Hook.RESULT, Hook.START, Hook.SAVE, Hook.RESTORE)  # hooks that follow from the event by themselves


def command_texts(event: Event, commands: Sequence[Command]) -> str | None:
    """Return what an event caused, as JSON; None when it caused just what such an event usually does.

    The usual: a report notifies searcher and callbacks and is answered with Continue; anything else causes nothing.
    """
    if isinstance(event, Reported):
        if len(commands) == 2 and type(commands[1]) is Continue:
            first = commands[0]
            if type(first) is Notify and first.hook is Hook.RESULT:  # else it was reported before
                return None
    elif not commands:
        return None
    rows = [row for command in commands if (row := _command(command)) is not None]
    if not rows and not isinstance(event, Reported):
        return None
    return encode(rows)


def _command(command: Command) -> list[Any] | None:
    match command:
        case Suggest(trial_id):
            return ["Suggest", trial_id]
        case Start(trial):
            row: list[Any] = ["Start", trial.id, trial.attempt, trial.placement.to_json() if trial.placement else None]
            ref = trial.started_from
            if trial.attempt == 1 and trial.grown is None and ref is None:
                return row  # all else is as it was suggested
            return [*row, dict(trial.config), trial.resources.to_json(), ref.to_json() if ref is not None else None]
        case Continue(trial_id, _, seq):
            return ["Continue", trial_id, seq]
        case Save(trial_id, _, seq):
            return ["Save", trial_id, seq]
        case Stop(trial_id, attempt, seq, save):
            return ["Stop", trial_id, attempt, seq, save]
        case Kill(trial_id, attempt, reason, kind):
            return ["Kill", trial_id, attempt, reason] + ([] if kind is ExitKind.KILLED else [kind.value])
        case Discard(checkpoint):
            return ["Discard", checkpoint.path]
        case Fail(error):
            return ["Fail", f"{type(error).__name__}: {error}"]
        case Notify(hook, trial):
            if hook in _STEADY and hook is not Hook.RESULT:
                return None
            row = ["Notify", hook.value, trial.id]
            if hook not in (Hook.ERROR, Hook.RETRY):
                return row
            return [*row, trial.failures + trial.losses + trial.node_losses, trial.reason]


# --- what a trial's row holds --------------------------------------------------------------------------------------


def encode_pending(pending: Decision | None) -> str | None:
    """Return the decision that waits in a trial, as JSON."""
    match pending:
        case None:
            return None
        case PauseTrial(_, reason):
            return encode(["pause", reason])
        case SaveTrial():
            return encode(["save"])
        case ResizeTrial(_, resources):
            return encode(["resize", resources.to_json()])
        case CloneTrial(_, source_id, config, checkpoint):
            return encode(["clone", source_id, dict(config), checkpoint.to_json() if checkpoint else None])
        case _:
            raise TypeError(f"{type(pending).__name__} never waits")


def decode_pending(trial_id: str, text: str | None, *, trust: bool) -> Decision | None:
    """Undo `encode_pending`."""
    if text is None:
        return None
    kind, *rest = decode(text, trust=trust)
    match kind:
        case "pause":
            return PauseTrial(trial_id, rest[0])
        case "save":
            return SaveTrial(trial_id)
        case "resize":
            return ResizeTrial(trial_id, Resources.from_json(rest[0]))
        case _:
            source_id, config, ref = rest
            return CloneTrial(trial_id, source_id, config, CheckpointRef.parse(ref))


def encode_grown(grown: Grown | None) -> str | None:
    """Return where the request of a trial comes from, as JSON."""
    return None if grown is None else encode([grown.asked.to_json(), grown.is_guess])


def decode_grown(text: str | None) -> Grown | None:
    """Undo `encode_grown`."""
    if text is None:
        return None
    asked, is_guess = json.loads(text)
    return Grown(Resources.from_json(asked), is_guess)
