"""`sweep ls`, `trials`, `best`, `show` and `why`: look at sweeps that run, have ended or have crashed."""

from __future__ import annotations

import re
import shlex
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from sweep.callbacks.formats import clean, duration, pairs, text, to_yaml
from sweep.cli.ranges import parse_literal
from sweep.cli.tables import format_option, json_text, print_rows
from sweep.core.results import AUTO_FILLED, flatten
from sweep.errors import ConfigError, nearest
from sweep.store.layout import rank_outputs
from sweep.store.reader import ExperimentReader, Timeline, TrialRow, find_experiment, list_experiments

__all__ = ["best", "ls", "show", "storage_option", "trials", "why"]

storage_option = click.option(
    "--storage", metavar="DIRECTORY", help="Where sweeps lie.  [default: $SWEEP_STORAGE or ./sweep_results]"
)


@click.command(short_help="List the sweeps.")
@storage_option
@format_option
def ls(storage: str | None, style: str) -> None:
    """List the sweeps, oldest first: how many trials in which state, and the best report.

    \b
    Examples:
      sweep ls
      sweep ls --storage /data/sweeps --format json
    """
    rows: list[dict[str, Any]] = []
    for path in list_experiments(storage):
        reader = ExperimentReader(path)
        snapshot = reader.snapshot()
        counts = Counter(trial.status for trial in snapshot.trials)
        found = _best_rows(reader, "all")[:1] if reader.metric and reader.mode else []
        rows.append(
            {
                "name": path.name,
                "created": _stamp(snapshot.meta.get("created")),
                "trials": len(snapshot.trials),
                "running": counts["RUNNING"],
                "waiting": counts["PENDING"] + counts["PAUSED"],
                "done": counts["TERMINATED"],
                "failed": counts["ERROR"],
                "metric": reader.metric,
                "best": found[0][1] if found else None,
                "_created": snapshot.meta.get("created") or 0.0,
            }
        )
    rows.sort(key=lambda row: (row["_created"], row["name"]))
    columns = ["name", "created", "trials", "running", "waiting", "done", "failed", "metric", "best"]
    print_rows(rows, columns, style, empty="no sweeps here; --storage or SWEEP_STORAGE names another place")


@click.command(short_help="List the trials of a sweep.")
@click.argument("name")
@click.option("--sort", metavar="COLUMN", help="Sort by a column, -COLUMN downwards; missing values come last.")
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="'COLUMN OP VALUE'",
    help="Only trials for which this holds; OP is <, <=, =, !=, >= or >. May be given again.",
)
@click.option("--columns", metavar="A,B,...", help="Which columns, in this order.")
@click.option("--limit", type=click.IntRange(min=0), help="At most so many trials.")
@storage_option
@format_option
def trials(
    name: str,
    sort: str | None,
    filters: Sequence[str],
    columns: str | None,
    limit: int | None,
    storage: str | None,
    style: str,
) -> None:
    """List the trials of a sweep with their last report. NAME is a sweep, or the path of one.

    Columns are trial, state, step, time_s, attempt, reason, the metrics by their names, and the parameters by theirs
    (config/lr where a metric is called lr too).

    \b
    Examples:
      sweep trials digits --sort loss --limit 20
      sweep trials digits --filter 'lr<0.01' --filter 'state=TERMINATED' --columns trial,loss,lr
      sweep trials digits --format csv > trials.csv
    """
    reader = find_experiment(name, storage)
    rows, known = _trial_rows(reader)
    for condition in filters:
        column, holds = _condition(condition, known)
        rows = [row for row in rows if holds(row.get(column))]
    if sort is not None:
        rows = _sorted(rows, _column(sort.removeprefix("-"), known), downwards=sort.startswith("-"))
    if limit is not None:
        rows = rows[:limit]
    shown = [_column(part.strip(), known) for part in columns.split(",")] if columns else list(known)
    if not columns and style == "table":
        shown = [column for column in shown if _is_telling(column, rows)]
    print_rows(rows, shown, style, empty=f"{reader.name} has no such trials" if filters else "no trials yet")


