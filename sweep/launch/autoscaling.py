"""What a sweep needs, told to a cluster that can grow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sweep.callbacks.base import Callback
from sweep.core.resources import Resources
from sweep.core.trial import HELD, Status, Trial

_EVERY_S = 5.0
_MOST_BUNDLES = 1000  # of what waits: a cluster grows in steps, and asks anew for the next

Bundles = list[dict[str, float]]


class Demand(Callback):
    """Tells what the trials that run hold and those that wait ask for, whenever that has changed."""

    def __init__(self, request: Callable[[Bundles], None]) -> None:
        """Prepare.

        Args:
            request: asks for room for these bundles, all at a time, in Ray's names; called on another thread, because
                it may take a while.
        """
        self._request = request
        self._last: Bundles = []
        self._looked: float | None = None
        self._thread = ThreadPoolExecutor(1, "sweep-demand")

    def on_step(self, trials: Mapping[str, Trial], now: float, changed: Sequence[str]) -> None:
        if self._looked is not None and now < self._looked + _EVERY_S:
            return
        self._looked = now
        wanted = demand_of(trials.values())
        if wanted != self._last:
            self._last = wanted
            self._thread.submit(self._request, wanted)

    def on_experiment_end(self, trials: Sequence[Any]) -> None:
        self._thread.shutdown(cancel_futures=True)


def demand_of(trials: Any) -> Bundles:
    """Return the bundles of the trials that run, and after them of those that wait for resources."""
    held: Bundles = []
    waiting: Bundles = []
    for trial in trials:
        if trial.status in HELD:
            held += _bundles(trial.resources)
        elif trial.status is Status.PENDING and len(waiting) < _MOST_BUNDLES:
            waiting += _bundles(trial.resources)
    return held + waiting


def _bundles(resources: Resources) -> Bundles:
    names = {"cpu": "CPU", "gpu": "GPU", "tpu": "TPU"}
    return [
        {names.get(name, name): float(amount) for name, amount in bundle.amounts.items()}
        for bundle in resources.bundles
        if not bundle.is_empty
    ]
