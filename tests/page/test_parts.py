"""What a page says in words: the winner to paste, what failed and waited, what it cost."""

from __future__ import annotations

import ast
import html
import json
import math
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from made_experiment import MadeExperiment
from node_experiment import experiment_on_nodes
from shown_experiment import SCRIPT, begin, finish, shown_experiment, subject

import sweep
from searchers import Float
from sweep.errors import ConfigError
from sweep.page import parts
from sweep.page.comparison import COMPARISON_PARTS
from sweep.page.parts import PARTS
from sweep.record.reader import ExperimentReader


def part(name: str, root: Path) -> str:
    return PARTS[name](subject(root))


def words(text: str) -> str:
    """Return what is to be read of a piece of HTML."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def blocks(text: str) -> list[str]:
    return [html.unescape(found) for found in re.findall(r"<pre[^>]*>(.*?)</pre>", text, re.DOTALL)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return shown_experiment(tmp_path).root


def test_no_text_of_the_user_is_markup(root: Path) -> None:
    for name in PARTS:
        text = part(name, root)
        assert "<script" not in text
        assert "\x1b" not in text
    assert SCRIPT in html.unescape(part("failures", root))


def test_the_head_counts_trials_by_what_became_of_them_and_what_ran_is_named(root: Path) -> None:
    said = words(part("head", root))
    counts = "8 of 10 trials ended: 1 running, 1 waiting, 4 finished, 2 stopped early, 2 failed"
    assert counts in said
    assert "no driver runs shown" in said
    ran = ("searcher random", "scheduler asha", "seed 7", "objective loss (min)", "lr loguniform(1e-5, 0.1)")
    assert all(text in words(part("about", root)) for text in ran)


def test_an_experiment_without_trials_has_all_its_parts(tmp_path):
    root = MadeExperiment(tmp_path).commit()
    assert "no trials yet" in words(part("head", root))
    assert part("failures", root) == part("waits", root) == ""


def test_the_winner_can_be_pasted_in_three_forms(root: Path) -> None:
    text = part("winner", root)
    assert "loss = 1 (min), trial 00000" in words(text)
    python, as_json, arguments = blocks(text)
    config = {"lr": 0.1, "act": "relu", "tag": SCRIPT}
    assert ast.literal_eval(python.removeprefix("config = ")) == config
    assert json.loads(as_json) == config
    assert shlex.split(arguments)[:2] == ["lr=0.1", "act=relu"]


def test_what_python_does_not_write_as_it_prints_can_be_pasted_as_well(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    finish(made, begin(made, 0, at=0.0, odd=math.nan, far=[-math.inf], kind=len, deep={1: (2,)}), 1, at=1.0, loss=2.0)
    python = blocks(part("winner", made.commit()))[0]
    config: dict[str, Any] = {}
    exec(python, config)
    assert math.isnan(config["config"]["odd"])
    assert config["config"]["far"] == [-math.inf]
    assert config["config"]["kind"] == "<built-in function len>"


def test_a_winner_that_failed_and_a_better_report_before_the_last_are_said(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    finish(made, begin(made, 0, at=0.0), 1, at=1.0, loss=2.0, kind="FAILED", reason="ValueError: no")
    trial = begin(made, 1, at=0.0)
    for loss in (0.5, 3.0):
        made.report(trial, {"loss": loss})
    said = words(part("winner", made.commit()))
    assert "trial 00000 (failed) by the last report of each trial" in said
    assert "At an earlier step: loss = 0.5 (min), trial 00001 at step 1" in said


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        ({"metric": None, "mode": None}, "No metric was given"),
        ({}, "No trial has reported a number under 'loss'. Reported were: accuracy."),
    ],
)
def test_without_a_winner_the_reason_is_said(tmp_path: Path, meta: dict[str, Any], said: str) -> None:
    made = MadeExperiment(tmp_path, **meta)
    made.report(made.trial({"x": 1}), {"accuracy": 0.5})
    assert said in words(part("winner", made.commit()))


def test_of_several_objectives_the_pareto_set_is_shown(tmp_path: Path) -> None:
    made = MadeExperiment(
        tmp_path, metric=["loss", "size"], mode=["min", "min"], metrics=["loss", "size"], modes=["min", "min"]
    )
    for loss, size in ((1.0, 9.0), (2.0, 3.0), (5.0, 5.0)):
        trial = made.trial({"lr": loss})
        made.start(trial)
        made.report(trial, {"loss": loss, "size": size})
    said = words(part("winner", made.commit()))
    assert "2 trials that no other beats" in said
    assert "trial loss size lr 00000 1 9 1 00001 2 3 2" in said


def test_another_metric_may_decide(root: Path, tmp_path: Path) -> None:
    assert "eval/acc = 0.8 (max), trial 00000" in words(PARTS["winner"](subject(root, metric="eval/acc", mode="max")))
    assert subject(root, metric="eval/acc").mode == "min"  # the sweep's own, as `sweep best --metric` has it
    aimless = shown_experiment(tmp_path, "aimless", metric=None, mode=None).root
    with pytest.raises(
        ConfigError, match=r"the metric is 'loss' and the mode None; expected mode='min' or 'max'.*--goal"
    ):
        subject(aimless, metric="loss")


def test_failures_that_differ_in_numbers_only_are_one_group_with_one_traceback(tmp_path):
    text = part("failures", shown_experiment(tmp_path).root)
    assert text.count("<details") == 1
    assert "2 trials: ValueError:" in words(text)
    assert re.findall(r'data-trial="(\d+)"', text) == ["6", "7"]
    assert "train.py" in blocks(text)[0]


def test_what_was_started_again_says_where_it_was_and_why(tmp_path):
    said = words(part("failures", experiment_on_nodes(tmp_path).root))
    assert said.startswith("Attempts that failed and were made again: 3 trial attempt node how it ended")
    lost = "NODE_LOST: node n2 was lost: its agent ended"
    assert said.endswith(f"how it ended 1 1 n2 {lost} 1 2 n1 its driver ended 2 1 n1, n2 {lost}")


def test_the_nodes_are_a_table_where_there_was_more_than_one(root, tmp_path):
    said = words(part("nodes", experiment_on_nodes(tmp_path).root))
    assert said.startswith(
        "Nodes node cpus gpus tpus memory_gb running holds attempts lost there_s idle_share came left"
    )
    assert re.search(r"n2 2 0 0 0 \[\] 2 2 5 0.2 2023-11-1\d .* node n2 was lost: its agent ended$", said)
    assert part("nodes", root) == ""


def test_waiting_is_measured_and_explained(root: Path) -> None:
    said = words(part("waits", root))
    assert "waits for cpu=1; 0 of 2 free, the rest held by 00008 1" in said
    assert re.search(r"for a place 10 500 ms", said)
    assert re.search(r"for the process to start 9 250 ms 250 ms 2.25 s", said)


def test_the_cost_is_what_was_held(root: Path) -> None:
    said = words(part("cost", root))
    held = 4 * 9.5 + 2 * 3.5 + 2 * 1.5 + (13.0 - 9.5)  # until the last event
    assert f"trials held for {held:.3g} s CPUs held for {held:.3g} s" in said
    assert "GPU" not in said


def test_while_a_sweep_runs_the_best_is_so_far(root, monkeypatch):
    assert "Best so far" not in words(part("winner", root))
    monkeypatch.setattr(ExperimentReader, "state", lambda reader: "running")
    assert words(part("winner", root)).startswith("Best so far: loss = 1 (min)")


@pytest.mark.parametrize(
    ("domain", "written"),
    [
        (sweep.loguniform(1e-4, 1), "loguniform(1e-4, 1)"),
        (sweep.uniform(0.123456, 0.5), "uniform(0.123456, 0.5)"),
        (sweep.randint(1, 6), "randint(1, 6)"),
        (sweep.lograndint(1, 1000), "lograndint(1, 1000)"),
        (sweep.quniform(0, 1, 0.1), "quniform(0, 1, 0.1)"),
        (sweep.qloguniform(1e-4, 1, 1e-4), "qloguniform(1e-4, 1, 1e-4)"),
        (sweep.randn(0, 2), "randn(0, 2)"),
        (Float(1, 9).lognormal(0.5, 2).quantized(0.5), "qlognormal(0.5, 2, 0.5)"),
        (Float(0, 1).beta(2, 3), "beta(2, 3)"),
        (sweep.choice([1, "a"]), "choice([1, 'a'])"),
        ({"x": sweep.uniform(0, 1)}, "{'x': uniform(0, 1)}"),
        (7, "7"),
    ],
)
def test_a_space_is_shown_as_people_write_it(domain: Any, written: str) -> None:
    assert parts.as_written(domain) == written


def test_a_comparison_names_what_differs_and_nothing_else(tmp_path: Path) -> None:
    one, other = (
        shown_experiment(tmp_path, "one", command="python a.py"),
        shown_experiment(tmp_path, "other", command="python b.py"),
    )
    finish(other, "abcde_00008", 1, at=12.0, loss=0.25)
    other.commit()
    readers = {"one": subject(one.root), "other": subject(other.root)}
    overview, differences = (words(COMPARISON_PARTS[name](readers)) for name in ("overview", "differences"))
    assert "other crashed" in overview or "other stopped" in overview
    assert "loss (min) 0.25 00008" in overview
    assert "command python a.py python b.py" in differences
    assert "winner: lr 0.1 1e-4" in differences
    assert "searcher" not in differences
    same = {"one": readers["one"], "again": readers["one"]}
    assert "Nothing that is recorded differs" in COMPARISON_PARTS["differences"](same)
