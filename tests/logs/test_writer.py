"""The thread that writes log files: who waits for it, and what happens when it cannot be had, hangs, or dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sweep
from sweep.logs import writer
from sweep.logs.follower import Follower
from sweep.worker import limits

ROOT = Path(__file__).parents[2]
COUNT = 30


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
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written before somebody waits for it."""
    monkeypatch.setattr(writer, "_PERIOD_S", 1000.0)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_PERIOD_S", 0.01)


@pytest.fixture
def no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel allows none."""
    real = threading.Thread.start

    def start(self: threading.Thread) -> None:
        if self.name == "sweep-logs":
            raise RuntimeError("can't start new thread")
        real(self)

    monkeypatch.setattr(threading.Thread, "start", start)


def run(trainable: Any, tmp_path: Path, **more: Any) -> sweep.ExperimentAnalysis:
    options: dict[str, Any] = {"engine": "inline", "storage_path": tmp_path, "name": "one", "verbose": 0}
    return sweep.run(trainable, **(options | more))


def reporting(at: dict[int, Callable[[], Any]], count: int = COUNT) -> Callable[[Any], None]:
    """Return a trainable that does something before some of its reports."""

    def train(config: dict[str, Any]) -> None:
        for step in range(1, count + 1):
            at.get(step, lambda: None)()
            sweep.report(loss=1.0)

    return train


def test_files_are_written_while_the_sweep_runs_and_its_thread_is_gone_when_it_is_over(
    tmp_path: Path, soon: None
) -> None:
    run(reporting({10: lambda: until(lambda: num_lines(tmp_path / "one") == 9)}), tmp_path)
    assert not [thread for thread in threading.enumerate() if thread.name == "sweep-logs"]
    assert steps(tmp_path / "one") == list(range(1, COUNT + 1))


@pytest.fixture
def few_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "are_processes_few", lambda: True)


@pytest.mark.parametrize("when", ["never", "no_thread", "few_processes"])
def test_what_was_not_written_before_is_written_at_the_end(
    tmp_path: Path, when: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(when)
    run(reporting({}), tmp_path)
    assert steps(tmp_path / "one") == list(range(1, COUNT + 1))


@pytest.mark.parametrize("when", ["soon", "never", "no_thread"])
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
            (tmp_path / "state").mkdir(exist_ok=True)
            sweep.report(loss=0.5, checkpoint=sweep.Checkpoint(tmp_path / "state"))
            raise ValueError("once")

    run(train, tmp_path, callbacks=[Reads()], max_failures=1)
    assert [hook for hook, *_ in found] == ["checkpoint", "recover", "complete"]
    # At least what had happened: the sweep goes on while callbacks are called.
    assert [number >= least for (_, number, _), least in zip(found, (2, 2, 3), strict=True)] == [True] * 3
    assert [has_error for *_, has_error in found[1:]] == [True, True]


def test_nobody_waits_for_ever_for_a_disk_that_hangs(
    tmp_path: Path, soon: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    over = threading.Event()
    monkeypatch.setattr(writer, "_END_S", 0.2)
    monkeypatch.setattr(writer, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(Follower, "follow", lambda *_: over.wait(30))

    class Mine(sweep.Callback):
        def on_trial_complete(self, trial: Any) -> None: ...

    run(reporting({}), tmp_path, callbacks=[Mine()], verbose=1)
    over.set()
    said = capsys.readouterr().out
    assert "log files are behind: callbacks waited 0.2 s for them and go on" in said
    assert "cannot be completed: nothing was written for 0.2 s" in said


def test_what_goes_wrong_with_log_files_is_said_and_ends_no_sweep(
    tmp_path: Path, never: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Follower, "_report", lambda *_, **__: 1 // 0)
        (trial,) = run(reporting({}), tmp_path, verbose=1).trials
    assert trial.status == "TERMINATED"
    assert capsys.readouterr().out.count("cannot be completed: ZeroDivisionError") == 1
    run(reporting({}), tmp_path, resume=True)  # writes the files anew
    assert steps(tmp_path / "one") == list(range(1, COUNT + 1))


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


def test_a_resume_completes_the_files_of_a_driver_that_was_killed(tmp_path: Path) -> None:
    """Of a script without a guard, that is read from standard input."""
    root = tmp_path / "one"
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-"], cwd=tmp_path, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    process.stdin.write(SCRIPT)
    process.stdin.close()
    try:
        until(lambda: num_lines(root) == 20)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]
    for path in root.glob("*/result.json"):
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size - 5)
    subprocess.run([sys.executable, "-", "again"], cwd=tmp_path, env=environ, input=SCRIPT, text=True, check=True)
    lines = {path.parent.name: path.read_text().splitlines() for path in root.glob("*/result.json")}
    found = [[json.loads(line)["training_iteration"] for line in text] for _, text in sorted(lines.items())]
    assert found == [[*range(1, 41)]] * 2
