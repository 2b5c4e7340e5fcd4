"""`sweep ls`, `trials`, `best`, `show` and `why`: look at sweeps that run, have ended or have crashed."""

from __future__ import annotations

import math
import shlex
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from sweep.cli.ranges import parse_literal
from sweep.cli.tables import (
    ListCommand,
    Selection,
    Table,
    format_option,
    is_filled,
    json_text,
    print_rows,
    print_table,
    selection_options,
)
from sweep.core.ranking import shown_objectives
from sweep.core.resources import name_device
from sweep.core.results import AUTO_FILLED, flatten
from sweep.core.values import printed, sound_text
from sweep.display.formats import clean, duration, pairs, text, to_yaml
from sweep.errors import ConfigError, ExperimentError, NoExperimentError
from sweep.record.filled import MOST_SECONDS
from sweep.record.layout import ExperimentLayout, rank_outputs, split_uri
from sweep.record.reader import (
    ExperimentReader,
    Timeline,
    TrialRow,
    find_experiment,
    list_experiments,
    what_is_there,
)
from sweep.record.remote import has_experiment
from sweep.record.storage import parse_storage
from sweep.results.analysis import ExperimentAnalysis
from sweep.results.winners import Best, best_by_last, better_earlier, objectives_front

__all__ = ["NOTES", "best", "ls", "read_notes", "show", "storage_option", "trials", "why"]

NOTES = "notes.md"

storage_option = click.option(
    "--storage", metavar="DIRECTORY", help="Where sweeps lie.  [default: $SWEEP_STORAGE or ./sweep_results]"
)


@click.command(cls=ListCommand, short_help="List the sweeps, or the trials of one.")
@click.argument("where", required=False, metavar="[DIRECTORY|NAME]")
@selection_options
@storage_option
def ls(where: str | None, chosen: Selection, storage: str | None) -> None:
    """List the sweeps, oldest first: how each stands, how many trials in which state, and the best of their last
    reports; of several objectives the Pareto set.

    DIRECTORY is another place than the usual one. When it is a sweep's own directory, or the NAME of a sweep, its
    trials are listed instead, as `sweep trials` does.

    \b
    Examples:
      sweep ls
      sweep ls /data/sweeps --sort best --limit 5
      sweep ls digits --sort loss --columns trial,loss,lr
      sweep ls --filter 'state=crashed' --format json
    """
    if where is not None:
        found = _meant(where, storage)
        if isinstance(found, ExperimentReader):
            _list_trials(found, chosen)
            return
        storage = str(found)
    rows, problems = _experiment_rows(storage)
    root = parse_storage(storage).describe("").rstrip("/")
    table = Table(
        rows,
        ["name", "state", "created", "trials", "running", "waiting", "done", "failed", "metric", "best"],
        more=["updated", "path"],
        aliases={"total_trials": "trials", "last_updated": "updated", "status": "state", "logdir": "path"},
        texts=frozenset({"name", "state", "created", "updated", "path"}),
    )
    nothing = f"no sweeps in {root}; --storage or SWEEP_STORAGE names another place"
    print_table(table, chosen, empty=f"no such sweeps in {root}" if rows else nothing)
    for problem in problems:
        click.echo(f"error: {clean(problem)}", err=True)


@click.command(cls=ListCommand, short_help="List the trials of a sweep.")
@click.argument("name")
@selection_options
@storage_option
def trials(name: str, chosen: Selection, storage: str | None) -> None:
    """List the trials of a sweep with their last report. NAME is a sweep, or the path of one.

    Columns are trial, state, step, time_s, attempt, reason, the metrics by their names, and the parameters by theirs
    (config/lr where a metric is called lr too). On demand there are also name, experiment_tag, trainable_name, date,
    timestamp, time_this_iter_s, pid, hostname, failures and logdir.

    \b
    Examples:
      sweep trials digits --sort loss --limit 20
      sweep trials digits --filter 'lr<0.01' --filter 'state=TERMINATED' --columns trial,loss,lr
      sweep trials digits --format csv > trials.csv
      sweep trials digits --output trials.parquet
    """
    _list_trials(find_experiment(name, storage), chosen)


