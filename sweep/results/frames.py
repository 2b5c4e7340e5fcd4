"""Build the dataframes of an experiment: a column has the same dtype (docs/reference/dataframes.md) whether or not
values are missing, and an experiment without trials has the same columns."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sweep import checks
from sweep.core.history import Life
from sweep.core.literals import jsonable
from sweep.core.messages import ExitKind
from sweep.core.results import AUTO_FILLED, NODE_IP, complete, flatten
from sweep.core.trial import number_of
from sweep.core.values import sound_text
from sweep.record.encoding import Opaque
from sweep.record.facts import Report
from sweep.record.reader import ExperimentReader
from sweep.record.rows import TrialRow

if TYPE_CHECKING:
    import pandas as pd


STYLES = ("sweep", "ray", "optuna", "wandb")

_Row = Mapping[str, Any]
_Columns = dict[str, list[Any]]
_WANDB_STATES = {"TERMINATED": "finished", "ERROR": "failed", "RUNNING": "running", "PENDING": "pending"}
_OPTUNA_STATES = {"ERROR": "FAIL", "RUNNING": "RUNNING", "PENDING": "WAITING", "PAUSED": "RUNNING"}
# Our own columns: before the metrics and the config, and after them.
_HEAD = ("number", "trial_id", "state")
_IF_REPORTED = ("timesteps_total", "episodes_total")
_END = ("training_iteration", "time_total_s", *_IF_REPORTED, "stopped_early", "reason")
# What was booked of a trial, and what Tune's dataframes have besides.
_BOOKED = (
    *("status", "start_time", "end_time", "wait_s", "attempt", "cpus", "gpus", "peak_rss_mb"),
    *("error_class", "failure", "error", "logdir"),
)
_TUNE = (
    *("timestamp", "date", "time_this_iter_s", "checkpoint_dir_name", "done", "pid", "hostname", "node_ip"),
    *("time_since_restore", "iterations_since_restore", "experiment_tag"),
)
# Ray's columns in Ray's order, after the user's metrics and before config/...
_RAY_BEFORE_CONFIG = (
    *("timestamp", "checkpoint_dir_name", "done", "training_iteration", "trial_id", "date", "time_this_iter_s"),
    *("time_total_s", "pid", "hostname", "node_ip", "time_since_restore", "iterations_since_restore"),
)
_REPORT, _END_OF_REPORT = ("number", "trial_id", "step", "time_s"), ("attempt", "time_total_s", "timestamp", "wall")
_EVENT = ("seq", "time_s", "wall", "event", "trial_id", "attempt", "detail", "commands")
_INTEGERS = {"number", "seq", "step", "training_iteration", "attempt", "timestamp", "pid", "iterations_since_restore"}
_FLOATS = {
    *("time_s", "time_total_s", "time_this_iter_s", "time_since_restore", "wait_s", "cpus", "gpus", "peak_rss_mb"),
    *_IF_REPORTED,
}
_DTYPES = (
    dict.fromkeys(_INTEGERS, "Int64")
    | dict.fromkeys(_FLOATS, "float64")
    | dict.fromkeys(("stopped_early", "done"), "boolean")
    | dict.fromkeys(("start_time", "end_time", "wall"), "time")
)
"""What is in our own columns, other than texts."""


def trial_frame(
    reader: ExperimentReader,
    *,
    chosen: Mapping[str, Report] | None = None,
    style: str = "sweep",
    metric: str | None = None,
    full: bool = True,
) -> pd.DataFrame:
    """Return one row per trial; see `RecordedSweep.dataframe`.

    `chosen` has the report to show per trial id: of trials that it lacks the last, no row where there is none. None:
    the last report of each. `metric` is what `style="optuna"` shows as `value`.
    """
    checks.one_of("style", style, STYLES)
    is_short = style == "sweep" and not full
    lives = {} if is_short else reader.history().lives()
    rows, reported, configs = [], [], []
    for trial in reader.trials():
        report = (chosen or {}).get(trial.trial_id) or trial.last_report
        if report is not None or chosen is None:
            flat = {} if report is None else flatten(completed(trial, report.metrics, report))
            own = {"number": trial.number, "trial_id": trial.trial_id, "state": trial.state}
            own |= {"stopped_early": trial.was_stopped_early, "reason": trial.reason or None}
            own |= {} if is_short else _booked(reader, trial, lives[trial.trial_id], flat)
            rows.append({"node_ip": NODE_IP, **flat, **own})
            reported.append(flat)
            configs.append(trial.config)
    config = _configs(configs)
    user = _metrics(reported, {*_HEAD, *_END, *_BOOKED, *config})
    absent = {name for name in _IF_REPORTED if not any(name in flat for flat in reported)}
    head, end = _ours(rows, _HEAD), _ours(rows, [name for name in _END if name not in absent])
    if is_short:
        return _frame(head | user | config | end, len(rows))
    more = _ours(rows, (*_BOOKED, *_TUNE))
    if style == "optuna":
        return _optuna_frame(reader, head | more, reported, config, metric)
    if style == "wandb":
        return _wandb_frame(reader, head | end | more, _metrics(reported, ()), config)
    if style == "ray":
        everything = head | end | more | config
        order = dict.fromkeys([*_RAY_BEFORE_CONFIG, *config, "logdir", *everything])
        return _frame(user | {name: everything[name] for name in order}, len(rows))
    return _frame(head | user | config | end | more, len(rows))


def _booked(reader: ExperimentReader, trial: TrialRow, life: Life, report: _Row) -> dict[str, Any]:
    """Return what happened to a trial, and where its files lie."""
    start = None if life.started is None else life.started.wall
    fault = life.exit if trial.status == "ERROR" else None
    if fault is not None and fault.kind is ExitKind.NEEDS_MORE:  # what became of that is in the reason
        fault = None
    total = trial.resources.total
    return {
        "status": trial.status,
        "start_time": start,
        "end_time": life.exited.wall if trial.is_ended and life.exited is not None else None,
        "wait_s": None if start is None else max(0.0, start - life.created.wall),
        "attempt": trial.attempt,
        "cpus": total.cpu,
        "gpus": total.gpu,
        "peak_rss_mb": life.peak_rss_bytes / 1e6 if life.peak_rss_bytes else None,
        "error_class": fault and (fault.class_name or fault.kind.value),
        "failure": trial.failure or None,
        "error": ((fault and fault.error) or trial.reason or None) if trial.status == "ERROR" else None,
        "logdir": reader.root / trial.trial_id,
        "done": trial.is_ended,
        "pid": report.get("pid") or life.pid or None,
        "experiment_tag": trial.experiment_tag,
    }


def _optuna_frame(
    reader: ExperimentReader, own: _Row, reported: Sequence[_Row], config: _Columns, metric: str | None
) -> pd.DataFrame:
    trials = [reader.snapshot().by_id[trial_id] for trial_id in own["trial_id"]]
    several = [] if metric else [name for name, mode in reader.objectives if mode != "obs"]
    shown = {f"values_{name}": name for name in several} or {"value": metric or ""}
    values = {key: _array("float64", [flat.get(name) for flat in reported]) for key, name in shown.items()}
    is_known = [not (metric or several) or not any(v != v for v in row) for row in zip(*values.values(), strict=True)]
    states = [optuna_state(row, has_value) for row, has_value in zip(trials, is_known, strict=True)]
    columns = {
        "number": own["number"],
        **values,
        "datetime_start": own["start_time"],
        "datetime_complete": own["end_time"],
        "duration": own["end_time"] - own["start_time"],
        **{f"params_{name.removeprefix('config/')}": column for name, column in config.items()},
        **{
            f"user_attrs_{name}": column
            for name, column in _metrics(reported, ()).items()
            if name not in shown.values()
        },
        "state": _array("str", states),
    }
    return _frame(columns, len(trials))


def _wandb_frame(reader: ExperimentReader, own: _Row, metrics: _Columns, config: _Columns) -> pd.DataFrame:
    """Return the columns of W&B's export of runs: what is known of a run, its config and its summary, each by name."""
    trials = [reader.snapshot().by_id[trial_id] for trial_id in own["trial_id"]]
    created = [None if v != v else f"{v:%Y-%m-%dT%H:%M:%S}.000Z" for v in own["start_time"].astype(object)]
    named = {name.removeprefix("config/").replace("/", "."): values for name, values in _by_name(config)}
    summary = {f"summary.{name}" if name in named else name: values for name, values in _by_name(metrics)}
    state = [_WANDB_STATES.get(row.status, "preempted") for row in trials]
    columns = {"Name": [row.trial_name for row in trials], "ID": own["trial_id"], "State": state}
    columns |= dict.fromkeys(("Notes", "User", "Tags"), [""] * len(trials)) | {"Created": created}
    columns |= {"Runtime": own["time_total_s"], "Sweep": [reader.name] * len(trials)}
    return _frame(columns | named | summary, len(trials))


