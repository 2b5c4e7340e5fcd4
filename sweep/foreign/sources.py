"""Read an experiment of another tool: an export of W&B, a storage of Optuna, the directory of an experiment of Ray."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from math import isclose
from pathlib import Path
from typing import Any, NamedTuple

from searchers import space as domains
from searchers.errors import nearest
from searchers.optuna_space import quiet
from sweep.core.literals import parse_literal
from sweep.core.results import AUTO_FILLED
from sweep.core.values import as_float
from sweep.errors import ConfigError
from sweep.results.optuna_points import config_of, nested
from sweep.results.optuna_study import opened

_APART_S, _LONGEST_S = 1e-3, 1e9  # of runs that are recorded one after the other; of one that may be believed
_UNFINISHED = "it had not ended when it was imported"
# Columns of W&B about a run as such, in small letters.
_OF_A_RUN = "name,id,agent,state,notes,user,tags,created,runtime,sweep,group,job type,updated,end time,hostname".split(
    ","
)


class ForeignTrial(NamedTuple):
    """A trial: `start` in UTC epoch seconds, `reports` with the seconds since the one before, `rest_s` after them."""

    config: Mapping[str, Any]
    start: float
    reports: Sequence[tuple[float, Mapping[str, Any]]]
    rest_s: float = 0.0
    error: str = ""
    is_pruned: bool = False
    name: str = ""


class Foreign(NamedTuple):
    """An experiment: what it is called there, what it optimised (None: not known), what is known of its space."""

    tool: str
    name: str
    trials: Sequence[ForeignTrial]
    metric: Any = None
    mode: Any = None
    space: Mapping[str, Any] = {}


def read_foreign(
    source: str, metric: Sequence[str], mode: str | None, parameters: Sequence[str], study: str | None
) -> Foreign:
    """Read what `source` holds, found out from what it is.

    Args:
        metric, mode: what was optimised, where the source does not say it; of Optuna what its values are called.
        parameters: of an export of W&B the columns that are parameters; none: found out from their order.
        study: of Optuna, which of several.

    Raises:
        ConfigError: it is none of the three, or cannot be read, or does not say enough.
    """
    path = Path(source.removeprefix("sqlite:///")).expanduser()
    if path.is_dir() and (states := sorted(path.glob("experiment_state-*.json"))):
        return _ray(path, states[-1], metric, mode)
    if path.is_file() and path.suffix.lower() == ".csv":
        return _wandb(path, metric, mode, parameters)
    head = b""
    if path.is_file():
        with path.open("rb") as file:
            head = file.read(1 << 20)
    if head.startswith(b"SQLite format 3") and b"CREATE TABLE studies" in head:  # in others Optuna makes its tables
        return _optuna(f"sqlite:///{path}", metric, study)
    if b'"op_code"' in head[:99] or ("://" in source and not source.startswith("sqlite:///")):
        return _optuna(source, metric, study)
    raise ConfigError(
        f"{source} is nothing that can be imported. Expected a W&B export of runs (.csv), a storage of Optuna (a "
        "database, its URL, or a journal), or the directory of an experiment of Ray Tune."
    )


def _optuna(storage: str, metric: Sequence[str], name: str | None) -> Foreign:
    import optuna

    with quiet():
        try:
            place: Any = opened(storage)
            names = optuna.get_all_study_names(place)
            if (name := name or (names[0] if len(names) == 1 else "")) not in names:
                raise ConfigError(f"{storage} has no study {name!r}. {nearest(name, names)} Choose one with --study.")
            study = optuna.load_study(study_name=name, storage=place)
            found = [trial for trial in study.get_trials(deepcopy=False) if trial.datetime_start is not None]
        except Exception as error:  # what Optuna and the drivers of databases raise over what is broken
            what = "" if isinstance(error, ConfigError) else f"{storage} is not what Optuna writes: {error!r:.300}"
            raise ConfigError(what or str(error)) from None
    modes = ["min" if direction.name == "MINIMIZE" else "max" for direction in study.directions]
    default = [f"value_{index}" for index in range(len(modes))] if modes[1:] else ["value"]
    metrics = list(metric or study.metric_names or default)
    if len(metrics) != len(modes):
        raise ConfigError(f"the study {name!r} has {len(modes)} objectives, and --metric names {', '.join(metrics)}.")
    trials = [_optuna_trial(trial, metrics) for trial in found]
    asked = {key: one for trial in found for key, one in trial.distributions.items()}
    space = nested({key: _domain(one) for key, one in asked.items()})
    is_one = len(modes) == 1
    return Foreign("Optuna", name, trials, metrics[0] if is_one else metrics, modes[0] if is_one else modes, space)


def _optuna_trial(trial: Any, metrics: Sequence[str]) -> ForeignTrial:
    """Return a trial; Optuna knows no times of intermediate values, so they are spread evenly over its time."""
    state, start, steps = trial.state.name, trial.datetime_start.timestamp(), sorted(trial.intermediate_values.items())
    reports: list[dict[str, Any]] = [{metrics[0]: value, "training_iteration": step} for step, value in steps]
    if state == "COMPLETE" and (not steps or [steps[-1][1]] != trial.values):
        step = {"training_iteration": steps[-1][0] + 1} if steps else {}
        reports.append(dict(zip(metrics, trial.values, strict=True)) | step)
    if reports:
        hidden = {*AUTO_FILLED, *reports[-1], "reason", "attempts"}
        reports[-1] |= {name: value for name, value in trial.user_attrs.items() if name not in hidden}
    took = max(0.0, trial.datetime_complete.timestamp() - start) if trial.datetime_complete else 0.0
    times = [took / len(reports)] * len(reports) if reports else []
    error = {"FAIL": "it failed in Optuna", "RUNNING": _UNFINISHED}.get(state, "")
    pairs = list(zip(times, reports, strict=True))
    return ForeignTrial(config_of(trial), start, pairs, took - sum(times), error, state == "PRUNED" and bool(reports))


def _domain(asked: Any) -> Any:
    """Return a distribution of Optuna as a domain of ours; Optuna's steps begin at the lower bound, ours at 0, so
    where the two differ the domain has no steps."""
    if hasattr(asked, "choices"):
        return domains.choice(list(asked.choices))
    is_int = type(asked).__name__.startswith("Int")
    has_step = asked.step not in (None, 1) and isclose(asked.low / asked.step, round(asked.low / asked.step))
    kind = f"{'q' * has_step}{'log' * asked.log}{'randint' if is_int else 'uniform'}"
    step = [asked.step] * has_step
    upper = asked.high + (is_int and not step)
    return asked.low if asked.low == asked.high else getattr(domains, kind)(asked.low, upper, *step)


def _ray(root: Path, state: Path, metric: Sequence[str], mode: str | None) -> Foreign:
    try:
        whole = json.loads(state.read_text())
        pairs = [[json.loads(part) if isinstance(part, str) else part for part in pair] for pair in whole["trial_data"]]
        trials = [_ray_trial(root, facts, known) for facts, known in pairs if known.get("start_time")]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{state} is not what Ray 2 writes, or was cut: {error!r}.") from error
    own = metric[0] if metric else whole.get("runner_data", {}).get("_metric")
    if (own is None) != (mode is None):
        raise ConfigError(f"Ray does not record which way {own or 'a metric'} is better: give --metric and --goal.")
    return Foreign("Ray Tune", root.name, trials, own, mode)


def _ray_trial(root: Path, facts: Mapping[str, Any], known: Mapping[str, Any]) -> ForeignTrial:
    place, start = root / Path(facts["relative_logdir"]).name, float(known["start_time"])
    reports, config = [], facts.get("config") or {}
    with suppress(OSError, ValueError):  # there objects are as they print, and no pickles
        config = json.loads((place / "params.json").read_text())
    with suppress(OSError, ValueError):  # the last line may be cut
        for line in (place / "result.json").read_text().splitlines():
            reports.append(json.loads(line))
    hidden = AUTO_FILLED - {"training_iteration", "pid", "hostname"}
    times = [max(0.0, as_float(report.get("time_this_iter_s")) or 0.0) for report in reports]
    own = [{name: value for name, value in report.items() if name not in hidden} for report in reports]
    error = {"TERMINATED": "", "ERROR": "it failed in Ray"}.get(facts["status"], _UNFINISHED)
    with suppress(OSError, IndexError):
        error = (place / "error.txt").read_text(errors="replace").split("\n")[-2].strip() if error else ""
    rest_s = max(0.0, (known.get("last_result_time") or 0.0) - start - sum(times))
    return ForeignTrial(config, start, list(zip(times, own, strict=True)), rest_s, error)


def _wandb(path: Path, metric: Sequence[str], mode: str | None, parameters: Sequence[str]) -> Foreign:
    """Read an export. It has what is known of a run as such, then its config, then its summary, the last two in
    alphabetical order: what says where the one ends is that the order begins anew. Where people have chosen and
    ordered the columns it begins anew in several places, or in none."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file, restval=""))
    except (ValueError, csv.Error) as error:
        raise ConfigError(
            f"{path} is no CSV file in UTF-8, or was cut: {error}."
        ) from None  # nothing of the user's own code
    if not rows:
        raise ConfigError(f"{path} has no runs: expected a line of names and a line for each run.")
    names = [name for name in rows[0] if name and name.lower() not in _OF_A_RUN]
    falls = [index for index in range(1, len(names)) if names[index].lower() < names[index - 1].lower()]
    params = list(parameters) or names[: falls[0] if len(falls) == 1 else 0]
    rest = [name for name in names if name not in params]
    if not params:
        some = ", ".join(names[:30]) + ", ..." * (len(names) > 30)
        raise ConfigError(f"{path} does not show which columns are parameters: give --parameters A,B,... of {some}.")
    if unknown := [name for name in (*params, *metric) if name not in names]:
        raise ConfigError(f"{path} has no column {unknown[0]!r}. {nearest(unknown[0], names)}")
    if (len(metric) == 1) != (mode is not None) or set(metric) & set(params):
        raise ConfigError(f"--metric and --goal name one of {', '.join(rest)}; --parameters says what is none.")
    trials, moment = list[ForeignTrial](), path.stat().st_mtime
    for row in rows:
        trials.append(trial := _wandb_trial(row, params, rest, moment))
        moment = max(moment, trial.start + sum(seconds for seconds, _ in trial.reports) + trial.rest_s + _APART_S)
    return Foreign("W&B", path.stem, trials, metric[0] if metric else None, mode)


def _wandb_trial(row: Mapping[str, str], params: Sequence[str], metrics: Sequence[str], start: float) -> ForeignTrial:
    """Return a trial; it begins at `start` where the export does not say when."""
    values = {name: parse_literal(value) for name, value in row.items() if name and value}
    with suppress(ValueError):
        start = datetime.fromisoformat(row.get("Created", "")).timestamp()
    report = {name.removeprefix("summary."): values[name] for name in metrics if name in values}
    took = min(max(0.0, as_float(values.get("Runtime")) or 0.0), _LONGEST_S)
    state = row.get("State", "finished").lower()
    error = {"finished": "", "running": _UNFINISHED, "": _UNFINISHED}.get(state, f"{state} in W&B")
    config = nested({name.replace(".", "/"): values[name] for name in params if name in values})
    reports = [(took, report)] if report else []
    return ForeignTrial(config, start, reports, 0.0 if report else took, error, name=row.get("Name", ""))
