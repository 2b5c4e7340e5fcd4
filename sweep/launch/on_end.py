"""What is told that a sweep has ended, however it did: a function of the user's, or a command."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sweep.core.literals import json_text
from sweep.core.results import without_index
from sweep.errors import ExperimentError
from sweep.record.reader import ExperimentReader
from sweep.results.winners import best_by_last

_PATIENCE_S = 60.0


def tell_end(on_end: Callable[[Any], Any] | Sequence[str], analysis: Any, root: Path, error: Any) -> str:
    """Call a function with the analysis, or run a command, without a shell; return what went wrong, empty if nothing.

    A command finds what happened in variables of its environment and, as JSON, on its standard input. What it prints
    goes to standard error. After 60 s it is killed, with what it has started. `error`: what ended the sweep, or None.
    """
    try:
        if callable(on_end):
            on_end(analysis)
        else:
            _run(on_end, _facts(ExperimentReader(root), bool(analysis and analysis.interrupted), error))
    except Exception as failure:  # the user's function, a command that is not there: the sweep is over all the same
        return f"on_end failed: {type(failure).__name__}: {failure}"
    return ""


def _facts(reader: ExperimentReader, is_interrupted: bool, error: Any) -> dict[str, Any]:
    counts = Counter(trial.state for trial in reader.trials())
    best = None if reader.objectives else best_by_last(reader, reader.metric, reader.mode)
    is_failed = error is not None or (counts["failed"] > 0 and not counts["finished"] + counts["stopped early"])
    return {
        "name": reader.name,
        "state": "interrupted" if is_interrupted else "failed" if is_failed else "ended",
        "dir": str(reader.root.absolute()),
        "metric": ", ".join(metric for metric, _ in reader.objectives) or reader.metric,
        "mode": reader.mode,
        "best": best and best.value,
        "best_trial": best and best.row.trial_id,
        "best_config": best and without_index(best.row.config),
        "trials": dict(counts),
        "error": error and str(error),
    }


def _run(words: Sequence[str], facts: dict[str, Any]) -> None:
    told = {f"SWEEP_{name.upper()}": str(facts[name] or "") for name in ("name", "state", "dir", "metric")}
    told["SWEEP_BEST"] = "" if facts["best"] is None else str(facts["best"])
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=2, env=os.environ | told, text=True, start_new_session=True
    )
    try:
        process.communicate(json_text(facts), timeout=_PATIENCE_S)
    except BaseException:  # it takes too long, or Ctrl-C
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if process.returncode:
        raise ExperimentError(f"{shlex.join(words)} ended with {process.returncode}")
