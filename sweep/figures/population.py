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

from sweep.core.history import History
from sweep.core.results import flatten
from sweep.core.trial import number_of
from sweep.core.values import as_float
from sweep.errors import ConfigError, MetricError, nearest
from sweep.figures.parameters import Parameter, parameter_of
from sweep.figures.slices import axis_of
from sweep.figures.style import BEST, FATES, GREY, Look, finish, plain, rounded, some
from sweep.figures.trials import Field, Lines, spread, value_text
from sweep.record.reader import ExperimentReader

if TYPE_CHECKING:
    import plotly.graph_objects as go


SCHEDULERS = ("pbt", "pb2", "pbt_replay")  # as the record names those that change configs
_MOST = 100  # trials
_MOST_PANELS = 6
_WAY = "the best and what it comes from"


@dataclass(slots=True)
class Stretch:
    """One attempt of a trial that reported: steps from `begin` to `end` with one config.

    Attributes:
        seq: `result.seq` of its first report.
        config: flattened.
        is_changed: whether it did not just go on where the attempt before had been: its config is another, or its
            checkpoint is another trial's.
        source: number of the trial whose checkpoint it continued from, where that was another; None: its own.
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
    found: dict[int, list[Stretch]] = {}
    for attempt in History.of(reader.facts()).attempts:
        if attempt.first is None or attempt.last is None:
            continue
        begin, end = (as_float(result.get("training_iteration")) for result in (attempt.first, attempt.last))
        if begin is None or end is None:
            continue
        number, config = number_of(attempt.trial_id), flatten(attempt.config)
        before = found.setdefault(number, [])
        one = Stretch(number, attempt.number, attempt.first.seq, begin, end, config)
        if before:
            one.source = None if attempt.source is None else number_of(attempt.source.owner)
            one.is_changed = one.source is not None or _plain(before[-1].config) != _plain(config)
        before.append(one)
    return found


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
    rows, lines = {row.number: row for row in field.rows}, Lines()
    for number in sorted(found):
        about = field.about(rows[number])
        for step in (found[number][0].begin, max(one.end for one in found[number])):
            lines.add(number, rounded(step), number, about, 0)
        lines.end()
    look = Look("trial", GREY, "circle", "solid")
    traces = [lines.trace(look, width=1.5, hoverinfo="text", opacity=0.7).update(mode="lines")]
    traces += _clones(found)
    if way:
        lines = Lines()
        for part in way:
            for step in (part.begin, part.until):
                lines.add(part.stretch.number, rounded(step), part.stretch.number, "", 0)
        look = Look(_WAY, BEST, "circle", "solid")
        trace = lines.trace(look, width=3.5, hovertemplate="to the best: trial %{y}<extra></extra>")
        traces.append(trace.update(mode="lines"))
    return traces


def _clones(found: Mapping[int, Sequence[Stretch]]) -> list[Any]:
    """Return the lines from each trial that was copied to its copy, with a mark at the copy."""
    lines, is_any = Lines(), False
    for stretches in found.values():
        for before, one in pairwise(stretches):
            if one.is_changed:
                is_any = True
                step, text = rounded(one.begin - 1), _change(before, one)
                source = one.number if one.source is None else one.source
                lines.add(source, step, source, text, 0)
                lines.add(one.number, step, one.number, text, 8)
                lines.end()
    look = Look("continued from another", FATES["stopped early"].color, "diamond", "dot")
    return [lines.trace(look, width=1, hoverinfo="text")] if is_any else []


def _change(before: Stretch, one: Stretch) -> str:
    """Return what hovers say of a change."""
    whose = "its own checkpoint" if one.source is None else f"trial {one.source:05d}"
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
        lines = Lines()
        before: tuple[int, float] | None = None
        for one, value, first, last in parts:
            if value is None:
                continue
            if before is None or before[1] != first or not (is_best or before[0] == one.number):
                lines.end()
            for step in (first, last):
                lines.add(one.number, rounded(step), rounded(value), "", 0)
            before = (one.number, last)
        if before is not None:
            look = Look(_WAY if is_best else "trial", BEST if is_best else GREY, "circle", "solid")
            traces.append(
                lines.trace(
                    look,
                    width=3 if is_best else 1.2,
                    xaxis=f"x{index}",
                    yaxis=f"y{index}",
                    showlegend=False,
                    opacity=1 if is_best else 0.6,
                    hovertemplate="trial %{customdata[0]} at %{x}: %{y:.4~g}<extra></extra>",
                ).update(mode="lines")
            )
    return traces
