"""`warm_start=`: what was evaluated before the run, as the pairs of config and result that its searcher learns from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from searchers.warm_start import Point, points_of
from sweep.core.results import flatten, own_metrics
from sweep.errors import ConfigError, SearchError
from sweep.record.reader import ExperimentReader
from sweep.results.optuna_points import from_optuna, is_study
from sweep.storage.fetch import open_storage_for_reading


def evaluated_points(given: Any, metric: Any = None, mode: Any = None) -> list[Point]:
    """Return pairs of config and last result, in the order of the trials; those without a result are left out.

    Metric and mode are the run's, as far as they are known: what the values of a study are called that has no name for
    them, and which way they must be better there."""
    if is_study(given):
        _check_directions(given, mode)
        found: list[Point] = [*from_optuna(given, given.metric_names or metric)]
    elif isinstance(given, (str, os.PathLike)):
        path = open_storage_for_reading(given, None) if "://" in os.fspath(given) else given
        rows = ExperimentReader(path).trials()
        found = [(row.fresh_config(), None if row.status == "ERROR" else row.last_metrics) for row in rows]
    else:
        try:
            found = [(dict(config), result) for config, result in points_of(given)]
        except (SearchError, TypeError, ValueError) as error:
            raise ConfigError(
                f"warm_start is {given!r:.100} ({error}); expected the directory of an experiment, an analysis, "
                "results, a study of Optuna, or pairs of a config and its result."
            ) from error
    points: list[Point] = [(config, _own(result)) for config, result in found if result]
    if not points:
        raise ConfigError(f"warm_start: of {len(found)} trials none has a result to learn from. Leave it out.")
    return points


def _check_directions(study: Any, mode: Any) -> None:
    modes = [mode] if isinstance(mode, str) else [one for one in mode or () if one != "obs"]
    there = ["min" if direction.name == "MINIMIZE" else "max" for direction in study.directions]
    if modes and modes != there:
        raise ConfigError(
            f"warm_start is a study with the directions {there}, and mode is {modes}; expected the same. If its values "
            "mean the same here nevertheless, give sweep.from_optuna(study, metric)."
        )


def _own(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was reported, flattened, without what is filled in but for `training_iteration`."""
    own = own_metrics(flatten(result), "training_iteration")
    return {name: value for name, value in own.items() if not name.startswith("config/")}
