"""Small pictures for notebooks: inline SVG without scripts, in the page's own colours and legible on light and dark."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sweep.core.ranking import beats
from sweep.core.values import shown_range
from sweep.display.formats import clean, number

_WIDTH, _HEIGHT = 480, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 8, 24, 34
_MAX_POINTS = 60
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


@dataclass(frozen=True, slots=True)
class _Axis:
    """Numbers from `low` to `high` along a line from `start` to `end`; what is outside lies at its ends."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def at(self, value: float) -> float:
        low, high, value = map(self._scaled, (self.low, self.high, min(max(value, self.low), self.high)))
        span = high - low
        part = (value - low) / span if span > 0 and math.isfinite(span) else 0.5
        return self.start + part * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Return the numbers that are written beside it."""
        if self.low == self.high:
            return [self.low]
        middle = math.sqrt(self.low * self.high) if self.is_log else self.low / 2 + self.high / 2
        return [self.low, middle, self.high]

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.is_log else value


def learning_curves(curves: Iterable[Curve], metric: str) -> str:
    """Return the curves as an SVG element, the best one on top; nothing where no curve has a finite point."""
    drawn = [(curve, points) for curve in curves if (points := _thinned(curve.points))]
    if not drawn:
        return ""
    drawn.sort(key=lambda pair: _ORDER.index(pair[0].style) if pair[0].style in _ORDER else 0)
    x, y = _axes([point for _, points in drawn for point in points])
    parts = [_path(points, x, y, curve.style, f"trial {curve.trial:05d}") for curve, points in drawn]
    return _svg(f"learning curves of {clean(metric)}", [*_frame(x, y, metric, "step"), *parts], _legend(drawn))


def best_so_far(values: Sequence[tuple[int, float, str]], metric: str, mode: str) -> str:
    """Return an SVG element of what each trial reached, and of the best until then; nothing without a finite value.

    Args:
        values: (number of the trial, value, state), ordered by number.
    """
    known = [(number, value, state) for number, value, state in values if math.isfinite(value)]
    if not known:
        return ""
    x, y = _axes([(float(number), value) for number, value, _ in known])
    best: list[_Point] = []
    for trial, value, _ in known:
        if not best or beats(value, best[-1][1], mode):
            best += [(float(trial), best[-1][1])] if best else []
            best.append((float(trial), value))
    best.append((float(known[-1][0]), best[-1][1]))
    kept = known[:: math.ceil(len(known) / 400)]  # so many that the dots become a band
    dots = [_dot((float(trial), value), x, y, state, f"trial {trial:05d}") for trial, value, state in kept]
    line = _path(best, x, y, "best", "best so far")
    return _svg(f"{clean(metric)} of the trials", [*_frame(x, y, metric, "trial"), *dots, line], ["best so far"])


def _thinned(points: Sequence[_Point]) -> list[_Point]:
    found = [(float(x), float(y)) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    if len(found) <= _MAX_POINTS:
        return found
    last = len(found) - 1
    return [found[round(i * last / (_MAX_POINTS - 1))] for i in range(_MAX_POINTS)]


def _axes(points: Sequence[_Point]) -> tuple[_Axis, _Axis]:
    """Return both axes. A few values far outside, as of trials that diverged, do not squeeze the others."""
    xs = [x for x, _ in points]
    low, high, is_log = shown_range(y for _, y in points)
    y = _Axis(low, high, _HEIGHT - _BOTTOM, _TOP, is_log)
    return _Axis(min(xs), max(xs), _LEFT, _WIDTH - _RIGHT), y


def _path(points: Sequence[_Point], x: _Axis, y: _Axis, style: str, name: str) -> str:
    if len(points) == 1:
        return _dot(points[0], x, y, style, name)
    line = " ".join(f"{x.at(a):.1f},{y.at(b):.1f}" for a, b in points)
    width = "2.5" if style == "best" else "1.3"
    paint = f'fill="none" {_paint("stroke", style)} stroke-width="{width}"'
    return f'<polyline points="{line}" {paint}>{_hover(name)}</polyline>'


def _dot(point: _Point, x: _Axis, y: _Axis, style: str, name: str) -> str:
    place = f'cx="{x.at(point[0]):.1f}" cy="{y.at(point[1]):.1f}"'
    return f'<circle {place} r="2.5" {_paint("fill", style)}>{_hover(name)}</circle>'


def _paint(what: str, style: str) -> str:
    colour = _COLOURS.get(style)
    return f'{what}="{colour}"' if colour else f'{what}="currentColor" {what}-opacity="0.35"'


def _hover(name: str) -> str:
    return f"<title>{html.escape(clean(name)[:120])}</title>"


def _frame(x: _Axis, y: _Axis, metric: str, below: str) -> list[str]:
    """Return the lines and the numbers of the axes, and what they are of."""
    parts = [
        f'<path d="M{_LEFT} {y.at(tick):.1f}H{_WIDTH - _RIGHT}" stroke="currentColor" stroke-opacity="0.18"/>'
        + _label(_LEFT - 6, y.at(tick) + 4, number(tick), "end")
        for tick in y.ticks()
    ]
    row = _HEIGHT - _BOTTOM + 16
    ends = [(tick, side) for tick, side in zip((x.low, x.high), ("start", "end"), strict=True)]
    for tick, side in ends[: 1 + (x.low != x.high)]:
        parts.append(_label(x.at(tick), row, number(int(tick) if tick == int(tick) else tick), side))
    parts.append(_label((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 6, below, "middle"))
    shown = clean(metric)
    parts.append(_label(4, 13, f"{shown[:40]}{'…' * (len(shown) > 40)}{' (log)' * y.is_log}", "start"))
    return parts


def _legend(drawn: Sequence[tuple[Curve, Sequence[_Point]]]) -> list[str]:
    styles = {curve.style for curve, _ in drawn}
    return [style for style in reversed(_ORDER) if style in styles]


def _label(x: float, y: float, shown: str, side: str, style: str = "") -> str:
    fill = f'fill="{_COLOURS[style]}"' if style in _COLOURS else 'fill="currentColor" fill-opacity="0.75"'
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{side}" {fill}>{html.escape(shown)}</text>'


def _svg(title: str, parts: Iterable[str], legend: Sequence[str]) -> str:
    place = float(_WIDTH - _RIGHT)
    shown = []
    for style in reversed(legend):
        shown.append(_label(place, 13, style, "end", "best" if style == "best so far" else style))
        place -= 7 * len(style) + 12
    head = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {head} aria-label="{html.escape(title)}" font-size="12"'
        ' font-family="system-ui,sans-serif" style="max-width:100%;height:auto;color:inherit">'
        + "".join([*parts, *shown])
        + "</svg>"
    )
