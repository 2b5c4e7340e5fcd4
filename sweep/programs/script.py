"""Run a Python script as `__main__` in the trial's own process, a fork that has imported what the script imports.

What `python train.py` gives a script it finds here: its own `sys.argv`, `sys.path[0]`, working directory, `__main__`
(whose classes can be pickled, and which processes that are started with `spawn` import again), `sys.exit`, `atexit`.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import logging
import multiprocessing.util
import os
import runpy
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from sweep.errors import UserCodeError
from sweep.programs import hooks
from sweep.programs.feed import Feed
from sweep.programs.files import Files
from sweep.programs.output import Output
from sweep.programs.place import Place, own
from sweep.record.files import write_atomically

if TYPE_CHECKING:
    from sweep.programs.program import Program

WRITTEN_FILE = "written.json"  # in a trial's directory: what the script wrote under names that other trials share
_LOOK_S = 0.125
_MAX_WRITTEN = 1000
_WRITING = os.O_WRONLY | os.O_RDWR


def run_script(program: Program, words: Sequence[str], place: Place, variables: Mapping[str, str], feed: Feed) -> None:
    """Execute a script, or a module as `python -m` does, to its end.

    Args:
        words: what follows the interpreter: the script, or `-m` and the module, and arguments.

    Raises:
        UserCodeError: it ended with a status other than 0. Whatever it raises.
    """
    os.environ.update(variables)
    os.chdir(place.directory)
    for function in (logging.shutdown, multiprocessing.util._exit_function, weakref.finalize._exitfunc):  # type: ignore[attr-defined]
        atexit.register(function)  # a fork has lost what libraries registered before
    with contextlib.ExitStack() as stack:
        watch = _Watch(feed, place, variables["SWEEP_REPORT"])
        stack.callback(watch.end, program.directory)
        hooks.install(watch.take)
        streams: dict[Any, Any] = {getattr(one, "name", one): one for one in (sys.stdout, sys.stderr)}
        for stream in streams.values():
            stack.callback(_look_at(stream, watch), "", is_last=True)
        for handler in [reference() for reference in logging._handlerList]:  # type: ignore[attr-defined]
            if isinstance(handler, logging.StreamHandler):  # of a library imported beforehand: it has those of then
                handler.setStream(streams.get(getattr(handler.stream, "name", None), handler.stream))
        sys.addaudithook(watch.on_audit)
        stack.callback(setattr, os, "_exit", os._exit)
        os._exit = partial(_leave, os._exit, os.getpid())  # type: ignore[assignment]
        try:
            _execute(list(words))
        except SystemExit as error:
            if error.code not in (None, 0):
                status = error.code if isinstance(error.code, int) else f"1: {error.code!s:.500}"
                raise UserCodeError(f"{program.name} ended with status {status}{feed.said()}") from None


def _execute(words: list[str]) -> None:
    """Be `__main__`."""
    main: Any = types.ModuleType("__main__")
    main.__builtins__ = __builtins__
    sys.modules["__main__"] = main
    if words[0] == "-m":
        sys.argv, sys.path[0] = words[1:], os.getcwd()
        runpy._run_module_as_main(words[1])  # type: ignore[attr-defined]  # what `python -m` calls
        return
    path = os.path.abspath(words[0])
    sys.argv, sys.path[0] = words, os.path.dirname(os.path.realpath(path))
    main.__file__, main.__cached__ = path, None
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, main.__dict__)


class _Watch:
    """What is noted while the script runs: what it logs and prints, which files it writes."""

    def __init__(self, feed: Feed, place: Place, report: str) -> None:
        self._feed, self._place = feed, place
        self._pid = os.getpid()
        self._written: set[str] = set()
        self._files = Files([], time.time(), report)
        self._has_files = False  # that are to be looked at while the script runs
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def line(self, text: str) -> None:
        """Take a line that this process has printed."""
        if os.getpid() == self._pid and not self._is_over.is_set():
            self._feed.line(text)
            self._look_later()

    def take(self, values: dict[str, Any], step: float | None, source: str, is_whole: bool) -> None:
        """Take what a library logs."""
        self._feed.take(values, step, source, is_whole)
        self._look_later()

    def on_audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note a file that is opened for writing."""
        if event != "open" or os.getpid() != self._pid or self._is_over.is_set():
            return
        for module in map(sys.modules.get, ("torch", "torch.serialization")):
            save = vars(module).get("save") if module is not None else None
            if save is not None and not hasattr(save, "__wrapped__"):
                vars(module)["save"] = _noting(save, self)
        path, _, flags = arguments
        if flags & _WRITING and isinstance(path, (str, bytes)):
            self.will_write(path, is_old=bool(flags & os.O_APPEND))

    def will_write(self, path: str | bytes, *, is_old: bool = False) -> None:
        """Take the name of a file that is about to be written; what a link shows becomes the trial's own.

        Args:
            is_old: what the file has is no metric of the trial: only what is added.
        """
        path = os.path.abspath(os.fsdecode(path))
        if path in self._written or path.startswith(("/dev/", "/proc/")):
            return
        if len(self._written) < _MAX_WRITTEN:
            self._written.add(path)
        if self._place.is_isolated and path.startswith(self._place.directory + os.sep):
            own(path)
        name = os.path.basename(path)
        if name.endswith(".csv") or "tfevents" in name or path == os.environ.get("SWEEP_REPORT"):
            self._files.follow(path, is_old=is_old)
            self._has_files = True
            self._look_later()

    def _look_later(self) -> None:
        """See to it that what comes in time, and in files, is looked at."""
        if self._thread is None and (self._has_files or self._feed.deadline is not None):
            self._thread = threading.Thread(target=self._run, name="sweep-watch", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._is_over.wait(_LOOK_S):
            self._feed.tick()
            self._feed.read(self._files)

    def end(self, source: str) -> None:
        """The script has ended: read what is left, and say what it wrote in its own directory, where others do, too."""
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()
        self._feed.read(self._files, is_last=True)
        trial = os.path.realpath(os.path.dirname(self._place.checkpoint_dir)) + os.sep
        paths = {os.path.realpath(path) for path in self._written}
        here = os.path.realpath(source) + os.sep
        if shared := sorted(path for path in paths if path.startswith(here) and not path.startswith(trial)):
            write_atomically(trial + WRITTEN_FILE, json.dumps(shared))


def _look_at(stream: Any, watch: _Watch) -> Output:
    """Have the lines that are written to a standard stream looked at; they are flushed before."""
    output, write = Output(watch.line), stream.write

    def written(text: str) -> int:
        count: int = write(text)
        output(text)
        return count

    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(line_buffering=True)
    stream.write = written
    return output


def _leave(exit_at_once: Callable[[int], None], pid: int, status: int) -> None:
    """Be `os._exit`: a script that ends itself with status 0, past threads that hang, has come to its end."""
    if status == 0 and os.getpid() == pid and threading.current_thread() is threading.main_thread():
        atexit._clear()
        threading._shutdown = lambda: None  # type: ignore[attr-defined]  # waits for threads
        raise SystemExit
    exit_at_once(status)


def _noting(save: Any, watch: _Watch) -> Any:
    """Return `torch.save` as it is, but for the name of its file, which torch opens where no hook sees it."""

    @wraps(save)
    def noting(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(f, (str, bytes, os.PathLike)):
            watch.will_write(os.fspath(f))
        return save(obj, f, *args, **kwargs)

    return noting
