"""What is said to a sweep that runs, through the console script: each verb takes effect once, or is refused."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from made_experiment import MadeExperiment

import sweep
from sweep.cli.main import sweep as command_line
from sweep.cli.running.requests import ask
from sweep.core.messages import Asked
from sweep.errors import ConfigError, ExperimentError, SweepError
from sweep.record.facts import plan_and_requests
from sweep.record.layout import DATABASE, REMOTE_NOTE
from sweep.record.reader import ExperimentReader
from sweep.requests.files import KEPT, read, waiting

ROOT = Path(__file__).parents[2]
TRAIN = """
import json, os, pathlib, time, sweep

def train(config):
    start, kept = 0, sweep.get_checkpoint()
    if kept:
        start = int((pathlib.Path(kept.path) / "step").read_text())
    for step in range(start + 1, 10_000):
        time.sleep(0.02)
        if config["lr"] > 0.9 and not kept:
            raise ValueError("diverged")
        with sweep.checkpoint_dir() as directory:
            (pathlib.Path(directory) / "step").write_text(str(step))
        sweep.report(loss=config["lr"])
"""


class Sweeping:
    """A sweep of two CPUs' worth of trials that never end, driven by a process of its own."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.directory = directory
        (directory / "t.py").write_text(TRAIN)
        self.environment = os.environ | {"PYTHONPATH": str(ROOT), "SWEEP_STORAGE": str(directory / "store")}
        self.driver = self.started(
            "run", "t.py:train", "lr=uniform(0,0.5)", "--minimize", "loss", "--name", "one", *arguments
        )
        self.until(lambda: self.states()[:2] == ["running", "running"])

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "sweep.cli.main", *arguments]

    def started(self, *arguments: str) -> subprocess.Popen[bytes]:
        with open(self.directory / "out.log", "ab") as out:
            return subprocess.Popen(
                self.command(*arguments), cwd=self.directory, env=self.environment, stdout=out, stderr=out
            )

    def say(self, *arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            self.command(*arguments), cwd=self.directory, env=self.environment, capture_output=True, text=True
        )
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout + done.stderr

    def trials(self) -> list[sweep.record.rows.TrialRow]:
        root = self.directory / "store" / "one"
        return list(sweep.attach(root).reader.trials()) if (root / DATABASE).exists() else []

    def states(self) -> list[str]:
        return [trial.state for trial in self.trials()]

    def said(self) -> str:
        return (self.directory / "out.log").read_text()

    def until(self, holds: Callable[[], bool], limit_s: float = 30.0) -> None:
        give_up = time.monotonic() + limit_s
        while not holds():
            assert time.monotonic() < give_up, (self.states(), self.said()[-3000:])
            time.sleep(0.05)

    def close(self) -> None:
        if self.driver.poll() is None:
            self.driver.send_signal(signal.SIGCONT)
            self.driver.kill()
        self.driver.wait()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Sweeping]]:
    made: list[Sweeping] = []

    def start(*arguments: str) -> Sweeping:
        made.append(Sweeping(tmp_path, *arguments))
        return made[-1]

    yield start
    for one in made:
        one.close()


def test_a_sweep_is_stopped_from_another_process(start):
    running = start("--trials", "3", "--concurrency", "2")
    attached = sweep.attach(running.directory / "store" / "one")
    assert attached.is_running
    assert attached.stop(0) == "trial 00000 ends at its next report"
    with pytest.raises(ConfigError, match="no trial '77'"):
        attached.pause(77)
    for verb, values in (
        ("retry", {"failed": 3}),
        ("enqueue", {"config": [1]}),
        ("enqueue", {"config": {"lr": {"deep": [None]}, "x": 1}}),
        ("edit", {"num_samples": [1]}),
        ("edit", {"num_samples": "+1", "time_budget_s": -1}),
        ("edit", {"num_samples": "5.5"}),
        ("edit", {"num_samples": 5.5}),
        ("edit", {"num_samples": 0}),
        ("edit", {"max_concurrent_trials": "many"}),
        ("edit", {}),
    ):
        with pytest.raises(ConfigError):
            attached.ask(verb, None, values)
    assert attached.reader.plan().num_trials == 3
    (running.directory / "store" / "one" / "requests" / "1764196800000000000-1f0a.json").write_text('{"verb": "pau')
    running.until(lambda: "is no request" in running.said())
    (running.directory / "store" / "one" / "requests" / "1764196800000000000-1f0a.json").unlink()
    assert attached.cancel() == "the sweep ends now, with 2 trials that ran"
    assert running.driver.wait(30) == 0
    assert running.states() == ["stopped early"] * len(running.states())
    assert waiting(running.directory / "store" / "one") == ([], [])
    with pytest.raises(ExperimentError, match="no driver runs one: there is nothing to stop"):
        attached.stop()


