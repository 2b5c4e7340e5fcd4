"""Sweeps on a cluster of Slurm: in a job with two nodes, and in jobs of one node each that come and go."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import anywhere
import pytest

import sweep
from sweep.core.messages import NodesChanged
from sweep.engines.cluster.handshake import Listener
from sweep.engines.cluster.slurm import SlurmCluster
from sweep.record.facts import read_facts
from sweep.record.reader import ExperimentReader

pytestmark = pytest.mark.slurm

TRAIN = """
def train(config):
    for epoch in range(3):
        named = ("SLURMD_NODENAME", "CUDA_VISIBLE_DEVICES", "SLURM_PROCID", "SLURM_NTASKS")
        sweep.report(loss=(config["x"] - 0.3) ** 2 + 1 / (epoch + 1), **{name: os.environ.get(name) for name in named})


sweep.init(engine="slurm")
asked = {"cpu": 1, "gpu": 1}
analysis = sweep.run(
    train, config={"x": sweep.uniform(0, 1)}, storage_path=sys.argv[1], name="made", verbose=0, num_samples=8,
    metric="loss", mode="min", seed=3, resources_per_trial=asked,
)
print(json.dumps([[trial.status, trial.last_result] for trial in analysis.trials]))
"""
GROUP = """
from sweep.train import ScalingConfig
from sweep.train.torch import TorchConfig, TorchTrainer


def train(config):
    import torch
    import torch.distributed as dist
    from sweep.train import get_context, report

    total = torch.tensor([float(get_context().get_world_rank() + 1)])
    dist.all_reduce(total)
    seen = [None, None]
    dist.all_gather_object(seen, [os.environ["SLURMD_NODENAME"], os.environ["CUDA_VISIBLE_DEVICES"]])
    report({"total": total.item(), "seen": seen})


