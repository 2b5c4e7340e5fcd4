"""The Python API: `run`, with the parameters that Tune's users know."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from searchers.keywords import F
from sweep.errors import ConfigError, SweepInterrupted, TrialsFailed, refuse_unknown
from sweep.launch.execute import execute
from sweep.launch.spec import FORMER_FORMS, Options, changed

if TYPE_CHECKING:
    from sweep.results.analysis import ExperimentAnalysis

P = ParamSpec("P")

# Parameters that Tune once had, and what takes their place.
_FORMER = {
    "upload_dir": "Give the URI as storage_path.",
    "sync_to_driver": "Everything is written in place; leave it out.",
    "loggers": "Pass them as callbacks.",
    "queue_trials": "Trials always wait for their resources; leave it out.",
    "trial_executor": "Choose where trials run with engine='local', 'inline' or 'ray'.",
    "server_port": "There is no server; `sweep ls` and `sweep why` read the record of a running sweep.",
    "ray_auto_init": "Nothing has to be started; declare resources with sweep.init().",
    "return_trials": "The trials are analysis.trials.",
    "export_formats": "Write the model in save_checkpoint() or cleanup(), or call export_model() by hand.",
    "checkpoint_score_attribute": "Pass checkpoint_config=sweep.CheckpointConfig(checkpoint_score_attribute=...).",
    "num_to_keep": "Pass checkpoint_config=sweep.CheckpointConfig(num_to_keep=...).",
    "param_space": "run() calls it config.",
    "max_t": "It is a parameter of schedulers: scheduler=sweep.ASHAScheduler(max_t=...).",
    "sync_to_cloud": "Give the URI as storage_path.",
    "global_checkpoint_period": "Every result is on disk before its trial goes on; leave it out.",
    "run_errored_only": "Write resume='ERRORED_ONLY'.",
    "trial_name_string": "It is called trial_name_creator.",
}
_THE_FUNCTION = "The function is the first argument: run(train, ...). The key that it reports is metric=."
# What others expect to find here, and where it is.
_ELSEWHERE = dict.fromkeys(("objective", "func", "fn", "function", "trainable"), _THE_FUNCTION) | {
    "tune_config": "run() takes its fields themselves, or use sweep.Tuner(train, tune_config=...).",
    "run_config": "run() takes its fields themselves, or use sweep.Tuner(train, run_config=...).",
}


def _as_parameters(options: Callable[P, Options]) -> Callable[[F], Callable[Concatenate[Any, P], ExperimentAnalysis]]:
    """Return the decorator that gives `run` the fields of the options as keywords, for `help`, editors and types."""

    def decorate(function: Any) -> Any:
        trainable, _ = inspect.signature(function).parameters.values()
        keywords = [one.replace(kind=one.KEYWORD_ONLY) for one in inspect.signature(options).parameters.values()]
        function.__signature__ = inspect.signature(function).replace(parameters=[trainable, *keywords])
        explained = (options.__doc__ or "").partition("Args:\n")[2].strip()
        function.__doc__ = function.__doc__.replace("PARAMETERS", explained)
        return function

    return decorate


@refuse_unknown(_FORMER | _ELSEWHERE, unlisted=FORMER_FORMS)
@_as_parameters(Options)
def run(run_or_experiment: Any, **arguments: Any) -> ExperimentAnalysis:
    """Run a sweep and return its analysis.

    Args:
        run_or_experiment: the trainable: a function of one config that calls `sweep.report`, a `sweep.Trainable`
            class, a trainer, the name of something registered, or an `Experiment`.
        PARAMETERS

    Raises:
        ConfigError, SpaceError, UnknownNameError, ResourceError, TrainableError, ExperimentError: an argument is wrong;
            nothing was started.
        MetricError, SearchError, SweepStalled: the sweep could not go on; it can be resumed.
        TrialsFailed: it is over and some trials failed; or all began to fail alike (`max_identical_failures`).
        SweepInterrupted: it was interrupted, and can be resumed; a `KeyboardInterrupt` or a `SystemExit`.
    """
    __tracebackhide__ = True
    if isinstance(run_or_experiment, (list, tuple)):
        if len(run_or_experiment) != 1:
            what = f"run was given a list of {len(run_or_experiment)} experiments; expected one"
            raise ConfigError(f"{what}. sweep.run_experiments([...]) runs them one after another.")
        run_or_experiment = run_or_experiment[0]
    if hasattr(run_or_experiment, "__sweep_run__"):  # an Experiment: it says what is run, and how
        run_or_experiment, arguments = run_or_experiment.__sweep_run__(changed(arguments))
    try:
        return execute(run_or_experiment, arguments)
    except (TrialsFailed, SweepInterrupted) as error:  # how it came here says nothing of them
        raise error.with_traceback(None) from error.__cause__
