"""Which checkpoints may be deleted."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.core.messages import ExitKind
from sweep.core.resources import Resources
from sweep.core.retention import CheckpointLedger, Kept, expendable, without
from sweep.core.trial import CheckpointRef, Trial


def kept(*scores: float) -> list[Kept]:
    return [Kept(CheckpointRef(f"c{i}", i), score) for i, score in enumerate(scores)]


def paths(items: list[Kept]) -> list[str]:
    return [item.ref.path for item in items]


@pytest.mark.parametrize(
    ("scores", "number", "by_score", "expected"),
    [
        ([1, 2, 3], None, False, []),
        ([1, 2, 3], None, True, []),
        ([], 1, False, []),
        ([1], 1, False, []),
        ([1, 2, 3], 2, False, ["c0"]),
        ([3, 2, 1], 1, False, ["c0", "c1"]),
        ([1, 2, 3], 5, True, []),
        ([1, 2, 3], 2, True, ["c0"]),
        ([3, 2, 1], 2, True, []),  # the two best, and the latest in addition
        ([3, 2, 0, 1], 2, True, ["c2"]),
        ([9, 5, 5, 1], 1, True, ["c1", "c2"]),
        ([-math.inf, 2, -math.inf, 1], 1, True, ["c0", "c2"]),
        ([2, 2, 2], 1, True, ["c0", "c1"]),  # among equals the later one
    ],
)
def test_the_latest_or_the_best_are_kept(scores, number, by_score, expected):
    assert paths(expendable(kept(*scores), number, by_score)) == expected


@given(st.lists(st.floats(allow_nan=False), max_size=9), st.integers(1, 5), st.booleans())
def test_the_latest_is_always_kept_and_never_more_than_one_above_the_number(scores, number, by_score):
    items = kept(*scores)
    gone = expendable(items, number, by_score)
    left = [item for item in items if item not in gone]
    assert len(left) <= number + by_score
    assert len(left) >= min(number, len(items))
    if items:
        assert items[-1] in left
    if by_score and gone:
        assert max(item.score for item in items) in {item.score for item in left}


@pytest.mark.parametrize(
    ("checkpoint", "lost", "own", "source", "expected"),
    [
        ("t_1/c2", {"t_1/c2"}, ["t_1/c1", "t_1/c2"], [], ("t_1/c1", 1, 9)),
        ("t_1/c2", {"t_1/c1", "t_1/c2"}, ["t_1/c1", "t_1/c2"], [], (None, 0, 9)),
        ("t_1/c2", {"t_1/c1"}, ["t_1/c1", "t_1/c2"], [], ("t_1/c2", 2, 9)),
        # a clone: first what else there is of its source, then its own
        ("t_0/c4", {"t_0/c4"}, ["t_1/c2"], ["t_0/c3", "t_0/c4"], ("t_0/c3", 3, 3)),
        ("t_0/c4", {"t_0/c4"}, ["t_1/c2"], ["t_0/c4", "t_0/c5"], ("t_0/c5", 5, 5)),
        ("t_0/c4", {"t_0/c4"}, ["t_1/c2"], [], ("t_1/c2", 2, 2)),
        ("t_0/c4", {"t_0/c4"}, [], [], (None, 0, 0)),
    ],
)
def test_what_a_trial_continues_from_without_what_is_lost(checkpoint, lost, own, source, expected):
    def ref(path: str) -> CheckpointRef:
        return CheckpointRef(path, int(path[-1]))

    kept = {"t_1": [Kept(ref(path)) for path in own], "t_0": [Kept(ref(path)) for path in source]}
    trial = Trial("t_1", {}, Resources(), checkpoint=ref(checkpoint), count=int(checkpoint[-1]), judged_to=9)
    found = without(lost, trial, kept)
    assert (found.checkpoint and found.checkpoint.path, found.count, found.judged_to) == expected


def test_the_ledger_forgets_a_damaged_checkpoint_whoever_was_started_from_it():
    refs = [CheckpointRef(f"t_0/c{n}", n) for n in (1, 2)]
    ledger = CheckpointLedger({"t_0": [Kept(ref) for ref in refs]})
    clone = Trial("t_1", {}, Resources(), checkpoint=refs[1], started_from=refs[1])
    assert ledger.after_exit(clone, ExitKind.FAILED) is clone
    assert ledger.after_exit(clone, ExitKind.DAMAGED).checkpoint == refs[0]
    source = Trial("t_0", {}, Resources(), checkpoint=refs[0])
    assert ledger.add("t_0", Kept(CheckpointRef("t_0/c3", 3)), 2, False) == []  # two are left
    assert ledger.after_exit(source, ExitKind.DAMAGED) is source  # it was started from none