sweep.init(engine="slurm")
scaling = ScalingConfig(
    num_workers=2, use_gpu=True, resources_per_worker={"CPU": 1, "GPU": 1}, placement_strategy="STRICT_SPREAD"
)
analysis = sweep.run(
    TorchTrainer(train, torch_config=TorchConfig(backend="gloo"), scaling_config=scaling),
    storage_path=sys.argv[1], name="made", verbose=0, num_samples=2,
)
print(json.dumps([[trial.status, trial.last_result] for trial in analysis.trials]))
"""


def in_a_job(slurm, path: str, directory: Path, *options: str) -> list:
    """Return what a script prints at last in a job of two nodes."""
    said = slurm.call("salloc", "--nodes=2", "--ntasks-per-node=1", *options, sys.executable, path, str(directory))
    return json.loads(said.splitlines()[-1])


def slow(config):
    """Take ten steps of 0.3 s, from a checkpoint where there is one."""
    before = sweep.get_checkpoint()
    start = 0 if before is None else int(Path(before.path, "step").read_text())
    for step in range(start + 1, 11):
        time.sleep(0.3)
        with sweep.checkpoint_dir(step=step) as directory:
            Path(directory, "step").write_text(str(step))
        sweep.report(step=step, began=start)


def with_jobs(directory: Path, train, *, sbatch: str, init=None, **options):
    """Run a sweep outside a job."""
    sweep.init(engine="slurm", sbatch=sbatch, **(init or {}))
    return sweep.run(train, **{"storage_path": directory, "name": "made", "verbose": 0, **options})


def inventories(experiment: Path) -> list[tuple]:
    """Return which nodes there were, one time after another."""
    events = [row.event for row in read_facts(experiment / "sweep.db")]
    return [event.nodes for event in events if isinstance(event, NodesChanged)]


class When(sweep.Callback):
    """Does something once, when a trial has made so many reports."""

    def __init__(self, number, act):
        self.number, self.act, self.seen = number, act, False

    def on_trial_result(self, iteration, trials, trial, result, **info):
        if result["training_iteration"] >= self.number and not self.seen:
            self.seen = True
            self.act()


def test_a_sweep_in_a_job_uses_the_cpus_and_gpus_of_each_of_its_nodes(slurm, script, tmp_path, left):
    trials = in_a_job(slurm, script(TRAIN), tmp_path, "--gres=gpu:2", "--cpus-per-task=2", "--mem=1000")
    assert [status for status, _ in trials] == ["TERMINATED"] * 8
    seen = {(last["SLURMD_NODENAME"], last["CUDA_VISIBLE_DEVICES"]) for _, last in trials}
    assert seen == {(node, gpu) for node in ("n1", "n2") for gpu in ("0", "1")}
    assert {(last["SLURM_PROCID"], last["SLURM_NTASKS"]) for _, last in trials} == {(None, None)}
    nodes = inventories(tmp_path / "made")[0]
    shapes = [(node.id, node.cpus, node.memory, len(node.devices), node.address) for node in nodes]
    assert shapes == [(name, 2.0, 1000 << 20, 2, "") for name in ("n1", "n2")]
    assert left(tmp_path / "made") == []
    assert sweep.replay(tmp_path / "made").differences == []


def test_a_group_in_a_job_sums_over_gloo_with_a_worker_on_each_node(slurm, script, tmp_path, left):
    trials = in_a_job(slurm, script(GROUP), tmp_path, "--gpus=4", "--cpus-per-task=2")
    assert [status for status, _ in trials] == ["TERMINATED"] * 2
    for _, last in trials:
        assert last["total"] == 3.0
        assert [node for node, _ in last["seen"]] in (["n1", "n2"], ["n2", "n1"])
    assert left(tmp_path / "made") == []


def test_jobs_come_with_what_waits_and_are_cancelled_when_they_run_nothing(slurm, tmp_path, left):
    lines, key = [], []

    both = tmp_path / "both"  # is there once both nodes are

    class Look(sweep.Callback):
        def on_trial_start(self, iteration, trials, trial, **info):
            if trial.number == 2:
                both.touch()
            lines.extend(path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists())

    def train(config):
        while not both.exists():
            time.sleep(0.1)
        time.sleep(4 if config["x"] == 3 else 0)
        return {"loss": config["x"], "gpu": os.environ["CUDA_VISIBLE_DEVICES"]}

    made = Listener.__init__

    def listen(self, *given):
        made(self, *given)
        key.append(self.key.encode())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Listener, "__init__", listen)
        analysis = with_jobs(
            tmp_path,
            train,
            sbatch="-c 2 --gres=gpu:2 --time=10",
            init={"max_nodes": 3, "idle_s": 1.0},
            config={"x": sweep.grid_search([0, 1, 2, 3])},
            resources_per_trial={"cpu": 1, "gpu": 1},
            callbacks=[Look()],
        )
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 4
    assert {trial.last_result["gpu"] for trial in analysis.trials} == {"0", "1"}
    numbers = [len(nodes) for nodes in inventories(tmp_path / "made")]
    assert numbers[0] == 0
    assert max(numbers) == 2
    assert numbers[-1] == 1  # while the last trial ran
    assert left(tmp_path / "made") == []
    assert any(b"srun" in line for line in lines)
    assert len(key) == 1
    assert not any(key[0] in line for line in lines)


def test_what_comes_just_when_the_only_job_is_given_back_waits_for_another(slurm, tmp_path, left, monkeypatch):
    dismissed = []
    real = SlurmCluster.dismiss

    class Later(sweep.Searcher):
        """Suggests a trial, and another one as soon as the job of the first is given back."""

        given = 0

        def suggest(self, trial_id):
            if self.given > len(dismissed):
                return None
            self.given += 1
            return {}

        def on_trial_complete(self, trial_id, result=None, error=False):
            pass

    monkeypatch.setattr(SlurmCluster, "dismiss", lambda *of: (dismissed.append(of), real(*of)))
    analysis = with_jobs(
        tmp_path,
        lambda config: {"loss": 1.0},
        sbatch="-c 1",
        init={"max_nodes": 1, "idle_s": 0.5},
        num_samples=2,
        search_alg=Later(),
    )
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 2, analysis.trials[-1].reason
    assert len(dismissed) == 1
    assert left(tmp_path / "made") == []


def test_what_waits_for_a_job_names_it_with_slurms_reason(slurm, tmp_path, left):
    held = slurm.call("sbatch", "--parsable", "--nodes=2", "-c", "2", "--output=/dev/null", "--wrap=sleep 60").strip()
    slurm.await_jobs(1, state="RUNNING")
    seen = set()

    class Look(sweep.Callback):
        def on_step(self, trials, now, changed):
            seen.update(trials[one].reason for one in changed)
            if any("Resources" in reason or "Priority" in reason for reason in seen):
                slurm.call("scancel", held)

    analysis = with_jobs(tmp_path, lambda config: {"loss": 1}, sbatch="-c 2", num_samples=2, callbacks=[Look()])
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 2
    assert any(re.search(r"waits for node 'job \d+ of Slurm \((Resources|Priority)\)' \(cpu=2\)", one) for one in seen)
    assert left(tmp_path / "made") == []


@pytest.mark.parametrize("how", ["cancelled", "requeued", "preempted", "node down"])
def test_a_trial_whose_job_goes_away_goes_on_in_another_from_its_checkpoint(slurm, tmp_path, left, how):
    def act():
        [job] = [line.split()[0] for line in slurm.jobs() if " sweep-" in line and "RUNNING" in line]
        node = slurm.call("squeue", "-h", "-j", job, "-o", "%N").strip()
        if how == "cancelled":
            slurm.call("scancel", job)
        elif how == "requeued":
            slurm.call("scontrol", "requeue", job)
            slurm.await_jobs(1, state="PENDING")
            slurm.call("scontrol", "update", f"jobid={job}", "StartTime=now")
        elif how == "preempted":
            more = ("--partition=high", "--nodes=2", "-c", "2", "--time=1")
            slurm.call("sbatch", *more, "--output=/dev/null", "--wrap=sleep 2")
        else:
            slurm.call("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
            slurm.call("scontrol", "update", f"nodename={node}", "state=resume")

    again = " --requeue" if how == "requeued" else ""
    analysis = with_jobs(tmp_path, slow, sbatch="-c 2" + again, callbacks=[When(4, act)])
    [trial] = analysis.trials
    assert trial.status == "TERMINATED"
    assert trial.last_result["step"] == 10
    assert trial.last_result["began"] >= 4
    assert trial.attempt == 2
    assert left(tmp_path / "made") == []


def test_a_job_that_is_queued_again_after_it_was_given_up_is_cancelled_at_the_end(slurm, tmp_path, left):
    def act():
        [job] = [line.split()[0] for line in slurm.jobs() if " sweep-" in line and "RUNNING" in line]
        slurm.call("scancel", job)
        give_up = time.monotonic() + 30
        while not (found := slurm.jobs()) or any(line.startswith(f"{job} ") for line in found):  # another replaces it
            assert time.monotonic() < give_up
            time.sleep(0.1)
        slurm.call("scontrol", "requeue", job)
        assert len(slurm.jobs()) == 2

    analysis = with_jobs(tmp_path, slow, sbatch="-c 2 --requeue", init={"max_nodes": 1}, callbacks=[When(4, act)])
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"]
    assert left(tmp_path / "made") == []


def test_a_killed_driver_leaves_no_job_that_runs(slurm, script, tmp_path, left):
    path = script(
        f"sys.path.append({str(Path(__file__).parent)!r})\n"
        "from test_sweeps import slow, with_jobs\n"
        "import sweep.engines.cluster.slurm as slurm\n"
        "slurm._HOLD_S, slurm._LOOK_S = 4, 0.3\n"
        "with_jobs(sys.argv[1], slow, sbatch='-c 2', init={'max_nodes': 1})\n"
    )
    with subprocess.Popen([sys.executable, path, str(tmp_path)]) as driver:
        try:
            give_up = time.monotonic() + 30
            while not list(tmp_path.glob("made/*/checkpoint_*")):
                assert time.monotonic() < give_up
                time.sleep(0.1)
        finally:
            driver.kill()
    assert left(tmp_path / "made") == []


def test_the_documented_job_script_saves_at_the_time_limit_requeues_itself_and_goes_on(slurm, script, tmp_path, left):
    text = (Path(__file__).parents[2] / "docs" / "how-to" / "use-slurm.md").read_text()
    [job_script] = re.findall(r"```bash\n(#!/bin/bash\n.*?)```", text, flags=re.DOTALL)
    os.rename(script("from pathlib import Path\n" + inspect.getsource(slow)), tmp_path / "train.py")
    command = f'{sys.executable} -c "from sweep.cli.main import main; main()" run'
    job_script = job_script.replace("sweep run", command).replace("train.py:train", "train.py:slow")
    (tmp_path / "job.sh").write_text(job_script)
    options = ("--nodes=2", "--cpus-per-task=1", "--gres=gpu:0", "--partition=low", "--output=job.log")
    job = slurm.call("sbatch", "--parsable", *options, "job.sh", cwd=tmp_path).strip()
    give_up = time.monotonic() + 30
    while not list(tmp_path.glob("sweep_results/digits/*/checkpoint_*")):
        assert time.monotonic() < give_up, (tmp_path / "job.log").read_text()
        time.sleep(0.1)
    slurm.call("scancel", "--signal=USR1", "--batch", job)  # as Slurm does before the limit
    slurm.await_jobs(1, state="PENDING")
    time.sleep(2)  # a node takes no job again in the second in which that was ended there
    slurm.call("scontrol", "update", f"jobid={job}", "StartTime=now")
    slurm.await_jobs(0, seconds=60)
    trials = ExperimentReader(tmp_path / "sweep_results" / "digits").trials()
    said = (tmp_path / "job.log").read_text() + slurm.call("scontrol", "show", "job", job)
    assert {trial.status for trial in trials} == {"TERMINATED"}, said
    assert any(trial.last_report.metrics["began"] > 0 for trial in trials)
    assert left(tmp_path / "sweep_results" / "digits") == []


@pytest.mark.slow
@pytest.mark.parametrize("how", ["in a job", "with jobs"])
def test_the_example_that_runs_anywhere_has_the_same_results_on_slurm(slurm, tmp_path, how):
    if how == "in a job":
        job = ("salloc", "--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=2", "--mem=2000")
        anywhere.run(tmp_path, "--engine", "slurm", command=(*job, *anywhere.COMMAND))
    else:  # one that is large enough for a whole group must not be given one
        anywhere.run(tmp_path, "--engine", "slurm", "--sbatch", "-c 2 --mem=2000", "--apart")
    anywhere.assert_as_at_home(tmp_path)
