"""Everything that can be asked of a run, as one checked value: what was found, what was expected, what to do."""

from __future__ import annotations

import math
import os
import re
import shlex
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from functools import cached_property, partial
from types import NoneType
from typing import Any

import numpy as np

from searchers.errors import nearest
from sweep import checks
from sweep.callbacks.base import Callback
from sweep.core.config import (
    CheckpointConfig,
    FailureConfig,
    ResumeConfig,
    RunOptions,
    TuneConfig,
    count,
    level_of_caller,
    refuse_endless,
    storage_path_of,
)
from sweep.core.messages import Verdict
from sweep.core.plan import Plan
from sweep.core.resources import Node
from sweep.core.results import ANONYMOUS_METRIC, TrialResult
from sweep.core.stoppers import FunctionStopper, Stopper, TimeoutStopper, combine
from sweep.engines.base import Engine, EngineFactory
from sweep.errors import ConfigError

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
_ENGINES = ("local", "lanes", "inline", "ray", "agents", "slurm")
# Settings in the environment of the driver, each also read under Tune's name: `TUNE_X` in place of `SWEEP_X`.
NO_LOGGERS = "DISABLE_AUTO_CALLBACK_LOGGERS"  # 1: no result.json, params.json and progress.csv
NOT_STRICT = "DISABLE_STRICT_METRIC_CHECKING"  # 1: reports without the metric are fine
NO_SIGINT = "DISABLE_SIGINT_HANDLER"  # 1: Ctrl-C raises KeyboardInterrupt, as without a sweep
# Not part of what a restored sweep is asked again: they are where it lies, or belong to one call.
_NOT_KEPT = frozenset(
    "trainable trainable_name name storage_path storage_filesystem resume resume_config on_interrupt on_end".split()
)


@dataclass(frozen=True)
class ResumeMode:
    """What `resume=` means, in parts."""

    is_wanted: bool = False
    errored: str = ""  # "", "continue", "restart"
    unfinished: bool = True
    is_auto: bool = field(default=False, compare=False)  # whether or not there is something to resume

    @classmethod
    def parse(cls, value: bool | str | None, config: ResumeConfig | None = None) -> ResumeMode:
        """Return what both parameters say; a config alone does not ask for resuming."""
        mode = cls(bool(value))
        if not isinstance(value, (bool, NoneType)):
            match = re.fullmatch(r"(AUTO|TRUE|LOCAL)?(?:\+?(RESTART_)?ERRORED(_ONLY)?)?", str(value).upper())
            if match is None or not match[0]:
                known = "ERRORED, ERRORED_ONLY, RESTART_ERRORED, RESTART_ERRORED_ONLY"
                raise ConfigError(f"resume is {value!r}; expected True, False, 'AUTO', or 'AUTO+' and one of {known}.")
            errored = "" if "ERRORED" not in match[0] else "restart" if match[2] else "continue"
            mode = cls(True, errored, not match[3], is_auto=match[1] == "AUTO")
        if config is None:
            return mode
        if mode.errored or not mode.unfinished:
            raise ConfigError("resume='AUTO+...' and resume_config both say which trials go on; give one of them.")
        errored = {"resume": "continue", "restart": "restart", "skip": ""}[config.errored]
        return replace(mode, errored=errored, unfinished=config.unfinished == "resume")


@dataclass(frozen=True)
class StopRules:
    """What `stop=` means: values of results, a stopper of the user's own, seconds."""

    # A trial ends at that value or above, or where it is True or False at the same; the core compares.
    criteria: Mapping[str, float] = field(default_factory=dict)
    stopper: Stopper | None = None  # the user's own; asked for each result that is judged
    budget_s: float = math.inf  # of the sweep

    @classmethod
    def parse(cls, stop: Any) -> StopRules:
        """Return what `stop=` means in any of its forms."""
        if stop is None:
            return cls()
        if isinstance(stop, Mapping):
            criteria = {key: bool(value) if isinstance(value, np.bool_) else value for key, value in stop.items()}
            for key, value in criteria.items():
                where = f"stop={{{key!r}: {value!r}}}: "
                if isinstance(value, Mapping):
                    raise ConfigError(f"{where}write nested keys as a path, such as 'eval/accuracy'.")
                if not isinstance(value, bool) and not checks.is_number(value, is_finite=False):
                    raise ConfigError(f"{where}expected a number; a trial ends at that value or above.")
            return cls(criteria)
        is_list = isinstance(stop, (list, tuple))
        if not is_list and callable(stop) and not hasattr(stop, "stop_all"):
            return cls(stopper=FunctionStopper(stop))
        stoppers = list(stop) if is_list else [stop]
        for item in stoppers:
            if not isinstance(item, Stopper):
                what = "a dict, a function (trial_id, result) -> bool, a Stopper, or a list of Stoppers"
                checks.refuse("stop", item, what)
        budgets = [item.budget_s for item in stoppers if item.budget_s is not None]
        own = [item for item in stoppers if not isinstance(item, TimeoutStopper)]
        return cls(stopper=combine(own), budget_s=min(budgets, default=math.inf))

    @property
    def judge(self) -> Callable[[str, TrialResult], Verdict] | None:
        """The stopper's verdict on a result; None where there is none to be asked."""
        if (stopper := self.stopper) is None:
            return None

        def verdict(trial_id: str, result: TrialResult) -> Verdict:
            is_over = stopper(trial_id, result)
            return Verdict.STOP_ALL if stopper.stop_all() else Verdict.STOP if is_over else Verdict.NONE

        return verdict


