"""A sweep on a cluster whose driver's machine is gone goes on from what was published, on another one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest

import sweep

pytestmark = pytest.mark.ray

SCRIPT = """
import os, signal, sqlite3, sys, threading, time
import sweep

address, storage, seen, is_first = sys.argv[1:]

def train(config):
    start = 0
    if (checkpoint := sweep.get_checkpoint()) is not None:
        with checkpoint.as_directory() as directory:
            start = int(open(os.path.join(directory, "step")).read())
    with open(os.path.join(config["seen"], str(config["x"])), "a") as file:
        file.write(f"{start} ")
    while config["x"] >= 4 and not os.path.exists(os.path.join(config["seen"], "resumed")):
        time.sleep(0.05)
    for step in range(start, 3):
        with open("step", "w") as file:
            file.write(str(step + 1))
        sweep.report({"loss": step}, checkpoint=sweep.Checkpoint.from_directory("."))

def die_when_published():
    query = "SELECT count(*) FROM trial WHERE status = 'TERMINATED'"
    while True:
        try:
            with sqlite3.connect(f"file:{storage}/moved/sweep.db?mode=ro", uri=True) as connection:
                if connection.execute(query).fetchone()[0] == 4:
                    os.kill(os.getpid(), signal.SIGKILL)
        except sqlite3.Error:
            pass
        time.sleep(0.1)

if is_first == "1":
    threading.Thread(target=die_when_published, daemon=True).start()
sweep.init(engine="ray", address=address)
sweep.run(
    train, config={"x": sweep.grid_search(list(range(8))), "seen": seen}, name="moved", storage_path=storage,
    metric="loss", mode="max", resume="AUTO", verbose=0, chdir_to_trial_dir=True, resources_per_trial={"cpu": 2},
)
"""


def test_a_sweep_whose_driver_is_gone_goes_on_from_the_published_record_on_another_machine(cluster, tmp_path, left):
    script, seen = tmp_path / "drive.py", tmp_path / "seen"
    script.write_text(textwrap.dedent(SCRIPT))
    seen.mkdir()

    def drive(machine: str, is_first: str) -> subprocess.CompletedProcess[str]:
        """Drive from a machine of this name: one with a cache of its own."""
        environ = os.environ | {"SWEEP_SHARED_STORAGE": "1", "SWEEP_CACHE": str(tmp_path / machine)}
        command = [sys.executable, str(script), cluster.address, str(tmp_path / "storage"), str(seen), is_first]
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)

    killed = drive("here", "1")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert left(tmp_path / "storage" / "moved") == []
    (seen / "resumed").touch()
    resumed = drive("elsewhere", "0")
    assert resumed.returncode == 0, resumed.stderr
    assert [(seen / str(number)).read_text() for number in range(4)] == ["0 "] * 4
    frame = sweep.ExperimentAnalysis(tmp_path / "storage" / "moved").dataframe()
    assert sorted(frame["loss"]) == [2] * 8
    assert left(tmp_path / "storage" / "moved") == []
