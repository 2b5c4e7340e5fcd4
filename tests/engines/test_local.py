"""What trials find in their processes, and how their ends are told."""

from __future__ import annotations

import contextlib
import enum
import math
import multiprocessing
import os
import pickle
import subprocess
import sys
import textwrap
import zlib
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from conformance.driving import play
from conformance.engines import collect, context, has_released, has_reported, trial
from conformance.processes import Watch, of_experiment

from sweep.checkpoints.store import Checkpoint
from sweep.core.messages import Continue, Exited, ExitKind, Kill, Released, Reported, Save, Saved, Start, Started, Stop
from sweep.core.resources import Bundle, BundlePlacement, Device, Node, Placement, Resources
from sweep.core.trial import CheckpointRef, Outcome
from sweep.engines.link import Link
from sweep.engines.local.engine import LocalEngine
from sweep.engines.local.supervisor import trim_output
from sweep.errors import ConfigError
from sweep.worker import wire
from sweep.worker.parameters import with_parameters
from sweep.worker.session import get_checkpoint, get_context, report
from sweep.worker.trainable import Trainable


def train_once(config):
    report(pid=os.getpid())


@contextmanager
def begun(given, first=None):
    """Yield an engine that was told to start a trial; it is closed afterwards."""
    with closing(LocalEngine(given)) as engine:
        engine.execute(Start(first or trial()))
        yield engine


# --- ends ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        ("raise ValueError('lr must be positive')", ExitKind.FAILED, "ValueError: lr must be positive"),
        ("sys.exit(3)", ExitKind.FAILED, "sys.exit(3)"),
        ("sys.exit(0)", ExitKind.FINISHED, ""),
        ("os._exit(0)", ExitKind.KILLED, "ended without returning (exit code 0)"),
        ("os._exit(3)", ExitKind.KILLED, "exit code 3"),
        ("os.abort()", ExitKind.KILLED, "killed by SIGABRT"),
        ("import ctypes; ctypes.string_at(0)", ExitKind.KILLED, "killed by SIGSEGV"),
        ("os.kill(os.getpid(), 9)", ExitKind.KILLED, "killed by SIGKILL"),
        ("return 'text'", ExitKind.FAILED, "returned str"),
        ("return 3", ExitKind.FINISHED, ""),
    ],
)
def test_an_end_is_told_for_what_it_was(tmp_path, body, kind, says):
    scope: dict = {}
    exec(f"import os, sys\nfrom sweep.worker.session import report\ndef train(config):\n    {body}", scope)
    story = play(tmp_path, scope["train"])
    assert story.exit.kind is kind, story.exit
    assert says in story.exit.error


@pytest.mark.parametrize(
    ("stray", "options"),
    [
        ("b'Epoch 1: loss 0.5'", {}),
        ("b'Epoch 1: loss 0.5'", {"reuse_actors": True}),
        pytest.param("b'Epoch 1: loss 0.5'", {"start_method": "spawn"}, marks=pytest.mark.slow),
        ("b'abc'", {"reuse_actors": True}),
        ("bytes(64)", {}),
        ("b'\\xff' * 8", {}),
        ("wire.frame(wire.EndTree())", {}),
        ("wire.frame(wire.Pids((1, 2)))[:-3]", {}),
        ("(lambda data: len(data).to_bytes(4, 'little') + crc32(data).to_bytes(4, 'little') + data)(b'rubbish')", {}),
    ],
)
def test_stray_bytes_in_any_descriptor_of_a_trial_fail_that_trial_and_the_others_go_on(tmp_path, stray, options):
    def train(config):
        report(a=1)
        if config["x"] == 0:
            data = eval(stray, {"wire": wire, "crc32": zlib.crc32})
            for name in os.listdir("/proc/self/fd"):
                if int(name) > 2:
                    with contextlib.suppress(OSError):
                        os.write(int(name), data)
        report(a=2)

    story = play(tmp_path, train, [trial(0), trial(1)], **options)
    exits = {event.trial_id: event.exit for event in story.events if isinstance(event, Exited)}
    assert exits["abcde_00000"].kind is ExitKind.FAILED
    assert "wrote into the socket over which it reports" in exits["abcde_00000"].error
    assert exits["abcde_00001"].kind is ExitKind.FINISHED
    assert [event.metrics["a"] for event in story.events if isinstance(event, Reported)].count(1) == 2


def test_a_failure_keeps_the_users_frames_and_the_exception_itself(tmp_path):
    class MyError(Exception):
        pass

    def inner(x):
        raise MyError("too deep")

    def train(config):
        inner(config["x"])

    ended = play(tmp_path, train).exit
    assert ended.class_name == "MyError"
    assert "in inner" in ended.traceback
    assert "in train" in ended.traceback
    assert "adapters.py" not in ended.traceback
    import cloudpickle

    assert str(cloudpickle.loads(ended.pickled)) == "too deep"
    assert "MyError: too deep" in (tmp_path / "abcde_00000" / "output.log").read_text()


