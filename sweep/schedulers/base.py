"""What a trial scheduler is: it looks at results and answers decisions; it is pure and called by the core."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from sweep import checks
from sweep.core.messages import Decision, ResumeTrial
from sweep.core.resources import Node
from sweep.core.results import TrialResult, score
from sweep.core.trial import Status, Trial
from sweep.core.values import as_float
from sweep.errors import ConfigError

Trials = Mapping[str, Trial]


_TUNES_HOOKS = {
    "on_trial_result": "on_result(trial, result, trials), which returns decisions",
    "on_trial_complete": "on_trial_end(trial)",
    "on_trial_error": "on_trial_end(trial)",
    "on_trial_remove": "on_trial_end(trial)",
    "choose_trial_to_run": "choose(startable)",
}


class Scheduler(ABC):
    """Look at intermediate results and decide which trials continue, stop, pause, save or clone another.

    A scheduler is deterministic: no clock, no randomness it was not given, nothing but what its hooks get. After a
    restart a new object gets the record again, and its answers are ignored; so its state comes back by itself.

    Attributes:
        metric, mode: what it judges by; taken from the run unless given to the constructor.
        is_stateless: it remembers nothing of results, so a resume need not read them for it.
        is_searching: it decides configs itself, so a searcher that learns from results would be misled.
        mutated_paths: flattened config paths that it may change.
        notices: what the user should know, each once, oldest first.
        first_judgement: which argument says how far a trial comes before it is judged, and how far that is; None: it
            judges by nothing of the kind.
        is_multi_objective: it judges by several metrics, and takes lists of them from the run.
        milestones: the progress at which it compares trials, for searchers that learn from each apart; empty: none.
        time_attr: result key that counts the progress at which it judges; "" if it judges by none.
        inner: the scheduler that this one wraps; None: it wraps none.
    """

    is_stateless: bool = False
    is_searching: bool = False
    mutated_paths: tuple[str, ...] = ()
    notices: Sequence[str] = ()
    milestones: Sequence[float] = ()
    first_judgement: tuple[str, float] | None = None
    is_multi_objective: bool = False
    metric: str | None = None
    mode: str | None = None
    time_attr: str = ""
    inner: Scheduler | None = None

    def __init_subclass__(cls, **kw: Any) -> None:
        """Refuse a class that overrides hooks which are never called: those of Tune's schedulers.

        Raises:
            ConfigError: with the names of ours.
        """
        super().__init_subclass__(**kw)
        theirs = [f"{name}() is {ours} here" for name, ours in _TUNES_HOOKS.items() if hasattr(cls, name)]
        if theirs:
            raise ConfigError(
                f"the scheduler {cls.__name__} has hooks of Ray Tune that are never called: {', '.join(theirs)}. "
                "docs/extend.md has an example."
            )

    def set_search_properties(self, metric: str | None, mode: str | None, *, seed: int = 0) -> None:
        """Take metric, mode and seed from the run; what was given to the constructor may be repeated there.

        Raises:
            ConfigError: another metric or mode was given here.
        """
        for name, given in (("metric", metric), ("mode", mode)):
            if given is None:
                continue
            if getattr(self, name) not in (None, given):
                raise ConfigError(
                    f"{name} was given to {type(self).__name__} and to the run; give it in one place, best to the run."
                )
            setattr(self, name, given)

    def complete_config(self, config: Mapping[str, Any], number: int) -> Mapping[str, Any]:
        """Return the config of a new trial with what the scheduler adds to it.

        Args:
            number: of the trial in its sweep, from 0; the same number gives the same values.
        """
        return config

    def on_trial_add(self, trial: Trial) -> None:  # noqa: B027 - optional hook
        """Hear of a new trial."""

    @abstractmethod
    def on_result(self, trial: Trial, result: TrialResult, trials: Trials) -> Sequence[Decision]:
        """Judge a result of `trial`; nothing returned means that everything continues."""

    def on_trial_end(self, trial: Trial) -> Sequence[Decision]:
        """Hear that a trial is TERMINATED or ERROR; `trial.last_result` is its last."""
        return ()

    def on_refused(self, trial: Trial, decision: Decision) -> Sequence[Decision]:
        """Hear that a decision could not be carried out, for instance a pause of a trial that never saved."""
        return ()

    def on_nodes_changed(self, nodes: Sequence[Node]) -> Sequence[Decision]:
        """Hear what machines there are: at the beginning of every run of the driver, and whenever that changes.

        What waits and fits on none of them ends in ERROR afterwards, unless a decision gives it a smaller request.
        """
        return ()

    def choose(self, startable: Sequence[Trial]) -> Trial | None:
        """Pick among PENDING trials that fit now, oldest first; None starts nothing.

        Offered are, per distinct request, the oldest that has run before and the oldest that has not.
        """
        return startable[0]

    def on_idle(self, trials: Trials) -> Sequence[Decision]:
        """Answer when nothing runs or could start, the searcher is exhausted and trials are paused.

        The default resumes all of them in order. No answer fails the sweep as stalled.
        """
        return [ResumeTrial(t.id) for t in trials.values() if t.status is Status.PAUSED and not t.is_by_person]

    def state(self) -> Any:
        """Return a comparable summary of the inner state, for tests and for replay checks."""
        return None

    def debug_string(self) -> str:
        """Return what it has done so far in a few words, for logs."""
        return type(self).__name__

    def _note(self, notice: str) -> None:
        if notice not in self.notices:
            self.notices = [*self.notices, notice]


_COPIED = "metric mode is_searching is_multi_objective mutated_paths milestones time_attr first_judgement".split()


class WrappingScheduler(Scheduler):
    """Leave to another scheduler all that a subclass does not decide."""

    inner: Scheduler

    def __init__(self, inner: Scheduler) -> None:
        self.inner = inner
        for name in _COPIED:
            setattr(self, name, getattr(inner, name))

    def __getattr__(self, name: str) -> Any:
        """Return what else the other scheduler has, such as `num_stopped` or `log_config`."""
        if name.startswith("_"):  # a copy that is being made has nothing yet
            raise AttributeError(name)
        return getattr(self.inner, name)

    @property
    def notices(self) -> Sequence[str]:  # type: ignore[override]  # an attribute of others
        """What the user should know, by the other scheduler."""
        return self.inner.notices

    def set_search_properties(self, metric: str | None, mode: str | None, *, seed: int = 0) -> None:
        """Hand metric, mode and seed of the run to the other scheduler, which may refuse them."""
        self.inner.set_search_properties(metric, mode, seed=seed)
        self.metric, self.mode = self.inner.metric, self.inner.mode

    def complete_config(self, config: Mapping[str, Any], number: int) -> Mapping[str, Any]:
        return self.inner.complete_config(config, number)

    def choose(self, startable: Sequence[Trial]) -> Trial | None:
        return self.inner.choose(startable)

    def on_idle(self, trials: Trials) -> Sequence[Decision]:
        return self.inner.on_idle(trials)

    def state(self) -> Any:
        return self.inner.state()

    def debug_string(self) -> str:
        return self.inner.debug_string()


class MetricScheduler(Scheduler):
    """Judge trials by `metric` at the progress that `time_attr` counts; subclasses say what follows."""

    def __init__(self, time_attr: str, metric: str | None, mode: str | None) -> None:
        if mode is not None:
            checks.mode(mode)
        if metric is not None and not isinstance(metric, str):
            raise ConfigError(f"metric is {metric!r}; {type(self).__name__} judges by one metric, given by name.")
        if not isinstance(time_attr, str) or not time_attr:
            expected = "the name of a result that counts progress, such as 'training_iteration' or 'time_total_s'"
            checks.refuse("time_attr", time_attr, expected)
        self.time_attr = time_attr
        self.metric, self.mode = metric, mode
        self._seed = 0

    def set_search_properties(self, metric: str | None, mode: str | None, *, seed: int = 0) -> None:
        """Take metric, mode and seed as every scheduler does.

        Raises:
            ConfigError: another metric or mode was given here, or no metric at all.
        """
        super().set_search_properties(metric, mode, seed=seed)
        if self.metric is None:
            raise ConfigError(f"{type(self).__name__} needs a metric to judge by: pass metric= and mode= to the run.")
        self.mode = self.mode or "max"
        self._seed = seed

    def _time(self, result: TrialResult) -> float | None:
        """Return the progress of a trial; None where it is NaN or no number: nothing is decided at an unknown time."""
        time = as_float(result.get(self.time_attr))
        return None if time is None or math.isnan(time) else time

    def _read(self, result: TrialResult) -> tuple[float, float] | None:
        """Return (time, score), a larger score being better and NaN the worst; None if either is missing."""
        time, value = self._time(result), result.get(self.metric or "")
        return None if time is None or value is None else (time, score(value, self.mode or "max"))

    def _number(self, value: float) -> str:
        """Return a score as the user reported it, for reasons; "nan" for the worst of all."""
        return f"{value if self.mode == 'max' else -value:.4g}" if math.isfinite(value) else "nan"

    def _shown(self, value: float) -> str:
        return f"{self.metric}={self._number(value)}"
