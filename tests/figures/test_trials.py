"""What became of trials, and which of many are drawn."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_experiment import MadeExperiment
from odd_experiments import run

from sweep.figures.trials import Field, spread
from sweep.record.reader import ExperimentReader


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Field:
    made = MadeExperiment(tmp_path_factory.mktemp("many"))
    for number in range(300):
        kind = "FAILED" if number % 3 == 0 else "FINISHED"
        run(made, {"lr": number}, [float((number * 7919) % 1009)] if number % 2 else [], kind=kind)
    return Field(ExperimentReader(made.close()), "loss", "min")


@settings(deadline=None)
@given(most=st.integers(1, 400))
def test_of_many_trials_the_best_and_a_spread_are_drawn(field: Field, most: int) -> None:
    shown, note = field.thinned(field.rows, most)
    numbers = [row.number for row in shown]
    assert numbers == sorted(set(numbers))
    if most >= len(field.rows):
        assert (len(shown), note) == (300, "")
        return
    assert len(shown) == most
    assert note.startswith(f"{len(shown)} of 300 trials: ")
    best = sorted(field.ranked, key=lambda number: field.ranked[number])[: most // 3]
    assert set(best) <= set(numbers)
    if most > 30:
        assert any(row.status == "ERROR" for row in shown)


@given(number=st.integers(0, 200), most=st.integers(1, 50))
def test_a_spread_has_the_first_and_the_last(number: int, most: int) -> None:
    rows = list(range(number))
    found = spread(rows, most)
    assert len(found) == min(number, most)
    assert found == sorted(set(found))
    if number and most > 1:
        assert (found[0], found[-1]) == (0, number - 1)


def test_a_hover_says_number_fate_reason_value_and_config(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    config = {f"p{index}": index for index in range(8)}
    run(made, config, [0.5], reason="stopped early: loss=1 at 1, cutoff 0.4", kind="STOPPED")
    field = Field(ExperimentReader(made.close()), "loss", "min")
    assert field.about(field.rows[0]).split("<br>") == [
        "<b>trial 00000</b> stopped early",
        "<i>stopped early: loss=1 at 1, cutoff 0.4</i>",
        "loss: 0.5",
        *(f"p{index} = {index}" for index in range(6)),
        "and 2 more",
    ]