def test_with_log_to_file_each_stream_has_its_bounded_file_and_the_trial_its_given_name(tmp_path):
    class MyError(Exception):
        pass

    def train(config):
        print(get_context().get_trial_name(), "x" * 3_000)
        print("complaint", file=sys.stderr)
        raise MyError("too deep")

    story = play(
        tmp_path,
        train,
        [trial(), trial(attempt=2)],
        in_turn=True,
        log_to_file=("out.txt", "err.txt"),
        log_limit_bytes=2_000,
        name_of=lambda one: f"mine-{one.attempt}",
    )
    directory = tmp_path / "abcde_00000"
    assert sorted(os.listdir(directory)) == ["err.txt", "out.txt"]
    out, err = (directory / "out.txt").read_text(), (directory / "err.txt").read_text()
    assert len(out) < 2_000
    assert out.startswith("mine-1 x")
    assert "bytes were dropped here" in out
    assert [line[:25] for line in err.splitlines() if line.startswith("---")] == [
        "--- abcde_00000 attempt 2",
    ]
    assert err.count("complaint\n") == err.count("MyError: too deep") == 2
    assert type(pickle.loads(story.exits[-1].pickled)) is MyError  # the very class, although it travelled by value


def test_an_exception_that_cannot_be_pickled_still_gives_its_text(tmp_path):
    def train(config):
        class Odd(Exception):
            def __init__(self, a, b):
                super().__init__(a)

            def __str__(self):
                raise RuntimeError("no text")

        raise Odd(1, 2)

    ended = play(tmp_path, train).exit
    assert ended.kind is ExitKind.FAILED
    assert "Odd(1)" in ended.error
    assert ended.pickled == b""


def test_a_kill_for_memory_is_told_when_the_kernels_count_rose(tmp_path, monkeypatch):
    counts = iter(range(100))
    monkeypatch.setattr("sweep.engines.local.engine.num_oom_kills", lambda: next(counts))

    def train(config):
        os.kill(os.getpid(), 9)

    ended = play(tmp_path, train).exit
    assert ended.kind is ExitKind.OUT_OF_MEMORY
    assert ended.peak_rss_bytes > 1_000_000


def test_finally_blocks_run_when_a_trial_is_stopped(tmp_path):
    def train(config):
        try:
            while True:
                try:
                    report({"a": 1})
                except Exception:  # the stop is no Exception
                    raise AssertionError from None
        finally:
            Path(get_context().get_trial_dir(), "unwound").touch()

    story = play(tmp_path, train, answer=lambda r: Stop(r.trial_id, r.attempt, r.seq))
    assert story.exit.kind is ExitKind.STOPPED
    assert (tmp_path / "abcde_00000" / "unwound").exists()


def test_a_trial_that_swallows_the_stop_meets_it_again(tmp_path):
    def train(config):
        for _ in range(3):
            try:
                report({"a": 1})
            except BaseException:
                continue

    story = play(tmp_path, train, answer=lambda r: Stop(r.trial_id, r.attempt, r.seq))
    assert story.exit.kind is ExitKind.STOPPED
    assert len(story.metrics) == 1


def test_a_stop_sent_while_the_trial_computes_is_obeyed_at_its_next_report(tmp_path):
    fifo = tmp_path / "go"
    os.mkfifo(fifo)

    def train(config):
        report({"step": 1})
        fifo.read_bytes()
        report({"step": 2})
        report({"step": 3})

    with begun(context(tmp_path, train)) as engine:
        collect(engine, has_reported(1))
        engine.execute(Stop("abcde_00000", 1, 0))
        fifo.write_bytes(b"go")
        events = collect(engine, has_released(1), answer=None)
    assert [event.metrics["step"] for event in events if isinstance(event, Reported)] == [2]
    assert events[-2].exit.kind is ExitKind.STOPPED


def test_the_last_report_is_never_overtaken_by_the_exit(tmp_path):
    def train(config):
        report({"a": 1})
        return {"a": 2}

    story = play(tmp_path, train, [trial(n) for n in range(20)])
    assert len(story.metrics) == 40
    names = [type(event).__name__ for event in story.events if getattr(event, "trial_id", "") == "abcde_00007"]
    assert names == ["Started", "Reported", "Reported", "Exited", "Released"]


def test_a_trial_that_ends_without_reading_a_stop_still_has_its_last_word(tmp_path):
    os.mkfifo(tmp_path / "go")

    def train(config):
        report({"a": 1})
        Path(config["fifo"]).read_bytes()
        raise ValueError("my last word")

    with begun(context(tmp_path, train), trial(config={"fifo": str(tmp_path / "go")})) as engine:
        collect(engine, has_reported(1))
        for _ in range(3):
            engine.execute(Stop("abcde_00000", 1, 0))
        (tmp_path / "go").write_bytes(b"go")
        events = collect(engine, has_released(1))
    assert events[0].exit.error == "ValueError: my last word"


