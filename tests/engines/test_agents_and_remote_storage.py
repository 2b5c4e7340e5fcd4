"""Agents whose machines see nothing but the remote storage: checkpoints, output and code go through it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from agent_processes import AgentProcesses
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

import sweep
from sweep.cli.logs import print_logs
from sweep.core.resources import Node
from sweep.errors import ExperimentError
from sweep.record.reader import ExperimentReader
from sweep.schedulers import PopulationBasedTraining
from sweep.train import ScalingConfig
from sweep.train.torch import TorchTrainer

pytestmark = pytest.mark.agents

TWO = [Node(id=name, cpus=2.0) for name in ("one", "two")]
HEAD = """
import os, sys, time
from pathlib import Path
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
import sweep
from sweep.core.resources import Node
from agent_processes import AgentProcesses

def train(config):
    start, checkpoint = 0, sweep.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            start = int(Path(directory, "step").read_text())
    print("from", start, flush=True)
    for step in range(start + 1, 9):
        time.sleep(0.1)
        with sweep.checkpoint_dir() as directory:
            Path(directory, "step").write_text(str(step))
        sweep.report(step=step, start=start, x=config["x"])

def tune(**more):
    bucket = DirFileSystem(os.environ["BUCKET"], LocalFileSystem())
    two = [Node(id=name, cpus=2.0) for name in ("one", "two")]
    cluster = AgentProcesses(two, heartbeat_timeout_s=5.0, environ={**os.environ, "SWEEP_SHARED_STORAGE": "0"})
    return sweep.run(train, config={"x": sweep.uniform(0, 1)}, num_samples=6, engine=cluster, storage_path="b",
                     storage_filesystem=bucket, name="apart", verbose=0, seed=1, **more)
