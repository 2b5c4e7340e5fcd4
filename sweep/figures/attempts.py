"""What happened to trials and when, by the recorded facts: waited, started, ran, paused, was tried again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.core.resources import Placement, name_device
from sweep.errors import ConfigError
from sweep.record.reader import ExperimentReader
from sweep.record.rows import TrialRow

_KINDS = ("Suggested", "Started", "Exited", "Released", "Declined", "Waiting", "PlanChanged")


@dataclass(slots=True)
class Attempt:
    """One start of a trial; times in seconds of driving, None: it did not come to that.

    Attributes:
        granted: when it was given its place. started: when the user's code began. ended: when its processes were gone.
        released: when its place could be granted again.
        places: what it held: devices, or nodes where it held no device.
        cause: what made room for it, for people; empty: there was room.
        after: what the trial did then: `paused`, `waiting`, `ended`; `lost` with its driver; empty: it still runs.
        waits: what the engine said of a long start.
        outcome: how it ended, in a word, and the error.
    """

    number: int
    attempt: int
    granted: float
    places: tuple[str, ...]
    cause: str = ""
    started: float | None = None
    ended: float | None = None
    released: float | None = None
    after: str = ""
    is_failure: bool = False
    waits: str = ""
    outcome: str = ""

    def phases(self, now: float) -> Iterator[tuple[str, float, float, str]]:
        """Give (kind as of a `Span`, begin, end, text) of the start and of the run that followed; what still goes on
        ends at `now`."""
        end = now if self.ended is None else self.ended
        has_failed = self.is_failure or self.after == "lost"
        text = f"attempt {self.attempt} {self.outcome}".strip()
        if self.started is None or (has_failed and self.started == end):  # so that the failure is seen
            yield ("failed", self.granted, end, text) if has_failed else ("starting", self.granted, end, self.waits)
            return
        yield "starting", self.granted, self.started, self.waits
        yield "failed" if has_failed else "running", self.started, end, text


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a trial's life: `kind` is waiting, starting, running, paused or failed; times as in `Attempt`."""

    number: int
    kind: str
    begin: float
    end: float
    text: str


def attempts_of(reader: ExperimentReader) -> tuple[dict[int, float], list[Attempt], float]:
    """Return when each trial was created, by number, all starts in their order, and the time of the last event."""
    number_of = {row.trial_id: row.number for row in reader.trials()}
    created: dict[int, float] = {}
    attempts: list[Attempt] = []
    open_: dict[tuple[str, int], Attempt] = {}
    last_at = 0.0
    for at, kind, trial_id, attempt, data, commands in _events(reader):
        if kind == "PlanChanged":  # the driver before it is gone, and what it ran
            for one in open_.values():
                one.after, one.outcome = "lost", "its driver ended"
                one.ended = one.ended if one.ended is not None else at  # driving goes on at the time at which it ended
                one.released = at
            open_.clear()
        last_at = max(last_at, at)
        number = number_of.get(trial_id or "")
        if kind == "Suggested" and number is not None:
            created.setdefault(number, at)
        key = (trial_id or "", attempt or 0)
        if kind == "Started" and number is not None and key not in open_:  # of a record that lacks what was granted
            open_[key] = Attempt(number, attempt or 0, at, _places(None))
            attempts.append(open_[key])
        if kind == "Declined" and key in open_:  # it did not begin
            attempts.remove(open_.pop(key))
        current = open_.get(key)
        if current is not None:
            _happened(current, kind, at, data, commands)
            if kind == "Released":
                del open_[key]
        elif kind == "Waiting" and data is not None:
            for (owner, _), one in open_.items():
                if owner == trial_id:
                    one.waits = str(_json(data))
        for name, started_attempt, placement in _starts(commands):
            if name in number_of:
                begun = Attempt(
                    number_of[name], started_attempt, at, _places(placement), _cause(kind, number, name, trial_id)
                )
                attempts.append(begun)
                open_[name, started_attempt] = begun
    return created, attempts, max(last_at, _end(reader))


def _end(reader: ExperimentReader) -> float:
    """Return when the last event was committed, in seconds of driving."""
    found = reader.last_event()
    return found[1] if found is not None else 0.0


