"""What a trainable is: the class API, and `prepare`, which turns any trainable into a value that can be shipped."""

from __future__ import annotations

import functools
import inspect
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sweep.core.resources import Resources, parse_resources
from sweep.errors import CheckpointError, TrainableError
from sweep.worker.parameters import unwrap
from sweep.worker.session import current
from sweep.worker.shipping import pickle_trainable, referenced_modules

if TYPE_CHECKING:
    from sweep.worker.group_environment import GroupSpec

__all__ = ["PreparedTrainable", "Trainable", "prepare"]

WARN_BYTES = 10_000_000


class Trainable:
    """A trial as a class: `setup` once, then `step` until told to stop or until a result says `done`.

    Override `setup` and `step`; `save_checkpoint` and `load_checkpoint` to make the trial survive a pause, a clone or a
    failure; the rest as needed.

    Attributes:
        config: of the trial, a copy of its own.
        iteration: steps so far, those before the checkpoint included; `training_iteration` is the same.
        trial_id, trial_name: of the trial; `trial_dir` is its directory, also under the name `logdir`.
    """

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        self.config: dict[str, Any] = dict(config or {})
        self.iteration = 0

    @property
    def training_iteration(self) -> int:
        """Steps so far."""
        return self.iteration

    @property
    def trial_id(self) -> str:
        """Id of the trial; empty outside a sweep."""
        session = current()
        return session.job.trial_id if session else ""

    @property
    def trial_name(self) -> str:
        """`<class>_<trial id>`; the class alone outside a sweep."""
        session = current()
        return f"{session.job.name}_{session.job.trial_id}" if session else type(self).__name__

    @property
    def trial_dir(self) -> str:
        """The trial's directory; the working directory outside a sweep."""
        session = current()
        return session.trial_dir if session else os.getcwd()

    @property
    def logdir(self) -> str:
        """The trial's directory."""
        return self.trial_dir

    @property
    def trial_resources(self) -> Resources | None:
        """What the trial asked for; None outside a sweep."""
        session = current()
        return Resources.from_json(session.job.resources) if session else None

    def get_config(self) -> dict[str, Any]:
        """Return the config."""
        return self.config

    def setup(self, config: dict[str, Any]) -> None:
        """Prepare, once per process; objects given by `with_parameters` come as keywords."""

    def step(self) -> dict[str, Any]:
        """Do one iteration and return its metrics.

        `done=True` among them ends the trial; `should_checkpoint=True` stores a checkpoint with them.
        """
        raise NotImplementedError(f"{type(self).__name__} must define step(self) and return a dict of metrics.")

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any] | str | None:
        """Write files into `checkpoint_dir`; or return a dict, which is stored as one pickle."""
        raise NotImplementedError(f"{type(self).__name__} has no save_checkpoint; it cannot be saved or paused.")

    def load_checkpoint(self, checkpoint: dict[str, Any] | str) -> None:
        """Continue from what `save_checkpoint` stored: the dict when it returned one, else the directory."""
        raise NotImplementedError(f"{type(self).__name__} has no load_checkpoint; it cannot continue from one.")

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take a new config in place of a new object (`reuse_actors`); False: make a new object instead."""
        return False

    def cleanup(self) -> None:
        """Release what `setup` took; called when the trial ends, also when it is stopped."""

    def log_result(self, result: dict[str, Any]) -> None:
        """Log a result in a way of one's own; called after each step, before it is reported."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> Any:
        """Return what a trial of this class asks for, or None to leave it to the run."""
        return None

    def train(self) -> dict[str, Any]:
        """Do one step by hand, outside a sweep.

        Raises:
            TrainableError: `step` returned no dict.
        """
        result = self.step()
        if not isinstance(result, dict):
            raise TrainableError(
                f"{type(self).__name__}.step returned {type(result).__name__}; expected a dict of metrics."
            )
        self.iteration += 1
        result.setdefault("training_iteration", self.iteration)
        self.log_result(result)
        return result

    def stop(self) -> None:
        """End by hand, outside a sweep."""
        self.cleanup()


@dataclass(frozen=True)
class PreparedTrainable:
    """A trainable as bytes, with what a driver must know of it.

    Attributes:
        name: shown to people; a lambda's is `lambda`.
        kind: "function" (called with a config) or "class" (a `Trainable`).
        payload: cloudpickle bytes; code of `__main__` and of modules that cannot be imported elsewhere is in them.
        imports: modules that its processes need, all loaded here already.
        can_save_on_demand: a class with `save_checkpoint`.
        resources: from `with_resources` or `default_resource_request`: a request, a function of the config, or None.
        import_path: `file.py:function` when it can be found again by that; else empty.
        objects: given by `with_parameters`; not in the payload.
        group: for a trainer: what the group of a trial with some config is; None: a trial is one process.
        space: for a trainer: checks a search space and returns it in the form in which configs are recorded.
        requests: for a trainer: the requests that trials of a space can come to, as far as that can be told.
        env: variables that all its processes get.
    """

    name: str
    kind: str
    payload: bytes = field(repr=False)
    imports: tuple[str, ...] = ()
    can_save_on_demand: bool = False
    resources: Resources | Callable[[Mapping[str, Any]], Any] | None = None
    import_path: str = ""
    objects: Mapping[str, Any] = field(default_factory=dict, repr=False)
    group: Callable[[Mapping[str, Any]], GroupSpec] | None = None
    space: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    requests: Callable[[Mapping[str, Any]], Sequence[Resources]] | None = None
    env: Mapping[str, str] = field(default_factory=dict)


