"""`sweep resume`: go on with a sweep that was interrupted, has crashed or is to be extended."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any

import click

from sweep.cli.arguments import RunArguments, import_trainable, parse_count, parse_seconds
from sweep.cli.completion import complete_name
from sweep.cli.inspect import storage_option
from sweep.cli.run import carry_out, execute, say
from sweep.cli.tables import json_option
from sweep.errors import ConfigError, ExperimentError, SweepError
from sweep.record.reader import ExperimentReader, find_experiment
from sweep.record.saved_spec import read_saved_spec, with_environment
from sweep.storage.location import storage_of


@click.command(short_help="Go on with a sweep, or extend it.")
@click.argument("name", shell_complete=complete_name)
@click.option("--trials", metavar="N|+N", help="A new number of samples, or so many more.")
@click.option("--time", "span", metavar="SPAN|+SPAN", help="A new time budget such as 2h, or so much more.")
@click.option("--errored", is_flag=True, help="Also start failed trials again.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
@click.option("-v", "--verbose", is_flag=True, help="Also print a line per result.")
@json_option("Print one JSON object per event instead of the display.")
@storage_option
def resume(
    name: str,
    trials: str | None,
    span: str | None,
    errored: bool,
    quiet: bool,
    verbose: bool,
    as_json: bool,
    storage: str | None,
) -> int:
    """Go on with a sweep: after Ctrl-C, after a crash, or with more trials or time after its end.

    Works for sweeps that `sweep run` has started, and for those of a Python script: what the script called is recorded.
    Its trainable is imported from the script, which is run up to its first sweep.

    \b
    Examples:
      sweep resume digits
      sweep resume digits --trials +50
      sweep resume digits --time +2h
    """
    reader = find_experiment(name, storage)
    arguments = RunArguments.load(reader.root)
    remote = storage_of(reader.root)
    place = str(reader.root.parent if remote is None else remote.uri)
    how: dict[str, Any] = {"resume": "AUTO+ERRORED" if errored else True, "as_json": as_json}
    how["verbose"] = 0 if quiet or as_json else 2 if verbose else 1
    if arguments is None:
        trainable, given = _asked_in_python(reader, place, is_quiet=not how["verbose"])
        before = given.get("num_samples", 1)
    else:
        before = arguments.num_samples()  # before a budget changes what "not given" means
    if trials is not None and before < 0 and trials.strip().startswith("+"):
        raise ConfigError(f"{reader.root.name} has no limit of trials that could be raised by {trials}.")
    changes: dict[str, Any] = {} if trials is None else {"trials": parse_count(trials, before)}
    if span is not None:
        is_more = span.strip().startswith("+")
        changes.setdefault("trials", before)
        changes["time_s"] = parse_seconds(span.strip().removeprefix("+")) + (_driven(reader) if is_more else 0.0)
    if arguments is not None:
        return execute(replace(arguments, name=reader.root.name, storage=place, **changes), **how)
    names = {"trials": "num_samples", "time_s": "time_budget_s"}
    given |= {names[name]: value for name, value in changes.items()}
    return carry_out(trainable, given, **how)


def _driven(reader: ExperimentReader) -> float:
    """Return for how many seconds the sweep has been driven so far."""
    found = reader.last_event()
    return found[1] if found is not None else 0.0


def _asked_in_python(reader: ExperimentReader, storage: str, *, is_quiet: bool) -> tuple[Any, dict[str, Any]]:
    """Return the trainable that a script gave, and the arguments of its call, for going on.

    Raises:
        SweepError: they are not all to be had; how to go on in Python is said.
    """
    target = str(reader.meta.get("import_path") or "")
    file = target.rpartition(":")[0]
    how = (
        f"{reader.name} was started from Python; resume it there{f' ({file})' if file else ''}: make the same call "
        f"with name={reader.root.name!r}, storage_path={storage!r}, resume=True. "
        "Raise num_samples or time_budget_s in it to extend the sweep."
    )
    sys.path.insert(0, os.path.dirname(file) or os.getcwd())  # where the script finds its own modules
    try:
        given, lost = read_saved_spec(reader.root, with_trainable=True)
        trainable = given.pop("trainable", None)
        if trainable is None and target and not lost:
            trainable = import_trainable(target, None if is_quiet else say)
    except SweepError as error:
        raise type(error)(f"{error} {how}") from error.__cause__
    if trainable is None or lost:
        raise ExperimentError(f"{', '.join(lost) or 'the trainable'} cannot be loaded here. {how}")
    if is_quiet:
        given.pop("progress_reporter", None)
    if target:
        given["import_path"] = target
    given |= {"name": reader.root.name, "storage_path": storage}
    return trainable, with_environment(given, os.environ)
