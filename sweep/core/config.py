"""What a sweep, a `Tuner` or a trainer is configured with: frozen, checked values, under the names that Tune uses."""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from enum import StrEnum
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any

from searchers.errors import nearest
from sweep.checks import is_whole, number, one_of, refuse, seconds, whole
from sweep.core.failures import CLASSES
from sweep.errors import ConfigError, refuse_unknown

if TYPE_CHECKING:
    import os

    from searchers.base import Searcher
    from sweep.callbacks.base import Callback
    from sweep.core.stoppers import Stopper
    from sweep.schedulers.base import Scheduler


def fields_of(config: type, where: str, name: str = "") -> dict[str, str]:
    """Return the message for a user who gives a field of `config` to something that holds the whole of it."""
    name = name or config.__name__
    return {item.name: f"It is a field of {name}: {where}=sweep.{name}({item.name}=...)." for item in fields(config)}


class Checked:
    """A repr of only the fields that differ from their defaults, and fields that are what their checks return."""

    def __repr__(self) -> str:
        pairs = [(item, getattr(self, item.name)) for item in fields(self)]  # type: ignore[arg-type]
        shown = [f"{item.name}={value!r}" for item, value in pairs if value != item.default]
        return f"{type(self).__name__}({', '.join(shown)})"

    def take(self, **checks: Callable[[str, Any], Any]) -> None:
        """Check these fields; None where it is the default needs no check."""
        for name, check in checks.items():
            value = getattr(self, name)
            if value is not None or getattr(type(self), name) is not None:
                object.__setattr__(self, name, check(name, value))


def count(name: str, value: Any, *, least: int = 0) -> int:
    """Return a whole number of at least `least`, or -1 for no limit."""
    if is_whole(value) and value == -1:
        return -1
    return whole(name, value, least=least, expected=f"a whole number of at least {least}, or -1 for no limit")


def env_vars_of(runtime_env: Any, who: str) -> dict[str, str]:
    """Return the variables of a runtime environment, `{"env_vars": {name: value}}`; none for None."""
    if not isinstance(runtime_env, (Mapping, NoneType)):
        raise ConfigError(f"{who}: runtime_env is {runtime_env!r:.100}; expected {{'env_vars': {{'NAME': 'value'}}}}.")
    given = runtime_env or {}
    for key in given.keys() - {"env_vars"}:
        hint = f"{nearest(str(key), ['env_vars'])} Files and packages are those of the driver."
        raise ConfigError(f"{who}: runtime_env has an unknown key {key!r}. {hint}")
    variables = given.get("env_vars")
    if not isinstance(variables, (Mapping, NoneType)):
        raise ConfigError(f"{who}: env_vars is {variables!r:.100}; expected a dict of texts: {{'NAME': 'value'}}.")
    for name, value in (variables or {}).items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise ConfigError(f"{who}: env_vars has the name {name!r}; expected a text without '='.")
        if not isinstance(value, str) or "\0" in value:
            raise ConfigError(f"{who}: env_vars has {name}={value!r:.100}; expected a text. Write {str(value)!r:.100}.")
    return dict(variables or {})


def refuse_endless(config: Mapping[str, Any] | None) -> None:
    """Refuse a config, or a space, with a dict or list in it that lies in itself."""
    for key, value in (config or {}).items():
        try:
            json.dumps(value, default=lambda other: None, skipkeys=True)
        except (ValueError, RecursionError) as error:
            if isinstance(error, ValueError) and "Circular" not in str(error):
                continue  # a number too long to be shown
            what = f"config[{key!r:.100}] holds itself, or is nested some hundred deep"
            raise ConfigError(f"{what}; expected dicts and lists that come to an end.") from None


def level_of_caller() -> int:
    """Return the `stacklevel` by which a warning of the calling function names the user's own line."""
    depth, frame = 0, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("sweep", "searchers"):
        depth, frame = depth + 1, frame.f_back
    return depth


