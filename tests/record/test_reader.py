"""What the reader finds out: whether a driver is there, what is at a path, what real records hold."""

from __future__ import annotations

import json
import os
import pickle
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from made_experiment import MadeExperiment

from sweep.core.plan import Plan
from sweep.errors import ExperimentError
from sweep.record.lock import Driver, DriverLock, find_driver
from sweep.record.reader import ExperimentReader, find_experiment
from sweep.results.analysis import ExperimentAnalysis


def reader_of(root: Path, *statuses: str) -> ExperimentReader:
    made = MadeExperiment(root)
    for status in statuses:
        made.set(made.trial({}), status=status, placement=[["local", []]] if status == "STARTING" else None)
    return ExperimentReader(made.close())


def note(reader: ExperimentReader, **changes: Any) -> None:
    known = {"pid": os.getpid(), "started": time.time(), "host": socket.gethostname()}
    reader.layout.lock.write_text(json.dumps(known | changes))


# --- who drives ---


def test_a_driver_is_seen_while_it_holds_the_lock_and_not_after(tmp_path: Path) -> None:
    reader = reader_of(tmp_path, "RUNNING")
    assert reader.driver() is None
    lock = DriverLock(reader.layout.lock)
    driver = reader.driver()
    assert driver is not None
    assert (driver.pid, driver.host, driver.is_alive) == (os.getpid(), socket.gethostname(), True)
    assert (reader.state(), reader.state_hint()) == ("running", "")
    lock.release()
    driver = reader.driver()
    assert driver is not None
    assert driver.is_alive is False
    assert reader.state() == "crashed"


def test_a_process_that_is_gone_drives_nothing(tmp_path: Path) -> None:
    reader = reader_of(tmp_path, "RUNNING")
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    note(reader, pid=child.pid)
    assert reader.state() == "crashed"
    assert reader.state_hint() == (
        f"no driver runs made: running is what trials were when it died (pid {child.pid} on {socket.gethostname()}); "
        "`sweep resume made` goes on."
    )


def test_a_sweep_of_a_script_goes_on_by_its_own_call(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path, "mine", resume_command="the same call with name='mine', resume=True")
    made.trial({"x": 1})
    made.commit()
    said = ExperimentReader(made.root).state_hint()
    assert said == "no driver runs mine now; the same call with name='mine', resume=True goes on."


def test_a_later_process_of_the_same_number_is_not_the_driver(tmp_path: Path) -> None:
    reader = reader_of(tmp_path)
    note(reader, started=1.0)
    assert find_driver(reader.layout.lock) == Driver(os.getpid(), socket.gethostname(), 1.0, False)
    with reader.layout.lock.open("a"):  # which the driver holds open
        found = find_driver(reader.layout.lock)
        assert found is not None
        assert found.is_alive is True


@pytest.mark.parametrize(
    ("statuses", "host", "state"),
    [
        (["TERMINATED", "ERROR"], "", "ended"),
        (["TERMINATED", "PENDING"], "", "stopped"),
        (["TERMINATED", "STOPPING"], "", "crashed"),
        (["TERMINATED", "STARTING"], "", "crashed"),
        ([], "", "stopped"),
        (["RUNNING"], "elsewhere", "unknown"),
        (["TERMINATED"], "elsewhere", "ended"),
    ],
)
def test_the_state_of_a_sweep_without_a_driver_follows_from_its_trials(
    tmp_path: Path, statuses: list[str], host: str, state: str
) -> None:
    reader = reader_of(tmp_path, *statuses)
    if host:
        note(reader, host=host)
    assert reader.state() == state
    assert bool(reader.state_hint()) == (state != "ended")


# --- what is at a path ---


def test_what_is_no_experiment_is_told_from_what_is(tmp_path: Path) -> None:
    root = MadeExperiment(tmp_path, "digits").close()
    for number in range(7):
        MadeExperiment(tmp_path / "many", f"run{number}").close()
    (root / "abcde_00000").mkdir()
    (tmp_path / "plain").mkdir()
    (tmp_path / "tune").mkdir()
    (tmp_path / "tune" / "experiment_state-2026.json").write_text("{}")
    (tmp_path / "file").write_text("")
    for path, message in (
        (tmp_path / "nowhere", "no such directory"),
        (tmp_path / "plain", "no sweep.db in it, nor one directory below. See `sweep ls`"),
        (tmp_path / "file", "a file. Give the directory that holds sweep.db"),
        (tmp_path / "many", "it holds experiments: run0, run1, run2, run3, run4 and 2 more. Give the directory of one"),
        (root / "abcde_00000", f"it is inside one. Give {root}, or Result.from_path"),
        (tmp_path / "tune", "it was written by Ray Tune, whose experiments are read with Ray"),
        (tmp_path / "tune" / "experiment_state-2026.json", "it was written by Ray Tune"),
    ):
        with pytest.raises(ExperimentError) as caught:
            ExperimentAnalysis(path)
        assert message in str(caught.value), path


def test_every_path_of_an_experiment_opens_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = MadeExperiment(tmp_path, "digits").close()
    monkeypatch.chdir(tmp_path)
    for path in (root, str(root), f"{root}/", root / "sweep.db", "digits", root.as_uri(), f"{root.as_uri()}/sweep.db"):
        assert ExperimentAnalysis(path).experiment_path == str(root), path
    assert find_experiment(root.as_uri()).root == root


def test_trials_given_to_an_analysis_are_refused_with_a_reason(tmp_path: Path) -> None:
    root = MadeExperiment(tmp_path).close()
    with pytest.warns(UserWarning, match="trials= is ignored: the experiment's record holds all its trials"):
        ExperimentAnalysis(root, trials=[])


# --- the record ---


def test_rows_are_pickled_without_what_was_decoded_from_them(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    made.report(made.trial({"x": 1}), {"loss": 1.0})
    reader = ExperimentReader(made.close(), trust=True)
    row = reader.trials()[0]
    copy = pickle.loads(pickle.dumps(row))
    assert copy == row
    assert (copy.config, copy.last_metrics["loss"], copy.is_trusted) == ({"x": 1}, 1.0, True)
    assert pickle.loads(pickle.dumps(reader)).is_trusted is True


def test_values_of_one_trial_are_read_alone(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    for number in range(2):
        trial = made.trial({})
        for step in range(2):
            made.report(trial, {"loss": 10.0 * number + step, 'a"b': step})
    reader = ExperimentReader(made.close())
    assert [value for _, _, value in reader.values("loss", trial_id="abcde_00001")] == [10.0, 11.0]
    assert reader.last_values("loss")["abcde_00001"] == 11.0
    assert [value for _, _, value in reader.values('a"b', trial_id="abcde_00000")] == [0, 1]
    assert [value for _, _, value in reader.values("loss")] == [0.0, 1.0, 10.0, 11.0]


def test_the_plan_is_that_of_the_last_start(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    assert ExperimentReader(made.commit()).plan() == Plan()
    made.event("PlanChanged", data={"max_failures": 1})
    made.event("PlanChanged", data={"max_failures": 2})
    assert ExperimentReader(made.close()).plan() == Plan(max_failures=2)
