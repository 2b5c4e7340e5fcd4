"""What is recorded of the command, the machine and the versions."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

import sweep
from sweep.launch.description import versions
from sweep.record.reader import ExperimentReader

RUN = """
import sweep

def train(config):
    sweep.report(loss=1.0)

if __name__ == "__main__":
    sweep.run(train, name="one", storage_path="store", verbose=0, engine="inline", resume="AUTO")
"""


@pytest.mark.parametrize(
    ("typed", "command"),
    [
        (["train.py", "--lr", "a b"], "python train.py --lr 'a b'"),
        pytest.param(["-m", "pack", "x"], "python -m pack x", marks=pytest.mark.slow),
        pytest.param(["-c", RUN], "python -c ...", marks=pytest.mark.slow),
        (["-"], "a prompt"),
    ],
)
def test_the_command_is_recorded_as_it_was_typed_and_kept_by_a_resume(tmp_path: Path, typed: list[str], command: str):
    (tmp_path / "train.py").write_text(RUN)
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__main__.py").write_text(RUN)
    for arguments in (typed, ["train.py", "again"]):
        done = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, input=RUN, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
    meta = ExperimentReader(tmp_path / "store" / "one").meta
    assert meta["command"] == command
    assert meta["machine"]["host"] == platform.node()
    assert meta["versions"]["python"] == platform.python_version()
    assert meta["versions"]["sweep"] == sweep.__version__


def test_versions_are_of_what_is_imported_and_import_nothing():
    before = set(sys.modules)
    assert versions()["numpy"] == sys.modules["numpy"].__version__
    assert set(sys.modules) == before