@click.command(short_help="Print the best configuration.")
@click.argument("name")
@click.option("--top", type=click.IntRange(min=1), default=1, show_default=True, help="How many, best first.")
@click.option("--as", "form", type=click.Choice(["args", "yaml", "json"]), help="Print only the configs, to paste.")
@click.option(
    "--scope",
    type=click.Choice(["all", "last", "avg", "last-5-avg", "last-10-avg"]),
    default="all",
    show_default=True,
    help="What of a trial counts: its best report (all), its last, or the mean of all, the last 5 or the last 10.",
)
@click.option("--metric", help="Another metric than the sweep's own.")
@click.option("--goal", type=click.Choice(["minimize", "maximize"]), help="Which way --metric is better.")
@storage_option
@format_option
def best(
    name: str,
    top: int,
    form: str | None,
    scope: str,
    metric: str | None,
    goal: str | None,
    storage: str | None,
    style: str,
) -> None:
    """Print the best trials of a sweep and their configurations.

    \b
    Examples:
      sweep best digits
      sweep best digits --top 5 --format json
      sweep best digits --as args      # lr=0.00031 act=gelu
      sweep best digits --as yaml > best.yaml
    """
    reader = find_experiment(name, storage)
    mode = None if goal is None else {"minimize": "min", "maximize": "max"}[goal]
    found = _best_rows(reader, scope, metric, mode)[:top]
    metric = metric or reader.metric
    if not found:
        raise ConfigError(f"no trial of {reader.name} has a usable number under {metric!r}. " + _reported(reader))
    if form is not None:
        _print_configs([trial.config for trial, _ in found], form)
        return
    rows = [
        {"trial": f"{trial.number:05d}", "state": trial.status, str(metric): value, **flatten(trial.config)}
        for trial, value in found
    ]
    if style != "table" or top > 1:
        print_rows(rows, list(dict.fromkeys(column for row in rows for column in row)), style)
        return
    trial, value = found[0]
    words = {"all": "best report", "last": "last report"}.get(scope, scope)
    click.echo(f"{clean(metric)} {text(value)}   trial {trial.number:05d}   ({words}; state {trial.status})")
    click.echo(to_yaml(trial.config), nl=False)


@click.command(short_help="Show everything about one trial.")
@click.argument("name")
@click.argument("trial")
@click.option(
    "--format",
    "-f",
    "style",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="How it is printed.",
)
@storage_option
def show(name: str, trial: str, style: str, storage: str | None) -> None:
    """Show everything about one trial: config, state and why, times, reports, checkpoints, error. TRIAL is its number
    or its id.

    \b
    Examples:
      sweep show digits 17
      sweep show digits 00017 --format json
    """
    reader = find_experiment(name, storage)
    row = reader.trial(trial)
    facts = _facts(reader, row)
    if style == "json":
        click.echo(json_text(facts))
        return
    for key, value in facts.items():
        if key in ("last_report", "best_report") and value:
            value = {
                k: v for k, v in value.items() if k not in AUTO_FILLED or k in ("training_iteration", "time_total_s")
            }
        if value in (None, "", [], {}):
            continue
        if key == "traceback":
            click.echo("traceback:")
            for line in str(value).splitlines():
                click.echo(f"  {clean_line(line)}")
        elif isinstance(value, dict):
            click.echo(f"{key}:")
            click.echo(to_yaml(value, 2), nl=False)
        elif isinstance(value, list):
            click.echo(f"{key}:")
            for item in value:
                click.echo(f"  {clean(item)}")
        else:
            click.echo(f"{key}: {clean(value)}")


@click.command(short_help="Say why trials wait or have ended.")
@click.argument("name")
@click.argument("trial", required=False)
@storage_option
@format_option
def why(name: str, trial: str | None, storage: str | None, style: str) -> None:
    """Say why each trial waits or has ended, and who holds the devices. With TRIAL only that one.

    \b
    Examples:
      sweep why digits
      sweep why digits 17
      sweep why digits --format json
    """
    reader = find_experiment(name, storage)
    chosen = list(reader.trials()) if trial is None else [reader.trial(trial)]
    rows = []
    for row in chosen:
        if row.placement is not None and not row.is_ended:
            reason = row.reason or f"holds {_holding(row)}"
        else:
            reason = row.reason or {
                "PENDING": "waits for its turn",
                "PAUSED": "paused",
                "RUNNING": "runs",
                "TERMINATED": "finished by itself",
                "ERROR": "failed",
            }.get(row.status, "")
        rows.append(
            {"trial": f"{row.number:05d}", "state": row.status, "asks": str(row.resources), "reason": clean(reason)}
        )
    print_rows(rows, ["trial", "state", "asks", "reason"], style, empty=f"{reader.name} has no trials yet")
    if style == "table":
        holders = _holders(reader.trials())
        if holders and any(row.status in ("PENDING", "PAUSED") for row in chosen):
            click.echo("")
            for device, numbers in holders.items():
                click.echo(f"{clean(device)} held by {', '.join(numbers)}")