def test_what_a_trial_left_running_is_gone_when_its_exit_is_told(tmp_path):
    def train(config):
        children = [subprocess.Popen(["sleep", "1000"]), subprocess.Popen(["sleep", "1000"], start_new_session=True)]
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.execvp("sleep", ["sleep", "1000"])
            os._exit(0)
        os.wait()
        return {"pids": [child.pid for child in children]}

    with begun(context(tmp_path, train)) as engine:
        events = collect(engine, has_released(1))
        (told,) = [event for event in events if isinstance(event, Reported)]
        assert len(told.metrics["pids"]) == 2
        left = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in of_experiment(tmp_path)]
        assert not any(line.startswith(b"sleep") for line in left)


def test_kill_ends_a_trial_that_holds_the_interpreter_and_ignores_signals(tmp_path):
    def train(config):
        import ctypes
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        report({"a": 1})
        ctypes.PyDLL(None).sleep(1000)

    with begun(context(tmp_path, train)) as engine:
        collect(engine, has_reported(1))
        engine.execute(Kill("abcde_00000", 1, "too slow"))
        events = collect(engine, has_released(1))
    assert (events[0].exit.kind, events[0].exit.error) == (ExitKind.KILLED, "too slow")


def test_close_leaves_no_process(tmp_path):
    def train(config):
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
        report({"a": 1})

    engine = LocalEngine(context(tmp_path, train))
    engine.execute(Start(trial(0)))
    engine.execute(Start(trial(1)))
    collect(engine, has_reported(2), answer=None)
    watch = Watch(of_experiment(tmp_path))
    engine.close()
    assert watch.left(0) == []
    assert of_experiment(tmp_path) == []


def test_a_fork_server_that_dies_is_replaced_and_the_trials_go_on(tmp_path):
    def train(config):
        report({"a": 1})
        report({"a": 2})

    with begun(context(tmp_path, train)) as engine:
        collect(engine, has_reported(1), answer=None)
        watch = Watch([engine._fork_server.pid])
        os.kill(engine._fork_server.pid, 9)
        assert watch.left() == []
        engine.execute(Start(trial(1)))
        engine.execute(Start(trial(2)))
        engine.execute(Continue("abcde_00000", 1, 1))
        events = collect(engine, has_released(3))
        exits = [event.exit.kind for event in events if hasattr(event, "exit")]
        assert exits == [ExitKind.FINISHED] * 3
        assert any("SIGKILL" in notice for notice in engine.notices)
    assert of_experiment(tmp_path) == []


# --- what the process is like ---------------------------------------------------------------------------------------


def draws(config):
    import random

    import numpy as np

    return {"drawn": [random.random(), float(np.random.rand())]}


def draws_by_torch(config):
    import torch

    return {"drawn": [float(torch.rand(()))]}


@pytest.mark.parametrize("train", [draws, pytest.param(draws_by_torch, marks=pytest.mark.slow)])
def test_equal_trials_draw_equal_numbers_and_different_trials_different_ones(tmp_path, train):
    trials = [trial(0), trial(1)]
    first = play(tmp_path / "1", train, trials, in_turn=True, seed=1).values("drawn")
    again = play(tmp_path / "2", train, trials, in_turn=True, seed=1).values("drawn")
    assert first == again
    assert all(one != other for one, other in zip(*first, strict=True))


