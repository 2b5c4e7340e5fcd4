"""What a run says to its user, line by line, and what it says before it starts."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from searchers import ConcurrencyLimiter
from sweep.accelerators import inventory
from sweep.callbacks.base import Callback
from sweep.core.trial import Trial
from sweep.core.values import as_float
from sweep.launch.build import Built
from sweep.launch.place import Place
from sweep.launch.policies import describe, unsearched_lists
from sweep.record.resume import Loaded
from sweep.worker.trainable import PreparedTrainable


class Notices:
    """Says one line at a time: by the display if it can show them, else on stderr.

    Attributes:
        display: shows the sweep; None: nothing does.
        is_mute: whether everything fails now for one reason, which is raised: then nothing else is said.
    """

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
        show = getattr(self.display, "notice", None)
        if show is not None:
            show(text)
        else:
            with contextlib.suppress(OSError):  # the reader of stderr has gone
                print(f"sweep: {text}", file=sys.stderr, flush=True)


def surprises(built: Built, place: Place, trainable: PreparedTrainable) -> Iterator[str]:
    """Yield, a line each, what silently costs the user a day: nothing to resume, a search too wide, unseen GPUs, lists
    that stay lists."""
    spec, searcher = built.spec, built.policies.searcher
    if spec.resuming.is_wanted and not spec.resuming.is_auto and not place.exists:
        yield f"there is no experiment {place.name!r} in {place.parent} to resume; a new one starts"
    best, width = searcher.best_concurrency, _width(built)
    if best is not None and width > best:
        yield (
            f"{width} trials at a time: {describe(searcher)} suggests from fewer results than it could have; "
            f"up to {best} at a time it loses little. max_concurrent_trials={best} waits for them."
        )
    if spec.nodes is None and isinstance(spec.engine, str):
        yield from inventory.notices()
    ray = sys.modules.get("ray")
    if spec.engine == "local" and ray is not None and ray.is_initialized():
        yield (
            "this process has joined a cluster of Ray, and the sweep runs on this machine alone: "
            "sweep.init(engine='ray') runs it on the cluster"
        )
    if not inventory.is_shared() and (spec.engine == "local" or hasattr(spec.engine, "summon")):
        yield "sweep.init(shared=False): other sweeps of this machine are not seen, and do not see this one"
    if trainable.notices is not None:
        yield from trainable.notices(spec.config or {})
    lists = unsearched_lists(spec.search_alg, built.policies.scheduler, spec.config)
    if lists:
        yield lists
    gpus = _num_gpus(built)
    is_own = trainable.resources is not None or built.wanted is None
    if gpus and not is_own and not any(bundle.gpu for bundle in built.wanted.bundles):  # type: ignore[union-attr]
        yield (
            f"{gpus} GPU{'s are' if gpus > 1 else ' is'} here and trials ask for none: they will not see any. "
            "Pass resources_per_trial={'cpu': 1, 'gpu': 1} to use them."
        )


def resumption(built: Built, place: Place, loaded: Loaded, meta: Mapping[str, Any]) -> Iterator[str]:
    """Yield, a line each, what is gone, what is resumed, and what it was asked now that the last run was not."""
    for path in loaded.missing:
        yield f"the checkpoint {path} is gone; its trial continues from the one before, or from the start"
    if loaded.plan is None:
        return
    ended = sum(trial.is_ended for trial in loaded.trials)
    of_one_run: dict[str, Any] = {"retry_errored": "", "retry_unfinished": True, "lost": ()}
    old, new = (replace(plan, **of_one_run).to_json() for plan in (loaded.plan, built.plan))
    derived = ("prefix", "ask_ahead", "required", "numbers", "is_unasked")
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


def _width(built: Built) -> int:
    """Return how many trials will run at a time, as far as their CPUs and GPUs say; 1 where the config decides."""
    if built.wanted is None:
        return 1
    limits = [built.plan.num_trials, built.spec.max_concurrent_trials]
    cpus = sum(node.cpus for node in built.packer.nodes)
    for total, each in ((cpus, "cpu"), (_num_gpus(built), "gpu")):
        share = sum(getattr(bundle, each) for bundle in built.wanted.bundles)
        limits.append(int(total / share) if share else None)
    searcher = built.policies.searcher
    limits.append(searcher.max_concurrent if isinstance(searcher, ConcurrencyLimiter) else None)
    return min((limit for limit in limits if limit), default=sys.maxsize)


def _num_gpus(built: Built) -> int:
    return sum(device.kind == "gpu" for node in built.packer.nodes for device in node.devices)
