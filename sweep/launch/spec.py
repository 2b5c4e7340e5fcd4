"""Everything that can be asked of a run, as one checked value: what was found, what was expected, what to do."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from functools import cached_property
from types import NoneType
from typing import Any

from searchers.base import Searcher
from sweep import checks
from sweep.callbacks.base import Callback
from sweep.core.config import (
    CheckpointConfig,
    FailureConfig,
    ResumeConfig,
    SyncConfig,
    level_of_caller,
    refuse_endless,
    storage_path_of,
)
from sweep.core.resources import Node
from sweep.core.results import ANONYMOUS_METRIC
from sweep.engines.base import Engine, EngineFactory
from sweep.errors import ConfigError, nearest
from sweep.launch.stop_rules import StopRules
from sweep.schedulers import Scheduler

# The call that runs the sweep takes no `resume=`: what it began is continued by `Tuner.restore`.
HAS_NO_RESUME: ContextVar[bool] = ContextVar("HAS_NO_RESUME", default=False)
# The call came through `sweep.tune`: trials run in their own directory unless something else is said.
IS_AS_IN_TUNE: ContextVar[bool] = ContextVar("IS_AS_IN_TUNE", default=False)
# Deprecated forms of fields of CheckpointConfig, as parameters of `run`.
_CHECKPOINT_FORMS = {
    "keep_checkpoints_num": "num_to_keep",
    "checkpoint_score_attr": "checkpoint_score_attribute",
    "checkpoint_freq": "checkpoint_frequency",
    "checkpoint_at_end": "checkpoint_at_end",
}
FORMER_FORMS = (*_CHECKPOINT_FORMS, "local_dir")
"""Deprecated parameters of `run` that still count."""
_ENGINES = ("local", "inline", "ray")
# Not part of what a restored sweep is asked again: they are where it lies, or belong to one call.
_NOT_KEPT = {"trainable", "trainable_name", "name", "storage_path", "storage_filesystem", "resume", "resume_config"}
_NOT_KEPT |= {"on_interrupt"}


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
                "ERRORED_ONLY, RESTART_ERRORED, RESTART_ERRORED_ONLY."
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
            checks.refuse("resume_config", config, "a sweep.ResumeConfig")
        if self.errored or not self.unfinished:
            raise ConfigError("resume='AUTO+...' and resume_config both say which trials go on; give one of them.")
        kind = ResumeConfig.ResumeType
        errored = {kind.RESUME: "continue", kind.RESTART: "restart", kind.SKIP: ""}[kind(config.errored)]
        return ResumeMode(self.is_wanted, errored, config.unfinished is kind.RESUME, self.is_auto)


@dataclass(frozen=True)
class RunSpec:
    """Everything that can be asked of a run: the parameters of `sweep.run`, which explains them.

    `run`, `Tuner`, `Experiment`, the command line, a spec file and the saved spec of an experiment are ways
    to say it. What the parameters mean together is read from the properties.

    Attributes:
        warm_start: pairs of a config and its result, once `launch.execute` has read them.
        trainable_name: under which the trainable was registered; None: it was not.

    Raises:
        ConfigError: a value that makes no sense, or two that contradict each other.
    """

    trainable: Any
    name: str | None = None
    metric: str | Sequence[str] | None = None
    mode: str | Sequence[str] | None = None
    stop: Any = None
    time_budget_s: float | timedelta | None = None
    config: Mapping[str, Any] | None = None
    resources_per_trial: Any = None
    num_samples: int = 1
    storage_path: str | os.PathLike[str] | None = None
    storage_filesystem: Any = None
    search_alg: Searcher | str | None = None
    scheduler: Scheduler | str | None = None
    checkpoint_config: CheckpointConfig | None = None
    verbose: int | None = None
    progress_reporter: Callback | None = None
    log_to_file: bool | str | Sequence[str] = False
    trial_name_creator: Callable[[Any], str] | None = None
    trial_dirname_creator: Callable[[Any], str] | None = None
    chdir_to_trial_dir: bool | None = None
    sync_config: SyncConfig | None = None
    max_failures: int = 0
    max_identical_failures: int | None = None
    fail_fast: bool | str = False
    failure_config: FailureConfig | None = None
    trial_timeout_s: float | timedelta | None = None
    report_timeout_s: float | timedelta | None = None
    restore: str | os.PathLike[str] | None = None
    warm_start: Any = None
    resume: bool | str | None = None
    resume_config: ResumeConfig | None = None
    reuse_actors: bool = False
    raise_on_failed_trial: bool | None = None
    on_interrupt: str = "raise"
    callbacks: Sequence[Callback] | None = None
    max_concurrent_trials: int | None = None
    seed: int | None = None
    engine: str | Engine | EngineFactory | None = None
    nodes: Sequence[Node] | None = None
    start_method: str = "forkserver"
    preload: Sequence[str] = ()
    env: Mapping[str, str] | None = None
    durability: str = "normal"
    strict_metric: bool = True
    import_path: str | None = None
    trainable_name: str | None = None

    @classmethod
    def of(cls, trainable: Any, arguments: Mapping[str, Any]) -> RunSpec:
        """Return what arguments of `run` ask for, deprecated forms and objects with `to_dict` included."""
        given = {name: value for name, value in arguments.items() if name not in FORMER_FORMS}
        deprecated = {name: value for name, value in arguments.items() if name in _CHECKPOINT_FORMS}
        given["storage_path"] = storage_path_of(given.get("storage_path"), arguments.get("local_dir"))
        if deprecated:
            given["checkpoint_config"] = _checkpoint_config(given.get("checkpoint_config"), deprecated)
        to_dict = getattr(given.get("config"), "to_dict", None)
        if to_dict is not None and not isinstance(given["config"], Mapping):
            given["config"] = to_dict()
        return cls(trainable, **given)

    def __post_init__(self) -> None:
        if self.num_samples != -1:
            hint = "a whole number of at least 1, or -1 for no limit"
            checks.whole("num_samples", self.num_samples, least=1, expected=hint)
        if self.max_concurrent_trials is not None:
            hint = "a whole number, or None for no limit"
            checks.whole("max_concurrent_trials", self.max_concurrent_trials, expected=hint)
        if self.config is not None and not isinstance(self.config, Mapping):
            checks.refuse("config", self.config, "a dict such as {'lr': sweep.loguniform(1e-4, 1e-1)}")
        checks.one_of("on_interrupt", self.on_interrupt, ("raise", "return"))
        checks.one_of("durability", self.durability, ("normal", "full"))
        if isinstance(self.callbacks, str) or not isinstance(self.callbacks, (Sequence, NoneType)):
            checks.refuse("callbacks", self.callbacks, "a list of objects, such as [WandbLoggerCallback()]")
        for index, one in enumerate(self.callbacks or ()):
            if not isinstance(one, Callback):
                hint = f"it, {one.__name__}()" if isinstance(one, type) else "a class derived from sweep.Callback"
                checks.refuse(f"callbacks[{index}]", one, f"an object of {hint}")
        if not isinstance(self.progress_reporter, (Callback, NoneType)):
            checks.refuse(
                "progress_reporter", self.progress_reporter, "a reporter such as sweep.CLIReporter(), or None"
            )
        refuse_endless(self.config)
        for policy in (self.scheduler, self.search_alg):  # one of the two without the other: whose is the same
            metric, mode = getattr(policy, "metric", None), getattr(policy, "mode", None)
            if self.mode is None and self.metric is not None and metric in (None, self.metric):
                object.__setattr__(self, "mode", mode)
            elif self.metric is None and self.mode is not None and mode in (None, self.mode):
                object.__setattr__(self, "metric", metric)
        metric_and_mode(self.metric, self.mode)
        if self.seed is not None:
            checks.whole("seed", self.seed)
        if not (isinstance(self.engine, Engine) or callable(self.engine) or self.engine in (None, *_ENGINES)):
            raise ConfigError(f"engine is {self.engine!r}. {nearest(str(self.engine), _ENGINES)}")
        for which in ("trial_name_creator", "trial_dirname_creator"):
            creator = getattr(self, which)
            if creator is not None and not callable(creator):
                checks.refuse(which, creator, "a function of a trial that returns a text")
        _ = self.failures, self.resuming, self.budget_s  # each is checked as it is read

    @property
    def samples(self) -> int | None:
        """How often the space is sampled; None: no limit."""
        return None if self.num_samples == -1 else self.num_samples

    @property
    def verbosity(self) -> int:
        """0, 1 or 2."""
        return 1 if self.verbose is None else int(self.verbose)

    @property
    def checkpoints(self) -> CheckpointConfig:
        """What is saved and kept."""
        return self.checkpoint_config or CheckpointConfig()

    @cached_property
    def failures(self) -> FailureConfig:
        """What becomes of failed trials: `failure_config`, with what was given beside it."""
        names = ("max_failures", "max_identical_failures", "fail_fast", "trial_timeout_s", "report_timeout_s")
        own = {name: getattr(self, name) for name in names}
        given = self.failure_config
        if given is None:
            return FailureConfig(**own)
        if not isinstance(given, FailureConfig):
            checks.refuse("failure_config", given, "a sweep.FailureConfig")
        default = FailureConfig()
        said = {name: value for name, value in own.items() if value != getattr(default, name)}
        for name, value in said.items():
            other = getattr(given, name)
            if other not in (value, getattr(default, name)):
                raise ConfigError(
                    f"{name}={value!r} and failure_config, which says {other!r}, were both given; give one."
                )
        return replace(given, **said)

    @cached_property
    def resuming(self) -> ResumeMode:
        """Whether and how an experiment is continued."""
        return ResumeMode.parse(self.resume).with_config(self.resume_config)

    @cached_property
    def stop_rules(self) -> StopRules:
        """What `stop` means."""
        return StopRules.parse(self.stop)

    @property
    def budget_s(self) -> float | None:
        """Seconds of driving after which everything ends; None: no limit."""
        given = math.inf if self.time_budget_s is None else checks.seconds("time_budget_s", self.time_budget_s)
        least = min(given, self.stop_rules.budget_s)
        return None if math.isinf(least) else least

    def changed(self) -> dict[str, Any]:
        """Return the parameters that differ from their defaults, to be kept for a restored sweep or a replay."""
        return changed({item.name: getattr(self, item.name) for item in fields(self) if item.name not in _NOT_KEPT})


def changed(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a run that say more than their defaults; objects of the user's own are not compared."""
    defaults = {item.name: item.default for item in fields(RunSpec)}

    def is_default(value: Any, default: Any) -> bool:
        return value is default or (isinstance(value, (bool, int, float, str, tuple)) and value == default)

    return {name: value for name, value in arguments.items() if not is_default(value, defaults.get(name))}


