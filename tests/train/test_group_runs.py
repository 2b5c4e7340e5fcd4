"""Training groups in sweeps: checkpoints and restarts, groups inside trials, and how many run at a time."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from orphans import MARK, wait_until_gone
from recorded import exits, most_at_once, only, overlapping_runs, reports

import sweep
from sweep.core.messages import ExitKind, Released, Reported, Waiting
from sweep.core.resources import Device
from sweep.core.results import reported
from sweep.core.trial import Cause, Outcome
from sweep.errors import CheckpointError, UserCodeError
from sweep.record.facts import read_facts
from sweep.train import (
    DataParallelTrainer,
    FailureConfig,
    RunConfig,
    ScalingConfig,
    TrainingFailedError,
    TuneReportCallback,
)
from sweep.train.fit import _Nested
from sweep.worker import wire
from sweep.worker.channel import SocketChannel

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the process model is tested on Linux")


@pytest.fixture
def run(tmp_path):
    """Return `run(trainable)`: a sweep on four declared CPUs; afterwards no process of it is left."""
    mark = uuid.uuid4().hex

    def start(trainable, **arguments):
        given = {"nodes": [sweep.Node(cpus=4)], "raise_on_failed_trial": False, "name": "groups", **arguments}
        return sweep.run(trainable, storage_path=tmp_path / "results", verbose=0, env={MARK: mark}, **given)

    yield start
    assert wait_until_gone(mark) == {}


def group(loop, num_workers: int = 2, **arguments: Any) -> DataParallelTrainer:
    return DataParallelTrainer(loop, scaling_config=ScalingConfig(num_workers=num_workers), **arguments)


def files(directory: str) -> dict[str, str]:
    """Return the files of a checkpoint with their texts."""
    root = Path(directory)
    found = {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}
    return {name: path.read_text() for name, path in found.items() if not name.startswith(".sweep-")}


def report_with(metrics: dict[str, Any], contents: dict[str, str]) -> None:
    """Report with a checkpoint of these files."""
    with tempfile.TemporaryDirectory() as directory:
        for name, text in contents.items():
            Path(directory, name).parent.mkdir(exist_ok=True)
            Path(directory, name).write_text(text)
        sweep.report(metrics, checkpoint=sweep.Checkpoint(directory))


def rank() -> int:
    return sweep.get_context().get_world_rank()


def test_a_group_whose_rank_was_killed_goes_on_from_the_merged_checkpoint(run):
    def loop():
        checkpoint = sweep.get_checkpoint()
        before = files(checkpoint.path) if checkpoint is not None else {"rank0": "0", "rank1": "0"}
        assert before["rank0"] == before["rank1"]
        for step in range(int(before["rank0"]) + 1, 6):
            if step == 3 and checkpoint is None and rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            report_with({"step": step}, {f"rank{rank()}": str(step), "shared": str(rank())})

    analysis = run(group(loop), max_failures=1)
    trial = only(analysis)
    assert trial.status == "TERMINATED"
    assert [ended.kind for ended in exits(analysis)] == [ExitKind.KILLED, ExitKind.FINISHED]
    assert [(row["step"], row["training_iteration"]) for row in reports(analysis)] == [(i, i) for i in range(1, 6)]
    assert files(trial.checkpoint.path) == {"rank0": "5", "rank1": "5", "shared": "0"}


def test_every_rank_finds_the_merged_checkpoint_when_its_report_returns(run):
    def loop():
        report_with({"a": 1}, {f"part/{rank()}": "x"})
        found = files(sweep.get_checkpoint().path)
        assert set(found) == {"part/0", "part/1", "part/2"}, found

    assert only(run(group(loop, 3))).status == "TERMINATED"


def test_shards_become_one_checkpoint_whenever_they_come_and_those_that_do_not_fit_are_an_error(run, tmp_path):
    os.mkfifo(tmp_path / "gone-on")

    def comes_before_or_after_rank_0s_report():
        sweep.report(step=1)
        if rank() == 1:
            report_with({}, {"model": "of rank 1"})
        else:
            sweep.report(step=2)

    def comes_when_rank_0_has_gone_on():
        if rank() == 0:
            sweep.report(step=1)
            (tmp_path / "gone-on").write_text("x")
        else:
            (tmp_path / "gone-on").read_text()
            report_with({}, {"model": "late"})
            assert files(sweep.get_checkpoint().path) == {"model": "late"}

    def does_not_fit_and_is_caught():
        if rank() == 0:
            with pytest.raises(CheckpointError, match="could not be merged"):
                report_with({"step": 1}, {"model": "a file"})
        else:
            report_with({"step": 1}, {"model/part": "in a directory"})
            assert sweep.get_checkpoint() is None
        report_with({"step": 2}, {f"rank{rank()}": "fine"})

    def was_refused_and_is_repeated():
        if rank() == 0:
            with pytest.raises(UserCodeError):
                report_with(["no dict"], {"rank0": "refused"})
        report_with({"step": 1}, {f"rank{rank()}": "taken"})

    def does_not_fit():
        report_with({}, {"model": "a file"} if rank() == 0 else {"model/part": "in a directory"})
        time.sleep(1000)

    def fails_before_its_shard():
        report_with({"step": 1}, {"model": "x"})
        if rank() == 1:
            raise ValueError("before its shard")
        report_with({"step": 2}, {"model": "y"})

    cases = [
        *[(comes_before_or_after_rank_0s_report, {"model": "of rank 1"}, 2, None)] * 2,
        (comes_when_rank_0_has_gone_on, {"model": "late"}, 1, None),
        (does_not_fit_and_is_caught, {"rank0": "fine", "rank1": "fine"}, 2, None),
        (was_refused_and_is_repeated, {"rank0": "taken", "rank1": "taken"}, 1, None),
        (does_not_fit, {}, 1, "rank 0 of 2: CheckpointError: the shards of a checkpoint could not be merged"),
        (fails_before_its_shard, {"model": "x"}, 1, "rank 1 of 2: ValueError: before its shard"),
    ]
    number = sweep.grid_search(list(range(len(cases))))
    space = {"train_loop_config": {"number": number}}
    analysis = run(group(lambda config: cases[config["number"]][0]()), config=space)
    for trial, (_, contents, num_reports, error) in zip(analysis.trials, cases, strict=True):
        assert str(trial.error).startswith(error) if error else trial.error is None, trial.error
        assert (files(trial.checkpoint.path) if trial.checkpoint else {}) == contents
        assert trial.last_result.get("training_iteration") == num_reports
    left = [name for name in os.listdir(trial.path) if Path(trial.path, name).is_dir()]
    assert left == ["checkpoint_000001"]  # of the last, which failed before the second was whole


@pytest.fixture
def alone(tmp_path):
    """Return `fit(loop)`: fits a trainer of two workers without a sweep, on four declared CPUs."""

    def fit(loop, *, config=None, **given):
        run_config = RunConfig(**{"name": "alone", "storage_path": tmp_path, "verbose": 0, **given})
        return group(loop, train_loop_config=config, run_config=run_config).fit()

    sweep.init(num_cpus=4, num_gpus=0)
    yield fit
    sweep.shutdown()


def test_a_trainer_that_is_fitted_alone_restarts_its_group_and_tells_how_it_went(alone, tmp_path):
    def loop(config):
        checkpoint = sweep.get_checkpoint()
        if checkpoint is None:
            report_with({"step": 1}, {f"rank{rank()}": config["word"]})
            if rank() == 1:
                os._exit(1)
            time.sleep(1000)
        sweep.report(step=2, word=files(checkpoint.path)["rank1"])

    stored = DirFileSystem(str(tmp_path), LocalFileSystem(auto_mkdir=True))
    once_more = FailureConfig(max_failures=1)
    config = {"word": "kept"}
    result = alone(loop, config=config, failure_config=once_more, storage_path="far", storage_filesystem=stored)
    assert result.error is None
    assert (result.metrics["step"], result.metrics["word"]) == (2, "kept")
    assert files(result.checkpoint.path) == {"rank0": "kept", "rank1": "kept"}
    assert (tmp_path / "far" / "alone" / "sweep.db").exists()


def test_a_trainer_that_is_fitted_alone_raises_what_ended_its_group(alone):
    def loop():
        if rank() == 1:
            raise ValueError("no lr was given")
        time.sleep(1000)

    with pytest.raises(TrainingFailedError, match="rank 1 of 2: ValueError: no lr was given"):
        alone(loop)


DRIVER = """
import os, sys, tempfile
from pathlib import Path
import sweep
from sweep.train import DataParallelTrainer, ScalingConfig

