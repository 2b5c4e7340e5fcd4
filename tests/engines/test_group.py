"""Training groups as real processes: who ends whom, what is told of it, and that nothing is left."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import subprocess
import sys
import time
import types
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conformance.engines import NODE, collect, context, has_released, has_reported
from conformance.engines import trial as a_trial
from orphans import MARK, marked, wait_until_gone
from recorded import exits, only, reports

import sweep
from sweep.core.config import FailureConfig, RunConfig
from sweep.core.messages import Exited, ExitKind, Kill, Reported, Start, Started, Waiting
from sweep.core.resources import Bundle, BundlePlacement, Placement, Resources
from sweep.core.trial import evolve
from sweep.engines.base import EngineContext
from sweep.engines.local.engine import LocalEngine
from sweep.engines.local.group import Group
from sweep.errors import TrialsFailed, UserCodeError
from sweep.record.layout import shards_name
from sweep.train import DataParallelTrainer, ScalingConfig
from sweep.train.trainer import Backend
from sweep.worker import wire

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the process model is tested on Linux")


@pytest.fixture
def run(tmp_path):
    """Return `run(loop)`: a sweep of groups of that loop; afterwards no process of it is left."""
    mark = uuid.uuid4().hex

    def start(loop, *, num_workers=2, hang_timeout_s=None, backend=None, **arguments):
        trainer = DataParallelTrainer(
            loop,
            backend_config=backend,
            scaling_config=ScalingConfig(num_workers=num_workers),
            run_config=RunConfig(failure_config=FailureConfig(hang_timeout_s=hang_timeout_s)),
        )
        arguments = {"nodes": [sweep.Node(cpus=4)], "raise_on_failed_trial": False, **arguments}
        return sweep.run(trainer, storage_path=tmp_path, name="groups", verbose=0, env={MARK: mark}, **arguments)

    yield start
    assert wait_until_gone(mark) == {}


def log(analysis, rank: int) -> str:
    return Path(only(analysis).path, f"rank{rank}.log").read_text()


def pids_in(path: Path) -> list[int]:
    return [int(text) for text in path.read_text().split()]


def is_there(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


# --- failures --------------------------------------------------------------------------------------------------------


def test_an_exception_in_one_rank_is_the_error_with_the_users_frames_and_the_others_are_ended(run):
    def loop():
        if sweep.get_context().get_world_rank() == 0:
            time.sleep(1000)
        try:
            {}["lr"]
        except KeyError as error:
            raise ValueError("no lr was given") from error

    with pytest.raises(TrialsFailed, match="rank 1 of 2: ValueError: no lr was given") as caught:
        run(loop, raise_on_failed_trial=True)
    error = caught.value.__cause__
    assert isinstance(error, UserCodeError)
    assert error.class_name == "ValueError"
    assert "KeyError: 'lr'\n\nThe above exception was the direct cause" in error.traceback
    assert error.traceback.endswith("ValueError: no lr was given")
    assert "sweep/train/trainer.py" not in error.traceback
    assert "sweep/worker" not in error.traceback


def raising() -> None:
    raise ValueError("true")


def leaving() -> None:
    os._exit(3)


def killing() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def crashing() -> None:
    signal.raise_signal(signal.SIGSEGV)


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (raising, "rank 1 of 3: ValueError: true"),
        (leaving, "rank 1 of 3: it ended without returning (exit code 3); something called os._exit"),
        (killing, "rank 1 of 3: killed by SIGKILL"),
        (crashing, "rank 1 of 3: killed by SIGSEGV"),
    ],
)
def test_what_ended_first_is_the_error_and_not_what_its_end_caused_in_others(run, tmp_path, end, words):
    for rank in (0, 2):
        os.mkfifo(tmp_path / f"pipe{rank}")

    def loop():
        rank = sweep.get_context().get_world_rank()
        if rank == 1:
            for other in (0, 2):
                os.open(tmp_path / f"pipe{other}", os.O_WRONLY)  # open until this process is gone
            end()
        (tmp_path / f"pipe{rank}").read_bytes()  # until rank 1 is gone
        raise ConnectionError("a peer is gone")

    trial = only(run(loop, num_workers=3))
    assert trial.status == "ERROR"
    assert str(trial.error).startswith(words)


def test_a_rank_that_exits_with_0_without_returning_has_failed(run):
    def loop():
        if sweep.get_context().get_world_rank() == 0:
            os._exit(0)
        time.sleep(1000)

    assert "rank 0 of 2: it ended without returning (exit code 0)" in str(only(run(loop)).error)


def test_sys_exit_0_is_a_return_and_sys_exit_1_is_a_failure(run):
    def loop():
        sys.exit(sweep.get_context().get_world_rank())

    assert "rank 1 of 2: SystemExit: the trial called sys.exit(1)" in str(only(run(loop)).error)


def test_ranks_that_do_not_find_each_other_are_started_again_three_times(run):
    @dataclass(frozen=True)
    class Nowhere(Backend):
        def start(self, rank):
            if rank.rank == 1:
                raise ConnectionError("nobody is there")

    def loop():
        sweep.report(reached=1)

    analysis = run(loop, backend=Nowhere())
    assert only(analysis).status == "ERROR"
    assert str(only(analysis).error).startswith("rank 1 of 2: GroupStartError: ConnectionError: nobody is there")
    assert [ended.class_name for ended in exits(analysis)] == ["GroupStartError"] * 4
    assert reports(analysis) == []


def test_an_error_of_the_users_before_the_others_have_joined_is_no_failed_start(run, tmp_path):
    os.mkfifo(tmp_path / "never")

    @dataclass(frozen=True)
    class Slow(Backend):
        def start(self, rank):
            if rank.rank == 1:
                (tmp_path / "never").read_bytes()

    def loop():
        os._exit(1)

    assert [ended.error.partition(":")[0] for ended in exits(run(loop, backend=Slow()))] == ["rank 0 of 2"]


# --- grandchildren ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [None, raising, killing], ids=["returns", "raises", "is_killed"])
def test_what_a_rank_has_started_is_gone_when_the_next_trial_begins(run, tmp_path, end):
    def loop():
        rank = sweep.get_context().get_world_rank()
        for path in tmp_path.glob("started-*"):
            left = [pid for pid in map(int, path.read_text().split()) if os.path.exists(f"/proc/{pid}")]
            sweep.report(left=len(left))
            return
        if rank == 1:
            nobody = subprocess.DEVNULL
            plain = subprocess.Popen(["sleep", "1000"], stdout=nobody, stderr=nobody)
            apart = subprocess.Popen(["sleep", "1000"], stdout=nobody, stderr=nobody, start_new_session=True)
            reader, writer = os.pipe()
            if os.fork() == 0:  # a daemon: its parent is gone
                os.setsid()
                daemon = subprocess.Popen(["sleep", "1000"], stdout=nobody, stderr=nobody)
                os.write(writer, str(daemon.pid).encode())
                os._exit(0)
            started = f"{plain.pid} {apart.pid} {os.read(reader, 20).decode()}"
            (tmp_path / "started-1").write_text(started)
            if end is not None:
                end()
        elif end is not None:
            time.sleep(1000)

    first, second = run(loop, num_samples=2, max_concurrent_trials=1).trials
    assert first.status == ("TERMINATED" if end is None else "ERROR")
    assert len(pids_in(tmp_path / "started-1")) == 3
    assert second.last_result["left"] == 0


# --- stops -----------------------------------------------------------------------------------------------------------


def test_a_stop_rule_ends_every_rank_where_it_is_and_their_finally_blocks_run(run, tmp_path):
    def loop():
        rank = sweep.get_context().get_world_rank()
        try:
            while True:
                sweep.report(step=1)
        finally:
            (tmp_path / f"left-{rank}").touch()

    trial = only(run(loop, num_workers=3, stop={"training_iteration": 3}))
    assert trial.status == "TERMINATED"
    assert trial.error is None
    assert trial.last_result["training_iteration"] == 3
    assert sorted(path.name for path in tmp_path.glob("left-*")) == ["left-0", "left-1", "left-2"]


def test_a_rank_that_never_reports_is_ended_a_moment_after_rank_0_has_obeyed(run, tmp_path):
    def loop():
        if sweep.get_context().get_world_rank():
            for number in set(range(1, 65)) - {9, 17, 19, 32, 33}:
                signal.signal(number, signal.SIG_IGN)
            (tmp_path / "deaf").touch()
            time.sleep(1000)
        while True:
            sweep.report(step=1)

    trial = only(run(loop, stop=lambda trial_id, result: (tmp_path / "deaf").exists()))
    assert trial.status == "TERMINATED"
    assert trial.error is None


def test_only_rank_0s_metrics_count_and_the_others_may_report_more_often_or_never(run):
    def loop():
        rank = sweep.get_context().get_world_rank()
        for _ in range((3, 0, 5)[rank]):
            sweep.report(rank=rank)

    analysis = run(loop, num_workers=3)
    assert only(analysis).status == "TERMINATED"
    assert [row["rank"] for row in reports(analysis)] == [0, 0, 0]


# --- hangs -----------------------------------------------------------------------------------------------------------


def test_a_rank_that_was_stopped_is_found_and_every_rank_shows_where_it_is(run, tmp_path):
    os.mkfifo(tmp_path / "pid")

    def loop():
        def waiting_for_the_other():
            pid = (tmp_path / "pid").read_text()
            while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
                sweep.report(a=1)
            time.sleep(1000)

        def being_stopped():
            (tmp_path / "pid").write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(1000)

        (waiting_for_the_other, being_stopped)[sweep.get_context().get_world_rank()]()

    analysis = run(loop, hang_timeout_s=1)
    assert str(only(analysis).error) == (
        "no report within report_timeout_s=1: rank 1 is stopped (SIGSTOP). The stacks of all ranks are in rank0.log, "
        "rank1.log"
    )
    assert "in waiting_for_the_other\n" in log(analysis, 0)
    assert "in being_stopped\n" in log(analysis, 1)
    assert [ended.kind for ended in exits(analysis)] == [ExitKind.HUNG]


# --- logs and processes ----------------------------------------------------------------------------------------------


def test_every_rank_writes_to_a_log_of_its_own(run):
    def loop():
        rank = sweep.get_context().get_world_rank()
        print(f"printed by {rank}", flush=True)
        subprocess.run(["sh", "-c", f"echo shouted by {rank} >&2"], check=True)

    analysis = run(loop, num_workers=3)
    for rank in range(3):
        words = [line for line in log(analysis, rank).splitlines() if not line.startswith("--- ")]
        assert words == [f"printed by {rank}", f"shouted by {rank}"]
    assert sorted(path.name for path in Path(only(analysis).path).glob("*.log")) == [
        "rank0.log",
        "rank1.log",
        "rank2.log",
    ]


def test_a_rank_that_prints_without_end_is_kept_below_the_limit(run, monkeypatch):
    monkeypatch.setitem(EngineContext.__init__.__kwdefaults__, "log_limit_bytes", 10_000)

    def loop():
        if sweep.get_context().get_world_rank() == 1:
            for _ in range(1000):
                print("y" * 99)

    analysis = run(loop)
    assert len(log(analysis, 1)) <= 10_000
    assert "bytes were dropped here" in log(analysis, 1)


def test_a_rank_holds_no_descriptor_of_ours_but_its_socket(run):
    def loop():
        if sweep.get_context().get_world_rank() == 1:
            numbers = [int(name) for name in os.listdir("/proc/self/fd")]
            open_ones = [f"/proc/self/fd/{number}" for number in numbers if os.path.exists(f"/proc/self/fd/{number}")]
            print("held", *(os.readlink(path).partition(":")[0] for path in open_ones))

    analysis = run(loop)
    (held,) = [line for line in log(analysis, 1).splitlines() if line.startswith("held")]
    path = str(Path(only(analysis).path, "rank1.log"))
    assert sorted(held.split()[1:]) == ["/dev/null", path, path, "socket"]


def test_every_group_has_fresh_processes_even_where_workers_are_reused(run):
    def loop():
        context = sweep.get_context()
        print("pid", os.getpid())
        sweep.report(size=context.get_world_size())

    analysis = run(loop, num_samples=4, max_concurrent_trials=2, reuse_actors=True)
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 4
    pids = [
        line
        for trial in analysis.trials
        for rank in range(2)
        for line in Path(trial.path, f"rank{rank}.log").read_text().splitlines()
        if line.startswith("pid")
    ]
    assert len(set(pids)) == 8


def test_ranks_may_be_fresh_interpreters(run, tmp_path):
    def loop():
        rank = sweep.get_context().get_world_rank()
        (tmp_path / f"command-{rank}").write_bytes(Path("/proc/self/cmdline").read_bytes())
        sweep.report(rank=rank)
        sweep.report(rank=rank)

    trial = only(run(loop, start_method="spawn", stop={"training_iteration": 2}))
    assert trial.status == "TERMINATED"
    assert trial.last_result["training_iteration"] == 2
    for rank in range(2):
        assert b"run_spawned" in (tmp_path / f"command-{rank}").read_bytes()


# --- deaths of those above -------------------------------------------------------------------------------------------

DRIVER = """
import os, signal, subprocess, sys, time
import sweep
from sweep.train import DataParallelTrainer, ScalingConfig

