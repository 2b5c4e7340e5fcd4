"""Build the dataframes of an experiment: rows of plain values, columns with explicit dtypes.

The dtypes are pandas 3's: `str` for texts (`string` under pandas 2), `Int64` for integers, `boolean` for booleans,
`float64` for other numbers, `datetime64[us, UTC]` for times. A column therefore has the same dtype whether or not
values are missing, and an empty experiment gives the same columns with no rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sweep import checks
from sweep.core.history import Life
from sweep.core.messages import ExitKind
from sweep.core.results import AUTO_FILLED, NODE_IP, TRIAL_INDEX, complete, date_of, flatten
from sweep.core.trial import number_of
from sweep.core.values import printed, shown, sound_text
from sweep.record.encoding import Opaque
from sweep.record.facts import Report
from sweep.record.reader import ExperimentReader
from sweep.record.rows import TrialRow

if TYPE_CHECKING:
    import pandas as pd


STYLES = ("sweep", "ray", "optuna")

_Row = Mapping[str, Any]
_Columns = dict[str, list[Any]]
_INT64 = range(-(2**63), 2**63)
_OPTUNA_STATES = {"ERROR": "FAIL", "RUNNING": "RUNNING", "PENDING": "WAITING", "PAUSED": "RUNNING"}
# Before the metrics and the config, and after them.
_HEAD = ("number", "trial_id", "state")
_END = ("training_iteration", "time_total_s", "timesteps_total", "episodes_total", "stopped_early", "reason")
_IF_REPORTED = ("timesteps_total", "episodes_total")
# What was booked of a trial.
_BOOKED = (
    "status",
    *("start_time", "end_time", "wait_s", "attempt", "cpus", "gpus", "peak_rss_mb"),
    *("error_class", "failure", "error", "logdir"),
)
# What Tune's dataframes have besides.
_TUNE = (
    *("timestamp", "date", "time_this_iter_s", "checkpoint_dir_name", "done", "pid", "hostname", "node_ip"),
    *("time_since_restore", "iterations_since_restore", "experiment_tag"),
)
# Ray's columns in Ray's order, after the user's metrics and before config/...
_RAY_BEFORE_CONFIG = (
    *("timestamp", "checkpoint_dir_name", "done", "training_iteration", "trial_id", "date", "time_this_iter_s"),
    *("time_total_s", "pid", "hostname", "node_ip", "time_since_restore", "iterations_since_restore"),
)


def trial_frame(
    reader: ExperimentReader,
    *,
    chosen: Mapping[str, Report] | None = None,
    style: str = "sweep",
    metric: str | None = None,
    full: bool = True,
) -> pd.DataFrame:
    """Return one row per trial, ordered by number, with a RangeIndex and fresh data.

    Args:
        chosen: the report to show per trial id; of trials that it lacks the last, and no row where there is none.
            None: the last report of each, and a row for trials without any.
        style: `sweep`; `ray` puts Ray's full set of columns first, under Ray's names and in Ray's order, and the
            others after them; `optuna` has the columns of `study.trials_dataframe()`.
        metric: what `style="optuna"` shows as `value`.
        full: with what was booked about each trial beside its metrics and its config; only `style="sweep"` leaves it
            out, and does not read it.

    Raises:
        ConfigError: an unknown style.
    """
    checks.one_of("style", style, STYLES)
    trials = [trial for trial in reader.trials() if chosen is None or trial.last_metrics is not None]
    reports = [(chosen or {}).get(trial.trial_id) or trial.last_report for trial in trials]
    flats = [{} if report is None else _flat(report.metrics) for report in reports]
    configs = _columns([_flat(trial.config) for trial in trials])
    config = {f"config/{name}": values for name, values in configs.items()}
    taken = {*_HEAD, *_END, *_BOOKED, *config, *AUTO_FILLED}
    user = _metrics(flats, taken)
    after = [name for name in _END if name not in _IF_REPORTED or any(name in flat for flat in flats)]
    own = _ours([_own_row(trial, flat) for trial, flat in zip(trials, flats, strict=True)], (*_HEAD, *after))
    head, end = {name: own[name] for name in _HEAD}, {name: own[name] for name in after}
    if style == "sweep" and not full:
        return _frame(head | user | config | end, len(trials))
    history = reader.history().lives()
    lives = [history[trial.trial_id] for trial in trials]
    booked = _ours([_booked_row(reader, trial, life) for trial, life in zip(trials, lives, strict=True)], _BOOKED)
    if style == "optuna":
        return _optuna_frame(trials, own | booked, user, config, metric)
    tune = _ours(list(map(_tune_row, trials, reports, lives, flats)), _TUNE)
    if style == "ray":
        everything = tune | own | booked | config
        order = dict.fromkeys([*_RAY_BEFORE_CONFIG, *config, "logdir", *own, *booked, *tune])
        return _frame(user | {name: everything[name] for name in order}, len(trials))
    return _frame(head | user | config | end | booked | tune, len(trials))


def _own_row(trial: TrialRow, flat: _Row) -> _Row:
    return {
        "number": trial.number,
        "trial_id": trial.trial_id,
        "state": trial.state,
        **{name: flat.get(name) for name in _END[:4]},
        "stopped_early": trial.was_stopped_early,
        "reason": trial.reason or None,
    }


def _booked_row(reader: ExperimentReader, trial: TrialRow, life: Life) -> _Row:
    """Return what happened to a trial, and where its files lie."""
    start = None if life.started is None else life.started.wall
    fault = life.exit if trial.status == "ERROR" else None
    error = ""
    if fault is not None and fault.kind is not ExitKind.NEEDS_MORE:  # what became of that is in the reason
        error = fault.error
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
        "error": (error or trial.reason or None) if trial.status == "ERROR" else None,
        "logdir": str(reader.root / trial.trial_id),
    }


def _tune_row(trial: TrialRow, report: Report | None, life: Life, flat: _Row) -> _Row:
    stamp, date = flat.get("timestamp"), flat.get("date")
    if not isinstance(stamp, (int, float)):
        stamp = None if report is None else int(report.wall)
    return {
        "timestamp": stamp,
        "date": date if isinstance(date, str) else date_of(stamp),
        "checkpoint_dir_name": report.checkpoint.name if report is not None and report.checkpoint is not None else None,
        "done": trial.is_ended,
        "pid": flat.get("pid") or life.pid or None,
        "node_ip": flat.get("node_ip") or NODE_IP,
        "experiment_tag": trial.experiment_tag,
        **{
            name: flat.get(name)
            for name in ("time_this_iter_s", "hostname", "time_since_restore", "iterations_since_restore")
        },
    }


def _optuna_frame(
    trials: Sequence[TrialRow], own: _Row, user: _Columns, config: _Columns, metric: str | None
) -> pd.DataFrame:
    values = [one if isinstance(one, (int, float)) else None for one in user.get(metric or "", [None] * len(trials))]
    has_value = [not metric or (value is not None and value == value) for value in values]
    columns = {
        "number": own["number"],
        "value": _floats(values),
        "datetime_start": own["start_time"],
        "datetime_complete": own["end_time"],
        "duration": own["end_time"] - own["start_time"],
        **{f"params_{name.removeprefix('config/')}": column for name, column in config.items()},
        **{f"user_attrs_{name}": column for name, column in user.items() if name != metric},
        "state": _texts(list(map(_optuna_state, trials, has_value))),
    }
    return _frame(columns, len(trials))


def _optuna_state(trial: TrialRow, has_value: bool) -> str:
    """Return the state that a trial has in a study, as `to_optuna` gives it."""
    if trial.status != "TERMINATED":
        return _OPTUNA_STATES[trial.status]
    return "PRUNED" if trial.was_stopped_early else "COMPLETE" if has_value else "FAIL"


def history_frame(reader: ExperimentReader, *, config: bool = False) -> pd.DataFrame:
    """Return one row per report in the order of the record: number, trial_id, step, time_s, the metrics, then attempt,
    time_total_s, timestamp and wall, and on request the config. `step` is the training iteration, `time_s` seconds of
    driving since the sweep began."""
    rows = list(reader.results())
    flats = [_flat(row.metrics) for row in rows]
    ours = _ours(
        [
            {
                "number": number_of(row.trial_id),
                "trial_id": row.trial_id,
                "step": flat.get("training_iteration"),
                "time_s": row.at,
                "attempt": row.attempt,
                "time_total_s": flat.get("time_total_s"),
                "timestamp": told if isinstance(told := flat.get("timestamp"), (int, float)) else row.wall,
                "wall": row.wall,
            }
            for row, flat in zip(rows, flats, strict=True)
        ],
        ("number", "trial_id", "step", "time_s", "attempt", "time_total_s", "timestamp", "wall"),
    )
    configs = {trial.trial_id: _flat(trial.config) for trial in reader.trials()} if config else {}
    values = _columns([configs[row.trial_id] for row in rows] if config else [])
    tail = {name: ours.pop(name) for name in ("attempt", "time_total_s", "timestamp", "wall")}
    tail |= {f"config/{name}": column for name, column in values.items()}
    return _frame(ours | _metrics(flats, {*ours, *tail}) | tail, len(rows))


def result_frame(reader: ExperimentReader, trial: TrialRow) -> pd.DataFrame:
    """Return one row per report of one trial: every key of the report, the fields that are derived, then `config/...`,
    as Tune's `metrics_dataframe` has it."""
    rows = []
    for row in reader.results(trial.trial_id):
        saved = None if row.checkpoint is None else row.checkpoint.name
        rows.append(_flat(complete(row.metrics, tag=trial.experiment_tag, wall=row.wall, checkpoint=saved)))
    config = {f"config/{name}": [value] * len(rows) for name, value in flatten(trial.config).items()}
    return _frame(_columns(rows) | config, len(rows))


