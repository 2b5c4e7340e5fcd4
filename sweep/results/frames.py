"""Build the dataframes of an experiment: column lists with explicit dtypes, never inference.

The dtypes are pandas 3's: `str` for texts (`string` under pandas 2), `Int64` for integers, `boolean` for booleans,
`float64` for other numbers, `datetime64[us, UTC]` for times. A column therefore has the same dtype whether or not
values are missing, and an empty experiment gives the same columns with no rows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sweep import checks
from sweep.core.history import Life, When
from sweep.core.messages import Exit, ExitKind
from sweep.core.results import AUTO_FILLED, NODE_IP, TRIAL_INDEX, complete, date_of, flatten
from sweep.core.trial import CheckpointRef, number_of
from sweep.core.values import printed, shown, sound_text
from sweep.record.encoding import Opaque
from sweep.record.facts import Report
from sweep.record.reader import ExperimentReader
from sweep.record.rows import TrialRow

if TYPE_CHECKING:
    import pandas as pd


STYLES = ("sweep", "ray", "optuna")

_INT64 = range(-(2**63), 2**63)
_OPTUNA_STATES = {
    "ERROR": "FAIL",
    "RUNNING": "RUNNING",
    "PENDING": "WAITING",
    "PAUSED": "RUNNING",
}
# Before the metrics and the config, and after them; what follows is left out where only these are asked for.
_HEAD = ("number", "trial_id", "state")
_PROGRESS = ("training_iteration", "time_total_s", "timesteps_total", "episodes_total")
_END = ("stopped_early", "reason")
_BOOKED = (
    "status",
    *("start_time", "end_time", "wait_s", "attempt", "cpus", "gpus", "peak_rss_mb"),
    *("error_class", "failure", "error", "logdir"),
)
# Ray's columns in Ray's order, after the user's metrics and before config/...
_RAY_BEFORE_CONFIG = (
    "timestamp",
    "checkpoint_dir_name",
    "done",
    "training_iteration",
    "trial_id",
    "date",
    "time_this_iter_s",
    "time_total_s",
    "pid",
    "hostname",
    "node_ip",
    "time_since_restore",
    "iterations_since_restore",
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
    is_all = chosen is None  # else without those that have reported nothing, as in Tune
    trials = [trial for trial in reader.trials() if is_all or trial.last_metrics is not None]
    reports = [(chosen or {}).get(trial.trial_id) or trial.last_report for trial in trials]
    metrics = [report.metrics if report is not None else {} for report in reports]
    user, filled = _split([_flat(one) for one in metrics])
    configs = _columns([_flat(trial.config) for trial in trials])
    taken = {*_HEAD, *_PROGRESS, *_END, *_BOOKED, *(f"config/{name}" for name in configs), *AUTO_FILLED}
    shown = {(f"metric/{name}" if name in taken else name): values for name, values in user.items()}
    config = {f"config/{name}": values for name, values in configs.items()}
    columns = _own_columns(trials, filled)
    own = (
        {name: columns[name] for name in _HEAD}
        | shown
        | config
        | {name: columns[name] for name in (*_PROGRESS, *_END) if name in columns}
    )
    if style == "sweep" and not full:
        return _frame(own, len(trials))
    history = reader.history().lives()
    lives = [history[trial.trial_id] for trial in trials]
    booked = _booked_columns(reader, trials, lives)
    if style == "optuna":
        return _optuna_frame(trials, columns | booked, shown, config, metric)
    tune = _tune_columns(trials, reports, lives, filled)
    if style == "ray":
        everything = tune | columns | booked | config
        order = dict.fromkeys([*_RAY_BEFORE_CONFIG, *config, "logdir", *columns, *booked, *tune])
        return _frame(shown | {name: everything[name] for name in order}, len(trials))
    return _frame(own | booked | tune, len(trials))


def _own_columns(trials: Sequence[TrialRow], filled: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Return the columns but `_BOOKED`; the totals that Tune counts only where they were reported."""
    nothing: list[Any] = [None] * len(trials)
    return {
        "number": _ints(trial.number for trial in trials),
        "trial_id": _texts(trial.trial_id for trial in trials),
        "state": _texts(trial.state for trial in trials),
        "training_iteration": _ints(filled.get("training_iteration", nothing)),
        "time_total_s": _floats(filled.get("time_total_s", nothing)),
        "stopped_early": _booleans(trial.was_stopped_early for trial in trials),
        "reason": _texts(trial.reason or None for trial in trials),
    } | {name: _floats(filled[name]) for name in _PROGRESS[2:] if name in filled}