root = Path(sys.argv[1])

def loop():
    rank = sweep.get_context().get_world_rank()
    checkpoint = sweep.get_checkpoint()
    step = int(Path(checkpoint.path, f"rank{rank}").read_text()) if checkpoint is not None else 0
    if rank == 0:
        with open(root / "began", "a") as file:
            file.write(f"{step} ")
    while True:
        step += 1
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, f"rank{rank}").write_text(str(step))
            sweep.report(step=step, checkpoint=sweep.Checkpoint(directory))
        if rank == 0 and step == 3:
            (root / "ready").write_text("x")

sweep.run(
    DataParallelTrainer(loop, scaling_config=ScalingConfig(num_workers=2)), storage_path=root, name="groups",
    verbose=0, nodes=[sweep.Node(cpus=4)], resume=True,
    checkpoint_config=sweep.CheckpointConfig(num_to_keep=1),
    stop=lambda trial_id, result: result["step"] > 3 and (root / "finish").exists(),
)
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGKILL, id="killed"),
        pytest.param(signal.SIGINT, marks=pytest.mark.slow, id="interrupted"),
    ],
)
def test_a_sweep_of_groups_whose_driver_was_ended_is_resumed_from_the_merged_checkpoint(tmp_path, number):
    os.mkfifo(tmp_path / "ready")
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    command = [sys.executable, str(script), str(tmp_path)]
    mark = uuid.uuid4().hex
    environment = {**os.environ, MARK: mark, "PYTHONPATH": os.getcwd()}
    driver = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        (tmp_path / "ready").read_text()
        driver.send_signal(number)
        driver.wait(30)
    finally:
        driver.kill()
        driver.wait()
    assert wait_until_gone(mark) == {}
    unfinished = only(sweep.ExperimentAnalysis(tmp_path / "groups"))
    assert unfinished.status in ("PENDING", "RUNNING")
    (tmp_path / "finish").touch()
    os.unlink(tmp_path / "ready")
    ended = subprocess.run(command, env=environment, timeout=30, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert wait_until_gone(mark) == {}
    analysis = sweep.ExperimentAnalysis(tmp_path / "groups")
    assert only(analysis).status == "TERMINATED"
    first, second = map(int, (tmp_path / "began").read_text().split())
    assert first == 0
    assert second >= 2
    steps = [(row["step"], row["training_iteration"]) for row in reports(analysis)]
    assert all(step == iteration for step, iteration in steps)
    assert [step for step, _ in steps if step <= second] == list(range(1, second + 1))
    assert steps[-1][0] == second + 1
    assert set(files(only(analysis).checkpoint.path).values()) == {str(second + 1)}


THREE = sweep.PlacementGroupFactory([{"CPU": 1}, {"CPU": 1}, {"CPU": 1}])


def inside(loop, *, num_workers: int = 2, **arguments: Any) -> DataParallelTrainer:
    """Return a trainer for `fit()` inside a trial; the arguments are its run config's."""
    return group(loop, num_workers, run_config=RunConfig(**arguments))


def test_a_group_inside_a_trial_gives_its_result_to_the_trial(run):
    def loop(config):
        for step in (1, 2, 3):
            report_with({"value": config["x"] * step}, {f"rank{rank()}": str(step)})

    def train(config):
        result = DataParallelTrainer(
            loop, train_loop_config={"x": config["x"]}, scaling_config=ScalingConfig(num_workers=2)
        ).fit()
        assert result.error is None
        assert result.config == {"x": config["x"]}
        assert [row["value"] for row in result.history] == [10, 20, 30]
        assert files(result.get_best_checkpoint("value", "min").path) == {"rank0": "1", "rank1": "1"}
        assert files(result.checkpoint.path) == {"rank0": "3", "rank1": "3"}
        assert Path(result.path).parent == Path(sweep.get_context().get_trial_dir())
        sweep.report(total=result.metrics["value"])

    analysis = run(train, config={"x": 10}, resources_per_trial=THREE)
    assert only(analysis).error is None
    assert [row["total"] for row in reports(analysis)] == [30]
    assert sorted(path.name for path in Path(only(analysis).path, "fit_1").glob("*.log")) == ["rank0.log", "rank1.log"]


def test_reports_of_a_group_inside_are_the_trials_own_where_that_is_asked_for(run):
    def loop():
        for step in (1, 2, 3):
            report_with({"step": step}, {f"rank{rank()}": str(step)})

    def train(config):
        inside(loop, callbacks=[TuneReportCallback()]).fit()

    analysis = run(train, resources_per_trial=THREE)
    assert only(analysis).error is None
    assert [(row["step"], row["training_iteration"]) for row in reports(analysis)] == [(1, 1), (2, 2), (3, 3)]
    assert files(only(analysis).checkpoint.path) == {"rank0": "3", "rank1": "3"}


def test_a_trial_that_is_stopped_at_a_report_of_its_group_ends_the_group(run, tmp_path):
    def loop():
        try:
            while True:
                sweep.report(step=1)
        finally:
            (tmp_path / f"left-{rank()}").touch()

    def train(config):
        try:
            inside(loop, callbacks=[TuneReportCallback()]).fit()
        finally:
            (tmp_path / "left-trial").touch()
        (tmp_path / "went-on").touch()

    analysis = run(train, resources_per_trial=THREE, stop={"training_iteration": 2})
    assert only(analysis).status == "TERMINATED"
    assert [row["training_iteration"] for row in reports(analysis)] == [1, 2]
    assert [ended.kind for ended in exits(analysis)] == [ExitKind.STOPPED]
    assert sorted(path.name for path in tmp_path.glob("left-*")) == ["left-0", "left-1", "left-trial"]
    assert not (tmp_path / "went-on").exists()


class StopAll(sweep.Stopper):
    """Ends the sweep at the first result."""

    def __call__(self, trial_id, result):
        return False

    def stop_all(self):
        return True


def test_a_group_that_has_ended_before_its_report_is_answered_is_heard_to_its_end():
    ours, theirs = socket.socketpair()
    driver, trial = socket.socketpair()  # which says nothing
    stopped, said = Outcome("STOPPED", *"abc"), []
    space = Waiting("a", "waits for disk space", Cause.SPACE)
    for message in (space, Waiting("a", ""), Reported("a", 1, 1, {"a": 1}, None), wire.Done(stopped, 0.0)):
        theirs.sendall(wire.frame(message))
    theirs.close()
    nested = object.__new__(_Nested)
    nested._session = SimpleNamespace(
        channel=SocketChannel(trial.fileno()),
        job=SimpleNamespace(trial_id="a"),
        say_waiting=lambda *words: said.append(words),
    )
    nested._is_forwarding, nested._history, nested._kept = False, [], []
    with ours, driver, trial:
        outcome = nested._serve(SocketChannel(ours.fileno()), SimpleNamespace(base_count=0, key=("a", 1)))
    assert outcome == stopped
    assert [reported(row) for row in nested._history] == [{"a": 1}]
    assert said == [("waits for disk space", Cause.SPACE), ("", Cause.NONE)]  # as the trial's own


def test_a_trial_that_is_stopped_while_its_group_runs_ends_it_at_once(run, tmp_path):
    for name in ("runs", "never"):
        os.mkfifo(tmp_path / name)

    def loop():
        try:
            if rank() == 0:
                (tmp_path / "runs").write_text("x")
            while True:
                sweep.report(step=1)
        finally:
            (tmp_path / f"left-{rank()}").touch()

    def train(config):
        if config["role"] == "other":
            (tmp_path / "runs").read_text()
            sweep.report(a=1)
            return
        try:
            inside(loop).fit()
        finally:
            (tmp_path / "left-trial").touch()

    analysis = run(
        train,
        config={"role": sweep.grid_search(["trainer", "other"])},
        resources_per_trial=lambda config: {"cpu": 2 if config["role"] == "trainer" else 1},
        stop=StopAll(),
    )
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 2
    assert ExitKind.KILLED not in [ended.kind for ended in exits(analysis)]
    assert sorted(path.name for path in tmp_path.glob("left-*")) == ["left-0", "left-1", "left-trial"]


@pytest.mark.parametrize(("attribute", "expected"), [("val/score", [5, 4, 1]), (None, [4, 1])])
def test_a_group_inside_keeps_as_many_checkpoints_as_it_was_asked_to(run, attribute, expected):
    def loop():
        for score in (2, 3, 5, 4, 1):
            report_with({"val": {"score": score}}, {f"rank{rank()}": "x"})

    def train(config):
        keep = sweep.CheckpointConfig(num_to_keep=2, checkpoint_score_attribute=attribute)
        result = inside(loop, checkpoint_config=keep).fit()
        there = [metrics["val"]["score"] for kept, metrics in result.best_checkpoints if os.path.isdir(kept.path)]
        sweep.report(kept=there, dirs=len([one for one in os.scandir(result.path) if one.name.startswith("checkp")]))

    row = only(run(train, resources_per_trial=THREE)).last_result
    assert (row["kept"], row["dirs"]) == (expected, len(expected))


def test_a_group_that_fails_inside_raises_in_the_trial_with_the_cause(run):
    def loop():
        if rank() == 0:
            time.sleep(1000)
        raise ValueError("no lr was given")

    def train(config):
        with pytest.raises(TrainingFailedError, match="rank 1 of 2: ValueError: no lr was given") as caught:
            inside(loop).fit()
        assert isinstance(caught.value.__cause__, ValueError)
        assert caught.value.__cause__.args == ("no lr was given",)
        sweep.report(survived=1)
        inside(lambda: os._exit(rank())).fit()

    trial = only(run(train, resources_per_trial=THREE))
    assert trial.last_result["survived"] == 1
    assert trial.error.class_name == "TrialsFailed"  # of the second group, which nobody caught
    assert "it ended without returning (exit code" in str(trial.error)


def test_a_group_inside_that_failed_starts_again_from_its_own_checkpoint(run):
    def loop():
        checkpoint = sweep.get_checkpoint()
        first = 1 + (int(files(checkpoint.path)["rank0"]) if checkpoint is not None else 0)
        for step in range(first, 5):
            if step == 3 and first == 1 and rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            report_with({"step": step, "first": first}, {f"rank{rank()}": str(step)})

    def train(config):
        result = inside(loop, failure_config=FailureConfig(max_failures=1)).fit()
        assert [(row["step"], row["first"]) for row in result.history] == [(1, 1), (2, 1), (3, 3), (4, 3)]
        sweep.report(attempt=sweep.get_context().get_attempt())

    trial = only(run(train, resources_per_trial=THREE))
    assert trial.error is None
    assert trial.last_result["attempt"] == 1


def test_a_group_inside_fails_for_good_when_its_restarts_are_used_up(run, tmp_path):
    def loop():
        with open(tmp_path / "starts", "a") as file:
            file.write(f"{rank()} ")
        if rank() == 0:
            raise ValueError("always")
        time.sleep(1000)

    def train(config):
        inside(loop, failure_config=FailureConfig(max_failures=2)).fit()

    assert only(run(train, resources_per_trial=THREE)).status == "ERROR"
    assert (tmp_path / "starts").read_text().count("0") == 3


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"start_method": "spawn"}, marks=pytest.mark.slow, id="spawned"),
        pytest.param({"reuse_actors": True}, id="reused"),
    ],
)
def test_groups_run_inside_trials_of_every_kind_of_worker(run, options):
    def loop():
        sweep.report(size=sweep.get_context().get_world_size())

    def train(config):
        sweep.report(size=inside(loop).fit().metrics["size"], pid=os.getpid())

    analysis = run(train, num_samples=2, max_concurrent_trials=1, resources_per_trial=THREE, **options)
    assert [row["size"] for row in reports(analysis)] == [2, 2]
    assert len({row["pid"] for row in reports(analysis)}) == (1 if "reuse_actors" in options else 2)