def _list_trials(reader: ExperimentReader, chosen: Selection) -> None:
    table = _trial_table(reader)
    print_table(table, chosen, empty=f"{reader.name} has no such trials" if table.rows else "no trials yet")
    hint = reader.state_hint()
    if hint and chosen.style == "table":
        click.echo(hint, err=True)


def _meant(where: str, storage: str | None) -> ExperimentReader | Path | str:
    """Return the sweep that `where` names, or the directory of sweeps that it is."""
    if "://" in where:
        parent, name = split_uri(where)
        is_name = bool(name) and has_experiment(parse_storage(parent), name)
        return find_experiment(where, storage) if is_name else where
    path = Path(where).expanduser().absolute()
    is_name = ExperimentLayout(parse_storage(storage).local_root / where).database.is_file()
    if is_name or not path.is_dir() or ExperimentLayout(path).database.is_file():
        return find_experiment(where, storage)
    if not list_experiments(path):
        raise NoExperimentError(what_is_there(path))
    return path


@click.command(short_help="Print the best configuration.")
@click.argument("name")
@click.option(
    "--top", type=click.IntRange(min=1), help="How many, best first.  [default: 1; of several objectives all]"
)
@click.option("--as", "form", type=click.Choice(["args", "yaml", "json"]), help="Print only the configs, to paste.")
@click.option(
    "--scope",
    type=click.Choice(["last", "all", "avg", "last-5-avg", "last-10-avg"]),
    default="last",
    show_default=True,
    help="What of a trial counts: its last report, its best (all), or the mean of all, the last 5 or the last 10.",
)
@click.option("--metric", help="Another metric than the sweep's own.")
@click.option("--goal", type=click.Choice(["minimize", "maximize"]), help="Which way --metric is better.")
@storage_option
@format_option
def best(
    name: str,
    top: int | None,
    form: str | None,
    scope: str,
    metric: str | None,
    goal: str | None,
    storage: str | None,
    style: str,
) -> None:
    """Print the best trials of a sweep, by their last reports, and their configurations. Where a report had been better
    at an earlier step, a line says so. A sweep of several objectives has a Pareto set: the trials that no other beats.

    \b
    Examples:
      sweep best digits
      sweep best digits --top 5 --format json
      sweep best digits --scope all    # by any report, not only the last ones
      sweep best digits --as args      # lr=0.00031 act=gelu
      sweep best digits --as yaml > best.yaml
    """
    reader = find_experiment(name, storage)
    mode = None if goal is None else {"minimize": "min", "maximize": "max"}[goal]
    if reader.objectives and metric is None:
        if scope != "last" or goal is not None:
            wanted = f"--scope {scope}" if scope != "last" else f"--goal {goal}"
            raise ConfigError(
                f"{wanted} is for one metric, and {reader.name} has several objectives, "
                f"{shown_objectives(reader.objectives)}. Name one with --metric, or leave {wanted.split()[0]} out."
            )
        _print_front(reader, top, form, style)
        return
    analysis = ExperimentAnalysis(reader.root)
    metric, mode = analysis.chosen_metric(metric, mode)
    found = analysis.ranking(metric, mode, scope)[: top or 1]
    earlier = better_earlier(reader, metric, mode) if scope == "last" else None
    if not found:
        where = " in its last report" if earlier is not None else ""
        more = _earlier_text(earlier, "Earlier") if earlier is not None else _reported(reader)
        raise ConfigError(f"no trial of {reader.name} has a usable number under {metric!r}{where}. {more}")
    if form is not None:
        _print_configs([trial.config for trial, _ in found], form)
        return
    rows = [
        {"trial": f"{trial.number:05d}", "state": trial.status, str(metric): value, **flatten(trial.config)}
        for trial, value in found
    ]
    if style != "table" or (top or 1) > 1:
        print_rows(rows, list(dict.fromkeys(column for row in rows for column in row)), style)
        if earlier is not None and style == "table":
            click.echo(_earlier_text(earlier, "better earlier"), err=True)
        return
    trial, value = found[0]
    words = {"all": "best report", "last": "last report"}.get(scope, scope)
    click.echo(f"{clean(metric)} {text(value)}   trial {trial.number:05d}   ({words}; state {trial.status})")
    if earlier is not None:
        click.echo(_earlier_text(earlier, "better earlier"))
    click.echo(to_yaml(trial.config), nl=False)


