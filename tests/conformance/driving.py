"""How tests drive the local engine: start trials of a function, answer every report, return what happened."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from conformance.engines import collect, context, has_released, trial

from sweep.core.messages import Continue, Event, Exit, Exited, Reported, Saved, Start, Waiting
from sweep.engines.local.engine import LocalEngine


@dataclass
class Story:
    """What happened in a run of some trials."""

    events: list[Event]
    notices: list[str] = field(default_factory=list)

    @property
    def exits(self) -> list[Exit]:
        """The exits, in order."""
        return [event.exit for event in self.events if isinstance(event, Exited)]

    @property
    def exit(self) -> Exit:
        """The only exit."""
        (only,) = self.exits
        return only

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """What was reported, in order."""
        return [dict(event.metrics) for event in self.events if isinstance(event, Reported)]

    def values(self, key: str) -> list[Any]:
        """One metric of all reports."""
        return [metrics[key] for metrics in self.metrics]

    @property
    def saved(self) -> list[str]:
        """Checkpoints stored on demand or with a report."""
        return [event.checkpoint for event in self.events if isinstance(event, (Saved, Reported)) and event.checkpoint]

    @property
    def reasons(self) -> list[str]:
        """Why starts took long."""
        return [event.reason for event in self.events if isinstance(event, Waiting)]


def play(directory, function, trials=None, *, answer=None, in_turn=False, **fields) -> Story:
    """Run trials (default: one) of `function` in a local engine and return the story.

    Args:
        in_turn: each trial starts when the one before is released.
    """
    trials = trials or [trial()]
    engine = LocalEngine(context(directory, function, **fields))
    answer = answer or (lambda report: Continue(report.trial_id, report.attempt, report.seq))
    events: list[Event] = []
    try:
        if in_turn:
            for one in trials:
                engine.execute(Start(one))
                events += collect(engine, has_released(1), answer=answer)
        else:
            for one in trials:
                engine.execute(Start(one))
            events += collect(engine, has_released(len(trials)), answer=answer)
        return Story(events, engine.notices)
    finally:
        engine.close()