@dataclass(frozen=True)
class Options(TuneConfig, RunOptions):
    """The parameters of `sweep.run`, all of which have defaults; `TuneConfig` and `RunConfig` have some of them.

    Args:
        name: directory of the experiment; None: `<trainable>_<date_time>`.
        metric, mode: what is optimised, "min" or "max"; lists for several objectives.
        stop: dict of result key -> value (a trial ends at value or above; True and False end it when they are
            reported), a function `(trial_id, result) -> bool`, a `Stopper`, or a list of stoppers.
        time_budget_s: seconds of driving, or a timedelta; then everything ends.
        config: search space and constants, nested as you like.
        resources_per_trial: dict such as `{"cpu": 2, "gpu": 0.5, "memory": "4G"}`, a `PlacementGroupFactory`, or a
            function of the config that returns one of them. Default: 1 CPU.
        num_samples: how often the space is sampled (a grid multiplies it); -1: until something else ends the sweep.
        storage_path: directory that holds experiments, or a URI such as `s3://bucket/sweeps` to which they are copied;
            None: `$SWEEP_STORAGE`, else `./sweep_results`.
        storage_filesystem: an fsspec file system; then `storage_path` is a path in it.
        search_alg, scheduler: objects, or names such as "tpe" and "asha"; None: random and grid search, FIFO.
        checkpoint_config: what is saved and kept.
        verbose: 0 prints nothing, 1 the live table, 2 results too; None: 1.
        progress_reporter: a callback that takes the place of the built-in display.
        log_to_file: True: what a trial prints goes to `stdout` and `stderr` in its directory; a name: both to that
            file; a pair of names. False: both to `output.log`.
        trial_name_creator: function of a trial that returns the name by which people see it.
        trial_dirname_creator: function of a trial that returns a name without separators; a link of that name to the
            trial's directory, which bears its id, is made in the experiment's. One of more than 240 bytes is shortened,
            with a hash.
        chdir_to_trial_dir: run each trial in its own directory. None: in the caller's; of what is called through
            `sweep.tune`, as in Tune, in its own unless the environment has RAY_CHDIR_TO_TRIAL_DIR=0.
        sync_config: how a URI is kept up to date.
        max_failures: failures a trial may have and still be started again; -1: unlimited.
        max_identical_failures: so many trials that fail alike before any trial has reported end the sweep, and it can
            be resumed; None: three times as many as run at a time, at least five; -1: no limit.
        fail_fast: the first failed trial ends the sweep; "raise": its exception leaves `run`.
        failure_config: the same two, and more: which failures count, what becomes of those for lack of memory.
        trial_timeout_s: seconds that a trial may run, in all its attempts; then it is asked to stop, and killed if it
            does not.
        report_timeout_s: seconds that a report of a trial may take; then the stacks of its processes are written to its
            log, and it is killed.
        restore: a checkpoint's directory that every trial starts from.
        warm_start: a former experiment (its directory, URI, analysis or results), a study of Optuna, or pairs of a
            config and its result: the searcher learns from it before its first suggestion. It is kept with the record,
            and a run that is continued goes on from that.
        resume: True or "AUTO": continue the experiment `name` if it exists. `+ERRORED` also continues failed trials,
            `+RESTART_ERRORED` starts them anew, `+ERRORED_ONLY` and `+RESTART_ERRORED_ONLY` end unfinished ones.
        resume_config: the same as those suffixes, as an object.
        reuse_actors: keep a worker process for the next trial with the same request: faster, less isolated.
        raise_on_failed_trial: raise `TrialsFailed`, which has the analysis, at the end if some trial failed; None: only
            warn in a notebook, so that a cell has its analysis, and raise elsewhere.
        on_interrupt: "raise": Ctrl-C, SIGTERM and their like stop this sweep in order and raise `SweepInterrupted`, so
            that a script does not go on to its next one. "return": as in Tune, return the analysis, whose `interrupted`
            is true.
        on_end: called once everything is closed, however the sweep ended: a function of the analysis, or a command (a
            text, or a list of words; no shell), which is told in SWEEP_NAME, SWEEP_STATE ("ended", "interrupted" or
            "failed"), SWEEP_METRIC, SWEEP_BEST and SWEEP_DIR, and as JSON on its standard input. It has 60 s. What goes
            wrong in it is said, and changes nothing. It is of one call: whoever resumes the sweep gives it again.
        callbacks: observers, also of single trials; the default loggers are added.
        max_concurrent_trials: how many trials may be open at a time, whatever the searcher; None or 0: as many as fit.
        seed: of searcher, scheduler and trials; None: random, and recorded.
        engine: "local" (processes), "lanes" (many trials of a `VectorTrainable` in each process), "inline" (this
            process, for pdb), "ray" or "slurm" (the nodes of a cluster), "agents" (this machine and those that join),
            an `Engine`, or a function that takes an `EngineContext` and returns one. None: "lanes" for a
            `VectorTrainable`, else "local", or what `sweep.init` has said: "ray" after `sweep.init(engine="ray")`,
            "inline" after `sweep.init(local_mode=True)`.
        nodes: the inventory; None: that of `sweep.init`, else this machine.
        start_method: "forkserver" (fast), or "spawn" (for libraries that cannot be forked).
        preload: modules that trials import, imported once beforehand in addition to those found.
        env: environment variables for trials; the experiment keeps their names, and not their values.
        durability: what a power cut may take: the last second ("normal"), or nothing ("full"). A kill takes nothing of
            what was reported.
        strict_metric: end the sweep early when no trial reports the metric: after three trials, or ten reports of one;
            and a trial that reports something else than a number under it is in ERROR.
        import_path: `file.py:function` by which the trainable can be found again; found by itself where possible.
    """

    config: Mapping[str, Any] | None = None
    resources_per_trial: Any = None
    max_failures: int = 0
    max_identical_failures: int | None = None
    fail_fast: bool | str = False
    trial_timeout_s: float | timedelta | None = None
    report_timeout_s: float | timedelta | None = None
    restore: str | os.PathLike[str] | None = None
    resume: bool | str | None = None
    resume_config: ResumeConfig | None = None
    raise_on_failed_trial: bool | None = None
    on_end: Callable[[Any], Any] | str | Sequence[str] | None = None
    engine: str | Engine | EngineFactory | None = None
    nodes: Sequence[Node] | None = None
    start_method: str = "forkserver"
    preload: Sequence[str] = ()
    env: Mapping[str, str] | None = None
    durability: str = "normal"
    strict_metric: bool = True
    import_path: str | None = None