def _booked_columns(reader: ExperimentReader, trials: Sequence[TrialRow], lives: Sequence[Life]) -> dict[str, Any]:
    """Return the columns of `_BOOKED`: what happened to each trial, and where its files lie."""
    directory = f"{reader.root}{os.sep}"
    totals = {request: request.total for request in {trial.resources for trial in trials}}
    started = [_wall(life.started) for life in lives]
    ended = [_wall(life.exited) if trial.is_ended else None for trial, life in zip(trials, lives, strict=True)]
    faults = [life.exit if trial.status == "ERROR" else None for trial, life in zip(trials, lives, strict=True)]
    return {
        "status": _texts(trial.status for trial in trials),
        "start_time": _times(started),
        "end_time": _times(ended),
        "wait_s": _floats(_difference(life.created.wall, start) for life, start in zip(lives, started, strict=True)),
        "attempt": _ints(trial.attempt for trial in trials),
        "cpus": _floats(totals[trial.resources].cpu for trial in trials),
        "gpus": _floats(totals[trial.resources].gpu for trial in trials),
        "peak_rss_mb": _floats(life.peak_rss_bytes / 1e6 if life.peak_rss_bytes else None for life in lives),
        "error_class": _texts(fault and (fault.class_name or fault.kind.value) for fault in faults),
        "failure": _texts(trial.failure or None for trial in trials),
        "error": _texts(
            _error(trial, fault) if trial.status == "ERROR" else None
            for trial, fault in zip(trials, faults, strict=True)
        ),
        "logdir": _texts(directory + trial.trial_id for trial in trials),
    }


def _name_of(ref: CheckpointRef | None) -> str | None:
    return None if ref is None else ref.name


def _wall(time: When | None) -> float | None:
    return None if time is None else time.wall


def _error(trial: TrialRow, fault: Exit | None) -> str | None:
    is_told = fault is not None and fault.kind is not ExitKind.NEEDS_MORE  # what became of that is in the reason
    return (fault.error if fault is not None and is_told else "") or trial.reason or None


def _tune_columns(
    trials: Sequence[TrialRow],
    reports: Sequence[Report | None],
    lives: Sequence[Life],
    filled: Mapping[str, list[Any]],
) -> dict[str, Any]:
    """Return the columns that are there because Tune's dataframes have them."""
    nothing: list[Any] = [None] * len(trials)
    walls = [None if report is None else int(report.wall) for report in reports]
    stamps = [
        stamp if isinstance(stamp, (int, float)) else wall
        for stamp, wall in zip(filled.get("timestamp", nothing), walls, strict=True)
    ]
    dates = filled.get("date", nothing)
    saved = [None if report is None else report.checkpoint for report in reports]
    return {
        "timestamp": _ints(stamps),
        "date": _texts(
            date if isinstance(date, str) else date_of(stamp) for date, stamp in zip(dates, stamps, strict=True)
        ),
        "time_this_iter_s": _floats(filled.get("time_this_iter_s", nothing)),
        "checkpoint_dir_name": _texts(map(_name_of, saved)),
        "done": _booleans(trial.is_ended for trial in trials),
        "pid": _ints(pid or life.pid or None for pid, life in zip(filled.get("pid", nothing), lives, strict=True)),
        "hostname": _texts(filled.get("hostname", nothing)),
        "node_ip": _texts(ip or NODE_IP for ip in filled.get("node_ip", nothing)),
        "time_since_restore": _floats(filled.get("time_since_restore", nothing)),
        "iterations_since_restore": _ints(filled.get("iterations_since_restore", nothing)),
        "experiment_tag": _texts(trial.experiment_tag for trial in trials),
    }


def _optuna_frame(
    trials: Sequence[TrialRow],
    columns: Mapping[str, Any],
    metrics: Mapping[str, list[Any]],
    config: Mapping[str, list[Any]],
    metric: str | None,
) -> pd.DataFrame:
    values = [
        value if isinstance(value, (int, float)) else None for value in metrics.get(metric or "", [None] * len(trials))
    ]
    frame: dict[str, Any] = {
        "number": columns["number"],
        "value": _floats(values),
        "datetime_start": columns["start_time"],
        "datetime_complete": columns["end_time"],
        "duration": columns["end_time"] - columns["start_time"],
    }
    frame |= {f"params_{name.removeprefix('config/')}": column for name, column in config.items()}
    frame |= {f"user_attrs_{name}": column for name, column in metrics.items() if name != metric}
    has_value = [not metric or (value is not None and value == value) for value in values]
    frame["state"] = _texts(map(_optuna_state, trials, has_value))
    return _frame(frame, len(trials))


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
    user, filled = _split([_flat(row.metrics) for row in rows])
    nothing: list[Any] = [None] * len(rows)
    frame: dict[str, Any] = {
        "number": _ints(number_of(row.trial_id) for row in rows),
        "trial_id": _texts(row.trial_id for row in rows),
        "step": _ints(filled.get("training_iteration", nothing)),
        "time_s": _floats(row.at for row in rows),
    }
    tail = {
        "attempt": _ints(row.attempt for row in rows),
        "time_total_s": _floats(filled.get("time_total_s", nothing)),
        "timestamp": _ints(
            told if isinstance(told, (int, float)) else row.wall
            for told, row in zip(filled.get("timestamp", nothing), rows, strict=True)
        ),
        "wall": _times(row.wall for row in rows),
    }
    if config:
        configs = {trial.trial_id: _flat(trial.config) for trial in reader.trials()}
        values = _columns([configs[row.trial_id] for row in rows])
        tail |= {f"config/{name}": column for name, column in values.items()}
    taken = {*frame, *tail}
    frame |= {(f"metric/{name}" if name in taken else name): values for name, values in user.items()}
    return _frame(frame | tail, len(rows))


