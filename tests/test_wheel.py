"""The wheel, in a clean environment: the README's example runs there, and nothing heavy came along."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_docs import read_page

ROOT = Path(__file__).parents[1]
CHECK = """
import importlib.metadata as metadata, importlib.util, sys, sweep
assert sweep.__file__.startswith(sys.prefix), sweep.__file__
heavy = [name for name in ("torch", "jax", "tensorflow", "ray") if importlib.util.find_spec(name)]
assert not heavy, heavy
files = {str(file) for file in metadata.files("sweep-engine")}
needed = {"sweep/py.typed", "searchers/py.typed", "sweep/page/assets/page.js", "sweep/page/assets/page.css"}
needed.add("hydra_plugins/hydra_sweep_sweeper.py")
assert needed <= files, files
assert any(file.endswith("licenses/LICENSE") for file in files), files
own = ("sweep", "searchers", "hydra_plugins")
strange = {file for file in files if file.split("/")[0] not in own and "dist-info" not in file}
assert strange == {"../../../bin/sweep"}, strange
"""


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command as somebody would who has no checkout, and return what it printed."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV", "SWEEP_"))}
    kept["SWEEP_CLAIMS"] = os.environ["SWEEP_CLAIMS"]
    ended = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=kept, capture_output=True, text=True, timeout=540
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture
def empty() -> Iterator[Path]:
    """Give an empty directory of which nothing is kept, other than of tmp_path: it will hold 250 MB."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


@pytest.mark.wheel
def test_the_readmes_example_runs_from_the_wheel_in_a_clean_environment(empty):
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", empty, ROOT, cwd=empty)
    (wheel,) = empty.glob("sweep_engine-*.whl")
    run(sys.executable, "-m", "venv", empty / "venv", cwd=empty)
    python = empty / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", wheel, cwd=empty)
    run(python, "-I", "-c", CHECK, cwd=empty)

    example = read_page(ROOT / "README.md").scripts[0]
    (empty / "example.py").write_text(example.text, encoding="utf-8")
    printed = run(python, "example.py", cwd=empty)
    assert printed.strip() == example.output
    _, *experiments = run(empty / "venv" / "bin" / "sweep", "ls", "--format", "csv", cwd=empty).splitlines()
    assert len(experiments) == 1
