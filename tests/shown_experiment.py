"""An experiment made by hand that has something for every part of its page, with texts that want to be markup."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from made_experiment import MadeExperiment

from searchers.space import choice, loguniform, to_json
from sweep.page.subject import Subject
from sweep.record.reader import ExperimentReader

SCRIPT = "<script>document.title = 'hit'</script>"
TRACE = f'Traceback (most recent call last):\n  File "train.py", line 3\nValueError: {SCRIPT} \x1b[31m'
SPACE = {"lr": loguniform(1e-5, 0.1), "act": choice(["relu", "gelu"])}


def begin(made: MadeExperiment, number: int, *, at: float, waited: float = 0.5, **config: Any) -> str:
    """Create a trial, let it wait, give it its place and start it."""
    trial = made.trial({"lr": 10.0 ** -(1 + number % 5), "act": ("relu", "gelu")[number % 2], **config}, at=at)
    made.event("Tick", at=at + waited, commands=[["Start", trial, 1, [["local", []]]]])
    made.start(trial, at=at + waited + 0.25)
    return trial


def finish(made: MadeExperiment, trial: str, steps: int, *, at: float, loss: float, **end: Any) -> None:
    """Let a trial report and end."""
    for step in range(steps):
        made.report(trial, {"loss": loss / (step + 1), "eval": {"acc": step / 10}}, at=at + step)
    made.end(trial, at=at + steps, **end)
    made.event("Released", trial, at=at + steps)


def shown_experiment(root: Path, name: str = "shown", **meta: Any) -> MadeExperiment:
    """Trials 0 to 9: finished, stopped early, failed (two alike), running, waiting; 0 is best."""
    made = MadeExperiment(
        root, name, num_trials=10, domains=to_json(SPACE), searcher="random", scheduler="asha", seed=7, **meta
    )
    for number in range(4):
        trial = begin(made, number, at=float(number), tag=SCRIPT)
        finish(made, trial, 9, at=number + 1.0, loss=9.0 + number, reason="reached max_t: training_iteration=9")
    for number in range(4, 6):
        trial = begin(made, number, at=float(number))
        why = f"stopped early: loss={number} at 3, cutoff 2"
        finish(made, trial, 3, at=number + 1.0, loss=20.0, kind="STOPPED", reason=why)
    for number in range(6, 8):
        trial = begin(made, number, at=float(number))
        error = f"ValueError: {SCRIPT} {number}"
        how = {"kind": "FAILED", "reason": error, "error": error, "traceback": TRACE}
        finish(made, trial, 1, at=number + 1.0, loss=math.nan, **how)
    running = begin(made, 8, at=9.0)
    made.report(running, {"loss": 30.0, SCRIPT: 1.0, "big": 2**60}, at=10.0)
    made.trial({"lr": 1e-3, "act": None}, at=9.0, reason="waits for cpu=1; 0 of 2 free, the rest held by 00008")
    made.event("Tick", at=13.0)
    made.commit()
    return made


def subject(root: Path, **compared: Any) -> Subject:
    """Return the experiment of a directory as a page has it."""
    return Subject(ExperimentReader(root), **compared)
