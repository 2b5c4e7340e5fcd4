"""The scribe and its driver: when it is started, and what happens when either is stopped or killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from leftovers import MARK, marked, wait_until_gone

import sweep
from sweep.record.proc import children_of, read
from sweep.scribe import scribe
from sweep.scribe.scribe import Scribe
from sweep.worker import limits
from sweep.worker.environment import DRIVER_VARIABLE, EXPERIMENT_VARIABLE
from sweep.worker.nested import process_mark

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the process model is tested on Linux")
ROOT = Path(__file__).parents[2]
COUNT = 30


def scribe_pids() -> list[int]:
    return [pid for pid in children_of(os.getpid()) if b"sweep.scribe.main" in read(f"/proc/{pid}/cmdline")]


def until(what: Callable[[], Any], limit_s: float = 30.0) -> Any:
    """Wait for something to be so, and return it."""
    give_up = time.monotonic() + limit_s
    while not (found := what()):
        assert time.monotonic() < give_up
        time.sleep(0.01)
    return found


def num_lines(root: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in root.glob("*/result.json"))


def steps(root: Path) -> list[int]:
    """Return the steps of the one trial, as each of its files has them, which must agree."""
    (path,) = root.glob("*/result.json")
    found = [json.loads(line)["training_iteration"] for line in path.read_text().splitlines()]
    rows = (path.parent / "progress.csv").read_text().splitlines()
    at = rows[0].split(",").index("training_iteration")
    assert [int(row.split(",")[at]) for row in rows[1:]] == found
    assert json.loads((path.parent / "params.json").read_text()) == {}
    return found


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scribe is started with the first report."""
    monkeypatch.setattr(scribe, "_LATER_S", 0.01)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """No sweep lasts so long that a scribe is started."""
    monkeypatch.setattr(scribe, "_LATER_S", 1000.0)


def run(trainable: Any, tmp_path: Path, **more: Any) -> sweep.ExperimentAnalysis:
    options: dict[str, Any] = {"engine": "inline", "storage_path": tmp_path, "name": "one", "verbose": 0}
    return sweep.run(trainable, **(options | more))


def reporting(tmp_path: Path, at: dict[int, Callable[[], Any]], count: int = COUNT) -> Callable[[Any], None]:
    """Return a trainable that does something before some of its reports."""

    def train(config: dict[str, Any]) -> None:
        for step in range(1, count + 1):
            at.get(step, lambda: None)()
            sweep.report(loss=1.0)

    return train


# --- which process writes --------------------------------------------------------------------------------------------


def test_a_short_sweep_starts_no_process_and_has_its_files(
    tmp_path: Path, later: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    monkeypatch.setattr(Scribe, "_start_process", lambda self: started.append(1))
    run(reporting(tmp_path, {}), tmp_path)
    assert started == []
    assert steps(tmp_path / "one") == list(range(1, COUNT + 1))


def test_where_no_thread_is_free_files_are_written_at_the_end(
    tmp_path: Path, soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = threading.Thread.start

    def start(self: threading.Thread) -> None:
        if self.name == "sweep-scribe":
            raise RuntimeError("can't start new thread")
        real(self)

    monkeypatch.setattr(threading.Thread, "start", start)
    run(reporting(tmp_path, {}), tmp_path)
    assert steps(tmp_path / "one") == list(range(1, COUNT + 1))


def test_where_few_processes_are_allowed_files_are_written_whenever_a_trial_ends(
    tmp_path: Path, soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "are_processes_few", lambda: True)

    def train(config: dict[str, Any]) -> None:
        if config["x"]:
            until(lambda: num_lines(tmp_path / "one") == 1)
        assert scribe_pids() == []
        sweep.report(loss=1.0)

    run(train, tmp_path, config={"x": sweep.grid_search([0, 1])})
    assert num_lines(tmp_path / "one") == 2


def test_a_process_of_its_own_writes_while_the_sweep_runs_and_is_gone_when_it_is_over(
    tmp_path: Path, soon: None
) -> None:
    root = tmp_path / "one"

    def look() -> None:
        until(lambda: num_lines(root) == 9)
        (pid,) = scribe_pids()
        environ = read(f"/proc/{pid}/environ").split(b"\0")
        assert f"{EXPERIMENT_VARIABLE}={root}".encode() in environ
        assert f"{DRIVER_VARIABLE}={process_mark(os.getpid())}".encode() in environ
        assert os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, 0)

    run(reporting(tmp_path, {10: look}), tmp_path)
    assert scribe_pids() == []
    assert not [thread for thread in threading.enumerate() if thread.name == "sweep-scribe"]
    assert steps(root) == list(range(1, COUNT + 1))


def test_it_loads_nothing_heavy() -> None:
    code = "import sys, sweep.scribe.main; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {
        "numpy",
        "pandas",
        "torch",
        "optuna",
        "psutil",
        "tensorboardX",
        "cloudpickle",
    }


