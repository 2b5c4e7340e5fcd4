"""Small pictures for notebooks: inline SVG without scripts, in the page's own colours and legible on light and dark."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sweep.core.ranking import beats
from sweep.core.values import shown_range
from sweep.display.formats import clean, fit, number

_WIDTH, _HEIGHT = 480, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, _WIDTH - 8, 24, _HEIGHT - 34
_MAX_POINTS, _MAX_DOTS = 60, 400  # of a line; of all trials, which become a band
# Between light and dark, so that each is seen on both; what has none is in the colour of the page's text.
_COLOURS = {"running": "#2f81f7", "finished": "#2da44e", "failed": "#e5534b", "best": "#d9822b"}
_ORDER = ("waiting", "stopped early", "paused", "failed", "finished", "running", "best")

_Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Curve:
    """What a trial reported: `points` are (step, value), `state` is one of `sweep.core.trial.STATES`."""

    trial: int
    state: str
    points: Sequence[_Point]
    is_best: bool = False

    @property
    def style(self) -> str:
        """By what it is coloured."""
        return "best" if self.is_best else self.state


def learning_curves(curves: Iterable[Curve], metric: str) -> str:
    """Return the curves as an SVG element, the best one on top; nothing where no curve has a finite point."""
    drawn = [(curve.style, f"trial {curve.trial:05d}", _finite(curve.points)) for curve in curves]
    return _picture(drawn, metric, "step", sorted({style for style, _, points in drawn if points}, key=_ORDER.index))


def best_so_far(values: Sequence[tuple[int, float, str]], metric: str, mode: str) -> str:
    """Return an SVG element of what each trial, (number, value, state), reached, and of the best until then."""
    best: list[_Point] = []
    for trial, value, _ in values:
        if math.isfinite(value) and (not best or beats(value, best[-1][1], mode)):
            best += [(trial, best[-1][1])] if best else []
            best.append((trial, value))
    best += [(values[-1][0], best[-1][1])] if best else []
    kept = values[:: math.ceil(len(values) / _MAX_DOTS) or 1]
    dots = [(state, f"trial {trial:05d}", _finite([(trial, value)])) for trial, value, state in kept]
    return _picture([*dots, ("best", "best so far", best)], metric, "trial", ["best"])


def _finite(points: Sequence[_Point]) -> list[_Point]:
    """Return a few of the points that can be drawn, the first and the last among them."""
    found = [point for point in points if all(map(math.isfinite, point))]
    if len(found) <= _MAX_POINTS:
        return found
    return [found[round(i * (len(found) - 1) / (_MAX_POINTS - 1))] for i in range(_MAX_POINTS)]


def _picture(
    series: Sequence[tuple[str, str, Sequence[_Point]]], metric: str, below: str, legend: Sequence[str]
) -> str:
    """Return lines, and dots where there is one point, as an SVG element: (style, name, points) of each."""
    series = sorted((one for one in series if one[2]), key=lambda one: _ORDER.index(one[0]))
    if not series:
        return ""
    xs = [x for _, _, points in series for x, _ in points]
    low, high, is_log = shown_range(y for _, _, points in series for _, y in points)
    left, right = min(xs), max(xs)

    def part(value: float, start: float, end: float) -> float:
        span = end - start
        return (value - start) / span if 0 < span < math.inf else 0.5

    def place(x: float, y: float) -> str:
        scale = math.log if is_log else float
        up = part(scale(min(max(y, low), high)), scale(low), scale(high))
        across = part(x, left, right)
        return f"{_LEFT + across * (_RIGHT - _LEFT):.1f},{_BOTTOM - up * (_BOTTOM - _TOP):.1f}"

    drawn = [f'<path d="M{_LEFT} {_TOP}V{_BOTTOM}H{_RIGHT}" fill="none" stroke="currentColor" stroke-opacity="0.18"/>']
    for style, name, points in series:
        where, title = " ".join(place(x, y) for x, y in points), f"<title>{name}</title>"
        colour = _COLOURS.get(style, "currentColor")
        paint = f'="{colour}" opacity="{1 if style in _COLOURS else 0.35}"'
        if len(points) == 1:
            x, y = where.split(",")
            drawn.append(f'<circle cx="{x}" cy="{y}" r="2.5" fill{paint}>{title}</circle>')
        else:
            width = 2.5 if style == "best" else 1.3
            drawn.append(
                f'<polyline points="{where}" fill="none" stroke-width="{width}" stroke{paint}>{title}</polyline>'
            )
    name, grey = fit(clean(metric), 40) + " (log)" * is_log, "currentColor"
    labels = [
        (4, 13, name, "start", grey),
        ((_LEFT + _RIGHT) // 2, _HEIGHT - 6, below, "middle", grey),
        (_LEFT - 6, _TOP + 4, number(high), "end", grey),
        (_LEFT - 6, _BOTTOM + 4, number(low), "end", grey),
        (_LEFT, _BOTTOM + 16, number(left), "start", grey),
        (_RIGHT, _BOTTOM + 16, number(right), "end", grey),
        *((_RIGHT - 90 * at, 13, style, "end", _COLOURS.get(style, grey)) for at, style in enumerate(reversed(legend))),
    ]
    drawn += [
        f'<text x="{x}" y="{y}" text-anchor="{side}" fill="{colour}">{html.escape(shown)}</text>'
        for x, y, shown, side, colour in labels
    ]
    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img"'
    look = 'font-size="12" font-family="system-ui,sans-serif" style="max-width:100%;height:auto;color:inherit"'
    label = f'aria-label="{html.escape(clean(metric))} by {below}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {look} {label}>{"".join(drawn)}</svg>'
