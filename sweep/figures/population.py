"""A population that is changed while it trains: who continued from whom, and the hyperparameters over the steps."""

from __future__ import annotations

import importlib
import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from sweep.core.results import flatten
from sweep.errors import ConfigError, MetricError, nearest
from sweep.figures.parameters import Parameter, parameter_of
from sweep.figures.slices import axis_of
from sweep.figures.style import BEST, FATES, GREY, finish, graph_objects, plain, rounded, some
from sweep.figures.trials import Field, spread, value_text
from sweep.record.encoding import decode
from sweep.record.reader import ExperimentReader

if TYPE_CHECKING:
    import plotly.graph_objects as go


SCHEDULERS = ("pbt", "pb2", "pbt_replay")  # as the record names those that change configs
_MOST = 100  # trials
_MOST_PANELS = 6
_GLOBAL_FILE = "pbt_global.txt"  # who continued from whom, as `sweep.schedulers.pbt_policy` describes it
_MOST_BYTES = 50_000_000


@dataclass(slots=True)
class Stretch:
    """One attempt of a trial that reported: steps from `begin` to `end` with one config.

    Attributes:
        seq: `result.seq` of its first report.
        config: flattened.
        is_changed: whether it did not just go on where the attempt before had been: its config is another, or its
            checkpoint is another trial's.
        source: number of the trial whose checkpoint it continued from, where that was another; None: its own, or
            unknown.
    """

    number: int
    attempt: int
    seq: int
    begin: float
    end: float
    config: Mapping[str, Any]
    is_changed: bool = False
    source: int | None = None


def stretches_of(reader: ExperimentReader) -> dict[int, list[Stretch]]:
    """Return the stretches of each trial that reported, by number, in order."""
    configs = _configs(reader)
    lines = _exploits(reader)
    found: dict[int, list[Stretch]] = {}
    unknown: dict[int, Stretch] = {}  # by `result.seq` of its first report
    number_of = {row.trial_id: row.number for row in reader.trials()}
    for trial_id, attempt, begin, end, first_seq in _reported(reader):
        if trial_id not in number_of or not all(isinstance(step, (int, float)) for step in (begin, end)):
            continue
        number = number_of[trial_id]
        before = found.setdefault(number, [])
        known = [config for a, config in configs.get(trial_id, {}).items() if a <= attempt]
        config = known[-1] if known else {}
        one = Stretch(number, attempt, first_seq, begin, end, config)
        if before:
            one.is_changed = _plain(before[-1].config) != _plain(config)
            one.source = _by_policy(before[-1], one, lines[number])
            one.is_changed = one.is_changed or one.source is not None
            if one.source is None:
                unknown[first_seq] = one
        before.append(one)
    if unknown:
        _find_sources(reader, unknown, number_of)
    for one in (one for stretches in found.values() for one in stretches):
        if one.source not in found or one.source == one.number:  # a file that is not of this experiment
            one.source = None
    return found


def _reported(reader: ExperimentReader) -> list[tuple[str, int, Any, Any, int]]:
    """Return (trial id, attempt, step of its first and of its last report, `result.seq` of the first) of each attempt
    that reported, sorted; the JSON of other reports is not looked at."""
    first: dict[tuple[str, int], int] = {}
    last: dict[tuple[str, int], int] = {}
    query = "SELECT coalesce(json_extract(metrics, '$.training_iteration'), 0) FROM result WHERE seq = ?"
    with reader.connect() as connection:
        for trial_id, attempt, seq in connection.execute("SELECT trial_id, attempt, seq FROM result ORDER BY seq"):
            first.setdefault((trial_id, attempt), seq)
            last[trial_id, attempt] = seq
        return [
            (*key, *(connection.execute(query, (seq,)).fetchone()[0] for seq in (first[key], last[key])), first[key])
            for key in sorted(first)
        ]


def _configs(reader: ExperimentReader) -> dict[str, dict[int, dict[str, Any]]]:
    """Return the flattened config of each attempt that was recorded with one: the first, and those after it."""
    found: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    with reader.connect() as connection:
        for trial_id, text in connection.execute(
            "SELECT trial_id, data FROM events WHERE kind = 'Suggested' AND json_type(data, '$.config') = 'object'"
            " ORDER BY seq"
        ):
            found[trial_id].setdefault(1, flatten(decode(text).get("config", {})))
        for (text,) in connection.execute(
            "SELECT commands FROM events WHERE commands IS NOT NULL AND commands LIKE '%[\"Start\",%' ORDER BY seq"
        ):
            for row in decode(text):
                if isinstance(row, list) and len(row) > 4 and row[0] == "Start" and isinstance(row[4], Mapping):
                    found[row[1]][row[2]] = flatten(row[4])
    for row in reader.trials():
        found[row.trial_id].setdefault(1, flatten(row.config))
    return {trial_id: dict(sorted(configs.items())) for trial_id, configs in found.items()}