@pytest.mark.slow
def test_libraries_loaded_in_advance_get_the_threads_that_were_asked_for(tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def train(config):
        import threadpoolctl
        import torch

        pools = {pool["num_threads"] for pool in threadpoolctl.threadpool_info()}
        return {"torch": torch.get_num_threads(), "pools": sorted(pools), "variable": os.environ["OMP_NUM_THREADS"]}

    two = trial(1, resources=Resources((Bundle(cpu=2.0),)))
    half = trial(2, resources=Resources((Bundle(cpu=0.5),)))
    story = play(tmp_path, train, [trial(0), two, half], in_turn=True)
    assert story.values("torch") == [1, 2, 1]
    assert story.values("pools") == [[1], [2], [1]]
    assert story.values("variable") == ["1", "2", "1"]


def test_a_trial_sees_its_devices_its_markers_and_the_variables_given(tmp_path):
    node = Node(cpus=4, devices=(Device("GPU-a", visible="4"), Device("GPU-b", visible="5")))
    resources = Resources((Bundle(cpu=1.0, gpu=1.0),))
    with_gpu = trial(1, resources=resources, placement=Placement((BundlePlacement("local", (("GPU-b", 1.0),)),)))

    def train(config):
        names = ("CUDA_VISIBLE_DEVICES", "SWEEP_TRIAL", "SWEEP_ATTEMPT", "SWEEP_EXPERIMENT", "MINE")
        return {name: os.environ.get(name) for name in names}

    story = play(tmp_path, train, [trial(0), with_gpu], in_turn=True, nodes=(node,), env={"MINE": "yes"})
    assert story.values("CUDA_VISIBLE_DEVICES") == ["", "5"]
    assert story.values("SWEEP_TRIAL") == ["abcde_00000", "abcde_00001"]
    assert story.values("SWEEP_EXPERIMENT") == [str(tmp_path)] * 2
    assert story.values("SWEEP_ATTEMPT") == ["1", "1"]
    assert story.values("MINE") == ["yes", "yes"]


def test_a_worker_leads_a_session_is_preferred_by_the_oom_killer_and_heeds_ctrl_c(tmp_path):
    def train(config):
        import signal

        return {
            "leads": os.getsid(0) == os.getpid(),
            "score": int(Path("/proc/self/oom_score_adj").read_text()),
            "heeds": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
            "cwd": os.getcwd(),
        }

    (metrics,) = play(tmp_path, train).metrics
    own = int(Path("/proc/self/oom_score_adj").read_text())
    assert metrics["leads"]
    assert metrics["heeds"]
    assert metrics["score"] == min(1000, own + 500)
    assert metrics["cwd"] == os.getcwd()
    (metrics,) = play(tmp_path / "chdir", train, is_chdir=True).metrics
    assert metrics["cwd"] == str(tmp_path / "chdir" / "abcde_00000")


def test_exit_functions_inherited_from_preloaded_modules_do_not_run_and_the_users_own_do(tmp_path, monkeypatch):
    (tmp_path / "noisy.py").write_text("import atexit\natexit.register(print, 'inherited')\n")

    def train(config):
        import atexit

        atexit.register(print, "my own")

    monkeypatch.syspath_prepend(tmp_path)
    play(tmp_path / "exp", train, preload=["noisy"])
    text = (tmp_path / "exp" / "abcde_00000" / "output.log").read_text()
    assert "my own" in text
    assert "inherited" not in text


def test_workers_hold_no_descriptor_of_ours_but_their_two_sockets_and_hosts_hold_the_lock(tmp_path):
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)

    def train(config):
        def held_by(pid):
            found = []
            for number in os.listdir(f"/proc/{pid}/fd"):
                try:
                    found.append(os.readlink(f"/proc/{pid}/fd/{number}"))
                except FileNotFoundError:
                    continue  # the one that lists
            return found

        return {"mine": held_by(os.getpid()), "supervisors": held_by(os.getppid())}

    try:
        (metrics,) = play(tmp_path / "exp", train, lock_fd=lock).metrics
    finally:
        os.close(lock)
    mine = [name for name in metrics["mine"] if not name.startswith(("/dev/null", "/proc"))]
    log = str(tmp_path / "exp" / "abcde_00000" / "output.log")
    assert sorted(name.partition(":")[0] for name in mine) == [log, log, "socket", "socket"]  # to driver and supervisor
    assert str(tmp_path / "lock") in metrics["supervisors"]


# --- output ----------------------------------------------------------------------------------------------------


def test_output_of_all_attempts_and_of_children_goes_to_the_trials_log(tmp_path):
    def train(config):
        print("from python")
        os.write(2, b"from the descriptor\n")
        subprocess.run(["echo", "from a child"], check=True)

    play(tmp_path, train, [trial(attempt=1), trial(attempt=2)], in_turn=True)
    text = (tmp_path / "abcde_00000" / "output.log").read_text()
    assert text.count("--- abcde_00000 attempt") == 2
    for line in ("from python", "from the descriptor", "from a child"):
        assert text.count(line) == 2


def test_output_without_end_is_kept_below_its_limit_with_head_and_tail(tmp_path):
    def train(config):
        print("the first line")
        for number in range(40_000):
            print(f"{number:08d} " + "x" * 90)
        print("the last line")

    play(tmp_path, train, log_limit_bytes=1 << 20)
    path = tmp_path / "abcde_00000" / "output.log"
    text = path.read_text()
    assert path.stat().st_size <= 1 << 20
    assert "the first line" in text
    assert "bytes were dropped here" in text
    assert text.rstrip().endswith("the last line")


def test_trimming_leaves_a_small_file_and_a_link_alone(tmp_path):
    small, link = tmp_path / "output.log", tmp_path / "link.log"
    small.write_text("x" * 100)
    link.symlink_to(small)
    trim_output(str(small), 100)
    trim_output(str(link), 10)
    assert small.read_text() == "x" * 100


def test_a_crash_in_compiled_code_leaves_the_python_stack_in_the_log(tmp_path):
    def crash_here(config):
        import ctypes

        ctypes.string_at(0)

    play(tmp_path, crash_here)
    assert "in crash_here" in (tmp_path / "abcde_00000" / "output.log").read_text()


