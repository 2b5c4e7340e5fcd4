"""Ctrl-C on real processes: on a terminal, in a pipe, and where nothing is to be printed."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from virtual_terminal import VirtualTerminal

import sweep
from sweep.engines.loop import Loop
from sweep.launch.interrupt import interruptible, woken_by_signals

SCRIPT = """
import fcntl, os, sys, termios, time
import sweep

if os.isatty(0):
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # Ctrl-C is for this process

def silent(config):
    time.sleep(1000)

def reports(config):
    step = 0
    while True:
        time.sleep(0.02)
        step += 1
        sweep.report(step=step)

class Saves(sweep.Trainable):
    def step(self):
        time.sleep(0.02)
        return {"loss": 1.0}
    def save_checkpoint(self, checkpoint_dir):
        time.sleep(0.3)
        return {}
    def load_checkpoint(self, checkpoint):
        pass

if __name__ == "__main__":
    which, how = sys.argv[1:3]
    if how == "tuner":
        sweep.init(num_cpus=2)
        running = {"name": "one"} | eval(sys.argv[3])
        tuning = {"tune_config": sweep.TuneConfig(num_samples=4), "run_config": sweep.RunConfig(**running)}
        result = sweep.Tuner(globals()[which], **tuning).fit()
    else:
        arguments = {"num_samples": 4, "name": "one", "nodes": [sweep.Node(cpus=2)], "engine": how} | eval(sys.argv[3])
        result = sweep.run(globals()[which], **arguments)
    print("returned", result.interrupted)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def environment(tmp_path: Path, grace_s: float) -> dict[str, str]:
    settings = {"SWEEP_FORCE_TRIAL_CLEANUP_S": str(grace_s), "SWEEP_STORAGE": str(tmp_path), "TERM": "xterm"}
    return {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")} | settings


RUNS = r"^{}  running +\S+ +\S+ *$"  # and not only starts, which would stand at the end


class Session:
    """A program on a terminal of 80 columns, and the person before it."""

    def __init__(self, command: list[str], env: dict[str, str], cwd: Path) -> None:
        self.terminal = VirtualTerminal(80, 24)
        self.frames: list[str] = []
        self._master, slave = os.openpty()
        termios.tcsetwinsize(slave, (24, 80))
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=env, cwd=cwd, start_new_session=True
        )
        os.close(slave)

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def watch(self, until: str = "", limit_s: float = 30.0) -> bool:
        """Look at the screen until it shows what matches, or until the program has ended; whether it was shown."""
        give_up = time.monotonic() + limit_s
        while time.monotonic() < give_up:
            if until and re.search(until, "\n".join(self.terminal.shown()), re.M):
                return True
            if not select.select([self._master], [], [], 0.1)[0]:
                continue
            try:
                data = os.read(self._master, 1 << 16)
            except OSError:  # the program has ended
                data = b""
            if not data:
                self.process.wait(10)
                return not until
            self.terminal.feed(data.decode(errors="replace").replace("\r\n", "\n"))
            self.frames.append("\n".join(self.terminal.shown()))
        raise AssertionError(f"nothing of {until!r}:\n" + "\n".join(self.terminal.shown()))

    def hang_up(self) -> None:
        """Close the window."""
        os.close(self._master)
        self._master = -1

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self._master >= 0:
            os.close(self._master)


@pytest.fixture
def start(tmp_path: Path, script: Path):
    sessions: list[Session] = []

    def start(which: str, how: str = "local", arguments: str = "{}", grace_s: float = 30.0) -> Session:
        command = [sys.executable, str(script), which, how, arguments]
        sessions.append(Session(command, environment(tmp_path, grace_s), tmp_path))
        return sessions[-1]

    yield start
    for session in sessions:
        session.close()


def final(session: Session) -> list[str]:
    return [line for line in session.terminal.shown() if line]


