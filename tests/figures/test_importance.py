"""Importances, by Optuna."""

from __future__ import annotations

import random
from pathlib import Path

import optuna
import pytest
from made_experiment import MadeExperiment
from odd_experiments import make, run

from sweep.errors import ConfigError, MetricError
from sweep.results.analysis import ExperimentAnalysis


@pytest.fixture(scope="module")
def analysis(tmp_path_factory: pytest.TempPathFactory) -> ExperimentAnalysis:
    """The value is that of `lr`, and half of the trials have a parameter `beta`, which does not matter."""
    made = MadeExperiment(tmp_path_factory.mktemp("matters"), space={"lr": "Float(0.001, 1).LogUniform()"})
    numbers = random.Random(0)
    for number in range(60):
        lr = 10 ** numbers.uniform(-3, 0)
        rest = {"kind": "adam", "beta": numbers.random()} if number % 2 else {"kind": "sgd"}
        run(made, {"lr": lr, "opt": rest, "noise": numbers.random()}, [lr])
    return ExperimentAnalysis(made.close())


def bars(figure: object) -> dict[str, float]:
    (bar,) = figure.data  # type: ignore[attr-defined]
    return dict(zip(figure.layout.yaxis.ticktext, bar.x, strict=True))  # type: ignore[attr-defined]


def test_what_decides_the_value_matters_most(analysis: ExperimentAnalysis) -> None:
    figure = analysis.plot.importance()
    found = bars(figure)
    assert max(found, key=lambda name: found[name]) == "lr"
    assert sum(found.values()) == pytest.approx(1, abs=1e-4)
    assert list(found.values()) == sorted(found.values())
    assert "lr matters most" in figure.layout.meta["summary"]
    assert "PED-ANOVA, by the last reports of 60 trials." in figure.layout.meta["note"]


def test_a_conditional_parameter_counts_or_is_said_to_be_left_out(analysis: ExperimentAnalysis) -> None:
    figure = analysis.plot.importance()
    if int(optuna.__version__.partition(".")[0]) >= 5:
        assert set(bars(figure)) == {"lr", "opt/kind", "opt/beta", "noise"}
        assert "some trials lack counts among those that have it" in figure.layout.meta["note"]
    other = analysis.plot.importance(evaluator="fanova")
    assert set(bars(other)) == {"lr", "opt/kind", "noise"}
    assert "Left out, because some trials lack it: opt/beta." in other.layout.meta["note"]
    assert max(bars(other), key=bars(other).get) == "lr"  # type: ignore[arg-type]


def test_evaluators_are_named_or_given(analysis: ExperimentAnalysis) -> None:
    given = analysis.plot.importance(evaluator=optuna.importance.MeanDecreaseImpurityImportanceEvaluator(seed=0))
    assert given.layout.meta["note"].startswith("MeanDecreaseImpurity, by")
    with pytest.raises(ValueError, match="Did you mean 'fanova'"):
        analysis.plot.importance(evaluator="fanoval")
    with pytest.raises(ConfigError, match="evaluator"):
        analysis.plot.importance(evaluator=3)


def test_where_nothing_can_be_said_the_error_or_the_note_says_so(tmp_path: Path) -> None:
    with pytest.raises(MetricError, match="at least 4"):
        ExperimentAnalysis(make(tmp_path, "one_trial")).plot.importance()
    with pytest.raises(ConfigError, match="same config"):
        ExperimentAnalysis(make(tmp_path, "one_config")).plot.importance()
    made = MadeExperiment(tmp_path, "equal")
    for number in range(6):
        run(made, {"lr": number, "width": -number}, [1.0])
    figure = ExperimentAnalysis(made.close()).plot.importance()
    assert "All values are equal, so this says nothing." in figure.layout.meta["note"]
