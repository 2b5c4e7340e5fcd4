"""The cluster of `docs/extend.md`: on Dask where that is installed, else on plain processes in its place."""

from __future__ import annotations

import importlib.util
import os
import pickle
import subprocess
import sys
import types
from pathlib import Path

import pytest
from click.testing import CliRunner

import sweep
from sweep.cli.main import sweep as command
from sweep.errors import ConfigError

pytestmark = pytest.mark.agents

PAGE = (Path(__file__).parents[2] / "docs" / "extend.md").read_text(encoding="utf-8")
EXAMPLE = PAGE.split("\n## A cluster\n")[1].split("```\n")[1]
SCRIPT = """
{example}

def train(config):
    sweep.report(loss=config["x"])

if __name__ == "__main__":
    cluster = two_workers()
    analysis = sweep.run(train, config={{"x": sweep.grid_search([1, 2, 3, 4, 5, 6])}}, engine=cluster, verbose=0)
    print([trial.status for trial in analysis.trials].count("TERMINATED"), len(cluster.agents))
"""
_CALL = "import pickle, sys; function, argument = pickle.load(sys.stdin.buffer); function(argument)"


class _Future:
    """A process that calls a function."""

    def __init__(self, function, argument):
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self.process = subprocess.Popen([sys.executable, "-c", _CALL], stdin=subprocess.PIPE, env=environ)
        with self.process.stdin as pipe:
            pickle.dump((function, argument), pipe)

    def done(self):
        return self.process.poll() is not None

    @property
    def status(self):
        return "error" if self.process.poll() else "finished"


class _Client:
    """What the example uses of `dask.distributed.Client`."""

    def __init__(self, cluster):
        self.workers, self.futures = cluster, []

    def scheduler_info(self, n_workers):
        return {"workers": self.workers}

    def submit(self, function, argument, *, workers, pure):
        assert set(workers) <= self.workers.keys()
        assert not pure  # else one task would do for all
        self.futures.append(_Future(function, argument))
        return self.futures[-1]

    def shutdown(self):
        for future in self.futures:
            future.process.wait(30)


def _local_cluster(n_workers, threads_per_worker):
    return {
        f"tcp://{number}": {"name": str(number), "nthreads": threads_per_worker, "memory_limit": 1 << 30}
        for number in range(n_workers)
    }


@pytest.fixture
def stand_in(monkeypatch):
    """Have the example find plain processes under the names of Dask."""
    module = types.ModuleType("dask.distributed")
    module.Client, module.LocalCluster = _Client, _local_cluster
    monkeypatch.setitem(sys.modules, "dask", types.ModuleType("dask"))
    monkeypatch.setitem(sys.modules, "dask.distributed", module)


def train(config):
    sweep.report(loss=config["x"])


def test_the_example_runs_trials_on_plain_processes(stand_in, tmp_path):
    names = {}
    exec(EXAMPLE, names)
    cluster = names["two_workers"]()
    grid = {"x": sweep.grid_search([1, 2, 3, 4, 5, 6])}
    analysis = sweep.run(train, config=grid, engine=cluster, storage_path=tmp_path, verbose=0)
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 6
    assert cluster.agents.keys() == {"0", "1"}
    assert cluster.problem("0") == "its agent is finished"


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="dask.distributed is not installed")
def test_the_example_runs_trials_on_dask(tmp_path):
    (tmp_path / "mine.py").write_text(SCRIPT.format(example=EXAMPLE))
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "SWEEP_STORAGE": str(tmp_path / "st")}
    ran = subprocess.run(
        [sys.executable, "mine.py"], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=100, check=False
    )
    assert ran.stdout == "6 2\n", ran.stderr


def test_the_command_line_takes_a_cluster_by_its_module_and_name(stand_in, tmp_path, monkeypatch):
    (tmp_path / "my_cluster.py").write_text(EXAMPLE)
    (tmp_path / "mine.py").write_text("import sweep\ndef train(config):\n    sweep.report(loss=config['x'])\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    words = ["run", "mine.py:train", "x=1,2", "--searcher", "grid", "--minimize", "loss", "--quiet", "--name", "made"]
    said = CliRunner().invoke(
        command, [*words, "--engine", "my_cluster:two_workers"], standalone_mode=False, catch_exceptions=False
    )
    assert said.return_value == 0
    assert sweep.ExperimentAnalysis(tmp_path / "sweep_results" / "made").best_config == {"x": 1}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothing_there:x", "ModuleNotFoundError: No module named 'nothing_there'"),
        ("math:nothing", "has no attribute 'nothing'"),
        ("math:pi", "--engine math:pi is a float; expected a sweep.Cluster"),
        ("builtins:dict", "--engine builtins:dict is a dict; expected a sweep.Cluster"),
        ("math:sin", "--engine math:sin cannot be made: TypeError"),
        ("nothing.py:x", "there is no file"),
    ],
)
def test_what_is_no_cluster_is_refused(name, said, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("def train(config): ...\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    words = ["run", "mine.py:train", "x=1", "--minimize", "loss", "--engine", name]
    with pytest.raises(ConfigError) as refused:
        CliRunner().invoke(command, words, standalone_mode=False, catch_exceptions=False)
    assert said in str(refused.value)