# --- what is killed --------------------------------------------------------------------------------------------------


def kill(number: int = signal.SIGKILL) -> None:
    (pid,) = scribe_pids()
    os.kill(pid, number)
    if number == signal.SIGKILL:
        until(lambda: pid not in scribe_pids())


def test_one_that_is_killed_is_replaced_and_nothing_is_missing_or_twice(tmp_path: Path, soon: None) -> None:
    root = tmp_path / "one"

    def at(step: int) -> Callable[[], None]:
        def act() -> None:
            until(lambda: num_lines(root) == step - 1)
            kill()

        return act

    run(reporting(tmp_path, {6: at(6), 12: at(12), 20: lambda: until(lambda: num_lines(root) == 19)}), tmp_path)
    assert steps(root) == list(range(1, COUNT + 1))


@pytest.mark.chaos
def test_one_that_is_killed_at_the_end_leaves_the_rest_to_the_driver(tmp_path: Path, soon: None) -> None:
    root = tmp_path / "one"

    def stop_and_kill() -> None:
        until(lambda: num_lines(root) == 9)
        (pid,) = scribe_pids()
        os.kill(pid, signal.SIGSTOP)  # so that it writes nothing more
        threading.Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()  # while the driver waits for it

    run(reporting(tmp_path, {10: stop_and_kill}), tmp_path)
    assert steps(root) == list(range(1, COUNT + 1))
    assert scribe_pids() == []


@pytest.mark.chaos
@pytest.mark.parametrize("waiter", ["the end", "a callback"])
def test_one_that_was_stopped_is_not_waited_for_for_ever(
    tmp_path: Path, soon: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], waiter: str
) -> None:
    root = tmp_path / "one"
    monkeypatch.setattr(scribe, "_END_S", 0.2)
    monkeypatch.setattr(scribe, "_PATIENCE_S", 0.2)

    class Mine(sweep.Callback):
        def on_trial_complete(self, trial: Any) -> None: ...

    def stop() -> None:
        until(lambda: num_lines(root) == 9)
        kill(signal.SIGSTOP)

    callbacks = [Mine()] if waiter == "a callback" else []
    run(reporting(tmp_path, {10: stop}), tmp_path, callbacks=callbacks, verbose=1)
    assert steps(root) == list(range(1, COUNT + 1))
    assert scribe_pids() == []
    said = "log files are behind: callbacks waited 0.2 s for them and go on"
    assert (said in capsys.readouterr().out) == (waiter == "a callback")


@pytest.mark.chaos
def test_after_three_deaths_the_driver_writes_and_says_so(
    tmp_path: Path, soon: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scribe, "_BOOT", "raise SystemExit(3)  # {nice} {path} {descriptor} {parent}")
    root = tmp_path / "one"
    run(reporting(tmp_path, {10: lambda: until(lambda: num_lines(root) == 9)}), tmp_path, verbose=1)
    assert steps(root) == list(range(1, COUNT + 1))
    said = capsys.readouterr().out
    assert said.count("the process that writes log files ended 3 times (3): the driver writes them") == 1


