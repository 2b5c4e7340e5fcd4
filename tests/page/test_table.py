"""The rows of a page's table: what a cell holds, and that only what changed is made again."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from made_experiment import MadeExperiment
from shown_experiment import SCRIPT, shown_experiment, subject

from sweep.core.trial import STATES
from sweep.page.table import MAX_COLUMNS, TrialTable


def updated(root: Path) -> tuple[TrialTable, list[int]]:
    table = TrialTable()
    return table, table.update(subject(root))


def column(table: TrialTable, name: str) -> list[Any]:
    at = [known for known, _ in table.columns].index(name)
    return [row[at] for row in table.rows]


def test_every_trial_has_a_row_with_its_fate_metrics_and_parameters(tmp_path: Path) -> None:
    table, changed = updated(shown_experiment(tmp_path).root)
    assert changed == list(range(10))
    assert column(table, "trial") == list(range(10))
    fates = ["finished"] * 4 + ["stopped early"] * 2 + ["failed"] * 2 + ["running", "waiting"]
    assert column(table, "state") == fates
    assert set(fates) <= set(STATES)
    assert column(table, "loss")[:4] == [1.0, 1.111111, 1.222222, 1.333333]
    assert column(table, "loss")[6] == "nan"
    assert column(table, "step")[8:] == [1, None]
    assert table.columns[3] == ["loss", "metric"]
    assert ["lr", "parameter"] in table.columns
    assert ["eval/acc", "metric"] in table.columns
    json.dumps(table.rows, allow_nan=False)


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        ("stopped early: loss=4 at 3, cutoff 2", "stopped early"),
        ("never promoted: place 7 of 9 at 3, 3 of them went on", "stopped early"),
        ("not needed beyond 3: the ranking did not change there", "stopped early"),
        ("reached max_t: training_iteration=9", "finished"),
    ],
)
def test_what_a_scheduler_ended_was_stopped_early_whatever_its_words(tmp_path: Path, reason: str, state: str) -> None:
    made = MadeExperiment(tmp_path)
    trial = made.trial({"x": 1})
    made.start(trial)
    made.end(trial, reason=reason)
    table, _ = updated(made.commit())
    assert column(table, "state") == [state]


def test_only_rows_that_changed_are_named(tmp_path: Path) -> None:
    made = shown_experiment(tmp_path)
    reader, table = subject(made.root), TrialTable()
    table.update(reader)
    assert table.update(reader) == []
    made.report("abcde_00008", {"loss": 3.0, SCRIPT: 1.0, "big": 2**60}, at=12.0)
    made.end("abcde_00008", at=13.0)
    made.commit()
    assert table.update(reader) == [8]
    made.report("abcde_00009", {"loss": 1.0, "new": 2.0}, at=13.0)
    made.commit()
    assert table.update(reader) == list(range(10))  # a column came


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (0.1234567891, 0.1234568),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (2**53, "9007199254740992"),
        (-7, -7),
        (True, True),
        (None, None),
        ([1, math.nan], "[1, 'nan']"),
        ("x" * 400, "x" * 299 + "…"),
        ("\ud800\0", "\\ud800\\x00"),
    ],
    ids=repr,
)
def test_a_cell_is_something_that_a_browser_reads(tmp_path: Path, value: Any, cell: Any) -> None:
    made = MadeExperiment(tmp_path)
    made.trial({"value": value})
    table, _ = updated(made.commit())
    assert column(table, "value") == [cell]
    assert type(column(table, "value")[0]) is type(cell)


def test_a_metric_and_a_parameter_of_one_name_are_two_columns(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    trial = made.trial({"loss": 5})
    made.start(trial)
    made.report(trial, {"loss": 1.5, SCRIPT: 2})
    table, _ = updated(made.commit())
    assert table.columns[3:6] == [["loss", "metric"], [SCRIPT, "metric"], ["loss", "parameter"]]
    assert table.rows[0][3:6] == [1.5, 2, 5]


def test_names_given_to_trials_are_a_column(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    trial = made.trial({"lr": 0.1})
    made.trial({"lr": 0.2})
    made.set(trial, name="<b>fine</b>")
    table, _ = updated(made.commit())
    assert [name for name, _ in table.columns[:4]] == ["trial", "name", "state", "step"]
    assert column(table, "name") == ["<b>fine</b>", "trial_abcde_00001"]


def test_of_very_many_columns_the_objective_stays(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    trial = made.trial({f"p{i}": i for i in range(MAX_COLUMNS + 50)})
    made.start(trial)
    made.report(trial, {f"m{i}": i for i in range(100)} | {"loss": 1.0})
    table, _ = updated(made.commit())
    assert ["loss", "metric"] in table.columns
    assert len(table.columns) < MAX_COLUMNS + 20