@pytest.mark.slow
def test_a_function_that_never_reports_is_killed_after_the_grace_that_is_shown(start, tmp_path):
    session = start("silent", grace_s=3.0)
    assert session.watch(RUNS.format("00001"))
    session.type("\x03")
    session.watch()
    assert session.process.returncode == -signal.SIGINT
    stopping = [frame for frame in session.frames if "STOPPING" in frame]
    left = {
        seconds for frame in stopping for seconds in re.findall(r"STOPPING  in (\d)s what still runs is killed", frame)
    }
    assert len(left & {"1", "2", "3"}) >= 2  # it is counted down, though nothing happens
    # What is read at a time may be a part of a frame, so not the first of them.
    assert any("waiting for 00000 00001 to end at the next report" in frame for frame in stopping[:4])
    assert not any("save" in frame for frame in session.frames)
    screen = final(session)
    assert screen[0].startswith("sweep one   interrupted after 0:0")
    assert screen[-2:] == ["4 trials had not ended", "resume: the same call with name='one', resume=True"]
    assert sum(line.startswith("sweep one") for line in screen) == 1
    trials = sweep.ExperimentAnalysis(tmp_path / "one").trials
    assert [trial.status for trial in trials] == ["PENDING"] * 4
    assert trials[0].reason == "did not end within its grace"


def test_the_second_ctrl_c_kills_at_once(start):
    session = start("silent")
    assert session.watch(RUNS.format("00001"))
    session.type("\x03")
    assert session.watch("STOPPING  in ")
    session.type("\x03")
    session.watch(limit_s=20.0)
    assert session.process.returncode == -signal.SIGINT
    assert sum("resume" in line for line in final(session)) == 1


def test_the_third_ctrl_c_ends_the_driver_and_gives_the_terminal_back(start):
    session = start("silent", how="inline")
    assert session.watch(RUNS.format("00000"))
    session.type("\x03")
    assert session.watch("STOPPING  trials end at their next report; the third .C ends everything at once")
    session.type("\x03")
    assert session.watch("^00000  running .* stopping")  # it does not: code of this process cannot be killed
    session.type("\x03")
    session.watch()
    assert session.process.returncode == 130
    assert session.terminal.is_cursor_visible
    assert session.terminal.shown()[-1] == ""  # the prompt comes below the block


def test_that_trials_save_is_said_of_those_that_can(start, tmp_path):
    session = start("Saves")
    assert session.watch(RUNS.format("00001"))
    session.type("\x03")
    session.watch()
    assert any("waiting for 00000 00001 to save and end" in frame for frame in session.frames)
    trials = sweep.ExperimentAnalysis(tmp_path / "one").trials
    assert [trial.checkpoint is not None for trial in trials] == [True, True, False, False]


def driver(tmp_path: Path, *arguments: str, grace_s: float = 1.0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(tmp_path, grace_s),
        cwd=tmp_path,
    )


def wait_until_two_run(experiment: Path, *, is_inline: bool = False) -> None:
    """Wait until the driver knows that two trials run; one that still starts is killed at once. Where trials run in the
    driver, which has no file of their output, wait for the first report."""
    give_up = time.monotonic() + 30
    while time.monotonic() < give_up:
        if is_inline and list(experiment.glob("*/result.json")):
            return
        if len(list(experiment.glob("*/output.log"))) >= 2 and statuses(experiment).count("RUNNING") >= 2:
            return
        select.select([], [], [], 0.02)
    raise AssertionError("nothing runs")


def lines_after(process: subprocess.Popen[str], number: int, tmp_path: Path, *, is_inline: bool = False) -> list[str]:
    """Signal a driver once two of its trials run; return all that it has printed at its end."""
    wait_until_two_run(tmp_path / "one", is_inline=is_inline)
    process.send_signal(number)
    return process.communicate(timeout=30)[0].splitlines()


def test_a_pipe_is_told_once_and_the_resume_instruction_once(script, tmp_path):
    process = driver(tmp_path, str(script), "silent", "local", "{}")
    lines = lines_after(process, signal.SIGINT, tmp_path)
    (stopping,) = [line for line in lines if "STOPPING" in line]
    assert re.fullmatch(
        r"\d:\d\d STOPPING  in [123]s what still runs is killed; \^C again kills it now; "
        r"waiting for 00000 00001 to end at the next report",
        stopping,
    )
    assert lines[-1] == "resume: the same call with name='one', resume=True"
    assert sum("resume" in line for line in lines) == 1


