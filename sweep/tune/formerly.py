"""Modules under the names that they had before, or have in Tune: for imports, and for what was pickled under them."""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from types import ModuleType
from typing import Any

__all__ = ["NOW", "answer_to_former_names"]

NOW = {
    "sweep.arguments": "sweep.launch.arguments",
    "sweep.callbacks.progress": "sweep.display.progress",
    "sweep.callbacks.reporters": "sweep.display.reporters",
    "sweep.config": "sweep.launch.config",
    "sweep.curves": "sweep.simulation.curves",
    "sweep.drive": "sweep.launch.drive",
    "sweep.experiment": "sweep.launch.experiment",
    "sweep.importing": "sweep.record.importing",
    "sweep.interrupt": "sweep.launch.interrupt",
    "sweep.inventory": "sweep.launch.inventory",
    "sweep.names": "sweep.launch.trial_names",
    "sweep.policies": "sweep.launch.policies",
    "sweep.private": "sweep.record.private",
    "sweep.recipe": "sweep.record.recipe",
    "sweep.registry": "sweep.launch.registry",
    "sweep.replaying": "sweep.simulation.replay",
    "sweep.rerunning": "sweep.simulation.rerun",
    "sweep.settings": "sweep.launch.settings",
    "sweep.store": "sweep.record",
    "sweep.store.analysis": "sweep.results.analysis",
    "sweep.store.checkpoints": "sweep.record.checkpoints",
    "sweep.store.encoding": "sweep.record.encoding",
    "sweep.store.filesystems": "sweep.record.filesystems",
    "sweep.store.frames": "sweep.results.frames",
    "sweep.store.layout": "sweep.record.layout",
    "sweep.store.reader": "sweep.record.reader",
    "sweep.store.records": "sweep.record.records",
    "sweep.store.remote": "sweep.record.remote",
    "sweep.store.results": "sweep.results.views",
    "sweep.store.resume": "sweep.record.resume",
    "sweep.store.schema": "sweep.record.schema",
    "sweep.tuner": "sweep.launch.tuner",
}
"""Former name of a module -> where it is."""


class _Formerly:
    """Answers an import of a former name with the module itself, never with a second copy: finder and loader."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        loader: Any = self  # not derived from the classes of importlib.abc, whose import takes 8 ms
        return importlib.machinery.ModuleSpec(name, loader) if name in NOW else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(NOW[spec.name])
        spec.loader_state = module.__spec__, module.__loader__
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None  # the import system has put its own there
        module.__spec__, module.__loader__ = module.__spec__.loader_state


def answer_to_former_names() -> None:
    """From now on former names of modules can be imported."""
    sys.meta_path.insert(0, _Formerly())
