"""What a trainable is: the class API, and `prepare`, which turns any trainable into a value that can be shipped."""

from __future__ import annotations

import contextlib
import copy
import inspect
import os
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sweep.checkpoints.manifest import MANIFEST, verify
from sweep.checkpoints.store import Checkpoint
from sweep.core.resources import Resources, parse_resources
from sweep.core.results import date_of, fill
from sweep.errors import TrainableError, refuse_unknown
from sweep.worker.metrics import measure
from sweep.worker.parameters import call_problem, name_of, refuse_asynchronous, unwrap
from sweep.worker.saved import load_from, save_into, totals_after
from sweep.worker.session import get_context
from sweep.worker.shipping import WARN_BYTES, ship

if TYPE_CHECKING:
    from sweep.worker.group_environment import GroupSpec


class _Iteration:
    """What Tune calls `iteration`, to be read; a subclass that assigns it has an attribute of its own."""

    def __get__(self, instance: Trainable, owner: type[Trainable]) -> int:
        return instance.iteration


@refuse_unknown()
class Trainable:
    """A trial as a class: `setup` once, then `step` until it is asked to stop or until a result says `done`.

    Override `setup` and `step`; `save_checkpoint` and `load_checkpoint` to make the trial survive a pause, a clone or a
    failure; the rest as needed.

    An object can be used by hand, without a sweep, as tests do: `Counter({"by": 2})` runs `setup`, `train` does a step,
    `save` and `restore` go through a directory, `stop` cleans up.

    Attributes:
        config: of the trial, a copy of its own.
        iteration: steps so far, those before the checkpoint included; `training_iteration` is the same.
        trial_id, trial_name: of the trial; `trial_dir` is its directory, also under the name `logdir`.
    """

    iteration: int = 0
    _iteration = _Iteration()
    _sweep_is_made = False  # a subclass may have an `__init__` that does not call this one's
    _sweep_given: tuple[dict[str, Any], Mapping[str, Any]] | None = None  # by a sweep: config and shared objects
    _sweep_totals: Mapping[str, float] = {}  # see `saved`; replaced, never changed
    _sweep_restored: tuple[int, float] = 0, 0.0  # iterations and seconds before the checkpoint that it continued from

    def __init__(self, config: dict[str, Any] | None = None, logger_creator: Any = None) -> None:
        """Take the config and run `setup`.

        Args:
            logger_creator: for subclasses that hand it on; results are logged by callbacks.

        Raises:
            TrainableError: a `logger_creator` was given.
        """
        if logger_creator is not None:
            raise TrainableError(
                f"{type(self).__name__} was given a logger_creator; expected None. Results are logged by callbacks: "
                "run(callbacks=[...])."
            )
        given, self._sweep_given = self._sweep_given or ({}, {}), None
        self.config: dict[str, Any] = dict(given[0] if config is None else config)
        self.iteration = 0
        self._sweep_is_made = True
        objects = given[1]
        self.setup(copy.deepcopy(self.config), **objects)

    @property
    def training_iteration(self) -> int:
        """Steps so far."""
        return self.iteration

    @property
    def trial_id(self) -> str:
        """Id of the trial; empty outside a sweep."""
        return get_context().get_trial_id() or ""

    @property
    def trial_name(self) -> str:
        """`<class>_<trial id>`; the class alone outside a sweep."""
        return get_context().get_trial_name() or type(self).__name__

    @property
    def trial_dir(self) -> str:
        """The trial's directory; the working directory outside a sweep."""
        return get_context().get_trial_dir() or os.getcwd()

    logdir = trial_dir

    @property
    def trial_resources(self) -> Resources | None:
        """What the trial asked for; None outside a sweep."""
        return get_context().get_trial_resources()

    def get_config(self) -> dict[str, Any]:
        """Return the config."""
        return self.config

    def setup(self, config: dict[str, Any]) -> None:
        """Prepare, once per object, called by `__init__`; objects given by `with_parameters` come as keywords."""

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
        """Do one step by hand, outside a sweep, and return its metrics with those that a sweep fills in.

        Raises:
            TrainableError: `step` returned no dict.
        """
        began = time.monotonic()
        result = self.step()
        if not isinstance(result, dict):
            raise TrainableError(
                f"{type(self).__name__}.step returned {type(result).__name__}; expected a dict of metrics."
            )
        values = dict(result)
        measure(values, time.monotonic() - began)
        values |= {"date": date_of(values["timestamp"]), "config": self.config}
        self._advance(values)
        iterations, seconds = self._sweep_restored
        values = fill(
            {**self._sweep_totals, **values},
            trial_id=self.trial_id,
            count=self.iteration,
            since_restore=self.iteration - iterations,
            time_before_s=0.0,
            restored_s=seconds,
        )
        self.log_result(values)
        return values

    def _advance(self, metrics: Mapping[str, Any]) -> None:
        """Count a step; `time_this_iter_s` is among its metrics."""
        self.iteration += 1
        self._sweep_totals = totals_after(self._sweep_totals, metrics)

    def save(self, checkpoint_dir: str | os.PathLike[str] | None = None) -> Checkpoint:
        """Store the present state by hand, outside a sweep.

        Args:
            checkpoint_dir: created when missing; None: a new temporary directory, the caller's to delete.

        Raises:
            NotImplementedError: the class has no `save_checkpoint`.
            CheckpointError: `save_checkpoint` returned something that cannot be stored.
        """
        if not _overrides(type(self), "save_checkpoint"):
            self.save_checkpoint("")  # says what is missing, before a directory is made
        directory = os.path.abspath(checkpoint_dir or tempfile.mkdtemp(prefix="checkpoint_"))
        os.makedirs(directory, exist_ok=True)
        save_into(self, directory)
        return Checkpoint(directory)

    def restore(self, checkpoint: Checkpoint | str | os.PathLike[str]) -> None:
        """Continue by hand from what `save` returned, or from a checkpoint of a sweep.

        `training_iteration` and `time_total_s` go on from where it was taken; `iterations_since_restore` and
        `time_since_restore` begin at 0.

        Raises:
            CheckpointError: it is missing or damaged.
            NotImplementedError: the class has no `load_checkpoint`.
        """
        given = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
        with given.as_directory() as directory:
            if os.path.exists(os.path.join(directory, MANIFEST)):
                verify(directory)
            load_from(self, directory)

    def reset(self, new_config: dict[str, Any], logger_creator: Any = None) -> bool:
        """Take a new config by hand, outside a sweep: what `reset_config` says; then counting begins anew."""
        if not self.reset_config(copy.deepcopy(new_config)):
            return False
        self.config = dict(new_config)
        self.iteration = 0
        self._sweep_totals, self._sweep_restored = {}, (0, 0.0)
        return True

    def stop(self) -> None:
        """End by hand, outside a sweep."""
        self.cleanup()

    def export_model(
        self, export_formats: str | Sequence[str], export_dir: str | os.PathLike[str] | None = None
    ) -> dict[str, str]:
        """Write the model in formats of your own by `_export_model`; return the path for each format.

        Args:
            export_dir: None: the trial's directory.
        """
        formats = [export_formats] if isinstance(export_formats, str) else list(export_formats)
        return self._export_model(formats, os.fspath(export_dir or self.logdir))

    def _export_model(self, export_formats: list[str], export_dir: str) -> dict[str, str]:
        """Write the model into `export_dir` and return the path for each format."""
        return {}


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
        requests: for a trainer: the requests that trials of a space can come to, as far as they are known.
        elastic: for a trainer: what `ElasticGroups` is made with for a space; None: groups keep their size.
        notices: for a trainer: what the user should know of the groups of a space.
        env: variables that all its processes get.
        defaults: parameters of `run` where the user has given none.
        payload_for: makes the payload for what the sweep optimises, where the trainable is to know that.
        observers: makes callbacks of its own, from what tells the user, and whether trials are judged while they run.
        command_line: for a program: the command of a trial with some config; places that are not known yet stay named.
        lanes: for a `VectorTrainable`: how many of its trials share a process, and what that holds.
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
    elastic: Callable[[Mapping[str, Any]], Mapping[str, Any] | None] | None = None
    notices: Callable[[Mapping[str, Any]], Sequence[str]] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    payload_for: Callable[[str], bytes] | None = None
    observers: Callable[[Callable[[str], None], bool], Sequence[Any]] | None = None
    command_line: Callable[[Mapping[str, Any]], str] | None = None
    lanes: Any = None