def _print_front(reader: ExperimentReader, top: int | None, form: str | None, style: str) -> None:
    """Print the trials that no other beats in every objective, or their configs."""
    found = objectives_front(reader)
    if not found:
        names = ", ".join(repr(metric) for metric, mode in reader.objectives if mode != "obs")
        raise ConfigError(f"no trial of {reader.name} has usable numbers under {names}. {_reported(reader)}")
    shown = found[:top]
    if form is not None:
        _print_configs([trial.config for trial, _ in shown], form)
        return
    rows = [
        {"trial": f"{trial.number:05d}", "state": trial.status, **values, **flatten(trial.config)}
        for trial, values in shown
    ]
    if style == "table":
        click.echo(f"Pareto set by {clean(shown_objectives(reader.objectives))}: {_trials(len(found))}")
    print_rows(rows, list(dict.fromkeys(column for row in rows for column in row)), style)


def _trials(count: int) -> str:
    return f"{count} trial{'' if count == 1 else 's'}"


@click.command(short_help="Show everything about a sweep or one trial.")
@click.argument("name")
@click.argument("trial", required=False)
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
def show(name: str, trial: str | None, style: str, storage: str | None) -> None:
    """Show everything about one trial: config, state and why, times, reports, checkpoints, error. TRIAL is its number
    or its id. Without TRIAL: how the sweep as a whole stands, and what was noted about it (`sweep note`).

    \b
    Examples:
      sweep show digits
      sweep show digits 17
      sweep show digits 00017 --format json
    """
    reader = find_experiment(name, storage)
    facts = _sweep_facts(reader) if trial is None else _facts(reader, reader.trial(trial))
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
        if key == "traceback" or key.startswith("notes"):
            click.echo(f"{key}:")
            for line in str(value).splitlines():
                click.echo(f"  {clean_line(line)}".rstrip())
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
    damage = reader.damage()
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
        if row.trial_id in damage and damage[row.trial_id] not in reason:
            reason += f" (an earlier start failed: {damage[row.trial_id]})"
        rows.append(
            {
                "trial": f"{row.number:05d}",
                "state": row.status,
                "failure": row.failure,
                "asks": str(row.resources),
                "reason": clean(reason),
            }
        )
    failure = ["failure"] if style != "table" or any(row["failure"] for row in rows) else []
    print_rows(rows, ["trial", "state", *failure, "asks", "reason"], style, empty=f"{reader.name} has no trials yet")
    hint = reader.state_hint()
    if hint and style == "table":
        click.echo(hint, err=True)
    if style == "table":
        holders = _holders(reader.trials())
        if holders and any(row.status in ("PENDING", "PAUSED") for row in chosen):
            click.echo("")
            for device, numbers in holders.items():
                click.echo(f"{clean(device)} held by {', '.join(numbers)}")


# --- rows ---


def _experiment_rows(storage: str | None) -> tuple[list[dict[str, Any]], list[str]]:
    """Return one row per sweep, oldest first, and what is wrong with those that cannot be read."""
    rows: list[dict[str, Any]] = []
    problems = []
    for path in list_experiments(storage):
        try:
            rows.append(_experiment_row(path))
        except ExperimentError as error:
            problems.append(str(error))
            rows.append({"name": path.name, "state": "unreadable", "path": str(path), "_created": math.inf})
    rows.sort(key=lambda row: (row["_created"], row["name"]))
    return rows, problems


def _experiment_row(path: Path) -> dict[str, Any]:
    reader = ExperimentReader(path)
    snapshot = reader.snapshot()
    counts = Counter(trial.status for trial in snapshot.trials)
    with reader.connect() as connection:
        (updated,) = connection.execute("SELECT wall FROM event ORDER BY seq DESC LIMIT 1").fetchone() or (None,)
    return {
        "name": path.name,
        "state": reader.state(),
        "created": _stamp(snapshot.meta.get("created")),
        "trials": len(snapshot.trials),
        "running": counts["RUNNING"],
        "waiting": counts["PENDING"] + counts["PAUSED"],
        "done": counts["TERMINATED"],
        "failed": counts["ERROR"],
        "metric": ", ".join(metric for metric, _ in reader.objectives) or reader.metric,
        "best": _best_cell(reader),
        "updated": _stamp(updated),
        "path": str(path),
        "_created": snapshot.meta.get("created") or 0.0,
    }


