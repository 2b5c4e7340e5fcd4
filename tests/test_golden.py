"""Experiments of format 1, kept as data in `tests/golden/`: whatever this version is, it reads, resumes and replays
them.

They were made by `tests/golden/make.py` on Python 3.11. Their pickles name things by reference alone, which a test here
proves, so every later Python loads them as well.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import pickletools
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sweep import ExperimentAnalysis, Result
from sweep.checkpoints.store import verify
from sweep.cli.main import sweep as command_line
from sweep.record.encoding import Opaque

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"
KEPT = sorted(path.parent for path in GOLDEN.glob("v*/*/sweep.db"))
STATUSES = ["TERMINATED", "TERMINATED", "ERROR", "RUNNING"]
AGAIN = """
import sys, golden_work
from sweep import Tuner
grid = Tuner.restore(sys.argv[1], golden_work.trainable(sys.argv[2])).fit()
"""


def test_there_is_one_of_a_function_one_of_a_class_and_one_of_a_group():
    assert {path.name for path in KEPT} == {"function", "class", "trainer"}
    assert sum(path.stat().st_size for path in GOLDEN.rglob("*") if path.is_file()) < 300_000 * len(KEPT)


@pytest.fixture(params=KEPT, ids=lambda path: f"{path.parent.name}-{path.name}")
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """An experiment where nobody made it."""
    return Path(shutil.copytree(request.param, tmp_path.joinpath(*request.param.parts[-2:]), symlinks=True))


def run_python(*arguments: str, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SWEEP_", "GOLDEN_"))}
    environment |= {"PYTHONPATH": f"{ROOT}:{GOLDEN}", "GOLDEN_TOKEN": "given-again"}
    environment["SWEEP_CLAIMS"] = os.environ["SWEEP_CLAIMS"]
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def own_part(config: Any) -> Any:
    """A trial's config, or that of its training group."""
    return config.get("train_loop_config", config)


def test_it_is_read_without_its_code(copy: Path):
    analysis = ExperimentAnalysis(copy)
    assert [trial.status for trial in analysis.trials] == STATUSES
    configs = [own_part(trial.config) for trial in analysis.trials]
    assert [config["case"] for config in configs] == ["finishes", "stopped", "raises", "killed"]
    assert isinstance(configs[0]["ballast"], Opaque)
    assert repr(configs[0]["ballast"]) == "Ballast(7)"
    assert [trial.last_result["loss"] for trial in analysis.trials] == [1.0, 9.0, 3.0, 1.0]
    assert analysis.best_config is not None
    assert own_part(analysis.best_config)["case"] == "finishes"
    assert analysis.trials[1].reason.startswith("stopped early")
    assert "GoldenError: " in analysis.trials[2].reason
    assert "trial 2 raises" in str(analysis.trials[2].get_error())
    frame = analysis.dataframe()
    inner = "train_loop_config/" if copy.name == "trainer" else ""
    assert list(frame[f"config/{inner}level"]) == [4.0, 9.0, 3.0, 2.0]
    assert len(analysis.history()) == 8
    assert list(analysis.trial_dataframes[analysis.trials[0].trial_id]["step"]) == [1, 2, 3, 4]
    assert len(analysis.events()) > 20


def test_its_checkpoints_are_found_and_whole(copy: Path):
    results = [Result.from_path(trial.path) for trial in ExperimentAnalysis(copy).trials]
    is_class = copy.name == "class"
    names = [[Path(checkpoint.path).name for checkpoint, _ in result.best_checkpoints] for result in results]
    assert names == [
        ["checkpoint_000003", "checkpoint_000004"],
        ["checkpoint_000001"],
        ["checkpoint_000001"],
        [f"checkpoint_00000{step}" for step in range(1, 2 + 1)],
    ]
    for result in results:
        for checkpoint, metrics in result.best_checkpoints:
            assert Path(checkpoint.path).is_relative_to(copy)
            verify(checkpoint.path)
            with checkpoint.as_directory() as directory:
                if not is_class:
                    assert Path(directory, "step").read_text() == str(metrics["step"])