def metrics_frame(rows: Sequence[_Row], columns: Iterable[str] = ()) -> pd.DataFrame:
    """Return one row for each report, nested metrics under their flattened names; `columns` are there in any case."""
    return _frame(_columns(rows, columns), len(rows))


def event_frame(reader: ExperimentReader) -> pd.DataFrame:
    """Return what happened, one row per event of the record: seq, time_s, wall, event, trial_id, attempt, `detail`
    (JSON text) and `commands`, what the sweep did about it (JSON text)."""
    names = ("seq", "time_s", "wall", "event", "trial_id", "attempt", "detail", "commands")
    rows = [dict(zip(names, row, strict=True)) for row in reader.events()]
    return _frame(_ours(rows, names), len(rows))


def _metrics(flats: Sequence[_Row], taken: Iterable[str]) -> _Columns:
    """Return the columns of what users report; one with the name of another column becomes `metric/...`."""
    taken = set(taken)
    columns = _columns(flats)
    own = [name for name in columns if name not in AUTO_FILLED and not name.startswith("config/")]
    return {f"metric/{name}" if name in taken else name: columns[name] for name in own}


def _flat(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Flatten what came out of JSON, where a nested mapping is always a dict: most rows have none, so nothing is
    copied. `core.results.flatten` takes any mapping and is four times as slow."""
    return flatten(row) if TRIAL_INDEX in row or dict in map(type, row.values()) else row


def _columns(rows: Sequence[_Row], names: Iterable[str] = ()) -> _Columns:
    """Turn rows into columns, in the order in which the keys first appear; None where a row lacks one.

    Args:
        names: of columns that are there in any case, and first.
    """
    columns: _Columns = {name: [None] * len(rows) for name in names}
    for index, row in enumerate(rows):
        for name, value in row.items():
            column = columns.get(name)
            if column is None:
                columns[name] = column = [None] * len(rows)
            column[index] = value
    return columns


def _ours(rows: Sequence[_Row], names: Sequence[str]) -> dict[str, Any]:
    """Return columns of our own, each of the type that it always has."""
    columns = _columns(rows, names)
    return {name: _KINDS[name](columns[name]) for name in names}


def _frame(columns: _Row, num_rows: int) -> pd.DataFrame:
    """Return columns as a frame; those that are lists get the type that holds what is in them."""
    import pandas as pd

    data = {name: _typed(column) if isinstance(column, list) else column for name, column in columns.items()}
    return pd.DataFrame(data, index=pd.RangeIndex(num_rows), copy=False)


def _typed(values: list[Any]) -> Any:
    """Give a column of whatever users report the narrowest dtype that holds all of it."""
    kinds = {type(value) for value in values}
    kinds.discard(type(None))
    if kinds == {bool}:
        return _bools(values)
    if kinds <= {float, int, bool} and (int not in kinds or all(_fits(value) for value in values)):
        return _ints(values) if kinds and float not in kinds else _floats(values)
    return _texts([None if value is None else _as_text(value) for value in values])


def _fits(value: Any) -> bool:
    return not isinstance(value, int) or value in _INT64


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return sound_text(value)
    if isinstance(value, Opaque):
        return value.text
    try:
        return json.dumps(value, ensure_ascii=False, default=shown)
    except (ValueError, RecursionError):  # whole numbers beyond what Python prints, what holds itself
        return printed(value)


def _ints(values: list[Any]) -> Any:
    import pandas as pd

    whole = [int(v) if isinstance(v, (int, float)) and abs(v) < 2**63 else None for v in values]
    return pd.array(whole, dtype="Int64")


def _floats(values: list[Any]) -> Any:
    import numpy as np

    return np.array([v if isinstance(v, (int, float)) else np.nan for v in values], dtype=np.float64)


def _bools(values: list[Any]) -> Any:
    import pandas as pd

    return pd.array(values, dtype="boolean")


def _texts(values: list[Any]) -> Any:
    import pandas as pd

    dtype: Any = "str" if int(pd.__version__.partition(".")[0]) >= 3 else "string"
    return pd.array([None if v is None else str(v) for v in values], dtype=dtype)


def _times(values: list[Any]) -> Any:
    import numpy as np
    import pandas as pd

    micro = np.array([np.iinfo(np.int64).min if v is None else round(v * 1e6) for v in values], dtype=np.int64)
    return pd.DatetimeIndex(micro.view("M8[us]"), tz="UTC")


_KINDS: Mapping[str, Callable[[list[Any]], Any]] = {
    **dict.fromkeys(("number", "seq", "step", "training_iteration", "attempt", "timestamp", "pid"), _ints),
    "iterations_since_restore": _ints,
    **dict.fromkeys(("time_s", "time_total_s", "time_this_iter_s", "time_since_restore", "wait_s"), _floats),
    **dict.fromkeys((*_IF_REPORTED, "cpus", "gpus", "peak_rss_mb"), _floats),
    **dict.fromkeys(("stopped_early", "done"), _bools),
    **dict.fromkeys(("start_time", "end_time", "wall"), _times),
    **dict.fromkeys(("trial_id", "state", "reason", "status", "error_class", "failure", "error", "logdir"), _texts),
    **dict.fromkeys(("date", "checkpoint_dir_name", "hostname", "node_ip", "experiment_tag"), _texts),
    **dict.fromkeys(("event", "detail", "commands"), _texts),
}
"""What is in our own columns."""