def prepare(trainable: Any) -> PreparedTrainable:
    """Return `trainable` in the form in which engines take it.

    Args:
        trainable: a function, lambda, method, partial or callable object that takes a config, or a `Trainable` class;
            also wrapped by `with_parameters` and `with_resources`.

    Raises:
        TrainableError: it cannot be called with one config, or cannot be pickled; the message names the variable that
            it captures.
    """
    inner, objects, resources = unwrap(trainable)
    if isinstance(inner, PreparedTrainable):
        return inner
    as_trainable = getattr(inner, "__sweep_trainable__", None)
    if as_trainable is not None and not inspect.isclass(inner):  # a trainer
        prepared: PreparedTrainable = as_trainable()
        return prepared
    given, lanes, space = inner, None, None
    if hasattr(inner, "__sweep_lanes__"):  # a VectorTrainable
        inner, lanes, space = inner.__sweep_lanes__()
    is_class = inspect.isclass(inner)
    if is_class:
        _check_class(inner)
    else:
        _check_callable(inner, objects)
    payload, modules = ship(inner, objects)
    if len(payload) > WARN_BYTES:
        warnings.warn(
            f"the trainable {name_of(inner)} takes {len(payload) / 1e6:.0f} MB because of what it captures. "
            "Give large objects to sweep.with_parameters(trainable, data=...), or load them inside.",
            stacklevel=3,
        )
    if resources is None and is_class and _overrides(inner, "default_resource_request"):
        resources = inner.default_resource_request
    if resources is not None and not callable(resources):
        resources = parse_resources(resources)
    return PreparedTrainable(
        name=name_of(inner),
        kind="class" if is_class else "function",
        payload=payload,
        imports=modules,
        can_save_on_demand=is_class and _overrides(inner, "save_checkpoint"),
        resources=resources,
        import_path="" if objects else _import_path(given),
        objects=objects,
        space=space,
        defaults={} if lanes is None else {"engine": "lanes"},
        lanes=lanes,
    )


