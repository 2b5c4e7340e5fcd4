"""Groups whose ranks lie on two nodes, each with an agent: who they are, what ends them, what is told of it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from agent_processes import AgentProcesses
from conformance.driving import Story
from conformance.engines import collect, context, has_released, has_reported, trial
from conformance.multi_node import NODES, ONE_EACH, Driver, Meeting
from conformance.processes import Watch, of_experiment
from recorded import exits, only

import sweep
from sweep.core.messages import Continue, Exited, ExitKind, Kill, Released, Start, Stop, Tick, Waiting
from sweep.core.resources import Bundle, BundlePlacement, Node, Placement, Resources
from sweep.engines.jobs import JobMaker, payload_of, store_trainable
from sweep.engines.local.engine import LocalEngine
from sweep.engines.local.supervisors import Slot
from sweep.record.layout import ExperimentLayout
from sweep.train import DataParallelTrainer, ScalingConfig
from sweep.worker import wire

pytestmark = [
    pytest.mark.agents,
    pytest.mark.skipif(sys.platform != "linux", reason="the process model is tested on Linux"),
]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    driver = Driver(tmp_path_factory.mktemp("spanning"))
    yield driver
    driver.engine.close()


@pytest.fixture
def two(shared):
    """Return a driver with an agent on each of two nodes; afterwards no rank is left."""
    yield shared
    assert Watch(shared.ranks()).left(0) == []


# --- who they are ----------------------------------------------------------------------------------------------------


def look_around(rank, at):
    names = ("RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "MASTER_ADDR")
    shown = [os.environ[name] for name in (*names, "CUDA_VISIBLE_DEVICES", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")]
    (at / f"seen-{rank}").write_text(" ".join(shown))
    sweep.report({"rank": rank})


@pytest.mark.parametrize(
    ("places", "seen"),
    [
        (ONE_EACH, ["0 0 0 2 1 2 127.0.0.2 0 lo lo", "1 0 1 2 1 2 127.0.0.2 0 lo lo"]),
        ((("n", 1), ("m", 1)), ["0 0 0 2 1 2 127.0.0.3 1 lo lo", "1 0 1 2 1 2 127.0.0.3 1 lo lo"]),
        (
            (("m", 1), ("n", 0), ("m", 0), ("n", 1)),
            [
                "0 0 0 4 2 2 127.0.0.2 0,1 lo lo",
                "1 1 0 4 2 2 127.0.0.2 0,1 lo lo",
                "2 0 1 4 2 2 127.0.0.2 0,1 lo lo",
                "3 1 1 4 2 2 127.0.0.2 0,1 lo lo",
            ],
        ),
        ((("n", 0), ("n", 1)), ["0 0 0 2 2 1 127.0.0.1 0,1 lo lo", "1 1 0 2 2 1 127.0.0.1 0,1 lo lo"]),
    ],
    ids=["one_each", "the_other_first", "two_each", "one_node"],
)
def test_ranks_know_their_node_its_devices_and_the_address_of_rank_0s(two, places, seen):
    story = two.play(look_around, places)
    assert story.exit.kind is ExitKind.FINISHED
    assert story.values("rank") == [0]
    assert [(two.path(story) / f"seen-{rank}").read_text() for rank in range(len(places))] == seen


def test_only_rank_0s_reports_count_and_the_others_go_at_its_pace(two):
    def do(rank, at):
        for step in range(3):
            sweep.report({"step": step, "rank": rank})
            (at / f"rank{rank}-{step}").touch()

    def answer(report):
        done.append(sorted(path.name for path in two.directory.glob(f"{report.trial_id}/rank*-*")))
        return Continue(report.trial_id, report.attempt, report.seq)

    done: list[list[str]] = []
    story = two.play(do, answer=answer)
    assert story.exit.kind is ExitKind.FINISHED
    assert [(one["step"], one["rank"]) for one in story.metrics] == [(0, 0), (1, 0), (2, 0)]
    assert [f"rank1-{step}" in names for step, names in enumerate(done)] == [False] * 3


def test_shards_of_both_nodes_are_one_checkpoint_and_nothing_else_is_left(two, tmp_path):
    def do(rank, at):
        for step in range(2):
            shard = tmp_path / f"shard{rank}-{step}"
            shard.mkdir()
            (shard / f"rank{rank}.txt").write_text(f"{rank} at {step}")
            sweep.report({"step": step}, checkpoint=sweep.Checkpoint(str(shard)))

    story = two.play(do, (("m", 0), ("n", 0), ("n", 1)))
    assert story.exit.kind is ExitKind.FINISHED
    for step, stored in enumerate(story.saved):
        texts = [(two.directory / stored / f"rank{rank}.txt").read_text() for rank in range(3)]
        assert texts == [f"{rank} at {step}" for rank in range(3)]
    assert len(story.saved) == 2
    assert list(two.path(story).glob("tmp-*")) == []


def reporting_once(rank, at):
    """Report when every rank does, and do nothing more."""
    shard = at / f"shard-{rank}"
    shard.mkdir()
    sweep.report({"rank": rank}, checkpoint=sweep.Checkpoint(str(shard)))
    time.sleep(1000)


# --- ends ------------------------------------------------------------------------------------------------------------


def raising() -> None:
    raise ValueError("true")


def killing() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("end", "words"),
    [(raising, "rank 2 of 3: ValueError: true"), (killing, "rank 2 of 3: killed by SIGKILL")],
)
def test_what_ended_first_on_another_node_is_the_error_and_not_what_it_caused(two, end, words):
    def do(rank, at):
        if rank == 2:
            pipes = [os.open(at / f"pipe{other}", os.O_WRONLY) for other in (0, 1)]  # open until this process is gone
            end()
            os.close(pipes[0])
        (at / f"pipe{rank}").read_bytes()
        raise ConnectionError("a peer is gone")

    one = two.trial(do, (("m", 0), ("n", 0), ("m", 1)))
    for rank in range(2):
        os.mkfifo(two.directory / one.id / f"pipe{rank}")
    two.engine.execute(Start(one))
    story = Story(collect(two.engine, has_released(1)))
    assert story.exit.kind in (ExitKind.FAILED, ExitKind.KILLED)
    assert story.exit.error.startswith(words)
    assert story.exit.peak_rss_bytes > 3 << 20


def test_an_exception_on_another_node_comes_with_the_users_frames(two):
    def do(rank, at):
        if rank == 1:
            {}["lr"]
        time.sleep(1000)

    ended = two.play(do).exit
    assert (ended.kind, ended.class_name) == (ExitKind.FAILED, "KeyError")
    assert "in do" in ended.traceback


def test_what_a_rank_has_started_on_another_node_is_gone_when_the_exit_is_told(two):
    def do(rank, at):
        if rank == 1:
            apart = subprocess.Popen(["sleep", "1000"], start_new_session=True)
            (at / "apart").write_text(str(apart.pid))

    story = two.play(do)
    assert story.exit.kind is ExitKind.FINISHED
    assert not Path("/proc", (two.path(story) / "apart").read_text()).exists()


@pytest.mark.slow
def test_a_rank_on_another_node_that_was_stopped_is_found_and_all_show_where_they_are(tmp_path):
    def do(rank, at):
        def being_stopped():
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(1000)

        sweep.report({"rank": rank})
        if rank == 1:
            being_stopped()
        time.sleep(1000)

    driver = Driver(tmp_path, report_timeout_s=1.0)
    try:
        story = driver.play(do)
    finally:
        driver.engine.close()
    assert story.exit.kind is ExitKind.HUNG
    assert story.exit.error.startswith("no report within report_timeout_s=1: rank 1 is stopped (SIGSTOP).")
    assert "in being_stopped\n" in (driver.path(story) / "rank1.log").read_text()
    assert "in do\n" in (driver.path(story) / "rank0.log").read_text()


def test_a_stop_at_a_report_ends_every_rank_where_it_is_and_their_finally_blocks_run(two):
    def do(rank, at):
        try:
            while True:
                sweep.report({"rank": rank})
        finally:
            (at / f"left-{rank}").touch()

    story = two.play(do, answer=lambda report: Stop(report.trial_id, report.attempt, report.seq))
    assert story.exit.kind is ExitKind.STOPPED
    assert sorted(path.name for path in two.path(story).glob("left-*")) == ["left-0", "left-1"]


def test_a_kill_ends_the_ranks_of_both_nodes(two):
    one = two.trial(reporting_once)
    two.engine.execute(Start(one))
    collect(two.engine, has_reported(1), answer=None)
    ranks = two.ranks(one.id)
    watch = Watch(ranks)
    two.engine.execute(Kill(one.id, 1, "because"))
    story = Story(collect(two.engine, has_released(1)))
    assert (story.exit.kind, story.exit.error) == (ExitKind.KILLED, "because")
    assert watch.left(0) == []
    assert len(ranks) == 2


def test_groups_of_both_orders_run_side_by_side(two):
    trials = [two.trial(look_around, places) for places in (ONE_EACH, ONE_EACH[::-1]) * 2]
    for one in trials:
        two.engine.execute(Start(one))
    story = Story(collect(two.engine, has_released(4)))
    assert [ended.kind for ended in story.exits] == [ExitKind.FINISHED] * 4


# --- lost nodes ------------------------------------------------------------------------------------------------------


def lose(driver, node):
    """Kill the agent of a node while a group of both runs; return what is told, once nothing of it may be left."""
    one = driver.trial(reporting_once)
    driver.engine.execute(Start(one))
    collect(driver.engine, has_reported(1))
    ranks = Watch(driver.ranks())
    driver.cluster.processes[node].kill()
    seen = collect(driver.engine, lambda seen: any(isinstance(event, Exited) for event in seen))
    # What an agent that is killed has started ends by itself, at the same time; of the other one it was waited for.
    assert ranks.left(5) == []
    return seen + collect(driver.engine, lambda more: has_released(1)([*seen, *more]))


@pytest.mark.parametrize("node", ["m", pytest.param("n", marks=pytest.mark.slow)])
def test_an_agent_that_is_killed_takes_the_group_with_it_on_both_nodes(tmp_path, node):
    driver = Driver(tmp_path)
    try:
        seen = lose(driver, node)
    finally:
        driver.engine.close()
    assert Story(seen).exit.kind is ExitKind.NODE_LOST
    assert Story(seen).exit.error == f"node {node} was lost: its agent ended"
    assert [type(event) for event in seen].count(Released) == 1
    assert isinstance(seen[-1], Released)
    assert of_experiment(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("node", ["m", "n"])
def test_a_group_that_lost_a_node_runs_again_when_there_is_an_agent_again(tmp_path, node):
    driver = Driver(tmp_path)
    try:
        lose(driver, node)
        while len(driver.engine.nodes()) < 2:
            driver.engine.next_events(driver.engine.now() + 10)
        assert driver.play(look_around).exit.kind is ExitKind.FINISHED
    finally:
        driver.engine.close()


def test_a_node_that_was_lost_before_the_start_is_named(two):
    story = two.play(look_around, (("m", 0), ("gone", 0)))
    assert story.exit.kind is ExitKind.NODE_LOST
    assert story.exit.error == "node gone was lost before the trial started there"


def plain_nodes(cpus=1):
    """Return the nodes without their devices."""
    return [Node(one.id, cpus, address=one.address) for one in NODES]


@pytest.mark.slow
@pytest.mark.parametrize("node", ["m", "n"])
def test_a_sweep_goes_on_from_the_last_checkpoint_when_a_node_of_its_group_was_lost(tmp_path, node):
    def train():
        found = sweep.get_checkpoint()
        done = int(Path(found.path, "step").read_text()) if found else 0
        rank = sweep.get_context().get_world_rank()
        for step in range(done + 1, 5):
            shard = tmp_path / f"shard-{rank}"
            shard.mkdir(exist_ok=True)
            (shard / "step").write_text(str(step))
            sweep.report({"step": step, "from": done}, checkpoint=sweep.Checkpoint(str(shard)))
            if step == 2 and not done and rank == 0:
                (tmp_path / "kill").touch()
            while step == 2 and not done:
                time.sleep(0.01)

    def killing():
        while not (tmp_path / "kill").exists():
            time.sleep(0.01)
        cluster.processes[node].kill()

    cluster = AgentProcesses(plain_nodes(2), heartbeat_timeout_s=5)
    killer = threading.Thread(target=killing)
    killer.start()
    scaling = ScalingConfig(num_workers=2, placement_strategy="SPREAD")  # then both on the node that is left
    analysis = sweep.run(
        DataParallelTrainer(train, scaling_config=scaling),
        storage_path=tmp_path,
        engine=cluster,
        max_failures=1,
        verbose=0,
    )
    killer.join()
    one = only(analysis)
    assert one.status == "TERMINATED"
    assert (one.last_result["step"], one.last_result["from"]) == (4, 2)
    assert [ended.kind for ended in exits(analysis)] == [ExitKind.NODE_LOST, ExitKind.FINISHED]
    assert of_experiment(Path(analysis.experiment_path)) == []


@pytest.mark.slow
def test_a_paused_group_goes_on_with_other_values_on_both_nodes(tmp_path):
    def train(config):
        found = sweep.get_checkpoint()
        done = int(Path(found.path, "step").read_text()) if found else 0
        context = sweep.get_context()
        for step in range(done + 1, 7):
            shard = tmp_path / f"shard-{context.get_trial_id()}-{context.get_world_rank()}"
            shard.mkdir(exist_ok=True)
            (shard / "step").write_text(str(step))
            sweep.report({"score": config["x"] * step}, checkpoint=sweep.Checkpoint(str(shard)))

    scaling = ScalingConfig(num_workers=2, placement_strategy="STRICT_SPREAD")
    analysis = sweep.run(
        DataParallelTrainer(train, scaling_config=scaling),
        config={"train_loop_config": {"x": sweep.grid_search([1.0, 2.0, 3.0])}},
        metric="score",
        mode="max",
        scheduler=sweep.schedulers.HyperBandScheduler(max_t=6, reduction_factor=2),
        storage_path=tmp_path,
        engine=AgentProcesses(plain_nodes()),
        verbose=0,
    )
    assert [one.status for one in analysis.trials] == ["TERMINATED"] * 3
    assert ExitKind.STOPPED in [ended.kind for ended in exits(analysis)]
    assert analysis.best_result["training_iteration"] == 6


@pytest.mark.slow
def test_jax_groups_meet_at_the_address_of_rank_0s_node(tmp_path):
    pytest.importorskip("jax")
    from sweep.train.jax import JaxTrainer

    def gather(config):
        import jax
        from jax.experimental import multihost_utils

        found = multihost_utils.process_allgather(jax.numpy.array([jax.process_index()]))
        sweep.report({"found": sorted(found.ravel().tolist()), "number": jax.process_count()})

    nodes = plain_nodes()
    scaling = ScalingConfig(num_workers=2, placement_strategy="STRICT_SPREAD")
    trainer = JaxTrainer(gather, scaling_config=scaling)
    analysis = sweep.run(trainer, storage_path=tmp_path, engine=AgentProcesses(nodes), nodes=nodes, verbose=0)
    assert only(analysis).last_result["found"] == [0, 1]


@pytest.mark.slow
def test_a_sweep_of_torch_groups_on_two_nodes_reduces_over_their_addresses(tmp_path):
    pytest.importorskip("torch")
    from sweep.train.torch import TorchTrainer

    def reduce(config):
        import torch
        import torch.distributed as dist

        value = torch.tensor([float(dist.get_rank() + 1)])
        dist.all_reduce(value)
        sweep.report({"sum": value.item(), "address": os.environ["MASTER_ADDR"]})

    nodes = plain_nodes()
    scaling = ScalingConfig(num_workers=2, placement_strategy="STRICT_SPREAD")
    analysis = sweep.run(
        TorchTrainer(reduce, scaling_config=scaling),
        storage_path=tmp_path,
        engine=AgentProcesses(nodes),
        nodes=nodes,
        num_samples=2,
        verbose=0,
    )
    assert [one.last_result["sum"] for one in analysis.trials] == [3.0, 3.0]
    assert {one.last_result["address"] for one in analysis.trials} == {"127.0.0.2"}


# --- one node's engine -----------------------------------------------------------------------------------------------


@pytest.fixture
def part_on(tmp_path):
    """Return `part_on(address)`: the engine of node m at that address with a trial that lies on m and n, and what it
    says to the other engines."""
    engines = []

    def make(address="127.0.0.2"):
        nodes = (replace(NODES[0], address=address), NODES[1])
        trainer = DataParallelTrainer(
            lambda: None, scaling_config=ScalingConfig(num_workers=2), backend_config=Meeting()
        )
        its = context(tmp_path, trainer, nodes=nodes, node="m")
        said = []
        jobs = JobMaker(
            its,
            store_trainable(its.trainable, ExperimentLayout(tmp_path)),
            payload=lambda trial: replace(payload_of(trial, its), nodes=nodes),
        )
        engines.append(LocalEngine(its, jobs=jobs, say_of=lambda key, word: said.append(word)))
        places = tuple(BundlePlacement(node, ()) for node in "mn")
        start = Start(trial(resources=Resources((Bundle(cpu=1.0),) * 2), placement=Placement(places)))
        return engines[0], start, said

    yield make
    for engine in engines:
        engine.close()


def test_a_node_that_is_short_of_processes_says_so_and_holds_nothing(part_on, monkeypatch):
    engine, start, said = part_on()

    def refuse(slot, message, descriptors=()):
        raise OSError(errno.EMFILE, "no descriptor")

    monkeypatch.setattr(Slot, "tell", refuse)
    engine.execute(start)
    events = collect(engine, has_released(1))
    assert [type(event) for event in events if not isinstance(event, Waiting)] == [Exited, Released]
    assert [(type(word), word.errno) for word in said] == [(wire.Refused, errno.EMFILE)]


def test_a_node_that_does_not_have_its_address_fails_the_trial_with_what_to_do(part_on):
    engine, start, said = part_on("192.0.2.1")
    engine.execute(start)
    story = Story(collect(engine, has_released(1)))
    assert (story.exit.kind, story.exit.class_name) == (ExitKind.FAILED, "ConfigError")
    assert "'192.0.2.1', the address of the node that is" in story.exit.error
    assert said == []


def test_a_node_makes_no_rank_before_all_are_ready(part_on):
    engine, start, said = part_on()
    engine.execute(start)
    while not said:
        assert all(isinstance(event, Waiting | Tick) for event in engine.next_events(engine.now() + 0.1))
    (ready,) = said
    assert isinstance(ready, wire.NodeReady)
    assert len(ready.ports) == 1
    engine.execute(Kill(start.trial.id, 1))
    assert Story(collect(engine, has_released(1))).exit.kind is ExitKind.KILLED


# --- a fit() inside a trial ------------------------------------------------------------------------------------------


def fitting(strategy):
    def work():
        sweep.report({"node_rank": sweep.get_context().get_node_rank(), "size": os.environ["GROUP_WORLD_SIZE"]})

    def train(config):
        scaling = ScalingConfig(num_workers=2, placement_strategy=strategy)
        result = DataParallelTrainer(work, scaling_config=scaling).fit()
        sweep.report({"size": result.metrics["size"]})

    return train


def fit_on(tmp_path, cpus, strategy="PACK", **arguments):
    """Return the trial whose fit() ran on two nodes with so many CPUs."""
    return only(
        sweep.run(
            fitting(strategy),
            storage_path=tmp_path,
            engine=AgentProcesses(plain_nodes(cpus)),
            raise_on_failed_trial=False,
            verbose=0,
            **arguments,
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("request_", [None, sweep.PlacementGroupFactory([{"CPU": 1}] * 4)])
def test_the_workers_of_a_fit_inside_a_trial_are_on_the_trials_own_node(tmp_path, request_):
    one = fit_on(tmp_path, 3, resources_per_trial=request_)
    assert one.status == "TERMINATED", one.error
    assert one.last_result["size"] == "1"


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["PACK", "STRICT_SPREAD"])
def test_a_fit_inside_a_trial_that_would_need_several_nodes_is_refused_with_what_to_do(tmp_path, strategy):
    request = sweep.PlacementGroupFactory([{"CPU": 1}] * 2, strategy="STRICT_SPREAD")
    one = fit_on(tmp_path, 1, strategy, resources_per_trial=request)
    assert one.status == "ERROR"
    assert "inside a trial its workers run on the trial's node" in str(one.error)
    assert "strategy='STRICT_PACK'" in str(one.error)
