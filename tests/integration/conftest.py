"""What the tests of callbacks for training libraries need: reports that are kept, and a library that is played."""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sweep.integration import reporting


@dataclass
class Trial:
    """A trial whose reports are kept: metrics, and the files of each checkpoint with their texts."""

    home: Path
    rank: int = 0
    size: int = 1
    trial_id: str | None = "abcde_00000"
    reports: list[tuple[dict[str, Any], dict[str, str] | None]] = field(default_factory=list)

    def report(self, metrics: dict[str, Any], *, checkpoint: Any = None) -> None:
        files = None
        if checkpoint is not None:
            root = Path(checkpoint.path)
            assert root.parent == self.home
            walk = os.walk(root, followlinks=True)  # as when a checkpoint is stored
            paths = [Path(directory, name) for directory, _, names in walk for name in names]
            files = {str(path.relative_to(root)): path.read_text() for path in paths}
        self.reports.append((dict(metrics), files))

    def get_trial_id(self) -> str | None:
        return self.trial_id

    def get_trial_dir(self) -> str | None:
        return str(self.home) if self.trial_id else None

    def get_world_rank(self) -> int:
        return self.rank

    def get_world_size(self) -> int:
        return self.size

    def get_local_rank(self) -> int:
        return self.rank

    def get_node_rank(self) -> int:
        return 0


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trial:
    """The trial in which the test's code runs."""
    found = Trial(tmp_path / "trial")
    monkeypatch.setattr(reporting, "report", found.report)
    monkeypatch.setattr(reporting, "get_context", lambda: found)
    return found


@pytest.fixture
def imported(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Import a module of `sweep.integration` while other modules are played by the objects given."""

    def load(name: str, **played: Any) -> Any:
        for module, value in played.items():
            monkeypatch.setitem(sys.modules, module.replace("__", "."), value)
        spec = importlib.util.find_spec(f"sweep.integration.{name}")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)  # known to nobody else
        spec.loader.exec_module(module)
        if hasattr(module, "get_context"):
            monkeypatch.setattr(module, "get_context", lambda: trial)
        return module

    return load


def module(name: str, **contents: Any) -> types.ModuleType:
    """Return a module that holds these names."""
    made = types.ModuleType(name)
    vars(made).update(contents)
    return made


@pytest.fixture
def made() -> Callable[..., types.ModuleType]:
    """Make a module."""
    return module