def same_fields(kind: Any, *sources: Any) -> dict[str, Any]:
    """Return what a dataclass takes over from others: the fields that they have under the same names; the last wins."""
    names = {item.name for item in fields(kind)}
    return {item.name: getattr(one, item.name) for one in sources for item in fields(one) if item.name in names}


def metric_and_mode(metric: Any, mode: Any) -> tuple[str, str]:
    """Return the first metric ("" if none) and its mode.

    Raises:
        ConfigError: a mode that is neither min nor max, a metric without one, or one that is no name.
    """
    modes = list(mode) if isinstance(mode, (list, tuple)) else [mode]
    for one in modes:
        if one is not None:
            checks.mode(one)
    if metric is None:
        return (ANONYMOUS_METRIC if mode is not None else ""), (modes[0] or "max")
    first = metric if isinstance(metric, str) else (list(metric) or [""])[0]
    if not isinstance(first, str) or not first:
        checks.refuse("metric", metric, "the name of something that trials report")
    if modes[0] is None:
        raise ConfigError(f"metric={first!r} needs a mode: 'min' for a loss, 'max' for a score.")
    return first, modes[0]


def _checkpoint_config(given: CheckpointConfig | None, deprecated: Mapping[str, Any]) -> CheckpointConfig:
    """Return the config that the deprecated parameters, which Tune still honours, stand for."""
    said = {_CHECKPOINT_FORMS[name]: value for name, value in deprecated.items() if value is not None}
    attribute = said.get("checkpoint_score_attribute")
    if isinstance(attribute, str) and attribute.startswith("min-"):
        said |= {"checkpoint_score_attribute": attribute.removeprefix("min-"), "checkpoint_score_order": "min"}
    shown = ", ".join(f"{name}={value!r}" for name, value in said.items())
    if given is not None:
        raise ConfigError(
            f"{next(iter(deprecated))} and checkpoint_config were both given; put {shown} into the config."
        )
    warnings.warn(
        f"{', '.join(deprecated)}: deprecated; write checkpoint_config=sweep.CheckpointConfig({shown}).",
        DeprecationWarning,
        stacklevel=level_of_caller(),
    )
    return CheckpointConfig(**said)
