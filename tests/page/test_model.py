"""Pages as pieces: what is made again and when, and what a browser is told that knows an earlier version."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from made_experiment import MadeExperiment
from shown_experiment import shown_experiment, subject

from sweep.errors import ExperimentError, MetricError
from sweep.page import model as model_module
from sweep.page.model import ExperimentModel, Piece, models_of


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def timed(made: MadeExperiment) -> tuple[ExperimentModel, Clock, Clock]:
    """Return a page, and the clocks by which it goes: of the time and of its CPU."""
    model, clock, cpu = ExperimentModel(subject(made.root)), Clock(), Clock()
    model._clock, model._cpu = clock, cpu
    return model, clock, cpu


@pytest.fixture
def made(tmp_path: Path) -> MadeExperiment:
    return shown_experiment(tmp_path)


def test_what_has_not_changed_is_not_made_again_and_nothing_is_news(made: MadeExperiment) -> None:
    model, clock, _ = timed(made)
    model.refresh()
    version = model.version
    calls: list[str] = []
    for name, piece in model.parts.items():
        piece.make = lambda name=name: calls.append(name) or ""
    clock.now += 60
    model.refresh()
    assert calls == []
    assert model.version == version
    news = model.news(version)
    assert news["version"] == version
    assert not any(news.get(kind) for kind in ("parts", "figures", "old", "rows", "columns", "best"))


def test_a_new_report_is_news_of_its_row_and_of_what_shows_it_only(made: MadeExperiment) -> None:
    model, clock, _ = timed(made)
    model.refresh()
    version = model.version
    made.report("abcde_00008", {"loss": 0.125, "<script>document.title = 'hit'</script>": 1.0, "big": 1}, at=11.0)
    made.commit()
    clock.now += 60
    model.refresh()
    news = model.news(version)
    assert [at for at, _ in news["rows"]] == [8]
    assert "columns" not in news
    assert "winner" in news["parts"]
    assert "about" not in news["parts"]
    assert "curves" in news["figures"]
    assert "importance" not in news["figures"] or json.loads(news["figures"]["importance"])
    assert model.news(0)["columns"] == model.columns


@pytest.mark.slow
def test_a_piece_that_is_dear_is_made_seldom_and_holds_up_no_other(made, monkeypatch):
    """Two seconds of CPU at a share of 2% are made up for in 100 s; what is cheap goes on meanwhile, once a second."""
    monkeypatch.setattr(model_module, "_SHARE", 0.02)
    model, clock, cpu = timed(made)
    made_at: dict[str, list[float]] = {"dear": [], "cheap": [], "quick": []}

    def piece(name: str, cost: float) -> Piece:
        def make() -> str:
            cpu.now += cost
            made_at[name].append(clock.now)
            return str(clock.now)

        return Piece(make)

    model._quick, model._others = [piece("quick", 0.01)], [piece("dear", 2.0), piece("cheap", 0.015)]
    for step in range(500):
        made.event("Tick", at=20.0 + step)
        made.commit()
        clock.now += 1.0
        list(model.renew())
    assert made_at["dear"] == [101.0, 102.0, 202.0, 302.0, 402.0, 502.0]  # the first imports what it needs: no measure
    assert len(made_at["quick"]) == len(made_at["cheap"]) == 500


def test_figures_of_a_sweep_that_runs_are_at_most_five_seconds_old(made: MadeExperiment) -> None:
    """Eight of them, the first of which has to import for two seconds."""
    model, clock, cpu = timed(made)
    model._quick = model._others = []
    model.order = [f"figure {number}" for number in range(8)]
    made_at: dict[str, list[float]] = {name: [] for name in model.order}

    def make(name: str) -> str:
        cpu.now += 2.0 if name == "figure 0" and not made_at[name] else 0.06
        made_at[name].append(clock.now)
        return str(clock.now)

    model.figures = {name: Piece(lambda name=name: make(name)) for name in model.order}
    for step in range(40):
        made.event("Tick", at=20.0 + step)
        made.commit()
        clock.now += 1.0
        list(model.renew())
    for times in made_at.values():
        assert max(later - earlier for earlier, later in pairwise([100.0, *times, clock.now])) <= 5.0


def test_a_figure_that_is_older_than_the_counts_says_as_of_when(made, monkeypatch):
    (model, clock, _), wall = timed(made), Clock()
    monkeypatch.setattr(model_module.time, "time", wall)

    def go_on(seconds: float) -> None:
        clock.now += seconds
        wall.now += seconds
        list(model.renew())

    go_on(0.0)
    assert model.news(0)["old"] == {}
    model.figures["curves"].is_due = lambda now: False
    for at, old in ((4.0, {}), (3.0, {"curves": (100.0, 8)})):
        made.end("abcde_00008", at=20.0 + at)
        made.commit()
        go_on(at)
        assert model.news(0)["old"] == old
    version = model.version
    del model.figures["curves"].is_due
    go_on(2.0)
    assert model.news(version)["old"] == {}


def test_at_first_everything_is_made_at_once(made: MadeExperiment) -> None:
    model = ExperimentModel(subject(made.root))
    list(model.renew())
    model.wanted = set(model.figures)
    list(model.renew())
    assert not model.is_running
    whole = ExperimentModel(subject(made.root))
    whole.refresh()
    assert model.news(0) == whole.news(0)


def test_a_file_offers_only_what_it_holds_and_holds_what_is_small_beside_what_is_large(made, monkeypatch):
    whole = ExperimentModel(subject(made.root))
    whole.refresh()
    assert len(whole.choices["curves"]["metrics"]) > 2
    monkeypatch.setattr(model_module, "_MOST_VARIANTS", len(whole.figures["curves"].text))
    model = ExperimentModel(subject(made.root))
    model.refresh()
    held = {key.partition("\n")[0] for key, piece in model.figures.items() if "\n" in key and piece.text}
    assert held == {"history"}
    assert model.choices["curves"]["metrics"] == ["loss"]
    assert model.choices["history"] == whole.choices["history"]


def test_a_figure_that_has_nothing_to_show_any_more_is_taken_away(made: MadeExperiment) -> None:
    def nothing() -> Any:
        raise MetricError("no trial has a number")

    def gone() -> Any:
        raise ExperimentError("the record is damaged")

    assert model_module._drawn(nothing) == "null"
    with pytest.raises(ExperimentError):
        model_module._drawn(gone)


def test_several_experiments_are_compared_and_alike_names_become_paths(tmp_path: Path) -> None:
    one, other = (shown_experiment(tmp_path / folder, "same") for folder in ("a", "b"))
    models = models_of([subject(one.root), subject(other.root)])
    assert [model.name for model in models] == ["compared", str(one.root), str(other.root)]
    models[0].refresh()
    assert list(models[0].figures) == ["best over trials", "best over time", "values"]
    assert all(json.loads(piece.text)["data"] for piece in models[0].figures.values())


@pytest.mark.parametrize(
    "meta",
    [
        {"metric": "acc", "mode": "max"},
        {"metric": None, "mode": None},
        {"metric": ["loss", "size"], "mode": ["min", "min"], "metrics": ["loss", "size"], "modes": ["min", "min"]},
    ],
)
def test_experiments_without_an_objective_in_common_are_compared_in_words_only(tmp_path, meta):
    one, other = shown_experiment(tmp_path, "one"), shown_experiment(tmp_path, "other", **meta)
    comparison = models_of([subject(one.root), subject(other.root)])[0]
    comparison.refresh()
    assert comparison.figures == {}
    assert comparison.parts["overview"].text != '""'
