"""How a trainable travels: pickled by value where it cannot be imported, with the guilty variable named when it cannot
travel at all, and with the modules that its processes need found without importing anything."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import io
import itertools
import os
import pickle
import sys
import types
import warnings
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

from sweep.core.config import refuse_endless
from sweep.errors import ConfigError, TrainableError
from sweep.record.files import write_atomically
from sweep.record.importing import is_reached
from sweep.worker.metrics import kind_name

# Imports inside function bodies are preloaded only for these: measured to be safe to fork after a mere import.
SAFE_TO_PRELOAD = frozenset({"jax", "numpy", "optuna", "pandas", "scipy", "sklearn", "torch"})
WARN_BYTES = 10_000_000
_NO_FILE = "<dynamic-code>"  # what cloudpickle calls the file of all code
_MAX_DEPTH = 100  # of what leads to a value that cannot be pickled
# What torch itself imports when the first optimizer of a process is built: 1.8 s, in every trial that builds one.
_TORCH_OPTIMIZERS = "torch._dynamo"
_NEVER_PRELOADED = ("__main__", "builtins", "cloudpickle", "sweep", "searchers", "pytest", "_pytest")
_CODE = (types.FunctionType, types.MethodType, types.ModuleType, functools.partial, type)  # leads to what is captured
# cloudpickle would send what can be read from them.
_FILES = (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO)
_UNREADABLE = "trials are no processes of Ray's, and cannot read what it stands for: give ray.get(ref)"
_INSTEAD = "Give them the object itself: sweep.with_parameters(trainable, data=ray.get(ref))."


@functools.cache
def pickler_class() -> type[Any]:
    """Return the pickler of all that goes to other processes; made late, because cloudpickle is imported late.

    It notes the modules that it refers to (`modules`) and the names that code uses (`words`), keeps the names of source
    files, which cloudpickle leaves out since 3.1.3, refuses references of Ray's and what is in `refused`, and gives the
    data of torch tensors to `buffer_callback`, as numpy does.
    """
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def __init__(self, file: Any, *, refused: tuple[type, ...] = (), **options: Any) -> None:
            super().__init__(file, protocol=5, **options)
            self._is_sharing = "buffer_callback" in options
            self.modules: set[str] = set()
            self.words: set[str] = set()
            self._refused = refused

        def reducer_override(self, thing: Any) -> Any:
            if _is_reference(thing):
                raise TypeError(_UNREADABLE)
            if isinstance(thing, self._refused):
                raise TypeError(f"cannot pickle {type(thing).__name__!r} object")
            if self._is_sharing and f"{type(thing).__module__}.{type(thing).__name__}" == "torch.Tensor":
                with contextlib.suppress(
                    RuntimeError, TypeError
                ):  # not on the CPU, sparse, of a type that numpy lacks, in a graph
                    return _tensor, (thing.contiguous().numpy(),)
            if type(thing) is types.CodeType:
                self.words.update(thing.co_names)
                make, given = self.dispatch_table[types.CodeType](thing)
                return make, tuple(
                    thing.co_filename if isinstance(one, str) and one == _NO_FILE else one for one in given
                )
            if isinstance(thing, types.ModuleType):
                self.modules.add(thing.__name__)
            reduced = super().reducer_override(thing)
            if reduced is NotImplemented and isinstance(thing, (type, types.FunctionType)):
                self.modules.add(str(thing.__module__))
            if isinstance(thing, type) and isinstance(reduced, tuple) and "__dataclass_fields__" in vars(thing):
                make, (kind, name, bases, namespace, *rest) = reduced[:2]
                return make, (kind, name, bases, {**namespace, **_fields(thing)}, *rest), *reduced[2:]
            return reduced

    return Pickler


def _fields(cls: type) -> dict[str, Any]:
    """Return what a dataclass is to have when it is made again, where what makes it looks: JAX is told of the fields of
    Equinox's and Flax's then, and cloudpickle sets them later."""
    if type(cls) is type and all("__init_subclass__" not in vars(base) for base in cls.__mro__[1:-1]):
        return {}
    annotations = inspect.get_annotations(cls)
    fields = {name: field for name, field in vars(cls)["__dataclass_fields__"].items() if name in annotations}
    return {"__annotations__": annotations, "__init__": _set_later, **fields}


def _set_later(self: Any) -> None:
    """Stand for a class's own `__init__` until that is set."""


def _tensor(array: Any) -> Any:
    import torch

    return torch.from_numpy(array)


def _is_reference(value: Any) -> bool:
    """Whether a value stands for an object in Ray's store."""
    return type(value).__name__ == "ObjectRef" and type(value).__module__.partition(".")[0] == "ray"


