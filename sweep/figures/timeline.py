"""When trials waited, started, ran and were paused, by trial or by what they ran on."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sweep import checks
from sweep.core.history import Attempt
from sweep.errors import MetricError
from sweep.figures.attempts import Span, held_until, is_lane, phases_of, places_of, spans_of
from sweep.figures.style import FATES, Figure, axis_of_time, finish, graph_objects, lines_of, plain, rounded, some
from sweep.figures.trials import Field

_MOST_BARS = 2500
_MOST_TICKS = 20


# Name: colour, and pattern, as colours alone do not tell all.
_KINDS = {
    "waiting": ("#B0B0B0", ""),
    "starting": (FATES["stopped early"].color, "/"),
    "running": (FATES["finished"].color, ""),
    "failed": (FATES["failed"].color, "x"),
    "paused": (FATES["paused"].color, "."),
}
_Bar = tuple[int, Span]  # the row, and what is shown there


def draw_timeline(field: Field, trials: Sequence[Any] | None, by: str | None, most: int) -> Figure:
    """Return the timeline; see `Plots.timeline`."""
    if by is not None:
        checks.one_of("by", by, ("trial", "device"))
    checks.whole("most", most, least=1)
    if not field.rows:
        raise MetricError(f"{field.reader.name} has no trials yet: call this again when it has.")
    history, now = field.reader.history(), field.reader.driven_s()
    by = by or ("device" if any(map(is_lane, history.attempts)) else "trial")
    rows, note = (field.rows, "") if trials is None else (field.named(trials), "")
    if trials is None and by == "trial":
        rows, note = field.thinned(rows, most)
    if by == "trial":
        at = {row.number: index for index, row in enumerate(rows)}
        bars = [(at[span.number], span) for span in spans_of(history, rows, now)]
        axis = {"title": "trial", **_rows([str(number) for number in at])}
        height = min(900, max(300, 180 + 14 * len(at)))
    else:
        wanted = {row.trial_id for row in rows}
        held = [one for one in history.attempts if one.trial_id in wanted]
        if len(held) > _MOST_BARS // 2:
            note = f"The last {_MOST_BARS // 2:,} of {len(held):,} starts."
            held = held[-(_MOST_BARS // 2) :]
        bars, axis, height = _by_device(held, now)
    if not bars:
        raise MetricError(f"no trial of {field.reader.name} has waited or run yet: call this again when one has.")
    first = min(span.begin for _, span in bars) if by == "device" else 0.0
    divisor, unit = axis_of_time(max(span.end for _, span in bars))
    of_kind = {kind: [bar for bar in bars if bar[1].kind == kind] for kind in _KINDS}
    ran = sum(span.end - span.begin for _, span in bars if span.kind in ("running", "failed"))
    what = some(len(rows), "trial") if by == "trial" else some(len(axis["tickvals"]), "place")
    return finish(
        [_trace(field, kind, found, divisor) for kind, found in of_kind.items() if found],
        "timeline",
        "When trials ran" if by == "trial" else "What ran where",
        notes=[field.note, note],
        summary=f"Timeline of {what} over {now:.4g} seconds of driving, of which trials ran {ran:.4g} in all.",
        xaxis={"title": f"{unit} of driving", "range": [rounded(first / divisor), rounded(now / divisor * 1.01)]},
        yaxis=axis,
        barmode="overlay",
        bargap=0.15,
        height=height,
    )


def _rows(texts: Sequence[str]) -> dict[str, Any]:
    """Return an axis of rows, from above to below."""
    step = max(1, -(-len(texts) // _MOST_TICKS))
    ticks = {"tickvals": list(range(0, len(texts), step)), "ticktext": texts[::step]}
    return {"autorange": "reversed", "showgrid": False, "zeroline": False, **ticks}


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
    bars: list[_Bar] = []
    for device, lane, one in placed:
        bars += [(place[device, lane], phase) for phase in phases_of(one, now)]
    texts = [plain(device, 20) + (f" {lane + 1}" if lanes[device] > 1 else "") for device, lane in order]
    return bars, _rows(texts), min(900, max(260, 180 + 26 * len(order)))


def _trace(field: Field, kind: str, bars: Sequence[_Bar], divisor: float) -> Any:
    color, pattern = _KINDS[kind]
    rows = {row.number: row for row in field.rows}
    texts, word = [], "after" if kind == "failed" else "for"
    for _, span in bars:
        said = [f"<b>trial {span.number:05d}</b> {kind} {word} {span.end - span.begin:.4g} s"]
        said += [lines_of(span.text)] if span.text else []
        texts.append("<br>".join([*said, *field.config_lines(rows[span.number])[:4]]))
    shape = {"shape": pattern, "size": 5, "solidity": 0.25, "fillmode": "overlay", "fgcolor": "#ffffff"}
    opacity = 0.45 if kind == "waiting" else 0.9
    return graph_objects().Bar(
        base=[rounded(span.begin / divisor) for _, span in bars],
        x=[rounded((span.end - span.begin) / divisor) for _, span in bars],
        y=[row for row, _ in bars],
        orientation="h",
        name=kind,
        width=0.8,
        marker={"color": color, "opacity": opacity, "line": {"width": 0}, "pattern": shape if pattern else None},
        customdata=[[span.number] for _, span in bars],
        hovertext=texts,
        hoverinfo="text",
    )