def _exploits(reader: ExperimentReader) -> dict[int, list[tuple[int, Any, Any]]]:
    """Return what the policy file says, by the number of the trial that gave itself up: each (source, step at which it
    did, new config)."""
    found: dict[int, list[tuple[int, Any, Any]]] = defaultdict(list)
    path = reader.root / _GLOBAL_FILE
    if not path.is_file() or path.stat().st_size > _MOST_BYTES:
        return found
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            target, source, given_up_at, _, _, config = json.loads(line)
            numbers = [int(str(tag).partition("_")[0]) for tag in (target, source)]
        except (ValueError, TypeError):  # cut off when the driver died, or not ours
            continue
        found[numbers[0]].append((numbers[1], given_up_at, config))
    return found


def _by_policy(before: Stretch, one: Stretch, lines: list[tuple[int, Any, Any]]) -> int | None:
    """Return whose checkpoint an attempt began from, as the policy file says; None: its own, or unknown.

    Args:
        lines: those of the trial that are left; they are used up.
    """
    for place, (source, given_up_at, config) in enumerate(lines):
        is_it = isinstance(config, Mapping) and _plain(flatten(config)) == _plain(one.config)
        if is_it and (one.is_changed or given_up_at == before.end):
            del lines[: place + 1]
            return source
    return None


def _find_sources(reader: ExperimentReader, unknown: Mapping[int, Stretch], number_of: Mapping[str, int]) -> None:
    """Find whose checkpoint those attempts began from that no policy file names: of the one other trial that trained
    for just as long when it saved; one that did not change and may have gone on from its own is left as it is."""
    savers: dict[float, set[int]] = defaultdict(set)
    with reader.connect() as connection:
        for seq, trial_id, total, since, checkpoint in connection.execute(
            "SELECT seq, trial_id, json_extract(metrics, '$.time_total_s'),"
            " json_extract(metrics, '$.time_since_restore'), checkpoint FROM result ORDER BY seq"
        ):
            if not isinstance(total, (int, float)):
                continue
            one = unknown.get(seq)
            if one is not None and isinstance(since, (int, float)) and total > since:
                owners = savers[round(total - since, 7)]
                if len(owners - {one.number}) == 1 and (one.is_changed or one.number not in owners):
                    (one.source,) = owners - {one.number}
                    one.is_changed = True
            if checkpoint is not None and trial_id in number_of:
                savers[round(total, 7)].add(number_of[trial_id])


def _plain(config: Mapping[str, Any]) -> str:
    return json.dumps(dict(config), default=repr, sort_keys=True)


class _Part(NamedTuple):
    """What of a stretch is on the way to the best trial: from one step to another."""

    stretch: Stretch
    begin: float
    until: float