def prepare(trainable: Any) -> PreparedTrainable:
    """Return `trainable` in the form in which engines take it.

    Args:
        trainable: a function, lambda, method, partial or callable object that takes a config, or a `Trainable` class;
            also wrapped by `with_parameters` and `with_resources`.

    Raises:
        TrainableError: it cannot be called with one config, or cannot be pickled; the message names the captured
            variable.
    """
    inner, objects, resources = unwrap(trainable)
    if isinstance(inner, PreparedTrainable):
        return inner
    as_trainable = getattr(inner, "__sweep_trainable__", None)
    if as_trainable is not None and not inspect.isclass(inner):  # a trainer
        prepared: PreparedTrainable = as_trainable()
        return prepared
    is_class = inspect.isclass(inner)
    if is_class:
        _check_class(inner)
    else:
        _check_callable(inner, objects)
    payload = pickle_trainable(inner)
    if len(payload) > WARN_BYTES:
        warnings.warn(
            f"the trainable {_name(inner)} takes {len(payload) / 1e6:.0f} MB because of what it captures. Give large "
            "objects to sweep.with_parameters(trainable, data=...), or load them inside.",
            stacklevel=3,
        )
    if resources is None and is_class and _overrides(inner, "default_resource_request"):
        resources = inner.default_resource_request
    if resources is not None and not callable(resources):
        resources = parse_resources(resources)
    return PreparedTrainable(
        name=_name(inner),
        kind="class" if is_class else "function",
        payload=payload,
        imports=referenced_modules(inner),
        can_save_on_demand=is_class and _overrides(inner, "save_checkpoint"),
        resources=resources,
        import_path=_import_path(inner) if inner is trainable else "",
        objects=objects,
    )


def _check_class(inner: type) -> None:
    if hasattr(inner, "__sweep_trainable__"):
        raise TrainableError(
            f"{inner.__name__} is the class of a trainer; expected an object: {inner.__name__}(train_loop, "
            "scaling_config=ScalingConfig(num_workers=2))."
        )
    if not issubclass(inner, Trainable):
        raise TrainableError(
            f"the class {inner.__name__} is no trainable; expected a subclass of sweep.Trainable, or a function that "
            "takes a config."
        )
    if not _overrides(inner, "step"):
        raise TrainableError(f"the class {inner.__name__} has no step; define step(self) that returns a dict.")


def _check_callable(inner: Any, objects: Mapping[str, Any]) -> None:
    if not callable(inner):
        raise TrainableError(
            f"the trainable is {inner!r} of type {type(inner).__name__}; expected a function that takes a config, or a "
            "subclass of sweep.Trainable."
        )
    if inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner):
        raise TrainableError(
            f"the trainable {_name(inner)} is asynchronous; expected a plain function. Use asyncio.run(...) inside it."
        )
    try:
        signature = inspect.signature(inner)
    except (ValueError, TypeError):
        return  # built-in callables do not tell
    try:
        signature.bind({}, **dict.fromkeys(objects))
    except TypeError as error:
        given = "".join(f", {name}=..." for name in objects)
        raise TrainableError(
            f"the trainable {_name(inner)}{signature} cannot be called as {_name(inner)}(config{given}): {error}. "
            "Expected one argument, the config; bind others with functools.partial or sweep.with_parameters."
        ) from None


def _overrides(cls: type, method: str) -> bool:
    mine, base = getattr(cls, method), getattr(Trainable, method)
    return getattr(mine, "__func__", mine) is not getattr(base, "__func__", base)


def _name(inner: Any) -> str:
    while isinstance(inner, functools.partial):
        inner = inner.func
    name = getattr(inner, "__name__", None) or type(inner).__name__
    return "lambda" if name == "<lambda>" else str(name)


def _import_path(inner: Any) -> str:
    """Return `file.py:name` for a function or class at the top level of a file, else an empty text."""
    qualname = getattr(inner, "__qualname__", "")
    if not qualname or "<" in qualname or not (inspect.isfunction(inner) or inspect.isclass(inner)):
        return ""
    try:
        file = inspect.getsourcefile(inner)
    except TypeError:
        return ""
    if not file or not os.path.isfile(file) or "." in qualname:
        return ""
    return f"{os.path.abspath(file)}:{qualname}"


def check_saved(directory: str, returned: Any, name: str) -> None:
    """Refuse what `save_checkpoint` may not return: another path, or anything that is no dict.

    Raises:
        CheckpointError: it is.
    """
    if isinstance(returned, (str, os.PathLike)) and os.path.abspath(returned) != os.path.abspath(directory):
        raise CheckpointError(
            f"{name}.save_checkpoint returned {os.fspath(returned)!r}; expected the directory that it was given, a "
            "dict, or None. Write the files into that directory."
        )
    if returned is not None and not isinstance(returned, (dict, str, os.PathLike)):
        raise CheckpointError(
            f"{name}.save_checkpoint returned {type(returned).__name__}; expected a dict, the directory, or None."
        )
