"""When trials waited, started, ran and were paused, by trial or by what they ran on."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sweep import checks
from sweep.core.history import Attempt
from sweep.errors import MetricError
from sweep.figures.attempts import Span, held_until, phases_of, places_of, spans_of
from sweep.figures.style import FATES, axis_of_time, finish, graph_objects, lines_of, plain, rounded, some
from sweep.figures.trials import Field

if TYPE_CHECKING:
    import plotly.graph_objects as go


_MOST_BARS = 2500
_MOST_TICKS = 20


class _Kind(NamedTuple):
    name: str
    color: str
    pattern: str


# Told apart by a pattern, too.
_KINDS: dict[str, _Kind] = {
    "waiting": _Kind("waiting", "#B0B0B0", ""),
    "starting": _Kind("starting", FATES["stopped early"].color, "/"),
    "running": _Kind("running", FATES["finished"].color, ""),
    "failed": _Kind("failed", FATES["failed"].color, "x"),
    "paused": _Kind("paused", FATES["paused"].color, "."),
}


class _Bar(NamedTuple):
    place: Any
    span: Span


def draw_timeline(field: Field, trials: Sequence[Any] | None, by: str, most: int) -> go.Figure:
    """Return the timeline; see `Plots.timeline`."""
    checks.one_of("by", by, ("trial", "device"))
    checks.whole("most", most, least=1)
    if not field.rows:
        raise MetricError(f"{field.reader.name} has no trials yet: call this again when it has.")
    history, now = field.reader.history(), field.reader.driven_s()
    if trials is not None:
        rows, note = field.named(trials), ""
    else:
        rows, note = field.thinned(field.rows, most) if by == "trial" else (list(field.rows), "")
    if by == "trial":
        bars, axis, height = _by_trial(list(spans_of(history, rows, now)), [row.number for row in rows])
    else:
        wanted = {row.trial_id for row in rows}
        held = [one for one in history.attempts if one.trial_id in wanted]
        if len(held) > _MOST_BARS // 2:
            note = f"The last {_MOST_BARS // 2:,} of {len(held):,} starts."
            held = held[-(_MOST_BARS // 2) :]
        bars, axis, height = _by_device(held, now)
    if not bars:
        raise MetricError(f"no trial of {field.reader.name} has waited or run yet: call this again when one has.")
    first = min(bar.span.begin for bar in bars) if by == "device" else 0.0
    divisor, unit = axis_of_time(max(bar.span.end for bar in bars))
    traces = [_trace(field, kind, [bar for bar in bars if bar.span.kind == kind], divisor) for kind in _KINDS]
    ran = sum(bar.span.end - bar.span.begin for bar in bars if bar.span.kind in ("running", "failed"))
    what = some(len(rows), "trial") if by == "trial" else some(len(axis["tickvals"]), "place")
    return finish(
        [trace for trace in traces if trace is not None],
        "timeline",
        "When trials ran" if by == "trial" else "What ran where",
        note=note,
        summary=f"Timeline of {what} over {now:.4g} seconds of driving, of which trials ran {ran:.4g} in all.",
        xaxis={"title": f"{unit} of driving", "range": [rounded(first / divisor), rounded(now / divisor * 1.01)]},
        yaxis=axis,
        barmode="overlay",
        bargap=0.15,
        height=height,
    )


def _by_trial(spans: Sequence[Span], numbers: Sequence[int]) -> tuple[list[_Bar], dict[str, Any], int]:
    place = {number: index for index, number in enumerate(numbers)}
    bars = [_Bar(place[span.number], span) for span in spans]
    step = max(1, -(-len(numbers) // _MOST_TICKS))
    axis = {
        "title": "trial",
        "autorange": "reversed",
        "tickvals": list(range(0, len(numbers), step)),
        "ticktext": [str(number) for number in numbers[::step]],
        "showgrid": False,
        "zeroline": False,
    }
    return bars, axis, min(900, max(300, 180 + 14 * len(numbers)))


def _by_device(attempts: Sequence[Attempt], now: float) -> tuple[list[_Bar], dict[str, Any], int]:
    """Return bars on lanes: as many per device as trials had at once a share of it."""
    lanes: dict[str, int] = defaultdict(int)
    free: dict[str, list[tuple[float, int]]] = defaultdict(list)
    placed: list[tuple[str, int, Attempt]] = []
    for one in sorted(attempts, key=lambda a: a.granted):
        end = held_until(one, now)
        for device in places_of(one):
            if free[device] and free[device][0][0] <= one.granted.at:
                _, lane = heapq.heappop(free[device])
            else:
                lane = lanes[device]
                lanes[device] += 1
            heapq.heappush(free[device], (end, lane))
            placed.append((device, lane, one))
    order = [(device, lane) for device in sorted(lanes) for lane in range(lanes[device])]
    place = {key: index for index, key in enumerate(order)}
    bars = []
    for device, lane, one in placed:
        bars += [_Bar(place[device, lane], phase) for phase in phases_of(one, now)]
    texts = [plain(device, 18) + (f" {lane + 1}" if lanes[device] > 1 else "") for device, lane in order]
    step = max(1, -(-len(order) // (2 * _MOST_TICKS)))
    axis = {
        "autorange": "reversed",
        "tickvals": list(range(0, len(order), step)),
        "ticktext": texts[::step],
        "showgrid": False,
        "zeroline": False,
    }
    return bars, axis, min(900, max(260, 180 + 26 * len(order)))


def _trace(field: Field, kind: str, bars: Sequence[_Bar], divisor: float) -> Any:
    if not bars:
        return None
    look = _KINDS[kind]
    rows = {row.number: row for row in field.rows}
    texts, word = [], "after" if kind == "failed" else "for"
    for _, span in bars:
        lines = [f"<b>trial {span.number:05d}</b> {look.name} {word} {span.end - span.begin:.4g} s"]
        if span.text:
            lines.append(lines_of(span.text))
        texts.append("<br>".join([*lines, *field.config_lines(rows[span.number])[:4]]))
    return graph_objects().Bar(
        base=[rounded(bar.span.begin / divisor) for bar in bars],
        x=[rounded((bar.span.end - bar.span.begin) / divisor) for bar in bars],
        y=[bar.place for bar in bars],
        orientation="h",
        name=look.name,
        width=0.8,
        marker={
            "color": look.color,
            "opacity": 0.45 if kind == "waiting" else 0.9,
            "line": {"width": 0},
            **(
                {
                    "pattern": {
                        "shape": look.pattern,
                        "size": 5,
                        "solidity": 0.25,
                        "fillmode": "overlay",
                        "fgcolor": "#ffffff",
                    }
                }
                if look.pattern
                else {}
            ),
        },
        customdata=[[bar.span.number] for bar in bars],
        hovertext=texts,
        hoverinfo="text",
    )