def test_a_rank_cannot_have_a_group_of_its_own(run):
    def loop():
        with pytest.raises(UserCodeError, match="a worker of a group cannot have a group of its own"):
            group(lambda: None).fit()
        sweep.report(refused=1)

    assert only(run(group(loop))).last_result["refused"] == 1


def test_the_devices_of_the_trials_own_bundle_are_used_last(run):
    def loop():
        print("sees", os.environ["CUDA_VISIBLE_DEVICES"])

    def train(config):
        result = DataParallelTrainer(
            loop, scaling_config=ScalingConfig(num_workers=1, use_gpu=True, resources_per_worker={"CPU": 1})
        ).fit()
        (line,) = [line for line in Path(result.path, "rank0.log").read_text().splitlines() if "sees" in line]
        sweep.report(own=os.environ["CUDA_VISIBLE_DEVICES"], inside=line.split()[1])

    node = sweep.Node(cpus=4, devices=(Device("0"), Device("1")))
    analysis = run(
        train,
        resources_per_trial=sweep.PlacementGroupFactory([{"CPU": 1, "GPU": 1}, {"CPU": 1, "GPU": 1}]),
        nodes=[node],
    )
    (row,) = reports(analysis)
    assert row["own"] == "0,1"
    assert row["inside"] == "1"


