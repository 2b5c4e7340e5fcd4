"""A population that is changed while it trains: who continued from whom, and the hyperparameters over the steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from sweep.core.results import flatten
from sweep.core.trial import number_of
from sweep.core.values import as_float
from sweep.errors import ConfigError, MetricError
from sweep.figures.parameters import named_parameters, parameter_of
from sweep.figures.slices import axis_of
from sweep.figures.style import BEST, FATES, GREY, Figure, Look, finish, plain, rounded, some, value_text
from sweep.figures.trials import Field, lines, spread
from sweep.record.facts import Report, read_reports
from sweep.record.reader import ExperimentReader

SCHEDULERS = ("pbt", "pb2", "pbt_replay")  # as the record names those that change configs
_MOST = 100  # trials
_MOST_PANELS = 6
_ALL = Look("trial", GREY, "circle", "solid")
_WAY = Look("the best and what it comes from", BEST, "circle", "solid")


@dataclass(frozen=True, slots=True)
class Stretch:
    """One attempt of a trial that reported: the steps over which it had one config."""

    number: int
    seq: int  # of its first report
    begin: float  # the step of that, or the one before, from which it continued
    end: float
    config: Mapping[str, Any]  # flattened
    before: Mapping[str, Any] | None = None  # the config of the stretch before, where this does not just go on
    source: int | None = None  # the trial whose checkpoint it continued from, where that was another


_Population = Mapping[int, Sequence[Stretch]]


def stretches_of(reader: ExperimentReader) -> dict[int, list[Stretch]]:
    """Return the stretches of each trial that reported, by number, in order."""
    found: dict[int, list[Stretch]] = {}
    first: dict[tuple[str, int], Report] = {}
    last: dict[tuple[str, int], Report] = {}
    with reader.connect() as connection:
        for report in read_reports(connection):
            first.setdefault(key := (report.trial_id, report.attempt), report)
            last[key] = report
    for attempt in reader.history().attempts:
        if (key := (attempt.trial_id, attempt.number)) not in first:
            continue
        begin, end = (as_float(report.get("training_iteration")) for report in (first[key], last[key]))
        if begin is None or end is None:
            continue
        number, config = number_of(attempt.trial_id), flatten(attempt.config)
        earlier = found.setdefault(number, [])
        one = Stretch(number, first[key].seq, begin if attempt.number == 1 else begin - 1, end, config)
        if earlier:
            source = None if attempt.source is None else number_of(attempt.source.owner)
            is_changed = source is not None or repr(earlier[-1].config) != repr(config)
            one = replace(one, source=source, before=earlier[-1].config if is_changed else None)
        earlier.append(one)
    return found


def draw_population(field: Field, names: Sequence[str] | None) -> Figure:
    """Return the population; see `Plots.population`."""
    rows = {row.number: row for row in field.rows}  # others began while this was read
    found = {number: stretches for number, stretches in stretches_of(field.reader).items() if number in rows}
    if not found:
        raise MetricError(f"{field.reader.name} has no population: nothing was reported yet.")
    changes = [one for stretches in found.values() for one in stretches if one.before is not None]
    if not changes and field.reader.meta.get("scheduler") not in SCHEDULERS:
        raise ConfigError(
            f"no trial of {field.reader.name} changed its config while it trained; this figure shows sweeps with "
            "scheduler='pbt', 'pb2' or 'pbt_replay'."
        )
    way = _ancestry(found, field.best)
    kept = {*spread(sorted(found), _MOST), *(one.number for one in way)}
    shown = [one for number in sorted(kept) for one in found[number]]
    notes = [f"{len(kept):,} of {some(len(found), 'trial')}: a spread, and those the best one comes from."]
    notes = notes if len(kept) < len(found) else []
    chosen = _chosen([one for stretches in found.values() for one in stretches], changes, names)
    if len(chosen) > _MOST_PANELS:
        notes.append(f"The first {_MOST_PANELS} of {len(chosen)} parameters; params=[...] chooses others.")
        chosen = chosen[:_MOST_PANELS]
    panels = 1 + len(chosen)
    heights = {"row_heights": [1.3] + [1.0] * len(chosen), "vertical_spacing": 0.12 / panels}
    traces = _lineage(field, rows, shown, way)
    layout: dict[str, Any] = {"yaxis": {"title": "trial", "autorange": "reversed", "zeroline": False}}
    layout["yaxis"] |= {"tickvals": sorted(kept)} if len(kept) <= 20 else {}
    for index, name in enumerate(chosen, start=2):
        parameter = parameter_of(field.reader, name, [one.config for one in (*shown, *way)])
        traces += _panel(shown, parameter.values[: len(shown)], _ALL, index)
        traces += _panel(way, parameter.values[len(shown) :], _WAY, index)
        layout[f"yaxis{index}"] = axis_of(parameter, len(parameter.values)) | {"title": parameter.title}
    layout[f"xaxis{panels if panels > 1 else ''}"] = {"title": "training_iteration"}
    clones = [one for one in shown if one.source is not None]
    return finish(
        traces,
        "population",
        "Who continued from whom",
        notes=[field.note, *notes],
        summary=f"Lineage of {some(len(kept), 'trial')}: {some(len(changes), 'change')}, {len(clones)} of them with "
        f"another trial's checkpoint; below it the schedules of {', '.join(plain(name, 30) for name in chosen)}.",
        subplots={"rows": panels, "cols": 1, "shared_xaxes": True, **heights},
        height=390 + 150 * len(chosen),
        **layout,
    )


def _chosen(stretches: Sequence[Stretch], changes: Sequence[Stretch], names: Sequence[str] | None) -> list[str]:
    """Return the parameters to show: those named, else those that a change has changed, else those that differ."""
    configs = [one.config for one in stretches]
    if names is not None:
        return named_parameters(names, configs)
    known = dict.fromkeys(name for config in configs for name in config)
    pairs = [(one.before or {}, one.config) for one in changes]
    moved = [name for name in known if any(repr(old.get(name)) != repr(new.get(name)) for old, new in pairs)]
    return moved or [name for name in known if len({repr(config.get(name)) for config in configs}) > 1]


def _ancestry(found: _Population, best: int | None) -> list[Stretch]:
    """Return the way to the best trial, in the order of the steps: of each stretch the part that lies on it."""
    way: list[Stretch] = []
    number, until, seq = best, math.inf, math.inf
    while number is not None and number in found:
        source = None
        for one in reversed([one for one in found[number] if one.seq < seq]):  # later it may have begun anew
            if one.begin < until:
                way.append(replace(one, end=min(until, one.end)))
                until = one.begin
            source, seq = one.source, one.seq
            if source is not None:
                break
        number = source
    return way[::-1]


def _lineage(field: Field, rows: Mapping[int, Any], shown: Sequence[Stretch], way: Sequence[Stretch]) -> list[Any]:
    """Return a line for each trial, one from each that was copied to its copy, and the way to the best."""
    strokes = []
    for number, some_stretches in groupby(shown, lambda one: one.number):
        stretches, about = list(some_stretches), field.about(rows[number])
        ends = (stretches[0].begin, max(one.end for one in stretches))
        strokes.append([(rounded(step), number, number, about, 0.0) for step in ends])
    clones = []
    for one in shown:
        if one.before is not None:
            source, step, text = one.number if one.source is None else one.source, rounded(one.begin), _change(one)
            clones.append([(step, source, source, text, 0.0), (step, one.number, one.number, text, 8.0)])
    traces = [lines(strokes, _ALL, width=1.5, hoverinfo="text", opacity=0.7, mode="lines")]
    copied = Look("continued from another", FATES["stopped early"].color, "diamond", "dot")
    traces += [lines(clones, copied, width=1, hoverinfo="text")] if clones else []
    if way:
        stroke = [(rounded(step), one.number, one.number, "", 0.0) for one in way for step in (one.begin, one.end)]
        hover = "to the best: trial %{y}<extra></extra>"
        traces.append(lines([stroke], _WAY, width=3.5, hovertemplate=hover, mode="lines"))
    return traces


def _change(one: Stretch) -> str:
    """Return what hovers say of a change."""
    whose = "its own checkpoint" if one.source is None else f"trial {one.source:05d}"
    said = [f"<b>trial {one.number:05d}</b> at {one.begin:g}: continued from {whose}"]
    before = one.before or {}
    changed = [name for name in one.config if repr(before.get(name)) != repr(one.config[name])]
    said += [f"{plain(name, 30)}: {value_text(before.get(name))} to {value_text(one.config[name])}" for name in changed]
    return "<br>".join(said[:10])


def _panel(stretches: Sequence[Stretch], values: Sequence[float | None], look: Look, index: int) -> list[Any]:
    """Return the steps of one hyperparameter: a line for each trial, or one on the way to the best."""
    strokes: list[list[Any]] = [[]]
    before: Stretch | None = None
    for one, value in zip(stretches, values, strict=True):
        goes_on = before is not None and before.end == one.begin and (look is _WAY or before.number == one.number)
        if value is None or not goes_on:
            strokes.append([])
        if value is not None:
            strokes[-1] += [(rounded(step), rounded(value), one.number, "", 0.0) for step in (one.begin, one.end)]
        before = one
    style: dict[str, Any] = {"xaxis": f"x{index}", "yaxis": f"y{index}", "showlegend": False, "mode": "lines"}
    style["hovertemplate"] = "trial %{customdata[0]} at %{x}: %{y:.4~g}<extra></extra>"
    is_way = look is _WAY
    shown = [lines(strokes, look, width=3 if is_way else 1.2, opacity=1 if is_way else 0.6, **style)]
    return shown if any(strokes) else []
