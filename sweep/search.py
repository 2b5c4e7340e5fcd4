"""`searchers` under the name that Tune has for it: `from sweep.search import ConcurrencyLimiter`."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from typing import Any

import searchers

# Modules that have other names there.
_THERE = {
    "basic_variant": "grid",
    "bayesopt": "bayesopt_search",
    "concurrency_limiter": "limiter",
    "hyperopt": "hyperopt_search",
    "optuna": "optuna_search",
    "searcher": "base",
    "variant_generator": "variants",
}


class _SameModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers `import sweep.search.space` with the module `searchers.space` itself, never with a second copy."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(name, self) if name.startswith(f"{__name__}.") else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        name = spec.name.removeprefix(f"{__name__}.")
        module = importlib.import_module(f"searchers.{_THERE.get(name, name)}")
        self._own = (module.__spec__, module.__loader__)
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__, module.__loader__ = self._own  # the import system has put those of this finder there


sys.meta_path.insert(0, _SameModules())
sys.modules[__name__] = searchers
