"""A trial's states: the table in the code, the table in the document, and the value that is replaced."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sweep.core.resources import Placement, Resources
from sweep.core.results import TrialResult
from sweep.core.trial import (
    ENDED,
    HELD,
    LEGAL,
    STATES,
    Cause,
    CheckpointRef,
    Status,
    Trial,
    evolve,
    revived,
    shown_state,
    shown_status,
)

DOCUMENT = Path(__file__).parents[2] / "docs" / "explanation" / "life-of-a-trial.md"


def rows_under(heading: str) -> list[list[str]]:
    """The cells of the first Markdown table under a heading, without its head."""
    text = DOCUMENT.read_text(encoding="utf-8")
    assert f"\n## {heading}\n" in text, heading
    section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_document_and_the_code_agree_on_what_may_follow_what():
    told = {}
    for status, following, *_ in rows_under("What may follow what"):
        told[status.strip("`")] = set(re.findall(r"[A-Z]+", following))
    assert told == {status.value: {s.value for s in following} for status, following in LEGAL.items()}


def test_the_drawing_shows_exactly_the_legal_transitions():
    text = DOCUMENT.read_text(encoding="utf-8")
    drawing = text.split("```mermaid", 1)[1].split("```", 1)[0]
    drawn = {(a, b) for a, b in re.findall(r"([A-Z]+) --> ([A-Z]+)", drawing)}
    assert drawn == {(a.value, b.value) for a, following in LEGAL.items() for b in following}


def test_the_document_has_a_row_for_every_decision_and_a_column_for_every_group_of_states():
    rows = rows_under("What a decision means")
    assert [row[0].strip("`") for row in rows] == [
        "StopTrial",
        "CloneTrial",
        "PauseTrial",
        "ResumeTrial",
        "SaveTrial",
        "ResizeTrial",
    ]
    assert {len(row) for row in rows} == {6}


def test_every_status_has_a_row_and_is_shown_to_users_under_a_name_of_tune():
    assert set(LEGAL) == set(Status)
    assert {shown_status(status) for status in Status} == {"PENDING", "RUNNING", "PAUSED", "TERMINATED", "ERROR"}
    assert shown_status(Status.STARTING) == "PENDING"
    assert shown_status(Status.STOPPING) == "RUNNING"


@pytest.mark.parametrize(
    ("status", "cause", "is_holding", "state"),
    [
        (Status.PENDING, Cause.RESOURCES, False, "waiting"),
        (Status.PENDING, Cause.NONE, True, "running"),  # how a record shows STARTING
        (Status.STARTING, Cause.NONE, True, "running"),
        (Status.RUNNING, Cause.NONE, True, "running"),
        (Status.STOPPING, Cause.EARLY, True, "running"),
        (Status.PAUSED, Cause.NONE, False, "paused"),
        (Status.TERMINATED, Cause.REACHED, False, "finished"),
        (Status.TERMINATED, Cause.EARLY, False, "stopped early"),
        (Status.TERMINATED, Cause.EARLY, True, "stopped early"),
        (Status.ERROR, Cause.EARLY, False, "failed"),
    ],
)
def test_people_are_shown_one_of_six_words(status: Status, cause: Cause, is_holding: bool, state: str):
    placement = Placement(()) if is_holding else None
    assert shown_state(Trial("a_00000", {}, Resources(), status, cause=cause, placement=placement)) == state
    assert state in STATES


def test_another_reason_takes_its_cause_along():
    trial = Trial("a_00000", {}, Resources(), reason="waits for gpu=1", cause=Cause.RESOURCES)
    assert evolve(trial, reason="waits for gpu=1", attempt=1).cause is Cause.RESOURCES
    assert evolve(trial, reason="").cause is Cause.NONE
    assert evolve(trial, reason="waits", cause=Cause.SPACE).cause is Cause.SPACE


def test_an_end_is_final_unless_somebody_asks_for_a_retry():
    for status in ENDED:
        assert LEGAL[status] == {Status.PENDING}
    assert not HELD & ENDED


def test_only_a_pending_trial_starts_and_only_a_stopping_one_is_paused():
    assert [status for status in Status if Status.STARTING in LEGAL[status]] == [Status.PENDING]
    assert [status for status in Status if Status.PAUSED in LEGAL[status]] == [Status.STOPPING]


def test_a_trial_is_replaced_and_never_changed():
    trial = Trial("ab12c_00042", {"x": 1}, Resources())
    new = evolve(trial, status=Status.RUNNING, count=3)
    assert (trial.status, trial.count) == (Status.PENDING, 0)
    assert new == trial._replace(status=Status.RUNNING, count=3)
    with pytest.raises(AttributeError):
        new.count = 4  # type: ignore[misc]


def test_a_trial_knows_its_number_and_where_it_is():
    trial = Trial("ab12c_00042", {}, Resources())
    assert trial.number == 42
    for status in Status:
        now = evolve(trial, status=status)
        assert (now.is_held, now.is_ended) == (status in HELD, status in ENDED)


@pytest.mark.parametrize(
    ("recorded", "meant"),
    [
        (["a/c1", 3, 30, 1.5], CheckpointRef("a/c1", 3, 30, 1.5)),
        ('["a/c1", 3, 30, 1.5]', CheckpointRef("a/c1", 3, 30, 1.5)),
        (CheckpointRef("a/c1", 3, 30, 1.5).to_json(), CheckpointRef("a/c1", 3, 30, 1.5)),
        ("a/c1", CheckpointRef("a/c1")),
        ('"a/c1"', CheckpointRef("a/c1")),
        *((nothing, None) for nothing in (None, "", "null", [])),
    ],
)
def test_a_checkpoint_reference_is_read_in_every_form_of_a_record(recorded, meant):
    assert CheckpointRef.parse(recorded) == meant


def test_a_checkpoint_reference_names_its_owner_and_its_directory():
    ref = CheckpointRef("abcde_00001/checkpoint_000003")
    assert (ref.owner, ref.name) == ("abcde_00001", "checkpoint_000003")


def test_a_trial_that_is_started_again_from_scratch_has_nothing_of_before():
    ref = CheckpointRef("t/checkpoint_000003", 3, 3, 1.5)
    trial = evolve(
        Trial("abcde_00000", {}, Resources(), Status.RUNNING, attempt=1),
        checkpoint=ref,
        count=5,
        judged_to=7,
        failures=2,
        losses=1,
        last_result=TrialResult({"m": 1}),
    )
    fresh = revived(trial, from_scratch=True)
    assert (fresh.checkpoint, fresh.count, fresh.judged_to, fresh.last_result) == (None, 0, 0, None)
    again = revived(trial, from_scratch=False)
    assert (again.checkpoint, again.count, again.judged_to, again.last_result) == (ref, 5, 7, {"m": 1})
    assert (again.failures, again.losses, again.status) == (fresh.failures, fresh.losses, fresh.status)
    assert (again.failures, again.losses, again.status) == (0, 0, Status.PENDING)
