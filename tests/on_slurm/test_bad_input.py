"""What is asked of Slurm and cannot be had: one clear error each, and nothing is left."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from mounts import with_mounts

import sweep
from sweep.engines.cluster.slurm_jobs import limits_of
from sweep.errors import ConfigError, ResourceError, SweepError

pytestmark = pytest.mark.slurm


def train(config):
    return {"loss": 1.0}


def refused(kind: type[SweepError], directory, sbatch="", **options) -> str:
    sweep.init(engine="slurm", sbatch=sbatch)
    with pytest.raises(kind) as error:
        sweep.run(train, storage_path=directory, name="made", verbose=0, **options)
    return str(error.value)


def test_a_machine_without_slurm_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    said = refused(ConfigError, tmp_path)
    assert said.startswith("engine='slurm' needs Slurm's commands, and there is no sbatch on this machine.")


@pytest.mark.parametrize(
    ("sbatch", "words"),
    [
        ("--partition=none", "Invalid partition"),
        ("--time=soon", "Invalid --time specification"),
        ("--frequency=7", "unrecognized option '--frequency=7'"),
        ("--gres=gpu:9", "Requested node configuration is not available"),
        ("--comment='a", "which cannot be split: No closing quotation"),
    ],
)
def test_what_slurm_refuses_ends_the_sweep_with_its_message(slurm, tmp_path, left, sbatch, words):
    said = refused(ConfigError, tmp_path, sbatch)
    assert words in said
    assert "give other options in sweep.init(engine='slurm', sbatch='...')" in said
    assert left(tmp_path / "made") == []


def test_a_controller_that_does_not_answer_is_named(slurm, tmp_path, monkeypatch):
    monkeypatch.setattr("sweep.engines.cluster.slurm_jobs._COMMAND_S", 1.0)
    lost = tmp_path / "slurm.conf"
    text = (slurm.root / "slurm.conf").read_text()
    lost.write_text(text.replace("(127.0.0.1)", "(192.0.2.1)"))
    monkeypatch.setenv("SLURM_CONF", str(lost))
    assert "Slurm does not answer: sbatch took longer than 1 s" in refused(ConfigError, tmp_path)


@pytest.mark.parametrize("sbatch", ["-c 2", "-c 2 --gres=gpu:1"])
def test_gpus_that_no_job_has_are_refused_before_the_first_trial(slurm, tmp_path, left, sbatch):
    said = refused(ResourceError, tmp_path, sbatch, resources_per_trial={"cpu": 1, "gpu": 2})
    number = 1 if "gres" in sbatch else 0
    assert f"gpu=2 is more than the largest node there is, or that may come, has: {number}" in said
    assert left(tmp_path / "made") == []


def test_gpus_that_the_job_does_not_have_are_refused_in_it(slurm, script, tmp_path, left):
    path = script(
        "sweep.init(engine='slurm')\n"
        "sweep.run(lambda config: {'loss': 1}, storage_path=sys.argv[1], name='made', "
        "resources_per_trial={'cpu': 1, 'gpu': 1})\n"
    )
    command = ["salloc", "--nodes=2", sys.executable, path, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "ResourceError" in done.stderr
    assert "gpu=1 is more than the largest node has: 0. The job of Slurm has none there." in done.stderr, done.stderr
    assert left(tmp_path / "made") == []


def test_a_job_that_is_cancelled_while_it_starts_is_said_and_replaced(slurm, tmp_path, left, capsys):
    held = slurm.call("sbatch", "--parsable", "--nodes=2", "-c", "2", "--output=/dev/null", "--wrap=sleep 4").strip()
    slurm.await_jobs(1, state="RUNNING")

    class Once(sweep.Callback):
        seen = False

        def on_step(self, trials, now, changed):
            if not self.seen:
                [line] = [line for line in slurm.await_jobs(2) if not line.startswith(f"{held} ")]
                slurm.call("scancel", line.split()[0])
                self.seen = True

    sweep.init(engine="slurm", sbatch="-c 1", max_nodes=1)
    analysis = sweep.run(train, storage_path=tmp_path, name="made", verbose=1, callbacks=[Once()])
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"]
    assert "ended before its agent came: CANCELLED" in "".join(capsys.readouterr())
    assert left(tmp_path / "made") == []


def test_a_job_that_is_over_as_its_agent_is_to_start_is_said_and_replaced(slurm, tmp_path, left, monkeypatch, capsys):
    seen = []

    def limits_of_one_that_is_cancelled(job):
        if not seen:
            seen.append(job)
            slurm.call("scancel", job)
            slurm.await_jobs(0)
        return limits_of(job)

    monkeypatch.setattr("sweep.engines.cluster.slurm.limits_of", limits_of_one_that_is_cancelled)
    sweep.init(engine="slurm", sbatch="-c 1", max_nodes=1)
    analysis = sweep.run(train, storage_path=tmp_path, name="made", verbose=1)
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"]
    assert f"job {seen[0]} ended before its agent came: CANCELLED" in "".join(capsys.readouterr())
    assert left(tmp_path / "made") == []


def test_a_directory_that_the_jobs_do_not_see_is_refused_when_the_first_one_comes(slurm, script, tmp_path, left):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    path = script(
        "sweep.init(engine='slurm', sbatch='-c 1', max_nodes=1)\n"
        "sweep.run(lambda config: {'loss': 1}, storage_path=sys.argv[1], name='made')\n"
    )
    command = [sys.executable, path, str(hidden)]
    began = time.monotonic()
    done = subprocess.run(
        with_mounts([f"mount -t tmpfs tmpfs {hidden}"], command), capture_output=True, text=True, check=False
    )
    assert time.monotonic() - began < 90
    assert done.returncode == 1
    assert "does not see the files of" in done.stderr.splitlines()[-1]
    assert left(hidden / "made") == []
