"""Programs in the habits of Ray's users, written without a look at this project: only their import lines are changed.

Each is a script for Ray that ends with its own asserts of what Ray gives; those in `REFUSED` must end with an error.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.docs

PROGRAMS = Path(__file__).with_name("programs")
NAMES = sorted(path.stem for path in PROGRAMS.glob("*.py"))
# What ends with an error here, and its words; the reasons are in docs/how-to/migrate-from-ray-tune.md.
REFUSED = {
    "odd_custom_scheduler": r"the scheduler Cutoff has hooks of Ray Tune .* on_result\(trial, result, trials\)",
    "odd_same_name_twice": r"already is an experiment 'same' .* Continue it with sweep\.Tuner\.restore\('out/same'",
    "odd_zero_samples": r"num_samples is 0; expected a whole number of at least 1",
    "old_trainable_underscore": r"the class Old has no step; .*_train, which is called step now",
    "ray_core_objects": r"sweep.put does not exist: there is no object store here. sweep.with_parameters",
}
# Packages that a program needs without importing them, by a word that it then has.
NEEDED_FOR = {
    "HyperOptSearch": "hyperopt",
    "BayesOptSearch": "bayes_opt",
    "TBXLogger": "tensorboardX",
    "WandbLogger": "wandb",
}
OPTIONAL = {*NEEDED_FOR.values(), "lightgbm", "lightning", "mlflow", "xgboost"}
GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "migrate-from-ray-tune.md"


def rewritten(text: str) -> str:
    """Return a script after the command that the guide gives for its imports."""
    (command,) = re.findall(r"^sed -E -i '(.+)' script\.py$", GUIDE.read_text(encoding="utf-8"), flags=re.M)
    return subprocess.run(["sed", "-E", command], input=text, capture_output=True, text=True, check=True).stdout


def imported(text: str) -> set[str]:
    """Return the packages that a script imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(str(node.module).partition(".")[0])
    return names


def left_running(mark: str) -> list[str]:
    """Return the processes whose environment holds `mark`, by their command lines."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "environ").read_bytes():
                found.append(f"{process.name} {(process / 'cmdline').read_bytes()!r}")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def needed(text: str) -> set[str]:
    """Return the packages that a program needs, but for those that it writes itself."""
    found = imported(text) - {"ray"} | {package for word, package in NEEDED_FOR.items() if word in text}
    return {name for name in found if f"{name}.py" not in text}


def with_its_marks(name: str) -> Any:
    """Return a program as a parameter: what needs optional packages runs where the slow tests install those, too."""
    is_optional = needed((PROGRAMS / f"{name}.py").read_text(encoding="utf-8")) & OPTIONAL
    return pytest.param(name, marks=[pytest.mark.slow] if is_optional else [])


@pytest.mark.parametrize("name", [with_its_marks(name) for name in NAMES])
def test_a_program_for_ray_runs_after_its_imports_are_changed(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = (PROGRAMS / f"{name}.py").read_text(encoding="utf-8")
    for package in needed(text):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}")
    place = tmp_path_factory.mktemp("p")  # short: the sockets of multiprocessing lie below TMPDIR, in 107 bytes
    for directory in ("work", "tmp", "home"):
        (place / directory).mkdir()
    script = place / f"{name}.py"
    script.write_text(rewritten(text), encoding="utf-8")
    own = {"HOME": str(place / "home"), "TMPDIR": str(place / "tmp"), "PYTHONUNBUFFERED": "1"}
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SWEEP_", "TUNE_", "RAY_"))}
    ended = subprocess.run(
        [sys.executable, str(script)],
        cwd=place / "work",
        env=kept | own,
        capture_output=True,
        text=True,
        timeout=100,
    )
    last_line = (ended.stderr.strip().splitlines() or [""])[-1]
    if name in REFUSED:
        assert ended.returncode == 1, ended.stdout
        assert re.search(REFUSED[name], last_line), ended.stderr
    else:
        assert ended.returncode == 0, ended.stderr
        assert "Traceback" not in ended.stderr or name in RAISING, ended.stderr
    assert left_running(f"{place}/") == []


# Scripts with trials that fail, whose tracebacks are shown.
RAISING = {
    name
    for name in NAMES
    if re.search(r"^\s+(raise |sys\.exit|os\._exit)", (PROGRAMS / f"{name}.py").read_text(encoding="utf-8"), re.M)
}


def test_every_refusal_belongs_to_a_program() -> None:
    alike = len(NAMES) - len(REFUSED)
    told = f"Of {len(NAMES)} scripts in the style of Ray's users, from all its releases, {alike} do"
    assert told in GUIDE.read_text(encoding="utf-8")
    assert REFUSED.keys() <= set(NAMES)


def test_programs_are_written_for_ray_alone() -> None:
    sources = {name: imported((PROGRAMS / f"{name}.py").read_text(encoding="utf-8")) for name in NAMES}
    assert [name for name, packages in sources.items() if "ray" not in packages] == []
    assert [name for name, packages in sources.items() if packages & {"sweep", "searchers"}] == []


@pytest.mark.parametrize("name", NAMES)
def test_only_import_lines_are_changed(name: str) -> None:
    text = (PROGRAMS / f"{name}.py").read_text(encoding="utf-8")
    changed = [line for line, new in zip(text.splitlines(), rewritten(text).splitlines(), strict=True) if line != new]
    assert changed
    assert [line for line in changed if not re.match(r"\s*(import|from) ray\b", line)] == []
