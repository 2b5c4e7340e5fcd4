"""Settings in the environment of the driver, each also read under Tune's name: `TUNE_X` in place of `SWEEP_X`."""

from __future__ import annotations

import os

from sweep import checks
from sweep.core.plan import Plan
from sweep.errors import ConfigError

NO_LOGGERS = "DISABLE_AUTO_CALLBACK_LOGGERS"  # 1: no result.json, params.json and progress.csv
NOT_STRICT = "DISABLE_STRICT_METRIC_CHECKING"  # 1: reports without the metric are fine
NO_SIGINT = "DISABLE_SIGINT_HANDLER"  # 1: Ctrl-C raises KeyboardInterrupt, as without a sweep


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
