"""Scripts as Tune's users have them on their disks, of which only the import lines were changed, run to their ends."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.docs

SCRIPTS = Path(__file__).with_name("scripts")
LAST_LINES = {
    "analysis": "analysed 3",
    "callbacks": "called",
    "checkpoints": "kept",
    "class_api": "stepped",
    "concurrency_limit": "limited",
    "failures": "failed as they should",
    "nested_results": "nested",
    "output": "shown",
    "pbt_function": "perturbed",
    "resume": "resumed",
    "schedulers": "scheduled",
    "search_spaces": "best",
    "stopping": "stopped",
    "time_budget": "in time",
    "wrappers": "wrapped",
}
LONG = {"concurrency_limit", "schedulers", "stopping", "time_budget", "wrappers"}
# What a script finds in `ray.tune` and below; nothing else may be used of ours.
OF_TUNE = {
    "sweep": """
        Callback Checkpoint CheckpointConfig CLIReporter Experiment ExperimentAnalysis FailureConfig
        JupyterNotebookReporter PlacementGroupFactory RunConfig Trainable TuneConfig TuneError Tuner choice
        get_checkpoint get_context grid_search lograndint loguniform qlograndint qloguniform qrandint qrandn quniform
        randint randn register_trainable report run run_experiments sample_from uniform with_parameters with_resources
    """,
    "sweep.schedulers": """
        ASHAScheduler AsyncHyperBandScheduler FIFOScheduler HyperBandScheduler MedianStoppingRule
        PopulationBasedTraining create_scheduler
    """,
    "sweep.search": "ConcurrencyLimiter Repeater create_searcher",
    "sweep.search.basic_variant": "BasicVariantGenerator",
    "sweep.search.optuna": "OptunaSearch",
    "sweep.stopper": """
        CombinedStopper ExperimentPlateauStopper FunctionStopper MaximumIterationStopper Stopper TrialPlateauStopper
    """,
    "sweep.logger": "CSVLoggerCallback JsonLoggerCallback LoggerCallback",
}


# Arguments of `run` that Tune has not.
OURS = {
    "durability",
    "engine",
    "env",
    "import_path",
    "nodes",
    "preload",
    "seed",
    "start_method",
    "strict_metric",
    "warm_start",
}


def test_every_script_is_run() -> None:
    assert {path.stem for path in SCRIPTS.glob("*.py")} == LAST_LINES.keys()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in sorted(LAST_LINES)]
)
def test_a_script_of_tune_runs_after_its_imports_are_changed(
    name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("SWEEP_", "TUNE_"))}
    environment["TMPDIR"] = str(tmp_path_factory.mktemp("tmp"))  # what a script leaves is not left in the machine's own
    ended = subprocess.run(
        [sys.executable, str(SCRIPTS / f"{name}.py")],
        cwd=tmp_path,
        env=environment | {"PYTHONUNBUFFERED": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1].startswith(LAST_LINES[name]), ended.stdout
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("name", sorted(LAST_LINES))
def test_a_script_uses_nothing_that_tune_has_not(name: str) -> None:
    tree = ast.parse((SCRIPTS / f"{name}.py").read_text(encoding="utf-8"))
    used: list[tuple[str, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert [alias.asname for alias in node.names if alias.name.startswith("sweep")] in ([], ["tune"])
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sweep"):
            used += [(str(node.module), alias.name) for alias in node.names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "tune":
            used.append(("sweep", node.attr))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("tune.run", "tune.TuneConfig", "TuneConfig"):
            assert not OURS & {keyword.arg for keyword in node.keywords}
    assert used
    assert [(module, name) for module, name in used if name not in OF_TUNE.get(module, "").split()] == []