_FIXED = ("trial", "state", "step", "time_s", "attempt", "failure", "reason", "trial_id")
_MORE = (
    *("name", "experiment_tag", "trainable_name", "date", "timestamp", "time_this_iter_s", "pid", "hostname"),
    *("failures", "logdir"),
)


def _trial_table(reader: ExperimentReader) -> Table:
    """Return one row per trial, ordered by number."""
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
    taken = {*_FIXED, *_MORE}
    names = {key: (f"config/{key}" if key in metrics or key in taken else key) for key in params}
    shown = {key: (f"metric/{key}" if key in taken else key) for key in metrics}
    rows = []
    for trial, values, config in found:
        row = _fixed_cells(reader, trial)
        row |= {shown[key]: value for key, value in values.items()}
        row |= {names[key]: value for key, value in config.items()}
        rows.append(row)
    main = reader.metric
    ordered = sorted(shown.values(), key=lambda column: column != main)
    is_named = any(trial.name for trial in snapshot.trials)
    head = ["trial", "name", "state", "step"] if is_named else ["trial", "state", "step"]
    return Table(
        rows,
        [*head, *ordered, *names.values(), "time_s", "attempt", "failure", "reason", "trial_id"],
        more=[column for column in _MORE if column not in head],
        aliases={
            "id": "trial_id",
            "number": "trial",
            "status": "state",
            "training_iteration": "step",
            "iter": "step",
            "time_total_s": "time_s",
            "trial_name": "name",
            "path": "logdir",
            "num_failures": "failures",
        },
        texts=frozenset(
            {
                "trial",
                "name",
                "state",
                "failure",
                "reason",
                "trial_id",
                "experiment_tag",
                "trainable_name",
                "logdir",
                "date",
            }
        ),
        silent=frozenset({"trial_id", "attempt", "failure"}),
        is_telling=_is_telling,
    )


def _fixed_cells(reader: ExperimentReader, trial: TrialRow) -> dict[str, Any]:
    last = trial.last_metrics or {}
    stamp = last.get("timestamp", trial.last_wall)
    return {
        "trial": f"{trial.number:05d}",
        "state": trial.status,
        "step": last.get("training_iteration"),
        "time_s": last.get("time_total_s"),
        "attempt": trial.attempt,
        "failure": trial.failure or None,
        "reason": trial.reason,
        "trial_id": trial.trial_id,
        "name": trial.trial_name,
        "experiment_tag": trial.experiment_tag,
        "trainable_name": trial.trainable_name,
        "date": _stamp(stamp),
        "timestamp": stamp,
        "time_this_iter_s": last.get("time_this_iter_s"),
        "pid": last.get("pid"),
        "hostname": last.get("hostname"),
        "failures": trial.failures,
        "logdir": str(reader.layout.trial(trial.trial_id)),
    }


