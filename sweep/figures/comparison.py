"""Several experiments in one figure: how soon each found how good a trial, and how its values are spread."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from operator import itemgetter

from sweep.core.ranking import beats, rankable
from sweep.core.values import shown_range
from sweep.errors import MetricError
from sweep.figures.style import FATES, Figure, axis_of_time, finish, graph_objects, plain, rounded, some, value_text
from sweep.record.reader import ExperimentReader
from sweep.results.winners import scores

_MOST = 2000  # values of an experiment that are drawn


def draw_best_so_far(readers: Mapping[str, ExperimentReader], metric: str, mode: str, over: str) -> Figure:
    """Return the best value so far of each experiment, over "trials" (with a last report) or "time" (of driving)."""
    series = {name: improvements(reader, metric, mode) for name, reader in readers.items()}
    if not any(series.values()):
        raise MetricError(f"no trial of {', '.join(readers)} has a usable number under {metric!r}.")
    column = 0 if over == "trials" else 1
    divisor, unit = 1.0, ""
    if over == "time":
        divisor, unit = axis_of_time(max(points[-1][1] for points in series.values() if points))
    traces = [
        graph_objects().Scatter(
            x=[rounded(point[column] / divisor) for point in points],
            y=[rounded(point[2]) for point in points],
            mode="lines+markers",
            name=plain(name),
            line={"shape": "hv", "color": look.color, "dash": look.dash, "width": 2},
            marker={"symbol": look.symbol, "size": 5},
            hovertext=[f"{plain(name)}: {value_text(point[2])} after {some(point[0], 'trial')}" for point in points],
            hoverinfo="text",
        )
        for (name, points), look in zip(series.items(), cycle(FATES.values()), strict=False)
        if points
    ]
    is_log = shown_range(point[2] for points in series.values() for point in points)[2]
    ends = ", ".join(f"{plain(name)} {value_text(points[-1][2])}" for name, points in series.items() if points)
    return finish(
        traces,
        f"best over {over}",
        f"best {plain(metric)} so far",
        summary=f"the best {plain(metric)} so far of each experiment; at the end: {ends}.",
        xaxis_title=f"{unit} of driving" if over == "time" else "trials with a last report",
        yaxis={"title": plain(metric), "type": "log" if is_log else "linear"},
    )


def draw_values(readers: Mapping[str, ExperimentReader], metric: str, mode: str) -> Figure:
    """Return the values of all trials of each experiment, by their last reports, as boxes with their points."""
    found = {
        name: [value for _, value in scores(reader, metric, mode, "last") if rankable(value) is not None]
        for name, reader in readers.items()
    }
    if not any(found.values()):
        raise MetricError(f"no trial of {', '.join(readers)} has a usable number under {metric!r}.")
    most = max(map(len, found.values()))
    traces = [
        graph_objects().Box(
            x=[rounded(value) for value in sorted(values)[:: max(1, len(values) // _MOST)]],
            name=plain(name, 24),
            boxpoints="all" if len(values) <= 200 else "outliers",
            jitter=0.4,
            marker={"color": look.color, "size": 4, "opacity": 0.6, "symbol": look.symbol},
            line={"width": 1.5},
        )
        for (name, values), look in zip(found.items(), cycle(FATES.values()), strict=False)
    ]
    sizes = ", ".join(f"{plain(name)} {some(len(values), 'trial')}" for name, values in found.items())
    is_log = shown_range(value for values in found.values() for value in values)[2]
    return finish(
        traces,
        "values",
        f"{plain(metric)} of all trials",
        summary=f"the spread of {plain(metric)} by the last reports: {sizes}.",
        notes=[f"Of more than {_MOST:,} trials an even selection." if most > _MOST else ""],
        xaxis={"title": plain(metric), "type": "log" if is_log else "linear"},
        yaxis={"autorange": "reversed"},
        showlegend=False,
    )


def improvements(reader: ExperimentReader, metric: str, mode: str) -> list[tuple[int, float, float]]:
    """Return (trials that had made their last report, seconds of driving, best value) at each improvement and at the
    end."""
    value_of = dict(scores(reader, metric, mode, "last"))
    times = [(row.trial_id, row.last_report.at) for row in reader.trials() if row.last_report is not None]
    times.sort(key=itemgetter(1))
    found: list[tuple[int, float, float]] = []
    for count, (trial_id, at) in enumerate(times, 1):
        value = rankable(value_of.get(trial_id))
        if value is not None and (not found or beats(value, found[-1][2], mode)):
            found.append((count, at, value))
    if found:
        found.append((len(times), times[-1][1], found[-1][2]))
    return found
