"""`with_parameters` and `with_resources`, and the file in which large objects are shared between trials.

The file holds a pickle and its buffers (numpy arrays and the like), each at a multiple of 64 bytes, then a pickle of
where these lie, and its length in 8 bytes. Each worker maps it privately: all trials share one copy in memory, and what
one writes in place stays its own.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import io
import mmap
import os
import pickle
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweep.core.resources import Resources, parse_resources
from sweep.errors import TrainableError, refuse_unknown
from sweep.record.files import create_private
from sweep.record.importing import unpickle
from sweep.worker.shipping import pickler_class, why_unpicklable

_WRAPPED = "__sweep_wrapped__"  # what a wrapper holds: the user's own trainable, objects, resources
_WARN_IN_BAND_BYTES = 50_000_000


def with_parameters(trainable: Any, **objects: Any) -> Any:
    """Give large objects to a trainable without sending them to each trial: they are stored once and shared.

    A function gets them as keywords: `f(config, data=...)`; a class as keywords of `setup(self, config, data=...)`.
    Numpy arrays are one copy in memory for all trials together; what a trial writes into them is seen by itself only.
    Name and resources of the trainable are kept. May be combined with `with_resources` in any order.

    Raises:
        TrainableError: neither a callable nor a class with `setup`, or the name of an object is no parameter of it.
    """
    inner, known, resources = unwrap(trainable)
    is_lanes = hasattr(inner, "__sweep_lanes__")
    if not callable(inner) or (inspect.isclass(inner) and not hasattr(inner, "setup") and not is_lanes):
        raise TrainableError(
            f"with_parameters was given {inner!r}; expected a function that takes a config, or a subclass of "
            "sweep.Trainable."
        )
    is_class = inspect.isclass(inner)
    target: Any = getattr(inner, "data" if is_lanes else "setup") if is_class else inner
    given = {**known, **objects}
    positional: list[Any] = [*([None] if is_class else []), *([] if is_lanes else [{}])]
    if problem := call_problem(target, *positional, **dict.fromkeys(given)):
        name = getattr(target, "__qualname__", target)
        raise TrainableError(
            f"with_parameters cannot pass {', '.join(objects)} to {name}{inspect.signature(target)}: {problem}."
        )
    return _wrap(inner, given, resources)


@refuse_unknown()
def with_resources(trainable: Any, resources: Any) -> Any:
    """Say what each trial of a trainable asks for: a dict, a `PlacementGroupFactory`, or a function of the config.

    Raises:
        ResourceError: a request that makes no sense.
        TrainableError: no trainable.
    """
    if not callable(trainable):
        raise TrainableError(f"with_resources was given {trainable!r}; expected a trainable and its resources.")
    if not isinstance(resources, Resources) and not callable(resources):
        resources = parse_resources(resources)
    inner, objects, _ = unwrap(trainable)
    return _wrap(inner, objects, resources)


def unwrap(trainable: Any) -> tuple[Any, dict[str, Any], Any]:
    """Return the user's own trainable, the objects and the resources (or None) that wrappers gave it."""
    wrapped: tuple[Any, dict[str, Any], Any] = getattr(trainable, "__dict__", {}).get(_WRAPPED, (trainable, {}, None))
    return wrapped


def call_problem(function: Any, *arguments: Any, **keywords: Any) -> str:
    """Return why a function cannot be called so; empty: it can, or it does not tell, as built-in ones."""
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return ""
    try:
        signature.bind(*arguments, **keywords)
    except TypeError as error:
        return str(error)
    return ""


def refuse_asynchronous(what: str, function: Any) -> None:
    """Refuse a coroutine function or an asynchronous generator; the error says `what` it is meant to be."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TrainableError(
            f"the {what} {name_of(function)} is asynchronous; expected a plain function. "
            "Use asyncio.run(...) inside it."
        )


def name_of(trainable: Any) -> str:
    """Return the name of a function, class or callable object as it is shown to people; a lambda's is `lambda`."""
    while isinstance(trainable, functools.partial) and "__name__" not in vars(trainable):
        trainable = trainable.func
    name = getattr(trainable, "__name__", None) or type(trainable).__name__
    return "lambda" if name == "<lambda>" else str(name)


def _wrap(inner: Any, objects: dict[str, Any], resources: Any) -> Any:
    """Return a trainable that is the same, also when it is called by hand, and bears what it was given."""
    wrapper: Any = functools.partial(inner, **objects)
    if inspect.isclass(inner):
        wrapper = type(inner.__name__, (inner,), {"__module__": inner.__module__})
        if objects and hasattr(inner, "setup"):
            setup = wrapper.setup
            wrapper.setup = lambda self, config: setup(self, config, **objects)
    else:
        functools.update_wrapper(wrapper, inner, updated=())
        vars(wrapper).pop("__wrapped__", None)
        wrapper.__name__ = getattr(inner, "__name__", None) or name_of(inner)
    setattr(wrapper, _WRAPPED, (inner, objects, resources))
    return wrapper


def store_objects(objects: Mapping[str, Any], directory: Path) -> str:
    """Write the objects once into `directory` and return the path of the file, named by its contents.

    Raises:
        TrainableError: one of them cannot be pickled; the message names it.
    """
    file, buffers = io.BytesIO(), list[pickle.PickleBuffer]()
    try:
        pickler_class()(file, buffer_callback=buffers.append).dump(dict(objects))
    except Exception as error:  # whatever the objects' own __reduce__ raises
        guilty = next((name for name, value in objects.items() if why_unpicklable(value)), "one of them")
        raise TrainableError(
            f"with_parameters cannot store the object {guilty!r}: {error}. Make it inside the trainable."
        ) from error
    if file.tell() > _WARN_IN_BAND_BYTES:
        warnings.warn(
            f"with_parameters: {file.tell() / 1e6:.0f} MB of the objects cannot be shared and are copied for each "
            "trial; contiguous numpy arrays can.",
            stacklevel=2,
        )
    parts = [file.getbuffer(), *(buffer.raw() for buffer in buffers)]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    path = directory / f"{digest.hexdigest()}.objects"
    if path.exists():
        return str(path)
    directory.mkdir(parents=True, exist_ok=True)
    temporary = directory / f"tmp-{path.name}-{os.getpid()}"
    spans = []
    with create_private(temporary) as stored:
        for part in parts:
            spans.append((stored.seek(-stored.tell() % 64, os.SEEK_CUR), part.nbytes))
            stored.write(part)
        where = pickle.dumps(spans, 5)
        stored.write(where + len(where).to_bytes(8, "little"))
        stored.flush()
        os.fsync(stored.fileno())
    os.chmod(temporary, 0o400)  # a private mapping would show later changes
    os.replace(temporary, path)
    return str(path)


def load_objects(path: str) -> dict[str, Any]:
    """Return the objects in the file `path`; their buffers are mapped, private and writable, not read."""
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    view = memoryview(mapped)
    size = int.from_bytes(view[-8:], "little")
    spans = pickle.loads(view[-8 - size : -8])
    body, *buffers = (view[start : start + length] for start, length in spans)
    objects: dict[str, Any] = unpickle(body, buffers)
    return objects