def _is_telling(column: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a column says something that its neighbours do not, so that a table shows it unasked."""
    if column == "trial_id":
        return False
    if column == "attempt":
        return any((row.get(column) or 0) > 1 for row in rows)
    return is_filled(column, rows)


def _best_cell(reader: ExperimentReader) -> Any:
    """Return the best of the last reports; of several objectives how many are in the Pareto set, and their values."""
    if not reader.objectives:
        best = best_by_last(reader, reader.metric, reader.mode)
        return None if best is None else best.value
    front = objectives_front(reader)
    points = [f"({', '.join(map(text, values.values()))})" for _, values in front[:_SHOWN_OF_FRONT]]
    more = ["..."] if len(front) > len(points) else []
    return f"Pareto set of {len(front)}: {' '.join(points + more)}" if front else None


_SHOWN_OF_FRONT = 5


def _earlier_text(earlier: Best, lead: str) -> str:
    """Say what had been better at an earlier step, and how to get at it."""
    at = "" if earlier.step is None else f" at step {text(earlier.step)}"
    shown = f"{clean(earlier.metric)} {text(earlier.value)}   trial {earlier.row.number:05d}{at}"
    return f"{lead}: {shown}   (--scope all)"


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
                sound_text(
                    shlex.join(
                        f"{name.replace('/', '.')}={_argument(value)}" for name, value in flatten(config).items()
                    )
                )
            )


def _argument(value: Any) -> str:
    """Return a value as the grammar of ranges reads it back."""
    if isinstance(value, str):
        is_plain = parse_literal(value) == value and not set(value) & set(",()[]{}'\"") and value == value.strip()
        quote = '"' if "'" in value else "'"
        return value if is_plain and value else f"{quote}{value}{quote}"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else printed(value) if isinstance(value, (int, float)) else json_text(value)


def _facts(reader: ExperimentReader, row: TrialRow) -> dict[str, Any]:
    timeline = reader.timelines(row.trial_id).get(row.trial_id, Timeline())
    ended = reader.last_exit(row.trial_id)
    best_seq = row.best_seq
    best = None if best_seq is None else reader.metrics_at({row.trial_id: best_seq}).get(row.trial_id)
    if reader.objectives:
        best = None  # what is recorded is by the first of them
    hint = "" if row.is_ended else reader.state_hint()
    until = timeline.exited if row.is_ended else None if hint else time.time()
    return {
        "trial": row.trial_id,
        "state": row.status,
        "failure": row.failure,
        "reason": row.reason,
        "hint": hint,
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


def _sweep_facts(reader: ExperimentReader) -> dict[str, Any]:
    row = _experiment_row(reader.root)
    metric, mode, objectives = reader.metric, reader.mode, reader.objectives
    front = objectives_front(reader)
    best = None if objectives else best_by_last(reader, metric, mode)
    earlier = None if objectives else better_earlier(reader, metric, mode)
    facts: dict[str, Any] = {
        "sweep": reader.name,
        "state": row["state"],
        "hint": reader.state_hint(),
        "trainable": reader.trainable_name,
        "created": row["created"],
        "updated": row["updated"],
        "trials": {name: row[name] for name in ("trials", "running", "waiting", "done", "failed")},
        "metric": shown_objectives(objectives) or (f"{metric} ({mode})" if metric else None),
        "best": None if best is None else _shown_best(best, "last report"),
        "better_earlier": None if earlier is None else _shown_best(earlier, f"sweep best {reader.name} --scope all"),
        "best_config": None if best is None else best.row.config,
    }
    if objectives:
        shown = [f"{row.number:05d}   {pairs(values)}" for row, values in front[:_SHOWN_OF_FRONT]]
        more = [f"and {len(front) - len(shown)} more: sweep best {reader.name}"] if len(front) > len(shown) else []
        facts |= {"pareto_set": [*shown, *more]}
    facts["path"] = str(reader.root)
    return facts | {f"notes ({name})": text for name, text in read_notes(reader.root).items()}


def _shown_best(best: Best, how: str) -> str:
    at = "" if best.step is None else f" at step {text(best.step)}"
    return f"{best.value:.6g} (trial {best.row.number:05d}{at}; {how})"


def read_notes(root: Path) -> dict[str, str]:
    """Return what was written down about a sweep (`sweep note`), by file name: `notes.md` first."""
    files = [path for path in root.iterdir() if path.suffix in (".md", ".txt") and path.is_file()]
    mine = [path for path in files if not path.name.startswith((".", "pbt_"))]  # a scheduler's own log is no note
    ordered = sorted(mine, key=lambda path: (path.name != NOTES, path.name))
    found = {path.name: path.read_text(encoding="utf-8", errors="replace").strip() for path in ordered}
    return {name: text for name, text in found.items() if text}


def clean_line(line: str) -> str:
    """Return `line` without control characters, its indentation kept."""
    body = line.lstrip(" ")
    return " " * (len(line) - len(body)) + clean(body)


def _holding(row: TrialRow) -> str:
    if row.placement is None:
        return "nothing"
    devices = ", ".join(row.placement.device_names)
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
                held.setdefault(name_device(bundle.node, device), []).append(f"{row.number:05d}{part}")
    return held


def _stamp(wall: Any) -> str | None:
    if not isinstance(wall, (int, float)) or not abs(wall) < MOST_SECONDS:
        return None
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wall))


def _output(reader: ExperimentReader, trial_id: str) -> str | list[str]:
    """Return where a trial's output is: one file, or one for each rank of a group."""
    path = reader.layout.output(trial_id)
    return str(path) if path.exists() else rank_outputs(str(path.parent)) or str(path)
