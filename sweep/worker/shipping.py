"""How a trainable travels: pickled by value where it cannot be imported, with the guilty variable named when it cannot
travel at all, and with the modules that its processes need found without importing anything."""

from __future__ import annotations

import dis
import functools
import hashlib
import importlib.machinery
import inspect
import io
import itertools
import os
import pickle
import sys
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from sweep.core.config import refuse_endless
from sweep.errors import ConfigError, TrainableError
from sweep.record.files import write_atomically
from sweep.record.importing import is_reached

# Imports inside function bodies are preloaded only for these: measured to be safe to fork after a mere import.
SAFE_TO_PRELOAD = frozenset({"jax", "numpy", "optuna", "pandas", "scipy", "sklearn", "torch"})
_MAX_VISITS = 2000
WARN_BYTES = 10_000_000
_MAX_DEPTH, _MAX_ITEMS = 4, 16  # of the containers among shared objects
_TRAIN = "sweep.train."
_NO_FILE = "<dynamic-code>"  # what cloudpickle calls the file of all code
# What torch itself imports when the first optimizer of a process is built: 1.8 s, in every trial that builds one.
_TORCH_OPTIMIZERS = "torch._dynamo"


def pickle_trainable(trainable: Any) -> bytes:
    """Return `trainable` as cloudpickle bytes; its modules that other processes cannot import are included by value.

    Raises:
        TrainableError: something it refers to cannot be pickled; the message names the variable.
    """
    import cloudpickle

    registered: list[types.ModuleType] = []
    for part in functions_of(trainable):
        module = sys.modules.get(getattr(part, "__module__", None) or "")
        if module is None or module.__name__ == "__main__" or module in registered:
            continue
        if not (is_importable(module) and is_reached(module.__name__, part.__qualname__)):
            cloudpickle.register_pickle_by_value(module)
            registered.append(module)
    try:
        payload = _pickled_by_value(trainable)
        if "ray" in sys.modules and (why := _measured(trainable)[0]) is not None:  # a reference of Ray's travels so far
            raise TypeError(why)
        return payload
    except Exception as error:  # whatever the __reduce__ of a captured object raises
        kind = "class" if inspect.isclass(trainable) else "function" if inspect.isfunction(trainable) else "trainable"
        name = getattr(trainable, "__name__", type(trainable).__name__)
        way = _way_to_guilty(trainable, _captured)
        if not way:
            raise TrainableError(
                f"the {kind} {name} cannot be shipped to another process: {error}. Create what it needs inside it."
            ) from error
        variable, value = way[-1]
        holder, whole = next((one for one in way if not isinstance(one[1], _CODE)), way[-1])
        inside = "" if whole is value else f" of `{holder}`, a {_type_name(whole)}"
        instead = f"Create it inside the {kind}; give large data by sweep.with_parameters."
        raise TrainableError(
            f"the {kind} {name} captures `{variable}`, a {_type_name(value)}{inside}, which cannot be shipped to "
            f"another process ({error}). {_INSTEAD if is_reference(value) else instead}"
        ) from error
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)


def _pickled_by_value(trainable: Any) -> bytes:
    """Return what `cloudpickle.dumps` does, with the names of files: since its version 3.1.3 it leaves them out, and
    tracebacks would show no line of the user's."""
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, thing: Any) -> Any:
            if type(thing) is not types.CodeType:
                return super().reducer_override(thing)
            make, given = self.dispatch_table[types.CodeType](thing)
            return make, tuple(thing.co_filename if isinstance(one, str) and one == _NO_FILE else one for one in given)

    file = io.BytesIO()
    Pickler(file).dump(trainable)
    return file.getvalue()


