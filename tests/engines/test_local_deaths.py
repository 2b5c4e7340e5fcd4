"""Who dies when somebody is killed: after each death nothing that a trial has started is left."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import closing, suppress

import pytest
from conformance.engines import collect, context, has_released, has_reported, trial
from conformance.processes import LIMIT_S, Watch, of_experiment, parent_of

from sweep.core.messages import Ask, Asked, Continue, Exited, ExitKind, Kill, Reported, Start, Stop
from sweep.engines.local.engine import LocalEngine
from sweep.engines.local.processes import descendants, send
from sweep.record.proc import children_of
from sweep.worker.session import report

# A driver with two trials; each starts a plain child, one in a session of its own, and a daemon that forked twice.
DRIVER = """
import os, subprocess, sys
from pathlib import Path
from sweep.core.messages import Continue, Exited, Reported, Start
from sweep.core.resources import Node, Resources
from sweep.core.trial import Trial
from sweep.engines.base import EngineContext
from sweep.engines.local.engine import LocalEngine
from sweep.worker.session import report
from sweep.worker.trainable import prepare

def daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp("sleep", ["sleep", "1000"])
        os._exit(0)
    os.wait()

def train(config):
    {body}

def family():
    subprocess.Popen(["sleep", "1000"])
    subprocess.Popen(["sleep", "1000"], start_new_session=True)
    daemon()

engine = LocalEngine(EngineContext(directory=Path(sys.argv[1]), trainable=prepare(train), nodes=[Node(cpus=2)],
                                   start_method=sys.argv[2]))
for number in range(2):
    engine.execute(Start(Trial(id=f"abcde_{{number:05d}}", config={{}}, resources=Resources(), attempt=1)))
ready = 0
while True:
    for event in engine.next_events(None):
        if isinstance(event, Reported):
            ready += 1
            if event.metrics.get("go"):
                engine.execute(Continue(event.trial_id, 1, event.seq))
            if ready == 2:
                print("ready", flush=True)
        if isinstance(event, Exited):
            print("exited", event.exit.kind, event.exit.error, flush=True)
"""
WAITING = "family(); report({'a': 1})"
COMPUTING = "family(); report({'a': 1, 'go': True}); import ctypes; ctypes.PyDLL(None).sleep(1000)"
IGNORING = """
    import signal, time
    for n in set(range(1, 65)) - {9, 17, 19, 32, 33}:
        signal.signal(n, signal.SIG_IGN)
    family(); report({'a': 1, 'go': True})
    while True:
        time.sleep(1000)
"""
FORKING = """
    family()
    import time
    for _ in range(20):
        if os.fork() == 0:
            while True:
                time.sleep(0.02)
                if os.fork():
                    os._exit(0)
    report({'a': 1, 'go': True})
    time.sleep(1000)
"""


@pytest.fixture
def drive(tmp_path):
    """Return `drive(body)`: a driver whose trials have all started and reported, and who belongs to it."""
    started = []

    def start(body, method="forkserver"):
        script = tmp_path / "driver.py"
        script.write_text(DRIVER.format(body=textwrap.indent(textwrap.dedent(body), "    ").strip()))
        process = subprocess.Popen(
            [sys.executable, str(script), str(tmp_path / "exp"), method],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(["."])},
        )
        started.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line == "ready\n", line
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


EVERYBODY = 1 + 2 + 2 + 6  # fork server, supervisors, workers, and three processes that each worker has started


def people(driver, directory):
    """Return fork server, supervisors and everybody of a driver, once all are there.

    A process that is just becoming another program shows no environment for a moment.
    """
    give_up = time.monotonic() + LIMIT_S
    while len(everybody := of_experiment(directory)) < EVERYBODY and time.monotonic() < give_up:
        time.sleep(0.005)
    assert len(everybody) >= EVERYBODY
    (fork_server,) = [pid for pid in everybody if parent_of(pid) == driver.pid]
    supervisors = [pid for pid in everybody if parent_of(pid) == fork_server]
    return fork_server, supervisors, everybody


def below(supervisor, everybody):
    """Return the children of a supervisor and theirs."""
    mine = [pid for pid in everybody if parent_of(pid) == supervisor]
    return mine + [pid for pid in everybody if parent_of(pid) in mine]


@pytest.mark.parametrize(
    ("body", "method"),
    [
        (WAITING, "forkserver"),
        (COMPUTING, "forkserver"),
        (IGNORING, "forkserver"),
        (FORKING, "forkserver"),
        (WAITING, "spawn"),
    ],
    ids=["waits_for_an_answer", "holds_the_gil", "ignores_signals", "forks_without_end", "was_spawned"],
)
def test_nothing_is_left_when_the_driver_is_killed_and_the_trial(drive, tmp_path, body, method):
    driver = drive(body, method)
    _, _, everybody = people(driver, tmp_path / "exp")
    watch = Watch(everybody)
    driver.kill()
    assert watch.left() == []
    assert of_experiment(tmp_path / "exp") == []


def left_after(driver, directory, who, number):
    """Send a signal to a driver's supervisors or fork server, kill the driver right after, and return who is left."""
    fork_server, supervisors, everybody = people(driver, directory)
    assert len(supervisors) == 2
    watch = Watch(everybody)
    for pid in supervisors if who == "supervisors" else [fork_server]:
        os.kill(pid, number)
    driver.kill()
    return watch.left()


