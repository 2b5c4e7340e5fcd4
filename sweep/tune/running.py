"""`tune.run` of scripts written for Tune: `sweep.run`, and dataframes with all of the columns that Tune's have."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec

from sweep.api import run as plain_run
from sweep.results.analysis import ExperimentAnalysis

__all__ = ["run"]

P = ParamSpec("P")


def _with_all_columns(function: Callable[P, ExperimentAnalysis]) -> Callable[P, ExperimentAnalysis]:
    @functools.wraps(function)
    def run_and_show_all(*args: P.args, **kwargs: P.kwargs) -> ExperimentAnalysis:
        analysis = function(*args, **kwargs)
        analysis._is_full = True
        return analysis

    run_and_show_all.__module__ = __name__  # so that it is pickled as itself
    return run_and_show_all


run = _with_all_columns(plain_run)
