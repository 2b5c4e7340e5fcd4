"""Importing and unpickling the user's code without starting the user's sweep.

A script that defines a trainable often calls `run` below it, without a guard. Where this package imports such a file
(in advance for all trials, in a fresh worker, for a target on the command line, for the pickles of a saved spec), that
call must not start a sweep inside a sweep. So the first such call ends the execution of its module there, and the
module stays as it is:

    with importing():            what loads source files catches DriverCalled
        import train             the module runs ... `sweep.run(...)` -> end_module() raises DriverCalled
                                 the loader of the innermost module catches it, and remembers the line

Code that swallows the exception goes on, and gets it again at the next call. The user's own imports are not concerned.
"""

from __future__ import annotations

import contextlib
import importlib.util
import linecache
import os
import pickle
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator
from importlib.machinery import SourceFileLoader
from types import FrameType, ModuleType
from typing import Any, NamedTuple

_MAX_SOURCE = 80
_PARENT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_OURS = (os.path.join(_PARENT, "sweep", ""), os.path.join(_PARENT, "searchers", ""))
_ENDS = "The file is imported for what it defines, and an import starts no sweep: it ends there."


class Call(NamedTuple):
    """Where a module called what starts a sweep; `function` is that, when its source cannot be read."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        source = linecache.getline(self.file, self.line).strip() or self.function
        return f"{os.path.basename(self.file)}, line {self.line}, starts a sweep: {source[:_MAX_SOURCE]!r}"


class DriverCalled(BaseException):
    """Ends the execution of a module that starts a sweep while this package imports it.

    Not an `Exception`, so that `except Exception` around the call does not swallow it.
    """

    def __init__(self, call: Call) -> None:
        super().__init__(f"{call}. {_ENDS}")
        self.call = call


class _Here(threading.local):
    """How many imports by us are open on this thread."""

    depth = 0


_here = _Here()
_lock = threading.Lock()
_num_open = 0
_before: set[threading.Thread] = set()  # the program's own threads, while imports by us are open
_started: weakref.WeakSet[threading.Thread] = weakref.WeakSet()  # threads that modules started meanwhile
_ended: dict[str, Call] = {}
_reached: dict[str, frozenset[str]] = {}  # by module: what was defined at its first call of a driver
_loader: Any = SourceFileLoader
_execute = _loader.exec_module


def _execute_up_to_call(self: SourceFileLoader, module: ModuleType) -> None:
    """Take the place of `SourceFileLoader.exec_module`. What other loaders load (archives, an import hook of the
    user's) is ended with the module that imports it."""
    try:
        _execute(self, module)
    except DriverCalled as ended:
        _ended[module.__name__] = ended.call


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Have calls of drivers end the module that is imported, while this is open.

    It concerns the thread that opened it, and threads that are started meanwhile, also after it was closed: threads
    that the program had before go on as they are.

    Raises:
        DriverCalled: the call was in no module that is imported here: in code that `exec` ran, for instance.
    """
    global _num_open
    with _lock:
        if _num_open == 0:
            _before.update(threading.enumerate())
            _loader.exec_module = _execute_up_to_call
        _num_open += 1
    _here.depth += 1
    try:
        yield
    finally:
        _here.depth -= 1
        with _lock:
            _num_open -= 1
            if _num_open == 0:
                _started.update(thread for thread in threading.enumerate() if thread not in _before)
                _before.clear()
                _loader.exec_module = _execute


def end_module(function: str) -> None:
    """End the module that is imported by us, if there is one; what starts a sweep calls this first.

    A module that is imported by others goes on, and what it has defined by now is remembered: an import of ours will
    end here.

    Args:
        function: what was called, as people write it.

    Raises:
        DriverCalled: this call is made by an import of ours, and must not start anything.
    """
    thread, frame = threading.current_thread(), sys._getframe(1)
    if _here.depth or thread in _started or (_num_open and thread not in _before):
        raise DriverCalled(_call(frame, function))
    module: FrameType | None = frame
    while module is not None and module.f_code.co_name != "<module>":
        module = module.f_back
    if module is not None:
        _reached.setdefault(str(module.f_globals.get("__name__")), frozenset(module.f_globals))


def is_reached(module: str, qualname: str) -> bool:
    """Whether an import of ours would find this in a module that is loaded here: not below its first sweep."""
    names = _reached.get(module)
    return names is None or qualname.partition(".")[0] in names


def _call(frame: FrameType | None, function: str) -> Call:
    """Return the innermost place outside our packages."""
    while frame is not None and os.path.abspath(frame.f_code.co_filename).startswith(_OURS):
        frame = frame.f_back
    return Call("?", 0, function) if frame is None else Call(frame.f_code.co_filename, frame.f_lineno, function)


def load_file(name: str, path: str | os.PathLike[str]) -> ModuleType:
    """Import a file as the module `name`, whatever its own name is.

    Raises:
        ImportError: it is no source file. Whatever the file raises.
    """
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{os.fspath(path)} cannot be imported as Python", path=os.fspath(path))
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        with importing():
            spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def unpickle(data: Any, buffers: Iterable[Any] | None = None) -> Any:
    """Return what was pickled; modules that this imports start no sweep.

    Raises:
        ImportError, AttributeError: something is not there; a note says so when its module was ended before that.
    """
    with importing():
        try:
            return pickle.loads(data, buffers=buffers)
        except DriverCalled as ended:
            raise ImportError(str(ended)) from ended
        except (ImportError, AttributeError) as error:
            why = why_missing(error)
            if not why:
                raise
            kind = ImportError if isinstance(error, ImportError) else AttributeError
            raise kind(f"{error}. {why}") from error


def ended_at(module: str) -> Call | None:
    """Return the call that ended a module which was imported here; None: it was executed to its end."""
    return _ended.get(module)


def why_missing(error: BaseException | None) -> str:
    """Say that what an error misses stands below the call that ended its module; empty: it does not come from that."""
    while error is not None:
        call = next((call for name, call in _ended.items() if name in _modules_of(error)), None)
        if call is not None:
            advice = "Define what is missing above that line, or put the call under `if __name__ == '__main__':`."
            return f"{call}. {_ENDS} {advice}"
        error = error.__cause__ or error.__context__
    return ""


def _modules_of(error: BaseException) -> set[str]:
    """Return the names of modules in which an error misses something."""
    if isinstance(error, NameError):
        tail = error.__traceback__
        while tail is not None and tail.tb_next is not None:
            tail = tail.tb_next
        return set() if tail is None else {str(tail.tb_frame.f_globals.get("__name__"))}
    if isinstance(error, ImportError) and error.name:
        return {error.name}
    return set(str(error).replace('"', "'").split("'")) if isinstance(error, (ImportError, AttributeError)) else set()
