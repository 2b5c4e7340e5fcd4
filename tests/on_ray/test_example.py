"""The examples for clusters, as they are: on a cluster of its own, and on one that is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import anywhere
import pytest

pytestmark = pytest.mark.ray
EXAMPLE = Path(__file__).parents[2] / "examples" / "ray_cluster.py"


@pytest.mark.parametrize("is_given", [False, True])
def test_the_example_runs_to_its_end(is_given, cluster, tmp_path):
    arguments = [cluster.address] if is_given else []
    environ = {**os.environ, "SWEEP_STORAGE": str(tmp_path)}
    command = [sys.executable, str(EXAMPLE), *arguments]
    ended = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stderr
    assert re.search(r"^best loss 0\.0\d+ with", ended.stdout, flags=re.M), ended.stdout
    assert "16 trials" in ended.stdout


@pytest.mark.slow
def test_the_example_that_runs_anywhere_has_the_same_results_on_ray(cluster, tmp_path):
    anywhere.run(tmp_path, "--engine", "ray", "--address", cluster.address)
    anywhere.assert_as_at_home(tmp_path)