# --- checkpoints and classes ----------------------------------------------------------------------------------------


def test_a_checkpoint_is_stored_before_its_report_is_told_and_the_next_attempt_finds_it(tmp_path):
    def train(config):
        import tempfile

        start = get_checkpoint()
        step = int(Path(start.path, "step").read_text()) if start else 0
        for number in range(step + 1, step + 3):
            with tempfile.TemporaryDirectory() as directory:
                Path(directory, "step").write_text(str(number))
                report({"step": number}, checkpoint=Checkpoint(directory))

    first = play(tmp_path, train)
    assert first.saved == ["abcde_00000/checkpoint_000001", "abcde_00000/checkpoint_000002"]
    again = trial(attempt=2, checkpoint=CheckpointRef("abcde_00000/checkpoint_000001", count=1))
    second = play(tmp_path, train, [again])
    assert second.values("step") == [2, 3]
    assert second.saved == ["abcde_00000/checkpoint_000002.2", "abcde_00000/checkpoint_000003"]


def test_a_damaged_checkpoint_ends_the_attempt_before_its_code_runs_and_is_moved_aside(tmp_path):
    def train(config):
        import tempfile

        if get_checkpoint() is None:
            with tempfile.TemporaryDirectory() as directory:
                Path(directory, "state").write_text("good")
                report({"a": 1}, checkpoint=Checkpoint(directory))

    play(tmp_path, train)
    (tmp_path / "abcde_00000/checkpoint_000001/state").write_text("evil")
    again = trial(attempt=2, checkpoint=CheckpointRef("abcde_00000/checkpoint_000001", count=1))
    ended = play(tmp_path, train, [again]).exit
    assert ended.kind is ExitKind.DAMAGED
    assert ended.error == (
        "the checkpoint abcde_00000/checkpoint_000001 is damaged: the contents of state have changed; what is left of "
        "it is in abcde_00000/damaged_checkpoint_000001"
    )


class Counter(Trainable):
    """Counts its steps from the config's start."""

    def setup(self, config, offset=0):
        self.total = config["x"] + offset

    def step(self):
        self.total += 1
        return {"total": self.total, "done": self.total >= 5}

    def save_checkpoint(self, checkpoint_dir):
        return {"total": self.total}

    def load_checkpoint(self, checkpoint):
        self.total = checkpoint["total"]

    def cleanup(self):
        Path(self.trial_dir, "cleaned").touch()


def test_a_class_steps_until_it_is_done_and_cleans_up(tmp_path):
    story = play(tmp_path, Counter)
    assert story.values("total") == [1, 2, 3, 4, 5]
    assert story.exit.kind is ExitKind.FINISHED
    assert (tmp_path / "abcde_00000" / "cleaned").exists()


def test_a_class_saves_on_demand_and_goes_on_without_a_second_answer(tmp_path):
    def answer(told):
        return (Save if told.seq == 2 else Continue)(told.trial_id, told.attempt, told.seq)

    story = play(tmp_path, Counter, answer=answer)
    saved = [event for event in story.events if isinstance(event, Saved)]
    assert [(event.seq, event.checkpoint) for event in saved] == [(2, "abcde_00000/checkpoint_000002")]
    assert story.values("total") == [1, 2, 3, 4, 5]


def test_a_class_told_to_stop_with_a_save_saves_cleans_up_and_continues_in_its_next_attempt(tmp_path):
    story = play(tmp_path, Counter, answer=lambda r: Stop(r.trial_id, r.attempt, r.seq, save=True))
    assert story.exit.kind is ExitKind.STOPPED
    assert story.saved == ["abcde_00000/checkpoint_000001"]
    assert (tmp_path / "abcde_00000" / "cleaned").exists()
    again = trial(attempt=2, checkpoint=CheckpointRef("abcde_00000/checkpoint_000001", count=1))
    assert play(tmp_path, Counter, [again]).values("total") == [2, 3, 4, 5]


def test_objects_of_with_parameters_reach_functions_and_classes_as_shared_arrays(tmp_path):
    import numpy as np

    data = np.arange(1000.0)

    def train(config, data=None):
        data[0] = 7.0  # private to this trial
        return {"total": float(data.sum())}

    story = play(tmp_path, with_parameters(train, data=data), [trial(0), trial(1)], in_turn=True)
    assert story.values("total") == [499507.0, 499507.0]
    assert data[0] == 0.0
    story = play(tmp_path / "class", with_parameters(Counter, offset=3))
    assert story.values("total") == [4, 5]


# --- reuse ----------------------------------------------------------------------------------------------------