PARAMETERS = {item.name: item.default for item in fields(Options)}
"""The parameters of `run` and their defaults."""


@dataclass(frozen=True)
class RunSpec(Options):
    """Everything that can be asked of a run, checked.

    `run`, `Tuner`, `Experiment`, the command line, a spec file and the saved spec of an experiment are ways
    to say it. What the parameters mean together is read from the properties. `warm_start` is pairs of a config and its
    result, once `launch.execute` has read them."""

    trainable: Any = None
    trainable_name: str | None = None  # under which it was registered

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
        return cls(trainable=trainable, **given)

    def __post_init__(self) -> None:
        self.take(
            num_samples=partial(count, least=1),
            max_concurrent_trials=checks.whole,
            seed=checks.whole,
            on_interrupt=partial(checks.one_of, known=("raise", "return")),
            durability=partial(checks.one_of, known=("normal", "full")),
            on_end=_on_end,
            config=_of_kind(Mapping, "a dict such as {'lr': sweep.loguniform(1e-4, 1e-1)}"),
            callbacks=_of_kind((list, tuple), "a list of objects, such as [WandbLoggerCallback()]"),
            progress_reporter=_of_kind(Callback, "a reporter such as sweep.CLIReporter(), or None"),
            trial_name_creator=_of_kind(Callable, "a function of a trial that returns a text"),
            trial_dirname_creator=_of_kind(Callable, "a function of a trial that returns a text"),
            failure_config=_of_kind(FailureConfig, "a sweep.FailureConfig"),
            resume_config=_of_kind(ResumeConfig, "a sweep.ResumeConfig"),
        )
        for index, one in enumerate(self.callbacks or ()):
            hint = f"it, {one.__name__}()" if isinstance(one, type) else "a class derived from sweep.Callback"
            _of_kind(Callback, f"an object of {hint}")(f"callbacks[{index}]", one)
        refuse_endless(self.config)
        for policy in (self.scheduler, self.search_alg):  # one of the two without the other: whose is the same
            metric, mode = getattr(policy, "metric", None), getattr(policy, "mode", None)
            if self.mode is None and self.metric is not None and metric in (None, self.metric):
                object.__setattr__(self, "mode", mode)
            elif self.metric is None and self.mode is not None and mode in (None, self.mode):
                object.__setattr__(self, "metric", metric)
        metric_and_mode(self.metric, self.mode)
        if not (isinstance(self.engine, Engine) or callable(self.engine) or self.engine in (None, *_ENGINES)):
            raise ConfigError(f"engine is {self.engine!r}. {nearest(str(self.engine), _ENGINES)}")
        _ = self.failures, self.resuming, self.budget_s  # each is checked as it is read

    @property
    def samples(self) -> int | None:
        """How often the space is sampled; None: no limit."""
        return None if self.num_samples == -1 else self.num_samples

    @property
    def verbosity(self) -> int:
        return 1 if self.verbose is None else int(self.verbose)

    @property
    def checkpoints(self) -> CheckpointConfig:
        return self.checkpoint_config or CheckpointConfig()

    @cached_property
    def failures(self) -> FailureConfig:
        """What becomes of failed trials: `failure_config`, with what was given beside it."""
        own = FailureConfig(**same_fields(FailureConfig, self))
        said = {item.name: getattr(own, item.name) for item in fields(own) if getattr(own, item.name) != item.default}
        for name, value in said.items():
            other = getattr(self.failure_config, name, value)
            if other not in (value, getattr(FailureConfig, name)):
                raise ConfigError(f"{name}={value!r} and failure_config, which says {other!r}, were both given.")
        return replace(self.failure_config or own, **said)

    @cached_property
    def resuming(self) -> ResumeMode:
        return ResumeMode.parse(self.resume, self.resume_config)

    @cached_property
    def stop_rules(self) -> StopRules:
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


