"""What a CI gets: the exit code of what is required, and a JUnit file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from made_experiment import MadeExperiment

from sweep.cli.main import sweep
from sweep.cli.running.junit import write_junit
from sweep.errors import MetricError, SweepError
from sweep.record.reader import ExperimentReader

ROOT = Path(__file__).parents[2]
TRAIN = """
import time, sweep

def train(config):
    for step in range(3 if config["x"] else 10_000):
        sweep.report(loss=config["x"] / (step + 1), acc=step / 10)
        time.sleep(0.01)
    if config["x"] > 0.9:
        raise ValueError("bad")
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two finished trials, one that failed with what XML cannot hold, one that waits."""
    made = MadeExperiment(tmp_path, "made")
    for loss in (0.5, 0.1):
        trial = made.trial({"lr": loss / 10, "act": "re lu"})
        made.report(trial, {"loss": loss, "eval": {"acc": 0.9}, "time_total_s": 2.5})
        made.end(trial)
    trial = made.trial({"lr": 1.0, "act": None})
    error = "ValueError: <b> & \x1b[31m \x00 \ufffe \ud800"
    made.end(trial, kind="FAILED", reason=error, error=error, traceback=f"Traceback:\n  x\n{error}")
    made.trial({"lr": 2.0, "act": "gelu"}, reason="waits for cpu=1")
    return made.close()


def best(root: Path, *arguments: str) -> Any:
    return CliRunner().invoke(sweep, ["best", str(root), *arguments], standalone_mode=False)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["loss<=0.1"], 0, ""),
        (["loss<0.1"], 4, "--require loss<0.1: not met; the best, trial 00001, has loss=0.1."),
        (
            ["loss<1", "eval.acc>0.95"],
            4,
            "--require loss<1 eval.acc>0.95: not met; the best, trial 00001, has loss=0.1, ",
        ),
        (["config/lr=0.01", "state=finished"], 0, ""),
        (["los<1"], 4, "'los' is no column. Did you mean 'loss'?"),
    ],
)
def test_the_best_trial_must_be_as_required(root, arguments, code, said):
    result = best(root, *(word for one in arguments for word in ("--require", one)))
    assert (result.return_value, result.exception) == (code, None)
    assert said in result.stderr
    assert bool(result.stderr) == bool(code)
    assert "loss 0.1" in result.stdout


def test_what_is_required_is_of_the_trial_that_was_asked_for(root):
    assert best(root, "--metric", "loss", "--goal", "maximize", "--require", "loss>=0.5").return_value == 0
    assert best(root, "--scope", "all", "--top", "2", "--require", "loss>=0.5", "--json").return_value == 4


def test_one_trial_of_a_pareto_set_is_enough(tmp_path):
    made = MadeExperiment(tmp_path, metrics=["loss", "acc"], modes=["min", "max"])
    for loss, acc in ((0.1, 0.2), (0.9, 0.8)):
        trial = made.trial({"x": loss})
        made.report(trial, {"loss": loss, "acc": acc})
        made.end(trial)
    root = made.close()
    assert best(root, "--require", "acc>0.5").return_value == 0
    result = best(root, "--require", "acc>0.5", "--require", "loss<0.5")
    assert (result.return_value, "not met" in result.stderr) == (4, True)


def test_what_is_no_condition_is_refused(root):
    assert "--require 'loss' is no condition" in str(best(root, "--require", "loss").exception)


def test_each_trial_is_a_test_case(root, tmp_path):
    path = tmp_path / "report.xml"
    write_junit(path, ExperimentReader(root), ["loss<0.05"], MetricError("no trial\x07 reported it"))
    suite = ElementTree.parse(path).getroot()[0]
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "6", "failures": "2", "errors": "1", "skipped": "1"}
    assert suite.get("timestamp", "")[:11] == "2023-11-14T"
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    assert list(cases) == [*(f"trial {number:05d}" for number in range(4)), "require loss<0.05", "sweep"]
    assert cases["trial 00000"].get("time") == "2.500"
    assert (
        cases["trial 00001"].findtext("system-out")
        == "config: lr=0.01 'act=re lu'\nlast report: loss=0.1 eval.acc=0.9\n"
    )
    failure = cases["trial 00002"].find("failure")
    assert failure is not None
    assert failure.get("message") == "ValueError: <b> & \\x1b[31m \\x00 \\ufffe \\ud800"
    assert (failure.text or "").startswith("Traceback:\n  x\nValueError: <b> &")
    assert cases["trial 00003"].find("skipped").attrib == {"type": "waiting", "message": "waits for cpu=1"}
    assert "has loss=0.1" in cases["require loss<0.05"].find("failure").get("message")
    assert cases["sweep"].find("error").attrib == {"type": "MetricError", "message": "no trial\\x07 reported it"}
    properties = {one.get("name"): one.get("value") for one in suite.iter("property")}
    assert properties == {
        "metric": "loss",
        "mode": "min",
        "directory": str(root),
        "best": "0.1",
        "best_trial": "00001",
        "config/lr": "0.01",
        "config/act": "re lu",
    }


def test_a_file_that_cannot_be_written_is_named(root, tmp_path, capsys):
    with pytest.raises(SweepError, match=r"/proc/x\.xml cannot be written"):
        write_junit(Path("/proc/x.xml"), ExperimentReader(root), [], None)
    write_junit(Path("/proc/x.xml"), ExperimentReader(root), [], ValueError("what ended the sweep is not hidden"))
    assert "/proc/x.xml cannot be written" in capsys.readouterr().err
    for given in ("/no/such/place.xml", str(tmp_path)):
        refused = CliRunner().invoke(sweep, ["run", "t.py:f", "--junit", given])
        assert "expected a file to write, in a directory that is there" in str(refused.exception)


def started(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    (tmp_path / "t.py").write_text(TRAIN)
    return subprocess.Popen(
        [sys.executable, "-m", "sweep.cli.main", *arguments, "-q"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "SWEEP_STORAGE": "store"},
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_a_sweep_tells_a_ci_how_it_went_by_its_exit_code_its_file_and_a_command(tmp_path):
    run = ["run", "t.py:train", "--searcher", "grid", "--minimize", "loss", "--junit", "r.xml"]
    for required, xs, code in (("loss<0.1", "0.1,0.2", 0), ("loss<0.01", "0.1,0.95", 4), ("loss<0.1", "0.95,0.96", 1)):
        done = started(tmp_path, *run, f"x={xs}", "--require", required)
        said = done.communicate(timeout=60)[1]
        assert done.returncode == code, said
        assert ("not met" in said) == (code == 4)
        suite = ElementTree.parse(tmp_path / "r.xml").getroot()[0]
        failures = {0: "0", 4: "2", 1: "3"}
        assert (suite.get("tests"), suite.get("failures")) == ("3", failures[code])


@pytest.mark.slow
def test_ctrl_c_is_told_too_and_what_is_required_waits_for_the_end(tmp_path):
    tell = 'sh -c "echo $SWEEP_NAME $SWEEP_STATE > told"'
    driver = started(
        tmp_path, "run", "t.py:train", "x=0", "--minimize", "loss", "--name", "one", "--trials", "2",
        *("--require", "loss<-1", "--junit", "r.xml", "--on-end", tell),
    )  # fmt: skip
    root, end = tmp_path / "store" / "one", time.monotonic() + 60
    while not (root / "sweep.db").exists() or not any(one.last_metrics for one in ExperimentReader(root).trials()):
        assert time.monotonic() < end
        time.sleep(0.05)
    refused = started(tmp_path, "resume", "one", "--require", "loss<1")
    assert "one runs already" in refused.communicate(timeout=60)[1]
    assert refused.returncode == 2
    driver.send_signal(signal.SIGINT)
    said = driver.communicate(timeout=60)[1]
    assert (driver.returncode, "not met" in said) == (130, False), said
    assert (tmp_path / "told").read_text() == "one interrupted\n"
    suite = ElementTree.parse(tmp_path / "r.xml").getroot()[0]
    assert suite.get("skipped") == "2"