@pytest.mark.slow
def test_every_verb_through_the_console_script(start):
    running = start("--trials", "4", "--concurrency", "2")
    say, until, states = running.say, running.until, running.states

    assert say("pause", "one", "0") == (0, "trial 00000 is paused at its next report that has a checkpoint\n")
    until(lambda: states()[0] == "paused")
    assert say("pause", "one", "0")[0] == 2
    assert say("resume", "one", "0") == (0, "trial 00000 goes on\n")
    until(lambda: states()[0] == "running")

    assert (
        say("pause", "one")[1]
        == "nothing starts until it is resumed; 2 trials run until saved, and to the end if never\n"
    )
    until(lambda: states()[:2] == ["paused", "paused"])
    assert say("enqueue", "one", "lr=0.25")[1] == "it is tried next\n"
    assert say("enqueue", "one", "lr=0.95")[1].startswith(
        "it is tried next; the point sets lr to 0.95, which is outside"
    )
    code, said = say("enqueue", "one", "rl=1")
    assert (code, "Did you mean 'lr'?" in said) == (2, True)
    assert say("edit", "one", "--trials", "+2", "--json")[0] == 0
    assert "running" not in states()
    code, said = say("resume", "one")
    assert (code, said) == (0, "the sweep goes on\n")
    until(lambda: "running" in states())

    code, said = say("edit", "one", "--concurrency", "3")
    assert (code, said) == (0, "3 at a time\n")
    until(lambda: "failed" in states())  # the one that was given with lr=0.95
    failed = states().index("failed")
    assert say("retry", "one", "--failed", "timeout") == (
        2,
        "error: there is nothing to try again: those that failed did so by user.\n",
    )
    assert say("retry", "one", "--failed", "user") == (0, "1 trial again\n")
    until(lambda: states()[failed] == "waiting")
    assert say("stop", "one", "0") == (0, "trial 00000 ends at its next report\n")
    until(lambda: states()[0] == "stopped early")
    assert say("cancel", "one", "1") == (0, "trial 00001 is ended\n")
    until(lambda: states()[1] == "stopped early")
    code, said = say("edit", "one", "--trials", "1")
    assert (code, "were made already; give at least that many" in said) == (2, True)

    assert json.loads(say("stop", "one", "--json")[1])["said"].startswith("nothing new starts; ")
    assert say("cancel", "one")[0] == 0
    assert running.driver.wait(30) == 0
    code, said = say("replay", "one", "--verify")
    assert (code, "all as recorded" in said) == (0, True), said


VERBS = {
    "stop": ["stop", "one"],
    "cancel": ["cancel", "one", "0"],
    "pause": ["pause", "one", "0"],
    "resume": ["resume", "one"],
    "retry": ["retry", "one", "0"],
    "enqueue": ["enqueue", "one", "lr=0.123"],
    "edit": ["edit", "one", "--trials", "+1"],
}


