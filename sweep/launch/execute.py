"""Arguments of `run`, carried out: from the call to the analysis, or to what failed."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from searchers.errors import readable
from sweep.accelerators import inventory
from sweep.core.config import level_of_caller
from sweep.engines.local.fork_server_client import end_cached, prepare
from sweep.errors import SweepError, SweepInterrupted, TrialsFailed
from sweep.launch.interrupt import end_script_quietly
from sweep.launch.registry import registered
from sweep.launch.spec import IS_AS_IN_TUNE, RunSpec
from sweep.record.importing import end_module
from sweep.record.saved_spec import pack_saved_spec
from sweep.worker.nested import refuse_nested

if TYPE_CHECKING:
    from sweep.launch.launcher import Launch
    from sweep.results.analysis import ExperimentAnalysis


_last: ExperimentAnalysis | None = None


def execute(trainable: Any, arguments: Mapping[str, Any]) -> ExperimentAnalysis:
    """Run a sweep to its end and return its analysis: a trainable as for `run`, and parameters of it."""
    __tracebackhide__ = True  # of what trials fail with, pytest and IPython show the user's own frames
    global _last
    end_module("sweep.run")
    refuse_nested()
    name = trainable if isinstance(trainable, str) else None
    spec = RunSpec.of(registered(name) if name is not None else trainable, {**arguments, "trainable_name": name})
    is_undeclared = spec.engine is None and spec.nodes is None and not inventory.is_initialized()
    if IS_AS_IN_TUNE.get() and os.environ.get("RAY_ADDRESS") and is_undeclared:
        inventory.init()  # as Tune does
    if spec.chdir_to_trial_dir is None and IS_AS_IN_TUNE.get():
        variables = {**os.environ, **inventory.env_vars(), **(spec.env or {})}
        spec = replace(spec, chdir_to_trial_dir=variables.get("RAY_CHDIR_TO_TRIAL_DIR") != "0")
    with _fork_server_ahead(spec):
        if spec.warm_start is not None:  # read now: the former experiment may be gone when this one is continued
            from sweep.launch.build import evaluated_points

            spec = replace(spec, warm_start=evaluated_points(spec.warm_start, spec.metric, spec.mode))
        # Not at the top: the fork server boots while it is imported.
        from sweep.launch.launcher import Launch
        from sweep.results.analysis import own_analysis
        from sweep.worker.trainable import kept

        # Packed now, because searchers and schedulers change once they are used.
        launch = Launch(spec, pack_saved_spec(spec.changed() | kept(spec.trainable)))
        try:
            analysis, interrupted_by = launch.run()
        except BaseException as error:
            _last = None
            with contextlib.suppress(SweepError):  # the record may be what has failed
                _last = own_analysis(launch.layout.root)
                _last.interrupted = not isinstance(error, Exception)
            _tell_end(launch, _last, error)
            if not isinstance(error, TrialsFailed) or _last is None:
                raise
            error.analysis = _last  # all alike, before any had reported
            error.__cause__ = next((trial.error for trial in _last.trials if trial.error is not None), None)
            if _raises(spec):
                raise
            launch.notices.warn(str(error))
            return _last
    _last = analysis
    analysis.interrupted = bool(interrupted_by)
    _tell_end(launch, analysis)
    if interrupted_by:
        if spec.on_interrupt == "return":
            return analysis
        end_script_quietly()
        text = "interrupted; everything is kept, and sweep.last_analysis() has what there is"
        raise SweepInterrupted.of(interrupted_by, text, analysis)
    is_bare = str(spec.failures.fail_fast).lower() == "raise"
    if is_bare or _raises(spec):
        raise_failed(analysis, is_bare=is_bare)
    elif spec.raise_on_failed_trial is None and (failure := failure_of(analysis)) is not None:
        warnings.warn(str(failure), stacklevel=level_of_caller())
    return analysis


def _tell_end(launch: Launch, analysis: ExperimentAnalysis | None, error: BaseException | None = None) -> None:
    if (on_end := launch.spec.on_end) is not None:
        from sweep.launch.on_end import tell_end

        if wrong := tell_end(on_end, analysis, launch.layout.root, error):
            launch.notices.warn(wrong)


def _raises(spec: RunSpec) -> bool:
    """Whether failed trials are an error of the run: in a notebook a warning leaves the cell its analysis."""
    from sweep.display.button import is_in_notebook

    return not is_in_notebook() if spec.raise_on_failed_trial is None else spec.raise_on_failed_trial


def last_analysis() -> ExperimentAnalysis | None:
    """Return the analysis of the last sweep of this process, however it ended; None: there was none.

    In a notebook it is what a cell that was interrupted, or raised, would have returned.
    """
    return _last


@contextlib.contextmanager
def _fork_server_ahead(spec: RunSpec) -> Iterator[None]:
    """Start the process that trials are forked from before anything else is done; where the run fails, end it."""
    is_local = (spec.engine or inventory.default_engine()) == "local" and sys.platform == "linux"
    if is_local and spec.start_method == "forkserver" and spec.env is None:
        prepare({**os.environ, **inventory.env_vars()}, getattr(spec.trainable, "__sweep_preload__", ()))
    try:
        yield
    except BaseException:
        end_cached()
        raise


def raise_failed(analysis: ExperimentAnalysis, *, is_bare: bool = False) -> None:
    """Raise for failed trials, if there are any; `is_bare`: the first one's own exception, when it could be kept."""
    __tracebackhide__ = True
    failure = failure_of(analysis, "; pass raise_on_failed_trial=False to get the analysis instead")
    if failure is None:
        return
    cause = failure.__cause__
    if is_bare and cause is not None and (own := cause.__cause__) is not None:
        first = next(trial for trial in analysis.trials if trial.status == "ERROR")
        own.add_note(f"in trial {first.trial_id}:\n{readable(getattr(cause, 'traceback', ''))}".rstrip())
        raise own
    raise failure


def failure_of(analysis: ExperimentAnalysis, hint: str = "") -> TrialsFailed | None:
    """Return what says which trials failed; None: none did."""
    failed = [trial for trial in analysis.trials if trial.status == "ERROR"]
    if not failed:
        return None
    shown = "".join(f"\n  {trial.trial_id}: {trial.error}" for trial in failed[:5])
    more = f"\n  and {len(failed) - 5} more" if len(failed) > 5 else ""
    error = TrialsFailed(
        f"{len(failed)} of {len(analysis.trials)} trials failed:{shown}{more}\n"
        f"Everything is kept in {analysis.experiment_path}{hint}."
    )
    cause = failed[0].error
    printed = "".join(traceback.format_exception_only(None if cause is None else cause.__cause__))
    if cause is not None and readable(printed) != printed:
        cause.__cause__ = None  # Python would print it as it is; our own error has its text and its traceback
    error.analysis, error.__cause__ = analysis, cause
    return error


def shutdown() -> None:
    """Forget what `init` was told, and end the process that has imported what trials need and waits for another run.

    Nothing has to be called: that process ends with this one, and after ten minutes without a run.
    """
    inventory.shutdown()
    end_cached()
