"""Functions, generators and classes made into one thing: code that runs in a session and reports."""

from __future__ import annotations

import inspect
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, SupportsFloat

from sweep.errors import UserCodeError
from sweep.worker.saved import load_from, save_into
from sweep.worker.session import Session, StopRequested, as_report, report
from sweep.worker.trainable import Trainable, former_arguments


def run_function(
    session: Session, function: Callable[..., Any], config: dict[str, Any], objects: Mapping[str, Any]
) -> None:
    """Call a function with its config; what it returns or yields are reports like any other.

    Raises:
        StopRequested: the trial was asked to stop. UserCodeError: it returned something that is no report.
    """
    value = function(config, **objects, **former_values(session, function, objects))
    if inspect.isgenerator(value):
        try:
            for item in value:
                _report_value(session, item, function, "yielded")
        finally:
            value.close()  # on a stop: the generator's own `finally` blocks run
    else:
        _report_value(session, value, function, "returned")
    session.store_pending()


def former_values(session: Session, function: Callable[..., Any], objects: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a function in a form that Tune once had is given besides its config."""
    given: dict[str, Any] = {}
    wanted = former_arguments(function, objects)
    if "reporter" in wanted:
        given["reporter"] = _reporter(session)
    if "checkpoint_dir" in wanted:
        checkpoint = session.get_checkpoint()
        given["checkpoint_dir"] = checkpoint.path if checkpoint is not None else None
    return given


def _reporter(session: Session) -> Callable[..., None]:
    """Return what reports when it is called, a dict of metrics, keywords or a number alone, and knows the trial."""
    job = session.job

    def reporter(_metric: Mapping[str, Any] | SupportsFloat | None = None, /, **kw: Any) -> None:
        report(_metric, **kw)

    vars(reporter).update(trial_id=job.trial_id, trial_name=job.shown_name, logdir=job.trial_dir)
    vars(reporter).update(trial_resources=job.resources)
    return reporter


def _report_value(session: Session, value: Any, function: Any, verb: str) -> None:
    if value is None or value is False:
        return
    metrics = as_report(value)
    if isinstance(metrics, Mapping):
        if metrics:
            session.report(metrics)
        return
    name = getattr(function, "__name__", type(function).__name__)
    raise UserCodeError(
        f"{name} {verb} {type(value).__name__}; expected a dict of metrics, a number, or nothing. "
        "Call report() with the metrics."
    )


@dataclass
class ReusedInstance:
    """The object of a class trainable that a reused worker kept, for `reset_config`.

    Attributes:
        is_wanted: there may be a next trial for it; otherwise objects end with their trials.
    """

    is_wanted: bool = False
    instance: Trainable | None = None


def run_class(
    session: Session, cls: type[Trainable], config: dict[str, Any], objects: Mapping[str, Any], kept: ReusedInstance
) -> None:
    """Make the object, restore it, and step until it is done or asked to stop.

    Args:
        kept: an object of the last trial of this process, asked by `reset_config` whether it takes the new config.

    Raises:
        StopRequested: the trial was asked to stop; `cleanup` has run.
    """
    instance = _reset(kept, cls, config)
    try:
        if instance is None:
            instance = _make(cls, config, objects)
        checkpoint = session.get_checkpoint()
        if checkpoint is not None:
            load_from(instance, checkpoint.path)
            instance.iteration = session.job.base_count
        if cls.save_checkpoint is not Trainable.save_checkpoint:
            session.saver = partial(save_into, instance)
        while not _step(session, instance):
            pass
    except StopRequested:
        if instance is not None and kept.is_wanted and cls.reset_config is not Trainable.reset_config:
            kept.instance = instance
        raise
    except BaseException:
        failed, instance = instance, None
        session.saver = None
        if failed is not None:
            try:
                failed.cleanup()
            except Exception:  # the border to user code: that this fails, too, must not hide why the trial failed
                traceback.print_exc()
        raise
    finally:
        session.saver = None
        if instance is not None and kept.instance is not instance:
            instance.cleanup()


def _step(session: Session, instance: Trainable) -> bool:
    """Do one step and report it; whether it was the last."""
    began = time.monotonic()
    result = instance.step()
    if not isinstance(result, Mapping):
        raise UserCodeError(
            f"{type(instance).__name__}.step returned {type(result).__name__}; expected a dict of metrics."
        )
    metrics = dict(result)
    metrics.setdefault("timestamp", int(time.time()))  # in the usual order
    metrics.setdefault("time_this_iter_s", time.monotonic() - began)  # without what `report` waits for
    instance._advance(metrics)
    instance.log_result(metrics)
    is_done = _is_true(metrics.get("done"))
    is_saving = _is_true(metrics.pop("should_checkpoint", False)) and session.saver is not None
    session.report(metrics, is_saving=is_saving)
    return is_done


def _is_true(value: Any) -> bool:
    """Whether a flag among the metrics is set; what has no truth of its own, such as an array, is not."""
    try:
        return bool(value)
    except Exception:  # the border to the user's own types
        return False


def _make(cls: type[Trainable], config: dict[str, Any], objects: Mapping[str, Any]) -> Trainable:
    """Make the object of a trial; its `setup` runs once, within `Trainable.__init__` as when it is made by hand."""
    instance = cls.__new__(cls, config)  # type: ignore[call-arg]
    instance._sweep_given = (config, objects)
    instance.__init__(config)  # type: ignore[misc]
    if not instance._sweep_is_made:  # a subclass's __init__ that forgot super().__init__()
        Trainable.__init__(instance, config)
    return instance


def _reset(kept: ReusedInstance, cls: type[Trainable], config: dict[str, Any]) -> Trainable | None:
    instance, kept.instance = kept.instance, None
    if instance is None:
        return None
    if type(instance) is cls and instance.reset(config):
        return instance
    instance.cleanup()
    return None
