"""A record of a sweep on two nodes, one of which was lost, came back and was lost again, written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from made_experiment import T0, MadeExperiment

GROUP = {"bundles": [{"cpu": 1, "gpu": 1}, {"cpu": 2}], "strategy": "STRICT_SPREAD"}
N1 = {"id": "n1", "cpus": 4.0, "memory": 8_000_000_000, "devices": [{"id": "0"}]}
N2 = {"id": "n2", "cpus": 2.0}


def nodes_at(made: MadeExperiment, at: float, *nodes: dict[str, Any], away: tuple[dict[str, Any], ...] = ()) -> None:
    made.event("NodesChanged", None, {"nodes": list(nodes), "away": list(away)}, at)


def begin(made: MadeExperiment, trial: str, attempt: int, at: float, *places: str) -> None:
    placement = [[place, []] for place in places]
    made.event("Tick", at=at, commands=[["Start", trial, attempt, placement]])
    made.start(trial, at=at, attempt=attempt, placement=placement)


def lose(made: MadeExperiment, trial: str, attempt: int, at: float, node: str) -> None:
    lost = {"kind": "NODE_LOST", "error": f"node {node} was lost: its agent ended"}
    made.event("Exited", trial, {"exit": lost}, at, attempt=attempt)


def experiment_on_nodes(root: Path) -> MadeExperiment:
    """Trial 0 ran on n1 from 1 to 9 s; 1 on n2 from 2 to 4, when it was lost, and from 6 to 9 on n1; 2, a group, on
    both from 6 to 8, when n2 was lost again. Then the driver died, and 1000 s later another went on with n1 alone,
    where trial 1 runs since 11 s."""
    made = MadeExperiment(root, "nodes")
    made.event("PlanChanged", data={}, at=0.0)
    nodes_at(made, 1.0, N1, N2)
    first, second = made.trial({"x": 0}), made.trial({"x": 1})
    group = made.trial({"x": 2}, resources=GROUP)
    begin(made, first, 1, 1.0, "n1")
    begin(made, second, 1, 2.0, "n2")
    lose(made, second, 1, 4.0, "n2")
    nodes_at(made, 4.0, N1, away=(N2,))
    made.event("Released", second, at=4.0)
    nodes_at(made, 6.0, N1, N2)
    begin(made, second, 2, 6.0, "n1")
    made.event("Tick", at=6.0, commands=[["Start", group, 1, [["n1", [["0", 1.0]]], ["n2", []]], None, GROUP, None]])
    lose(made, group, 1, 8.0, "n2")
    nodes_at(made, 8.0, N1, away=(N2,))
    made.event("Released", group, at=8.0)
    made.end(first, at=9.0)
    made.event("Released", first, at=9.0)
    made.event("Tick", at=10.0)
    for at, kind, data in ((10.0, "PlanChanged", {}), (11.0, "NodesChanged", {"nodes": [N1], "away": []})):
        made.change(made.event(kind, None, data, at), wall=T0 + 1000 + at)
    begin(made, second, 3, 11.0, "n1")
    made.change(made.event("Tick", at=12.0), wall=T0 + 1012)
    made.commit()
    return made