def result_frame(reader: ExperimentReader, trial: TrialRow) -> pd.DataFrame:
    """Return one row per report of one trial: every key of the report, the fields that are derived, then `config/...`,
    as Tune's `metrics_dataframe` has it."""
    rows = [
        _flat(complete(row.metrics, tag=trial.experiment_tag, wall=row.wall, checkpoint=_name_of(row.checkpoint)))
        for row in reader.results(trial.trial_id)
    ]
    columns = _columns(rows)
    columns |= {f"config/{name}": [value] * len(rows) for name, value in flatten(trial.config).items()}
    return _frame(columns, len(rows))


def metrics_frame(rows: Sequence[Mapping[str, Any]], columns: Iterable[str] = ()) -> pd.DataFrame:
    """Return one row for each report, nested metrics under their flattened names; `columns` are there in any case."""
    empty: dict[str, list[Any]] = {name: [None] * len(rows) for name in columns}
    return _frame(empty | _columns(rows), len(rows))


def event_frame(reader: ExperimentReader) -> pd.DataFrame:
    """Return what happened, one row per event of the record: seq, time_s, wall, event, trial_id, attempt, `detail`
    (JSON text) and `commands`, what the sweep did about it (JSON text)."""
    rows = reader.events()
    seq, at, wall, kind, trial_id, attempt, data, commands = zip(*rows, strict=True) if rows else [()] * 8
    frame = {
        "seq": _ints(seq),
        "time_s": _floats(at),
        "wall": _times(wall),
        "event": _texts(kind),
        "trial_id": _texts(trial_id),
        "attempt": _ints(attempt),
        "detail": _texts(data),
        "commands": _texts(commands),
    }
    return _frame(frame, len(rows))


def _split(rows: Sequence[Mapping[str, Any]]) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    columns = _columns(rows)
    filled = {name: columns.pop(name) for name in list(columns) if name in AUTO_FILLED or name.startswith("config/")}
    return columns, filled


def _flat(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Flatten what came out of JSON, where a nested mapping is always a dict: most rows have none, so nothing is
    copied. `core.results.flatten` takes any mapping and is four times as slow."""
    return flatten(row) if TRIAL_INDEX in row or dict in map(type, row.values()) else row


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Turn rows into columns, in the order in which the keys first appear; None where a row lacks one."""
    columns: dict[str, list[Any]] = {}
    for index, row in enumerate(rows):
        for name, value in row.items():
            column = columns.get(name)
            if column is None:
                columns[name] = column = [None] * len(rows)
            column[index] = value
    return columns


def _frame(columns: Mapping[str, Any], num_rows: int) -> pd.DataFrame:
    import pandas as pd

    data = {name: _typed(column) if isinstance(column, list) else column for name, column in columns.items()}
    return pd.DataFrame(data, index=pd.RangeIndex(num_rows), copy=False)


def _typed(values: list[Any]) -> Any:
    """Give a column of whatever users report the narrowest dtype that holds all of it."""
    kinds = {type(value) for value in values}
    kinds.discard(type(None))
    if kinds == {bool}:
        return _booleans(values)
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


def _difference(earlier: float, later: float | None) -> float | None:
    return None if later is None else max(0.0, later - earlier)


def _ints(values: Iterable[Any]) -> Any:
    import pandas as pd

    whole = [int(v) if isinstance(v, (int, float)) and abs(v) < 2**63 else None for v in values]
    return pd.array(whole, dtype="Int64")


def _floats(values: Iterable[Any]) -> Any:
    import numpy as np

    return np.array([v if isinstance(v, (int, float)) else np.nan for v in values], dtype=np.float64)


def _booleans(values: Iterable[Any]) -> Any:
    import pandas as pd

    return pd.array(list(values), dtype="boolean")


def _texts(values: Iterable[Any]) -> Any:
    import pandas as pd

    dtype: Any = "str" if int(pd.__version__.partition(".")[0]) >= 3 else "string"
    return pd.array([None if v is None else str(v) for v in values], dtype=dtype)


def _times(values: Iterable[float | None]) -> Any:
    import numpy as np
    import pandas as pd

    micro = np.array([np.iinfo(np.int64).min if v is None else round(v * 1e6) for v in values], dtype=np.int64)
    return pd.DatetimeIndex(micro.view("M8[us]"), tz="UTC")