_FORMER_METHODS = {
    "_setup": "setup",
    "_train": "step",
    "_save": "save_checkpoint",
    "_restore": "load_checkpoint",
    "_stop": "cleanup",
    "_log_result": "log_result",
}


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
    has_step = _overrides(inner, "step")
    found = [name for name in _FORMER_METHODS if hasattr(inner, name) and not (has_step and name == "_train")]
    renamed = ", and ".join(f"{name}, which is called {_FORMER_METHODS[name]} now" for name in found)
    if not has_step:
        former = f"; it has {renamed}" if renamed else ""
        raise TrainableError(f"the class {inner.__name__} has no step{former}; define step(self) that returns a dict.")
    if renamed:
        raise TrainableError(f"the class {inner.__name__} has {renamed}; rename it.")


def former_arguments(inner: Any, objects: Mapping[str, Any]) -> frozenset[str]:
    """Return which of the arguments that Tune once gave to functions this one names: `reporter`, `checkpoint_dir`.

    A value that was bound or is a default of the function's own stays.
    """
    try:
        parameters = list(inspect.signature(inner).parameters.values())[1:]
    except (ValueError, TypeError):
        return frozenset()  # built-in callables do not tell
    named = {
        one.name: one.default
        for one in parameters
        if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY) and one.name not in objects
    }
    wanted = {"reporter"} if named.get("reporter") is inspect.Parameter.empty else set()
    if "checkpoint_dir" in named and named["checkpoint_dir"] in (None, inspect.Parameter.empty):
        wanted.add("checkpoint_dir")
    return frozenset(wanted)


def _check_callable(inner: Any, objects: Mapping[str, Any]) -> None:
    if not callable(inner):
        raise TrainableError(
            f"the trainable is {inner!r} of type {type(inner).__name__}; expected a function that takes a config, or a "
            "subclass of sweep.Trainable."
        )
    refuse_asynchronous("trainable", inner)
    problem = call_problem(inner, {}, **dict.fromkeys({*objects, *former_arguments(inner, objects)}))
    if problem:
        given = "".join(f", {name}=..." for name in objects)
        name, signature = name_of(inner), inspect.signature(inner)
        if missing := re.findall(r"missing .*'(\w+)'", problem):
            raise TrainableError(
                f"Unknown argument found in the trainable {name}{signature}, which is called as {name}(config{given}): "
                f"{problem}. Give it by sweep.with_parameters({name}, {missing[0]}=...), or by functools.partial."
            )
        raise TrainableError(
            f"the trainable {name}{signature} cannot be called as {name}(config{given}): {problem}. Expected one "
            "argument, the config; bind others with functools.partial or sweep.with_parameters."
        )
    with contextlib.suppress(OSError, TypeError):  # no source
        if re.search(r"^[^#'\"]*\bCheckpoint\.from_dict\(", inspect.getsource(inner), re.MULTILINE):
            Checkpoint.from_dict()  # as in each trial, but once and before the search


def _overrides(cls: type, method: str) -> bool:
    mine, base = getattr(cls, method), getattr(Trainable, method)
    return getattr(mine, "__func__", mine) is not getattr(base, "__func__", base)


def kept(trainable: Any) -> dict[str, Any]:
    """Return the trainable as an argument, where an import does not find it as it was given; not with large objects."""
    inner, objects, _ = unwrap(trainable)
    return {} if objects or (inner is trainable and _import_path(inner)) else {"trainable": trainable}


def _import_path(inner: Any) -> str:
    """Return `file.py:name` for a function or class at the top level of a file, else an empty text."""
    qualname = getattr(inner, "__qualname__", "")
    if not qualname or "<" in qualname or not (inspect.isfunction(inner) or inspect.isclass(inner)):
        return ""
    try:
        file = inspect.getsourcefile(inner)
    except (TypeError, OSError):  # a class of a prompt, a notebook or `python -c`, whose module has no file
        return ""
    if not file or not os.path.isfile(file) or "." in qualname:
        return ""
    return f"{os.path.abspath(file)}:{qualname}"
