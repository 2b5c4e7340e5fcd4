"""Carry out a sweep for a command: what is shown meanwhile, and how it went, as an exit code."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from sweep.callbacks.base import Callback
from sweep.cli.conditions import require_option
from sweep.cli.programs import print_winner
from sweep.cli.tables import json_option
from sweep.core.literals import jsonable
from sweep.core.results import TrialResult
from sweep.core.trial import Trial, shown_state
from sweep.errors import ConfigError
from sweep.programs.program import Program
from sweep.record.reader import ExperimentReader

quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
verbose_option = click.option("-v", "--verbose", "is_wordy", is_flag=True, help="Also print a line per result.")
_events_option = json_option("Print one JSON object per event instead of the display.")


def _file(ctx: click.Context, parameter: click.Parameter, given: str | None) -> Path | None:
    path = None if given is None else Path(given).expanduser().absolute()
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        raise ConfigError(f"--junit {given}: expected a file to write, in a directory that is there.")
    return path


_on_end_option = click.option("--on-end", metavar="COMMAND", help="Run this when the sweep ends, however it does.")
_junit_option = click.option(
    "--junit", metavar="FILE", callback=_file, help="Write the trials as test cases, for a CI."
)


def carried_options(command: Any) -> Any:
    """Give a command the options of what is carried out: `on_end`, and what `carry_out` takes by name."""
    for option in (_events_option, verbose_option, quiet_option, _junit_option, require_option, _on_end_option):
        command = option(command)
    return command


def carry_out(
    trainable: Any, kwargs: dict[str, Any], *, quiet: bool, is_wordy: bool, as_json: bool, conditions: Any, junit: Any
) -> int:
    """Call `sweep.run` with these arguments and return the exit code."""
    import sweep  # heavy for a help text

    callbacks: list[Callback] = [one for one in kwargs.pop("callbacks", ()) if not isinstance(one, JsonLines)]
    if as_json:
        callbacks.append(JsonLines())
    kwargs |= {"verbose": 0 if quiet or as_json else 2 if is_wordy else 1, "callbacks": callbacks}
    kwargs |= {"on_interrupt": "return", "raise_on_failed_trial": False}
    from sweep.cli.best import unmet  # likewise

    before = sweep.last_analysis()
    try:
        analysis = sweep.run(trainable, **kwargs)
    finally:
        if junit is not None and (last := sweep.last_analysis()) is not None and last is not before:
            from sweep.cli.running.junit import write_junit

            write_junit(junit, ExperimentReader(last.experiment_path), conditions, sys.exception())
    if not quiet and not as_json and isinstance(trainable, Program):
        print_winner(analysis)
    statuses = [trial.status for trial in analysis.trials]
    if analysis.interrupted:
        return 130
    if "ERROR" in statuses and "TERMINATED" not in statuses:
        return 1  # also where all failed alike, and others were not started
    if why := unmet(ExperimentReader(analysis.experiment_path), conditions):
        click.echo(f"error: {why}", err=True)
        return 4
    return 3 if "ERROR" in statuses else 0


def note(text: str) -> None:
    """Print a note where it does not get into what a program reads."""
    click.echo(f"note: {text}", err=True)


class JsonLines(Callback):
    """Print one JSON object per event."""

    def __init__(self) -> None:
        self._is_broken = False

    def __setstate__(self, state: Any) -> None:
        self._is_broken = True  # it was kept with what was asked for: another command prints what it is told to

    def setup(self, *, experiment_dir: str, plan: Any, num_trials: int | None, **info: Any) -> None:
        self._print("sweep_start", experiment_dir=experiment_dir, num_trials=num_trials, name=info.get("name"))

    def on_trial_start(self, trial: Trial) -> None:
        self._print("trial_start", trial, config=trial.config, attempt=trial.attempt)

    def on_trial_result(self, trial: Trial, result: TrialResult) -> None:
        self._print("trial_result", trial, metrics=dict(result))

    def on_trial_save(self, trial: Trial) -> None:
        self._print("trial_save", trial, checkpoint=trial.checkpoint.path if trial.checkpoint else None)

    def on_trial_pause(self, trial: Trial) -> None:
        self._print("trial_pause", trial, reason=trial.reason)

    def on_trial_recover(self, trial: Trial) -> None:
        self._print("trial_retry", trial, reason=trial.reason)

    def on_trial_complete(self, trial: Trial) -> None:
        self._print("trial_complete", trial, reason=trial.reason)

    def on_trial_error(self, trial: Trial) -> None:
        self._print("trial_error", trial, reason=trial.reason)

    def on_experiment_end(self, trials: Sequence[Trial]) -> None:
        ended = sum(trial.is_ended for trial in trials)
        self._print("sweep_end", num_trials=len(trials), num_ended=ended)

    def _print(self, event: str, trial: Trial | None = None, **more: Any) -> None:
        if self._is_broken:
            return
        facts: dict[str, Any] = {"event": event, "time": time.time()}
        if trial is not None:
            facts |= {"trial_id": trial.id, "status": trial.status.value, "state": shown_state(trial)}
        line = json.dumps(jsonable(facts | more), ensure_ascii=False)
        try:
            print(line, flush=True, file=sys.stdout)
        except (OSError, ValueError):  # their reader has gone: the sweep goes on
            self._is_broken = True
