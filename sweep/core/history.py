"""What is recorded of a sweep, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sweep.core.messages import Event


@dataclass(frozen=True, slots=True)
class Fact:
    """One event of a record, and what followed from it.

    Attributes:
        seq: its number: 1, 2, 3 ...
        at: when it was committed, in seconds of driving.
        wall: when it was committed, in UTC epoch seconds.
        caused: the commands that it caused, as they are recorded; None: what such an event usually causes.
        metrics: of a report, as filled in; None: there are none, or they were not asked for.
    """

    seq: int
    at: float
    wall: float
    event: Event
    caused: list[list[Any]] | None
    metrics: dict[str, Any] | None
