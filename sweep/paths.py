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
from types import ModuleType
from typing import Any, cast

from sweep.refusals import NOT_HERE

# A module, and its other paths: those of modules of Ray's below it with a dot, others whole.
_TABLE = """
    cloudpickle: sweep.cloudpickle
    searchers.space: sweep.search.space sweep.tune.sample sweep.tune.search.sample
    searchers.wrapper: sweep.tune.search.repeater
    sweep.air: .checkpoint .config .result
    sweep.air.integrations.mlflow: sweep.tune.integration.mlflow sweep.tune.logger.mlflow
    sweep.air.integrations.wandb: sweep.tune.integration.wandb sweep.tune.logger.wandb
    sweep.air.session: sweep.train.session sweep.tune.session
    sweep.core.config: sweep.config
    sweep.integration.horovod: sweep.tune.integration.horovod
    sweep.launch.tuner: sweep.tuner
    sweep.train: .api .base_trainer .config .context .data_parallel_trainer .exceptions .result .train_fn_utils .v2
        sweep.tune.integration.ray_train
    sweep.train.tensorflow: .config .tensorflow_trainer sweep.tune.integration.tensorflow
    sweep.train.torch: .config .torch_trainer sweep.tune.integration.torch
    sweep.tune: .analysis .callback .context .error .experiment_analysis .progress_reporter .registry .resources
        .result_grid .syncer .trainable .tune .tune_config .tuner .util
    sweep.tune.execution.placement_groups: sweep.tune.utils.placement_groups
    sweep.tune.experiment: .experiment .trial sweep.experiment sweep.tune.trial
    sweep.tune.integration.keras: sweep.air.integrations.keras
    sweep.tune.logger: .csv .json .logger .tensorboardx sweep.logger
    sweep.tune.result: sweep.air.constants
    sweep.tune.schedulers: .async_hyperband .hb_bohb .hyperband .median_stopping_rule .pb2 .pbt
        .resource_changing_scheduler .trial_scheduler
    sweep.tune.search: .basic_variant .concurrency_limiter .searcher .suggestion sweep.search sweep.tune.suggest
    sweep.tune.search.bayesopt: .bayesopt_search
    sweep.tune.search.bohb: .bohb_search
    sweep.tune.search.hyperopt: .hyperopt_search
    sweep.tune.search.optuna: .optuna_search
    sweep.tune.stopper: .experiment_plateau .function_stopper .maximum_iteration .noop .stopper .timeout .trial_plateau
        sweep.stopper
    sweep.tune.utils: .util sweep.dicts
"""
OTHER_PATHS = {
    home + path if path.startswith(".") else path: home
    for home, _, paths in (row.partition(": ") for row in _TABLE.replace("\n        ", " ").split("\n    ")[1:])
    for path in paths.split()
}
"""A path at which scripts look for something -> the module that has it, and perhaps more."""


def home_of(path: str) -> str:
    """Return where a module is: what `OTHER_PATHS` says of the path, or of the longest part of it; else the path."""
    package, below = path, ""
    while package and package not in OTHER_PATHS:
        package, _, last = package.rpartition(".")
        below = f".{last}{below}"
    return home_of(OTHER_PATHS[package] + below) if package else path


_REASONS = {home_of(name): why for name, why in NOT_HERE.items()}


def submodules_of(module: str) -> list[str]:
    """Return the names of the modules that a module of Ray's has below it."""
    import pkgutil

    found = pkgutil.iter_modules(getattr(sys.modules[module], "__path__", ()), f"{module}.")
    names = {one.name for one in found} - {"sweep.tune.running"} | OTHER_PATHS.keys()
    return sorted(last for package, _, last in (name.rpartition(".") for name in names) if package == module)


def reason_why_not(name: str) -> str:
    """Return why another library's name, with its dots, does not exist here and what to use; empty: it is no such."""
    why = _REASONS.get(home_of(name))
    return f"{name} does not exist: {why}" if why else ""


def _problem(module: str, name: str) -> str:
    if name.startswith("_"):
        return f"module {module!r} has no attribute {name!r}"
    close = importlib.import_module("searchers.errors").closest(name, dir(sys.modules[module]))
    hint = f" Did you mean {close!r}?" if close else ""
    return reason_why_not(f"{module}.{name}") or f"{module}.{name} does not exist.{hint} dir({module}) lists what does."


def _fill(module: ModuleType, source: str) -> None:
    """Give a module the names of its list, each to be imported when it is first used."""
    import ast

    homes, wholes = dict[str, tuple[str, str]](), []
    for node in ast.parse(source).body:
        match node:
            case ast.ImportFrom(str(home), [ast.alias("*")]):
                wholes.append(home)
            case ast.ImportFrom(str(home), names) if home != module.__name__:
                homes |= {alias.asname or alias.name: (home, alias.name) for alias in names}
            case ast.Assign([ast.Name(name)], ast.Name(value)):
                homes[name] = homes[value]

    def find(name: str) -> Any:
        while name not in homes and wholes:
            whole = importlib.import_module(wholes.pop())
            for one in set(whole.__all__) - set(getattr(whole, "_MODULES", ())):
                homes.setdefault(one, (whole.__name__, one))
        if name == "__all__":
            return sorted(one for one in homes if not one.startswith("_"))
        return getattr(importlib.import_module(homes[name][0]), homes[name][1])

    vars(module).update(__doc__=source.split('"""')[1], __getattr__=find, __dir__=lambda: find("__all__"))


def _look_below(module: ModuleType) -> None:
    """Have what is missing in a module be looked for among the modules below it, and else be refused."""
    path, own = module.__name__, vars(module)
    find, list_names = own.get("__getattr__"), own.get("__dir__", lambda: own.get("__all__", list(own)))

    def look_up(name: str) -> Any:
        if find is not None and (name == "__all__" or not name.startswith("_")):
            with contextlib.suppress(AttributeError, KeyError):
                own[name] = find(name)
                return own[name]
        if name in submodules_of(path):
            return importlib.import_module(f"{path}.{name}")
        raise AttributeError(_problem(path, name), name=name, obj=module)

    own.update(__getattr__=look_up, __dir__=lambda: sorted({*list_names(), *submodules_of(path)}))


class _Finder:
    """Finds what is imported below `sweep`, and loads a module at another of its paths: the same module."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if not name.startswith("sweep."):
            return None
        home, (parent, _, last) = home_of(name), name.rpartition(".")
        if reason := reason_why_not(name):
            raise ModuleNotFoundError(reason)  # without its name, which would hide it in a `from`
        if home != name:
            return importlib.machinery.ModuleSpec(name, cast(Any, self))
        if not f"{name}.".startswith(("sweep.air.", "sweep.train.", "sweep.tune.", "sweep.util.")):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None:
            raise ModuleNotFoundError(_problem(parent, last))
        loader: Any = spec.loader
        source, run = loader.get_source(name), loader.exec_module

        def exec_module(module: ModuleType) -> None:
            if source.startswith('"""`ray.'):  # it is a list of names
                _fill(module, source)
            else:
                run(module)
            _look_below(module)

        loader.exec_module = exec_module
        spec.submodule_search_locations = spec.submodule_search_locations or []  # for what is missing in it
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """As usual; its place is taken when it is run."""

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(home_of(module.__name__))


def answer_to_paths_of_ray() -> None:
    """From now on the paths of Ray's modules can be imported."""
    sys.meta_path.insert(0, _Finder())
