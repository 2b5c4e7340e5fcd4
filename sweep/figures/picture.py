"""A figure as an SVG without a browser, for where no script runs: nbconvert, GitHub, a notebook that was closed."""

from __future__ import annotations

import html
import importlib
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from sweep.figures.parameters import ticks_between, ticks_of_log
from sweep.figures.style import GREY, one_line

_WIDTH = 760
_LEFT, _RIGHT, _BELOW = 70, 16, 62
_TAGS = re.compile(r"<[^>]*>")
_DASHES = {"dot": "2 3", "dash": "7 4", "dashdot": "7 3 2 3", "longdash": "11 5", "longdashdot": "11 4 2 4"}
_STAR = "M0-1L.22-.31L.95-.31L.36.12L.59.81L0 .38L-.59.81L-.36.12L-.95-.31L-.22-.31Z"
_SHAPES = {  # in a square from -1 to 1
    "triangle-down": "M-1-.8H1L0 .9Z",
    "x": "M-.9-.9L.9.9M-.9.9L.9-.9",
    "diamond": "M0-1.2L1.2 0L0 1.2L-1.2 0Z",
    "square": "M-.8-.8H.8V.8H-.8Z",
    "star": _STAR,
}


def show(figure: Any, *arguments: Any, **options: Any) -> None:
    """Show a figure as plotly does; in a notebook with a picture beside it, for those who read it without plotly."""
    plotly_io = importlib.import_module("plotly.io")
    bundle = {} if arguments or options else figure._repr_mimebundle_()
    if not bundle:  # no notebook
        plotly_io.show(figure, *arguments, **options)
        return
    try:
        bundle["image/svg+xml"] = svg_of(figure)
    except Exception as error:  # of a figure that was changed to what ours are not
        bundle["text/plain"] = f"a figure, of which there is no picture: {type(error).__name__}"
    importlib.import_module("IPython.display").display(bundle, raw=True)


def show_by_itself(figure: Any) -> None:
    """Show a figure that ends a cell, unless plotly was told not to."""
    if importlib.import_module("plotly.io").renderers.render_on_display:
        show(figure)
    else:
        type(figure)._ipython_display_(figure)


def svg_of(figure: Any) -> str:
    """Return a plain picture of a figure of ours; of three dimensions it shows the first two."""
    made = figure.to_plotly_json()
    layout, traces = made["layout"], made["data"]
    height = int(layout.get("height") or 440)
    top = int(layout.get("margin", {}).get("t", 44))
    title = layout.get("title") or {}
    note = str((title.get("subtitle") or {}).get("text") or "").split("<br>")
    parts = [_text(10, 22, title.get("text", ""), size=15)]
    parts += [_text(10, 26 + 15 * (index + 1), line, size=11) for index, line in enumerate(note)]
    words = [
        len(text) for key, axis in layout.items() if key.startswith("yaxis") for text in axis.get("ticktext") or ()
    ]
    box = (min(220, max(_LEFT, 20 + 6 * max(words, default=0))), top, _WIDTH - _RIGHT, height - _BELOW)
    if traces and traces[0]["type"] == "parcoords":
        parts += _parallel(traces[0], box)
    else:
        axes = {name: _Axis(name, layout, traces, box) for name in _names(traces)}
        for axis in axes.values():
            parts += axis.drawn(axes)
        for trace in traces:
            parts += _trace(trace, *(axes[name] for name in _axes_of(trace)))
        parts += _legend(traces, height)
    label = html.escape(str((layout.get("meta") or {}).get("summary", "figure")))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
        f' role="img" aria-label="{label}" font-family="system-ui,sans-serif" style="max-width:100%;height:auto">'
        + "".join(parts)
        + "</svg>"
    )


def _axes_of(trace: Mapping[str, Any]) -> tuple[str, str]:
    return trace.get("xaxis") or "x", trace.get("yaxis") or "y"


def _names(traces: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for trace in traces for name in _axes_of(trace)))


def _number(value: Any) -> float:
    """Return where a value of a trace stands: dates as seconds; NaN: nowhere."""
    if isinstance(value, str):
        return datetime.fromisoformat(value).timestamp()
    return math.nan if value is None else float(value)


