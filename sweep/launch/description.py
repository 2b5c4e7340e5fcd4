"""What a run says of itself: in the record, to its callbacks before the first trial, and line by line to its user."""

from __future__ import annotations

import contextlib
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from searchers import OptunaSearch
from searchers.space import to_json
from searchers.wrapper import Wrapper
from sweep.accelerators import inventory
from sweep.callbacks.base import Callback
from sweep.core.ranking import objectives_of
from sweep.core.trial import Trial
from sweep.core.values import as_float, shown, sound_text
from sweep.display.ending import Ending
from sweep.launch.build import Built, describe, unsearched_lists
from sweep.launch.place import Place
from sweep.record.encoding import encode
from sweep.record.resume import Loaded
from sweep.record.saved_spec import space_keys
from sweep.schedulers.elastic import ElasticGroups
from sweep.worker.trainable import PreparedTrainable

COMPLETE = "are_log_files_complete"  # the last driver ended in order, and its callbacks had been called for everything
_MOST_SPACE = 100_000  # characters of the text of one value of the space
_MAX_COMMAND = 4096
_PACKAGES = (
    *("sweep", "torch", "jax", "tensorflow", "keras", "lightning", "transformers", "sklearn", "xgboost", "lightgbm"),
    *("numpy", "pandas", "optuna", "hyperopt", "multiprocess"),
)


class Notices:
    """Says one line at a time: by the display if it can show them, else on stderr; nothing while it `is_mute`, because
    everything fails for one reason, which is raised."""

    def __init__(self, verbosity: int) -> None:
        self.display: Callback | None = None
        self.is_mute: Callable[[], bool] = lambda: False
        self._is_quiet = not verbosity

    def say(self, text: str) -> None:
        """Say it, unless nothing is to be printed."""
        if not self._is_quiet:
            self.warn(text)

    def warn(self, text: str) -> None:
        """Say what every user must know: also when nothing is to be printed."""
        if self.is_mute():
            return
        if show := getattr(self.display, "notice", None):
            show(text)
            return
        with contextlib.suppress(OSError):  # the reader of stderr has gone
            print(f"sweep: {text}", file=sys.stderr, flush=True)


def surprises(built: Built, place: Place, trainable: PreparedTrainable) -> Iterator[str]:
    """Yield, a line each, what silently costs the user a day: nothing to resume, unseen GPUs, lists that stay lists."""
    spec = built.spec
    if spec.resuming.is_wanted and not spec.resuming.is_auto and not place.exists:
        yield f"there is no experiment {place.name!r} in {place.storage} to resume; a new one starts"
    if spec.nodes is None and isinstance(spec.engine, str):
        yield from inventory.notices()
    ray = sys.modules.get("ray")
    if spec.engine == "local" and ray is not None and ray.is_initialized():
        here = "this process has joined a cluster of Ray, and the sweep runs on this machine alone"
        yield f"{here}: sweep.init(engine='ray') runs it on the cluster"
    if not inventory.is_shared() and (spec.engine == "local" or hasattr(spec.engine, "summon")):
        yield "sweep.init(shared=False): other sweeps of this machine are not seen, and do not see this one"
    if trainable.notices is not None:
        yield from trainable.notices(spec.config or {})
    if lists := unsearched_lists(spec.search_alg, built.policies.scheduler, spec.config):
        yield lists
    gpus = sum(device.kind == "gpu" for node in built.packer.nodes for device in node.devices)
    wanted = None if trainable.resources is not None else built.wanted
    if gpus and wanted is not None and not any(bundle.gpu for bundle in wanted.bundles):
        advice = "they will not see any. Pass resources_per_trial={'cpu': 1, 'gpu': 1} to use them."
        yield f"{gpus} GPU{'s are' if gpus > 1 else ' is'} here and trials ask for none: {advice}"


def resumption(built: Built, place: Place, loaded: Loaded, meta: Mapping[str, Any]) -> Iterator[str]:
    """Yield, a line each, what is gone, what is resumed, and what it was asked now that the last run was not."""
    for path in loaded.missing:
        yield f"the checkpoint {path} is gone; its trial continues from the one before, or from the start"
    if loaded.plan is None:
        return
    ended = sum(trial.is_ended for trial in loaded.trials)
    of_one_run: dict[str, Any] = {"retry_errored": "", "retry_unfinished": True, "lost": ()}
    old, new = (replace(plan, **of_one_run).to_json() for plan in (loaded.plan, built.plan))
    derived = ("prefix", "ask_ahead", "required", "numbers", "is_unasked", "request")
    changes = [f"{key} {old[key]!r} -> {new[key]!r}" for key in new if key not in derived and old[key] != new[key]]
    for key in ("searcher", "scheduler", "space"):
        if loaded.meta.get(key) != meta[key]:
            changes.append(f"{key} {loaded.meta.get(key)} -> {meta[key]}")
    text = f"resuming {place.name}: {ended} of {len(loaded.trials)} trials have ended"
    yield f"{text}; changed: {', '.join(changes)}" if changes else text


