"""Scripts whose sweep stands at their top level, without a guard, imported in every way in which that happens."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from pathlib import Path

import pytest
from census import Census, census

SCRIPT = """
import sweep

def train(config):
    sweep.report(loss=config["x"])

analysis = sweep.run(train, config={"x": sweep.grid_search([1, 2])}, metric="loss", mode="min", verbose=0)
print("FILE", analysis.best_config)
"""
SWEEP = (sys.executable, "-m", "sweep.cli.main")
PYTHON = (sys.executable, "-c")
ON_THE_COMMAND_LINE = (*SWEEP, "run", "FILE.py:train", "x=1,2", "--minimize", "loss", "--trials", "2")


def run(directory: Path, *command: str, FILE: str = "", OTHER: str = "", THERE: str = "", **more: object) -> Census:
    """Write the modules that are given, then run a command beside them; nothing is left of it."""
    for name, text in {"FILE": FILE, "OTHER": OTHER, "THERE": THERE}.items():
        if text:
            (directory / f"{name}.py").write_text(textwrap.dedent(text))
    found = census(directory, *command, **more)  # type: ignore[arg-type]
    assert found.left == (), found
    return found


# --- the ways of importing it ----------------------------------------------------------------------------------------


def test_a_script_that_starts_a_sweep_can_be_a_target_of_the_command_line(tmp_path):
    found = run(tmp_path, *ON_THE_COMMAND_LINE, FILE=SCRIPT)
    assert found.code == 0, found
    assert len(found.experiments) == 1
    assert "FILE {" not in found.out
    assert "note: FILE.py, line 7, starts a sweep: " in found.err
    assert "nor what stands below it" in found.err


@pytest.mark.parametrize(
    "more",
    [pytest.param("", id="forked"), pytest.param(", start_method='spawn'", marks=pytest.mark.slow, id="spawned")],
)
def test_a_script_that_starts_a_sweep_can_be_imported_by_hand_and_by_its_trials(tmp_path, more):
    found = run(tmp_path, *PYTHON, "import FILE", FILE=SCRIPT.replace("verbose=0", f"verbose=0{more}"))
    assert (found.code, found.out) == (0, "FILE {'x': 1}\n"), found
    assert len(found.experiments) == 1


@pytest.mark.slow
def test_a_script_may_take_its_trainable_from_one_that_starts_a_sweep(tmp_path):
    found = run(
        tmp_path,
        sys.executable,
        "OTHER.py",
        FILE=SCRIPT,
        OTHER="""
        import sweep
        from FILE import train

        analysis = sweep.run(train, config={"x": sweep.grid_search([3, 4])}, metric="loss", mode="min", verbose=0)
        print("OTHER", analysis.best_config)
        """,
    )
    assert (found.code, found.out) == (0, "FILE {'x': 1}\nOTHER {'x': 3}\n"), found
    assert len(found.experiments) == 2


LIMITED = ("setpriv", "--reuid=54321", "--clear-groups", "--inh-caps=+dac_override", "--ambient-caps=+dac_override")


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root, to become another user")
@pytest.mark.parametrize(
    ("command", "number"), [(ON_THE_COMMAND_LINE, 1), ((*PYTHON, "import FILE"), 1)], ids=["command_line", "by_hand"]
)
def test_few_processes_are_enough_for_a_script_that_starts_a_sweep(tmp_path, command, number):
    """Root has no such limit, so this is somebody else, who may have 24 processes and threads in all."""
    found = run(tmp_path, *LIMITED, "prlimit", "--nproc=24", *command, OPENBLAS_NUM_THREADS="1", FILE=SCRIPT)
    assert found.code == 0, found
    assert len(found.experiments) == number


@pytest.mark.slow
def test_a_sweep_is_restored_whose_space_and_callbacks_come_from_a_script_that_starts_one(tmp_path):
    first = run(
        tmp_path,
        *PYTHON,
        "import FILE",
        FILE="""
        import sweep

        class Mine(sweep.Callback):
            pass

        def by_hand(config):
            return 5

        def train(config):
            sweep.report(loss=config["x"])

        sweep.run(train, config={"x": sweep.sample_from(by_hand)}, name="first", callbacks=[Mine()], verbose=0)
        """,
        OTHER="""
        import sweep

        def train(config):
            sweep.report(loss=config["x"])

        tuner = sweep.Tuner.restore("sweep_results/first", train)
        print(len(tuner.fit()), tuner.get_results()[0].metrics["loss"])
        """,
    )
    assert first.code == 0, first
    found = run(tmp_path, sys.executable, "OTHER.py", SWEEP_VERBOSE="0")
    assert found.code == 0, found
    assert found.out.splitlines()[-1] == "1 5"
    assert found.experiments == ("first",)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("resume", "first", "--trials", "+1", "-q"), id="resume"),
        pytest.param(("replay", "first", "--verify"), id="replay_verify"),
        pytest.param(("simulate", "first"), id="simulate"),
    ],
)
def test_a_command_that_loads_the_trainable_again_starts_no_sweep_of_its_script(tmp_path, command):
    first = run(tmp_path, *ON_THE_COMMAND_LINE, "-q", "--name", "first", FILE=SCRIPT)
    assert (first.code, first.experiments) == (0, ("first",)), first
    found = run(tmp_path, *SWEEP, *command)
    assert (found.code, found.experiments) == (0, ("first",)), found


# --- the ways of starting one ----------------------------------------------------------------------------------------

STARTS = {
    "run_experiments": "sweep.run_experiments(sweep.Experiment('e', train, config={'x': 7}), verbose=0)",
    "tuner": "sweep.Tuner(train, param_space={'x': 7}).fit()",
    "trainer": "DataParallelTrainer(train, train_loop_config={'x': 7}).fit()",
    "bare_except": "try:\n    sweep.run(train, verbose=0)\nexcept:\n    pass\nsweep.run(train, verbose=0)",
    "finally": "try:\n    sweep.run(train, verbose=0)\nfinally:\n    sweep.run(train, verbose=0)",
    "thread": "thread = threading.Thread(target=sweep.run, args=(train,))\nthread.start()\nthread.join()",
    "late_thread": "threading.Timer(0.05, sweep.run, args=(train,)).start()",
    "executor": "with ThreadPoolExecutor() as pool:\n    pool.submit(sweep.run, train).result()",
    "asyncio": "async def go():\n    sweep.run(train, verbose=0)\nasyncio.run(go())",
    "main": "def main():\n    sweep.run(train, verbose=0)\nmain()",
    "exec": "exec('sweep.run(train, verbose=0)')",
    "fork": "process = multiprocessing.get_context('fork').Process(target=sweep.run, args=(train,))\n"
    "process.start()\nprocess.join()",
}
HEAD = """
import asyncio
import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor

