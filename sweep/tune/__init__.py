"""`ray.tune`: `from sweep import tune` where a script has `from ray import tune`.

It has all that `sweep` has, and below it are Tune's modules: `tune.schedulers`, `tune.search.optuna`, `tune.utils`.
"""

from sweep.results.analysis import ExperimentAnalysis as _Analysis
from sweep.tune import schedulers as schedulers
from sweep.tune.running import Tuner as Tuner, run as run, run_experiments as run_experiments
from sweep.worker.context import Context as _Context
from sweep import *  # type: ignore[no-redef, assignment]  # what stands above wins

Analysis = _Analysis
TuneContext = _Context
