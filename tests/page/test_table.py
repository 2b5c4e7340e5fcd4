"""The rows of a page's table: what a cell holds, and that only what changed is sent again."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from made_experiment import MadeExperiment
from node_experiment import experiment_on_nodes
from shown_experiment import SCRIPT, shown_experiment, subject

from sweep.page.model import ExperimentModel
from sweep.page.table import MAX_COLUMNS, trial_table

Table = tuple[list[list[str]], list[list[Any]]]


def column(table: Table, name: str) -> list[Any]:
    at = [known for known, _ in table[0]].index(name)
    return [row[at] for row in table[1]]


def test_every_trial_has_a_row_with_its_fate_metrics_and_parameters(tmp_path: Path) -> None:
    table = trial_table(subject(shown_experiment(tmp_path).root))
    assert column(table, "trial") == list(range(10))
    fates = ["finished"] * 4 + ["stopped early"] * 2 + ["failed"] * 2 + ["running", "waiting"]
    assert column(table, "state") == fates
    assert column(table, "loss")[:4] == [1.0, 1.111111, 1.222222, 1.333333]
    assert column(table, "loss")[6] == "nan"
    assert column(table, "step")[8:] == [1, None]
    assert table[0][3] == ["loss", "metric"]
    assert ["lr", "parameter"] in table[0]
    assert ["eval/acc", "metric"] in table[0]
    json.dumps(table, allow_nan=False)


def test_only_rows_that_changed_are_sent(tmp_path: Path) -> None:
    made = shown_experiment(tmp_path)
    model = ExperimentModel(subject(made.root))

    def sent() -> list[int]:
        version = model.version
        made.commit()
        model.refresh(with_figures=False)
        return [at for at, _ in model.news(version)["rows"]]

    assert sent() == list(range(10))
    assert sent() == []
    made.report("abcde_00008", {"loss": 3.0, SCRIPT: 1.0, "big": 2**60}, at=12.0)
    made.end("abcde_00008", at=13.0)
    assert sent() == [8]
    made.report("abcde_00009", {"loss": 1.0, "new": 2.0}, at=13.0)
    assert sent() == list(range(10))  # a column came


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
    (found,) = column(trial_table(subject(made.commit())), "value")
    assert (found, type(found)) == (cell, type(cell))


def test_names_given_to_trials_are_a_column_and_a_metric_is_told_from_a_parameter_of_its_name(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    trial = made.trial({"loss": 5})
    made.start(trial)
    made.report(trial, {"loss": 1.5, SCRIPT: 2})
    made.trial({"loss": 6})
    made.set(trial, name="<b>fine</b>")
    columns, rows = trial_table(subject(made.commit()))
    assert [name for name, _ in columns[:4]] == ["trial", "name", "state", "step"]
    assert columns[4:7] == [["loss", "metric"], [SCRIPT, "metric"], ["loss", "parameter"]]
    assert rows[0][4:7] == [1.5, 2, 5]
    assert [row[1] for row in rows] == ["<b>fine</b>", "trial_abcde_00001"]


def test_of_very_many_columns_the_objective_stays(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    trial = made.trial({f"p{i}": i for i in range(MAX_COLUMNS + 50)})
    made.start(trial)
    made.report(trial, {f"m{i}": i for i in range(100)} | {"loss": 1.0})
    columns, _ = trial_table(subject(made.commit()))
    assert ["loss", "metric"] in columns
    assert len(columns) < MAX_COLUMNS + 20


def test_the_node_is_a_column_where_there_was_more_than_one(tmp_path):
    assert column(trial_table(subject(experiment_on_nodes(tmp_path).root)), "node") == ["n1", "n1", "n1, n2"]
    assert ["node", ""] not in trial_table(subject(shown_experiment(tmp_path).root))[0]
