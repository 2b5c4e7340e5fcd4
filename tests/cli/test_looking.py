"""Commands that only look run nothing of the sweep's: no import of its script, no pickle of its record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from sweep.cli.replay import decided_again
from sweep.errors import RecordError
from sweep.record.reader import ExperimentReader
from sweep.simulation.replay import Replay

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sweep
from searchers import RandomSearch
from sweep.schedulers import FIFOScheduler

class Mine:
    def __init__(self, value):
        self.value = value

class MyError(Exception):
    pass

class MySearch(RandomSearch):
    pass

class MyScheduler(FIFOScheduler):
    pass

class MyCallback(sweep.Callback):
    def get_state(self):
        return Mine(1)

def train(config):
    sweep.report(loss=config["x"], what=str(config["mine"].value))
    if config["x"] > 1.5:
        raise MyError(Mine(2))

def main():
    sweep.run(
        train,
        name="first",
        config={"x": sweep.grid_search([1, 2]), "mine": sweep.choice([Mine(3), Mine(4)])},
        search_alg=None,
        scheduler=MyScheduler(),
        callbacks=[MyCallback()],
        metric="loss",
        mode="min",
        verbose=0,
        raise_on_failed_trial=False,
    )
"""
HOOK = """
import json, sys
seen = []

def hook(event, arguments):
    if event == "pickle.find_class" or (event == "import" and arguments[0].startswith(("script", "sweep_script"))):
        seen.append(f"{event} {arguments[0]}")

sys.addaudithook(hook)
from sweep.cli.main import _run

for command in json.loads(sys.argv[1]):
    code = _run(command.split())
    if code or seen:
        break
print(json.dumps([command, code, seen]))
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a sweep lies whose record holds pickles of every kind."""
    found = tmp_path_factory.mktemp("looking")
    (found / "script.py").write_text(SCRIPT)
    subprocess.run([sys.executable, "-c", "import script; script.main()"], cwd=found, env=environ(found), check=True)
    return found


def environ(directory: Path) -> dict[str, str]:
    variables = {**os.environ, "PYTHONPATH": f"{ROOT}:{directory}"}
    variables.pop("SWEEP_STORAGE", None)
    return variables


def look(directory: Path, *commands: str) -> tuple[str, int, list[str], str]:
    """Type these commands until one fails or runs something of the sweep's; return it, its code and what was run."""
    found = subprocess.run(
        [sys.executable, "-c", HOOK, json.dumps(commands)],
        cwd=directory,
        env=environ(directory),
        capture_output=True,
        text=True,
    )
    assert found.stdout, found.stderr
    command, code, seen = json.loads(found.stdout.splitlines()[-1])
    return command, code, seen, found.stderr


LOOKING = """
ls|ls first|ls --format json|trials first|trials first --format json|best first|best first --as args|show first
show first 1|logs first 1|why first|note first good|replay first|replay first --trial 1
simulate first --scheduler asha|simulate first --concurrency 1
"""


def test_a_command_that_looks_imports_and_unpickles_nothing_of_the_sweeps(directory: Path):
    commands = LOOKING.strip().replace("\n", "|").split("|")
    assert look(directory, *commands)[:3] == (commands[-1], 0, [])


@pytest.mark.parametrize("command", ["replay first --verify", "simulate first"])
def test_a_command_that_must_load_the_searcher_and_the_scheduler_says_so(directory: Path, command: str):
    _, code, seen, said = look(directory, command)
    assert "pickle.find_class script" in seen
    assert "note: loading the searcher and the scheduler of first runs code from " in said
    assert code == 0, said


def test_a_program_is_not_imported_where_its_decisions_cannot_be_made_again(tmp_path: Path):
    def fail(*_: object, **__: object) -> Replay:
        raise RecordError("event 5 is missing")

    reader = SimpleNamespace(name="first", root=tmp_path, meta={"import_path": "./simulate"})
    with pytest.raises(RecordError, match="event 5 is missing"):
        decided_again(fail, cast(ExperimentReader, reader))


API = """
import inspect, warnings
warnings.simplefilter("ignore")
import pandas, pandas.io.formats.html
import sweep
from sweep.record.reader import ExperimentReader

def read(thing):
    names = []
    for name in dir(type(thing)):
        if name.startswith("_") and name not in ("__repr__", "_repr_html_", "__len__"):
            continue
        if name in ("connect", "from_path"):
            continue
        attribute = inspect.getattr_static(thing, name)
        try:
            value = getattr(thing, name)
            if callable(value) and not isinstance(attribute, property):
                needed = [p for p in inspect.signature(value).parameters.values() if p.default is p.empty]
                if any(p.kind is not p.VAR_POSITIONAL and p.kind is not p.VAR_KEYWORD for p in needed):
                    continue
                value = value()
            repr(list(value.items()) if hasattr(value, "items") else value)
            names.append(name)
        except sweep.errors.SweepError:
            pass  # there are no several objectives, for instance
    return names

def read_all(trust):
    analysis = sweep.ExperimentAnalysis("sweep_results/first", trust=trust)
    grid = sweep.ResultGrid(analysis)
    names = read(analysis) + read(grid) + read(ExperimentReader("sweep_results/first", trust=trust))
    for trial, result in zip(analysis.trials, grid):
        names += read(trial) + read(result) + read(sweep.Result.from_path(result.path, trust=trust))
    assert {"error", "errors", "get_pickled_error", "history", "dataframe", "metrics_dataframe", "config"} <= {*names}
    return [repr(error.__cause__) for error in grid.errors]
"""
WATCH = """
import json, sys
seen = []

def hook(event, arguments):
    if event == "pickle.find_class":
        seen.append(".".join(arguments[:2]) if len(arguments) > 1 else arguments[0])

exec(open("api.py").read())
sys.addaudithook(hook)
causes = read_all(len(sys.argv) > 1)
print(json.dumps([causes, seen, "script" in sys.modules]))
"""


@pytest.mark.parametrize("trust", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_reading_by_python_loads_pickles_only_of_what_is_trusted(directory: Path, trust: bool):
    (directory / "api.py").write_text(API)
    command = [sys.executable, "-c", WATCH, *(["trust"] if trust else [])]
    found = subprocess.run(command, cwd=directory, env=environ(directory), capture_output=True, text=True)
    assert found.stdout, found.stderr
    causes, seen, is_imported = json.loads(found.stdout.splitlines()[-1])
    if trust:
        assert {"script.MyError", "script.Mine"} <= set(seen)
        assert all(cause.startswith("MyError(") for cause in causes)
    else:
        assert (set(causes), seen, is_imported) == ({"None"}, [], False)