@pytest.mark.parametrize(
    ("who", "number"),
    [("supervisors", signal.SIGKILL), ("supervisors", signal.SIGSTOP), ("fork_server", signal.SIGKILL)],
)
def test_nothing_is_left_when_the_driver_is_killed_and_others_were_killed_or_stopped(drive, tmp_path, who, number):
    assert left_after(drive(WAITING), tmp_path / "exp", who, number) == []


def test_a_killed_host_gives_lost_only_after_its_strays_are_gone(drive, tmp_path):
    driver = drive(WAITING)
    _, supervisors, everybody = people(driver, tmp_path / "exp")
    orphans = below(supervisors[0], everybody)
    assert len(orphans) == 4  # the worker, its two children, and the daemon, whose parent is the supervisor
    os.kill(supervisors[0], signal.SIGKILL)
    assert driver.stdout.readline().startswith("exited LOST the process that supervised it was killed by SIGKILL")
    assert set(orphans) & set(of_experiment(tmp_path / "exp")) == set()
    assert len(of_experiment(tmp_path / "exp")) == len(everybody) - 5


def test_a_host_killed_after_its_fork_server_gives_lost_with_nothing_left(drive, tmp_path):
    driver = drive(WAITING)
    fork_server, supervisors, everybody = people(driver, tmp_path / "exp")
    orphans = below(supervisors[0], everybody)
    watch = Watch([fork_server])
    os.kill(fork_server, signal.SIGKILL)
    assert watch.left() == []
    watch = Watch(orphans)
    os.kill(supervisors[0], signal.SIGKILL)
    assert driver.stdout.readline().startswith("exited LOST the process that supervised it is gone, and so is the fork")
    assert watch.left() == []


@pytest.mark.parametrize("command", ["stop", "kill"])
def test_a_trial_ends_though_the_fork_server_and_its_supervisor_were_stopped(tmp_path, monkeypatch, command):
    monkeypatch.setattr("sweep.engines.local.engine._KILL_GRACE_S", 0.1)
    with closing(LocalEngine(context(tmp_path, lambda config: report(a=1)))) as engine:
        engine.execute(Start(trial()))
        (_, reported) = collect(engine, has_reported(1), answer=None)
        fork_server = engine._fork_server.pid
        (supervisor,) = children_of(fork_server)
        for pid in (fork_server, supervisor):
            os.kill(pid, signal.SIGSTOP)
        if command == "stop":  # as for Ctrl-C
            engine.post(Asked(Ask.INTERRUPT))
            engine.execute(Stop(reported.trial_id, 1, reported.seq))
        else:
            engine.execute(Kill(reported.trial_id, 1, "it is to end", ExitKind.TIMEOUT))
        try:
            events = collect(engine, has_released(1), answer=None)
        except BaseException:
            for pid in (fork_server, supervisor):  # stopped processes would outlive the test
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            raise
        (ended,) = [event.exit for event in events if isinstance(event, Exited)]
        assert ended.kind is (ExitKind.STOPPED if command == "stop" else ExitKind.TIMEOUT)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_what_a_batch_system_says_to_every_process_ends_no_trial_but_what_it_has_started(tmp_path, number):
    def train(config):
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,))
        child.start()
        program = subprocess.Popen(["sleep", "1000"])
        report({"pids": [child.pid, program.pid]})
        child.terminate()
        child.join()
        report({"codes": [child.exitcode, program.wait()]})

    with closing(LocalEngine(context(tmp_path / "experiment", train))) as engine:
        engine.execute(Start(trial()))
        [reported] = [event for event in collect(engine, has_reported(1), answer=None) if isinstance(event, Reported)]
        send(number, *{*descendants(os.getpid()), *reported.metrics["pids"]})
        engine.execute(Continue(reported.trial_id, reported.attempt, reported.seq))
        events = collect(engine, has_released(1))
    [ended] = [event for event in events if isinstance(event, Reported)]
    assert ended.metrics["codes"] == [-signal.SIGTERM, -number]
    assert [event.exit.kind for event in events if isinstance(event, Exited)] == [ExitKind.FINISHED]


@pytest.mark.parametrize("wait", ["import time; time.sleep(1000)", "import ctypes; ctypes.PyDLL(None).sleep(1000)"])
def test_nothing_is_left_when_the_driver_is_killed_while_modules_are_imported(tmp_path, wait):
    (tmp_path / "slow_to_import.py").write_text(f"open('importing', 'w').close()\n{wait}\n")
    fifo = tmp_path / "importing"
    os.mkfifo(fifo)
    script = tmp_path / "driver.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\nfrom sweep.engines.local.engine import LocalEngine\n"
        "from sweep.core.resources import Node\nfrom sweep.worker.trainable import prepare\n"
        "from sweep.engines.base import EngineContext\n"
        "engine = LocalEngine(EngineContext(directory=Path('exp'), trainable=prepare(lambda config: None), "
        "nodes=[Node()], preload=['slow_to_import']))\nwhile True:\n    engine.next_events(None)\n"
    )
    driver = subprocess.Popen(
        [sys.executable, str(script)], cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.getcwd()}
    )
    try:
        fifo.read_bytes()  # returns when the module has begun to be imported
        watch = Watch(of_experiment(tmp_path / "exp"))
        driver.kill()
        assert watch.left() == []
    finally:
        driver.kill()
        driver.wait()
