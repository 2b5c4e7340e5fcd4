"""What a run says to its user, line by line, and what it says before it starts."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

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
        show = getattr(self.display, "notice", None)
        if show is not None:
            show(text)
        else:
            with contextlib.suppress(OSError):  # the reader of stderr has gone
                print(f"sweep: {text}", file=sys.stderr, flush=True)


def surprises(built: Built, place: Place, trainable: PreparedTrainable) -> Iterator[str]:
    """Yield, a line each, what silently costs the user a day: nothing to resume, unseen GPUs, lists that stay lists."""
    spec = built.spec
    if spec.resuming.is_wanted and not spec.resuming.is_auto and not place.exists:
        yield f"there is no experiment {place.name!r} in {place.parent} to resume; a new one starts"
    if spec.nodes is None and isinstance(spec.engine, str):
        yield from inventory.notices()
    if not inventory.is_shared() and (spec.engine == "local" or hasattr(spec.engine, "summon")):
        yield "sweep.init(shared=False): other sweeps of this machine are not seen, and do not see this one"
    if trainable.notices is not None:
        yield from trainable.notices(spec.config or {})
    lists = unsearched_lists(spec.search_alg, built.policies.scheduler, spec.config)
    if lists:
        yield lists
    gpus = sum(device.kind == "gpu" for node in built.packer.nodes for device in node.devices)
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
