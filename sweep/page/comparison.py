"""What is written of several experiments side by side, as HTML."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

from sweep.core.results import flatten
from sweep.figures.attempts import held_until
from sweep.figures.comparison import improvements
from sweep.page.markup import line, rows
from sweep.page.parts import span_text
from sweep.page.subject import Subject
from sweep.results.winners import shown_counts

_MAX_ROWS = 100
_FACTS = ("command", "searcher", "scheduler", "num_trials", "seed", "import_path", "resources_per_trial")


def overview(subjects: Mapping[str, Subject]) -> str:
    """Return how each stands: its trials, its best value, how long it took."""
    body = []
    for name, subject in subjects.items():
        reader, best, end = subject.reader, subject.best(), subject.reader.driven_s()
        value: Any = None if best is None else best.value
        if subject.objectives:
            value = f"Pareto set of {len(subject.front())}"
        trial = None if best is None else f"{best.row.number:05d}"
        held = sum(held_until(one, end) - one.granted.at for one in reader.history().attempts)
        stands = [name, reader.state(), shown_counts(reader), subject.objective]
        body.append([*stands, value, trial, span_text(end), span_text(held)])
    heads = ["experiment", "state", "trials", "objective", "best", "trial", "driven for", "trials ran for"]
    return rows(heads, body, "Experiments")


def what_differs(subjects: Mapping[str, Subject]) -> dict[str, list[Any]]:
    """Return what was asked for and what won, by what it is, where it is not the same for all: a value of each."""
    facts = [_facts(subject) for subject in subjects.values()]
    rows = {key: [values.get(key) for values in facts] for key in dict.fromkeys(chain.from_iterable(facts))}
    return {key: values for key, values in rows.items() if len(set(map(str, values))) > 1}


def differences(subjects: Mapping[str, Subject]) -> str:
    """Return what was asked for and what won, where it is not the same for all."""
    body = [[key, *values] for key, values in what_differs(subjects).items()]
    if not body:
        return line("Nothing that is recorded differs but the trials themselves.")
    more = line(f"The first {_MAX_ROWS} of {len(body)}.") if len(body) > _MAX_ROWS else ""
    return rows(["", *subjects], body[:_MAX_ROWS], "What differs") + more


def best_so_far(subjects: Mapping[str, Subject]) -> list[tuple[str, float, list[float | None]]]:
    """Return ("trials" or "seconds", how many, the best value of each by then), at quarters of what all have reached:
    trials with their last report, seconds of driving. Empty where they are not judged by one and the same metric."""
    (metric, mode), *others = {(one.metric, one.mode) for one in subjects.values()}
    if others or not metric or not mode or any(one.objectives for one in subjects.values()):
        return []
    series = [improvements(one.reader, metric, mode) for one in subjects.values()]
    found: list[tuple[str, float, list[float | None]]] = []
    for column, unit in enumerate(("trials", "seconds")) if all(series) else ():
        most = min(points[-1][column] for points in series)
        for limit in sorted(
            {quarter * most / 4 if column else math.ceil(quarter * most / 4) for quarter in (1, 2, 3, 4)}
        ):
            reached = [[point[2] for point in points if point[column] <= limit] for points in series]
            found.append((unit, limit, [values[-1] if values else None for values in reached]))
    return found


COMPARISON_PARTS: Mapping[str, Callable[[Mapping[str, Subject]], str]] = {
    "overview": overview,
    "differences": differences,
}
"""Name of a part -> what makes its HTML."""

COMPARISON_TITLES: Mapping[str, str] = {"overview": "Side by side", "differences": "What differs"}


def _facts(subject: Subject) -> dict[str, Any]:
    meta = subject.reader.meta
    found: dict[str, Any] = {name.replace("_", " "): meta.get(name) for name in _FACTS}
    found |= {name: str(value) for name, value in found.items() if isinstance(value, int)}  # a seed is no measurement
    for group in ("space", "versions", "machine"):
        found |= {f"{group}: {key}": value for key, value in (meta.get(group) or {}).items()}
    best = subject.best()
    if best is not None:
        found |= {f"winner: {key}": value for key, value in flatten(best.row.config).items()}
    return found
