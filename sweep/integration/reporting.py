"""What the callbacks for training libraries share: which metrics are reported, and a checkpoint made for one report."""

from __future__ import annotations

import importlib
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

from searchers.errors import nearest
from sweep.checkpoints.store import Checkpoint
from sweep.checks import refuse, whole
from sweep.errors import CheckpointError, ConfigError, UserCodeError, refuse_unknown
from sweep.worker.session import get_context, report

Metrics = str | Sequence[str] | Mapping[str, str] | None
Postprocess = Callable[[dict[str, Any]], dict[str, Any]]


def require(names: Sequence[str], *, library: str) -> list[ModuleType]:
    """Return those of the modules that are installed.

    Raises:
        ImportError: none of them is; the text says how to install `library`.
    """
    found = []
    for name in names:
        try:
            found.append(importlib.import_module(name))
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise  # it is there, and something that it needs is not
    if not found:
        raise ImportError(
            f"sweep.integration.{names[-1].partition('.')[0]} needs {library}, which is not installed. "
            f"Run: pip install {library}"
        )
    return found


class MetricChoice:
    """Choose what is reported of what a library has measured.

    Args:
        metrics: None for everything; a name; several names; or a dict of the names to report, each with the library's
            name for it.
        is_complete: the library always tells everything that it measures, so that a name that is missing is a mistake.
            Otherwise a name may be missing for a while, for instance that of a validation that has not run yet.

    Raises:
        ConfigError: `metrics` is none of those.
    """

    def __init__(self, metrics: Metrics = None, *, is_complete: bool = False) -> None:
        self._sources = _sources(metrics)
        self._is_complete = is_complete
        self._missing: set[str] = set()

    def of(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """Return the chosen metrics that are among those found; warn once of each that is not.

        Raises:
            UserCodeError: one is missing, and what was found is complete.
        """
        if self._sources is None:
            return dict(found)
        chosen = {}
        for name, source in self._sources.items():
            if source in found:
                chosen[name] = found[source]
            elif self._is_complete:
                raise UserCodeError(_unknown(source, found))
            elif source not in self._missing:
                self._missing.add(source)
                warnings.warn(f"{_unknown(source, found)} It is left out of the reports without it.", stacklevel=2)
        return chosen


def _sources(metrics: Metrics) -> dict[str, str] | None:
    if metrics is None:
        return None
    sources: dict[Any, Any]
    if isinstance(metrics, str):
        sources = {metrics: metrics}
    elif isinstance(metrics, Mapping):
        sources = dict(metrics)
    elif isinstance(metrics, Iterable):
        sources = {name: name for name in metrics}
    else:
        sources = {"": metrics}
    for pair in sources.items():
        for name in pair:
            if not isinstance(name, str) or not name:
                raise ConfigError(
                    f"metrics={metrics!r} was given; expected None for all, a name, a list of names, or a dict such as "
                    "{'loss': 'val_loss'}, from the name to report to the library's own."
                )
    return sources or None


def _unknown(name: str, found: Mapping[str, Any]) -> str:
    return f"there is no metric {name!r} yet. " + (nearest(name, list(found)) if found else "Nothing was measured.")


def chosen_hooks(given: str | Sequence[str], known: Sequence[str], *, argument: str) -> frozenset[str]:
    """Return the names of the hooks that were given, one or several, with or without `on_`."""
    names = [given] if isinstance(given, str) else list(given)
    hooks = []
    for name in names:
        hook = name.removeprefix("on_") if isinstance(name, str) else name
        if hook not in known:
            raise ConfigError(
                f"{argument}={name!r} is not a hook at which something can be reported. " + (nearest(str(hook), known))
            )
        hooks.append(hook)
    return frozenset(hooks)


def hooks_of(callback: type, *, but: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the names of a callback's hooks, without `on_`, except some."""
    names = [name for name in dir(callback) if name.startswith("on_") and callable(getattr(callback, name))]
    return tuple(name.removeprefix("on_") for name in names if not name.startswith(tuple(but)))


def override_hooks(callback: type, hooks: Sequence[str], handle: Callable[..., None]) -> None:
    """Have the objects of a class answer each hook by `handle(self, hook, *arguments, **keywords)`."""

    def answer_to(hook: str) -> Callable[..., None]:
        def answer(self: Any, *arguments: Any, **keywords: Any) -> None:
            handle(self, hook, *arguments, **keywords)

        answer.__name__ = f"on_{hook}"
        answer.__doc__ = "Report, if this hook was chosen."
        return answer

    for hook in hooks:
        setattr(callback, f"on_{hook}", answer_to(hook))


def is_first_rank() -> bool:
    """Return whether this process is rank 0 of its group, or a trial of a single process."""
    return get_context().get_world_rank() == 0


def report_with(metrics: Mapping[str, Any], save: Callable[[str], object] | None = None) -> None:
    """Report metrics, with a checkpoint when `save` is given and writes something.

    In a group every rank calls this. A `save` that is a collective is given by all of them, each with a directory of
    its own; one that is not, by rank 0.

    Args:
        save: is called with an empty directory, in the trial's own, and writes the checkpoint's files into it. Outside
            a sweep it is not called.
    """
    home = get_context().get_trial_dir()
    if save is None or home is None:
        report(metrics)
        return
    os.makedirs(home, exist_ok=True)
    # `tmp-*` is what is removed when the process is killed here.
    with tempfile.TemporaryDirectory(prefix="tmp-report-", dir=home) as directory:
        save(directory)
        with os.scandir(directory) as entries:
            is_empty = next(entries, None) is None
        report(metrics, checkpoint=None if is_empty else Checkpoint(directory))


def checkpoint_file(checkpoint: Checkpoint, filename: str) -> str:
    """Return the path of a file of a checkpoint.

    Raises:
        CheckpointError: there is no such file; the message says which there are.
    """
    if not isinstance(checkpoint, Checkpoint):
        raise CheckpointError(f"a model was asked of {checkpoint!r}; expected a Checkpoint, such as result.checkpoint.")
    path = os.path.join(checkpoint.path, filename)
    if not os.path.exists(path):
        there = sorted(os.listdir(checkpoint.path)) if os.path.isdir(checkpoint.path) else []
        names = ", ".join(name for name in there if not name.startswith(".")) or "nothing"
        raise CheckpointError(
            f"the checkpoint {checkpoint.path} has no {filename}; there is {names}. "
            "Give the filename that it was stored with."
        )
    return path


@refuse_unknown()
class BoosterReports:
    """Report each round of a booster, and store the booster in a file that its library reads.

    Args:
        metrics: None for all; a name such as `eval-logloss`; several names; or a dict from the name to report to that
            of the library.
        filename: of the booster within the reported checkpoint; its ending chooses the format; None: `CHECKPOINT_NAME`.
        frequency: rounds from one checkpoint to the next; 0 for none on the way.
        checkpoint_at_end: store the booster after the last round, unless it was stored with it.
        results_postprocessing_fn: is given the metrics and returns those to report.

    Raises:
        ConfigError: a negative frequency, a postprocessing that cannot be called, `metrics` of another form.
    """

    CHECKPOINT_NAME = ""

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str | None = None,
        frequency: int = 0,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Postprocess | None = None,
    ) -> None:
        super().__init__()
        whole("frequency", frequency, expected="a number of rounds, or 0 for no checkpoints")
        if results_postprocessing_fn is not None and not callable(results_postprocessing_fn):
            refuse(
                "results_postprocessing_fn",
                results_postprocessing_fn,
                "a function of the dict of metrics that returns such a dict",
            )
        self._filename = filename or self.CHECKPOINT_NAME
        self._frequency = frequency
        self._checkpoint_at_end = checkpoint_at_end
        self._choice = MetricChoice(metrics, is_complete=True)
        self._postprocess = results_postprocessing_fn

    def _is_due(self, num_rounds: int) -> bool:
        """Return whether the model is stored after this many rounds."""
        return self._frequency > 0 and num_rounds % self._frequency == 0

    def _report(self, found: Mapping[str, Any], model: Any = None) -> None:
        """Report what was found, with the model when there is one; in a group rank 0 stores it.

        Raises:
            UserCodeError: a chosen metric is not among those found.
        """
        metrics = self._choice.of(found)
        if self._postprocess is not None:
            metrics = self._postprocess(metrics)
        if model is None or not is_first_rank():
            report_with(metrics)
        else:
            report_with(metrics, lambda directory: model.save_model(os.path.join(directory, self._filename)))