def storage_path_of(storage_path: Any, local_dir: Any) -> Any:
    """Return the storage path that was given, perhaps under its former name, of which a warning says so."""
    if local_dir is None:
        return storage_path
    if storage_path is not None and str(storage_path) != str(local_dir):
        given = f"storage_path={storage_path!r} and local_dir={local_dir!r} were both given"
        raise ConfigError(f"{given}, and local_dir is its former name; give storage_path alone.")
    text = f"local_dir is called storage_path now: storage_path={local_dir!r}."
    warnings.warn(text, DeprecationWarning, stacklevel=level_of_caller())
    return local_dir


@refuse_unknown(
    {
        "controller_failure_limit": "The driver is no process of its own that could fail alone; leave it out.",
        "timeout": "Say trial_timeout_s, for a trial as a whole, or report_timeout_s, for one report.",
    }
)
@dataclass(frozen=True, repr=False)
class FailureConfig(Checked):
    """What happens when trials fail, and for how long they may run.

    The classes of failures: `user` (its code raised), `killed` (a signal ended it, or it left without a word),
    `timeout`, `hung`, `out_of_memory` (of the machine or of a device), `nan`, `start` (it ended before its code began)
    and `lost` (what supervised it is gone); the two count to a limit of their own: three in a row. On several machines
    also `node_lost` (its node, or the agent there, is gone): `max_node_losses` in a row.

    Attributes:
        max_failures: failures a trial may have and still be started again, from its checkpoint; -1: unlimited.
        max_identical_failures: so many trials that fail alike, numbers aside, before any trial has reported end the
            sweep, which can be resumed; None: three times as many as run at a time, at least five; -1: no limit.
        fail_fast: the first failed trial ends the sweep; "raise": and its exception leaves `run` at once.
        hang_timeout_s: another spelling of `report_timeout_s`.
        report_timeout_s: seconds that a trial, or a worker of a training group, may take for a report, while it does
            not wait for the sweep; then the stacks of its processes are written to its log and it is killed, as
            `hung`. None: for ever.
        trial_timeout_s: seconds that a trial may run, in all its attempts; then it is asked to stop, and keeps its
            results if it does so at its next report. Otherwise it is killed, at most five seconds later, as `timeout`.
        retry_on: classes of failures after which a trial is started again; None: all but `timeout` and `nan`. A trial
            that is started again after a `timeout` has all its time again.
        out_of_memory: "retry" as after any failure; "retry_alone": once more even where `max_failures` is used up, with
            nothing else on its nodes; "fail": never again.
        nan: a metric of the sweep that is NaN is recorded ("record"), or a failure of the trial ("error").
        max_node_losses: how often in a row, without a new result between, the node of a trial may be gone and the trial
            still be started again, from its checkpoint; -1: unlimited. Machines that are taken away and given back
            (preempted, spot) use up neither `max_failures` nor the three losses.

    Raises:
        ConfigError: a value that makes no sense.
    """

    max_failures: int = 0
    fail_fast: bool | str = False
    hang_timeout_s: float | timedelta | None = None
    report_timeout_s: float | timedelta | None = None
    trial_timeout_s: float | timedelta | None = None
    retry_on: Collection[str] | None = None
    out_of_memory: str = "retry"
    nan: str = "record"
    max_node_losses: int = 10
    max_identical_failures: int | None = None

    def __post_init__(self) -> None:
        self.take(
            max_failures=count,
            max_node_losses=count,
            max_identical_failures=partial(count, least=1),
            hang_timeout_s=_limit,
            report_timeout_s=_limit,
            trial_timeout_s=_limit,
            out_of_memory=partial(one_of, known=("retry", "retry_alone", "fail")),
            nan=partial(one_of, known=("record", "error")),
            retry_on=_classes,
        )
        if not (isinstance(self.fail_fast, bool) or str(self.fail_fast).lower() == "raise"):
            refuse("fail_fast", self.fail_fast, "True, False or 'raise'")
        if len({self.hang_timeout_s, self.report_timeout_s} - {None}) > 1:
            given = f"hang_timeout_s={self.hang_timeout_s!r} and report_timeout_s={self.report_timeout_s!r}"
            raise ConfigError(f"{given} are two spellings of one limit; give one of them.")
        if self.fail_fast and (most := self.max_failures) != 0:
            raise ConfigError(f"fail_fast with max_failures={most}: choose one, they contradict each other.")

    @property
    def report_limit_s(self) -> float | None:
        """Seconds that a report may take, whichever spelling was used."""
        return self.hang_timeout_s if self.report_timeout_s is None else self.report_timeout_s  # type: ignore[return-value]