@pytest.mark.parametrize("how", [pytest.param("exits", marks=pytest.mark.slow), "is_killed"])
def test_a_trials_process_that_dies_takes_the_group_inside_with_it(run, tmp_path, how):
    os.mkfifo(tmp_path / "runs")

    def loop():
        nobody = subprocess.DEVNULL
        apart = subprocess.Popen(["sleep", "1000"], stdout=nobody, stderr=nobody, start_new_session=True)
        (tmp_path / f"pids-{rank()}").write_text(f"{os.getpid()} {apart.pid}")
        (tmp_path / "runs").write_text("x")
        time.sleep(1000)

    def die():
        with open(tmp_path / "runs") as runs:
            got = ""
            while len(got) < 2:
                got += runs.read(1)
        if how == "exits":
            os._exit(7)
        os.kill(os.getpid(), signal.SIGKILL)

    def train(config):
        pids = [int(pid) for path in tmp_path.glob("pids-*") for pid in path.read_text().split()]
        if pids:
            sweep.report(left=sum(os.path.exists(f"/proc/{pid}") for pid in pids), pids=len(pids))
            return
        threading.Thread(target=die, daemon=True).start()
        inside(loop).fit()

    analysis = run(train, resources_per_trial=THREE, max_failures=1)
    assert [ended.kind for ended in exits(analysis)] == [ExitKind.KILLED, ExitKind.FINISHED]
    assert only(analysis).last_result["pids"] == 4
    assert only(analysis).last_result["left"] == 0