# --- rows ---


def _trial_rows(reader: ExperimentReader) -> tuple[list[dict[str, Any]], list[str]]:
    """Return one row per trial and the columns there are, in order."""
    snapshot = reader.snapshot()
    metrics: dict[str, None] = {}
    params: dict[str, None] = {}
    found = []
    for trial in snapshot.trials:
        values = {k: v for k, v in flatten(trial.last_metrics or {}).items() if k not in AUTO_FILLED}
        config = flatten(trial.config)
        metrics.update(dict.fromkeys(values))
        params.update(dict.fromkeys(config))
        found.append((trial, values, config))
    fixed = ["trial", "state", "step", "time_s", "attempt", "reason", "trial_id"]
    names = {key: (f"config/{key}" if key in metrics or key in fixed else key) for key in params}
    shown = {key: (f"metric/{key}" if key in fixed else key) for key in metrics}
    rows = []
    for trial, values, config in found:
        last = trial.last_metrics or {}
        row: dict[str, Any] = {
            "trial": f"{trial.number:05d}",
            "state": trial.status,
            "step": last.get("training_iteration"),
            "time_s": last.get("time_total_s"),
            "attempt": trial.attempt,
            "reason": trial.reason,
            "trial_id": trial.trial_id,
        }
        row |= {shown[key]: value for key, value in values.items()}
        row |= {names[key]: value for key, value in config.items()}
        rows.append(row)
    main = reader.metric
    ordered = sorted(shown.values(), key=lambda column: column != main)
    return rows, ["trial", "state", "step", *ordered, *names.values(), "time_s", "attempt", "reason", "trial_id"]