def test_the_command_line_reads_it(copy: Path):
    for command, expected in {
        "ls {}": "finished",
        "trials {}": "stopped early",
        "best {}": "finishes",
        "show {}": "Ballast(7)",
        "show {} 2": "GoldenError",
        "logs {} 2": "raise GoldenError",
        "why {}": "GoldenError",
        "replay {}": "Suggested",
    }.items():
        done = CliRunner().invoke(command_line, [*command.format(copy.name).split(), "--storage", str(copy.parent)])
        assert done.exit_code == 0, done.output
        assert expected in done.output


@pytest.mark.parametrize(
    "copy",
    [
        pytest.param(
            path, marks=() if path.name == "function" else pytest.mark.slow, id=f"{path.parent.name}-{path.name}"
        )
        for path in KEPT
    ],
    indirect=True,
)
def test_it_replays_and_resumes_where_it_was_copied_to(copy: Path):
    assert "all as recorded" in run_python("-m", "sweep.cli.main", "replay", str(copy), "--verify", cwd=copy.parent)
    run_python("-c", AGAIN, str(copy), copy.name, cwd=copy.parent)
    analysis = ExperimentAnalysis(copy)
    assert [trial.status for trial in analysis.trials] == ["TERMINATED", "TERMINATED", "ERROR", *["TERMINATED"] * 2]
    assert [trial.attempt for trial in analysis.trials] == [1, 1, 1, 2, 1]
    killed, late = (trial.last_result for trial in analysis.trials[3:])
    assert (killed["step"], killed["started_at"]) == (4, 2)
    assert (late["step"], late["started_at"]) == (4, 0)
    assert own_part(late["config"])["doubled"] == 2 * own_part(late["config"])["x"]
    assert analysis.best_config is not None
    assert own_part(analysis.best_config)["case"] == "late"
    assert "all as recorded" in run_python("-m", "sweep.cli.main", "replay", str(copy), "--verify", cwd=copy.parent)


def pickles_in(data: Any) -> Iterator[bytes]:
    """Yield every pickle in a JSON value."""
    if isinstance(data, dict):
        for key, value in data.items():
            if key in ("$pickle", "pickled") and isinstance(value, str):
                yield base64.b64decode(value)
            yield from pickles_in(value)
    elif isinstance(data, list):
        for value in data:
            yield from pickles_in(value)


def names_in(data: bytes) -> set[str]:
    """Return the modules that a pickle, and the pickles in it, take something from; nothing is loaded."""
    found: set[str] = set()
    for _, argument, _ in pickletools.genops(data):
        if isinstance(argument, str) and re.fullmatch(r"[a-z_]+(\.[a-z_]+)*", argument):
            found.add(argument.partition(".")[0])
        elif isinstance(argument, bytes) and argument[:2] in (b"\x80\x04", b"\x80\x05"):
            found |= names_in(argument)
    return found


@pytest.mark.parametrize("root", KEPT, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_no_pickle_holds_code_and_nothing_names_the_machine_it_was_made_on(root: Path):
    places = re.compile(rb"/(home|root|tmp|usr|work|var|opt)/")
    assert [path for path in root.rglob("*") if path.is_file() and places.search(path.read_bytes())] == []
    pickles = [path.read_bytes() for path in root.rglob("*.pkl")]
    database = sqlite3.connect(root / "sweep.db")
    for query in ("SELECT data FROM event", "SELECT state FROM trial"):
        for (text,) in database.execute(query):
            pickles += pickles_in(json.loads(text)) if text else []
    database.close()
    assert len(pickles) > 5
    assert not any("cloudpickle" in names_in(data) for data in pickles)
    assert "golden_work" in names_in((root / "tuner.pkl").read_bytes())


def test_a_pickle_with_code_is_recognised():
    import cloudpickle

    function: Callable[[], int] = lambda: 1  # noqa: E731
    assert "cloudpickle" in names_in(pickle.dumps({"inner": cloudpickle.dumps(function)}))
