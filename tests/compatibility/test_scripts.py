"""Scripts as Tune's users have them on their disks, of which only the import lines were changed, run to their ends."""

from __future__ import annotations

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