def _is_telling(column: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a column says something that its neighbours do not, so that a table shows it unasked."""
    if column == "trial_id":
        return False
    if column == "attempt":
        return any((row.get(column) or 0) > 1 for row in rows)
    return any(row.get(column) not in (None, "") for row in rows)


def _column(name: str, known: Sequence[str]) -> str:
    aliases = {"id": "trial_id", "number": "trial", "training_iteration": "step", "time_total_s": "time_s"}
    for candidate in (name, name.removeprefix("config/"), f"config/{name}", aliases.get(name, name)):
        if candidate in known:
            return candidate
    raise ConfigError(f"there is no column {name!r}. {nearest(name, known)}")


_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "!=": lambda a, b: a != b,
    "==": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "=": lambda a, b: a == b,
}


def _condition(condition: str, known: Sequence[str]) -> tuple[str, Callable[[Any], bool]]:
    match = re.fullmatch(r"\s*(.+?)\s*(<=|>=|!=|==|<|>|=)\s*(.*?)\s*", condition)
    if match is None:
        raise ConfigError(f"--filter {condition!r} is no condition; expected COLUMN OP VALUE, such as lr<0.01.")
    column, compare = _column(match[1], known), _OPERATORS[match[2]]
    wanted: Any = (
        match[3].strip("'\"") if column in ("trial", "state", "reason", "trial_id") else parse_literal(match[3])
    )
    is_order = match[2] in ("<", "<=", ">", ">=")

    def holds(value: Any) -> bool:
        if column == "trial" and str(wanted).isdigit():
            return compare(int(value), int(wanted))
        if value is None or wanted is None:
            return not is_order and compare(value, wanted)
        is_number = isinstance(value, (int, float)) and isinstance(wanted, (int, float))
        if is_order and not is_number and not (isinstance(value, str) and isinstance(wanted, str)):
            return False
        return compare(value, wanted) if is_number else compare(text(value), text(wanted))

    return column, holds


def _sorted(rows: list[dict[str, Any]], column: str, *, downwards: bool) -> list[dict[str, Any]]:
    def is_missing(row: Mapping[str, Any]) -> bool:
        value = row.get(column)
        return value is None or value != value or value == ""

    present = [row for row in rows if not is_missing(row)]
    has_text = any(not isinstance(row[column], (int, float)) for row in present)
    present.sort(key=lambda row: str(row[column]) if has_text else row[column], reverse=downwards)
    return present + [row for row in rows if is_missing(row)]


def _best_rows(
    reader: ExperimentReader, scope: str, metric: str | None = None, mode: str | None = None
) -> list[tuple[TrialRow, float]]:
    from sweep.store.analysis import ExperimentAnalysis

    return ExperimentAnalysis(reader.root).ranking(metric, mode, scope)


def _reported(reader: ExperimentReader) -> str:
    names = reader.metric_names()
    return f"Reported were: {', '.join(map(clean, names))}." if names else "Nothing was reported yet."


def _print_configs(configs: Sequence[Mapping[str, Any]], form: str) -> None:
    if form == "json":
        click.echo(json_text(configs[0] if len(configs) == 1 else list(configs)))
    elif form == "yaml":
        for index, config in enumerate(configs):
            click.echo(("---\n" if index else "") + (to_yaml(config) or "{}\n"), nl=False)
    else:
        for config in configs:
            click.echo(
                shlex.join(f"{name.replace('/', '.')}={_argument(value)}" for name, value in flatten(config).items())
            )


def _argument(value: Any) -> str:
    """Return a value as the grammar of ranges reads it back."""
    if isinstance(value, str):
        is_plain = parse_literal(value) == value and not set(value) & set(",()[]{}'\"") and value == value.strip()
        quote = '"' if "'" in value else "'"
        return value if is_plain and value else f"{quote}{value}{quote}"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else repr(value) if isinstance(value, (int, float)) else json_text(value)


def _facts(reader: ExperimentReader, row: TrialRow) -> dict[str, Any]:
    timeline = reader.timelines(row.trial_id).get(row.trial_id, Timeline())
    ended = reader.last_exit(row.trial_id)
    best_seq = row.best_seq
    best = None if best_seq is None else reader.metrics_at({row.trial_id: best_seq}).get(row.trial_id)
    until = timeline.exited if row.is_ended else time.time()
    return {
        "trial": row.trial_id,
        "state": row.status,
        "reason": row.reason,
        "config": row.config,
        "asks": str(row.resources),
        "holds": "" if row.is_ended or row.placement is None else _holding(row),
        "attempts": row.attempt,
        "failures": row.failures,
        "created": _stamp(timeline.created),
        "started": _stamp(timeline.started),
        "ended": _stamp(timeline.exited) if row.is_ended else None,
        "took": None if timeline.started is None or until is None else duration(until - timeline.started),
        "peak_memory_mb": round(timeline.peak_rss_bytes / 1e6, 1) or None,
        "reports": row.count,
        "last_report": row.last_metrics,
        "best_report": best,
        "checkpoints": [
            f"{ref.path}   {pairs({k: v for k, v in flatten(metrics).items() if k not in AUTO_FILLED})}"
            for ref, metrics in reader.checkpoints(row.trial_id)
        ],
        "error": ended.get("error") if row.status == "ERROR" else None,
        "traceback": ended.get("traceback") if row.status == "ERROR" else None,
        "output": _output(reader, row.trial_id),
    }


def clean_line(line: str) -> str:
    """Return `line` without control characters, its indentation kept."""
    body = line.lstrip(" ")
    return " " * (len(line) - len(body)) + clean(body)


def _holding(row: TrialRow) -> str:
    if row.placement is None:
        return "nothing"
    devices = ", ".join(row.placement.devices)
    return f"{row.resources}" + (f" on {devices}" if devices else "")


def _holders(rows: Sequence[TrialRow]) -> dict[str, list[str]]:
    """Return who holds what: by device, and the CPUs together."""
    held: dict[str, list[str]] = {}
    for row in rows:
        if row.placement is None or row.is_ended:
            continue
        cpu = row.resources.total.cpu
        if cpu:
            held.setdefault("CPUs", []).append(f"{row.number:05d} ({cpu:g})")
        for bundle in row.placement.bundles:
            for device, share in bundle.devices:
                part = "" if share == 1 else f" ({share:g})"
                held.setdefault(device, []).append(f"{row.number:05d}{part}")
    return held


def _stamp(wall: Any) -> str | None:
    if not isinstance(wall, (int, float)):
        return None
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wall))


def _output(reader: ExperimentReader, trial_id: str) -> str | list[str]:
    """Return where a trial's output is: one file, or one for each rank of a group."""
    path = reader.layout.output(trial_id)
    return str(path) if path.exists() else rank_outputs(str(path.parent)) or str(path)
