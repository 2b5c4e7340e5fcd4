"""What every command prints with `--json` is what its schema says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator
from made_experiment import MadeExperiment

from sweep.cli.clients.schema import SCHEMAS
from sweep.cli.main import COMMANDS, main, sweep
from sweep.programs.interface import Interface, Option

ROOT = Path(__file__).parents[3]
LINES = {"run", "resume", "replay", "migrate"}  # print one object per line
SCRIPT = """
import argparse, time
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
lr = parser.parse_args().lr
for step in range(1, 4000):
    time.sleep(0.02)
    print(f"step {step} loss={lr / step}", flush=True)
    if lr < 0.5 and step == 3:
        break
"""
TYPED = {
    "ls": ["", "--filter state=crashed"],
    "trials": ["made", "made --limit 0"],
    "nodes": ["made", "other --filter lost>0"],
    "best": ["made", "made --top 2 --scope avg"],
    "show": ["made", "made 0", "made 2"],
    "logs": ["made 0"],
    "why": ["made", "made 1"],
    "note": ["made remember"],
    "replay": ["made"],
    "simulate": ["made --concurrency 1"],
    "retry": ["made 2"],
    "enqueue": ["made lr=0.5"],
    "edit": ["made --trials +2"],
    "new": ["train.py"],
    "plan": ["train.py lr=0.1,0.2 --seed 1", "train.py lr=0.1,0.2 --seed 1 --minimize loss --trials 3 --from made"],
    "migrate": ["old.py"],
    "doctor": [""],
    "compare": ["made other"],
    "export": ["made -o trials.csv"],
    "import": ["runs.csv --metric loss --goal minimize", "runs.csv --name again"],
    "rm": ["made other --yes"],
    "schema": ["", "trials"],
}
LIVE = {"run", "resume", "confirm", "stop", "cancel", "pause", "watch", "dashboard", "html"}


def valid(verb: str, text: str) -> list[Any]:
    """Return what a command printed, held against its schema."""
    found = [json.loads(line) for line in text.splitlines()] if verb in LINES else [json.loads(text)]
    schema = json.loads(CliRunner().invoke(sweep, ["schema", verb]).output)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    for one in found:
        Draft202012Validator(schema).validate(one)
    return found


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    experiment = MadeExperiment(tmp_path / "store")
    experiment.event("NodesChanged", None, {"nodes": [{"id": "local", "cpus": 2.0}], "away": []})
    for number in range(3):
        trial = experiment.trial({"lr": number / 10, "nested": {"opt": "sgd"}})
        if number != 1:
            experiment.start(trial)
            experiment.report(trial, {"loss": float("nan") if number else 0.5}, checkpoint=f"{trial}/checkpoint_000001")
            (tmp_path / "store" / "made" / trial / "output.log").write_text("epoch 1\n")
        experiment.commit()
    experiment.close()
    monkeypatch.setenv("SWEEP_STORAGE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    found = Interface("argparse", (Option("lr", ("--lr",), default=0.1), Option("opt", choices=["a", "b"])), False)
    monkeypatch.setattr("sweep.cli.new.interface_of", lambda argv: found)
    MadeExperiment(tmp_path / "store", "other").close()
    Path("runs.csv").write_text("Name,State,lr,acc,loss\nsun-1,finished,0.1,0.7,0.5\n")
    Path("train.py").touch()
    Path("old.py").write_text("from ray import tune\nimport ray\nray.remote(print)\n")
    return tmp_path


def test_every_command_with_json_has_a_schema() -> None:
    commands = {name: sweep.get_command(click.Context(sweep), name) for name in COMMANDS}
    has_json = {name for name, one in commands.items() if any("--json" in parameter.opts for parameter in one.params)}
    assert SCHEMAS.keys() == has_json, "add what it prints to sweep/cli/clients/schema.py"
    assert TYPED.keys() | LIVE == has_json, "add how to see what it prints to this file"
    for schema in SCHEMAS.values():
        Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("verb", sorted(TYPED))
def test_what_a_command_prints_fits_its_schema(
    verb: str, made: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments in TYPED[verb]:
        if verb == "doctor":
            monkeypatch.setattr("sweep.cli.clients.doctor._ROUNDS", 1)
        with pytest.raises(SystemExit) as ended:
            main([verb, *arguments.split(), "--json"])
        printed = capsys.readouterr()
        assert ended.value.code == (verb == "migrate"), printed.err
        assert valid(verb, printed.out)


def test_a_verb_that_prints_no_json_is_named_with_the_nearest() -> None:
    result = CliRunner().invoke(sweep, ["schema", "trails"])
    assert "Did you mean 'trials'?" in str(result.exception)


def test_new_proposes_ranges_and_writes_nothing(made: Path) -> None:
    (facts,) = valid("new", CliRunner().invoke(sweep, ["new", "train.py", "--json"]).output)
    ranges = {one["name"]: one["range"] for one in facts["parameters"]}
    assert ranges == {"lr": "loguniform(0.01,1.0)", "opt": "a,b"}
    assert not Path("sweep.yaml").exists()


@pytest.mark.slow
def test_commands_of_a_sweep_that_runs_print_what_their_schemas_say(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "SWEEP_STORAGE": str(tmp_path / "store")}

    def started(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "sweep.cli.main", *words, "--json"]
        return subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)

    def said(*words: str) -> str:
        child = started(*words)
        output = child.communicate(timeout=120)[0]
        assert child.returncode == 0
        return output

    (dry,) = valid("run", said("run", "train.py", "lr=0.1", "--dry-run"))
    assert dry["metrics"][-1]["name"] == "loss"
    driver = started(*"run train.py lr=1 --minimize loss --trials 2 --name one --concurrency 1".split())
    assert driver.stdout is not None
    lines: list[str] = []
    is_reporting = threading.Event()

    def read() -> None:
        for line in driver.stdout or ():
            lines.append(line)
            if '"trial_result"' in line:
                is_reporting.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert is_reporting.wait(60)
        for verb, words in (("pause", []), ("resume", []), ("cancel", ["0"]), ("stop", []), ("cancel", [])):
            (answer,) = valid(verb, said(verb, "one", *words))
            assert answer["said"]
        assert driver.wait(60) == 0
    finally:
        driver.kill()
        reader.join()
        driver.stdout.close()
    events = [one["event"] for one in valid("run", "".join(lines))]
    assert (events[0], events[-1]) == ("sweep_start", "sweep_end")
    valid("resume", said("resume", "one"))
    valid("html", said("html", "one"))
    said(*"run train.py lr=0.1,0.2 --minimize loss --searcher grid --name two".split())
    for verb, *more in (("confirm", "--top", "2", "--repeats", "2"), ("replay", "--verify"), ("simulate",)):
        (answer,) = valid(verb, said(verb, "two", *more))
    assert answer["difference"] is None
    for verb in ("watch", "dashboard"):
        server = started(verb, "one")
        try:
            assert server.stdout is not None
            assert valid(verb, server.stdout.readline())[0]["url"].startswith("http://127.0.0.1:")
        finally:
            server.kill()
            server.communicate()