"""


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """Return the directory that stands for a bucket, and the file system of it."""
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "bucket").mkdir()
    return tmp_path / "bucket", DirFileSystem(str(tmp_path / "bucket"), LocalFileSystem())


def apart(**more):
    return AgentProcesses(TWO, environ={**os.environ, "SWEEP_SHARED_STORAGE": "0", **more})


def run(trainable, bucket, **more):
    settings = {"engine": apart(), "storage_path": "b", "storage_filesystem": bucket[1], "name": "apart", "verbose": 0}
    return sweep.run(trainable, **settings | more)


def names(root: Path, pattern: str) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.glob(pattern))


def train(config):
    start, checkpoint = 0, sweep.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            start = int(Path(directory, "step").read_text())
    print(f"from {start} in {os.getcwd()}", flush=True)
    Path("artifact.txt").write_text(f"of {config['x']}")
    for step in range(start + 1, 5):
        with sweep.checkpoint_dir() as directory:
            Path(directory, "step").write_text(str(step))
        sweep.report(step=step, x=config["x"])
        if step == 2 and not start:
            raise RuntimeError("once")


def test_checkpoints_artifacts_and_output_are_where_the_driver_looks_for_them(bucket, tmp_path):
    analysis = run(
        train,
        bucket,
        config={"x": sweep.grid_search([1, 2, 3, 4])},
        max_failures=1,
        chdir_to_trial_dir=True,
        checkpoint_config=sweep.CheckpointConfig(num_to_keep=1),
        sync_config=sweep.SyncConfig(sync_artifacts=True),
    )
    there = bucket[0] / "b" / "apart"
    ids = sorted(trial.trial_id for trial in analysis.trials)
    assert names(there, "*/checkpoint_*") == [f"{one}/checkpoint_000004.2" for one in ids]
    assert names(there, "*/artifact.txt") == [f"{one}/artifact.txt" for one in ids]
    assert names(there, ".sweep-staging") == []
    for trial, x in zip(sorted(analysis.trials, key=lambda one: one.trial_id), (1, 2, 3, 4), strict=True):
        assert (there / trial.trial_id / "artifact.txt").read_text() == f"of {x}"
        printed = (Path(analysis.experiment_path) / trial.trial_id / "output.log").read_text()
        assert (there / trial.trial_id / "output.log").read_text() == printed
        assert printed.index("from 0 in") < printed.index("RuntimeError: once") < printed.index("from 2 in")
        assert str(tmp_path / "cache" / "nodes") in printed
        with analysis.get_best_checkpoint(trial, "step", "max").as_directory() as directory:
            assert Path(directory, "step").read_text() == "4"
    left = [path.name for path in (tmp_path / "cache" / "nodes").rglob("*") if path.is_file()]
    assert sorted(left) == ["agent-one.lock", "agent-two.lock"]


def test_a_checkpoint_given_as_restore_reaches_every_node(bucket, tmp_path):
    (tmp_path / "mine" / "inner").mkdir(parents=True)
    (tmp_path / "mine" / "inner" / "step").write_text("7")

    def resumed(config):
        with sweep.get_checkpoint().as_directory() as directory:
            sweep.report(step=int(Path(directory, "inner", "step").read_text()), directory=directory)

    analysis = run(resumed, bucket, num_samples=4, restore=tmp_path / "mine")
    assert [trial.last_result["step"] for trial in analysis.trials] == [7] * 4
    assert all(str(tmp_path / "cache" / "nodes") in trial.last_result["directory"] for trial in analysis.trials)


def test_population_based_training_exploits_trials_of_other_nodes(bucket):
    def clone(config):
        level, checkpoint = 0.0, sweep.get_checkpoint()
        if checkpoint:
            with checkpoint.as_directory() as directory:
                level = float(Path(directory, "level").read_text())
        for _ in range(12):
            level += config["rate"]
            with sweep.checkpoint_dir() as directory:
                Path(directory, "level").write_text(str(level))
            sweep.report(level=level)

    pbt = PopulationBasedTraining(
        "training_iteration",
        perturbation_interval=3,
        hyperparam_mutations={"rate": sweep.uniform(0.1, 1)},
        quantile_fraction=0.5,
        resample_probability=0.0,
        synch=True,
    )
    rates = sweep.grid_search([0.001, 0.002, 1.0, 2.0])
    stop = {"training_iteration": 12}
    analysis = run(clone, bucket, config={"rate": rates}, scheduler=pbt, metric="level", mode="max", stop=stop, seed=1)
    levels = [trial.last_result["level"] for trial in analysis.trials]
    assert min(levels) > 1  # those that were slow went on from one that was fast


def test_the_ranks_of_a_group_on_two_nodes_make_one_checkpoint_and_continue_from_it(bucket):
    def loop(config):
        import tempfile

        rank, start, before = sweep.train.get_context().get_world_rank(), 0, sweep.get_checkpoint()
        if before:
            with before.as_directory() as directory:
                start = int(Path(directory, f"rank{rank}").read_text())
        for step in range(start + 1, 5):
            with tempfile.TemporaryDirectory() as directory:
                Path(directory, f"rank{rank}").write_text(str(step))
                sweep.report({"step": step, "start": start}, checkpoint=sweep.Checkpoint.from_directory(directory))
            if step == 2 and not before and rank == 1:
                raise RuntimeError("once")
        with sweep.get_checkpoint().as_directory() as directory:
            print("ends with", sorted(os.listdir(directory)), flush=True)

    trainer = TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=2, placement_strategy="STRICT_SPREAD"))
    analysis = run(trainer, bucket, num_samples=1, max_failures=1)
    (trial,) = analysis.trials
    assert trial.last_result["start"] in (1, 2)
    for rank in (0, 1):
        log = Path(analysis.experiment_path, trial.trial_id, f"rank{rank}.log").read_text()
        assert "'rank0', 'rank1'" in log
    with analysis.get_best_checkpoint(trial, "step", "max").as_directory() as directory:
        assert [Path(directory, f"rank{rank}").read_text() for rank in (0, 1)] == ["4", "4"]
    assert names(bucket[0] / "b" / "apart", ".sweep-staging/**/*") == []


def test_a_trial_of_a_lost_node_goes_on_elsewhere_from_its_last_checkpoint(bucket):
    cluster = apart()

    class Kill(sweep.Callback):
        """The node is lost when both of its trials have saved."""

        saved: set[str] = set()

        def on_trial_result(self, iteration, trials, trial, result, **info):
            if trial.placement.bundles[0].node == "two" and result["step"] == 2 and len(self.saved) < 2:
                self.saved.add(trial.trial_id)
                if len(self.saved) == 2:
                    os.kill(cluster.processes["two"].pid, signal.SIGKILL)

    def slow(config):
        start, checkpoint = 0, sweep.get_checkpoint()
        if checkpoint:
            with checkpoint.as_directory() as directory:
                start = int(Path(directory, "step").read_text())
        for step in range(start + 1, 7):
            time.sleep(0.05)
            with sweep.checkpoint_dir() as directory:
                Path(directory, "step").write_text(str(step))
            sweep.report(step=step, start=start)

    analysis = run(slow, bucket, num_samples=4, engine=cluster, callbacks=[Kill()])
    assert [trial.last_result["step"] for trial in analysis.trials] == [6] * 4
    starts = sorted(trial.last_result["start"] for trial in analysis.trials)
    assert starts[:2] == [0, 0]
    assert starts[2] > 0


def test_what_a_killed_driver_left_is_continued_on_another_machine(bucket, tmp_path):
    script = tmp_path / "drive.py"
    script.write_text(
        HEAD
        + textwrap.dedent("""
        if __name__ == "__main__":
            tune()
    """)
    )
    environ = {**os.environ, "BUCKET": str(bucket[0]), "SWEEP_CACHE": str(tmp_path / "first")}
    environ["PYTHONPATH"] = str(Path(__file__).parents[1])
    driver = subprocess.Popen([sys.executable, str(script)], env=environ, start_new_session=True)
    there = bucket[0] / "b" / "apart"
    give_up = time.monotonic() + 60
    while len(names(there, "*/checkpoint_*/.sweep-manifest.json")) < 5 or not (there / "sweep.db").exists():
        assert time.monotonic() < give_up
        assert driver.poll() is None
        time.sleep(0.05)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    (tmp_path / "first").rename(tmp_path / "lost")
    script.write_text(
        HEAD
        + textwrap.dedent("""
        if __name__ == "__main__":
            found = tune(resume=True)
            print(sorted((t.last_result["step"], t.status) for t in found.trials))
            print(sum(t.last_result["start"] > 0 for t in found.trials))
    """)
    )
    again = subprocess.run(
        [sys.executable, str(script)],
        env={**environ, "SWEEP_CACHE": str(tmp_path / "second")},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert again.returncode == 0, again.stderr
    steps, _ = again.stdout.splitlines()[-2:]
    assert steps == str([(8, "TERMINATED")] * 6)


def test_storage_that_cannot_be_sent_to_nodes_is_refused_before_the_start(tmp_path, monkeypatch):
    class Here(DirFileSystem):
        def __reduce__(self):
            raise TypeError("it holds a socket")

    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "cache"))
    here = Here(str(tmp_path), LocalFileSystem())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sweep.engines.cluster.agents.witness", lambda *_: ("nowhere/never", "written"))
        with pytest.raises(ExperimentError, match=r"one: it does not see the files of .*it holds a socket"):
            run(
                train,
                (tmp_path, here),
                num_samples=1,
                config={"x": 1},
                engine=AgentProcesses(TWO[:1], heartbeat_timeout_s=40.0),
            )


def test_storage_that_each_process_has_for_itself_is_refused_before_the_start(tmp_path, monkeypatch):
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "cache"))
    with pytest.raises(ExperimentError, match=r"one: it does not find in memory://b/apart what the driver has written"):
        sweep.run(train, config={"x": 1}, engine=apart(), storage_path="memory://b", name="apart", verbose=0)


def test_a_node_without_a_disk_for_its_directory_is_named(bucket, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ExperimentError, match=r"one: there is no directory for its trials: .*Set SWEEP_CACHE") as error:
        run(train, bucket, num_samples=1, config={"x": 1}, engine=apart(SWEEP_CACHE=str(tmp_path / "file")))
    assert "Nothing was started." in str(error.value)
    assert names(bucket[0], "**/.sweep-staging") == []


def test_what_a_trial_prints_is_followed_while_it_runs_also_when_it_goes_on_on_another_node(bucket):
    cluster, printed, threads = apart(), [], []

    class Follow(sweep.Callback):
        """Follows the first trial of a node, which is lost when what it printed there has been read."""

        def setup(self, *, experiment_dir, **info):
            self.reader = ExperimentReader(experiment_dir)

        def on_trial_start(self, iteration, trials, trial, **info):
            if trial.placement.bundles[0].node == "two" and not threads:
                self.trial_id = trial.trial_id
                threads.append(threading.Thread(target=self.follow, args=[self.reader.layout.output(trial.trial_id)]))
                threads[0].start()

        def follow(self, path):
            print_logs([path], self.read, has_ended=lambda: self.reader.trial(self.trial_id).is_ended)

        def read(self, line):
            printed.append(line.decode())
            if line == b"step 3\n" and printed.count("step 3\n") == 1:
                os.kill(cluster.processes["two"].pid, signal.SIGKILL)

    def slow(config):
        for step in range(1, 7):
            print("step", step, flush=True)
            time.sleep(0.3)
            sweep.report(step=step)

    run(slow, bucket, num_samples=4, engine=cluster, callbacks=[Follow()])
    threads[0].join()
    first, second = [at for at, line in enumerate(printed) if line.startswith("---")]
    assert printed[first + 1 : first + 4] == ["step 1\n", "step 2\n", "step 3\n"]
    assert printed[second + 1 :] == [f"step {step}\n" for step in range(1, 7)]