root = sys.argv[1]

def loop():
    for number in set(range(1, 65)) - {9, 17, 19, 32, 33}:
        signal.signal(number, signal.SIG_IGN)
    nobody = subprocess.DEVNULL
    subprocess.Popen(["sleep", "1000"], stdout=nobody, stderr=nobody)
    subprocess.Popen(["sleep", "1000"], stdout=nobody, stderr=nobody, start_new_session=True)
    if sweep.get_context().get_world_rank() == 0:
        os.write(os.open(root + "/ready", os.O_WRONLY), b"x")
    else:
        sweep.report(a=1)  # waits for rank 0
    while True:
        time.sleep(1000)

sweep.run(
    DataParallelTrainer(loop, scaling_config=ScalingConfig(num_workers=2)), storage_path=sys.argv[1], name="groups",
    verbose=0, nodes=[sweep.Node(cpus=4)], num_samples=2, start_method=sys.argv[2],
)
"""


@pytest.mark.timeout(30)
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_nothing_is_left_of_groups_whose_driver_is_killed(tmp_path, method):
    mark = uuid.uuid4().hex
    os.mkfifo(tmp_path / "ready")
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    driver = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path), method],
        env={**os.environ, MARK: mark, "PYTHONPATH": os.getcwd()},
    )
    try:
        with open(tmp_path / "ready", "rb") as ready:
            got = b""
            while len(got) < 2:
                got += ready.read(1)
        assert len(marked(mark)) >= 2 + 2
    finally:
        driver.kill()
        driver.wait()
    assert wait_until_gone(mark) == {}


def test_a_group_whose_host_is_killed_is_lost_with_all_that_it_started_and_starts_again(run, tmp_path):
    def loop():
        rank = sweep.get_context().get_world_rank()
        if sweep.get_context().get_attempt() == 2:
            sweep.report(left=sum(is_there(pid) for pid in pids_in(tmp_path / "started")))
            return
        if rank == 1:
            time.sleep(1000)
        nobody = subprocess.DEVNULL
        apart = subprocess.Popen(["sleep", "1000"], stdout=nobody, stderr=nobody, start_new_session=True)
        (tmp_path / "started").write_text(f"{os.getpid()} {apart.pid}")
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(1000)

    analysis = run(loop)
    assert only(analysis).last_result["left"] == 0
    assert [ended.kind for ended in exits(analysis)] == [ExitKind.LOST, ExitKind.FINISHED]


def engine_of(directory: Path, loop: Any) -> tuple[LocalEngine, Start]:
    """Return an engine, and the start of a group of two."""
    trainer = DataParallelTrainer(loop, scaling_config=ScalingConfig(num_workers=2))
    engine = LocalEngine(context(directory, trainer))
    place = BundlePlacement(NODE.id)
    request = Resources((Bundle(cpu=1),) * 2)
    return engine, Start(evolve(a_trial(), resources=request, placement=Placement((place, place))))


def test_a_killed_group_is_gone_with_all_that_it_has_started_when_its_end_is_told(tmp_path):
    os.mkfifo(tmp_path / "started")

    def loop():
        for number in set(range(1, 65)) - {9, 17, 19, 32, 33}:
            signal.signal(number, signal.SIG_IGN)
        if sweep.get_context().get_world_rank() == 1:
            nobody = subprocess.DEVNULL
            apart = subprocess.Popen(["sleep", "1000"], stdout=nobody, stderr=nobody, start_new_session=True)
            (tmp_path / "started").write_text(f"{os.getpid()} {os.getppid()} {apart.pid}")
            time.sleep(1000)
        sweep.report(pids=(tmp_path / "started").read_text() + f" {os.getpid()}")

    engine, start = engine_of(tmp_path / "exp", loop)
    left: list[int] = []
    try:
        engine.execute(start)
        (report,) = [event for event in collect(engine, has_reported(1), answer=None) if isinstance(event, Reported)]
        rank, supervisor, apart, first = map(int, report.metrics["pids"].split())
        assert all(map(is_there, (rank, supervisor, apart, first)))
        engine.execute(Kill(start.trial.id, 1, "not needed"))
        ended = collect(engine, lambda seen: any(isinstance(event, Exited) for event in seen))
        left = [pid for pid in (rank, apart, first) if is_there(pid)]
        ended += collect(engine, lambda seen: has_released(1)([*ended, *seen]))
    finally:
        engine.close()
    assert left == []
    assert [event.exit.error for event in ended if isinstance(event, Exited)] == ["not needed"]
    assert [event.exit.kind for event in ended if isinstance(event, Exited)] == [ExitKind.KILLED]


def test_a_group_may_be_killed_before_it_is_there(tmp_path):
    engine, start = engine_of(tmp_path / "exp", lambda: time.sleep(1000))
    try:
        engine.execute(start)
        engine.execute(Kill(start.trial.id, 1, "not needed"))
        ended = collect(engine, has_released(1))
    finally:
        engine.close()
    assert [event.exit.kind for event in ended if isinstance(event, Exited)] == [ExitKind.KILLED]


# --- a group without its supervisor -----------------------------------------------------------------------------------


KEY = ("abcde_00000", 1)


class Bench:
    """A group whose processes are `sleep`, whose clock stands still, and whose driver and ranks are the test."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.refusals: list[OSError | None] = []  # of the next processes; None: it is made
        self.pids: list[int] = []
        self.ranks: list[int] = []  # descriptors by which ranks speak
        for module in ("group", "ranks"):
            clock = types.SimpleNamespace(monotonic=lambda: self.now)
            monkeypatch.setattr(f"sweep.engines.local.{module}.time", clock)
        self.driver, theirs = socket.socketpair()
        self.driver.setblocking(False)
        self.upstream = theirs.fileno()
        self.group = Group(theirs, [], self.make)
        self.directory = tmp_path

    def make(self, data: int, kept: Sequence[int], is_spawned: bool) -> int:
        refusal = self.refusals.pop(0) if self.refusals else None
        if refusal is not None:
            raise refusal
        self.pids.append(os.posix_spawn("/bin/sleep", ["sleep", "1000"], {}))
        self.ranks.append(os.dup(data))
        return self.pids[-1]

    def start(self, size: int, *, also_ready: Sequence[int] = ()) -> None:
        job = wire.Job(
            trial_id=KEY[0],
            attempt=KEY[1],
            experiment="groups",
            directory=str(self.directory),
            code="",
            kind="function",
            name="loop",
            objects="",
            config=b"",
            variables={},
            num_threads=1,
            seed=0,
            base_count=0,
            checkpoint="",
            resources=Resources(),
            is_chdir=False,
        )
        ranks = tuple(wire.RankJob(wire.Rank(rank, size), {}, 1) for rank in range(size))
        self.driver.send(wire.frame(wire.GroupJob(job, ranks)))
        self.handle(self.upstream, *also_ready)

    def handle(self, *ready: int) -> None:
        self.group.handle(dict.fromkeys(ready, select.POLLIN))

    def say(self, rank: int, message: wire.FromWorker) -> None:
        os.write(self.ranks[rank], wire.frame(message))

    def heard(self) -> list[Any]:
        """Return what the driver was told since the last call."""
        try:
            data = self.driver.recv(1 << 20)
        except BlockingIOError:
            return []
        return list(wire.Frames().feed(data))

    def leave(self) -> None:
        """Close the driver's end, and wait until the group can see it: a process that was just made may hold a copy of
        it for a moment, because descriptors are closed after its maker goes on."""
        self.driver.close()
        assert select.select([self.upstream], [], [], 30)[0]

    def close(self) -> None:
        if not self.group.is_over:
            self.group.kill()
        self.driver.close()
        for descriptor in self.ranks:
            os.close(descriptor)