def test_a_tuner_is_continued_by_its_restore_and_the_words_that_are_printed_do_it(script, tmp_path):
    process = driver(tmp_path, str(script), "reports", "tuner", "{}")
    lines = lines_after(process, signal.SIGINT, tmp_path)
    (resume,) = [line for line in lines if "resume" in line]
    assert resume == "resume: sweep.Tuner.restore('one', reports).fit()"
    code = f"import sweep\ndef reports(config): sweep.report(step=1)\n{resume.removeprefix('resume: ')}"
    again = driver(tmp_path, "-c", code)
    output = again.communicate(timeout=30)[0]
    assert again.returncode == 0, output
    assert [trial.status for trial in sweep.ExperimentAnalysis(tmp_path / "one").trials] == ["TERMINATED"] * 4


@pytest.mark.parametrize(
    "reporter",
    [
        pytest.param("sweep.CLIReporter()", id="CLIReporter"),
        pytest.param("type('Mute', (sweep.Callback,), {})()", id="mute", marks=pytest.mark.slow),
    ],
)
def test_a_reporter_of_ones_own_leaves_it_to_standard_error(script, tmp_path, reporter):
    process = driver(tmp_path, str(script), "silent", "local", f"{{'progress_reporter': {reporter}}}")
    lines = lines_after(process, signal.SIGINT, tmp_path)
    assert len([line for line in lines if re.match(r"sweep: STOPPING  in [123]s", line)]) == 1, lines
    assert sum("resume=True" in line for line in lines) == 1, lines


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)])
def test_the_command_line_says_how_to_resume_once_and_exits_with_130(script, tmp_path, number):
    process = driver(tmp_path, "-m", "sweep.cli.main", "run", f"{script}:reports", "x=1,2", "--name", "one")
    lines = lines_after(process, number, tmp_path)
    assert process.returncode == 130
    assert [line for line in lines if "resume" in line] == ["resume: sweep resume one"]


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["x=1", "--minimize", "lost"], marks=pytest.mark.slow),  # no trial reports it
        ["x=1", "--minimize", "step", "--gpus", "999"],
        ["x=1", "--minimize", "step", "--searcher", "nobody"],
        ["x=uniform(2,1)"],
    ],
    ids=["metric", "request", "searcher", "range"],
)
def test_a_wrong_argument_is_no_reason_to_resume(script, tmp_path, arguments):
    process = driver(tmp_path, "-m", "sweep.cli.main", "run", f"{script}:reports", *arguments)
    output = process.communicate(timeout=30)[0]
    assert process.returncode != 0
    assert "error:" in output.lower()
    assert "resume" not in output