def test_reused_workers_take_one_trial_after_another_with_everything_reset(tmp_path):
    def train(config):
        import random

        print("output of", config["x"])
        metrics = {"pid": os.getpid(), "left": os.environ.get("LEFT"), "drawn": random.random(), "cwd": os.getcwd()}
        os.environ["LEFT"] = "behind"
        os.chdir("/")
        child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        return {**metrics, "child": child.pid}

    story = play(tmp_path, train, [trial(n) for n in range(3)], in_turn=True, reuse_actors=True)
    assert len(set(story.values("pid"))) == 1
    assert story.values("left") == [None] * 3
    assert story.values("cwd") == [os.getcwd()] * 3
    assert len(set(story.values("drawn"))) == 3
    for number in range(3):
        assert f"output of {number}" in (tmp_path / f"abcde_{number:05d}" / "output.log").read_text()


def test_a_reused_worker_is_handed_the_next_trial_and_known_to_have_started(tmp_path):
    story = play(
        tmp_path, lambda config: {"pid": os.getpid()}, [trial(n) for n in range(3)], in_turn=True, reuse_actors=True
    )
    kinds = [type(event).__name__ for event in story.events]
    assert kinds == ["Started", "Reported", "Exited", "Released"] * 3
    assert {event.pid for event in story.events if isinstance(event, Started)} == set(story.values("pid"))


def test_a_reused_worker_that_says_it_is_idle_while_it_is_killed_gets_no_other_trial(tmp_path):
    with begun(context(tmp_path, train_once, reuse_actors=True)) as engine:
        (told,) = [e for e in collect(engine, has_reported(1), answer=None) if isinstance(e, Reported)]
        (attempt,) = engine._attempts.values()
        engine.execute(Kill(told.trial_id, told.attempt, "asked to", ExitKind.KILLED))
        engine._on_worker(attempt.slot, [wire.Done(Outcome("FINISHED"), 0.0, is_idle=True)])
        assert not any(isinstance(event, Exited) for event in engine._events)
        (ended,) = [e.exit for e in collect(engine, has_released(1)) if isinstance(e, Exited)]
        assert ended.kind is ExitKind.FINISHED, "that was faster"
        assert not Path(f"/proc/{told.metrics['pid']}").exists()
        engine.execute(Start(trial(1)))
        (next_one,) = [e for e in collect(engine, has_released(1)) if isinstance(e, Reported)]
        assert next_one.metrics["pid"] != told.metrics["pid"]


@pytest.mark.parametrize("word", ["exited", "gone"])
def test_a_reused_worker_that_dies_when_it_has_just_said_that_it_is_idle_ends_its_trial_once(
    tmp_path, word, monkeypatch
):
    with begun(context(tmp_path, train_once, reuse_actors=True)) as engine:
        collect(engine, has_reported(1), answer=None)
        (attempt,) = engine._attempts.values()
        slot, last = attempt.slot, wire.Done(Outcome("FINISHED"), 0.0, is_idle=True)
        monkeypatch.setattr(Link, "drain", lambda link: [last])  # to be read; the supervisor is heard first
        engine._on_supervisor(slot, wire.Exited(9, 0) if word == "exited" else wire.Gone(slot.number))
        assert [event.exit.kind for event in engine._events if isinstance(event, Exited)] == [ExitKind.FINISHED]
        assert sum(isinstance(event, Released) for event in engine._events) == 1
        assert slot.link is None


@pytest.mark.parametrize(
    "spoil",
    [
        "sys.stdout.close()",
        "sys.stderr.close()",
        "sys.stdout.flush(); os.close(1); os.close(2)",
        "sys.stdout = open(os.devnull, 'w')",
        "sys.stdout = sys.stderr = None",
    ],
)
@pytest.mark.parametrize("method", ["forkserver", pytest.param("spawn", marks=pytest.mark.slow)])
def test_what_a_trial_does_to_its_output_is_no_matter_of_the_next_in_a_reused_worker(tmp_path, spoil, method):
    scope: dict = {}
    exec(
        "import os, sys\n"
        "def train(config):\n"
        "    print('out of', config['x']); print('err of', config['x'], file=sys.stderr)\n"
        f"    {spoil}\n"
        "    return {'pid': os.getpid()}",
        scope,
    )
    trials = [trial(n) for n in range(3)]
    story = play(tmp_path, scope["train"], trials, in_turn=True, reuse_actors=True, start_method=method)
    assert [ended.kind for ended in story.exits] == [ExitKind.FINISHED] * 3
    assert len(set(story.values("pid"))) == 1
    for number in range(3):
        text = (tmp_path / f"abcde_{number:05d}" / "output.log").read_text()
        assert f"out of {number}" in text
        assert f"err of {number}" in text


def test_what_a_reused_worker_printed_is_trimmed_at_the_end_of_its_trial(tmp_path):
    def train(config):
        print("x" * 100_000)

    story = play(tmp_path, train, [trial(n) for n in range(2)], in_turn=True, reuse_actors=True, log_limit_bytes=10_000)
    assert [ended.kind for ended in story.exits] == [ExitKind.FINISHED] * 2
    for number in range(2):
        text = (tmp_path / f"abcde_{number:05d}" / "output.log").read_text()
        assert len(text) < 10_000
        assert "bytes were dropped here" in text