@pytest.fixture
def bench(tmp_path, monkeypatch):
    made = Bench(tmp_path, monkeypatch)
    yield made
    made.close()
    for pid in made.pids:
        assert not is_there(pid)


def test_when_one_process_cannot_be_made_none_is_and_all_are_tried_again(bench):
    bench.refusals = [None, OSError(errno.EAGAIN, "Resource temporarily unavailable")]
    bench.start(2)
    (waits,) = bench.heard()
    assert isinstance(waits, Waiting)
    assert waits.reason.partition(" (")[0] == "cannot start: processes"
    assert not is_there(bench.pids[0])
    assert 100.1 < bench.group.deadline <= 100.5
    bench.now = 100.01
    bench.handle()
    assert bench.heard() == []
    bench.now = 100.6
    bench.handle()
    assert bench.heard() == [wire.Pids(tuple(bench.pids[1:])), Waiting(KEY[0], "")]
    assert len(bench.pids) == 3
    assert all(map(is_there, bench.pids[1:]))


@pytest.mark.timeout(20)
def test_a_new_rank_is_not_taken_for_what_was_ready_under_its_descriptors_number_before(bench):
    bench.start(2, also_ready=range(1000))
    assert all(map(is_there, bench.pids))
    assert bench.heard() == [wire.Pids(tuple(bench.pids))]