def _of_kind(kind: Any, expected: str) -> Callable[[str, Any], Any]:
    return lambda name, value: value if isinstance(value, kind) else checks.refuse(name, value, expected)


def _on_end(name: str, value: Any) -> Any:
    """Return a function as it is, and a command as its words."""
    try:
        words = shlex.split(value) if isinstance(value, str) else value
    except ValueError:  # a quote is not closed
        words = None
    is_command = isinstance(words, (list, tuple)) and words and all(isinstance(word, str) for word in words)
    if not is_command and not callable(value):
        checks.refuse(name, value, "a function of the analysis, or a command: a text with its words, or a list of them")
    return words


def changed(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a run that say more than their defaults; objects of the user's own are not compared."""

    def is_default(value: Any, default: Any) -> bool:
        return value is default or (isinstance(value, (bool, int, float, str, tuple)) and value == default)

    return {name: value for name, value in arguments.items() if not is_default(value, PARAMETERS.get(name))}


def same_fields(kind: Any, *sources: Any) -> dict[str, Any]:
    """Return what a dataclass takes over from others: the fields that they have under the same names; the last wins."""
    names = {item.name for item in fields(kind)}
    return {item.name: getattr(one, item.name) for one in sources for item in fields(one) if item.name in names}


def metric_and_mode(metric: Any, mode: Any) -> tuple[str, str]:
    """Return the first metric ("" if none) and its mode; refuse what is none."""
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
    advice = f"write checkpoint_config=sweep.CheckpointConfig({shown})."
    if given is not None:
        raise ConfigError(f"{next(iter(deprecated))} and checkpoint_config were both given; {advice}")
    text = f"{', '.join(deprecated)}: deprecated; {advice}"
    warnings.warn(text, DeprecationWarning, stacklevel=level_of_caller())
    return CheckpointConfig(**said)


def _setting(name: str) -> str:
    return os.environ.get(f"SWEEP_{name}") or os.environ.get(f"TUNE_{name}") or ""


def is_set(name: str) -> bool:
    """Whether the setting `name` is on: neither empty nor 0."""
    return _setting(name) not in ("", "0")


def stop_grace_s(default: float = Plan.stop_grace_s) -> float:
    """Return the seconds that a trial which is asked to stop may take before it is killed."""
    text = _setting("FORCE_TRIAL_CLEANUP_S")
    try:
        return checks.seconds("", float(text), most=1e9) if text else default
    except ValueError:
        raise ConfigError(f"SWEEP_FORCE_TRIAL_CLEANUP_S is {text!r}; expected seconds above 0.") from None