def test_children_of_a_reused_worker_are_gone_when_its_trials_exit_is_told(tmp_path):
    def train(config):
        child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        return {"child": child.pid}

    with begun(context(tmp_path, train, reuse_actors=True)) as engine:
        events = collect(engine, has_released(1))
        (told,) = [event for event in events if isinstance(event, Reported)]
        state = Path(f"/proc/{told.metrics['child']}/stat")
        assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_reused_worker_that_has_left_a_pool_takes_no_other_trial(tmp_path):
    def train(config):
        pool = multiprocessing.get_context("fork").Pool(2)  # its threads replace those that are ended
        pool.map(abs, [1, 2])
        globals()["pool"] = pool
        return {"pid": os.getpid(), "children": [process.pid for process in pool._pool]}

    story = play(tmp_path, train, [trial(n) for n in range(2)], in_turn=True, reuse_actors=True)
    assert [ended.kind for ended in story.exits] == [ExitKind.FINISHED] * 2
    assert len(set(story.values("pid"))) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pids in story.values("children") for pid in pids)


def test_an_idle_worker_is_ended_before_its_device_goes_to_another_request(tmp_path):
    node = Node(cpus=4, devices=(Device("0"),))

    def placed(number, cpu):
        return trial(
            number,
            resources=Resources((Bundle(cpu=cpu, gpu=1.0),)),
            placement=Placement((BundlePlacement("local", (("0", 1.0),)),)),
        )

    def train(config):
        before = Path(get_context().get_trial_dir()).parent / "pid"
        alive = before.exists() and Path(f"/proc/{before.read_text()}").exists()
        before.write_text(str(os.getpid()))
        return {"pid": os.getpid(), "other_is_alive": alive}

    trials = [placed(0, 1.0), placed(1, 1.0), placed(2, 2.0)]
    story = play(tmp_path, train, trials, in_turn=True, reuse_actors=True, nodes=(node,))
    first, second, third = story.values("pid")
    assert first == second != third
    assert story.values("other_is_alive") == [False, True, False]


def test_idle_workers_for_other_requests_do_not_pile_up(tmp_path):
    trials = [trial(n, resources=Resources((Bundle(cpu=1.0 + n % 2),))) for n in range(4)]
    story = play(tmp_path, lambda config: {"pid": os.getpid()}, trials, in_turn=True, reuse_actors=True)
    assert len(set(story.values("pid"))) == 4


def test_a_reused_worker_that_dies_takes_only_its_own_trial_with_it(tmp_path):
    def train(config):
        if config["x"] == 1:
            os._exit(1)

    story = play(tmp_path, train, [trial(n) for n in range(3)], in_turn=True, reuse_actors=True)
    assert [ended.kind for ended in story.exits] == [ExitKind.FINISHED, ExitKind.KILLED, ExitKind.FINISHED]


def test_a_class_with_reset_config_keeps_its_object_between_trials(tmp_path):
    class Kept(Trainable):
        def setup(self, config):
            self.setups = getattr(self, "setups", 0) + 1

        def step(self):
            return {"setups": self.setups, "x": self.config["x"], "object": id(self)}

        def reset_config(self, new_config):
            return True

    trials = [trial(n) for n in range(3)]
    story = play(
        tmp_path, Kept, trials, in_turn=True, reuse_actors=True, answer=lambda r: Stop(r.trial_id, r.attempt, r.seq)
    )
    assert story.values("setups") == [1, 1, 1]
    assert story.values("x") == [0, 1, 2]
    assert len(set(story.values("object"))) == 1


# --- starting ----------------------------------------------------------------------------------------------------


class Color(enum.Enum):
    """An enum that comes in the config."""

    RED = "red"