class Posting:
    """An engine that only takes what is posted, and wakes whoever waits for its loop."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.waker = self.loop.waker
        self.post = self.loop.post


@pytest.fixture
def posting() -> Iterator[Posting]:
    engine = Posting()
    yield engine
    engine.loop.close()


def test_a_signal_that_comes_just_before_the_driver_waits_is_not_slept_through(posting):
    """The handler runs on the way into the waiting: Python has looked for signals, and the kernel has not begun."""
    heard: list[int] = []
    with interruptible(posting, lambda times, number: heard.append(times), lambda: None), woken_by_signals(posting):
        # The C part of a signal handler has only this effect until Python code runs on the main thread.
        os.write(signal.set_wakeup_fd(posting.waker), b"\2")
        posting.loop.run_once(None)  # returns
        os.kill(os.getpid(), signal.SIGINT)
        posting.loop.run_once(None)
    assert heard == [1]
    assert len(posting.loop.take_posted()) == 1
    assert signal.set_wakeup_fd(-1) == -1


def statuses(experiment: Path) -> list[str]:
    return [trial.status for trial in sweep.ExperimentAnalysis(experiment).trials]


@pytest.mark.parametrize("how", ["local", *(pytest.param(how, marks=pytest.mark.slow) for how in ("tuner", "inline"))])
def test_a_hang_up_stops_in_order_as_sigterm_does(script, tmp_path, how):
    process = driver(tmp_path, str(script), "reports", how, "{}")
    lines = lines_after(process, signal.SIGHUP, tmp_path, is_inline=how == "inline")
    assert process.returncode == 128 + signal.SIGHUP, lines
    assert "returned" not in lines
    assert statuses(tmp_path / "one") == ["PENDING"] * 4


def test_hang_ups_that_follow_the_first_do_not_kill(posting):
    """A shell whose window is closed sends one to its jobs, and so does the kernel when that shell is gone."""
    heard: list[int] = []
    with interruptible(posting, lambda times, number: heard.append(times), lambda: None):
        for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGHUP):
            signal.raise_signal(number)
        assert heard == [1]
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGHUP)
    assert heard == [1, 2]
    assert len(posting.loop.take_posted()) == 2


@pytest.mark.parametrize("before", [signal.SIG_IGN, signal.SIG_DFL, lambda number, frame: None])
def test_a_hang_up_that_is_ignored_stays_ignored_and_another_handler_comes_back(posting, before):
    old = signal.signal(signal.SIGHUP, before)
    try:
        with interruptible(posting, lambda times, number: None, lambda: None):
            assert (signal.getsignal(signal.SIGHUP) is signal.SIG_IGN) == (before is signal.SIG_IGN)
        assert signal.getsignal(signal.SIGHUP) is before
    finally:
        signal.signal(signal.SIGHUP, old)


@pytest.mark.slow
def test_under_nohup_a_hang_up_does_nothing(script, tmp_path):
    process = driver(tmp_path, "-c", f"import os, sys; os.execvp('nohup', ['nohup', sys.executable, {str(script)!r}, "
                                     "'reports', 'local', '{}'])")  # fmt: skip
    wait_until_two_run(tmp_path / "one")
    process.send_signal(signal.SIGHUP)
    reported = tmp_path / "one" / "sweep.db-wal"
    size, give_up = reported.stat().st_size, time.monotonic() + 10
    while reported.stat().st_size < size + 100_000 and time.monotonic() < give_up:
        select.select([], [], [], 0.02)
    assert reported.stat().st_size >= size + 100_000  # the trials go on
    process.send_signal(signal.SIGTERM)
    lines = process.communicate(timeout=30)[0].splitlines()
    assert process.returncode == 128 + signal.SIGTERM, lines


@pytest.mark.slow
def test_a_window_that_is_closed_stops_the_sweep_in_order(start, tmp_path):
    session = start("reports")
    assert session.watch(RUNS.format("00001"))
    session.hang_up()
    ended_with = session.process.wait(30)
    assert ended_with in (128 + signal.SIGHUP, 120)  # Python's own, if its last words have nowhere to go
    assert statuses(tmp_path / "one") == ["PENDING"] * 4


# Three sweeps, as a script has them, under whatever runs it.
LOOP = """
import atexit, sys, threading, time
import sweep

atexit.register(lambda: print("exit function", flush=True))

def reports(config):
    step = 0
    while True:
        time.sleep(0.02)
        step += 1
        sweep.report(step=step)

for name in ("one", "two", "three"):
    settings = {"num_samples": 2, "nodes": [sweep.Node(cpus=2)], "verbose": 0}
    sweep.run(reports, name=name, **settings)