def draw_population(field: Field, names: Sequence[str] | None) -> go.Figure:
    """Return the population; see `Plots.population`."""
    known = {row.number for row in field.rows}  # others began while this was read
    found = {number: stretches for number, stretches in stretches_of(field.reader).items() if number in known}
    if not found:
        raise MetricError(f"{field.reader.name} has no population. {field.why_nothing()}")
    changes = [one for stretches in found.values() for one in stretches if one.is_changed]
    if not changes and field.reader.meta.get("scheduler") not in SCHEDULERS:
        raise ConfigError(
            f"no trial of {field.reader.name} changed its config while it trained; this figure shows sweeps with "
            "scheduler='pbt', 'pb2' or 'pbt_replay'."
        )
    chosen = _chosen(found, changes, names)
    way = _ancestry(found, field.best())
    rows = [row for row in field.rows if row.number in found]
    kept = {row.number for row in spread(rows, _MOST)} | {part.stretch.number for part in way}
    notes = [f"{len(kept):,} of {some(len(rows), 'trial')}: a spread, and those the best one comes from."] * (
        len(kept) < len(rows)
    )
    shown = {number: stretches for number, stretches in found.items() if number in kept}
    if len(chosen) > _MOST_PANELS:
        notes.append(f"The first {_MOST_PANELS} of {len(chosen)} parameters; params=[...] chooses others.")
        chosen = chosen[:_MOST_PANELS]
    schedules = [_schedule(field, name, shown) for name in chosen]
    panels = 1 + len(schedules)
    figure = importlib.import_module("plotly.subplots").make_subplots(
        rows=panels,
        cols=1,
        shared_xaxes=True,
        vertical_spacing=0.12 / panels,
        row_heights=[1.3] + [1.0] * len(schedules),
    )
    traces = [*_lineage(field, shown, way)]
    layout: dict[str, Any] = {"yaxis": {"title": "trial", "autorange": "reversed", "zeroline": False}}
    if len(shown) <= 20:
        layout["yaxis"] |= {"tickvals": sorted(shown)}
    for index, (parameter, order) in enumerate(schedules, start=2):
        traces += _panel(parameter, order, way, index)
        layout[f"yaxis{index}"] = axis_of(parameter, len(order))
        layout[f"yaxis{index}"]["title"] = parameter.title
    layout[f"xaxis{panels if panels > 1 else ''}"] = {"title": "training_iteration"}
    listed = ", ".join(plain(name, 30) for name in chosen)
    clones = [one for stretches in shown.values() for one in stretches if one.source is not None]
    return finish(
        traces,
        "population",
        "Who continued from whom",
        note=" ".join(notes),
        summary=f"Lineage of {some(len(shown), 'trial')}: {some(len(changes), 'change')}, {len(clones)} of "
        f"them with another trial's checkpoint; below it the schedules of {listed or 'no parameter'}.",
        figure=figure,
        height=190 + 200 + 150 * len(schedules),
        **layout,
    )


def _chosen(
    found: Mapping[int, Sequence[Stretch]], changes: Sequence[Stretch], names: Sequence[str] | None
) -> list[str]:
    """Return the parameters to show: those named, else those that a change has changed, else those that differ."""
    known = list(dict.fromkeys(name for stretches in found.values() for one in stretches for name in one.config))
    if names is not None:
        wanted = [names] if isinstance(names, str) else list(names)
        for name in wanted:
            if name not in known:
                raise ConfigError(f"no trial has a parameter {name!r}. {nearest(str(name), known)}")
        return wanted
    several: dict[str, set[str]] = defaultdict(set)
    moved: set[str] = set()
    for stretches in found.values():
        for before, one in pairwise(stretches):
            moved |= {name for name in known if repr(before.config.get(name)) != repr(one.config.get(name))}
        for one in stretches:
            for name in known:
                several[name].add(repr(one.config.get(name)))
    return [name for name in known if name in moved] or [name for name in known if len(several[name]) > 1]


def _ancestry(found: Mapping[int, Sequence[Stretch]], best: int | None) -> list[_Part]:
    """Return the way to the best trial, in the order of the steps."""
    way: list[_Part] = []
    number, until, seq = best, math.inf, math.inf
    while number is not None and number in found:
        before = [one for one in found[number] if one.seq < seq]  # what it was then: later it may have begun anew
        for index in range(len(before) - 1, -1, -1):
            one = before[index]
            begin = one.begin if one.attempt == 1 else one.begin - 1
            if begin < until:
                way.append(_Part(one, begin, min(until, one.end)))
                until = begin
            if one.source is not None:
                break
        number, seq = (before[index].source, before[index].seq) if before else (None, seq)
    return way[::-1]


def _schedule(field: Field, name: str, found: Mapping[int, Sequence[Stretch]]) -> tuple[Parameter, list[Stretch]]:
    order = [one for number in sorted(found) for one in found[number]]
    return parameter_of(field.reader, name, [one.config for one in order]), order