@pytest.mark.parametrize("method", ["forkserver", pytest.param("spawn", marks=pytest.mark.slow)])
def test_a_script_without_a_guard_runs_its_body_once(tmp_path, method):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
        import enum, os, pickle, sys
        from pathlib import Path
        sys.path.insert(0, {str(Path(__file__).parents[1])!r})
        with open("bodies", "a") as file:
            file.write("x")
        from conformance.driving import play
        from conformance.engines import trial

        class Color(enum.Enum):
            RED = "red"

        class Base:
            def get(self):
                return 1

        class Child(Base):
            def get(self):
                return super().get() + 1

        OFFSET = 40

        def helper(x):
            return Child().get() + OFFSET

        def make(extra):
            def train(config):
                assert config["color"] is Color.RED
                assert pickle.loads(pickle.dumps(Child())).get() == 2
                return {{"value": helper(1) + extra}}
            return train

        if __name__ != "__main__":
            sys.exit("run again")
        one = trial(config={{"color": Color.RED}})
        print(play(Path("exp").absolute(), make(100), [one], start_method={method!r}).values("value"))
        print(play(Path("exp2").absolute(), lambda config: 5, [one], start_method={method!r}).values("_metric"))
        """)
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)], cwd=tmp_path, capture_output=True, text=True, env=environ
    )
    assert done.stdout.splitlines() == ["[142]", "[5]"], done.stderr
    assert (tmp_path / "bodies").read_text() == "x"


def test_a_script_from_standard_input_works(tmp_path):
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, Path(__file__).parents[1:3]))}
    code = (
        "from pathlib import Path\nfrom conformance.driving import play\n"
        "print(play(Path('exp').absolute(), lambda config: {'loss': 1.5}).values('loss'))\n"
    )
    done = subprocess.run(
        [sys.executable], input=code, cwd=tmp_path, capture_output=True, text=True, env=environ, check=False
    )
    assert done.stdout == "[1.5]\n", done.stderr


def test_a_module_that_cannot_be_imported_in_advance_is_shown_and_not_fatal(tmp_path):
    story = play(tmp_path, lambda config: 1, preload=["no_such_module"])
    assert story.exit.kind is ExitKind.FINISHED
    assert story.notices == [
        "importing no_such_module in advance failed: ModuleNotFoundError: No module named 'no_such_module'"
    ]


def test_while_a_module_is_imported_the_trials_that_wait_say_so(tmp_path, monkeypatch):
    (tmp_path / "slow_module.py").write_text(f"open({str(tmp_path / 'gate')!r}).read()\n")
    os.mkfifo(tmp_path / "gate")
    monkeypatch.syspath_prepend(tmp_path)
    with begun(context(tmp_path / "exp", lambda config: 1, preload=["slow_module"])) as engine:
        events = collect(engine, lambda seen: bool(seen))
        assert [event.reason for event in events] == ["importing slow_module"]
        engine.execute(Start(trial(1)))
        assert [event.reason for event in engine.next_events(engine.now() + 5)] == ["importing slow_module"]
        engine.execute(Kill("abcde_00001", 1))
        assert collect(engine, has_released(1))[0].exit.kind is ExitKind.KILLED
        (tmp_path / "gate").write_text("go")
        assert collect(engine, has_released(1))[-2].exit.kind is ExitKind.FINISHED


def test_a_module_that_kills_the_importing_process_leaves_the_trials_to_import_for_themselves(tmp_path, monkeypatch):
    (tmp_path / "deadly.py").write_text("import os\nos.abort()\n")
    monkeypatch.syspath_prepend(tmp_path)
    story = play(tmp_path / "exp", lambda config: 1, [trial(0), trial(1)], in_turn=True, preload=["deadly"])
    assert [ended.kind for ended in story.exits][-1] is ExitKind.FINISHED
    assert "SIGABRT" in story.notices[0]
    assert "deadly" in story.notices[0]


def test_a_large_config_for_a_worker_that_does_not_read_never_blocks_the_driver(tmp_path, monkeypatch):
    def train(config):
        return {"size": len(config["data"])}

    story = play(tmp_path, train, [trial(config={"data": b"x" * 5_000_000})])
    assert story.values("size") == [5_000_000]


def test_without_a_free_descriptor_a_start_waits_and_the_trial_is_not_to_blame(tmp_path, monkeypatch):
    import resource
    import socket

    real, refusals = socket.socketpair, iter([OSError(24, "Too many open files")] * 2)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]

    def pair(*args):
        for error in refusals:
            raise error
        return real(*args)

    with closing(LocalEngine(context(tmp_path, lambda config: 1))) as engine:
        monkeypatch.setattr(socket, "socketpair", pair)
        engine.execute(Start(trial()))
        events = collect(engine, has_released(1))
    assert [event.reason for event in events if hasattr(event, "reason")] == [
        f"waits for descriptors (ulimit -n {files})",
        f"cannot start: descriptors (ulimit -n {files})",
    ]
    assert events[-2].exit.kind is ExitKind.FINISHED


def test_numbers_that_json_cannot_say_arrive_exactly(tmp_path):
    def train(config):
        import numpy as np

        report({"nan": float("nan"), "inf": np.float32("inf"), "minus": -0.0, "big": 1e308, "nested": {"a": [1, (2,)]}})

    (metrics,) = play(tmp_path, train).metrics
    assert math.isnan(metrics["nan"])
    assert metrics["inf"] == math.inf
    assert math.copysign(1, metrics["minus"]) == -1
    assert metrics["nested"] == {"a": [1, [2]]}


def test_an_unknown_start_method_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="expected 'forkserver' or 'spawn'"):
        LocalEngine(context(tmp_path, lambda config: 1, start_method="fork"))
