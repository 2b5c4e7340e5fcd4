"""Loggers that talk to a service: on threads of their own, because a service may be slow."""

from __future__ import annotations

import queue
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sweep.callbacks.loggers import LoggerCallback, number_of
from sweep.core.results import TrialResult, flatten
from sweep.core.trial import Trial

_MAX_THREADS = 4
_MAX_WAITING = 20_000  # calls; what comes after that is dropped, and said


class TrackingCallback(LoggerCallback):
    """Log each trial as a run of a service.

    Calls of one trial are made in order; those of several at the same time. Neither the sweep nor other callbacks wait
    for them, except at the end, for `finish_timeout_s`. An error is shown once; after three the callback is off.

    Attributes:
        finish_timeout_s: how long the end of the sweep waits for what was not sent yet.
    """

    finish_timeout_s: float = 120.0

    def __init__(self) -> None:
        self._lanes: dict[int, _Lane] = {}
        self._open: dict[str, Trial] = {}
        self._runs: dict[str, Any] = {}
        self._errors: queue.SimpleQueue[Exception] = queue.SimpleQueue()
        self._num_dropped = 0

    @abstractmethod
    def _begin(self, trial: Trial, run: Any | None) -> Any:
        """Return the run of a trial, opened or gone on with (`run`, when it is open); called at each start."""

    @abstractmethod
    def _record(self, trial: Trial, run: Any, iteration: int, result: TrialResult) -> None:
        """Send one report."""

    def _keep(self, trial: Trial, run: Any) -> None:
        """Send the trial's new checkpoint; nothing unless overridden."""

    @abstractmethod
    def _finish(self, trial: Trial, run: Any, outcome: str) -> None:
        """Close the run of a trial: `finished`, `failed`, `paused`, or `interrupted` by the end of the sweep."""

    def log_trial_start(self, trial: Trial) -> None:
        self._open[trial.id] = trial
        self._later(trial, lambda: self._start(trial))

    def log_trial_result(self, iteration: int, trial: Trial, result: TrialResult) -> None:
        self._later(trial, lambda: self._record(trial, self._run(trial), iteration, result))

    def log_trial_save(self, trial: Trial) -> None:
        self._later(trial, lambda: self._keep(trial, self._run(trial)))

    def log_trial_pause(self, trial: Trial) -> None:
        """Close the run; it is opened again when the trial goes on."""
        self._close(trial, "paused")
        self._raise_error()

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        self._close(trial, "failed" if failed else "finished")
        self._raise_error()

    def on_experiment_end(self, trials: Sequence[Trial]) -> None:
        """Close what is open and wait, `finish_timeout_s` at most.

        Raises:
            TimeoutError: the service did not take everything.
        """
        for trial in list(self._open.values()):
            self._close(trial, "interrupted")
        deadline = time.monotonic() + self.finish_timeout_s
        lanes = self._lanes.values()
        for lane in lanes:
            lane.calls.put(None)
        for lane in lanes:
            lane.join(max(0.0, deadline - time.monotonic()))
        missing = self._num_dropped + sum(lane.calls.unfinished_tasks - 1 for lane in lanes if lane.is_alive())
        if missing:
            raise TimeoutError(
                f"{missing} calls did not reach the service within {self.finish_timeout_s:g} s after the last trial; "
                "what they were to tell is in sweep.db"
            )
        self._raise_error()

    def _start(self, trial: Trial) -> None:
        self._runs[trial.id] = self._begin(trial, self._runs.get(trial.id))

    def _run(self, trial: Trial) -> Any:
        if trial.id not in self._runs:  # its start has failed
            self._start(trial)
        return self._runs[trial.id]

    def _close(self, trial: Trial, outcome: str) -> None:
        def close() -> None:
            if (run := self._runs.pop(trial.id, None)) is not None:
                self._finish(trial, run, outcome)

        if self._open.pop(trial.id, None) is not None:
            self._lane(trial).calls.put(close)

    def _later(self, trial: Trial, call: Callable[[], None]) -> None:
        """Have a trial's next call made, unless very many wait; raises what an earlier one has raised."""
        calls = self._lane(trial).calls
        if calls.unfinished_tasks < _MAX_WAITING:
            calls.put(call)
        else:
            self._num_dropped += 1
        self._raise_error()

    def _raise_error(self) -> None:
        if not self._errors.empty():
            raise self._errors.get()

    def _lane(self, trial: Trial) -> _Lane:
        # By the number, so that a trial that goes on after a pause waits until its run is closed.
        place = trial.number % _MAX_THREADS
        if place not in self._lanes:
            self._lanes[place] = _Lane(f"{type(self).__name__}-{place}", self._errors)
        return self._lanes[place]


class _Lane(threading.Thread):
    """Makes calls one after another; Python's end does not wait for it."""

    def __init__(self, name: str, errors: queue.SimpleQueue[Exception]) -> None:
        super().__init__(name=name, daemon=True)
        self.calls: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._errors = errors
        self.start()

    def run(self) -> None:
        while (call := self.calls.get()) is not None:
            try:
                call()
            except Exception as error:  # a service fails as it likes; it is raised in the next hook, and shown
                self._errors.put(error)
            self.calls.task_done()


def numbers_of(result: Mapping[str, Any], excludes: Sequence[str] = ()) -> Iterator[tuple[str, float]]:
    """Give the numbers of a report by their flat names, NaN and infinities too; bools as 0 and 1."""
    for name, value in flatten(result).items():
        is_excluded = any(name == other or name.startswith(f"{other}/") for other in excludes)
        if not is_excluded and (number := number_of(value)) is not None:
            yield name, number