def ship(trainable: Any, objects: Mapping[str, Any] | None = None) -> tuple[bytes, tuple[str, ...]]:
    """Return `trainable` as bytes, and the modules that its processes need; those that they cannot import are included.

    Needed are those that the pickle refers to; imports inside function bodies count for libraries that are known to be
    safe to fork.

    Args:
        objects: that the trainable is given; the modules of their classes are needed to load them.

    Raises:
        TrainableError: something it refers to cannot be pickled; the message names the variable.
    """
    import cloudpickle

    registered: list[types.ModuleType] = []
    parts = list(functions_of(trainable))
    for part in parts:
        module = sys.modules.get(getattr(part, "__module__", None) or "")
        if module is None or module.__name__ == "__main__" or module in registered:
            continue
        if not (is_importable(module) and is_reached(module.__name__, part.__qualname__)):
            cloudpickle.register_pickle_by_value(module)
            registered.append(module)
    file = io.BytesIO()
    pickler = pickler_class()(file)
    try:
        pickler.dump(trainable)
    except Exception as error:  # whatever the __reduce__ of a captured object raises
        raise TrainableError(_why_not(trainable, error)) from error
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)
    names, words = pickler.modules, pickler.words
    for function in filter(inspect.isfunction, parts):  # those that travel by reference, too
        words.update(name for code in _codes(function) for name in code.co_names)
        words.update(_home(value) for _, value in _variables(function))
    names.update(map(_home, (objects or {}).values()))
    return file.getvalue(), _wanted(names, words)


def _wanted(names: set[str], words: set[str]) -> tuple[str, ...]:
    """Return which modules are imported before trials are forked.

    Args:
        names: of modules that are referred to.
        words: that code uses, among them the modules that it imports by itself and those of what it names.
    """
    loaded = {name for name in names & sys.modules.keys() if name.partition(".")[0] not in _NEVER_PRELOADED}
    wanted = {name for name in loaded if is_importable(sys.modules[name])}
    wanted |= {name for name in names if name.startswith("sweep.train.")}  # a `fit()` inside the trial
    wanted |= SAFE_TO_PRELOAD & {word.partition(".")[0] for word in words}
    is_torch = any(name.partition(".")[0] == "torch" for name in wanted)
    if is_torch and any(word == "optim" or word.startswith("torch.optim") for word in names | words):
        wanted.add(_TORCH_OPTIMIZERS)
    return tuple(sorted(wanted))


def _home(value: Any) -> str:
    """Return the name of the module that a value is, or that it or its class comes from."""
    if isinstance(value, types.ModuleType):
        return value.__name__
    return str(getattr(value if hasattr(value, "__qualname__") else type(value), "__module__", None))


def _why_not(trainable: Any, error: Exception) -> str:
    """Return why a trainable cannot be pickled, with the variable that it captures."""
    kind = "class" if inspect.isclass(trainable) else "function" if inspect.isfunction(trainable) else "trainable"
    what = f"the {kind} {getattr(trainable, '__name__', type(trainable).__name__)}"
    path, value = _guilty(trainable)
    if not path:
        return f"{what} cannot be shipped to another process: {error}. Create what it needs inside it."
    instead = f"Create it inside the {kind}; give large data by sweep.with_parameters."
    return (
        f"{what} captures `{path}`, a {kind_name(value)}, which cannot be shipped to another process ({error}). "
        f"{_INSTEAD if _is_reference(value) else instead}"
    )


def refuse_unpicklable(config: Any, *, is_warned: bool = False) -> None:
    """Refuse a config, or a space, that cannot travel to another process; what it holds in buffers is not copied.

    Args:
        is_warned: warn of a large one, which is stored with each trial and in each of its log files.

    Raises:
        ConfigError: something in it cannot be pickled; the message names the innermost such thing by its keys.
    """
    refuse_endless(config)
    why, num_bytes = _measured(config, _FILES)
    if not why:
        if is_warned and num_bytes > WARN_BYTES:
            warnings.warn(
                f"config takes {num_bytes / 1e6:.0f} MB, which are stored anew with each trial. Give large objects to "
                "sweep.with_parameters(trainable, data=...), or load them inside.",
                stacklevel=2,
            )
        return
    path, value = _guilty(config, _FILES)
    instead = "Put what it is made from into the config, such as a path, and create it inside the trainable."
    raise ConfigError(
        f"config{path} is a {kind_name(value)}, which cannot be shipped to another process "
        f"({why_unpicklable(value, _FILES) or why}). {_INSTEAD if _is_reference(value) else instead}"
    )


def why_unpicklable(value: Any, refused: tuple[type, ...] = ()) -> str:
    """Return why a value cannot travel to another process; empty: it can."""
    return _measured(value, refused)[0]


def _measured(value: Any, refused: tuple[type, ...] = ()) -> tuple[str, int]:
    """Return why a value cannot be pickled, empty when it can, and how many bytes it takes."""
    file, sizes = io.BytesIO(), list[int]()

    def note(buffer: pickle.PickleBuffer) -> None:
        sizes.append(buffer.raw().nbytes)

    try:
        pickler_class()(file, refused=refused, buffer_callback=note).dump(value)
    except Exception as error:  # whatever the __reduce__ of the user's objects raises
        return str(error) or type(error).__name__, 0
    return "", file.tell() + sum(sizes)


