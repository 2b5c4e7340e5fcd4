"""Several objectives against each other: the Pareto front, and the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from searchers.pareto import pareto_front
from sweep import checks
from sweep.errors import ConfigError, MetricError
from sweep.figures.style import BEST, GREY, Look, axis_of_values, finish, number_text, plain, rounded, some
from sweep.figures.trials import Field, marks
from sweep.record.reader import ExperimentReader
from sweep.record.rows import TrialRow

if TYPE_CHECKING:
    import plotly.graph_objects as go


_MOST = 2000


def draw_pareto(reader: ExperimentReader, metrics: Sequence[str] | None, modes: Sequence[str] | None) -> go.Figure:
    """Return the front and the rest; see `Plots.pareto`."""
    names, goals, notes = _objectives(reader, metrics, modes)
    field = Field(reader, None)
    values = {name: _last(reader, name) for name in names}
    rows = [row for row in field.rows if all(row.number in values[name] for name in names)]
    points = [[values[name][row.number] for name in names] for row in rows]
    in_front = set(pareto_front(points, goals))
    if not in_front:
        under = f"no trial of {reader.name} has numbers under all of {', '.join(map(repr, names))}"
        raise MetricError(f"{under}. {field.why_not(names)}")
    front = [row for index, row in enumerate(rows) if index in in_front]
    rest = [row for index, row in enumerate(rows) if index not in in_front]
    front_shown, front_note = field.thinned(front, _MOST)
    rest_shown, rest_note = field.thinned(rest, _MOST)
    if front_note or rest_note:
        notes.append(f"{len(front_shown) + len(rest_shown):,} of {some(len(rows), 'trial')}.")
    if len(rows) < len(field.rows):
        notes.append(f"Without {some(len(field.rows) - len(rows), 'trial')} that lack a number.")
    traces = [
        _trace(field, rest_shown, values, Look("beaten by another", GREY, "circle-open", ""), 6),
        _trace(field, front_shown, values, Look("Pareto front", BEST, "diamond", ""), 8),
    ]
    goals_shown = " and ".join(f"{plain(name, 30)} ({mode})" for name, mode in zip(names, goals, strict=True))
    axes = []
    for name, mode in zip(names, goals, strict=True):
        best = (min if mode == "min" else max)(values[name].values())
        axis, outside = axis_of_values(f"{plain(name, 30)} ({mode})", values[name].values(), best)
        axes.append({"type": "linear"} | axis)
        notes += [outside] if outside and outside not in notes else []
    layout: dict[str, Any] = {"xaxis": axes[0], "yaxis": axes[1]}
    if len(names) == 3:
        scene = {
            f"{letter}axis": axis
            | {"title": {"text": axis["title"], "font": {"size": 11}}, "dtick": 1 if axis["type"] == "log" else None}
            for letter, axis in zip("xyz", axes, strict=True)
        }
        layout = {"scene": scene | {"camera": {"eye": {"x": 1.7, "y": 1.7, "z": 1.1}}}, "height": 540}
    return finish(
        traces,
        "pareto",
        "Pareto front",
        note=" ".join(notes),
        summary=f"{some(len(front), 'trial')} of {len(rows):,} that no other beats in {goals_shown}.",
        **layout,
    )


def _objectives(
    reader: ExperimentReader, metrics: Sequence[str] | None, modes: Sequence[str] | None
) -> tuple[list[str], list[str], list[str]]:
    """Return the two or three objectives to show, their modes, and what is to be said of it."""
    known = [(name, mode) for name, mode in reader.objectives if mode != "obs"]
    if metrics is None and modes is None:
        if len(known) < 2:
            raise ConfigError(
                "this sweep has no two objectives; name them: pareto(metrics=['error', 'latency'], modes=['min', "
                "'min'])."
            )
        notes = [f"The first 3 of {len(known)} objectives, and their front."] if len(known) > 3 else []
        return [name for name, _ in known[:3]], [mode for _, mode in known[:3]], notes
    names = [name for name, _ in known] if metrics is None else metrics
    own = dict(known)
    if modes is None and isinstance(names, (list, tuple)) and all(name in own for name in names):
        modes = [own[name] for name in names]
    if (
        not isinstance(names, (list, tuple))
        or not isinstance(modes, (list, tuple))
        or len(names) != len(modes)
        or not 2 <= len(names) <= 3
        or not all(isinstance(name, str) for name in names)
    ):
        raise ConfigError(
            f"the objectives are metrics={metrics!r}, modes={modes!r}; expected two lists of two or three each, such "
            "as metrics=['error', 'latency'], modes=['min', 'min']."
        )
    return list(names), [checks.mode(mode) for mode in modes], []


def _last(reader: ExperimentReader, name: str) -> dict[int, float]:
    number_of = {row.trial_id: row.number for row in reader.trials()}
    last = reader.values(name, last_only=True)
    return {number_of[i]: value for i, _, value in last if i in number_of and rounded(value) is not None}


def _trace(field: Field, rows: Sequence[TrialRow], values: dict[str, dict[int, float]], look: Look, size: int) -> Any:
    texts = {
        row.number: "<br>".join(
            [field.about(row), *(f"{plain(name, 30)}: {number_text(one[row.number])}" for name, one in values.items())]
        )
        for row in rows
    }
    size -= 2 * (len(values) == 3)
    return marks(field, rows, look, [*values.values()], texts=texts, marker={"size": size})
