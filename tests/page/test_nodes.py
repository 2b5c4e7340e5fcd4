"""What is said of the nodes that a sweep has had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_experiment import T0, MadeExperiment
from node_experiment import N1, begin, experiment_on_nodes, nodes_at

from sweep.display.formats import moment
from sweep.page.nodes import node_rows
from sweep.record.reader import ExperimentReader


def rows_of(root: Path) -> list[dict[str, Any]]:
    return node_rows(ExperimentReader(root))


def test_each_node_has_a_row_with_what_it_has_ran_lost_and_for_how_long_it_idled(tmp_path, monkeypatch):
    root = experiment_on_nodes(tmp_path).root
    monkeypatch.setattr(ExperimentReader, "state", lambda self: "running")
    first, second = rows_of(root)
    assert first == {
        "node": "n1",
        "cpus": 4.0,
        "gpus": 1,
        "tpus": 0,
        "memory_gb": 8.0,
        "running": [1],
        "holds": "cpu=1",
        "attempts": 4,  # the group was lost with the other node
        "lost": 0,
        "there_s": 10.0,  # from 1 to 10, and from 11 to 12
        "idle_share": 0.0,  # what the first driver ran is held until the second one begins
        "came": moment(T0 + 1),
        "left": None,
        "why_lost": "",
    }
    assert second == {
        "node": "n2",
        "cpus": 2.0,
        "gpus": 0,
        "tpus": 0,
        "memory_gb": 0.0,
        "running": [],
        "holds": "",
        "attempts": 2,
        "lost": 2,
        "there_s": 5.0,  # from 1 to 4, and from 6 to 8
        "idle_share": 0.2,  # until 2
        "came": moment(T0 + 1),
        "left": moment(T0 + 8),
        "why_lost": "node n2 was lost: its agent ended",
    }


def test_a_driver_that_is_gone_has_taken_its_nodes_with_it_at_its_last_event(tmp_path):
    first, _ = rows_of(experiment_on_nodes(tmp_path).root)
    assert (first["left"], first["running"], first["holds"]) == (moment(T0 + 1012), [], "")


def test_a_node_that_did_not_come_again_left_when_the_driver_before_ended_not_when_the_next_began(tmp_path):
    made = MadeExperiment(tmp_path)
    made.event("PlanChanged", data={}, at=0.0)
    nodes_at(made, 1.0, N1, {"id": "n2"})
    made.event("Tick", at=5.0)
    made.change(made.event("PlanChanged", data={}, at=5.0), wall=T0 + 9000)
    made.change(made.event("NodesChanged", None, {"nodes": [N1], "away": []}, 6.0), wall=T0 + 9001)
    made.commit()
    first, second = rows_of(made.root)
    assert (second["there_s"], second["left"]) == (4.0, moment(T0 + 5))
    assert (first["came"], first["left"]) == (moment(T0 + 1), moment(T0 + 9001))


def test_attempts_that_overlap_count_once_as_time_in_which_a_node_was_busy(tmp_path):
    made = MadeExperiment(tmp_path)
    made.event("PlanChanged", data={}, at=0.0)
    nodes_at(made, 0.0, N1)
    for trial, (start, end) in zip([made.trial({"x": x}) for x in range(3)], [(1, 4), (2, 3), (3, 5)], strict=True):
        begin(made, trial, 1, start, "n1")
        made.end(trial, at=end)
        made.event("Released", trial, at=end)
    made.event("Tick", at=10.0)
    made.commit()
    (row,) = rows_of(made.root)
    assert (row["attempts"], row["idle_share"]) == (3, 0.6)


@pytest.mark.parametrize("meta", [{}, {"imported": {"tool": "wandb", "source": "x"}}])
def test_before_the_first_node_and_of_what_was_imported_there_are_no_rows(tmp_path, meta):
    made = MadeExperiment(tmp_path, **meta)
    if meta:
        nodes_at(made, 0.0, N1, {"id": "imported-2"})
    made.commit()
    assert rows_of(made.root) == []
