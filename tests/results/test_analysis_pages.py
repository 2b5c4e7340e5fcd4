"""How experiments, results and trials look in a notebook."""

from __future__ import annotations

import ast
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from made_experiment import MadeExperiment

from sweep.results.analysis import ExperimentAnalysis, ResultGrid

_VOID = {"br", "hr", "img"}


class Page(HTMLParser):
    """The tags, texts and table cells of a page; fails where a tag is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.styles: list[str] = []
        self.text = ""
        self.rows: list[list[str]] = []
        self.code: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.styles += [value or "" for name, value in attrs if name == "style"]
        if tag in _VOID:
            return
        self.open.append(tag)
        if tag == "pre":
            self.code.append("")
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.open and self.open[-1] == "pre":
            self.code[-1] += data
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


@pytest.fixture
def analysis(tmp_path: Path) -> ExperimentAnalysis:
    made = MadeExperiment(tmp_path, "digits")
    for lr, losses in ((0.1, [3.0, 2.0]), (0.2, [0.5, 9.0])):
        trial = made.trial({"lr": lr})
        made.start(trial)
        for step, loss in enumerate(losses):
            made.report(trial, {"loss": loss}, checkpoint=f"{trial}/checkpoint_{step}")
        made.end(trial)
    made.trial({"lr": 0.3}, reason="waits for 1 CPU")
    return ExperimentAnalysis(made.close())


def test_an_experiment_shows_its_counts_its_best_what_had_been_better_and_a_marked_table(analysis):
    page = Page(analysis._repr_html_())
    assert "digits · 3 trials: 1 waiting, 2 finished" in page.text
    assert "no driver runs digits now" in page.text
    assert "★ best loss=2 (min, trial 00000, scope='last': by the last report of each trial)" in page.text
    assert page.code == ["{'lr': 0.1}"]
    assert "at an earlier step loss=0.5 (trial 00001 at step 1, scope='all')" in page.text
    assert page.text.count("best loss") == 1
    assert page.rows == [
        ["", "trial", "state", "iter", "loss", "lr", "reason"],
        ["★", "00000", "finished", "2", "2", "0.1", ""],
        ["", "00001", "finished", "2", "9", "0.2", ""],
        ["", "00002", "waiting", "", "", "0.3", "waits for 1 CPU"],
    ]
    assert ResultGrid(analysis)._repr_html_() == analysis._repr_html_()


def test_of_several_objectives_the_pareto_set_is_counted_and_marked(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path, "several", metrics=["loss", "size"], modes=["min", "max"])
    for number in range(30):
        on_front = number in (3, 29)
        loss, size = (0.1 * number, 10.0 * number) if on_front else (5.0, 1.0)
        made.report(made.trial({"x": number}), {"acc": 0.5, "loss": loss, "size": size})
    analysis = ExperimentAnalysis(made.close())
    page = Page(analysis._repr_html_())
    said = "Pareto set by loss (min), size (max): 2 trials, get_pareto_trials(): 00003 (0.3, 30), 00029 (2.9, 290)"
    assert f"★ {said}" in page.text
    assert said in repr(analysis)
    assert "best" not in page.text + repr(analysis)
    assert page.rows[0][:6] == ["", "trial", "state", "iter", "loss", "size"]
    assert [row[1] for row in page.rows if row[0] == "★"] == ["00003", "00029"]
    assert len(page.rows) == 21


def test_a_result_shows_its_last_and_its_best_report_side_by_side(analysis: ExperimentAnalysis) -> None:
    page = Page(ResultGrid(analysis).get_best_result(scope="all")._repr_html_())
    assert "abcde_00001 · finished · best of 3 trials by loss (min, scope='all'): 0.5" in page.text
    assert page.rows == [
        ["", "last", "best"],
        ["loss", "9", "0.5"],
        ["training_iteration", "2", "1"],
        ["time_total_s", "1", "0.5"],
    ]
    assert "config: lr=0.2" in page.text
    assert f"checkpoint: {analysis.experiment_path}/abcde_00001/checkpoint_0" in page.text


def test_a_trial_shows_its_state_and_why(analysis: ExperimentAnalysis) -> None:
    page = Page(analysis.trials[2]._repr_html_())
    assert "trial_abcde_00002 · waiting" in page.text
    assert "waits for 1 CPU" in page.text
    assert "nothing was reported yet" in page.text
    assert Page(analysis.trials[0]._repr_html_()).rows[1] == ["loss", "2"]


def test_pages_set_no_colour_of_their_own(analysis: ExperimentAnalysis) -> None:
    grid = ResultGrid(analysis)
    for text in (analysis._repr_html_(), grid[0]._repr_html_(), analysis.trials[0]._repr_html_()):
        styles = ";".join(Page(text).styles)
        set_to = set(re.findall(r"(?<![a-z-])(?:color|background(?:-color)?)\s*:\s*([^;]+)", styles))
        assert set_to <= {"inherit", "none"}
        assert set(re.findall(r"rgba?\([^)]*\)|#[0-9a-fA-F]{3,8}", styles)) <= {"rgba(128,128,128,0.35)"}


def test_everything_that_users_name_is_escaped(tmp_path: Path) -> None:
    evil = '"><script>alert(1)</script>\x1b[2J&amp;'
    made = MadeExperiment(tmp_path, "evil", metric=evil, trainable={"name": evil})
    for value in (1.0, evil):
        trial = made.trial({evil: evil, "n": {evil: [evil]}}, reason=evil)
        made.report(trial, {evil: 1.0, "other": value, f"{evil}2": {evil: evil}}, checkpoint=f"{trial}/checkpoint_1")
    made.end(trial, kind="FAILED", reason=evil, error=evil)
    analysis = ExperimentAnalysis(made.close())
    grid = ResultGrid(analysis)
    for text in (
        analysis._repr_html_(),
        grid[1]._repr_html_(),
        grid.get_best_result()._repr_html_(),
        analysis.trials[1]._repr_html_(),
    ):
        page = Page(text)
        assert "script" not in page.tags
        assert "\x1b" not in text
        assert "<script>" in page.text


def test_of_many_trials_the_first_and_the_best_are_shown(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    for number in range(30):
        made.report(made.trial({"x": number}), {"loss": 30.0 - number})
    page = Page(ExperimentAnalysis(made.close())._repr_html_())
    assert len(page.rows) == 21
    assert page.rows[1][:2] == ["★", "00029"]
    assert page.rows[-1][1] == "00010"
    assert "10 more trials: .dataframe()" in page.text


@pytest.mark.parametrize(
    ("metric", "says"),
    [(None, "get_best_result(metric, mode)"), ("loss", "no trial has reported a number under 'loss' yet")],
)
def test_a_page_without_a_best_says_why(tmp_path: Path, metric: str | None, says: str) -> None:
    made = MadeExperiment(tmp_path, metric=metric, mode="min" if metric else None)
    made.trial({})
    page = Page(ExperimentAnalysis(made.close())._repr_html_())
    assert says in page.text
    assert "★" not in page.text


def test_the_config_of_the_winner_is_python_that_can_be_pasted(tmp_path: Path) -> None:
    config = {"lr": 3e-4, "net": {"layers": [1, 2], "name": "a'<b>\n"}, "flag": True, "none": None}
    made = MadeExperiment(tmp_path)
    made.report(made.trial(config), {"loss": 1.0})
    assert ast.literal_eval(Page(ExperimentAnalysis(made.close())._repr_html_()).code[0]) == config


def test_a_page_draws_the_curves_of_trials_by_what_became_of_them_and_the_history(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    for number, reason in enumerate(("", "stopped early: loss=3", "")):
        trial = made.trial({"x": number})
        made.start(trial)
        for step in range(4):
            made.report(trial, {"loss": 1.0 + number - 0.1 * step})
        if number < 2:
            made.end(trial, reason=reason)
    text = ExperimentAnalysis(made.close())._repr_html_()
    page = Page(text)
    assert text.count("<svg") == 2
    assert text.count("<polyline") == 4  # three trials, and the best so far
    assert all(word in page.text for word in ("best so far", "stopped early", "running", "step", "trial 00002"))
    assert ".to_html()" in page.text