_limit = partial(seconds, most=1e9, expected="seconds above 0, or None for no limit")


def _classes(name: str, given: Any) -> tuple[str, ...]:
    """Return classes of failures in their usual order."""
    classes = [given] if isinstance(given, str) or not isinstance(given, Collection) else list(given)
    for one in classes:
        one_of(name, one, CLASSES)
    return tuple(one for one in CLASSES if one in classes)


@refuse_unknown(
    {
        "_checkpoint_keep_all_ranks": "The files of all ranks are kept, in one checkpoint; leave it out.",
        "_checkpoint_upload_from_workers": "Workers write into the trial's directory themselves; leave it out.",
        "keep_checkpoints_num": "It is called num_to_keep.",
        "checkpoint_score_attr": "It is called checkpoint_score_attribute; checkpoint_score_order is 'min' or 'max'.",
        "checkpoint_freq": "It is called checkpoint_frequency.",
    }
)
@dataclass(frozen=True, repr=False)
class CheckpointConfig(Checked):
    """Which checkpoints are made and kept.

    Attributes:
        num_to_keep: per trial; None keeps all. The latest is kept in any case.
        checkpoint_score_attribute: result key (paths with `/`) by which the best are kept; None: the latest are.
        checkpoint_score_order: "max" or "min".
        checkpoint_frequency: class trainables save each that many iterations; 0: never by themselves.
        checkpoint_at_end: class trainables save when they are stopped; None: they do.
    """

    num_to_keep: int | None = None
    checkpoint_score_attribute: str | None = None
    checkpoint_score_order: str = "max"
    checkpoint_frequency: int = 0
    checkpoint_at_end: bool | None = None

    def __post_init__(self) -> None:
        self.take(
            num_to_keep=partial(whole, least=1, expected="a whole number of at least 1, or None to keep all"),
            checkpoint_score_order=partial(one_of, known=("min", "max")),
            checkpoint_frequency=whole,
        )


@refuse_unknown(
    {
        "upload_dir": "Give the URI as storage_path.",
        "syncer": "Leave it out: nothing is copied from a local storage_path. In place of a Syncer of your own pass "
        "storage_filesystem, an fsspec file system, beside storage_path.",
        "sync_to_driver": "Everything is written in place; leave it out.",
    }
)
@dataclass(frozen=True, repr=False)
class SyncConfig(Checked):
    """How an experiment is copied to remote storage while it runs.

    Attributes:
        sync_period: seconds between two copies; checkpoints and the ends of trials are copied at once.
        sync_timeout: seconds that the end of the sweep waits for what is still being copied.
        sync_artifacts: copy other files in the trials' directories, too.
        sync_artifacts_on_checkpoint: with `sync_artifacts`: copy them whenever a checkpoint is copied.
    """

    sync_period: float = 300
    sync_timeout: float = 1800
    sync_artifacts: bool = False
    sync_artifacts_on_checkpoint: bool = True

    def __post_init__(self) -> None:
        for name in ("sync_period", "sync_timeout"):
            number(name, getattr(self, name), above=0, is_finite=False, expected="seconds above 0")


class _ResumeType(StrEnum):
    RESUME = "resume"
    RESTART = "restart"
    SKIP = "skip"


