"""Which parameters matter for the value, by Optuna's evaluators."""

from __future__ import annotations

import copy
import inspect
import math
import random
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sweep import checks
from sweep.errors import ConfigError, MetricError
from sweep.figures.parameters import Parameter, parameters
from sweep.figures.style import FATES, GREY, finish, graph_objects, plain, rounded, some
from sweep.figures.trials import Field, spread

if TYPE_CHECKING:
    import plotly.graph_objects as go


LEAST = 20  # trials with a number: of fewer a parameter that does not matter often looks like the one that does
_MOST = 1000
_MOST_PARAMETERS = 30
_AMONG_BEST = 5  # trials that PED-ANOVA compares with all the others, at least; else the best tenth
_DRAWS = 20  # of as many trials with replacement; the range is that of all draws but the lowest and the highest
_DRAWN = 10_000  # trials of all draws together at most
_DEFAULT = "ped_anova"
EVALUATORS: Mapping[str, tuple[str, str]] = {  # name: class in optuna.importance, how it is called
    "ped_anova": ("PedAnovaImportanceEvaluator", "PED-ANOVA"),
    "fanova": ("FanovaImportanceEvaluator", "fANOVA"),
    "mean_decrease_impurity": ("MeanDecreaseImpurityImportanceEvaluator", "mean decrease of impurity"),
}
Shares = dict[str, tuple[float, float, float]]  # of a parameter: importance, and between what it lies


def importances(field: Field, evaluator: Any = None) -> tuple[Shares, dict[str, Parameter], str]:
    """Return the importances, which sum to 1, the parameters that vary, and what is to be said of it.

    The range of each comes from judging other draws of the trials, and is the same each time. Only the default
    evaluator is quick enough for that; with others it has no width.

    Raises:
        MetricError: there are too few trials with a number.
        ConfigError: nothing varies, or the evaluator cannot judge it.
    """
    assert field.chosen is not None
    field.need_values()
    with_value = [row for row in field.rows if row.number in field.ranked]
    if len(with_value) < LEAST:
        raise MetricError(
            f"too few trials: {some(len(with_value), 'trial')} of {field.reader.name} "
            f"{'has' if len(with_value) == 1 else 'have'} a number under {field.chosen.metric!r}; importances need at "
            f"least {LEAST}."
        )
    rows = spread(with_value, _MOST)  # not the best ones: that would say that nothing matters
    chosen, called = _evaluator(evaluator, len(rows))
    shown, notes = parameters(field.reader, rows, None, most=_MOST_PARAMETERS)
    varied = {one.name: one for one in shown if not one.is_constant}
    if not varied:
        raise ConfigError(f"all trials of {field.reader.name} have the same config, so no parameter can matter.")
    study = study_of(list(varied.values()), [field.ranked[row.number] for row in rows], field.chosen.mode)
    found = _judged(study, chosen)
    notes = [f"{called}, by the last reports of {_of(len(rows), len(with_value))}.", *notes]
    draws = []
    if evaluator in (None, _DEFAULT):
        numbers, trials = random.Random(0), study.get_trials(deepcopy=False)
        some_draws = range(min(_DRAWS, _DRAWN // len(rows)))
        draws = [_judged(_drawn(study, numbers.choices(trials, k=len(trials))), chosen) for _ in some_draws]
        notes.append("Lines: what other draws of as many trials say.")
    ranges = {name: sorted(draw.get(name, 0.0) for draw in draws)[1:-1] or [share] for name, share in found.items()}
    shares = {name: (share, min(share, *ranges[name]), max(share, *ranges[name])) for name, share in found.items()}
    lacking = [one.title for one in varied.values() if one.name not in found]
    if lacking:
        notes.append(f"Left out, because some trials lack it: {', '.join(lacking)}.")
    elif any(one.num_missing for one in varied.values()):
        notes.append("A parameter that some trials lack counts among those that have it.")
    if len({field.ranked[row.number] for row in rows}) == 1:
        notes.append("All values are equal, so this says nothing.")
    return shares, varied, " ".join(notes)


def draw_importance(field: Field, evaluator: Any) -> go.Figure:
    """Return the importances; see `Plots.importance`."""
    assert field.chosen is not None
    shares, _, note = importances(field, evaluator)
    order = sorted(shares, key=lambda name: shares[name])
    names = [plain(name, 24) for name in order]
    known = [shares[name] for name in order]
    texts = [f"{share:.2f}" if share >= 0.005 else "&lt;0.01" for share, _, _ in known]
    bars = graph_objects().Bar(
        x=[rounded(share) for share, _, _ in known],
        y=list(range(len(order))),
        orientation="h",
        marker={"color": FATES["finished"].color, "opacity": 0.8},
        error_x={
            "array": [rounded(high - share) for share, _, high in known],
            "arrayminus": [rounded(share - low) for share, low, _ in known],
            "symmetric": False,
            "color": GREY,
            "thickness": 1.5,
        },
        hovertext=[
            f"{name}: {share:.3f}" + (f", between {low:.3f} and {high:.3f}" if low < high else "")
            for name, (share, low, high) in zip(names, known, strict=True)
        ],
        hoverinfo="text",
        showlegend=False,
    )
    share, low, high = known[-1]
    return finish(
        [bars],
        "importance",
        f"Importance for {field.chosen.shown}",
        note=note,
        summary=f"Importance of {some(len(order), 'parameter')} for {field.chosen.shown}: {names[-1]} matters most, "
        f"with {share:.2f} of 1" + (f", between {low:.2f} and {high:.2f}." if low < high else "."),
        xaxis={"title": "share of all importances", "range": [0, 1.05 * max(high for _, _, high in known)]},
        yaxis={
            "tickvals": list(range(len(order))),
            "ticktext": [f"{name} <b>{text}</b>" for name, text in zip(names, texts, strict=True)],
        },
        height=170 + 28 * max(len(order), 4),
    )


def _of(shown: int, number: int) -> str:
    return some(number, "trial") if shown == number else f"{shown:,} of {some(number, 'trial')}, evenly chosen"


def _evaluator(evaluator: Any, num_trials: int) -> tuple[Any, str]:
    """Return an evaluator of Optuna for so many trials, and how it is called."""
    from optuna import importance

    evaluator = _DEFAULT if evaluator is None else evaluator
    if isinstance(evaluator, str):
        name, called = EVALUATORS[checks.one_of("evaluator", evaluator, tuple(EVALUATORS))]
        if evaluator == _DEFAULT:
            part = max(0.1, _AMONG_BEST / num_trials)
            best = math.ceil(part * num_trials)
            made: Any = importance.PedAnovaImportanceEvaluator
            keys = inspect.signature(made).parameters
            key = "target_quantile" if "target_quantile" in keys else "baseline_quantile"  # of Optuna 4
            return made(**{key: part}), f"{called} of the best {best} against all"
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


def _drawn(study: Any, trials: list[Any]) -> Any:
    """Return a study of other trials, without the time that it takes to add them."""
    other = copy.copy(study)
    other.get_trials = lambda deepcopy=True, states=None: trials
    return other


def _judged(study: Any, evaluator: Any) -> dict[str, float]:
    """Return the importances, which sum to 1, of the parameters that the evaluator can judge: of conditional ones only
    PED-ANOVA of Optuna 5 can."""
    from optuna import importance

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that all are equal, and what is experimental
        found = {
            name: float(share) for name, share in importance.get_param_importances(study, evaluator=evaluator).items()
        }
    if not found:
        raise ConfigError(
            "every parameter is missing in some trials, which this evaluator cannot judge; use evaluator='ped_anova' "
            "with Optuna 5 or newer."
        )
    return found
