"""One script gives the same trials on every engine; on Ray and Slurm it is tested in their folders, by ssh with ssh."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import anywhere
import pytest
from agent_processes import AgentProcesses

import sweep
from sweep.core.resources import Node
from sweep.engines.local.fork_server_client import own_path
from sweep.train import DataParallelTrainer, ScalingConfig, get_context, report

pytestmark = pytest.mark.agents
NODES = [Node(name, cpus=2, address=f"127.0.0.{last}") for name, last in (("m", 2), ("n", 3))]
ON_TWO_NODES = """
import sys
sys.path[:] = {path!r}
from agent_processes import AgentProcesses
from sweep.core.resources import Node
import torch_digits_anywhere

nodes = [Node(name, cpus=2, address=f"127.0.0.{{last}}") for name, last in (("m", 2), ("n", 3))]
torch_digits_anywhere.main(engine=AgentProcesses(nodes))
"""


def draw(config):
    """Report losses that depend on the config, and on generators that depend on the trial alone."""
    import random

    import numpy as np

    for step in range(1, 10):
        report({"loss": abs(config["x"] - 3) + (random.random() + np.random.rand()) / step})


def draw_in_a_group(config):
    import random

    for _ in range(3):
        report({"loss": config["x"] + random.random() + get_context().get_world_size()})


def test_random_numbers_decisions_and_suggestions_are_those_of_one_machine(tmp_path):
    """The quick one: what `torch_digits_anywhere.py` does, without torch; and trials on both nodes at a time."""
    group = DataParallelTrainer(
        draw_in_a_group, scaling_config=ScalingConfig(num_workers=2, placement_strategy="SPREAD")
    )
    x, grid = {"x": sweep.uniform(0, 10)}, {"train_loop_config": {"x": sweep.grid_search([1, 2, 3])}}
    found, nodes = [], []
    for engine in ("local", AgentProcesses(NODES)):
        options = {"metric": "loss", "mode": "min", "seed": 0, "verbose": 0, "engine": engine}
        options["storage_path"] = tmp_path / str(len(found))
        asha = sweep.ASHAScheduler(max_t=9, grace_period=1, reduction_factor=3)
        one_by_one = {"search_alg": "tpe", "scheduler": asha, "max_concurrent_trials": 1}
        sweeps = [
            sweep.run(draw, config=x, num_samples=15, **one_by_one, **options),
            sweep.run(draw, config=x, num_samples=8, resources_per_trial={"cpu": 1}, **options),
            sweep.run(group, config=grid, **options),
        ]
        assert [sweep.replay(one.experiment_path).differences for one in sweeps] == [[], [], []]
        found.append([anywhere.outcome(one.experiment_path) for one in sweeps])
        nodes.append([set(anywhere.places(one.experiment_path)) for one in sweeps[1:]])
    assert found[0] == found[1]
    assert len({count for _, _, count, _ in found[0][0]}) == 3  # at every rung some were stopped
    assert nodes == [[{("local",)}, {("local",)}], [{("m",), ("n",)}, {("m", "n")}]]


@pytest.mark.slow
def test_the_example_on_agents_of_two_nodes(tmp_path):
    path = [str(Path(__file__).parents[1]), str(anywhere.EXAMPLE.parent), *own_path()]
    anywhere.run(tmp_path, command=(sys.executable, "-c", ON_TWO_NODES.format(path=path)))
    anywhere.assert_as_at_home(tmp_path)


@pytest.mark.slow
def test_the_example_on_machines_that_join(tmp_path):
    """Two join each of its sweeps, one after the other; the driver's machine runs nothing."""
    driver = anywhere.started(tmp_path, "--engine", "agents", "--not-here", "--apart")
    give_up = time.monotonic() + 250
    machines = []
    try:
        for name in anywhere.NAMES:
            while not (tmp_path / name / "agents").exists():
                assert driver.poll() is None, driver.communicate()
                assert time.monotonic() < give_up
                time.sleep(0.05)
            command = [sys.executable, "-m", "sweep.cli.main", "agent", "join", str(tmp_path / name), "--cpus", "2"]
            machines = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
            for machine in machines:
                said = machine.communicate(timeout=250)[1]
                assert machine.returncode == 0, said
        anywhere.await_end(driver)
    finally:
        for process in (driver, *machines):
            process.kill()
    anywhere.assert_as_at_home(tmp_path)
