"""Importances, by Optuna."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import optuna
import pytest
from made_experiment import MadeExperiment
from odd_experiments import make, run

from sweep.cli.dashboard import _with_importances
from sweep.errors import ConfigError, MetricError
from sweep.record.reader import ExperimentReader
from sweep.results.analysis import ExperimentAnalysis


@pytest.fixture(scope="module")
def analysis(tmp_path_factory: pytest.TempPathFactory) -> ExperimentAnalysis:
    """The value is that of `lr`, and half of the trials have a parameter `beta`, which does not matter."""
    made = MadeExperiment(
        tmp_path_factory.mktemp("matters"), domains=["dict", ["lr", ["Float", ["LogUniform"], 0.001, 1]]]
    )
    numbers = random.Random(0)
    for number in range(60):
        lr = 10 ** numbers.uniform(-3, 0)
        rest = {"kind": "adam", "beta": numbers.random()} if number % 2 else {"kind": "sgd"}
        run(made, {"lr": lr, "opt": rest, "noise": numbers.random()}, [lr])
    return ExperimentAnalysis(made.close())


def bars(figure: object) -> dict[str, float]:
    (bar,) = figure.data
    names = [text.partition(" ")[0] for text in figure.layout.yaxis.ticktext]
    return dict(zip(names, bar.x, strict=True))


def test_what_decides_the_value_matters_most(analysis: ExperimentAnalysis) -> None:
    figure = analysis.plot.importance()
    found = bars(figure)
    assert max(found, key=lambda name: found[name]) == "lr"
    assert sum(found.values()) == pytest.approx(1, abs=1e-4)
    assert list(found.values()) == sorted(found.values())
    assert "lr matters most" in figure.layout.meta["summary"]
    assert "PED-ANOVA of the best 6 against all, by the last reports of 60 trials." in figure.layout.meta["note"]


def test_the_dashboard_has_the_importances_of_the_figure_where_trials_were_stopped_early(tmp_path: Path) -> None:
    made, numbers = MadeExperiment(tmp_path), random.Random(0)
    for number in range(30):
        config = {"lr": numbers.random(), "kind": f"k{number % 3}"}
        run(made, config, [config["lr"]], reason="stopped early: worse" * (number % 3 > 0), kind="STOPPED")
    few = MadeExperiment(tmp_path, "few")
    for number in range(19):
        run(few, {"lr": number}, [float(number)])
    readers = [ExperimentReader(one.close()) for one in (made, few)]
    app = _with_importances(lambda environ, start: [b"its own"], [(one, [("loss", "min")]) for one in readers])

    def get(path: str) -> Any:
        (body,) = app({"PATH_INFO": path}, lambda *line: None)
        return body

    (found,) = json.loads(get("/api/studies/0/param_importances"))["param_importances"]
    shown = bars(ExperimentAnalysis(readers[0].root).plot.importance())
    assert {one["name"]: one["importance"] for one in found} == pytest.approx(shown, abs=1e-5)
    assert [one["distribution"] for one in found] == ["FloatDistribution", "CategoricalDistribution"]
    assert json.loads(get("/api/studies/1/param_importances")) == {"param_importances": [[]]}
    assert get("/api/studies/0") == get("/api/studies/2/param_importances") == b"its own"


def test_a_conditional_parameter_counts_or_is_said_to_be_left_out(analysis: ExperimentAnalysis) -> None:
    figure = analysis.plot.importance()
    if int(optuna.__version__.partition(".")[0]) >= 5:
        assert set(bars(figure)) == {"lr", "opt/kind", "opt/beta", "noise"}
        assert "some trials lack counts among those that have it" in figure.layout.meta["note"]
    other = analysis.plot.importance(evaluator="fanova")
    assert set(bars(other)) == {"lr", "opt/kind", "noise"}
    assert "Left out, because some trials lack it: opt/beta." in other.layout.meta["note"]
    assert max(bars(other), key=bars(other).get) == "lr"


def test_evaluators_are_named_or_given(analysis: ExperimentAnalysis) -> None:
    given = analysis.plot.importance(evaluator=optuna.importance.MeanDecreaseImpurityImportanceEvaluator(seed=0))
    assert given.layout.meta["note"].startswith("MeanDecreaseImpurity, by")
    with pytest.raises(ValueError, match="Did you mean 'fanova'"):
        analysis.plot.importance(evaluator="fanoval")
    with pytest.raises(ConfigError, match="evaluator"):
        analysis.plot.importance(evaluator=3)


def test_where_nothing_can_be_said_the_error_or_the_note_says_so(tmp_path: Path) -> None:
    with pytest.raises(MetricError, match=r"too few trials: 1 trial .* at least 20"):
        ExperimentAnalysis(make(tmp_path, "one_trial")).plot.importance()
    made, same = MadeExperiment(tmp_path, "equal"), MadeExperiment(tmp_path, "same")
    for number in range(20):
        run(made, {"lr": number, "width": -number}, [1.0])
        run(same, {"lr": 1}, [1.0])
    with pytest.raises(ConfigError, match="same config"):
        ExperimentAnalysis(same.close()).plot.importance()
    figure = ExperimentAnalysis(made.close()).plot.importance()
    assert "All values are equal, so this says nothing." in figure.layout.meta["note"]
