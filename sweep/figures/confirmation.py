"""The repeats of the best configs of an experiment, and the mean of each with its confidence interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sweep.figures.style import BEST, FATES, Figure, finish, graph_objects, plain, rounded


def draw_confirmation(configs: Sequence[Mapping[str, Any]], metric: str, verdict: str, has_best: bool) -> Figure:
    """Return a column for each config, in their order; see `Confirmation`. The first may be the best."""
    traces = []
    for place, one in enumerate(configs):
        name, number, color = f"{one['trial']:05d}", [one["trial"]], FATES["finished"].color
        marks: dict[str, Any] = {"mode": "markers", "name": name, "marker": {"color": color, "size": 7}}
        y = [rounded(value) for value in one["values"]]
        x = [place - 0.12] * len(y)
        traces.append(graph_objects().Scatter(x=x, y=y, opacity=0.5, customdata=[number] * len(y), **marks))
        if one["high"] is not None:
            marks["marker"] = {"color": BEST if has_best and not place else color, "size": 10, "symbol": "diamond"}
            bars = {"type": "data", "array": [rounded(one["high"] - one["mean"])]}
            mean = {"x": [place], "y": [rounded(one["mean"])], "error_y": bars, "customdata": [number]}
            traces.append(graph_objects().Scatter(**mean, **marks))
    ticks = {"tickvals": list(range(len(configs))), "ticktext": [f"{one['trial']:05d}" for one in configs]}
    return finish(
        traces,
        "confirmation",
        f"{plain(metric, 40)} with other seeds",
        summary=f"{plain(verdict, 400)}.",
        xaxis={"title": "trial in the experiment", **ticks},
        yaxis={"title": plain(metric, 40)},
        showlegend=False,
    )