def _lineage(field: Field, found: Mapping[int, Sequence[Stretch]], way: Sequence[_Part]) -> list[Any]:
    go = graph_objects()
    rows = {row.number: row for row in field.rows}
    x: list[Any] = []
    y: list[Any] = []
    numbers: list[Any] = []
    texts: list[str] = []
    for number in sorted(found):
        stretches = found[number]
        about = field.about(rows[number])
        x += [rounded(stretches[0].begin), rounded(max(one.end for one in stretches)), None]
        y += [number, number, None]
        numbers += [[number]] * 3
        texts += [about, about, ""]
    traces = [
        go.Scatter(
            x=x[:-1],
            y=y[:-1],
            customdata=numbers[:-1],
            hovertext=texts[:-1],
            hoverinfo="text",
            mode="lines",
            name="trial",
            line={"color": GREY, "width": 1.5},
            opacity=0.7,
        )
    ]
    traces += _clones(found)
    if way:
        ends = [(step, part.stretch.number) for part in way for step in (part.begin, part.until)]
        traces.append(
            go.Scatter(
                x=[rounded(step) for step, _ in ends],
                y=[number for _, number in ends],
                customdata=[[number] for _, number in ends],
                mode="lines",
                name="the best and what it comes from",
                line={"color": BEST, "width": 3.5},
                hovertemplate="to the best: trial %{y}<extra></extra>",
            )
        )
    return traces


def _clones(found: Mapping[int, Sequence[Stretch]]) -> list[Any]:
    """Return the lines from each trial that was copied to its copy, with a mark at the copy."""
    x: list[Any] = []
    y: list[Any] = []
    numbers: list[Any] = []
    texts: list[str] = []
    sizes: list[int] = []
    for stretches in found.values():
        for before, one in pairwise(stretches):
            if not one.is_changed:
                continue
            step = rounded(one.begin - 1)
            source = one.number if one.source is None else one.source
            text = _change(before, one)
            x += [step, step, None]
            y += [source, one.number, None]
            numbers += [[source], [one.number], [one.number]]
            texts += [text, text, ""]
            sizes += [0, 8, 0]
    if not x:
        return []
    look = FATES["stopped early"]
    return [
        graph_objects().Scatter(
            x=x[:-1],
            y=y[:-1],
            customdata=numbers[:-1],
            hovertext=texts[:-1],
            hoverinfo="text",
            mode="lines+markers",
            name="continued from another",
            line={"color": look.color, "width": 1, "dash": "dot"},
            marker={"color": look.color, "symbol": "diamond", "size": sizes[:-1], "line": {"width": 0}},
        )
    ]


def _change(before: Stretch, one: Stretch) -> str:
    """Return what hovers say of a change."""
    whose = "its own checkpoint, or an unknown one" if one.source is None else f"trial {one.source:05d}"
    lines = [f"<b>trial {one.number:05d}</b> at {one.begin - 1:g}: continued from {whose}"]
    for name in one.config:
        old, new = before.config.get(name), one.config[name]
        if repr(old) != repr(new):
            lines.append(f"{plain(name, 30)}: {value_text(old)} to {value_text(new)}")
    return "<br>".join(lines[:10])


def _panel(parameter: Parameter, order: Sequence[Stretch], way: Sequence[_Part], index: int) -> list[Any]:
    """Return the steps of one hyperparameter: of all trials, and above them on the way to the best."""
    everywhere = [
        (one, value, one.begin if one.attempt == 1 else one.begin - 1, one.end)
        for one, value in zip(order, parameter.values, strict=True)
    ]
    value_of = {id(one): value for one, value, _, _ in everywhere}
    on_way = [(part.stretch, value_of[id(part.stretch)], part.begin, part.until) for part in way]
    traces = []
    for is_best, parts in ((False, everywhere), (True, on_way)):
        x: list[Any] = []
        y: list[Any] = []
        numbers: list[Any] = []
        before: tuple[int, float] | None = None
        for one, value, first, last in parts:
            if value is None:
                continue
            is_next = before is not None and before[1] == first and (is_best or before[0] == one.number)
            if x and not is_next:
                x.append(None)
                y.append(None)
                numbers.append([one.number])
            x += [rounded(first), rounded(last)]
            y += [rounded(value)] * 2
            numbers += [[one.number]] * 2
            before = (one.number, last)
        if x:
            traces.append(
                graph_objects().Scatter(
                    x=x,
                    y=y,
                    xaxis=f"x{index}",
                    yaxis=f"y{index}",
                    mode="lines",
                    showlegend=False,
                    customdata=numbers,
                    line={"color": BEST if is_best else GREY, "width": 3 if is_best else 1.2},
                    opacity=1 if is_best else 0.6,
                    name="the best and what it comes from" if is_best else "trial",
                    hovertemplate="trial %{customdata[0]} at %{x}: %{y:.4~g}<extra></extra>",
                )
            )
    return traces