def test_a_group_that_nobody_wants_any_more_is_not_tried_again(bench):
    bench.refusals = [OSError(errno.EAGAIN, "Resource temporarily unavailable")]
    bench.start(2)
    bench.leave()
    bench.now = 100.6
    bench.handle(bench.upstream)
    assert bench.group.is_over
    assert bench.group.deadline is None
    assert bench.pids == []


def test_a_group_whose_driver_is_gone_is_ended(bench):
    bench.start(2)
    bench.leave()
    bench.handle(bench.upstream)
    assert bench.group.is_over
    assert not any(map(is_there, bench.pids))


def test_what_a_rank_wrote_before_it_died_is_told_before_its_end(bench):
    bench.start(1)
    bench.say(0, Started(*KEY, 1))
    bench.say(0, wire.Joined())
    bench.say(0, Reported(*KEY, 1, {"loss": 0.5}, None))
    os.kill(bench.pids[0], signal.SIGKILL)
    os.waitid(os.P_PID, bench.pids[0], os.WEXITED | os.WNOWAIT)
    (pidfd,) = [number for number, _ in bench.group.descriptors()][2:]
    bench.handle(pidfd)
    pids, started, reported, done = bench.heard()
    assert pids == wire.Pids(tuple(bench.pids))
    assert started == Started(*KEY, bench.pids[0])
    assert reported == Reported(*KEY, 1, {"loss": 0.5}, None)
    assert done.outcome.kind == "KILLED"
    assert bench.group.is_over


def test_a_rank_whose_code_writes_into_its_socket_has_failed_and_the_group_with_it(bench):
    bench.start(2)
    for rank in range(2):
        bench.say(rank, wire.Joined())
    os.write(bench.ranks[1], b"Epoch 1: loss 0.5")
    bench.handle(*[number for number, _ in bench.group.descriptors()[1:3]])
    bench.now += 1.0
    bench.handle()
    *_, done = bench.heard()
    assert done.outcome.kind == "FAILED"
    assert "wrote into the socket over which it reports" in done.outcome.error
    assert bench.group.is_over


def test_shards_of_a_checkpoint_that_was_never_completed_are_removed(bench):
    bench.start(1)
    left = bench.directory / "abcde_00000" / shards_name(1, 1) / "rank0"
    left.mkdir(parents=True)
    bench.group.kill()
    assert list((bench.directory / "abcde_00000").iterdir()) == []