def asked_of_a_driver_that_is_held(running: Sweeping, verb: str) -> subprocess.Popen[bytes]:
    """Ask by the console script for something that makes sense; the request is written and not yet read."""
    if verb == "retry":
        assert running.say("stop", "one", "0")[0] == 0
        running.until(lambda: running.states()[0] == "stopped early")
    if verb == "resume":
        assert running.say("pause", "one")[0] == 0
        running.until(lambda: running.states() == ["paused", "paused"])
    running.driver.send_signal(signal.SIGSTOP)
    asking = running.started(*VERBS[verb])
    running.until(lambda: waiting(running.directory / "store" / "one")[0] != [])
    return asking


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_a_driver_that_is_killed_before_it_looks_has_done_nothing(start, verb):
    running = start("--trials", "2")
    root = running.directory / "store" / "one"
    asking = asked_of_a_driver_that_is_held(running, verb)
    before = running.states()
    running.driver.kill()
    running.driver.wait()
    assert asking.wait(30) == (0 if verb in KEPT else 2)
    assert len(waiting(root)[0]) == (1 if verb in KEPT else 0)
    assert running.states() == before
    running.driver = running.started("resume", "one")
    running.until(lambda: waiting(root) == ([], []) and "resuming" in running.said())
    running.until(lambda: running.states()[:2] == ["running", "running"])
    if verb == "enqueue":
        running.until(lambda: [trial.config["lr"] for trial in running.trials()].count(0.123) == 1)
    if verb == "edit":
        assert sweep.attach(root).reader.plan().num_trials == 3


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_a_driver_that_is_killed_before_it_answers_has_done_it_once(start, verb):
    running = start("--trials", "2")
    root = running.directory / "store" / "one"
    asking = asked_of_a_driver_that_is_held(running, verb)
    request = read(root, waiting(root)[0][0])
    (root / "requests" / f"{request.id}.answer").mkdir()  # it cannot be answered
    running.driver.send_signal(signal.SIGCONT)
    running.until(lambda: "a request cannot be answered" in running.said())
    running.driver.kill()
    running.driver.wait()
    assert asking.wait(30) == 0
    assert "it was done; the driver of one has ended since" in running.said()
    (root / "requests" / f"{request.id}.answer").rmdir()
    running.driver = running.started("resume", "one")
    running.until(lambda: waiting(root) == ([], []))
    running.until(lambda: "running" in running.states() and sweep.attach(root).is_running)
    states = running.states()
    match verb:
        case "cancel":
            assert states[0] == "stopped early"
        case "pause":  # what is paused goes on when the sweep is resumed
            running.until(lambda: running.states() == ["running", "running"])
        case "retry":
            assert states[0] == "running"
        case "enqueue":
            running.until(lambda: len(running.trials()) == 3)
            assert [trial.config["lr"] for trial in running.trials()].count(0.123) == 1
        case "edit":
            assert sweep.attach(root).reader.plan().num_trials == 3
        case "stop" | "resume":
            running.until(lambda: running.states() == ["running", "running"])
    said = [json.loads(event.detail)["id"] for event in asked_of(root)]
    assert said.count(request.id) == 1


def asked_of(root: Path) -> tuple[Asked, ...]:
    with ExperimentReader(root).connect() as connection:
        return plan_and_requests(connection)[1]


@pytest.mark.slow
def test_what_has_ended_goes_on_with_what_it_was_told_since(start):
    running = start("--trials", "2")
    assert running.say("stop", "one", "0", "1")[0] == 0
    assert running.driver.wait(30) == 0
    for verb, *more in (["retry", "0"], ["enqueue", "lr=0.123"], ["edit", "--trials", "+1"]):
        assert running.say(verb, "one", *more)[1].startswith("no driver runs one; it is done at its next start")
    running.driver = running.started("resume", "one")
    running.until(lambda: running.states()[:2] == ["running", "stopped early"] and len(running.states()) == 4)
    assert [trial.config["lr"] for trial in running.trials()].count(0.123) == 1
    assert running.say("cancel", "one")[0] == 0
    assert running.driver.wait(30) == 0
    assert running.say("replay", "one", "--verify")[0] == 0


@pytest.mark.slow
def test_a_sweep_that_was_paused_goes_on_when_it_is_resumed_after_a_kill(start):
    running = start("--trials", "2")
    assert running.say("pause", "one")[0] == 0
    running.until(lambda: running.states() == ["paused", "paused"])
    assert running.say("resume", "one", "0") == (
        2,
        "error: trial 00000 is paused: so is the whole sweep; `sweep resume` without a trial lets all go on.\n",
    )
    running.driver.kill()
    running.driver.wait()
    running.driver = running.started("resume", "one", "0")
    running.until(lambda: running.states() == ["running", "paused"])
    running.driver.kill()
    running.driver.wait()
    running.driver = running.started("resume", "one")
    running.until(lambda: running.states() == ["running", "running"])


def test_what_a_sweep_that_does_not_run_is_told_waits_for_its_next_start(tmp_path, monkeypatch):
    root = MadeExperiment(tmp_path, "made").commit()
    monkeypatch.setenv("SWEEP_STORAGE", str(tmp_path))
    said = CliRunner().invoke(command_line, ["enqueue", "made", "lr=0.1"])
    assert said.output == "no driver runs made; it is done at its next start: `sweep resume made`\n"
    assert len(waiting(root)[0]) == 1
    refused = CliRunner().invoke(command_line, ["pause", "made"])
    assert str(refused.exception).startswith("no driver runs made: there is nothing to pause.")
    assert len(waiting(root)[0]) == 1