def _by_name(columns: _Columns) -> list[tuple[str, list[Any]]]:
    return sorted(columns.items(), key=lambda column: column[0].lower())


def optuna_state(row: TrialRow, has_value: bool) -> str:
    """Return the state that a trial has in a study, as `to_optuna` gives it."""
    if row.status != "TERMINATED":
        return _OPTUNA_STATES[row.status]
    return "PRUNED" if row.was_stopped_early else "COMPLETE" if has_value else "FAIL"


def history_frame(reader: ExperimentReader, *, config: bool = False) -> pd.DataFrame:
    """Return one row per report in the order of the record; see `RecordedSweep.history`."""
    trials = reader.snapshot().by_id
    rows, reported, configs = [], [], []
    for report in reader.results():
        flat = flatten(completed(trials[report.trial_id], report.metrics, report))
        own = {"number": number_of(report.trial_id), "time_s": report.at, "attempt": report.attempt}
        rows.append({**flat, **own, "step": flat.get("training_iteration"), "wall": report.wall})
        reported.append(flat)
        configs.append(trials[report.trial_id].config)
    head, tail = _ours(rows, _REPORT), _ours(rows, _END_OF_REPORT)
    user = _metrics(reported, {*head, *tail})
    return _frame(head | user | tail | (_configs(configs) if config else {}), len(rows))


