"""Which checkpoints may be deleted."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.core.retention import Kept, expendable
from sweep.core.trial import CheckpointRef


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
