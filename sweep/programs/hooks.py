"""Reads what a program logs with wandb, mlflow, TensorBoard, tensorboardX, trackio or aim, where it logs it.

The library's own call is made first, then its numbers are given to one function. Lightning's and Hugging Face's loggers
come through these libraries. In a trial's own process `install` hooks them; in other interpreters `connect` does, which
`injected/sitecustomize.py` calls. This file stands alone, since those may be older (Python 3.8) and without `sweep`,
and it loads whatever Python has not loaded yet only when that is needed.
"""

from __future__ import annotations

import os
import sys
from _thread import RLock, get_ident

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    Emit = Callable[[dict[str, Any], Any, str, bool], None]
    Found = tuple[Mapping[str, Any], Any, bool]  # values, step, whether that is all of the step
    Reader = Callable[..., Iterable[Found]]  # takes the arguments of a method

RANK_VARIABLES = ("RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")

_emit: Emit | None = None
_pid = 0  # of the process that gives what it logs; its forks do not
_inherited: dict[str, str | None] = {}  # rank variables that were set before the program began
_hooked: set[str] = set()
_silent: set[str] = set()  # libraries of which was said that they cannot be read
_busy: set[int] = set()  # threads inside a hooked call: what that calls in turn is not given a second time


def install(emit: Emit) -> None:
    """Hook the libraries that are imported, and those that will be.

    Called again, it only replaces `emit`. Only this process emits, not its forks, and of a group of ranks only rank 0.
    A rank variable that is set already is not the program's, and says nothing.

    Args:
        emit: called as `emit(values, step, source, is_whole)` after the library's own call: numbers by name, the step
            if the program gave one, the library, and whether nothing more comes for the step. What it raises passes on.
    """
    global _emit, _pid, _inherited
    _emit, _pid = emit, os.getpid()
    _inherited = {name: os.environ.get(name) for name in RANK_VARIABLES}
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    for name in _HOOKS:
        if name in sys.modules:
            _hook(sys.modules[name])


def installed() -> set[str]:
    """Return the libraries that are imported and hooked."""
    return set(_hooked)


def connect(path: str) -> None:
    """Send what this interpreter logs to a Unix socket, a line of JSON each, and wait for a line of answer.

    `sweep.report` is sent, too: there is no session here. A socket that is gone is silence.
    """
    global _inherited
    _HOOKS["sweep.worker.session"] = ("sweep", "", {"report": _report})
    install(_Connection(path).emit)
    _inherited = {}  # the launcher that set them was started by the program


def rank() -> int:
    """Return the number of this process in its group; 0: alone, or first."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return int(distributed.get_rank())
        values = [os.environ.get(name) for name in RANK_VARIABLES if os.environ.get(name) != _inherited.get(name)]
        return int(next(filter(None, values), 0))
    except Exception:  # half imported, or no number: it is not known to be another than the first
        return 0


class _Connection:
    """A socket that is connected at the first message."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._stream: Any = None
        self._is_gone = False
        self._lock = RLock()  # a signal handler may log while its thread waits: that is not sent

    def emit(self, values: dict[str, Any], step: Any, source: str, is_whole: bool) -> None:
        import json
        import socket

        with self._lock:
            if self._is_gone:
                return
            self._is_gone = True  # until it has answered
            try:
                if self._stream is None:
                    connection = socket.socket(socket.AF_UNIX)
                    connection.connect(self._path)
                    self._stream = connection.makefile("rw")
                json.dump({"values": values, "step": step, "source": source, "whole": is_whole}, self._stream)
                self._stream.write("\n")
                self._stream.flush()
                self._is_gone = not self._stream.readline()
            except OSError:
                return


