"""Elastic groups on nodes that come and go, each with an agent: their ranks are processes that meet anew each time."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import pytest
from agent_processes import AgentProcesses
from click.testing import CliRunner
from conformance.multi_node import Meeting
from conformance.processes import of_experiment

import sweep
from sweep.cli import main
from sweep.core.messages import Exited, ExitKind, Reported
from sweep.core.resources import Node
from sweep.record.facts import read_facts
from sweep.train import Checkpoint, DataParallelTrainer, ScalingConfig, get_checkpoint, get_context, report

pytestmark = pytest.mark.agents

M, N = (Node(name, 2, address=f"127.0.0.{last}") for name, last in (("m", 2), ("n", 3)))


class ComesAndGoes(AgentProcesses):
    """Two nodes, of which the second comes when the file `come` appears, and is lost when `go` does."""

    def __init__(self, at: Path):
        super().__init__([M], heartbeat_timeout_s=5.0)
        self.at = at

    @property
    def away(self):
        return () if N in self._nodes else (N,)

    def watch(self, changed):
        self.changed = changed

    def come(self):
        self._nodes = (M, N)
        self.changed()

    def go(self):
        self._nodes = (M,)
        os.killpg(self.processes["n"].pid, signal.SIGKILL)


def train(config):
    """Take steps of 0.1 s, of which every third is saved, until `end` says so."""
    context, saved, at = get_context(), get_checkpoint(), Path(config["at"])
    step = int((Path(saved.path) / "step").read_text()) if saved else 0
    began = step
    while True:
        time.sleep(0.1)
        step += 1
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / "step").write_text(str(step))
            checkpoint = Checkpoint(directory) if step % 3 == 0 else None
            is_over = (at / "end").exists() and step % 3 == 0
            report(
                {"step": step, "began": began, "size": context.get_world_size(), "done": is_over}, checkpoint=checkpoint
            )


class Plays(sweep.Callback):
    """Has the second node come, go and come again, as the trial gets on."""

    def __init__(self, cluster, at):
        self.cluster, self.at, self.sizes = cluster, at, []

    def on_trial_result(self, iteration, trials, trial, result, **info):
        if not self.sizes or self.sizes[-1] != result["size"]:
            self.sizes.append(result["size"])
            self.since = result["step"]
        if result["step"] == 5:
            self.why = CliRunner().invoke(main.sweep, ["why", "made", "--storage", str(self.at)]).output
        if result["step"] - self.since == 4:  # one step after a checkpoint at the earliest
            match self.sizes:
                case [2] | [2, 4, 2]:
                    self.cluster.come()
                case [2, 4]:
                    self.cluster.go()
                case _:
                    (self.at / "end").touch()


def test_a_group_grows_and_shrinks_with_a_node_that_comes_and_goes_and_loses_only_what_was_not_saved(tmp_path):
    cluster = ComesAndGoes(tmp_path)
    trainer = DataParallelTrainer(
        train,
        train_loop_config={"at": str(tmp_path)},
        backend_config=Meeting(),
        scaling_config=ScalingConfig(num_workers=(2, 4), resize_every_s=0.0),
    )
    plays = Plays(cluster, tmp_path)
    analysis = sweep.run(
        trainer,
        engine=cluster,
        storage_path=tmp_path,
        name="made",
        verbose=0,
        callbacks=[plays],
        metric="step",
        mode="max",
    )
    (trial,) = analysis.trials
    assert (trial.status, plays.sizes) == ("TERMINATED", [2, 4, 2, 4])
    assert "holds 2 x (cpu=1) PACK; 2 of at most 4 workers: no more room" in plays.why
    facts = list(read_facts(tmp_path / "made" / "sweep.db"))
    assert [fact.event.exit.kind for fact in facts if isinstance(fact.event, Exited)].count(ExitKind.NODE_LOST) == 1
    steps = [(fact.event.attempt, fact.metrics["step"]) for fact in facts if isinstance(fact.event, Reported)]
    for (attempt, step), (next_attempt, next_step) in pairwise(steps):
        assert attempt == next_attempt or next_step == step - step % 3 + 1  # from the last checkpoint
    assert sum(next_step <= step for (_, step), (_, next_step) in pairwise(steps)) == 1
    assert sweep.replay(analysis.experiment_path, trainable=trainer).differences == []
    assert of_experiment(analysis.experiment_path) == []
