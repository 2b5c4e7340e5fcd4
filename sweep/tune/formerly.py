"""Modules under the names that they had before, or have in Tune: for imports, and for what was pickled under them.

`sweep.search` is `searchers`, `sweep.stopper` and `sweep.logger` are what scripts written for Tune import.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from types import ModuleType
from typing import Any

__all__ = ["NOW", "answer_to_former_names", "module_now"]

NOW = {
    "sweep.arguments": "sweep.launch.spec",
    "sweep.callbacks.block": "sweep.display.renderer",
    "sweep.callbacks.board": "sweep.display.state",
    "sweep.callbacks.ending": "sweep.display.ending",
    "sweep.callbacks.formats": "sweep.display.formats",
    "sweep.callbacks.front": "sweep.display.front",
    "sweep.callbacks.policy": "sweep.callbacks.pbt_policy",
    "sweep.callbacks.progress": "sweep.display.progress",
    "sweep.callbacks.rate": "sweep.display.rate",
    "sweep.callbacks.reporters": "sweep.display.reporters",
    "sweep.callbacks.space": "sweep.callbacks.watch",
    "sweep.callbacks.table": "sweep.display.table",
    "sweep.cli.order": "sweep.cli.arguments",
    "sweep.config": "sweep.core.config",
    "sweep.core.asking": "sweep.core.suggestions",
    "sweep.core.consulting": "sweep.core.scheduler_guard",
    "sweep.core.lineup": "sweep.core.pending_queue",
    "sweep.core.outcome": "sweep.core.failures",
    "sweep.core.shortage": "sweep.core.infeasible",
    "sweep.curves": "sweep.simulation.curves",
    "sweep.dicts": "sweep.tune.dicts",
    "sweep.drive": "sweep.launch.drive",
    "sweep.engines.reactor": "sweep.engines.loop",
    "sweep.engines.tree": "sweep.engines.processes",
    "sweep.experiment": "sweep.tune.experiment",
    "sweep.importing": "sweep.record.importing",
    "sweep.interrupt": "sweep.launch.interrupt",
    "sweep.inventory": "sweep.accelerators.inventory",
    "sweep.launch.config": "sweep.core.config",
    "sweep.launch.inventory": "sweep.accelerators.inventory",
    "sweep.logger": "sweep.tune.logger",
    "sweep.names": "sweep.launch.trial_names",
    "sweep.policies": "sweep.launch.policies",
    "sweep.private": "sweep.record.files",
    "sweep.recipe": "sweep.record.saved_spec",
    "sweep.record.filled": "sweep.record.derived_fields",
    "sweep.record.presence": "sweep.record.driver",
    "sweep.record.recipe": "sweep.record.saved_spec",
    "sweep.registry": "sweep.launch.registry",
    "sweep.replaying": "sweep.simulation.replay",
    "sweep.rerunning": "sweep.simulation.replay",
    "sweep.schedulers.bandit": "sweep.schedulers.gaussian_process",
    "sweep.schedulers.fronts": "sweep.schedulers.nondominated",
    "sweep.schedulers.judging": "sweep.schedulers.metric",
    "sweep.schedulers.policy": "sweep.schedulers.pbt_policy",
    "sweep.search": "searchers",
    "sweep.search.basic_variant": "searchers.grid",
    "sweep.search.bayesopt": "searchers.bayesopt_search",
    "sweep.search.concurrency_limiter": "searchers.limiter",
    "sweep.search.hyperopt": "searchers.hyperopt_search",
    "sweep.search.optuna": "searchers.optuna_search",
    "sweep.search.searcher": "searchers.base",
    "sweep.search.variant_generator": "searchers.variants",
    "sweep.settings": "sweep.launch.settings",
    "sweep.simulation.rerun": "sweep.simulation.replay",
    "sweep.stopper": "sweep.tune.stopper",
    "sweep.store": "sweep.record",
    "sweep.store.analysis": "sweep.results.analysis",
    "sweep.store.frames": "sweep.results.frames",
    "sweep.store.notebook": "sweep.results.notebook",
    "sweep.store.results": "sweep.results.views",
    "sweep.store.winners": "sweep.results.winners",
    "sweep.tuner": "sweep.launch.tuner",
    "sweep.worker.horovod_environment": "sweep.worker.group_environment",
    "sweep.worker.odd": "sweep.worker.metrics",
    "sweep.worker.control": "sweep.worker.channel",
}
"""Former name of a module -> where it is."""

_ROOMS = {"sweep.search.": "searchers.", "sweep.store.": "sweep.record."}  # what is not in the table


def module_now(name: str) -> str:
    """Return where the module of a former name is; empty: it is no such name."""
    for former, now in _ROOMS.items():
        if name.startswith(former) and name not in NOW:
            return now + name.removeprefix(former)
    return NOW.get(name, "")


class _Formerly:
    """Answers an import of a former name with the module itself, never with a second copy: finder and loader."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        loader: Any = self  # not derived from the classes of importlib.abc, whose import takes 8 ms
        return importlib.machinery.ModuleSpec(name, loader) if module_now(name) else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(module_now(spec.name))
        spec.loader_state = module.__spec__, module.__loader__
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None  # the import system has put its own there
        module.__spec__, module.__loader__ = module.__spec__.loader_state


def answer_to_former_names() -> None:
    """From now on former names of modules can be imported."""
    sys.meta_path.insert(0, _Formerly())
