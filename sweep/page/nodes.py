"""The nodes that a sweep has had: what each has, what it runs, what it ran and lost, how long it was there and idle."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from sweep.core.history import Attempt, When
from sweep.core.messages import ExitKind, NodesChanged, PlanChanged
from sweep.core.resources import Node, Resources
from sweep.core.trial import number_of
from sweep.display.formats import moment
from sweep.figures.attempts import held_until, nodes_of
from sweep.record.reader import ExperimentReader


@dataclass(slots=True)
class _Life:
    """A node as it was last, when it came first, since when it is there or else left, and what had a part there."""

    node: Node
    came: When
    since: When | None = None
    left: When | None = None
    there_s: float = 0.0  # the times before that
    attempts: list[Attempt] = field(default_factory=list)

    def see(self, there: Collection[str], when: When) -> None:
        """Take which nodes are there from now on."""
        if self.since is None and self.node.id in there:
            self.since, self.left = when, None
        elif self.since is not None and self.node.id not in there:
            self.there_s += when.at - self.since.at
            self.since, self.left = None, when

    def losses(self) -> Iterator[str]:
        """Give why attempts ended that were lost with it; of one on several nodes its exit names the one."""
        for attempt in self.attempts:
            if attempt.exit is not None and attempt.exit.kind is ExitKind.NODE_LOST:
                error = attempt.exit.error
                if nodes_of(attempt) == (self.node.id,) or error.startswith(f"node {self.node.id} was lost"):
                    yield error

    def busy_s(self, now: float) -> float:
        """Return for how long it ran anything."""
        busy = until = 0.0
        for attempt in self.attempts:  # in the order of their starts
            end = held_until(attempt, now)
            busy += max(0.0, end - max(until, attempt.granted.at))
            until = max(until, end)
        return busy

    def holds(self, running: list[Attempt]) -> str:
        """Return what these attempts hold of it together; empty: nothing."""
        held = [
            bundle
            for one in running
            if one.placement is not None
            for bundle, place in zip(one.resources.bundles, one.placement.bundles, strict=True)
            if place.node == self.node.id and not bundle.is_empty
        ]
        return str(Resources(tuple(held)).total) if held else ""


def node_rows(reader: ExperimentReader) -> list[dict[str, Any]]:
    """Return a row for each node that a sweep has had, in the order in which they came, with the fields that
    `docs/reference/cli.md` explains; none where it was imported."""
    if reader.meta.get("imported"):
        return []
    lives: dict[str, _Life] = {}
    seq, *end = reader.last_event() or (0, 0.0, 0.0)
    before, now = When(0.0, 0.0), When(*end)
    for fact in reader.facts(kinds=(PlanChanged, NodesChanged), before=seq + 1):
        nodes: tuple[Node, ...] = fact.event.nodes if isinstance(fact.event, NodesChanged) else ()
        # The driver of an earlier run ended at that time of driving; the world's clock has gone on since.
        when = fact.when if nodes or not lives else When(fact.at, min(fact.wall, before.wall + fact.at - before.at))
        for node in nodes:
            lives.setdefault(node.id, _Life(node, when)).node = node
        there = {node.id for node in nodes}
        for life in lives.values():
            life.see(there, when)
        before = fact.when
    for attempt in reader.history().attempts:
        for name in lives.keys() & nodes_of(attempt):
            lives[name].attempts.append(attempt)
    is_driven = reader.state() in ("running", "unknown")
    for life in lives.values() if not is_driven else ():
        life.see((), now)
    return [_row(life, now, is_driven) for life in lives.values()]


def _row(life: _Life, now: When, is_driven: bool) -> dict[str, Any]:
    node, losses = life.node, list(life.losses())
    running = [one for one in life.attempts if is_driven and one.released is None]  # on one that leaves, too
    there_s = life.there_s + (0.0 if life.since is None else now.at - life.since.at)
    return {
        "node": node.id,
        "cpus": node.cpus,
        "gpus": int(node.amount("gpu")),
        "tpus": int(node.amount("tpu")),
        "memory_gb": round(node.memory / 1e9, 1),
        "running": [number_of(one.trial_id) for one in running],
        "holds": life.holds(running),
        "attempts": len(life.attempts),
        "lost": len(losses),
        "there_s": round(there_s, 1),
        "idle_share": round(max(0.0, 1 - life.busy_s(now.at) / there_s), 3) if there_s else None,
        "came": moment(life.came.wall),
        "left": life.left and moment(life.left.wall),
        "why_lost": losses[-1] if losses else "",
    }