def _guilty(value: Any, refused: tuple[type, ...] = ()) -> tuple[str, Any]:
    """Return the innermost part of a value that cannot be pickled, and the way to it from the last code before it:
    `lock`, `holder.lock`, `['a'][0]`; the value itself and no way where none of its parts is guilty."""
    way, seen = "", {id(value)}
    for _ in range(_MAX_DEPTH):
        for name, part in _parts(value):
            if id(part) not in seen and why_unpicklable(part, refused):
                step = name if name.startswith(("[", ".")) else f".{name}"
                way = step if isinstance(value, _CODE) else way + step
                seen.add(id(part))
                value = part
                break
        else:
            break
    return way.removeprefix("."), value


def _parts(thing: Any) -> list[tuple[str, Any]]:
    """Return what a value is made of, and what code captures, by name; nothing where the user's own types raise."""
    try:
        if isinstance(thing, functools.partial):
            arguments = ((f"argument {i}", value) for i, value in enumerate(thing.args))
            return [*arguments, *thing.keywords.items(), ("func", thing.func)]
        if inspect.ismethod(thing):
            return [("self", thing.__self__), *_parts(thing.__func__)]
        if inspect.isfunction(thing):
            return [*_variables(thing), *vars(thing).items()]
        if inspect.isclass(thing):
            return list(vars(thing).items())
        if isinstance(thing, Mapping):
            return [(f"[{key!r}]", value) for key, value in thing.items()]
        if isinstance(thing, (list, tuple, set)):
            return [(f"[{i}]", value) for i, value in enumerate(thing)]
        return [(f".{name}", value) for name, value in vars(thing).items()] if hasattr(thing, "__dict__") else []
    except Exception:  # the border to the user's own types
        return []


def store_code(payload: bytes, directory: str | os.PathLike[str]) -> str:
    """Write a trainable's bytes once into `directory`, named by their hash, and return the path."""
    path = os.path.join(directory, f"{hashlib.sha256(payload).hexdigest()}.pkl")
    if not os.path.exists(path):
        write_atomically(path, payload, is_private=True, is_durable=True)
    return path


def is_importable(module: types.ModuleType) -> bool:
    """Whether a fresh interpreter with this `sys.path` would find this very module by its name."""
    name, spec = module.__name__, getattr(module, "__spec__", None)
    if name in sys.builtin_module_names or (spec is not None and spec.origin in ("built-in", "frozen")):
        return True
    found: ModuleSpec | None = None
    path: Any = None
    try:
        for part in itertools.accumulate(name.split("."), "{}.{}".format):
            found = PathFinder.find_spec(part, path)
            if found is None:
                found = _editable_spec(name)
                break
            path = found.submodule_search_locations
    except (ImportError, ValueError, AttributeError):
        return False
    return spec is not None and found is not None and bool(found.origin == spec.origin)


def _editable_spec(name: str) -> ModuleSpec | None:
    """Return the spec of a module of a package that an editable install finds in a way of its own."""
    finders = [finder for finder in sys.meta_path if getattr(finder, "__module__", "").startswith("__editable__")]
    return next((spec for finder in finders if (spec := finder.find_spec(name, None)) is not None), None)


def functions_of(trainable: Any) -> Iterator[Any]:
    """Yield the functions and classes that a trainable consists of: through partials, methods and callable objects."""
    while isinstance(trainable, functools.partial):
        for value in (*trainable.args, *trainable.keywords.values()):
            if inspect.isfunction(value) or inspect.ismethod(value) or isinstance(value, functools.partial):
                yield from functions_of(value)
        trainable = trainable.func
    if inspect.ismethod(trainable):
        yield trainable.__func__
        trainable = trainable.__self__ if inspect.isclass(trainable.__self__) else type(trainable.__self__)
    if inspect.isfunction(trainable):
        yield trainable
        if (wrapped := getattr(trainable, "__wrapped__", None)) is not None:
            yield from functions_of(wrapped)
        return
    cls = trainable if inspect.isclass(trainable) else type(trainable)
    if cls.__module__ == "builtins":
        return
    for base in cls.__mro__:
        if base.__module__ in ("builtins", "abc", "sweep.worker.trainable"):
            continue
        yield base
        for value in vars(base).values():
            function = getattr(value, "__func__", value)
            if inspect.isfunction(function):
                yield function


def main_globals(trainable: Any) -> dict[str, Any]:
    """Return the globals of `__main__` that travelled with a trainable, and its own classes and functions.

    They belong into the `__main__` of the process it arrived in, so that objects of its classes can be pickled there.
    """
    found: dict[str, Any] = {}
    for part in functions_of(trainable):
        if getattr(part, "__module__", None) != "__main__":
            continue
        if inspect.isfunction(part):
            found.update(part.__globals__)
        if "." not in part.__qualname__:
            found[part.__name__] = part
    return {name: value for name, value in found.items() if not (name.startswith("__") and name.endswith("__"))}


def _codes(function: types.FunctionType) -> Iterator[types.CodeType]:
    """Yield the code of a function and of those that are defined in it."""
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes.extend(constant for constant in code.co_consts if isinstance(constant, types.CodeType))
        yield code


def _variables(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the variables around a function that its code names: of the functions that it lies in, and global ones."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue  # not assigned yet
    for code in _codes(function):
        yield from ((name, function.__globals__[name]) for name in code.co_names if name in function.__globals__)
