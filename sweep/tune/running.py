"""What runs sweeps of scripts written for Tune: trials in their own directory, and dataframes with all columns."""

from __future__ import annotations

import functools
from typing import Any

from searchers.keywords import F
from sweep.api import run as plain_run
from sweep.launch.spec import IS_AS_IN_TUNE
from sweep.launch.tuner import Tuner as PlainTuner
from sweep.results.analysis import ExperimentAnalysis
from sweep.tune.experiment import run_experiments as plain_run_experiments


def _as_in_tune(function: F) -> F:
    @functools.wraps(function)
    def run_as_in_tune(*args: Any, **kwargs: Any) -> Any:
        token = IS_AS_IN_TUNE.set(True)
        try:
            found = function(*args, **kwargs)
        finally:
            IS_AS_IN_TUNE.reset(token)
        if isinstance(found, ExperimentAnalysis):
            found._is_full = True
        return found

    run_as_in_tune.__module__ = __name__  # so that it is pickled as itself
    return run_as_in_tune  # type: ignore[return-value]


class Tuner(PlainTuner):
    fit = _as_in_tune(PlainTuner.fit)


Tuner.__doc__ = PlainTuner.__doc__
run = _as_in_tune(plain_run)
run_experiments = _as_in_tune(plain_run_experiments)