def holders(experiment: str) -> Iterator[tuple[list[str], int]]:
    """Yield after every recorded event which trials hold resources, and how many have not been started yet."""
    held: list[str] = []
    started: set[str] = set()
    rows = list(read_facts(Path(experiment) / "sweep.db"))
    number = len({row[1] for told in rows for row in told.caused or () if row[0] == "Start"})
    for told in rows:
        if isinstance(told.event, Released):
            held.remove(told.event.trial_id)
        for row in told.caused or ():
            if row[0] == "Start":
                held.append(row[1])
                started.add(row[1])
        yield list(held), number - len(started)


def a_loop() -> None:
    for _ in range(2):
        sweep.report(a=sweep.get_context().get_world_size())


def meet() -> None:
    """Wait until two trials have come as far as this, so that they really run at the same time."""
    context = sweep.get_context()
    place = Path(context.get_trial_dir()).parent / "code"
    (place / f"met-{context.get_trial_id()}").touch()
    until = time.monotonic() + 60
    while len(list(place.glob("met-*"))) < 2 and time.monotonic() < until:
        time.sleep(0.01)


def a_meeting_loop() -> None:
    size = sweep.get_context().get_world_size()
    sweep.report(a=size)
    if rank() == 0:  # whose report was answered: by then the group counts as started
        meet()
    sweep.report(a=size)