"""


@pytest.mark.parametrize(
    ("command", "number", "code"),
    [
        pytest.param("exec {}", signal.SIGINT, -signal.SIGINT, marks=pytest.mark.slow),
        ("exec {}", signal.SIGTERM, 143),
        pytest.param("exec nohup {}", signal.SIGTERM, 143, marks=pytest.mark.slow),
        pytest.param("timeout --preserve-status 1000 {}", signal.SIGTERM, 143, marks=pytest.mark.slow),
        pytest.param("for i in 1 2; do {}; done", signal.SIGINT, -signal.SIGINT, marks=pytest.mark.slow),
        pytest.param(
            "printf 'all:\\n\\t%s\\n' '{}' | make -f -", signal.SIGINT, -signal.SIGINT, marks=pytest.mark.slow
        ),
    ],
    ids=["interrupt", "terminate", "nohup", "timeout", "shell-loop", "make"],
)
def test_a_script_of_three_sweeps_ends_with_the_first(tmp_path, command, number, code):
    (tmp_path / "script.py").write_text(LOOP)
    shown = command.format(f"{sys.executable} script.py")
    process = subprocess.Popen(
        ["bash", "-c", shown],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(tmp_path, 1.0),
        cwd=tmp_path,
        start_new_session=True,  # Ctrl-C goes to all of a terminal's processes
    )
    wait_until_two_run(tmp_path / "one")
    os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
    output = process.communicate(timeout=30)[0]
    assert process.returncode == code, output
    assert "exit function" in output
    assert "Traceback" not in output
    assert not (tmp_path / "two").exists()
    assert statuses(tmp_path / "one") == ["PENDING"] * 2


@pytest.mark.parametrize("how", ["local", pytest.param("tuner", marks=pytest.mark.slow)])
def test_a_script_may_ask_to_go_on_after_ctrl_c(script, tmp_path, how):
    process = driver(tmp_path, str(script), "reports", how, "{'on_interrupt': 'return', 'verbose': 0}")
    assert lines_after(process, signal.SIGINT, tmp_path) == ["returned True"]
    assert process.returncode == 0


def test_what_is_raised_has_the_analysis(tmp_path, monkeypatch):
    def reports(config):
        while True:
            sweep.report(step=1)

    class Signals(sweep.Callback):
        def __init__(self, number):
            self.number = number

        def on_trial_result(self, trial, result):
            if result["training_iteration"] == 3:
                os.kill(os.getpid(), self.number)

    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    given = {"storage_path": tmp_path, "verbose": 0}
    with pytest.raises(sweep.SweepInterrupted) as caught:
        sweep.run(reports, callbacks=[Signals(signal.SIGINT)], name="one", **given)
    assert isinstance(caught.value, KeyboardInterrupt)
    assert not isinstance(caught.value, SystemExit)
    assert caught.value.analysis.interrupted
    assert caught.value.analysis is sweep.last_analysis()
    hook = sys.excepthook
    tuner = sweep.Tuner(reports, run_config=sweep.RunConfig("two", **given, callbacks=[Signals(signal.SIGTERM)]))
    with pytest.raises(sweep.SweepInterrupted) as caught:
        tuner.fit()
    assert isinstance(caught.value, SystemExit)
    assert not isinstance(caught.value, KeyboardInterrupt)
    assert caught.value.code == 143
    assert sys.excepthook is hook  # one is enough, however often somebody catches it
    assert tuner.get_results().interrupted
    assert caught.value._render_traceback_() == [f"SweepInterrupted: {caught.value}"]  # all that a notebook shows


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_searcher_that_never_answers_is_named_and_left_at_the_second_signal(tmp_path, number):
    code = """
import sys, time
import sweep
import sweep.callbacks.dispatch as dispatch

dispatch._SLOW_S = 0.1

class Hangs(sweep.Searcher):
    def suggest(self, trial_id):
        open("begun", "w").close()
        while True:
            time.sleep(0.01)
    def on_trial_complete(self, trial_id, result=None, error=False):
        pass

def train(config):
    sweep.report(loss=1)

sweep.run(train, search_alg=Hangs(), metric="loss", mode="min", name="one")
"""
    process = driver(tmp_path, "-c", code)
    said = ""
    while "everything waits for the searcher Hangs, which has not returned for 0.1 s or more" not in said:
        said += process.stdout.readline()
    process.send_signal(number)
    while "STOPPING" not in said:
        said += process.stdout.readline()
    process.send_signal(number)
    said += process.communicate(timeout=20)[0]
    assert process.returncode == (-signal.SIGINT if number == signal.SIGINT else 143), said
    assert "Traceback" not in said
    assert statuses(tmp_path / "one") == []


def test_a_callback_that_never_returns_is_named_at_the_end_and_left_at_the_second_signal(tmp_path):
    code = """
import threading
import sweep
import sweep.callbacks.dispatch as dispatch

dispatch._SLOW_S = 0.5

class Hangs(sweep.Callback):
    def on_trial_result(self, trial, result):
        threading.Event().wait()

def train(config):
    sweep.report(loss=1)

sweep.run(train, callbacks=[Hangs()], metric="loss", mode="min", name="one", verbose=0)
"""
    process = driver(tmp_path, "-c", code)
    said = process.stdout.readline()
    if "the end of the sweep waits for Hangs.on_trial_result, at most 29.5 s more" not in said:
        process.kill()
        pytest.fail(said + process.communicate()[0])
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)  # two of one kind at once may be one
    said = process.communicate(timeout=20)[0]
    assert process.returncode == -signal.SIGINT, said
    assert "Traceback" not in said
    assert statuses(tmp_path / "one") == ["TERMINATED"]