def result_frame(reader: ExperimentReader, trial: TrialRow) -> pd.DataFrame:
    """Return one row per report of one trial, with what is derived, as Tune's `metrics_dataframe` has it."""
    rows = [flatten(completed(trial, report.metrics, report)) for report in reader.results(trial.trial_id)]
    return _frame(_columns(rows) | _configs([trial.config] * len(rows)), len(rows))


def metrics_frame(rows: Sequence[_Row], columns: Iterable[str] = ()) -> pd.DataFrame:
    """Return one row for each report, nested metrics under their flattened names; `columns` are there in any case."""
    return _frame(_columns(rows, columns), len(rows))


def event_frame(reader: ExperimentReader) -> pd.DataFrame:
    """Return one row per event of the record, in order; see `RecordedSweep.events`."""
    rows = [dict(zip(_EVENT, row, strict=True)) for row in reader.events()]
    return _frame(_ours(rows, _EVENT), len(rows))


def completed(trial: TrialRow, metrics: _Row, report: Report) -> dict[str, Any]:
    """Return the metrics of a report with all that is derived."""
    saved = None if report.checkpoint is None else report.checkpoint.name
    return complete(metrics, tag=trial.experiment_tag, wall=report.wall, checkpoint=saved)


def _metrics(flats: Sequence[_Row], taken: Iterable[str]) -> _Columns:
    """Return the columns of what users report; one with the name of another column becomes `metric/...`."""
    columns = _columns(flats)
    own = [name for name in columns if name not in AUTO_FILLED and not name.startswith("config/")]
    return {f"metric/{name}" if name in taken else name: columns[name] for name in own}


def _configs(configs: Sequence[_Row]) -> _Columns:
    return {f"config/{name}": values for name, values in _columns(list(map(flatten, configs))).items()}


def _columns(rows: Sequence[_Row], names: Iterable[str] = ()) -> _Columns:
    """Turn rows into columns: `names`, and others as they first appear; None where a row lacks one."""
    keys = dict.fromkeys([*names, *(name for row in rows for name in row)])
    return {name: [row.get(name) for row in rows] for name in keys}


def _ours(rows: Sequence[_Row], names: Iterable[str]) -> dict[str, Any]:
    """Return columns of our own, each of the type that it always has."""
    return {name: _array(_DTYPES.get(name, "str"), [row.get(name) for row in rows]) for name in names}


def _frame(columns: _Row, num_rows: int) -> pd.DataFrame:
    """Return columns as a frame; those that are lists get the narrowest dtype that holds all of what is in them."""
    import pandas as pd

    data = {name: _typed(column) if isinstance(column, list) else column for name, column in columns.items()}
    return pd.DataFrame(data, index=pd.RangeIndex(num_rows), copy=False)


def _typed(values: list[Any]) -> Any:
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return _array("boolean", values)
    if kinds <= {float, int, bool} and all(type(value) is not int or abs(value) < 2**63 for value in values):
        return _array("Int64" if kinds and float not in kinds else "float64", values)
    return _array("str", [None if value is None else _as_text(value) for value in values])


def _as_text(value: Any) -> str:
    if isinstance(value, Opaque):
        return value.text
    return sound_text(value if isinstance(value, str) else json.dumps(jsonable(value), ensure_ascii=False))


def _array(dtype: Any, values: Sequence[Any]) -> Any:
    """Return a column of this dtype; what does not fit is missing."""
    import pandas as pd

    match dtype:
        case "Int64":
            values = [int(v) if isinstance(v, (int, float)) and abs(v) < 2**63 else None for v in values]
        case "float64":
            return pd.Series([v if isinstance(v, (int, float)) else math.nan for v in values], dtype=dtype).array
        case "time":
            micro: list[Any] = [None if v is None else round(v * 1e6) for v in values]
            return pd.to_datetime(micro, unit="us", utc=True).as_unit("us")
        case "str":
            values = [None if v is None else str(v) for v in values]
            dtype = "str" if int(pd.__version__.partition(".")[0]) >= 3 else "string"
    return pd.array(values, dtype=dtype)