def unjudged(scheduler: Any, trials: Iterable[Trial]) -> str:
    """Return that a scheduler has judged no trial, and how far they came; "" if it could, or judges by no progress."""
    if scheduler.first_judgement is None:
        return ""
    (what, least), key = scheduler.first_judgement, scheduler.time_attr
    others = getattr(scheduler, "min_samples_required", 0)
    reached = [as_float(trial.last_result.get(key)) for trial in trials if trial.last_result is not None]
    known = [progress for progress in reached if progress is not None]
    num = sum(progress >= least for progress in known)
    if not known or num > others:
        return ""
    came = f"{num or 'none'} came to {what}={least:g} of {key!r}, the furthest to {max(known):.3g}"
    also = f", and it needs min_samples_required={others} others to compare with" if num else ""
    unit = " It counts seconds; time_attr='training_iteration' counts reports." if key.startswith("time_") else ""
    name = describe(scheduler.inner or scheduler)
    return f"the scheduler {name} judged no trial and changed nothing: {came}{also}.{unit}"


def meta_of_run(
    built: Built,
    place: Place,
    trainable: PreparedTrainable,
    log_files: Sequence[str] | None,
    old_meta: Mapping[str, Any],
) -> dict[str, Any]:
    """Return what is recorded of the experiment as a whole."""
    spec, policies, config = built.spec, built.policies, built.spec.config or {}
    texts = {key: shown(value, _MOST_SPACE) for key, value in config.items()}
    known, system = versions(), f"{platform.system()} {platform.release()}"
    return {
        COMPLETE: False,  # until the end
        "version": known["sweep"],
        "name": place.name,
        "prefix": built.plan.prefix,
        "created": old_meta.get("created", time.time()),
        "trainable": {"name": trainable.name, "kind": trainable.kind},
        "import_path": spec.import_path or trainable.import_path,
        "metric": policies.metric,
        "mode": policies.mode if policies.metric else None,
        "metrics": None if isinstance(policies.metrics, str) else policies.metrics,
        "modes": None if isinstance(policies.modes, str) else policies.modes,
        "space": texts,
        "domains": to_json({key: config[key] for key, text in texts.items() if len(text) < _MOST_SPACE}, shown),
        "space_keys": space_keys(config),
        "variables": None if built.variables is None else list(built.variables),
        "log_to_file": list(log_files) if log_files else None,
        "searcher": describe(policies.searcher, spec.config),
        "scheduler": describe(policies.scheduler),
        "elastic": policies.scheduler.facts if isinstance(policies.scheduler, ElasticGroups) else None,
        "time_attr": policies.scheduler.time_attr,
        "constraints": _limits(policies.searcher),
        "num_samples": spec.num_samples,
        "num_repeats": policies.searcher.num_repeats,
        "num_trials": built.plan.num_trials,
        "resources_per_trial": None if built.wanted is None else built.wanted.to_json(),
        "seed": built.seed,
        "warm_start": None if spec.warm_start is None else encode(spec.warm_start),  # a text: it may be long
        "storage_path": str(place.storage),
        "resume_command": place.resume_command,
        "python": sys.version.split()[0],
        "command": old_meta.get("command") or command_line(),
        "machine": {"host": platform.node(), "system": system, "cpu": platform.machine()},
        "versions": known,
    }


def setup_info(built: Built, place: Place, ending: Ending, meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return what callbacks get in `setup`, before the first trial."""
    spec, policies = built.spec, built.policies
    scheduler = policies.scheduler.inner or policies.scheduler
    counts_iterations = scheduler.time_attr == "training_iteration"
    recorded = ("name", "searcher", "num_samples", "num_trials", "num_repeats", "scheduler", "seed", "resume_command")
    return {
        **{name: meta[name] for name in recorded},
        "experiment_dir": str(place.layout.root),
        "stop": spec.stop,
        "total_num_samples": built.plan.num_trials,
        "plan": built.plan,
        "verbose": spec.verbosity,
        "nodes": built.packer.nodes,
        "objectives": objectives_of(policies.metrics, policies.modes or policies.mode),
        "max_iterations": getattr(scheduler, "max_t", None) if counts_iterations else None,
        "ending": ending,
        "is_resumed": place.exists,
    }


def _limits(searcher: Any) -> dict[str, float] | None:
    while isinstance(searcher, Wrapper):
        searcher = searcher.searcher
    return searcher.limits or None if isinstance(searcher, OptunaSearch) else None


def command_line() -> str:
    """Return what was typed to start this process, at most 4,096 characters; `a notebook`, `a prompt`."""
    script = (sys.argv or [""])[0]
    if "ipykernel" in sys.modules:
        return "a notebook"
    if script in ("", "-", "-c"):
        return "python -c ..." if script == "-c" else "a prompt"
    is_command = os.access(script, os.X_OK) and not script.endswith(".py")
    typed = [os.path.basename(script), *sys.argv[1:]] if is_command else ["python", *sys.orig_argv[1:]]
    return sound_text(shlex.join(typed))[:_MAX_COMMAND]


def versions() -> dict[str, str]:
    """Return the versions of Python and of the well-known packages that this process has imported: none is for this."""
    found = {name: getattr(sys.modules.get(name), "__version__", None) for name in _PACKAGES}
    known = {name: sound_text(version) for name, version in found.items() if isinstance(version, str)}
    return {"python": platform.python_version(), **known}
