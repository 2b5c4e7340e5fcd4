"""Pieces of HTML: everything that comes from users becomes text here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sweep.display.formats import escaped, text


def shown(value: Any) -> str:
    """Return a value of a config or a report as a cell has it: numbers with four digits."""
    return escaped(text(value))


def code(body: str, label: str, most: int = 20_000) -> str:
    """Return a block of text to copy, named `label` for a screen reader."""
    return f'<pre tabindex="0" aria-label="{escaped(label)}">{escaped(body, most)}</pre>'


def line(*parts: str) -> str:
    """Return a paragraph of pieces that are HTML already."""
    return f"<p>{' '.join(part for part in parts if part)}</p>"


def facts(pairs: Iterable[tuple[str, Any]]) -> str:
    """Return a list of names and values; those that are None or empty are left out."""
    items = "".join(
        f"<div><dt>{escaped(name)}</dt><dd>{escaped(value, 2000)}</dd></div>"
        for name, value in pairs
        if value not in (None, "", [], {})
    )
    return f"<dl>{items}</dl>" if items else ""


def rows(heads: Sequence[str], body: Iterable[Sequence[Any]], caption: str) -> str:
    """Return a small table; cells are shown as `shown` does, the caption is for screen readers."""
    head = "".join(f'<th scope="col">{escaped(one)}</th>' for one in heads)
    lines = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in body)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escaped(caption)}"><table><caption>'
        f"{escaped(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def _cell(value: Any) -> str:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f'<td class="number">{shown(value)}</td>' if is_number else f"<td>{shown(value)}</td>"
