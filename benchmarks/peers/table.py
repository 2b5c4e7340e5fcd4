"""The table of `make bench`, from what was recorded of its programs.

Recorded is a JSON object: `heading` (lines), `rounds`, `floors` (a list of objects: the floors of each round) and
`rows`: by row and tool `{"figures": [what each round printed], "failure": why one did not, "says": ...}`.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rows import FLOOR_SCRIPTS, FLOORS, OURS, ROWS, TOOLS, Figure, Row

_PAGE = "../docs/reference/benchmarks.md"


def number(value: float, unit: str) -> str:
    """Return a number with about three digits and its unit."""
    size = abs(value)
    digits = 0 if size >= 100 or value == int(value) else 1 if size >= 10 else 2 if size >= 0.1 else 3
    return f"{value:,.{digits}f}{unit}"


def values(figure: Figure, recorded: Sequence[Mapping[str, float]]) -> list[float]:
    """Return a figure of every round that has it."""
    return [found[figure.key] for found in recorded if figure.key in found]


def spread(figure: Figure, measured: Sequence[float]) -> str:
    """Return the median and, of several, the smallest and the largest."""
    middle = number(statistics.median(measured), figure.unit)
    if len(measured) == 1:
        return middle
    return f"{middle} ({number(min(measured), '')} to {number(max(measured), '')})"


def times_better(figure: Figure, ours: float, theirs: float) -> float | None:
    """Return how many times better ours is; None where one of both is nothing."""
    better, worse = (theirs, ours) if figure.is_less_better else (ours, theirs)
    return better / worse if worse and better else None


def reached(figure: Figure, ours: float, ratios: Mapping[str, float | None]) -> str:
    """Return `yes`, `no`, or nothing where nothing is promised."""
    wanted = []
    if figure.required is not None:
        wanted.append(ours <= figure.required if figure.is_less_better else ours >= figure.required)
    if figure.required_ratio is not None:
        tool, least = figure.required_ratio
        ratio = ratios.get(tool)
        wanted += [] if ratio is None else [ratio >= least]
    if not all(wanted):
        return "no"
    return "yes" if wanted else ""


def target(figure: Figure) -> str:
    """Return what is promised."""
    parts = []
    if figure.required is not None:
        parts.append(number(figure.required, figure.unit))
    if figure.required_ratio is not None:
        parts.append(f"{figure.required_ratio[1]:.0f}x {TOOLS[figure.required_ratio[0]][0]}")
    return ", ".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def beside_floor(figure: Figure, ours: float, floors: Sequence[Mapping[str, float]]) -> str:
    """Return the floor and which multiple of it ours is; empty where there is none."""
    found = [each[figure.floor] for each in floors if figure.floor in each]
    if not found:
        return ""
    lowest = statistics.median(found)
    return f"{number(lowest, figure.unit)}, x {number(ours / lowest, '')}"


def _lines(row: Row, recorded: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Give a line for each figure: what, target, ours, reached, peers, floor."""
    tools: Mapping[str, Any] = recorded["rows"][row.name]
    links = {program.tool: f"[{TOOLS[program.tool][0]}](peers/{row.script(program)})" for program in row.programs}
    for figure in row.figures:
        measured = {tool: values(figure, found["figures"]) for tool, found in tools.items()}
        medians = {tool: statistics.median(found) for tool, found in measured.items() if found}
        mine = medians.get(OURS)
        ratios: dict[str, float | None] = {}
        if mine is not None:
            ratios = {tool: times_better(figure, mine, theirs) for tool, theirs in medians.items() if tool != OURS}
        texts = {}
        for tool, found in tools.items():
            if tool not in medians and not found["failure"]:
                continue  # this tool does not have this figure
            ratio = ratios.get(tool)
            parts = [
                spread(figure, measured[tool]) if tool in medians else "",
                "" if ratio is None else f"**{number(ratio, 'x')}**",
                found["says"],
                found["failure"] and f"failed: {found['failure']}",
            ]
            texts[tool] = f"{links[tool]} {'; '.join(filter(None, parts))}"
        yield (
            figure.what,
            target(figure),
            texts.get(OURS, ""),
            "" if mine is None else reached(figure, mine, ratios),
            "<br>".join(text for tool, text in texts.items() if tool != OURS),
            "" if mine is None else beside_floor(figure, mine, recorded["floors"]),
        )


def markdown(recorded: Mapping[str, Any]) -> str:
    """Return the page with the table and the floors."""
    lines = ["# Results of `make bench`", "", *recorded["heading"], ""]
    lines += [
        "Each figure is the median of the rounds, with the smallest and the largest. In bold: how many times better",
        "sweep is than that peer. In the last column: the floor, and sweep's figure as a multiple of it. Each name",
        f"leads to the program that was measured; [Benchmarks]({_PAGE}) says what each row does.",
        "",
        "| | target | sweep | reached | peers | floor |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in ROWS:
        if row.name in recorded["rows"]:
            lines += [f"| {' | '.join(map(_cell, cells))} |" for cells in _lines(row, recorded)]
    scripts = " and ".join(f"[{script}](peers/{script})" for script in FLOOR_SCRIPTS)
    lines += ["", f"What the machine can do, in the same run, by {scripts}:", "", "| floor | |", "| --- | --- |"]
    for figure in FLOORS:
        if found := values(figure, recorded["floors"]):
            lines.append(f"| {figure.what} | {spread(figure, found)} |")
    return "\n".join(lines) + "\n"


def text(recorded: Mapping[str, Any]) -> str:
    """Return ours beside the floors, a line for each figure, for a terminal."""
    lines = []
    for row in ROWS:
        for figure in row.figures if row.name in recorded["rows"] else ():
            found = recorded["rows"][row.name][OURS]
            measured = values(figure, found["figures"])
            shown = spread(figure, measured) if measured else f"failed: {found['failure']}"
            beside = beside_floor(figure, statistics.median(measured), recorded["floors"]) if measured else ""
            lines.append(f"{figure.what:66s} {shown:>16s}   {beside:20s} {target(figure)}".rstrip())
    return "\n".join(lines)
