"""`sweep show` and `why`: everything about a sweep or a trial, and why trials wait or have ended."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from typing import Any

import click

from sweep.cli.inspect import COUNTS, MAX_FRONT, experiment_row
from sweep.cli.notes import read_notes
from sweep.cli.options import name_argument, trial_argument, where_option
from sweep.cli.tables import emit, format_option, print_rows
from sweep.core.history import Attempt
from sweep.core.literals import json_text
from sweep.core.messages import ExitKind
from sweep.core.packing import Packer
from sweep.core.ranking import shown_objectives
from sweep.core.resources import name_device
from sweep.core.results import flatten, own_metrics, without_index
from sweep.display.formats import aligned, at_step, clean, duration, moment, pairs, text, to_yaml
from sweep.figures.attempts import nodes_of, outcome
from sweep.record.layout import rank_outputs
from sweep.record.reader import ExperimentReader
from sweep.record.resume import read_trials
from sweep.record.rows import TrialRow, trainable_name
from sweep.results.winners import Best, best_by_last, better_earlier, objectives_front
from sweep.schedulers.elastic import ElasticGroups
from sweep.schedulers.fifo import FIFOScheduler


@click.command(short_help="Show everything about a sweep or one trial.")
@name_argument
@trial_argument(required=False)
@format_option("json")
@where_option
def show(reader: ExperimentReader, trial: str | None, style: str) -> None:
    """Show everything about one trial: config, state and why, times, reports, checkpoints, error. TRIAL is its number
    or its id. Without TRIAL: how the sweep as a whole stands, and what was noted about it (`sweep note`).

    \b
    Examples:
      sweep show digits
      sweep show digits 17
      sweep show digits 00017 --json
    """
    facts = _sweep_facts(reader) if trial is None else _trial_facts(reader, reader.trial(trial))
    if style == "json":
        emit(json_text(facts) + "\n")
        return
    for key, value in facts.items():
        if key in ("last_report", "best_report") and value:
            value = own_metrics(value, "training_iteration", "time_total_s")
        if value in (None, "", [], {}) or key == "status":
            continue
        if isinstance(value, dict):
            body = to_yaml(value, 2).rstrip("\n")
        elif isinstance(value, list) and isinstance(value[0], dict):
            lines = aligned([[*value[0]], *([text(cell) for cell in row.values()] for row in value)])
            body = "\n".join(f"  {line}" for line in lines)
        elif isinstance(value, list):
            body = "\n".join(f"  {clean(item)}" for item in value)
        elif key == "traceback" or key.startswith("notes"):
            body = "\n".join(_indented(line) for line in str(value).splitlines())
        else:
            click.echo(f"{key}: {clean(value)}")
            continue
        click.echo(f"{key}:\n{body}")


@click.command(short_help="Say why trials wait or have ended.")
@name_argument
@trial_argument(required=False)
@where_option
@format_option("json", "csv")
def why(reader: ExperimentReader, trial: str | None, style: str) -> None:
    """Say why each trial waits or has ended, and who holds the devices. With TRIAL only that one.

    \b
    Examples:
      sweep why digits
      sweep why digits 17
      sweep why digits --json
    """
    chosen = list(reader.trials()) if trial is None else [reader.trial(trial)]
    exits = [(attempt.trial_id, attempt.exit) for attempt in reader.history().attempts if attempt.exit is not None]
    damage = {trial_id: ended.error for trial_id, ended in exits if ended.kind is ExitKind.DAMAGED}
    sizes = _sizes(reader)
    rows = [
        {
            "trial": f"{row.number:05d}",
            "state": row.state,
            "status": row.status,
            "failure": row.failure,
            "asks": str(row.resources),
            "reason": clean(_reason(row, damage.get(row.trial_id, "")) + sizes.get(row.trial_id, "")),
        }
        for row in chosen
    ]
    more = ["status", "failure"] if style != "table" else ["failure"] if any(row["failure"] for row in rows) else []
    print_rows(rows, ["trial", "state", *more, "asks", "reason"], style, empty=f"{reader.name} has no trials yet")
    if style != "table":
        return
    if hint := reader.state_hint():
        click.echo(hint, err=True)
    holders = _holders(reader.trials())
    if holders and any(row.status in ("PENDING", "PAUSED") for row in chosen):
        click.echo("")
        for device, numbers in holders.items():
            click.echo(f"{clean(device)} held by {', '.join(numbers)}")


def _reason(row: TrialRow, damage: str) -> str:
    reason = row.reason or (f"holds {held}" if (held := _holding(row)) else row.state)
    reason += f" (an earlier start failed: {damage})" if damage not in reason else ""
    if row.escalation is None or row.status == "ERROR":
        return reason
    whose = "another trial's fit() needed" if row.escalation.is_guess else "its fit() needs"
    return f"{reason} (asks for what {whose}; it was given {row.escalation.asked})"


def _sizes(reader: ExperimentReader) -> dict[str, str]:
    """Return of each trial whose group may have more or fewer workers what becomes of that."""
    if (facts := reader.meta.get("elastic")) is None:
        return {}
    groups = ElasticGroups(FIFOScheduler(), facts)
    groups.packer = Packer(reader.history().nodes)
    with reader.connect() as connection:
        trials = [one for one in read_trials(connection, reader.layout.database, trust=False) if not one.is_ended]
    for trial in trials:
        groups.on_trial_add(trial)
        if trial.placement is not None:
            groups.packer.hold(trial.resources, trial.placement, (trial.id, trial.attempt))
    return {trial.id: f"; {text}" for trial in trials if (text := groups.outlook(trial))}


def _holding(row: TrialRow) -> str:
    """Return what a trial holds; nothing for one that holds nothing."""
    if row.placement is None or row.is_ended:
        return ""
    devices = ", ".join(row.placement.device_names)
    return f"{row.resources}" + (f" on {devices}" if devices else "")


def _holders(rows: Sequence[TrialRow]) -> dict[str, list[str]]:
    """Return which trial holds what: by device, and the CPUs together."""
    held: dict[str, list[str]] = {}
    for row in rows:
        if row.placement is None or row.is_ended:
            continue
        if cpu := row.resources.total.cpu:
            held.setdefault("CPUs", []).append(f"{row.number:05d} ({cpu:g})")
        for bundle in row.placement.bundles:
            for device, share in bundle.devices:
                part = "" if share == 1 else f" ({share:g})"
                held.setdefault(name_device(bundle.node, device), []).append(f"{row.number:05d}{part}")
    return held


# --- facts ---


def _trial_facts(reader: ExperimentReader, row: TrialRow) -> dict[str, Any]:
    history, now = reader.history(), reader.driven_s()
    life = history.lives()[row.trial_id]
    ended = reader.last_exit(row.trial_id) if row.status == "ERROR" else None
    started, exited = (None if time is None else time.wall for time in (life.started, life.exited))
    best = None
    if row.best_seq is not None and not reader.objectives:  # of several, what is recorded is by the first of them
        best = reader.reports_at({row.trial_id: row.best_seq}).get(row.trial_id)
    hint = "" if row.is_ended else reader.state_hint()
    until = exited if row.is_ended else None if hint else time.time()
    return {
        "trial": row.trial_id,
        "state": row.state,
        "status": row.status,
        "failure": row.failure,
        "reason": row.reason,
        "hint": hint,
        "config": row.config,
        "asks": str(row.resources),
        "holds": _holding(row),
        "attempts": row.attempt,
        "each_attempt": [_attempt_facts(one, now) for one in history.attempts if one.trial_id == row.trial_id],
        "failures": row.failures,
        "node_losses": row.node_losses or None,
        "created": moment(life.created.wall),
        "started": moment(started),
        "ended": moment(exited) if row.is_ended else None,
        "took": None if started is None or until is None else duration(until - started),
        "peak_memory_mb": round(life.peak_rss_bytes / 1e6, 1) or None,
        "reports": row.count,
        "last_report": row.last_metrics,
        "best_report": best and best.metrics,
        "checkpoints": [
            f"{ref.path}   {pairs(flatten(own_metrics(metrics)))}" for ref, metrics in reader.checkpoints(row.trial_id)
        ],
        "error": ended and ended.error,
        "traceback": ended and ended.traceback,
        "output": _output(reader, row.trial_id),
    }


def _attempt_facts(attempt: Attempt, now: float) -> dict[str, Any]:
    end = now if attempt.exited is None else attempt.exited.at
    return {
        "attempt": attempt.number,
        "node": ", ".join(nodes_of(attempt)),
        "began": moment(attempt.granted.wall),
        "time_s": round(end - attempt.granted.at, 3),
        "ended": outcome(attempt),
    }


def _sweep_facts(reader: ExperimentReader) -> dict[str, Any]:
    row = experiment_row(reader.root)
    metric, mode, objectives = reader.metric, reader.mode, reader.objectives
    best = None if objectives else best_by_last(reader, metric, mode)
    earlier = None if objectives else better_earlier(reader, metric, mode)
    more = f"sweep best {shlex.quote(reader.name)}"
    front = [f"{trial.number:05d}   {pairs(values)}" for trial, values in objectives_front(reader)]
    return {
        "sweep": reader.name,
        "state": row["state"],
        "hint": reader.state_hint(),
        "trainable": trainable_name(reader.meta),
        "command": reader.meta.get("command"),
        "created": row["created"],
        "updated": row["updated"],
        "trials": {name.replace("_", " "): row[name] for name in ("trials", *COUNTS)},
        "metric": shown_objectives(objectives) or (f"{metric} ({mode})" if metric else None),
        "best": best and _shown_best(best, "last report"),
        "better_earlier": earlier and _shown_best(earlier, f"{more} --scope all"),
        "best_config": best and without_index(best.row.config),
        "pareto_set": front[:MAX_FRONT] + [f"and {len(front) - MAX_FRONT} more: {more}"] * (len(front) > MAX_FRONT),
        "path": str(reader.root),
        **{f"notes ({name})": text for name, text in read_notes(reader.root).items()},
    }


def _shown_best(best: Best, how: str) -> str:
    return f"{best.value:.6g} (trial {best.row.number:05d}{at_step(best.step)}; {how})"


def _output(reader: ExperimentReader, trial_id: str) -> str | list[str]:
    """Return where a trial's output is: one file, or one for each rank of a group or process of lanes."""
    path = reader.layout.output(trial_id)
    if path.exists():
        return str(path)
    return rank_outputs(str(path.parent)) or list(map(str, reader.layout.lane_outputs())) or str(path)


def _indented(line: str) -> str:
    """Return a line without control characters, further right, its own indentation kept."""
    body = line.lstrip(" ")
    return f"  {' ' * (len(line) - len(body))}{clean(body)}".rstrip()
