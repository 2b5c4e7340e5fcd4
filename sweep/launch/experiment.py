"""An experiment as a value: what to run and how, for `run` and `run_experiments`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

from sweep.core.config import CheckpointConfig, SyncConfig
from sweep.errors import ConfigError, meant, refuse_unknown

__all__ = ["Experiment"]


@refuse_unknown()
@dataclass(frozen=True)
class Experiment:
    """What to run and how; the fields are parameters of `sweep.run`.

    Attributes:
        name: directory of the experiment.
        run: the trainable, or the name of a registered one.

    Raises:
        ConfigError: the name is no text, or there is nothing to run.
    """

    name: str
    run: Any
    stop: Any = None
    time_budget_s: float | timedelta | None = None
    config: Mapping[str, Any] | None = None
    resources_per_trial: Any = None
    num_samples: int = 1
    storage_path: str | os.PathLike[str] | None = None
    storage_filesystem: Any = None
    checkpoint_config: CheckpointConfig | None = None
    sync_config: SyncConfig | None = None
    trial_name_creator: Callable[[Any], str] | None = None
    trial_dirname_creator: Callable[[Any], str] | None = None
    log_to_file: bool | str | Sequence[str] = False
    max_failures: int = 0
    restore: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ConfigError(f"an experiment has the name {self.name!r}; expected the name of its directory.")
        if self.run is None:
            raise ConfigError(f"the experiment {self.name!r} has nothing to run; give it run=function.")

    @classmethod
    def from_json(cls, name: str, spec: Mapping[str, Any]) -> Experiment:
        """Return the experiment that a dict describes: `{"run": train, "config": {...}, "num_samples": 4}`.

        A key `env` is put into the config, as Tune does.

        Raises:
            ConfigError: it is no dict, lacks `run`, or has an unknown key.
        """
        if not isinstance(spec, Mapping):
            raise ConfigError(f"the experiment {name!r} is {spec!r:.100}; expected a dict with a key 'run'.")
        given = dict(spec)
        if "env" in given:
            given["config"] = {**(given.get("config") or {}), "env": given.pop("env")}
        known = [item.name for item in fields(cls) if item.name != "name"]
        for key in given:
            if key not in known:
                raise ConfigError(f"the experiment {name!r} has an unknown key {key!r}. {meant(str(key), known)}")
        if "run" not in given:
            raise ConfigError(f"the experiment {name!r} has no key 'run'; it names what is run.")
        return cls(name, **given)

    @property
    def public_spec(self) -> dict[str, Any]:
        """What searchers, schedulers and callbacks may know: `stop`, `num_samples` and `time_budget_s`."""
        return {"stop": self.stop, "num_samples": self.num_samples, "time_budget_s": self.time_budget_s}

    def arguments(self) -> dict[str, Any]:
        """Return what `run` must be given, `run` itself apart: the fields that differ from their defaults."""
        return {
            item.name: value
            for item in fields(self)
            if item.name != "run" and (value := getattr(self, item.name)) is not item.default
        }
