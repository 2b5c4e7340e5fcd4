"""What is said to a sweep that runs: `sweep stop`, `cancel`, `pause`, `retry`, `enqueue`, `edit`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from searchers.space import Domain
from searchers.variants import grid_values
from sweep.cli.arguments import seconds_of
from sweep.cli.options import name_argument, some_trials_argument, where_option
from sweep.cli.ranges import parse_parameter, put
from sweep.cli.tables import json_option, say
from sweep.core.failures import CLASSES
from sweep.core.literals import as_arguments, parse_literal
from sweep.core.results import without_index
from sweep.errors import ConfigError
from sweep.record.reader import ExperimentReader
from sweep.requests.attached import Attached


def _verb(name: str, short_help: str, help: str) -> Callable[..., Any]:
    """Return the command of a request that takes nothing but trials."""

    def command(reader: ExperimentReader, some: tuple[str, ...], as_json: bool) -> None:
        say(reader, name, Attached(reader).ask(name, some), as_json)

    for decorate in (where_option, json_option(), some_trials_argument, name_argument):
        command = decorate(command)
    return click.command(name, short_help=short_help, help=help)(command)


stop = _verb(
    "stop",
    "Let what runs finish, and start nothing new.",
    """Let a sweep end: trials that run finish, nothing new starts. With TRIAL: end these, for good, at their next
    report.

    \b
    Examples:
      sweep stop digits
      sweep stop digits 12 13
    """,
)
cancel = _verb(
    "cancel",
    "End a sweep or trials now.",
    """End a sweep now and for good, with all that runs; or, with TRIAL, these trials. Everything that was reported is
    kept.

    \b
    Examples:
      sweep cancel digits
      sweep cancel digits 12
    """,
)
pause = _verb(
    "pause",
    "Save what runs and free what it holds.",
    """Pause a sweep: trials are saved at their next checkpoint and let go of what they hold, and nothing starts until
    `sweep resume NAME`. Those that never save a checkpoint go on to their end. With TRIAL: only these.

    \b
    Examples:
      sweep pause digits
      sweep pause digits 12
      sweep resume digits 12
    """,
)


@click.command(short_help="Start failed trials again.")
@name_argument
@some_trials_argument
@click.option("--failed", metavar="KIND,...", help=f"Only those that failed so: {', '.join(CLASSES)}.")
@json_option()
@where_option
def retry(reader: ExperimentReader, some: tuple[str, ...], failed: str | None, as_json: bool) -> None:
    """Start trials again from their last checkpoint: all that have failed, or TRIAL. Of a sweep that does not run this
    is done at its next start.

    \b
    Examples:
      sweep retry digits
      sweep retry digits --failed out_of_memory,timeout
      sweep retry digits 12
    """
    kinds = [] if failed is None else [kind.strip().replace("oom", "out_of_memory") for kind in failed.split(",")]
    if unknown := [kind for kind in kinds if kind not in CLASSES]:
        raise ConfigError(f"--failed {unknown[0]}: expected some of {', '.join(CLASSES)}.")
    say(reader, "retry", Attached(reader).retry(some or None, failed=kinds), as_json)


@click.command(short_help="Try a config next.")
@name_argument
@click.argument("values", metavar="PARAMETER=VALUE...", nargs=-1, required=True)
@json_option()
@where_option
def enqueue(reader: ExperimentReader, values: Sequence[str], as_json: bool) -> None:
    """Try a config next, beyond the number of trials that were asked for. What is left open is drawn at random. A value
    outside of the search space is tried, too; the searcher does not learn from it.

    \b
    Examples:
      sweep enqueue digits lr=0.01 bs=32
      sweep enqueue digits net.width=64
    """
    say(reader, "enqueue", Attached(reader).enqueue(_config_of(values)), as_json)


def _config_of(values: Sequence[str]) -> dict[str, Any]:
    config: dict[str, Any] = {}
    for text in values:
        name, value = parse_parameter(text)
        if isinstance(value, Domain) or grid_values(value) is not None:
            raise ConfigError(f"{text}: expected one value, such as {name}=0.01.")
        put(config, name, value)
    return config


@click.command(short_help="Change how much is tried, and how much at a time.")
@name_argument
@click.option("--trials", metavar="N|+N", help="A new number of samples, or so many more.")
@click.option("--time", "span", metavar="SPAN|+SPAN", help="A new time budget such as 2h, or so much more.")
@click.option("--concurrency", type=click.IntRange(min=1), help="Trials at a time, at most; what runs goes on.")
@json_option()
@where_option
def edit(
    reader: ExperimentReader, trials: str | None, span: str | None, concurrency: int | None, as_json: bool
) -> None:
    """Change how much a sweep tries. Of one that does not run this is done at its next start.

    \b
    Examples:
      sweep edit digits --trials +50
      sweep edit digits --concurrency 4 --time +2h
    """
    budget = seconds_of(span)
    said = Attached(reader).edit(num_samples=trials, time_budget_s=budget, max_concurrent_trials=concurrency)
    say(reader, "edit", said, as_json)


def ask(reader: ExperimentReader, given: Mapping[str, Any]) -> str:
    """Do what the page of `sweep watch` asks for and return what came of it: a `verb`, of some `trials` (numbers) or of
    the sweep, with what was `typed` by field."""
    running = Attached(ExperimentReader(reader.root))  # its own: the page reads with the other
    verb, trials, typed = given["verb"], given.get("trials"), given.get("typed", {})
    match verb:
        case "config":  # of a trial, to be changed and tried
            return as_arguments(without_index(reader.trial(trials[0]).config)) if trials else ""
        case "enqueue":
            return running.enqueue(_config_of(shlex.split(typed["config"])))
        case "edit":
            most, span = parse_literal(typed["concurrency"] or "null"), seconds_of(typed["time"] or None)
            return running.edit(num_samples=typed["trials"] or None, time_budget_s=span, max_concurrent_trials=most)
        case "stop" | "cancel" | "pause" | "resume" | "retry" if trials is None or trials:  # none is not all
            return running.ask(verb, trials)
    raise ConfigError(f"{verb!r} of trials {trials!r} cannot be asked for here.")
