"""Arguments of `run`, carried out: from the call to the analysis, or to what failed."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sweep.accelerators import inventory
from sweep.engines.kept import end_kept, prepare
from sweep.errors import TrialsFailed, readable
from sweep.launch.registry import registered
from sweep.launch.spec import IS_AS_IN_TUNE, RunSpec
from sweep.record.importing import end_module
from sweep.record.saved_spec import pack_saved_spec
from sweep.worker.nested import refuse_nested

if TYPE_CHECKING:
    from sweep.results.analysis import ExperimentAnalysis

__all__ = ["execute", "raise_failed"]


def execute(trainable: Any, arguments: Mapping[str, Any]) -> ExperimentAnalysis:
    """Run a sweep to its end and return its analysis.

    Args:
        trainable: as for `run`, or the name under which it was registered.
        arguments: parameters of `run`; what is left out has its default.

    Raises:
        SweepError: as `run`.
    """
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
    with _zygote_ahead(spec):
        if spec.warm_start is not None:  # read now: the former experiment may be gone when this one is continued
            from sweep.launch.warm_start import evaluated_points

            spec = replace(spec, warm_start=evaluated_points(spec.warm_start, spec.metric, spec.mode))
        # Not at the top, like what stands beside it: the zygote boots while it is imported.
        from sweep.launch.launcher import Launch
        from sweep.worker.trainable import kept

        # Packed now, because searchers and schedulers change once they are used.
        analysis, was_interrupted = Launch(spec, pack_saved_spec(spec.changed() | kept(spec.trainable))).run()
    is_bare = str(spec.failures.fail_fast).lower() == "raise"
    if not was_interrupted and (spec.raise_on_failed_trial or is_bare):
        raise_failed(analysis, is_bare=is_bare)
    return analysis


@contextlib.contextmanager
def _zygote_ahead(spec: RunSpec) -> Iterator[None]:
    """Start the process that trials are forked from before anything else is done; where the run fails, end it."""
    is_local = (spec.engine or inventory.default_engine()) == "local" and sys.platform == "linux"
    if is_local and spec.start_method == "zygote" and spec.env is None:
        prepare({**os.environ, **inventory.env_vars()})
    try:
        yield
    except BaseException:
        end_kept()
        raise


def raise_failed(analysis: ExperimentAnalysis, *, is_bare: bool = False) -> None:
    """Raise for failed trials, if there are any.

    Args:
        is_bare: raise the first one's own exception, when it could be kept.

    Raises:
        TrialsFailed: some failed; the message names them.
    """
    failed = [trial for trial in analysis.trials if trial.status == "ERROR"]
    if not failed:
        return
    shown = "\n".join(f"  {trial.trial_id}: {trial.error}" for trial in failed[:5])
    more = f"\n  and {len(failed) - 5} more" if len(failed) > 5 else ""
    cause = failed[0].error
    own = cause.__cause__ if cause is not None else None
    printed = "".join(traceback.format_exception_only(own))
    if cause is not None and readable(printed) != printed:
        cause.__cause__ = None  # Python would print it as it is; our own error has its text and its traceback
    if is_bare and own is not None:
        own.add_note(f"in trial {failed[0].trial_id}:\n{readable(getattr(cause, 'traceback', ''))}".rstrip())
        raise own
    raise TrialsFailed(
        f"{len(failed)} of {len(analysis.trials)} trials failed:\n{shown}{more}\n"
        f"Everything is kept in {analysis.experiment_path}; "
        "pass raise_on_failed_trial=False to get the analysis instead."
    ) from cause
