"""Functions, generators and classes made into one thing: code that runs in a session and reports."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
from collections.abc import Callable, Mapping
from typing import Any

from sweep.errors import CheckpointError, UserCodeError
from sweep.store.checkpoints import Checkpoint
from sweep.worker.session import Session, StopRequested
from sweep.worker.trainable import Trainable, check_saved

__all__ = ["DICT_FILE", "Kept", "run_class", "run_function"]

DICT_FILE = "dict_checkpoint.pkl"  # what a class returned from save_checkpoint
ANONYMOUS_METRIC = "_metric"


def run_function(
    session: Session, function: Callable[..., Any], config: dict[str, Any], objects: Mapping[str, Any]
) -> None:
    """Call a function with its config; what it returns or yields are reports like any other.

    Raises:
        StopRequested: the trial was told to end. UserCodeError: it returned something that is no report.
    """
    value = function(config, **objects)
    if not inspect.isgenerator(value):
        _report_value(session, value, function, "returned")
        return
    try:
        for item in value:
            _report_value(session, item, function, "yielded")
    finally:
        value.close()  # told to stop: the generator's own `finally` blocks run


def _report_value(session: Session, value: Any, function: Any, verb: str) -> None:
    if isinstance(value, Mapping):
        if value:
            session.report(value)
        return
    if value is None or value is False:
        return
    is_scalar = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_scalar or (hasattr(value, "item") and tuple(getattr(value, "shape", (0,))) == ()):
        session.report({ANONYMOUS_METRIC: value})
        return
    name = getattr(function, "__name__", type(function).__name__)
    raise UserCodeError(
        f"{name} {verb} {type(value).__name__}; expected a dict of metrics, a number, or nothing. Call report() with "
        "the metrics."
    )


class Kept:
    """The object of a class trainable that a reused worker kept, for `reset_config`."""

    def __init__(self) -> None:
        self.instance: Trainable | None = None


def run_class(
    session: Session, cls: type[Trainable], config: dict[str, Any], objects: Mapping[str, Any], kept: Kept
) -> None:
    """Make the object, restore it, and step until told to stop or done.

    Args:
        kept: an object of the last trial of this process, asked by `reset_config` whether it takes the new config.

    Raises:
        StopRequested: the trial was told to end; `cleanup` has run.
    """
    instance = _reset(kept, cls, config)
    try:
        if instance is None:
            instance = _make(cls, config)
            instance.setup(copy.deepcopy(config), **objects)
        checkpoint = session.get_checkpoint()
        if checkpoint is not None:
            instance.load_checkpoint(_loaded(checkpoint))
            instance.iteration = session.job.base_count
        if cls.save_checkpoint is not Trainable.save_checkpoint:
            saved = instance

            def save(directory: str) -> None:
                _save(saved, directory)

            session.saver = save
        while True:
            result = instance.step()
            if not isinstance(result, Mapping):
                raise UserCodeError(
                    f"{cls.__name__}.step returned {type(result).__name__}; expected a dict of metrics."
                )
            metrics = dict(result)
            instance.iteration += 1
            instance.log_result(metrics)
            is_done = bool(metrics.get("done"))
            if metrics.pop("should_checkpoint", False) and session.saver is not None:
                session.report_with_save(metrics)
            else:
                session.report(metrics)
            if is_done:
                return
    except StopRequested:
        if instance is not None and _can_keep(cls):
            kept.instance = instance
        raise
    finally:
        session.saver = None
        if instance is not None and kept.instance is not instance:
            instance.cleanup()


def _make(cls: type[Trainable], config: dict[str, Any]) -> Trainable:
    instance = cls(config)
    if not hasattr(instance, "iteration"):  # a subclass's __init__ that forgot super().__init__()
        Trainable.__init__(instance, config)
    return instance


def _can_keep(cls: type[Trainable]) -> bool:
    return cls.reset_config is not Trainable.reset_config


def _reset(kept: Kept, cls: type[Trainable], config: dict[str, Any]) -> Trainable | None:
    instance, kept.instance = kept.instance, None
    if instance is None:
        return None
    if type(instance) is cls and instance.reset_config(copy.deepcopy(config)):
        instance.config = copy.deepcopy(config)
        instance.iteration = 0
        return instance
    instance.cleanup()
    return None


def _save(instance: Trainable, directory: str) -> None:
    returned = instance.save_checkpoint(directory)
    check_saved(directory, returned, type(instance).__name__)
    if isinstance(returned, dict):
        try:
            with open(os.path.join(directory, DICT_FILE), "wb") as file:
                pickle.dump(returned, file, protocol=5)
        except Exception as error:  # whatever a value's own __reduce__ raises
            raise CheckpointError(
                f"{type(instance).__name__}.save_checkpoint returned a dict that cannot be pickled: {error}. Write "
                "files into the directory instead."
            ) from error


def _loaded(checkpoint: Checkpoint) -> dict[str, Any] | str:
    path = os.path.join(checkpoint.path, DICT_FILE)
    if not os.path.isfile(path):
        return checkpoint.path
    with open(path, "rb") as file:
        state: dict[str, Any] = pickle.load(file)
    return state
