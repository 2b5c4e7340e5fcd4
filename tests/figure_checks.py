"""What every figure must keep, whatever it shows; `check` is told the figure and the experiment's numbers of trials."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import Any

_OUR_TAGS = re.compile(r"</?b>|</?i>|<br>|<extra></extra>")
_ENTITIES = re.compile(r"&(amp|lt|gt|#34|#36|#39|#123);")
# Of these plotly takes text as it is.
_RAW = ("ticktext",)


def texts(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Give every text of a figure, and the keys that lead to it."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from texts(item, (*path, key))
    elif isinstance(value, list):
        for item in value:
            yield from texts(item, path)


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def check(figure: Any, numbers: Collection[int]) -> dict[str, Any]:
    """Check a figure; returns it as plain values."""
    made = json.loads(figure.to_json(), parse_constant=refuse)
    assert made["data"]
    layout = made["layout"]
    assert "width" not in layout
    for key in ("figure", "note", "summary"):
        assert isinstance(layout["meta"][key], str)
    summary, note = layout["meta"]["summary"], layout["meta"]["note"]
    assert summary.endswith(".")
    assert "NaN" not in summary
    assert len(summary) < 1500
    if note:
        assert note.replace(" ", "") == layout["title"]["subtitle"]["text"].replace("<br>", "").replace(" ", "")
    for trace in made["data"]:
        check_numbers(trace, numbers)
        is_parallel = trace["type"] == "parcoords"
        for path, text in texts(trace):
            if not (is_parallel and path[-1] in _RAW):
                check_text(path, text)
    for path, text in texts({key: part for key, part in layout.items() if key != "template"}):
        check_text(path, text)
    return made


def check_text(path: tuple[str, ...], text: str) -> None:
    """Check that a text is shown as it is: no tags but ours, no formulas, nothing to fill in but in our templates."""
    bare = _OUR_TAGS.sub("", text)
    assert not re.search(r"[<>$]", bare), (path, text)
    assert not re.search(r"&(?!\w+;|#\d+;)", bare), (path, text)
    assert all(one.isprintable() for one in bare), (path, text)
    if path[-1] not in ("hovertemplate", "texttemplate"):
        assert "{" not in bare, (path, text)
    longest = max(len(_ENTITIES.sub("x", line)) for line in text.split("<br>"))
    assert longest <= 120 or path[-2:-1] == ("meta",), (path, text)


def check_numbers(trace: dict[str, Any], numbers: Collection[int]) -> None:
    """Check that each mark that stands for a trial has its number, aligned with what is drawn."""
    if trace["type"] in ("contour", "heatmap") or (trace["type"] == "bar" and "base" not in trace):
        assert "customdata" not in trace  # areas and shares stand for no trial
        return
    rows = trace["customdata"]
    assert all(isinstance(row, list) and type(row[0]) is int and row[0] in numbers for row in rows)
    if trace["type"] == "parcoords":
        assert all(len(axis["values"]) == len(rows) for axis in trace["dimensions"])
        assert all(None not in axis["values"] for axis in trace["dimensions"])
        assert all(len(axis["tickvals"]) == len(axis["ticktext"]) for axis in trace["dimensions"])
        return
    for key in {"x", "y", "z", "base", "hovertext", "text"} & trace.keys():
        if isinstance(trace[key], list):
            assert len(trace[key]) == len(rows), key
    if "lines" in trace.get("mode", ""):
        assert [x is None for x in trace["x"]] == [y is None for y in trace["y"]]
    else:
        assert None not in trace["x"]
        assert None not in trace["y"]
