"""What tests of loggers share: a trial, a library of a service that is played, a rank that asks who it is."""

from __future__ import annotations

import importlib.machinery
import math
import sys
import types
from typing import Any

import sweep
from sweep.callbacks.observed import ObservedTrial
from sweep.core.plan import Plan
from sweep.core.resources import Resources
from sweep.core.trial import Status, Trial, evolve
from sweep.results.trials import ExperimentInfo

FACTS = Trial("abcde_00000", {"lr": 0.1, "net": {"width": 16}}, Resources(), Status.RUNNING, attempt=1)
TRIAL = ObservedTrial(FACTS, ExperimentInfo())


def evolved(root: Any = "", **changes: Any) -> Any:
    return ObservedTrial(evolve(FACTS, **changes), ExperimentInfo(str(root)))


def ready(callback: Any, root: Any) -> Any:
    callback.setup(experiment_dir=str(root), plan=Plan(), num_trials=2)
    return callback


def play(monkeypatch: Any, name: str, variables: str, **members: Any) -> None:
    """Put a module in the place of a library, and take the environment variables that it reads away for a test."""
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, name, module)
    for variable in variables.split():
        monkeypatch.setenv(variable, "")  # and what is set meanwhile is taken back
        monkeypatch.delenv(variable)


def in_trial(monkeypatch: Any, module: Any, rank: int = 0, home: Any = None) -> None:
    """Let a rank of TRIAL be who asks."""
    answers = {"trial_id": TRIAL.id, "trial_name": "train_0", "experiment_name": "tuning", "world_rank": rank}
    given = {f"get_{name}": lambda value=value: value for name, value in (answers | {"trial_dir": str(home)}).items()}
    monkeypatch.setattr(module, "get_context", lambda: types.SimpleNamespace(**given))


def train(config: Any) -> None:
    for step in range(3):
        sweep.report(loss=config["lr"] / (step + 1), odd=math.nan)
