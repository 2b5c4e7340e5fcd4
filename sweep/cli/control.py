"""`sweep resume`: go on with a sweep that was interrupted, has crashed or is to be extended."""

from __future__ import annotations

import click

from sweep.cli.arguments import RunArguments, parse_count, parse_seconds
from sweep.cli.inspect import storage_option
from sweep.cli.run import execute
from sweep.errors import ConfigError, ExperimentError
from sweep.record.reader import ExperimentReader, find_experiment
from sweep.record.storage import storage_of

__all__ = ["resume"]


@click.command(short_help="Go on with a sweep, or extend it.")
@click.argument("name")
@click.option("--trials", metavar="N|+N", help="A new number of samples, or so many more.")
@click.option("--time", "span", metavar="SPAN|+SPAN", help="A new time budget such as 2h, or so much more.")
@click.option("--errored", is_flag=True, help="Also start failed trials again.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
@click.option("-v", "--verbose", is_flag=True, help="Also print a line per result.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per event instead of the display.")
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

    Works for sweeps that `sweep run` has started; one that a Python script has started is resumed by that script, and
    this command says how.

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
    if arguments is None:
        raise ExperimentError(_how_in_python(reader, place))
    arguments.name, arguments.storage = reader.root.name, place
    if trials is not None:
        before = arguments.num_samples()
        if before < 0 and trials.strip().startswith("+"):
            raise ConfigError(f"{arguments.name} has no limit of trials that could be raised by {trials}.")
        arguments.trials = parse_count(trials, before)
    if span is not None:
        is_more = span.strip().startswith("+")
        arguments.trials = arguments.num_samples()  # before a budget changes what "not given" means
        arguments.time_s = parse_seconds(span.strip().removeprefix("+")) + (_driven(reader) if is_more else 0.0)
    return execute(
        arguments,
        resume="AUTO+ERRORED" if errored else True,
        verbose=0 if quiet or as_json else 2 if verbose else 1,
        as_json=as_json,
    )


def _driven(reader: ExperimentReader) -> float:
    """Return for how many seconds the sweep has been driven so far."""
    found = reader.last_event()
    return found[1] if found is not None else 0.0


def _how_in_python(reader: ExperimentReader, storage: str) -> str:
    path = str(reader.meta.get("import_path") or "")
    where = f" ({path.rpartition(':')[0]})" if path else ""
    return (
        f"{reader.name} was started from Python; resume it there{where}: make the same call with "
        f"name={reader.root.name!r}, storage_path={storage!r}, resume=True. "
        "Raise num_samples or time_budget_s in it to extend the sweep."
    )
