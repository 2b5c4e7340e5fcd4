"""Which parameters matter for the value, by Optuna's evaluators."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from searchers.optuna_space import quiet
from sweep import checks
from sweep.errors import ConfigError, MetricError
from sweep.figures.parameters import Parameter, parameters
from sweep.figures.style import FATES, Figure, finish, graph_objects, plain, rounded, some
from sweep.figures.trials import Field, spread

LEAST = 20  # trials with a number: of fewer a parameter that does not matter often looks like the one that does
_MOST = 1000
_MOST_PARAMETERS = 30
_AMONG_BEST = 5  # trials that PED-ANOVA compares with all the others, at least; else the best tenth
_DEFAULT = "ped_anova"
EVALUATORS: Mapping[str, tuple[str, str]] = {  # name: class in optuna.importance, how it is called
    "ped_anova": ("PedAnovaImportanceEvaluator", "PED-ANOVA"),
    "fanova": ("FanovaImportanceEvaluator", "fANOVA"),
    "mean_decrease_impurity": ("MeanDecreaseImpurityImportanceEvaluator", "mean decrease of impurity"),
}


def importances(field: Field, evaluator: Any = None) -> tuple[dict[str, float], dict[str, Parameter], str]:
    """Return the importances, which sum to 1, the parameters that vary, and what is to be said of it."""
    from optuna import importance

    with_value = field.valued()
    if len(with_value) < LEAST:
        raise MetricError(
            f"too few trials: {some(len(with_value), 'trial')} of {field.reader.name} "
            f"{'has' if len(with_value) == 1 else 'have'} a number under {field.metric!r}; importances need at "
            f"least {LEAST}."
        )
    rows = spread(with_value, _MOST)  # not the best ones: that would say that nothing matters
    judge, called = _evaluator(evaluator, len(rows))
    shown, notes = parameters(field.reader, rows, None, most=_MOST_PARAMETERS)
    varied = {one.name: one for one in shown if not one.is_constant}
    if not varied:
        raise ConfigError(f"all trials of {field.reader.name} have the same config, so no parameter can matter.")
    values = [field.ranked[row.number] for row in rows]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that all are equal, and what is experimental
        study = _study_of(list(varied.values()), values, field.mode)
        found = importance.get_param_importances(study, evaluator=judge)
    if not found:
        raise ConfigError(
            "every parameter is missing in some trials, which this evaluator cannot judge; use evaluator='ped_anova' "
            "with Optuna 5 or newer."
        )
    of = some(len(rows), "trial")
    if len(rows) < len(with_value):
        of = f"{len(rows):,} of {some(len(with_value), 'trial')}, evenly chosen"
    notes = [f"{called}, by the last reports of {of}.", *notes]
    lacking = [one.title for one in varied.values() if one.name not in found]
    if lacking:
        notes.append(f"Left out, because some trials lack it: {', '.join(lacking)}.")
    elif any(one.num_missing for one in varied.values()):
        notes.append("A parameter that some trials lack counts among those that have it.")
    if len(set(values)) == 1:
        notes.append("All values are equal, so this says nothing.")
    return {name: float(share) for name, share in found.items()}, varied, " ".join(notes)


def draw_importance(field: Field, evaluator: Any) -> Figure:
    """Return the importances; see `Plots.importance`."""
    shares, _, note = importances(field, evaluator)
    order = sorted(shares, key=lambda name: shares[name])
    names = [plain(name, 24) for name in order]
    texts = [f"{shares[name]:.2f}" if shares[name] >= 0.005 else "&lt;0.01" for name in order]
    bars = graph_objects().Bar(
        x=[rounded(shares[name]) for name in order],
        y=list(range(len(order))),
        orientation="h",
        marker={"color": FATES["finished"].color, "opacity": 0.8},
        hovertext=[f"{shown}: {shares[name]:.3f}" for shown, name in zip(names, order, strict=True)],
        hoverinfo="text",
        showlegend=False,
    )
    ticks = [f"{name} <b>{text}</b>" for name, text in zip(names, texts, strict=True)]
    return finish(
        [bars],
        "importance",
        f"Importance for {field.shown}",
        notes=[note],
        summary=f"Importance of {some(len(order), 'parameter')} for {field.shown}: {names[-1]} matters most, "
        f"with {shares[order[-1]]:.2f} of 1.",
        xaxis={"title": "share of all importances", "range": [0, 1.05 * max(shares.values())]},
        yaxis={"tickvals": list(range(len(order))), "ticktext": ticks},
        height=170 + 28 * max(len(order), 4),
    )


def _evaluator(evaluator: Any, num_trials: int) -> tuple[Any, str]:
    """Return an evaluator of Optuna for so many trials, and how it is called."""
    from optuna import importance

    if not isinstance(evaluator, (str, type(None))):
        if not callable(getattr(evaluator, "evaluate", None)):
            known = f"one of {', '.join(EVALUATORS)}, or an evaluator of optuna.importance"
            checks.refuse("evaluator", evaluator, known)
        return evaluator, plain(type(evaluator).__name__.removesuffix("ImportanceEvaluator"), 40)
    name, called = EVALUATORS[checks.one_of("evaluator", evaluator or _DEFAULT, tuple(EVALUATORS))]
    made, options = getattr(importance, name), {}
    if evaluator in (None, _DEFAULT):
        part = max(0.1, _AMONG_BEST / num_trials)
        called = f"{called} of the best {math.ceil(part * num_trials)} against all"
        keys = inspect.signature(made).parameters
        key = "target_quantile" if "target_quantile" in keys else "baseline_quantile"  # the latter of Optuna 4
        options[key] = part
    try:
        with quiet():
            return made(**options), called
    except ImportError as error:
        raise ConfigError(
            f"evaluator={evaluator!r} needs scikit-learn, which is not installed. Run: pip install scikit-learn"
        ) from error


def _study_of(shown: Sequence[Parameter], values: Sequence[float], mode: str) -> Any:
    """Return an Optuna study in memory whose trials have these parameters and values; what a trial lacks, it lacks."""
    import optuna

    distributions = {one.name: _distribution(one) for one in shown}
    with quiet():
        study = optuna.create_study(direction="maximize" if mode == "max" else "minimize")
        for index, value in enumerate(values):
            params: dict[str, Any] = {one.name: one.values[index] for one in shown if one.values[index] is not None}
            kinds = {name: distributions[name] for name in params}
            study.add_trial(optuna.trial.create_trial(params=params, distributions=kinds, value=float(value)))
    return study


def _distribution(one: Parameter) -> Any:
    from optuna import distributions

    if one.labels is not None:
        return distributions.CategoricalDistribution(tuple(map(float, range(len(one.labels)))))
    known = [value for value in one.values if value is not None]
    return distributions.FloatDistribution(float(min(known)), float(max(known)), log=one.is_log)
