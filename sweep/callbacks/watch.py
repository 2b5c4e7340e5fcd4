"""Small observers that every sweep has: the file with a trial's tracebacks, and a word on stop keys nobody reports."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

from sweep.callbacks.base import Callback
from sweep.core.results import Result, flatten
from sweep.core.trial import Trial
from sweep.errors import nearest
from sweep.store.layout import ExperimentLayout
from sweep.store.schema import open_for_reading

__all__ = ["ERROR_FILE", "ErrorFileCallback", "StopKeys"]

ERROR_FILE = "error.txt"


class ErrorFileCallback(Callback):
    """Append every failure of a trial to `error.txt` in its directory, also those after which it is started again."""

    layout: ExperimentLayout

    def setup(self, *, experiment_dir: str, plan: Any, num_trials: int | None, **info: Any) -> None:
        """Take the experiment's directory."""
        self.layout = ExperimentLayout(Path(experiment_dir))

    def on_trial_recover(self, trial: Trial) -> None:
        """Write why it has to be started again."""
        self._write(trial)

    def on_trial_error(self, trial: Trial) -> None:
        """Write why it failed."""
        self._write(trial)

    def _write(self, trial: Trial) -> None:
        ended = self._last_exit(trial.id)
        said = ended.get("traceback") or ended.get("error") or trial.reason
        number = trial.failures + trial.losses
        path = self.layout.trial(trial.id) / ERROR_FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8", errors="replace") as file:
            file.write(f"Failure # {max(number, 1)} (occurred at {datetime.now():%Y-%m-%d_%H-%M-%S})\n{said}\n\n")

    def _last_exit(self, trial_id: str) -> dict[str, Any]:
        with closing(open_for_reading(self.layout.database)) as connection:
            row = connection.execute(
                "SELECT json_remove(json_extract(data, '$.exit'), '$.pickled') FROM event"
                " WHERE kind = 'Exited' AND trial_id = ? ORDER BY seq DESC LIMIT 1",
                (trial_id,),
            ).fetchone()
        return dict(json.loads(row[0])) if row is not None and row[0] is not None else {}


class StopKeys(Callback):
    """Say once when the first report lacks a key of `stop=`: such a rule never ends anything.

    Args:
        stop: the criteria.
        notice: is told.
    """

    def __init__(self, stop: Mapping[str, float], notice: Callable[[str], None]) -> None:
        self._stop = stop
        self._notice = notice
        self._has_looked = False

    def on_trial_result(self, trial: Trial, result: Result) -> None:
        """Look at the first report."""
        if self._has_looked:
            return
        self._has_looked = True
        missing = [key for key in self._stop if result.get(key) is None]
        if missing:
            names = ", ".join(map(repr, missing))
            self._notice(
                f"stop= names {names}, which the first report of trial {trial.id} lacks; it ends nothing until it is "
                f"reported. {nearest(missing[0], list(flatten(result)))}"
            )
