"""Which processes belong to a trial, so that a sweep is refused there, and which do not any more."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from census import census

import sweep
from sweep.errors import ExperimentError
from sweep.worker.nested import is_living, process_mark, refuse_nested


def test_a_mark_names_a_process_as_long_as_it_lives_and_no_other_of_its_number():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    mark = process_mark(process.pid)
    assert is_living(mark)
    pid, started, boot, namespace = mark.split(".")
    assert not is_living(f"{pid}.{int(started) - 1}.{boot}.{namespace}")  # another had the number then
    assert not is_living(f"{pid}.{started}.00000000.{namespace}")  # another machine, or before it was started again
    assert not is_living(f"{pid}.{started}.{boot}.1")  # in another container
    process.communicate(b"\n")
    assert not is_living(mark)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"SWEEP_TRIAL": "abcde_00003", "SWEEP_DRIVER": "{}"}, "inside trial abcde_00003"),
        ({"SWEEP_IMPORTER": "{}/1"}, "while a sweep imported it"),
    ],
)
def test_the_mark_of_a_trial_or_an_import_counts_only_while_its_driver_lives(monkeypatch, variables, words):
    driver = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(process_mark(driver.pid)))
    with pytest.raises(ExperimentError, match=words):
        refuse_nested()
    driver.communicate(b"\n")
    refuse_nested()


@pytest.mark.parametrize(
    ("engine", "how"),
    [("local", "call"), ("local", "process"), ("local", "fork"), ("inline", "call"), ("inline", "process")],
)
def test_a_sweep_inside_a_trial_is_refused(tmp_path, engine, how):
    def inner(config):
        sweep.report(loss=1)

    def train(config):
        code = "import sweep\nsweep.run(lambda config: {'loss': 1}, verbose=0)"
        if how == "process":
            said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr
        else:
            reading, writing = os.pipe()
            pid = os.fork() if how == "fork" else 0
            said = ""
            if not pid:
                try:
                    sweep.run(inner, verbose=0, storage_path=str(tmp_path / "inner"))
                except ExperimentError as error:
                    said = f"ExperimentError: {error}"
                if how == "fork":
                    os.write(writing, said.encode())
                    os._exit(0)
            else:
                os.waitpid(pid, 0)
                said = os.read(reading, 10_000).decode()
        sweep.report(loss=0, said=said)

    analysis = sweep.run(train, engine=engine, storage_path=str(tmp_path / "outer"), verbose=0)
    assert "ExperimentError: sweep.run was called inside trial" in analysis.results_df["said"].iloc[0]
    assert not (tmp_path / "inner").exists()


def test_beside_an_inline_trial_another_thread_of_the_program_may_run_a_sweep(tmp_path, monkeypatch):
    (tmp_path / "meeting.py").write_text("import threading\nasked, done = threading.Event(), threading.Event()\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = []

    def other(config):
        sweep.report(loss=2)

    def train(config):
        import meeting

        meeting.asked.set()
        meeting.done.wait(60)
        sweep.report(loss=1)

    def run_other():
        import meeting

        meeting.asked.wait(60)
        try:
            found.append(sweep.run(other, storage_path=str(tmp_path / "other"), verbose=0).results_df["loss"].iloc[0])
        finally:
            meeting.done.set()

    thread = threading.Thread(target=run_other)
    thread.start()
    sweep.run(train, engine="inline", storage_path=str(tmp_path / "mine"), verbose=0)
    thread.join()
    assert found == [2]


@pytest.mark.slow
def test_what_a_trial_leaves_behind_may_run_a_sweep_when_the_driver_is_gone(tmp_path: Path):
    """As a batch job does that a trial has submitted: it has the trial's environment."""
    (tmp_path / "script.py").write_text(
        textwrap.dedent(
            """
            import json, os, sweep

            def train(config):
                open("environ", "w").write(json.dumps(dict(os.environ)))
                sweep.report(loss=1)

            sweep.run(train, name="first", verbose=0)
            """
        )
    )
    (tmp_path / "later.py").write_text(
        textwrap.dedent(
            """
            import json, os
            os.environ.update(json.load(open("environ")))
            import sweep

            def train(config):
                sweep.report(loss=1)

            sweep.run(train, name="second", verbose=0)
            """
        )
    )
    first = census(tmp_path, sys.executable, "script.py")
    assert (first.code, first.left) == (0, ()), first
    second = census(tmp_path, sys.executable, "later.py")
    assert (second.code, second.left, second.experiments) == (0, (), ("first", "second")), second