def test_a_copy_of_what_lies_elsewhere_takes_no_request(tmp_path):
    root = MadeExperiment(tmp_path, "made").commit()
    (root / REMOTE_NOTE).write_text("{}")
    with pytest.raises(ExperimentError, match="is a copy: ask where it runs"):
        sweep.attach(root).enqueue({"lr": 0.1})
    assert waiting(root) == ([], [])


def test_the_page_of_a_sweep_that_does_not_run_asks_for_what_is_kept(tmp_path):
    made = MadeExperiment(tmp_path, "made")
    made.trial({"net": {"lr": 0.1 + 0.2}, "act": "re lu"})
    reader = ExperimentReader(made.commit())
    config = ask(reader, {"verb": "config", "trials": [0]})
    assert config == "net.lr=0.30000000000000004 'act=re lu'"
    kept = "no driver runs made; it is done at its next start: `sweep resume made`"
    assert ask(reader, {"verb": "enqueue", "typed": {"config": config}}) == kept
    typed = {"trials": "+5", "time": "2h", "concurrency": "3"}
    assert ask(reader, {"verb": "edit", "typed": typed}) == kept
    enqueued, edited = (read(reader.root, name) for name in waiting(reader.root)[0])
    assert enqueued.values == {"config": {"net": {"lr": 0.1 + 0.2}, "act": "re lu"}}
    assert edited.values == {"num_samples": "+5", "time_budget_s": 7200.0, "max_concurrent_trials": 3}
    for given, said in (
        ({"verb": "stop", "trials": []}, "cannot be asked for here"),  # nothing is selected any more: not the sweep
        ({"verb": "run"}, "cannot be asked for here"),
        ({"verb": "stop"}, "no driver runs made: there is nothing to stop"),
        ({"verb": "retry", "trials": ["../x"]}, "no trial '../x'"),
        ({"verb": "enqueue", "typed": {"config": "lr=uniform(0,1)"}}, "expected one value"),
    ):
        with pytest.raises(SweepError, match=re.escape(said)):
            ask(reader, given)
    assert len(waiting(reader.root)[0]) == 2


@pytest.mark.slow
def test_the_page_of_sweep_watch_asks_a_sweep_that_runs(start):
    running = start("--trials", "4", "--concurrency", "2")
    for arguments, is_asked in (([], True), (["--read-only"], False)):
        watch = subprocess.Popen(
            running.command("watch", "one", *arguments), env=running.environment, stdout=subprocess.PIPE, text=True
        )
        try:
            host, token = re.search(r"http://(\S+)/\?token=(\S+)", watch.stdout.readline()).groups()

            def post(verb, host=host, token=token, **more):
                body = json.dumps({"index": 0, "verb": verb, **more}).encode()
                headers = {"Origin": f"http://{host}", "X-Sweep-Token": token}
                with closing(http.client.HTTPConnection(host, timeout=60)) as connection:
                    connection.request("POST", "/ask", body, headers)
                    answer = connection.getresponse()
                    return answer.status, answer.read().decode()

            if not is_asked:
                assert post("stop")[0] == 404
                continue
            assert post("stop", trials=[0]) == (200, "trial 00000 ends at its next report")
            running.until(lambda: running.states()[0] == "stopped early")
            assert post("pause", trials=[0])[0] == 409
            assert post("enqueue", typed={"config": "lr=0.123"}) == (200, "it is tried next")
            running.until(lambda: [trial.config["lr"] for trial in running.trials()].count(0.123) == 1)
            status, said = post("edit", typed={"trials": "", "time": "", "concurrency": "x"})
            assert (status, said) == (409, "the concurrency is 'x'; expected a whole number of at least 1.")
            assert post("edit", typed={"trials": "", "time": "", "concurrency": "3"}) == (200, "3 at a time")
        finally:
            watch.send_signal(signal.SIGINT)
            watch.wait(30)
            watch.stdout.close()
    assert sweep.attach(running.directory / "store" / "one").is_running


def test_values_that_are_ranges_and_unknown_kinds_are_refused(tmp_path, monkeypatch):
    MadeExperiment(tmp_path, "made").commit()
    monkeypatch.setenv("SWEEP_STORAGE", str(tmp_path))
    for arguments, said in (
        (["enqueue", "made", "lr=uniform(0,1)"], "expected one value, such as lr=0.01"),
        (["enqueue", "made", "lr=1,2"], "expected one value"),
        (["retry", "made", "--failed", "gone"], "expected some of user, killed"),
        (["edit", "made", "--time", "soon"], "is no span of time"),
        (["stop", "made", "99"], "no trial '99'"),
    ):
        assert said in str(CliRunner().invoke(command_line, arguments).exception)