class _Axis:
    """One axis of some panel: where its numbers stand on the picture."""

    def __init__(
        self, name: str, layout: Mapping[str, Any], traces: Sequence[Mapping[str, Any]], box: tuple[int, int, int, int]
    ) -> None:
        self.letter = name[0]
        scene = (layout.get("scene") or {}).get(f"{name[0]}axis") if traces[0]["type"] == "scatter3d" else None
        self.layout = scene or layout.get(f"{name[0]}axis{name[1:]}") or {}
        base = self.layout.get("matches") or name
        shared = [one for one in _names(traces) if one == base or self._matches(layout, one) == base]
        self.is_log = self.layout.get("type") == "log"
        found = [value for trace in traces for value in _extent(trace, shared, self.letter) if math.isfinite(value)]
        self.is_date = any(
            isinstance(value, str) for trace in traces for value in list(trace.get(self.letter) or ())[:1]
        )
        low, high = (min(found), max(found)) if found else (0.0, 1.0)
        if self.is_log:
            low, high = math.log10(low), math.log10(high)
        room = 0.05 * (high - low) or 0.5
        low, high = self.layout.get("range") or (low - room, high + room)
        if self.layout.get("autorange") == "reversed":
            low, high = high, low
        self.low, self.high = float(low), float(high)
        start, end = self.layout.get("domain") or (0.0, 1.0)
        first, last = (box[0], box[2]) if self.letter == "x" else (box[3], box[1])
        self.start, self.end = first + start * (last - first), first + end * (last - first)
        self.anchor = self.layout.get("anchor") or ("y" if self.letter == "x" else "x")

    @staticmethod
    def _matches(layout: Mapping[str, Any], name: str) -> Any:
        return (layout.get(f"{name[0]}axis{name[1:]}") or {}).get("matches")

    def at(self, value: Any) -> float:
        number = _number(value)
        if self.is_log:
            number = math.log10(number) if number > 0 else math.nan
        return self.start + (number - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> Iterator[tuple[float, str]]:
        places, texts = self.layout.get("tickvals"), self.layout.get("ticktext")
        low, high = sorted((self.low, self.high))
        if places is None:
            exponents, texts = ticks_of_log(low, high) if self.is_log else ticks_between(low, high, is_whole=False)
            places = [10**place for place in exponents] if self.is_log else exponents
            if self.is_date:
                places = [low + part * (high - low) for part in (0.1, 0.9)]
                texts = [f"{datetime.fromtimestamp(place):%m-%d %H:%M}" for place in places]
        for place, text in zip(places, texts or map(str, places), strict=False):
            if self.low <= self.high and not low - 1e-9 <= (math.log10(place) if self.is_log else place) <= high + 1e-9:
                continue
            yield self.at(place), str(text)

    def drawn(self, axes: Mapping[str, _Axis]) -> Iterator[str]:
        """Give the lines across, the texts of the ticks and the title."""
        if self.layout.get("visible") is False:
            return
        other = axes.get(self.anchor) or next(axis for axis in axes.values() if axis.letter != self.letter)
        is_x = self.letter == "x"
        for place, text in self.ticks():
            x, y, x2, y2 = (place, other.start, place, other.end) if is_x else (other.start, place, other.end, place)
            yield _line(x, y, x2, y2, "0.5")
            if self.layout.get("showticklabels") is False:
                continue
            for index, line in enumerate(text.split("<br>")):
                if is_x:
                    yield _text(place, other.start + 15 + 12 * index, line, "middle", 10)
                elif index == 0:
                    yield _text(other.start - 5, place + 4, line, "end", 10)
        title = (self.layout.get("title") or {}).get("text") or ""
        middle = (self.start + self.end) / 2
        if is_x:
            yield _text(middle, other.start + 32, title, "middle", 11)
        elif title:
            yield f'<g transform="translate(12 {middle:.0f}) rotate(-90)">{_text(0, 0, title, "middle", 11)}</g>'


def _extent(trace: Mapping[str, Any], names: Sequence[str], letter: str) -> Iterator[float]:
    """Give the numbers that an axis has to hold."""
    if (trace.get(f"{letter}axis") or letter) not in names:
        return
    values = [_number(value) for value in trace.get(letter) or ()]
    if trace["type"] == "bar" and letter == "x":
        begins = trace.get("base") or [0.0] * len(values)
        yield from begins
        values = [begin + value for begin, value in zip(begins, values, strict=True)]
    if (trace["type"] in ("bar", "heatmap") and letter == "y") or trace["type"] == "heatmap":
        yield from (value + side for value in values for side in (-0.5, 0.5))
    yield from values


def _trace(trace: Mapping[str, Any], x: _Axis, y: _Axis) -> Iterator[str]:
    kind, marker = trace["type"], trace.get("marker") or {}
    if kind == "bar":
        yield from _bars(trace, x, y)
    elif kind in ("heatmap", "contour"):
        yield from _cells(trace, x, y)
    elif kind in ("scatter", "scatter3d"):
        points = list(zip(map(x.at, trace["x"]), map(y.at, trace["y"]), strict=True))
        if "lines" in (trace.get("mode") or ""):
            yield from _lines(points, trace.get("line") or {}, trace.get("opacity") or 1)
        if "markers" in (trace.get("mode") or ""):
            sizes = marker.get("size", 6)
            for index, (left, top) in enumerate(points):
                size = sizes if isinstance(sizes, (int, float)) else sizes[index]
                if size and math.isfinite(left + top):
                    yield _mark(left, top, size / 2, marker)


def _lines(points: Sequence[tuple[float, float]], line: Mapping[str, Any], opacity: float) -> Iterator[str]:
    runs: list[list[tuple[float, float]]] = [[]]
    for left, top in points:
        if not math.isfinite(left + top):
            runs.append([])
            continue
        if line.get("shape") == "hv" and runs[-1]:
            runs[-1].append((left, runs[-1][-1][1]))
        runs[-1].append((left, top))
    dash = _DASHES.get(line.get("dash") or "")
    style = f' stroke-width="{line.get("width") or 1.5}" stroke-opacity="{opacity}"'
    style += f' stroke-dasharray="{dash}"' if dash else ""
    for run in runs:
        if len(run) > 1:
            listed = " ".join(f"{left:.1f},{top:.1f}" for left, top in run)
            yield f'<polyline points="{listed}" fill="none" stroke="{_color(line.get("color"))}"{style}/>'


def _mark(left: float, top: float, radius: float, marker: Mapping[str, Any]) -> str:
    symbol, color = str(marker.get("symbol") or "circle"), _color(marker.get("color"))
    is_open = "open" in symbol or symbol.startswith("x")
    paint = f'fill="none" stroke="{color}"' if is_open else f'fill="{color}"'
    shape = _SHAPES.get(symbol.removesuffix("-open").removesuffix("-thin"))
    if shape is None:
        return f'<circle cx="{left:.1f}" cy="{top:.1f}" r="{radius}" {paint}/>'
    place = f"translate({left:.1f} {top:.1f}) scale({radius})"
    return f'<path d="{shape}" transform="{place}" {paint} stroke-width="{1.4 / radius:.2f}"/>'


def _bars(trace: Mapping[str, Any], x: _Axis, y: _Axis) -> Iterator[str]:
    errors, color = trace.get("error_x") or {}, _color((trace.get("marker") or {}).get("color"))
    opacity = (trace.get("marker") or {}).get("opacity") or 1
    for index, (length, place) in enumerate(zip(trace["x"], trace["y"], strict=True)):
        begin = (trace.get("base") or [0.0] * len(trace["x"]))[index]
        left, right = x.at(begin), x.at(begin + length)
        up, down = sorted((y.at(place - 0.4), y.at(place + 0.4)))
        size = f'width="{max(0.5, right - left):.1f}" height="{down - up:.1f}"'
        yield f'<rect x="{left:.1f}" y="{up:.1f}" {size} fill="{color}" fill-opacity="{opacity}"/>'
        if errors:
            ends = x.at(length - errors["arrayminus"][index]), x.at(length + errors["array"][index])
            yield _line(ends[0], y.at(place), ends[1], y.at(place), "1.5")


def _cells(trace: Mapping[str, Any], x: _Axis, y: _Axis) -> Iterator[str]:
    known = [value for row in trace["z"] for value in row if value is not None]
    low, high = trace.get("zmin", min(known, default=0)), trace.get("zmax", max(known, default=1))
    columns, lines = (_edges([axis.at(one) for one in trace[axis.letter]]) for axis in (x, y))
    for row, (up, down) in zip(range(len(lines)), lines, strict=True):
        for column, (left, right) in enumerate(columns):
            value = trace["z"][row][column]
            if value is None:
                continue
            part = (value - low) / ((high - low) or 1)
            paint = _sampled(trace["colorscale"], [1 - part if trace.get("reversescale") else part])[0]
            size = f'width="{right - left:.1f}" height="{down - up:.1f}"'
            yield f'<rect x="{left:.1f}" y="{up:.1f}" {size} fill="{paint}" fill-opacity="0.75"/>'
            text = trace["text"][row][column].partition("<br>")[0] if trace.get("text") else ""
            yield _text((left + right) / 2, (up + down) / 2 + 4, text, "middle", 10, "#ffffff")


def _edges(places: Sequence[float]) -> list[tuple[float, float]]:
    """Return between what the cells lie whose middles these are."""
    gaps = [(after - before) / 2 for before, after in itertools.pairwise(places)] or [20.0]
    before, after = [gaps[0], *gaps], [*gaps, gaps[-1]]
    pairs = [(place - less, place + more) for place, less, more in zip(places, before, after, strict=False)]
    return [(min(pair), max(pair)) for pair in pairs]


def _parallel(trace: Mapping[str, Any], box: tuple[int, int, int, int]) -> Iterator[str]:
    dimensions, color = trace["dimensions"], trace["line"]["color"]
    lefts = [box[0] + 20 + index * (box[2] - box[0] - 60) / (len(dimensions) - 1) for index in range(len(dimensions))]
    tops = []
    for axis in dimensions:
        low, high = axis["range"]
        tops.append(
            [
                box[3] - (value - low) / (high - low) * (box[3] - box[1])
                for value in (*axis["values"], *axis["tickvals"])
            ]
        )
    for index, paint in enumerate(_sampled(trace["line"]["colorscale"], list(color))):
        points = [(left, column[index]) for left, column in zip(lefts, tops, strict=True)]
        yield from _lines(points, {"color": paint, "width": 0.8}, 1)
    for left, axis, column in zip(lefts, dimensions, tops, strict=True):
        yield _line(left, box[1], left, box[3], "1.5")
        yield _text(left, box[1] - 12, axis["label"], "middle", 11)
        for top, text in zip(column[len(color) :], axis["ticktext"], strict=True):
            yield _text(left - 4, top + 4, html.escape(text), "end", 10)


def _legend(traces: Sequence[Mapping[str, Any]], height: int) -> Iterator[str]:
    left, seen = 20.0, set()
    for trace in traces:
        name = str(trace.get("name") or "")
        if not name or name in seen or trace.get("showlegend") is False:
            continue
        seen.add(name)
        marker = trace.get("marker") or {}
        yield _mark(left, height - 14, 5, {"color": (trace.get("line") or {}).get("color")} | marker)
        yield _text(left + 10, height - 10, name, size=11)
        left += 28 + 6.2 * len(name)


def _sampled(scale: Any, parts: Sequence[float]) -> list[str]:
    """Return the colours at some parts of a scale of colours."""
    colors = importlib.import_module("plotly.colors")
    scale = (
        scale if isinstance(scale, str) else [[place, colors.label_rgb(colors.hex_to_rgb(one))] for place, one in scale]
    )
    found: list[str] = colors.sample_colorscale(scale, [min(1.0, max(0.0, part)) for part in parts])
    return found


def _color(color: Any) -> str:
    return html.escape(color) if isinstance(color, str) else GREY


def _line(x: float, y: float, x2: float, y2: float, width: str) -> str:
    opacity = "0.6" if width == "0.5" else "1"
    path = f"M{x:.1f} {y:.1f}L{x2:.1f} {y2:.1f}"
    return f'<path d="{path}" stroke="{GREY}" stroke-width="{width}" stroke-opacity="{opacity}"/>'


def _text(x: float, y: float, text: str, side: str = "start", size: int = 12, color: str = GREY) -> str:
    """Return a text; it comes with tags and entities, as plotly takes it."""
    shown = html.escape(one_line(html.unescape(_TAGS.sub("", text or "")), 120))
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{side}" font-size="{size}" fill="{color}">{shown}</text>'
        * bool(shown)
    )