def _events(reader: ExperimentReader) -> Iterator[tuple[float, str, str | None, int | None, str | None, str | None]]:
    kinds = ", ".join(f"'{kind}'" for kind in _KINDS)
    with reader.connect() as connection:
        yield from connection.execute(
            "SELECT at, kind, trial_id, attempt, CASE kind WHEN 'Exited' THEN json_array(json_extract(data,"
            " '$.exit.kind'), substr(json_extract(data, '$.exit.error'), 1, 300)) WHEN 'Waiting' THEN"
            " json_quote(json_extract(data, '$.reason')) END,"
            f" commands FROM events WHERE kind IN ({kinds}) OR (commands IS NOT NULL AND commands LIKE '%[\"Start\",%')"
            " ORDER BY seq"
        )


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"the record holds an event that cannot be read: {error}.") from error


def _happened(one: Attempt, kind: str, at: float, data: str | None, commands: str | None) -> None:
    if kind == "Started":
        one.started = at
    elif kind == "Released":
        one.released = at
        one.ended = at if one.ended is None else one.ended
    elif kind == "Exited":
        one.ended = at
        word, error = _json(data or "[null, null]")
        one.is_failure = word not in ("FINISHED", "STOPPED", "NEEDS_MORE")
        one.outcome = f"{word}: {error}" if error else str(word or "")
        hooks = {row[1] for row in _rows(commands) if row[:1] == ["Notify"]}
        one.after = "waiting"
        if "trial_pause" in hooks:
            one.after = "paused"
        elif hooks & {"trial_complete", "trial_error"}:
            one.after = "ended"


def _rows(commands: str | None) -> list[list[Any]]:
    rows = _json(commands) if commands else []
    return [row for row in rows if isinstance(row, list) and row] if isinstance(rows, list) else []


def _starts(commands: str | None) -> Iterator[tuple[str, int, Any]]:
    if commands is None or '"Start"' not in commands:
        return
    for row in _rows(commands):
        if row[0] == "Start" and len(row) >= 4:
            yield row[1], row[2], row[3]


def _places(placement: Any) -> tuple[str, ...]:
    """Return the devices of a placement; the nodes of bundles without any."""
    if not placement:
        return ("?",)
    found: dict[str, None] = {}
    for bundle in Placement.from_json(placement).bundles:
        names = [name_device(bundle.node, device) for device, _ in bundle.devices]
        found.update(dict.fromkeys(names or [f"CPUs of {bundle.node}" if bundle.node != "local" else "CPUs"]))
    devices = [name for name in found if not name.startswith("CPUs")]
    return tuple(devices or found)


def _cause(kind: str, number: int | None, name: str, trial_id: str | None) -> str:
    if kind in ("Released", "Exited") and number is not None and name != trial_id:
        return f"until trial {number:05d} gave back what it held"
    if kind == "ClaimsChanged":
        return "until another sweep of the machine gave something back"
    return "until there were more resources" if kind == "NodesChanged" else ""


def spans_of(
    created: dict[int, float], attempts: Sequence[Attempt], rows: Sequence[TrialRow], now: float
) -> Iterator[Span]:
    """Give the stretches of some trials, each trial's in order.

    Args:
        now: where what still goes on ends.
    """
    of: dict[int, list[Attempt]] = {}
    for one in attempts:
        of.setdefault(one.number, []).append(one)
    for row in rows:
        before, kind = created.get(row.number), "waiting"
        for one in of.get(row.number, ()):
            if before is not None and one.granted > before:
                yield Span(row.number, kind, before, one.granted, one.cause if kind == "waiting" else "")
            for kind, begin, end, text in one.phases(now):
                yield Span(row.number, kind, begin, end, text)
            before = one.ended if one.after in ("waiting", "paused", "lost") else None
            kind = "paused" if one.after == "paused" else "waiting"
        if before is not None and (not row.is_ended or row.number not in of):  # it was ended before it began
            yield Span(row.number, "paused" if row.status == "PAUSED" else kind, before, now, row.reason)
