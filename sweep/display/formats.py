"""How numbers, times, configs and the user's texts are shown to people: short, on one line, safe to print."""

from __future__ import annotations

import html
import json
import math
import re
import time
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from sweep.core.results import MOST_SECONDS
from sweep.core.values import printed, sound_text
from sweep.core.values import shown as safe_repr

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./ -]*")
# Words that some YAML reader takes for something other than a text.
_RESERVED = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069]")
_BREAKS = re.compile(r"[\n\r\t\v\f\u2028\u2029]")
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


def clean(value: object) -> str:
    """Return `str(value)` on one line, without escape sequences, control characters and direction overrides.

    What a trial calls its parameters or says in an exception must not move the cursor or recolour the terminal.
    """
    shown = printed(value)
    if shown.isascii() and shown.isprintable():
        return shown
    shown = _BREAKS.sub(" ", _ESCAPES.sub("", shown))
    shown = "".join(c for c in shown if unicodedata.category(c) not in ("Cc", "Cf", "Cs"))
    return re.sub(r" {2,}", " ", shown).strip()


def escaped(value: Any, most: int = 400) -> str:
    """Return a value as text of a page, cut after `most` characters (0: never); control characters are left out."""
    plain = _CONTROL.sub("", sound_text(printed(value)))
    if most and len(plain) > most:
        plain = plain[: most - 1] + "…"
    return html.escape(plain)


def number(value: float) -> str:
    """Return a number with four significant digits: `0.04124`, `3.1e-4`, `12.5`; whole numbers up to 1e7 in full."""
    if isinstance(value, int):
        return str(value) if abs(value) < 10**7 else f"{float(value):.3e}" if abs(value) < 10**300 else "huge"
    if not math.isfinite(value) or value == 0:
        return f"{abs(value) if value == 0 else value:g}"
    if 1e-3 <= abs(value) < 1e5:
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
    mantissa, _, exponent = f"{value:.3e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def text(value: Any) -> str:
    """Return any value of a config or report for a table cell."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return number(value)
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(text(item) for item in value) + "]"
    return clean(value)


def duration(seconds: float) -> str:
    """Return a span of time as a clock shows it: `0:07`, `12:41`, `1:02:03`, `2d 03:04:05`."""
    whole = max(0, int(seconds)) if math.isfinite(seconds) else 0
    days, rest = divmod(whole, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, secs = divmod(rest, 60)
    if days:
        return f"{days}d {hours:02d}:{minutes:02d}:{secs:02d}"
    return f"{hours}:{minutes:02d}:{secs:02d}" if hours else f"{minutes}:{secs:02d}"


def rough_duration(seconds: float) -> str:
    """Return a span of time as people say it: `40s`, `7m`, `3h`, `2d`."""
    for limit, size, unit in ((90, 1, "s"), (5400, 60, "m"), (129600, 3600, "h")):
        if seconds < limit:
            return f"{max(0, round(seconds / size))}{unit}"
    return f"{round(seconds / 86400)}d"


def moment(wall: Any, zone: str = "") -> str | None:
    """Return a time of day as text, with ` %Z` also its zone; None where none is known."""
    if not isinstance(wall, (int, float)) or not abs(wall) < MOST_SECONDS:
        return None
    return time.strftime(f"%Y-%m-%d %H:%M:%S{zone}", time.localtime(wall))


def pairs(config: Mapping[str, Any]) -> str:
    """Return `lr=3.1e-4 width=256`."""
    return " ".join(f"{clean(name)}={text(value)}" for name, value in config.items())


def at_step(step: Any) -> str:
    """Return ` at step 3`; nothing where no step is known."""
    return "" if step is None else f" at step {text(step)}"


def width_of(shown: str) -> int:
    """Return how many terminal columns a text takes: wide East Asian characters take two, combining marks none."""
    if shown.isascii():
        return len(shown)
    from rich.cells import cell_len  # rich is heavy for commands that show no such text

    return cell_len(shown)


def fit(shown: str, columns: int) -> str:
    """Return `shown` cut to at most `columns` terminal columns; a cut is marked with `…`."""
    if width_of(shown) <= columns:
        return shown
    from rich.cells import set_cell_size

    return set_cell_size(shown, columns - 1).rstrip() + "…" if columns > 0 else ""


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return a table as lines: every column is as wide as its widest cell, those in `right` flush right.

    Rows may end before the last column.
    """
    widths = [max(map(width_of, column)) for column in zip_longest(*rows, fillvalue="")]

    def padded(index: int, cell: str) -> str:
        pad = " " * (widths[index] - width_of(cell))
        return pad + cell if index in right else cell + pad

    return ["  ".join(padded(*pair) for pair in enumerate(row)).rstrip() for row in rows]


def to_yaml(value: Mapping[str, Any], indent: int = 0) -> str:
    """Return a config as YAML that every reader of YAML 1.1 and 1.2 turns back into the same values.

    What YAML cannot say (the user's own objects) is written as its repr in quotes.
    """
    lines: list[str] = []
    pad = " " * indent
    for key, item in value.items():
        is_deep = isinstance(item, Mapping) and item
        inner = f"\n{to_yaml(item, indent + 2)}" if is_deep else f" {_flow(item)}\n"
        lines.append(f"{pad}{_flow(str(key))}:{inner}")
    return "".join(lines)


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_quoted(str(k))}: {_flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int):
        return printed(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return f"{value:f}".replace("nan", ".nan").replace("inf", ".inf")
        shown = repr(value)
        # YAML 1.1 reads 1e-05 as a text: it wants a point and a sign.
        return shown if "e" not in shown or "." in shown else shown.replace("e", ".0e")
    shown = value if isinstance(value, str) else safe_repr(value, 10_000)
    is_plain = _PLAIN.fullmatch(shown) and shown.lower() not in _RESERVED and shown == shown.strip()
    return shown if is_plain else _quoted(shown)


def _quoted(shown: str) -> str:
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in json.dumps(shown, ensure_ascii=False))
