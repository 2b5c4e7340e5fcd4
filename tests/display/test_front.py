"""The Pareto set as the display keeps it: at any time that of the last values of all trials."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchers import pareto
from searchers.pareto import pareto_front
from sweep.display import front as module
from sweep.display.front import Front

MIN_MAX = (("loss", "min"), ("size", "max"))
value = st.sampled_from([0.0, 1.0, 2, 3.0, float("nan"), float("inf"), None, "text"])
put = st.tuples(st.integers(0, 7), st.one_of(st.just([]), st.lists(value, min_size=3, max_size=3)), st.booleans())
modes = st.sampled_from([("min", "max", "min"), ("min", "max", "obs"), ("obs", "max", "obs")])


@given(st.lists(put, max_size=40), modes)
def test_it_is_that_of_the_values_that_were_put_last(puts: list[tuple[int, list[Any], bool]], modes: Any) -> None:
    front, known = Front(tuple(zip("abc", modes, strict=True))), dict[int, list[Any]]()
    for number, values, is_moving in puts:
        front.put(number, values, is_moving=is_moving)
        known[number] = values
        rows = [(number, values) for number, values in sorted(known.items()) if values]
        wanted = [rows[i] for i in pareto_front([values for _, values in rows], modes)]
        assert [(number, list(values)) for number, values in front.best()] == wanted


def test_ten_thousand_trials_at_rest_are_not_looked_at_when_another_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    front = Front(MIN_MAX)
    front.put(10_000, (0.0, 99_999.0), is_moving=False)
    for number in range(10_000):
        front.put(number, (number + 1.0, 9.0 - number), is_moving=False)
    assert front.best() == [(10_000, (0.0, 99_999.0))]
    sizes: list[int] = []

    def counted(points: Any, modes: Any) -> list[int]:
        sizes.append(len(points))
        return pareto_front(points, modes)

    monkeypatch.setattr(module, "pareto_front", counted)
    monkeypatch.setattr(pareto, "pareto_front", counted)
    for step in range(100):  # in the set and out of it, in turn
        front.put(10_001, (-1.0, 1.0) if step % 2 else (5.0, 1.0), is_moving=True)
        assert [number for number, _ in front.best()] == ([10_000, 10_001] if step % 2 else [10_000])
    assert max(sizes) <= 2