SCRIPT = """
import sys, time
import sweep

def train(config):
    for step in range(1, 41):
        sweep.report(loss=1.0)
        if step == 20 and len(sys.argv) < 2:
            print("here", flush=True)
            time.sleep(1000)

sweep.run(train, engine="inline", storage_path=".", name="one", verbose=0,
          resume=len(sys.argv) > 1, num_samples=1 + len(sys.argv[1:]))
"""


def test_one_is_gone_with_its_driver_and_a_resume_completes_the_files(tmp_path: Path) -> None:
    """Of a script without a guard, that is read from standard input."""
    mark, root = uuid.uuid4().hex, tmp_path / "one"
    environ = {**os.environ, MARK: mark, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-"], cwd=tmp_path, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    process.stdin.write(SCRIPT)
    process.stdin.close()
    try:
        until(lambda: num_lines(root) == 20)
        (pid,) = [pid for pid, line in marked(mark).items() if "sweep.scribe.main" in line]
        os.kill(pid, signal.SIGSTOP)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]
    assert wait_until_gone(mark) == {}
    for path in root.glob("*/result.json"):
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size - 5)
    subprocess.run([sys.executable, "-", "again"], cwd=tmp_path, env=environ, input=SCRIPT, text=True, check=True)
    assert wait_until_gone(mark) == {}
    lines = {path.parent.name: path.read_text().splitlines() for path in root.glob("*/result.json")}
    found = [[json.loads(line)["training_iteration"] for line in text] for _, text in sorted(lines.items())]
    assert found == [[*range(1, 41)]] * 2


# --- who reads the files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["soon", "later"])
def test_a_callback_finds_all_of_it_when_a_trial_saves_or_ends(
    tmp_path: Path, when: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(when)
    found: list[tuple[str, int, bool]] = []

    class Reads(sweep.Callback):
        def look(self, hook: str, trial: Any) -> None:
            path = Path(trial.path)
            found.append((hook, len((path / "result.json").read_text().splitlines()), (path / "error.txt").exists()))

        def on_checkpoint(self, trial: Any, checkpoint: Any) -> None:
            self.look("checkpoint", trial)

        def on_trial_recover(self, trial: Any) -> None:
            self.look("recover", trial)

        def on_trial_complete(self, trial: Any) -> None:
            self.look("complete", trial)

    def train(config: dict[str, Any]) -> None:
        sweep.report(loss=1.0)
        if sweep.get_checkpoint() is None:
            if when == "soon":
                until(lambda: num_lines(tmp_path / "one") == 1)  # by the process
            (tmp_path / "state").mkdir(exist_ok=True)
            sweep.report(loss=0.5, checkpoint=sweep.Checkpoint(tmp_path / "state"))
            raise ValueError("once")

    run(train, tmp_path, callbacks=[Reads()], max_failures=1)
    assert [hook for hook, *_ in found] == ["checkpoint", "recover", "complete"]
    # At least what had happened: the sweep goes on while callbacks are called.
    assert [number >= least for (_, number, _), least in zip(found, (2, 2, 3), strict=True)] == [True] * 3
    assert [has_error for *_, has_error in found[1:]] == [True, True]


def test_loggers_that_were_subclassed_write_in_the_driver(tmp_path: Path, later: None) -> None:
    from sweep.callbacks.loggers import CSVLoggerCallback, JsonLoggerCallback

    class Mine(JsonLoggerCallback):
        def log_trial_result(self, iteration: int, trial: Any, result: Any) -> None:
            super().log_trial_result(iteration, trial, sweep.core.results.TrialResult({**result, "mine": iteration}))

    run(reporting(tmp_path, {}, 3), tmp_path, callbacks=[Mine(), CSVLoggerCallback()])
    assert steps(tmp_path / "one") == [1, 2, 3]
    (path,) = (tmp_path / "one").glob("*/result.json")
    assert [json.loads(line)["mine"] for line in path.read_text().splitlines()] == [1, 2, 3]
