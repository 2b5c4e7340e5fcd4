"""What `suggest` answers: a config, "not now" or "nothing more"."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, Final

Config = dict[str, Any]

Names = str | Sequence[str] | None
"""A metric or a mode, lists of them for several objectives, None while it is not known."""


class Signal(Enum):
    """What `suggest` may answer instead of a config."""

    NOT_NOW = "not_now"
    EXHAUSTED = "exhausted"


NOT_NOW: Final = Signal.NOT_NOW
EXHAUSTED: Final = Signal.EXHAUSTED


def answer_of(suggestion: Config | Signal | None) -> Config | Signal:
    """Return what a `suggest` answered, with None as `NOT_NOW`: searchers written for Tune say it that way."""
    return NOT_NOW if suggestion is None else suggestion
