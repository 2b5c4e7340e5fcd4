"""How figures look and read: one template for light and dark pages, one way to write text and numbers into them."""

from __future__ import annotations

import importlib
import importlib.util
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from sweep.core.values import as_float, printed, shown_range, sound_text
from sweep.errors import ConfigError

if TYPE_CHECKING:
    import plotly.graph_objects as go

Figure: TypeAlias = "go.Figure"  # plotly is imported by what draws
GREY = "#7a7a7a"  # at least 4:1 on white and on nearly black: nothing else is known of the page
_FAINT = "rgba(128,128,128,0.25)"
_NOWHERE = "rgba(0,0,0,0)"
BEST = "#009E73"
SCALE = "Cividis"  # of areas: perceptually uniform, also for those who see two colours
LINE_SCALE = [[0.0, "#a3a3a3"], [0.5, "#6da5cf"], [1.0, "#1173b8"]]  # of lines: seen on white and on black
_NOTE_LINE = 15  # pixels
_NOTE_WIDTH = 48  # characters on a line, on a page of 300 px
# Tags, entities, attributes of a page, formulas ($...$) and what hover templates fill in (%{...}).
_ENTITIES = str.maketrans({sign: f"&#{ord(sign)};" for sign in "\"'${"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_MOST = 1e300


class Look(NamedTuple):
    """How what became of a trial is shown; no two share a symbol or a dash, because colours alone do not tell all."""

    name: str
    color: str
    symbol: str
    dash: str


# The colours are those of Okabe and Ito (2008), told apart whatever kind of colour blindness one has; their blue is a
# little lighter, for dark pages.
FATES: dict[str, Look] = {
    "finished": Look("finished", "#1A7FC2", "circle", "solid"),
    "stopped early": Look("stopped early", "#E69F00", "triangle-down", "dot"),
    "failed": Look("failed", "#D55E00", "x", "dash"),
    "paused": Look("paused", "#CC79A7", "diamond", "dashdot"),
    "running": Look("running", "#56B4E9", "circle-open", "longdash"),
    "waiting": Look("waiting", GREY, "square-open", "longdashdot"),
}


def graph_objects() -> Any:
    """Return `plotly.graph_objects`; that plotly is not installed is a ConfigError."""
    if importlib.util.find_spec("plotly") is None:
        raise ConfigError("figures need plotly, which is not installed. Run: pip install plotly")
    return importlib.import_module("plotly.graph_objects")


# --- text and numbers ------------------------------------------------------------------------------------------------


def plain(text: Any, most: int = 80) -> str:
    """Return a text of the user as plotly shows it literally: no tags, entities, formulas or line breaks of its own."""
    return one_line(text, most).translate(_ENTITIES)


def one_line(text: Any, most: int) -> str:
    """Return a text of the user on one line of at most so many printable characters, not escaped; what is longer is cut
    and ends with an ellipsis."""
    line = " ".join(sound_text(printed(text)[: 4 * most]).split())
    line = line if len(line) <= most else line[: most - 1] + "…"
    return "".join(one if one.isprintable() else "\ufffd" for one in line)


def lines_of(text: Any, width: int = 60, most: int = 240) -> str:
    """Return a text of the user broken into lines, each harmless as by `plain`."""
    return "<br>".join(plain(line, width) for line in textwrap.wrap(one_line(text, most), width))


def rounded(value: Any) -> float | int | None:
    """Return a number with six significant digits, whole ones as they are; None for what has no place on an axis.

    Numbers beyond 1e300 stand there: pages cannot draw an axis that is longer than the largest number.
    """
    if type(value) is int and -(2**53) < value < 2**53:
        return value
    number = as_float(value)
    if number is None or not math.isfinite(number):
        return None
    return float(f"{max(-_MOST, min(number, _MOST)):.6g}")


def value_text(value: object) -> str:
    """Return one value of a config or a report for people: numbers on four digits, NaN and infinities included."""
    return f"{value:.4g}" if isinstance(value, float) else plain(value, 40)


def some(number: int, noun: str) -> str:
    """Return `1 trial`, `1,200 trials`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def axis_of_values(title: str, values: Iterable[float], best: float | None = None) -> tuple[dict[str, Any], str]:
    """Return an axis on which outliers do not flatten the others, and what is to be said of those outside."""
    values = list(values)
    low, high, is_log = shown_range(values, best)
    num_outside = sum(not low <= value <= high for value in values if math.isfinite(value))
    if not num_outside:
        return {"title": title, "type": "log" if is_log else "linear"}, ""
    room = 0.05 * (high - low)
    note = f"{some(num_outside, 'point')} far outside: a double click shows all."
    return {"title": title, "range": [rounded(low - room), rounded(high + room)]}, note


def whole_ticks(low: float, high: float) -> dict[str, Any]:
    """Return what keeps an axis of whole numbers from ticks between them."""
    return {"dtick": 1} if high - low < 6 else {}


def axis_of_time(most_seconds: float) -> tuple[float, str]:
    """Return what seconds are divided by on an axis that ends there, and the unit's name."""
    for divisor, unit in ((86_400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if most_seconds >= 2 * divisor:
            return divisor, unit
    return 1.0, "seconds"


# --- the figure as a whole -------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _template() -> Any:
    axis = {
        **dict.fromkeys(("gridcolor", "linecolor", "zerolinecolor", "tickcolor"), _FAINT),
        "automargin": True,
        "title": {"standoff": 6, "font": {"size": 12}},
        "tickfont": {"size": 11},
        "exponentformat": "e",
        "minexponent": 5,
    }
    solid = {"showbackground": False, "gridcolor": "#9a9a9a", "zerolinecolor": "#9a9a9a"}  # WebGL knows no alpha
    layout = {
        "paper_bgcolor": _NOWHERE,
        "plot_bgcolor": _NOWHERE,
        "font": {"color": GREY, "size": 12, "family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"},
        "colorway": [look.color for look in FATES.values()],
        "hovermode": "closest",
        "hoverlabel": {"bgcolor": "#20262c", "font": {"color": "#ffffff"}, "align": "left", "namelength": 0},
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 0,
            "yref": "container",
            "yanchor": "bottom",
            "font": {"size": 11},
            "bgcolor": _NOWHERE,
            "itemsizing": "constant",
        },
        "modebar": {"bgcolor": _NOWHERE, "color": GREY, "activecolor": FATES["finished"].color},
        "xaxis": axis,
        "yaxis": axis,
        "scene": {"xaxis": solid, "yaxis": solid, "zaxis": solid},
        "colorscale": {"sequential": SCALE},
    }
    return graph_objects().layout.Template(layout=layout)


def finish(
    traces: Sequence[Any],
    name: str,
    title: str,
    *,
    summary: str,
    notes: Iterable[str] = (),
    subplots: Mapping[str, Any] | None = None,
    **layout: Any,
) -> Figure:
    """Return a figure of these traces with what every figure has.

    `name` is that of the method of `Plots`. The notes, shown below the title, say what was thinned or left out; the
    summary says what is to be seen, for those who hear the page; names of the user are `plain` in all of them.
    """
    go = graph_objects()
    figure = go.Figure() if subplots is None else importlib.import_module("plotly.subplots").make_subplots(**subplots)
    figure.add_traces(traces)
    note = " ".join(filter(None, notes))
    wrapped = textwrap.wrap(note, _NOTE_WIDTH, break_long_words=False, break_on_hyphens=False)
    height = layout.pop("height", 440)
    margin = {"l": 8, "r": 12, "t": 44, "b": 8} | layout.pop("margin", {})
    placed = {"x": 0, "xref": "container", "xanchor": "left", "pad": {"l": 10}, "yref": "container", "yanchor": "top"}
    figure.update_layout(
        template=_template(),
        title={"text": title, "y": 1 - 12 / height, "font": {"size": 15}, **placed},
        margin=margin | {"t": margin["t"] + _NOTE_LINE * len(wrapped)},
        height=height,
        meta={"figure": name, "note": note, "summary": summary},
        **layout,
    )
    if note:
        figure.update_layout(title_subtitle={"text": "<br>".join(wrapped), "font": {"size": 11}})
    return figure
