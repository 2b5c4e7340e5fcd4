"""The arguments of a run, grouped and checked one by one: what was found, what was expected, what to do."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from searchers.base import Searcher
from sweep.callbacks.base import Callback
from sweep.core.config import CheckpointConfig, FailureConfig, ResumeConfig, SyncConfig
from sweep.core.resources import Node
from sweep.core.results import ANONYMOUS_METRIC
from sweep.core.stoppers import FunctionStopper, Stopper, TimeoutStopper, combine
from sweep.engines.base import Engine
from sweep.errors import ConfigError, nearest
from sweep.schedulers import Scheduler

__all__ = ["HAS_NO_RESUME", "Request", "ResumeMode", "metric_and_mode", "seconds_of", "stop_rules"]

# The call that runs the sweep takes no `resume=`: what it began is continued by `Tuner.restore`.
HAS_NO_RESUME: ContextVar[bool] = ContextVar("HAS_NO_RESUME", default=False)


@dataclass(frozen=True)
class ResumeMode:
    """What `resume=` means, in parts."""

    is_wanted: bool = False
    errored: str = ""  # "", "continue", "restart"
    unfinished: bool = True
    is_auto: bool = field(default=False, compare=False)  # whether or not there is something to resume

    @classmethod
    def parse(cls, value: bool | str | None) -> ResumeMode:
        if value is None or value is False:
            return cls()
        if value is True:
            return cls(True)
        head, *suffixes = str(value).upper().split("+")
        if head not in ("AUTO", "TRUE", "LOCAL", "ERRORED_ONLY", ""):
            raise ConfigError(
                f"resume is {value!r}; expected True, False, 'AUTO', or 'AUTO+ERRORED' with one of ERRORED, "
                f"ERRORED_ONLY, "
                "RESTART_ERRORED, RESTART_ERRORED_ONLY."
            )
        if head == "ERRORED_ONLY":
            suffixes.append(head)
        errored, unfinished = "", True
        for suffix in suffixes:
            match suffix:
                case "ERRORED" | "ERRORED_ONLY":
                    errored = "continue"
                case "RESTART_ERRORED" | "RESTART_ERRORED_ONLY":
                    errored = "restart"
                case _:
                    known = ("ERRORED", "ERRORED_ONLY", "RESTART_ERRORED", "RESTART_ERRORED_ONLY")
                    raise ConfigError(f"resume={value!r}: unknown suffix {suffix!r}. {nearest(suffix, known)}")
            unfinished = unfinished and not suffix.endswith("_ONLY")
        return cls(True, errored, unfinished, is_auto=head == "AUTO")

    def with_config(self, config: ResumeConfig | None) -> ResumeMode:
        """Return this mode with what `resume_config=` says; a config alone does not ask for resuming.

        Raises:
            ConfigError: it is no `ResumeConfig`, or both say what happens to failed or unfinished trials.
        """
        if config is None:
            return self
        if not isinstance(config, ResumeConfig):
            raise ConfigError(f"resume_config is {config!r:.100}; expected a sweep.ResumeConfig.")
        if self.errored or not self.unfinished:
            raise ConfigError("resume='AUTO+...' and resume_config both say which trials go on; give one of them.")
        kind = ResumeConfig.ResumeType
        errored = {kind.RESUME: "continue", kind.RESTART: "restart", kind.SKIP: ""}[kind(config.errored)]
        return ResumeMode(self.is_wanted, errored, config.unfinished is kind.RESUME, self.is_auto)


@dataclass(frozen=True)
class Request:
    """The arguments of `run`, grouped."""

    trainable: Any
    trainable_name: str | None
    name: str | None
    storage_path: str | os.PathLike[str] | None
    storage_filesystem: Any
    sync: SyncConfig
    config: Mapping[str, Any] | None
    num_samples: int
    search_alg: Searcher | str | None
    scheduler: Scheduler | str | None
    resources_per_trial: Any
    max_concurrent: int | None
    resume: ResumeMode
    failures: FailureConfig
    checkpoints: CheckpointConfig
    metric: str | Sequence[str] | None
    mode: str | Sequence[str] | None
    stop: Any
    time_budget_s: float | timedelta | None
    verbose: int
    reporter: Callback | None
    callbacks: tuple[Callback, ...]
    seed: int | None
    engine: str | Engine
    nodes: tuple[Node, ...] | None
    engine_options: Mapping[str, Any]
    is_chdir: bool
    log_to_file: Any
    durability: str
    is_metric_strict: bool
    import_path: str | None
    start_from: str | os.PathLike[str] | None
    trial_name_creator: Callable[[Any], str] | None
    trial_dirname_creator: Callable[[Any], str] | None
    recipe: bytes | None

    def check_numbers(self) -> None:
        """Refuse what makes no sense, whatever the trainable is.

        Raises:
            ConfigError: a number, the space or the durability.
        """
        number, most = self.num_samples, self.max_concurrent
        if isinstance(number, bool) or not isinstance(number, int) or (number < 1 and number != -1):
            raise ConfigError(f"num_samples is {number!r}; expected a whole number of at least 1, or -1 for no limit.")
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 0):
            raise ConfigError(f"max_concurrent_trials is {most!r}; expected a whole number, or None for no limit.")
        if self.config is not None and not isinstance(self.config, Mapping):
            raise ConfigError(
                f"config is {self.config!r:.100}; expected a dict such as {{'lr': sweep.loguniform(1e-4, 1e-1)}}."
            )
        if self.durability not in ("full", "fast"):
            raise ConfigError(f"durability is {self.durability!r}; expected 'full' or 'fast'.")


def metric_and_mode(metric: Any, mode: Any) -> tuple[str, str]:
    """Return the first metric ("" if none) and its mode."""
    modes = list(mode) if isinstance(mode, (list, tuple)) else [mode]
    for one in modes:
        if one is not None and one not in ("min", "max"):
            raise ConfigError(f"mode is {one!r}; expected 'min' or 'max'. Say 'min' for a loss, 'max' for a score.")
    if metric is None:
        return (ANONYMOUS_METRIC if mode is not None else ""), (modes[0] or "max")
    first = metric if isinstance(metric, str) else (list(metric) or [""])[0]
    if not isinstance(first, str) or not first:
        raise ConfigError(f"metric is {metric!r}; expected the name of something that trials report.")
    if modes[0] is None:
        raise ConfigError(f"metric={first!r} needs a mode: 'min' for a loss, 'max' for a score.")
    return first, modes[0]


def seconds_of(value: float | timedelta | None) -> float | None:
    if value is None:
        return None
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0:
        raise ConfigError(f"time_budget_s is {value!r}; expected seconds above 0, or a timedelta.")
    return None if math.isinf(seconds) else float(seconds)


def stop_rules(stop: Any) -> tuple[Stopper | None, dict[str, float], float | None]:
    """Return (stopper of the user's own, criteria, seconds) from whatever `stop=` was given."""
    if stop is None:
        return None, {}, None
    if isinstance(stop, Mapping):
        for key, value in stop.items():
            if isinstance(value, Mapping):
                raise ConfigError(f"stop={{{key!r}: {value!r}}}: write nested keys as a path, such as 'eval/accuracy'.")
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ConfigError(
                    f"stop={{{key!r}: {value!r}}}: expected a number; a trial ends at that value or above."
                )
        return None, dict(stop), None
    items = list(stop) if isinstance(stop, (list, tuple)) else [stop]
    stoppers: list[Stopper] = []
    budget: float | None = None
    for item in items:
        if isinstance(item, Stopper):
            if item.budget_s is not None:
                budget = min(item.budget_s, math.inf if budget is None else budget)
            if not isinstance(item, TimeoutStopper):
                stoppers.append(item)
        elif callable(item) and not hasattr(item, "stop_all") and not isinstance(stop, (list, tuple)):
            stoppers.append(FunctionStopper(item))
        else:
            raise ConfigError(
                f"stop is {item!r:.100}; expected a dict, a function (trial_id, result) -> bool, a Stopper, or a "
                f"list of "
                "Stoppers."
            )
    return combine(stoppers), {}, budget
