"""Which parameters matter for the value, by Optuna's evaluators."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sweep import checks
from sweep.errors import ConfigError, MetricError
from sweep.figures.parameters import Parameter, parameters
from sweep.figures.style import FATES, finish, graph_objects, plain, rounded, some
from sweep.figures.trials import Field, spread

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["EVALUATORS", "LEAST", "draw_importance", "study_of"]

LEAST = 4  # trials with a number: of fewer nothing can be said
_MOST = 2000
_MOST_PARAMETERS = 30
EVALUATORS: Mapping[str, tuple[str, str]] = {  # name: class in optuna.importance, how it is called
    "ped_anova": ("PedAnovaImportanceEvaluator", "PED-ANOVA"),
    "fanova": ("FanovaImportanceEvaluator", "fANOVA"),
    "mean_decrease_impurity": ("MeanDecreaseImpurityImportanceEvaluator", "mean decrease of impurity"),
}


def draw_importance(field: Field, evaluator: Any) -> go.Figure:
    """Return the importances; see `Plots.importance`."""
    assert field.chosen is not None
    field.need_values()
    chosen, called = _evaluator(evaluator)
    with_value = [row for row in field.rows if row.number in field.ranked]
    if len(with_value) < LEAST:
        raise MetricError(
            f"{some(len(with_value), 'trial')} of {field.reader.name} {'has' if len(with_value) == 1 else 'have'} a "
            f"number under {field.chosen.metric!r}; importances need at least {LEAST}."
        )
    rows = spread(with_value, _MOST)  # not the best ones: that would say that nothing matters
    shown, notes = parameters(field.reader, rows, None, most=_MOST_PARAMETERS)
    varied = [one for one in shown if not one.is_constant]
    if not varied:
        raise ConfigError(f"all trials of {field.reader.name} have the same config, so no parameter can matter.")
    study = study_of(varied, [field.ranked[row.number] for row in rows], field.chosen.mode)
    found, lacking = _importances(study, chosen, varied)
    notes = [f"{called}, by the last reports of {_of(len(rows), len(with_value))}.", *notes]
    if lacking:
        notes.append(f"Left out, because some trials lack it: {', '.join(one.title for one in lacking)}.")
    elif any(one.num_missing for one in varied):
        notes.append("A parameter that some trials lack counts among those that have it.")
    if len({field.ranked[row.number] for row in rows}) == 1:
        notes.append("All values are equal, so this says nothing.")
    order = sorted(found, key=lambda name: found[name])
    titles = {one.name: plain(one.name, 24) for one in varied}
    bars = graph_objects().Bar(
        x=[rounded(found[name]) for name in order],
        y=list(range(len(order))),
        orientation="h",
        marker={"color": FATES["finished"].color},
        text=[f"{found[name]:.2f}" if found[name] >= 0.005 else "&lt;0.01" for name in order],
        textposition="outside",
        textangle=0,
        cliponaxis=False,
        hovertext=[f"{titles[name]}: {found[name]:.4f}" for name in order],
        hoverinfo="text",
        showlegend=False,
    )
    first = titles[order[-1]]
    return finish(
        [bars],
        "importance",
        f"Importance for {field.chosen.shown}",
        note=" ".join(notes),
        summary=f"Importance of {some(len(order), 'parameter')} for {field.chosen.shown}: {first} matters most, with "
        f"{found[order[-1]]:.2f} of 1.",
        xaxis={"title": "share of all importances", "range": [0, 1.15 * max(max(found.values()), 0.01)]},
        yaxis={"tickvals": list(range(len(order))), "ticktext": [titles[name] for name in order]},
        height=170 + 28 * max(len(order), 4),
    )


def _of(shown: int, number: int) -> str:
    return some(number, "trial") if shown == number else f"{shown:,} of {some(number, 'trial')}, evenly chosen"


def _evaluator(evaluator: Any) -> tuple[Any, str]:
    """Return an evaluator of Optuna, and how it is called."""
    from optuna import importance

    if evaluator is None:
        evaluator = "ped_anova"
    if isinstance(evaluator, str):
        name, called = EVALUATORS[checks.one_of("evaluator", evaluator, tuple(EVALUATORS))]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return getattr(importance, name)(), called
            except ImportError as error:
                raise ConfigError(
                    f"evaluator={evaluator!r} needs scikit-learn, which is not installed. Run: pip install scikit-learn"
                ) from error
    if not callable(getattr(evaluator, "evaluate", None)):
        checks.refuse("evaluator", evaluator, f"one of {', '.join(EVALUATORS)}, or an evaluator of optuna.importance")
    return evaluator, plain(type(evaluator).__name__.removesuffix("ImportanceEvaluator"), 40)


def study_of(shown: Sequence[Parameter], values: Sequence[float], mode: str) -> Any:
    """Return an Optuna study in memory whose trials have these parameters and values; what a trial lacks, it lacks."""
    import optuna

    distributions = {one.name: _distribution(one) for one in shown}
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        study = optuna.create_study(direction="maximize" if mode == "max" else "minimize")
        trials = []
        for index, value in enumerate(values):
            params = {one.name: _optuna_value(one, one.values[index]) for one in shown if one.values[index] is not None}
            trials.append(
                optuna.trial.create_trial(
                    params=params, distributions={name: distributions[name] for name in params}, value=float(value)
                )
            )
        study.add_trials(trials)
    finally:
        optuna.logging.set_verbosity(level)
    return study


def _distribution(one: Parameter) -> Any:
    from optuna import distributions

    if one.labels is not None:
        return distributions.CategoricalDistribution(tuple(range(len(one.labels))))
    known = [value for value in one.values if value is not None]
    return distributions.FloatDistribution(float(min(known)), float(max(known)), log=one.is_log)


def _optuna_value(one: Parameter, value: float | None) -> Any:
    return int(value or 0) if one.labels is not None else float(value or 0.0)


def _importances(study: Any, evaluator: Any, shown: Sequence[Parameter]) -> tuple[dict[str, float], list[Parameter]]:
    """Return the importances, which sum to 1, and the parameters that the evaluator cannot judge: conditional ones, by
    all evaluators but PED-ANOVA of Optuna 5."""
    from optuna import importance

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that all are equal, and what is experimental
        found = dict(importance.get_param_importances(study, evaluator=evaluator))
    if not found:
        raise ConfigError(
            "every parameter is missing in some trials, which this evaluator cannot judge; use evaluator='ped_anova' "
            "with Optuna 5 or newer."
        )
    return found, [one for one in shown if one.name not in found]
