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
    from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
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
        self._socket: Any = None
        self._is_gone = False
        self._lock = RLock()  # a signal handler may log while its thread waits: that is not sent

    def emit(self, values: dict[str, Any], step: Any, source: str, is_whole: bool) -> None:
        import json
        import socket

        line = json.dumps({"values": values, "step": step, "source": source, "whole": is_whole}) + "\n"
        with self._lock:
            if self._is_gone:
                return
            self._is_gone = True  # until it has answered
            try:
                if self._socket is None:
                    self._socket = socket.socket(socket.AF_UNIX)
                    self._socket.connect(self._path)
                self._socket.sendall(line.encode())
                answer = b" "
                while answer not in (b"\n", b""):
                    answer = self._socket.recv(1)
                self._is_gone = not answer
            except OSError:
                return


class _Finder:
    """Has the finders behind it find the modules of the table, which are hooked when they were executed."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :] if name in _HOOKS else ():
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    self._watch(spec.loader)
                return spec
        return None

    def _watch(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            if module.__name__ in _HOOKS:
                _hook(module)

        loader.exec_module = exec_module  # of this one only: a loader around it would lack what others ask it for


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
    setattr(
        place, name, staticmethod(hooked) if hasattr(call, "__self__") else hooked
    )  # of a class method: it is bound
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


def _numbers(values: Mapping[str, Any], library: str) -> dict[str, Any]:
    """Return the numbers; those of dicts in it under joined names, as the library shows them."""
    numbers: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            join = "/" if library == "sweep" else "."
            numbers.update({f"{name}{join}{key}": item for key, item in _numbers(value, library).items()})
        else:
            numbers[name] = _number(value)
    return {name: number for name, number in numbers.items() if number is not None}


def _run_log(run: Any, data: Any, step: Any = None, commit: Any = None, sync: Any = None) -> Iterator[Found]:
    """What is not committed is held for the call that commits, or that begins another step."""
    held, held_step = run.__dict__.pop("_sweep_held", ({}, None))
    if held and step is not None and held_step not in (None, step):
        yield held, held_step, True
        held = {}
    row = held_step if step is None else step
    if commit is False:
        run.__dict__["_sweep_held"] = ({**held, **_numbers(data, "wandb")}, row)
    else:
        yield {**held, **data} if held else data, row, step is None or bool(commit)


def _run_finish(run: Any, *args: Any, **kwargs: Any) -> Iterator[Found]:
    yield (*run.__dict__.pop("_sweep_held", ({}, None)), True)


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


_WANDB: dict[str, Reader] = {"log": _run_log, "finish": _run_finish}
_DISABLED: dict[str, Reader] = {  # older versions have no NoopRun; their `log` is a function that updates this summary
    "update": _run_log,
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
    "wandb.sdk.wandb_run": ("wandb", "Run", _WANDB),
    "wandb.sdk.wandb_summary": ("wandb", "Summary", {"update": lambda _, d: [(d, None, False)]}),
    "wandb.sdk.lib.noop_run": ("wandb", "NoopRun", _WANDB),
    "wandb.sdk.lib.disabled": ("wandb", "SummaryDisabled", _DISABLED),
    "mlflow.tracking.client": ("mlflow", "MlflowClient", _CLIENT),
    "mlflow.tracking.fluent": ("mlflow", "", _FLUENT),
    "mlflow.models.model": ("mlflow", "Model", {"log": lambda *a, **k: []}),  # logs the metrics of the run once more
    "torch.utils.tensorboard.writer": ("tensorboard", "SummaryWriter", _WRITER),
    "tensorboardX.writer": ("tensorboardX", "SummaryWriter", _WRITER),
    "trackio.run": ("trackio", "Run", {"log": lambda _, metrics, step=None, **k: [(metrics, step, True)]}),
    "aim.sdk.run": ("aim", "Run", {"track": _track}),
}


def prepare_wandb(
    environ: MutableMapping[str, str], config: Mapping[str, Any], directory: str, name: str, group: str, home: str
) -> None:
    """Set what W&B reads at `wandb.init()` in a trial.

    `wandb.config` has the trial's values; they win over those that the program gives, as under W&B's own agent. Without
    an account, and unless the user has set a mode, W&B runs offline and leaves files that `wandb sync` uploads. Then it
    prints less, since its summary looks like metrics, and does not list the installed packages. Offline takes 0.2 s of
    CPU time more than `disabled`; a process that has imported `wandb.sdk.launch` beforehand saves most of it.

    Args:
        environ: variables of the trial; what the user has set in this process's own is left as it is.
        directory: of the trial; W&B's files go below it, unless the user has chosen a place.
        name: of the run. group: the sweep.
        home: where the program lies: W&B names a project after that place in a git repository, and would take the
            trial's directory for it.
    """
    path = os.path.join(directory, "wandb-sweep-params.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{_yaml(key)}: {{value: {_yaml(value)}}}\n" for key, value in config.items())
    environ["WANDB_SWEEP_PARAM_PATH"] = path
    known = {**os.environ, **environ}
    defaults = {"WANDB_RUN_GROUP": group, "WANDB_NAME": name}
    local = _text("wandb/settings")
    settings = local + _text(os.path.join(known.get("WANDB_CONFIG_DIR", "~/.config/wandb"), "settings"))
    if not local:  # W&B looks for it below WANDB_DIR
        defaults["WANDB_DIR"] = directory
    if "project" not in settings:
        defaults["WANDB_PROJECT"] = _project(home)
    host = known.get("WANDB_BASE_URL", "https://api.wandb.ai").split("//")[-1].split("/")[0].split(":")[0]
    is_set = any(known.get(key) for key in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE"))
    is_set = is_set or "mode" in settings or "api_key" in settings
    if not is_set and host not in _text(known.get("NETRC", "~/.netrc")):
        defaults.update(WANDB_MODE="offline", WANDB_QUIET="true", WANDB_X_SAVE_REQUIREMENTS="false")
    environ.update((key, value) for key, value in defaults.items() if value and not known.get(key))


def _project(home: str) -> str:
    """Return the project that W&B names after a directory of a git repository; empty: it is in none."""
    from pathlib import Path

    for root in (path := Path(os.path.abspath(home)), *path.parents):
        if (root / ".git").exists():
            return "-".join(filter(None, (root.name, "_".join(path.relative_to(root).parts))))
    return ""


def _text(path: str) -> str:
    """Return what is in a file; nothing if it cannot be read."""
    try:
        with open(os.path.expanduser(path), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _yaml(value: Any) -> str:
    """JSON, but for its floats: YAML takes 1e-05 for a text."""
    import json

    if isinstance(value, dict):
        return "{" + ", ".join(f"{_yaml(str(key))}: {_yaml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_yaml, value)) + "]"
    return f"!!float '{float(value)}'" if isinstance(value, float) else json.dumps(value, default=str)
