"""The terminal display of a sweep that another process drives, fed from its record."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import click

from sweep.core.messages import NodesChanged, PlanChanged
from sweep.core.plan import Plan
from sweep.core.resources import Node
from sweep.core.trial import Trial
from sweep.display.progress import Progress
from sweep.errors import ConfigError
from sweep.record.reader import ExperimentReader
from sweep.record.records import decode_event
from sweep.record.resume import read_trials
from sweep.record.schema import last_event

_POLL_S = 0.5
_REST = 10  # times what one look took: 10% of one CPU at most


@dataclass
class _Seen:
    """What a look at the record found; `at` in seconds of driving, `seq` of the last event."""

    plan: Plan
    nodes: tuple[Node, ...] = ()
    seq: int = 0
    at: float = 0.0
    trials: dict[str, Trial] = field(default_factory=dict)


def attach(
    reader: ExperimentReader,
    display: Progress,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Show a sweep until nobody drives it any more, then what came of it. Nothing is written to it.

    Raises:
        ConfigError: it has not begun.
        ExperimentError: its record is gone or damaged.
    """
    seen = _look(reader, None)
    ended = [trial for trial in seen.trials.values() if trial.is_ended]
    display.setup(**_about(reader, seen), trials=ended)
    others = [trial for trial in seen.trials.values() if not trial.is_ended]
    for trial in sorted(others, key=lambda trial: _since(trial, seen.at)):
        display.on_step(seen.trials, _since(trial, seen.at), [trial.id])
    display.on_step(seen.trials, seen.at, [])
    while reader.state() == "running":
        began = clock()
        news = _look(reader, seen)
        if news is not seen:
            changed = [name for name, trial in news.trials.items() if seen.trials.get(name) != trial]
            display.on_step(news.trials, news.at, changed)
            seen = news
        sleep(max(_POLL_S, _REST * (clock() - began)))
    news = _look(reader, seen)
    display.on_step(news.trials, news.at, [name for name, one in news.trials.items() if seen.trials.get(name) != one])
    display.on_experiment_end(list(news.trials.values()))
    if hint := reader.state_hint():
        click.echo(hint, err=True)


def _since(trial: Trial, now: float) -> float:
    return now if trial.running_since is None else trial.running_since


def _look(reader: ExperimentReader, before: _Seen | None) -> _Seen:
    """Return how the sweep stands; `before` itself where nothing has happened since."""
    with reader.connect() as connection:
        last = last_event(connection)
        if before is not None and last is not None and last[0] == before.seq:
            return before
        found: dict[str, Any] = {}
        for kind in ("PlanChanged", "NodesChanged"):
            row = connection.execute(
                "SELECT data FROM event WHERE kind = ? ORDER BY seq DESC LIMIT 1", (kind,)
            ).fetchone()
            found[kind] = None if row is None else decode_event(kind, None, None, row[0], {}, trust=False)
        plan, nodes = found["PlanChanged"], found["NodesChanged"]
        if last is None or not isinstance(plan, PlanChanged):
            raise ConfigError(f"{reader.name} has not begun: nothing is recorded of it yet. Try again in a moment.")
        trials = {trial.id: trial for trial in read_trials(connection, trust=False)}
    return _Seen(plan.plan, nodes.nodes if isinstance(nodes, NodesChanged) else (), last[0], last[1], trials)


def _about(reader: ExperimentReader, seen: _Seen) -> dict[str, Any]:
    meta = reader.meta
    return {
        "experiment_dir": str(reader.root),
        "plan": seen.plan,
        "num_trials": seen.plan.num_trials,
        "name": reader.name,
        "searcher": meta.get("searcher"),
        "scheduler": meta.get("scheduler"),
        "seed": meta.get("seed"),
        "nodes": seen.nodes,
        "objectives": reader.objectives,
        "resume_command": meta.get("resume_command"),
    }
