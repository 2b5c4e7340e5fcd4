"""`sweep ls` and `trials`: look at sweeps that run, have ended or have crashed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import click

from sweep.cli.options import complete_name, name_argument, storage_option, where_option
from sweep.cli.tables import ListCommand, Table, print_rows, print_table, selection_options
from sweep.core.results import flatten, own_metrics
from sweep.core.trial import STATES
from sweep.display.formats import clean, moment, text
from sweep.errors import ExperimentError, NoExperimentError
from sweep.figures.attempts import last_nodes
from sweep.page.nodes import node_rows
from sweep.record.reader import ExperimentReader, find_experiment, list_experiments
from sweep.record.rows import TrialRow
from sweep.results.winners import best_by_last, objectives_front
from sweep.storage.location import parse_storage

COUNTS = [state.replace(" ", "_") for state in STATES]  # columns
MAX_FRONT = 5  # trials of a Pareto set that are shown where it is not asked for


@click.command(cls=ListCommand, short_help="List the sweeps, or the trials of one.")
@click.argument("where", required=False, metavar="[DIRECTORY|NAME]", shell_complete=complete_name)
@selection_options
@storage_option()
def ls(where: str | None, storage: str | None, **chosen: Any) -> None:
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
        try:
            _list_trials(find_experiment(where, storage), chosen)
            return
        except NoExperimentError:
            if "://" not in where and not list_experiments(where):
                raise
        storage = where
    rows, problems = _experiment_rows(storage)
    root = str(parse_storage(storage)).rstrip("/")
    table = Table(
        rows,
        ["name", "state", "created", "trials", *COUNTS, "metric", "best"],
        more=["updated", "path"],
        telling=dict.fromkeys(("paused", "stopped_early"), bool),
    )
    nothing = f"no sweeps in {root}; --storage or SWEEP_STORAGE names another place"
    print_table(table, empty=f"no such sweeps in {root}" if rows else nothing, **chosen)
    for problem in problems:
        click.echo(f"error: {clean(problem)}", err=True)


@click.command(cls=ListCommand, short_help="List the trials of a sweep.")
@name_argument
@selection_options
@where_option
def trials(reader: ExperimentReader, **chosen: Any) -> None:
    """List the trials of a sweep with their last report. NAME is a sweep, or the path of one.

    Columns are trial, state, step, time_s, attempt, node (of its last attempt, if the sweep has had several), reason,
    the metrics by their names, and the parameters by theirs (config/lr where a metric is called lr too). On demand
    there are also name, experiment_tag, trainable_name, date, timestamp, time_this_iter_s, pid, hostname, failures and
    logdir.

    \b
    Examples:
      sweep trials digits --sort loss --limit 20
      sweep trials digits --filter 'lr<0.01' --filter 'state=finished' --columns trial,loss,lr
      sweep trials digits --format csv > trials.csv
      sweep trials digits --output trials.parquet
    """
    _list_trials(reader, chosen)


@click.command(cls=ListCommand, short_help="List the nodes that a sweep has had.")
@name_argument
@selection_options
@where_option
def nodes(reader: ExperimentReader, **chosen: Any) -> None:
    """List the nodes that a sweep has had: what each has, which trials hold what of it now, how many attempts it ran
    and lost, for how many seconds it was there, the share of them in which it ran nothing, when it came and left.

    \b
    Examples:
      sweep nodes digits
      sweep nodes digits --sort -idle_share
      sweep nodes digits --filter 'lost>0' --json
    """
    if not (rows := node_rows(reader)):
        print_rows(rows, (), chosen["style"], empty=f"{reader.name} has had no nodes")
        return
    telling = dict.fromkeys(("gpus", "tpus", "memory_gb", "running", "holds", "lost", "why_lost"), bool)
    print_table(Table(rows, list(rows[0]), telling=telling), empty=f"{reader.name} has had no such nodes", **chosen)


def _list_trials(reader: ExperimentReader, chosen: dict[str, Any]) -> None:
    table = trial_table(reader)
    print_table(table, empty=f"{reader.name} has no such trials" if table.rows else "no trials yet", **chosen)
    hint = reader.state_hint()
    if hint and chosen["style"] == "table":
        click.echo(hint, err=True)


# --- rows ---


def _experiment_rows(storage: str | None) -> tuple[list[dict[str, Any]], list[str]]:
    """Return one row per sweep, oldest first, and what is wrong with those that cannot be read."""
    rows: list[dict[str, Any]] = []
    problems = []
    for path in list_experiments(storage):
        try:
            rows.append(experiment_row(path))
        except ExperimentError as error:
            problems.append(str(error))
            rows.append({"name": path.name, "state": "unreadable", "path": str(path), "_created": math.inf})
    rows.sort(key=lambda row: (row["_created"], row["name"]))
    return rows, problems


def experiment_row(path: Path) -> dict[str, Any]:
    """Return how a sweep stands, by column of `sweep ls`."""
    reader = ExperimentReader(path)
    snapshot = reader.snapshot()
    counts = Counter(trial.state for trial in snapshot.trials)
    _, _, updated = reader.last_event() or (0, 0.0, None)
    return {
        "name": path.name,
        "state": reader.state(),
        "created": moment(snapshot.meta.get("created")),
        "trials": len(snapshot.trials),
        **{column: counts[state] for column, state in zip(COUNTS, STATES, strict=True)},
        "metric": ", ".join(metric for metric, _ in reader.objectives) or reader.metric,
        "best": _best_cell(reader),
        "updated": moment(updated),
        "path": str(path),
        "_created": snapshot.meta.get("created") or 0.0,
    }


def _wall(trial: TrialRow) -> Any:
    return _of_last("timestamp")(trial) or (None if trial.last_report is None else trial.last_report.wall)


def _of_last(name: str) -> Callable[[TrialRow], Any]:
    return lambda trial: (trial.last_metrics or {}).get(name)


_COLUMNS: Mapping[str, Callable[[TrialRow], Any]] = {
    "trial": lambda trial: f"{trial.number:05d}",
    "state": attrgetter("state"),
    "status": attrgetter("status"),
    "step": _of_last("training_iteration"),
    "time_s": _of_last("time_total_s"),
    "attempt": attrgetter("attempt"),
    "failure": lambda trial: trial.failure or None,
    "reason": attrgetter("reason"),
    "trial_id": attrgetter("trial_id"),
    "name": attrgetter("trial_name"),
    "experiment_tag": attrgetter("experiment_tag"),
    "trainable_name": attrgetter("trainable_name"),
    "date": lambda trial: moment(_wall(trial)),
    "timestamp": _wall,
    **{name: _of_last(name) for name in ("time_this_iter_s", "pid", "hostname")},
    "failures": attrgetter("failures"),
}
"""Columns that every list of trials has, and where they come from; its node and directory come besides."""
_FIXED = (*_COLUMNS, "logdir")
_TAIL = ["time_s", "attempt", "node", "failure", "reason", "trial_id", "status"]


def trial_table(reader: ExperimentReader) -> Table:
    """Return one row per trial, ordered by number."""
    snapshot, places = reader.snapshot(), last_nodes(reader)
    rows, metrics, params = joined(
        (
            {name: value(trial) for name, value in _COLUMNS.items()}
            | {"node": places.get(trial.trial_id), "logdir": str(reader.layout.trial(trial.trial_id))},
            flatten(own_metrics(trial.last_metrics or {})),
            trial.config,
        )
        for trial in snapshot.trials
    )
    is_named = any(trial.name for trial in snapshot.trials)
    head = ["trial", "name", "state", "step"] if is_named else ["trial", "state", "step"]
    metrics.sort(key=lambda column: column != reader.metric)
    return Table(
        rows,
        [*head, *metrics, *params, *_TAIL],
        more=[column for column in _FIXED if column not in (*head, *_TAIL)],
        aliases={"training_iteration": "step", "time_total_s": "time_s"},
        telling={
            "trial_id": lambda _: False,
            "status": lambda _: False,
            "attempt": lambda attempt: attempt > 1,
            "node": bool,
            "failure": bool,
        },
    )


def joined(
    parts: Iterable[tuple[dict[str, Any], Mapping[str, Any], Mapping[str, Any]]],
) -> tuple[list[dict[str, Any]], list[str], list[str]]:
    """Return rows of fixed columns, metrics and configs, and the columns of metrics and of parameters: they bear their
    own names, but those that are taken, which have what they are in front."""
    found = [(fixed, metrics, flatten(config)) for fixed, metrics, config in parts]
    taken, reported, given = (dict.fromkeys(name for one in found for name in one[index]) for index in range(3))
    params = {key: f"config/{key}" if key in reported or key in taken else key for key in given}
    taken |= dict.fromkeys(params.values())
    metrics = {key: f"metric/{key}" if key in taken else key for key in reported}
    rows = [
        fixed | {metrics[key]: value for key, value in report.items()} | {params[key]: config[key] for key in config}
        for fixed, report, config in found
    ]
    return rows, list(metrics.values()), list(params.values())


def _best_cell(reader: ExperimentReader) -> Any:
    """Return the best of the last reports; of several objectives how many are in the Pareto set, and their values."""
    if not reader.objectives:
        best = best_by_last(reader, reader.metric, reader.mode)
        return None if best is None else best.value
    front = objectives_front(reader)
    points = [f"({', '.join(map(text, values.values()))})" for _, values in front[:MAX_FRONT]]
    more = ["..."] if len(front) > len(points) else []
    return f"Pareto set of {len(front)}: {' '.join(points + more)}" if front else None
