"""What `Tuner` is told, as frozen and checked values, under the names that Tune uses."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import TYPE_CHECKING

from sweep.errors import ConfigError

if TYPE_CHECKING:
    from searchers.base import Searcher
    from sweep.callbacks.base import Callback
    from sweep.core.stoppers import Stopper
    from sweep.schedulers.base import Scheduler

__all__ = ["CheckpointConfig", "FailureConfig", "RunConfig", "TuneConfig"]


class _ShowsChanges:
    """A repr of only the fields that differ from their defaults."""

    def __repr__(self) -> str:
        shown = []
        for item in fields(self):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            default = item.default_factory() if callable(item.default_factory) else item.default
            if value != default:
                shown.append(f"{item.name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass(frozen=True, repr=False)
class FailureConfig(_ShowsChanges):
    """What happens when trials fail.

    Attributes:
        max_failures: failures a trial may have and still be started again, from its checkpoint; -1: unlimited.
        fail_fast: the first failed trial ends the sweep; "raise": and its exception leaves `run` at once.
    """

    max_failures: int = 0
    fail_fast: bool | str = False

    def __post_init__(self) -> None:
        number = self.max_failures
        if isinstance(number, bool) or not isinstance(number, int) or number < -1:
            raise ConfigError(f"max_failures is {number!r}; expected a whole number, or -1 for no limit.")
        if not (isinstance(self.fail_fast, bool) or str(self.fail_fast).lower() == "raise"):
            raise ConfigError(f"fail_fast is {self.fail_fast!r}; expected True, False or 'raise'.")
        if self.fail_fast and self.max_failures != 0:
            raise ConfigError(
                f"fail_fast with max_failures={self.max_failures}: choose one, they contradict each other."
            )


@dataclass(frozen=True, repr=False)
class CheckpointConfig(_ShowsChanges):
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
        keep, frequency = self.num_to_keep, self.checkpoint_frequency
        if keep is not None and (isinstance(keep, bool) or not isinstance(keep, int) or keep < 1):
            raise ConfigError(f"num_to_keep is {keep!r}; expected a whole number of at least 1, or None to keep all.")
        if self.checkpoint_score_order not in ("min", "max"):
            raise ConfigError(f"checkpoint_score_order is {self.checkpoint_score_order!r}; expected 'min' or 'max'.")
        if isinstance(frequency, bool) or not isinstance(frequency, int) or frequency < 0:
            raise ConfigError(f"checkpoint_frequency is {frequency!r}; expected a whole number of at least 0.")


@dataclass(frozen=True, repr=False)
class RunConfig(_ShowsChanges):
    """Where a sweep lives and how it is run; the fields are parameters of `sweep.run`."""

    name: str | None = None
    storage_path: str | os.PathLike[str] | None = None
    failure_config: FailureConfig | None = None
    checkpoint_config: CheckpointConfig | None = None
    stop: Mapping[str, float] | Callable[..., bool] | Stopper | Sequence[Stopper] | None = None
    callbacks: Sequence[Callback] | None = None
    progress_reporter: Callback | None = None
    verbose: int | None = None


@dataclass(frozen=True, repr=False)
class TuneConfig(_ShowsChanges):
    """What is searched and how; the fields are parameters of `sweep.run`."""

    metric: str | Sequence[str] | None = None
    mode: str | Sequence[str] | None = None
    search_alg: Searcher | str | None = None
    scheduler: Scheduler | str | None = None
    num_samples: int = 1
    max_concurrent_trials: int | None = None
    time_budget_s: float | timedelta | None = None
    reuse_actors: bool = False
    seed: int | None = field(default=None)