def refuse_unpicklable(config: Any, *, is_warned: bool = False) -> None:
    """Refuse a config, or a space, that cannot travel to another process; what it holds in buffers is not copied.

    Args:
        is_warned: warn of a large one, which is stored with each trial and in each of its log files.

    Raises:
        ConfigError: something in it cannot be pickled; the message names the innermost such thing by its keys.
    """
    refuse_endless(config)
    why, num_bytes = _measured(config, _FILES)
    if why is None:
        if is_warned and num_bytes > WARN_BYTES:
            warnings.warn(
                f"config takes {num_bytes / 1e6:.0f} MB, which are stored anew with each trial. Give large objects to "
                "sweep.with_parameters(trainable, data=...), or load them inside.",
                stacklevel=2,
            )
        return
    way = _way_to_guilty(config, _pieces, _FILES)
    value = way[-1][1] if way else config
    why = _measured(value, _FILES)[0] or why
    instead = (
        "Put what it is made from into the config, such as a path or a number, and create it inside the trainable."
    )
    raise ConfigError(
        f"config{''.join(name for name, _ in way)} is a {_type_name(value)}, which cannot be shipped to another "
        f"process ({why}). {_INSTEAD if is_reference(value) else instead}"
    )


def is_reference(value: Any) -> bool:
    """Whether a value stands for an object in Ray's store, which trials, no processes of Ray's, cannot read."""
    return type(value).__name__ == "ObjectRef" and type(value).__module__.partition(".")[0] == "ray"


_CODE = (types.FunctionType, types.MethodType, types.ModuleType, functools.partial, type)  # leads to what is captured
UNREADABLE = "trials are no processes of Ray's, and cannot read what it stands for"
_INSTEAD = "Give them the object itself: sweep.with_parameters(trainable, data=ray.get(ref))."


def can_pickle(value: Any) -> bool:
    """Whether a value can travel to another process."""
    return _measured(value)[0] is None


def _way_to_guilty(
    value: Any, parts_of: Callable[[Any], Iterable[tuple[str, Any]]], refused: tuple[type, ...] = ()
) -> list[tuple[str, Any]]:
    """Return the names and values that lead to the innermost part of a value that cannot be pickled."""
    way: list[tuple[str, Any]] = []
    seen = {id(value)}
    while sum(len(name) for name, _ in way) < _LONGEST_WAY:
        for name, part in _safely(parts_of, value):
            if id(part) not in seen and _measured(part, refused)[0] is not None:
                way.append((name, part))
                seen.add(id(part))
                value = part
                break
        else:
            break
    return way


def _safely(parts_of: Callable[[Any], Iterable[tuple[str, Any]]], value: Any) -> list[tuple[str, Any]]:
    try:
        return list(parts_of(value))
    except Exception:  # the border to the user's own types
        return []


class _Counter:
    """A file that keeps nothing but how much was written."""

    def __init__(self) -> None:
        self.num_bytes = 0

    def write(self, data: Any) -> int:
        self.num_bytes += len(data)
        return len(data)


def _measured(value: Any, refused: tuple[type, ...] = ()) -> tuple[str | None, int]:
    """Return why a value cannot be pickled, None when it can, and how many bytes it takes.

    Args:
        refused: types of which cloudpickle would send something else than what they are.
    """
    if _is_plain(value):
        return None, 0
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, thing: Any) -> Any:
            if is_reference(thing):
                raise TypeError(UNREADABLE)
            if isinstance(thing, refused):
                raise TypeError(f"cannot pickle {type(thing).__name__!r} object")
            return super().reducer_override(thing)

    counter = _Counter()

    def count(buffer: pickle.PickleBuffer) -> None:
        counter.num_bytes += buffer.raw().nbytes

    try:
        Pickler(counter, protocol=5, buffer_callback=count).dump(value)
    except Exception as error:  # whatever the __reduce__ of the user's objects raises
        return str(error) or type(error).__name__, 0
    return None, counter.num_bytes


# cloudpickle would send what can be read from them.
_FILES = (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO)
_LONGEST_WAY = 500  # characters of what leads to a value, when nothing comes to an end
_PLAIN = frozenset({bool, bytes, complex, float, int, str, type(None)})


