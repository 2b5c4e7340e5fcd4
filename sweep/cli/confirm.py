"""`sweep confirm`: run the best configs again with other seeds, and say which one to take."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from sweep.cli.options import goal_option, metric_option, name_argument, where_option
from sweep.cli.running.carrying import quiet_option, verbose_option
from sweep.cli.tables import emit, json_option, print_rows
from sweep.confirmation import REPEATS, TOP
from sweep.core.literals import json_text
from sweep.display.formats import clean
from sweep.errors import ConfigError
from sweep.figures.style import graph_objects
from sweep.record.reader import ExperimentReader


@click.command(short_help="Run the best configs again with other seeds.")
@name_argument
@click.option("--top", type=click.IntRange(min=1), default=TOP, show_default=True, help="How many configs.")
@click.option("--repeats", type=click.IntRange(min=2), default=REPEATS, show_default=True, help="Runs of each at most.")
@metric_option
@goal_option
@click.option("--concurrency", "max_concurrent_trials", type=click.IntRange(min=1), help="Trials at a time, at most.")
@click.option("--figure", metavar="FILE.html", help="Also write a figure of the runs.")
@quiet_option
@verbose_option
@json_option()
@where_option
def confirm(
    reader: ExperimentReader, figure: str | None, quiet: bool, is_wordy: bool, as_json: bool, **given: Any
) -> int:
    """Run the best configs of a sweep again with other seeds, and say which one to take. A config is dropped, from its
    third run on, once it is unlikely to win. They run as the sweep NAME-confirm; the same command goes on with it.

    \b
    Examples:
      sweep confirm digits
      sweep confirm digits --top 3 --repeats 40 --figure confirmed.html
      sweep confirm digits --json

    Exit codes: 0 there is a winner, 1 there is none, 2 bad usage, 130 interrupted.
    """
    import sweep

    if figure is not None:
        graph_objects()  # before hours of runs
    given = {name: value for name, value in given.items() if value is not None}
    verbose = 0 if quiet or as_json else 2 if is_wordy else 1
    found = sweep.confirm(reader.root, on_interrupt="return", verbose=verbose, **given)
    if figure is not None:
        try:
            found.figure().write_html(figure)
        except OSError as error:
            raise ConfigError(f"--figure {figure} cannot be written: {error.strerror or error}.") from error
    if as_json:
        emit(json_text({**asdict(found), "best": found.best, "said": str(found)}) + "\n")
    elif not quiet:
        names = ["trial", "value", "runs", "mean", "low", "high", "failed", "dropped"]
        rows = [one | {"trial": f"{one['trial']:05d}"} for one in found.configs]
        print_rows(rows, names, "table")
        click.echo(clean(found))
    return 130 if found.interrupted else 1 if found.best is None else 0
