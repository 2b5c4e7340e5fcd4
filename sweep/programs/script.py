"""Run a Python script as `__main__` in the trial's own process, a fork that has imported what the script imports.

What `python train.py` gives a script it finds here: its own `sys.argv`, `sys.path[0]`, working directory, `__main__`
(whose classes can be pickled, and which processes that are started with `spawn` import again), `sys.exit`, `atexit`.
"""

from __future__ import annotations

import atexit
import functools
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
from collections.abc import Mapping, Sequence
from importlib.machinery import SourceFileLoader
from typing import TYPE_CHECKING, Any

from sweep.errors import UserCodeError
from sweep.programs import hooks
from sweep.programs.feed import Feed
from sweep.programs.files import Files
from sweep.programs.place import Place, own
from sweep.record.files import write_atomically

if TYPE_CHECKING:
    from sweep.programs.run import Launch

WRITTEN_FILE = "written.json"  # in a trial's directory: what the script wrote under names that other trials share
_LOOK_S = 0.25
_MAX_WRITTEN = 1000
_FLUSHED_LINES = 1000  # in a second: what is printed can be followed; a flood is written in blocks
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC


def run_script(launch: Launch, words: Sequence[str], place: Place, variables: Mapping[str, str], feed: Feed) -> None:
    """Execute a script, or a module as `python -m` does, to its end.

    Args:
        words: the script, or the module, and its arguments.

    Raises:
        UserCodeError: it ended with a status other than 0. Whatever it raises.
    """
    os.environ.update(variables)
    os.chdir(place.directory)
    watch = _Watch(feed, place, launch.directory)
    hooks.install(watch.take)
    for function in (logging.shutdown, multiprocessing.util._exit_function, weakref.finalize._exitfunc):  # type: ignore[attr-defined]
        atexit.register(function)  # a fork has lost what libraries registered before
    streams = [_Tee(sys.stdout, watch), _Tee(sys.stderr, watch)]
    handlers: Any = logging
    for handler in [reference() for reference in handlers._handlerList]:  # of libraries that were imported beforehand
        if isinstance(handler, logging.StreamHandler) and (number := _number(vars(handler).get("stream"))):
            handler.setStream(streams[number - 1])
    sys.stdout, sys.stderr = streams
    sys.addaudithook(watch.on_audit)
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.save = torch.serialization.save = _noting(torch.save, watch)
    try:
        _execute(launch, list(words))
    except SystemExit as error:
        if error.code not in (None, 0):
            raise UserCodeError(f"{launch.name} ended with {_status(error.code)}{feed.said()}") from None
    finally:
        watch.end()
        for stream in streams:
            stream.end()


def _execute(launch: Launch, words: list[str]) -> None:
    """Be `__main__`."""
    main: Any = types.ModuleType("__main__")
    main.__builtins__ = __builtins__
    sys.modules["__main__"] = main
    sys.argv = words
    if launch.is_module:
        sys.path[0] = os.getcwd()
        runpy._run_module_as_main(launch.script)  # type: ignore[attr-defined]  # what `python -m` calls
        return
    path = os.path.join(os.getcwd(), launch.script)
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    loader = SourceFileLoader("__main__", path)
    code = loader.source_to_code(loader.get_data(path), path)
    main.__file__, main.__loader__, main.__spec__, main.__cached__ = path, loader, None, None
    exec(code, main.__dict__)


class _Watch:
    """What is noted while the script runs: what it logs, which files it writes."""

    def __init__(self, feed: Feed, place: Place, source: str) -> None:
        self._feed, self._place, self._source = feed, place, source
        self._pid = os.getpid()
        self._written: set[str] = set()
        self._files: Files | None = None
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_noting = False

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
        if event != "open" or self._is_noting or os.getpid() != self._pid or self._is_over.is_set():
            return
        path, mode, flags = arguments
        is_writing = any(letter in mode for letter in "wax+") if isinstance(mode, str) else flags & _WRITING
        if is_writing and isinstance(path, (str, bytes)) and len(self._written) < _MAX_WRITTEN:
            self.will_write(path)

    def will_write(self, path: str | bytes) -> None:
        """Take the name of a file that is about to be written; what a link shows becomes the trial's own."""
        self._is_noting = True
        try:
            self._note(os.path.abspath(os.fsdecode(path)))
        finally:
            self._is_noting = False

    def _note(self, path: str) -> None:
        if path in self._written or path.startswith(("/dev/", "/proc/")):
            return
        if self._place.is_isolated and path.startswith(self._place.directory + os.sep):
            own(path)
        self._written.add(path)
        name = os.path.basename(path)
        if name.endswith(".csv") or "tfevents" in name or path == os.environ.get("SWEEP_REPORT"):
            self._files = self._files or Files([], time.time(), os.environ.get("SWEEP_REPORT", ""))
            self._files.follow(path)
            self._start()

    def _look_later(self) -> None:
        if self._feed.deadline is not None:
            self._start()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="sweep-watch", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._is_over.wait(_LOOK_S / 2):
            self._feed.tick()
            self._read_files()

    def _read_files(self, *, is_last: bool = False) -> None:
        if self._files is not None:
            self._feed.read(self._files, is_last=is_last)

    def end(self) -> None:
        """The script has ended: read what is left, and say what it wrote where other trials write, too."""
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()
        self._read_files(is_last=True)
        trial = os.path.realpath(os.path.dirname(self._place.checkpoint_dir)) + os.sep
        paths = {os.path.realpath(path) for path in self._written}
        here = os.path.realpath(self._source) + os.sep
        if shared := sorted(path for path in paths if path.startswith(here) and not path.startswith(trial)):
            write_atomically(trial + WRITTEN_FILE, json.dumps(shared))


class _Tee(io.TextIOWrapper):
    """A standard stream whose lines are also looked at."""

    def __init__(self, stream: Any, watch: _Watch) -> None:
        super().__init__(
            stream.buffer,
            encoding=stream.encoding,
            errors=stream.errors,
            newline="\n",
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        self._stream = stream  # kept: it would close the buffer
        self._watch = watch
        self._rest = ""
        self._since, self._num_lines = 0.0, 0

    def write(self, text: str) -> int:
        """Write a text, and look at the lines that it completes."""
        count = super().write(text)
        if "\n" in text or "\r" in text:
            *lines, self._rest = (self._rest + text).replace("\r", "\n").split("\n")
            self._num_lines += len(lines)
            if time.monotonic() > self._since + 1:
                self._since, self._num_lines = time.monotonic(), 0
            if self._num_lines < _FLUSHED_LINES:
                self.flush()
            for line in lines:
                if line:
                    self._watch.line(line)
        else:
            self._rest = self._rest[-10_000:] + text
        return count

    def end(self) -> None:
        """Look at what was printed without an end of line."""
        rest, self._rest = self._rest, ""
        if rest:
            self._watch.line(rest)


def _noting(save: Any, watch: _Watch) -> Any:
    """Return `torch.save` as it is, but for the name of its file, which torch opens where no hook sees it."""

    @functools.wraps(save)
    def noting(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(f, (str, bytes, os.PathLike)):
            watch.will_write(os.fspath(f))
        return save(obj, f, *args, **kwargs)

    return noting


def _number(stream: Any) -> int:
    """Return 1 or 2 for a standard stream, else 0."""
    try:
        number = int(stream.fileno())
    except (OSError, ValueError, AttributeError):  # without a descriptor, or closed
        return 0
    return number if number in (1, 2) else 0


def _status(code: Any) -> str:
    return f"status {code}" if isinstance(code, int) else f"status 1: {code!s:.500}"
