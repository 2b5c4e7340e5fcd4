"""The example that runs on any engine, run somewhere, and what came of it."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import sweep
from sweep.core.history import History
from sweep.engines.local.fork_server_client import own_path
from sweep.figures.attempts import nodes_of
from sweep.record.facts import read_facts
from sweep.record.reader import ExperimentReader

EXAMPLE = Path(__file__).parents[1] / "examples" / "torch_digits_anywhere.py"
COMMAND = (sys.executable, str(EXAMPLE))
NAMES = ("digits", "digits_groups")


def started(storage: Path, *words: str, command: tuple[str, ...] = COMMAND) -> subprocess.Popen[str]:
    """Start the example with such arguments, or what a command makes of it."""
    environ = {**os.environ, "SWEEP_STORAGE": str(storage), "PYTHONPATH": os.pathsep.join(own_path())}
    return subprocess.Popen(
        [*command, *words], env=environ, cwd=storage, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(storage: Path, *words: str, command: tuple[str, ...] = COMMAND) -> None:
    """Run the example to its end."""
    with started(storage, *words, command=command) as process:
        await_end(process)


def await_end(process: subprocess.Popen[str]) -> None:
    """Wait until the example has ended well."""
    try:
        said, errors = process.communicate(timeout=250)
    finally:
        process.kill()
    assert process.returncode == 0, (said, errors)
    assert said.count("best loss") == 2


def outcome(experiment: str | Path) -> list[tuple[Any, ...]]:
    """Return config, status, number of reports and last loss of each trial."""
    trials = History.of(read_facts(Path(experiment) / "sweep.db")).trials.values()
    last = [(trial, trial.last_result or {}) for trial in trials]
    return [(trial.config, trial.status, seen["training_iteration"], seen["loss"]) for trial, seen in last]


def places(experiment: str | Path) -> list[tuple[str, ...]]:
    """Return the nodes of each attempt."""
    return [nodes_of(attempt) for attempt in ExperimentReader(experiment).history().attempts]


@functools.cache
def at_home() -> tuple[list[tuple[Any, ...]], ...]:
    """Return what comes of both sweeps on this machine."""
    with tempfile.TemporaryDirectory() as storage:
        run(Path(storage))
        return tuple(outcome(Path(storage, name)) for name in NAMES)


def assert_as_at_home(storage: Path) -> None:
    """Both sweeps came to what they come to on this machine, to the last bit, on two nodes; their records verify."""
    assert tuple(outcome(storage / name) for name in NAMES) == at_home()
    for name in NAMES:
        assert sweep.replay(storage / name).differences == []
    assert [len(place) for place in places(storage / "digits_groups")] == [2, 2, 2]