class _Finder:
    """Finds the modules of the table as Python does, and has them hooked when they were executed."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        if name not in _HOOKS:
            return None
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                _hook(module)

            # Of this one only: a loader around it would lack what others ask it for.
            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _hook(module: Any) -> None:
    """Replace the methods of the table; one that a version of the library lacks is not called either."""
    library, owner, readers = _HOOKS[module.__name__]
    if library == "sweep":
        module._has_warned = True  # of having no session
    place = getattr(module, owner, None) if owner else module
    for name, read in readers.items():
        if hasattr(place, name):
            _replace(place, name, library, read)
            _hooked.add(library)


def _replace(place: Any, name: str, library: str, read: Reader) -> None:
    import functools

    call = getattr(place, name)
    if hasattr(call, "_is_read"):
        return

    @functools.wraps(call)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        thread = get_ident()
        if thread in _busy or os.getpid() != _pid:
            return call(*args, **kwargs)
        _busy.add(thread)
        try:
            result = call(*args, **kwargs)
        finally:
            _busy.discard(thread)
        if rank() == 0:
            try:
                found = [(_numbers(values, library), *rest) for values, *rest in read(*args, **kwargs)]
            except Exception as error:  # arguments of another version
                _say(library, error)
                return result
            for values, step, is_whole in found:
                if values and _emit is not None:
                    _emit(values, _number(step), library, is_whole)
        return result

    hooked._is_read = True  # type: ignore[attr-defined]
    is_bound = hasattr(call, "__self__")  # a class method
    setattr(place, name, staticmethod(hooked) if is_bound else hooked)
    for package in map(sys.modules.get, ("mlflow", "mlflow.tracking")):  # they have the functions under their own names
        if package is not None and vars(package).get(name) is call:
            setattr(package, name, hooked)


def _say(library: str, error: Exception) -> None:
    if library not in _silent:
        _silent.add(library)
        sys.stderr.write(f"sweep: what is logged with {library} cannot be read: {error!r}\n")


def _number(value: Any) -> Any:
    """Return a scalar of any library as a number of Python; None for everything else."""
    if value is None or type(value) in (float, int, bool):
        return value
    try:
        value = value.item() if hasattr(value, "item") else None if isinstance(value, (str, bytes)) else float(value)
    except Exception:  # an image, an array: each library has its own error for what is no scalar
        return None
    return value if type(value) in (float, int, bool) else None


def _numbers(values: Mapping[str, Any], library: str, prefix: str = "") -> dict[str, Any]:
    """Return the numbers; those of dicts in it under joined names, as the library shows them."""
    numbers: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            join = "/" if library == "sweep" else "."
            numbers.update(_numbers(value, library, f"{prefix}{name}{join}"))
        elif _number(value) is not None:
            numbers[f"{prefix}{name}"] = _number(value)
    return numbers


def _run_log(run: Any, data: Any, step: Any = None, commit: Any = None, sync: Any = None) -> list[Found]:
    return [(data, step, step is None if commit is None else bool(commit))]


def _batch(client: Any, run_id: str, metrics: Iterable[Any] = (), *args: Any, **kwargs: Any) -> list[Found]:
    steps: dict[Any, dict[str, Any]] = {}  # one batch may have many
    for metric in metrics:
        steps.setdefault(metric.step, {})[metric.key] = metric.value
    return [(values, step, True) for step, values in steps.items()]


def _track(run: Any, value: Any, name: Any = None, step: Any = None, epoch: Any = None, context: Any = None) -> Any:
    prefix = f"{context['subset']}/" if context and "subset" in context else ""  # tells "train" from "val"
    values = value if isinstance(value, dict) else {name: value}
    return [({f"{prefix}{key}": values[key] for key in values}, epoch if step is None else step, False)]


def _report(metrics: Any = None, *, checkpoint: Any = None, **more: Any) -> list[Found]:
    return [({**(metrics if isinstance(metrics, dict) else {"_metric": metrics}), **more}, None, True)]


_SUMMARY: dict[str, Reader] = {  # which is all that older versions update when they are disabled
    "update": lambda _, values: [(values, None, False)],
    "__setitem__": lambda _, name, value: [({name: value}, None, False)],
}
_CLIENT: dict[str, Reader] = {
    "log_metric": lambda _, run_id, key, value, timestamp=None, step=None, *a, **k: [({key: value}, step, False)],
    "log_batch": _batch,
}
_FLUENT: dict[str, Reader] = {  # what is not logged by a client; those get a 0 for a step that was not given
    "log_metric": lambda key, value, step=None, *a, **k: [({key: value}, step, False)],
    "log_metrics": lambda metrics, step=None, *a, **k: [(metrics, step, True)],
}
_WRITER: dict[str, Reader] = {
    "add_scalar": lambda _, tag, scalar_value, global_step=None, *a, **k: [({tag: scalar_value}, global_step, False)],
    "add_scalars": lambda _, main_tag, tag_scalar_dict, global_step=None, *a, **k: [
        ({f"{main_tag}/{tag}": value for tag, value in tag_scalar_dict.items()}, global_step, False)
    ],
}
# By module: the library, the class (none: functions of the module), and its methods.
_HOOKS: dict[str, tuple[str, str, dict[str, Reader]]] = {
    "wandb.sdk.wandb_run": ("wandb", "Run", {"log": _run_log}),
    "wandb.sdk.wandb_summary": ("wandb", "Summary", _SUMMARY),
    "wandb.sdk.lib.noop_run": ("wandb", "NoopRun", {"log": _run_log}),
    "wandb.sdk.lib.disabled": ("wandb", "SummaryDisabled", _SUMMARY),
    "mlflow.tracking.client": ("mlflow", "MlflowClient", _CLIENT),
    "mlflow.tracking.fluent": ("mlflow", "", _FLUENT),
    "mlflow.models.model": ("mlflow", "Model", {"log": lambda *a, **k: []}),  # logs the metrics of the run once more
    "torch.utils.tensorboard.writer": ("tensorboard", "SummaryWriter", _WRITER),
    "tensorboardX.writer": ("tensorboardX", "SummaryWriter", _WRITER),
    "trackio.run": ("trackio", "Run", {"log": lambda _, metrics, step=None, **k: [(metrics, step, True)]}),
    "aim.sdk.run": ("aim", "Run", {"track": _track}),
}
