"""Sweeps on a cluster of Ray: scripts as they are, the same trials as on one machine, nodes that come and go."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import sweep
import sweep as tune
from sweep.accelerators import inventory
from sweep.cli.main import sweep as command_line
from sweep.record.facts import read_facts
from sweep.record.reader import ExperimentReader

pytestmark = pytest.mark.ray
ROOT = Path(__file__).parents[2]


def where_of(analysis: Any) -> dict[str, list[str]]:
    """Return the nodes that each trial was started on, in this order."""
    found = defaultdict(list)
    for fact in read_facts(Path(analysis.experiment_path) / "sweep.db"):
        for what, *rest in fact.caused or ():
            if what == "Start":
                trial_id, _, places = rest[:3]
                found[trial_id].append(places[0][0])
    return dict(found)


def trials_of(analysis: Any) -> list[Any]:
    return list(ExperimentReader(Path(analysis.experiment_path)).trials())


@pytest.mark.parametrize("is_declared", [True, False])
def test_a_script_for_ray_runs_on_the_cluster_that_the_environment_names(cluster, tmp_path, monkeypatch, is_declared):
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    if is_declared:
        assert sweep.init(address="auto") == ()
    analysis = sweep.tune.run(lambda config: {"loss": 1}, num_samples=8, storage_path=tmp_path, verbose=0)
    nodes = {place for places in where_of(analysis).values() for place in places}
    assert nodes
    assert "local" not in nodes


def test_the_block_of_the_guide_runs_with_sweep_s_name_and_leaves_nothing(cluster, tmp_path, monkeypatch, left):
    import ray

    monkeypatch.setenv("SWEEP_STORAGE", str(tmp_path))

    def trainable(config):
        tune.report(score=1.0, devices=os.environ["CUDA_VISIBLE_DEVICES"], supervisor=os.getppid())

    ray.init(address=cluster.address, _node_ip_address="127.0.0.2", log_to_driver=False, logging_level="ERROR")
    try:
        sweep.init(engine="ray")
        analysis = tune.run(
            trainable, num_samples=100, resources_per_trial=tune.PlacementGroupFactory([{"CPU": 2, "GPU": 1}]),
            verbose=0,
        )  # fmt: skip
        assert ray.is_initialized()
    finally:
        ray.shutdown()
    assert Counter(trial.status for trial in analysis.trials) == {"TERMINATED": 100}
    assert {trial.last_result["devices"] for trial in analysis.trials} == {"0", "1"}
    assert {trial.last_result["node_ip"] for trial in analysis.trials} == {"127.0.0.3", "127.0.0.4"}
    table = analysis.dataframe(full=True)
    at_once = [((table.start_time <= t) & (table.end_time > t)).sum() for t in table.start_time]
    assert max(at_once) <= 4
    assert len({trial.last_result["supervisor"] for trial in analysis.trials}) >= 4
    assert left(Path(analysis.experiment_path)) == []


def test_a_trial_has_nothing_of_ray_in_its_environment_and_its_devices_and_threads_are_those_it_asked_for(run):
    def trainable(config):
        names = [name for name in os.environ if name.startswith(("RAY", "__RAY", "SPT_")) or "BREAKPOINT" in name]
        mine = {"OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "GIVEN", "RAY_GIVEN"}
        sweep.report(score=1, leaked=json.dumps(names), env=json.dumps({n: os.environ.get(n) for n in mine}))

    given = {"env_vars": {"GIVEN": "yes", "RAY_GIVEN": "too"}}
    for request, threads, num_devices in (({"cpu": 3, "gpu": 2}, "3", 2), ({"cpu": 1}, "1", 0)):
        (trial,) = run(trainable, init={"runtime_env": given}, resources_per_trial=request, name=f"t{threads}").trials
        env = json.loads(trial.last_result["env"])
        assert json.loads(trial.last_result["leaked"]) == ["RAY_GIVEN"]
        assert env["OMP_NUM_THREADS"] == threads
        assert len([name for name in env["CUDA_VISIBLE_DEVICES"].split(",") if name]) == num_devices
        assert (env["GIVEN"], env["RAY_GIVEN"]) == ("yes", "too")


def walk(config):
    for step in range(1, 6):
        sweep.report(loss=(config["x"] - 0.3) ** 2 + config["y"] / step)


def decided(directory: Path, name: str, **options: Any) -> list[Any]:
    analysis = sweep.run(
        walk,
        config={"x": sweep.uniform(0, 1), "y": sweep.loguniform(1e-3, 1)},
        num_samples=12,
        metric="loss",
        mode="min",
        search_alg=sweep.OptunaSearch(sampler="tpe"),
        scheduler=sweep.ASHAScheduler(max_t=5, grace_period=1, reduction_factor=2),
        seed=7,
        max_concurrent_trials=1,
        storage_path=directory,
        name=name,
        verbose=0,
        **options,
    )
    return [(trial.config, trial.last_result["training_iteration"]) for trial in analysis.trials]


def test_one_at_a_time_the_same_seed_gives_the_same_trials_on_the_cluster_and_here_and_replay_agrees_with_both(
    cluster, tmp_path
):
    here = decided(tmp_path, "here", engine="local")
    sweep.init(engine="ray", address=cluster.address)
    there = decided(tmp_path, "there")
    assert there == here
    for name in ("here", "there"):
        ended = CliRunner().invoke(command_line, ["replay", name, "--verify", "--storage", str(tmp_path)])
        assert ended.exit_code == 0, ended.output
        assert "all as recorded" in ended.output


class Losing(sweep.Callback):
    """Take a node away, or add one, once so many trials have reported; then let those that wait go on."""

    def __init__(self, number: int, change: Any, go: Path) -> None:
        self._number, self._change, self._go = number, change, go
        self._seen: set[str] = set()

    def on_trial_result(self, iteration, trials, trial, result, **info):
        before = len(self._seen)
        self._seen.add(trial.trial_id)
        if before < len(self._seen) == self._number:
            threading.Thread(target=self._act).start()

    def _act(self) -> None:
        self._change()
        self._go.touch()


def waits(config):
    """Finish at once, or wait for the file that `Losing` makes."""
    sweep.report(score=0, step=1)
    give_up = time.monotonic() + 60
    while config["i"] >= 4 and not os.path.exists(config["go"]):
        assert time.monotonic() < give_up
        time.sleep(0.02)
    sweep.report(score=1, step=2)


def test_a_node_that_is_removed_costs_no_finished_trial_and_what_it_ran_ends_elsewhere(cluster, run, tmp_path, left):
    node = cluster.add_node(node_ip_address="127.0.0.5", num_cpus=2)
    go = tmp_path / "go"
    # Four end at once; ten fill the three nodes and wait.
    losing = Losing(14, lambda: cluster.remove_node(node), go)
    analysis = run(
        waits,
        config={"i": sweep.grid_search(list(range(16))), "go": str(go)},
        resources_per_trial={"cpu": 1},
        callbacks=[losing],
        max_failures=0,
    )
    assert Counter(trial.status for trial in analysis.trials) == {"TERMINATED": 16}
    attempts = {trial.config["i"]: trial.attempt for trial in trials_of(analysis)}
    assert all(attempts[number] == 1 for number in range(4))
    assert Counter(attempts.values())[2] == 2
    twice = [nodes for nodes in where_of(analysis).values() if len(nodes) == 2]
    assert all(first != second for first, second in twice)
    assert left(Path(analysis.experiment_path)) == []


def test_a_node_that_is_added_in_mid_sweep_is_used(cluster, run, tmp_path):
    go = tmp_path / "go"
    start = f"start --address={cluster.address} --node-ip-address=127.0.0.5 --num-cpus=2 --block"
    started = []

    def add() -> None:
        # Ray itself can start a node only on the main thread.
        with (tmp_path / "start.log").open("w") as log:
            started.append(
                subprocess.Popen([sys.executable, "-m", "ray.scripts.scripts", *start.split()], stdout=log, stderr=log)
            )
        # What is there now is full; the others must find the new node before these may end.
        give_up = time.monotonic() + 60
        while len(list(tmp_path.glob("late-*"))) < 2 and time.monotonic() < give_up:
            time.sleep(0.05)

    def late(config):
        if config["i"] >= 12:
            Path(config["go"]).with_name(f"late-{config['i']}").touch()
        waits(config)

    try:
        analysis = run(
            late,
            config={"i": sweep.grid_search(list(range(14))), "go": str(go)},
            resources_per_trial={"cpu": 1},
            callbacks=[Losing(12, add, go)],
        )
        assert Counter(trial.status for trial in analysis.trials) == {"TERMINATED": 14}
        assert len({nodes[0] for nodes in where_of(analysis).values()}) == 3, (tmp_path / "start.log").read_text()
    finally:
        for process in started:
            process.terminate()
            process.wait(timeout=30)


def asks_ray(config):
    import ray

    ray.init(address=config["address"], log_to_driver=False, logging_level="ERROR")

    @ray.remote
    def double(x):
        return 2 * x

    sweep.report(score=ray.get(double.remote(21), timeout=config["patience_s"]))


def test_a_trial_may_use_ray_itself_where_it_is_left_some_of_it(run, cluster):
    (trial,) = run(
        asks_ray, config={"address": cluster.address, "patience_s": 60}, init={"cpus_per_node": 3}, metric="score",
        mode="max",
    ).trials  # fmt: skip
    assert trial.last_result["score"] == 42


def test_a_trial_that_waits_for_what_the_sweep_itself_holds_of_ray_is_not_left_without_a_word(
    run, cluster, monkeypatch, capfd
):
    monkeypatch.setattr("sweep.engines.cluster.ray._LOOK_S", 0.1)
    monkeypatch.setattr("sweep.engines.cluster.ray._LOOKS", 1)
    config = {"address": cluster.address, "patience_s": 8}
    (trial,) = run(asks_ray, config=config, raise_on_failed_trial=False, verbose=1).trials
    assert trial.status == "ERROR"
    said = "".join(capfd.readouterr())
    assert said.count("a task or an actor of Ray waits for CPU=1, which this sweep holds") == 1


def test_a_working_directory_and_variables_reach_the_trials(run, tmp_path):
    def train(config):
        import shipped_module_xyz

        sweep.report(score=shipped_module_xyz.VALUE, given=os.environ["GIVEN"], omp=os.environ["OMP_NUM_THREADS"])

    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "shipped_module_xyz.py").write_text("VALUE = 7\n")
    env = {"working_dir": str(tmp_path / "project"), "env_vars": {"GIVEN": "yes", "OMP_NUM_THREADS": "3"}}
    (trial,) = run(train, init={"runtime_env": env}).trials
    assert (trial.last_result["score"], trial.last_result["given"], trial.last_result["omp"]) == (7, "yes", "3")


def test_two_sweeps_one_after_another_have_the_whole_cluster_each(run):
    for name in ("first", "second", "third"):
        analysis = run(walk_once, name=name, resources_per_trial={"cpu": 4}, num_samples=2)
        assert len({nodes[0] for nodes in where_of(analysis).values()}) == 2


def walk_once(config):
    sweep.report(score=1)


def test_what_began_on_the_cluster_goes_on_here_and_there_again(run, cluster, tmp_path):
    run(walk_once, name="moved", num_samples=2)
    inventory.shutdown()
    options = {"name": "moved", "storage_path": tmp_path, "verbose": 0, "resume": True}
    assert len(sweep.run(walk_once, num_samples=4, **options).trials) == 4
    analysis = run(walk_once, num_samples=6, **options)
    assert Counter(trial.status for trial in analysis.trials) == {"TERMINATED": 6}
    assert {nodes[0] for nodes in where_of(analysis).values()} > {"local"}
    assert all(len(nodes) == 1 for nodes in where_of(analysis).values())


def test_the_command_line_runs_a_sweep_on_the_cluster(cluster, tmp_path):
    (tmp_path / "mine.py").write_text("import sweep\ndef train(config):\n    sweep.report(loss=config['x'])\n")
    words = ["run", "mine.py:train", "x=uniform(0,1)", "--minimize", "loss", "--trials", "3", "--name", "made"]
    words += ["--engine", "ray", "--address", cluster.address, "--storage", str(tmp_path)]
    command = [sys.executable, "-m", "sweep.cli.main", *words]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stderr
    assert [trial.status for trial in ExperimentReader(tmp_path / "made").trials()] == ["TERMINATED"] * 3


def test_a_plan_shows_the_nodes_of_the_cluster_and_its_pilots_run_there(cluster, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import sweep\ndef train(config):\n    sweep.report(loss=config['x'])\n")
    words = [f"{script}:train", "x=uniform(0,1)", "--minimize", "loss", "--trials", "6", "--storage", str(tmp_path)]
    done = CliRunner().invoke(
        command_line, ["plan", *words, "--engine", "ray", "--address", cluster.address, "--pilot", "3", "--json"]
    )
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert sum(node["cpus"] for node in told["nodes"].values()) == 8
    assert (told["at_once"], told["forecast"]["known"]) == (6, 3)


@pytest.mark.usefixtures("joined")
def test_a_sweep_that_runs_here_though_a_cluster_was_joined_says_so(tmp_path, capfd):
    sweep.run(lambda config: sweep.report(score=1), storage_path=tmp_path, name="here", verbose=1)
    told = capfd.readouterr()
    assert "sweep.init(engine='ray') runs it on the cluster" in told.out + told.err
