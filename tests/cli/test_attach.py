"""`sweep watch --text`: the display of a sweep that another process drives."""

from __future__ import annotations

import io
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from made_experiment import MadeExperiment

from sweep.cli.look import attach
from sweep.cli.main import sweep as command_line
from sweep.core.plan import Plan
from sweep.display.progress import Progress
from sweep.record.reader import ExperimentReader

ROOT = Path(__file__).parents[2]


class Driven(ExperimentReader):
    """An experiment that is driven as long as there is something to do for each pause of who looks."""

    states = ["running"]

    def state(self) -> str:
        return self.states[0]


def begun(root: Path) -> MadeExperiment:
    made = MadeExperiment(root, "far", searcher="random", scheduler="asha")
    made.event("PlanChanged", data=Plan(num_trials=4, metric="loss", mode="min").to_json())
    for number in range(2):
        trial = made.trial({"x": number})
        made.start(trial)
        made.report(trial, {"loss": 2.0 - number})
    made.end("abcde_00000")
    made.commit()
    return made


def test_what_happens_is_shown_as_if_it_were_driven_here_until_it_ends(tmp_path: Path) -> None:
    made = begun(tmp_path)
    reader = Driven(made.root)
    reader.states = ["running"] * 2
    out = io.StringIO()

    def sleep(_: float) -> None:
        made.report("abcde_00001", {"loss": 0.5}, at=5.0)
        made.end("abcde_00001", at=6.0)
        made.trial({"x": 7}, at=6.0)
        made.commit()
        reader.states = ["stopped"]

    attach(reader, Progress(file=out, style="lines"), sleep=sleep)
    said = out.getvalue()
    assert "sweep far   4 trials   searcher random   scheduler asha" in said
    assert "00001 finished   loss=0.5 at step 2" in said
    assert "00000 finished" not in said  # it had ended before anybody looked
    assert "2/4" in said


def test_only_what_has_begun_can_be_shown_and_one_at_a_time(tmp_path: Path) -> None:
    empty = MadeExperiment(tmp_path, "empty").commit()
    one = CliRunner().invoke(command_line, ["watch", "--text", str(empty)])
    assert "empty has not begun: nothing is recorded of it yet" in str(one.exception)
    two = CliRunner().invoke(command_line, ["watch", "--text", str(empty), str(begun(tmp_path).root)])
    assert "--text shows one sweep, and 2 are named" in str(two.exception)


SLOW = """
import sys, time, sweep
def train(config):
    for step in range(1000):
        time.sleep(0.1)
        sweep.report(loss=1.0 / (step + 1))
if __name__ == "__main__":
    sweep.run(train, metric="loss", mode="min", name="slow", storage_path="store", verbose=0)
"""


@pytest.mark.slow
def test_ctrl_c_gives_the_terminal_back_and_the_sweep_goes_on(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm"}
    driver = subprocess.Popen([sys.executable, "slow.py"], cwd=tmp_path, env=environment)
    main, terminal = pty.openpty()
    try:
        while not list((tmp_path / "store").glob("slow/*/result.json")):
            assert driver.poll() is None
        arguments = [sys.executable, "-m", "sweep.cli.main", "watch", "slow", "--text", "--storage", "store"]
        looking = subprocess.Popen(arguments, cwd=tmp_path, env=environment, stdout=terminal, stderr=terminal)
        shown = b""
        while b"running 1" not in shown and b"best" not in shown:
            shown += os.read(main, 10_000)
        looking.send_signal(signal.SIGINT)
        while b"the sweep goes on" not in shown:
            shown += os.read(main, 10_000)
        assert looking.wait(30) == 0
        assert driver.poll() is None
        assert b"Traceback" not in shown
        assert b"^C leaves; the sweep goes on" in shown
        assert b"twice: kill" not in shown
    finally:
        driver.send_signal(signal.SIGINT)
        driver.wait(60)
        os.close(main)
        os.close(terminal)
