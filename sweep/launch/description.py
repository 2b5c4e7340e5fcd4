"""What a run says of itself: in the record, and to its callbacks before the first trial."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from searchers import ConcurrencyLimiter, OptunaSearch
from searchers.space import to_json
from searchers.wrapper import Wrapper
from sweep.core.ranking import objectives_of
from sweep.core.values import shown, sound_text
from sweep.display.ending import Ending
from sweep.launch.build import Built
from sweep.launch.place import Place
from sweep.launch.policies import describe
from sweep.record.encoding import encode
from sweep.record.saved_spec import space_keys
from sweep.worker.trainable import PreparedTrainable

_MOST_SPACE = 100_000  # characters of the text of one value of the space
COMPLETE = "are_log_files_complete"  # the last driver ended in order, and its callbacks had been called for everything


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
    return {
        COMPLETE: False,  # until the end
        "name": place.name,
        "prefix": built.plan.prefix,
        "created": old_meta.get("created", time.time()),
        "trainable": {"name": trainable.name, "kind": trainable.kind},
        "import_path": spec.import_path or trainable.import_path,
        "metric": policies.metric,
        "mode": policies.mode if policies.metric else None,
        "metrics": _list_of(policies.metrics),
        "modes": _list_of(policies.modes),
        "space": texts,
        "domains": to_json({key: config[key] for key, text in texts.items() if len(text) < _MOST_SPACE}, shown),
        "space_keys": space_keys(config),
        "variables": None if built.variables is None else list(built.variables),
        "log_to_file": list(log_files) if log_files else None,
        "searcher": describe(policies.searcher, spec.config),
        "scheduler": describe(policies.scheduler),
        "time_attr": policies.scheduler.time_attr,
        "constraints": _limits(policies.searcher) or None,
        "num_samples": spec.num_samples,
        "num_repeats": policies.searcher.num_repeats,
        "num_trials": built.plan.num_trials,
        "resources_per_trial": None if built.wanted is None else built.wanted.to_json(),
        "seed": built.seed,
        "warm_start": None if spec.warm_start is None else encode(spec.warm_start),  # a text: it may be long
        "storage_path": place.parent,
        "resume_command": place.resume_command,
        "python": sys.version.split()[0],
        "command": old_meta.get("command") or command_line(),
        "machine": machine(),
        "versions": versions(),
    }


def setup_info(built: Built, place: Place, ending: Ending, meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return what callbacks get in `setup`, before the first trial."""
    spec, policies = built.spec, built.policies
    limit = f" (limit {spec.max_concurrent_trials})" if spec.max_concurrent_trials else ""
    searcher = policies.searcher
    inner = searcher.searcher if isinstance(searcher, ConcurrencyLimiter) else searcher
    scheduler = policies.scheduler.inner or policies.scheduler
    counts_iterations = scheduler.time_attr == "training_iteration"
    recorded = ("name", "num_samples", "num_trials", "num_repeats", "scheduler", "seed", "resume_command")
    return {
        **{name: meta[name] for name in recorded},
        "experiment_dir": str(place.layout.root),
        "stop": spec.stop,
        "total_num_samples": built.plan.num_trials,
        "plan": built.plan,
        "searcher": describe(inner, spec.config) + limit,
        "verbose": spec.verbosity,
        "nodes": built.packer.nodes,
        "objectives": objectives_of(policies.metrics, policies.modes or policies.mode),
        "max_iterations": getattr(scheduler, "max_t", None) if counts_iterations else None,
        "ending": ending,
        "is_resumed": place.exists,
    }


def _limits(searcher: Any) -> dict[str, float]:
    while isinstance(searcher, Wrapper):
        searcher = searcher.searcher
    return searcher.limits if isinstance(searcher, OptunaSearch) else {}


def _list_of(names: str | Sequence[str] | None) -> list[str] | None:
    """Return the names of several objectives; None when there is one, or none."""
    return list(names) if names and not isinstance(names, str) else None


_MAX_COMMAND = 4096
_NOTEBOOK = ("ipykernel_launcher.py", "colab_kernel_launcher.py")
_PACKAGES = (
    *("sweep", "torch", "jax", "tensorflow", "keras", "lightning", "transformers", "sklearn", "xgboost", "lightgbm"),
    *("numpy", "pandas", "optuna", "hyperopt", "multiprocess"),
)


def command_line() -> str:
    """Return what was typed to start this process, at most 4,096 characters; `a notebook`, `a prompt`."""
    script, *arguments = sys.argv or [""]
    name = os.path.basename(script)
    if name in _NOTEBOOK or "ipykernel" in sys.modules:
        return "a notebook"
    if name in ("", "-"):
        return "a prompt"
    if name == "-c":
        return "python -c ..."
    if name == "__main__.py":  # python -m package
        return sound_text(shlex.join([*map(str, sys.orig_argv)]).replace(sys.executable, "python", 1))[:_MAX_COMMAND]
    program = ["python", script] if name.endswith(".py") or not os.access(script, os.X_OK) else [name]
    return sound_text(shlex.join([*program, *arguments]))[:_MAX_COMMAND]


def machine() -> dict[str, str]:
    """Return the host's name, its operating system and its kind of processor."""
    return {"host": platform.node(), "system": f"{platform.system()} {platform.release()}", "cpu": platform.machine()}


def versions() -> dict[str, str]:
    """Return the versions of Python and of the well-known packages that this process has imported: none is for this."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str):
            found[name] = sound_text(version)
    return found