@refuse_unknown()
@dataclass(frozen=True, repr=False)
class ResumeConfig(Checked):
    """What a resumed sweep does with the trials that it finds.

    Attributes:
        finished: trials that are TERMINATED; only SKIP: they are kept as they are.
        unfinished: trials that had not ended: RESUME from their checkpoint, or SKIP: they are ended.
        errored: trials in ERROR: RESUME from their checkpoint, RESTART from nothing, or SKIP.
    """

    ResumeType = _ResumeType

    finished: _ResumeType | str = _ResumeType.SKIP
    unfinished: _ResumeType | str = _ResumeType.RESUME
    errored: _ResumeType | str = _ResumeType.SKIP

    def __post_init__(self) -> None:
        allowed = {"finished": ("skip",), "unfinished": ("resume", "skip"), "errored": ("resume", "restart", "skip")}
        for name, known in allowed.items():
            text = str(getattr(self, name)).lower()
            object.__setattr__(self, name, _ResumeType(one_of(f"ResumeConfig: {name}", text, known)))


@dataclass(frozen=True, repr=False)
class RunOptions(Checked):
    """Where a sweep lives and how it is run: parameters of `sweep.run`, where they are explained."""

    name: str | None = None
    storage_path: str | os.PathLike[str] | None = None
    storage_filesystem: Any = None
    failure_config: FailureConfig | None = None
    checkpoint_config: CheckpointConfig | None = None
    sync_config: SyncConfig | None = None
    stop: Mapping[str, float] | Callable[..., bool] | Stopper | Sequence[Stopper] | None = None
    callbacks: Sequence[Callback] | None = None
    progress_reporter: Callback | None = None
    verbose: int | None = None
    log_to_file: bool | str | Sequence[str] = False
    on_interrupt: str = "raise"


_SPACE = "It is an argument of Tuner itself, called param_space there: Tuner(train, param_space={...})."


@refuse_unknown(
    {**fields_of(RunOptions, "run_config", "RunConfig"), **dict.fromkeys(("param_space", "config"), _SPACE)}
)
@dataclass(frozen=True, repr=False)
class TuneConfig(Checked):
    """What is searched and how; the fields are parameters of `sweep.run`."""

    metric: str | Sequence[str] | None = None
    mode: str | Sequence[str] | None = None
    search_alg: Searcher | str | None = None
    scheduler: Scheduler | str | None = None
    num_samples: int = 1
    max_concurrent_trials: int | None = None
    time_budget_s: float | timedelta | None = None
    reuse_actors: bool = False
    trial_name_creator: Callable[[Any], str] | None = None
    trial_dirname_creator: Callable[[Any], str] | None = None
    chdir_to_trial_dir: bool | None = None
    seed: int | None = None
    warm_start: Any = None


@refuse_unknown(
    {
        "logging_config": "What a worker prints is kept in its trial's directory, whatever its level; leave it out.",
        "upload_dir": "Give the URI as storage_path.",
        "env_vars": "Write runtime_env={'env_vars': {'NAME': 'value'}}.",
        **fields_of(FailureConfig, "failure_config"),
        **fields_of(CheckpointConfig, "checkpoint_config"),
        **fields_of(SyncConfig, "sync_config"),
        **fields_of(TuneConfig, "tune_config"),
    }
)
@dataclass(frozen=True, repr=False)
class RunConfig(RunOptions):
    """Where a sweep lives and how it is run; the fields are parameters of `sweep.run`.

    Attributes:
        local_dir: the name that `storage_path` once had; taken as that, with a DeprecationWarning.
        runtime_env: `{"env_vars": {name: value}}`: variables that every process of a trial has before its code runs;
            `worker_runtime_env` is the same.
    """

    local_dir: str | os.PathLike[str] | None = None
    runtime_env: Mapping[str, Mapping[str, str]] | None = None
    worker_runtime_env: Mapping[str, Mapping[str, str]] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "storage_path", storage_path_of(self.storage_path, self.local_dir))
        object.__setattr__(self, "local_dir", None)
        if self.runtime_env is not None and self.worker_runtime_env is not None:
            raise ConfigError("runtime_env and worker_runtime_env are the same; give one of them.")
        _ = self.env_vars  # the check

    @property
    def env_vars(self) -> dict[str, str]:
        """The variables of `runtime_env`."""
        given = self.runtime_env if self.runtime_env is not None else self.worker_runtime_env
        return env_vars_of(given, type(self).__name__)