import sweep
from sweep.train import DataParallelTrainer

def train(config):
    sweep.report(loss=config["x"])

"""


OFTEN = ("main", "thread")  # of the others one more look now and then is enough


@pytest.mark.parametrize(
    "body",
    [pytest.param(body, id=name, marks=() if name in OFTEN else pytest.mark.slow) for name, body in STARTS.items()],
)
def test_no_way_of_starting_a_sweep_starts_one_while_its_file_is_imported(tmp_path, body):
    (tmp_path / "FILE.py").write_text(HEAD + body)
    found = run(tmp_path, *ON_THE_COMMAND_LINE, "-q", "--name", "mine")
    assert (found.code, found.experiments) == (0, ("mine",)), found


@pytest.mark.slow
def test_where_one_module_imports_another_that_starts_a_sweep_only_the_other_ends(tmp_path):
    here = "from THERE import train\n\ndef here(config):\n    return train(config)\n"
    command = [word.replace(":train", ":here") for word in ON_THE_COMMAND_LINE]
    found = run(tmp_path, *command, "-q", "--name", "mine", FILE=here, THERE=SCRIPT)
    assert (found.code, found.experiments) == (0, ("mine",)), found


# --- what is not there by then ---------------------------------------------------------------------------------------

TWO = (
    SCRIPT
    + """
def second(config):
    sweep.report(loss=-config["x"])

