"""What is written of several experiments side by side, as HTML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sweep.core.results import flatten
from sweep.figures.attempts import attempts_of
from sweep.page.markup import line, rows
from sweep.page.parts import counts_of, span_text
from sweep.record.reader import ExperimentReader
from sweep.results.winners import best_by_last, objectives_front

__all__ = ["COMPARISON_PARTS", "COMPARISON_TITLES"]

_MAX_ROWS = 100
_FACTS = ("command", "searcher", "scheduler", "num_trials", "seed", "import_path", "resources_per_trial")


def overview(readers: Mapping[str, ExperimentReader]) -> str:
    """Return how each stands: its trials, its best value, how long it took."""
    body = []
    for name, reader in readers.items():
        best = None if reader.objectives else best_by_last(reader, reader.metric, reader.mode)
        shown: Any = None if best is None else best.value
        if reader.objectives:
            shown = f"Pareto set of {len(objectives_front(reader))}"
        _, attempts, end = attempts_of(reader)
        held = sum((end if one.released is None else one.released) - one.granted for one in attempts)
        said = ", ".join(f"{count} {what}" for what, count in counts_of(reader).items())
        trial = None if best is None else f"{best.row.number:05d}"
        body.append([name, reader.state(), said, reader.metric, shown, trial, span_text(end), span_text(held)])
    heads = ["experiment", "state", "trials", "metric", "best", "trial", "driven for", "trials ran for"]
    return rows(heads, body, "Experiments")


def differences(readers: Mapping[str, ExperimentReader]) -> str:
    """Return what was asked for and what won, where it is not the same for all."""
    facts = {name: _facts(reader) for name, reader in readers.items()}
    keys = dict.fromkeys(key for values in facts.values() for key in values)
    body = [
        [key, *(values.get(key) for values in facts.values())]
        for key in keys
        if len({str(values.get(key)) for values in facts.values()}) > 1
    ]
    if not body:
        return line("Nothing that is recorded differs but the trials themselves.")
    more = line(f"The first {_MAX_ROWS} of {len(body)}.") if len(body) > _MAX_ROWS else ""
    return rows(["", *readers], body[:_MAX_ROWS], "What differs") + more


COMPARISON_PARTS: Mapping[str, Callable[[Mapping[str, ExperimentReader]], str]] = {
    "overview": overview,
    "differences": differences,
}
"""Name of a part -> what makes its HTML."""

COMPARISON_TITLES: Mapping[str, str] = {"overview": "Side by side", "differences": "What differs"}


def _exact(value: Any) -> Any:
    return str(value) if isinstance(value, int) else value  # a seed is no measurement


def _facts(reader: ExperimentReader) -> dict[str, Any]:
    meta = reader.meta
    found: dict[str, Any] = {name.replace("_", " "): _exact(meta.get(name)) for name in _FACTS}
    for group in ("space", "versions", "machine"):
        values = meta.get(group)
        found |= {f"{group}: {key}": value for key, value in values.items()} if isinstance(values, Mapping) else {}
    best = None if reader.objectives else best_by_last(reader, reader.metric, reader.mode)
    if best is not None:
        found |= {f"winner: {key}": value for key, value in flatten(best.row.config).items()}
    return found