def _is_plain(value: Any, depth: int = 0) -> bool:
    """Whether a value is made of numbers and texts alone, as most configs are."""
    kind = type(value)
    if depth > 100:
        return False  # the pickler says whether that is too deep
    if kind is dict:
        return all(
            type(key) in _PLAIN and (type(item) in _PLAIN or _is_plain(item, depth + 1)) for key, item in value.items()
        )
    if kind is list or kind is tuple:
        return all(type(item) in _PLAIN or _is_plain(item, depth + 1) for item in value)
    return kind in _PLAIN


def _pieces(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a value is made of, with the code that leads there."""
    if isinstance(value, Mapping):
        yield from ((f"[{key!r}]", item) for key, item in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((f"[{index}]", item) for index, item in enumerate(value))
    elif not isinstance(value, (type, types.ModuleType)):
        yield from ((f".{name}", item) for name, item in getattr(value, "__dict__", {}).items())


def store_code(payload: bytes, directory: str | os.PathLike[str]) -> str:
    """Write a trainable's bytes once into `directory`, named by their hash, and return the path."""
    path = os.path.join(directory, f"{hashlib.sha256(payload).hexdigest()}.pkl")
    if not os.path.exists(path):
        write_atomically(path, payload, is_private=True, is_durable=True)
    return path


def is_importable(module: types.ModuleType) -> bool:
    """Whether a fresh interpreter with this `sys.path` would find this very module by its name."""
    name = module.__name__
    spec = getattr(module, "__spec__", None)
    if name in sys.builtin_module_names or (spec is not None and spec.origin in ("built-in", "frozen")):
        return True
    if spec is None:
        return False
    path: Any = None
    found: Any = None
    full = ""
    for part in name.split("."):
        full = f"{full}.{part}" if full else part
        try:
            found = importlib.machinery.PathFinder.find_spec(full, path)
        except (ImportError, ValueError, AttributeError):
            return False
        if found is None:
            # An editable install may use a finder of its own; trust it for packages that it has loaded.
            return _is_found_elsewhere(name, spec)
        path = found.submodule_search_locations
    return bool(found.origin == spec.origin)


def _is_found_elsewhere(name: str, spec: importlib.machinery.ModuleSpec) -> bool:
    for finder in sys.meta_path:
        if finder is importlib.machinery.PathFinder or not getattr(finder, "__module__", "").startswith("__editable__"):
            continue
        try:
            found = finder.find_spec(name, None)
        except (ImportError, AttributeError):
            continue
        if found is not None and found.origin == spec.origin:
            return True
    return False


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


def referenced_modules(trainable: Any, objects: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """Return the names of modules that a trainable refers to and that are loaded and importable here, sorted.

    Those are the modules of its functions, of the functions, classes and objects that they name, followed through code
    that is shipped by value; imports inside function bodies count for libraries that are known to be safe to fork.

    Args:
        objects: that the trainable is given; what their classes need is needed, too, to load them.
    """
    names: set[str] = set()
    seen: set[int] = set()
    waiting: list[Any] = list(functions_of(trainable))
    own = {id(part) for part in waiting}
    waiting.extend(_parts_of(objects or {}))
    seen_functions: list[types.FunctionType] = []
    while waiting and len(seen) < _MAX_VISITS:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, types.ModuleType):
            names.add(thing.__name__)
            continue
        subject = thing if hasattr(thing, "__qualname__") else type(thing)
        module = getattr(subject, "__module__", None)
        if not isinstance(module, str):
            continue
        loaded = sys.modules.get(module)
        if module != "__main__" and not _is_by_value(subject, loaded):
            names.add(module)
            if id(thing) not in own and loaded is not None and is_importable(loaded):
                continue  # its own module brings what it needs
        if inspect.isfunction(thing):
            seen_functions.append(thing)
            waiting.extend(_named_by(thing, names))
        elif inspect.isclass(thing):
            waiting.extend(functions_of(thing))
            waiting.extend(thing.__mro__[1:])
        elif not isinstance(thing, (str, bytes, int, float, list, dict, tuple, set)):
            waiting.append(type(thing))
    wanted = {name for name in names if _is_wanted(name)}
    if any(name.partition(".")[0] == "torch" for name in wanted) and any(map(_names_an_optimizer, seen_functions)):
        wanted.add(_TORCH_OPTIMIZERS)
    return tuple(sorted(wanted))


def _parts_of(container: Any, depth: int = 0) -> Iterator[Any]:
    """Yield what containers hold that is no container; of each only the first items, which are mostly like the rest."""
    if isinstance(container, (str, bytes)) or type(container) in (int, float, bool, complex):
        return
    if isinstance(container, (dict, list, tuple, set, frozenset)) and depth < _MAX_DEPTH:
        values = container.values() if isinstance(container, dict) else container
        for value in itertools.islice(values, _MAX_ITEMS):
            yield from _parts_of(value, depth + 1)
    if type(container).__module__ != "builtins":
        yield container


def _names_an_optimizer(function: types.FunctionType) -> bool:
    """Whether the code of a function names `optim`, or something that comes from `torch.optim`."""
    for code in _codes(function):
        for name in code.co_names:
            home = getattr(function.__globals__.get(name), "__module__", None) or ""
            if name == "optim" or str(home).startswith("torch.optim"):
                return True
    return False


def names_attribute(function: types.FunctionType, owner: type, attribute: str) -> bool:
    """Whether the code of a function says `owner.attribute`, the owner being global or a name of a global module."""
    for code in _codes(function):
        found: Any = None
        for instruction in dis.get_instructions(code):
            name = str(instruction.argval)
            if instruction.opname == "LOAD_GLOBAL":
                found = function.__globals__.get(name)
            elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                if found is owner and name == attribute:
                    return True
                found = getattr(found, name, None) if isinstance(found, types.ModuleType) else None
    return False


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


def _is_by_value(thing: Any, module: types.ModuleType | None) -> bool:
    """Whether a function or class travels by value although its module can be imported, as local functions do."""
    found: Any = module
    for part in getattr(thing, "__qualname__", "<none>").split("."):
        found = getattr(found, part, None)
    return found is not thing


def _is_wanted(name: str) -> bool:
    if name.startswith(_TRAIN):
        return True  # a `fit()` inside the trial
    if name.partition(".")[0] in ("__main__", "builtins", "sweep", "searchers", "pytest", "_pytest"):
        return False
    if name in SAFE_TO_PRELOAD:
        return True
    module = sys.modules.get(name)
    return module is not None and is_importable(module)


def _named_by(function: types.FunctionType, imports: set[str]) -> Iterator[Any]:
    """Yield the objects that the code of a function names, and note the libraries that it imports inside."""
    yield from (value for _, value in _variables(function))
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    for code in _codes(function):
        for instruction in dis.get_instructions(code):
            if instruction.opname == "IMPORT_NAME" and str(instruction.argval).partition(".")[0] in SAFE_TO_PRELOAD:
                imports.add(str(instruction.argval).partition(".")[0])


def _captured(thing: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, functools.partial):
        yield from ((f"argument {i}", value) for i, value in enumerate(thing.args))
        yield from thing.keywords.items()
        yield "func", thing.func
    elif inspect.ismethod(thing):
        yield "self", thing.__self__
        yield from _captured(thing.__func__)
    elif inspect.isfunction(thing):
        yield from _variables(thing)
        yield from vars(thing).items()
    elif inspect.isclass(thing):
        yield from vars(thing).items()
    elif isinstance(thing, dict):
        yield from ((repr(key), value) for key, value in thing.items())
    elif isinstance(thing, (list, tuple, set)):
        yield from ((f"element {i}", value) for i, value in enumerate(thing))
    elif hasattr(thing, "__dict__"):
        yield from vars(thing).items()


def _type_name(value: Any) -> str:
    kind = type(value)
    try:
        return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    except Exception:  # a metaclass of the user's
        return "object"