"""
)


def test_a_target_below_the_sweep_is_refused_with_the_line_of_the_call(tmp_path):
    command = [word.replace(":train", ":second") for word in ON_THE_COMMAND_LINE]
    found = run(tmp_path, *command, FILE=TWO)
    assert (found.code, found.experiments) == (2, ()), found
    assert "FILE.py has no 'second'. FILE.py, line 7, starts a sweep: 'analysis = sweep.run(train" in found.err
    assert "Traceback" not in found.err


def test_a_name_that_another_module_takes_from_below_the_sweep_is_named_with_the_line_of_the_call(tmp_path):
    found = run(tmp_path, *ON_THE_COMMAND_LINE, FILE="from THERE import second as train\n", THERE=TWO)
    assert (found.code, found.experiments) == (2, ()), found
    assert "cannot import name 'second' from 'THERE'" in found.err
    assert "THERE.py, line 7, starts a sweep" in found.err


@pytest.mark.slow
def test_a_global_that_is_set_below_the_sweep_is_named_with_the_line_of_the_call(tmp_path):
    script = SCRIPT.replace('config["x"])\n', 'FACTOR * config["x"])\n', 1) + "\nFACTOR = 2\n"
    found = run(tmp_path, *ON_THE_COMMAND_LINE, FILE=script)
    assert found.code == 1, found
    assert "FILE.py, line 7, starts a sweep" in found.err + found.out
    assert len(found.experiments) == 1


@pytest.mark.slow
def test_a_module_that_is_imported_by_hand_may_start_two_sweeps(tmp_path):
    second = 'print(sweep.run(second, config={"x": sweep.grid_search([1, 2])}, metric="loss", mode="min", verbose=0).'
    found = run(tmp_path, *PYTHON, "import FILE", FILE=TWO + second + "best_config)\n")
    assert (found.code, found.out) == (0, "FILE {'x': 1}\n{'x': 2}\n"), found
    assert len(found.experiments) == 2


@pytest.mark.slow
def test_a_script_that_parses_its_arguments_finds_none_of_the_commands(tmp_path):
    head = "from argparse import ArgumentParser\nparser = ArgumentParser()\nparser.add_argument('--lr', default=1)\n"
    found = run(tmp_path, *ON_THE_COMMAND_LINE, "-q", FILE=head + "parser.parse_args()\n" + SCRIPT)
    assert found.code == 0, found


# --- processes that an import starts ---------------------------------------------------------------------------------

STRAYS = """
import os, subprocess, sys, time
import sweep

def train(config):
    sweep.report(loss=config["x"])

if "sweep.engines.local.fork_server" in sys.modules:  # imported for the trials
    code = "import time; time.sleep(1000)"
    subprocess.Popen([sys.executable, "-c", code])
    subprocess.Popen([sys.executable, "-c", code], start_new_session=True, env={})
    subprocess.Popen([sys.executable, "-c", f"import os; os.fork() or os.setsid(); {code}"])
    if os.fork() == 0:
        os.setsid()
        time.sleep(1000)
    HERE
"""


def test_what_an_import_starts_ends_with_the_sweep(tmp_path):
    found = run(tmp_path, *ON_THE_COMMAND_LINE, "-q", FILE=STRAYS.replace("HERE", ""))
    assert found.code == 0, found


@pytest.mark.parametrize(
    "then",
    [
        pytest.param("time.sleep(1000)", id="import_sleeps"),
        pytest.param("\n    while True: pass", marks=pytest.mark.slow, id="import_computes"),
    ],
)
def test_what_an_import_starts_ends_when_the_driver_is_killed_meanwhile(tmp_path, then):
    found = run(
        tmp_path,
        *ON_THE_COMMAND_LINE,
        "-q",
        kill_when=tmp_path / "importing",
        FILE=STRAYS.replace("HERE", f"open('importing', 'w').close(); {then}"),
    )
    assert found.code == -9, found


@pytest.mark.slow
def test_what_an_import_starts_ends_when_its_process_is_killed(tmp_path):
    dies = "if os.environ.get('SWEEP_IMPORTER'): os.kill(os.getpid(), 9)"  # the trials import for themselves then
    found = run(tmp_path, *ON_THE_COMMAND_LINE, "-q", FILE=STRAYS.replace(", env={}", "").replace("HERE", dies))
    assert found.code == 0, found


@pytest.mark.slow
def test_a_script_that_an_import_starts_in_a_process_of_its_own_starts_no_sweep(tmp_path):
    found = run(
        tmp_path,
        *(*ON_THE_COMMAND_LINE, "-q", "--name", "mine"),
        FILE="""
        import subprocess, sys
        import sweep

        def train(config):
            sweep.report(loss=config["x"])

        if "sweep.engines.local.fork_server" in sys.modules:
            done = subprocess.run([sys.executable, "OTHER.py"], capture_output=True, text=True)
            open("said", "w").write(done.stderr)
        """,
        OTHER=SCRIPT,
    )
    assert (found.code, found.experiments) == (0, ("mine",)), found
    assert "ExperimentError: sweep.run was called in a process that a module started" in (tmp_path / "said").read_text()
