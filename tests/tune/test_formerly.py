"""Modules under names that they had before, or have in Tune."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys

import pytest

import sweep
from sweep.tune.formerly import NOW, module_now

# What scripts written for Tune or for an earlier version import, and what is in their pickles.
PATHS = {
    "sweep.config": "RunConfig TuneConfig FailureConfig CheckpointConfig SyncConfig ResumeConfig",
    "sweep.dicts": "deep_update flatten_dict merge_dicts unflatten_dict unflattened_lookup",
    "sweep.experiment": "Experiment",
    "sweep.logger": "CSVLoggerCallback JsonLoggerCallback LoggerCallback TBXLoggerCallback TensorBoardLoggerCallback",
    "sweep.search": "ConcurrencyLimiter Repeater create_searcher",
    "sweep.search.basic_variant": "BasicVariantGenerator",
    "sweep.search.bayesopt": "BayesOptSearch",
    "sweep.search.concurrency_limiter": "ConcurrencyLimiter",
    "sweep.search.hyperopt": "HyperOptSearch",
    "sweep.search.optuna": "OptunaSearch",
    "sweep.search.repeater": "Repeater",
    "sweep.search.space": "uniform choice",
    "sweep.search.variant_generator": "grid_values",
    "sweep.simulation": "Point Simulation simulate",
    "sweep.stopper": "CombinedStopper MaximumIterationStopper Stopper TimeoutStopper TrialPlateauStopper",
    "sweep.store.analysis": "ExperimentAnalysis Result ResultGrid",
    "sweep.store.checkpoints": "Checkpoint",
    "sweep.store.reader": "ExperimentReader",
    "sweep.store.results": "Result TrialView",
    "sweep.tuner": "Tuner",
}


@pytest.mark.parametrize(("path", "names"), PATHS.items())
def test_a_former_path_gives_the_thing_itself(path, names):
    module = importlib.import_module(path)
    for name in names.split():
        assert getattr(module, name) is getattr(sweep, name, getattr(module, name))


@pytest.mark.parametrize("former", NOW)
def test_a_former_name_is_the_module_and_not_a_copy_of_it(former):
    module = importlib.import_module(former)
    assert module is importlib.import_module(NOW[former])
    assert module.__name__ == NOW[former]
    assert module.__spec__ is not None
    assert module.__spec__.name == NOW[former]


def test_what_was_never_there_is_not_found():
    assert module_now("sweep.nothing") == ""
    for name in ("sweep.nothing", "sweep.search.nothing", "sweep.store.nothing"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(name)


@pytest.mark.parametrize(
    ("thing", "moved"),
    [
        (sweep.RunConfig(name="one"), {"sweep.core.config": "sweep.config"}),
        (sweep.RunConfig(name="one"), {"sweep.core.config": "sweep.launch.config"}),
        (
            sweep.CLIReporter(metric_columns=["loss"]),
            {"sweep.display.reporters": "sweep.callbacks.reporters", "sweep.display.table": "sweep.callbacks.table"},
        ),
    ],
    ids=["a config", "a config of launch", "a reporter"],
)
def test_a_pickle_that_names_former_paths_is_read(thing, moved):
    data = pickle.dumps(thing, 0)
    for now, former in moved.items():
        assert b"c" + now.encode() + b"\n" in data
        data = data.replace(now.encode(), former.encode())
    code = f"import pickle; print(type(pickle.loads({data!r})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == str(type(thing))
