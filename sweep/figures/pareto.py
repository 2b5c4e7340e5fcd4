"""Several objectives against each other: the Pareto front, and the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from searchers.pareto import pareto_front
from sweep import checks
from sweep.errors import ConfigError
from sweep.figures.style import BEST, GREY, Figure, Look, axis_of_values, finish, plain, rounded, some, value_text
from sweep.figures.trials import Field, marks, spread
from sweep.record.reader import ExperimentReader
from sweep.record.rows import TrialRow
from sweep.results.winners import no_number

_MOST = 2000


def draw_pareto(reader: ExperimentReader, metrics: Sequence[str] | None, modes: Sequence[str] | None) -> Figure:
    """Return the front and the rest; see `Plots.pareto`."""
    names, goals, notes = _objectives(reader, metrics, modes)
    field = Field(reader)
    values = {name: {n: v for n, v in Field(reader, name).values.items() if rounded(v) is not None} for name in names}
    rows = [row for row in field.rows if all(row.number in values[name] for name in names)]
    in_front = set(pareto_front([[values[name][row.number] for name in names] for row in rows], goals))
    if not in_front:
        raise no_number(reader, *names)
    front = [row for index, row in enumerate(rows) if index in in_front]
    rest = [row for index, row in enumerate(rows) if index not in in_front]
    shown, shown_rest = spread(front, _MOST), spread(rest, _MOST)
    if len(shown) + len(shown_rest) < len(rows):
        notes.append(f"{len(shown) + len(shown_rest):,} of {some(len(rows), 'trial')}.")
    notes.append(field.without(rows, "lack a number"))
    traces = [
        _trace(field, shown_rest, values, Look("beaten by another", GREY, "circle-open", ""), 6),
        _trace(field, shown, values, Look("Pareto front", BEST, "diamond", ""), 8),
    ]
    titles = [f"{plain(name, 30)} ({mode})" for name, mode in zip(names, goals, strict=True)]
    axes = []
    for title, mode, found in zip(titles, goals, values.values(), strict=True):
        axis, outside = axis_of_values(title, found.values(), (min if mode == "min" else max)(found.values()))
        axes.append({"type": "linear"} | axis)
        notes += [outside] if outside not in notes else []
    layout: dict[str, Any] = {"xaxis": axes[0], "yaxis": axes[1]}
    if len(names) == 3:
        for axis in axes:
            axis["title"] = {"text": axis["title"], "font": {"size": 11}}
            axis["dtick"] = 1 if axis["type"] == "log" else None
        scene = dict(zip(("xaxis", "yaxis", "zaxis"), axes, strict=True))
        layout = {"scene": scene | {"camera": {"eye": {"x": 1.7, "y": 1.7, "z": 1.1}}}, "height": 540}
    return finish(
        traces,
        "pareto",
        "Pareto front",
        notes=notes,
        summary=f"{some(len(front), 'trial')} of {len(rows):,} that no other beats in {' and '.join(titles)}.",
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


def _trace(field: Field, rows: Sequence[TrialRow], values: dict[str, dict[int, float]], look: Look, size: int) -> Any:
    texts = {
        row.number: "<br>".join(
            [field.about(row), *(f"{plain(name, 30)}: {value_text(one[row.number])}" for name, one in values.items())]
        )
        for row in rows
    }
    size -= 2 * (len(values) == 3)
    return marks(field, rows, look, [*values.values()], texts=texts, marker={"size": size})
