"""Kills a driver, starts it again and looks at what its trials noted beside their reports, whichever tool it is of."""

import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TRIALS, STEP_S = 4, 0.05


def train(trial, steps, directory, begun, report):
    """Do the steps that are left, and note each once it has been reported.

    `report(step, path)` reports it with the checkpoint that lies at `path`; `begun` is the last attempt's, or None.
    """
    step = int(Path(begun, "step").read_text()) if begun else 0
    while step < steps:
        time.sleep(STEP_S)
        step += 1
        with tempfile.TemporaryDirectory() as place:
            Path(place, "step").write_text(str(step))
            report(step, place)
        with open(Path(directory, "noted"), "a") as file:
            file.write(f"{time.time()} {trial} {step}\n")


def noted(directory):
    """Return (time, trial, step) of each report that was noted, oldest first."""
    path = Path(directory, "noted")
    lines = path.read_text().splitlines() if path.exists() else []
    return sorted((float(at), int(trial), int(step)) for at, trial, step in map(str.split, lines))


def measure(script, directory, steps):
    """Kill the driver in the middle of its trials, start it again, print what that took and what it cost.

    `script DIRECTORY STEPS begin` is the first driver; the second one, with `resume`, prints as JSON the steps of each
    trial that the results hold.
    """
    command = [sys.executable, script, str(directory), str(steps)]
    driver = subprocess.Popen([*command, "begin"])
    try:
        while len(noted(directory)) < TRIALS * steps // 2:
            if driver.poll() is not None:
                raise SystemExit(f"the driver ended by itself, with {driver.returncode}")
            time.sleep(0.01)
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    killed = time.time()
    ended = subprocess.run([*command, "resume"], stdout=subprocess.PIPE, text=True, check=True)
    before = {(trial, step) for at, trial, step in noted(directory) if at <= killed}
    after = [(at, trial, step) for at, trial, step in noted(directory) if at > killed]
    first = min(at for at, trial, step in after if (trial, step) not in before)
    held = {int(trial): set(held) for trial, held in json.loads(ended.stdout.splitlines()[-1]).items()}
    found = {
        "resumed_s": first - killed,
        "repeated": sum((trial, step) in before for _, trial, step in after),
        "lost": sum(step not in held.get(trial, ()) for trial, step in before),
    }
    missing = TRIALS * steps - sum(len(steps_held) for steps_held in held.values()) - found["lost"]
    assert missing <= 0, f"{missing} reports are in no result"
    print(json.dumps(found))


def is_measuring():
    """Whether this process was started to measure, not as the driver."""
    return len(sys.argv) == 3
