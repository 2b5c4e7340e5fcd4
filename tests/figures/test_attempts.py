"""What happened to trials and when."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from made_experiment import MadeExperiment
from node_experiment import experiment_on_nodes
from odd_experiments import make
from virtual_sweeps import run as run_sweep

from sweep.figures.attempts import Span, last_nodes, places_of, spans_of
from sweep.record.reader import ExperimentReader


def spans(reader: ExperimentReader) -> dict[int, list[Span]]:
    found: dict[int, list[Span]] = {row.number: [] for row in reader.trials()}
    for span in spans_of(reader.history(), reader.trials(), reader.driven_s()):
        found[span.number].append(span)
    return found


def kinds(reader: ExperimentReader) -> list[list[tuple[str, float, float]]]:
    return [[(one.kind, one.begin, one.end) for one in some] for some in spans(reader).values()]


def start(made, trial_id, at, attempt=1, *, kind="Tick", owner=""):
    data = {"others": []} if kind == "ClaimsChanged" else None
    made.event(kind, owner or None, data, at=at, commands=[["Start", trial_id, attempt, [["local", [["gpu-0", 1.0]]]]]])
    made.event("Started", trial_id, 1, at + 1)


@pytest.mark.parametrize("scheduler", ["asha", "promotion", "hyperband", "pbt"])
def test_the_spans_of_a_trial_follow_each_other_and_its_reports_lie_where_it_ran(scheduler, tmp_path):
    reader = run_sweep(tmp_path, scheduler)._reader
    found = spans(reader)
    ran = {row.trial_id: [one for one in found[row.number] if one.kind == "running"] for row in reader.trials()}
    for some in found.values():
        assert some
        for before, after in pairwise(some):
            assert before.begin <= before.end <= after.begin + 1e-9
    for row in reader.results():
        assert any(one.begin <= row.at <= one.end for one in ran[row.trial_id])
    assert any(one.kind == "paused" for some in found.values() for one in some) == (
        scheduler in ("promotion", "hyperband")
    )
    assert sum(len(some) for some in ran.values()) == sum(row.attempt for row in reader.trials())


def test_a_retry_waits_and_the_failure_says_why(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    trial_id = made.trial({"x": 1}, at=0.0)
    start(made, trial_id, 2.0)
    made.event(
        "Exited",
        trial_id,
        {"exit": {"kind": "FAILED", "error": "ValueError: no", "traceback": "..."}},
        5.0,
        [["Notify", "trial_recover", trial_id]],
    )
    made.event("Released", trial_id, at=6.0)
    start(made, trial_id, 8.0, 2)
    made.change(made.seq, attempt=2)
    made.event("Tick", at=12.0)
    made.set(trial_id, status="RUNNING", attempt=2)
    reader = ExperimentReader(made.close())
    assert kinds(reader) == [
        [
            ("waiting", 0.0, 2.0),
            ("starting", 2.0, 3.0),
            ("failed", 3.0, 5.0),
            ("waiting", 5.0, 8.0),
            ("starting", 8.0, 9.0),
            ("running", 9.0, 12.0),
        ]
    ]
    assert "ValueError: no" in spans(reader)[0][2].text


def test_what_made_room_for_a_trial_is_why_it_had_waited(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    first, second, third = (made.trial({"x": 1}, reason="waits for gpu=1") for _ in range(3))
    start(made, first, 1.0)
    made.event("Waiting", first, "its device is being cleaned", 1.5)
    made.event("Exited", first, {"exit": {"kind": "FINISHED"}}, 4.0, [["Notify", "trial_complete", first]])
    start(made, second, 5.0, kind="Released", owner=first)
    made.set(first, status="TERMINATED", reason="")
    reader = ExperimentReader(made.close())
    found = spans(reader)
    assert found[1][0].text == "until trial 00000 gave back what it held"
    assert [(one.kind, one.text) for one in found[2]] == [("waiting", "waits for gpu=1")]
    assert third


def test_what_ran_when_its_driver_died_ended_there(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    trial_id = made.trial({"x": 1})
    start(made, trial_id, 1.0)
    made.event("Tick", at=7.0)
    made.event("PlanChanged", None, {}, 7.0)
    start(made, trial_id, 9.0)
    made.set(trial_id, status="RUNNING", attempt=2)
    reader = ExperimentReader(made.close())
    assert [kind for kind, _, _ in kinds(reader)[0]] == [
        "waiting",
        "starting",
        "failed",
        "waiting",
        "starting",
        "running",
    ]
    lost = spans(reader)[0][2]
    assert (lost.begin, lost.end) == (2.0, 7.0)
    assert "its driver ended" in lost.text


def test_a_start_that_was_declined_is_a_part_of_the_wait_for_another_sweep(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    trial_id = made.trial({"x": 1}, at=0.0)
    made.event("Tick", at=1.0, commands=[["Start", trial_id, 1, [["local", [["gpu-0", 1.0]]]]]])
    made.event("Declined", trial_id, 1, 1.5)
    start(made, trial_id, 4.0, kind="ClaimsChanged")
    made.set(trial_id, status="RUNNING", attempt=1)
    reader = ExperimentReader(made.close())
    assert kinds(reader)[0][:2] == [("waiting", 0.0, 4.0), ("starting", 4.0, 5.0)]
    assert spans(reader)[0][0].text == "until another sweep of the machine gave something back"


def test_devices_are_named_and_nodes_where_there_is_none(tmp_path: Path) -> None:
    attempts = ExperimentReader(make(tmp_path, "going_on")).history().attempts
    assert {places_of(one) for one in attempts} == {("CPUs",), ("gpu-1",)}


def test_the_nodes_of_last_attempts_are_told_where_there_was_more_than_one(tmp_path):
    reader = ExperimentReader(experiment_on_nodes(tmp_path).root)
    assert last_nodes(reader) == {"abcde_00000": "n1", "abcde_00001": "n1", "abcde_00002": "n1, n2"}
    assert last_nodes(run_sweep(tmp_path / "one", "asha")._reader) == {}


def test_an_attempt_says_on_which_node_it_was_and_why_it_was_lost(tmp_path):
    reader = ExperimentReader(experiment_on_nodes(tmp_path).root)
    said = {number: [one.text for one in some if one.kind == "failed"] for number, some in spans(reader).items()}
    lost = "NODE_LOST: node n2 was lost: its agent ended"
    assert said[1] == [f"attempt 1 on n2 {lost}", "attempt 2 on n1 its driver ended"]
    assert said[2] == [f"attempt 1 on n1, n2 {lost}"]