def a_trial(config: dict[str, Any]) -> None:
    meet()
    inside(a_loop, callbacks=[TuneReportCallback()]).fit()


@pytest.mark.parametrize("is_inside", [False, True], ids=["trials_are_groups", "groups_inside_trials"])
def test_eight_groups_of_two_on_four_cpus_run_two_at_a_time_while_there_are_two(run, is_inside):
    if is_inside:
        analysis = run(
            a_trial, num_samples=8, resources_per_trial=sweep.PlacementGroupFactory([{}, {"CPU": 1}, {"CPU": 1}])
        )
    else:
        analysis = run(group(a_meeting_loop), num_samples=8)
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 8
    assert [trial.last_result["a"] for trial in analysis.trials] == [2] * 8
    assert most_at_once(analysis.experiment_path) == 2
    course = list(holders(analysis.experiment_path))
    begun = next(i for i, (held, _) in enumerate(course) if len(held) == 2)  # configs come one after another
    assert {len(held) for held, waiting in course[begun:] if waiting} == {2}
    assert overlapping_runs(analysis.experiment_path) == 2


def test_groups_of_searched_sizes_never_hold_more_than_there_is_and_all_get_their_turn(run):
    analysis = run(
        group(a_loop), config={"scaling_config": {"num_workers": sweep.grid_search([1, 2, 4])}}, num_samples=3
    )
    sizes = {trial.trial_id: trial.config["scaling_config"]["num_workers"] for trial in analysis.trials}
    assert sorted(sizes.values()) == [1, 1, 1, 2, 2, 2, 4, 4, 4]
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 9
    assert all(trial.last_result["a"] == sizes[trial.trial_id] for trial in analysis.trials)
    taken = [sum(sizes[trial_id] for trial_id in held) for held, _ in holders(analysis.experiment_path)]
    assert max(taken) == 4
