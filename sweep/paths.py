"""The paths of Ray's modules below `sweep`: one finder for all that is imported there.

A file in `sweep/tune`, `sweep/air` or `sweep/train` that only imports is a list of names: type checkers read it as it
is, and a name of it is imported when it is first used. A rarer path is another name of a module (`OTHER_PATHS`). What
does not exist here is refused with what to use instead (`sweep.refusals`).
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import sys
from functools import cache
from types import ModuleType
from typing import Any, cast

from sweep.refusals import NOT_HERE

_SAME = {
    "cloudpickle": "sweep.cloudpickle",
    "searchers.space": "sweep.search.space",
    "sweep.air": "sweep.air: checkpoint config result",
    "sweep.air.integrations.keras": "sweep.train.tensorflow.keras",
    "sweep.air.integrations.mlflow": "sweep.tune.integration.mlflow sweep.tune.logger.mlflow",
    "sweep.air.integrations.wandb": "sweep.tune.integration.wandb sweep.tune.logger.wandb",
    "sweep.air.session": "sweep.train.session sweep.tune.session",
    "sweep.core.config": "sweep.config",
    "sweep.integration.horovod": "sweep.tune.integration.horovod",
    "sweep.launch.tuner": "sweep.tuner",
    "sweep.train": """
        sweep.train: api base_trainer config context data_parallel_trainer exceptions result train_fn_utils v2
        sweep.tune.integration.ray_train
    """,
    "sweep.train.tensorflow": "sweep.train.tensorflow: config tensorflow_trainer sweep.tune.integration.tensorflow",
    "sweep.train.torch": "sweep.train.torch: config torch_trainer sweep.tune.integration.torch",
    "sweep.tune": """
        sweep.tune: analysis callback context error experiment_analysis progress_reporter registry resources
        sweep.tune: result_grid syncer trainable tune tune_config tuner util
    """,
    "sweep.tune.dicts": "sweep.dicts",
    "sweep.tune.execution.placement_groups": "sweep.tune.utils.placement_groups",
    "sweep.tune.experiment": "sweep.experiment sweep.tune.trial sweep.tune.experiment: experiment trial",
    "sweep.tune.logger": "sweep.logger sweep.tune.logger: csv json logger tensorboardx",
    "sweep.tune.result": "sweep.air.constants",
    "sweep.tune.schedulers": """
        sweep.tune.schedulers: async_hyperband hb_bohb hyperband median_stopping_rule pb2 pbt trial_scheduler
        sweep.tune.schedulers.resource_changing_scheduler
    """,
    "sweep.tune.search": "sweep.search sweep.tune.suggest sweep.tune.search: concurrency_limiter searcher suggestion",
    "sweep.tune.search.bayesopt": "sweep.tune.search.bayesopt.bayesopt_search",
    "sweep.tune.search.bohb": "sweep.tune.search.bohb.bohb_search",
    "sweep.tune.search.hyperopt": "sweep.tune.search.hyperopt.hyperopt_search",
    "sweep.tune.search.optuna": "sweep.tune.search.optuna.optuna_search",
    "sweep.tune.search.sample": "sweep.tune.sample",
    "sweep.tune.stopper": """
        sweep.stopper
        sweep.tune.stopper: experiment_plateau function_stopper maximum_iteration noop stopper timeout trial_plateau
    """,
    "sweep.tune.utils": "sweep.tune.utils.util",
}


def _paths(text: str) -> list[str]:
    """Return the paths that a row has: whole ones, and after `package:` those within it."""
    paths, package = [], ""
    for word in text.split():
        if word.endswith(":"):
            package = f"{word[:-1]}."
        else:
            paths.append(word if word.startswith("sweep.") else package + word)
    return paths


OTHER_PATHS = {path: module for module, text in _SAME.items() for path in _paths(text)}
"""A path at which scripts look for something -> the module that has it, and perhaps more."""
_ONLY_OURS = {"sweep.tune.dicts", "sweep.tune.experiments", "sweep.tune.running", "sweep.tune.session_functions"}
_ROOMS = ("sweep.air.", "sweep.train.", "sweep.tune.", "sweep.util.")
_IS_A_LIST = '"""`ray.'  # how a file begins that is a list of names


def home_of(path: str) -> str:
    """Return where a module is: what `OTHER_PATHS` says of the path, or of the longest part of it; else the path."""
    package, below = path, ""
    while package:
        if package in OTHER_PATHS:
            return home_of(OTHER_PATHS[package] + below)
        package, _, last = package.rpartition(".")
        below = f".{last}{below}"
    return path


def submodules_of(module: str) -> list[str]:
    """Return the names of the modules that a module of Ray's has below it."""
    import pkgutil

    found = pkgutil.iter_modules(getattr(sys.modules[module], "__path__", ()), f"{module}.")
    below = [*(name for _, name, _ in found if name not in _ONLY_OURS), *OTHER_PATHS]
    return sorted(last for package, _, last in (name.rpartition(".") for name in below) if package == module)


def reason_why_not(name: str) -> str:
    """Return why another library's name, with its dots, does not exist here and what to use; empty: it is no such."""
    why = NOT_HERE.get(name) or _reasons_by_home().get(home_of(name))
    return f"{name} does not exist: {why}" if why else ""


@cache
def _reasons_by_home() -> dict[str, str]:
    return {home_of(name): why for name, why in NOT_HERE.items()}


def _problem(module: str, name: str) -> str:
    if name.startswith("_"):
        return f"module {module!r} has no attribute {name!r}"
    if why := reason_why_not(f"{module}.{name}"):
        return why
    close = importlib.import_module("searchers.errors").closest(name, dir(sys.modules[module]))
    hint = f" Did you mean {close!r}?" if close else ""
    return f"{module}.{name} does not exist.{hint} dir({module}) lists what does."


class _Names:
    """The names that a file imports, each imported when it is first used."""

    def __init__(self, path: str, source: str) -> None:
        import ast

        self._homes: dict[str, tuple[str, str]] = {}
        self._wholes: list[str] = []
        for node in ast.parse(source).body:
            match node:
                case ast.ImportFrom(str(home), [ast.alias("*")]):
                    self._wholes.append(home)
                case ast.ImportFrom(str(home), names) if home != path:
                    self._homes |= {alias.asname or alias.name: (home, alias.name) for alias in names}
                case ast.Assign([ast.Name(name)], ast.Name(value)):
                    self._homes[name] = self._homes[value]

    def all(self) -> dict[str, tuple[str, str]]:
        """Return where each name is, and what it is called there; modules that are taken whole are loaded for it."""
        homes = dict[str, tuple[str, str]]()
        for whole in self._wholes:
            package = importlib.import_module(whole)
            names = set(getattr(package, "__all__", vars(package))) - set(getattr(package, "_MODULES", ()))
            homes |= {name: (whole, name) for name in names}
        return {name: home for name, home in (homes | self._homes).items() if not name.startswith("_")}

    def value(self, name: str) -> Any:
        """Return what a name stands for.

        Raises:
            AttributeError: there is no such name.
        """
        if name == "__all__":
            return sorted(self.all())
        home, there = self._homes.get(name) or self.all().get(name) or ("", "")
        if not home:
            raise AttributeError(name)
        return getattr(importlib.import_module(home), there)


# The loaders are not derived from the classes of importlib.abc, whose import takes 8 ms.
class _Loader:
    """Loads a module of Ray's, in which what is missing is looked for below it, and else refused."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None  # the import system has put its own there
        module.__spec__.loader = module.__loader__ = self._loader
        path, own = module.__name__, vars(module)
        source = self._loader.get_source(path)
        if source.startswith(_IS_A_LIST):
            names = _Names(path, source)
            module.__doc__ = source.split('"""')[1]
            own["__getattr__"], own["__dir__"] = names.value, lambda: sorted(names.all())
        else:
            self._loader.exec_module(module)
        find, list_names = own.get("__getattr__"), own.get("__dir__", lambda: own.get("__all__", list(own)))

        def look_up(name: str) -> Any:
            if find is not None and (name == "__all__" or not name.startswith("_")):
                with contextlib.suppress(AttributeError):
                    own[name] = find(name)
                    return own[name]
            if name in submodules_of(path):
                return importlib.import_module(f"{path}.{name}")
            raise AttributeError(_problem(path, name), name=name, obj=module)

        own["__getattr__"] = look_up
        own["__dir__"] = lambda: sorted({*list_names(), *submodules_of(path)})


class _OtherName:
    """Loads a module at another of its paths: the same module."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(home_of(spec.name))
        spec.loader_state = module.__spec__, module.__loader__
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__, module.__loader__ = module.__spec__.loader_state


class _Finder:
    """Finds what is imported below `sweep`."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if not name.startswith("sweep."):
            return None
        home, (parent, _, last) = home_of(name), name.rpartition(".")
        if name in NOT_HERE or home in NOT_HERE:
            raise ModuleNotFoundError(
                reason_why_not(name)
            )  # without its name: `from package import name` would hide it
        if home != name:
            return importlib.machinery.ModuleSpec(name, cast(Any, _OtherName()))
        if not f"{name}.".startswith(_ROOMS):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None:
            raise ModuleNotFoundError(_problem(parent, last))
        spec.loader = cast(Any, _Loader(spec.loader))
        if spec.submodule_search_locations is None:
            spec.submodule_search_locations = []  # so that what is missing in it is looked for below it
        return spec


def answer_to_paths_of_ray() -> None:
    """From now on the paths of Ray's modules can be imported."""
    sys.meta_path.insert(0, _Finder())
